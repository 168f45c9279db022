//! `cargo xtask man` and `cargo xtask completions`: what a package ships beside the binary, made by the binary itself.

use std::fs;

use crate::shell;

/// Writes the manual pages to target/man.
pub(crate) fn man() -> Result<(), String> {
    shell::run(incumbent().args(["man", "--dir", "target/man"]))
}

/// Writes the completions of the common shells to target/completions.
pub(crate) fn completions() -> Result<(), String> {
    let folder = shell::root().join("target/completions");
    fs::create_dir_all(&folder).map_err(|wrong| format!("cannot make {}: {wrong}", folder.display()))?;
    for (shell_name, file) in [("bash", "incumbent.bash"), ("zsh", "_incumbent"), ("fish", "incumbent.fish")] {
        let script = shell::output(incumbent().args(["completions", shell_name]))?;
        fs::write(folder.join(file), script).map_err(|wrong| format!("cannot write {file}: {wrong}"))?;
        println!("target/completions/{file}");
    }
    Ok(())
}

fn incumbent() -> std::process::Command {
    shell::cargo(&["run", "--quiet", "--locked", "--package", "incumbent-cli", "--"])
}
