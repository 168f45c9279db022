//! The roll: who the members of a group are, and which change made it so.
//!
//! A group begins with the members that each node was told of. After that the roll changes by one member at a time, decided by the node that is in office in an election of its own
//! ([`ELECTION`]). Nodes exchange words only while they go by the same roll, so each majority is counted among one set of members; and two rolls that follow each other share
//! a node in every two majorities. What is left is that a lease given under one roll might outlive the next: so a change begins by writing the term of its leader into the roll on a majority,
//! and then waits until every older lease has ended. (The argument is that of logless reconfiguration: Schultz, Dardik and Tripakis, 2021.)
//!
//! The number of a roll orders them: those that were changed by the term of the leader that changed them, then by how often; those that were never changed are not comparable, and
//! nodes with different ones do not talk.

use std::cmp::Ordering;
use std::fmt;

use incumbent_protocol::protocol::{NodeId, Term};
use incumbent_protocol::settings::MEMBERS_MAX;

/// The election of the node that may change the roll. No user's election has such a name.
pub(super) const ELECTION: &str = "@members";

/// Set in the number of a roll that was changed.
const CHANGED: u64 = 1 << 63;
const VERSION_BITS: u32 = 15;
const VERSION_MAX: u64 = (1 << VERSION_BITS) - 1;

/// A longer address is a mistake.
const ADDRESS_LEN_MAX: usize = 512;

/// Which roll.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct RollNumber(pub(super) u64);

/// The members and where they listen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Roll {
    number: RollNumber,
    members: Vec<(NodeId, String)>,
}

/// What an operator wants changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// One more member, which was never one before.
    Add(NodeId, String),
    /// One less.
    Remove(NodeId),
}

impl RollNumber {
    /// Of a node that has not been told yet: every other is newer.
    pub(super) const UNKNOWN: RollNumber = RollNumber(0);

    /// Which of two is newer; `None` if neither was ever changed and they are not the same.
    pub(super) fn compared(self, other: RollNumber) -> Option<Ordering> {
        let comparable = self == other || (self.0 | other.0) & CHANGED != 0 || self.0 == 0 || other.0 == 0;
        comparable.then(|| self.0.cmp(&other.0))
    }
}

impl fmt::Display for RollNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 & CHANGED == 0 {
            return f.write_str("as first told");
        }
        write!(f, "change {} of term {}", self.0 & VERSION_MAX, (self.0 & !CHANGED) >> VERSION_BITS)
    }
}

impl Roll {
    /// The members that this node was told of.
    pub(super) fn told(mut members: Vec<(NodeId, String)>) -> Roll {
        members.sort_unstable();
        let ids: Vec<u8> = members.iter().flat_map(|(id, _)| id.0.to_le_bytes()).collect();
        // Never that of a node which does not know, and never one that was changed.
        let number = u64::from(crc32c::crc32c(&ids)) | 1 << 32;
        Roll { number: RollNumber(number), members }
    }

    /// Before it is told.
    pub(super) fn unknown(members: Vec<(NodeId, String)>) -> Roll {
        Roll { number: RollNumber::UNKNOWN, ..Roll::told(members) }
    }

    pub(super) fn stored(number: u64, mut members: Vec<(NodeId, String)>) -> Roll {
        members.sort_unstable();
        Roll { number: RollNumber(number), members }
    }

    /// Which it is.
    pub fn number(&self) -> RollNumber {
        self.number
    }

    /// The members and their addresses, by id.
    pub fn members(&self) -> &[(NodeId, String)] {
        &self.members
    }

    pub(super) fn has(&self, node: NodeId) -> bool {
        self.members.iter().any(|(id, _)| *id == node)
    }

    pub(super) fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// The same members, written down in this term.
    pub(super) fn in_term(&self, term: Term) -> Option<Roll> {
        let version = if self.number.0 & CHANGED == 0 { 0 } else { self.number.0 & VERSION_MAX };
        Some(Roll { number: number(term, version)?, members: self.members.clone() })
    }

    /// With one change more, or why not.
    pub(super) fn changed(&self, change: &Change) -> Result<Roll, String> {
        let term = Term((self.number.0 & !CHANGED) >> VERSION_BITS);
        let next =
            number(term, (self.number.0 & VERSION_MAX) + 1).ok_or("the roll has been changed too often: begin a new group")?;
        let mut members = self.members.clone();
        match change {
            Change::Add(id, _) if self.has(*id) => return Err(format!("node {id} is a member already")),
            Change::Add(_, address) if address.len() > ADDRESS_LEN_MAX => return Err("that address is too long".to_owned()),
            Change::Add(..) if members.len() >= MEMBERS_MAX => return Err(format!("a group has at most {MEMBERS_MAX} members")),
            Change::Add(id, address) => members.push((*id, address.clone())),
            Change::Remove(id) if !self.has(*id) => return Err(format!("node {id} is no member")),
            Change::Remove(_) if members.len() == 1 => return Err("a group needs at least one node".to_owned()),
            Change::Remove(id) => members.retain(|(it, _)| it != id),
        }
        members.sort_unstable();
        Ok(Roll { number: next, members })
    }

    /// As nodes tell each other: a number, then a line for each member.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut text = format!("{}\n", self.number.0);
        for (id, address) in &self.members {
            text.push_str(&format!("{id}@{address}\n"));
        }
        text.into_bytes()
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Roll> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines();
        let number = RollNumber(lines.next()?.parse().ok()?);
        let member = |line: &str| {
            let (id, address) = line.split_once('@')?;
            (address.len() <= ADDRESS_LEN_MAX).then_some(())?;
            Some((NodeId(id.parse().ok()?), address.to_owned()))
        };
        let members: Vec<_> = lines.take(MEMBERS_MAX + 1).map(member).collect::<Option<_>>()?;
        let in_order = members.windows(2).all(|pair| pair[0].0 < pair[1].0);
        (in_order && !members.is_empty() && members.len() <= MEMBERS_MAX).then_some(Roll { number, members })
    }
}

fn number(term: Term, version: u64) -> Option<RollNumber> {
    (version <= VERSION_MAX && term <= Term::MAX).then_some(RollNumber(CHANGED | term.0 << VERSION_BITS | version))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roll(ids: &[u32]) -> Roll {
        Roll::told(ids.iter().map(|it| (NodeId(*it), format!("h{it}:1"))).collect())
    }

    #[test]
    fn rolls_are_ordered_by_term_then_by_change_and_those_never_changed_not_at_all() {
        let (first, other) = (roll(&[1, 2, 3]), roll(&[1, 2, 4]));
        assert_eq!(first.number().compared(other.number()), None);
        assert_eq!(first.number().compared(roll(&[3, 2, 1]).number()), Some(Ordering::Equal), "in whatever order they were told");
        let settled = first.in_term(Term(7)).unwrap();
        let changed = settled.changed(&Change::Add(NodeId(4), "h4:1".into())).unwrap();
        let later = other.in_term(Term(8)).unwrap();
        let rising = [RollNumber::UNKNOWN, first.number(), settled.number(), changed.number(), later.number()];
        for pair in rising.windows(2) {
            assert_eq!(pair[0].compared(pair[1]), Some(Ordering::Less), "{} {}", pair[0], pair[1]);
        }
        assert_eq!(changed.in_term(Term(9)).unwrap().members(), changed.members());
        assert!(first.in_term(Term::MAX).is_some(), "every term fits");
    }

    #[test]
    fn one_change_at_a_time_and_none_that_makes_no_sense() {
        let roll = roll(&[1, 2]).in_term(Term(1)).unwrap();
        assert!(roll.changed(&Change::Add(NodeId(2), "x".into())).is_err());
        assert!(roll.changed(&Change::Remove(NodeId(3))).is_err());
        let one = roll.changed(&Change::Remove(NodeId(2))).unwrap();
        assert!(one.changed(&Change::Remove(NodeId(1))).is_err());
        assert_eq!((one.majority(), one.has(NodeId(1)), one.has(NodeId(2))), (1, true, false));
    }

    #[test]
    fn what_is_written_is_read_and_nonsense_is_not() {
        let roll = roll(&[1, 2, 300]).in_term(Term(5)).unwrap();
        assert_eq!(Roll::read(&roll.write()), Some(roll));
        for bad in ["", "x", "1", "1\n2@a\n1@b", "1\n1@a\n1@b", "1\na@b", "1\n1"] {
            assert_eq!(Roll::read(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
