//! Where an election lies in etcd's key space.
//!
//! ```text
//!   NAMESPACE/NAME/LEASE                          a candidate, exactly as Go's concurrency.Election has it: the oldest one leads
//!   NAMESPACE/.incumbent/NAME/desk                tokens, wishes, history; see ledger.rs
//!   NAMESPACE/.incumbent/NAME/candidates/LEASE    who the candidate is, if it is one of ours
//! ```
//!
//! What Go takes for a candidate is everything under the first prefix, so nothing else may lie there. No election's name begins with a
//! dot, so none is called `.incumbent`.

use crate::engine::Error;
use crate::name::Name;
use crate::place::Place;

/// Where the elections of one URL lie.
#[derive(Clone, Debug)]
pub(super) struct Namespace(String);

/// What lies beside the elections.
const OURS: &str = ".incumbent";

impl Namespace {
    /// The URL's path, as given. A slash at its end means nothing.
    pub(super) fn of(place: &Place) -> Result<Namespace, Error> {
        if place.path().iter().any(|it| it == OURS) {
            return Err(Error::misconfigured(format!("{OURS:?} is where incumbent keeps its own keys: use another namespace")));
        }
        let path = place.namespace();
        let path = path.strip_suffix('/').unwrap_or(&path);
        Ok(Namespace(if path.is_empty() { String::new() } else { format!("{path}/") }))
    }

    /// Where this election lies.
    pub(super) fn keys(&self, election: &Name) -> Keys {
        let namespace = &self.0;
        Keys {
            line: format!("{namespace}{election}/").into_bytes(),
            desk: format!("{namespace}{OURS}/{election}/desk").into_bytes(),
            records: format!("{namespace}{OURS}/{election}/candidates/").into_bytes(),
        }
    }
}

/// Where one election lies.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// All candidates begin so.
    pub(super) line: Vec<u8>,
    pub(super) desk: Vec<u8>,
    /// All records begin so.
    pub(super) records: Vec<u8>,
}

impl Keys {
    /// The key of the candidate with this lease.
    pub(super) fn candidate(&self, lease: i64) -> Vec<u8> {
        with_lease(&self.line, lease)
    }

    /// The record of the candidate with this lease.
    pub(super) fn record(&self, lease: i64) -> Vec<u8> {
        with_lease(&self.records, lease)
    }

    /// The record that would lie beside this candidate's key; an error if the key is none of a candidate.
    pub(super) fn record_beside(&self, candidate: &[u8]) -> Result<Vec<u8>, Error> {
        let lease = candidate.strip_prefix(self.line.as_slice()).unwrap_or_default();
        if lease.is_empty() || lease.contains(&b'/') {
            return Err(Error::misconfigured(format!(
                "etcd's key {:?} is no candidate, and lies where candidates do: choose another name or namespace for the election",
                String::from_utf8_lossy(candidate)
            )));
        }
        Ok([&self.records, lease].concat())
    }
}

fn with_lease(prefix: &[u8], lease: i64) -> Vec<u8> {
    let mut key = prefix.to_vec();
    key.extend_from_slice(format!("{lease:x}").as_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(url: &str) -> Keys {
        let place = Place::parse(url).expect("a good URL");
        Namespace::of(&place).expect("a good namespace").keys(&Name::new("jobs").expect("a good name"))
    }

    #[test]
    fn a_candidate_lies_where_go_looks_for_it() {
        for (url, line) in [
            ("etcd://h", "jobs/"),
            ("etcd://h/", "jobs/"),
            ("etcd://h/prod", "prod/jobs/"),
            ("etcd://h/prod/", "prod/jobs/"),
            ("etcd://h//prod", "/prod/jobs/"),
            ("etcd://h/a/b", "a/b/jobs/"),
        ] {
            assert_eq!(String::from_utf8(keys(url).line).expect("text"), line, "{url}");
        }
        assert_eq!(keys("etcd://h/prod").candidate(0x694d_7d3c), b"prod/jobs/694d7d3c");
        assert_eq!(keys("etcd://h/prod").record(0xab), b"prod/.incumbent/jobs/candidates/ab");
    }

    #[test]
    fn nothing_of_ours_lies_among_the_candidates() {
        let keys = keys("etcd://h/prod");
        assert!(!keys.desk.starts_with(&keys.line) && !keys.records.starts_with(&keys.line));
        let place = Place::parse("etcd://h/prod/.incumbent").expect("a good URL");
        assert!(Namespace::of(&place).is_err());
    }

    #[test]
    fn a_key_that_is_no_candidate_is_a_mistake_of_names() {
        let keys = keys("etcd://h/prod");
        assert_eq!(keys.record_beside(b"prod/jobs/ab").expect("a candidate"), keys.record(0xab));
        let why = keys.record_beside(b"prod/jobs/nightly/ab").expect_err("another election's").to_string();
        assert!(why.contains("another name"), "{why}");
        assert!(keys.record_beside(b"prod/jobs/").is_err());
    }
}
