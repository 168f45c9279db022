//! Who a candidate is: a name for people, and what makes it unique, so that no two processes are ever taken for one.
//!
//! Kubernetes' own library takes two pods with one hostname for one leader. Here the whole text decides: `NAME_HOST_BOOT_PID_NONCE`, and the nonce
//! is drawn anew for each candidacy. A process that restarts is somebody else, and waits until its former self's lease has run out.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::engine::Error;

/// A candidate's identity. Its text is what engines store and compare; [`Identity::name`] is what people call it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Identity(String);

impl Identity {
    /// Longer names do not fit every engine once the unique part stands behind them.
    pub const NAME_LEN_MAX: usize = 128;

    /// One that no other process has, named after the host.
    pub fn unique() -> Identity {
        // A host's name is fit, or else made so: nobody can be asked here.
        let host: String = host().chars().filter(|it| fits(*it)).take(Self::NAME_LEN_MAX).collect();
        Identity::unique_part(if host.is_empty() { "host" } else { &host })
    }

    /// One that no other process has, named `name`: letters, digits, `.`, `-` and `:`.
    pub fn named(name: &str) -> Result<Identity, Error> {
        if name.is_empty() || name.len() > Self::NAME_LEN_MAX {
            let max = Self::NAME_LEN_MAX;
            return Err(Error::misconfigured(format!(
                "the name of a candidate has 1 to {max} characters, and {name:?} has {}",
                name.len()
            )));
        }
        match name.chars().find(|it| !fits(*it)) {
            Some(odd) => Err(Error::misconfigured(format!(
                "{odd:?} cannot stand in the name of a candidate ({name:?}): use letters, digits, '.', '-' and ':'"
            ))),
            None => Ok(Identity::unique_part(name)),
        }
    }

    fn unique_part(name: &str) -> Identity {
        // It cannot change while we run, and a candidacy should not wait for a file.
        static BOOT: LazyLock<String> = LazyLock::new(boot_id);
        let boot = BOOT.get(..8).unwrap_or("0");
        Identity(format!("{name}_{boot}_{}_{:016x}", std::process::id(), nonce()))
    }

    /// One that an engine has told of, ours or not.
    pub fn stored(text: impl Into<String>) -> Identity {
        Identity(text.into())
    }

    /// The same name with a new nonce: another candidacy of the same process.
    #[must_use]
    pub fn anew(&self) -> Identity {
        Identity::unique_part(self.name())
    }

    /// Whether both are candidacies of one process, or one candidacy.
    pub fn is_process_of(&self, other: &Identity) -> bool {
        let process =
            |it: &Identity| it.0.rsplit_once('_').filter(|_| it.boot().is_some()).map(|(process, _)| process.to_owned());
        self == other || process(self).is_some_and(|it| process(other) == Some(it))
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What people call it; the whole text for candidates that are not ours.
    pub fn name(&self) -> &str {
        let mut parts = self.0.rsplitn(4, '_');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(nonce), Some(_), Some(_), Some(name)) if nonce.len() == 16 => name,
            (_, _, _, _) => &self.0,
        }
    }

    /// The boot of the machine it was made on, as this candidate's kernel calls it; `None` for candidates that are not ours, or whose kernel does not tell.
    pub fn boot(&self) -> Option<&str> {
        let mut parts = self.0.rsplitn(4, '_');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(nonce), Some(_), Some(boot), Some(_)) if nonce.len() == 16 && boot.len() == 8 => Some(boot),
            (_, _, _, _) => None,
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn fits(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | ':')
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map(|it| it.trim().to_owned()).unwrap_or_default()
}

/// Changes with every boot of the machine; two machines never share one.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|it| it.replace('-', "")).unwrap_or_default()
}

/// 64 bits from the kernel: the standard library seeds its hash maps from there, and each state is a new one.
pub(crate) fn nonce() -> u64 {
    let first = RandomState::new().build_hasher().finish();
    // The keys of two states in one thread differ by a count; the addresses and the time of day keep threads and forks apart.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(first);
    hasher.write_u32(std::process::id());
    hasher.write_u128(std::time::UNIX_EPOCH.elapsed().map_or(0, |it| it.as_nanos()));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_are_the_same() {
        let identity = Identity::named("web-1").expect("a good name");
        let many: BTreeSet<Identity> = (0..1000).map(|_| identity.anew()).chain([identity.clone(), Identity::unique()]).collect();
        assert_eq!(many.len(), 1002);
        assert!(identity.as_str().len() > identity.name().len() + 24);
    }

    #[test]
    fn people_read_the_name() {
        assert_eq!(Identity::named("web-1").expect("a good name").to_string(), "web-1");
        assert_eq!(Identity::named("web-1").expect("a good name").anew().name(), "web-1");
        assert_eq!(Identity::stored("pod-7_a1b2").name(), "pod-7_a1b2", "client-go's own identities stay as they are");
        assert_eq!(Identity::stored("").name(), "");
        assert_eq!(Identity::stored("web-1_0a1b2c3d_17_0123456789abcdef").boot(), Some("0a1b2c3d"));
        assert_eq!(Identity::stored("pod-7_a1b2").boot(), None);
    }

    #[test]
    fn candidacies_of_one_process_are_known_from_each_other_and_from_those_of_another() {
        let identity = Identity::named("web-1").expect("a good name");
        assert!(identity.is_process_of(&identity.anew()));
        assert!(!identity.is_process_of(&Identity::unique()));
        let stored = |text: &str| Identity::stored(text);
        let first = stored("web-1_0a1b2c3d_17_0123456789abcdef");
        assert!(first.is_process_of(&stored("web-1_0a1b2c3d_17_fedcba9876543210")));
        assert!(!first.is_process_of(&stored("web-1_0a1b2c3d_18_fedcba9876543210")));
        assert!(!stored("pod-7_a1b2").is_process_of(&stored("pod-7_c3d4")));
    }

    #[test]
    fn a_bad_name_is_refused_with_what_to_do() {
        for bad in ["", "a b", "a_b", "a/b", "ü", &"x".repeat(129)] {
            let why = Identity::named(bad).expect_err(bad).to_string();
            assert!(!why.contains('\n') && why.contains("characters") || why.contains("use letters"), "{why}");
        }
    }
}
