//! `incumbent lab run --watch` on a real terminal (made by `script`, of Debian's bsdutils), and when that goes away.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

/// A terminal in which a scenario is watched; what it shows comes out of the pipe.
fn terminal() -> Child {
    let scenario = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/raft/check_quorum.txt");
    let watched = format!("{} lab run {} --watch", env!("CARGO_BIN_EXE_incumbent"), scenario.display());
    Command::new("script")
        .args(["--quiet", "--return", "--command", &watched, "/dev/null"])
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("`script` is there: it comes with every Debian (bsdutils)")
}

/// Reads until something was drawn, and gives the processes below `pid`: the shell that `script` starts, and ours.
fn drawn(child: &mut Child) -> Vec<u32> {
    let mut first = [0; 256];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    let mut below = vec![child.id()];
    let mut next = 0;
    while next < below.len() {
        let pid = below[next];
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        below.extend(children.split_whitespace().map(|pid| pid.parse::<u32>().unwrap()));
        next += 1;
    }
    below.remove(0);
    assert!(!below.is_empty());
    below
}

fn runs(pid: u32) -> bool {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    comm.trim() == "incumbent" && !state.contains(") Z ")
}

fn ends(pids: &[u32]) -> bool {
    let begun = Instant::now();
    while pids.iter().any(|pid| runs(*pid)) {
        if begun.elapsed() > LIMIT {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

#[test]
fn a_signal_ends_it_and_gives_the_terminal_back() {
    let mut child = terminal();
    let pids = drawn(&mut child);
    let ours = *pids.iter().find(|pid| runs(**pid)).expect("it runs");
    assert!(Command::new("kill").args(["-TERM", &ours.to_string()]).status().unwrap().success());
    let mut rest = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let rest = String::from_utf8_lossy(&rest);
    assert!(rest.contains("\u{1b}[?1049l") && rest.contains("\u{1b}[?25h"), "the screen or the cursor was not given back");
}

#[test]
fn a_terminal_that_hangs_up_ends_it_too() {
    let mut child = terminal();
    let pids = drawn(&mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    let ended = ends(&pids);
    for pid in pids.iter().filter(|pid| runs(**pid)) {
        let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
    }
    assert!(ended, "it goes on without a terminal");
}
