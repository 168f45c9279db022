//! What systemd wants to hear of a service: that it is ready, what it does, that it is alive. Silent where nobody listens.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The variables by which systemd says where it listens. They are meant for this process and not for the command.
pub(crate) const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// Whoever started this process and wants to know how it does.
pub(crate) struct Notify {
    to: Option<(UnixDatagram, SocketAddr)>,
    alive_every: Option<Duration>,
}

impl Notify {
    /// As the environment says.
    pub(crate) fn from_environment() -> Notify {
        let address = std::env::var_os("NOTIFY_SOCKET").and_then(|it| match it.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
            _ => SocketAddr::from_pathname(&it).ok(),
        });
        let to = address.and_then(|it| Some((speaker().ok()?, it)));
        let variable = |name: &str| std::env::var(name).ok();
        let is_meant = variable("WATCHDOG_PID").is_none_or(|it| it == std::process::id().to_string());
        // Half of what is allowed, as systemd's manual asks.
        let alive_every = variable("WATCHDOG_USEC").and_then(|it| it.parse().ok()).map(|it: u64| Duration::from_micros(it / 2));
        Notify { to, alive_every: alive_every.filter(|it| is_meant && !it.is_zero()) }
    }

    /// It contends: that is all that "started" means here, or every standby would be restarted.
    pub(crate) fn ready(&self) {
        self.tell("READY=1");
    }

    /// What it does, for `systemctl status`.
    pub(crate) fn status(&self, what: &str) {
        self.tell(&format!("STATUS={what}"));
    }

    /// It ends.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// Says that this process is alive for as long as what does its work answers: that it is there, or nothing, if it has ended and this process is about to. Never returns.
    pub(crate) async fn keep_alive(&self, answers: impl AsyncFn()) {
        let Some(every) = self.alive_every else { return std::future::pending().await };
        let mut looks = tokio::time::interval(every);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            answers().await;
            self.tell("WATCHDOG=1");
        }
    }

    fn tell(&self, what: &str) {
        if let Some((socket, to)) = &self.to {
            // One that does not listen any more does not want to hear it, and one that is behind hears the next.
            let _ = socket.send_to_addr(what.as_bytes(), to);
        }
    }
}

/// Waits for nobody: whoever reads may hang, and this process must not with it.
fn speaker() -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_does_not_answer_is_not_said_to_be_alive() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let hears = UnixDatagram::bind(&path).unwrap();
        hears.set_nonblocking(true).unwrap();
        let to = Some((speaker().unwrap(), SocketAddr::from_pathname(&path).unwrap()));
        let notify = Notify { to, alive_every: Some(Duration::from_secs(1)) };
        let asked = Cell::new(0);
        let hangs_at_the_fourth = async || {
            asked.set(asked.get() + 1);
            if asked.get() == 4 {
                std::future::pending::<()>().await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(60), notify.keep_alive(hangs_at_the_fourth)).await;
        let mut heard = 0;
        while hears.recv(&mut [0; 64]).is_ok() {
            heard += 1;
        }
        assert_eq!((heard, asked.get()), (3, 4));
    }

    #[test]
    fn one_that_reads_nothing_holds_up_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let _unread = UnixDatagram::bind(&path).unwrap();
        let notify = Notify { to: Some((speaker().unwrap(), SocketAddr::from_pathname(&path).unwrap())), alive_every: None };
        // More than any queue has room for.
        for _ in 0..100_000 {
            notify.ready();
        }
    }
}
