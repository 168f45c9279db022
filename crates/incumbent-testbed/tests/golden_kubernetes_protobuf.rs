//! What client-go sends, and what a real kube-apiserver answered in protobuf, replayed against the test server byte for byte.
//!
//! Written over before comparing: the uid, and times in whole seconds. Versions are compared as they are.

mod wire;

use std::collections::BTreeMap;

use http_body_util::BodyExt;
use incumbent_testbed::Kubernetes;
use wire::{Answer, ask, open};

const RECORDING: &str = include_str!("../golden/kubernetes-lease-protobuf.txt");

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// What client-go accepts.
const EITHER: &str = "application/vnd.kubernetes.protobuf,application/json";

/// One request of client-go's leader election.
struct Sent {
    method: &'static str,
    path: &'static str,
    accept: &'static str,
    content_type: &'static str,
    agent: &'static str,
    body: &'static str,
}

fn sent_by_client_go() -> Vec<Sent> {
    let (requests, _) = RECORDING.split_once("\n\n# real kube-apiserver").expect("two parts");
    let lines: Vec<&str> = requests.lines().skip(1).collect();
    let value = |line: &'static str| line.split_once(": ").map_or("", |(_, value)| value);
    let requests = lines.chunks(5).map(|lines| {
        let (method, path) = lines[0].split_once(' ').expect("a method");
        Sent {
            method,
            path,
            accept: value(lines[1]),
            content_type: value(lines[2]),
            agent: value(lines[3]),
            body: value(lines[4]),
        }
    });
    requests.collect()
}

/// Answers by their titles, in hexadecimal, each with the content type where that was recorded.
fn answers() -> BTreeMap<&'static str, (&'static str, Option<&'static str>)> {
    let (_, answers) = RECORDING.split_once("# real kube-apiserver").expect("two parts");
    let mut found = BTreeMap::new();
    let mut last = "";
    let lines: Vec<&str> = answers.lines().skip(2).filter(|it| !it.is_empty()).collect();
    for (at, line) in lines.iter().enumerate() {
        if let Some(title) = line.strip_suffix(':') {
            last = title;
            found.insert(title, (lines[at + 1], None));
        } else if let Some(content_type) = line.strip_prefix("content-type: ") {
            found.get_mut(last).expect("an answer before").1 = Some(content_type);
        }
    }
    found
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|it| format!("{it:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2).map(|it| std::str::from_utf8(it).expect("ASCII"));
    pairs.map(|it| u8::from_str_radix(it, 16).expect("hexadecimal")).collect()
}

async fn replay(kubernetes: &Kubernetes, sent: &Sent, body: &str) -> Answer {
    let mut headers = vec![("accept", sent.accept), ("user-agent", sent.agent)];
    if sent.content_type != "None" {
        headers.push(("content-type", sent.content_type));
    }
    ask(&kubernetes.address(), sent.method, sent.path, &headers, bytes(body)).await
}

#[tokio::test]
async fn the_requests_of_client_go_are_understood() {
    let kubernetes = Kubernetes::plan().first_version(5).start().expect("a free port");
    let requests = sent_by_client_go();
    let [missing, create, renew, renew_later, read] = &requests[..] else { panic!("{} requests", requests.len()) };
    assert_eq!(replay(&kubernetes, missing, missing.body).await.status, 404);
    assert_eq!(replay(&kubernetes, create, create.body).await.status, 201);

    // The recorded server called its object "u"; ours has a uid of 36 letters, so three lengths around it change.
    let json = ask(&kubernetes.address(), "GET", create_path(create).as_str(), &[], "").await.json();
    let uid = json["metadata"]["uid"].as_str().expect("a uid");
    let with_uid = |body: &str| {
        let longer = body.replacen("12450a20", "12680a43", 1).replacen("2a0175", &format!("2a24{}", hex(uid.as_bytes())), 1);
        assert_eq!(longer.len(), body.len() + 2 * 35, "the uid was found");
        longer
    };
    assert_eq!(replay(&kubernetes, renew, renew.body).await.status, 409, "another uid");
    assert_eq!(replay(&kubernetes, renew, &with_uid(renew.body)).await.status, 200);
    assert_eq!(replay(&kubernetes, renew_later, &with_uid(renew_later.body)).await.status, 409, "version 5 is past");
    let current = with_uid(renew_later.body).replacen("320135", "320136", 1);
    assert_eq!(replay(&kubernetes, renew_later, &current).await.status, 200);

    let answer = replay(&kubernetes, read, read.body).await;
    assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, PROTOBUF));
    let json = ask(&kubernetes.address(), "GET", read.path, &[], "").await.json();
    assert_eq!(json["metadata"]["resourceVersion"], "7");
    assert_eq!(json["metadata"]["managedFields"][0]["manager"], "le-example");
    let expected = serde_json::json!({
        "holderIdentity": "a", "leaseDurationSeconds": 60, "leaseTransitions": 0,
        "acquireTime": json["spec"]["acquireTime"], "renewTime": json["spec"]["renewTime"],
    });
    assert_eq!(json["spec"], expected);
    // The spec of the last renewal is told as it was sent.
    let spec = &current[current.find("12210a0161").expect("a spec")..][..2 * 35];
    assert!(hex(&answer.body).contains(spec));
}

fn create_path(create: &Sent) -> String {
    format!("{}/example", create.path)
}

#[tokio::test]
async fn every_recorded_answer_is_reproduced() {
    let kubernetes = Kubernetes::plan().first_version(57).start().expect("a free port");
    let to = kubernetes.address();
    let answers = answers();
    let lease = r#"{"metadata":{"name":"x","labels":{"a":"b"}},"spec":{"holderIdentity":"a","leaseDurationSeconds":15,"acquireTime":"2026-01-01T00:00:00.000001Z","renewTime":"2026-01-01T00:00:01.500000Z","leaseTransitions":2}}"#;
    let curl = ("user-agent", "curl/7.88.1");
    let created = ask(&to, "POST", LEASES, &[curl], lease).await.json();
    let uid = created["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let time = created["metadata"]["creationTimestamp"].as_str().expect("a time").to_owned();
    let at = time.parse::<jiff::Timestamp>().expect("a time").as_second();

    // How the recording looks with our uid and our time.
    let expected = |title: &str| {
        answers[title]
            .0
            .replace(&hex(b"ff9bf950-78d5-41d7-837e-795fda16b594"), &hex(uid.as_bytes()))
            .replace("08a3bbe5d7061000", &format!("08{}1000", varint(at)))
            .replace(&hex(b"2026-11-15T07:22:11Z"), &hex(time.as_bytes()))
    };
    let check = |title: &str, answer: &Answer| {
        assert_eq!(answer.header("content-type"), PROTOBUF, "{title}");
        assert_eq!(hex(&answer.body), expected(title), "{title}");
    };
    let mut replayed = vec!["404 protobuf Status", "LIST protobuf"];
    check("404 protobuf Status", &ask(&to, "GET", &format!("{LEASES}/none"), &[("accept", PROTOBUF)], "").await);
    check("LIST protobuf", &ask(&to, "GET", LEASES, &[("accept", EITHER)], "").await);

    // Behind this one the recording has the end of a line, which the terminal added.
    let read = ask(&to, "GET", &format!("{LEASES}/x"), &[("accept", PROTOBUF)], "").await;
    assert_eq!(format!("{}0a", hex(&read.body)), expected("GET protobuf"));
    replayed.push("GET protobuf");

    for (title, (_, content_type)) in answers.iter().filter(|(title, _)| title.starts_with("WATCH")) {
        let accept = title.strip_prefix("WATCH accept=").expect("what is accepted");
        let path = format!("{LEASES}?watch=true");
        let mut watch = open(&to, "GET", &path, &[("accept", accept)], "").await.expect("a watch");
        assert_eq!(Some(watch.headers()["content-type"].to_str().expect("text")), *content_type, "{title}");
        let first = watch.body_mut().frame().await.expect("an event").expect("no error").into_data().expect("bytes");
        let recorded = expected(title);
        // The recording of the one in JSON is cut off.
        let length = if accept.contains("json;stream") { recorded.len() } else { hex(&first).len() };
        assert_eq!(hex(&first)[..length], recorded, "{title}");
        replayed.push(title);
    }

    // An empty DeleteOptions, as client-go wraps it.
    let options = format!("6b3873000a270a16{}120d{}12001a002200", hex(b"coordination.k8s.io/v1"), hex(b"DeleteOptions"));
    let headers = [("accept", EITHER), ("content-type", PROTOBUF)];
    let deleted = ask(&to, "DELETE", &format!("{LEASES}/x"), &headers, bytes(&options)).await;
    check("DELETE with client-go DeleteOptions pb body", &deleted);
    replayed.push("DELETE with client-go DeleteOptions pb body");

    replayed.sort_unstable();
    assert_eq!(replayed, answers.keys().copied().collect::<Vec<_>>());
}

fn varint(mut number: i64) -> String {
    let mut text = String::new();
    while number >= 0x80 {
        text.push_str(&format!("{:02x}", (number & 0x7f) | 0x80));
        number >>= 7;
    }
    text + &format!("{number:02x}")
}
