//! What a replica may start from: nothing, a birth, or what it wrote itself. Anything else is refused, with what is wrong.

use incumbent_protocol::protocol::Term;

use super::content;
use super::exchange::{Index, Recovered};
use super::settings::BadSettings;

/// Why a replica does not start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BadStart {
    /// The settings cannot work.
    Settings(BadSettings),
    /// An entry is missing before this one: the log was damaged, or a newer snapshot was lost.
    Gap(Index),
    /// The term of this entry is less than that of the one before, or greater than that of the vote: an older copy of a part of the disk.
    Terms(Index),
    /// This entry was written by a newer program.
    UnknownKind(Index),
    /// The snapshot has members and no entry, or the other way round.
    Snapshot,
}

/// Checks what a disk held, and lets go of what the snapshot already holds.
pub(super) fn check(mut recovered: Recovered) -> Result<Recovered, BadStart> {
    let (index, term) = (recovered.snapshot.index, recovered.snapshot.term);
    if (index == 0) != recovered.snapshot.roll.voters().is_empty() || (index == 0) != (term == Term(0)) {
        return Err(BadStart::Snapshot);
    }
    let mut before: Option<(Index, Term)> = None;
    for entry in &recovered.entries {
        if before.is_some_and(|(index, _)| entry.index != index + 1) {
            return Err(BadStart::Gap(entry.index));
        }
        if entry.term == Term(0) || before.is_some_and(|(_, term)| entry.term < term) || entry.term > recovered.vote.term {
            return Err(BadStart::Terms(entry.index));
        }
        if content::kind(&entry.bytes).is_none() {
            return Err(BadStart::UnknownKind(entry.index));
        }
        before = Some((entry.index, entry.term));
    }
    if term > recovered.vote.term {
        // It crashed after the snapshot was stored and before the log was begun anew: the vote is older than what the leader sent.
        recovered.vote.term = term;
        recovered.vote.candidate = None;
    }
    // If the snapshot's own entry is another here, all behind it was cut off in the cluster long ago.
    let stale =
        recovered.entries.iter().any(|it| it.index == index && it.term != term) || before.is_some_and(|(last, _)| last < index);
    if stale {
        recovered.entries.clear();
    }
    recovered.entries.retain(|it| it.index > index);
    match recovered.entries.first() {
        Some(first) if first.index != index + 1 => Err(BadStart::Gap(first.index)),
        Some(first) if first.term < term => Err(BadStart::Terms(first.index)),
        Some(_) | None => Ok(recovered),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use incumbent_protocol::protocol::NodeId;

    use super::super::exchange::Entry;
    use super::super::roll::Roll;
    use super::*;

    fn with(entries: &[(Index, u64)]) -> Recovered {
        let mut recovered = Recovered::birth(Roll::of([NodeId(0)]).expect("one voter"));
        recovered.vote.term = Term(9);
        recovered.entries =
            entries.iter().map(|(index, term)| Entry { index: *index, term: Term(*term), bytes: Bytes::new() }).collect();
        recovered
    }

    fn kept(recovered: Recovered) -> Result<Vec<Index>, BadStart> {
        check(recovered).map(|it| it.entries.iter().map(|it| it.index).collect())
    }

    #[test]
    fn what_was_not_written_by_a_replica_is_refused() {
        assert_eq!(kept(with(&[(2, 1), (3, 4)])), Ok(vec![2, 3]));
        assert_eq!(kept(Recovered::nothing()), Ok(vec![]));
        assert_eq!(kept(with(&[(3, 1)])), Err(BadStart::Gap(3)));
        assert_eq!(kept(with(&[(2, 1), (4, 1)])), Err(BadStart::Gap(4)));
        assert_eq!(kept(with(&[(2, 4), (3, 3)])), Err(BadStart::Terms(3)));
        assert_eq!(kept(with(&[(2, 10)])), Err(BadStart::Terms(2)));
        let mut newer = with(&[(2, 4)]);
        newer.entries[0].bytes = Bytes::from_static(&[77]);
        assert_eq!(kept(newer), Err(BadStart::UnknownKind(2)));
        let mut wrong = with(&[]);
        wrong.snapshot.index = 0;
        assert_eq!(kept(wrong), Err(BadStart::Snapshot));
    }

    #[test]
    fn what_a_newer_snapshot_holds_or_voids_is_let_go() {
        let mut recovered = with(&[(2, 1), (3, 2), (4, 2), (5, 3)]);
        recovered.snapshot.index = 4;
        recovered.snapshot.term = Term(2);
        assert_eq!(kept(recovered.clone()), Ok(vec![5]));
        recovered.snapshot.term = Term(3);
        assert_eq!(kept(recovered.clone()), Ok(vec![]));
        recovered.snapshot.index = 40;
        assert_eq!(kept(recovered), Ok(vec![]));
    }
}
