//! Dialling: lines to greater ids, knocks at smaller ones, again and again until they stand; and the evidence that nobody is there.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use incumbent_protocol::chance::Chance;
use incumbent_protocol::protocol::NodeId;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout};

use super::exchange::Exchange;
use super::line::{Connection, carry};
use super::post::Post;
use super::stream::{Expected, Fault, prepare};
use super::{Arrival, Peer};
use crate::packet::{Lane, Passport, Purpose};

/// The first wait after a dial in vain: a process that is dying may still take a connection.
const WAIT_MIN: Duration = Duration::from_millis(1);
/// The longest wait. A node that comes back knocks, so this only counts where the greater id cannot reach the smaller.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// How much shorter the longest wait is after a greeting that was cut off. A node that will not have us at all is dialled that often, which costs both little.
const CUT_OFF_WAITS_SHORTER: u32 = 20;
/// How long a connection and its greeting may take, at least and at most.
const DIAL_MIN: Duration = Duration::from_millis(500);
const DIAL_MAX: Duration = Duration::from_secs(3);

/// The members from now on.
pub(super) fn set_peers(exchange: &Arc<Exchange>, peers: Vec<Peer>) {
    let now = Instant::now();
    let mut board = exchange.board();
    board.posts.retain(|id, post| {
        let stays = peers.iter().any(|peer| peer.id == *id);
        if !stays {
            post.end();
        }
        stays
    });
    for Peer { id, address } in peers.into_iter().filter(|peer| peer.id != exchange.me()) {
        if let Some(post) = board.posts.get_mut(&id) {
            if post.address != address {
                post.address = address;
                post.nudge.notify_one();
            }
            continue;
        }
        let mut post = Post::new(address, now);
        if exchange.me() < id {
            post.dialers.push(exchange.spawn(dial_lane(Arc::clone(exchange), id, Lane::Urgent)));
            post.dialers.push(exchange.spawn(dial_lane(Arc::clone(exchange), id, Lane::Bulk)));
        } else {
            post.dialers.push(exchange.spawn(knock(Arc::clone(exchange), id)));
        }
        board.posts.insert(id, post);
    }
}

/// Keeps one lane to a greater id.
async fn dial_lane(exchange: Arc<Exchange>, peer: NodeId, lane: Lane) {
    let mut wait = Wait::new(&exchange, peer);
    loop {
        if lane == Lane::Bulk {
            // It follows the urgent one, so that a peer that is away is dialled once and not twice.
            while exchange.board().posts.get(&peer).is_some_and(|post| post.passport.is_none()) {
                nudged(&exchange, peer, lane).await;
            }
        }
        match dial(&exchange, peer, Purpose::Lane(lane)).await {
            Ok((connection, passport)) => {
                let began = Instant::now();
                let remote = connection.remote.to_string();
                let fault = carry(&exchange, connection, exchange.number(), passport, lane).await;
                lament(&exchange, peer, &remote, &fault);
                // A line that stood is dialled again at once, for the evidence; one that did not is no reason to dial as fast as we can.
                if began.elapsed() > DIAL_MIN {
                    wait.reset();
                } else {
                    wait.pass(&exchange, peer, lane).await;
                }
            }
            Err((remote, fault)) => {
                if lane == Lane::Urgent {
                    weigh(&exchange, peer, &fault).await;
                }
                lament(&exchange, peer, &remote, &fault);
                wait.after(&fault);
                wait.pass(&exchange, peer, lane).await;
            }
        }
        if exchange.board().is_closing() {
            return;
        }
    }
}

/// Tells a smaller id that we are here, while it has no line to us.
async fn knock(exchange: Arc<Exchange>, peer: NodeId) {
    let mut wait = Wait::new(&exchange, peer);
    loop {
        if exchange.board().posts.get(&peer).is_some_and(|post| post.urgent.connection.is_some()) {
            let began = Instant::now();
            nudged(&exchange, peer, Lane::Urgent).await;
            if began.elapsed() > DIAL_MIN {
                wait.reset();
            }
            continue;
        }
        if let Err((remote, fault)) = dial(&exchange, peer, Purpose::Knock).await {
            weigh(&exchange, peer, &fault).await;
            lament(&exchange, peer, &remote, &fault);
            wait.after(&fault);
        }
        wait.pass(&exchange, peer, Lane::Urgent).await;
    }
}

async fn nudged(exchange: &Exchange, peer: NodeId, lane: Lane) {
    let nudge = exchange.board().posts.get(&peer).map(|post| match lane {
        Lane::Urgent => Arc::clone(&post.nudge),
        Lane::Bulk => Arc::clone(&post.nudge_bulk),
    });
    match nudge {
        Some(nudge) => nudge.notified().await,
        // Not a member any longer: this task is about to be ended.
        None => std::future::pending().await,
    }
}

/// If the peer had hung up, and now nobody listens at the same address: it is gone, and that is told, once.
async fn weigh(exchange: &Exchange, peer: NodeId, fault: &Fault) {
    let Fault::NobodyListens = fault else { return };
    let hung_up = exchange.board().posts.get_mut(&peer).and_then(|post| post.hung_up.take());
    if hung_up.is_some() {
        let _ = exchange.arrivals.send(Arrival::Refused { peer }).await;
    }
}

/// Notes why there is no line, and complains about what will not go away by itself.
fn lament(exchange: &Exchange, peer: NodeId, remote: &str, fault: &Fault) {
    let is_ours = matches!(fault, Fault::Closed);
    if let Some(post) = exchange.board().posts.get_mut(&peer).filter(|it| it.urgent.connection.is_none() && !is_ours) {
        post.trouble = Some(fault.to_string());
    }
    let cause = match fault {
        Fault::Malformed(_) | Fault::Misplaced(_) => "malformed",
        Fault::Insecure(_) => "insecure",
        Fault::Refusal(_) => "refusal",
        Fault::Unwelcome(_) => "unwelcome",
        Fault::Io(_) => "io",
        // The weather; the driver hears of it as Down.
        Fault::Ended | Fault::Reset | Fault::NobodyListens | Fault::TimedOut | Fault::Silent | Fault::Closed => return,
    };
    exchange.complain(remote, cause, format!("node {peer} at {remote}: {fault}"));
}

/// Connects to a peer and greets it. Errors come with the address that they are about.
async fn dial(exchange: &Arc<Exchange>, peer: NodeId, purpose: Purpose) -> Result<(Connection, Passport), (String, Fault)> {
    let limit = (exchange.patience * 2).clamp(DIAL_MIN, DIAL_MAX);
    let (name, hung_up) = match exchange.board().posts.get(&peer) {
        Some(post) => (post.address.clone(), post.hung_up),
        None => return Err((String::new(), Fault::Closed)),
    };
    let resolved = timeout(limit, async { lookup_host(&name).await.map(Iterator::collect::<Vec<_>>) }).await;
    let addresses = match resolved {
        Ok(Ok(addresses)) => addresses,
        Ok(Err(wrong)) => return Err((name, Fault::Io(wrong))),
        Err(_) => return Err((name, Fault::TimedOut)),
    };
    if let Some(post) = exchange.board().posts.get_mut(&peer) {
        post.leads_to = addresses.iter().map(|it| it.ip().to_canonical()).collect();
    }
    let mut last = Fault::Io(std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address"));
    let mut refused_where_it_was = false;
    for address in addresses {
        if let Err(why) = exchange.guard.admits(address) {
            last = Fault::Insecure(why);
            continue;
        }
        let attempt = async {
            let tcp = TcpStream::connect(address).await?;
            prepare(&tcp, exchange.give_up_after());
            let stream = exchange.guard.dialled(tcp, Expected::Member(&exchange.cluster, peer)).await?;
            let mut connection = Connection::new(stream, address);
            let passport = exchange.greet(&mut connection, peer, purpose).await?;
            Ok((connection, passport))
        };
        match timeout(limit, attempt).await {
            Ok(Ok(reached)) => return Ok(reached),
            Ok(Err(fault)) => {
                refused_where_it_was |=
                    matches!(fault, Fault::NobodyListens) && hung_up.is_some_and(|ip| is_one_place(ip, address.ip()));
                last = fault;
            }
            Err(_) => last = Fault::TimedOut,
        }
    }
    // A name may lead to a new address, where nobody listens yet: that says nothing of the process at the old one.
    if matches!(last, Fault::NobodyListens) && !refused_where_it_was && hung_up.is_some() {
        last = Fault::TimedOut;
    }
    Err((name, last))
}

/// Whether two addresses are of one machine, as far as we can tell. Who dials from loopback may do so from another address of it.
fn is_one_place(a: IpAddr, b: IpAddr) -> bool {
    let (a, b) = (a.to_canonical(), b.to_canonical());
    a == b || (a.is_loopback() && b.is_loopback())
}

/// Waits that grow, and end early when there is a reason to dial.
struct Wait {
    next: Duration,
    max: Duration,
    chance: Chance,
}

impl Wait {
    fn new(exchange: &Exchange, peer: NodeId) -> Wait {
        let seed = exchange.nonce() ^ u64::from(peer.0).rotate_left(32);
        Wait { next: WAIT_MIN, max: exchange.patience.clamp(Duration::from_millis(50), WAIT_MAX), chance: Chance::new(seed) }
    }

    fn reset(&mut self) {
        self.next = WAIT_MIN;
    }

    /// Somebody was there and the greeting was cut off: that says nothing against the next one. If it made the waits grow, resets that come again and again (C29) would keep two
    /// healthy nodes apart for far longer than each of them lasts.
    fn after(&mut self, fault: &Fault) {
        if matches!(fault, Fault::Ended | Fault::Reset) {
            self.next = self.next.min(self.max / CUT_OFF_WAITS_SHORTER);
        }
    }

    async fn pass(&mut self, exchange: &Exchange, peer: NodeId, lane: Lane) {
        // Up to a half more, so that nodes that lost each other at the same moment do not come back at the same moment.
        let wait = self.next + self.chance.between(Duration::ZERO, self.next / 2);
        if timeout(wait, nudged(exchange, peer, lane)).await.is_err() {
            self.next = (self.next * 2).min(self.max);
        }
    }
}
