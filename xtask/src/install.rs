//! Installs what the checks need and the machine lacks: Rust components by rustup, programs by apt-get.
//!
//! What cannot be installed is an error that says what to do. Nothing is skipped because it is absent.

use std::process::Command;

use crate::shell;

/// A program that a test runs, and the Debian package that has it.
struct Need {
    program: &'static str,
    package: &'static str,
    what_for: &'static str,
}

const NEEDS: &[Need] = &[
    Need { program: "chromium", package: "chromium", what_for: "the report's test loads it in a real browser" },
    Need { program: "chromedriver", package: "chromium-driver", what_for: "drives that browser" },
];

/// The parts of a Rust toolchain that its minimal profile leaves out.
const COMPONENTS: &[(&str, &str)] = &[("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")];

/// Makes sure that all is there.
pub(crate) fn run() -> Result<(), String> {
    for (program, component) in COMPONENTS {
        if works(program) {
            continue;
        }
        if !shell::exists("rustup") {
            return Err(format!(
                "{component} is missing and there is no rustup to add it: install the Rust toolchain's {component}"
            ));
        }
        shell::run(Command::new("rustup").args(["component", "add", component]))?;
        if !works(program) {
            return Err(format!("rustup has added {component}, but {program} still does not run: repair the Rust toolchain"));
        }
    }
    let missing: Vec<&Need> = NEEDS.iter().filter(|need| !shell::exists(need.program)).collect();
    if missing.is_empty() {
        println!("nothing is missing");
        return Ok(());
    }
    for need in &missing {
        println!("{} is missing ({}): installing {}", need.program, need.what_for, need.package);
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    let rights = rights(shell::exists("apt-get"), is_root(), shell::exists("sudo"))
        .map_err(|why| format!("{why}; install these packages yourself: {}", packages.join(" ")))?;
    // A fresh machine has no package lists, and old ones name packages that are gone.
    shell::run(apt_get(&rights).args(["update", "-q"]))?;
    shell::run(apt_get(&rights).args(["install", "-y", "-q", "--no-install-recommends"]).args(&packages))?;
    match missing.iter().find(|need| !shell::exists(need.program)) {
        Some(need) => Err(format!("the package {} is installed, but there is no {}", need.package, need.program)),
        None => Ok(()),
    }
}

/// How apt-get gets the rights to install.
#[derive(Debug, PartialEq, Eq)]
enum Rights {
    Own,
    Sudo,
}

fn rights(apt_get: bool, root: bool, sudo: bool) -> Result<Rights, &'static str> {
    match (apt_get, root, sudo) {
        (false, _, _) => Err("there is no apt-get on this machine"),
        (true, true, _) => Ok(Rights::Own),
        (true, false, true) => Ok(Rights::Sudo),
        (true, false, false) => Err("apt-get needs root, and there is no sudo"),
    }
}

fn apt_get(rights: &Rights) -> Command {
    let mut command = match rights {
        Rights::Own => Command::new("apt-get"),
        Rights::Sudo => {
            let mut command = Command::new("sudo");
            // sudo clears the environment, so what must reach apt-get is said behind it.
            command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]);
            command
        }
    };
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Whether a part of the toolchain runs: rustup leaves its name in place when the part is absent.
fn works(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn is_root() -> bool {
    shell::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_installed_is_an_error() {
        assert_eq!(rights(true, true, false), Ok(Rights::Own));
        assert_eq!(rights(true, false, true), Ok(Rights::Sudo));
        assert!(rights(true, false, false).unwrap_err().contains("root"));
        assert!(rights(false, true, true).unwrap_err().contains("no apt-get"));
    }

    #[test]
    fn apt_get_is_never_asked_a_question() {
        for rights in [Rights::Own, Rights::Sudo] {
            let command = apt_get(&rights);
            assert!(command.get_envs().any(|(name, _)| name == "DEBIAN_FRONTEND"));
        }
        assert!(apt_get(&Rights::Sudo).get_args().any(|it| it == "DEBIAN_FRONTEND=noninteractive"));
    }
}
