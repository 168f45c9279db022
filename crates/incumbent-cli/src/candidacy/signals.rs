//! The signals that a process gets which contends: those that ask it to end, and those that are meant for the command that it runs.

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::exit::Exit;
use crate::failure::Failure;

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
        streams.map(|streams| Signals { streams }).map_err(|wrong| Failure::Io {
            what: format!("cannot listen for signals: {wrong}"),
            hint: "free a file descriptor and try again",
        })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Heard {
        let streams = &mut self.streams;
        let signal = std::future::poll_fn(|context| {
            for (signal, stream) in streams.iter_mut() {
                if stream.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*signal);
                }
            }
            std::task::Poll::Pending
        })
        .await;
        match signal {
            Signal::TERM | Signal::INT | Signal::QUIT => Heard::Told(Told(signal)),
            passed => Heard::Passed(passed),
        }
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
