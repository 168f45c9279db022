//! `--on-jeopardy freeze` on a real Redis that is stopped in its tracks.

use incumbent_testbed::{Redis, Server as _, eventually};
use rustix::process::Signal;

use super::office::asked;
use crate::shell::processes::stands_still;
use crate::world::{Hold, World};

/// Half of it passes before the command is frozen, and most of the rest until it is killed, to see it so on a busy machine.
const TTL: &str = "16s";
/// With so much left, a command that is not frozen would have been told to end; it is killed at 0.8 s.
const TOLD_TO_END_MS: u64 = 4000;

const ECHO: &str = r#"echo "socket $INCUMBENT_SOCKET"; echo "ready $$"; while read -r line; do echo "$line with $INCUMBENT_TOKEN"; done; exit 7"#;

fn freezes_and_goes_on(hold: Hold) {
    let redis = Redis::debian().start().unwrap();
    let world = World::new(hold);
    let url = format!("redis://{}/freeze", redis.address());
    let state = world.path("state");
    let options = ["--on", &url, "--state-dir", state.to_str().unwrap(), "--ttl", TTL, "--on-jeopardy", "freeze"];
    let run = world.start(&options, ECHO);
    let socket = run.hear("socket ");
    let command: u32 = run.hear("ready ").parse().unwrap();
    run.say("before");
    let token = run.hear("before with ");

    redis.pause();
    run.reports("the command is frozen");
    eventually("it stands still", || stands_still(command));
    run.say("frozen");
    // The supervisor lives on, and time passes by its clock.
    let remaining = || asked(&socket, "GET", "/remaining", "").1.trim().parse::<u64>().unwrap();
    eventually("time passes", || remaining() < TOLD_TO_END_MS - 300);
    assert!(!run.has_said(&format!("frozen with {token}")));
    redis.resume();

    assert_eq!(run.hear("frozen with "), token, "the same term goes on");
    assert!(remaining() > TOLD_TO_END_MS, "renewed");
    assert!(run.said().contains("the command goes on") && run.said().matches("elected for").count() == 1, "{}", run.said());
}

#[test]
fn frozen_it_does_nothing_and_goes_on_with_the_same_token_when_the_engine_answers() {
    freezes_and_goes_on(Hold::Group);
}

#[test]
fn the_same_by_descent_alone() {
    freezes_and_goes_on(Hold::Descent);
}

#[test]
fn one_that_starts_in_jeopardy_is_frozen_at_once() {
    let redis = Redis::debian().start().unwrap();
    let world = World::new(Hold::Group);
    let url = format!("redis://{}/late", redis.address());
    let (state, hook) = (world.path("state"), world.hook("touch in; until [ -e go ]; do sleep 0.02; done"));
    let state = state.to_str().unwrap();
    let options = ["--on", &url, "--state-dir", state, "--ttl", "10s", "--on-jeopardy", "freeze", "--on-elected", &hook];
    let run = world.start(&options, "echo ready; read -r line");
    eventually("the hook runs", || world.path("in").exists());
    redis.pause();
    run.reports("no renewal is acknowledged");
    std::fs::write(world.path("go"), "").unwrap();
    run.reports("the command is frozen");
    redis.resume();
    run.reports("the command goes on");
    run.hear("ready");
}

#[test]
fn a_value_that_the_engine_does_not_take_holds_up_nothing() {
    let redis = Redis::debian().start().unwrap();
    let world = World::new(Hold::Group);
    let url = format!("redis://{}/published", redis.address());
    let state = world.path("state");
    let options = ["--on", &url, "--state-dir", state.to_str().unwrap(), "--ttl", "2m", "--grace", "1m"];
    let run =
        world.start(&options, r#"trap 'echo told; exit 9' TERM; echo "socket $INCUMBENT_SOCKET"; while :; do sleep 0.02; done"#);
    let socket = run.hear("socket ");
    redis.pause();
    let publishing = {
        let socket = socket.clone();
        std::thread::spawn(move || asked(&socket, "PUT", "/value", "x"))
    };
    eventually("it is asked to publish", || asked(&socket, "GET", "/status", "").0 == 200);
    run.signal(Signal::TERM);
    run.hear("told");
    redis.resume();
    run.ends(9);
    drop(publishing);
}

fn is_killed_frozen(hold: Hold) {
    let redis = Redis::debian().start().unwrap();
    let world = World::new(hold);
    let url = format!("redis://{}/killed", redis.address());
    let state = world.path("state");
    let options =
        ["--on", &url, "--state-dir", state.to_str().unwrap(), "--ttl", TTL, "--on-jeopardy", "freeze", "--after-loss", "exit"];
    // Without children: a shell that is stopped while it starts one does not look so.
    let run = world.start(&options, r#"trap 'echo acts' TERM; echo "ready $$"; while :; do read -r line; done"#);
    let command: u32 = run.hear("ready ").parse().unwrap();
    redis.pause();
    eventually("it stands still", || stands_still(command));
    eventually("it is killed", || world.living().is_empty());
    assert!(!run.has_said("acts"), "nobody has said that it may act again");
    redis.resume();
    assert!(!run.said().contains("told to end"), "{}", run.said());
    run.ends(122);
}

#[test]
fn frozen_to_the_deadline_it_is_killed_without_having_acted() {
    is_killed_frozen(Hold::Group);
}

#[test]
fn frozen_to_the_deadline_it_is_killed_by_descent_too() {
    is_killed_frozen(Hold::Descent);
}

#[test]
fn that_the_engine_answers_again_is_said_as_loudly_as_that_it_did_not_and_why_a_term_ended_too() {
    let redis = Redis::debian().start().unwrap();
    let world = World::new(Hold::Group);
    let url = format!("redis://{}/again", redis.address());
    let state = world.path("state");
    let run = world.start(&["--on", &url, "--state-dir", state.to_str().unwrap(), "--ttl", "3s"], "echo ready; exec sleep 1000");
    run.hear("ready");
    redis.pause();
    run.reports("leaves office (lease expired)");
    // The candidacy that follows has troubles of its own.
    eventually("it stands by in trouble", || run.said().matches("trouble with the engine").count() == 2);
    redis.resume();
    run.reports("the engine answers again");
}
