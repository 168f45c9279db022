//! Between the engine's types and ours: nothing is decided here.

use bytes::Bytes;
use incumbent_protocol::protocol::{NodeId, Term};
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeType, ConfChangeV2, ConfState, Entry as RaftEntry, EntryType, Message, MessageType,
    Snapshot as RaftSnapshot,
};

use super::super::content;
use super::super::exchange::{Entry, Snapshot, Step};
use super::super::letter::{Kind, Line, Raft};
use super::super::roll::Roll;

/// What the engine writes into the request for a vote by the leader's own wish.
const TRANSFER: &[u8] = b"CampaignTransfer";

/// The engine's number for a node: it has no node 0.
pub(super) fn number(node: NodeId) -> u64 {
    u64::from(node.0) + 1
}

/// The node with that number; None for 0, which means nobody.
pub(super) fn node(number: u64) -> Option<NodeId> {
    u32::try_from(number.checked_sub(1)?).ok().map(NodeId)
}

pub(super) fn roll_out(roll: &Roll) -> ConfState {
    let numbers = |ids: &std::collections::BTreeSet<NodeId>| ids.iter().copied().map(number).collect::<Vec<_>>();
    let mut state = ConfState::default();
    state.set_voters(numbers(roll.voters()));
    state.set_learners(numbers(roll.learners()));
    state.set_voters_outgoing(numbers(roll.outgoing()));
    state.set_learners_next(numbers(roll.learners_next()));
    // Nobody here ever asks for a joint state that is to last.
    state.set_auto_leave(roll.joint());
    state
}

/// None if the engine has members that no roll can have; it has not, as all of them came from one.
pub(super) fn roll_in(state: &ConfState) -> Option<Roll> {
    let nodes = |numbers: &[u64]| numbers.iter().copied().filter_map(node).collect::<Vec<_>>();
    Roll::assemble(nodes(&state.voters), nodes(&state.learners), nodes(&state.voters_outgoing), nodes(&state.learners_next)).ok()
}

pub(super) fn snapshot_out(snapshot: &Snapshot) -> RaftSnapshot {
    let mut out = RaftSnapshot::default();
    out.mut_metadata().set_index(snapshot.index);
    out.mut_metadata().set_term(snapshot.term.0);
    out.mut_metadata().set_conf_state(roll_out(&snapshot.roll));
    out
}

pub(super) fn change_out(steps: &[Step]) -> ConfChangeV2 {
    let single = |step: &Step| {
        let mut out = ConfChangeSingle::default();
        out.set_node_id(number(step.node()));
        out.set_change_type(match step {
            Step::Voter(_) => ConfChangeType::AddNode,
            Step::Learner(_) => ConfChangeType::AddLearnerNode,
            Step::Remove(_) => ConfChangeType::RemoveNode,
        });
        out
    };
    let mut change = ConfChangeV2::default();
    change.set_changes(steps.iter().map(single).collect::<Vec<_>>().into());
    change
}

/// None if the entry is of a kind that we do not know.
pub(super) fn entry_in(index: u64, term: u64, bytes: &Bytes) -> Option<RaftEntry> {
    let mut entry = RaftEntry::default();
    entry.set_index(index);
    entry.set_term(term);
    match content::kind(bytes)? {
        content::Kind::Nothing => {}
        content::Kind::Batch => entry.set_data(bytes.clone()),
        content::Kind::Change => {
            entry.set_entry_type(EntryType::EntryConfChangeV2);
            entry.set_data(content::undress_change(bytes));
        }
    }
    Some(entry)
}

pub(super) fn entry_out(entry: &RaftEntry) -> Entry {
    let bytes = match entry.get_entry_type() {
        EntryType::EntryNormal => entry.data.clone(),
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => content::dress_change(&entry.data),
    };
    Entry { index: entry.index, term: Term(entry.term), bytes }
}

/// None for what never leaves a node by this way: snapshots, and what the engine would forward by itself.
pub(super) fn message_out(message: &Message) -> Option<Raft> {
    let kind = match message.get_msg_type() {
        MessageType::MsgAppend => Kind::Append,
        MessageType::MsgAppendResponse => Kind::AppendAnswer,
        MessageType::MsgHeartbeat => Kind::Heartbeat,
        MessageType::MsgHeartbeatResponse => Kind::HeartbeatAnswer,
        MessageType::MsgRequestVote => Kind::VoteRequest,
        MessageType::MsgRequestVoteResponse => Kind::VoteAnswer,
        MessageType::MsgRequestPreVote => Kind::PreVoteRequest,
        MessageType::MsgRequestPreVoteResponse => Kind::PreVoteAnswer,
        MessageType::MsgTimeoutNow => Kind::StandNow,
        MessageType::MsgHup
        | MessageType::MsgBeat
        | MessageType::MsgPropose
        | MessageType::MsgSnapshot
        | MessageType::MsgUnreachable
        | MessageType::MsgSnapStatus
        | MessageType::MsgCheckQuorum
        | MessageType::MsgTransferLeader
        | MessageType::MsgReadIndex
        | MessageType::MsgReadIndexResp => return None,
    };
    let transfer = kind == Kind::VoteRequest && &message.context[..] == TRANSFER;
    Some(Raft {
        kind: kind.into(),
        term: message.term,
        log_term: message.log_term,
        index: message.index,
        entries: message.entries.iter().map(entry_out).map(|it| Line { term: it.term.0, bytes: it.bytes }).collect(),
        commit: message.commit,
        commit_term: message.commit_term,
        reject: message.reject,
        reject_hint: message.reject_hint,
        context: if transfer { Bytes::new() } else { message.context.clone() },
        transfer,
        slow_ms: 0,
    })
}

/// None if it holds an entry of a kind that we do not know, or says nothing.
pub(super) fn message_in(from: NodeId, to: NodeId, raft: &Raft) -> Option<Message> {
    let kind = match Kind::try_from(raft.kind).ok()? {
        Kind::None => return None,
        Kind::Append => MessageType::MsgAppend,
        Kind::AppendAnswer => MessageType::MsgAppendResponse,
        Kind::Heartbeat => MessageType::MsgHeartbeat,
        Kind::HeartbeatAnswer => MessageType::MsgHeartbeatResponse,
        Kind::VoteRequest => MessageType::MsgRequestVote,
        Kind::VoteAnswer => MessageType::MsgRequestVoteResponse,
        Kind::PreVoteRequest => MessageType::MsgRequestPreVote,
        Kind::PreVoteAnswer => MessageType::MsgRequestPreVoteResponse,
        Kind::StandNow => MessageType::MsgTimeoutNow,
    };
    let mut message = Message::default();
    message.set_msg_type(kind);
    message.from = number(from);
    message.to = number(to);
    message.term = raft.term;
    message.log_term = raft.log_term;
    message.index = raft.index;
    message.commit = raft.commit;
    message.commit_term = raft.commit_term;
    message.reject = raft.reject;
    message.reject_hint = raft.reject_hint;
    // Otherwise a stranger could put the engine's own word into any other message.
    message.context = if kind != MessageType::MsgRequestVote {
        raft.context.clone()
    } else if raft.transfer {
        Bytes::from_static(TRANSFER)
    } else {
        Bytes::new()
    };
    let entries: Option<Vec<_>> =
        raft.entries.iter().zip(raft.index + 1..).map(|(line, index)| entry_in(index, line.term, &line.bytes)).collect();
    message.set_entries(entries?.into());
    Some(message)
}
