//! The `incumbent` command: reads the command line, runs the command, turns what came of it into an exit code.
//!
//! A command writes its result to [`Console::out`] and nothing else; what concerns the person and not the result goes to the
//! standard error. No command ends the process by itself.

#![allow(clippy::print_stderr, reason = "the standard error is where this program speaks to people")]

mod anew;
mod arguments;
mod console;
mod exit;
mod failure;
mod interrupt;
mod progress;
mod style;
mod table;
mod voice;

mod elections;
mod fence;
mod lab;
mod shell;

mod candidacy;
mod office;
mod otlp;
mod peer;
mod run;
mod serve;
mod service;
mod sidecar;
mod token;

use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::process::ExitCode;

use crate::arguments::Command;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::style::{Colour, Paint};

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    // The guardian of a supervised command is this program under another name.
    if let Some(ended) = incumbent_supervisor::stage(words.iter().cloned()) {
        return ended;
    }
    let is_run = words.get(1).is_some_and(|it| it == "run");
    let understood = words.first().and_then(|name| anew::understood(name));
    let arguments = match understood.map_or_else(|| arguments::parse(&words).map(|it| anew::begin(&words, it)), Ok) {
        Ok(arguments) => arguments,
        Err(answer) => {
            // Help and version come this way too. Whoever closed the pipe does not want to hear of it.
            let _ = answer.print();
            let exit = if answer.use_stderr() { Exit::Usage } else { Exit::Done };
            return if is_run { exit.of_run() } else { exit }.into();
        }
    };
    let colour = arguments.colour;
    let mut out = BufWriter::new(io::stdout().lock());
    let console = Console { out: &mut out, paint: Paint::on_a(io::stdout().is_terminal(), colour) };
    let result = dispatch(arguments.command, console).and_then(|exit| {
        out.flush()?;
        Ok(exit)
    });
    let exit = result.unwrap_or_else(|failure| complain(&failure, colour));
    if is_run { exit.of_run() } else { exit }.into()
}

fn dispatch(command: Command, mut console: Console<'_>) -> Result<Exit, Failure> {
    match command {
        Command::Run(wanted) => run::run(&wanted),
        Command::Sidecar(wanted) => sidecar::run(&wanted, &mut console),
        Command::Peer(wanted) => peer::run(*wanted, &mut console),
        Command::Serve(wanted) => serve::run(*wanted, &mut console),
        Command::Service(command) => service::run(command, &Interrupt::install()?, &mut console),
        Command::Token { command } => token::run(&command, &mut console),
        Command::Election(command) => elections::run(command, &Interrupt::install()?, &mut console),
        Command::Fence { command } => fence::run(command, &mut console),
        Command::Lab { command } => lab::run(command, &Interrupt::install()?, &mut console),
        Command::Completions { shell } => shell::completions(shell, &mut console),
        Command::Man { dir } => shell::man(dir.as_deref(), &mut console),
    }
}

/// Tells the person what went wrong, and the exit code that goes with it.
fn complain(failure: &Failure, colour: Colour) -> Exit {
    let paint = Paint::on_a(io::stderr().is_terminal(), colour);
    if let Some((what, hint)) = failure.message() {
        eprintln!("{} {what}", paint.bad("error:"));
        if let Some(hint) = hint {
            eprintln!("  {} {hint}", paint.strong("hint:"));
        }
    }
    failure.exit()
}
