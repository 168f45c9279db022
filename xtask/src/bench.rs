//! `cargo xtask bench`: the figures we publish, in ratios and simulated units, from release builds.
//!
//! Nothing here fails a test: how fast a machine is on a day is no property of the code.

use crate::shell;

/// The programs that make figures: their name here, and what cargo calls them.
const PROGRAMS: [(&str, &[&str]); 6] = [
    ("lab", &["--package", "incumbent-lab", "--bench", "figures"]),
    ("engines", &["--package", "incumbent", "--all-features", "--bench", "engines"]),
    ("peers", &["--package", "incumbent", "--features", "peers", "--bench", "peers"]),
    ("run", &["--package", "incumbent-cli", "--bench", "run"]),
    ("service", &["--package", "incumbent-cli", "--bench", "service"]),
    ("log", &["--package", "incumbent-service", "--bench", "log"]),
];

/// Runs all of them, or the one that the first argument names; further arguments go to it.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let (wanted, rest) = match arguments {
        [] => (None, arguments),
        [name, rest @ ..] => (Some(*name), rest),
    };
    // As cargo has it, or without.
    let rest = rest.strip_prefix(&["--"]).unwrap_or(rest);
    if let Some(name) = wanted
        && PROGRAMS.iter().all(|(it, _)| *it != name)
    {
        let names = PROGRAMS.map(|(it, _)| it).join(", ");
        return Err(format!("there is no bench {name:?}: say one of {names}, or none for all"));
    }
    for (_, program) in PROGRAMS.iter().filter(|(it, _)| wanted.is_none_or(|wanted| wanted == *it)) {
        shell::run(shell::cargo(&["bench", "--locked"]).args(*program).arg("--").args(rest))?;
    }
    Ok(())
}
