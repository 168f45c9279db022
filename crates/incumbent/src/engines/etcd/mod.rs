//! etcd: a line of keys, the oldest of which leads. In the same election as Go's `concurrency.Election` and `etcdctl elect`.
//!
//! **The recipe.** A candidate has a lease and a key `PREFIX/LEASE` on it, made by a transaction that finds none there. Whoever's key was created at
//! the smallest revision leads, and that revision is the term of its token. Who waits watches the key before its own. All that is asked again and
//! again is asked with linearizable reads.
//!
//! **When a lease is believed in.** etcd counts a lease's ttl in the memory of its leader, and `LeaseKeepAlive` does not go through its log. Before
//! 3.5.13 and 3.4.32 a leader that has been deposed and does not know it yet (its process was paused, its network cut) renews leases that its
//! successor is about to expire. Its holder would believe in a ttl that nobody keeps. So a keep-alive counts only together with a linearizable read
//! that was sent after its answer and bears the same raft term and the same cluster: the term in an answer is that of the last log entry which the
//! answering member has applied, and a leader answers a linearizable read only once it has committed an entry of its own term and heard from a quorum.
//! If a successor existed when the keep-alive was answered, that read comes from it, or from a later one, and bears a greater term. Then the keep-alive
//! is sent again. A new leader begins every lease anew, so what counted before a change of leaders was not too much.
//!
//! **What was learnt from others.** A candidate that waited may find itself first although its lease is gone (etcd#11456, #19597): here nobody is
//! granted anything without its own key, on its own lease, in the same read that shows it to be first, after a keep-alive that counts. A leadership
//! counts from the send of a keep-alive, not from its answer.
//!
//! What it leaves out: keeping a seat for somebody who is not in line, and any order in line but that of arrival; Go knows neither. One who deletes a
//! leader's key or revokes its lease by hand puts a second leader beside it until its next renewal. Ask it to resign instead.

mod candidacy;
mod client;
mod desk;
mod fault;
mod joint;
mod keys;
mod lease;
mod ledger;
mod line;
mod recipe;
mod watch;
mod wire;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::stream::BoxStream;
use incumbent_protocol::protocol::Token;

use self::candidacy::Candidacy;
use self::client::Client;
use self::fault::Fault;
use self::keys::Namespace;
use self::lease::Lease;
use crate::engine::{Bid, Board, Claim, Engine, Error, Farewell, Kind, Renewal, Seat, Wish};
use crate::guarantees::{Exclusive, Guarantees, Lateness, Notice, Order, Tokens, WhoseClock};
use crate::identity::Identity;
use crate::name::Name;
use crate::place::Place;

/// Longer ones are refused by etcd.
const TTL_MAX: Duration = Duration::from_secs(9_000_000_000);

/// So many may lead at once: each is a guard of a hand-over, and those must fit in a transaction with others.
const SEATS_MAX: u32 = 32;
/// A ttl is rounded up to whole seconds, and etcd looks for leases that have run out twice a second.
const LATE: Lateness = Lateness { percent: 0, span: Duration::from_millis(1500) };

/// Whoever does not say by then whether it is there will be asked again by the first call.
const KNOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// What all elections shared is given back within this time, or left to expire.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Elections on etcd.
pub struct Etcd {
    client: Arc<Client>,
    namespace: Namespace,
    leases: Mutex<Vec<Arc<Lease>>>,
    candidacies: Mutex<BTreeMap<(Name, Identity), Arc<Candidacy>>>,
}

impl Etcd {
    /// Connects to the servers in the URL. An error if they will never let us in as things are; not if they cannot be reached now.
    pub(super) async fn open(place: &Place) -> Result<Arc<dyn Engine>, Error> {
        place.knows_only(&[])?;
        let etcd = Etcd {
            client: Arc::new(Client::new(place)?),
            namespace: Namespace::of(place)?,
            leases: Mutex::default(),
            candidacies: Mutex::default(),
        };
        match tokio::time::timeout(KNOCK_TIMEOUT, etcd.client.knock()).await.map(|it| it.map_err(Fault::into_error)) {
            Ok(Err(why)) if why.kind() == Kind::Misconfigured => Err(why),
            Ok(Ok(()) | Err(_)) | Err(_) => Ok(Arc::new(etcd)),
        }
    }
}

/// What elections on etcd promise, wherever they are.
pub(super) fn promises() -> Guarantees {
    Guarantees {
        engine: "etcd",
        exclusive: Exclusive::Always,
        tokens: Tokens::Durable,
        token_source: "the revision at which the leader's key was created, with an incarnation",
        clock: WhoseClock::Engine,
        notice: Notice::Pushed,
        order: Order::Line,
        seats_max: SEATS_MAX,
        lists_candidates: true,
        keeps_history: true,
        ttl_min: Duration::from_secs(1),
        ttl_max: TTL_MAX,
        late: LATE,
        caveats: vec![
            "Whoever deletes the leader's key or revokes its lease by hand puts a second leader beside it until its next renewal: evict it instead.",
            "etcd restored from a backup counts revisions again from there: raise the incarnation, or tokens rise only for candidates that remember greater ones.",
            "A ttl is rounded up to whole seconds, and etcd may grant more: at least one and a half of its election timeout.",
            "A candidate that is not ours (etcdctl elect, Go) reads no wishes, has no history, and its own library decides when it stops.",
            "With several seats nobody but ours may contend: others know of one leader.",
            "A seat is handed over only to one who stands in line, and only past candidates of ours.",
        ],
    }
}

#[async_trait]
impl Engine for Etcd {
    fn guarantees(&self) -> Guarantees {
        promises()
    }

    async fn claim(&self, election: &Name, bid: &Bid) -> Result<Claim, Error> {
        self.take_or_stand(election, bid).await.map_err(Fault::into_error)
    }

    async fn renew(&self, election: &Name, bid: &Bid, token: Token) -> Result<Renewal, Error> {
        self.keep(election, bid, token).await.map_err(Fault::into_error)
    }

    async fn release(&self, election: &Name, bid: &Bid, token: Token, farewell: &Farewell) -> Result<(), Error> {
        self.give_back(election, bid, token, farewell).await.map_err(Fault::into_error)
    }

    async fn look(&self, election: &Name) -> Result<Board, Error> {
        self.whole_board(election).await.map_err(Fault::into_error)
    }

    async fn inquire(&self, election: &Name, bid: &Bid) -> Result<Seat, Error> {
        self.whose(election, bid).await.map_err(Fault::into_error)
    }

    async fn withdraw(&self, election: &Name, bid: &Bid) -> Result<(), Error> {
        self.leave_line(election, bid).await.map_err(Fault::into_error)
    }

    async fn proclaim(&self, election: &Name, bid: &Bid, token: Token, value: &str) -> Result<(), Error> {
        self.publish(election, bid, token, value).await.map_err(Fault::into_error)
    }

    async fn ask(&self, election: &Name, wish: &Wish) -> Result<(), Error> {
        self.leave_wish(election, wish).await.map_err(Fault::into_error)
    }

    async fn raise(&self, election: &Name, above: Token) -> Result<(), Error> {
        self.raise_incarnation(election, above).await.map_err(Fault::into_error)
    }

    async fn annotate(&self, election: &Name, token: Token, text: &str) -> Result<(), Error> {
        self.put_on_record(election, token, text).await.map_err(Fault::into_error)
    }

    fn watch(&self, election: &Name, bid: Option<&Bid>) -> BoxStream<'static, Result<(), Error>> {
        match bid {
            Some(bid) => watch::of_bidder(self.client.clone(), self.candidacy(election, &bid.identity)),
            None => watch::of_observer(self.client.clone(), self.namespace.keys(election)),
        }
    }

    async fn close(&self) {
        let leases = std::mem::take(&mut *self.leases.lock().unwrap_or_else(PoisonError::into_inner));
        let revoked = join_all(leases.iter().filter(|it| !it.is_gone()).map(|it| self.client.revoke(it.id)));
        if tokio::time::timeout(CLOSE_TIMEOUT, revoked).await.is_err() {
            tracing::debug!("etcd did not take the leases back in time: they expire by themselves");
        }
    }
}
