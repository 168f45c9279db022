//! A host's own network: a namespace with one cable, at the other end of which its way to the engine begins.
//!
//! ```text
//!   the host's namespace                 the street's                  the test's
//!   supervisor ── eth0 10.0.0.2 ─cable─ eth1 10.0.0.1: a listener ── threads ── the relay, the engine
//! ```
//!
//! Both ends are in namespaces that nobody else sees, so every host has the same addresses, and all is gone with the test. Needs the right to make namespaces.

use std::fs::File;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use incumbent_testbed::Contender;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The engine, as a host sees it.
const STREET: &str = "10.0.0.1";

/// A namespace for a host, and one for the other end of its cable.
pub(crate) struct Network {
    host: Contender,
    street: Contender,
    port: u16,
}

impl Network {
    /// One whose cable leads to `target`, an address in the test's own namespace.
    pub(crate) fn to(target: String) -> Network {
        let (host, street) = (namespace(), namespace());
        let ends = format!(
            "ip link set lo up && ip link add eth0 type veth peer name eth1 netns {} && ip address add 10.0.0.2/24 dev eth0 && ip link set eth0 up",
            id(&street)
        );
        within(&host, &ends);
        within(&street, &format!("ip link set lo up && ip address add {STREET}/24 dev eth1 && ip link set eth1 up"));
        let listener = listen_in(&street);
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || forward(&listener, &target));
        Network { host, street, port }
    }

    /// Where a host finds the engine.
    pub(crate) fn address(&self) -> String {
        format!("{STREET}:{}", self.port)
    }

    /// The same command, on the host.
    pub(crate) fn enter(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside
            .arg(format!("--net=/proc/{}/ns/net", id(&self.host)))
            .arg("--")
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }

    /// The host's own end goes down: it is told that there is no way.
    pub(crate) fn take_down(&self) {
        within(&self.host, "ip link set eth0 down");
    }

    /// The far end goes down: what is sent is lost, and nobody is told.
    pub(crate) fn unplug(&self) {
        within(&self.street, "ip link set eth1 down");
    }

    /// All is as it was.
    pub(crate) fn mend(&self) {
        within(&self.street, "ip link set eth1 up");
        within(&self.host, "ip link set eth0 up");
    }
}

/// A process that does nothing but keep a network namespace.
fn namespace() -> Contender {
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", "echo there && exec cat"]);
    let keeper = Contender::start(&command).unwrap();
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| keeper.hear("it is there", |line| line == "there")));
    assert!(
        made.is_ok(),
        "no network namespace can be made ({}): run the tests as root, or in a user namespace where you are, as in\n  \
         unshare --map-root-user --net --mount sh -c 'ip link set lo up && cargo test -p incumbent-cli --test run_rounds etcd'",
        keeper.process().log_tail(5)
    );
    keeper
}

fn id(keeper: &Contender) -> u32 {
    keeper.process().id().expect("it ends with the test")
}

fn within(keeper: &Contender, line: &str) {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/proc/{}/ns/net", id(keeper))).args(["--", "sh", "-c", line]);
    let output = command.output().expect("util-linux is there");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A socket stays in the namespace in which it was made; so the thread that makes it goes there and ends.
fn listen_in(keeper: &Contender) -> TcpListener {
    let namespace = File::open(format!("/proc/{}/ns/net", id(keeper))).unwrap();
    let there = std::thread::spawn(move || {
        use std::os::fd::AsFd as _;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        TcpListener::bind((STREET, 0)).unwrap()
    });
    there.join().unwrap()
}

fn forward(listener: &TcpListener, target: &str) {
    for near in listener.incoming() {
        let ways = near.and_then(|near| {
            let far = TcpStream::connect(target)?;
            far.set_nodelay(true)?;
            near.set_nodelay(true)?;
            Ok([(near.try_clone()?, far.try_clone()?), (far, near)])
        });
        // An engine that is not there hangs up.
        for (mut from, mut to) in ways.into_iter().flatten() {
            std::thread::spawn(move || {
                let _ = io::copy(&mut from, &mut to);
                // Whichever way ends first ends both.
                let _ = from.shutdown(std::net::Shutdown::Both);
                let _ = to.shutdown(std::net::Shutdown::Both);
            });
        }
    }
}
