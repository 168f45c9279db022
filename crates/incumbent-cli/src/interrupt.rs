//! Ctrl-C and SIGTERM: the first asks the command to stop and print what it has, the second ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::exit::Exit;
use crate::failure::Failure;

/// Whether the person wants the command to stop. A long command looks at it now and then.
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on. To be called once in the life of the process.
    pub(crate) fn install() -> Result<Interrupt, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        let heard = Arc::clone(&asked);
        ctrlc::set_handler(move || {
            if heard.swap(true, Ordering::Relaxed) {
                std::process::exit(Exit::Interrupted.code().into());
            }
            eprintln!("stopping; once more to stop at once");
        })
        .map_err(|wrong| Failure::Io {
            what: format!("cannot listen for Ctrl-C: {wrong}"),
            hint: "free a file descriptor and try again",
        })?;
        Ok(Interrupt(asked))
    }

    /// Whether the person has asked.
    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
