//! Tests in network namespaces of their own, for all that need one: a test runs this program again, for itself alone, in a namespace that ends with it.
//!
//! That takes root, or a system that lets anybody make a user namespace; where neither is so every test fails and says what to do. They mostly wait, so more of them are run side by
//! side than the machine has processors: whichever test is the first starts all that were asked for, and each waits for its own.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod disk;
pub(crate) mod network;

use std::any::type_name_of_val;
use std::collections::{BTreeMap, VecDeque};
use std::process::Command;
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};

use rustix::process::getuid;

/// Set for the process that is in the namespace.
const INSIDE: &str = "INCUMBENT_TEST_INSIDE";

/// How many tests run side by side on each processor.
const TESTS_PER_CORE: usize = 3;

/// Runs the test in a network namespace of its own.
#[track_caller]
#[allow(clippy::print_stderr, reason = "what the test itself said, shown when asked for")]
pub(crate) fn apart<Body: FnOnce()>(body: Body) {
    if is_apart() {
        return body();
    }
    // "peers::crashes::c01_...::{{closure}}", of which the harness knows the middle.
    let name = type_name_of_val(&body).split_once("::").unwrap().1.trim_end_matches("::{{closure}}");
    let mut endings = RUNS.endings.lock().unwrap_or_else(PoisonError::into_inner);
    let ending = loop {
        match endings.remove(name) {
            Some(ending) => break ending,
            None => endings = RUNS.more.wait(endings).unwrap_or_else(PoisonError::into_inner),
        }
    };
    drop(endings);
    match ending {
        Ok(said) => eprint!("{said}"),
        Err(said) => panic!("{said}"),
    }
}

/// Whether this process is in such a namespace.
pub(crate) fn is_apart() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// All tests that were asked for, as they end.
struct Runs {
    endings: Mutex<BTreeMap<String, Result<String, String>>>,
    more: Condvar,
}

static RUNS: LazyLock<Runs> = LazyLock::new(|| {
    let names = Mutex::new(asked_for());
    let names: &'static Mutex<VecDeque<String>> = Box::leak(Box::new(names));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for _ in 0..cores * TESTS_PER_CORE {
        std::thread::spawn(move || {
            let next = || names.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            while let Some(name) = next() {
                let ending = run(&name);
                RUNS.endings.lock().unwrap_or_else(PoisonError::into_inner).insert(name, ending);
                RUNS.more.notify_all();
            }
        });
    }
    Runs { endings: Mutex::new(BTreeMap::new()), more: Condvar::new() }
});

/// The tests that this process was asked to run, as the harness understands it.
fn asked_for() -> VecDeque<String> {
    let output = Command::new(std::env::current_exe().unwrap()).args(std::env::args().skip(1)).arg("--list").output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    listed.lines().filter_map(|it| it.strip_suffix(": test")).map(str::to_owned).collect()
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    if !getuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    // What a test mounts goes with it.
    command.args(["--net", "--mount"]);
    command
}

/// Runs one test to its end; what it said, and whether it passed.
fn run(name: &str) -> Result<String, String> {
    // A namespace that nobody can make looks like a test that fails, so it is asked for by itself first.
    let made = unshare().args(["ip", "link", "add", "br0", "type", "bridge"]).output();
    let made = made.map_err(|why| format!("cannot run unshare, of util-linux: {why}"))?;
    if !made.status.success() {
        return Err(format!(
            "cannot make a network namespace with a bridge: {}run the tests as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, \
             kernel.apparmor_restrict_unprivileged_userns=0), and install iproute2",
            String::from_utf8_lossy(&made.stderr)
        ));
    }
    let mut command = unshare();
    command.args(["setpriv", "--pdeathsig", "KILL", "--"]).arg(std::env::current_exe().map_err(|why| why.to_string())?);
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(INSIDE, "1");
    let output = command.output().map_err(|why| why.to_string())?;
    let said = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned()).concat();
    if output.status.success() && said.contains("1 passed") { Ok(said) } else { Err(said) }
}
