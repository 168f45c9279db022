//! Exit codes, and the one line that says what to do.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use incumbent_supervisor::clock;
use incumbent_testbed::{Etcd, Redis, Server as _, eventually};
use rustix::process::Signal;

use crate::places::Places;
use crate::shell::{ends, text};
use crate::world::{Hold, World};

#[test]
fn the_code_is_the_commands_own_and_128_more_than_the_signal_that_ended_it() {
    let world = World::new(Hold::Group);
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
        ends(world.run(&[], script), code);
        world.nothing_lives();
    }
}

#[test]
fn a_wrong_command_line_is_120_and_nothing_is_run() {
    let world = World::new(Hold::Group);
    for (options, says) in [
        (&["--no-such-option"][..], "--no-such-option"),
        (&["--on", "etdc://h"], "there are memory, file, etcd"),
        (&["--on", "memory:"], "leave --on away for elections in files of this machine"),
        (&["--ttl", "1ms"], "between 100ms and a day"),
        (&["--identity", "a b"], "--identity: ' '"),
        (&["--restart", "sometimes"], "on-failure"),
        (&["--grace", "soon"], "1m30s"),
        (&["--restart", "always", "--give-up-after", "0"], "--give-up-after"),
        (&["--config", "wrong.toml"], "unknown field"),
        (&["--on", "peers://127.0.0.1:1,127.0.0.1:2/group"], "must be a member: add me=N"),
        (&["--state-dir", "elsewhere"], "with --on file:elsewhere"),
        (&["--health", ""], "a variable may be empty"),
        (&["--on-elected", " "], "a variable may be empty"),
        (&["--on-lost", ""], "a variable may be empty"),
        (&["--on", "etdc://h", "--state-dir", "made"], "there are memory, file, etcd"),
    ] {
        std::fs::write(world.path("wrong.toml"), "tll = \"3s\"\n").unwrap();
        let output = ends(world.run(options, "touch ran"), 120);
        assert!(text(&output.stderr).contains(says), "{options:?}: {}", text(&output.stderr));
    }
    ends(world.incumbent(&["run", "job"]), 120);
    for (name, says) in [("bad name", "' '"), ("a/b", "'/'"), ("a\nb", "'\\n'"), (&"x".repeat(300)[..], "300 characters")] {
        let output = ends(world.incumbent(&["run", name, "--on", &world.url(), "--", "true"]), 120);
        assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
    }
    for left in std::fs::read_dir(world.path("elections")).unwrap().flatten() {
        assert!(left.file_name().to_string_lossy().starts_with("job."), "of a name that no engine takes {left:?} is left");
    }
    assert!(!world.path("ran").exists() && !world.path("made").exists());
}

#[test]
fn not_elected_within_max_wait_is_121() {
    let world = World::new(Hold::Group);
    let leader = world.start(&[], "echo leads; read line");
    leader.hear("leads");
    let output = ends(world.run(&["--max-wait", "200ms"], "touch ran"), 121);
    assert!(text(&output.stderr).contains("not elected within 200ms"), "{}", text(&output.stderr));
    assert!(!world.path("ran").exists());
    leader.say("");
    leader.ends(0);
    // Elected once, it is served to its end however long that takes.
    ends(world.run(&["--max-wait", "30s"], "exit 5"), 5);
}

/// Often enough that luck would run out.
const TRIES: u32 = 8;

/// With `--max-wait 0s` the first answer counts, however long it takes to come.
#[test]
fn without_patience_a_seat_that_is_free_is_taken_and_one_that_is_not_is_not_waited_for() {
    let (etcd, nodes) = (Etcd::debian().start().unwrap(), Places::of(1));
    let _node = nodes.start(1);
    let world = World::new(Hold::Group);
    let state = world.path("state");
    for url in [world.url(), format!("etcd://{}/once", etcd.address()), nodes.url()] {
        let beside = if url == world.url() { vec![] } else { vec!["--state-dir", state.to_str().unwrap()] };
        let options = [&["--on", url.as_str()], &beside[..]].concat();
        let tries_once = |more: &[&str], script| world.run(&[&options[..], &["--max-wait", "0s"], more].concat(), script);
        for _ in 0..TRIES {
            ends(tries_once(&[], "exit 7"), 7);
        }
        ends(tries_once(&["--health", "sleep 0.1"], "exit 7"), 7);
        let unfit = ends(tries_once(&["--health", "exit 3"], "touch ran"), 121);
        assert!(text(&unfit.stderr).contains("not fit to lead"), "{}", text(&unfit.stderr));
        let leader = world.start(&options, "echo leads; read line");
        leader.hear("leads");
        for _ in 0..TRIES {
            let refused = ends(tries_once(&[], "touch ran"), 121);
            assert!(text(&refused.stderr).contains("tried once, and not waited for"), "{url}: {}", text(&refused.stderr));
        }
        leader.say("");
        leader.ends(0);
    }
    let options = ["--on", "etcd://127.0.0.1:1/x", "--state-dir", state.to_str().unwrap(), "--max-wait", "0s"];
    ends(world.run(&options, "touch ran"), 121);
    assert!(!world.path("ran").exists());
}

#[test]
fn a_leadership_that_is_taken_away_is_122_if_that_is_wanted() {
    for ask in ["evict", "resign"] {
        let world = World::new(Hold::Group);
        let run = world.start(&["--after-loss", "exit", "--grace", "100ms"], "daemon d; echo leads; sleep 1000");
        run.hear("leads");
        world.ask(&[ask, "job", "--no-wait"]);
        run.ends(122);
        world.nothing_lives();
    }
}

#[test]
fn what_incumbent_itself_cannot_do_is_125() {
    let world = World::new(Hold::Group);
    let output = ends(world.run(&["--on", "file:/proc/nowhere"], "touch ran"), 125);
    assert!(text(&output.stderr).contains("/proc/nowhere") && text(&output.stderr).contains("hint:"), "{}", text(&output.stderr));
    // The directory for locks is looked at before any engine is asked.
    let output = ends(world.run(&["--on", "etcd://127.0.0.1:1/x", "--state-dir", "/proc/nowhere"], "touch ran"), 125);
    assert!(text(&output.stderr).contains("--state-dir"), "{}", text(&output.stderr));
    let output = ends(world.run(&["--config", "/nowhere/at-all.toml"], "touch ran"), 125);
    assert!(text(&output.stderr).contains("/nowhere/at-all.toml"), "{}", text(&output.stderr));
    ends(world.run(&["--on-elected", "exit 3"], "touch ran"), 125);
    assert!(!world.path("ran").exists());
}

#[test]
fn a_command_that_cannot_be_run_is_126_and_one_that_is_not_there_127() {
    let world = World::new(Hold::Group);
    let url = world.url();
    std::fs::write(world.path("no-interpreter"), "#!/nowhere/at/all\n").unwrap();
    std::fs::set_permissions(world.path("no-interpreter"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(world.path("no-right"), "#!/bin/sh\n").unwrap();
    for (command, code, says) in [
        ("no-such-command-here", 127, "nowhere in PATH"),
        ("", 127, "has no name"),
        ("./no-such-file", 127, "check the path"),
        ("./no-interpreter", 127, "cannot run"),
        ("./no-right", 126, "chmod +x"),
        ("/", 126, "is a directory"),
    ] {
        let output = ends(world.incumbent(&["run", "job", "--quiet", "--on", &url, "--", command]), code);
        let said = text(&output.stderr);
        assert!(said.contains(says) && said.lines().count() == 1, "{command}: {said}");
    }
}

#[test]
fn a_relative_path_counts_from_where_the_command_runs() {
    let world = World::new(Hold::Group);
    std::fs::create_dir(world.path("there")).unwrap();
    std::fs::write(world.path("there/job.sh"), "#!/bin/sh\nbasename \"$PWD\"\n").unwrap();
    std::fs::set_permissions(world.path("there/job.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let url = world.url();
    let output = ends(world.incumbent(&["run", "job", "--on", &url, "--chdir", "there", "--", "./job.sh"]), 0);
    assert_eq!(text(&output.stdout), "there\n");
    let output = ends(world.incumbent(&["run", "job", "--on", &url, "--chdir", "nowhere", "--", "true"]), 120);
    assert!(text(&output.stderr).contains("--chdir"), "{}", text(&output.stderr));
}

#[test]
fn a_second_supervisor_of_the_same_identity_is_refused() {
    let world = World::new(Hold::Group);
    let first = world.start(&["--identity", "web-1"], "echo leads; read line");
    first.hear("leads");
    let output = ends(world.run(&["--identity", "web-1"], "touch ran"), 120);
    assert!(text(&output.stderr).contains("--identity of its own"), "{}", text(&output.stderr));
    ends(world.run(&["--identity", "web-2", "--max-wait", "1ms"], "touch ran"), 121);
    first.say("");
    first.ends(0);
    ends(world.run(&["--identity", "web-1"], "exit 3"), 3);
}

#[test]
fn one_that_stands_by_ends_when_it_is_told_to() {
    let world = World::new(Hold::Group);
    let leader = world.start(&[], "echo leads; read line");
    leader.hear("leads");
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let standby = world.start(&[], "touch ran");
        standby.reports("standing by");
        standby.signal(signal);
        standby.ends(code);
    }
    assert!(!world.path("ran").exists());
    leader.say("");
    leader.ends(0);
}

/// Engines with nobody at the address, and with somebody there who never says a word.
fn silent_engines() -> (TcpListener, Vec<String>) {
    // Whoever connects is taken on by the kernel, and waits.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = mute.local_addr().unwrap().to_string();
    let schemes = ["etcd", "zookeeper", "consul", "postgres", "redis", "nats", "incumbent"];
    let urls = ["127.0.0.1:1", &address].iter().flat_map(|at| schemes.map(|it| format!("{it}://{at}/x"))).collect();
    (mute, urls)
}

#[test]
fn max_wait_is_kept_whatever_the_engine_does() {
    /// What a busy machine may take to start and end a few processes.
    const SLACK: Duration = Duration::from_millis(1500);
    let world = World::new(Hold::Group);
    let (_mute, urls) = silent_engines();
    let state = world.path("state");
    for url in urls {
        let begun = clock::now();
        let options = ["--on", &url, "--state-dir", state.to_str().unwrap(), "--max-wait", "300ms"];
        let output = ends(world.run(&options, "touch ran"), 121);
        let took = clock::now() - begun;
        assert!(took < Duration::from_millis(300) + SLACK, "{url}: {took:?}");
        assert!(text(&output.stderr).contains("not elected within 300ms"), "{url}: {}", text(&output.stderr));
    }
    assert!(!world.path("ran").exists());
}

#[test]
fn told_to_end_while_it_stands_by_it_does_at_once_with_128_more_than_the_signal() {
    const AT_ONCE: Duration = Duration::from_millis(1500);
    let world = World::new(Hold::Group);
    let (_mute, urls) = silent_engines();
    let leader = world.start(&[], "echo leads; read line");
    leader.hear("leads");
    let state = world.path("state");
    for url in urls.into_iter().chain([world.url()]) {
        for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
            // Elections in files have their locks beside them.
            let beside = if url == world.url() { vec![] } else { vec!["--state-dir", state.to_str().unwrap()] };
            let run = world.start(&[&["--on", url.as_str()], &beside[..]].concat(), "touch ran");
            eventually("it listens for signals", || listens_for(run.id(), signal));
            let told = clock::now();
            run.signal(signal);
            run.ends(code);
            let took = clock::now() - told;
            assert!(took < AT_ONCE, "{url}: {took:?}");
        }
    }
    assert!(!world.path("ran").exists());
    leader.say("");
    leader.ends(0);
}

/// An engine that has answered and then falls silent is not waited for either.
#[test]
fn told_to_end_it_does_not_wait_for_an_engine_that_has_fallen_silent() {
    const AT_ONCE: Duration = Duration::from_millis(1500);
    let redis = Redis::debian().start().unwrap();
    let world = World::new(Hold::Group);
    let (url, state) = (format!("redis://{}/silent", redis.address()), world.path("state"));
    let options = ["--on", &url, "--state-dir", state.to_str().unwrap()];
    let leader = world.start(&options, "echo leads; read line");
    leader.hear("leads");
    let run = world.start(&options, "touch ran");
    run.reports("standing by");
    redis.pause();
    let told = clock::now();
    run.signal(Signal::TERM);
    run.ends(143);
    let took = clock::now() - told;
    redis.resume();
    assert!(took < AT_ONCE, "{took:?}");
}

fn listens_for(id: u32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|it| it.strip_prefix("SigCgt:")).and_then(|it| u64::from_str_radix(it.trim(), 16).ok());
    caught.is_some_and(|it| it >> (signal.as_raw() - 1) & 1 == 1)
}
