//! Whose turn it is: what guests want waits here, each guest's in its own line, and of those who wait the one is next for whom least was done.
//!
//! **Problem.** A request may cost a thousand times as much as another, and one guest may send ten thousand at once. First come, first served, the renewals of all others would wait for it
//! until their leases have run out. **Insight.** What has been decided must be applied in its order, so whatever is to be fair must be so before. A guest is charged for what it has cost, and
//! waits while others have had less; nobody is charged for having been away, nor saves up for a burst.
//!
//! Left out: fairness among the connections of one guest. Where no tokens are asked for, all are one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use incumbent_protocol::time::Instant;

use super::config::{WAITING_BYTES_MAX, WAITING_BYTES_PER_GUEST_MAX, WAITING_BYTES_SMALL, WAITING_PER_GUEST_MAX};

/// Beyond so many guests, those who want nothing are forgotten.
const GUESTS_REMEMBERED: usize = 1024;

/// What guests want, until it is their turn.
#[derive(Debug)]
pub(super) struct Queues<T> {
    lines: BTreeMap<Arc<str>, Line<T>>,
    /// Who waits, by what was done for them.
    next: BTreeSet<(u64, Arc<str>)>,
    /// What had been done for the one who was next last.
    reached: u64,
    len: usize,
    bytes: usize,
}

/// Of one guest.
#[derive(Debug)]
struct Line<T> {
    /// How much was done for it, in nanoseconds of the node; it counts from what was done for others while it wanted nothing.
    had: u64,
    first: VecDeque<Waiting<T>>,
    others: VecDeque<Waiting<T>>,
    bytes: usize,
}

/// One that waits.
#[derive(Debug)]
struct Waiting<T> {
    since: Instant,
    bytes: usize,
    what: T,
}

/// Before or behind what else its guest wants.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Lane {
    /// What must not be late, and is in no order with other things.
    First,
    Usual,
}

impl<T> Default for Queues<T> {
    fn default() -> Queues<T> {
        Queues { lines: BTreeMap::new(), next: BTreeSet::new(), reached: 0, len: 0, bytes: 0 }
    }
}

impl<T> Queues<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Waits for its turn. Comes back if its guest has too much that waits.
    pub(super) fn add(&mut self, now: Instant, guest: &Arc<str>, lane: Lane, bytes: usize, what: T) -> Result<(), T> {
        if !self.lines.contains_key(guest) {
            self.forget_some();
        }
        let line = self.lines.entry(Arc::clone(guest)).or_insert_with(|| Line::new(self.reached));
        let theirs = line.bytes + bytes;
        let is_crowded = self.bytes + bytes > WAITING_BYTES_MAX && theirs > WAITING_BYTES_SMALL;
        if line.len() >= WAITING_PER_GUEST_MAX || theirs > WAITING_BYTES_PER_GUEST_MAX || is_crowded {
            return Err(what);
        }
        if line.len() == 0 {
            line.had = line.had.max(self.reached);
            self.next.insert((line.had, Arc::clone(guest)));
        }
        line.bytes += bytes;
        self.bytes += bytes;
        self.len += 1;
        match lane {
            Lane::First => &mut line.first,
            Lane::Usual => &mut line.others,
        }
        .push_back(Waiting { since: now, bytes, what });
        Ok(())
    }

    /// Whose turn it is, with what it wants.
    pub(super) fn next(&mut self) -> Option<(Arc<str>, T)> {
        let (had, guest) = self.next.first()?.clone();
        self.reached = self.reached.max(had);
        let what = self.take(&guest)?;
        Some((guest, what))
    }

    /// So much was done for a guest.
    pub(super) fn charge(&mut self, guest: &Arc<str>, cost: Duration) {
        let Some(line) = self.lines.get_mut(guest) else { return };
        let waits = self.next.remove(&(line.had, Arc::clone(guest)));
        line.had = line.had.saturating_add(u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX));
        if waits {
            self.next.insert((line.had, Arc::clone(guest)));
        }
    }

    /// Takes out one that has waited for longer than this.
    pub(super) fn overdue(&mut self, now: Instant, patience: Duration) -> Option<T> {
        let is_late = |queue: &VecDeque<Waiting<T>>| queue.front().is_some_and(|it| it.since + patience < now);
        let guest = self.next.iter().map(|it| &it.1).find(|it| {
            self.lines.get(*it).is_some_and(|line| is_late(&line.first) || (line.first.is_empty() && is_late(&line.others)))
        });
        let guest = Arc::clone(guest?);
        self.take(&guest)
    }

    fn take(&mut self, guest: &Arc<str>) -> Option<T> {
        let line = self.lines.get_mut(guest)?;
        let Waiting { bytes, what, .. } = line.first.pop_front().or_else(|| line.others.pop_front())?;
        line.bytes -= bytes;
        self.bytes -= bytes;
        self.len -= 1;
        if line.len() == 0 {
            self.next.remove(&(line.had, Arc::clone(guest)));
        }
        Some(what)
    }

    /// Those that are even with the others lose nothing by it.
    fn forget_some(&mut self) {
        if self.lines.len() >= GUESTS_REMEMBERED {
            self.lines.retain(|_, line| line.len() > 0 || line.had > self.reached);
        }
    }
}

impl<T> Line<T> {
    fn new(had: u64) -> Line<T> {
        Line { had, first: VecDeque::new(), others: VecDeque::new(), bytes: 0 }
    }

    fn len(&self) -> usize {
        self.first.len() + self.others.len()
    }
}

/// What all that is on its way through the log may cost, once it is decided.
#[derive(Clone, Debug, Default)]
pub(super) struct UnderWay(Arc<AtomicU64>);

impl UnderWay {
    pub(super) fn cost(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }

    pub(super) fn begin(&self, cost: Duration) -> Ticket {
        let micros = u64::try_from(cost.as_micros()).unwrap_or(u64::MAX).max(1);
        self.0.fetch_add(micros, Ordering::Relaxed);
        Ticket { micros, under_way: Arc::clone(&self.0) }
    }
}

/// Something is under way until this is dropped.
pub(super) struct Ticket {
    micros: u64,
    under_way: Arc<AtomicU64>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.under_way.fetch_sub(self.micros, Ordering::Relaxed);
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("micros", &self.micros).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000);

    fn guest(name: &str) -> Arc<str> {
        name.into()
    }

    /// Serves so many, each at its guest's cost, and answers who was served.
    fn serve(queues: &mut Queues<&'static str>, count: usize, cost: impl Fn(&str) -> u64) -> Vec<&'static str> {
        let mut served = Vec::new();
        for _ in 0..count {
            let Some((guest, what)) = queues.next() else { break };
            queues.charge(&guest, Duration::from_micros(cost(&guest)));
            served.push(what);
        }
        served
    }

    fn add(queues: &mut Queues<&'static str>, name: &str, what: &'static str, count: usize) {
        for _ in 0..count {
            queues.add(NOW, &guest(name), Lane::Usual, 1, what).expect("there is room");
        }
    }

    #[test]
    fn whoever_costs_much_waits_for_those_who_cost_little() {
        let mut queues = Queues::default();
        add(&mut queues, "glutton", "much", 1_000);
        add(&mut queues, "modest", "little", 100);
        let served = serve(&mut queues, 112, |it| if it == "glutton" { 10_000 } else { 1_000 });
        assert_eq!(served.iter().filter(|it| **it == "little").count(), 100);
        assert_eq!(queues.len(), 1_000 - 12);
    }

    #[test]
    fn nobody_saves_up_for_a_burst_nor_pays_for_having_been_away() {
        let mut queues = Queues::default();
        add(&mut queues, "early", "early", 100);
        serve(&mut queues, 100, |_| 1_000);
        // Whoever comes late has had nothing, but does not catch up with what others had meanwhile.
        add(&mut queues, "early", "early", 10);
        add(&mut queues, "late", "late", 10);
        let served = serve(&mut queues, 10, |_| 1_000);
        let late = served.iter().filter(|it| **it == "late").count();
        assert!((5..=6).contains(&late), "{served:?}");
        // One thing at a time is charged like many at once.
        let mut alone = Queues::default();
        add(&mut alone, "steady", "steady", 20);
        let mut served = Vec::new();
        for _ in 0..12 {
            if alone.lines.get("one by one").is_none_or(|it| it.len() == 0) {
                add(&mut alone, "one by one", "dear", 1);
            }
            served.extend(serve(&mut alone, 1, |it| if it == "steady" { 1_000 } else { 10_000 }));
        }
        assert_eq!(served.iter().filter(|it| **it == "dear").count(), 2, "{served:?}");
    }

    #[test]
    fn what_must_not_be_late_goes_first_among_its_guests_own() {
        let mut queues = Queues::default();
        add(&mut queues, "a", "usual", 2);
        queues.add(NOW, &guest("a"), Lane::First, 0, "first").expect("there is room");
        assert_eq!(serve(&mut queues, 3, |_| 1), ["first", "usual", "usual"]);
        assert!(queues.is_empty() && queues.next().is_none());
    }

    #[test]
    fn what_waits_is_bounded_by_guest_and_whoever_has_little_is_let_in() {
        let mut queues = Queues::default();
        add(&mut queues, "many", "one", WAITING_PER_GUEST_MAX);
        assert_eq!(queues.add(NOW, &guest("many"), Lane::First, 0, "one more"), Err("one more"));
        let large = WAITING_BYTES_PER_GUEST_MAX;
        for name in ["a", "b", "c", "d"] {
            queues.add(NOW, &guest(name), Lane::Usual, large - WAITING_PER_GUEST_MAX, "large").expect("there is room");
            assert!(queues.add(NOW, &guest(name), Lane::Usual, large, "larger").is_err());
        }
        assert!(queues.add(NOW, &guest("e"), Lane::Usual, large / 2, "large").is_err(), "all have much");
        queues.add(NOW, &guest("e"), Lane::Usual, WAITING_BYTES_SMALL, "small").expect("it has little");
        while queues.next().is_some() {}
        assert_eq!((queues.len(), queues.bytes), (0, 0));
    }

    #[test]
    fn whoever_has_waited_too_long_is_found_whosever_turn_it_is() {
        let mut queues = Queues::default();
        add(&mut queues, "a", "old", 1);
        queues.charge(&guest("a"), Duration::from_secs(1));
        let later = NOW + Duration::from_secs(1);
        queues.add(later, &guest("b"), Lane::Usual, 0, "new").expect("there is room");
        let patience = Duration::from_millis(500);
        assert_eq!(queues.overdue(NOW + patience, patience), None);
        assert_eq!(queues.overdue(later, patience), Some("old"));
        assert_eq!((queues.overdue(later, patience), queues.len()), (None, 1));
    }

    #[test]
    fn what_is_under_way_counts_until_its_ticket_is_dropped() {
        let under_way = UnderWay::default();
        let tickets = [under_way.begin(Duration::from_micros(5)), under_way.begin(Duration::ZERO)];
        assert_eq!(under_way.cost(), Duration::from_micros(6), "nothing is for nothing");
        drop(tickets);
        assert_eq!(under_way.cost(), Duration::ZERO);
    }
}
