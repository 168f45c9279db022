//! Names and paths: where an election stands in ZooKeeper's tree, how candidates are called there, and in which order they are.
//!
//! ```text
//!   /NAMESPACE/NAME                      the election; its children are the candidates, ours and others'
//!   /NAMESPACE/NAME/_c_ID-latch-SEQ      one of ours, as Curator's LeaderLatch calls it
//!   /NAMESPACE/NAME/ID__lock__SEQ        one of ours, as kazoo calls it
//!   /NAMESPACE/.incumbent/NAME           the ledger, out of sight of other people's recipes
//!   /NAMESPACE/.incumbent/NAME/ID        what a candidate of ours says beyond its identity
//! ```

use crate::engine::Error;
use crate::identity::Identity;
use crate::name::Name;
use crate::place::Place;

/// Whose recipe the names of our candidates follow.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    /// Apache Curator's `LeaderLatch`.
    Curator,
    /// kazoo's `Election` and `Lock`.
    Kazoo,
}

impl Layout {
    pub(super) fn of(option: Option<&str>) -> Result<Layout, Error> {
        match option {
            None | Some("curator") => Ok(Layout::Curator),
            Some("kazoo") => Ok(Layout::Kazoo),
            Some(other) => Err(Error::misconfigured(format!("layout={other}: say layout=curator or layout=kazoo"))),
        }
    }

    /// The name of a candidate's node without the sequence that ZooKeeper adds.
    pub(super) fn prefix(self, id: &ProtectedId) -> String {
        let hex = &id.0;
        match self {
            Layout::Curator => {
                format!("_c_{}-{}-{}-{}-{}-latch-", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
            }
            Layout::Kazoo => format!("{hex}__lock__"),
        }
    }

    /// Whether a node that says it is `identity`'s is one of ours: its name says so too, and nobody else would call it that.
    pub(super) fn is_ours(self, election: &Name, child: &str, identity: &Identity) -> bool {
        child.starts_with(&self.prefix(&ProtectedId::of(election, identity)))
    }
}

/// What makes the name of a candidate's node its own, so that it is found again after a reply was lost.
///
/// It follows from the election and the identity, which is unique: no memory is needed to know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ProtectedId(String);

impl ProtectedId {
    pub(super) fn of(election: &Name, identity: &Identity) -> ProtectedId {
        // FNV-1a of 128 bits: spreads well enough for names, and is the same in every version of ours.
        const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        let text = election.as_str().bytes().chain([0]).chain(identity.as_str().bytes());
        let hash = text.fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
        ProtectedId(format!("{hash:032x}"))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The paths of a namespace.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    /// Empty, or `/a/b`.
    root: String,
}

/// Where our own documents are. A name cannot begin with a dot, so it is in nobody's way.
const HOUSE: &str = ".incumbent";

impl Paths {
    pub(super) fn of(place: &Place) -> Result<Paths, Error> {
        let mut segments = place.path();
        while let [rest @ .., last] = segments
            && last.is_empty()
        {
            segments = rest;
        }
        for segment in segments {
            let why = match segment.as_str() {
                "" => "has an empty part",
                "." | ".." => "has a part that ZooKeeper does not take",
                HOUSE => "is where incumbent keeps its own documents",
                part if part.contains('/') => "has a slash inside a part",
                part if part.chars().any(is_odd) => "has a character that ZooKeeper does not take",
                _ => continue,
            };
            return Err(Error::misconfigured(format!("the path /{} {why}: choose another", place.namespace().escape_debug())));
        }
        if segments.first().is_some_and(|it| it == RESERVED) {
            return Err(reserved());
        }
        Ok(Paths { root: segments.iter().map(|it| format!("/{it}")).collect() })
    }

    /// Whether an election may have this name here.
    pub(super) fn accepts(&self, election: &Name) -> Result<(), Error> {
        if self.root.is_empty() && election.as_str() == RESERVED { Err(reserved()) } else { Ok(()) }
    }

    pub(super) fn election(&self, election: &Name) -> String {
        format!("{}/{election}", self.root)
    }

    pub(super) fn candidate(&self, election: &Name, child: &str) -> String {
        format!("{}/{election}/{child}", self.root)
    }

    pub(super) fn house(&self) -> String {
        format!("{}/{HOUSE}", self.root)
    }

    pub(super) fn ledger(&self, election: &Name) -> String {
        format!("{}/{HOUSE}/{election}", self.root)
    }

    pub(super) fn record(&self, election: &Name, id: &str) -> String {
        format!("{}/{HOUSE}/{election}/{id}", self.root)
    }
}

/// ZooKeeper's own part of the tree.
const RESERVED: &str = "zookeeper";

fn reserved() -> Error {
    Error::misconfigured("/zookeeper is ZooKeeper's own: put a namespace before it, as in zookeeper://HOST/prod")
}

/// What ZooKeeper refuses in a path.
fn is_odd(letter: char) -> bool {
    matches!(letter, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fff0}'..='\u{ffff}')
}

/// The number that ZooKeeper put at the end of a sequential node's name; `None` for nodes that are not.
pub(super) fn sequence(child: &str) -> Option<u64> {
    let at = child.len().checked_sub(10)?;
    child.get(at..).filter(|it| it.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

/// Candidates in the order in which they came. What has no sequence is none.
pub(super) fn in_order(children: Vec<String>) -> Vec<String> {
    let mut line: Vec<(u64, String)> = children.into_iter().filter_map(|it| Some((sequence(&it)?, it))).collect();
    line.sort();
    line.into_iter().map(|(_, child)| child).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a good name")
    }

    #[test]
    fn names_are_those_of_curator_and_kazoo() {
        let identity = Identity::stored("a");
        let id = ProtectedId::of(&name("job"), &identity);
        assert_eq!(id, ProtectedId::of(&name("job"), &identity), "found again without memory");
        assert_ne!(id, ProtectedId::of(&name("jo"), &Identity::stored("ba")));
        let (curator, kazoo) = (Layout::Curator.prefix(&id), Layout::Kazoo.prefix(&id));
        assert_eq!(curator.len(), "_c_01234567-0123-0123-0123-0123456789ab-latch-".len());
        assert_eq!(kazoo, format!("{}__lock__", id.as_str()));
        assert!(Layout::Curator.is_ours(&name("job"), &format!("{curator}0000000007"), &identity));
        assert!(!Layout::Curator.is_ours(&name("job"), &format!("{kazoo}0000000007"), &identity));
        assert!(Layout::of(Some("zk")).is_err());
    }

    #[test]
    fn the_line_is_in_the_order_of_sequences_whoever_made_the_names() {
        let children = ["_c_ff-latch-0000000003", "a__lock__0000000010", "n_0000000002", "lock", "x-00000001", "ü000000001"];
        let line = in_order(children.map(str::to_owned).to_vec());
        assert_eq!(line, ["n_0000000002", "_c_ff-latch-0000000003", "a__lock__0000000010"]);
    }

    #[test]
    fn paths_follow_the_url() {
        let paths = |url: &str| Paths::of(&Place::parse(url).expect(url));
        let good = paths("zookeeper://h/prod/eu").expect("good");
        assert_eq!(good.election(&name("job")), "/prod/eu/job");
        assert_eq!(good.ledger(&name("job")), "/prod/eu/.incumbent/job");
        let bare = paths("zookeeper://h/").expect("good");
        assert_eq!(bare.election(&name("job")), "/job");
        assert!(bare.accepts(&name("zookeeper")).is_err() && good.accepts(&name("zookeeper")).is_ok());
        for bad in ["h/a//b", "h/a/..", "h/./b", "h/zookeeper", "h/zookeeper/x", "h/a%2Fb", "h/a%00", "h/x/.incumbent"] {
            let why = paths(&format!("zookeeper://{bad}")).expect_err(bad).to_string();
            assert!(!why.contains('\n') && why.contains(':'), "{why}");
        }
    }
}
