//! A lock on a file with a counter in it, synced: what a durable token costs. Who waits, waits in the kernel.

use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::contender::Contender;

pub(crate) struct File {
    path: PathBuf,
    me: &'static str,
    held: Option<std::fs::File>,
}

impl File {
    pub(crate) fn new(directory: &Path, me: &'static str) -> File {
        File { path: directory.join("by-hand"), me, held: None }
    }
}

#[async_trait]
impl Contender for File {
    async fn claim(&mut self, waits: &Notify) {
        let file = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.path);
        let mut file = file.expect("a file");
        if file.try_lock().is_err() {
            waits.notify_one();
            let waiting = tokio::task::spawn_blocking(move || file.lock().map(|()| file));
            file = waiting.await.expect("does not panic").expect("a lock");
        }
        let mut text = String::new();
        file.read_to_string(&mut text).expect("readable");
        let term: u64 = text.split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0);
        file.rewind().and_then(|()| file.write_all(format!("{} {}", term + 1, self.me).as_bytes())).expect("writable");
        file.sync_data().expect("a disk");
        self.held = Some(file);
    }

    async fn release(&mut self) {
        self.held = None;
    }
}
