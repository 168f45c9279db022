//! Elections among the nodes themselves, with no service at all: every process that takes part is a member of a group, and the group elects one of them.
//!
//! ```text
//!   peers://HOST:PORT,HOST:PORT,HOST:PORT/GROUP/ELECTION?me=2
//! ```
//!
//! The hosts are the members, in the same order everywhere; `me` says which of them this process is. Without `me` the URL is an operator's: it can look, ask and note, but
//! not contend. What a node is, and how it elects, is `incumbent-peer`'s business; this makes an [`Engine`] of it: its candidates, the minutes that nodes keep of an
//! election (`minutes.rs`), and the questions that they answer (`question.rs`).
//!
//! A node in office gives the seat to one of its own candidates, with a lease that ends when a majority has not been heard from for `patience`, counted from the send.

mod hall;
mod minutes;
mod question;
mod serve;
mod shelf;
mod url;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use incumbent_peer::node::{Declined, Mandate, Node, Standing};
use incumbent_peer::packet::Gossip;
use incumbent_peer::switchboard::{Guest, Security};
use incumbent_protocol::protocol::{NodeId, Token};
use incumbent_protocol::settings::Pace;
use tokio::sync::Notify as Bell;

use self::hall::{Claimed, Hall, Heir};
use self::minutes::Minutes;
use self::question::{Answer, Question, Seen, read, write};
use self::shelf::Shelf;
use self::url::Wanted;
use crate::clock;
use crate::desk::incarnation_of;
use crate::engine::{Bid, Board, Claim, Engine, Error, Farewell, Grant, Renewal, Seat, Wish};
use crate::engines::local::hints_of_place;
use crate::guarantees::{Exclusive, Guarantees, Lateness, Notice, Order, Tokens, WhoseClock};
use crate::name::Name;
use crate::place::Place;

/// What the leader publishes, and notes, go to every node with every change.
const TEXT_LEN_MAX: usize = 4096;

/// A claim waits for an election that is under way, but less than a request may take: a tenth of the ttl.
const CLAIM_WAITS: u32 = 12;
/// The first claim of a candidate, which begins the election, waits longer: who has no time for that gives it up, and asks.
const FIRST_CLAIM_WAITS: u32 = 2;

/// A node of a group, as an engine.
pub struct Peers {
    inner: Arc<Inner>,
}

struct Inner {
    node: Node,
    /// The other members.
    others: Mutex<Vec<NodeId>>,
    promises: Guarantees,
    patience: Duration,
    /// How long an answer may take.
    reply: Duration,
    halls: Mutex<BTreeMap<Arc<str>, Hall>>,
    shelf: Shelf,
    /// Rung when a line has changed, and the other nodes do not know yet.
    untold: Bell,
    /// Why the node has ended.
    broken: Mutex<Option<String>>,
}

impl Peers {
    /// Starts the node that the URL describes, or gets in touch with one for an operator.
    pub(super) async fn open(place: &Place) -> Result<Arc<dyn Engine>, Error> {
        match url::read(place)? {
            Wanted::Member(member) => {
                let (shelf, kept) = Shelf::open(&member.directory)?;
                let plan = *member;
                let promises = promises_of(&plan);
                let (patience, reply) = (plan.pace.patience_min, plan.pace.reply);
                let others: Vec<NodeId> = plan.peers.iter().map(|it| it.id).collect();
                let (node, notices) = Node::start(plan).await.map_err(|why| Error::misconfigured(why.to_string()))?;
                let halls = kept.into_iter().map(|(name, minutes)| (name, Hall::with(minutes))).collect();
                let inner = Arc::new(Inner {
                    node,
                    others: Mutex::new(others),
                    promises,
                    patience,
                    reply,
                    halls: Mutex::new(halls),
                    shelf,
                    untold: Bell::new(),
                    broken: Mutex::new(None),
                });
                tokio::spawn(serve::serve(Arc::downgrade(&inner), notices));
                Ok(Arc::new(Peers { inner }))
            }
            Wanted::Guest { addresses, cluster, security } => {
                let operator =
                    Operator { addresses, cluster, security, guest: tokio::sync::Mutex::new(None), promises: promises() };
                // One who cannot be reached, or does not let us in, says so now.
                operator
                    .connect()
                    .await
                    .map(|guest| *operator.guest.try_lock().expect("nobody else knows it yet") = Some(guest))?;
                Ok(Arc::new(operator))
            }
        }
    }
}

/// What a group promises that elects by Raft, as it does unless told otherwise.
pub(super) fn promises() -> Guarantees {
    Guarantees {
        engine: "peers",
        exclusive: Exclusive::Always,
        tokens: Tokens::Durable,
        token_source: "the term of the election, on the disks of a majority",
        clock: WhoseClock::Engine,
        notice: Notice::Pushed,
        order: Order::Race,
        seats_max: 1,
        lists_candidates: true,
        keeps_history: true,
        ttl_min: Duration::from_millis(100),
        ttl_max: url::PATIENCE_USUAL,
        late: late(&Pace::of(url::PATIENCE_USUAL).expect("a good pace")),
        caveats: vec![
            "With death=refused, whatever forges both the reset and the refusal of a connection (some firewalls do) makes two leaders for up to a ttl; it is the default on loopback alone.",
            "A leader that is not heard of is followed after its lease of `patience` has run out, and not sooner.",
            "History and notes are told from node to node: what the last leader alone has heard is lost with its disk.",
        ],
    }
}

/// The others wait for as long as a leader may be silent, whatever its ttl.
fn late(pace: &Pace) -> Lateness {
    Lateness { percent: 0, span: pace.patience_max }
}

/// What this group promises.
fn promises_of(plan: &incumbent_peer::node::Plan) -> Guarantees {
    use incumbent_protocol::settings::Guard;
    let mut promises = Guarantees { ttl_max: plan.pace.patience_min, late: late(&plan.pace), ..promises() };
    match plan.guard {
        Guard::Off => {
            promises.exclusive = Exclusive::UnlessTheNetworkSplits;
            promises.caveats.insert(
                0,
                "Without a quorum guard a network that splits has a leader in each part, and a leader that is cut off does not know it: only their tokens tell them apart.",
            );
        }
        Guard::Majority | Guard::Quorum(_) => {}
    }
    promises
}

impl Inner {
    fn halls(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Hall>> {
        self.halls.lock().expect("nobody panics with it")
    }

    fn others(&self) -> Vec<NodeId> {
        self.others.lock().expect("nobody panics with it").clone()
    }

    fn in_hall<T>(&self, election: &Arc<str>, act: impl FnOnce(&mut Hall) -> T) -> T {
        act(self.halls().entry(Arc::clone(election)).or_default())
    }

    fn trouble(&self, why: Declined) -> Error {
        match why {
            Declined::TooManyElections => Error::misconfigured(why.to_string()),
            Declined::Ended => {
                let broken = self.broken.lock().expect("nobody panics with it").clone();
                // Asking again does not help: somebody must look after the machine, and whoever counts on this node must know it.
                broken.map_or_else(|| Error::refused(why.to_string()), Error::misconfigured)
            }
        }
    }

    async fn standing(&self, election: &Arc<str>) -> Result<Standing, Error> {
        self.node.look(Arc::clone(election)).await.map_err(|why| self.trouble(why))
    }

    async fn claim(&self, election: &Arc<str>, bid: &Bid) -> Result<Claim, Error> {
        let waits = if self.in_hall(election, |hall| hall.knows(&bid.identity)) { CLAIM_WAITS } else { FIRST_CLAIM_WAITS };
        let give_up = clock::now() + bid.ttl / waits;
        // In line before the node stands: an office that nobody here seems to want is given away as soon as it is won.
        self.in_hall(election, |hall| hall.stand_in_line(bid, clock::now()));
        loop {
            let mut changes = self.in_hall(election, |hall| hall.changes());
            if !self.in_hall(election, |hall| std::mem::replace(&mut hall.stands, true)) {
                self.node.stand(Arc::clone(election)).await.map_err(|why| self.trouble(why))?;
            }
            let standing = self.standing(election).await?;
            let before = self.in_hall(election, |hall| hall.own_line());
            let claimed = self.in_hall(election, |hall| hall.claim(bid, &standing, clock::now()));
            if self.in_hall(election, |hall| hall.own_line()) != before {
                self.untold.notify_one();
            }
            match claimed {
                Claimed::Seated { mandate, new } => {
                    if new {
                        self.keep(election);
                    }
                    return Ok(Claim::Granted(self.grant(bid, &mandate)));
                }
                Claimed::Occupied(leader) => return Ok(Claim::Occupied { leader, free_in: None }),
                Claimed::TooSmall(epoch) => {
                    self.raise(election, epoch).await?;
                    // The office comes back with a greater token.
                    self.node.hand_over(Arc::clone(election), self.node.me());
                }
                Claimed::Undecided => {}
            }
            let left = give_up - clock::now();
            if left.is_zero() || tokio::time::timeout(left, changes.changed()).await.is_err() {
                return Ok(Claim::Occupied { leader: None, free_in: None });
            }
        }
    }

    fn grant(&self, bid: &Bid, mandate: &Mandate) -> Grant {
        // Without a guard nothing bounds a leadership but the candidate's own ttl, which counts from its call.
        Grant { token: mandate.token, ttl: Some(bid.ttl.min(self.patience)), counted_from: mandate.answered, noted: false }
    }

    /// The holder has left, and its work has ended.
    async fn release(&self, election: &Arc<str>, token: Token, farewell: &Farewell) {
        let Some(heir) = self.in_hall(election, |hall| hall.leave(token, farewell, clock::now())) else { return };
        let minutes = self.in_hall(election, |hall| hall.minutes.clone());
        self.shelf.keep_soon(election, minutes.clone());
        let telling = tokio::time::timeout(self.reply, self.tell_others(election, minutes, false));
        if farewell.to.is_some() {
            // For whom the seat is kept must be known before anybody is elected, but nobody waits long for that.
            let _ = telling.await;
            self.pass_office(election, heir).await;
        } else {
            // Why it ended may be known a moment later: whoever knows more is believed.
            let _ = tokio::join!(self.pass_office(election, heir), telling);
        }
    }

    /// Gives the office to somebody who wants it, and waits until it has been taken: this process may end as soon as it has released, but not before the heir has heard of it.
    async fn pass_office(&self, election: &Arc<str>, heir: Heir) {
        let mut changes = self.in_hall(election, |hall| hall.changes());
        self.give_office(election, heir);
        if let Heir::There(_) = heir {
            let followed = async {
                while self.standing(election).await.is_ok_and(|it| it.leader.is_none_or(|it| it == self.node.me())) {
                    if changes.changed().await.is_err() {
                        return;
                    }
                }
            };
            let _ = tokio::time::timeout(self.reply * 2, followed).await;
        }
    }

    /// Gives the office to somebody who wants it.
    fn give_office(&self, election: &Arc<str>, heir: Heir) {
        match heir {
            Heir::Here => self.node.hand_over(Arc::clone(election), self.node.me()),
            Heir::There(node) => self.node.hand_over(Arc::clone(election), node),
            Heir::Nobody => {}
        }
        self.rest_if_unwanted(election);
    }

    /// Leaves the office to others when nobody here wants it.
    fn rest_if_unwanted(&self, election: &Arc<str>) {
        let rests = self.in_hall(election, |hall| {
            let rests = hall.stands && !hall.is_wanted(clock::now());
            hall.stands &= !rests;
            rests
        });
        if rests {
            self.node.abstain(Arc::clone(election));
        }
        self.untold.notify_one();
    }

    /// Keeps what is known of this election on the disks of all nodes. How many have it, this one included.
    async fn replicate(&self, election: &Arc<str>) -> usize {
        let minutes = self.in_hall(election, |hall| hall.minutes.clone());
        let (own, theirs) = tokio::join!(self.shelf.keep(election, &minutes), self.tell_others(election, minutes.clone(), true));
        usize::from(own.is_ok()) + theirs
    }

    /// Tells the others what is known of this election. How many have taken it in, or have it on the disk if it must be safe.
    async fn tell_others(&self, election: &Arc<str>, minutes: Minutes, safely: bool) -> usize {
        self.ask_others(&Question::Hear { election: election.to_string(), minutes, safely }).await
    }

    /// Asks all others the same. How many have done what was asked.
    async fn ask_others(&self, question: &Question) -> usize {
        let body = write(question);
        let asked = self.others().into_iter().map(|to| {
            let asked = self.node.ask(to, body.clone());
            async move { read::<Answer>(&asked.await.ok()?).ok()?.done().ok() }
        });
        join_all(asked).await.into_iter().flatten().count()
    }

    /// The same, without anybody waiting for it.
    fn keep(&self, election: &Arc<str>) {
        let minutes = self.in_hall(election, |hall| hall.minutes.clone());
        self.shelf.keep_soon(election, minutes.clone());
        let body = write(&question::Gossip::Minutes(minutes));
        for to in self.others() {
            self.gossip(election, to, body.clone());
        }
    }

    fn gossip(&self, election: &Arc<str>, to: NodeId, body: Vec<u8>) {
        self.node.switchboard().send_gossip(to, Gossip { election: election.to_string(), body });
    }

    /// Raises the epoch on a majority of nodes, so that whoever is elected next knows of it.
    async fn raise(&self, election: &Arc<str>, epoch: u16) -> Result<(), Error> {
        if epoch > Token::INCARNATION_MAX {
            return Err(Error::misconfigured(format!("incarnation {epoch} is too great for a token: use another election")));
        }
        let raised = Question::Raise { election: election.to_string(), epoch };
        let own = self.node.raise(Arc::clone(election), epoch).map(|it| it.map_err(|why| self.trouble(why)));
        let (own, theirs) = tokio::join!(own, self.ask_others(&raised));
        own?;
        self.enough(1 + theirs, "the new incarnation")
    }

    fn enough(&self, nodes: usize, what: &str) -> Result<(), Error> {
        let all = self.others().len() + 1;
        let needed = all / 2 + 1;
        if nodes >= needed {
            return Ok(());
        }
        Err(Error::unknown(format!(
            "{nodes} of {all} nodes have {what}, and {needed} are needed: start the others and try again"
        )))
    }

    async fn look(&self, election: &Arc<str>) -> Result<Answer, Error> {
        let seen = match self.leader(election).await? {
            Some(me) if me == self.node.me() => return Ok(self.own_board(election, true)),
            Some(leader) => self.look_at(leader, election).await,
            None => return Ok(self.own_board(election, false)),
        };
        // It is followed, but does not answer: what it told last is the best there is.
        Ok(seen.unwrap_or_else(|| self.own_board(election, true)))
    }

    /// The node in office, itself perhaps. One that has just been elected may not have been heard of here: then the others are asked.
    async fn leader(&self, election: &Arc<str>) -> Result<Option<NodeId>, Error> {
        let standing = self.standing(election).await?;
        if standing.leader.is_some() {
            return Ok(standing.leader);
        }
        let others = self.others();
        let asked = others.iter().map(|to| async {
            let seen = tokio::time::timeout(self.patience / 4, self.look_at(*to, election)).await.ok()??;
            matches!(seen, Answer::Board(ref seen) if seen.leader.is_some()).then_some(*to)
        });
        Ok(join_all(asked).await.into_iter().flatten().next())
    }

    /// The election as that node sees it, if it answers.
    async fn look_at(&self, node: NodeId, election: &Arc<str>) -> Option<Answer> {
        let asked = self.node.ask(node, write(&Question::Look { election: election.to_string() }));
        let answer = tokio::time::timeout(self.patience, asked).await.ok()?.ok()?;
        read(&answer).ok()
    }

    /// What this node knows.
    fn own_board(&self, election: &Arc<str>, in_office: bool) -> Answer {
        // One that was never heard of is not remembered for being asked about.
        let halls = self.halls();
        let empty = Hall::default();
        let hall = halls.get(election).unwrap_or(&empty);
        Answer::Board(Box::new(Seen {
            leader: hall.minutes.sitting().filter(|_| in_office).cloned(),
            candidates: hall.all_candidates(),
            minutes: hall.minutes.clone(),
        }))
    }

    async fn ask(&self, election: &Arc<str>, wish: &Wish) -> Result<(), Error> {
        match self.leader(election).await? {
            Some(me) if me == self.node.me() => self.in_hall(election, |hall| hall.ask(wish)),
            Some(leader) => {
                let body = write(&Question::Ask { election: election.to_string(), wish: wish.clone() });
                let answer = self.node.ask(leader, body).await.map_err(|why| Error::unknown(why.to_string()))?;
                read::<Answer>(&answer)?.done()
            }
            None => Err(Error::refused("nobody is known to lead this election")),
        }
    }

    async fn annotate(&self, election: &Arc<str>, token: Token, text: &str) -> Result<(), Error> {
        fits(text, "a note")?;
        self.in_hall(election, |hall| {
            hall.minutes.annotate(token, text);
            hall.changed();
        });
        let nodes = self.replicate(election).await;
        self.enough(nodes, "the note")
    }
}

fn fits(text: &str, what: &str) -> Result<(), Error> {
    if text.len() <= TEXT_LEN_MAX {
        return Ok(());
    }
    Err(Error::misconfigured(format!("{what} has {} bytes: at most {TEXT_LEN_MAX} can be told to all nodes", text.len())))
}

fn key(election: &Name) -> Arc<str> {
    Arc::from(election.as_str())
}

#[async_trait]
impl Engine for Peers {
    fn guarantees(&self) -> Guarantees {
        self.inner.promises.clone()
    }

    async fn claim(&self, election: &Name, bid: &Bid) -> Result<Claim, Error> {
        fits(&bid.value, "what the leader publishes")?;
        self.inner.claim(&key(election), bid).await
    }

    async fn renew(&self, election: &Name, bid: &Bid, token: Token) -> Result<Renewal, Error> {
        let election = key(election);
        let standing = self.inner.standing(&election).await?;
        let renewed = self.inner.in_hall(&election, |hall| hall.renew(bid, token, &standing, clock::now()));
        Ok(match renewed {
            Some((mandate, wish)) => Renewal::Kept { grant: self.inner.grant(bid, &mandate), wish },
            None => Renewal::Gone,
        })
    }

    async fn release(&self, election: &Name, _bid: &Bid, token: Token, farewell: &Farewell) -> Result<(), Error> {
        self.inner.release(&key(election), token, farewell).await;
        Ok(())
    }

    async fn look(&self, election: &Name) -> Result<Board, Error> {
        self.inner.look(&key(election)).await?.board()
    }

    async fn inquire(&self, election: &Name, bid: &Bid) -> Result<Seat, Error> {
        let election = key(election);
        let standing = self.inner.standing(&election).await?;
        Ok(self.inner.in_hall(&election, |hall| hall.whose(bid, &standing)))
    }

    async fn withdraw(&self, election: &Name, bid: &Bid) -> Result<(), Error> {
        let election = key(election);
        self.inner.in_hall(&election, |hall| hall.withdraw(&bid.identity, clock::now()));
        self.inner.rest_if_unwanted(&election);
        Ok(())
    }

    async fn proclaim(&self, election: &Name, _bid: &Bid, token: Token, value: &str) -> Result<(), Error> {
        fits(value, "what the leader publishes")?;
        let election = key(election);
        self.inner.in_hall(&election, |hall| hall.publish(token, value))?;
        self.inner.keep(&election);
        Ok(())
    }

    async fn ask(&self, election: &Name, wish: &Wish) -> Result<(), Error> {
        self.inner.ask(&key(election), wish).await
    }

    async fn raise(&self, election: &Name, above: Token) -> Result<(), Error> {
        self.inner.raise(&key(election), incarnation_of(above) + 1).await
    }

    async fn annotate(&self, election: &Name, token: Token, text: &str) -> Result<(), Error> {
        self.inner.annotate(&key(election), token, text).await
    }

    fn watch(&self, election: &Name, bid: Option<&Bid>) -> BoxStream<'static, Result<(), Error>> {
        let changes = self.inner.in_hall(&key(election), |hall| match bid {
            Some(bid) => hall.wake_of(bid, clock::now()),
            None => hall.changes(),
        });
        hints_of_place(changes)
    }

    async fn report(&self) -> Option<serde_json::Value> {
        self.inner.node.report().await.ok().map(|it| serve::in_json(&it))
    }

    async fn close(&self) {
        self.inner.shelf.keep_due().await;
        self.inner.node.close().await;
    }
}

/// A group as an operator's command sees it: through whichever node answers.
struct Operator {
    addresses: Vec<String>,
    cluster: String,
    security: Security,
    /// Made anew when it has failed.
    guest: tokio::sync::Mutex<Option<Guest>>,
    promises: Guarantees,
}

impl Operator {
    async fn connected(addresses: Vec<String>, cluster: String, security: Security) -> Result<Operator, Error> {
        let operator = Operator { addresses, cluster, security, guest: tokio::sync::Mutex::new(None), promises: promises() };
        // Who cannot be reached, or does not let us in, says so now.
        let guest = operator.connect().await?;
        *operator.guest.lock().await = Some(guest);
        Ok(operator)
    }

    async fn put(&self, question: &Question) -> Result<Answer, Error> {
        let mut place = self.guest.lock().await;
        let mut guest = match place.take() {
            Some(guest) => guest,
            None => self.connect().await?,
        };
        let answer = guest.ask(write(question)).await.map_err(|why| Error::unknown(why.to_string()))?;
        *place = Some(guest);
        read(&answer)
    }

    async fn connect(&self) -> Result<Guest, Error> {
        Guest::connect(&self.addresses, &self.cluster, &self.security).await.map_err(|why| Error::refused(why.to_string()))
    }

    fn no_member(&self) -> Error {
        Error::misconfigured("this URL names no member of the group: add me=N, its place among the hosts, to contend")
    }
}

/// An operator's command that follows an election asks this often; nobody tells it of changes.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[async_trait]
impl Engine for Operator {
    fn guarantees(&self) -> Guarantees {
        self.promises.clone()
    }

    async fn claim(&self, _election: &Name, _bid: &Bid) -> Result<Claim, Error> {
        Err(self.no_member())
    }

    async fn renew(&self, _election: &Name, _bid: &Bid, _token: Token) -> Result<Renewal, Error> {
        Err(self.no_member())
    }

    async fn release(&self, _election: &Name, _bid: &Bid, _token: Token, _farewell: &Farewell) -> Result<(), Error> {
        Err(self.no_member())
    }

    async fn look(&self, election: &Name) -> Result<Board, Error> {
        self.put(&Question::Look { election: election.to_string() }).await?.board()
    }

    async fn proclaim(&self, _election: &Name, _bid: &Bid, _token: Token, _value: &str) -> Result<(), Error> {
        Err(self.no_member())
    }

    async fn ask(&self, election: &Name, wish: &Wish) -> Result<(), Error> {
        self.put(&Question::Ask { election: election.to_string(), wish: wish.clone() }).await?.done()
    }

    async fn raise(&self, election: &Name, above: Token) -> Result<(), Error> {
        self.put(&Question::Raise { election: election.to_string(), epoch: incarnation_of(above) + 1 }).await?.done()
    }

    async fn annotate(&self, election: &Name, token: Token, text: &str) -> Result<(), Error> {
        self.put(&Question::Note { election: election.to_string(), token, text: text.to_owned() }).await?.done()
    }

    fn watch(&self, _election: &Name, _bid: Option<&Bid>) -> BoxStream<'static, Result<(), Error>> {
        stream::unfold((), |()| async {
            tokio::time::sleep(LOOK_EVERY).await;
            Some((Ok(()), ()))
        })
        .boxed()
    }
}

/// A group, for those who look after it: its members, and how one of its nodes is.
pub struct Group {
    operator: Operator,
}

impl Group {
    /// The group at this URL, through the first of its hosts that answers.
    pub async fn at(place: &Place) -> Result<Group, Error> {
        let (addresses, cluster, security) = url::guest(place)?;
        Ok(Group { operator: Operator::connected(addresses, cluster, security).await? })
    }

    /// How the node that answers is: its members, its lines to them, its disk, its elections. As JSON, because it is for people and their tools.
    pub async fn report(&self) -> Result<serde_json::Value, Error> {
        match self.operator.put(&Question::Report).await? {
            Answer::Report(report) => Ok(report),
            other @ (Answer::Board(_) | Answer::Done | Answer::Refused(_) | Answer::Unknown(_) | Answer::Misconfigured(_)) => {
                Err(other.trouble())
            }
        }
    }

    /// Takes a node in that was never a member. Start it with `join=on`, before or after.
    pub async fn add(&self, id: u32, address: &str) -> Result<(), Error> {
        self.operator.put(&Question::Change { add: Some((id, address.to_owned())), remove: None }).await?.done()
    }

    /// Leaves a member out for good: its id is not used again.
    pub async fn remove(&self, id: u32) -> Result<(), Error> {
        self.operator.put(&Question::Change { add: None, remove: Some(id) }).await?.done()
    }
}
