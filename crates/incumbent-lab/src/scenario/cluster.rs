//! The first line of a scenario: `cluster raft nodes=3 seed=7 delay=1ms..10ms`. Every option has a default but the protocol.

use std::time::Duration;

use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::NodeId;
use incumbent_protocol::settings::{Detection, Guard, Invalid, MEMBERS_MAX, Pace, PreVote, Settings, Stability, Takeover};

use super::words::{PERCENT, SPAN, Word, Words, Wrong, member, percent, span};
use crate::clock::ClockSettings;
use crate::network::{Delay, Refusal};
use crate::trace::Recording;
use crate::world::WorldSettings;

/// How long a message takes unless the cluster says otherwise: short beside every wait, long enough to be seen in a trace.
const DELAY: Duration = Duration::from_millis(1);

/// Greater ids would only make lines long; and the oracles keep a table up to the greatest.
const ID_MAX: u32 = 9_999;

/// Every option there is, for the message about one that is not.
const OPTIONS: &str = "nodes, seed, guard, prevote, detection, takeover, ring, priority, pace, heartbeat, patience, reply, drift, margin, \
                       tenure, aside, delay, loss, duplicate, reorder, refusals, disk, clocks, user";

/// The options in the making.
struct Options<'a> {
    given: Vec<(&'a str, Word<'a>)>,
}

/// Reads what follows the word `cluster`.
pub(super) fn cluster(words: &mut Words<'_>) -> Result<WorldSettings, Wrong> {
    let word = words.next("a protocol: bully, ring, chang-roberts or raft")?;
    let kind: Kind = word.text.parse().map_err(|wrong: Invalid| word.wrong(wrong.to_string()))?;
    let mut options = Options { given: Vec::new() };
    while let Some(word) = words.peek() {
        words.next("an option")?;
        let Some((name, value)) = word.text.split_once('=') else {
            return Err(word.expected("an option such as nodes=3"));
        };
        let value = Word { text: value, column: word.column + name.chars().count() + 1 };
        if !OPTIONS.split(", ").any(|it| it == name) {
            return Err(word.wrong(format!("unknown option '{name}': it is one of {OPTIONS}")));
        }
        if options.given.iter().any(|(it, _)| *it == name) {
            return Err(word.wrong(format!("'{name}' is given twice: remove one")));
        }
        options.given.push((name, value));
    }
    options.build(kind, word)
}

impl<'a> Options<'a> {
    fn value(&self, name: &str) -> Option<Word<'a>> {
        self.given.iter().find(|(it, _)| *it == name).map(|(_, value)| *value)
    }

    /// The value of `name` as `read` makes it, or an error that says what was expected.
    fn read<T>(&self, name: &str, expected: &str, read: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Wrong> {
        self.value(name).map(|word| read(word.text).ok_or_else(|| word.expected(expected))).transpose()
    }

    fn span(&self, name: &str) -> Result<Option<Duration>, Wrong> {
        self.read(name, SPAN, span)
    }

    fn share(&self, name: &str) -> Result<Option<u32>, Wrong> {
        self.read(name, PERCENT, percent)
    }

    fn delay(&self, name: &str) -> Result<Option<Delay>, Wrong> {
        self.read(name, "a time (5ms), a range (1ms..10ms), or a base and a mean above it (1ms+2ms)", delay)
    }

    fn build(&self, kind: Kind, protocol: Word<'_>) -> Result<WorldSettings, Wrong> {
        let settings = self.settings(kind, protocol)?;
        let seed = self.read("seed", "a number", |text| text.parse().ok())?.unwrap_or(1);
        let mut world = WorldSettings::plain(kind, settings, seed, DELAY);
        let quality = &mut world.network.quality;
        if let Some(delay) = self.delay("delay")? {
            quality.delay = delay;
        }
        if let Some(ppm) = self.share("loss")? {
            quality.loss_ppm = ppm;
        }
        if let Some(ppm) = self.share("duplicate")? {
            quality.duplicate_ppm = ppm;
        }
        if let Some((ppm, by)) = self.read("reorder", "a share and a time such as 10%/20ms", reorder)? {
            (quality.reorder_ppm, quality.reorder) = (ppm, by);
        }
        let refusal = |text: &str| match text {
            "silent" => Some(Refusal::Silent),
            "heard" => Some(Refusal::Heard),
            _ => None,
        };
        if let Some(refusal) = self.read("refusals", "silent or heard", refusal)? {
            world.network.refusal = refusal;
        }
        if let Some(latency) = self.delay("disk")? {
            world.disk.latency = latency;
        }
        let clocks = |text: &str| match text {
            "exact" => Some(ClockSettings::EXACT),
            _ => ppm(text).map(ClockSettings::within),
        };
        if let Some(clocks) = self.read("clocks", "exact, or how much they may be off, such as 500ppm", clocks)? {
            world.clocks = clocks;
        }
        let user = |text: &str| if text == "never" { Some(None) } else { delay(text).map(Some) };
        if let Some(obliges) = self.read("user", "how long a leader's user takes to hand over (1ms), or never", user)? {
            world.obliges = obliges;
        }
        world.recording = Recording::All;
        Ok(world)
    }

    fn settings(&self, kind: Kind, protocol: Word<'_>) -> Result<Settings, Wrong> {
        self.refuse_what_means_nothing(kind)?;
        let members = self.members()?;
        let pace = self.pace()?;
        let mut builder = Settings::of(members.iter().copied()).pace(pace);
        let guard = |text: &str| match text {
            "on" => Some(Guard::Majority),
            "off" => Some(Guard::Off),
            _ => text.parse().ok().map(Guard::Quorum),
        };
        if let Some(guard) = self.read("guard", "on, off, or the size of the quorum", guard)? {
            builder = builder.guard(guard);
        }
        let pre_vote = |text: &str| on_off(text).map(|on| if on { PreVote::On } else { PreVote::Off });
        if let Some(pre_vote) = self.read("prevote", "on or off", pre_vote)? {
            builder = builder.pre_vote(pre_vote);
        }
        let detection = |text: &str| match text {
            "fixed" => Some(Detection::Fixed),
            "adaptive" => Some(Detection::Adaptive),
            _ => None,
        };
        if let Some(detection) = self.read("detection", "fixed or adaptive", detection)? {
            builder = builder.detection(detection);
        }
        let takeover = |text: &str| match text {
            "at-once" => Some(Takeover::AtOnce),
            "when-free" => Some(Takeover::WhenFree),
            _ => None,
        };
        if let Some(takeover) = self.read("takeover", "at-once or when-free", takeover)? {
            builder = builder.takeover(takeover);
        }
        if let Some(ring) = self.read("ring", "every node once, such as 3,1,2", ids)? {
            builder = builder.ring(ring);
        }
        if let Some(word) = self.value("priority") {
            for part in parts(word) {
                let expected = "a node and its priority, such as 3:2";
                let (node, priority) = part.text.split_once(':').ok_or_else(|| part.expected(expected))?;
                let node = member(Word { text: node, column: part.column }, &members)?;
                builder = builder.priority(node, priority.parse().map_err(|_| part.expected(expected))?);
            }
        }
        let mut stability = Stability::of(&pace);
        if let Some(tenure) = self.span("tenure")? {
            stability.min_tenure = tenure;
        }
        if let Some((min, max)) = self.read("aside", "two times such as 300ms..2s", range)? {
            (stability.aside_min, stability.aside_max) = (min, max);
        }
        builder
            .stability(stability)
            .build()
            .map_err(|invalid| self.blame(&invalid).unwrap_or(protocol).wrong(invalid.to_string()))
    }

    fn members(&self) -> Result<Vec<NodeId>, Wrong> {
        let Some(word) = self.value("nodes") else { return Ok((1..=3).map(NodeId).collect()) };
        if let Ok(count) = word.text.parse::<u32>() {
            // One more than allowed is enough for the settings to refuse it; a billion would not fit into memory first.
            let count = count.min(MEMBERS_MAX as u32 + 1);
            return Ok((1..=count).map(NodeId).collect());
        }
        let ids = ids(word.text).ok_or_else(|| word.expected("how many (nodes=5), or which (nodes=1,3,7)"))?;
        match ids.iter().find(|id| id.0 > ID_MAX) {
            Some(id) => Err(word.wrong(format!("node {id} is too great a number: {ID_MAX} is the greatest"))),
            None => Ok(ids),
        }
    }

    fn pace(&self) -> Result<Pace, Wrong> {
        let preset = |text: &str| match text {
            "lan" => Some(Pace::LAN),
            "wan" => Some(Pace::WAN),
            _ => None,
        };
        let mut pace = self.read("pace", "lan or wan", preset)?.unwrap_or(Pace::LAN);
        if let Some(heartbeat) = self.span("heartbeat")? {
            pace.heartbeat = heartbeat;
        }
        if let Some((min, max)) = self.read("patience", "two times such as 150ms..300ms", range)? {
            (pace.patience_min, pace.patience_max) = (min, max);
        }
        if let Some(reply) = self.span("reply")? {
            pace.reply = reply;
        }
        if let Some(drift) = self.read("drift", "parts per million such as 500ppm", ppm)? {
            pace.drift_ppm = drift;
        }
        if let Some(margin) = self.span("margin")? {
            pace.margin = margin;
        }
        Ok(pace)
    }

    /// An option that this protocol does not look at would promise something.
    fn refuse_what_means_nothing(&self, kind: Kind) -> Result<(), Wrong> {
        let rings: &[Kind] = &[Kind::Ring, Kind::ChangRoberts];
        for (name, kinds) in [("takeover", &[Kind::Bully][..]), ("ring", rings), ("priority", &[Kind::Raft])] {
            if let Some(word) = self.value(name).filter(|_| !kinds.contains(&kind)) {
                let kinds: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
                return Err(word.wrong(format!("'{name}' means nothing to {kind}, only to {}: remove it", kinds.join(" and "))));
            }
        }
        Ok(())
    }

    /// The option that settings were refused for.
    fn blame(&self, invalid: &Invalid) -> Option<Word<'a>> {
        let name = match invalid {
            Invalid::NoMembers | Invalid::TooManyMembers { .. } | Invalid::RepeatedMember { .. } => "nodes",
            Invalid::Ring => "ring",
            Invalid::Stranger { .. } => "priority",
            Invalid::Quorum { .. } => "guard",
            Invalid::Span { name: "heartbeat", .. } => "heartbeat",
            Invalid::Span { name: "reply", .. } => "reply",
            Invalid::Span { name: "min-tenure", .. } => "tenure",
            Invalid::Span { name: "aside-max", .. } | Invalid::Aside { .. } => "aside",
            Invalid::Span { .. } | Invalid::Hasty { .. } | Invalid::Patience { .. } => "patience",
            Invalid::Drift { .. } => "drift",
            Invalid::Heartbeat { .. } => {
                return ["heartbeat", "patience", "margin", "drift"].into_iter().find_map(|name| self.value(name));
            }
            Invalid::Unknown { .. } | Invalid::Change { .. } => return None,
        };
        self.value(name)
    }
}

/// The parts between commas, each where it stands.
fn parts(word: Word<'_>) -> impl Iterator<Item = Word<'_>> {
    let mut column = word.column;
    word.text.split(',').map(move |text| {
        let part = Word { text, column };
        column += text.chars().count() + 1;
        part
    })
}

fn ids(text: &str) -> Option<Vec<NodeId>> {
    text.split(',').map(|id| id.parse().ok().map(NodeId)).collect()
}

fn on_off(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

fn ppm(text: &str) -> Option<u32> {
    // More than a whole is no clock, and would overflow the arithmetic of one.
    text.strip_suffix("ppm")?.parse().ok().filter(|ppm| *ppm < 1_000_000)
}

fn range(text: &str) -> Option<(Duration, Duration)> {
    let (min, max) = text.split_once("..")?;
    Some((span(min)?, span(max)?))
}

fn reorder(text: &str) -> Option<(u32, Duration)> {
    let (share, by) = text.split_once('/')?;
    Some((percent(share)?, span(by)?))
}

fn delay(text: &str) -> Option<Delay> {
    if let Some((min, max)) = range(text) {
        return (min <= max).then_some(Delay::Uniform { min, max });
    }
    if let Some((base, mean)) = text.split_once('+') {
        return Some(Delay::Tail { base: span(base)?, mean: span(mean)? });
    }
    span(text).map(Delay::Constant)
}
