//! The examples that lead others to the leader, as they are documented: a virtual address, in network namespaces of their own, the label of a pod, and HAProxy.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use incumbent_testbed::{Contender, Redis, Server as _, eventually};

const ADDRESS: &str = "192.0.2.10/32";

fn example(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/run").join(name);
    path.canonicalize().unwrap().to_str().unwrap().to_owned()
}

/// A host: a network namespace that ends with its last process, with one device.
fn host(folder: &tempfile::TempDir) -> Contender {
    let incumbent = env!("CARGO_BIN_EXE_incumbent");
    let (on, vip) = (folder.path().display(), example("vip.sh"));
    let line = format!(
        "ip link add eth0 type veth peer name eth1 && ip link set eth0 up && ip link set eth1 up && \
         exec {incumbent} run vip --on file:{on} --ttl 6s -- {vip} {ADDRESS} eth0"
    );
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", &line]);
    Contender::start(&command).unwrap()
}

fn has_address(host: &Contender) -> bool {
    let target = host.process().id().unwrap().to_string();
    let mut command = Command::new("nsenter");
    command.args(["--net", "--target", &target, "ip", "-oneline", "address", "show", "to", ADDRESS]);
    let output = command.output().unwrap();
    String::from_utf8(output.stdout).unwrap().contains("192.0.2.10")
}

#[test]
fn a_virtual_address_is_on_one_host_and_on_the_other_when_that_ends() {
    let folder = tempfile::tempdir().unwrap();
    let first = host(&folder);
    eventually("the first has the address", || has_address(&first));
    let second = host(&folder);
    assert!(has_address(&first) && !has_address(&second));
    // Something in the namespace that outlives the host, to look whether the address does.
    let target = first.process().id().unwrap().to_string();
    let mut stay = Command::new("nsenter");
    stay.args(["--net", "--target", &target, "cat"]);
    let namespace = Contender::start(&stay).unwrap();
    eventually("it is in there", || has_address(&namespace));
    first.stop().unwrap();
    assert!(!has_address(&namespace), "it was taken away before the seat was given back");
    eventually("the second has it", || has_address(&second));
}

#[test]
fn the_kernel_takes_a_virtual_address_away_when_everything_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let host = host(&folder);
    eventually("it has the address", || has_address(&host));
    let mut stay = Command::new("nsenter");
    stay.args(["--net", "--target", &host.process().id().unwrap().to_string(), "cat"]);
    let namespace = Contender::start(&stay).unwrap();
    eventually("it is in there", || has_address(&namespace));
    host.kill();
    eventually("the address is gone", || !has_address(&namespace));
}

/// Against a server that only notes what it is sent: no cluster was at hand.
#[test]
fn the_label_of_a_pod_is_patched_as_the_api_wants_it() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let account = tempfile::tempdir().unwrap();
    std::fs::write(account.path().join("token"), "secret").unwrap();
    std::fs::write(account.path().join("ca.crt"), "").unwrap();
    let mut script = Command::new(example("pod-label.sh"));
    script.arg("leader").env("SERVICE_ACCOUNT", account.path()).env("POD_NAME", "web-0").env("POD_NAMESPACE", "prod");
    script.env("KUBERNETES_API", format!("http://{}", server.local_addr().unwrap()));
    let mut running = script.spawn().unwrap();
    let (stream, _) = server.accept().unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    let mut body = [0; 41];
    reader.read_exact(&mut body).unwrap();
    (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    assert!(running.wait().unwrap().success());
    assert!(head.starts_with("PATCH /api/v1/namespaces/prod/pods/web-0 HTTP/1.1\r\n"), "{head}");
    for part in ["Authorization: Bearer secret\r\n", "Content-Type: application/merge-patch+json\r\n", "Content-Length: 41\r\n"] {
        assert!(head.contains(part), "{part}: {head}");
    }
    assert_eq!(std::str::from_utf8(&body).unwrap(), r#"{"metadata":{"labels":{"role":"leader"}}}"#);
}

/// A service that answers whoever connects with its name.
fn service(name: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A health check hangs up at once.
            let _ = stream.and_then(|mut it| it.write_all(name.as_bytes()));
        }
    });
    port
}

fn sidecar(on: &str) -> (Contender, u16) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent"));
    command.args(["sidecar", "web", "--on", on, "--listen", "127.0.0.1:0", "--no-drain", "--ttl", "3s"]);
    let sidecar = Contender::start(&command).unwrap();
    let line = sidecar.hear("where it listens", |line| line.starts_with("listening on "));
    let port = line.split(' ').nth(2).and_then(|it| it.rsplit(':').next()).unwrap().parse().unwrap();
    (sidecar, port)
}

/// What stands behind the load balancer, and a port for it that was free a moment ago.
fn balancer(folder: &tempfile::TempDir, servers: &[(u16, u16)]) -> (Contender, u16) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut lines = std::fs::read_to_string(example("haproxy.cfg")).unwrap();
    let end = lines.find("    server ").expect("the example names its servers");
    lines.truncate(end);
    lines = lines.replace("bind :5432", &format!("bind 127.0.0.1:{port}"));
    for (number, (service, check)) in servers.iter().enumerate() {
        lines += &format!("    server web-{number} 127.0.0.1:{service} check port {check}\n");
    }
    let path = folder.path().join("haproxy.cfg");
    std::fs::write(&path, lines).unwrap();
    let mut command = Command::new("/usr/sbin/haproxy");
    command.arg("-db").arg("-f").arg(&path);
    (Contender::start(&command).unwrap(), port)
}

/// Whose service answers behind the load balancer; nobody's if it knows of no leader.
fn behind(port: u16) -> Option<String> {
    let mut answer = String::new();
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    // A connection that nobody can be found for is closed or reset.
    stream.read_to_string(&mut answer).ok()?;
    Some(answer).filter(|it| !it.is_empty())
}

#[test]
fn haproxy_sends_everybody_to_the_leader_and_to_the_next_when_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let redis = Redis::debian().start().unwrap();
    let on = format!("redis://{}/", redis.address());
    let (first, first_check) = sidecar(&on);
    let ports = [(service("first"), first_check)];
    let (alone, alone_port) = balancer(&folder, &ports);
    eventually("it finds the leader", || behind(alone_port).as_deref() == Some("first"));
    alone.kill();

    let (second, second_check) = sidecar(&on);
    let (_balancer, port) = balancer(&folder, &[ports[0], (service("second"), second_check)]);
    // Until it has asked for the first time, it takes every server for well.
    eventually("it has asked both", || (0..20).all(|_| behind(port).as_deref() == Some("first")));
    for _ in 0..200 {
        assert_eq!(behind(port).as_deref(), Some("first"), "nobody is sent to the standby");
    }
    first.kill();
    eventually("it finds the next leader", || behind(port).as_deref() == Some("second"));
    second.kill();
    eventually("nobody leads, so nobody is asked", || behind(port).is_none());
}
