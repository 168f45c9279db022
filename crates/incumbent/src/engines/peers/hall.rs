//! One election as a node serves it: its own candidates in a line, the one that has the seat while the node is in office, and what is known of the others. Pure.
//!
//! A leadership of the node is the leadership of one candidate: the next one needs a new term, and with it a new token. So a seat that was given back makes its
//! token [spent](Hall::spent), and the node stands for office again.

use std::collections::BTreeMap;
use std::time::Duration;

use incumbent_peer::node::{Mandate, Standing};
use incumbent_protocol::protocol::{NodeId, Token};
use incumbent_protocol::time::Instant;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::minutes::{EXPIRED, KeptAfter, Minutes};
use crate::desk::{Holder, Kept, incarnation_of, wall_ms, whole_ms};
use crate::engine::{Bid, Demand, Error, Farewell, Leader, Seat, Wish};
use crate::identity::Identity;

pub(super) struct Hall {
    pub(super) minutes: Minutes,
    /// This node's candidates, in the order of their first claim.
    line: Vec<Waiting>,
    seated: Option<Seated>,
    /// The candidates of the other nodes, as they have told.
    elsewhere: BTreeMap<NodeId, Vec<Waits>>,
    /// The greatest token that was given to a candidate which has left since.
    spent: Option<Token>,
    /// In office without anybody in the seat, since then.
    idle_since: Option<Instant>,
    /// Since when the seat is known to be kept for somebody.
    kept_since: Option<(Token, Instant)>,
    /// What is known of the end of the last leader of another node.
    pub(super) fate: &'static str,
    /// What the other nodes were told of the line.
    told: Vec<Waits>,
    /// Whether the node was told to stand, and not yet to abstain.
    pub(super) stands: bool,
    changes: watch::Sender<u64>,
}

struct Waiting {
    identity: Identity,
    priority: i32,
    until: Instant,
    wake: watch::Sender<u64>,
}

struct Seated {
    identity: Identity,
    token: Token,
    ttl: Duration,
    until: Instant,
    wish: Option<Wish>,
}

/// A candidate, as nodes tell each other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Waits {
    pub(super) identity: Identity,
    pub(super) priority: i32,
}

/// What became of a claim.
#[derive(Debug)]
pub(super) enum Claimed {
    /// The seat is the bidder's; `new` if it was not before.
    Seated { mandate: Mandate, new: bool },
    /// Others have it, or are before it in line.
    Occupied(Option<Leader>),
    /// Nobody has it yet: there is an election, or should be.
    Undecided,
    /// The bidder has seen a greater token than this node can give before it raises the epoch to this.
    TooSmall(u16),
}

/// To whom the office should go.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Heir {
    /// To another candidate of this node.
    Here,
    /// To this node, which has candidates.
    There(NodeId),
    /// Nobody is known to want it.
    Nobody,
}

impl Default for Hall {
    fn default() -> Self {
        Hall {
            minutes: Minutes::default(),
            line: Vec::new(),
            seated: None,
            elsewhere: BTreeMap::new(),
            spent: None,
            idle_since: None,
            kept_since: None,
            fate: EXPIRED,
            told: Vec::new(),
            stands: false,
            changes: watch::Sender::new(0),
        }
    }
}

impl Hall {
    /// One of which this is remembered.
    pub(super) fn with(minutes: Minutes) -> Hall {
        Hall { minutes, ..Hall::default() }
    }

    /// Told whenever anything here may have changed.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) fn changed(&self) {
        self.changes.send_modify(|it| *it += 1);
    }

    /// Gives the seat to the bidder, if this node is in office and it is the bidder's turn; puts it in line otherwise.
    pub(super) fn claim(&mut self, bid: &Bid, standing: &Standing, now: Instant) -> Claimed {
        self.expire_line(now);
        if let Some(seated) = self.seated.as_mut().filter(|it| it.identity == bid.identity)
            && let Some(mandate) = standing.own.filter(|it| it.token == seated.token)
        {
            (seated.until, seated.ttl) = (now + bid.ttl, bid.ttl);
            return Claimed::Seated { mandate, new: false };
        }
        self.stand_in_line(bid, now);
        let Some(mandate) = standing.own else {
            return if standing.leader.is_some() { Claimed::Occupied(self.leader()) } else { Claimed::Undecided };
        };
        if self.seated.as_ref().is_some_and(|it| it.token == mandate.token) {
            return Claimed::Occupied(self.leader());
        }
        if self.spent.is_some_and(|spent| spent >= mandate.token) {
            // On its way out of office.
            return Claimed::Undecided;
        }
        // The first in line was woken, but whoever asks first has it: one that does not ask holds nobody up.
        if self.kept_for(now).is_some_and(|to| to != bid.identity.as_str() && to != bid.identity.name()) {
            return Claimed::Occupied(None);
        }
        if let Some(seen) = bid.seen.filter(|seen| *seen >= mandate.token) {
            return Claimed::TooSmall(incarnation_of(seen) + 1);
        }
        self.line.retain(|it| it.identity != bid.identity);
        self.seated =
            Some(Seated { identity: bid.identity.clone(), token: mandate.token, ttl: bid.ttl, until: now + bid.ttl, wish: None });
        (self.idle_since, self.kept_since) = (None, None);
        let holder = Holder {
            identity: bid.identity.clone(),
            token: mandate.token,
            value: bid.value.clone(),
            priority: bid.priority,
            ttl_ms: whole_ms(bid.ttl),
            since_ms: wall_ms(),
            beat: 0,
            renewed_ms: None,
        };
        let fate = std::mem::replace(&mut self.fate, EXPIRED);
        self.minutes.seat(holder, fate);
        self.changed();
        Claimed::Seated { mandate, new: true }
    }

    /// Whether this candidate has asked before.
    pub(super) fn knows(&self, identity: &Identity) -> bool {
        self.line.iter().any(|it| it.identity == *identity) || self.seated.as_ref().is_some_and(|it| it.identity == *identity)
    }

    /// The holder's sign of life; `None` if the seat is not its own any more. With it, what somebody wants of it.
    pub(super) fn renew(
        &mut self,
        bid: &Bid,
        token: Token,
        standing: &Standing,
        now: Instant,
    ) -> Option<(Mandate, Option<Wish>)> {
        let mandate = standing.own.filter(|it| it.token == token)?;
        let seated = self.seated.as_mut().filter(|it| it.token == token && it.identity == bid.identity)?;
        seated.until = now + bid.ttl;
        Some((mandate, seated.wish.clone()))
    }

    /// The holder with this token has left. To whom the office should go; `None` if it was not the holder's to give.
    pub(super) fn leave(&mut self, token: Token, farewell: &Farewell, now: Instant) -> Option<Heir> {
        let seated = self.seated.take_if(|it| it.token == token)?;
        self.minutes.end(Some(token), &farewell.reason.to_string());
        self.spent = self.spent.max(Some(token));
        if let Some(to) = farewell.to.clone() {
            self.minutes.kept = Some(KeptAfter { after: token, kept: Kept { to, ms: whole_ms(seated.ttl) } });
            self.kept_since = Some((token, now));
        }
        // Whoever gives the office to the heir may be dropped before it does; then a sweep does it.
        self.idle_since = Some(now);
        self.changed();
        Some(self.heir(now))
    }

    /// This node is out of office, against its will. Whether that ended a leadership.
    pub(super) fn lost(&mut self, token: Token, reason: &str) -> bool {
        let seated = self.seated.take_if(|it| it.token == token).is_some();
        if seated {
            self.minutes.end(Some(token), reason);
        }
        self.spent = self.spent.max(Some(token));
        self.idle_since = None;
        self.changed();
        seated
    }

    /// This node is in office: wakes the one whose turn it is.
    pub(super) fn elected(&mut self, now: Instant) {
        self.idle_since = Some(now);
        if let Some(next) = self.next(now) {
            next.wake.send_modify(|it| *it += 1);
        }
        self.changed();
    }

    /// Who should have the office next.
    pub(super) fn heir(&mut self, now: Instant) -> Heir {
        self.expire_line(now);
        let there = |wanted: &dyn Fn(&Identity) -> bool| {
            self.elsewhere.iter().find(|(_, line)| line.iter().any(|it| wanted(&it.identity))).map(|(node, _)| *node)
        };
        if let Some(to) = self.kept_for(now) {
            let wanted = |it: &Identity| it.as_str() == to || it.name() == to;
            if self.line.iter().any(|it| wanted(&it.identity)) {
                return Heir::Here;
            }
            if let Some(node) = there(&wanted) {
                return Heir::There(node);
            }
        }
        match (there(&|_| true), self.line.is_empty()) {
            (Some(node), _) => Heir::There(node),
            (None, false) => Heir::Here,
            (None, true) => Heir::Nobody,
        }
    }

    /// In office for nobody's sake for longer than this: to whom the office should go.
    pub(super) fn idle_for(&mut self, span: Duration, now: Instant) -> Option<Heir> {
        let since = self.idle_since?;
        (self.seated.is_none() && now - since >= span).then(|| {
            self.idle_since = Some(now);
            self.heir(now)
        })
    }

    /// The holder's time is up if it has not been heard of for its ttl: its token.
    pub(super) fn overdue(&self, now: Instant) -> Option<Token> {
        self.seated.as_ref().filter(|it| it.until <= now).map(|it| it.token)
    }

    pub(super) fn withdraw(&mut self, identity: &Identity, now: Instant) {
        self.line.retain(|it| it.identity != *identity);
        // It may have been woken already; then it is another's turn.
        if self.idle_since.is_some()
            && let Some(next) = self.next(now)
        {
            next.wake.send_modify(|it| *it += 1);
        }
        self.changed();
    }

    /// Leaves a wish for the holder, if it is this one.
    pub(super) fn ask(&mut self, wish: &Wish) -> Result<(), Error> {
        match &mut self.seated {
            Some(seated) if seated.token == wish.token => {
                seated.wish = Some(wish.clone());
                self.changed();
                Ok(())
            }
            Some(_) | None => Err(Error::refused(format!("the leadership with token {} is no longer in office", wish.token))),
        }
    }

    /// This node is asked to make way for a candidate of `to`, or of any other.
    pub(super) fn should_hand_over(&mut self, to: Option<NodeId>, why: &str) {
        let heir = match to {
            Some(node) => self.elsewhere.get(&node).and_then(|line| line.first()),
            None => self.elsewhere.values().flatten().next(),
        };
        let (Some(heir), Some(seated)) = (heir.cloned(), &self.seated) else { return };
        let wish = Wish { token: seated.token, what: Demand::HandOver(heir.identity.as_str().to_owned()), by: why.to_owned() };
        // Refused only if it has just left.
        let _ = self.ask(&wish);
    }

    pub(super) fn publish(&mut self, token: Token, value: &str) -> Result<(), Error> {
        let seated = self.seated.as_ref().is_some_and(|it| it.token == token);
        if !seated || !self.minutes.publish(token, value) {
            return Err(Error::refused(format!("token {token} is no longer in office")));
        }
        self.changed();
        Ok(())
    }

    /// What another node tells of its candidates.
    pub(super) fn heard_of(&mut self, node: NodeId, line: Vec<Waits>) {
        if line.is_empty() {
            self.elsewhere.remove(&node);
        } else {
            self.elsewhere.insert(node, line);
        }
        self.changed();
    }

    pub(super) fn forget(&mut self, node: NodeId) {
        self.elsewhere.remove(&node);
    }

    /// This node's candidates, for the others.
    pub(super) fn own_line(&self) -> Vec<Waits> {
        self.line.iter().map(|it| Waits { identity: it.identity.clone(), priority: it.priority }).collect()
    }

    /// Whether anybody here wants the office, or has it.
    pub(super) fn is_wanted(&mut self, now: Instant) -> bool {
        self.expire_line(now);
        !self.line.is_empty() || self.seated.is_some()
    }

    /// What wakes this candidate, and puts it in line if it is not.
    pub(super) fn wake_of(&mut self, bid: &Bid, now: Instant) -> watch::Receiver<u64> {
        if self.seated.as_ref().is_some_and(|it| it.identity == bid.identity) {
            return self.changes();
        }
        self.stand_in_line(bid, now);
        match self.line.iter().find(|it| it.identity == bid.identity) {
            Some(waiting) => waiting.wake.subscribe(),
            None => self.changes(),
        }
    }

    /// All candidates that are known, this node's first.
    pub(super) fn all_candidates(&self) -> Vec<Waits> {
        self.own_line().into_iter().chain(self.elsewhere.values().flatten().cloned()).collect()
    }

    /// This node's candidates, if they are others than the other nodes were told of last.
    pub(super) fn untold_line(&mut self) -> Option<Vec<Waits>> {
        let line = self.own_line();
        (line != self.told).then(|| self.told.clone_from(&line))?;
        Some(line)
    }

    /// The other nodes may not have heard who waits here, if anybody does.
    pub(super) fn tell_again(&mut self) {
        self.told.clear();
    }

    /// Whose the seat is, as far as this node can tell.
    pub(super) fn whose(&self, bid: &Bid, standing: &Standing) -> Seat {
        let own = self.seated.as_ref().zip(standing.own).filter(|(seated, own)| seated.token == own.token);
        match own {
            Some((seated, _)) if seated.identity == bid.identity => Seat::Own(seated.token),
            Some(_) => Seat::Others(self.leader()),
            None if standing.own.is_none() && standing.leader.is_some() => Seat::Others(self.leader()),
            None => Seat::Vacant,
        }
    }

    fn leader(&self) -> Option<Leader> {
        self.minutes.sitting().map(Holder::leader)
    }

    /// Whose turn it is: the one the seat is kept for, or the first in line.
    fn next(&self, now: Instant) -> Option<&Waiting> {
        let first = self.line.first();
        let Some(to) = self.kept_for(now) else { return first };
        self.line.iter().find(|it| it.identity.as_str() == to || it.identity.name() == to)
    }

    /// Whom the seat is kept for, until they have had the time of a ttl to take it.
    fn kept_for(&self, now: Instant) -> Option<String> {
        let KeptAfter { after, kept } = self.minutes.kept.as_ref()?;
        if self.minutes.holder.as_ref().is_some_and(|it| it.token > *after) {
            return None;
        }
        let since = self.kept_since.filter(|(token, _)| token == after).map_or(now, |(_, since)| since);
        (now - since < Duration::from_millis(kept.ms)).then(|| kept.to.clone())
    }

    /// What was heard has been taken into the minutes: a seat that is kept for somebody is kept from now on.
    pub(super) fn heard(&mut self, now: Instant) {
        if let Some(KeptAfter { after, .. }) = self.minutes.kept
            && self.kept_since.is_none_or(|(token, _)| token < after)
        {
            self.kept_since = Some((after, now));
        }
        self.changed();
    }

    pub(super) fn stand_in_line(&mut self, bid: &Bid, now: Instant) {
        if self.seated.as_ref().is_some_and(|it| it.identity == bid.identity) {
            return;
        }
        let until = now + bid.ttl;
        match self.line.iter_mut().find(|it| it.identity == bid.identity) {
            Some(waiting) => waiting.until = until,
            None => {
                let wake = watch::Sender::new(0);
                self.line.push(Waiting { identity: bid.identity.clone(), priority: bid.priority, until, wake });
                self.changed();
            }
        }
    }

    fn expire_line(&mut self, now: Instant) {
        self.line.retain(|it| it.until > now);
    }
}

#[cfg(test)]
mod tests {
    use incumbent_protocol::protocol::Term;
    use incumbent_protocol::tenure::Reason;

    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn bid(who: &str) -> Bid {
        let identity = Identity::stored(who);
        Bid { identity, ttl: TTL, value: String::new(), priority: 0, seats: 1, seen: None, note: None }
    }

    #[test]
    fn an_office_that_was_left_and_not_passed_on_is_passed_on_later() {
        for to in [None, Some("b".to_owned())] {
            let (mut hall, began) = (Hall::default(), Instant::ZERO + TTL);
            let token = Token::new(0, Term(1)).expect("fits");
            let own = Some(Mandate { token, answered: None });
            let standing = Standing { leader: Some(NodeId(1)), term: Term(1), epoch: 0, own };
            hall.elected(began);
            assert!(matches!(hall.claim(&bid("a"), &standing, began), Claimed::Seated { new: true, .. }));
            hall.heard_of(NodeId(2), vec![Waits { identity: Identity::stored("b"), priority: 0 }]);
            assert_eq!(hall.idle_for(TTL, began + TTL), None, "somebody is in the seat");
            let left = began + TTL;
            // Whoever released it was not waited for: nobody gives the office to this heir.
            let heir = hall.leave(token, &Farewell { reason: Reason::HandedOver, to }, left);
            assert_eq!(heir, Some(Heir::There(NodeId(2))));
            assert_eq!(hall.idle_for(TTL, left + TTL / 2), None, "it may be on its way");
            assert_eq!(hall.idle_for(TTL, left + TTL), Some(Heir::There(NodeId(2))));
            hall.lost(token, "resigned");
            assert_eq!(hall.idle_for(TTL, left + TTL * 3), None, "it has been passed on");
        }
    }
}
