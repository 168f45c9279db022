//! The signals that a process gets which contends: those that ask it to end, and those that are meant for the command that it runs.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::exit::Exit;
use crate::failure::Failure;

/// So soon after the first, the same signal is the same word: whoever tells a process and then its group, as `timeout` does, is heard twice.
const ECHO_WITHIN: Duration = Duration::from_secs(1);

/// Somebody wants this process to end.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Told(pub(crate) Signal);

impl Told {
    /// How a process that had nothing to run ends.
    pub(crate) fn exit(self) -> Exit {
        Exit::Command(128 + u8::try_from(self.0.as_raw()).unwrap_or(0))
    }
}

/// What came.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// End.
    Told(Told),
    /// For the command.
    Passed(Signal),
}

/// Listens for all of them.
pub(crate) struct Signals {
    streams: Vec<(Signal, Stream)>,
    echoes: Echoes,
}

impl Signals {
    /// From now on.
    pub(crate) fn listen() -> Result<Signals, Failure> {
        let all = [
            (Signal::TERM, SignalKind::terminate()),
            (Signal::INT, SignalKind::interrupt()),
            (Signal::QUIT, SignalKind::quit()),
            (Signal::HUP, SignalKind::hangup()),
            (Signal::USR1, SignalKind::user_defined1()),
            (Signal::USR2, SignalKind::user_defined2()),
            (Signal::WINCH, SignalKind::window_change()),
        ];
        let streams = all.into_iter().map(|(name, kind)| signal(kind).map(|stream| (name, stream))).collect::<Result<_, _>>();
        streams.map(|streams| Signals { streams, echoes: Echoes::default() }).map_err(|wrong| Failure::Io {
            what: format!("cannot listen for signals: {wrong}"),
            hint: "free a file descriptor and try again",
        })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Heard {
        loop {
            match self.any().await {
                end @ (Signal::TERM | Signal::INT | Signal::QUIT) => {
                    if !self.echoes.is_one(end, Instant::now()) {
                        return Heard::Told(Told(end));
                    }
                }
                passed => return Heard::Passed(passed),
            }
        }
    }

    async fn any(&mut self) -> Signal {
        let streams = &mut self.streams;
        std::future::poll_fn(|context| {
            for (signal, stream) in streams.iter_mut() {
                if stream.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*signal);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }

    /// The next that asks to end. The others have nobody to go to, and a hang-up then ends it too.
    pub(crate) async fn told(&mut self) -> Told {
        loop {
            match self.next().await {
                Heard::Told(told) => return told,
                Heard::Passed(Signal::HUP) => return Told(Signal::HUP),
                Heard::Passed(_) => {}
            }
        }
    }
}

/// Tells a second word from the echo of the first.
#[derive(Default)]
struct Echoes(Option<(Signal, Instant)>);

impl Echoes {
    fn is_one(&mut self, signal: Signal, now: Instant) -> bool {
        let is_one = self.0.is_some_and(|(first, at)| first == signal && now < at + ECHO_WITHIN);
        if !is_one {
            self.0 = Some((signal, now));
        }
        is_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_signal_within_a_second_is_an_echo_and_another_or_a_later_one_is_not() {
        let (mut echoes, begin) = (Echoes::default(), Instant::now());
        let mut heard = |signal, ms| !echoes.is_one(signal, begin + Duration::from_millis(ms));
        assert!(heard(Signal::TERM, 0));
        assert!(!heard(Signal::TERM, 0) && !heard(Signal::TERM, 999), "echoes of the first");
        assert!(heard(Signal::TERM, 1000), "said again");
        assert!(heard(Signal::INT, 1001), "another");
    }
}
