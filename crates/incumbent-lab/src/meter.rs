//! What a run cost and how long nobody, or more than one, was in office.
//!
//! Time in office is time of *belief*, in true time: a node is in office from the moment it says so until it says
//! otherwise, crashes, or its belief runs out. A node that is paused believes on.

use std::time::Duration;

use incumbent_protocol::protocol::{Event, NodeId, Purpose, Term};

use crate::observation::{Moment, Observation, Observer};

/// The figures of a run so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Meter {
    messages: Vec<Tally>,
    /// By [`place`] of the purpose.
    bytes: [u64; 3],
    steps: u64,
    elections: u64,
    elected: u64,
    lost: u64,
    crashes: u64,
    first_leader: Option<Moment>,
    /// Figures of belief are right up to here.
    up_to: Moment,
    believers: Vec<Belief>,
    reigns: Vec<Reign>,
    vacancies: Vec<Interval>,
    overlaps: Vec<Interval>,
}

/// How often a message was sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Tally {
    /// The message's name.
    pub name: &'static str,
    /// What it is for.
    pub purpose: Purpose,
    /// How often.
    pub count: u64,
}

/// A time from one moment to another, the second not included.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Interval {
    /// When it began.
    pub from: Moment,
    /// When it ended; so far, if it still goes on.
    pub to: Moment,
}

impl Interval {
    /// How long it was.
    pub fn length(&self) -> Duration {
        self.to - self.from
    }
}

/// The time in which a node held itself to be in office, without a break.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Reign {
    /// Who.
    pub node: NodeId,
    /// In which term.
    pub term: Term,
    /// From when to when.
    pub during: Interval,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Belief {
    node: NodeId,
    term: Term,
    from: Moment,
    until: Moment,
}

impl Belief {
    fn reign(&self, to: Moment) -> Reign {
        Reign { node: self.node, term: self.term, during: Interval { from: self.from, to } }
    }
}

impl Meter {
    /// Messages sent, by name, in the order in which they were first sent. Lost ones count, second copies do not.
    pub fn by_name(&self) -> &[Tally] {
        &self.messages
    }

    /// Messages sent for `purpose`.
    pub fn by_purpose(&self, purpose: Purpose) -> u64 {
        self.messages.iter().filter(|tally| tally.purpose == purpose).map(|tally| tally.count).sum()
    }

    /// All messages sent.
    pub fn messages(&self) -> u64 {
        self.messages.iter().map(|tally| tally.count).sum()
    }

    /// Their length together, without frames.
    pub fn bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// The length of those sent for `purpose`.
    pub fn bytes_by_purpose(&self, purpose: Purpose) -> u64 {
        self.bytes[place(purpose)]
    }

    /// Things that happened in the world: arrivals, wake-ups, completed writes, requests, faults.
    pub fn events(&self) -> u64 {
        self.steps
    }

    /// How often a node began to contend.
    pub fn elections(&self) -> u64 {
        self.elections
    }

    /// How often a node took office.
    pub fn elected(&self) -> u64 {
        self.elected
    }

    /// How often a node left office other than by a crash.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// How often a node crashed.
    pub fn crashes(&self) -> u64 {
        self.crashes
    }

    /// When the first node took office.
    pub fn first_leader(&self) -> Option<Moment> {
        self.first_leader
    }

    /// Who was in office when: first those that have ended, in the order in which they did, then those that go on.
    pub fn reigns(&self) -> impl Iterator<Item = Reign> {
        self.reigns.iter().copied().chain(self.believers.iter().map(|belief| belief.reign(self.up_to)))
    }

    /// The times in which nobody was in office. The first begins with the world.
    pub fn vacancies(&self) -> &[Interval] {
        &self.vacancies
    }

    /// How long nobody was in office, in total.
    pub fn leaderless(&self) -> Duration {
        self.vacancies.iter().map(Interval::length).sum()
    }

    /// The times in which more than one was in office: the split-brain incidents.
    pub fn overlaps(&self) -> &[Interval] {
        &self.overlaps
    }

    /// How long more than one was in office, in total.
    pub fn overlap(&self) -> Duration {
        self.overlaps.iter().map(Interval::length).sum()
    }

    /// And the longest such time.
    pub fn longest_overlap(&self) -> Duration {
        self.overlaps.iter().map(Interval::length).max().unwrap_or_default()
    }

    /// Counts the time up to `at`, in which nothing else happened.
    pub fn advance(&mut self, at: Moment) {
        while let Some(end) = self.believers.iter().map(|belief| belief.until).min().filter(|end| *end <= at) {
            self.pass(end);
            self.end(end, |belief| belief.until <= end);
        }
        self.pass(at);
    }

    pub(crate) fn count_event(&mut self) {
        self.steps += 1;
    }

    pub(crate) fn count_bytes(&mut self, purpose: Purpose, bytes: usize) {
        self.bytes[place(purpose)] += bytes as u64;
    }

    /// Counts the time up to `at`, in which nobody came or went.
    fn pass(&mut self, at: Moment) {
        if at <= self.up_to {
            return;
        }
        let times = match self.believers.len() {
            0 => Some(&mut self.vacancies),
            1 => None,
            _ => Some(&mut self.overlaps),
        };
        if let Some(times) = times {
            match times.last_mut() {
                // The same incident goes on, though perhaps with others.
                Some(last) if last.to == self.up_to => last.to = at,
                Some(_) | None => times.push(Interval { from: self.up_to, to: at }),
            }
        }
        self.up_to = at;
    }

    fn enter(&mut self, at: Moment, node: NodeId, term: Term, until: Moment) {
        self.advance(at);
        match self.believers.iter_mut().find(|belief| belief.node == node && belief.term == term) {
            Some(belief) => belief.until = until,
            None => {
                self.end(at, |belief| belief.node == node);
                self.first_leader.get_or_insert(at);
                self.believers.push(Belief { node, term, from: at, until });
            }
        }
    }

    fn leave(&mut self, at: Moment, node: NodeId) {
        self.advance(at);
        self.end(at, |belief| belief.node == node);
    }

    fn end(&mut self, at: Moment, ended: impl Fn(&Belief) -> bool) {
        let reigns = &mut self.reigns;
        self.believers.retain(|belief| {
            if ended(belief) {
                reigns.push(belief.reign(at));
            }
            !ended(belief)
        });
    }

    fn sent(&mut self, name: &'static str, purpose: Purpose) {
        // A handful of names: looking through them is faster than any map, and it keeps their order.
        match self.messages.iter_mut().find(|tally| std::ptr::eq(tally.name, name) || tally.name == name) {
            Some(tally) => tally.count += 1,
            None => self.messages.push(Tally { name, purpose, count: 1 }),
        }
    }
}

impl Observer for Meter {
    fn observe(&mut self, at: Moment, seen: &Observation<'_>) {
        match *seen {
            Observation::InOffice { node, term, until } => self.enter(at, node, term, until),
            Observation::OutOfOffice { node, term: _ } => self.leave(at, node),
            Observation::Sent { name, purpose, from: _, to: _, claim: _, durable: _ } => self.sent(name, purpose),
            Observation::Told { node: _, event } => match event {
                Event::Contends { .. } => self.elections += 1,
                Event::Elected { .. } => self.elected += 1,
                Event::Lost { .. } => self.lost += 1,
                Event::Follows { .. }
                | Event::LeaderGone { .. }
                | Event::Rejected { .. }
                | Event::Asked { .. }
                | Event::Ignored { .. } => {}
            },
            Observation::Crashed { node: _ } => self.crashes += 1,
            Observation::Started { node: _, disk: _ } | Observation::Healed => {}
        }
    }
}

fn place(purpose: Purpose) -> usize {
    match purpose {
        Purpose::Contest => 0,
        Purpose::Guard => 1,
        Purpose::Upkeep => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(meter: &mut Meter, at: u64, node: u32, until: u64) {
        meter.observe(Moment(at), &Observation::InOffice { node: NodeId(node), term: Term(1), until: Moment(until) });
    }

    fn out(meter: &mut Meter, at: u64, node: u32) {
        meter.observe(Moment(at), &Observation::OutOfOffice { node: NodeId(node), term: Term(1) });
    }

    fn overlaps(meter: &Meter) -> Vec<(u64, u64)> {
        meter.overlaps().iter().map(|overlap| (overlap.from.0, overlap.to.0)).collect()
    }

    #[test]
    fn time_without_a_leader_is_counted_also_when_a_belief_runs_out_unseen() {
        let mut meter = Meter::default();
        within(&mut meter, 10, 1, 30);
        within(&mut meter, 20, 1, 40);
        within(&mut meter, 100, 2, 200);
        out(&mut meter, 150, 2);
        meter.advance(Moment(160));
        assert_eq!(meter.leaderless(), Duration::from_nanos(10 + 60 + 10));
        assert_eq!(meter.first_leader(), Some(Moment(10)));
        let vacancies: Vec<_> = meter.vacancies().iter().map(|vacancy| (vacancy.from.0, vacancy.to.0)).collect();
        assert_eq!(vacancies, [(0, 10), (40, 100), (150, 160)]);
        let reigns: Vec<_> = meter.reigns().map(|it| (it.node.0, it.during.from.0, it.during.to.0)).collect();
        assert_eq!(reigns, [(1, 10, 40), (2, 100, 150)]);
        assert_eq!(meter.overlap(), Duration::ZERO);
    }

    #[test]
    fn overlaps_are_counted_once_each_with_their_length() {
        let mut meter = Meter::default();
        within(&mut meter, 0, 1, 100);
        within(&mut meter, 60, 2, u64::MAX); // two, until the first runs out at 100
        within(&mut meter, 200, 3, 300); // two again
        within(&mut meter, 250, 1, 260); // three for a while: the same incident
        out(&mut meter, 280, 2); // one
        meter.advance(Moment(400));
        assert_eq!(overlaps(&meter), [(60, 100), (200, 280)]);
        assert_eq!((meter.overlap().as_nanos(), meter.longest_overlap().as_nanos()), (120, 80));
        assert_eq!(meter.leaderless(), Duration::from_nanos(100));
    }

    #[test]
    fn beliefs_that_ran_out_one_after_the_other_end_each_in_its_time() {
        let mut meter = Meter::default();
        within(&mut meter, 0, 1, 10);
        within(&mut meter, 0, 2, 30);
        within(&mut meter, 0, 3, 20);
        meter.advance(Moment(100));
        assert_eq!(overlaps(&meter), [(0, 20)]);
        assert_eq!(meter.leaderless(), Duration::from_nanos(70));
    }

    #[test]
    fn beliefs_that_touch_do_not_overlap() {
        let mut meter = Meter::default();
        within(&mut meter, 0, 1, 100);
        within(&mut meter, 100, 2, 200);
        out(&mut meter, 150, 2);
        within(&mut meter, 150, 1, 300);
        meter.advance(Moment(500));
        assert_eq!(overlaps(&meter), []);
        assert_eq!(meter.leaderless(), Duration::from_nanos(200));
    }

    #[test]
    fn a_belief_that_is_shortened_ends_when_it_now_says() {
        let mut meter = Meter::default();
        within(&mut meter, 0, 1, 1000);
        within(&mut meter, 10, 1, 20);
        meter.advance(Moment(50));
        assert_eq!(meter.leaderless(), Duration::from_nanos(30));
    }
}
