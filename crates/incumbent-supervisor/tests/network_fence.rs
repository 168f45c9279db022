//! The network fence on the real kernel: real packets over loopback from real processes in a real cgroup. Needs root and a cgroup v2;
//! where the fence cannot be attached these tests fail, for that is what a user would see.
//!
//! The processes are this program again, in the part that an environment variable names. They take orders over a Unix socket, which no fence
//! covers, and say when they did what, by the clock that the fence goes by.

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use incumbent_protocol::time::Instant;
use incumbent_supervisor::clock::now;
use incumbent_supervisor::network_fence::{Error, NetworkFence};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Long enough to do something before it ends, on a machine with much else to do.
const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(3600);

/// So long a packet that passes would never take on loopback, TCP's first tries again included.
const SILENCE: Duration = Duration::from_millis(900);

#[test]
fn datagrams_pass_until_the_deadline_and_again_when_it_is_extended() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let cgroup = Cgroup::new();
        let fence = NetworkFence::attach(&cgroup.0).unwrap();
        let listener = UdpSocket::bind(address).unwrap();
        let mut sender = Actor::start("udp", &cgroup.0, &listener.local_addr().unwrap().to_string());

        assert_eq!(sender.ask("send"), "refused", "a fence starts closed");
        fence.extend(now() + LONG).unwrap();
        assert_eq!(sender.ask("send"), "passed");
        receive(&listener);

        let deadline = now() + SHORT;
        fence.extend(deadline).unwrap();
        sender.flood_across(deadline);
        drain(&listener);
        for _ in 0..100 {
            assert_eq!(sender.ask("send"), "refused");
        }
        assert_silent(&listener);

        fence.extend(now() + LONG).unwrap();
        assert_eq!(sender.ask("send"), "passed");
        receive(&listener);
        fence.close().unwrap();
        assert_eq!(sender.ask("send"), "refused");
        assert_silent(&listener);
        fence.detach().unwrap();
        assert_eq!(sender.ask("send"), "passed");
        receive(&listener);
    }
}

/// C80: stopped in the middle of sending, continued after the deadline, and nobody there to kill it.
#[test]
fn a_process_that_is_stopped_across_the_deadline_sends_nothing_stale() {
    let cgroup = Cgroup::new();
    let fence = NetworkFence::attach(&cgroup.0).unwrap();
    let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut sender = Actor::start("udp", &cgroup.0, &listener.local_addr().unwrap().to_string());

    let deadline = now() + SHORT;
    fence.extend(deadline).unwrap();
    sender.tell(&Flood::order(deadline));
    receive(&listener);
    sender.stop();
    assert!(now() < deadline, "stopped too late to prove anything");
    drain_until(&listener, deadline);

    sender.go_on();
    let flood = Flood::read(&sender.answer());
    assert!(flood.last_passed < deadline, "{flood:?} after {deadline:?}");
    assert_eq!(flood.refused, FLOOD_ENDS_AFTER);
    assert_silent(&listener);
}

#[test]
fn a_fence_outlives_whoever_attached_it_and_its_name_is_cleared_away_with_the_cgroup() {
    let cgroup = Cgroup::new();
    let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut attacher = Actor::start("attacher", &cgroup.0, "");
    let mut sender = Actor::start("udp", &cgroup.0, &listener.local_addr().unwrap().to_string());
    assert_eq!(sender.ask("send"), "refused");

    let deadline = now() + SHORT;
    assert_eq!(attacher.ask(&format!("extend {}", deadline.as_nanos())), "extended");
    attacher.kill();
    assert!(now() < deadline, "killed too late to prove anything");
    sender.flood_across(deadline);
    drain(&listener);
    assert_silent(&listener);

    let name = cgroup.name_of_the_fence();
    assert!(name.exists());
    let refused = NetworkFence::attach(&cgroup.0).unwrap_err();
    assert!(matches!(refused, Error::AlreadyFenced { .. }), "{refused}");
    drop(sender);
    drop(cgroup);
    let standing = Cgroup::new();
    let _standing_fence = NetworkFence::attach(&standing.0).unwrap();
    // The kernel lets go of a cgroup some time after it was removed.
    let patience = now() + Duration::from_secs(20);
    while name.exists() {
        assert!(now() < patience, "{} is still there", name.display());
        let other = Cgroup::new();
        NetworkFence::attach(&other.0).unwrap().detach().unwrap();
        assert!(!other.name_of_the_fence().exists());
    }
    assert!(standing.name_of_the_fence().exists(), "the name of a cgroup that is there was cleared away");
}

#[test]
fn a_connection_from_before_the_deadline_sends_nothing_after_it_and_goes_on_when_it_is_extended() {
    let cgroup = Cgroup::new();
    let fence = NetworkFence::attach(&cgroup.0).unwrap();
    fence.extend(now() + LONG).unwrap();
    let (mut sender, mut connection) = connect(&cgroup);
    assert_eq!(sender.ask("send"), "passed");
    assert_eq!(read(&mut connection), Some(1));

    fence.extend(now()).unwrap();
    assert_eq!(sender.ask("send"), "passed", "into its own buffer");
    assert_eq!(read(&mut connection), None);

    fence.extend(now() + LONG).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(read(&mut connection), Some(1), "TCP tries again");
}

#[test]
fn bytes_that_a_killed_process_left_behind_do_not_leave_after_the_deadline_nor_after_the_cgroup() {
    let cgroup = Cgroup::new();
    let fence = NetworkFence::attach(&cgroup.0).unwrap();
    fence.extend(now() + LONG).unwrap();
    let (mut sender, mut connection) = connect(&cgroup);
    fence.close().unwrap();
    assert_eq!(sender.ask("send"), "passed", "into its own buffer");
    sender.kill();
    assert_eq!(read(&mut connection), None);
    drop(fence);
    assert_eq!(read(&mut connection), None);
    drop(cgroup);
    assert_eq!(read(&mut connection), None);
}

#[test]
fn a_cgroup_below_is_fenced_too() {
    let cgroup = Cgroup::new();
    let below = Cgroup::at(cgroup.0.join("below"));
    let fence = NetworkFence::attach(&cgroup.0).unwrap();
    let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut sender = Actor::start("udp", &below.0, &listener.local_addr().unwrap().to_string());
    assert_eq!(sender.ask("send"), "refused");
    fence.extend(now() + LONG).unwrap();
    assert_eq!(sender.ask("send"), "passed");
}

/// Not what one would wish for, but how the kernel has it: the documentation says so, and this is where it would stop being true.
#[test]
fn a_socket_from_outside_of_the_cgroup_is_not_fenced() {
    let cgroup = Cgroup::new();
    let _fence = NetworkFence::attach(&cgroup.0).unwrap();
    let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
    let inherited = UdpSocket::bind("127.0.0.1:0").unwrap();
    inherited.connect(listener.local_addr().unwrap()).unwrap();
    let mut this_program = Command::new(std::env::current_exe().unwrap());
    let mut sender = Actor::start_by(this_program.stdin(OwnedFd::from(inherited)), "inherited", &cgroup.0, "");
    assert_eq!(sender.ask("send"), "passed");
    receive(&listener);
}

#[test]
fn what_is_missing_is_said_in_one_line() {
    NetworkFence::probe().unwrap();
    let no_cgroup = NetworkFence::attach(Path::new("/proc")).unwrap_err().to_string();
    assert!(no_cgroup.contains("/proc is no cgroup v2"), "{no_cgroup}");
    let absent = NetworkFence::attach(Path::new("/absent")).unwrap_err().to_string();
    assert!(absent.contains("could not open /absent"), "{absent}");

    const NOBODY: u32 = 65534;
    let this_program = std::env::current_exe().unwrap();
    let cgroup = Cgroup::new();
    let mut unprivileged = Actor::start_by(Command::new(&this_program).uid(NOBODY), "prober", &cgroup.0, "");
    let refusal = unprivileged.ask("probe");
    assert!(refusal.contains("not permitted to ") && refusal.contains("CAP_BPF and CAP_NET_ADMIN"), "{refusal}");

    // Ahead of the kernel's clock by one second: each packet of that second would be stale.
    let mut shifted = Command::new("unshare");
    shifted.args(["--time", "--boottime", "1", "--fork", "--kill-child"]).arg(&this_program);
    let refusal = Actor::start_by(&mut shifted, "prober", &cgroup.0, "").ask("probe");
    assert!(refusal.contains("run outside of the time namespace"), "{refusal}");
}

/// A cgroup of our own at the root of the hierarchy, removed at the end.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new() -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let root = mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (place, kind) = (words.next()?, words.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(place))
        });
        Self::at(root.expect("a cgroup v2 is mounted").join(unique_name()))
    }

    fn at(path: PathBuf) -> Self {
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn name_of_the_fence(&self) -> PathBuf {
        use std::os::unix::fs::MetadataExt;
        PathBuf::from(format!("/sys/fs/bpf/incumbent/network-fence-{}", fs::metadata(&self.0).unwrap().ino()))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Actors are waited for before, so it is empty unless the test has failed already.
        let removed = fs::remove_dir(&self.0);
        if !std::thread::panicking() {
            removed.unwrap();
        }
    }
}

fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("incumbent-network-fence-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A process that does what it is told.
struct Actor {
    process: Child,
    orders: BufReader<UnixStream>,
}

impl Actor {
    fn start(part: &str, cgroup: &Path, target: &str) -> Self {
        Self::start_by(Command::new(std::env::current_exe().unwrap()).stdin(Stdio::null()), part, cgroup, target)
    }

    fn start_by(command: &mut Command, part: &str, cgroup: &Path, target: &str) -> Self {
        let name = unique_name();
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        command.args(["--exact", "an_actor_plays_its_part", "--nocapture"]).stdout(Stdio::null());
        command.env(PART, part).env(ORDERS, &name).env(CGROUP, cgroup).env(TARGET, target);
        let process = command.spawn().unwrap();
        let (orders, _) = listener.accept().unwrap();
        orders.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut actor = Self { process, orders: BufReader::new(orders) };
        assert_eq!(actor.answer(), "ready");
        actor
    }

    fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.answer()
    }

    fn tell(&mut self, order: &str) {
        writeln!(self.orders.get_mut(), "{order}").unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.orders.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the actor is gone");
        line.trim_end().to_owned()
    }

    /// Sends as fast as it can until long after `deadline`, and has each verdict compared with the clock.
    fn flood_across(&mut self, deadline: Instant) {
        let flood = Flood::read(&self.ask(&Flood::order(deadline)));
        assert!(flood.passed > 0 && flood.refused == FLOOD_ENDS_AFTER, "{flood:?}");
        // Passed: it was asked for before the deadline. Refused: it was answered after.
        assert!(flood.last_passed < deadline, "{flood:?} across {deadline:?}");
        assert!(flood.first_refused >= deadline, "{flood:?} across {deadline:?}");
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    fn stop(&mut self) {
        kill_process(self.pid(), Signal::STOP).unwrap();
        let (_, status) = waitpid(Some(self.pid()), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped());
    }

    fn go_on(&mut self) {
        kill_process(self.pid(), Signal::CONT).unwrap();
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        // Killed already in some tests.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A flood ends after so many refusals in a row, or when it has been let through for far too long.
const FLOOD_ENDS_AFTER: u64 = 1000;
const FAR_TOO_LONG: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Flood {
    passed: u64,
    refused: u64,
    /// When the last that passed was begun.
    last_passed: Instant,
    /// When the first that was refused was over.
    first_refused: Instant,
}

impl Flood {
    fn read(line: &str) -> Self {
        let numbers: Vec<u64> = line.split(' ').map(|it| it.parse().unwrap()).collect();
        let [passed, refused, last_passed, first_refused] = numbers[..] else { panic!("{line}") };
        Self { passed, refused, last_passed: Instant::from_nanos(last_passed), first_refused: Instant::from_nanos(first_refused) }
    }

    fn order(deadline: Instant) -> String {
        format!("flood {}", (deadline + FAR_TOO_LONG).as_nanos())
    }

    fn run(order: &str, mut send: impl FnMut() -> &'static str) -> String {
        let end: u64 = order.strip_prefix("flood ").unwrap().parse().unwrap();
        let (mut passed, mut refused, mut last_passed, mut first_refused) = (0_u64, 0_u64, 0, 0);
        while refused < FLOOD_ENDS_AFTER && last_passed < end {
            let begun = now().as_nanos();
            if send() == "passed" {
                (passed, refused, last_passed, first_refused) = (passed + 1, 0, begun, 0);
            } else {
                refused += 1;
                first_refused = if first_refused == 0 { now().as_nanos() } else { first_refused };
            }
        }
        format!("{passed} {refused} {last_passed} {first_refused}")
    }
}

fn connect(cgroup: &Cgroup) -> (Actor, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = Actor::start("tcp", &cgroup.0, &listener.local_addr().unwrap().to_string());
    let (connection, _) = listener.accept().unwrap();
    connection.set_read_timeout(Some(SILENCE)).unwrap();
    (sender, connection)
}

/// How many bytes came; none in time is `None`, the end is `Some(0)`.
fn read(connection: &mut TcpStream) -> Option<usize> {
    match connection.read(&mut [0; 16]) {
        Ok(length) => Some(length),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

fn receive(listener: &UdpSocket) {
    listener.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    listener.recv(&mut [0; 16]).unwrap();
}

/// Takes what is there. On loopback a datagram that passes is there before the sender's call is over.
fn drain(listener: &UdpSocket) {
    listener.set_nonblocking(true).unwrap();
    while listener.recv(&mut [0; 16]).is_ok() {}
    listener.set_nonblocking(false).unwrap();
}

fn drain_until(listener: &UdpSocket, end: Instant) {
    listener.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    while now() < end {
        // Nothing in time is what comes at the end.
        let _ = listener.recv(&mut [0; 16]);
    }
    drain(listener);
}

fn assert_silent(listener: &UdpSocket) {
    listener.set_nonblocking(true).unwrap();
    let received = listener.recv(&mut [0; 16]);
    listener.set_nonblocking(false).unwrap();
    assert_eq!(received.unwrap_err().kind(), ErrorKind::WouldBlock, "a datagram came");
}

const PART: &str = "INCUMBENT_TEST_PART";
const ORDERS: &str = "INCUMBENT_TEST_ORDERS";
const CGROUP: &str = "INCUMBENT_TEST_CGROUP";
const TARGET: &str = "INCUMBENT_TEST_TARGET";

/// Not a test but what the other processes run; nothing when the tests are run.
#[test]
fn an_actor_plays_its_part() {
    let Ok(part) = std::env::var(PART) else { return };
    let variable = |name| std::env::var(name).unwrap();
    let address = SocketAddr::from_abstract_name(variable(ORDERS)).unwrap();
    let mut orders = BufReader::new(UnixStream::connect_addr(&address).unwrap());
    let cgroup = PathBuf::from(variable(CGROUP));
    let join = || fs::write(cgroup.join("cgroup.procs"), "0").unwrap();
    let verdict = |sent: io::Result<usize>| match sent {
        Ok(_) => "passed",
        Err(error) if error.kind() == ErrorKind::PermissionDenied => "refused",
        Err(error) => panic!("{error}"),
    };
    let mut obey: Box<dyn FnMut(&str) -> String> = match part.as_str() {
        "udp" | "inherited" => {
            join();
            let socket = if part == "udp" {
                let target = variable(TARGET);
                let socket = UdpSocket::bind(if target.starts_with('[') { "[::1]:0" } else { "127.0.0.1:0" }).unwrap();
                socket.connect(target).unwrap();
                socket
            } else {
                UdpSocket::from(io::stdin().as_fd().try_clone_to_owned().unwrap())
            };
            Box::new(move |order| match order {
                "send" => verdict(socket.send(b"x")).to_owned(),
                flood => Flood::run(flood, || verdict(socket.send(b"x"))),
            })
        }
        "tcp" => {
            join();
            let mut connection = TcpStream::connect(variable(TARGET)).unwrap();
            Box::new(move |_| verdict(connection.write(b"x")).to_owned())
        }
        "attacher" => {
            let fence = NetworkFence::attach(&cgroup).unwrap();
            Box::new(move |order| {
                let until = order.strip_prefix("extend ").unwrap().parse().unwrap();
                fence.extend(Instant::from_nanos(until)).unwrap();
                "extended".to_owned()
            })
        }
        "prober" => Box::new(|_| NetworkFence::probe().unwrap_err().to_string()),
        other => panic!("{other}"),
    };
    writeln!(orders.get_mut(), "ready").unwrap();
    let mut order = String::new();
    while orders.read_line(&mut order).unwrap() > 0 {
        let answer = obey(order.trim_end());
        writeln!(orders.get_mut(), "{answer}").unwrap();
        order.clear();
    }
}
