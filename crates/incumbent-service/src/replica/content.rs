//! What stands in an entry, in bytes: nothing, a batch of payloads with its time, or a change of members.
//!
//! The first byte says which, so that a log needs no column for it. A change is written as the engine reads it back from a proposal of
//! this very process; from a log or a line it is read here alone.

use bytes::Bytes;
use incumbent_protocol::protocol::NodeId;
use prost::Message;

use super::exchange::{ClusterTime, Step, Tag};

const BATCH: u8 = 1;
const CHANGE: u8 = 2;

/// Of what kind an entry is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Nothing,
    Batch,
    Change,
}

/// None if no version of this program that we know of has written it.
pub(super) fn kind(bytes: &[u8]) -> Option<Kind> {
    match bytes.first() {
        None => Some(Kind::Nothing),
        Some(&BATCH) => Some(Kind::Batch),
        Some(&CHANGE) => Some(Kind::Change),
        Some(_) => None,
    }
}

/// Payloads that are decided together, at one time.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Batch {
    #[prost(uint64, tag = "1")]
    pub(super) at: u64,
    #[prost(message, repeated, tag = "2")]
    pub(super) items: Vec<BatchItem>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BatchItem {
    #[prost(message, required, tag = "1")]
    pub(super) source: Source,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) payload: Bytes,
}

/// Who waits for the outcome: a node, in one of its runs, under a tag.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Source {
    #[prost(uint32, tag = "1")]
    pub(super) node: u32,
    #[prost(fixed64, tag = "2")]
    pub(super) run: u64,
    #[prost(uint64, tag = "3")]
    pub(super) tag: u64,
}

impl Source {
    pub(super) fn of(node: NodeId, run: u64, tag: Tag) -> Source {
        Source { node: node.0, run, tag: tag.0 }
    }
}

/// The bytes of a batch's entry.
pub(super) fn write_batch(batch: &Batch) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + batch.encoded_len());
    bytes.push(BATCH);
    batch.encode_raw(&mut bytes);
    bytes
}

/// The batch in an entry of that kind.
pub(super) fn read_batch(bytes: &Bytes) -> Option<Batch> {
    (kind(bytes) == Some(Kind::Batch)).then(|| Batch::decode(bytes.slice(1..)).ok())?
}

/// The time of an entry, if it has one.
pub(super) fn time(bytes: &Bytes) -> Option<ClusterTime> {
    /// The beginning of a batch: all that is needed of one whose payloads nobody asks for.
    #[derive(Clone, PartialEq, Message)]
    struct Stamp {
        #[prost(uint64, tag = "1")]
        at: u64,
    }
    if kind(bytes) != Some(Kind::Batch) {
        return None;
    }
    Stamp::decode(bytes.slice(1..)).ok().map(|stamp| ClusterTime(stamp.at))
}

/// A change of members, field for field as the engine has it. Without steps it ends a change that was under way.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Change {
    #[prost(message, repeated, tag = "2")]
    pub(super) steps: Vec<ChangeStep>,
    #[prost(bytes = "vec", tag = "3")]
    context: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ChangeStep {
    #[prost(enumeration = "StepKind", tag = "1")]
    kind: i32,
    /// As the engine numbers them: one more than the node's.
    #[prost(uint64, tag = "2")]
    number: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
enum StepKind {
    Voter = 0,
    Remove = 1,
    Learner = 2,
}

impl Change {
    pub(super) fn new(steps: &[Step], source: Source) -> Change {
        let step = |step: &Step| {
            let kind = match step {
                Step::Voter(_) => StepKind::Voter,
                Step::Remove(_) => StepKind::Remove,
                Step::Learner(_) => StepKind::Learner,
            };
            ChangeStep { kind: kind.into(), number: u64::from(step.node().0) + 1 }
        };
        Change { steps: steps.iter().map(step).collect(), context: source.encode_to_vec() }
    }

    /// What it changes; None if it says what it cannot mean.
    pub(super) fn read_steps(&self) -> Option<Vec<Step>> {
        let step = |step: &ChangeStep| {
            let node = NodeId(u32::try_from(step.number.checked_sub(1)?).ok()?);
            Some(match StepKind::try_from(step.kind).ok()? {
                StepKind::Voter => Step::Voter(node),
                StepKind::Remove => Step::Remove(node),
                StepKind::Learner => Step::Learner(node),
            })
        };
        self.steps.iter().map(step).collect()
    }

    pub(super) fn source(&self) -> Option<Source> {
        if self.context.is_empty() { None } else { Source::decode(self.context.as_slice()).ok() }
    }

    /// What the engine is given.
    pub(super) fn bare(&self) -> Vec<u8> {
        self.encode_to_vec()
    }
}

/// The bytes of a change's entry, from those that the engine keeps.
pub(super) fn dress_change(bare: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(1 + bare.len());
    bytes.push(CHANGE);
    bytes.extend_from_slice(bare);
    bytes.into()
}

/// What the engine keeps of the bytes of a change's entry.
pub(super) fn undress_change(bytes: &Bytes) -> Bytes {
    bytes.slice(1..)
}

/// The change in what the engine keeps.
pub(super) fn read_change(bare: &[u8]) -> Option<Change> {
    Change::decode(bare).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_says_itself_what_it_is() {
        let source = Source::of(NodeId(3), 77, Tag(5));
        let batch = Batch { at: 9, items: vec![BatchItem { source, payload: Bytes::from_static(b"abc") }] };
        let bytes = Bytes::from(write_batch(&batch));
        assert_eq!(kind(&bytes), Some(Kind::Batch));
        assert_eq!(time(&bytes), Some(ClusterTime(9)));
        assert_eq!(read_batch(&bytes), Some(batch));
        assert_eq!(read_batch(&bytes.slice(..bytes.len() - 1)), None);
        assert_eq!((kind(&[]), kind(&[9])), (Some(Kind::Nothing), None));

        let steps = [Step::Voter(NodeId(0)), Step::Learner(NodeId(4)), Step::Remove(NodeId(9))];
        let change = dress_change(&Change::new(&steps, source).bare());
        assert_eq!(kind(&change), Some(Kind::Change));
        let read = read_change(&undress_change(&change)).expect("written above");
        assert_eq!((read.read_steps(), read.source()), (Some(steps.to_vec()), Some(source)));
        assert_eq!(read_change(&[]).and_then(|it| it.read_steps()), Some(vec![]));
    }

    /// A log is read by later releases: what stands in it never changes its meaning.
    #[test]
    fn the_bytes_of_entries_never_change() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let source = Source::of(NodeId(3), 77, Tag(5));
        let batch = Batch { at: 9, items: vec![BatchItem { source, payload: Bytes::from_static(b"abc") }] };
        assert_eq!(hex(&write_batch(&batch)), "01080912140a0d0803114d0000000000000018051203616263");
        let change = Change::new(&[Step::Voter(NodeId(0)), Step::Remove(NodeId(9))], source);
        assert_eq!(hex(&dress_change(&change.bare())), "021202100112040801100a1a0d0803114d000000000000001805");
    }
}
