//! From a run that fails to a smaller one that fails in the same way.
//!
//! Everything is tried that could make a plan simpler: leaving out half of its troubles, then ever smaller parts of them
//! (Zeller and Hildebrandt 2002, *ddmin*), then a node, a special setting, a kind of weather. What still breaks the same oracle
//! is kept, until nothing can be left out any more or the patience for runs is used up.

use std::time::Duration;

use incumbent_protocol::protocol::NodeId;
use incumbent_protocol::settings::{Detection, Guard, Pace, PreVote, Takeover};

use crate::clock::ClockSettings;
use crate::disk::DiskSettings;
use crate::network::{Delay, NetworkSettings};
use crate::plan::{Plan, Trouble};
use crate::swarm::run;

/// What shrinking came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shrunk {
    /// The smallest plan found that still fails.
    pub plan: Plan,
    /// How many runs it took.
    pub runs: u32,
}

/// The smallest plan that still breaks `oracle`, found in at most `runs_max` runs.
pub fn shrink(plan: &Plan, oracle: &str, runs_max: u32) -> Shrunk {
    shrink_while(plan, runs_max, |candidate| run(candidate).breaks(oracle))
}

/// The same for any way to fail. `fails` must be true of `plan` itself.
pub fn shrink_while(plan: &Plan, runs_max: u32, fails: impl FnMut(&Plan) -> bool) -> Shrunk {
    let mut search = Search { best: plan.clone(), fails, runs_left: runs_max };
    // What is left out in one way may open another: until a whole round changes nothing.
    loop {
        let before = search.best.clone();
        search.fewer_troubles();
        search.fewer_that_stay_down_or_out();
        search.fewer_nodes();
        search.simpler_settings();
        search.shorter();
        if search.best == before || search.runs_left == 0 {
            return Shrunk { plan: search.best, runs: runs_max - search.runs_left };
        }
    }
}

struct Search<F> {
    best: Plan,
    fails: F,
    runs_left: u32,
}

impl<F: FnMut(&Plan) -> bool> Search<F> {
    /// Keeps `candidate` if it is another plan and still fails.
    fn keep(&mut self, candidate: Plan) -> bool {
        if candidate == self.best || self.runs_left == 0 {
            return false;
        }
        self.runs_left -= 1;
        let fails = (self.fails)(&candidate);
        if fails {
            self.best = candidate;
        }
        fails
    }

    fn fewer_troubles(&mut self) {
        let mut size = self.best.troubles.len();
        while size > 0 {
            let mut from = 0;
            while from < self.best.troubles.len() {
                let mut candidate = self.best.clone();
                let to = (from + size).min(candidate.troubles.len());
                candidate.troubles.drain(from..to);
                if !self.keep(candidate) {
                    from += size;
                }
            }
            size /= 2;
        }
        // Of a trouble with many steps, some may do. The first one is what the others follow from.
        for trouble in 0..self.best.troubles.len() {
            let mut step = 1;
            while step < self.best.troubles[trouble].steps.len() {
                let mut candidate = self.best.clone();
                candidate.troubles[trouble].steps.remove(step);
                if !self.keep(candidate) {
                    step += 1;
                }
            }
        }
    }

    fn fewer_nodes(&mut self) {
        while self.best.nodes > 1 {
            if let Some(candidate) = without_greatest(&self.best)
                && self.keep(candidate)
            {
                continue;
            }
            return;
        }
    }

    fn fewer_that_stay_down_or_out(&mut self) {
        for index in (0..self.best.stay_down.len()).rev() {
            let mut candidate = self.best.clone();
            candidate.stay_down.remove(index);
            self.keep(candidate);
        }
        for index in (0..self.best.stay_out.len()).rev() {
            let mut candidate = self.best.clone();
            candidate.stay_out.remove(index);
            self.keep(candidate);
        }
    }

    fn simpler_settings(&mut self) {
        // Of each aspect the simplest that still fails.
        let aspects: [&[fn(&mut Plan)]; 11] = [
            &[|plan| plan.resets_in_calm = false],
            &[
                |plan| plan.network = NetworkSettings::constant(Duration::from_millis(1)),
                |plan| plan.network = NetworkSettings { refusal: plan.network.refusal, ..NetworkSettings::LAN },
            ],
            &[|plan| plan.disk = DiskSettings::INSTANT, |plan| plan.disk = DiskSettings::FAST],
            &[|plan| plan.clocks = ClockSettings::EXACT],
            &[|plan| plan.obliges = Delay::NONE],
            &[|plan| plan.guard = if plan.guard == Guard::Off { Guard::Off } else { Guard::Majority }],
            &[|plan| plan.detection = Detection::Fixed],
            &[|plan| plan.takeover = Takeover::WhenFree],
            &[|plan| plan.pre_vote = PreVote::On],
            &[|plan| plan.favourite = None],
            &[|plan| plan.ring.sort_unstable()],
        ];
        for options in aspects {
            for simplify in options {
                let mut candidate = self.best.clone();
                simplify(&mut candidate);
                if candidate == self.best || self.keep(candidate) {
                    break;
                }
            }
        }
        if self.best.pace != Pace::LAN && self.best.troubles.is_empty() {
            self.keep(Plan { pace: Pace::LAN, ..self.best.clone() });
        }
    }

    /// Ends the faults sooner.
    fn shorter(&mut self) {
        let last = self.best.troubles.iter().flat_map(|it| &it.steps).map(|(at, _)| *at).max().unwrap_or_default();
        for faults_for in [Duration::ZERO, last + Duration::from_millis(1), self.best.faults_for / 2] {
            if faults_for < self.best.faults_for {
                self.keep(Plan { faults_for, ..self.best.clone() });
            }
        }
    }
}

/// The plan with one node less and without what happened to it; `None` if its quorum would not fit.
fn without_greatest(plan: &Plan) -> Option<Plan> {
    let gone = NodeId(plan.nodes);
    let left = plan.nodes - 1;
    if let Guard::Quorum(size) = plan.guard
        && (size > left as usize || size <= left as usize / 2)
    {
        return None;
    }
    let mut plan = plan.clone();
    plan.nodes = left;
    plan.ring.retain(|node| *node != gone);
    plan.stay_down.retain(|node| *node != gone);
    plan.stay_out.retain(|node| *node != gone);
    plan.favourite = plan.favourite.filter(|node| *node != gone);
    for Trouble { steps, .. } in &mut plan.troubles {
        steps.retain(|(_, fault)| !fault.nodes().contains(&gone));
    }
    plan.troubles.retain(|trouble| !trouble.steps.is_empty());
    // Those that are left must be able to elect someone, or failing to would be no fault of theirs.
    let willing = |node: &NodeId| !plan.stay_down.contains(node) && !plan.stay_out.contains(node);
    let somebody = (1..=left).map(NodeId).any(|node| willing(&node));
    (somebody && plan.nodes as usize - plan.stay_down.len() >= plan.needed()).then_some(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;
    use crate::plan::Aim;
    use incumbent_protocol::machine::Kind;

    fn crashes(plan: &Plan, node: u32) -> bool {
        plan.troubles.iter().flat_map(|it| &it.steps).any(|(_, fault)| *fault == Fault::Crash(NodeId(node)))
    }

    /// A plan with much in it, that crashes nodes 1 and 2.
    fn rich() -> Plan {
        let plans = (0..).map(|seed| Plan::draw(seed, Some(Kind::Ring)));
        let rich = |plan: &Plan| plan.nodes == 5 && plan.troubles.len() > 8 && plan.detection == Detection::Adaptive;
        plans.into_iter().find(|plan| rich(plan) && crashes(plan, 1) && crashes(plan, 2)).expect("chance is kind")
    }

    #[test]
    fn all_that_does_not_matter_is_left_out() {
        let plan = rich();
        let shrunk = shrink_while(&plan, 10_000, |plan| crashes(plan, 2) && plan.nodes >= 3);
        let small = &shrunk.plan;
        assert_eq!((small.nodes, small.troubles.len(), small.troubles[0].steps.len()), (3, 1, 1));
        assert_eq!((small.detection, small.disk.latency, small.clocks), (Detection::Fixed, Delay::NONE, ClockSettings::EXACT));
        assert_eq!(small.ring, [1, 2, 3].map(NodeId));
        assert!(small.faults_for.is_zero());
        assert_eq!(small.seed, plan.seed);
        small.settings();
    }

    #[test]
    fn what_matters_together_stays_together() {
        let both = |plan: &Plan| crashes(plan, 1) && crashes(plan, 2);
        let shrunk = shrink_while(&rich(), 10_000, both);
        assert!(both(&shrunk.plan));
        assert_eq!((shrunk.plan.nodes, shrunk.plan.troubles.len()), (2, 2));
    }

    #[test]
    fn patience_for_runs_ends_and_a_failing_plan_comes_back_in_any_case() {
        let plan = rich();
        let mut runs = 0;
        let shrunk = shrink_while(&plan, 7, |_| {
            runs += 1;
            false
        });
        assert_eq!((shrunk.plan, shrunk.runs, runs), (plan, 7, 7));
    }

    #[test]
    fn a_node_is_left_out_with_all_that_names_it_and_a_quorum_is_kept() {
        let mut plan = rich();
        let trouble = |fault| Trouble { aim: Aim::AsDrawn, steps: vec![(Duration::ZERO, fault)] };
        plan.favourite = Some(NodeId(5));
        plan.stay_down = vec![NodeId(5), NodeId(1)];
        plan.troubles = vec![trouble(Fault::cut(NodeId(5), NodeId(1))), trouble(Fault::Crash(NodeId(4)))];
        plan.guard = Guard::Majority;
        let less = without_greatest(&plan).expect("a majority fits");
        assert_eq!((less.nodes, less.favourite, less.troubles.len()), (4, None, 1));
        assert_eq!(less.stay_down, [NodeId(1)]);
        less.settings();
        assert_eq!(without_greatest(&Plan { stay_down: vec![NodeId(1), NodeId(2)], ..plan.clone() }), None);
        plan.guard = Guard::Quorum(5);
        assert_eq!(without_greatest(&plan), None);
    }
}
