//! A directory for elections, a command with a mark, and the two ways to hold its tree together.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use incumbent_supervisor::cgroup::Cgroup;
use incumbent_testbed::{Contender, eventually};
use rustix::process::{Pid, Signal, getpgid, kill_process_group};

use crate::shell;
use crate::shell::processes::{MARK, guardians_of, lives, marked, signal};

/// What holds the tree together.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// A control group, if this machine lets us make one.
    Group,
    /// Descent alone: the command sees a machine without control groups.
    Descent,
}

/// Hides every control group of version 2 from what is run behind it.
const WITHOUT_GROUPS: &str = r#"
for point in $(awk '$3 == "cgroup2" { print $2 }' /proc/self/mounts); do mount -t tmpfs none "$point" || exit 99; done
exec "$@""#;

/// A daemon by the book and beyond: forked twice, in a session of its own, deaf to what asks it to end, with no descriptor open. It leaves its number in the file `$1`.
pub(crate) const DAEMON: &str = r#"
daemon() {
    (setsid sh -c 'trap "" TERM INT HUP QUIT; exec 0<&- 1>&- 2>&-; echo $$ > "$1.new"; mv "$1.new" "$1"; while :; do sleep 1000; done' daemon "$1" &)
    until [ -e "$1" ]; do sleep 0.01; done
}
"#;

/// What a test has left is looked for until so many looks have seen nothing ...
const LOOKS_EMPTY: u32 = 3;
/// ... or so many times.
const LOOKS_MAX: u32 = 200;

/// Elections in a directory of their own, and a command whose processes can be told from all others.
pub(crate) struct World {
    folder: tempfile::TempDir,
    /// For sockets, whose paths must be short; those of a supervisor that was killed would stay behind anywhere else.
    runtime: tempfile::TempDir,
    mark: String,
    hold: Hold,
}

impl World {
    pub(crate) fn new(hold: Hold) -> World {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = tempfile::Builder::new().prefix("run-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        World { folder, runtime: tempfile::tempdir().unwrap(), mark, hold }
    }

    /// Where its elections are.
    pub(crate) fn url(&self) -> String {
        format!("file:{}", self.path("elections").display())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where its sockets are.
    pub(crate) fn runtime(&self) -> &std::path::Path {
        self.runtime.path()
    }

    /// What a file in it says; nothing if it is not there.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// `incumbent run job`, in files, with a script of a shell as its command, which works in the world's folder.
    pub(crate) fn run(&self, options: &[&str], script: &str) -> Command {
        let url = self.url();
        let on = if options.contains(&"--on") { vec![] } else { vec!["--on", url.as_str()] };
        let script = format!("{DAEMON}{script}");
        let mark = format!("{MARK}={}", self.mark);
        let command = ["--", "env", &mark, "sh", "-c", &script];
        self.incumbent(&[&["run", "job"], &on[..], options, &command].concat())
    }

    /// A line for a hook, whose processes bear the mark too.
    pub(crate) fn hook(&self, script: &str) -> String {
        format!("export {MARK}={};{DAEMON}{script}", self.mark)
    }

    /// `incumbent` with any arguments, in this world.
    pub(crate) fn incumbent(&self, arguments: &[&str]) -> Command {
        let mut command = shell::incumbent(arguments);
        if self.hold == Hold::Descent {
            let mut hidden = Command::new("unshare");
            if !rustix::process::geteuid().is_root() {
                hidden.arg("--map-root-user");
            }
            hidden.args(["--mount", "sh", "-c", WITHOUT_GROUPS, "sh"]).arg(command.get_program()).args(arguments);
            hidden.stdin(std::process::Stdio::null());
            command = hidden;
        }
        command.current_dir(self.folder.path()).env("HOME", self.folder.path()).env("XDG_RUNTIME_DIR", self.runtime.path());
        for name in ["ON", "CONFIG", "TTL", "IDENTITY", "LOG"] {
            command.env_remove(format!("INCUMBENT_{name}"));
        }
        command
    }

    /// Starts [`World::run`] and listens to what its command says.
    pub(crate) fn start(&self, options: &[&str], script: &str) -> Supervised {
        Supervised { contender: Contender::start(&self.run(options, script)).unwrap() }
    }

    /// The same in a control group, which stands for the whole host: all that it starts is in it too.
    pub(crate) fn start_in(&self, host: &Cgroup, options: &[&str], script: &str) -> Supervised {
        let run = self.run(options, script);
        let mut inside = Command::new("sh");
        inside
            .args(["-c", r#"echo 0 > "$0/cgroup.procs" && exec "$@""#])
            .arg(host.path())
            .arg(run.get_program())
            .args(run.get_args());
        inside.current_dir(self.folder.path()).env("HOME", self.folder.path()).env("XDG_RUNTIME_DIR", self.runtime.path());
        Supervised { contender: Contender::start(&inside).unwrap() }
    }

    /// Asks for something of the election, which must come to pass.
    pub(crate) fn ask(&self, arguments: &[&str]) {
        let url = self.url();
        shell::ends(self.incumbent(&[arguments, &["--on", &url]].concat()), 0);
    }

    /// The processes of its commands that live.
    pub(crate) fn living(&self) -> Vec<u32> {
        marked(&self.mark)
    }

    /// Demands that nothing of its commands lives now: not soon, now.
    #[track_caller]
    pub(crate) fn nothing_lives(&self) {
        let living = self.living();
        let names: Vec<String> =
            living.iter().map(|id| std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default()).collect();
        assert!(living.is_empty(), "{living:?} live: {names:?}");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Only a test that failed leaves any. Some fork faster than they can be listed, but all of a group die at once.
        let mut empty = 0;
        for _ in 0..LOOKS_MAX {
            let living = self.living();
            empty = if living.is_empty() { empty + 1 } else { 0 };
            if empty == LOOKS_EMPTY {
                return;
            }
            for id in living {
                let process = Pid::from_raw(id.cast_signed());
                if let Some(group) = getpgid(process).ok().filter(|it| Ok(*it) != getpgid(None)) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                signal(id, Signal::KILL);
            }
        }
    }
}

/// An `incumbent run` under way.
pub(crate) struct Supervised {
    contender: Contender,
}

impl Supervised {
    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.contender.process().id().expect("it runs")
    }

    /// The guardian of its command.
    pub(crate) fn guardian(&self) -> u32 {
        let guardians = guardians_of(self.id());
        assert_eq!(guardians.len(), 1, "one guardian");
        guardians[0]
    }

    /// Waits until the command says this, and returns what follows on that line.
    #[track_caller]
    pub(crate) fn hear(&self, beginning: &str) -> String {
        let line = self.contender.hear(beginning, |line| line.starts_with(beginning));
        line[beginning.len()..].trim().to_owned()
    }

    /// Whether the command has said this line.
    pub(crate) fn has_said(&self, line: &str) -> bool {
        self.contender.lines().iter().any(|it| it == line)
    }

    /// Everything the command has said.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.contender.lines()
    }

    /// Gives the command a line.
    pub(crate) fn say(&self, line: &str) {
        self.contender.say(line).unwrap();
    }

    /// Waits until the supervisor itself has said this.
    #[track_caller]
    pub(crate) fn reports(&self, text: &str) {
        eventually(text, || self.said().contains(text));
    }

    /// What the supervisor itself has said.
    pub(crate) fn said(&self) -> String {
        self.contender.process().log_tail(usize::MAX)
    }

    pub(crate) fn signal(&self, what: Signal) {
        signal(self.id(), what);
    }

    /// Waits for its end and demands this exit code.
    #[track_caller]
    pub(crate) fn ends(&self, code: i32) {
        let ended = self.contender.wait();
        assert_eq!(ended, Some(code), "{}", self.said());
    }

    /// Waits for its end and demands one of these exit codes. Says which it was.
    #[track_caller]
    pub(crate) fn ends_with(&self, codes: &[i32]) -> i32 {
        let ended = self.contender.wait().filter(|it| codes.contains(it));
        ended.unwrap_or_else(|| panic!("not with one of {codes:?}: {}", self.said()))
    }

    /// Waits until it is dead by a signal.
    #[track_caller]
    pub(crate) fn is_killed(&self) {
        assert_eq!(self.contender.wait(), None, "{}", self.said());
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // Its guardian cleans up. The testbed would stop all of them first, and a shell that is stopped while it starts a program cannot be.
        while let Some(id) = self.contender.process().id() {
            signal(id, Signal::KILL);
            std::thread::yield_now();
        }
    }
}

/// Waits for a number that a process leaves in a file.
#[track_caller]
pub(crate) fn number_in(world: &World, name: &str) -> u32 {
    let mut number = None;
    eventually(name, || {
        number = world.read(name).trim().parse().ok();
        number.is_some()
    });
    number.expect("it was waited for")
}

/// Waits until none of them lives.
#[track_caller]
pub(crate) fn all_die(what: &str, ids: &[u32]) {
    eventually(what, || !ids.iter().any(|id| lives(*id)));
}
