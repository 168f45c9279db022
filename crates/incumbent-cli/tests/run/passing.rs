//! What passes between the shell and the command: variables, streams, signals.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;

use incumbent_testbed::eventually;
use rustix::process::Signal;

use crate::shell::{ends, text};
use crate::world::{Hold, World};

#[test]
fn the_command_knows_its_election_its_token_its_identity_and_its_socket() {
    let world = World::new(Hold::Group);
    let script = r#"echo "$INCUMBENT_ELECTION $INCUMBENT_TOKEN $INCUMBENT_IDENTITY"; test -S "$INCUMBENT_SOCKET""#;
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let output = ends(world.run(&["--identity", "web-1"], script), 0);
        let words: Vec<&str> = text(&output.stdout).split_whitespace().collect();
        assert!(words[0] == "job" && words[2].starts_with("web-1"), "{words:?}");
        tokens.push(words[1].parse::<u64>().unwrap());
    }
    assert!(tokens[0] < tokens[1], "{tokens:?}");
}

/// What a shell starts in the background is deaf to SIGINT: once the command has ended by it, the rest is told in the usual way.
/// Somebody's `| less`, or a collector of logs that hangs.
#[test]
fn a_standard_error_that_nobody_reads_holds_up_nobody() {
    let world = World::new(Hold::Group);
    let (unread, full) = std::io::pipe().unwrap();
    fill(&full);
    let mut first =
        world.run(&["--ttl", "30s", "--after-loss", "exit"], "touch there; exec sleep 1000").stderr(full).spawn().unwrap();
    eventually("the command runs", || world.path("there").exists());
    let second = world.start(&["--ttl", "30s"], "echo ready; exec sleep 1000");
    second.reports("standing by");
    world.ask(&["resign", "job"]);
    second.hear("ready");
    assert_eq!(first.wait().unwrap().code(), Some(122));
    drop(unread);
}

fn fill(pipe: &std::io::PipeWriter) {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let flags = fcntl_getfl(pipe).unwrap();
    fcntl_setfl(pipe, flags | OFlags::NONBLOCK).unwrap();
    while rustix::io::write(pipe, b".").is_ok() {}
    fcntl_setfl(pipe, flags).unwrap();
}

#[test]
fn what_is_deaf_to_an_interrupt_is_told_to_end_all_the_same() {
    let world = World::new(Hold::Group);
    let script = r#"sh -c 'trap "echo drains > drained; exit" TERM; echo ready; while :; do sleep 0.05; done' & wait"#;
    let run = world.start(&["--grace", "1m"], script);
    run.hear("ready");
    run.signal(Signal::INT);
    run.ends(130);
    assert_eq!(world.read("drained"), "drains\n");
}

/// In the background of a terminal, whoever reads from it is stopped, and hears nothing any more.
#[test]
fn on_a_terminal_there_is_nothing_to_read_and_who_is_stopped_can_still_be_told() {
    let world = World::new(Hold::Group);
    let on_a_terminal = |script: &str| {
        let run = world.run(&["--quiet", "--grace", "1m"], script);
        let words = [run.get_program()].into_iter().chain(run.get_args()).map(|it| it.to_str().unwrap().replace('\'', r"'\''"));
        let line = words.map(|it| format!("'{it}'")).collect::<Vec<_>>().join(" ");
        let mut terminal = std::process::Command::new("script");
        terminal.args(["-qec", &line, "/dev/null"]).current_dir(world.path("")).env("XDG_RUNTIME_DIR", world.runtime());
        terminal.stdin(Stdio::null());
        terminal
    };
    let output = ends(on_a_terminal("cat; echo read it all"), 0);
    assert!(text(&output.stdout).contains("read it all"), "{output:?}");
    // It stops itself, as the kernel would, and is told to end by whoever sees that.
    let script = "trap 'exit 9' TERM; supervisor=$(ps -o ppid= -p $PPID); kill -TERM $supervisor; kill -STOP $$; sleep 1000";
    ends(world.run(&["--grace", "1m"], script), 9);
}

/// It begins anew once its command line is read, and nothing shows it: neither to whoever looks for it nor to what it starts, a supervisor of its own among that.
#[test]
fn a_supervisor_that_has_begun_anew_is_called_as_it_was_and_tells_nobody() {
    let world = World::new(Hold::Group);
    let health = format!("env | grep -c UNDERSTOOD > {}; true", world.path("health").display());
    let hook = format!("env | grep -c UNDERSTOOD > {}; true", world.path("hook").display());
    // The parent's parent: between them is the guardian.
    let script = r#"
        supervisor=$(ps -o ppid= -p $PPID | tr -d ' ')
        echo "$(cat /proc/$supervisor/comm) $(tr '\0' ' ' < /proc/$supervisor/cmdline | head -n 1 | cut -d ' ' -f 2-3) $(tr '\0' '\n' < /proc/$supervisor/environ | grep -c '^INCUMBENT_UNDERSTOOD=')"
        env | grep -c UNDERSTOOD
        "$INNER" run inner --quiet --on "$WHERE" -- echo inner"#;
    let mut command = world.run(&["--quiet", "--health", &health, "--on-elected", &hook], script);
    command.env("INNER", env!("CARGO_BIN_EXE_incumbent")).env("WHERE", world.url());
    // One of another process says nothing to this one.
    command.env("INCUMBENT_UNDERSTOOD", r#"{"process":1,"colour":"Auto","command":{"Run":{}}}"#);
    let output = ends(command, 0);
    assert_eq!(text(&output.stdout), "incumbent run job 1\n0\ninner\n", "{}", text(&output.stderr));
    assert_eq!((world.read("health").trim(), world.read("hook").trim()), ("0", "0"));
}

#[test]
fn streams_and_arguments_pass_as_they_are() {
    let world = World::new(Hold::Group);
    let mut command = world.run(&["--quiet"], r#"cat; echo complaint >&2; printf %s "$1""#);
    command.arg("name").arg(OsStr::from_bytes(b"odd \xff\n bytes"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // More than a pipe holds.
    let much = vec![b'x'; 300_000];
    let mut stdin = child.stdin.take().unwrap();
    let sent = much.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(output.stdout, [much.as_slice(), b"odd \xff\n bytes"].concat());
    assert_eq!(text(&output.stderr), "complaint\n", "quiet means that only the command speaks");
}

/// The guardian is spared when memory is short, and preferred when the processors are; what it watches over is not.
#[test]
fn the_command_has_the_standing_of_whoever_started_it() {
    let world = World::new(Hold::Group);
    let standing = |id: &str| format!("cat /proc/{id}/oom_score_adj; ps -o nice= -p {id}");
    let script = format!("{}; echo; {}", standing("$$"), standing("$PPID"));
    let mut command = std::process::Command::new("nice");
    let run = world.run(&["--quiet"], &script);
    command.args(["-n", "3"]).arg(run.get_program()).args(run.get_args()).current_dir(world.path(""));
    command.env("XDG_RUNTIME_DIR", world.runtime());
    let output = ends(command, 0);
    let said = text(&output.stdout);
    let (own, guardian) = said.split_once("\n\n").unwrap();
    let words = |it: &str| it.split_whitespace().map(|it| it.parse::<i32>().unwrap()).collect::<Vec<_>>();
    let here: i32 = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse().unwrap();
    // The nineteenth word, counted from behind the name, which may have blanks.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let niceness: i32 = stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().parse().unwrap();
    assert_eq!(words(own), [here, niceness + 3]);
    // To be spared takes a right that root does not have everywhere.
    if rustix::process::geteuid().is_root() {
        assert_eq!(words(guardian)[1], (niceness + 3 - 10).max(-20));
    }
}

#[test]
fn a_signal_that_is_meant_for_the_command_reaches_it() {
    let world = World::new(Hold::Group);
    let run = world.start(&[], r#"trap 'echo usr1' USR1; trap 'echo hup; exit 4' HUP; echo ready; while :; do sleep 0.05; done"#);
    run.hear("ready");
    run.signal(Signal::USR1);
    run.hear("usr1");
    run.signal(Signal::HUP);
    run.hear("hup");
    run.ends(4);
}

#[test]
fn told_to_end_it_lets_the_command_drain_and_ends_as_that_did() {
    let world = World::new(Hold::Group);
    let run = world.start(
        &["--grace", "5m"],
        r#"trap 'echo draining; read line; echo drained; exit 9' TERM; echo ready; while :; do sleep 0.05; done"#,
    );
    run.hear("ready");
    run.signal(Signal::TERM);
    run.hear("draining");
    run.say("go");
    run.hear("drained");
    run.ends(9);
    world.nothing_lives();
}

#[test]
fn a_command_that_does_not_end_is_killed_after_the_grace() {
    for hold in [Hold::Group, Hold::Descent] {
        let world = World::new(hold);
        let run = world.start(&["--grace", "2s"], r#"trap 'echo deaf' TERM; daemon d; echo ready; while :; do sleep 0.05; done"#);
        run.hear("ready");
        run.signal(Signal::TERM);
        run.hear("deaf");
        run.ends(137);
        world.nothing_lives();
    }
}

#[test]
fn told_twice_it_kills_at_once() {
    let world = World::new(Hold::Group);
    let run = world.start(&["--grace", "1h"], r#"trap 'echo deaf' TERM; daemon d; echo ready; while :; do sleep 0.05; done"#);
    run.hear("ready");
    run.signal(Signal::TERM);
    run.hear("deaf");
    run.signal(Signal::INT);
    run.ends(137);
    world.nothing_lives();
}

#[test]
fn under_timeout_which_tells_it_and_its_group_the_command_drains() {
    let world = World::new(Hold::Group);
    let run =
        world.run(&["--grace", "1h"], "trap 'sleep 0.3; echo drained; exit 9' TERM; echo ready; while :; do sleep 0.05; done");
    let mut command = std::process::Command::new("timeout");
    command.args(["--preserve-status", "3"]).arg(run.get_program()).args(run.get_args()).current_dir(world.path(""));
    command.env("XDG_RUNTIME_DIR", world.runtime());
    let output = ends(command, 9);
    assert_eq!(text(&output.stdout), "ready\ndrained\n");
    world.nothing_lives();
}
