//! The socket on which the command may ask its supervisor: every question, and what it answers to those that are none.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use incumbent_testbed::{Nats, Server as _, eventually};
use serde_json::Value;

use crate::shell::{ends, text};
use crate::world::{Hold, Supervised, World};

/// The code and the body of what it answers.
pub(crate) fn asked(socket: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let length = body.len();
    let request =
        format!("{method} {path} HTTP/1.1\r\nhost: incumbent\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

const COMMAND: &str = r#"echo "socket $INCUMBENT_SOCKET"; echo "token $INCUMBENT_TOKEN"; sleep 1000"#;

fn begun(world: &World, options: &[&str]) -> (Supervised, String, u64) {
    let run = world.start(options, COMMAND);
    let socket = run.hear("socket ");
    let token = run.hear("token ").parse().unwrap();
    (run, socket, token)
}

#[test]
fn it_says_whether_we_lead_and_for_how_long() {
    let world = World::new(Hold::Group);
    let (_run, socket, token) = begun(&world, &["--identity", "web-1", "--ttl", "30s"]);
    let (code, body) = asked(&socket, "GET", "/status", "");
    let status: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((code, &status["election"], &status["leading"]), (200, &"job".into(), &true.into()), "{body}");
    assert_eq!((&status["token"], &status["state"]), (&token.to_string().into(), &"held".into()), "{body}");
    let (code, left) = asked(&socket, "GET", "/remaining", "");
    let left: u64 = left.trim().parse().unwrap();
    assert!(code == 200 && (1..=30_000).contains(&left), "{left}");
    let (code, body) = asked(&socket, "GET", "/nonsense", "");
    assert!(code == 404 && body.contains("GET /status"), "{body}");
    assert_eq!(asked(&socket, "POST", "/status", "").0, 404);
    assert_eq!(asked(&socket, "POST", "/handover", "  ").0, 400);
    assert_eq!(asked(&socket, "PUT", "/value", &"x".repeat(65 * 1024)).0, 400);
}

#[test]
fn a_value_is_published_for_all_to_see() {
    let world = World::new(Hold::Group);
    let (_run, socket, _) = begun(&world, &["--value", "first"]);
    let value = || {
        let output = ends(world.incumbent(&["who", "job", "--json", "--on", &world.url()]), 0);
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["leader"]["value"].clone()
    };
    assert_eq!(value(), "first");
    let (code, body) = asked(&socket, "PUT", "/value", "http://10.0.0.1:80/");
    assert_eq!(code, 200, "{body}");
    assert_eq!(value(), "http://10.0.0.1:80/");
}

#[test]
fn asked_to_resign_it_stops_the_command_and_contends_again_with_a_greater_token() {
    let world = World::new(Hold::Group);
    let (run, socket, token) = begun(&world, &["--grace", "100ms", "--ttl", "1s"]);
    assert_eq!(asked(&socket, "POST", "/resign", "").0, 202);
    run.reports("leaves the seat to others for 1s");
    run.hear("socket ");
    let later: u64 = run.hear("token ").parse().unwrap();
    assert!(later > token);
    let history = ends(world.incumbent(&["history", "job", "--on", &world.url()]), 0);
    assert!(text(&history.stdout).contains("resigned"), "{}", text(&history.stdout));
    let again = ends(world.incumbent(&["resign", "job", "--json", "--on", &world.url()]), 1);
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(again["outcome"], "again", "{again:#}");
}

/// Where there is no line the quickest is next, and that would be whoever has just had the seat.
#[test]
fn where_there_is_no_line_whoever_is_asked_to_go_leaves_the_seat_to_another() {
    let nats = Nats::recent().start().unwrap();
    let url = format!("nats://{}/prod", nats.address());
    let world = World::new(Hold::Group);
    let start = |name| world.start(&["--on", &url, "--identity", name, "--ttl", "5s"], COMMAND);
    let first = start("web-1");
    first.hear("token ");
    let others = ["web-2", "web-3"].map(start);
    others.iter().for_each(|it| it.reports("standing by"));
    for ask in ["evict", "resign", "evict"] {
        let output = ends(world.incumbent(&[ask, "job", "--json", "--on", &url]), 0);
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["outcome"], "changed", "{document:#}");
        assert_ne!(document["asked"]["name"], document["leader"]["name"], "{document:#}");
    }
}

#[test]
fn asked_to_hand_over_it_gives_the_seat_to_that_candidate_alone() {
    let world = World::new(Hold::Group);
    let (run, socket, token) = begun(&world, &["--identity", "web-1", "--after-loss", "exit"]);
    let others = ["web-2", "web-3"].map(|name| world.start(&["--identity", name], COMMAND));
    let waiting = || text(&ends(world.incumbent(&["candidates", "job", "--on", &world.url()]), 0).stdout).to_owned();
    eventually("both wait", || ["web-2", "web-3"].iter().all(|it| waiting().contains(it)));
    assert_eq!(asked(&socket, "POST", "/handover", "web-3").0, 202);
    run.ends(122);
    others[1].hear("socket ");
    assert!(others[1].hear("token ").parse::<u64>().unwrap() > token);
}

#[test]
fn who_stands_by_says_so() {
    let world = World::new(Hold::Group);
    let (run, socket, _) = begun(&world, &["--restart", "always", "--back-off", "1h"]);
    for id in world.living() {
        crate::shell::processes::signal(id, rustix::process::Signal::KILL);
    }
    run.reports("contends again in");
    let (code, body) = asked(&socket, "GET", "/status", "");
    assert_eq!((code, body.contains("\"standby\"")), (200, true), "{body}");
    assert_eq!(asked(&socket, "GET", "/remaining", "").1, "0\n");
    for (method, path) in [("POST", "/resign"), ("POST", "/handover"), ("PUT", "/value")] {
        assert_eq!(asked(&socket, method, path, "x").0, 409, "{path}");
    }
}
