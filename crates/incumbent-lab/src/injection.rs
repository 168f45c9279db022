//! How faults are done to a world.

use std::time::Duration;

use incumbent_protocol::protocol::{Input, NodeId, Request};

use crate::fault::{Fault, Links};
use crate::node::{Condition, Letter};
use crate::observation::{Moment, Observation, Observer};
use crate::trace::Happening;
use crate::world::{Pending, World};

impl<O: Observer> World<O> {
    /// Plans `fault` for `at`, or for now if that is past.
    ///
    /// # Panics
    /// If it names a stranger: see [`Fault::stranger`].
    pub fn schedule(&mut self, at: Moment, fault: Fault) {
        self.refuse_strangers(&fault);
        self.queue.put(at.max(self.now), Pending::Fault { plan: self.plan, fault: Box::new(fault) });
    }

    /// Does `fault` to the world now.
    ///
    /// # Panics
    /// If it names a stranger: see [`Fault::stranger`].
    pub fn inject(&mut self, fault: Fault) {
        self.refuse_strangers(&fault);
        self.trace.record(self.now, || Happening::Done(fault.clone()));
        let now = self.now;
        match fault {
            Fault::Crash(node) => self.crash(self.rank(node)),
            Fault::Restart(node) => self.restart(self.rank(node)),
            Fault::Pause(node) => self.pause(self.rank(node)),
            Fault::Resume(node) => self.resume(self.rank(node)),
            Fault::Slow { node, by } => self.slow(self.rank(node), by),
            Fault::Cut(links) => {
                let ways = self.ways(links);
                self.network.cut(ways);
            }
            Fault::Mend(Links::All) => self.network.mend_all(),
            Fault::Mend(links @ (Links::Between(..) | Links::OneWay { .. })) => {
                let ways = self.ways(links);
                self.network.mend(ways);
            }
            Fault::Flap { links, period } => {
                let ways = self.ways(links);
                self.network.flap(ways, now, period);
            }
            Fault::Partition(groups) => {
                let of = |(group, nodes): (u32, &Vec<NodeId>)| nodes.iter().map(move |node| (*node, group)).collect::<Vec<_>>();
                let named: Vec<_> = (0..).zip(&groups).flat_map(of).map(|(node, group)| (self.rank(node), group)).collect();
                self.network.partition(named);
            }
            Fault::Isolate(node) => self.network.isolate(self.rank(node), true),
            Fault::Rejoin(node) => self.network.isolate(self.rank(node), false),
            Fault::Delay { links, delay } => self.change(links, |quality| quality.delay = delay),
            Fault::Spikes { links, ppm, by } => self.change(links, |quality| (quality.spike_ppm, quality.spike) = (ppm, by)),
            Fault::Loss { links, ppm } => self.change(links, |quality| quality.loss_ppm = ppm),
            Fault::Duplicate { links, ppm } => self.change(links, |quality| quality.duplicate_ppm = ppm),
            Fault::Reorder { links, ppm, by } => self.change(links, |quality| (quality.reorder_ppm, quality.reorder) = (ppm, by)),
            Fault::ClockRate { node, ppm } => self.turn_clock(node, |clock| clock.set_rate(now, ppm)),
            Fault::ClockJump { node, by } => self.turn_clock(node, |clock| clock.jump(now, by)),
            Fault::ClockFreeze { node, lasting } => {
                self.turn_clock(node, |clock| clock.freeze(now));
                let thaw = Pending::Thaw { plan: self.plan, node: self.rank(node), stopped: now };
                self.queue.put(now + lasting, thaw);
            }
            Fault::DiskSlow { node, by } => self.disk(node).slow(by),
            Fault::DiskStall(node) => self.disk(node).stall(),
            Fault::DiskNormal(node) => self.restore_disk(self.rank(node)),
            Fault::Request { node, request } => self.give(self.rank(node), now, Input::Request(request)),
            Fault::ResetStorm { every, times } => self.reset_connections(every, times),
            Fault::Heal => self.restore_all(),
        }
    }

    /// Everything works again: see [`Fault::Heal`].
    pub fn heal(&mut self) {
        self.inject(Fault::Heal);
    }

    /// Every follower is told that its leader may be gone, and again `every` so often, `times` in all.
    pub(crate) fn reset_connections(&mut self, every: Duration, times: u32) {
        if times == 0 {
            return;
        }
        for node in self.ranks() {
            let it = &self.nodes[node as usize];
            if let Some(peer) = it.view.and_then(|view| view.leader).filter(|leader| *leader != it.id) {
                self.give(node, self.now, Input::Request(Request::Suspect { peer }));
            }
        }
        self.queue.put(self.now + every, Pending::Resets { plan: self.plan, every, times: times - 1 });
    }

    fn restart(&mut self, node: u32) {
        if self.nodes[node as usize].condition == Condition::Down {
            self.start(node);
        }
    }

    fn pause(&mut self, node: u32) {
        let it = &mut self.nodes[node as usize];
        if it.condition == Condition::Up {
            it.condition = Condition::Paused;
            // The letter it was at work on has its turn anew when the node goes on.
            it.working = false;
            it.work += 1;
        }
    }

    fn resume(&mut self, node: u32) {
        let it = &mut self.nodes[node as usize];
        if it.condition != Condition::Paused {
            return;
        }
        it.condition = Condition::Up;
        // Both its timer and its socket are ready: a real node may look at either first.
        let timer_first = self.faults.happens(500_000);
        if timer_first && it.wake.due <= self.now && !it.wake.waiting {
            it.inbox.push_front(Letter { sent: self.now, input: Input::Wake });
            it.wake.waiting = true;
        }
        self.queue_work(node);
        self.queue_wake(node);
    }

    fn slow(&mut self, node: u32, by: Duration) {
        let it = &mut self.nodes[node as usize];
        it.slow = by;
        it.working = false;
        it.work += 1;
        self.queue_work(node);
    }

    fn restore_disk(&mut self, node: u32) {
        let disk = &mut self.nodes[node as usize].disk;
        let due = disk.restore(self.now);
        let generation = disk.generation();
        for at in due {
            self.queue.put(at, Pending::Written { node, generation });
        }
    }

    fn restore_all(&mut self) {
        self.plan += 1;
        self.network.restore();
        for node in self.ranks() {
            self.restore_disk(node);
            self.nodes[node as usize].clock.restore(self.now);
            self.clock_changed(node);
            self.slow(node, Duration::ZERO);
            self.resume(node);
            self.restart(node);
        }
        self.notice(&Observation::Healed);
    }

    fn turn_clock(&mut self, node: NodeId, turn: impl FnOnce(&mut crate::clock::Clock)) {
        let rank = self.rank(node);
        turn(&mut self.nodes[rank as usize].clock);
        self.clock_changed(rank);
    }

    fn disk(&mut self, node: NodeId) -> &mut crate::disk::Disk {
        let rank = self.rank(node);
        &mut self.nodes[rank as usize].disk
    }

    fn change(&mut self, links: Links, change: impl Fn(&mut crate::network::Quality)) {
        match links {
            Links::All => self.network.change_all(change),
            Links::Between(..) | Links::OneWay { .. } => {
                let ways = self.ways(links);
                self.network.change(ways, change);
            }
        }
    }

    fn ways(&self, links: Links) -> Vec<(u32, u32)> {
        match links {
            Links::All => {
                let ways = self.ranks().flat_map(|from| self.ranks().map(move |to| (from, to)));
                ways.filter(|(from, to)| from != to).collect()
            }
            Links::Between(a, b) => {
                let (a, b) = (self.rank(a), self.rank(b));
                vec![(a, b), (b, a)]
            }
            Links::OneWay { from, to } => vec![(self.rank(from), self.rank(to))],
        }
    }

    fn refuse_strangers(&self, fault: &Fault) {
        if let Some(node) = fault.stranger(&self.settings) {
            panic!("'{fault}' names node {node}, which is no member");
        }
    }
}
