//! Elections as keys of a bucket: `NAMESPACE.ELECTION`, each part between dots one part of the path. Pure.
//!
//! NATS allows letters, digits and `-/_=.` in a key, and nothing empty between two dots. So letters, digits, `-` and `_` stand for themselves, every other byte is `=` and its
//! two hexadecimal digits, and an empty part is a lone `=`. No two names have the same key, and whoever knows the rule reads the name from the key.

use std::fmt::Write as _;

use crate::engine::Error;
use crate::name::Name;

/// A subject has to fit into one line of the protocol, with the rest of it: 4096 bytes on a server that was not told otherwise.
const NAMESPACE_LEN_MAX: usize = 1024;

/// What stands before each election's name: nothing, or the namespace and a dot.
pub(super) fn prefix(path: &[String]) -> Result<String, Error> {
    let prefix: String = path.iter().map(|it| part(it) + ".").collect();
    if prefix.len() > NAMESPACE_LEN_MAX {
        return Err(Error::misconfigured(format!("the namespace is too long for a key of NATS: {NAMESPACE_LEN_MAX} bytes fit")));
    }
    Ok(prefix)
}

pub(super) fn key(prefix: &str, election: &Name) -> String {
    format!("{prefix}{}", part(election.as_str()))
}

fn part(text: &str) -> String {
    if text.is_empty() {
        return "=".to_owned();
    }
    let mut part = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            part.push(char::from(byte));
        } else {
            write!(part, "={byte:02X}").expect("a text takes all");
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &[&str], election: &str) -> String {
        let path: Vec<String> = path.iter().map(|it| (*it).to_owned()).collect();
        key(&prefix(&path).expect("short"), &Name::new(election).expect("good"))
    }

    #[test]
    fn every_name_has_a_key_of_its_own_that_nats_takes() {
        assert_eq!(of(&[], "billing"), "billing");
        assert_eq!(of(&["prod", "eu"], "a-b_C"), "prod.eu.a-b_C");
        assert_eq!(of(&["prod"], "a.b."), "prod.a=2Eb=2E");
        let odd = [
            of(&["a", ""], "x"),
            of(&["a="], "x"),
            of(&["a"], "x"),
            of(&["a.", "*>"], "x"),
            of(&["ü $"], "x"),
            of(&[""], "a.x"),
            of(&["a/x"], "x"),
            of(&[], "a.x"),
        ];
        for key in &odd {
            assert!(key.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_=.".contains(&it)), "{key}");
            assert!(key.split('.').all(|it| !it.is_empty()), "{key}");
            assert_eq!(odd.iter().filter(|it| *it == key).count(), 1, "{key}");
        }
        assert!(prefix(&["x".repeat(NAMESPACE_LEN_MAX)]).is_err());
    }
}
