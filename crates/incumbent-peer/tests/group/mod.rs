//! Switchboards on loopback, and what a test waits for.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test waits for one kind of arrival")]

use std::time::Duration;

use incumbent_peer::packet::Word;
use incumbent_peer::switchboard::{Arrival, Lines, Peer, Security, Switchboard};
use incumbent_protocol::machine::Message;
use incumbent_protocol::office::OfficeMessage;
use incumbent_protocol::protocol::{NodeId, Term};
use incumbent_testbed::port::Port;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// A test waits for what will happen at once, unless the machine is very busy.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// One node and what has come in.
pub(crate) struct Node {
    pub(crate) board: Switchboard,
    pub(crate) arrivals: mpsc::Receiver<Arrival>,
}

/// The lines of node `me` of cluster `blue`, with peers at these addresses.
pub(crate) fn lines(me: u32, listen: &str, peers: &[(u32, String)]) -> Lines {
    Lines {
        cluster: "blue".into(),
        me: NodeId(me),
        directory: [u8::try_from(me).expect("small"); 16],
        generation: 1,
        origin: None,
        nonce: 1000 + u64::from(me),
        listen: listen.into(),
        peers: peers.iter().map(|(id, address)| Peer { id: NodeId(*id), address: address.clone() }).collect(),
        settings: "raft".into(),
        security: Security::Open,
        patience: Duration::from_millis(400),
        known: Vec::new(),
    }
}

impl Node {
    pub(crate) async fn open(lines: Lines) -> Node {
        let (tell, arrivals) = mpsc::channel(64);
        let board = Switchboard::open(lines, tell).await.expect("opens");
        Node { board, arrivals }
    }

    /// The next arrival that `pick` takes; others are passed over.
    #[track_caller]
    pub(crate) fn until<T>(&mut self, what: &str, mut pick: impl FnMut(Arrival) -> Option<T>) -> impl Future<Output = T> {
        let place = std::panic::Location::caller();
        async move {
            let mut passed = Vec::new();
            let found = timeout(LONG, async {
                loop {
                    let arrival = self.arrivals.recv().await.expect("open");
                    passed.push(format!("{arrival:?}"));
                    if let Some(found) = pick(arrival) {
                        return found;
                    }
                }
            });
            found.await.unwrap_or_else(|_| panic!("waited in vain at {place}: {what}; there was {passed:#?}"))
        }
    }

    pub(crate) async fn up(&mut self, peer: u32) {
        self.until(&format!("{peer} is up"), |it| matches!(it, Arrival::Up { peer: id, .. } if id == NodeId(peer)).then_some(()))
            .await;
    }

    pub(crate) async fn down(&mut self, peer: u32) {
        self.until(&format!("{peer} is down"), |it| matches!(it, Arrival::Down { peer: id } if id == NodeId(peer)).then_some(()))
            .await;
    }

    pub(crate) async fn refused(&mut self, peer: u32) {
        self.until(&format!("{peer} is gone"), |it| {
            matches!(it, Arrival::Refused { peer: id } if id == NodeId(peer)).then_some(())
        })
        .await;
    }

    /// A complaint with these words.
    pub(crate) async fn complaint(&mut self, words: &str) -> String {
        self.until(words, |it| match it {
            Arrival::Complaint { what, .. } if what.contains(words) => Some(what),
            _ => None,
        })
        .await
    }

    /// The term of the next word, and who said it.
    pub(crate) async fn word(&mut self) -> (u32, u64) {
        self.until("a word", |it| match it {
            Arrival::Word { from, word } => Some((from.0, of_term(&word))),
            _ => None,
        })
        .await
    }

    pub(crate) fn say(&self, to: u32, term: u64) {
        self.board.send_word(NodeId(to), word(term));
    }
}

pub(crate) fn word(term: u64) -> Word {
    let body = Message::Raft(OfficeMessage::Probe { term: Term(term) });
    Word { election: "jobs".into(), config: 1, epoch: 1, dies_with_node: false, body }
}

pub(crate) fn of_term(word: &Word) -> u64 {
    incumbent_protocol::protocol::Wire::term(&word.body).0
}

/// Addresses that nobody else uses while the ports are held.
pub(crate) fn addresses<const N: usize>() -> ([Port; N], [String; N]) {
    let ports = std::array::from_fn(|_| Port::free().expect("a port"));
    let addresses = std::array::from_fn(|at: usize| format!("127.0.0.1:{}", ports[at].number()));
    (ports, addresses)
}
