//! What an election cost in the run that was just explained, beside what theory says.

use incumbent_lab::trace::{Entry, Happening};
use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::{Event, NodeId, Purpose, Wire as _};
use incumbent_protocol::settings::Settings;

/// One kind of message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cost {
    pub(crate) message: &'static str,
    pub(crate) counted: usize,
    pub(crate) formula: &'static str,
    pub(crate) expected: usize,
}

/// The messages of the contest among `entries`, beside theory. `n` nodes, of which the first to contend began it.
pub(crate) fn costs(kind: Kind, settings: &Settings, entries: &[&Entry]) -> Vec<Cost> {
    let n = settings.members().len();
    let k = starter(entries).and_then(|node| settings.rank(node)).map_or(1, |rank| rank + 1);
    let counted = |name: &str| {
        let sent = |entry: &&&Entry| matches!(&entry.what, Happening::Sent { message, .. } if message.name() == name && message.purpose() == Purpose::Contest);
        entries.iter().filter(sent).count()
    };
    let theory: Vec<(&'static str, &'static str, usize)> = match kind {
        // The greatest is dead; all from k to n-1 ask those above them, and all of those but the dead one answer.
        Kind::Bully => vec![
            ("election", "sum of n-i for i from k to n-1", (k..n).map(|i| n - i).sum()),
            ("alive", "sum of n-1-i for i from k to n-1", (k..n).map(|i| n - 1 - i).sum()),
            ("coordinator", "n-1", n - 1),
        ],
        Kind::Ring => vec![("election", "n", n), ("coordinator", "n", n)],
        Kind::ChangRoberts => vec![("election", "(n-k) + n", n - k + n), ("coordinator", "n", n)],
        Kind::Raft => vec![
            ("prevote-request", "n-1", n - 1),
            ("prevote", "n-1", n - 1),
            ("vote-request", "n-1", n - 1),
            ("vote", "n-1", n - 1),
        ],
    };
    theory
        .into_iter()
        .map(|(message, formula, expected)| Cost { message, counted: counted(message), formula, expected })
        .collect()
}

/// The node that contended first.
pub(crate) fn starter(entries: &[&Entry]) -> Option<NodeId> {
    let contends =
        |entry: &&Entry| if let Happening::Told { node, event: Event::Contends { .. } } = entry.what { Some(node) } else { None };
    entries.iter().find_map(contends)
}

/// What n and k are, and what the order is for many nodes.
pub(crate) fn legend(kind: Kind, settings: &Settings, starter: Option<NodeId>) -> String {
    let n = settings.members().len();
    let who = starter.map_or_else(String::new, |node| format!(", started by node k = {node}"));
    let order = match kind {
        Kind::Bully => {
            "at the worst, when the smallest id starts or all do, the number grows with the square of n; at the best, when the greatest that lives starts, with n"
        }
        Kind::Ring => "2n with one initiator, whoever it is; a second initiator adds at most another lap",
        Kind::ChangRoberts => {
            "with all starting at once between 2n-1 and n(n+1)/2 for the contest, and about n times the logarithm of n on average"
        }
        Kind::Raft => "4(n-1) with pre-vote, 2(n-1) without, and again for every split vote",
    };
    format!("n = {n} nodes{who}. In general: {order}.")
}
