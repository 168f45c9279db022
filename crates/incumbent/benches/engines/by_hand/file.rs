//! A lock on a file with a counter in it, synced: what a durable token costs. Who waits, waits in the kernel; and nobody waits for a disk on the runtime's thread, where
//! everything else would stand still.

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
        let file = file.expect("a file");
        let locked = file.try_lock().is_ok();
        if !locked {
            waits.notify_one();
        }
        let me = self.me;
        let taken = tokio::task::spawn_blocking(move || take(file, locked, me).expect("a disk"));
        self.held = Some(taken.await.expect("does not panic"));
    }

    async fn release(&mut self) {
        self.held = None;
    }
}

fn take(mut file: std::fs::File, locked: bool, me: &str) -> std::io::Result<std::fs::File> {
    if !locked {
        file.lock()?;
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let term: u64 = text.split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0);
    file.rewind()?;
    file.write_all(format!("{} {me}", term + 1).as_bytes())?;
    file.sync_data()?;
    Ok(file)
}
