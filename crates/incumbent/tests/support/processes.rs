//! Real processes in one election: killed, paused across their deadline, and asked what they believed.
//!
//! A test binary that uses this has a test named `contender`, which does nothing unless it is started as one: [`be_a_contender`].

use std::process::Command;
use std::time::Duration;

use incumbent::clock;
use incumbent::conformance::fresh_name;
use incumbent::conformance::record::{Belief, Record};
use incumbent::{Election, Identity, Timing, Token};
use incumbent_protocol::protocol::Term;
use incumbent_protocol::time::Instant;
use incumbent_testbed::Contender;

/// What a contender is told: where, which election, who it is, for how long a lease.
const VARIABLE: &str = "INCUMBENT_TEST_CONTENDER";

/// Contends for ever, if this process was started to; says `elected TOKEN FROM` and `ended TOKEN UNTIL`, in nanoseconds of the machine's clock.
pub(crate) fn be_a_contender() {
    let Ok(brief) = std::env::var(VARIABLE) else { return };
    let mut words = brief.split(' ');
    let mut word = || words.next().expect("four words").to_owned();
    let (url, name, who, ttl_ms) = (word(), word(), word(), word().parse().expect("a number"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let timing = Timing::of(Duration::from_millis(ttl_ms)).build().expect("a good ttl");
        let identity = Identity::named(&who).expect("a good name");
        let election = Election::on(url).name(name).identity(identity).timing(timing).build().await.expect("the engine is there");
        loop {
            let leadership = election.campaign().await.expect("settings are right");
            say(&format!("elected {} {}", leadership.token(), clock::now().as_nanos()));
            leadership.lost().await;
            say(&format!("ended {} {}", leadership.token(), leadership.deadline().as_nanos()));
        }
    });
}

fn say(line: &str) {
    use std::io::Write as _;
    // The test harness prints before us without a line break.
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{line}").and_then(|()| out.flush()).expect("the test listens");
}

/// An election among processes.
pub(crate) struct Arena {
    url: String,
    election: String,
    ttl: Duration,
}

impl Arena {
    pub(crate) fn new(url: impl Into<String>, ttl: Duration) -> Arena {
        Arena { url: url.into(), election: fresh_name("arena").to_string(), ttl }
    }

    pub(crate) fn enter(&self, who: &str) -> Contender {
        let mut command = Command::new(std::env::current_exe().expect("a test has a file"));
        command.args(["--exact", "contender", "--nocapture"]);
        command.env(VARIABLE, format!("{} {} {who} {}", self.url, self.election, self.ttl.as_millis()));
        Contender::start(&command).expect("a test can be started")
    }
}

fn numbers(line: &str) -> (Token, Instant) {
    let mut words = line.split(' ').skip(1).map(|it| it.parse::<u64>().expect("a number"));
    let (token, at) = (words.next().expect("a token"), words.next().expect("an instant"));
    let token = Token::new(u16::try_from(token >> 48).expect("15 bits"), Term(token & Term::MAX.0)).expect("was one");
    (token, Instant::from_nanos(at))
}

fn elected(contender: &Contender) -> (Token, Instant) {
    numbers(&contender.hear("to be elected", |line| line.starts_with("elected ")))
}

/// C01: the holder is killed; another is elected, with a greater token, and not before the first was dead or its time over.
pub(crate) fn a_killed_holder_is_replaced(arena: &Arena) {
    let first = arena.enter("a");
    let (token, from) = elected(&first);
    let (second, record) = (arena.enter("b"), Record::new());
    // It is dead a moment later; when exactly, only the kernel knows.
    record.add(Belief { token, from, until: clock::now() });
    first.kill();
    let (token, from) = elected(&second);
    record.add(Belief { token, from, until: from });
    record.verdict().expect("one at a time");
}

/// C13, C40: the holder is paused across its deadline; when it goes on it knows at once that it has been replaced, and believed in nothing in between.
pub(crate) fn a_paused_holder_has_stopped_believing(arena: &Arena) {
    let (first, second, record) = (arena.enter("a"), arena.enter("b"), Record::new());
    // Whoever it is.
    let (holder, other) = loop {
        let lines = |it: &Contender| it.lines().iter().any(|line| line.starts_with("elected "));
        match (lines(&first), lines(&second)) {
            (true, _) => break (&first, &second),
            (_, true) => break (&second, &first),
            (false, false) => std::thread::yield_now(),
        }
    };
    let (token, from) = elected(holder);
    holder.pause();
    let (later, began) = elected(other);
    holder.resume();
    let (ended, until) = numbers(&holder.hear("the end of its leadership", |line| line.starts_with("ended ")));
    assert_eq!(ended, token);
    record.add(Belief { token, from, until });
    record.add(Belief { token: later, from: began, until: began });
    record.verdict().expect("one at a time");
}
