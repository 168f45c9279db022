//! The name of an election. One that exists is fit for every engine's keys, paths and columns.

use std::fmt;

use crate::engine::Error;

/// The name of an election: letters, digits, `.`, `_` and `-`, beginning with a letter or digit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name(String);

impl Name {
    /// Longer ones do not fit every engine's keys once a namespace stands before them.
    pub const LEN_MAX: usize = 128;

    /// Takes a name, or says what is wrong with it.
    pub fn new(text: impl Into<String>) -> Result<Name, Error> {
        let text = text.into();
        let begins_well = text.chars().next().is_some_and(|it| it.is_ascii_alphanumeric());
        let odd = text.chars().find(|it| !(it.is_ascii_alphanumeric() || matches!(it, '.' | '_' | '-')));
        if text.is_empty() {
            Err(Error::misconfigured("the election has no name: give one, for example `billing`"))
        } else if odd == Some('/') {
            Err(Error::misconfigured(format!(
                "'/' cannot stand in the name of an election ({text:?}): what stands before the last one belongs into the path of the engine's URL (--on ...)"
            )))
        } else if let Some(odd) = odd {
            Err(Error::misconfigured(format!(
                "{odd:?} cannot stand in the name of an election ({text:?}): use letters, digits, '.', '_' and '-'"
            )))
        } else if !begins_well {
            Err(Error::misconfigured(format!("the name of an election begins with a letter or a digit, and {text:?} does not")))
        } else if text.len() > Self::LEN_MAX {
            Err(Error::misconfigured(format!(
                "the name of the election has {} characters: at most {} fit every engine",
                text.len(),
                Self::LEN_MAX
            )))
        } else {
            Ok(Name(text))
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_are_taken() {
        for good in ["billing", "a", "7", "nightly-report_v2.1", &"x".repeat(128)] {
            assert_eq!(Name::new(good).expect(good).as_str(), good);
        }
    }

    #[test]
    fn a_bad_name_is_refused_with_what_to_do() {
        for (bad, word) in [
            ("", "no name"),
            ("a b", "' '"),
            ("a/b", "the path of the engine's URL"),
            ("naïve", "'ï'"),
            ("a\n", "'\\n'"),
            (".hidden", "begins"),
            ("-x", "begins"),
            (&"x".repeat(129), "128"),
        ] {
            let why = Name::new(bad).expect_err(bad).to_string();
            assert!(why.contains(word) && !why.contains('\n'), "{bad:?}: {why}");
        }
    }
}
