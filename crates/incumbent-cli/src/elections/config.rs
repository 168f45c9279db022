//! The configuration file: where it is looked for, and what may stand in it.
//!
//! ```toml
//! on = "etcd://10.0.0.1:2379,10.0.0.2:2379/prod"
//! ttl = "10s"
//! identity = "web-1"
//! ```
//!
//! A word that is not known is an error: a setting that is silently ignored is worse than none.

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::target::{Environment, Url};
use crate::exit::Exit;
use crate::failure::Failure;

/// The file's name in the working directory.
const LOCAL: &str = "incumbent.toml";

/// A file longer than this is none of ours.
const LEN_MAX: u64 = 64 * 1024;

/// What a file says. Spans are still text: their mistakes are told with the file's name.
#[derive(Deserialize, Default, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// The engine.
    pub(crate) on: Option<Url>,
    /// How long a lease lasts.
    pub(crate) ttl: Option<String>,
    /// What this process is called.
    pub(crate) identity: Option<String>,
}

/// The file that counts and what it says; `None` if there is none. One that was named must be there.
pub(crate) fn find(named: Option<&Path>, environment: &Environment<'_>) -> Result<Option<(PathBuf, Config)>, Failure> {
    if let Some(named) = named {
        return read(named).map(|it| Some((named.to_owned(), it)));
    }
    if let Some(named) = environment("INCUMBENT_CONFIG") {
        let named = PathBuf::from(named);
        return read(&named).map(|it| Some((named, it)));
    }
    let folder = environment("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        // The standard says that a relative path is none.
        .filter(|it| it.is_absolute())
        .or_else(|| environment("HOME").map(|home| Path::new(&home).join(".config")));
    let usual = [Some(PathBuf::from(LOCAL)), folder.map(|it| it.join("incumbent").join(LOCAL))];
    for path in usual.into_iter().flatten() {
        // Anything that stands there and cannot be read is told: going on without it would be going on elsewhere.
        if path.symlink_metadata().is_ok() {
            return read(&path).map(|it| Some((path, it)));
        }
    }
    Ok(None)
}

fn read(path: &Path) -> Result<Config, Failure> {
    let text = bounded(path).map_err(|wrong| Failure::file("read the configuration", path, &wrong))?;
    parse(&text).map_err(|why| Failure::Engine { what: format!("{}: {why}", path.display()), exit: Exit::Usage })
}

fn bounded(path: &Path) -> io::Result<String> {
    use io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(LEN_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LEN_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a configuration has at most 64 KiB"));
    }
    Ok(text)
}

/// What is wrong is told in one line, with the line's number, and without the line: it may hold a password.
fn parse(text: &str) -> Result<Config, String> {
    toml::from_str(text).map_err(|wrong| {
        let message: Vec<&str> = wrong.message().split_whitespace().collect();
        match wrong.span().and_then(|span| text.get(..span.start)) {
            Some(before) => format!("line {}: {}", before.matches('\n').count() + 1, message.join(" ")),
            None => message.join(" "),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_refused_with_what_is() {
        let config = parse("on = \"file:/srv\"\nttl = \"10s\"\n# nothing else\n").unwrap();
        assert_eq!(config, Config { on: Some(Url::from("file:/srv".to_owned())), ttl: Some("10s".into()), identity: None });
        let why = parse("on = \"file:/srv\"\ntll = \"10s\"\n").unwrap_err();
        assert!(why.starts_with("line 2: ") && ["tll", "on", "ttl", "identity"].iter().all(|it| why.contains(it)), "{why}");
    }

    #[test]
    fn a_mistake_is_told_in_one_line_without_the_password_that_stands_in_it() {
        for bad in [
            "on = \"redis://me:secret@h/\nttl = 1",
            "on = [\"redis://me:secret@h/\"]",
            "on = redis://me:secret@h/",
            "ttl = 10",
            "\u{0}",
        ] {
            let why = parse(bad).unwrap_err();
            assert!(!why.contains("secret") && !why.contains('\n') && why.contains("line 1"), "{why}");
        }
    }
}
