//! Where a command's result goes.

use std::io::Write;

use crate::style::Paint;

/// The standard output, and whether it takes colours.
pub(crate) struct Console<'a> {
    pub(crate) out: &'a mut dyn Write,
    pub(crate) paint: Paint,
}

/// In which form a command prints its result. Every command that has something to parse takes it.
#[derive(clap::Args, Debug, Clone, Copy)]
pub(crate) struct Form {
    /// Print JSON instead of text: one document, and nothing else on the standard output
    #[arg(long)]
    pub(crate) json: bool,
}
