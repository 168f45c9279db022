//! What the kernel tells of files that change: the lock of a leader that died or let go is closed, and that is an event.
//!
//! One thread listens for all elections in a directory, and ends with the last that wants to know.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::io::Errno;
use tokio::sync::broadcast;

use crate::engine::Error;
use crate::name::Name;

/// One that is this far behind gets one hint for all that it has missed.
const BACKLOG_MAX: usize = 256;

/// How often the thread sees whether anybody still listens.
const LOOK_UP_EVERY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// What is waited for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// That the seat may be free.
    Seat,
    /// That the holder is asked for something.
    Wish,
    /// Any change.
    Anything,
}

/// The names of files that changed, for whoever listens.
type News = broadcast::Sender<Arc<str>>;

/// Hints from one directory.
pub(super) struct Hints {
    directory: PathBuf,
    news: Mutex<Weak<News>>,
}

impl Hints {
    pub(super) fn of(directory: &Path) -> Hints {
        Hints { directory: directory.to_owned(), news: Mutex::default() }
    }

    /// Hints about one election.
    pub(super) fn watch(&self, election: &Name, wanted: Wanted) -> BoxStream<'static, Result<(), Error>> {
        let names: Vec<String> = match wanted {
            Wanted::Seat => vec![format!("{election}.lock")],
            Wanted::Wish => vec![format!("{election}.wish")],
            Wanted::Anything => vec![format!("{election}.lock"), format!("{election}.desk")],
        };
        let news = match self.news() {
            Ok(news) => news,
            Err(why) => {
                return stream::once(async move { Err(Error::refused(format!("cannot watch the directory: {why}"))) }).boxed();
            }
        };
        let listening = news.subscribe();
        stream::unfold(Some((listening, news, names)), |state| async move {
            let (mut listening, news, names) = state?;
            loop {
                match listening.recv().await {
                    Ok(name) if !names.iter().any(|it| **it == *name) => {}
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => return Some((Ok(()), Some((listening, news, names)))),
                    Err(broadcast::error::RecvError::Closed) => {
                        return Some((Err(Error::refused("nobody watches the directory")), None));
                    }
                }
            }
        })
        .boxed()
    }

    /// The thread's, started if there is none.
    fn news(&self) -> std::io::Result<Arc<News>> {
        let mut kept = self.news.lock().expect("nobody panics with it");
        if let Some(news) = kept.upgrade() {
            return Ok(news);
        }
        let kernel = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
        inotify::add_watch(&kernel, &self.directory, inotify::WatchFlags::CLOSE_WRITE | inotify::WatchFlags::MOVED_TO)?;
        let news = Arc::new(broadcast::Sender::new(BACKLOG_MAX));
        *kept = Arc::downgrade(&news);
        let listeners = Arc::downgrade(&news);
        std::thread::Builder::new().name("incumbent-files".to_owned()).spawn(move || listen(&kernel, &listeners))?;
        Ok(news)
    }
}

fn listen(kernel: &OwnedFd, listeners: &Weak<News>) {
    loop {
        let mut ready = [PollFd::new(kernel, PollFlags::IN)];
        let polled = poll(&mut ready, Some(&LOOK_UP_EVERY));
        let Some(news) = listeners.upgrade() else { return };
        match polled {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(kernel, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    if let Some(name) = event.file_name() {
                        let _ = news.send(name.to_string_lossy().into());
                    }
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => break,
                Err(_) => return,
            }
        }
    }
}
