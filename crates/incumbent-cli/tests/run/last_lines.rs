//! What is left when nobody can kill in time: the fence in the kernel and the watchdog; and what an init system is told.

use std::io::Read as _;
use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use incumbent_supervisor::cgroup::Cgroup;
use incumbent_supervisor::clock;
use incumbent_testbed::{Redis, Server as _};
use rustix::process::Signal;

use crate::shell::processes::{kill_at_once, lives, signal};
use crate::shell::{ends, text};
use crate::world::{Hold, World, number_in};

/// Sends a datagram to port `$1` of this machine every millisecond, whether it gets through or not.
const SENDER: &str = r#"
exec perl -MIO::Socket::INET -e '
    my $socket = IO::Socket::INET->new(Proto => "udp", PeerAddr => "127.0.0.1", PeerPort => $ARGV[0]) or die;
    while (1) { $socket->send("beat"); select(undef, undef, undef, 0.001); }
' "#;

#[test]
fn a_host_that_was_stopped_as_a_whole_sends_nothing_after_its_deadline() {
    const TTL: Duration = Duration::from_secs(3);
    let world = World::new(Hold::Group);
    let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
    listener.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let beats = || listener.recv(&mut [0; 16]).is_ok();
    let script = format!("{SENDER}{}", listener.local_addr().unwrap().port());
    let run = world.start(&["--network-fence", "--after-loss", "exit", "--ttl", "3s"], &script);
    incumbent_testbed::eventually("the command is heard", beats);
    // The supervisor first: it must not see the others stand still.
    let all: Vec<u32> = [run.id(), run.guardian()].into_iter().chain(world.living()).collect();
    all.iter().for_each(|id| signal(*id, Signal::STOP));
    let stopped = clock::now();
    // No deadline is later than a ttl after the last renewal.
    while beats() || clock::now() - stopped < TTL {}
    all.iter().rev().for_each(|id| signal(*id, Signal::CONT));
    let resumed_in_vain = (0..20).filter(|_| beats()).count();
    assert_eq!(resumed_in_vain, 0, "datagrams after the deadline");
    run.ends(122);
    world.nothing_lives();
}

/// As a machine that is suspended: everything of the host stands still across the deadline, another leads, and then all of it goes on at once. Whoever is scheduled first, the
/// command or the guardian that kills it, what the command does by itself in that instant is not promised; that nothing of it leaves the host is.
#[test]
fn a_host_that_was_frozen_as_a_whole_sends_nothing_when_it_goes_on_while_another_leads() {
    let redis = Redis::debian().start().unwrap();
    let url = format!("redis://{}/frozen", redis.address());
    let (world, elsewhere) = (World::new(Hold::Group), World::new(Hold::Group));
    let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
    listener.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let beats = || listener.recv(&mut [0; 16]).is_ok();
    let (own, other) = (world.path("state"), elsewhere.path("state"));
    let on = ["--on", &url, "--ttl", "3s", "--after-loss", "exit", "--state-dir"];
    let script = format!("{SENDER}{}", listener.local_addr().unwrap().port());
    let host = Cgroup::make(&format!("incumbent-frozen-{}", std::process::id())).unwrap();
    let frozen = world.start_in(&host, &[&on[..], &[own.to_str().unwrap(), "--network-fence"]].concat(), &script);
    incumbent_testbed::eventually("the command is heard", beats);
    let next = elsewhere.start(&[&on[..], &[other.to_str().unwrap()]].concat(), "echo leads; sleep 1000");
    host.freeze().unwrap();
    next.hear("leads");
    // What was sent before.
    while beats() {}
    host.thaw().unwrap();
    let sent_in_vain = (0..20).filter(|_| beats()).count();
    assert_eq!(sent_in_vain, 0, "datagrams after the deadline");
    frozen.ends(122);
    world.nothing_lives();
    drop(frozen);
    host.kill_until_empty(None);
    host.remove();
}

/// The fence itself must outlast both: it is the kernel that keeps what they left behind from sending. When the group is gone, so may the fence be.
#[test]
fn what_a_fence_leaves_in_the_kernel_when_both_are_killed_is_cleared_away_by_the_next_who_start_without_one() {
    let world = World::new(Hold::Group);
    let run = world.start(&["--network-fence"], "daemon d; echo ready; sleep 1000");
    run.hear("ready");
    let group = PathBuf::from(world.read("elections/job.berth"));
    let pin = Path::new("/sys/fs/bpf/incumbent").join(format!("network-fence-{}", group.metadata().unwrap().ino()));
    let daemon = number_in(&world, "d");
    kill_at_once(&[run.id(), run.guardian()]);
    run.is_killed();
    assert!(lives(daemon) && group.exists() && pin.exists(), "the fence is in force for what lives");
    ends(world.run(&[], "true"), 0);
    assert!(!group.exists() && !lives(daemon));
    // The kernel lets go of a group in its own time.
    incumbent_testbed::eventually("nothing is left", || {
        ends(world.run(&[], "true"), 0);
        !pin.exists()
    });
}

#[test]
fn a_watchdog_is_petted_while_the_command_lives_and_disarmed_when_it_is_dead() {
    let world = World::new(Hold::Group);
    std::fs::write(world.path("watchdog"), "").unwrap();
    let device = world.path("watchdog");
    let options = ["--watchdog", device.to_str().unwrap(), "--watchdog-timeout", "5s"];
    // Petted as it is armed and at least once more: what the fake has by then is not only the last word.
    ends(world.run(&options, "until [ -s watchdog ]; do sleep 0.05; done"), 0);
    let said = std::fs::read(&device).unwrap();
    assert!(said.len() >= 2 && said.ends_with(b"V") && said[..said.len() - 1].iter().all(|it| *it == 0), "{said:?}");
    let refused = ends(world.run(&["--watchdog", device.to_str().unwrap(), "--watchdog-timeout", "60s"], "true"), 120);
    assert!(text(&refused.stderr).contains("does not fit this lease"), "{}", text(&refused.stderr));
    let unknown = ends(world.run(&["--watchdog", "/dev/watchdog-of-nobody"], "true"), 120);
    assert!(text(&unknown.stderr).contains("softdog"), "{}", text(&unknown.stderr));
}

#[test]
fn a_guardian_that_kills_in_time_is_not_overtaken_by_the_watchdog() {
    const TIMEOUT: Duration = Duration::from_secs(3);
    let world = World::new(Hold::Group);
    let device = world.path("watchdog");
    assert!(Command::new("mkfifo").arg(&device).status().unwrap().success());
    // Open for both, so that it is there before whoever arms it, and does not end with it.
    let mut fake = std::fs::OpenOptions::new().read(true).write(true).open(&device).unwrap();
    let options = ["--ttl", "6s", "--after-loss", "exit", "--watchdog", device.to_str().unwrap(), "--watchdog-timeout", "3s"];
    let run = world.start(&options, "trap '' TERM; echo ready; while :; do sleep 1; done");
    run.hear("ready");
    run.signal(Signal::STOP);
    let mut petted = clock::now();
    loop {
        let mut byte = [0];
        fake.read_exact(&mut byte).unwrap();
        let since = clock::now() - petted;
        assert!(since < TIMEOUT, "by now the machine has been reset");
        petted = clock::now();
        if byte == *b"V" {
            break;
        }
    }
    run.signal(Signal::CONT);
    run.ends(122);
    world.nothing_lives();
}

#[test]
fn systemd_is_told_and_the_command_is_not_taken_for_the_service() {
    let world = World::new(Hold::Group);
    let socket = UnixDatagram::bind(world.path("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut command = world.run(&[], r#"[ -z "$NOTIFY_SOCKET$WATCHDOG_USEC" ]"#);
    command.env("NOTIFY_SOCKET", world.path("notify")).env("WATCHDOG_USEC", "2000000");
    ends(command, 0);
    let mut told = Vec::new();
    while told.last().is_none_or(|it| it != "STOPPING=1") {
        let mut bytes = [0; 256];
        let count = socket.recv(&mut bytes).expect("it says that it stops");
        told.push(text(&bytes[..count]).to_owned());
    }
    for expected in ["READY=1", "WATCHDOG=1", "STATUS=standing by", "STATUS=leads with token 1"] {
        assert!(told.iter().any(|it| it == expected), "{told:?}");
    }
}
