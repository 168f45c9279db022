//! `cargo xtask bench`: the figures we publish, in ratios and simulated units, from release builds.
//!
//! Nothing here fails a test: how fast a machine is on a day is no property of the code.

use crate::shell;

/// Runs the lab's figures, then the engines'; `arguments` go to the programs that make them.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    shell::run(shell::cargo(&["bench", "--locked", "--package", "incumbent-lab", "--bench", "figures", "--"]).args(arguments))?;
    shell::run(
        shell::cargo(&["bench", "--locked", "--package", "incumbent", "--all-features", "--bench", "engines", "--"])
            .args(arguments),
    )
}
