//! The links between the nodes: which of them carry messages at present, and how well.
//!
//! All links are alike unless told otherwise, so a world of a thousand nodes keeps no table of a million links:
//! cuts, flapping and special qualities are kept for the links that have them, partitions and isolation for the nodes.
//! Every message costs its sender's stream of chance exactly one draw, whatever becomes of it; one more fault therefore
//! does not change the delays of everything else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use incumbent_protocol::chance::Chance;

use crate::observation::Moment;

/// How the network of a world is when nothing is wrong with it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NetworkSettings {
    /// What every link is like.
    pub quality: Quality,
    /// What becomes of a message to a node that is down.
    pub refusal: Refusal,
}

impl NetworkSettings {
    /// One machine room: a fifth of a millisecond, seldom more than two milliseconds, nothing lost.
    pub const LAN: NetworkSettings = NetworkSettings {
        quality: Quality::calm(Delay::Tail { base: Duration::from_micros(200), mean: Duration::from_micros(300) }),
        refusal: Refusal::Silent,
    };

    /// The same delay on every link and for every message: for text scenarios and for counting.
    pub const fn constant(delay: Duration) -> NetworkSettings {
        NetworkSettings { quality: Quality::calm(Delay::Constant(delay)), refusal: Refusal::Silent }
    }
}

/// What becomes of a message to a node that is down.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It is lost and nobody says so, as when a whole machine is gone.
    Silent,
    /// It is lost, and after a round trip the sender gets a hint, as from a refused connection.
    Heard,
}

/// How well a link carries messages.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Quality {
    /// How long a message takes.
    pub delay: Delay,
    /// How many messages in a million take longer by `spike`.
    pub spike_ppm: u32,
    /// By how much.
    pub spike: Duration,
    /// How many messages in a million are lost.
    pub loss_ppm: u32,
    /// How many in a million arrive twice.
    pub duplicate_ppm: u32,
    /// How many in a million are held back for up to `reorder`, so that later ones overtake them.
    pub reorder_ppm: u32,
    /// For how long at most.
    pub reorder: Duration,
}

impl Quality {
    /// A link that delays and does nothing worse.
    pub const fn calm(delay: Delay) -> Quality {
        Quality {
            delay,
            spike_ppm: 0,
            spike: Duration::ZERO,
            loss_ppm: 0,
            duplicate_ppm: 0,
            reorder_ppm: 0,
            reorder: Duration::ZERO,
        }
    }
}

/// A distribution of spans of time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Delay {
    /// Always the same.
    Constant(Duration),
    /// Anything between the two, equally likely.
    Uniform {
        /// The shortest.
        min: Duration,
        /// The longest.
        max: Duration,
    },
    /// At least `base`, and `mean` more on average: seldom much more, as in a queue (exponential).
    Tail {
        /// The shortest.
        base: Duration,
        /// How much longer on average.
        mean: Duration,
    },
}

impl Delay {
    /// No time at all.
    pub const NONE: Delay = Delay::Constant(Duration::ZERO);

    /// Draws a span.
    pub fn draw(&self, chance: &mut Chance) -> Duration {
        match *self {
            Delay::Constant(span) => span,
            Delay::Uniform { min, max } => chance.between(min, max),
            Delay::Tail { base, mean } => base + exponential(mean, chance),
        }
    }

    /// The span that it takes on average.
    pub fn mean(&self) -> Duration {
        match *self {
            Delay::Constant(span) => span,
            Delay::Uniform { min, max } => (min + max.max(min)) / 2,
            Delay::Tail { base, mean } => base + mean,
        }
    }
}

/// What becomes of one message: when its copies arrive.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fate {
    /// After how long it arrives; `None` if it is lost.
    pub(crate) first: Option<Duration>,
    /// After how long it arrives once more.
    pub(crate) second: Option<Duration>,
}

/// A link that works for half of each period and does not for the other half. It begins with not working.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Flap {
    since: Moment,
    period: Duration,
}

impl Flap {
    fn is_down(&self, now: Moment) -> bool {
        let half = (self.period / 2).as_nanos().max(1);
        ((now - self.since).as_nanos() / half).is_multiple_of(2)
    }
}

/// A way from one node to another, by rank.
type Way = (u32, u32);

/// The state of all links. Nodes are told apart by rank.
#[derive(Clone, Debug)]
pub struct Network {
    settings: NetworkSettings,
    quality: Quality,
    special: BTreeMap<Way, Quality>,
    cut: BTreeSet<Way>,
    flapping: BTreeMap<Way, Flap>,
    group: Vec<u32>,
    isolated: Vec<bool>,
    /// Whether any link may be down: most of the time none is, and then nothing needs to be looked up.
    troubled: bool,
}

impl Network {
    pub(crate) fn new(settings: NetworkSettings, nodes: usize) -> Network {
        Network {
            settings,
            quality: settings.quality,
            special: BTreeMap::new(),
            cut: BTreeSet::new(),
            flapping: BTreeMap::new(),
            group: vec![0; nodes],
            isolated: vec![false; nodes],
            troubled: false,
        }
    }

    /// Whether a message from `from` would reach `to` at `now`. Nodes are given by rank.
    pub fn carries(&self, from: u32, to: u32, now: Moment) -> bool {
        !self.troubled || self.carries_in_trouble(from, to, now)
    }

    fn carries_in_trouble(&self, from: u32, to: u32, now: Moment) -> bool {
        self.group[from as usize] == self.group[to as usize]
            && !self.isolated[from as usize]
            && !self.isolated[to as usize]
            && !self.cut.contains(&(from, to))
            && !self.flapping.get(&(from, to)).is_some_and(|flap| flap.is_down(now))
    }

    /// What the way from `from` to `to` is like.
    pub fn quality(&self, from: u32, to: u32) -> &Quality {
        if self.special.is_empty() {
            return &self.quality;
        }
        self.special.get(&(from, to)).unwrap_or(&self.quality)
    }

    /// What becomes of the next message from `from` to `to`. Takes one draw of the sender's `chance`.
    pub(crate) fn fate(&self, from: u32, to: u32, chance: &mut Chance) -> Fate {
        let mut own = Chance::new(chance.bits());
        let quality = self.quality(from, to);
        let first = quality.delay.draw(&mut own);
        if quality.loss_ppm | quality.duplicate_ppm | quality.reorder_ppm | quality.spike_ppm == 0 {
            return Fate { first: Some(first), second: None };
        }
        let late = |own: &mut Chance, delay: Duration| {
            let spike = if own.happens(quality.spike_ppm) { quality.spike } else { Duration::ZERO };
            let held =
                if own.happens(quality.reorder_ppm) { own.between(Duration::ZERO, quality.reorder) } else { Duration::ZERO };
            delay + spike + held
        };
        let first = late(&mut own, first);
        let lost = own.happens(quality.loss_ppm);
        let second = own.happens(quality.duplicate_ppm).then(|| {
            let delay = quality.delay.draw(&mut own);
            late(&mut own, delay)
        });
        // Of a message that was sent twice one copy may well be lost and the other arrive.
        Fate { first: (!lost).then_some(first), second }
    }

    pub(crate) fn refusal(&self) -> Refusal {
        self.settings.refusal
    }

    pub(crate) fn cut(&mut self, ways: impl IntoIterator<Item = Way>) {
        self.cut.extend(ways);
        self.look();
    }

    pub(crate) fn flap(&mut self, ways: impl IntoIterator<Item = Way>, now: Moment, period: Duration) {
        self.flapping.extend(ways.into_iter().map(|way| (way, Flap { since: now, period })));
        self.look();
    }

    /// Ends cuts and flapping of `ways`; partitions and isolation go on.
    pub(crate) fn mend(&mut self, ways: impl IntoIterator<Item = Way>) {
        for way in ways {
            self.cut.remove(&way);
            self.flapping.remove(&way);
        }
        self.look();
    }

    /// Every link carries messages again.
    pub(crate) fn mend_all(&mut self) {
        self.cut.clear();
        self.flapping.clear();
        self.group.fill(0);
        self.isolated.fill(false);
        self.look();
    }

    /// Splits the nodes into `groups`; those that no group names make up one more together.
    pub(crate) fn partition(&mut self, groups: impl IntoIterator<Item = (u32, u32)>) {
        self.group.fill(0);
        for (node, group) in groups {
            self.group[node as usize] = group + 1;
        }
        self.look();
    }

    pub(crate) fn isolate(&mut self, node: u32, isolated: bool) {
        self.isolated[node as usize] = isolated;
        self.look();
    }

    /// Changes the quality of all links.
    pub(crate) fn change_all(&mut self, change: impl Fn(&mut Quality)) {
        change(&mut self.quality);
        self.special.values_mut().for_each(change);
    }

    /// Changes the quality of some.
    pub(crate) fn change(&mut self, ways: impl IntoIterator<Item = Way>, change: impl Fn(&mut Quality)) {
        for way in ways {
            change(self.special.entry(way).or_insert(self.quality));
        }
    }

    /// Every link is as it was when the world began.
    pub(crate) fn restore(&mut self) {
        self.mend_all();
        self.special.clear();
        self.quality = self.settings.quality;
    }

    fn look(&mut self) {
        self.troubled = !self.cut.is_empty()
            || !self.flapping.is_empty()
            || self.group.iter().any(|group| *group != self.group[0])
            || self.isolated.contains(&true);
    }
}

/// An exponentially distributed span, in integers so that every machine draws the same.
fn exponential(mean: Duration, chance: &mut Chance) -> Duration {
    let nanos = u64::try_from(mean.as_nanos()).unwrap_or(u64::MAX);
    // -ln(u) = -log2(u) · ln 2
    let product = (u128::from(nanos) * u128::from(negative_log2(chance.bits()))) >> 32;
    let scaled = product * 693_147 / 1_000_000;
    Duration::from_nanos(u64::try_from(scaled).unwrap_or(u64::MAX))
}

/// `-log2(u / 2^64)` in units of 2^-32, right to within a hundredth: ample for a delay.
fn negative_log2(u: u64) -> u64 {
    let u = u | 1;
    let zeros = u.leading_zeros();
    // u = 2^(63 - zeros) · (1 + fraction / 2^32)
    let fraction = ((u << zeros) << 1) >> 32;
    // log2(1 + f) ≈ f + 0.344 · f · (1 - f)
    let bow = ((fraction * ((1 << 32) - fraction)) >> 32) * 344 / 1000;
    (u64::from(zeros + 1) << 32) - fraction - bow
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn network() -> Network {
        Network::new(NetworkSettings::constant(MS), 5)
    }

    fn reached(network: &Network, now: u64) -> Vec<Way> {
        let all = (0..5).flat_map(|from| (0..5).map(move |to| (from, to))).filter(|(from, to)| from != to);
        all.filter(|&(from, to)| network.carries(from, to, Moment(now))).collect()
    }

    #[test]
    fn a_cut_one_way_leaves_the_other_way() {
        let mut network = network();
        network.cut([(0, 1)]);
        assert!(!network.carries(0, 1, Moment(0)));
        assert!(network.carries(1, 0, Moment(0)));
        assert_eq!(reached(&network, 0).len(), 19);
        network.mend([(0, 1)]);
        assert_eq!(reached(&network, 0).len(), 20);
        assert!(!network.troubled);
    }

    #[test]
    fn a_partition_cuts_both_ways_and_keeps_the_unnamed_together() {
        let mut network = network();
        network.partition([(0, 0), (1, 0)]);
        let mut expected = vec![(0, 1), (1, 0), (2, 3), (2, 4), (3, 2), (3, 4), (4, 2), (4, 3)];
        expected.sort_unstable();
        assert_eq!(reached(&network, 0), expected);
        network.isolate(3, true);
        assert_eq!(reached(&network, 0).len(), 4);
        network.mend_all();
        assert_eq!(reached(&network, 0).len(), 20);
    }

    #[test]
    fn a_flapping_link_is_down_and_up_by_turns() {
        let mut network = network();
        network.flap([(0, 1), (1, 0)], Moment(100), Duration::from_nanos(20));
        let up: Vec<bool> = [100, 109, 110, 119, 120, 130].map(|now| network.carries(0, 1, Moment(now))).into();
        assert_eq!(up, [false, false, true, true, false, true]);
    }

    #[test]
    fn messages_are_lost_repeated_and_held_back_as_often_as_told() {
        let mut network = network();
        network.change_all(|quality| {
            quality.loss_ppm = 300_000;
            quality.duplicate_ppm = 100_000;
            quality.reorder_ppm = 50_000;
            quality.reorder = MS * 10;
        });
        network.change([(0, 1)], |quality| quality.loss_ppm = 1_000_000);
        let mut chance = Chance::new(3);
        let fates: Vec<Fate> = (0..100_000).map(|_| network.fate(1, 0, &mut chance)).collect();
        let share = |wanted: &dyn Fn(&Fate) -> bool| (fates.iter().filter(|fate| wanted(fate)).count() + 500) / 1000;
        assert_eq!(share(&|fate| fate.first.is_none()), 30);
        assert_eq!(share(&|fate| fate.second.is_some()), 10);
        // A twentieth of the seven tenths that are not lost: 3.5, give or take what rounding does.
        assert_eq!(share(&|fate| fate.first.is_some_and(|delay| delay > MS)), 3);
        assert!(network.fate(0, 1, &mut chance).first.is_none());
        network.restore();
        assert_eq!(network.fate(0, 1, &mut chance), Fate { first: Some(MS), second: None });
    }

    #[test]
    fn a_message_costs_one_draw_whatever_becomes_of_it() {
        let (mut calm, mut rough) = (Chance::new(5), Chance::new(5));
        let mut storm = network();
        storm.change_all(|quality| {
            quality.loss_ppm = 500_000;
            quality.duplicate_ppm = 500_000;
        });
        for _ in 0..100 {
            network().fate(0, 1, &mut calm);
            storm.fate(0, 1, &mut rough);
        }
        assert_eq!(calm, rough);
    }

    #[test]
    fn a_tail_has_its_mean_and_its_shape() {
        let delay = Delay::Tail { base: MS, mean: MS * 2 };
        let mut chance = Chance::new(9);
        let mut drawn: Vec<Duration> = (0..200_000).map(|_| delay.draw(&mut chance)).collect();
        drawn.sort_unstable();
        let mean = drawn.iter().sum::<Duration>() / 200_000;
        assert!((mean.as_secs_f64() - 0.003).abs() < 0.000_03, "{mean:?}");
        // The median of an exponential is ln 2 of its mean, the 99th percentile ln 100.
        let at = |share: usize| (drawn[drawn.len() * share / 100] - MS).as_secs_f64() / 0.002;
        assert!((at(50) - 0.693).abs() < 0.02 && (at(99) - 4.605).abs() < 0.1, "{} {}", at(50), at(99));
        assert!(drawn[0] >= MS);
    }
}
