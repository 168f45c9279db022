//! Where a command's result goes.

use std::io::Write;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::sync::oneshot;

use crate::style::Paint;

/// The standard output, and whether it takes colours.
pub(crate) struct Console<'a> {
    pub(crate) out: &'a mut dyn Write,
    pub(crate) paint: Paint,
}

/// Waits until whoever reads the standard output has closed it: a command that seldom has something to print would find out with its next line, and that may never come.
pub(crate) async fn reader_gone() {
    let (tell, gone) = oneshot::channel::<()>();
    // Ends with the process at the latest: the kernel cannot be made to wait for less.
    std::thread::spawn(move || {
        let out = std::io::stdout();
        // Nothing is asked for, so only the end of it is told.
        let mut wanted = [PollFd::new(&out, PollFlags::empty())];
        while poll(&mut wanted, None) == Err(Errno::INTR) {}
        if wanted[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            let _ = tell.send(());
        }
    });
    // Some outputs cannot be waited for.
    if gone.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// What others have written, on one line: a line break or a command to the terminal in it is shown, and not obeyed.
pub(crate) fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() { line.extend(letter.escape_default()) } else { line.push(letter) }
    }
    line
}

/// In which form a command prints its result. Every command that has something to parse takes it.
#[derive(clap::Args, Debug, Clone, Copy)]
pub(crate) struct Form {
    /// Print JSON instead of text: one document, and nothing else on the standard output
    #[arg(long)]
    pub(crate) json: bool,
}
