//! What the kernel tells of files that change: the lock of a leader that died or let go is closed, and that is an event.
//!
//! What happens between a look at a seat and the watch that follows it is heard, too: whoever looks begins to listen before ([`Hints::listen`]).
//!
//! One task listens for all elections in a directory, where the first that wants to know lives: a thread of its own would be one more to wake before the seat is
//! taken. It ends with the engine, or with that runtime; then the next that wants to know begins another.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use rustix::fs::inotify;
use tokio::net::unix::pipe;
use tokio::sync::broadcast;
use tokio::task::AbortHandle;

use crate::engine::Error;
use crate::identity::Identity;
use crate::name::Name;

/// One that is this far behind gets one hint for all that it has missed.
const BACKLOG_MAX: usize = 256;

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

/// What has been heard since it was begun.
pub(super) type Heard = broadcast::Receiver<Arc<str>>;

/// Hints from one directory.
pub(super) struct Hints {
    directory: PathBuf,
    listener: Mutex<Listener>,
    /// Of candidates who found the seat taken, until they watch.
    heard: Mutex<BTreeMap<(Name, Identity), Heard>>,
}

/// The task that listens, while there is one.
#[derive(Default)]
struct Listener {
    news: Weak<News>,
    task: Option<AbortHandle>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Hints {
    pub(super) fn of(directory: &Path) -> Hints {
        Hints { directory: directory.to_owned(), listener: Mutex::default(), heard: Mutex::default() }
    }

    /// This candidate's watch begins with what has been heard here.
    pub(super) fn keep(&self, candidate: (Name, Identity), heard: Heard) {
        self.heard.lock().expect("nobody panics with it").insert(candidate, heard);
    }

    /// What was kept for it, and no more: it watches, or never will.
    pub(super) fn forget(&self, candidate: &(Name, Identity)) -> Option<Heard> {
        self.heard.lock().expect("nobody panics with it").remove(candidate)
    }

    /// Hints about one election, for a candidate if it is one who watches.
    pub(super) fn watch(
        &self,
        election: &Name,
        candidate: Option<&Identity>,
        wanted: Wanted,
    ) -> BoxStream<'static, Result<(), Error>> {
        let names: Vec<String> = match wanted {
            Wanted::Seat => vec![format!("{election}.lock")],
            Wanted::Wish => vec![format!("{election}.wish")],
            Wanted::Anything => vec![format!("{election}.lock"), format!("{election}.desk")],
        };
        let heard = candidate.and_then(|it| self.forget(&(election.clone(), it.clone())));
        let listening = match heard.map_or_else(|| self.listen(), Ok) {
            Ok(listening) => listening,
            Err(why) => {
                return stream::once(async move { Err(Error::refused(format!("cannot watch the directory: {why}"))) }).boxed();
            }
        };
        stream::unfold(Some((listening, names)), |state| async move {
            let (mut listening, names) = state?;
            loop {
                match listening.recv().await {
                    Ok(name) if !names.iter().any(|it| **it == *name) => {}
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => return Some((Ok(()), Some((listening, names)))),
                    Err(broadcast::error::RecvError::Closed) => {
                        return Some((Err(Error::refused("nobody watches the directory")), None));
                    }
                }
            }
        })
        .boxed()
    }

    /// What the task tells from now on; it is begun if there is none.
    pub(super) fn listen(&self) -> std::io::Result<Heard> {
        let mut listener = self.listener.lock().expect("nobody panics with it");
        if let Some(news) = listener.news.upgrade() {
            return Ok(news.subscribe());
        }
        let kernel = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
        inotify::add_watch(&kernel, &self.directory, inotify::WatchFlags::CLOSE_WRITE | inotify::WatchFlags::MOVED_TO)?;
        // No pipe, but read like one: what tokio has for all else is not safe.
        let kernel = pipe::Receiver::from_owned_fd_unchecked(kernel)?;
        let news = Arc::new(News::new(BACKLOG_MAX));
        let listening = news.subscribe();
        *listener = Listener { news: Arc::downgrade(&news), task: None };
        listener.task = Some(tokio::spawn(listen(kernel, news)).abort_handle());
        Ok(listening)
    }
}

/// Ends if the kernel has nothing more to say.
async fn listen(kernel: pipe::Receiver, news: Arc<News>) {
    let mut buffer = [0; 4096];
    while kernel.readable().await.is_ok() {
        match kernel.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(len) => {
                for name in names(&buffer[..len]) {
                    let _ = news.send(name);
                }
            }
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return,
        }
    }
}

/// The files that events are about: each event has 16 bytes, the last four of them the length of the name that follows, which ends with zeros.
fn names(mut events: &[u8]) -> Vec<Arc<str>> {
    const HEAD_LEN: usize = 16;
    let mut names = Vec::new();
    while let Some((head, rest)) = events.split_at_checked(HEAD_LEN)
        && let Some(len) = head.last_chunk().map(|it| u32::from_ne_bytes(*it) as usize)
        && let Some((name, rest)) = rest.split_at_checked(len)
    {
        events = rest;
        let name = name.split(|it| *it == 0).next().unwrap_or_default();
        // One without a name says that events were lost: nobody can tell which, so whoever listens polls.
        if !name.is_empty() {
            names.push(String::from_utf8_lossy(name).into());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &[u8]) -> Vec<u8> {
        let mut event = [1_u32, 8, 0, name.len() as u32].map(u32::to_ne_bytes).concat();
        event.extend_from_slice(name);
        event
    }

    #[test]
    fn names_are_read_from_events_and_half_an_event_is_none() {
        let both = [event(b"jobs.lock\0\0\0\0\0\0\0"), event(b""), event(b"x\0\0\0")].concat();
        assert_eq!(names(&both).iter().map(|it| &**it).collect::<Vec<_>>(), ["jobs.lock", "x"]);
        for len in 0..both.len() {
            assert!(names(&both[..len]).len() < 2, "{len}");
        }
        assert!(names(&[0xff; 40]).is_empty(), "a length that leads nowhere");
    }
}
