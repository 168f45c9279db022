//! How a scenario is read. What cannot be read is refused with its place and with what was expected there.

use std::time::Duration;

use incumbent_protocol::protocol::{NodeId, Request, Term};

use super::cluster::cluster;
use super::words::{Mistake, Word, Words, Wrong, member};
use super::{Block, Command, Expectation, Goal, Messages, Scenario, Show, Step};
use crate::fault::{Fault, Links};

/// What separates commands from their trace.
const RULE: &str = "----";

/// How long `run until` waits unless it says so itself.
const WITHIN: Duration = Duration::from_secs(10);

/// More gusts in a reset storm would only take time.
const RESETS_MAX: u32 = 10_000;

/// The first word of every command, for the message about one that is none.
const COMMANDS: &str = "run, show, expect, crash, restart, pause, resume, slow, cut, mend, isolate, rejoin, partition, star, chain, flap, \
                        heal, delay, spikes, loss, duplicate, reorder, clock, disk, campaign, resign, hand-over, suspect, dead, abstain, stand, reset-storm";

/// Reads a scenario. `file` is its name in messages.
pub fn parse(file: &str, text: &str) -> Result<Scenario, Mistake> {
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut reader = Reader { file, lines: &lines, at: 0 };
    let head = reader.head()?;
    let world = reader.cluster()?;
    let members = world.settings.members().to_vec();
    let mut blocks = Vec::new();
    while let Some(block) = reader.block(&members)? {
        blocks.push(block);
    }
    Ok(Scenario { file: file.to_owned(), head, world, blocks, lines })
}

struct Reader<'a> {
    file: &'a str,
    lines: &'a [String],
    /// The line to be read next, from 0.
    at: usize,
}

impl<'a> Reader<'a> {
    /// The comment with which the file begins.
    fn head(&mut self) -> Result<String, Mistake> {
        let mut head = Vec::new();
        while let Some(comment) = self.lines.get(self.at).and_then(|line| line.strip_prefix('#')) {
            head.push(comment.trim().to_owned());
            self.at += 1;
        }
        if head.iter().all(String::is_empty) {
            return Err(self.mistake(0, Wrong { column: 1, width: 1, what: "expected '#' and what the scenario shows".into() }));
        }
        Ok(head.join("\n"))
    }

    fn cluster(&mut self) -> Result<crate::world::WorldSettings, Mistake> {
        let expected = "'cluster' and a protocol";
        let Some((at, line)) = self.command_line() else {
            let what = format!("expected {expected}, found the end of the file");
            return Err(self.mistake(self.lines.len().saturating_sub(1), Wrong { column: 1, width: 1, what }));
        };
        let mut words = Words::of(line);
        let world = words.next(expected).and_then(|word| {
            if word.text != "cluster" {
                return Err(word.expected(expected));
            }
            cluster(&mut words)
        });
        world.map_err(|wrong| self.mistake(at, wrong))
    }

    /// The next commands with their trace; `None` at the end of the file.
    fn block(&mut self, members: &[NodeId]) -> Result<Option<Block>, Mistake> {
        let mut steps = Vec::new();
        while let Some((at, line)) = self.command_line() {
            if line.trim() == RULE {
                let expected_line = self.at + 1;
                return Ok(Some(Block { steps, expected: self.trace(), expected_line }));
            }
            if line.starts_with("t=") {
                let what = format!("expected a command: a trace stands behind '{RULE}' and has no blank line in it");
                return Err(self.mistake(at, Wrong { column: 1, width: line.chars().count(), what }));
            }
            let command = command(line, members).map_err(|wrong| self.mistake(at, wrong))?;
            steps.push(Step { line: at + 1, text: line.trim().to_owned(), command });
        }
        match steps.last() {
            None => Ok(None),
            Some(last) => {
                let what = format!("expected '{RULE}' and the trace behind the last command, found the end of the file");
                let width = self.lines[last.line - 1].chars().count().max(1);
                Err(self.mistake(last.line - 1, Wrong { column: 1, width, what }))
            }
        }
    }

    /// The next line that is neither blank nor a comment, and its place.
    fn command_line(&mut self) -> Option<(usize, &'a str)> {
        while let Some(line) = self.lines.get(self.at) {
            self.at += 1;
            if !line.trim().is_empty() && !line.starts_with('#') {
                return Some((self.at - 1, line));
            }
        }
        None
    }

    fn trace(&mut self) -> Vec<String> {
        let trace: Vec<String> =
            self.lines[self.at..].iter().map(|line| line.trim_end().to_owned()).take_while(|line| !line.is_empty()).collect();
        self.at += trace.len();
        trace
    }

    fn mistake(&self, at: usize, wrong: Wrong) -> Mistake {
        let text = self.lines.get(at).cloned().unwrap_or_default();
        let Wrong { column, width, what } = wrong;
        Mistake { file: self.file.to_owned(), line: at + 1, column, width, what, text }
    }
}

fn command(line: &str, members: &[NodeId]) -> Result<Command, Wrong> {
    let mut words = Words::of(line);
    let word = words.next("a command")?;
    let command = match word.text {
        "run" => run(&mut words, members)?,
        "show" => show(&mut words)?,
        "expect" => Command::Expect(expectation(&mut words, members)?),
        "star" => Command::Inject(star(&mut words, members)?),
        "chain" => Command::Inject(chain(&mut words, members)?),
        "cluster" => return Err(word.wrong("a scenario has one cluster: put the other one into a file of its own")),
        _ => Command::Inject(vec![fault(word, &mut words, members)?]),
    };
    words.end()?;
    Ok(command)
}

fn run(words: &mut Words<'_>, members: &[NodeId]) -> Result<Command, Wrong> {
    if !words.take("until") {
        if words.peek().is_none() {
            return Err(words.missing("'until' or a time such as 2s"));
        }
        return Ok(Command::Run(words.span()?));
    }
    let expected = "leader, no leader, agreed or contest";
    let word = words.next(expected)?;
    let goal = match word.text {
        "leader" => match words.peek() {
            Some(word) if word.text != "within" => Goal::LeaderIs(words.node(members)?),
            Some(_) | None => Goal::Leader,
        },
        "no" => {
            words.demand("leader")?;
            Goal::NoLeader
        }
        "agreed" => Goal::Agreed,
        "contest" => Goal::Contest,
        _ => return Err(word.expected(expected)),
    };
    let within = if words.take("within") { words.span()? } else { WITHIN };
    Ok(Command::RunUntil { goal, within })
}

fn show(words: &mut Words<'_>) -> Result<Command, Wrong> {
    let expected = "messages, leader, nodes, counts or office";
    let word = words.next(expected)?;
    Ok(match word.text {
        "messages" => {
            let word = words.next("on, all or off")?;
            Command::ShowMessages(match word.text {
                "on" => Messages::On,
                "all" => Messages::All,
                "off" => Messages::Off,
                _ => return Err(word.expected("on, all or off")),
            })
        }
        "leader" => Command::Show(Show::Leader),
        "nodes" => Command::Show(Show::Nodes),
        "counts" => Command::Show(Show::Counts),
        "office" => Command::Show(Show::Office),
        _ => return Err(word.expected(expected)),
    })
}

fn expectation(words: &mut Words<'_>, members: &[NodeId]) -> Result<Expectation, Wrong> {
    let expected = "leader, no leader, two leaders, never two leaders, agreed or term";
    let word = words.next(expected)?;
    Ok(match word.text {
        "leader" if words.peek().is_none() => Expectation::Leader,
        "leader" => Expectation::LeaderIs(words.node(members)?),
        "no" => {
            words.demand("leader")?;
            Expectation::NoLeader
        }
        "two" => {
            words.demand("leaders")?;
            Expectation::TwoLeaders
        }
        "never" => {
            words.demand("two")?;
            words.demand("leaders")?;
            Expectation::NeverTwoLeaders
        }
        "agreed" => Expectation::Agreed,
        "term" => {
            let word = words.next("a term")?;
            Expectation::Term(Term(word.text.parse().map_err(|_| word.expected("a term"))?))
        }
        _ => return Err(word.expected(expected)),
    })
}

/// A fault in the words of its [`Display`](Fault); `cut 3` is short for `isolate 3`.
fn fault(word: Word<'_>, words: &mut Words<'_>, members: &[NodeId]) -> Result<Fault, Wrong> {
    let to_one = |words: &mut Words<'_>| words.node(members);
    Ok(match word.text {
        "crash" => Fault::Crash(to_one(words)?),
        "restart" => Fault::Restart(to_one(words)?),
        "pause" => Fault::Pause(to_one(words)?),
        "resume" => Fault::Resume(to_one(words)?),
        "isolate" => Fault::Isolate(to_one(words)?),
        "rejoin" => Fault::Rejoin(to_one(words)?),
        "slow" => Fault::Slow { node: to_one(words)?, by: words.span()? },
        "cut" => cut(words, members)?,
        "mend" => Fault::Mend(links(words, members)?),
        "partition" => partition(words, members)?,
        "flap" => {
            let (links, place) = (links(words, members)?, words.peek());
            let period = words.span()?;
            if let Some(place) = place.filter(|_| period < Duration::from_nanos(2)) {
                return Err(place.expected("a time of at least 2ns: half of it down, half of it up"));
            }
            Fault::Flap { links, period }
        }
        "heal" => Fault::Heal,
        "delay" => Fault::Delay { links: links(words, members)?, delay: words.delay()? },
        "spikes" => Fault::Spikes { links: links(words, members)?, ppm: words.percent()?, by: words.span()? },
        "loss" => Fault::Loss { links: links(words, members)?, ppm: words.percent()? },
        "duplicate" => Fault::Duplicate { links: links(words, members)?, ppm: words.percent()? },
        "reorder" => Fault::Reorder { links: links(words, members)?, ppm: words.percent()?, by: words.span()? },
        "clock" => clock(words, members)?,
        "disk" => disk(words, members)?,
        "campaign" => Fault::Request { node: to_one(words)?, request: Request::Campaign },
        "resign" => Fault::Request { node: to_one(words)?, request: Request::Resign },
        "hand-over" => Fault::Request { node: to_one(words)?, request: Request::HandOver { to: to_one(words)? } },
        "suspect" => Fault::Request { node: to_one(words)?, request: Request::Suspect { peer: to_one(words)? } },
        "dead" => Fault::Request { node: to_one(words)?, request: Request::Dead { peer: to_one(words)? } },
        "abstain" => Fault::Request { node: to_one(words)?, request: Request::Abstain },
        "stand" => Fault::Request { node: to_one(words)?, request: Request::Stand },
        "reset-storm" => {
            let every = words.span()?;
            let word = words.next("how many times")?;
            let times = word.text.parse().map_err(|_| word.expected("how many times"))?;
            if times > RESETS_MAX {
                return Err(word.wrong(format!("{times} are too many: at most {RESETS_MAX}")));
            }
            words.demand("times")?;
            Fault::ResetStorm { every, times }
        }
        _ => return Err(word.wrong(format!("unknown command '{}': it is one of {COMMANDS}", word.text))),
    })
}

fn cut(words: &mut Words<'_>, members: &[NodeId]) -> Result<Fault, Wrong> {
    let mut ahead = words.clone();
    if ahead.node(members).is_ok() && ahead.peek().is_none() {
        return Ok(Fault::Isolate(words.node(members)?));
    }
    Ok(Fault::Cut(links(words, members)?))
}

/// `all`, `1 2` or `1 > 2`.
fn links(words: &mut Words<'_>, members: &[NodeId]) -> Result<Links, Wrong> {
    if words.take("all") {
        return Ok(Links::All);
    }
    if words.peek().is_none() {
        return Err(words.missing("'all' or the nodes of a link"));
    }
    let from = words.node(members)?;
    let one_way = words.take(">");
    let place = words.peek();
    let to = words.node(members)?;
    if let Some(place) = place.filter(|_| from == to) {
        return Err(place.expected(format_args!("a node other than {from}")));
    }
    Ok(if one_way { Links::OneWay { from, to } } else { Links::Between(from, to) })
}

fn partition(words: &mut Words<'_>, members: &[NodeId]) -> Result<Fault, Wrong> {
    let mut groups = vec![Vec::new()];
    while let Some(word) = words.peek() {
        words.next("a node")?;
        if word.text == "|" {
            if groups.last().is_some_and(Vec::is_empty) {
                return Err(word.expected("a node"));
            }
            groups.push(Vec::new());
            continue;
        }
        let node = member(word, members)?;
        if groups.iter().flatten().any(|it| *it == node) {
            return Err(word.wrong(format!("node {node} is in two groups: name it once")));
        }
        if let Some(group) = groups.last_mut() {
            group.push(node);
        }
    }
    if groups.last().is_some_and(Vec::is_empty) {
        return Err(words.missing("a node"));
    }
    Ok(Fault::Partition(groups))
}

/// Everyone reaches only the hub.
fn star(words: &mut Words<'_>, members: &[NodeId]) -> Result<Vec<Fault>, Wrong> {
    let hub = words.node(members)?;
    Ok(cut_unless(members, |a, b| a == hub || b == hub))
}

/// Each node named reaches only the one before it and the one after it, the others nobody.
fn chain(words: &mut Words<'_>, members: &[NodeId]) -> Result<Vec<Fault>, Wrong> {
    let mut order: Vec<NodeId> = Vec::new();
    while let Some(word) = words.peek() {
        let node = words.node(members)?;
        if order.contains(&node) {
            return Err(word.wrong(format!("node {node} stands twice in the chain: name it once")));
        }
        order.push(node);
    }
    if order.len() < 2 {
        return Err(words.missing("at least two nodes"));
    }
    let linked = |a: NodeId, b: NodeId| order.windows(2).any(|pair| pair == [a, b] || pair == [b, a]);
    Ok(cut_unless(members, linked))
}

fn cut_unless(members: &[NodeId], keep: impl Fn(NodeId, NodeId) -> bool) -> Vec<Fault> {
    let pairs = members.iter().flat_map(|a| members.iter().filter(move |b| a < *b).map(move |b| (*a, *b)));
    pairs.filter(|(a, b)| !keep(*a, *b)).map(|(a, b)| Fault::cut(a, b)).collect()
}

fn clock(words: &mut Words<'_>, members: &[NodeId]) -> Result<Fault, Wrong> {
    let node = words.node(members)?;
    let word = words.next("rate, jump or freeze")?;
    Ok(match word.text {
        "rate" => {
            let word = words.next("parts per million such as +400ppm")?;
            // A clock that goes at ten times the speed is already no clock.
            let ppm = word.text.strip_suffix("ppm").and_then(|it| it.parse().ok()).filter(|ppm: &i32| ppm.abs() < 10_000_000);
            Fault::ClockRate { node, ppm: ppm.ok_or_else(|| word.expected("parts per million such as +400ppm"))? }
        }
        "jump" => Fault::ClockJump { node, by: words.span()? },
        "freeze" => Fault::ClockFreeze { node, lasting: words.span()? },
        _ => return Err(word.expected("rate, jump or freeze")),
    })
}

fn disk(words: &mut Words<'_>, members: &[NodeId]) -> Result<Fault, Wrong> {
    let node = words.node(members)?;
    let word = words.next("slow, stall or normal")?;
    Ok(match word.text {
        "slow" => Fault::DiskSlow { node, by: words.span()? },
        "stall" => Fault::DiskStall(node),
        "normal" => Fault::DiskNormal(node),
        _ => return Err(word.expected("slow, stall or normal")),
    })
}
