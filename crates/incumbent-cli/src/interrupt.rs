//! Ctrl-C and SIGTERM: the first asks the command to stop and print what it has, the second ends the process at once.

use std::io::Write as _;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::watch;

use crate::exit::Exit;
use crate::failure::Failure;

/// As long as this lives, an interrupt that is not heeded ends the process.
pub(crate) struct Insistence {
    /// Dropped with this, which the waiting thread notices.
    _ended: mpsc::Sender<()>,
}

/// Whether the person wants the command to stop. A long command looks at it now and then, or waits for it.
pub(crate) struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// Listens from now on. To be called once in the life of the process.
    pub(crate) fn install() -> Result<Interrupt, Failure> {
        let (hear, asked) = watch::channel(false);
        ctrlc::set_handler(move || {
            if hear.send_replace(true) {
                std::process::exit(Exit::Interrupted.code().into());
            }
            // The terminal may be gone: that is what some signals say.
            let _ = writeln!(std::io::stderr(), "stopping; once more to stop at once");
        })
        .map_err(|wrong| Failure::Io {
            what: format!("cannot listen for Ctrl-C: {wrong}"),
            hint: "free a file descriptor and try again",
        })?;
        Ok(Interrupt(asked))
    }

    /// Ends the process if it has not ended by itself `grace` after the person asked, unless the result was dropped before. For a command that
    /// calls what it cannot interrupt.
    pub(crate) fn insist_after(&self, grace: Duration) -> Insistence {
        let asked = self.0.clone();
        let (ended, over) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            while over.recv_timeout(grace) == Err(RecvTimeoutError::Timeout) {
                if *asked.borrow() && over.recv_timeout(grace) == Err(RecvTimeoutError::Timeout) {
                    std::process::exit(Exit::Interrupted.code().into());
                }
            }
        });
        Insistence { _ended: ended }
    }

    /// Whether the person has asked.
    pub(crate) fn asked(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the person asks.
    pub(crate) async fn wait(&self) {
        // Whoever listens for signals does so as long as the process lives.
        let _ = self.0.clone().wait_for(|asked| *asked).await;
    }
}
