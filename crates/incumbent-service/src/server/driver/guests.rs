//! What guests want of the node, each in its turn.
//!
//! What needs the log waits until there is room on its way ([`UNDER_WAY_MAX`]); what this node does by itself does not wait for that, so that whoever only looks is answered while nobody leads.
//! What operators and the node itself want is done at once.

use std::sync::Arc;
use std::time::Duration;

use incumbent_peer::clock;
use incumbent_protocol::time::Instant;
use incumbent_store::command::{Command, Request};
use incumbent_store::keys::item::Span;
use incumbent_store::query::Query;
use prost::Message;

use super::Driver;
use crate::server::config::{UNDER_WAY_MAX, WAKEUPS_PER_TURN};
use crate::server::handle::{Call, Consistency, Order, Outcome, Unanswered, Why};
use crate::server::queues::{Lane, Queues, Ticket, UnderWay};

/// What the simplest request costs: it is taken in, put into the log, applied and answered.
const SIMPLE: Duration = Duration::from_micros(4);

/// So many bytes cost as much as a microsecond: they are copied, written and sent to the others.
const BYTES_PER_MICRO: usize = 1024;

/// What a short list of keys costs, whatever is in it.
const SHORT_LIST: Duration = Duration::from_micros(200);

/// A question that takes long costs the node this: another thread answers it.
const HANDED_ON: Duration = Duration::from_micros(10);

/// How often it is looked for what has waited too long.
const LOOKS_PER_PATIENCE: u32 = 4;

/// What guests want of a node, and has not had its turn.
#[derive(Debug, Default)]
pub(super) struct Guests {
    /// What this node does by itself.
    here: Queues<Order>,
    /// What needs the log.
    log: Queues<Order>,
    under_way: UnderWay,
    /// When it was last looked for what has waited too long.
    looked: Option<Instant>,
}

impl Guests {
    pub(super) fn len(&self) -> usize {
        self.here.len() + self.log.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether somebody could have its turn now.
    pub(super) fn is_any_ready(&self) -> bool {
        !self.here.is_empty() || (!self.log.is_empty() && self.has_room())
    }

    fn has_room(&self) -> bool {
        self.under_way.cost() < UNDER_WAY_MAX
    }
}

impl Driver {
    /// Waits for its turn, or is done at once.
    pub(super) fn on_call(&mut self, call: Call) {
        let Call { guest, order } = call;
        let (queues, lane, bytes) = match &order {
            Order::Submit { request, .. } => (&mut self.guests.log, lane(request), request.encoded_len()),
            Order::Ask { consistency: Consistency::Linearizable, .. } => (&mut self.guests.log, Lane::Usual, 0),
            Order::Ask { consistency: Consistency::Local, seen, .. } if *seen > self.store.revision() => {
                (&mut self.guests.log, Lane::Usual, 0)
            }
            Order::Ask { consistency: Consistency::Local, .. }
            | Order::Watch { .. }
            | Order::Attend { .. }
            | Order::Leave { .. }
            | Order::Events { .. }
            | Order::Lost { .. } => (&mut self.guests.here, Lane::Usual, 0),
            Order::Status { .. }
            | Order::Digest { .. }
            | Order::Transfer { .. }
            | Order::Change { .. }
            | Order::Peers { .. }
            | Order::Close
            | Order::Administer { .. }
            | Order::Inquire { .. }
            | Order::LookElsewhere
            | Order::Removed { .. }
            | Order::BackUp { .. }
            | Order::ReadBackup { .. } => return self.on_order(order),
        };
        if let Err(order) = queues.add(clock::now(), &guest, lane, bytes, order) {
            self.refuse(order, Why::Full);
        }
    }

    /// Does what guests want, until it is somebody else's turn.
    pub(super) fn serve_guests(&mut self) {
        for _ in 0..WAKEUPS_PER_TURN {
            let mut begun = clock::now();
            if begun >= self.turn_until || self.end.is_some() {
                break;
            }
            let mut served = false;
            if let Some((guest, order)) = self.guests.here.next() {
                self.on_order(in_the_name_of(&guest, order, None));
                let done = clock::now();
                self.guests.here.charge(&guest, done - begun);
                (begun, served) = (done, true);
            }
            // Who closes does nothing more, and says so.
            if (self.guests.has_room() || self.closing.is_some())
                && let Some((guest, order)) = self.guests.log.next()
            {
                let cost = self.cost(&order);
                let ticket = self.guests.under_way.begin(cost);
                self.on_order(in_the_name_of(&guest, order, Some(ticket)));
                self.guests.log.charge(&guest, cost.max(clock::now() - begun));
                served = true;
            }
            if !served {
                break;
            }
        }
    }

    /// When to look for what has waited too long.
    pub(super) fn looks_for_late_guests_at(&self) -> Option<Instant> {
        let looked = self.guests.looked?;
        (!self.guests.log.is_empty()).then(|| looked + self.settings.patience / LOOKS_PER_PATIENCE)
    }

    /// While nobody leads, or nothing is decided, nothing gets its turn: nobody waits for that for ever.
    pub(super) fn refuse_late_guests(&mut self, now: Instant) {
        if self.guests.looked.is_some() && self.looks_for_late_guests_at().is_none_or(|at| now < at) {
            return;
        }
        self.guests.looked = Some(now);
        let why = if self.role.leader.is_none() { Why::NoLeader } else { Why::Full };
        while let Some(order) = self.guests.log.overdue(now, self.settings.patience) {
            self.refuse(order, why.clone());
        }
    }

    /// What is left when the node closes is done as far as it still can be, which is to say that it is not.
    pub(super) fn dismiss_guests(&mut self) {
        while let Some((_, order)) = self.guests.here.next().or_else(|| self.guests.log.next()) {
            self.on_order(order);
        }
    }

    /// Nobody but who asks or submits is refused: the others have no bound that they could reach.
    fn refuse(&self, order: Order, why: Why) {
        let not_now = self.not_now(why);
        if let Order::Submit { answer, .. } = order {
            answer.tell(Outcome::NotNow(not_now));
        } else if let Order::Ask { answer, .. } = order {
            answer.tell(Err(Unanswered::NotNow(not_now)));
        }
    }

    /// About what it costs the node, once it is decided: from its shape alone, and rather too much than too little.
    fn cost(&self, order: &Order) -> Duration {
        if let Order::Submit { request, .. } = order {
            let steps = request.command.as_ref().map_or(0, Command::weight);
            let bytes = request.encoded_len() / BYTES_PER_MICRO;
            return SIMPLE + Duration::from_micros(u64::from(steps)) + Duration::from_micros(bytes as u64);
        }
        if let Order::Ask { query, .. } = order {
            if self.store.takes_long(query) {
                return HANDED_ON;
            }
            if let Query::Range(range) = query
                && !range.span.as_ref().is_none_or(Span::is_one)
            {
                return SHORT_LIST;
            }
        }
        SIMPLE
    }
}

/// A session that is not kept alive in time is lost. It is in no order with others: nobody keeps alive what it has not been told of.
fn lane(request: &Request) -> Lane {
    if matches!(request.command, Some(Command::KeepAlive(_))) { Lane::First } else { Lane::Usual }
}

/// Who asks, for whoever answers.
fn in_the_name_of(guest: &Arc<str>, mut order: Order, ticket: Option<Ticket>) -> Order {
    if let Order::Submit { answer, .. } = &mut order {
        answer.hold(guest, ticket);
    } else if let Order::Ask { answer, .. } = &mut order {
        answer.hold(guest, ticket);
    }
    order
}
