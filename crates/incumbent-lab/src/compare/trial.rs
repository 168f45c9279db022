//! One run of one protocol in one scenario, and what was measured in it.
//!
//! A run first comes to rest with a leader that all follow (except in a cold start), then the scenario begins at a moment that its seed
//! draws, and from there the figures count. All times are true time, which no node sees.

use std::time::Duration;

use incumbent_protocol::chance::Chance;
use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::{Event, NodeId, Purpose};
use incumbent_protocol::settings::{Guard, Pace, Settings};

use super::scenario::{Scenario, Script};
use crate::meter::Meter;
use crate::network::{Delay, NetworkSettings, Quality};
use crate::observation::{Moment, Observation, Observer};
use crate::trace::Recording;
use crate::world::{World, WorldSettings};

/// A group that has no leader after so many times its longest patience gets none.
const REST_PATIENCES_MAX: u32 = 100;

/// Which network the groups stand in, and the timing that fits it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// One machine room: [`Pace::LAN`], half a millisecond from node to node.
    Lan,
    /// Several regions: [`Pace::WAN`], 50 ms from node to node.
    Wan,
}

impl Place {
    /// Both.
    pub const ALL: [Place; 2] = [Place::Lan, Place::Wan];

    /// Its name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Place::Lan => "lan",
            Place::Wan => "wan",
        }
    }

    /// The timing.
    pub fn pace(self) -> Pace {
        match self {
            Place::Lan => Pace::LAN,
            Place::Wan => Pace::WAN,
        }
    }

    pub(crate) fn network(self) -> NetworkSettings {
        match self {
            Place::Lan => NetworkSettings::LAN,
            Place::Wan => {
                let delay = Delay::Tail { base: Duration::from_millis(35), mean: Duration::from_millis(15) };
                NetworkSettings { quality: Quality::calm(delay), ..NetworkSettings::LAN }
            }
        }
    }
}

/// What is run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Trial {
    /// The protocol.
    pub kind: Kind,
    /// Whether a leader needs a majority behind it.
    pub guarded: bool,
    /// How many nodes the group has.
    pub nodes: u32,
    /// What happens.
    pub scenario: Scenario,
    /// Where.
    pub place: Place,
    /// Everything that is left to chance follows from it.
    pub seed: u64,
}

/// What was measured in a run, from the moment at which the scenario began.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// From the beginning until the next leadership.
    pub failover: Option<Duration>,
    /// And until a majority of all members follows it, itself included.
    pub followed: Option<Duration>,
    /// From the first node that contends until the next leadership.
    pub election: Option<Duration>,
    /// How long nobody was in office.
    pub leaderless: Duration,
    /// How often a node took office.
    pub leaderships: u64,
    /// Terms used up, won or not: how far the greatest term known to anyone has risen.
    pub terms: u64,
    /// Messages of the algorithm itself.
    pub contest_messages: u64,
    /// Votes that the guard adds.
    pub guard_messages: u64,
    /// All messages.
    pub messages: u64,
    /// The length of the algorithm's own messages.
    pub contest_bytes: u64,
    /// The length of all.
    pub bytes: u64,
    /// How often more than one node came to be in office.
    pub overlaps: u64,
    /// For how long, in total.
    pub overlap: Duration,
    /// And at the longest.
    pub overlap_longest: Duration,
    /// Whether anyone was in office at the end.
    pub led_at_end: bool,
}

impl Trial {
    /// Runs it.
    pub fn run(&self) -> Figures {
        self.run_recorded(Recording::Off).figures()
    }

    /// Runs it and keeps what `recording` says.
    pub(super) fn run_recorded(&self, recording: Recording) -> Ended {
        let mut world = self.world(recording);
        // A stream of its own, the same for every protocol: all meet the same fate.
        let mut chance = Chance::new(self.seed ^ 0x7363_656E_6172_696F);
        let leader = if self.scenario.begins_led() { rest(&mut world, &mut chance) } else { Some(NodeId(1)) };
        let script = match leader {
            Some(leader) => self.scenario.script(world.settings(), leader, &mut chance),
            // A group that never came to rest: what it did until now is all there is to tell.
            None => Script { incidents: Vec::new(), lasts: Duration::ZERO },
        };
        let begin = world.now();
        let before = world.meter().clone();
        let term_before = greatest_term(&world);
        world.observer_mut().begun = true;
        for incident in &script.incidents {
            for fault in &incident.begins {
                world.inject(fault.clone());
            }
            for fault in &incident.ends {
                world.schedule(begin + incident.until.unwrap_or_default(), fault.clone());
            }
        }
        world.run_until(begin + script.lasts);
        Ended { world, script, begin, before, term_before }
    }

    fn world(&self, recording: Recording) -> World<Watch> {
        let guard = if self.guarded { Guard::Majority } else { Guard::Off };
        let settings = Settings::of((1..=self.nodes).map(NodeId)).guard(guard).pace(self.place.pace());
        let settings = settings.build().expect("a comparison is planned for groups that can be");
        let watch = Watch::of(&settings);
        let settings =
            WorldSettings { network: self.place.network(), recording, ..WorldSettings::new(self.kind, settings, self.seed) };
        World::watched(settings, watch)
    }
}

/// Waits until all follow one leader, it has served its minimum tenure, and a moment more that chance draws. Returns the leader.
pub(crate) fn rest<O: Observer>(world: &mut World<O>, chance: &mut Chance) -> Option<NodeId> {
    let pace = *world.settings().pace();
    let tenure = world.settings().stability().min_tenure;
    let limit = world.now() + pace.patience_max * REST_PATIENCES_MAX;
    // Faults must not always come in step with heartbeats.
    let offset = chance.between(Duration::ZERO, pace.heartbeat * 2);
    while world.now() < limit {
        world.run_for(pace.heartbeat);
        if world.agreed_leader().is_some() {
            let leader = world.agreed_leader();
            world.run_for(tenure + offset);
            if world.agreed_leader() == leader {
                return leader;
            }
        }
    }
    None
}

/// A run that has ended.
pub(super) struct Ended {
    pub(super) world: World<Watch>,
    pub(super) script: Script,
    /// When the scenario began.
    pub(super) begin: Moment,
    /// The meter at that moment.
    before: Meter,
    /// The greatest term at that moment.
    term_before: u64,
}

impl Ended {
    pub(super) fn figures(&self) -> Figures {
        let (meter, before, watch) = (self.world.meter(), &self.before, self.world.observer());
        let sent = |purpose| meter.by_purpose(purpose) - before.by_purpose(purpose);
        let overlaps: Vec<Duration> = meter.overlaps().iter().filter(|it| it.to > self.begin).map(|it| it.length()).collect();
        Figures {
            failover: watch.led_at.map(|at| at - self.begin),
            followed: watch.followed_at.map(|at| at - self.begin),
            election: watch.election,
            leaderless: meter.leaderless() - before.leaderless(),
            leaderships: meter.elected() - before.elected(),
            terms: greatest_term(&self.world).saturating_sub(self.term_before),
            contest_messages: sent(Purpose::Contest),
            guard_messages: sent(Purpose::Guard),
            messages: meter.messages() - before.messages(),
            contest_bytes: meter.bytes_by_purpose(Purpose::Contest) - before.bytes_by_purpose(Purpose::Contest),
            bytes: meter.bytes() - before.bytes(),
            overlaps: overlaps.len() as u64,
            overlap: overlaps.iter().sum(),
            overlap_longest: overlaps.iter().copied().max().unwrap_or_default(),
            led_at_end: self.world.leaders().next().is_some(),
        }
    }
}

/// The greatest term that any node knows of.
fn greatest_term<O: Observer>(world: &World<O>) -> u64 {
    world.views().filter_map(|(_, view)| view).map(|view| view.term.0).max().unwrap_or(0)
}

/// Sees who contends, who takes office and who follows whom.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    settings: Settings,
    /// By rank: whom the node last said it follows, or itself in office.
    following: Vec<Option<NodeId>>,
    begun: bool,
    /// By rank: since when the node has contended without having followed anyone since.
    contending: Vec<Option<Moment>>,
    /// How long the first leadership since the beginning was contended for.
    election: Option<Duration>,
    led_at: Option<Moment>,
    followed_at: Option<Moment>,
    /// The leaderships since the beginning, in order.
    leaders: Vec<NodeId>,
}

impl Watch {
    fn of(settings: &Settings) -> Watch {
        Watch {
            settings: settings.clone(),
            following: vec![None; settings.members().len()],
            begun: false,
            contending: vec![None; settings.members().len()],
            election: None,
            led_at: None,
            followed_at: None,
            leaders: Vec::new(),
        }
    }

    fn follow(&mut self, at: Moment, node: NodeId, leader: Option<NodeId>) {
        let rank = self.rank(node);
        self.following[rank] = leader;
        let Some(leader) = leader.filter(|leader| self.followed_at.is_none() && self.leaders.contains(leader)) else { return };
        if self.following.iter().filter(|it| **it == Some(leader)).count() >= self.settings.majority() {
            self.followed_at = Some(at);
        }
    }

    fn told(&mut self, at: Moment, node: NodeId, event: &Event) {
        match *event {
            Event::Contends { .. } => {
                let rank = self.rank(node);
                self.contending[rank].get_or_insert(at);
            }
            Event::Elected { .. } => {
                if self.begun {
                    self.elected(at, node);
                }
                let rank = self.rank(node);
                self.contending[rank] = None;
                self.follow(at, node, Some(node));
            }
            Event::Follows { leader, .. } => {
                // Its doubt was unfounded, or is over.
                let rank = self.rank(node);
                self.contending[rank] = None;
                self.follow(at, node, Some(leader));
            }
            Event::Lost { .. } | Event::LeaderGone { .. } => self.follow(at, node, None),
            Event::Rejected { .. } | Event::Asked { .. } | Event::Ignored { .. } => {}
        }
    }

    fn elected(&mut self, at: Moment, node: NodeId) {
        if self.led_at.is_none() {
            self.led_at = Some(at);
            self.election = self.contending.iter().flatten().min().map(|since| at - *since);
        }
        self.leaders.push(node);
    }

    fn rank(&self, node: NodeId) -> usize {
        self.settings.rank(node).expect("only members are observed")
    }
}

impl Observer for Watch {
    fn observe(&mut self, at: Moment, seen: &Observation<'_>) {
        match *seen {
            Observation::Told { node, ref event } => self.told(at, node, event),
            Observation::Crashed { node } => {
                let rank = self.rank(node);
                self.contending[rank] = None;
                self.follow(at, node, None);
            }
            Observation::InOffice { node: _, term: _, until: _ } | Observation::OutOfOffice { node: _, term: _ } => {}
            Observation::Started { node: _, disk: _ } | Observation::Healed => {}
            Observation::Sent { from: _, to: _, claim: _, purpose: _, name: _, durable: _ } => {}
        }
    }
}
