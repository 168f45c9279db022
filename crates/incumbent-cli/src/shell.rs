//! What a shell and its user need to know of the command: completions and manual pages, made from the parser itself.

use std::io;
use std::path::Path;

use clap_complete::Shell;

use crate::arguments;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;

/// Prints the completions for `shell`.
pub(crate) fn completions(shell: Shell, console: &mut Console<'_>) -> Result<Exit, Failure> {
    // The generator panics on a closed pipe, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut arguments::command(), "incumbent", &mut script);
    console.out.write_all(&script)?;
    Ok(Exit::Done)
}

/// Prints the manual page of the whole command, or writes that of every subcommand into `dir` and prints their paths.
pub(crate) fn man(dir: Option<&Path>, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let Some(dir) = dir else {
        clap_mangen::Man::new(arguments::command()).render(console.out)?;
        return Ok(Exit::Done);
    };
    std::fs::create_dir_all(dir).map_err(|wrong| Failure::file("make the folder", dir, &wrong))?;
    let mut command = arguments::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, dir, console)?;
    Ok(Exit::Done)
}

fn write_pages(command: &clap::Command, dir: &Path, console: &mut Console<'_>) -> Result<(), Failure> {
    let page = clap_mangen::Man::new(command.clone());
    let path = dir.join(page.get_filename());
    let mut text = Vec::new();
    let written: io::Result<()> = page.render(&mut text).and_then(|()| std::fs::write(&path, &text));
    written.map_err(|wrong| Failure::file("write", &path, &wrong))?;
    writeln!(console.out, "{}", path.display())?;
    // What is hidden is for this program alone.
    command.get_subcommands().filter(|it| !it.is_hide_set()).try_for_each(|subcommand| write_pages(subcommand, dir, console))
}
