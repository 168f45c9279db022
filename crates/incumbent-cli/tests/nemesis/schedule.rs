//! What the nemesis does: each kind of fault in turn, in an order, at nodes and for times that follow from the seed.
//!
//! Who leads is asked when a fault that wants to know begins. So the same seed does the same in the same order, though not to the same instruction.

use std::time::{Duration, Instant};

use incumbent_client::administration::{
    AddMember, Administration, AskCluster, Attended, ClusterView, Membership, RemoveMember, TransferLeadership,
};
use incumbent_client::client::Client;
use incumbent_protocol::chance::Chance;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::cluster::{Cluster, node_address};
use crate::history::History;

/// What an operator asks of a healthy cluster is done in so long, also on a busy machine.
const OPERATION_MAX: Duration = Duration::from_secs(60);

/// One answer is awaited so long, then it is asked again.
const ANSWER_MAX: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// kill -9.
    Kill,
    /// All at once, as when the power fails (though what the kernel holds is not lost).
    KillAll,
    /// SIGSTOP.
    Pause,
    /// Reaches no node and is reached by none; by clients it is.
    Isolate,
    /// The cable is pulled: clients do not reach it either.
    Unplug,
    /// It hears no node, and is heard.
    Deafen,
    /// It hears all, and no node hears it.
    Mute,
    /// Whoever leads and one other do not reach each other.
    Part,
    /// SIGTERM, one after the other.
    RollingRestart,
    /// Another is to lead.
    Transfer,
    /// A new node comes, and goes.
    Change,
}

const FAULTS: [Fault; 11] = [
    Fault::Kill,
    Fault::KillAll,
    Fault::Pause,
    Fault::Isolate,
    Fault::Unplug,
    Fault::Deafen,
    Fault::Mute,
    Fault::Part,
    Fault::RollingRestart,
    Fault::Transfer,
    Fault::Change,
];

pub(crate) struct Nemesis<'a> {
    pub(crate) cluster: &'a mut Cluster,
    pub(crate) runtime: &'a Runtime,
    pub(crate) workers: &'a mut JoinSet<()>,
    pub(crate) control: Client,
    pub(crate) history: &'a History,
    pub(crate) chance: Chance,
    pub(crate) next_id: u32,
}

impl Nemesis<'_> {
    /// Goes on for so long, and then heals everything. Returns how much it has done.
    pub(crate) fn rage(&mut self, span: Duration) -> usize {
        let (began, mut bag, mut count) = (Instant::now(), Vec::new(), 0);
        self.wait(500, 1000);
        while began.elapsed() < span {
            if bag.is_empty() {
                bag = FAULTS.to_vec();
            }
            let fault = bag.swap_remove(self.below(bag.len()));
            self.inflict(fault);
            count += 1;
            self.wait(200, 1200);
        }
        self.cluster.heal();
        self.note("healed".into());
        count
    }

    fn inflict(&mut self, fault: Fault) {
        let leader = self.leader();
        let ids = self.cluster.ids();
        let chosen = ids[self.below(ids.len())];
        // Mostly the one that it hurts most.
        let target = leader.filter(|_| self.chance.below(3) > 0).unwrap_or(chosen);
        let others: Vec<u32> = ids.iter().copied().filter(|it| *it != target).collect();
        self.note(format!("{fault:?} {target}, {leader:?} leads"));
        match fault {
            Fault::Kill => {
                self.cluster.kill(target);
                self.wait(50, 2000);
                self.cluster.run(target);
            }
            Fault::KillAll => {
                ids.iter().for_each(|it| self.cluster.kill(*it));
                self.wait(0, 500);
                ids.iter().for_each(|it| self.cluster.run(*it));
            }
            Fault::Pause => {
                self.cluster.pause(target);
                self.wait(100, 2500);
                self.cluster.resume(target);
            }
            Fault::Isolate => {
                others.iter().for_each(|it| self.cluster.network.cut(target, *it));
                self.wait(300, 2500);
                others.iter().for_each(|it| self.cluster.network.mend(target, *it));
            }
            Fault::Unplug => {
                self.cluster.network.unplug(target);
                self.wait(300, 2500);
                self.cluster.network.plug_in(target);
            }
            Fault::Deafen => {
                others.iter().for_each(|it| self.cluster.network.cut_one_way(*it, target));
                self.wait(300, 2500);
                others.iter().for_each(|it| self.cluster.network.mend_one_way(*it, target));
            }
            Fault::Mute => {
                others.iter().for_each(|it| self.cluster.network.cut_one_way(target, *it));
                self.wait(300, 2500);
                others.iter().for_each(|it| self.cluster.network.mend_one_way(target, *it));
            }
            Fault::Part => {
                let one = leader.unwrap_or(target);
                let rest: Vec<u32> = ids.iter().copied().filter(|it| *it != one).collect();
                let other = rest[self.below(rest.len())];
                self.cluster.network.cut(one, other);
                self.wait(300, 3000);
                self.cluster.network.mend(one, other);
            }
            Fault::RollingRestart => {
                for id in ids {
                    self.cluster.stop(id);
                    self.cluster.run(id);
                    self.wait(100, 500);
                }
            }
            Fault::Transfer => {
                let to = self.chance.below(2).eq(&0).then_some(chosen);
                // It may be refused, by one that leads already or where nobody leads.
                let _ = self.ask(Administration::Transfer(TransferLeadership { to }));
            }
            Fault::Change => self.change_members(target),
        }
        self.note(format!("{fault:?} is over"));
        let fallen = self.cluster.fallen();
        assert!(fallen.is_empty(), "{fallen:?} have ended by themselves");
    }

    /// One more node becomes a member, a node is killed meanwhile or not, and the new one goes again.
    fn change_members(&mut self, target: u32) {
        let node = self.next_id;
        self.next_id += 1;
        self.cluster.add_host(node);
        self.cluster.run(node);
        let hurt = self.chance.below(2) == 0;
        let add = AddMember { node, peer: node_address(node), client: String::new() };
        self.insist(&Administration::Add(add), |view| membership(view, node) != Membership::None);
        if hurt {
            self.note(format!("kill {target} while {node} learns"));
            self.cluster.kill(target);
            self.cluster.run(target);
        }
        self.insist(&Administration::Status(AskCluster {}), |view| membership(view, node) == Membership::Voter);
        self.note(format!("{node} votes"));
        self.wait(200, 1500);
        let remove = RemoveMember { node, force: false };
        self.insist(&Administration::Remove(remove), |view| membership(view, node) == Membership::None);
        self.cluster.discard(node);
        self.note(format!("{node} is gone"));
    }

    /// Asks for it until it is so.
    fn insist(&mut self, wanted: &Administration, is_so: impl Fn(&ClusterView) -> bool) {
        let began = Instant::now();
        loop {
            let said = self.ask(wanted.clone());
            let view = self.ask(Administration::Status(AskCluster {}));
            if matches!(&view, Some(Attended::Cluster(view)) if is_so(view)) {
                return;
            }
            assert!(began.elapsed() < OPERATION_MAX, "{wanted:?} was not done in {OPERATION_MAX:?}: {said:?}, {view:?}");
            self.wait(20, 100);
        }
    }

    fn ask(&self, wanted: Administration) -> Option<Attended> {
        let asked = async { timeout(ANSWER_MAX, self.control.administer(wanted)).await };
        self.runtime.block_on(asked).ok()?.ok()
    }

    /// Who leads, if anybody says so.
    fn leader(&self) -> Option<u32> {
        let Attended::Cluster(view) = self.ask(Administration::Status(AskCluster {}))? else { return None };
        view.leader
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.chance.below(end as u64)).unwrap()
    }

    /// Looks on for a time; a client that ends meanwhile has failed.
    fn wait(&mut self, low_ms: u64, high_ms: u64) {
        let span = self.chance.between(Duration::from_millis(low_ms), Duration::from_millis(high_ms));
        let ended = self.runtime.block_on(async { timeout(span, self.workers.join_next()).await });
        assert!(ended.is_err(), "a client has ended: {ended:?}");
    }

    fn note(&self, what: String) {
        self.history.scheduled(what);
    }
}

fn membership(view: &ClusterView, node: u32) -> Membership {
    let member = view.members.iter().find(|it| it.node == node);
    member.map_or(Membership::None, |it| it.membership())
}
