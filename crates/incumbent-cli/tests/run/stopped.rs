//! A supervisor that somebody has stopped does not keep others of its machine waiting: its guardian kills what it had running, and gives the berth back for both.
//!
//! On `file:` the seat itself is a lock of the stopped process, and stays with it: that is not tried here.

use std::path::PathBuf;

use incumbent_supervisor::berth::Berth;
use incumbent_testbed::{Redis, Server as _, eventually};
use rustix::process::Signal;

use crate::world::{Hold, Supervised, World};

const BOTH: [Hold; 2] = [Hold::Group, Hold::Descent];

/// Two supervisors of one machine on a seat that is leased.
struct Machine {
    world: World,
    redis: Redis,
}

impl Machine {
    fn new(hold: Hold) -> Machine {
        Machine { world: World::new(hold), redis: Redis::debian().start().unwrap() }
    }

    fn start(&self, name: &str, more: &[&str], script: &str) -> Supervised {
        self.start_at("state", name, more, script)
    }

    /// The same with its locks elsewhere: another machine, as far as they are concerned.
    fn start_at(&self, state: &str, name: &str, more: &[&str], script: &str) -> Supervised {
        let (url, state) = (format!("redis://{}/stopped", self.redis.address()), self.world.path(state));
        let on = ["--on", &url, "--state-dir", state.to_str().unwrap(), "--ttl", "2s", "--identity", name];
        self.world.start(&[&on[..], more].concat(), script)
    }

    fn path_of_berth(&self) -> PathBuf {
        let files = std::fs::read_dir(self.world.path("state")).unwrap().flatten();
        let berth = files.map(|it| it.path()).find(|it| it.extension().is_some_and(|it| it == "berth"));
        berth.expect("it is there")
    }

    /// What stands in the berth: the control group of a tree that may live, where there is one.
    fn berth(&self) -> String {
        std::fs::read_to_string(self.path_of_berth()).unwrap()
    }

    /// Whether nobody has the berth.
    fn is_free(&self) -> bool {
        Berth::at(&self.path_of_berth()).unwrap().try_take().unwrap()
    }
}

#[test]
fn others_of_its_machine_go_on_and_are_not_disturbed_when_it_does() {
    for hold in BOTH {
        let machine = Machine::new(hold);
        let first = machine.start(
            "first",
            &["--after-loss", "exit", "--on-lost", "touch undone"],
            "trap '' TERM; daemon d; echo leads; while :; do sleep 1; done",
        );
        first.hear("leads");
        let next = machine.start("next", &[], "echo leads; read line; exit 5");
        next.reports("standing by");
        first.signal(Signal::STOP);
        next.hear("leads");
        let named = machine.berth();
        assert_eq!(named.is_empty(), hold == Hold::Descent, "{named}");
        first.signal(Signal::CONT);
        first.ends(122);
        // What is the other's was neither forgotten nor taken down.
        assert_eq!(machine.berth(), named);
        assert!(first.said().contains("--on-lost is not run") && !machine.world.path("undone").exists(), "{}", first.said());
        next.say("");
        next.ends(5);
        machine.world.nothing_lives();
    }
}

#[test]
fn a_hook_that_it_had_running_is_dead_too() {
    for hold in BOTH {
        let machine = Machine::new(hold);
        let hook = machine.world.hook("daemon d; touch elected; sleep 1000");
        let first = machine.start("first", &["--after-loss", "exit", "--on-elected", &hook], "touch ran");
        eventually("the hook runs", || machine.world.path("elected").exists());
        let next = machine.start("next", &[], "echo leads; read line; exit 5");
        next.reports("standing by");
        first.signal(Signal::STOP);
        next.hear("leads");
        first.signal(Signal::CONT);
        first.ends(122);
        next.say("");
        next.ends(5);
        assert!(!machine.world.path("ran").exists());
        machine.world.nothing_lives();
    }
}

/// Nothing of it lives that somebody could prove dead; that its lease is over is enough.
#[test]
fn one_that_was_stopped_before_it_had_started_anything_holds_up_nobody() {
    let machine = Machine::new(Hold::Group);
    let silent = machine.start_at("elsewhere", "silent", &[], "echo leads; sleep 1000");
    silent.hear("leads");
    // It has to wait, because nobody here knows whether the other is dead.
    let first = machine.start("first", &["--after-loss", "exit", "--fence", "delay:1h"], "touch ran");
    first.reports("standing by");
    drop(silent);
    first.reports("elected for job");
    let next = machine.start("next", &[], "echo leads; read line; exit 5");
    next.reports("standing by");
    first.signal(Signal::STOP);
    next.hear("leads");
    first.signal(Signal::CONT);
    first.ends(122);
    next.say("");
    next.ends(5);
    assert!(!machine.world.path("ran").exists());
}

/// It is the one who goes on that leads again, with a berth of its own.
#[test]
fn whoever_was_stopped_leads_again_with_the_berth_in_its_hands() {
    let machine = Machine::new(Hold::Group);
    let run = machine.start("first", &[], r#"echo "leads $INCUMBENT_TOKEN"; sleep 1000"#);
    let first = run.hear("leads ");
    assert!(!machine.is_free() && !machine.berth().is_empty());
    run.signal(Signal::STOP);
    eventually("the guardian has given the berth back", || machine.is_free());
    assert!(machine.berth().is_empty(), "{}", machine.berth());
    run.signal(Signal::CONT);
    let second = run.hear("leads ");
    assert!(first.parse::<u64>().unwrap() < second.parse::<u64>().unwrap());
    assert!(!machine.is_free() && !machine.berth().is_empty());
    run.signal(Signal::TERM);
    run.ends(143);
    machine.world.nothing_lives();
}
