//! One scenario, two worlds: the same text is run in the lab and on real nodes, and both come to the same.
//!
//! Compared is what follows from the protocol and not from chance: how many lead, whether all agree, whether the leader is the one from before, whether the term rose since. Times are not, and
//! neither is who of several equal nodes leads: where chance chose differently, the names are exchanged before the next thing is done to the nodes, so that it is done to the same one
//! in both worlds.

use std::collections::BTreeMap;
use std::path::PathBuf;

use incumbent_lab::fault::{Fault, Links};
use incumbent_lab::node::Condition;
use incumbent_lab::observation::Observer;
use incumbent_lab::scenario::{Command, Goal, parse};
use incumbent_lab::world::World as Lab;
use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::NodeId;

use crate::apart::apart;
use crate::world::{Group, LONG_PATIENCE, World};

/// So often real nodes may come to stand as those of the lab do, and not stay so: one that gets no time on its processor loses an office, and has it again.
const LOOKS_MAX: usize = 3;

/// How things stand, as far as both worlds must come to the same.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Shape {
    leaders: usize,
    agreed: bool,
    /// The one leader is the one that was when it was looked at last.
    same: bool,
    /// Its term is greater than all were then.
    later: bool,
}

/// Who led when it was looked at last, and the greatest term of a leader then.
#[derive(Copy, Clone, Default)]
struct Before {
    leader: Option<u32>,
    term: u64,
}

impl Before {
    fn shape(self, leaders: &[(u32, u64)], agreed: bool) -> Shape {
        let only = if let [only] = leaders { Some(*only) } else { None };
        Shape {
            leaders: leaders.len(),
            agreed,
            same: only.is_some_and(|it| Some(it.0) == self.leader),
            later: only.is_some_and(|it| it.1 > self.term),
        }
    }

    fn look(&mut self, leaders: &[(u32, u64)]) {
        self.leader = leaders.first().map(|it| it.0).or(self.leader);
        self.term = leaders.iter().map(|it| it.1).max().unwrap_or(0).max(self.term);
    }
}

struct Both {
    lab: Lab,
    lab_before: Before,
    real: World,
    real_before: Before,
    /// Which real node plays which of the lab.
    cast: BTreeMap<u32, u32>,
    /// Those that something is done to, so that they are not like the others any more.
    marked: Vec<u32>,
    /// Nodes of the lab that were started again since it was looked at last.
    restarted: Vec<u32>,
}

impl Both {
    #[track_caller]
    fn run(file: &str) {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(file);
        let scenario = parse(file, &std::fs::read_to_string(path).unwrap()).unwrap();
        let settings = &scenario.world.settings;
        let count = u32::try_from(settings.members().len()).unwrap();
        let group = Group::of(count).kind(scenario.world.kind);
        let group = match scenario.world.kind {
            // A smaller id serves for many times the patience before it yields.
            Kind::Bully => group,
            Kind::Raft | Kind::Ring | Kind::ChangRoberts => Group { patience: LONG_PATIENCE, ..group },
        };
        let mut real = group.at_rest();
        real.start_all();
        let mut both = Both {
            lab: Lab::new(scenario.world.clone()),
            lab_before: Before::default(),
            real,
            real_before: Before::default(),
            cast: (1..=count).map(|it| (it, it)).collect(),
            marked: Vec::new(),
            restarted: Vec::new(),
        };
        for step in scenario.steps() {
            match &step.command {
                Command::Inject(faults) => faults.iter().for_each(|it| both.inject(it)),
                Command::Run(span) => {
                    both.lab.run_for(*span);
                    // In a shorter time nothing is decided.
                    if *span > settings.pace().patience_max * 2 {
                        both.compare(&format!("{file}:{}: {}", step.line, step.text));
                    }
                }
                Command::RunUntil { goal, within } => {
                    let limit = both.lab.now() + *within;
                    let reached = |lab: &Lab| match *goal {
                        Goal::Leader => lab.leader().is_some(),
                        Goal::LeaderIs(node) => lab.leader() == Some(node),
                        Goal::NoLeader => lab.leaders().next().is_none(),
                        Goal::Agreed => lab.agreed_leader().is_some(),
                        Goal::Contest => panic!("{file}: real nodes cannot be stopped in a contest"),
                    };
                    assert!(both.lab.run_while(|lab| !reached(lab), limit), "{file}:{}: {}", step.line, step.text);
                    both.compare(&format!("{file}:{}: {}", step.line, step.text));
                }
                // What a file expects of the lab is for the lab's own tests.
                Command::ShowMessages(_) | Command::Show(_) | Command::Expect(_) => {}
            }
        }
        both.compare(&format!("{file}: at its end"));
        both.real.judge();
    }

    /// Waits until the real nodes stand as those of the lab do.
    #[track_caller]
    fn compare(&mut self, at: &str) {
        let lab_leaders = in_office(&self.lab);
        let wanted = self.lab_before.shape(&lab_leaders, self.lab.agreed_leader().is_some());
        let before = self.real_before;
        let up = self.real.running();
        // Whether a leader that was started again leads again is left to chance.
        let by_chance = self.lab_before.leader.is_some_and(|it| self.restarted.contains(&it));
        let shape = |scene: &crate::oracle::Scene| {
            let found = before.shape(&scene.leaders(), scene.agreed(&up).is_some());
            Shape { same: if by_chance { wanted.same } else { found.same }, ..found }
        };
        // Where ids decide, who leads is not left to chance.
        let ids = |leaders: &[(u32, u64)]| leaders.iter().map(|it| it.0).collect::<Vec<_>>();
        let exact = self.real.group.kind == Kind::Bully;
        let mut found = None;
        for _ in 0..LOOKS_MAX {
            self.real.until(&format!("{at}: {wanted:?}, as in the lab"), |scene| {
                shape(scene) == wanted && (!exact || ids(&scene.leaders()) == ids(&lab_leaders))
            });
            // It must not be for a moment only.
            self.real.watch(self.real.patience(1));
            found = Some(shape(&self.real.scene));
            if found == Some(wanted) {
                break;
            }
        }
        assert_eq!(found, Some(wanted), "{at}: real nodes, and those of the lab\n{}", self.real.told());
        self.restarted.clear();
        self.lab_before.look(&lab_leaders);
        self.real_before.look(&self.real.scene.leaders());
    }

    /// Does the same to both. If chance made different nodes leaders, they exchange their names first.
    #[track_caller]
    fn inject(&mut self, fault: &Fault) {
        if let ([(lab, _)], [(real, _)]) = (&in_office(&self.lab)[..], &self.real.look().leaders()[..]) {
            let played = self.cast[lab];
            let other = *self.cast.iter().find(|it| it.1 == real).unwrap().0;
            if played != *real {
                assert!(!self.marked.contains(lab) && !self.marked.contains(&other), "{lab} and {other} are not alike any more");
                self.cast.insert(*lab, *real);
                self.cast.insert(other, played);
            }
        }
        self.lab.inject(fault.clone());
        self.marked.extend(fault.nodes().iter().map(|it| it.0));
        let cast = |node: &NodeId| self.cast[&node.0];
        match fault {
            Fault::Crash(node) => self.real.kill(cast(node)),
            Fault::Restart(node) => {
                self.real.start(cast(node));
                self.restarted.push(node.0);
            }
            Fault::Pause(node) => self.real.pause(cast(node)),
            Fault::Resume(node) => self.real.resume(cast(node)),
            Fault::Isolate(node) => self.real.network.unplug(cast(node)),
            Fault::Rejoin(node) => self.real.network.plug_in(cast(node)),
            Fault::Cut(Links::OneWay { from, to }) => self.real.network.cut_one_way(cast(from), cast(to)),
            Fault::Cut(Links::Between(a, b)) => self.real.network.cut(cast(a), cast(b)),
            Fault::Partition(groups) => {
                let groups: Vec<Vec<u32>> = groups.iter().map(|it| it.iter().map(cast).collect()).collect();
                let parts: Vec<&[u32]> = groups.iter().map(Vec::as_slice).collect();
                self.real.partition(&parts);
            }
            Fault::Mend(Links::All) | Fault::Heal => {
                self.marked.clear();
                self.real.heal();
            }
            Fault::Slow { .. }
            | Fault::Cut(Links::All)
            | Fault::Mend(Links::Between(..) | Links::OneWay { .. })
            | Fault::Flap { .. }
            | Fault::Delay { .. }
            | Fault::Spikes { .. }
            | Fault::Loss { .. }
            | Fault::Duplicate { .. }
            | Fault::Reorder { .. }
            | Fault::ClockRate { .. }
            | Fault::ClockJump { .. }
            | Fault::ClockFreeze { .. }
            | Fault::DiskSlow { .. }
            | Fault::DiskStall(_)
            | Fault::DiskNormal(_)
            | Fault::Request { .. }
            | Fault::ResetStorm { .. } => panic!("'{fault}' cannot be done to real nodes here"),
        }
    }
}

fn in_office<O: Observer>(lab: &Lab<O>) -> Vec<(u32, u64)> {
    let up = lab.nodes().iter().filter(|it| it.condition() != Condition::Down);
    up.filter_map(|it| it.in_office(lab.now()).map(|term| (it.id().0, term.0))).collect()
}

#[test]
fn c01_a_leader_is_killed_in_the_lab_and_in_the_world() {
    apart(|| Both::run("raft/leader_crash.txt"));
}

#[test]
fn c06_all_are_killed_in_the_lab_and_in_the_world() {
    apart(|| Both::run("faults/c06_all_killed_and_restarted.txt"));
}

#[test]
fn c13_a_leader_pauses_in_the_lab_and_in_the_world() {
    apart(|| Both::run("faults/c13_leader_pauses_guarded.txt"));
}

#[test]
fn c16_a_leader_is_isolated_in_the_lab_and_in_the_world() {
    apart(|| {
        Both::run("faults/c16_isolated_leader_raft.txt");
        Both::run("faults/c16_isolated_leader_ring.txt");
    });
}

#[test]
fn c16_the_majority_of_a_split_group_elects_in_the_lab_and_in_the_world() {
    apart(|| Both::run("bully/partition_guarded.txt"));
}

#[test]
fn c19_a_leader_hears_nobody_in_the_lab_and_in_the_world() {
    apart(|| Both::run("faults/c19_one_way_followers_to_leader.txt"));
}
