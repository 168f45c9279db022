//! When a command is run again, and what is run before and after it.

use incumbent_testbed::{Redis, Server as _, eventually};
use rustix::process::Signal;

use crate::shell::processes::zombies_of;
use crate::shell::{ends, text};
use crate::world::{Hold, World};

const FAST: [&str; 2] = ["--back-off", "1ms"];

#[test]
fn a_command_that_fails_is_run_again_until_it_does_not() {
    let world = World::new(Hold::Group);
    let script = r#"echo "$INCUMBENT_TOKEN" >> tokens; [ "$(wc -l < tokens)" -ge 3 ]"#;
    ends(world.run(&[&["--restart", "on-failure"], &FAST[..]].concat(), script), 0);
    let tokens: Vec<u64> = world.read("tokens").lines().map(|it| it.parse().unwrap()).collect();
    assert!(tokens.len() == 3 && tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[test]
fn it_gives_up_after_so_many_failures_with_the_code_of_the_last() {
    let world = World::new(Hold::Group);
    let script = r#"echo >> runs; exit "$(wc -l < runs)""#;
    ends(world.run(&[&["--restart", "always", "--give-up-after", "2"], &FAST[..]].concat(), script), 2);
}

#[test]
fn always_means_after_a_success_too_until_it_is_told_to_end() {
    let world = World::new(Hold::Group);
    let run = world.start(&[&["--restart", "always"], &FAST[..]].concat(), "echo runs; exit 0");
    run.hear("runs");
    run.hear("runs");
    run.signal(Signal::TERM);
    eventually("it ends", || run.said().contains("nothing of it lives"));
    // Whether the command ran at that instant or the seat was contended for.
    run.ends_with(&[0, 143]);
}

#[test]
fn hooks_run_before_the_command_and_after_it_while_the_seat_is_held() {
    let world = World::new(Hold::Group);
    let who = format!("{} who job --on {} >/dev/null && echo led >> log", env!("CARGO_BIN_EXE_incumbent"), world.url());
    let before = format!("echo elected $INCUMBENT_TOKEN >> log; {who}");
    let after = format!("echo lost $INCUMBENT_TOKEN >> log; {who}");
    ends(world.run(&["--on-elected", &before, "--on-lost", &after], "echo runs $INCUMBENT_TOKEN >> log"), 0);
    let log = world.read("log");
    let words: Vec<&str> = log.lines().map(|it| it.split(' ').next().unwrap()).collect();
    assert_eq!(words, ["elected", "led", "runs", "lost", "led"], "{log}");
    let tokens: Vec<&str> = log.lines().filter_map(|it| it.split(' ').nth(1)).collect();
    assert!(tokens.iter().all(|it| *it == tokens[0]), "{log}");
}

/// As with a program beside a sidecar, what the hook should have taken down may still be there.
#[test]
fn a_seat_whose_last_hook_fails_is_not_given_back_but_free_when_the_lease_has_ended() {
    let world = World::new(Hold::Group);
    let redis = Redis::debian().start().unwrap();
    let (url, state) = (format!("redis://{}/hooks", redis.address()), world.path("state"));
    let options = ["--on", &url, "--state-dir", state.to_str().unwrap(), "--ttl", "2s", "--on-lost", "exit 1"];
    let output = ends(world.run(&options, "echo runs"), 0);
    assert!(text(&output.stderr).contains("--on-lost: ") && text(&output.stderr).contains("not given back"), "{output:?}");
    ends(world.run(&options[..6], "echo runs"), 0);
    let history = text(&ends(world.incumbent(&["history", "job", "--on", &url]), 0).stdout).to_owned();
    assert_eq!(history.matches("lease expired").count(), 1, "{history}");
}

#[test]
fn told_once_more_it_does_not_wait_for_a_lease_to_end() {
    let world = World::new(Hold::Group);
    let redis = Redis::debian().start().unwrap();
    let (url, state) = (format!("redis://{}/hooks", redis.address()), world.path("state"));
    // Longer than any test is waited for.
    let options = ["--on", &url, "--state-dir", state.to_str().unwrap(), "--ttl", "1h", "--on-lost", "exit 1"];
    let run = world.start(&options, "exit 7");
    run.reports("not given back");
    run.signal(Signal::TERM);
    run.ends(7);
}

#[test]
fn a_hook_and_all_that_it_has_started_end_with_it_and_die_with_the_supervisor() {
    for hold in [Hold::Group, Hold::Descent] {
        let world = World::new(hold);
        // What it leaves behind ends with it.
        ends(world.run(&["--on-elected", &world.hook("daemon a")], "exit 0"), 0);
        assert!(!world.read("a").is_empty(), "it had lived");
        world.nothing_lives();
        let run = world.start(&["--on-elected", &world.hook("daemon b; touch hooked; sleep 1000")], "touch ran");
        eventually("the hook is under way", || world.path("hooked").exists());
        assert!(!world.living().is_empty());
        run.signal(Signal::KILL);
        run.is_killed();
        // The next one waits for it, whoever is faster.
        ends(world.run(&[], "exit 3"), 3);
        world.nothing_lives();
        assert!(!world.path("ran").exists());
    }
}

#[test]
fn a_hook_is_killed_when_the_process_is_told_to_end() {
    let world = World::new(Hold::Group);
    let run = world.start(&["--on-elected", &world.hook("daemon a; touch hooked; sleep 1000")], "touch ran");
    eventually("the hook is under way", || world.path("hooked").exists());
    run.signal(Signal::TERM);
    run.ends(143);
    world.nothing_lives();
    assert!(!world.path("ran").exists());
}

#[test]
fn the_directory_of_a_supervisor_that_was_killed_is_swept_by_the_next() {
    let world = World::new(Hold::Group);
    let run = world.start(&[], "echo ready; sleep 1000");
    run.hear("ready");
    let rooms = || std::fs::read_dir(world.runtime()).unwrap().count();
    assert_eq!(rooms(), 1);
    run.signal(Signal::KILL);
    run.is_killed();
    assert_eq!(rooms(), 1, "it could not clean up");
    ends(world.run(&[], "exit 3"), 3);
    assert_eq!(rooms(), 0);
}

#[test]
fn what_probes_leave_behind_does_not_pile_up() {
    const PROBES: usize = 60;
    let world = World::new(Hold::Group);
    let run = world.start(&["--health", "sleep 0.02 & echo >> probes", "--health-every", "20ms"], "sleep 1000");
    eventually("it was probed often", || world.read("probes").lines().count() > PROBES);
    let left = zombies_of(run.id());
    assert!(left < PROBES / 4, "{left} are left");
}

#[test]
fn a_host_that_is_not_fit_does_not_contend_and_leaves_when_it_becomes_so() {
    let world = World::new(Hold::Group);
    let options = ["--health", "test -e fit", "--health-every", "20ms", "--after-loss", "exit"];
    let run = world.start(&options, "echo leads; sleep 1000");
    run.reports("standing by");
    // Another is elected meanwhile: nobody stands in its way.
    ends(world.run(&[], "exit 6"), 6);
    std::fs::write(world.path("fit"), "").unwrap();
    run.hear("leads");
    std::fs::remove_file(world.path("fit")).unwrap();
    run.ends(122);
    world.nothing_lives();
}
