//! Standing in line and taking the seat.
//!
//! The first in the line (or one of the first [`Bid::seats`]) leads. Sequences only rise, and a session that has seen its own node created has seen
//! all nodes before it: so whoever once found itself first stays first for as long as its node exists, however stale the server that said so.
//! That the node exists, and the session with it, takes a proof from a quorum; see [`super::session`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use incumbent_protocol::protocol::{Term, Token};
use zookeeper_client::{CreateMode, Error as Fault, MultiReadResult, MultiWriteError, MultiWriteResult, Stat};

use super::core::{Amended, Candidacy, Core, Flag, Node, Seat, Stage, Standing, Step};
use super::fault::{ends_session, explain};
use super::layout::{ProtectedId, in_order};
use super::ledger::{Ledger, Record, Seated, Sheet};
use super::session::Session;
use crate::clock;
use crate::desk::{Holder, wall_ms, whole_ms};
use crate::engine::{Bid, Claim, Error, Grant, Leader, Renewal};
use crate::identity::Identity;
use crate::name::Name;
use incumbent_protocol::time::Instant;

/// A node that is gone when it has just been made is made again, but not without end.
const ENQUEUE_TRIES_MAX: usize = 4;

/// Where a candidate stands.
pub(super) enum Position {
    /// Its node is gone.
    Lost,
    /// Others are before it.
    Behind(Option<Leader>),
    /// A seat is its own, once it is proven that it lives.
    First { line: Vec<String>, sheet: Box<Sheet> },
}

/// The line and the ledger, as they were read together.
pub(super) type Sight = (Vec<String>, Sheet);

impl Core {
    pub(super) async fn claim(
        &self,
        session: &Arc<Session>,
        candidacy: &Candidacy,
        standing: &mut Standing,
        bid: &Bid,
    ) -> Result<Claim, Error> {
        if let Some(token) = standing.seat.as_ref().map(|it| it.token) {
            match self.keep(candidacy, standing, bid, token).await? {
                Renewal::Kept { grant, .. } => return Ok(Claim::Granted(grant)),
                Renewal::Gone => {}
            }
        }
        for _ in 0..ENQUEUE_TRIES_MAX {
            let (made, sight) = self.enqueue(session, candidacy, standing, bid).await?.unzip();
            match self.position(candidacy, standing, bid, sight.flatten()).await? {
                Position::Lost => candidacy.leave(standing),
                Position::Behind(leader) => return Ok(Claim::Occupied { leader, free_in: None }),
                Position::First { line, sheet } => {
                    if let Some(grant) = self.take(candidacy, standing, bid, made, &line, *sheet).await? {
                        return Ok(Claim::Granted(grant));
                    }
                }
            }
        }
        Err(Error::refused("the own node vanishes as soon as it is made: somebody removes it"))
    }

    /// Puts a node into the line unless there is one. If it did, it says when that was sent, and what it saw.
    async fn enqueue(
        &self,
        session: &Arc<Session>,
        candidacy: &Candidacy,
        standing: &mut Standing,
        bid: &Bid,
    ) -> Result<Option<(Instant, Option<Sight>)>, Error> {
        match &standing.node {
            Some(node) if Arc::ptr_eq(&node.session, session) => return Ok(None),
            // Of a session that has ended; the ensemble may not have noticed yet.
            Some(_) => {
                candidacy.leave(standing);
                standing.doubtful = true;
            }
            None => {}
        }
        if standing.doubtful {
            self.find(session, candidacy, standing, bid).await?;
            if standing.node.is_some() {
                return Ok(None);
            }
        }
        let election = self.paths.election(&candidacy.election);
        loop {
            // Whatever happens from here on, a node may be there: also if this call is dropped.
            standing.doubtful = true;
            let sent = clock::now();
            // Requests of one session are carried out in order, so the line and the ledger are looked at in the same breath.
            let (created, sight) = tokio::join!(self.create(session, candidacy, bid), self.sight(session, &candidacy.election));
            match created {
                Ok((child, stat)) => {
                    let czxid =
                        if stat.is_invalid() { self.stat(session, &candidacy.election, &child).await?.czxid } else { stat.czxid };
                    standing.node = Some(Node {
                        session: session.clone(),
                        child,
                        czxid,
                        known: bid.seen,
                        record: Some(Record::of(bid)),
                        ahead: None,
                        leader: None,
                    });
                    standing.doubtful = false;
                    // Should the connection have been lost in between, the order was another; then it is looked at again.
                    let sight = sight?;
                    let own = standing.node.as_ref().map(|it| &it.child);
                    return Ok(Some((sent, Some(sight).filter(|(line, _)| own.is_some_and(|own| line.contains(own))))));
                }
                Err(MultiWriteError::OperationFailed { source: Fault::NoNode, .. })
                | Err(MultiWriteError::RequestFailed { source: Fault::NoNode }) => {
                    self.make(session, &election).await?;
                    self.make(session, &self.paths.ledger(&candidacy.election)).await?;
                }
                // The record of a former session of ours: its node was removed above.
                Err(MultiWriteError::OperationFailed { source: Fault::NodeExists, .. }) => {
                    self.delete(session, &self.paths.record(&candidacy.election, candidacy.id.as_str())).await?;
                }
                Err(why) => return Err(explain(why.into(), &format!("entering {election}"))),
            }
        }
    }

    /// Creates the node, and the record beside it if there is anything to say.
    async fn create(&self, session: &Session, candidacy: &Candidacy, bid: &Bid) -> Result<(String, Stat), MultiWriteError> {
        let prefix = self.layout.prefix(&candidacy.id);
        let path = self.paths.candidate(&candidacy.election, &prefix);
        let identity = bid.identity.as_str().as_bytes();
        let options = self.access.options(CreateMode::EphemeralSequential);
        let record = Record::of(bid);
        if record == Record::default() {
            let (stat, sequence) = session.request(|client| client.create(&path, identity, &options)).await?;
            return Ok((format!("{prefix}{sequence}"), stat));
        }
        let beside = self.paths.record(&candidacy.election, candidacy.id.as_str());
        let record_options = self.access.options(CreateMode::Ephemeral);
        let answer = session
            .request(|client| {
                let mut writer = client.new_multi_writer();
                let added = writer
                    .add_create(&path, identity, &options)
                    .and_then(|()| writer.add_create(&beside, &record.write(), &record_options));
                async move {
                    added?;
                    match writer.commit().await {
                        Ok(results) => Ok(Ok(results)),
                        Err(MultiWriteError::RequestFailed { source }) => Err(source),
                        Err(refused) => Ok(Err(refused)),
                    }
                }
            })
            .await??;
        match answer.into_iter().next() {
            Some(MultiWriteResult::Create { path, stat }) => Ok((path.rsplit('/').next().unwrap_or_default().to_owned(), stat)),
            other => Err(Fault::UnexpectedError(format!("a node was created, and the answer is {other:?}")).into()),
        }
    }

    /// Looks for nodes that carry our name: one that this session made is ours, what a former one left is removed.
    pub(super) async fn find(
        &self,
        session: &Arc<Session>,
        candidacy: &Candidacy,
        standing: &mut Standing,
        bid: &Bid,
    ) -> Result<(), Error> {
        let prefix = self.layout.prefix(&candidacy.id);
        // The server that the session is at now may not have heard yet of what it did at another, if the reply was lost.
        self.catch_up(session, &candidacy.election).await?;
        let line = self.line(session, &candidacy.election).await?;
        let mut own: Option<Node> = None;
        for child in line.into_iter().filter(|it| it.starts_with(&prefix)) {
            let path = self.paths.candidate(&candidacy.election, &child);
            let stat = match session.request(|client| client.check_stat(&path)).await {
                Ok(Some(stat)) => stat,
                Ok(None) => continue,
                Err(why) => return Err(explain(why, &format!("reading {path}"))),
            };
            if stat.ephemeral_owner == session.id() && own.is_none() {
                own = Some(Node {
                    session: session.clone(),
                    child,
                    czxid: stat.czxid,
                    known: None,
                    record: None,
                    ahead: None,
                    leader: None,
                });
            } else if stat.ephemeral_owner == session.id() || self.is_former(stat.ephemeral_owner) {
                self.delete(session, &path).await?;
            } else {
                return Err(Error::refused(format!(
                    "the identity {} is in use by another session ({:#x}): a candidate needs one of its own",
                    bid.identity.as_str(),
                    stat.ephemeral_owner
                )));
            }
        }
        standing.node = own;
        standing.doubtful = false;
        Ok(())
    }

    /// Waits until the server knows what the leader of the ensemble knew when it was asked.
    pub(super) async fn catch_up(&self, session: &Session, election: &Name) -> Result<(), Error> {
        let path = self.paths.election(election);
        match session.request(|client| client.sync(&path)).await {
            Ok(()) | Err(Fault::NoNode) => Ok(()),
            Err(why) => Err(explain(why, &format!("reading {path}"))),
        }
    }

    /// The candidates in order.
    pub(super) async fn line(&self, session: &Session, election: &Name) -> Result<Vec<String>, Error> {
        let path = self.paths.election(election);
        match session.request(|client| client.list_children(&path)).await {
            Ok(children) => Ok(in_order(children)),
            Err(Fault::NoNode) => Ok(Vec::new()),
            Err(why) => Err(explain(why, &format!("reading {path}"))),
        }
    }

    /// The line and the ledger, in one request where the server knows such: each costs it as much as both.
    pub(super) async fn sight(&self, session: &Session, election: &Name) -> Result<Sight, Error> {
        if !self.reads_one_by_one.load(Ordering::Relaxed) {
            let (line, ledger) = (self.paths.election(election), self.paths.ledger(election));
            let answer = session
                .request(|client| {
                    let mut reader = client.new_multi_reader();
                    let added = reader.add_get_children(&line).and_then(|()| reader.add_get_data(&ledger));
                    async move {
                        added?;
                        reader.commit().await
                    }
                })
                .await;
            match answer {
                Ok(found) => return as_sight(found).map_err(|why| why.during(&format!("reading {line}"))),
                Err(Fault::Unimplemented) => self.reads_one_by_one.store(true, Ordering::Relaxed),
                Err(why) => return Err(explain(why, &format!("reading {line}"))),
            }
        }
        let (line, ledger) = tokio::join!(self.line(session, election), self.ledger(session, election));
        Ok((line?, ledger?))
    }

    async fn stat(&self, session: &Session, election: &Name, child: &str) -> Result<Stat, Error> {
        let path = self.paths.candidate(election, child);
        match session.request(|client| client.check_stat(&path)).await {
            Ok(Some(stat)) => Ok(stat),
            Ok(None) => Err(explain(Fault::NoNode, &format!("reading {path}"))),
            Err(why) => Err(explain(why, &format!("reading {path}"))),
        }
    }

    pub(super) async fn delete(&self, session: &Session, path: &str) -> Result<(), Error> {
        match session.request(|client| client.delete(path, None)).await {
            Ok(()) | Err(Fault::NoNode) => Ok(()),
            Err(why) => Err(explain(why, &format!("removing {path}"))),
        }
    }

    /// Where the candidate stands. Who waits is answered by the node before it, not by the whole line.
    pub(super) async fn position(
        &self,
        candidacy: &Candidacy,
        standing: &mut Standing,
        bid: &Bid,
        sight: Option<Sight>,
    ) -> Result<Position, Error> {
        let Some(node) = &mut standing.node else { return Ok(Position::Lost) };
        let (session, election) = (node.session.clone(), &candidacy.election);
        let moved = candidacy.moved.swap(false, Ordering::Relaxed);
        if let (Some(ahead), Some((leading, leader)), false) = (&node.ahead, &node.leader, moved) {
            let asked = [&node.child, ahead, leading].map(|child| self.paths.candidate(election, child));
            let asked = if ahead == leading { &asked[..2] } else { &asked[..] };
            let answers = join_all(asked.iter().map(|path| session.request(|client| client.check_stat(path)))).await;
            let present: Vec<bool> = answers
                .into_iter()
                .map(|it| it.map(|stat| stat.is_some()).map_err(|why| explain(why, "reading the line")))
                .collect::<Result<_, _>>()?;
            if !present[0] {
                return Ok(Position::Lost);
            } else if present.iter().all(|it| *it) {
                self.update_record(&session, candidacy, node, bid).await?;
                return Ok(Position::Behind(node.leader.as_ref().map(|(_, it)| it.clone())));
            }
            tracing::trace!(leader = %leader.identity, "the line has moved");
        }
        let (line, sheet) = match sight {
            Some(sight) => sight,
            None => self.sight(&session, election).await?,
        };
        let Some(at) = line.iter().position(|it| *it == node.child) else { return Ok(Position::Lost) };
        let prefix = self.layout.prefix(&candidacy.id);
        if line.iter().any(|it| it.starts_with(&prefix) && *it != node.child) {
            // Two with one name: a lost reply, or somebody else with our identity. Never two in the line.
            let own = self.paths.candidate(election, &node.child);
            self.delete(&session, &own).await?;
            candidacy.leave(standing);
            self.find(&session, candidacy, standing, bid).await?;
            standing.doubtful = true;
            return Ok(Position::Lost);
        }
        let seats = bid.seats.max(1) as usize;
        if at < seats {
            node.ahead = None;
            return Ok(Position::First { line, sheet: Box::new(sheet) });
        }
        let leader = self.leader_at(&session, election, &line[0], &sheet.ledger).await?;
        node.ahead = Some(line[at - seats].clone());
        node.leader = leader.clone().map(|it| (line[0].clone(), it));
        let stage = Stage::Waiting { session: Arc::downgrade(&session), ahead: line[at - seats].clone(), heir: at == seats };
        candidacy.stage.send_replace(stage);
        self.update_record(&session, candidacy, node, bid).await?;
        Ok(Position::Behind(leader))
    }

    /// A bid may change while it waits.
    async fn update_record(&self, session: &Session, candidacy: &Candidacy, node: &mut Node, bid: &Bid) -> Result<(), Error> {
        let record = Record::of(bid);
        if node.record.as_ref() == Some(&record) {
            return Ok(());
        }
        let path = self.paths.record(&candidacy.election, candidacy.id.as_str());
        let text = record.write();
        let options = self.access.options(CreateMode::Ephemeral);
        let written = match session.request(|client| client.set_data(&path, &text, None)).await {
            Err(Fault::NoNode) => session.request(|client| client.create(&path, &text, &options)).await.map(|_| ()),
            other => other.map(|_| ()),
        };
        written.map_err(|why| explain(why, &format!("writing {path}")))?;
        node.record = Some(record);
        Ok(())
    }

    /// Who stands there, as others see it.
    async fn leader_at(&self, session: &Session, election: &Name, child: &str, ledger: &Ledger) -> Result<Option<Leader>, Error> {
        let path = self.paths.candidate(election, child);
        let (text, stat) = match session.request(|client| client.get_data(&path)).await {
            Ok(node) => node,
            Err(Fault::NoNode) => return Ok(None),
            Err(why) => return Err(explain(why, &format!("reading {path}"))),
        };
        let identity = identity_of(child, &text);
        let on_record = ledger.seated.iter().any(|it| it.child == child);
        let record = if on_record || !self.layout.is_ours(election, child, &identity) {
            None
        } else {
            let path = self.paths.record(election, ProtectedId::of(election, &identity).as_str());
            session.request(|client| client.get_data(&path)).await.ok().map(|(text, _)| Record::read(&text))
        };
        self.leader(election, child, &text, &stat, ledger, record.as_ref()).map(Some)
    }

    pub(super) fn leader(
        &self,
        election: &Name,
        child: &str,
        text: &[u8],
        stat: &Stat,
        ledger: &Ledger,
        record: Option<&Record>,
    ) -> Result<Leader, Error> {
        if let Some(seated) = ledger.seated.iter().find(|it| it.child == child) {
            return Ok(seated.holder.leader());
        }
        let identity = identity_of(child, text);
        let record = record.cloned().unwrap_or_default();
        Ok(Leader {
            heeds_wishes: self.layout.is_ours(election, child, &identity),
            identity,
            token: token(ledger.desk.incarnation, stat.czxid)?,
            value: record.value,
            priority: record.priority,
            since: None,
        })
    }

    /// Takes the seat. `None` if the node's number is too small for a token by now: then it has been given up, and another is needed.
    async fn take(
        &self,
        candidacy: &Candidacy,
        standing: &mut Standing,
        bid: &Bid,
        made: Option<Instant>,
        line: &[String],
        mut sheet: Sheet,
    ) -> Result<Option<Grant>, Error> {
        let node = standing.node.as_ref().expect("its position was found");
        let (session, child, czxid) = (node.session.clone(), node.child.clone(), node.czxid);
        let usual = token(sheet.ledger.desk.incarnation, czxid)?;
        let overtaken = sheet.ledger.greatest().is_some_and(|it| it >= usual);
        let outdated = bid.seen.is_some_and(|it| it >= usual) && node.known < bid.seen;
        if overtaken || outdated {
            // Somebody who came later has led already: the line's order and the tokens' would differ.
            self.step_out(&session, candidacy, standing).await?;
            return Ok(None);
        }
        let counted_from = match made {
            Some(sent) => session.counted_from(sent),
            None => {
                session.proven(clock::now().before(session.pace() * 2)).await.map_err(|why| explain(why, "taking the seat"))?
            }
        };
        let forgot = bid.seen.is_some_and(|it| it >= usual);
        let since_ms = wall_ms();
        let mut token = usual;
        if forgot || bid.seats > 1 {
            // The ensemble has lost its memory, or the order is not the line's alone: then it is written before it is granted.
            let own = self.paths.candidate(&candidacy.election, &child);
            let amended = self
                .amend(&session, &candidacy.election, Some(sheet), &[Step::Exists(own)], |ledger| {
                    if ledger.greatest().is_some_and(|it| it >= usual) && !forgot {
                        return Err(Error::refused("somebody who came later was quicker"));
                    }
                    token = ledger.desk.token(term(czxid)?, bid.seen)?;
                    ledger.seat(Seated { child: child.clone(), holder: holder(bid, token, since_ms) }, line);
                    Ok(())
                })
                .await?;
            match amended {
                Amended::Done(now) => sheet = *now,
                Amended::Absent(_) => {
                    candidacy.leave(standing);
                    return Ok(None);
                }
            }
        }
        standing.seat = Some(Seat {
            token,
            since_ms,
            bid: bid.clone(),
            recorded: forgot || bid.seats > 1,
            own_node: Flag::default(),
            ledger: Flag::default(),
            sheet,
            wish: None,
        });
        candidacy.stage.send_replace(Stage::Seated { session: Arc::downgrade(&session), child });
        session.sweep_wanted.notify_one();
        Ok(Some(Grant { token, ttl: Some(session.promised()), counted_from: Some(counted_from), noted: false }))
    }

    /// Puts a leadership on record. Nothing depends on it but what people see.
    pub(super) async fn record(&self, session: &Session, candidacy: &Candidacy, standing: &mut Standing) -> Result<(), Error> {
        let (Some(node), Some(seat)) = (&standing.node, &mut standing.seat) else { return Ok(()) };
        let line = self.line(session, &candidacy.election).await?;
        let own = self.paths.candidate(&candidacy.election, &node.child);
        let newcomer = Seated { child: node.child.clone(), holder: holder(&seat.bid, seat.token, seat.since_ms) };
        let known = Some(seat.sheet.clone());
        let seated = |ledger: &mut Ledger| {
            ledger.seat(newcomer.clone(), &line);
            Ok(())
        };
        match self.amend(session, &candidacy.election, known, &[Step::Exists(own)], seated).await? {
            Amended::Done(now) => seat.sheet = *now,
            Amended::Absent(_) => {}
        }
        // Also if the node is gone: then there is nothing to put on record any more.
        seat.recorded = true;
        Ok(())
    }

    /// Renews a leadership, or takes one over that was found to be ours.
    pub(super) async fn keep(
        &self,
        candidacy: &Candidacy,
        standing: &mut Standing,
        bid: &Bid,
        token: Token,
    ) -> Result<Renewal, Error> {
        let Some(session) = standing.node.as_ref().filter(|it| it.czxid == as_czxid(token)).map(|it| it.session.clone()) else {
            return Ok(Renewal::Gone);
        };
        if session.is_over() {
            return Ok(self.gone(candidacy, standing));
        }
        if standing.seat.is_none() {
            let taken = match self.position(candidacy, standing, bid, None).await? {
                Position::First { line, sheet } => self.take(candidacy, standing, bid, None, &line, *sheet).await?,
                Position::Lost | Position::Behind(_) => None,
            };
            if taken.is_none() {
                return Ok(self.gone(candidacy, standing));
            }
        }
        let counted_from = match session.proven(clock::now()).await {
            Ok(counted_from) => counted_from,
            Err(why) if ends_session(&why) => return Ok(self.gone(candidacy, standing)),
            Err(why) => return Err(explain(why, "renewing")),
        };
        if standing.seat.as_ref().is_none_or(|it| it.token != token) || !self.refresh(&session, candidacy, standing).await? {
            return Ok(self.gone(candidacy, standing));
        }
        let wish = standing.seat.as_ref().and_then(|it| it.wish.clone());
        let grant = Grant { token, ttl: Some(session.promised()), counted_from: Some(counted_from), noted: false };
        Ok(Renewal::Kept { grant, wish })
    }

    fn gone(&self, candidacy: &Candidacy, standing: &mut Standing) -> Renewal {
        candidacy.leave(standing);
        standing.doubtful = true;
        Renewal::Gone
    }

    /// Brings what is known of the seat up to date; asks only where a watch says that something has changed. Says whether the node is still there.
    async fn refresh(&self, session: &Session, candidacy: &Candidacy, standing: &mut Standing) -> Result<bool, Error> {
        let (Some(node), Some(seat)) = (&standing.node, &mut standing.seat) else { return Ok(false) };
        if seat.own_node.is_raised() {
            let path = self.paths.candidate(&candidacy.election, &node.child);
            match session.request(|client| client.get_and_watch_data(&path)).await {
                Ok((_, stat, watcher)) if stat.czxid == node.czxid => seat.own_node = Flag::set(watcher),
                Ok(_) | Err(Fault::NoNode) => return Ok(false),
                Err(why) => return Err(explain(why, &format!("reading {path}"))),
            }
        }
        if seat.ledger.is_raised() {
            let path = self.paths.ledger(&candidacy.election);
            match session.request(|client| client.get_and_watch_data(&path)).await {
                Ok((text, stat, watcher)) => {
                    let ledger = Ledger::read(&text)?;
                    seat.wish = ledger.wish_for(seat.token);
                    seat.sheet = Sheet { ledger, version: Some(stat.version) };
                    seat.ledger = Flag::set(watcher);
                }
                // It is made again with the next change, and read again with the next renewal.
                Err(Fault::NoNode) => seat.wish = None,
                Err(why) => return Err(explain(why, &format!("reading {path}"))),
            }
        }
        Ok(true)
    }

    /// Takes the candidate out of the line, wherever its nodes are.
    pub(super) async fn step_out(
        &self,
        session: &Arc<Session>,
        candidacy: &Candidacy,
        standing: &mut Standing,
    ) -> Result<(), Error> {
        let prefix = self.layout.prefix(&candidacy.id);
        let children = match &standing.node {
            Some(node) if !standing.doubtful => vec![node.child.clone()],
            None if !standing.doubtful => Vec::new(),
            Some(_) | None => self.line(session, &candidacy.election).await?,
        };
        let had_record = standing.node.as_ref().is_none_or(Node::has_record) || standing.doubtful;
        for child in children.iter().filter(|it| it.starts_with(&prefix)) {
            self.delete(session, &self.paths.candidate(&candidacy.election, child)).await?;
        }
        if had_record && !children.is_empty() {
            self.delete(session, &self.paths.record(&candidacy.election, candidacy.id.as_str())).await?;
        }
        candidacy.leave(standing);
        standing.doubtful = false;
        Ok(())
    }
}

/// What a request for the line and the ledger has brought. Neither may be there yet.
fn as_sight(found: Vec<MultiReadResult>) -> Result<Sight, Error> {
    let mut sight = Sight::default();
    for it in found {
        match it {
            MultiReadResult::Children { children } => sight.0 = in_order(children),
            MultiReadResult::Data { data, stat } => {
                sight.1 = Sheet { ledger: Ledger::read(&data)?, version: Some(stat.version) };
            }
            MultiReadResult::Error { err: Fault::NoNode } => {}
            MultiReadResult::Error { err } => return Err(explain(err, "together with the ledger")),
            // The client's list of answers may grow; this request has none of the others.
            _ => return Err(Error::refused("an answer to something that was not asked")),
        }
    }
    Ok(sight)
}

/// Who a node says it is: what its data says, or else its name.
pub(super) fn identity_of(child: &str, text: &[u8]) -> Identity {
    match std::str::from_utf8(text) {
        Ok(text) if !text.is_empty() => Identity::stored(text),
        Ok(_) | Err(_) => Identity::stored(child),
    }
}

pub(super) fn holder(bid: &Bid, token: Token, since_ms: u64) -> Holder {
    Holder {
        identity: bid.identity.clone(),
        token,
        value: bid.value.clone(),
        priority: bid.priority,
        ttl_ms: whole_ms(bid.ttl),
        since_ms,
        beat: 0,
        renewed_ms: None,
    }
}

/// The term that a node's number is: the ensemble's epoch in the upper half, a count in the lower.
fn term(czxid: i64) -> Result<u64, Error> {
    u64::try_from(czxid).ok().filter(|it| *it <= Term::MAX.0).ok_or_else(|| {
        Error::misconfigured(format!(
            "the ensemble has elected its own leader {} times, and a token has room for 65535: set up a new ensemble and raise the incarnation",
            czxid >> 32
        ))
    })
}

pub(super) fn token(incarnation: u16, czxid: i64) -> Result<Token, Error> {
    Token::new(incarnation, Term(term(czxid)?)).ok_or_else(|| Error::misconfigured("the incarnation is too great for a token"))
}

/// The number of the node that a token was given for.
pub(super) fn as_czxid(token: Token) -> i64 {
    i64::try_from(token.get() & Term::MAX.0).expect("48 bits")
}
