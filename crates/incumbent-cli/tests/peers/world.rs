//! Nodes in network namespaces of their own, on one bridge, and everything that can be done to them.
//!
//! The test itself is in the namespace of the bridge (see `apart`), so that its relays and questions reach every node. All ends with the process of the test, however it ends: the nodes by the
//! kernel's word, the namespaces with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::NodeId;
use incumbent_protocol::settings::{Guard, Pace, Settings};
use incumbent_testbed::{Contender, Relay, eventually};
use rustix::time::{ClockId, clock_gettime};

pub(crate) use crate::apart::network::address;
use crate::apart::network::{HUB, Network};
use crate::oracle::{Record, Scene, judge};

/// The shortest silence after which a leader is given up, unless a case says otherwise: short, so that a test is; long beside what a busy machine keeps a process waiting.
pub(crate) const PATIENCE: Duration = Duration::from_millis(800);

/// The same where nobody is missed: it may be longer, and then not even a machine with no time at all makes anybody lose the office.
pub(crate) const LONG_PATIENCE: Duration = Duration::from_millis(2000);

const PORT: u16 = 7373;
const HTTP_PORT: u16 = 8080;

/// Nanoseconds of the clock that the nodes record by.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// What a group is made of.
#[derive(Clone)]
pub(crate) struct Group {
    pub(crate) count: u32,
    pub(crate) kind: Kind,
    pub(crate) guard: Guard,
    pub(crate) patience: Duration,
    /// Whether each pair of nodes has a relay between them, each way that connections are made.
    pub(crate) relayed: bool,
    /// More options of the command.
    pub(crate) more: Vec<(&'static str, &'static str)>,
}

impl Group {
    pub(crate) fn of(count: u32) -> Group {
        Group { count, kind: Kind::Raft, guard: Guard::Majority, patience: PATIENCE, relayed: false, more: Vec::new() }
    }

    /// One in which nobody is to be missed.
    pub(crate) fn calm(count: u32) -> Group {
        Group { patience: LONG_PATIENCE, ..Group::of(count) }
    }

    pub(crate) fn kind(self, kind: Kind) -> Group {
        Group { kind, ..self }
    }

    pub(crate) fn unguarded(self) -> Group {
        Group { guard: Guard::Off, ..self }
    }

    pub(crate) fn relayed(self) -> Group {
        Group { relayed: true, ..self }
    }

    pub(crate) fn with(mut self, option: &'static str, value: &'static str) -> Group {
        self.more.push((option, value));
        self
    }

    pub(crate) fn settings(&self) -> Settings {
        let pace = Pace::of(self.patience).unwrap();
        Settings::of((1..=self.count).map(NodeId)).pace(pace).guard(self.guard).build().unwrap()
    }

    /// Its nodes run, and one of them leads.
    #[track_caller]
    pub(crate) fn agreed(self) -> World {
        let mut world = self.at_rest();
        world.start_all();
        world.agreed();
        world
    }

    /// Its network is there, and nothing runs.
    #[track_caller]
    pub(crate) fn at_rest(self) -> World {
        World::new(self)
    }
}

/// One node: its process, if there is one.
struct Host {
    process: Option<Contender>,
    /// What each process of it has recorded, in order.
    records: Vec<Record>,
}

/// The nodes of a group, their network, and what they did.
pub(crate) struct World {
    pub(crate) group: Group,
    pub(crate) network: Network,
    folder: tempfile::TempDir,
    hosts: BTreeMap<u32, Host>,
    paused: BTreeSet<u32>,
    relays: BTreeMap<(u32, u32), Relay>,
    /// What has happened, as far as it was read.
    pub(crate) scene: Scene,
    /// When all had been healed.
    healed: Option<u64>,
}

impl World {
    #[track_caller]
    fn new(group: Group) -> World {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("key"), "0123456789abcdef".repeat(4)).unwrap();
        let mut world = World {
            scene: Scene::new(group.count),
            network: Network::new(),
            folder,
            hosts: BTreeMap::new(),
            paused: BTreeSet::new(),
            relays: BTreeMap::new(),
            healed: None,
            group,
        };
        for id in 1..=world.group.count {
            world.add_host(id, address(id));
        }
        if world.group.relayed {
            for (from, to) in world.pairs() {
                let relay = Relay::listening_on(HUB, &format!("{}:{PORT}", address(to))).unwrap();
                world.relays.insert((from, to), relay);
            }
        }
        world
    }

    /// One more machine on the bridge.
    pub(crate) fn add_host(&mut self, id: u32, address: Ipv4Addr) {
        self.network.add_host(id, address);
        self.hosts.insert(id, Host { process: None, records: Vec::new() });
    }

    pub(crate) fn ids(&self) -> Vec<u32> {
        (1..=self.group.count).collect()
    }

    /// All ordered pairs.
    fn pairs(&self) -> Vec<(u32, u32)> {
        self.ids().into_iter().flat_map(|a| self.ids().into_iter().filter(move |b| *b != a).map(move |b| (a, b))).collect()
    }

    /// How long `times` the shortest patience is.
    pub(crate) fn patience(&self, times: u32) -> Duration {
        self.group.patience * times
    }

    // Processes.

    pub(crate) fn start_all(&mut self) {
        for id in self.ids() {
            self.start(id);
        }
    }

    /// The command line of a node; what is given in `other` replaces the usual, or is added to it.
    pub(crate) fn command(&self, id: u32, other: &[(&str, &str)]) -> Command {
        let host = &self.hosts[&id];
        let trace = self.path(&format!("trace-{id}-{}", host.records.len()));
        let peers: Vec<String> = self.ids().into_iter().filter(|it| *it != id).map(|it| self.member(id, it)).collect();
        let guard = match self.group.guard {
            Guard::Majority => "majority".to_owned(),
            Guard::Quorum(size) => size.to_string(),
            Guard::Off => "off".to_owned(),
        };
        let mut options: Vec<(&str, String)> = vec![
            ("--id", id.to_string()),
            ("--listen", format!("{}:{PORT}", address(id))),
            ("--peers", peers.join(",")),
            ("--protocol", self.group.kind.to_string()),
            ("--guard", guard),
            ("--patience", format!("{}ms", self.group.patience.as_millis())),
            ("--key-file", self.path("key").display().to_string()),
            ("--data", self.data(id).display().to_string()),
            ("--trace", trace.display().to_string()),
            ("--http", format!("{}:{HTTP_PORT}", address(id))),
            // Whoever runs the tests without being root must not need a right to the usual place.
            ("--state-dir", self.path("state").display().to_string()),
            ("--identity", identity(id)),
        ];
        for (name, value) in self.group.more.iter().map(|(name, value)| (*name, *value)).chain(other.iter().copied()) {
            options.retain(|it| it.0 != name);
            options.push((name, value.to_owned()));
        }
        let mut command = self.network.inside(id, env!("CARGO_BIN_EXE_incumbent"));
        command.args(["peer", "--unprotected"]);
        for (name, value) in &options {
            command.args([*name, value]);
        }
        command
    }

    /// How `from` is told of `to`.
    pub(crate) fn member(&self, from: u32, to: u32) -> String {
        let relay = self.relays.get(&(from, to));
        format!("{to}@{}", relay.map_or_else(|| format!("{}:{PORT}", address(to)), Relay::address))
    }

    pub(crate) fn start(&mut self, id: u32) {
        let command = self.command(id, &[]);
        self.start_as(id, &command);
    }

    /// Starts a node by a command of the test's own making.
    pub(crate) fn start_as(&mut self, id: u32, command: &Command) {
        let host = self.hosts.get_mut(&id).unwrap();
        assert!(host.process.is_none(), "node {id} runs");
        let trace = self.folder.path().join(format!("trace-{id}-{}", host.records.len()));
        // What it does not write there, nobody has to judge.
        host.process = Some(Contender::start(command).unwrap());
        host.records.push(Record::new(id, trace));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where a node keeps what it must not forget.
    pub(crate) fn data(&self, id: u32) -> PathBuf {
        self.path(&format!("data-{id}"))
    }

    /// kill -9.
    pub(crate) fn kill(&mut self, id: u32) {
        let at = now();
        self.process(id).kill();
        self.ended(id, at);
    }

    /// SIGTERM, and it ends in its own time.
    pub(crate) fn stop(&mut self, id: u32) {
        let at = now();
        self.process(id).stop().unwrap();
        self.ended(id, at);
    }

    /// It has ended by itself, as it should.
    pub(crate) fn has_ended(&mut self, id: u32) {
        self.ended(id, now());
    }

    fn ended(&mut self, id: u32, at: u64) {
        let host = self.hosts.get_mut(&id).unwrap();
        host.process = None;
        host.records.last_mut().unwrap().ended = Some(at);
        self.look();
    }

    /// SIGSTOP.
    pub(crate) fn pause(&mut self, id: u32) {
        self.process(id).pause();
        self.paused.insert(id);
    }

    /// SIGCONT.
    pub(crate) fn resume(&mut self, id: u32) {
        self.process(id).resume();
        self.paused.remove(&id);
    }

    pub(crate) fn process(&self, id: u32) -> &Contender {
        self.hosts[&id].process.as_ref().unwrap_or_else(|| panic!("node {id} does not run"))
    }

    /// The nodes that run and do not stand still.
    pub(crate) fn running(&self) -> Vec<u32> {
        let runs = |id: &u32| self.hosts[id].process.is_some() && !self.paused.contains(id);
        self.ids().into_iter().filter(runs).collect()
    }

    /// What the process of a node has logged.
    pub(crate) fn log(&self, id: u32) -> String {
        self.hosts[&id].process.as_ref().map_or(String::new(), |it| it.process().log_tail(400))
    }

    // The network.

    /// Only nodes of one of these groups reach each other; who is in none is alone.
    pub(crate) fn partition(&self, groups: &[&[u32]]) {
        self.shape(|a, b| groups.iter().any(|it| it.contains(&a) && it.contains(&b)));
    }

    /// Only these pairs reach each other.
    pub(crate) fn shape(&self, linked: impl Fn(u32, u32) -> bool) {
        for (from, to) in self.pairs() {
            if linked(from, to) || linked(to, from) {
                self.network.mend_one_way(from, to);
            } else {
                self.network.cut_one_way(from, to);
            }
        }
    }

    pub(crate) fn relays(&self) -> impl Iterator<Item = &Relay> {
        self.relays.values()
    }

    /// Every link works, every node is up: from now on the group must find together.
    pub(crate) fn heal(&mut self) {
        for relay in self.relays.values() {
            relay.heal();
        }
        for id in self.ids() {
            self.network.plug_in(id);
        }
        for (from, to) in self.pairs() {
            self.network.mend_one_way(from, to);
        }
        for id in self.ids() {
            match &self.hosts[&id].process {
                Some(_) => self.resume(id),
                None => self.start(id),
            }
        }
        self.healed = Some(now());
    }

    // What is seen.

    /// Reads what the nodes have recorded since.
    pub(crate) fn look(&mut self) -> &Scene {
        let records = self.hosts.iter_mut().filter(|(id, _)| **id <= self.group.count).flat_map(|(_, host)| &mut host.records);
        for record in records {
            self.scene.take(record);
        }
        &self.scene
    }

    /// Waits until it is so.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, wanted: impl Fn(&Scene) -> bool) {
        let began = now();
        let limit = self.longest();
        while !wanted(self.look()) {
            let ended =
                self.hosts.range(..=self.group.count).find(|(_, it)| it.process.as_ref().is_some_and(|it| !it.process().runs()));
            assert!(ended.is_none(), "node {} has ended by itself\n{}", ended.unwrap().0, self.told());
            if now() - began > nanos(limit) {
                self.judge();
                panic!("waited {limit:?} in vain: {what}\n{}", self.told());
            }
            tick();
        }
    }

    /// Looks on for so long.
    pub(crate) fn watch(&mut self, span: Duration) {
        let end = now() + nanos(span);
        while now() < end {
            self.look();
            tick();
        }
    }

    /// No healthy group needs longer than this for anything: it follows from the lab's demands, and the machine may be several times slower than the world of the lab.
    pub(crate) fn longest(&self) -> Duration {
        let settings = self.group.settings();
        (settings.stability().aside_max + settings.stability().min_tenure + settings.pace().patience_max * 4) * 2
    }

    /// Waits until all that run name one leader in office, and returns it.
    #[track_caller]
    pub(crate) fn agreed(&mut self) -> u32 {
        self.agreed_among(&self.running())
    }

    /// The same, of some of them.
    #[track_caller]
    pub(crate) fn agreed_among(&mut self, some: &[u32]) -> u32 {
        self.until(&format!("{some:?} agree"), |scene| scene.agreed(some).is_some());
        self.scene.agreed(some).unwrap()
    }

    /// Waits for a leader of a term after this one, and returns it and its term.
    #[track_caller]
    pub(crate) fn leader_after(&mut self, term: u64) -> (u32, u64) {
        self.until(&format!("a leader after term {term}"), |scene| scene.leaders().iter().any(|(_, it)| *it > term));
        self.scene.leaders().into_iter().find(|(_, it)| *it > term).unwrap()
    }

    /// Who leads, and in which term.
    #[track_caller]
    pub(crate) fn leader(&mut self) -> (u32, u64) {
        match self.look().leaders()[..] {
            [only] => only,
            ref several => panic!("{several:?} are in office\n{}", self.told()),
        }
    }

    /// Has been healed: all agree, and it stays so for the longest patience: whoever misses the leader would have said so. Then the oracles judge the whole run.
    #[track_caller]
    pub(crate) fn settles(&mut self) -> u32 {
        let healed = self.healed.expect("heal() was called");
        let ids = self.ids();
        let calm = nanos(self.group.settings().pace().patience_max);
        self.until("all agree, and stay with it", |scene| {
            scene.agreed(&ids).is_some() && now().saturating_sub(scene.changed.max(healed)) > calm
        });
        let leader = self.scene.agreed(&ids).unwrap();
        self.judge();
        leader
    }

    /// Lets the oracles judge all that has happened.
    #[track_caller]
    pub(crate) fn judge(&mut self) {
        self.look();
        let verdict = judge(&self.scene, &self.group.settings(), self.group.kind, self.healed, now());
        assert!(verdict.is_empty(), "{verdict}");
    }

    /// The last of what happened, and what the nodes say of it.
    pub(crate) fn told(&self) -> String {
        let mut text = self.scene.tail(60);
        for (id, host) in &self.hosts {
            if let Some(process) = &host.process {
                text.push_str(&format!("--- node {id} says\n{}\n", process.process().log_tail(25)));
            }
        }
        text
    }

    // What others are told.

    /// Asks one node who leads, as an operator does.
    pub(crate) fn who(&self, id: u32) -> Output {
        let url = format!("peers://{}:{PORT}/incumbent?key-file={}", address(id), self.path("key").display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent"));
        command.args(["who", "leader", "--on", &url]);
        command.output().unwrap()
    }

    /// Waits until this node answers that this one leads.
    #[track_caller]
    pub(crate) fn answers(&self, id: u32, leader: u32) {
        let mut said = String::new();
        let wanted = identity(leader);
        let end = now() + nanos(self.longest());
        while now() < end {
            let output = self.who(id);
            said = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned()).concat();
            if said.contains(&wanted) {
                return;
            }
        }
        panic!("node {id} was asked who leads, and did not answer {wanted}, but {said}\n{}", self.told());
    }
}

/// A relay wakes its own door over the bridge, so it goes before that does.
impl Drop for World {
    fn drop(&mut self) {
        self.relays.clear();
    }
}

/// What a node is called.
fn identity(id: u32) -> String {
    format!("node-{id}-of-{}", std::process::id())
}

pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap()
}

/// Leaves the processor to those that are looked at, for a moment.
fn tick() {
    let began = std::time::Instant::now();
    eventually("a moment", || began.elapsed() >= Duration::from_millis(2));
}
