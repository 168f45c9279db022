//! Finding the command before anything else is done.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A command that cannot be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Missing {
    NotFound(String),
    NotExecutable(String),
}

impl Missing {
    /// As shells have it.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Missing::NotFound(_) => 127,
            Missing::NotExecutable(_) => 126,
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::NotFound(why) | Missing::NotExecutable(why) => f.write_str(why),
        }
    }
}

/// The file that `program` means: as a path if it has a slash, counted from where the command will run; else in PATH.
pub(crate) fn locate(program: &OsStr, chdir: Option<&Path>) -> Result<PathBuf, Missing> {
    if program.is_empty() {
        // Joined to a directory of the PATH it would be that directory.
        return Err(Missing::NotFound("the command has no name: a variable may be empty".to_owned()));
    }
    let here = std::env::current_dir().unwrap_or_default();
    let from = chdir.map_or_else(|| here.clone(), |it| here.join(it));
    if program.as_encoded_bytes().contains(&b'/') {
        let path = from.join(program);
        return match fit(&path) {
            Fit::Yes => Ok(path),
            Fit::NotThere => Err(Missing::NotFound(format!("there is no {}: check the path of the command", path.display()))),
            Fit::No(why) => Err(Missing::NotExecutable(format!("{} {why}", path.display()))),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
    let mut unfit = None;
    for directory in std::env::split_paths(&path) {
        let path = from.join(directory).join(program);
        match fit(&path) {
            Fit::Yes => return Ok(path),
            Fit::No(why) => unfit = unfit.or(Some(format!("{} {why}", path.display()))),
            Fit::NotThere => {}
        }
    }
    let name = program.to_string_lossy();
    Err(unfit.map_or_else(
        || Missing::NotFound(format!("{name} is nowhere in PATH: give its path, as in ./{name}")),
        Missing::NotExecutable,
    ))
}

enum Fit {
    Yes,
    NotThere,
    No(&'static str),
}

fn fit(path: &Path) -> Fit {
    match std::fs::metadata(path) {
        Ok(it) if it.is_dir() => Fit::No("is a directory: name a program"),
        Ok(it) if it.permissions().mode() & 0o111 == 0 => {
            Fit::No("may not be executed: chmod +x it, or run it with its interpreter")
        }
        Ok(_) => Fit::Yes,
        Err(why) if why.kind() == std::io::ErrorKind::PermissionDenied => Fit::No("may not be looked at by this user"),
        Err(_) => Fit::NotThere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_found_or_it_is_said_why_not() {
        assert_eq!(locate(OsStr::new("/bin/sh"), None), Ok(PathBuf::from("/bin/sh")));
        assert!(locate(OsStr::new("sh"), None).unwrap().ends_with("sh"));
        assert_eq!(locate(OsStr::new("./sh"), Some(Path::new("/bin"))), Ok(PathBuf::from("/bin/./sh")));
        for (program, chdir, code, says) in [
            ("no-such-command-here", None, 127, "nowhere in PATH"),
            ("./sh", Some("/"), 127, "there is no /./sh"),
            ("/bin", None, 126, "is a directory"),
            ("/etc/passwd", None, 126, "chmod +x"),
        ] {
            let missing = locate(OsStr::new(program), chdir.map(Path::new)).unwrap_err();
            assert_eq!(missing.code(), code, "{missing}");
            assert!(missing.to_string().contains(says), "{missing}");
        }
    }
}
