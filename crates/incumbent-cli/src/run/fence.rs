//! `--fence`: nothing is started before every former leader that left without a word is known to be dead.
//!
//! A leader that gives its seat back has seen its command die. One that is silent has not said so: it may hang, be cut off or be about to wake up. Who comes next looks at the
//! record ([`super::record`]), makes sure of each such leader by the method that was chosen, and puts that on record. Until then it keeps the seat and starts nothing.
//!
//! What a lease guarantees by itself is not weakened: whoever fails here has only not started.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use incumbent::{Election, Identity, Leadership};
use incumbent_supervisor::berth::Berth;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::fence_agent::{Action, Agent, Options};
use super::job::Task;
use super::record::{Proof, Record, Unsettled, Work, settle, unsettled};
use super::say;
use crate::elections::span;
use crate::elections::target::{Target, answer};
use crate::failure::Failure;

/// How often the record is read while something stands in the way: a person may have confirmed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a person is told that something stands in the way.
pub(super) const SAY_EVERY: Duration = Duration::from_secs(60);
/// An agent that has failed is tried again after a second, then after twice as long each time, up to this.
const AGENT_AGAIN_MAX: Duration = Duration::from_secs(30);
/// Some engines write the past after they have filled the seat: so long it is waited for, before a leader of which only its note tells is taken for silent.
const PAST_LAGS_MAX: Duration = Duration::from_secs(2);
/// How often it is looked for.
const PAST_LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(clap::Args, Debug, Serialize, Deserialize)]
#[command(next_help_heading = "Fencing")]
pub(crate) struct FenceArguments {
    /// How to make sure that a former leader which left without a word is dead, before the command is started:
    /// none, delay:SPAN, agent:NAME (a fence_* program) or guardian (trust the one on its host)
    #[arg(long, value_name = "HOW", value_parser = Method::parse, default_value = "none")]
    fence: Method,
    /// What an agent does to the host
    #[arg(long, value_enum, value_name = "ACTION", default_value_t = Action::Off)]
    fence_action: Action,
    /// What the agent calls a host, if not by its --identity or name; repeatable
    #[arg(long, value_name = "HOST=PORT", value_parser = pair)]
    fence_port: Vec<(String, String)>,
    /// An option for the agent; repeatable. Others on this machine can read it: secrets belong in a file
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    fence_option: Vec<(String, String)>,
    /// A file of KEY=VALUE lines for the agent, and of those for one host below its name in square brackets; nobody else may read it
    #[arg(long, value_name = "FILE")]
    fence_options: Option<PathBuf>,
    /// How long an agent may take
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "60s")]
    fence_timeout: Duration,
    /// Give the seat back and exit with code 123 if no fence has succeeded by then; else it is tried for ever
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    fence_give_up: Option<Duration>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        // What was written may be a secret.
        Some(_) | None => Err("write it as NAME=VALUE".to_owned()),
    }
}

/// How a silent leader is made sure of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Method {
    None,
    Delay(Duration),
    Agent(String),
    Guardian,
}

impl Method {
    fn parse(text: &str) -> Result<Method, String> {
        match text.split_once(':') {
            None if text == "none" => Ok(Method::None),
            None if text == "guardian" => Ok(Method::Guardian),
            Some(("delay", span)) => span::parse(span).map(Method::Delay),
            Some(("agent", name)) if !name.is_empty() => Ok(Method::Agent(name.to_owned())),
            Some(_) | None => Err("write none, delay:30s, agent:NAME or guardian".to_owned()),
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Method::None => f.write_str("none"),
            Method::Delay(span) => write!(f, "delay:{}", span::short(*span)),
            Method::Agent(name) => write!(f, "agent:{name}"),
            Method::Guardian => f.write_str("guardian"),
        }
    }
}

/// The method that was chosen, ready for use.
pub(crate) struct Fencing {
    method: Method,
    agent: Option<Agent>,
    pub(super) give_up: Option<Duration>,
    /// How a person who confirms something names the engine.
    on: String,
}

impl Fencing {
    /// Finds the agent and tries what can be tried without harm.
    pub(crate) async fn open(wanted: &FenceArguments, target: &Target) -> Result<Fencing, Failure> {
        let fencing = |agent| Fencing { method: wanted.fence.clone(), agent, give_up: wanted.fence_give_up, on: target.option() };
        let Method::Agent(name) = &wanted.fence else {
            let is_idle = wanted.fence_options.is_none() && wanted.fence_option.is_empty() && wanted.fence_port.is_empty();
            return match is_idle {
                true => Ok(fencing(None)),
                false => {
                    Err(super::usage(format!("--fence {}: options and ports are for an agent, as in agent:virsh", wanted.fence)))
                }
            };
        };
        let wrong = |why: String| super::usage(format!("--fence {}: {why}", wanted.fence));
        let mut options = wanted.fence_options.as_deref().map_or_else(|| Ok(Options::default()), Options::read).map_err(wrong)?;
        for (key, value) in &wanted.fence_option {
            options.add(key, value).map_err(wrong)?;
        }
        let ports: BTreeMap<String, String> = wanted.fence_port.iter().cloned().collect();
        let agent = Agent::open(name, wanted.fence_action, options, ports, wanted.fence_timeout).await.map_err(wrong)?;
        Ok(fencing(Some(agent)))
    }

    /// Whether anything is looked at before a command is started.
    pub(super) fn is_wanted(&self) -> bool {
        self.method != Method::None
    }
}

/// This machine, as far as it can prove others dead: whoever holds the berth knows that nothing lives of those who held it before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Here {
    /// The file of the berth, by its numbers in this kernel: two containers on one kernel have two. Behind an `@` the machine, if that is known.
    berth: String,
}

impl Here {
    pub(super) fn at(berth: &Berth) -> std::io::Result<Here> {
        let file = berth.file().metadata()?;
        let machine = machine().map(|it| format!("@{it}")).unwrap_or_default();
        Ok(Here { berth: format!("{}:{}{machine}", file.dev(), file.ino()) })
    }

    /// What is put on record before a command is started here by this leader.
    pub(super) fn guarded(&self, by: &Identity) -> Record {
        Record::Guarded { by: by.clone(), berth: self.berth.clone() }
    }

    /// What this machine, whose berth is ours, knows of a silent leader; `own` is who we are.
    fn judge(&self, own: &Identity, silent: &Unsettled) -> Verdict {
        let is_namesake = silent.by.name() == own.name();
        let (lock, machine) = parts(&self.berth);
        let its = match &silent.work {
            Work::Guarded(berth) => Some(parts(berth)),
            Work::Unguarded | Work::Unknown => None,
        };
        match (silent.by.boot(), own.boot()) {
            (Some(then), Some(now)) if then == now => match (its, &silent.work) {
                (Some((its, _)), _) if its == lock => Verdict::Dead("berth"),
                // Nothing was noted, so nothing was started by one of ours; and this machine's berth is ours.
                (None, Work::Unknown) if is_namesake => Verdict::Dead("berth"),
                // What a sidecar's program does holds no berth.
                (_, _) if is_namesake => Verdict::Ourselves,
                (_, _) => Verdict::Unknown,
            },
            // The name alone proves nothing: it may have been given to another machine while the one that had it lives.
            (Some(_), Some(_)) if is_namesake && machine.is_some() && its.is_some_and(|(_, its)| its == machine) => {
                Verdict::Dead("reboot")
            }
            (_, _) if is_namesake => Verdict::Ourselves,
            (_, _) => Verdict::Unknown,
        }
    }
}

/// The lock and the machine that a berth names.
fn parts(berth: &str) -> (&str, Option<&str>) {
    berth.split_once('@').map_or((berth, None), |(lock, machine)| (lock, Some(machine)))
}

/// The first PID namespace of a kernel has this number; see `PROC_PID_INIT_INO` in its sources.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Which machine this is, whatever it is called: a digest of the id that it got when it was set up, because that itself is not for everybody to read.
///
/// `None` where there is no such id, and in containers: those of one image may share an id, and take it along to another machine.
fn machine() -> Option<String> {
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    let id = std::fs::read_to_string("/etc/machine-id").ok()?;
    machine_of(&namespace.to_string_lossy(), id.trim())
}

fn machine_of(namespace: &str, id: &str) -> Option<String> {
    let is_good = id.len() == 32 && id.bytes().all(|it| it.is_ascii_hexdigit());
    // FNV-1a. Half as long as the id, so that nobody can tell it from this.
    let digest = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, it| (hash ^ u64::from(it)).wrapping_mul(0x0100_0000_01b3));
    (namespace == FIRST_PID_NAMESPACE && is_good).then(|| format!("{digest:016x}"))
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Verdict {
    /// Nothing of it lives, and what proves it.
    Dead(&'static str),
    /// It must be fenced.
    Unknown,
    /// It must be made sure of, but an agent that is given its name may turn this very host off.
    Ourselves,
}

/// One leadership that may have to fence before it starts anything.
pub(super) struct Takeover<'a> {
    fencing: &'a Fencing,
    election: &'a Election,
    leadership: &'a Leadership,
    here: &'a Here,
    task: Option<Task>,
    begun: Instant,
    /// Giving the seat back now does not hide a silent leader from whoever comes next.
    pub(super) hides_nobody: bool,
    /// Those who were silent when that was noted.
    noted: Vec<Unsettled>,
    /// Hosts that are dead, though that may not be on record yet.
    fenced: BTreeMap<String, Record>,
    failed: BTreeMap<String, Failed>,
    said: Option<Instant>,
}

/// An agent's last failure with a host.
struct Failed {
    why: String,
    again_at: Instant,
    wait: Duration,
}

/// Why nothing can be started yet.
enum Blocked {
    /// Look again at once.
    PastLags,
    Because(String),
}

impl<'a> Takeover<'a> {
    pub(super) fn new(
        fencing: &'a Fencing,
        election: &'a Election,
        leadership: &'a Leadership,
        here: &'a Here,
        task: Option<Task>,
    ) -> Takeover<'a> {
        Takeover {
            fencing,
            election,
            leadership,
            here,
            task,
            begun: Instant::now(),
            hides_nobody: false,
            noted: Vec::new(),
            fenced: BTreeMap::new(),
            failed: BTreeMap::new(),
            said: None,
        }
    }

    /// Returns when every silent leader is known to be dead, and that is on record. To be dropped when the leadership ends.
    pub(super) async fn settle(&mut self) {
        loop {
            let wait = match self.attempt().await {
                Ok(()) => return,
                Err(Blocked::PastLags) => PAST_LOOK_EVERY,
                Err(Blocked::Because(why)) => {
                    self.complain(&why);
                    LOOK_EVERY
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    async fn attempt(&mut self) -> Result<(), Blocked> {
        let blocked =
            |why: incumbent::Error| Blocked::Because(format!("the record of former leaders cannot be read or written: {why}"));
        let board = answer(self.election.look()).await.map_err(blocked)?;
        let own = self.leadership.token();
        let silent: Vec<Unsettled> = unsettled(&board).into_iter().filter(|it| it.token < own).collect();
        if silent.is_empty() {
            self.hides_nobody = true;
            return Ok(());
        }
        if !self.hides_nobody || self.noted != silent {
            self.hides_nobody = false;
            let done = self.task.and_then(|it| it.newest(&board));
            answer(self.election.annotate(own, &Record::idle(&silent).after(done))).await.map_err(blocked)?;
            self.hides_nobody = true;
            self.noted.clone_from(&silent);
        }
        if silent.iter().any(|it| it.reason.is_none()) && self.begun.elapsed() < PAST_LAGS_MAX {
            return Err(Blocked::PastLags);
        }
        let mut hosts: BTreeMap<&str, Vec<&Unsettled>> = BTreeMap::new();
        let mut why_not = Vec::new();
        for it in &silent {
            match self.here.judge(self.leadership.identity(), it) {
                Verdict::Dead(by) => {
                    settle(self.election, &board, it.token, &Record::settled(Proof::Dead, by)).await.map_err(blocked)?;
                }
                Verdict::Ourselves if self.fencing.agent.is_some() => why_not.push(format!(
                    "{} (token {}) goes by the name of this host, is held by no lock of it, and cannot be fenced from here",
                    it.by, it.token
                )),
                Verdict::Unknown | Verdict::Ourselves => hosts.entry(it.by.name()).or_default().push(it),
            }
        }
        for (host, cases) in hosts {
            match self.make_sure_of(host, &cases).await {
                Ok(record) => {
                    for it in cases {
                        settle(self.election, &board, it.token, &record).await.map_err(blocked)?;
                    }
                }
                Err(why) => {
                    let tokens: Vec<String> = cases.iter().map(|it| it.token.to_string()).collect();
                    why_not.push(format!(
                        "{host} (token {}) could not be fenced by {}: {why}",
                        tokens.join(", "),
                        self.fencing.method
                    ));
                }
            }
        }
        if why_not.is_empty() { Ok(()) } else { Err(Blocked::Because(why_not.join("; "))) }
    }

    async fn make_sure_of(&mut self, host: &str, cases: &[&Unsettled]) -> Result<Record, String> {
        if let Some(record) = self.fenced.get(host) {
            return Ok(record.clone());
        }
        if let Some(failed) = self.failed.get(host).filter(|it| Instant::now() < it.again_at) {
            return Err(failed.why.clone());
        }
        let proof = match (&self.fencing.method, &self.fencing.agent) {
            (Method::Delay(span), _) => {
                let left = (self.begun + *span).saturating_duration_since(Instant::now());
                let (token, left) = (cases[0].token, span::measured(left));
                say!(false, "{host} left without a word (token {token}): waits {left} before anything is started");
                tokio::time::sleep_until(self.begun + *span).await;
                Proof::Waited
            }
            (Method::Guardian, _) => match cases.iter().find(|it| !matches!(it.work, Work::Guarded(_))) {
                Some(it) => return Err(format!("nobody has noted that its leadership {} had a guardian", it.token)),
                None => Proof::Trusted,
            },
            (Method::Agent(_), Some(agent)) => {
                say!(false, "{host} left without a word (token {}): fences it by {}", cases[0].token, self.fencing.method);
                if let Err(why) = agent.fence(host).await {
                    let wait = self.failed.get(host).map_or(LOOK_EVERY, |it| (it.wait * 2).min(AGENT_AGAIN_MAX));
                    let again_at = Instant::now() + wait;
                    self.failed.insert(host.to_owned(), Failed { why: why.clone(), again_at, wait });
                    return Err(why);
                }
                say!(false, "{host} is fenced");
                Proof::Fenced
            }
            (Method::None | Method::Agent(_), _) => unreachable!("{} has nothing to do here", self.fencing.method),
        };
        let record = Record::settled(proof, &self.fencing.method.to_string());
        self.fenced.insert(host.to_owned(), record.clone());
        Ok(record)
    }

    fn complain(&mut self, why: &str) {
        if self.said.is_some_and(|it| it.elapsed() < SAY_EVERY) {
            return;
        }
        self.said = Some(Instant::now());
        let (election, on) = (self.election.name(), &self.fencing.on);
        say!(
            false,
            "NOT STARTED: {why}. Keeps the seat and goes on trying; if you know that it is dead: incumbent fence confirm {election} --yes {on}"
        );
    }
}

#[cfg(test)]
mod tests {
    use incumbent::Token;
    use incumbent_protocol::protocol::Term;

    use super::*;

    #[test]
    fn methods_are_read_as_they_are_written() {
        for text in ["none", "delay:30s", "agent:virsh", "agent:./my/agent", "guardian"] {
            assert_eq!(Method::parse(text).unwrap().to_string(), text);
        }
        for bad in ["", "delay", "delay:", "delay:30", "agent", "agent:", "guardian:x", "none:", "shoot"] {
            assert!(Method::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn this_machine_knows_its_own_dead_and_never_fences_itself() {
        let identity = |name: &str, boot: &str| Identity::stored(format!("{name}_{boot}_17_0123456789abcdef"));
        let (own, here) = (identity("web-1", "aaaaaaaa"), Here { berth: "8:1@c0ffee".to_owned() });
        let guarded = |berth: &str| Work::Guarded(berth.to_owned());
        for (by, work, verdict) in [
            // The same lock in the same kernel, whatever they were called.
            (identity("web-1", "aaaaaaaa"), guarded("8:1@c0ffee"), Verdict::Dead("berth")),
            (identity("other", "aaaaaaaa"), guarded("8:1@c0ffee"), Verdict::Dead("berth")),
            (identity("other", "aaaaaaaa"), guarded("8:1"), Verdict::Dead("berth")),
            // The same numbers in another kernel are another lock.
            (identity("web-2", "bbbbbbbb"), guarded("8:1@c0ffee"), Verdict::Unknown),
            // Another container on this kernel.
            (identity("web-2", "aaaaaaaa"), guarded("8:2"), Verdict::Unknown),
            (identity("web-2", "aaaaaaaa"), Work::Unknown, Verdict::Unknown),
            (identity("web-1", "aaaaaaaa"), guarded("8:2"), Verdict::Ourselves),
            // This host before it was booted.
            (identity("web-1", "bbbbbbbb"), guarded("8:1@c0ffee"), Verdict::Dead("reboot")),
            (identity("web-1", "bbbbbbbb"), guarded("8:7@c0ffee"), Verdict::Dead("reboot")),
            // Another machine of this name, or one that does not say which it is.
            (identity("web-1", "bbbbbbbb"), guarded("8:1@decaf"), Verdict::Ourselves),
            (identity("web-1", "bbbbbbbb"), guarded("8:1"), Verdict::Ourselves),
            (identity("web-1", "bbbbbbbb"), Work::Unknown, Verdict::Ourselves),
            (identity("web-1", "aaaaaaaa"), Work::Unknown, Verdict::Dead("berth")),
            // What a sidecar's program does outlives the sidecar, and holds no lock.
            (identity("web-1", "aaaaaaaa"), Work::Unguarded, Verdict::Ourselves),
            (identity("web-2", "aaaaaaaa"), Work::Unguarded, Verdict::Unknown),
            // Who does not say where it ran.
            (Identity::stored("web-2"), Work::Unknown, Verdict::Unknown),
            (Identity::stored("web-1"), Work::Unknown, Verdict::Ourselves),
        ] {
            let silent = Unsettled { token: Token::new(0, Term(1)).unwrap(), by, reason: None, work };
            assert_eq!(here.judge(&own, &silent), verdict, "{silent:?}");
        }
    }

    #[test]
    fn where_it_is_not_known_which_machine_this_is_no_boot_proves_anything() {
        let identity = |boot: &str| Identity::stored(format!("web-1_{boot}_17_0123456789abcdef"));
        let (own, here) = (identity("aaaaaaaa"), Here { berth: "8:1".to_owned() });
        let by = identity("bbbbbbbb");
        let silent =
            Unsettled { token: Token::new(0, Term(1)).unwrap(), by, reason: None, work: Work::Guarded("8:1".to_owned()) };
        assert_eq!(here.judge(&own, &silent), Verdict::Ourselves);

        let id = "3d1219c7c4c5404aaa1f6d2a48adfda4";
        let known = machine_of(FIRST_PID_NAMESPACE, id).unwrap();
        assert!(known.len() == 16 && !id.contains(&known), "{known}");
        assert_ne!(machine_of(FIRST_PID_NAMESPACE, &id.replace('3', "4")), Some(known));
        for (namespace, id) in [("pid:[4026532201]", id), (FIRST_PID_NAMESPACE, ""), (FIRST_PID_NAMESPACE, "uninitialized")] {
            assert_eq!(machine_of(namespace, id), None, "{namespace} {id}");
        }
    }
}
