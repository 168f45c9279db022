//! Nothing of the command's tree lives when it should not, whatever its processes do and whoever of ours is killed or stopped.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use incumbent_supervisor::cgroup::Cgroup;
use incumbent_supervisor::clock;
use incumbent_testbed::{Redis, Server as _, eventually};
use rustix::process::Signal;

use crate::shell::processes::{children_of, guardians_of, kill_at_once, lives, signal, stands_still};
use crate::shell::{ends, text};
use crate::world::{Hold, Supervised, World, all_die, number_in};

const BOTH: [Hold; 2] = [Hold::Group, Hold::Descent];

#[test]
fn control_groups_are_hidden_from_those_that_are_to_do_without() {
    let world = World::new(Hold::Descent);
    let output = ends(world.run(&["--verbose"], "true"), 0);
    assert!(text(&output.stderr).contains("by descent alone"), "{}", text(&output.stderr));
}

#[test]
fn daemons_that_the_command_leaves_behind_are_dead_when_it_returns() {
    for hold in BOTH {
        let world = World::new(hold);
        ends(world.run(&[], "daemon a; daemon b; sleep 1000 & exit 5"), 5);
        world.nothing_lives();
        assert!(!world.read("a").is_empty() && !world.read("b").is_empty(), "they had lived");
    }
}

/// A process whose first thread has ended, which makes it look like one that has. It leaves its number in the file `z`, and the second thread goes on.
const HEADLESS: &str = r#"
perl -MPOSIX -Mthreads -e '
    threads->create(sub { select undef, undef, undef, 0.01 while 1 });
    open my $file, ">", "z.new"; print $file $$; close $file; rename "z.new", "z";
    syscall((POSIX::uname())[4] eq "aarch64" ? 93 : 60, 0)' >/dev/null 2>&1 &
until [ -e z ] && grep -q "^State:.Z" "/proc/$(cat z)/status"; do sleep 0.01; done
"#;

#[test]
fn who_has_only_lost_its_first_thread_is_dead_when_it_returns() {
    for hold in BOTH {
        let world = World::new(hold);
        ends(world.run(&[], &format!("{HEADLESS}exit 5")), 5);
        let number = world.read("z");
        let threads = std::fs::read_dir(format!("/proc/{number}/task")).map_or(0, |it| it.count());
        assert!(threads <= 1, "{hold:?}: {threads} threads of {number} are left");
    }
}

#[test]
fn those_who_end_politely_may_do_so() {
    for hold in BOTH {
        let world = World::new(hold);
        let polite = r#"(setsid sh -c 'trap "echo bye > bye; exit" TERM; echo > there; while :; do sleep 0.02; done' &)"#;
        ends(world.run(&[], &format!("{polite}; until [ -e there ]; do sleep 0.01; done; exit 3")), 3);
        world.nothing_lives();
        assert_eq!(world.read("bye"), "bye\n");
    }
}

/// Two hundred that sit, and twenty that fork without end: more than whoever kills one by one keeps up with, and few enough for any machine.
const BOMB: &str = r#"
for i in 1 2 3 4 5 6 7 8 9 10; do
    (trap '' TERM; for j in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 1000 & done; while :; do (:) & wait $!; done) &
    (trap '' TERM; exec setsid sh -c 'while :; do (:) & (:) & wait; done') &
done
echo ready
sleep 1000
"#;

#[test]
fn a_fork_bomb_is_dead_when_it_returns() {
    for hold in BOTH {
        let world = World::new(hold);
        let run = world.start(&["--grace", "0s"], BOMB);
        run.hear("ready");
        run.signal(Signal::TERM);
        run.ends_with(&[137, 143]);
        world.nothing_lives();
    }
}

/// Always one process, and never the same: each forks the next and ends.
const CHAIN: &str = r#"
perl -e 'fork and exit; use POSIX; setsid; $SIG{TERM} = "IGNORE"; open my $there, ">", "there"; close $there; while (1) { my $child = fork; exit if $child; }'
until [ -e there ]; do sleep 0.01; done
exit 4
"#;

#[test]
fn a_chain_of_processes_each_of_which_forks_the_next_is_dead_when_it_returns() {
    for hold in BOTH {
        let world = World::new(hold);
        ends(world.run(&[], CHAIN), 4);
        // One look may miss who forks at that instant.
        for _ in 0..20 {
            world.nothing_lives();
        }
    }
}

#[test]
fn a_supervisor_that_is_killed_takes_the_tree_with_it() {
    for hold in BOTH {
        let world = World::new(hold);
        let run = world.start(&[], "daemon d; echo ready; sleep 1000");
        run.hear("ready");
        let guardian = run.guardian();
        run.signal(Signal::KILL);
        run.is_killed();
        // It goes only after the tree.
        all_die("the guardian has done its work", &[guardian]);
        world.nothing_lives();
        // And the next one is not kept waiting by anything.
        ends(world.run(&[], "exit 3"), 3);
    }
}

#[test]
fn where_all_are_told_to_end_at_once_the_guardian_stays_until_the_command_has_drained() {
    for hold in BOTH {
        for all in [Signal::TERM, Signal::INT, Signal::QUIT] {
            let world = World::new(hold);
            let drain = r#"trap "trap '' TERM INT QUIT; echo draining; sleep 0.2; echo drained; exit 9" TERM INT QUIT; echo "ready $$"; while :; do sleep 0.02; done"#;
            let run = world.start(&[], drain);
            let command: u32 = run.hear("ready ").parse().unwrap();
            for id in [run.guardian(), command, run.id()] {
                signal(id, all);
            }
            run.ends(9);
            assert!(run.has_said("drained"), "{hold:?} {all:?}: {:?}", run.lines());
            world.nothing_lives();
        }
    }
}

#[test]
fn a_guardian_that_is_stopped_when_its_supervisor_is_killed_is_woken_by_the_kernel_and_kills_the_tree() {
    for hold in BOTH {
        let world = World::new(hold);
        let run = world.start(&[], "daemon d; echo ready; sleep 1000");
        run.hear("ready");
        let (guardian, tree) = (run.guardian(), world.living());
        assert!(tree.len() >= 2);
        signal(guardian, Signal::STOP);
        eventually("the guardian is stopped", || stands_still(guardian));
        run.signal(Signal::KILL);
        run.is_killed();
        all_die("the guardian has done its work", &[guardian]);
        world.nothing_lives();
    }
}

#[test]
fn a_launcher_that_is_killed_while_it_waits_costs_nothing_and_one_that_waits_ends_with_its_guardian() {
    for hold in BOTH {
        let world = World::new(hold);
        let leader = world.start(&[], "echo ready; sleep 1000");
        leader.hear("ready");
        let standby = world.start(&[], "echo ready; sleep 1000");
        let launchers = || guardians_of(standby.id()).first().map(|it| children_of(*it)).unwrap_or_default();
        eventually("the launcher of the next command waits", || launchers().len() == 1);
        let waiting = launchers();
        signal(waiting[0], Signal::KILL);
        all_die("the launcher", &waiting);
        let third = world.start(&[], "echo never");
        let beneath = || guardians_of(third.id()).first().map(|it| children_of(*it)).unwrap_or_default();
        eventually("a third one waits too", || beneath().len() == 1);
        let waiting = beneath();
        third.signal(Signal::KILL);
        all_die("what waits for a supervisor that was killed", &waiting);
        leader.signal(Signal::TERM);
        leader.ends(143);
        standby.hear("ready");
        standby.signal(Signal::TERM);
        standby.ends(143);
        world.nothing_lives();
    }
}

#[test]
fn a_guardian_that_is_killed_takes_the_tree_with_it_and_the_next_term_has_another() {
    for hold in BOTH {
        let world = World::new(hold);
        let run = world.start(&["--grace", "100ms"], r#"daemon "d$INCUMBENT_TOKEN"; echo "ready $INCUMBENT_TOKEN"; sleep 1000"#);
        let first = run.hear("ready ");
        let (guardian, tree) = (run.guardian(), world.living());
        assert!(tree.len() >= 2);
        signal(guardian, Signal::KILL);
        let second = run.hear("ready ");
        assert_ne!(first, second);
        all_die("the former tree", &tree);
        assert_ne!(run.guardian(), guardian);
        run.signal(Signal::TERM);
        run.ends_with(&[137, 143]);
        world.nothing_lives();
    }
}

#[test]
fn a_supervisor_whose_guardian_is_stopped_kills_the_tree_itself() {
    for hold in BOTH {
        let world = World::new(hold);
        let run = world.start(&["--ttl", "3s", "--grace", "100ms", "--after-loss", "exit"], "daemon d; echo ready; sleep 1000");
        run.hear("ready");
        signal(run.guardian(), Signal::STOP);
        world.ask(&["evict", "job", "--no-wait"]);
        run.ends(122);
        world.nothing_lives();
    }
}

#[test]
fn told_to_end_while_its_guardian_is_stopped_it_kills_the_tree_after_the_grace() {
    for hold in BOTH {
        let world = World::new(hold);
        let options = ["--ttl", "3s", "--grace", "2s"];
        let run = world.start(&options, "trap '' TERM; daemon d; echo ready; while :; do sleep 1; done");
        run.hear("ready");
        signal(run.guardian(), Signal::STOP);
        run.signal(Signal::TERM);
        run.ends(137);
        world.nothing_lives();
    }
}

#[test]
fn a_guardian_whose_supervisor_is_stopped_kills_the_tree_by_its_own_clock() {
    for hold in BOTH {
        let world = World::new(hold);
        let run = world.start(
            &["--ttl", "3s", "--grace", "100ms"],
            r#"trap '' TERM; daemon "d$INCUMBENT_TOKEN"; echo "ready $INCUMBENT_TOKEN"; while :; do sleep 1; done"#,
        );
        let first = run.hear("ready ");
        let tree = world.living();
        run.signal(Signal::STOP);
        all_die("the tree of a stopped supervisor", &tree);
        // Nobody tells us that it is done: the supervisor stands still.
        eventually("whoever was born since is dead too", || world.living().is_empty());
        run.signal(Signal::CONT);
        let second = run.hear("ready ");
        assert!(first.parse::<u64>().unwrap() < second.parse::<u64>().unwrap());
        run.signal(Signal::TERM);
        run.ends_with(&[137, 143]);
        world.nothing_lives();
    }
}

/// It ends by itself, with the best of codes, because its guardian has told it to.
#[test]
fn whoever_was_cut_off_has_not_done_its_work_whatever_it_says() {
    for options in [&["--ttl", "3s"][..], &["--ttl", "3s", "--once=1h"]] {
        let world = World::new(Hold::Group);
        let run = world.start(options, r#"trap 'exit 0' TERM; echo "ready $INCUMBENT_TOKEN"; while :; do sleep 0.02; done"#);
        let first = run.hear("ready ");
        run.signal(Signal::STOP);
        eventually("the guardian has ended it", || world.living().is_empty());
        run.signal(Signal::CONT);
        let second = run.hear("ready ");
        assert!(first.parse::<u64>().unwrap() < second.parse::<u64>().unwrap(), "{options:?}");
        run.signal(Signal::TERM);
        run.ends(0);
    }
}

#[test]
fn whoever_is_asked_to_go_may_drain_for_longer_than_a_lease() {
    let world = World::new(Hold::Group);
    let drain =
        r#"trap 'trap "" TERM; echo draining; sleep 3; echo drained; exit 0' TERM; echo ready; while :; do sleep 0.02; done"#;
    let run = world.start(&["--ttl", "2s", "--grace", "1m", "--after-loss", "exit"], drain);
    run.hear("ready");
    // It would wait for somebody to follow.
    let mut asking = world.incumbent(&["resign", "job", "--on", &world.url()]).spawn().unwrap();
    run.hear("draining");
    run.hear("drained");
    run.ends(122);
    asking.kill().unwrap();
    asking.wait().unwrap();
}

#[test]
fn a_guardian_that_dies_while_another_leads_is_replaced_before_its_host_does() {
    let world = World::new(Hold::Group);
    let start = |name| world.start(&["--identity", name, "--after-loss", "exit"], "echo ready; exec sleep 1000");
    let first = start("web-1");
    first.hear("ready");
    let second = start("web-2");
    second.reports("standing by");
    let guardian = second.guardian();
    signal(guardian, Signal::KILL);
    all_die("the guardian", &[guardian]);
    first.signal(Signal::TERM);
    second.hear("ready");
}

/// Three thousand that are deaf to what asks them to end.
const CROWD: &str = r#"
exec perl -e '$SIG{TERM} = "IGNORE"; $| = 1; for (1..3000) { fork or do { sleep 1000; exit } } print "ready\n"; sleep 1000'
"#;

#[test]
fn to_tell_a_crowd_to_end_does_not_put_off_its_death() {
    const TTL: Duration = Duration::from_secs(3);
    /// What a busy machine may take to bring so many to their end.
    const SLACK: Duration = Duration::from_secs(1);
    for hold in BOTH {
        let world = World::new(hold);
        let run = world.start(&["--ttl", "3s", "--after-loss", "exit"], CROWD);
        run.hear("ready");
        let crowd = world.living();
        assert!(crowd.len() > 3000);
        run.signal(Signal::STOP);
        let stopped = clock::now();
        all_die("the tree of a stopped supervisor", &crowd);
        let lived = clock::now() - stopped;
        assert!(lived < TTL + SLACK, "{hold:?}: it was renewed {lived:?} ago at the latest");
        run.signal(Signal::CONT);
        run.ends(122);
        world.nothing_lives();
    }
}

#[test]
fn a_command_that_has_moved_to_another_group_is_told_to_end_too() {
    groups_are_needed();
    let world = World::new(Hold::Group);
    let other = Cgroup::make(&format!("incumbent-other-{}", std::process::id())).unwrap();
    let procs = other.path().join("cgroup.procs");
    let script = format!("trap 'exit 9' TERM; echo $$ > {}; echo ready; while :; do sleep 0.02; done", procs.display());
    let run = world.start(&["--grace", "1m"], &script);
    run.hear("ready");
    run.signal(Signal::TERM);
    run.ends(9);
    world.nothing_lives();
    other.remove();
}

/// Descent cannot do what follows: who has lost both parents is nobody's. There, fencing tokens protect what the orphan writes to.
fn groups_are_needed() {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let probe = Cgroup::make(&format!("incumbent-probe-{}-{number}", std::process::id()));
    probe.expect("this test needs the right to make control groups").remove();
}

const ORPHAN: &str = "daemon d; echo \"ready $$\"; sleep 1000";

/// Kills supervisor and guardian of an [`ORPHAN`] in one instant, and waits until the command has died of it.
fn kill_both(run: &Supervised) {
    let command: u32 = run.hear("ready ").parse().unwrap();
    kill_at_once(&[run.id(), run.guardian()]);
    run.is_killed();
    all_die("its parent's death kills the command", &[command]);
}

#[test]
fn what_both_left_behind_when_they_were_killed_is_killed_before_the_next_starts() {
    groups_are_needed();
    let world = World::new(Hold::Group);
    let run = world.start(&["--identity", "first"], ORPHAN);
    let daemon = number_in(&world, "d");
    // Dead it may still be unburied, which is not for us to do.
    let look = format!("sed -n 's/^State:.\\([^ZX]\\).*/beside the former: \\1/p' /proc/{daemon}/status 2>/dev/null; exit 3");
    let next = world.start(&["--identity", "next"], &look);
    next.reports("standing by");
    kill_both(&run);
    next.ends(3);
    assert_eq!(next.lines(), Vec::<String>::new());
    assert!(next.said().contains("left behind"), "{}", next.said());
    assert_eq!(next.said().matches("elected for").count(), 1, "it costs the next no term of its own: {}", next.said());
    world.nothing_lives();
}

#[test]
fn who_is_started_again_kills_what_was_left_behind_though_another_may_lead() {
    groups_are_needed();
    let redis = Redis::debian().start().unwrap();
    let world = World::new(Hold::Group);
    let (url, state) = (format!("redis://{}/orphans", redis.address()), world.path("state"));
    let options = ["--on", &url, "--state-dir", state.to_str().unwrap(), "--ttl", "5m"];
    let run = world.start(&options, ORPHAN);
    let daemon = number_in(&world, "d");
    kill_both(&run);
    assert!(lives(daemon), "it had left its parent long ago");
    let again = ends(world.run(&[&options[..], &["--max-wait", "1ms"]].concat(), "touch ran"), 121);
    assert!(text(&again.stderr).contains("left behind"), "{}", text(&again.stderr));
    world.nothing_lives();
}
