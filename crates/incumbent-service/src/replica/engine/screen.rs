//! What a message must be like for the engine to be given it.
//!
//! The engine panics on what cannot happen: a commit beyond the log, terms that fall, an answer to what was never sent. From a stranger's
//! bytes anything can happen, so it is ruled out here, before; what is merely old or useless is left to the engine.

use incumbent_protocol::protocol::Term;

use super::super::letter::{Kind, Raft};

/// No term is believed that is so far ahead that no sequence of elections can have led to it (C90).
pub(super) const TERM_JUMP_MAX: u64 = 1 << 32;

/// No log is so long: at a million entries a second it takes a hundred thousand years.
const INDEX_MAX: u64 = 1 << 62;

/// A context is ours: three numbers.
const CONTEXT_BYTES_MAX: usize = 64;

/// Why a message is not looked at.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unfit {
    /// It has no kind, an unknown one, or entries of an unknown kind.
    Form,
    /// Its term is none, or too far ahead.
    Term,
    /// Its entries do not follow each other, or come from the future.
    Entries,
    /// It speaks of entries that nobody has.
    Index,
    /// It speaks of entries that this node has acknowledged, and they are not here.
    Forgotten,
    /// It is not for its sender to say that.
    Sender,
    /// This node installs a snapshot, or has no members yet and is asked for its vote.
    NotNow,
}

/// What the judgement depends on.
pub(super) struct Ground {
    pub(super) term: u64,
    pub(super) last: u64,
    pub(super) leads: bool,
    /// Whether the message comes from whom this node follows.
    pub(super) from_leader: bool,
}

pub(super) fn screen(ground: &Ground, raft: &Raft) -> Result<(), Unfit> {
    let kind = Kind::try_from(raft.kind).map_err(|_| Unfit::Form)?;
    if raft.term == 0 || raft.term > Term::MAX.0 || raft.term > ground.term.saturating_add(TERM_JUMP_MAX) {
        return Err(Unfit::Term);
    }
    let numbers = [raft.index, raft.commit, raft.reject_hint];
    let terms = [raft.log_term, raft.commit_term];
    if numbers.iter().any(|it| *it > INDEX_MAX) || terms.iter().any(|it| *it > Term::MAX.0) {
        return Err(Unfit::Index);
    }
    if raft.context.len() > CONTEXT_BYTES_MAX {
        return Err(Unfit::Form);
    }
    if kind != Kind::Append && !raft.entries.is_empty() {
        return Err(Unfit::Entries);
    }
    let now = raft.term == ground.term;
    match kind {
        Kind::None => Err(Unfit::Form),
        Kind::Append => {
            // Who stands in the same term and does not lead it cannot have been elected: two leaders, one term.
            if now && ground.leads {
                return Err(Unfit::Sender);
            }
            // The engine takes the term of an entry that it does not have for 0, and would find that the two agree.
            if (raft.log_term == 0) != (raft.index == 0) {
                return Err(Unfit::Entries);
            }
            let rising = raft.entries.iter().try_fold(raft.log_term, |before, it| (it.term >= before.max(1)).then_some(it.term));
            if rising.is_some_and(|last| last <= raft.term) { Ok(()) } else { Err(Unfit::Entries) }
        }
        // The commit index in a heartbeat is one that this node has acknowledged to this leader, and that is decided, so that nobody may cut it off: if it is beyond the log, the log was lost or is an old one (C49, C56).
        Kind::Heartbeat if now && ground.leads => Err(Unfit::Sender),
        Kind::Heartbeat if raft.term >= ground.term && raft.commit > ground.last => Err(Unfit::Forgotten),
        Kind::Heartbeat => Ok(()),
        Kind::AppendAnswer if now && ground.leads && raft.index > ground.last => Err(Unfit::Index),
        Kind::AppendAnswer | Kind::HeartbeatAnswer => Ok(()),
        Kind::VoteRequest | Kind::PreVoteRequest | Kind::VoteAnswer | Kind::PreVoteAnswer => Ok(()),
        Kind::StandNow if now && !ground.from_leader => Err(Unfit::Sender),
        Kind::StandNow => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::letter::Line;
    use super::*;

    fn of(kind: Kind) -> Raft {
        Raft { kind: kind.into(), term: 5, index: 10, log_term: 4, ..Raft::default() }
    }

    fn judged(raft: &Raft) -> Result<(), Unfit> {
        screen(&Ground { term: 5, last: 12, leads: false, from_leader: false }, raft)
    }

    fn judged_by_leader(raft: &Raft) -> Result<(), Unfit> {
        screen(&Ground { term: 5, last: 12, leads: true, from_leader: false }, raft)
    }

    #[test]
    fn what_would_make_the_engine_panic_does_not_reach_it() {
        assert_eq!(judged(&of(Kind::Append)), Ok(()));
        assert_eq!(judged(&Raft { term: 0, ..of(Kind::Append) }), Err(Unfit::Term));
        assert_eq!(judged(&Raft { term: 5 + TERM_JUMP_MAX, ..of(Kind::VoteRequest) }), Ok(()));
        assert_eq!(judged(&Raft { term: 6 + TERM_JUMP_MAX, ..of(Kind::VoteRequest) }), Err(Unfit::Term));
        assert_eq!(judged(&Raft { term: 1 << 33, ..of(Kind::VoteRequest) }), Err(Unfit::Term));
        assert_eq!(judged(&Raft { commit: 13, ..of(Kind::Heartbeat) }), Err(Unfit::Forgotten));
        assert_eq!(judged(&Raft { commit: 13, term: 4, ..of(Kind::Heartbeat) }), Ok(()), "a former leader's proves nothing");
        assert_eq!(judged(&Raft { commit: u64::MAX, ..of(Kind::Heartbeat) }), Err(Unfit::Index));
        assert_eq!(judged(&Raft { commit: 12, ..of(Kind::Heartbeat) }), Ok(()));
        assert_eq!(judged(&Raft { index: u64::MAX, ..of(Kind::Append) }), Err(Unfit::Index));
        assert_eq!(judged(&Raft { reject_hint: u64::MAX, ..of(Kind::AppendAnswer) }), Err(Unfit::Index));
        assert_eq!(judged_by_leader(&Raft { index: 13, ..of(Kind::AppendAnswer) }), Err(Unfit::Index));
        assert_eq!(judged_by_leader(&of(Kind::Append)), Err(Unfit::Sender));
        assert_eq!(judged(&of(Kind::StandNow)), Err(Unfit::Sender));
        assert_eq!(judged(&Raft { kind: 99, ..of(Kind::Append) }), Err(Unfit::Form));
    }

    #[test]
    fn entries_follow_each_other_and_are_not_from_the_future() {
        let with = |terms: &[u64]| {
            let entries = terms.iter().map(|term| Line { term: *term, ..Line::default() }).collect();
            judged(&Raft { entries, ..of(Kind::Append) })
        };
        assert_eq!(with(&[4, 4, 5]), Ok(()));
        assert_eq!(with(&[4, 3]), Err(Unfit::Entries));
        assert_eq!(with(&[3]), Err(Unfit::Entries));
        assert_eq!(with(&[6]), Err(Unfit::Entries));
        assert_eq!(judged(&Raft { log_term: 0, ..of(Kind::Append) }), Err(Unfit::Entries));
        assert_eq!(judged(&Raft { index: 0, ..of(Kind::Append) }), Err(Unfit::Entries));
        assert_eq!(judged(&Raft { entries: vec![Line::default()], ..of(Kind::Heartbeat) }), Err(Unfit::Entries));
    }
}
