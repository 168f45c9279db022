//! Where the engines' programs are. What is absent is an error that says how to get it.

use std::path::{Path, PathBuf};

/// What `cargo xtask install` takes from PyPI stands there.
fn installed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/testbed")
}

/// A program of a Debian package, by its full path: another of the same name may stand on the `PATH`.
pub(crate) fn debian(path: &str) -> Result<PathBuf, String> {
    present(PathBuf::from(path))
}

/// A server from a wheel.
pub(crate) fn wheel(name: &str) -> Result<PathBuf, String> {
    present(installed().join("bin").join(name))
}

/// The Java that Debian's `java` is, or another on the `PATH`: any will do.
pub(crate) fn java() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("java")).find(|program| program.is_file());
    present(found.unwrap_or_else(|| PathBuf::from("/usr/bin/java")))
}

/// A class path of Debian's jars.
pub(crate) fn jars(names: &[&str]) -> Result<String, String> {
    let paths = names.iter().map(|name| debian(&format!("/usr/share/java/{name}.jar")));
    let paths: Vec<String> = paths.map(|path| path.map(|it| it.display().to_string())).collect::<Result<_, _>>()?;
    Ok(paths.join(":"))
}

/// The Python in which other people's clients are installed (kazoo, kubernetes).
///
/// # Errors
/// If they are not installed.
pub fn python() -> Result<PathBuf, String> {
    present(installed().join("venv/bin/python"))
}

fn present(path: PathBuf) -> Result<PathBuf, String> {
    if path.exists() {
        Ok(path)
    } else {
        Err(format!("there is no {}: `cargo xtask install` installs what the tests need", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_is_an_error_that_says_what_to_do() {
        assert!(debian("/usr/bin/no-such-engine").unwrap_err().contains("cargo xtask install"));
        assert!(wheel("no-such-engine").unwrap_err().contains("cargo xtask install"));
    }
}
