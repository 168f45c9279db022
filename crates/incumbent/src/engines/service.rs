//! Elections on incumbent's own replicated service: `incumbent://HOST:PORT,HOST:PORT,HOST:PORT/NAMESPACE`.
//!
//! The service knows elections, so there is no recipe here: a claim, a release with its successor, a hand-over are one commit each, and whoever is next in line is seated by the same commit that frees the seat. All
//! requests of a process go over one connection. A candidacy has a session that nobody else has, which its claims and renewals keep alive and nothing else: so a seat whose holder is silent is free when its ttl is over,
//! however much else the process does. What may have happened is found out by the client, which repeats a request under its number until somebody answers.
//!
//! Whoever waits in line is told that it was seated, with its token, and needs not ask: its lease counts from its last claim, which was before. So a hand-over is one commit.
//!
//! A session may wish to end with its connection (`death=connection`): the seat of a process that dies is free at once. That believes the network; see docs/guarantees.md.

mod candidacy;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::stream::BoxStream;
use incumbent_client::client::{Client, Options};
use incumbent_client::dial::Security;
use incumbent_client::failure::{Ended, Failure};
use incumbent_client::message::{Consistency, Objection};
use incumbent_client::watch::Watch;
use incumbent_protocol::protocol::{Term, Token};
use incumbent_store::command::{self, Command};
use incumbent_store::election as kept;
use incumbent_store::event::Change;
use incumbent_store::limits::Limits;
use incumbent_store::query::{Answer, Inquire, Query};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::Reply;
use incumbent_store::watch::{CandidateTopic, Interest, Topic};

use super::locked::locked;
use super::tls;
use super::watching::{Watching, hints_of};
use crate::clock;
use crate::desk::whole_ms;
use crate::engine::{
    Bid, Board, Candidate, Claim, Demand, Engine, Error, Farewell, Grant, Kind, Leader, Note, Past, Renewal, Seat, Wish,
};
use crate::guarantees::{Exclusive, Guarantees, Lateness, Notice, Order, Tokens, WhoseClock};
use crate::identity::Identity;
use crate::name::Name;
use crate::place::Place;
use candidacy::{Candidacy, Idle, InLine, Last};

/// Where nodes answer clients, unless told otherwise.
pub const PORT: u16 = 7272;
/// The service takes no shorter ttl.
const TTL_MIN: Duration = Duration::from_millis(100);
/// Long enough for anybody; a session that outlives its process for longer is no lease.
const TTL_MAX: Duration = Duration::from_secs(24 * 3600);

/// What elections on the service promise.
pub(super) fn promises() -> Guarantees {
    Guarantees {
        engine: "incumbent",
        exclusive: Exclusive::Always,
        tokens: Tokens::Durable,
        token_source: "revision of the grant, with the store's incarnation",
        clock: WhoseClock::Engine,
        notice: Notice::Pushed,
        order: Order::Line,
        seats_max: Limits::STANDARD.seats_max,
        lists_candidates: true,
        keeps_history: true,
        ttl_min: TTL_MIN,
        ttl_max: TTL_MAX,
        late: Lateness::NONE,
        caveats: vec![
            "With death=connection something between client and service that ends connections by itself frees the seat of a leader that still acts, until its next renewal. It is the default on one machine alone.",
            "A minority of the nodes serves nobody: of three, two must be up and reach each other.",
        ],
    }
}

/// What ends a session besides its deadline.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Death {
    /// The end of its connection.
    Connection,
    /// Nothing.
    Lease,
}

/// The service, as one process sees it.
pub struct Service {
    client: Client,
    prefix: String,
    death: Death,
    candidacies: Mutex<BTreeMap<(Name, Identity), Arc<Candidacy>>>,
    idle: Idle,
}

impl Service {
    /// The service at a URL. Connects to one of its nodes.
    pub(super) async fn open(place: &Place) -> Result<Arc<dyn Engine>, Error> {
        let (addresses, options) = reached(place)?;
        let here = addresses.iter().all(|it| is_loopback(it));
        let client = match Client::connect(addresses.clone(), options.clone()).await {
            Ok(client) => client,
            Err(why) => {
                let error = unreachable(&addresses, &why);
                if error.kind() == Kind::Misconfigured {
                    return Err(error);
                }
                // It may come up yet: until then, each call says that nobody answers.
                Client::start(addresses, options)
            }
        };
        let (prefix, death) = (prefix(place), death(place, here)?);
        Ok(Arc::new(Service { client, prefix, death, candidacies: Mutex::default(), idle: Idle::default() }))
    }

    fn key(&self, election: &Name) -> String {
        format!("{}{election}", self.prefix)
    }

    fn candidacy(&self, election: &Name, identity: &Identity) -> Arc<Candidacy> {
        Arc::clone(locked(&self.candidacies).entry((election.clone(), identity.clone())).or_default())
    }

    /// The session of a candidacy; opened if there is none with this ttl, or if it is `gone`.
    async fn session(&self, candidacy: &Candidacy, bid: &Bid, gone: Option<u64>) -> Result<u64, Error> {
        let mut session = candidacy.session.lock().await;
        if let Some((ttl, open)) = session.as_ref()
            && *ttl == bid.ttl
            && Some(open.id()) != gone
        {
            return Ok(open.id());
        }
        if gone.is_none()
            && let Some(idle) = self.idle.take(bid.ttl)
        {
            return Ok(session.insert((bid.ttl, idle)).1.id());
        }
        let wanted = command::OpenSession {
            ttl_ms: whole_ms(bid.ttl),
            owner: bid.identity.as_str().to_owned(),
            ends_with_connection: self.death == Death::Connection,
            ..command::OpenSession::default()
        };
        let opened = self.client.open_lease(wanted).await.map_err(error)?;
        Ok(session.insert((bid.ttl, opened)).1.id())
    }

    async fn submit(&self, command: Command) -> Result<Reply, Error> {
        Ok(self.client.submit(command).await.map_err(error)?.reply)
    }

    async fn ask_for(&self, query: Query) -> Result<Answer, Error> {
        Ok(self.client.ask(query, Consistency::Linearizable).await.map_err(error)?.answer)
    }
}

/// A connection to the service at a URL, for what is not an election.
pub async fn connect(place: &Place) -> Result<Client, Error> {
    let (addresses, options) = reached(place)?;
    Client::connect(addresses.clone(), options).await.map_err(|why| unreachable(&addresses, &why))
}

/// What the names of elections at a URL begin with.
pub fn prefix(place: &Place) -> String {
    let namespace = place.namespace();
    if namespace.is_empty() { String::new() } else { format!("{namespace}/") }
}

/// Where the nodes are, and how they are spoken to.
fn reached(place: &Place) -> Result<(Vec<String>, Options), Error> {
    place.knows_only(&["cluster", "death", "nodes", "work"])?;
    let security = match place.tls()? {
        Some(files) => Security::Tls { config: Arc::new(tls::client_config(&files)?), server_name: files.server_name },
        None => Security::LoopbackOnly,
    };
    let options = Options {
        cluster: place.option("cluster").unwrap_or_default().to_owned(),
        token: place.credentials()?.map(|it| it.password).unwrap_or_default(),
        name: Identity::unique().name().to_owned(),
        learns_members: learns_members(place)?,
        security,
        ..Options::default()
    };
    Ok((place.hosts_or_local(PORT), options))
}

#[async_trait]
impl Engine for Service {
    fn guarantees(&self) -> Guarantees {
        promises()
    }

    fn accepts(&self, election: &Name) -> Result<(), Error> {
        let (len, max) = (self.key(election).len(), Limits::STANDARD.name_len_max);
        if len > max {
            return Err(Error::misconfigured(format!(
                "the name of the election is {len} bytes long with its namespace, and the service takes {max}: choose a shorter one"
            )));
        }
        Ok(())
    }

    async fn claim(&self, election: &Name, bid: &Bid) -> Result<Claim, Error> {
        let candidacy = self.candidacy(election, &bid.identity);
        if let Some(grant) = candidacy.seat(bid) {
            return Ok(Claim::Granted(grant));
        }
        let mut asked = clock::now();
        let mut campaign = command::Campaign {
            session: self.session(&candidacy, bid, None).await?,
            election: self.key(election),
            identity: bid.identity.as_str().to_owned(),
            name: bid.identity.name().to_owned(),
            value: bid.value.clone().into(),
            priority: bid.priority,
            seats: bid.seats,
            tenure_ms_min: 0,
            seen: bid.seen.map_or(0, Token::get),
            only_if_free: false,
        };
        candidacy.asks();
        let mut done = self.client.submit(Command::Campaign(campaign.clone())).await;
        if let Err(Failure::Refused(Refusal::SessionGone(gone))) = done {
            asked = clock::now();
            campaign.session = match self.session(&candidacy, bid, Some(gone)).await {
                Ok(session) => session,
                Err(why) => return candidacy.answered(Err(why)),
            };
            done = self.client.submit(Command::Campaign(campaign)).await;
        }
        let done = candidacy.answered(done.map_err(error))?;
        if let Reply::Granted(granted) = &done.reply {
            candidacy.holds();
            return Ok(Claim::Granted(Grant::of(token_of(granted.token)?)));
        }
        let Reply::InLine(line) = done.reply else { return Err(unexpected("a claim", &done.reply)) };
        candidacy.is_in_line(InLine { bid: bid.clone(), asked, told: done.revision, seated: None });
        let free_in = (line.free_in_ms > 0).then(|| Duration::from_millis(line.free_in_ms));
        Ok(Claim::Occupied { leader: line.leader.as_ref().map(leader).transpose()?, free_in })
    }

    async fn renew(&self, election: &Name, bid: &Bid, token: Token) -> Result<Renewal, Error> {
        let renew = command::Renew { election: self.key(election), token: token.get() };
        let reply = self.submit(Command::Renew(renew)).await?;
        let Reply::Renewed(renewed) = reply else { return Err(unexpected("a renewal", &reply)) };
        if !renewed.in_office {
            self.candidacy(election, &bid.identity).has_lost();
            return Ok(Renewal::Gone);
        }
        Ok(Renewal::Kept { grant: Grant::of(token), wish: renewed.wish.map(wish_of).transpose()? })
    }

    async fn release(&self, election: &Name, bid: &Bid, token: Token, farewell: &Farewell) -> Result<(), Error> {
        let resign = command::Resign {
            election: self.key(election),
            token: token.get(),
            reason: farewell.reason.to_string(),
            to: farewell.to.clone().unwrap_or_default(),
        };
        let candidacy = self.candidacy(election, &bid.identity);
        candidacy.asks();
        candidacy.answered(self.submit(Command::Resign(resign)).await)?;
        candidacy.is_out();
        Ok(())
    }

    async fn look(&self, election: &Name) -> Result<Board, Error> {
        let answer = self.ask_for(Query::Look(self.key(election))).await?;
        let Answer::Board(board) = answer else { return Err(unexpected("a look", &answer)) };
        board_of(board)
    }

    async fn inquire(&self, election: &Name, bid: &Bid) -> Result<Seat, Error> {
        let inquire = Inquire { election: self.key(election), identity: bid.identity.as_str().to_owned() };
        let answer = self.ask_for(Query::Inquire(inquire)).await?;
        let Answer::Seat(seat) = answer else { return Err(unexpected("an inquiry", &answer)) };
        Ok(match (seat.token, seat.vacant) {
            (0, true) => Seat::Vacant,
            (0, false) => Seat::Others(seat.leader.as_ref().map(leader).transpose()?),
            (own, _) => Seat::Own(token_of(own)?),
        })
    }

    async fn withdraw(&self, election: &Name, bid: &Bid) -> Result<(), Error> {
        let candidacy = self.candidacy(election, &bid.identity);
        let last = candidacy.last();
        if last == Last::Holds {
            // It was not released, and is held until its time is over.
            let withdraw = command::Withdraw { election: self.key(election), identity: bid.identity.as_str().to_owned() };
            return self.submit(Command::Withdraw(withdraw)).await.map(drop);
        }
        locked(&self.candidacies).remove(&(election.clone(), bid.identity.clone()));
        let Some((ttl, session)) = candidacy.session.lock().await.take() else { return Ok(()) };
        match last {
            Last::Out => {
                self.idle.keep(ttl, session);
                Ok(())
            }
            // With the session goes its place in line, and a seat that it was given in this very moment.
            Last::InLine | Last::Unsure | Last::Holds => session.end("withdrawn").await.map(drop).map_err(error),
        }
    }

    async fn proclaim(&self, election: &Name, _bid: &Bid, token: Token, value: &str) -> Result<(), Error> {
        let proclaim = command::Proclaim { election: self.key(election), token: token.get(), value: value.to_owned().into() };
        self.submit(Command::Proclaim(proclaim)).await.map(drop)
    }

    async fn ask(&self, election: &Name, wish: &Wish) -> Result<(), Error> {
        let (demand, to) = match &wish.what {
            Demand::Resign => (command::Demand::Resign, String::new()),
            Demand::Evict => (command::Demand::Evict, String::new()),
            Demand::HandOver(to) => (command::Demand::HandOver, to.clone()),
        };
        let wish = command::Wish { token: wish.token.get(), demand: demand.into(), to, by: wish.by.clone() };
        // Whoever wants the seat for itself asks as the rules of the election have it, and needs no right but to stand.
        let is_own = |(stands_in, identity): &(Name, Identity)| stands_in == election && identity.as_str() == wish.to;
        let after_tenure = locked(&self.candidacies).keys().any(is_own);
        let ask = command::Ask {
            election: self.key(election),
            wish: Some(wish),
            after_tenure,
            as_candidate: false,
            only_in_line: true,
        };
        self.submit(Command::Ask(ask)).await.map(drop)
    }

    async fn raise(&self, election: &Name, above: Token) -> Result<(), Error> {
        let raise = command::Raise { election: self.key(election), above: above.get() };
        self.submit(Command::Raise(raise)).await.map(drop)
    }

    async fn annotate(&self, election: &Name, token: Token, text: &str) -> Result<(), Error> {
        let annotate = command::Annotate { election: self.key(election), token: token.get(), text: text.to_owned() };
        self.submit(Command::Annotate(annotate)).await.map(drop)
    }

    fn watch(&self, election: &Name, bid: Option<&Bid>) -> BoxStream<'static, Result<(), Error>> {
        let key = self.key(election);
        let candidacy = bid.map(|bid| self.candidacy(election, &bid.identity));
        // From where the claim has left off: what happened in between is told.
        let told = candidacy.as_ref().and_then(|it| it.told());
        let topic = match bid {
            Some(bid) => Topic::Candidate(CandidateTopic { election: key, identity: bid.identity.as_str().to_owned() }),
            None => Topic::Election(key),
        };
        hints_of(Listener { watch: self.client.watch(Interest::of(topic), told.map_or(0, |it| it + 1)), candidacy })
    }

    async fn close(&self) {
        let candidacies = std::mem::take(&mut *locked(&self.candidacies));
        let sessions = candidacies.into_values().map(|candidacy| async move {
            if let Some((_, session)) = candidacy.session.lock().await.take() {
                // What it was for has ended; if it is not heard, the deadline ends it.
                let _ = session.end("closed").await;
            }
        });
        join_all(sessions).await;
        // What it was for has ended; if it is not heard, the deadline ends it.
        join_all(self.idle.take_all().into_iter().map(|it| async { it.end("closed").await })).await;
        self.client.clone().close().await;
    }
}

/// Hears what concerns an election, or one candidacy.
struct Listener {
    watch: Watch,
    candidacy: Option<Arc<Candidacy>>,
}

/// Places in the line are no hint: whoever is first learns nothing by asking, for the service seats it, and a hint too many delays the one that counts.
impl Watching for Listener {
    async fn change(&mut self) -> Result<(), Error> {
        loop {
            let batch = self.watch.next().await;
            let batch = batch.map_err(|why| Error::refused(format!("the service tells no more: {why:?}")))?;
            if let Some(candidacy) = &self.candidacy {
                batch.events.iter().for_each(|it| candidacy.hear(it));
            }
            if !batch.events.iter().all(|it| matches!(it.change, Some(Change::Joined(_) | Change::First(_)))) {
                return Ok(());
            }
        }
    }
}

fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |it| it.0).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|it| it.is_loopback())
}

/// Whether nodes that are not named in the URL are asked too, when those that are tell of them.
fn learns_members(place: &Place) -> Result<bool, Error> {
    match place.option("nodes") {
        None | Some("all") => Ok(true),
        Some("named") => Ok(false),
        Some(other) => Err(Error::misconfigured(format!("nodes={other}: say nodes=all or nodes=named"))),
    }
}

fn death(place: &Place, here: bool) -> Result<Death, Error> {
    let elsewhere = match place.option("work") {
        None | Some("here") => false,
        Some("elsewhere") => true,
        Some(other) => return Err(Error::misconfigured(format!("work={other}: say work=here or work=elsewhere"))),
    };
    match place.option("death") {
        // Somebody else's work goes on when this process dies.
        _ if elsewhere => Ok(Death::Lease),
        None if here => Ok(Death::Connection),
        None | Some("lease") => Ok(Death::Lease),
        Some("connection") => Ok(Death::Connection),
        Some(other) => Err(Error::misconfigured(format!("death={other}: say death=connection or death=lease"))),
    }
}

fn unreachable(addresses: &[String], why: &Ended) -> Error {
    let addresses = addresses.join(", ");
    let what = format!("no node of the service answers at {addresses}: {why}");
    match why {
        Ended::TurnedAway { objection: Objection::Token, why } => Error::misconfigured(format!(
            "the service at {addresses} does not let us in ({why}): give its token in the URL (:TOKEN@HOST), password-file=FILE, or \
             INCUMBENT_PASSWORD"
        )),
        Ended::TurnedAway { .. } | Ended::Insecure(_) | Ended::Untrusted(_) => Error::misconfigured(what),
        Ended::Unreachable(wrong) | Ended::Closed(Some(wrong)) => {
            tls::tls_complaint(&addresses, wrong).unwrap_or_else(|| Error::refused(what))
        }
        Ended::Handshake
        | Ended::BadFrame(_)
        | Ended::Nonsense(_)
        | Ended::Closed(None)
        | Ended::Silent
        | Ended::Rerouted
        | Ended::Done => Error::refused(what),
    }
}

/// What came of a request to the service, as the library says it.
pub fn error(why: Failure) -> Error {
    match why {
        Failure::Refused(refusal) if refusal.may_have_happened() => Error::unknown(refusal.to_string()),
        Failure::Refused(
            refusal @ (Refusal::Limit { .. } | Refusal::SeatsDiffer(_) | Refusal::TokensExhausted | Refusal::Denied(_)),
        ) => Error::misconfigured(refusal.to_string()),
        Failure::Refused(refusal) => Error::refused(refusal.to_string()),
        Failure::NotNow { why } => Error::refused(why),
        Failure::Unknown { why } => Error::unknown(why),
    }
}

fn unexpected(to: &str, answer: &impl std::fmt::Debug) -> Error {
    Error::unknown(format!("the service has answered something else to {to}: {answer:?}"))
}

fn token_of(number: u64) -> Result<Token, Error> {
    let token = u16::try_from(number >> 48).ok().and_then(|it| Token::new(it, Term(number & Term::MAX.0)));
    token.ok_or_else(|| Error::unknown(format!("the service has answered {number}, which is no token")))
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

fn leader(holder: &kept::Holder) -> Result<Leader, Error> {
    Ok(Leader {
        identity: Identity::stored(holder.identity.clone()),
        token: token_of(holder.token)?,
        value: text(&holder.value),
        priority: holder.priority,
        since: Some(SystemTime::UNIX_EPOCH + Duration::from_millis(holder.since_wall_ms)),
        heeds_wishes: true,
    })
}

fn wish_of(wish: command::Wish) -> Result<Wish, Error> {
    let what = match command::Demand::try_from(wish.demand) {
        Ok(command::Demand::Resign) => Demand::Resign,
        Ok(command::Demand::Evict) => Demand::Evict,
        Ok(command::Demand::HandOver) => Demand::HandOver(wish.to),
        Err(_) => return Err(unexpected("a renewal", &wish)),
    };
    Ok(Wish { token: token_of(wish.token)?, what, by: wish.by })
}

fn board_of(board: kept::Board) -> Result<Board, Error> {
    let past = |it: kept::Past| {
        Ok(Past {
            identity: Identity::stored(it.identity),
            token: token_of(it.token)?,
            since_ms: it.since_wall_ms,
            until_ms: it.until_wall_ms,
            reason: it.reason,
        })
    };
    let mut past = board.past.into_iter().take(Past::KEPT_MAX).map(past).collect::<Result<Vec<_>, Error>>()?;
    // The service tells them by their ends; with several seats the last to end may have begun first.
    past.sort_by_key(|it| std::cmp::Reverse(it.token));
    Ok(Board {
        leaders: board.leaders.iter().map(leader).collect::<Result<_, Error>>()?,
        candidates: board
            .candidates
            .into_iter()
            .map(|it| Candidate { identity: Identity::stored(it.identity), priority: it.priority })
            .collect(),
        past,
        notes: board
            .notes
            .into_iter()
            .take(Past::KEPT_MAX)
            .map(|it| Ok(Note { token: token_of(it.token)?, text: it.text }))
            .collect::<Result<_, Error>>()?,
    })
}
