//! Jobs: done once, or once in every slot, whoever does them.

use incumbent_testbed::eventually;
use rustix::process::Signal;

use crate::shell::{ends, text};
use crate::world::{Hold, World};

#[test]
fn of_three_hosts_one_does_the_job_and_all_end_well() {
    let world = World::new(Hold::Group);
    let hosts: Vec<_> = (0..3).map(|_| world.start(&["--once"], "echo done >> log")).collect();
    for host in &hosts {
        host.ends(0);
    }
    assert_eq!(world.read("log"), "done\n");
    let late = ends(world.run(&["--once"], "echo late >> log"), 0);
    assert!(text(&late.stderr).contains("already done"), "{}", text(&late.stderr));
    assert_eq!(world.read("log"), "done\n");
}

/// A job of cron's writes mail with whatever it says.
#[test]
fn who_finds_the_job_done_has_nothing_to_say_if_it_is_told_to_be_quiet() {
    for hold in [Hold::Group, Hold::Descent] {
        let world = World::new(hold);
        ends(world.run(&["--once"], "true"), 0);
        for _ in 0..3 {
            let late = ends(world.run(&["--once", "--quiet"], "true"), 0);
            assert_eq!(text(&late.stderr), "", "{hold:?}");
        }
    }
}

#[test]
fn a_job_stays_done_when_more_hosts_have_found_it_done_than_an_engine_remembers() {
    let world = World::new(Hold::Group);
    for _ in 0..incumbent::engine::Past::KEPT_MAX + 2 {
        ends(world.run(&["--once", "--fence", "delay:1s", "--quiet"], "echo done >> log"), 0);
    }
    assert_eq!(world.read("log"), "done\n");
}

#[test]
fn a_job_that_fails_is_left_to_another_host() {
    let world = World::new(Hold::Group);
    let script = r#"echo "$INCUMBENT_TOKEN" >> tokens; [ "$(wc -l < tokens)" -ge 2 ]"#;
    ends(world.run(&["--once"], script), 1);
    ends(world.run(&["--once"], script), 0);
    ends(world.run(&["--once"], script), 0);
    assert_eq!(world.read("tokens").lines().count(), 2, "and done by the second");
}

#[test]
fn a_job_whose_host_dies_in_the_middle_is_done_by_another() {
    let world = World::new(Hold::Group);
    let first = world.start(&["--once", "--ttl", "3s"], "echo begins; sleep 1000");
    first.hear("begins");
    let second = world.start(&["--once", "--ttl", "3s"], "echo done >> log");
    second.reports("standing by");
    first.signal(Signal::KILL);
    second.ends(0);
    assert_eq!(world.read("log"), "done\n");
}

#[test]
fn every_slot_is_done_once_by_whoever_is_there() {
    let world = World::new(Hold::Group);
    let hosts: Vec<_> =
        (0..2).map(|_| world.start(&["--every", "1s"], r#"echo "$INCUMBENT_SLOT $INCUMBENT_TOKEN" >> slots"#)).collect();
    eventually("three slots", || world.read("slots").lines().count() >= 3);
    for host in &hosts {
        host.signal(Signal::TERM);
    }
    for host in &hosts {
        // Told while it waited, or while the command ran.
        host.ends_with(&[0, 143]);
    }
    let log = world.read("slots");
    let slots: Vec<u64> = log.lines().map(|it| it.split(' ').next().unwrap().parse().unwrap()).collect();
    assert!(slots.is_sorted_by(|a, b| a < b), "{log}");
    let tokens: Vec<u64> = log.lines().map(|it| it.split(' ').nth(1).unwrap().parse().unwrap()).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{log}");
}

/// Whatever is to be made up for: the slot in which the host began to wait is over when it is elected.
#[test]
fn a_slot_that_went_by_in_the_line_is_not_done_in_its_place() {
    for catch_up in ["last", "none"] {
        let world = World::new(Hold::Group);
        let holder = world.start(&[], "echo holds; until [ -e waits ]; do sleep 0.05; done; sleep 5");
        holder.hear("holds");
        let host =
            world.start(&["--every", "2s", "--catch-up", catch_up], r#"echo "$(( $(date +%s) - INCUMBENT_SLOT ))" >> late"#);
        host.reports("next due at");
        host.reports("standing by");
        std::fs::write(world.path("waits"), "").unwrap();
        eventually("it is elected and has done one", || world.read("late").lines().count() >= 1);
        host.signal(Signal::TERM);
        host.ends_with(&[0, 143]);
        let late: u64 = world.read("late").lines().next().unwrap().parse().unwrap();
        assert!(late < 4, "--catch-up {catch_up}: {late} s late, though others were due since");
    }
}

#[test]
fn the_time_until_a_job_is_due_does_not_count_as_waiting_for_the_seat() {
    let world = World::new(Hold::Group);
    let host = world.start(&["--every", "4s", "--max-wait", "1s"], "echo done >> slots");
    eventually("a slot", || !world.read("slots").is_empty());
    host.signal(Signal::TERM);
    host.ends_with(&[0, 143]);
}

#[test]
fn what_is_no_time_is_refused() {
    let world = World::new(Hold::Group);
    for (options, says) in [
        (&["--at", "25:00"][..], "no time of day"),
        (&["--every", "500ms"], "whole seconds"),
        (&["--every", "0s"], "--every 0s"),
        (&["--once=0s"], "at least a second"),
        (&["--every", "1d", "--once"], "cannot be used with"),
        (&["--every", "1d", "--at", "02:30"], "cannot be used with"),
    ] {
        let refused = ends(world.run(options, "true"), 120);
        assert!(text(&refused.stderr).contains(says), "{}", text(&refused.stderr));
    }
}

#[test]
fn a_job_that_is_done_and_cannot_be_noted_is_said_and_can_be_ended() {
    let world = World::new(Hold::Group);
    let run = world.start(&["--once=1h"], "rm elections/job.notes-lock; mkdir elections/job.notes-lock; echo done");
    run.hear("done");
    run.reports("the job is done, and the engine does not take note of it");
    run.signal(Signal::TERM);
    run.ends(0);
}

#[test]
fn what_is_not_started_because_it_cannot_be_noted_is_said() {
    let world = World::new(Hold::Group);
    std::fs::create_dir_all(world.path("elections/job.notes-lock")).unwrap();
    let run = world.start(&["--once=1h"], "echo started");
    run.reports("NOT STARTED: the engine does not take note of it");
    std::fs::remove_dir(world.path("elections/job.notes-lock")).unwrap();
    run.hear("started");
    run.ends(0);
}
