//! The unit of the examples under a real systemd: it is ready when it contends, has a control group of its own without being root, drains when it is stopped, and is replaced when it hangs.
//!
//! That systemd is the first process of namespaces of its own. It knows no other units than those here, and whatever it writes is gone with it. It takes root, and a kernel with overlays.

mod shell;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use incumbent_supervisor::cgroup::Cgroup;
use incumbent_testbed::{Contender, Etcd, Server as _, eventually};
use rustix::process::Signal;

use crate::shell::processes::{children_of, guardians_of, lives, signal};
use crate::shell::text;

/// What the first process of the host does before it becomes systemd: `$1` is its control group, `$2` the folder with what is installed on the host.
const BOOT: &str = r#"
set -e
if [ "$3" != inside ]; then
    echo $$ > "$1/cgroup.procs"
    exec unshare --kill-child=KILL --fork --pid --mount-proc --mount --uts --ipc --cgroup sh -c "$BOOT" host "$1" "$2" inside
fi
mount --make-rprivate /
# The kernel's settings are everybody's.
mount --bind -o ro /proc/sys /proc/sys
umount -R /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
for folder in /run /var/lib /usr/local/bin; do mount -t tmpfs -o mode=755 none "$folder"; done
mkdir /run/etc /run/etc/upper /run/etc/work /run/generators
mount -t overlay -o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work none /etc
install -m 755 "$2"/bin/* /usr/local/bin/
cp -r "$2/units" /run/units
exec env -i container=test SYSTEMD_UNIT_PATH=/run/units SYSTEMD_GENERATOR_PATH=/run/generators PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=basic.target --show-status=no --log-target=null"#;

/// What a unit takes for granted. They do nothing.
const TARGETS: [&str; 4] = ["sysinit.target", "basic.target", "shutdown.target", "network-online.target"];

/// Notes when it began, in which control group, and that it had the time to end in order.
const WORKER: &str = r#"#!/bin/sh
cd /var/lib/incumbent
trap 'echo "$INCUMBENT_TOKEN drained" >> diary; exit 0' TERM
echo "$INCUMBENT_TOKEN began $(sed -n s/^0:://p /proc/self/cgroup) $(id -un) ${NOTIFY_SOCKET:-alone}" >> diary
while :; do sleep 1000 & wait; done
"#;

/// A machine whose first process is systemd. It ends with the test.
struct Host {
    boots: Contender,
    group: Cgroup,
    _folder: tempfile::TempDir,
}

impl Host {
    fn boot(unit: &str) -> Host {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("units/worker.service", unit);
        for target in TARGETS {
            write(&format!("units/{target}"), "[Unit]\nDefaultDependencies=no\n");
        }
        write("bin/mail-worker", WORKER);
        fs::copy(env!("CARGO_BIN_EXE_incumbent"), folder.path().join("bin/incumbent")).unwrap();
        let group = Cgroup::make(&format!("systemd-{}", std::process::id())).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", BOOT, "host"]).arg(group.path()).arg(folder.path()).env("BOOT", BOOT);
        let host = Host { boots: Contender::start(&command).unwrap(), group, _folder: folder };
        eventually("systemd runs", || host.init().is_some() && host.systemctl(&["is-system-running"]).0 == "running");
        host
    }

    /// systemd, as it is numbered here.
    fn init(&self) -> Option<u32> {
        let init = *children_of(self.boots.process().id()?).first()?;
        fs::read_to_string(format!("/proc/{init}/comm")).is_ok_and(|it| it == "systemd\n").then_some(init)
    }

    /// What it says, and whether all is well.
    fn systemctl(&self, arguments: &[&str]) -> (String, bool) {
        let target = self.init().expect("it runs").to_string();
        let mut command = Command::new("nsenter");
        command.args(["--target", &target, "--mount", "--pid", "systemctl"]).args(arguments);
        let output = command.output().unwrap();
        (text(&output.stdout).trim().to_owned(), output.status.success())
    }

    fn property(&self, name: &str) -> String {
        self.systemctl(&["show", "worker.service", "--value", "--property", name]).0
    }

    /// A file of the host, as it is found from here.
    fn path(&self, path: &str) -> PathBuf {
        Path::new(&format!("/proc/{}/root", self.init().expect("it runs"))).join(path)
    }

    /// What the workers have noted.
    fn diary(&self) -> Vec<Vec<String>> {
        let text = fs::read_to_string(self.path("var/lib/incumbent/diary")).unwrap_or_default();
        text.lines().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
    }

    /// The supervisor, as it is numbered here.
    fn supervisor(&self) -> Option<u32> {
        let init = self.init()?;
        let is_ours = |id: &u32| fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|it| it == "incumbent\n");
        children_of(init).into_iter().find(is_ours)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.boots.kill();
        self.group.kill_until_empty(None);
        self.group.remove();
    }
}

/// The example, but for the address of etcd and times that a test waits for.
fn unit(on: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/run/systemd/worker.service");
    let mut unit = fs::read_to_string(path).unwrap();
    for (of_example, of_test) in [
        ("--on etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/prod", format!("--on {on} --ttl 5s")),
        ("WatchdogSec=10s", "WatchdogSec=3s".to_owned()),
    ] {
        assert!(unit.contains(of_example), "the example has changed: {unit}");
        unit = unit.replace(of_example, &of_test);
    }
    unit
}

#[test]
fn the_unit_of_the_examples_does_what_it_says_under_a_real_systemd() {
    let etcd = Etcd::debian().start().unwrap();
    let on = format!("etcd://{}/prod", etcd.address());
    let host = Host::boot(&unit(&on));
    let (said, started) = host.systemctl(&["start", "worker.service"]);
    assert!(started, "{said} {}", host.systemctl(&["status", "worker.service"]).0);
    eventually("the worker works", || host.diary().len() == 1);

    // In a group of its own beneath that of the unit, and not as root.
    let began = &host.diary()[0];
    assert!(began[2].starts_with("/system.slice/worker.service/incumbent-"), "{began:?}");
    assert_eq!((began[1].as_str(), began[3].as_str(), began[4].as_str()), ("began", "mail", "alone"));
    eventually("its status says so", || host.property("StatusText").contains("leads"));

    // Hung, it is killed by systemd and begun anew; its guardian sees to the worker.
    let hung = host.supervisor().expect("it runs");
    let guardians = guardians_of(hung);
    signal(hung, Signal::STOP);
    eventually("another one works", || host.diary().iter().filter(|it| it[1] == "began").count() == 2);
    assert!(!lives(hung) && !guardians.into_iter().any(lives));
    assert_eq!(host.property("NRestarts"), "1");
    let tokens: Vec<u64> = host.diary().iter().filter(|it| it[1] == "began").map(|it| it[0].parse().unwrap()).collect();
    assert!(tokens[0] < tokens[1], "{tokens:?}");

    // Told to stop, the worker drains, the seat is given back, and nothing has failed.
    let (said, stopped) = host.systemctl(&["stop", "worker.service"]);
    assert!(stopped, "{said}");
    assert_eq!(host.diary().last().unwrap()[..], [tokens[1].to_string(), "drained".to_owned()]);
    assert_eq!((host.property("ActiveState").as_str(), host.property("Result").as_str()), ("inactive", "success"));
    let history = shell::ends(shell::incumbent(&["history", "mail-worker", "--on", &on, "--json"]), 0);
    let history: serde_json::Value = serde_json::from_slice(&history.stdout).unwrap();
    let past = &history["past"][0];
    assert_eq!((&past["token"], &past["reason"]), (&tokens[1].to_string().into(), &"resigned".into()), "{history:#}");
}
