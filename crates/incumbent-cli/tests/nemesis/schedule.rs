//! What the nemesis does: each kind of fault in turn, in an order, at nodes and for times that follow from the seed.
//!
//! Three seeds that follow each other (1 to 3, 4 to 6, ...) do everything once, each a third of it. Who leads is asked when a fault begins that wants to know; and each fault draws from
//! chance of its own, so that whatever one has to wait for does not change the next. So the same seed does the same in the same order, though not to the same instruction.
//!
//! Left out: steps of the wall clock, which no namespace has of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use incumbent_client::administration::{
    AddMember, Administration, AskCluster, Attended, ClusterView, Health, Membership, RemoveMember, TransferLeadership,
};
use incumbent_client::client::Client;
use incumbent_client::message::Consistency;
use incumbent_protocol::chance::Chance;
use incumbent_store::election::Board;
use incumbent_store::query::{Answer, Query};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::clients::{ELECTIONS, PROBE, Worker};
use crate::cluster::{Cluster, node_address};
use crate::elsewhere::Elsewhere;
use crate::history::{History, Ordeal, now};

/// When the cause of a fault is gone, something that is asked then is done in so long; and while it lasts, nobody is without service for longer, if a majority is well.
///
/// A leader is missed after 200 ms at most, and a client leaves a node that says nothing after half a second (see `Cluster::options`); what it asks is given up after 1.5 s and asked
/// again. The rest is for nodes that are not optimised, on a machine that has two processors for all of them and their clients.
pub(crate) const RECOVERY_MAX: Duration = Duration::from_secs(10);

/// What an operator asks of a healthy cluster is done in so long: one that is added has all of the log by then.
const OPERATION_MAX: Duration = Duration::from_secs(20);

/// What is waited for is looked at so often.
const LOOKED_AT: Duration = Duration::from_millis(30);

/// The clocks of two nodes may differ by so much. More than a week: nothing that a service remembers lasts as long.
const CLOCKS_APART_MAX_S: u64 = 200 * 3600;

/// More than a log has room for in the segments that are there: then it needs more of the disk.
const BALLASTS_MAX: usize = 200;
const BALLAST_BYTES: usize = 128 << 10;

/// One answer is awaited so long, then it is asked again.
const ANSWER_MAX: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// kill -9.
    Kill,
    /// The power of one fails: what was not made safe is lost.
    PowerCut,
    /// The power of all fails.
    Blackout,
    /// kill -9, and when it comes back its clocks show another time, hours or days before or after what they showed.
    Clock,
    /// The disk does not answer.
    Hang,
    /// The disk has no room.
    Fill,
    /// The disk is gone. It comes back with what was made safe, or the node is replaced.
    Break,
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
    /// Two reach none of the other three; mostly one of the two leads.
    Split,
    /// All reach each other in a way, and not directly: by one in the middle, or in a row (C20 to C22).
    Bridge,
    /// SIGTERM, one after the other.
    RollingRestart,
    /// Another is to lead.
    Transfer,
    /// A new node comes, and goes.
    Change,
    /// kill -9 of clients that lead, wait and write; others take their place.
    KillClients,
}

const FAULTS: [Fault; 17] = [
    Fault::Kill,
    Fault::PowerCut,
    Fault::Blackout,
    Fault::Clock,
    Fault::Hang,
    Fault::Fill,
    Fault::Break,
    Fault::Pause,
    Fault::Isolate,
    Fault::Unplug,
    Fault::Deafen,
    Fault::Mute,
    Fault::Part,
    Fault::RollingRestart,
    Fault::Transfer,
    Fault::Change,
    Fault::KillClients,
];

/// What takes more than three nodes, so that those that see each other are still a majority: at the end of each round that has them.
const FAULTS_OF_MANY: [Fault; 2] = [Fault::Split, Fault::Bridge];

/// So many have it.
pub(crate) const MANY: u64 = 5;

/// What may last while another fault comes that needs nobody to be served meanwhile. As the fault of the same name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lasting {
    Pause,
    Isolate,
    Unplug,
    Deafen,
    Mute,
}

const LASTING: [Lasting; 5] = [Lasting::Pause, Lasting::Isolate, Lasting::Unplug, Lasting::Deafen, Lasting::Mute];

/// So many rounds do everything once.
const ROUNDS: u64 = 3;

/// What is done in the round of this seed: a part of a pack that is shuffled anew for each three rounds.
fn faults_of(seed: u64, nodes: u64) -> Vec<Fault> {
    let (pack, part) = ((seed + 2) / ROUNDS, (seed + 2) % ROUNDS);
    let (mut chance, mut left, mut shuffled) = (Chance::new(pack), FAULTS.to_vec(), Vec::new());
    while !left.is_empty() {
        shuffled.push(left.swap_remove(chance.below(left.len() as u64) as usize));
    }
    let part = shuffled.into_iter().skip(part as usize).step_by(ROUNDS as usize);
    part.chain(FAULTS_OF_MANY.into_iter().filter(|_| nodes >= MANY)).collect()
}

/// Whether there are enough that are well, of so many nodes, to be served by, while this comes and perhaps something lasts at another node.
fn leaves_majority(fault: Fault, beside: Option<Lasting>, nodes: usize) -> bool {
    let unwell = match fault {
        Fault::Blackout => nodes,
        // Two are on the lesser side.
        Fault::Split => 2,
        // All of them are well, and one reaches enough of them.
        Fault::Bridge => 0,
        Fault::Kill
        | Fault::PowerCut
        | Fault::Clock
        | Fault::Hang
        | Fault::Fill
        | Fault::Break
        | Fault::Pause
        | Fault::Isolate
        | Fault::Unplug
        | Fault::Deafen
        | Fault::Mute
        | Fault::Part
        | Fault::RollingRestart
        | Fault::Transfer
        | Fault::Change
        | Fault::KillClients => 1,
    };
    // It may be at another node than the first.
    2 * (unwell + usize::from(beside.is_some())) < nodes
}

/// By how much the clocks of a node are ahead.
pub(crate) fn clock(chance: &mut Chance) -> Duration {
    Duration::from_secs(chance.below(CLOCKS_APART_MAX_S))
}

pub(crate) struct Nemesis<'a> {
    pub(crate) cluster: &'a mut Cluster,
    pub(crate) runtime: &'a Runtime,
    pub(crate) workers: &'a mut JoinSet<()>,
    pub(crate) control: Client,
    pub(crate) probe: &'a mut Worker,
    pub(crate) history: &'a History,
    /// The same, for those who write to it.
    pub(crate) shared: &'a Arc<History>,
    pub(crate) seed: u64,
    pub(crate) chance: Chance,
    pub(crate) next_id: u32,
    pub(crate) elsewhere: Option<Elsewhere>,
    pub(crate) next_pair: u32,
}

impl Nemesis<'_> {
    /// Does all that the seed wants, and then heals everything. Returns how much it has done.
    pub(crate) fn rage(&mut self) -> usize {
        let faults = faults_of(self.seed, self.cluster.ids().len() as u64);
        for (number, fault) in (0..).zip(&faults) {
            self.chance = Chance::new(self.seed.wrapping_mul(1000).wrapping_add(number));
            self.wait(200, 1200);
            self.endure(*fault);
        }
        self.cluster.heal();
        self.note("healed".into());
        faults.len()
    }

    fn endure(&mut self, fault: Fault) {
        let began = now();
        let beside = self.beside(fault);
        let leaves_majority = leaves_majority(fault, beside, self.cluster.ids().len());
        let name = beside.map_or(format!("{fault:?}"), |it| format!("{fault:?}+{it:?}"));
        match beside {
            Some(lasting) => self.inflict_both(fault, lasting),
            None => self.inflict(fault),
        }
        let over = now();
        self.note(format!("{name} is over"));
        self.serves(&format!("after {name}"));
        self.history.endured(Ordeal { fault: name, leaves_majority, began, over, healed: now() });
        let fallen = self.cluster.fallen();
        assert!(fallen.is_empty(), "{fallen:?} have ended by themselves");
    }

    /// What lasts while it comes, if anything does: every second time, where nothing is waited for that takes a majority.
    fn beside(&mut self, fault: Fault) -> Option<Lasting> {
        let bears = match fault {
            Fault::Kill | Fault::PowerCut | Fault::Blackout | Fault::Clock | Fault::Transfer => true,
            Fault::Hang
            | Fault::Fill
            | Fault::Break
            | Fault::Pause
            | Fault::Isolate
            | Fault::Unplug
            | Fault::Deafen
            | Fault::Mute
            | Fault::Part
            | Fault::Split
            | Fault::Bridge
            | Fault::RollingRestart
            | Fault::Change
            | Fault::KillClients => false,
        };
        let draw = self.chance.below(2 * LASTING.len() as u64) as usize;
        LASTING.get(draw).copied().filter(|_| bears)
    }

    fn inflict_both(&mut self, fault: Fault, lasting: Lasting) {
        let ids = self.cluster.ids();
        let held = ids[self.below(ids.len())];
        let others: Vec<u32> = ids.iter().copied().filter(|it| *it != held).collect();
        self.note(format!("{lasting:?} {held}, and meanwhile:"));
        let network = &self.cluster.network;
        match lasting {
            Lasting::Pause => self.cluster.pause(held),
            Lasting::Unplug => network.unplug(held),
            Lasting::Isolate => others.iter().for_each(|it| network.cut(held, *it)),
            Lasting::Deafen => others.iter().for_each(|it| network.cut_one_way(*it, held)),
            Lasting::Mute => others.iter().for_each(|it| network.cut_one_way(held, *it)),
        }
        self.wait(50, 500);
        self.inflict(fault);
        self.wait(50, 500);
        let network = &self.cluster.network;
        match lasting {
            Lasting::Pause => self.cluster.resume(held),
            Lasting::Unplug => network.plug_in(held),
            Lasting::Isolate => others.iter().for_each(|it| network.mend(held, *it)),
            Lasting::Deafen => others.iter().for_each(|it| network.mend_one_way(*it, held)),
            Lasting::Mute => others.iter().for_each(|it| network.mend_one_way(held, *it)),
        }
    }

    fn inflict(&mut self, fault: Fault) {
        let (ids, leader) = (self.cluster.ids(), self.leader());
        let chosen = ids[self.below(ids.len())];
        // Mostly the one that it hurts most.
        let hurts = self.chance.below(3) > 0;
        let target = leader.filter(|it| hurts && ids.contains(it)).unwrap_or(chosen);
        let others: Vec<u32> = ids.iter().copied().filter(|it| *it != target).collect();
        let heads = self.chance.below(2) == 0;
        self.note(format!("{fault:?} {target}, {leader:?} leads"));
        match fault {
            Fault::Kill => {
                self.cluster.kill(target);
                self.wait(50, 2000);
                self.cluster.run(target);
            }
            Fault::PowerCut => self.cut_power(&[target]),
            Fault::Blackout => self.cut_power(&ids),
            Fault::Clock => {
                let clock = clock(&mut self.chance);
                self.note(format!("the clocks of {target} are ahead by {clock:?}"));
                self.cluster.kill(target);
                self.cluster.set_clock(target, clock);
                self.cluster.run(target);
            }
            Fault::Hang => self.hang_disk(target, leader),
            Fault::Fill => self.fill_disk(target),
            Fault::Break => self.break_disk(target, heads),
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
            Fault::Split => {
                let other = others[self.below(others.len())];
                let few = [target, other];
                self.keep_apart(|a, b| few.contains(&a) != few.contains(&b), &format!("while {few:?} reach no other"));
            }
            Fault::Bridge => self.bridge(&ids, leader, heads),
            Fault::RollingRestart => {
                for id in ids {
                    self.cluster.stop(id);
                    self.cluster.run(id);
                    self.wait(100, 500);
                }
            }
            Fault::Transfer => {
                let to = heads.then_some(chosen);
                // It may be refused, by one that leads already or where nobody leads.
                let _ = self.ask(Administration::Transfer(TransferLeadership { to }));
            }
            Fault::Change => {
                let node = self.join(heads.then_some(target));
                self.wait(200, 1500);
                self.leave(node);
            }
            Fault::KillClients => self.kill_clients(),
        }
    }

    /// Each pair of nodes of which this is so does not reach each other for a while, in which the others serve.
    fn keep_apart(&mut self, is_apart: impl Fn(u32, u32) -> bool, when: &str) {
        let ids = self.cluster.ids();
        let pairs = ids.iter().enumerate().flat_map(|(at, a)| ids[at + 1..].iter().map(move |b| (*a, *b)));
        let pairs: Vec<(u32, u32)> = pairs.filter(|(a, b)| is_apart(*a, *b)).collect();
        self.note(format!("cut: {pairs:?}"));
        pairs.iter().for_each(|(a, b)| self.cluster.network.cut(*a, *b));
        self.wait(300, 1000);
        self.serves(when);
        self.wait(500, 2500);
        // Also when the first leader has been given up by all.
        self.serves(when);
        pairs.iter().for_each(|(a, b)| self.cluster.network.mend(*a, *b));
    }

    /// Nodes reach each other only by one that does not lead, or only the next ones in a row.
    fn bridge(&mut self, ids: &[u32], leader: Option<u32>, is_row: bool) {
        let mut row: Vec<u32> = Vec::new();
        let mut left = ids.to_vec();
        while !left.is_empty() {
            row.push(left.swap_remove(self.below(left.len())));
        }
        if is_row {
            self.note(format!("in a row: {row:?}"));
            let at = |id| row.iter().position(|it| *it == id);
            let next = |a, b| at(a).zip(at(b)).is_some_and(|(a, b)| a.abs_diff(b) == 1);
            self.keep_apart(|a, b| !next(a, b), "while nodes reach the next ones only");
        } else {
            let hub = row.iter().copied().find(|it| Some(*it) != leader).expect("somebody does not lead");
            self.note(format!("in the middle: {hub}"));
            self.keep_apart(|a, b| a != hub && b != hub, "while nodes reach the one in the middle only");
        }
    }

    fn cut_power(&mut self, dark: &[u32]) {
        self.cluster.cut_power(dark);
        self.wait(0, 500);
        dark.iter().for_each(|it| self.cluster.run(*it));
    }

    /// Whoever leads makes way although its network is well, and the others serve meanwhile.
    fn hang_disk(&mut self, target: u32, leader: Option<u32>) {
        let hanging = self.cluster.hang_disk(target);
        if leader == Some(target) {
            self.until("another leads than the one whose disk hangs", |it| it.leader().filter(|it| *it != target));
        }
        self.serves("while a disk hangs");
        self.wait(0, 1500);
        drop(hanging);
    }

    /// A node without room says so and answers what need not be the newest; the others serve; and when there is room it says that, too.
    fn fill_disk(&mut self, target: u32) {
        self.cluster.fill_disk(target);
        let full = |it: &Self| it.health(target).map(|it| !it.disk_full.is_empty());
        // Its log has room in what it has made before, so that is used up first.
        let mut ballasts = 0;
        while full(self) != Some(true) {
            assert!(ballasts < BALLASTS_MAX, "the disk of {target} is full, and it does not say so");
            ballasts += 1;
            self.runtime.block_on(self.probe.writes_in_vain(BALLAST_BYTES));
        }
        self.note(format!("{target} says that its disk is full, after {ballasts} ballasts"));
        let alone = self.cluster.client_of(target);
        self.until("a node without room answers questions", |it| it.runtime.block_on(it.probe.asks(&alone)).then_some(()));
        self.serves("while a disk is full");
        self.wait(0, 1000);
        self.cluster.make_room(target);
        self.until("a node that has room again says so", |it| full(it).filter(|it| !it));
    }

    /// A node whose disk is gone ends by itself and says why. Its disk comes back, or another node takes its place.
    fn break_disk(&mut self, target: u32, is_replaced: bool) {
        self.cluster.break_disk(target);
        let said = self.until("a node whose disk is gone ends", |it| it.cluster.last_words(target));
        assert!(said.contains("the disk failed") && said.ends_with("Some(5)"), "node {target} has ended and said:\n{said}");
        self.serves("without the node whose disk is gone");
        if is_replaced {
            self.leave(target);
            let node = self.join(None);
            self.note(format!("{node} is in the place of {target}"));
        } else {
            self.cluster.mend_disk(target);
            self.cluster.run(target);
        }
    }

    /// What dead clients led is others' in time.
    fn kill_clients(&mut self) {
        let Some(dead) = self.elsewhere.take() else { return };
        let identities = dead.identities();
        let is_dead = |(_, identity): &(String, String)| identities.iter().any(|it| identity.starts_with(it));
        // So that they leave something behind.
        let held = self.until("a client that is to be killed leads", |it| it.leaders().into_iter().find(is_dead));
        self.note(format!("{} of {} is killed", held.1, held.0));
        dead.kill();
        self.next_pair += 1;
        let ahead = clock(&mut self.chance);
        self.elsewhere = Some(Elsewhere::start(crate::THIS, self.cluster, self.seed, self.next_pair, ahead, self.shared));
        self.until("what dead clients led is free", |it| it.looks().filter(|leaders| !leaders.iter().any(is_dead)));
        self.until("another leads what a dead client led", |it| {
            it.leaders().into_iter().find(|(election, _)| *election == held.0)
        });
    }

    /// Who leads which election, if anybody says so.
    fn looks(&self) -> Option<Vec<(String, String)>> {
        let look = |election: u64| async move {
            let asked = self.control.ask(Query::Look(format!("election-{election}")), Consistency::Linearizable);
            let answer = timeout(ANSWER_MAX, asked).await.ok()?.ok()?.answer;
            let Answer::Board(board) = answer else { panic!("asked for an election, told {answer:?}") };
            Some(board)
        };
        let boards: Option<Vec<Board>> = (0..ELECTIONS).map(|it| self.runtime.block_on(look(it))).collect();
        let leaders = |board: Board| {
            let election = board.election;
            board.leaders.into_iter().map(move |it| (election.clone(), it.identity)).collect::<Vec<_>>()
        };
        Some(boards?.into_iter().flat_map(leaders).collect())
    }

    fn leaders(&self) -> Vec<(String, String)> {
        self.looks().unwrap_or_default()
    }

    /// One more node becomes a member. Another is killed meanwhile, if that is wanted.
    fn join(&mut self, hurt: Option<u32>) -> u32 {
        let (node, clock) = (self.next_id, clock(&mut self.chance));
        self.next_id += 1;
        self.cluster.add_host(node, clock);
        self.cluster.run(node);
        let add = AddMember { node, peer: node_address(node), client: String::new() };
        self.insist(&Administration::Add(add), |view| membership(view, node) != Membership::None);
        if let Some(hurt) = hurt {
            self.note(format!("kill {hurt} while {node} learns"));
            self.cluster.kill(hurt);
            self.cluster.run(hurt);
        }
        self.insist(&Administration::Status(AskCluster {}), |view| membership(view, node) == Membership::Voter);
        self.note(format!("{node} votes"));
        node
    }

    /// A node is no member any more, whether it runs or not.
    fn leave(&mut self, node: u32) {
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
            let view = self.view();
            if view.as_ref().is_some_and(&is_so) {
                return;
            }
            assert!(began.elapsed() < OPERATION_MAX, "{wanted:?} was not done in {OPERATION_MAX:?}: {said:?}, {view:?}");
            self.look_on(LOOKED_AT);
        }
    }

    /// Comes back as soon as it is so.
    fn until<T>(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(so) = is_so(self) {
                return so;
            }
            assert!(began.elapsed() < RECOVERY_MAX, "not in {RECOVERY_MAX:?}: {what}; {:?}", self.view());
            self.look_on(LOOKED_AT);
        }
    }

    /// Something that is asked now is done in time.
    fn serves(&mut self, when: &str) {
        self.until(&format!("something is served {when}"), |it| {
            it.runtime.block_on(it.probe.tries_to_write(PROBE)).then_some(())
        });
    }

    fn ask(&self, wanted: Administration) -> Option<Attended> {
        let asked = async { timeout(ANSWER_MAX, self.control.administer(wanted)).await };
        self.runtime.block_on(asked).ok()?.ok()
    }

    fn view(&self) -> Option<ClusterView> {
        match self.ask(Administration::Status(AskCluster {}))? {
            Attended::Cluster(view) => Some(view),
            other @ (Attended::Member(_)
            | Attended::Leader(_)
            | Attended::Backup(_)
            | Attended::Piece(_)
            | Attended::Refused(_)) => panic!("asked for the members, told {other:?}"),
        }
    }

    /// Who leads, if anybody says so.
    fn leader(&self) -> Option<u32> {
        self.view()?.leader
    }

    /// What a node says of itself.
    fn health(&self, node: u32) -> Option<Health> {
        self.view()?.members.into_iter().find(|it| it.node == node)?.health
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.chance.below(end as u64)).unwrap()
    }

    /// Looks on for a time that is drawn.
    fn wait(&mut self, low_ms: u64, high_ms: u64) {
        let span = self.chance.between(Duration::from_millis(low_ms), Duration::from_millis(high_ms));
        self.look_on(span);
    }

    /// Looks on for so long; a client that ends meanwhile has failed.
    fn look_on(&mut self, span: Duration) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_rounds_do_everything_once_and_a_seed_does_the_same_again() {
        for pack in [1, 4, 1000] {
            let mut all: Vec<Fault> = (pack..pack + 3).flat_map(|it| faults_of(it, 3)).collect();
            assert_eq!(all.len(), FAULTS.len());
            for fault in FAULTS {
                all.retain(|it| *it != fault);
            }
            assert!(all.is_empty());
        }
        assert_eq!(faults_of(7, 3), faults_of(7, 3));
        assert_ne!(faults_of(7, 3), faults_of(10, 3));
    }

    #[test]
    fn five_nodes_are_split_and_bridged_beside_all_that_befalls_three() {
        let (three, five) = (faults_of(6, 3), faults_of(6, MANY));
        assert_eq!(five[..three.len()], three);
        assert_eq!(five[three.len()..], FAULTS_OF_MANY);
    }

    #[test]
    fn whoever_has_a_majority_that_is_well_is_served_in_time_also_under_two_faults() {
        let of = |fault, beside| [3, 5].map(|nodes| leaves_majority(fault, beside, nodes));
        assert_eq!(of(Fault::Kill, None), [true, true]);
        assert_eq!(of(Fault::Kill, Some(Lasting::Pause)), [false, true], "at two nodes");
        assert_eq!(of(Fault::Blackout, None), [false, false]);
        assert_eq!(of(Fault::Split, None), [false, true]);
        assert_eq!(of(Fault::Bridge, None), [true, true]);
    }
}
