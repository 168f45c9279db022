//! Elections on ZooKeeper: ephemeral sequential nodes in a line, in one line with those of Curator's `LeaderLatch` or kazoo's `Election`.
//!
//! A candidate is a child of the election's node; the first leads, each other one watches only the one before it. The token is the number of the
//! transaction that made the leader's node (czxid), under the incarnation that the ledger beside the election keeps. One session serves all
//! elections of a process with the same ttl.
//!
//! What it promises beyond the recipe: validity counts from a write that a quorum acknowledged (`session.rs`); exactly one node per candidate,
//! whatever replies are lost (`layout.rs`, CURATOR-45); a lost connection is no answer, an expired session is the end.
//! What it leaves out: SASL, and servers before 3.5.

mod layout;
mod ledger;

mod connect;
mod fault;
mod session;

mod core;
mod hints;
mod line;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::stream::BoxStream;
use incumbent_protocol::protocol::Token;
use zookeeper_client::{Error as Fault, Stat};

use self::connect::{Ensemble, TICK_USUAL};
use self::core::{Access, Amended, Core, Step};
use self::fault::explain;
use self::layout::{Layout, Paths};
use self::ledger::{Ledger, Record, Seated, Sheet};
use self::line::{Position, as_czxid, holder, identity_of};
use self::session::Session;
use crate::engine::{Bid, Board, Candidate, Claim, Engine, Error, Farewell, Renewal, Seat, Wish};
use crate::guarantees::{Exclusive, Guarantees, Lateness, Notice, Order, Tokens, WhoseClock};
use crate::name::Name;
use crate::place::Place;

/// Elections on a ZooKeeper ensemble.
pub struct ZooKeeper {
    core: Arc<Core>,
}

/// A hand-over removes those of ours who stand before the named one; who comes or goes meanwhile makes it try again, not without end.
const RELEASE_TRIES_MAX: usize = 8;

impl ZooKeeper {
    /// The ensemble that the URL names. It is not asked for anything yet.
    pub(super) fn open(place: &Place) -> Result<Arc<dyn Engine>, Error> {
        place.knows_only(&["layout", "acl", "tick-ms"])?;
        let ensemble = Ensemble::of(place)?;
        let access = match (place.option("acl"), ensemble.has_user()) {
            (None, false) | (Some("open"), _) => Access::Open,
            (None | Some("private"), true) => Access::Private,
            (Some("readable"), true) => Access::Readable,
            (Some("private" | "readable"), false) => {
                return Err(Error::misconfigured("acl=private and acl=readable need a user: zookeeper://USER:PASSWORD@HOST/"));
            }
            (Some(other), _) => {
                return Err(Error::misconfigured(format!("acl={other}: say acl=open, acl=private or acl=readable")));
            }
        };
        let core = Core::new(ensemble, Paths::of(place)?, Layout::of(place.option("layout"))?, access);
        Ok(Arc::new(ZooKeeper { core: Arc::new(core) }))
    }

    /// Everybody in the line, with what each says of itself.
    async fn crowd(&self, session: &Session, election: &Name) -> Result<Crowd, Error> {
        let core = &self.core;
        // What others have written is seen only as far as the server has it: a look is for people, and for those who hand over.
        core.catch_up(session, election).await?;
        let (line, Sheet { mut ledger, .. }) = core.sight(session, election).await?;
        // A successor leads before it writes that in the ledger: until then the line alone tells that the one before it has gone.
        ledger.clear_away(&line);
        let nodes = join_all(line.iter().map(|child| {
            let path = core.paths.candidate(election, child);
            async move { session.request(|client| client.get_data(&path)).await }
        }));
        let (nodes, records) = tokio::join!(nodes, self.records(session, election));
        let mut present = Vec::with_capacity(line.len());
        for (child, node) in line.into_iter().zip(nodes) {
            match node {
                Ok((text, stat)) => present.push(Present { child, text, stat }),
                Err(Fault::NoNode) => {}
                Err(why) => return Err(explain(why, "reading the line")),
            }
        }
        Ok(Crowd { present, records: records?, ledger })
    }

    /// What candidates of ours say beyond their identity, by the ids in their names.
    async fn records(&self, session: &Session, election: &Name) -> Result<BTreeMap<String, Record>, Error> {
        let path = self.core.paths.ledger(election);
        let ids = match session.request(|client| client.list_children(&path)).await {
            Ok(ids) => ids,
            Err(Fault::NoNode) => Vec::new(),
            Err(why) => return Err(explain(why, &format!("reading {path}"))),
        };
        let records = join_all(ids.iter().map(|id| {
            let path = self.core.paths.record(election, id);
            async move { session.request(|client| client.get_data(&path)).await }
        }))
        .await;
        Ok(ids.into_iter().zip(records).filter_map(|(id, record)| Some((id, Record::read(&record.ok()?.0)))).collect())
    }

    /// The nodes of ours that stand before the one whom the seat shall go to, behind our own.
    async fn in_the_way(&self, session: &Session, election: &Name, own: &str, to: &str) -> Result<Vec<String>, Error> {
        let crowd = self.crowd(session, election).await?;
        let named = crowd.present.iter().position(|it| {
            let identity = identity_of(&it.child, &it.text);
            it.child != own && (identity.as_str() == to || identity.name() == to)
        });
        // Who is not in the line cannot be waited for: the line goes on.
        let Some(named) = named else { return Ok(Vec::new()) };
        let leading = crowd.ledger.seated.iter().map(|it| it.child.as_str()).collect::<Vec<_>>();
        let before = crowd.present[..named].iter().filter(|it| {
            let ours = self.core.layout.is_ours(election, &it.child, &identity_of(&it.child, &it.text));
            ours && it.child != own && !leading.contains(&it.child.as_str())
        });
        Ok(before.map(|it| it.child.clone()).collect())
    }

    async fn free(
        &self,
        session: &Session,
        election: &Name,
        former: &Seated,
        seats: u32,
        mut known: Option<Sheet>,
        farewell: &Farewell,
    ) -> Result<(), Error> {
        let own = &former.child;
        for _ in 0..RELEASE_TRIES_MAX {
            let others = match &farewell.to {
                Some(to) => self.in_the_way(session, election, own, to).await?,
                None => Vec::new(),
            };
            let leaving = std::iter::once(own).chain(&others);
            let steps: Vec<Step> = leaving.map(|child| Step::Delete(self.core.paths.candidate(election, child))).collect();
            // One that was seated meanwhile is not in the way any more: it leads.
            let mut seated = false;
            let amended = self
                .core
                .amend(session, election, known.take(), &steps, |ledger| {
                    seated = ledger.seated.iter().any(|it| others.contains(&it.child));
                    if seated {
                        return Err(Error::refused("somebody else was seated meanwhile"));
                    }
                    ledger.leave(former.clone(), seats, farewell);
                    Ok(())
                })
                .await;
            match amended {
                Ok(Amended::Done(_) | Amended::Absent(0)) => return Ok(()),
                Ok(Amended::Absent(_)) => {}
                Err(_) if seated => {}
                Err(why) => return Err(why),
            }
        }
        Err(Error::refused("candidates come and go too fast for a hand-over"))
    }
}

/// One in the line.
struct Present {
    child: String,
    text: Vec<u8>,
    stat: Stat,
}

/// Everybody in the line.
struct Crowd {
    present: Vec<Present>,
    records: BTreeMap<String, Record>,
    ledger: Ledger,
}

impl Crowd {
    /// All bids for one election say the same; where none of ours stands there is one seat.
    fn seats(&self) -> usize {
        self.records.values().map(|it| it.seats).max().unwrap_or(1).max(1) as usize
    }

    fn board(self, core: &Core, election: &Name) -> Result<Board, Error> {
        let seats = self.seats();
        let mut board = Board { past: self.ledger.desk.past.clone(), notes: self.ledger.desk.notes.clone(), ..Board::default() };
        for (at, it) in self.present.iter().enumerate() {
            let identity = identity_of(&it.child, &it.text);
            let id = layout::ProtectedId::of(election, &identity);
            let record = self.records.get(id.as_str()).filter(|_| core.layout.is_ours(election, &it.child, &identity));
            if at < seats {
                board.leaders.push(core.leader(election, &it.child, &it.text, &it.stat, &self.ledger, record)?);
            } else {
                board.candidates.push(Candidate { identity, priority: record.map_or(0, |it| it.priority) });
            }
        }
        Ok(board)
    }
}

/// A session is asked for that is an eighth of itself and half a tick longer than the ttl, is two ticks at the least, and ends with a tick.
fn late(tick: Duration) -> Lateness {
    Lateness { percent: 15, span: tick * 3 }
}

/// What elections on ZooKeeper promise, wherever they are.
pub(super) fn promises() -> Guarantees {
    Guarantees {
        engine: "zookeeper",
        exclusive: Exclusive::Always,
        tokens: Tokens::Durable,
        token_source: "the czxid of the leader's node, under the incarnation in the ledger beside the election",
        clock: WhoseClock::Engine,
        notice: Notice::Pushed,
        order: Order::Line,
        seats_max: u32::MAX,
        lists_candidates: true,
        keeps_history: true,
        ttl_min: Duration::from_millis(100),
        ttl_max: Duration::from_secs(86_400),
        late: late(TICK_USUAL),
        caveats: vec![
            "Whoever removes the leader's node by hand lets the next one in at once; the leader notices it a moment later.",
            "Candidates of Curator or kazoo in the same election are as exclusive as those are, and cannot be evicted or skipped by a hand-over.",
            "A ttl is stretched to what the servers grant at least, and one that does not fit into the longest session they grant is refused (usually 4 to 40 s, two to twenty ticks); a crash is noticed up to a tick, half a tick and an eighth of the session later than that.",
            "An ensemble that was restored from a backup gives smaller tokens until a candidate that has seen a greater one claims, or `raise` was called.",
        ],
    }
}

#[async_trait]
impl Engine for ZooKeeper {
    fn guarantees(&self) -> Guarantees {
        Guarantees { late: late(self.core.ensemble.tick()), ..promises() }
    }

    fn accepts(&self, election: &Name) -> Result<(), Error> {
        self.core.paths.accepts(election)
    }

    async fn claim(&self, election: &Name, bid: &Bid) -> Result<Claim, Error> {
        self.accepts(election)?;
        let session = self.core.session(bid.ttl).await?;
        let candidacy = self.core.candidacy(election, bid);
        self.core
            .in_time(&session, async {
                let mut standing = candidacy.standing.lock().await;
                self.core.claim(&session, &candidacy, &mut standing, bid).await
            })
            .await
    }

    async fn renew(&self, election: &Name, bid: &Bid, token: Token) -> Result<Renewal, Error> {
        let candidacy = self.core.candidacy(election, bid);
        let mut standing = candidacy.standing.lock().await;
        let Some(session) = standing.node.as_ref().map(|it| it.session.clone()) else { return Ok(Renewal::Gone) };
        self.core.in_time(&session, self.core.keep(&candidacy, &mut standing, bid, token)).await
    }

    async fn release(&self, election: &Name, bid: &Bid, token: Token, farewell: &Farewell) -> Result<(), Error> {
        let candidacy = self.core.candidacy(election, bid);
        let session = self.core.session(bid.ttl).await?;
        let freed = self
            .core
            .in_time(&session, async {
                let mut standing = candidacy.standing.lock().await;
                if standing.node.is_none() {
                    self.core.find(&session, &candidacy, &mut standing, bid).await?;
                }
                let Some(node) = standing.node.as_ref().filter(|it| it.czxid == as_czxid(token)) else { return Ok(()) };
                let since_ms = standing.seat.as_ref().map_or_else(crate::desk::wall_ms, |it| it.since_ms);
                let known = standing.seat.as_ref().map(|it| it.sheet.clone());
                let had_record = node.has_record();
                let former = Seated { child: node.child.clone(), holder: holder(bid, token, since_ms) };
                self.free(&session, election, &former, bid.seats, known, farewell).await?;
                candidacy.leave(&mut standing);
                if had_record {
                    let record = self.core.paths.record(election, candidacy.id.as_str());
                    self.core.delete(&session, &record).await?;
                }
                Ok(())
            })
            .await;
        if freed.is_err() {
            // Should nobody ask again, it is swept out of the line.
            candidacy.abandon();
        }
        freed
    }

    async fn look(&self, election: &Name) -> Result<Board, Error> {
        let session = self.core.any_session().await?;
        let crowd = self.core.in_time(&session, self.crowd(&session, election)).await?;
        crowd.board(&self.core, election)
    }

    async fn inquire(&self, election: &Name, bid: &Bid) -> Result<Seat, Error> {
        let session = self.core.session(bid.ttl).await?;
        let candidacy = self.core.candidacy(election, bid);
        let own = self
            .core
            .in_time(&session, async {
                let mut standing = candidacy.standing.lock().await;
                if let Some(seat) = &standing.seat
                    && standing.node.as_ref().is_some_and(|it| !it.session.is_over())
                {
                    return Ok(Some(seat.token));
                }
                let known = standing.node.as_ref().is_some_and(|it| Arc::ptr_eq(&it.session, &session));
                if !known || standing.doubtful {
                    self.core.find(&session, &candidacy, &mut standing, bid).await?;
                }
                match self.core.position(&candidacy, &mut standing, bid, None).await? {
                    Position::First { sheet, .. } => {
                        let ledger = sheet.ledger;
                        let czxid = standing.node.as_ref().map(|it| it.czxid);
                        let token = czxid.map(|it| line::token(ledger.desk.incarnation, it)).transpose()?;
                        // One that is too small is not entered; the next claim sees to another.
                        Ok(token.filter(|it| ledger.greatest().max(bid.seen) < Some(*it)))
                    }
                    Position::Lost | Position::Behind(_) => Ok(None),
                }
            })
            .await?;
        if let Some(token) = own {
            return Ok(Seat::Own(token));
        }
        let board = self.look(election).await?;
        let others: Vec<_> = board.leaders.into_iter().filter(|it| it.identity != bid.identity).collect();
        Ok(if others.len() < bid.seats as usize { Seat::Vacant } else { Seat::Others(others.into_iter().next()) })
    }

    async fn withdraw(&self, election: &Name, bid: &Bid) -> Result<(), Error> {
        let candidacy = self.core.candidacy(election, bid);
        // Should this fail, it is swept out of the line.
        candidacy.abandon();
        let mut standing = candidacy.standing.lock().await;
        if standing.node.is_none() && !standing.doubtful {
            return Ok(());
        }
        let session = self.core.session(bid.ttl).await?;
        self.core.in_time(&session, self.core.step_out(&session, &candidacy, &mut standing)).await
    }

    async fn proclaim(&self, election: &Name, bid: &Bid, token: Token, value: &str) -> Result<(), Error> {
        let gone = || Error::refused(format!("token {token} is no longer in office"));
        let candidacy = self.core.candidacy(election, bid);
        let mut standing = candidacy.standing.lock().await;
        let (Some(node), Some(seat)) = (&standing.node, &standing.seat) else { return Err(gone()) };
        if seat.token != token {
            return Err(gone());
        }
        let (session, child, since_ms) = (node.session.clone(), node.child.clone(), seat.since_ms);
        let mut bid = seat.bid.clone();
        value.clone_into(&mut bid.value);
        let amended = self
            .core
            .in_time(&session, async {
                let line = self.core.line(&session, election).await?;
                let own = self.core.paths.candidate(election, &child);
                let newcomer = Seated { child, holder: holder(&bid, token, since_ms) };
                let seat = |ledger: &mut Ledger| {
                    ledger.seat(newcomer.clone(), &line);
                    Ok(())
                };
                self.core.amend(&session, election, None, &[Step::Exists(own)], seat).await
            })
            .await?;
        match amended {
            Amended::Done(now) => {
                if let Some(seat) = &mut standing.seat {
                    seat.sheet = *now;
                    seat.bid = bid;
                    seat.recorded = true;
                }
                Ok(())
            }
            Amended::Absent(_) => Err(gone()),
        }
    }

    async fn ask(&self, election: &Name, wish: &Wish) -> Result<(), Error> {
        let session = self.core.any_session().await?;
        self.core
            .in_time(&session, async {
                let crowd = self.crowd(&session, election).await?;
                let holders = crowd.present.iter().find(|it| it.stat.czxid == as_czxid(wish.token)).map(|it| it.child.clone());
                let leader = crowd.board(&self.core, election)?.leaders.into_iter().find(|it| it.token == wish.token);
                let (Some(child), Some(leader)) = (holders, leader) else {
                    return Err(Error::refused(format!("the leadership with token {} is no longer in office", wish.token)));
                };
                if !leader.heeds_wishes {
                    return Err(Error::refused(format!(
                        "{} is no candidate of incumbent's and reads no wishes: stop it where it runs",
                        leader.identity.as_str()
                    )));
                }
                let steps = [Step::Exists(self.core.paths.candidate(election, &child))];
                let leave = |ledger: &mut Ledger| {
                    ledger.ask(wish);
                    Ok(())
                };
                match self.core.amend(&session, election, None, &steps, leave).await? {
                    Amended::Done(_) => Ok(()),
                    Amended::Absent(_) => {
                        Err(Error::refused(format!("the leadership with token {} is no longer in office", wish.token)))
                    }
                }
            })
            .await
    }

    async fn raise(&self, election: &Name, above: Token) -> Result<(), Error> {
        self.accepts(election)?;
        let session = self.core.any_session().await?;
        let raised = self.core.amend(&session, election, None, &[], |ledger| ledger.desk.raise(above));
        self.core.in_time(&session, raised).await.map(|_| ())
    }

    async fn annotate(&self, election: &Name, token: Token, text: &str) -> Result<(), Error> {
        self.accepts(election)?;
        let session = self.core.any_session().await?;
        let noted = self.core.amend(&session, election, None, &[], |ledger| {
            ledger.desk.annotate(token, text);
            Ok(())
        });
        self.core.in_time(&session, noted).await.map(|_| ())
    }

    fn watch(&self, election: &Name, bid: Option<&Bid>) -> BoxStream<'static, Result<(), Error>> {
        match bid {
            Some(bid) => hints::for_bidder(self.core.clone(), election, bid),
            None => hints::for_all(self.core.clone(), election),
        }
    }

    async fn close(&self) {
        self.core.close().await;
    }
}
