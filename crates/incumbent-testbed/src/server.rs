//! What every started engine can do, whichever it is.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::process::Process;

/// A server that was started for a test. Dropping it kills it and removes its files.
pub trait Server: Send + Sync {
    /// The process it runs in.
    fn process(&self) -> &Process;

    /// The loopback port on which it serves. It stays the same through restarts.
    fn port(&self) -> u16;

    /// Asks it once whether it serves.
    fn ready(&self) -> Result<(), String>;

    /// What it has been asked since it was last started, by its own count. The testbed's own questions are left out where they can be told apart.
    fn requests(&self) -> Result<Requests, String>;

    /// Host and port.
    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// Asks it to end, and waits until it has.
    fn stop(&self) -> Result<(), String> {
        self.process().stop()
    }

    /// Kills it, as the kernel or a power cut would: nothing is flushed, no connection is closed in good order.
    fn kill(&self) {
        self.process().kill();
    }

    /// Starts it again on the same port with the same data, and waits until it serves. If it runs, it is stopped first.
    fn restart(&self) -> Result<(), String> {
        if self.process().runs() {
            self.stop()?;
        }
        self.process().start()?;
        wait_until_ready(self)
    }

    /// Stops it in its tracks: connections stay open and nothing is answered.
    fn pause(&self) {
        self.process().pause();
    }

    /// Lets it go on after [`pause`](Self::pause).
    fn resume(&self) {
        self.process().resume();
    }
}

/// How often a server was asked for what.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Requests(BTreeMap<String, u64>);

impl Requests {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Those of one kind, by the engine's own name for it (`Txn`, `evalsha`); 0 if there were none.
    pub fn of(&self, kind: &str) -> u64 {
        self.0.get(kind).copied().unwrap_or(0)
    }

    /// Those of the kinds that begin so, where a kind is a verb and a path (`GET /v1/kv/`).
    pub fn beginning(&self, kind: &str) -> u64 {
        self.0.iter().filter(|(it, _)| it.starts_with(kind)).map(|(_, count)| count).sum()
    }

    /// What was asked between `earlier` and this.
    pub fn since(&self, earlier: &Requests) -> Requests {
        let counts = self.0.iter().map(|(kind, count)| (kind.clone(), count.saturating_sub(earlier.of(kind))));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// Kinds and counts, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(kind, count)| (kind.as_str(), *count))
    }
}

impl FromIterator<(String, u64)> for Requests {
    fn from_iter<T: IntoIterator<Item = (String, u64)>>(counts: T) -> Self {
        let mut requests = Requests::default();
        for (kind, count) in counts {
            *requests.0.entry(kind).or_default() += count;
        }
        requests
    }
}

/// One server for all tests of a binary, started by the first that needs it. It dies with the process.
///
/// ```no_run
/// use incumbent_testbed::{Redis, Shared};
///
/// static REDIS: Shared<Redis> = Shared::new(|| Redis::debian().start());
/// let redis = REDIS.server();
/// ```
pub struct Shared<S> {
    start: fn() -> Result<S, String>,
    started: OnceLock<Result<S, String>>,
}

impl<S: Server> Shared<S> {
    /// Will be started by `start` when it is needed.
    pub const fn new(start: fn() -> Result<S, String>) -> Self {
        Shared { start, started: OnceLock::new() }
    }

    /// The server.
    ///
    /// # Panics
    /// If it cannot be started, with the reason: in every test that needs it, not only in the first.
    pub fn server(&self) -> &S {
        match self.started.get_or_init(self.start) {
            Ok(server) => server,
            Err(wrong) => panic!("{wrong}"),
        }
    }
}

/// Long, because a machine may be busy with other tests; a server that ended is not waited for.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// A server on loopback answers within microseconds: asking it more often would only slow its start.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// Lines of a log that an error shows.
const TAIL_LINES: usize = 20;

/// Waits until a server that was just started answers. An error shows the end of its log.
pub(crate) fn wait_until_ready<S: Server + ?Sized>(server: &S) -> Result<(), String> {
    wait_until(server.process(), "serve", || server.ready())
}

/// Waits until `asked` is content. An error shows the last reason and the end of the log.
pub(crate) fn wait_until(process: &Process, what: &str, asked: impl Fn() -> Result<(), String>) -> Result<(), String> {
    let began = Instant::now();
    loop {
        let answer = asked();
        let wrong = match answer {
            Ok(()) => return Ok(()),
            Err(_) if !process.runs() => format!("it ended ({})", process.ending()),
            Err(wrong) if began.elapsed() > READY_WITHIN => format!("after {READY_WITHIN:?} still: {wrong}"),
            Err(_) => {
                std::thread::sleep(ASK_EVERY);
                continue;
            }
        };
        return Err(format!("{} did not {what}: {wrong}; the end of its log:\n{}", process.name(), process.log_tail(TAIL_LINES)));
    }
}

/// Somebody else may take a port between our choice and the server's start; that many times in a row is no coincidence.
pub(crate) const LAUNCH_TRIES: usize = 5;

/// Whether a server did not start because somebody else listens on its port.
pub(crate) fn is_port_taken(wrong: &str) -> bool {
    wrong.to_lowercase().contains("in use")
}

/// Makes a server, starts it and waits until it serves; with other ports if its own were taken meanwhile.
pub(crate) fn launch<S: Server>(make: impl Fn() -> Result<S, String>) -> Result<S, String> {
    let mut tried = 1;
    loop {
        let server = make()?;
        server.process().start()?;
        match wait_until_ready(&server) {
            Ok(()) => return Ok(server),
            Err(wrong) if tried < LAUNCH_TRIES && is_port_taken(&wrong) => tried += 1,
            Err(wrong) => return Err(wrong),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_kind_and_from_a_point_on() {
        let count =
            |counts: &[(&str, u64)]| counts.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect::<Requests>();
        let earlier = count(&[("Txn", 2), ("Range", 5)]);
        let later = count(&[("Txn", 3), ("Range", 5), ("Watch", 1), ("Watch", 1)]);
        assert_eq!(later.total(), 10);
        assert_eq!((later.of("Watch"), later.of("Put"), later.beginning("Wa")), (2, 0, 2));
        assert_eq!(later.since(&earlier).iter().collect::<Vec<_>>(), [("Txn", 1), ("Watch", 2)]);
    }
}
