//! The recorded answers of a real kube-apiserver (JSON), replayed against the test server: status, content type and body must be the same.
//!
//! The recording has the answers and what each case was about, not the requests: those stand here. Written over before comparing: uids and
//! generated names, one for one; times in whole seconds; the server's own address; an age. Versions are compared as they are: every write
//! must take exactly the version that it took in the real server. The lines of watches are cut off in the recording: their beginnings are
//! compared.

mod wire;

use std::collections::{BTreeMap, BTreeSet};

use http_body_util::BodyExt;
use hyper::body::Bytes;
use incumbent_testbed::Kubernetes;
use serde_json::Value;
use wire::{Answer, Names, ask, open};

const RECORDING: &str = include_str!("../golden/kubernetes-lease.txt");

/// Cases that the test server cannot reproduce, and why.
const OUT_OF_REACH: &[(&str, &str)] = &[
    ("openapi/v2", "two megabytes about every resource of Kubernetes; no client of Leases asks for it"),
    ("openapi/v3", "an index of the same"),
];

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

#[tokio::test]
async fn every_recorded_answer_is_reproduced() {
    // The real server had one Lease of its own before the first client came.
    let kubernetes = Kubernetes::plan().first_version(56).start().expect("a free port");
    let mut replay = Replay::new(&kubernetes);
    replay.write_elsewhere().await;

    replay.case("GET missing", "GET", "/x", JSON, "").await;
    let full = r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"x"},"spec":{"holderIdentity":"a","leaseDurationSeconds":15,"acquireTime":"2026-01-01T00:00:00.000000Z","renewTime":"2026-01-01T00:00:00.000000Z","leaseTransitions":0}}"#;
    replay.case("POST create", "POST", "", JSON, full).await;
    replay.case("POST create again (AlreadyExists)", "POST", "", JSON, full).await;
    replay.case("POST without kind/apiVersion", "POST", "", JSON, r#"{"metadata":{"name":"nokind"}}"#).await;
    replay.generated_name("POST generateName").await;
    replay.case("POST no name", "POST", "", JSON, "{}").await;
    replay.case("POST bad name", "POST", "", JSON, r#"{"metadata":{"name":"Bad_Name"}}"#).await;
    replay.case("POST with resourceVersion set", "POST", "", JSON, r#"{"metadata":{"name":"rv","resourceVersion":"1"}}"#).await;
    replay.case("POST ns mismatch", "POST", "", JSON, r#"{"metadata":{"name":"ns","namespace":"other"}}"#).await;
    let nowhere = "/apis/coordination.k8s.io/v1/namespaces/nope/leases";
    replay.case("POST ns that does not exist", "POST", nowhere, JSON, r#"{"metadata":{"name":"ns"}}"#).await;
    let invalid = r#"{"metadata":{"name":"inv"},"spec":{"leaseDurationSeconds":0,"leaseTransitions":-1}}"#;
    replay.case("POST invalid spec", "POST", "", JSON, invalid).await;
    let unknown = r#"{"metadata":{"name":"unk"},"spec":{"foo":1}}"#;
    replay.case("POST unknown field default", "POST", "", JSON, unknown).await;
    replay.case("POST unknown field Strict", "POST", "?fieldValidation=Strict", JSON, unknown).await;
    replay.case("POST dryRun", "POST", "?dryRun=All", JSON, r#"{"metadata":{"name":"dry"}}"#).await;
    replay.case("POST malformed json", "POST", "", JSON, "{").await;
    replay.case("POST text/plain", "POST", "", "text/plain", "{}").await;
    replay.accepting("text/plain").case("GET Accept: text/plain", "GET", "/x", JSON, "").await;

    // Replacing
    let put = |name: &str, version: &str, holder: &str| {
        format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}},"spec":{{"holderIdentity":"{holder}"}}}}"#)
    };
    replay.case("PUT with rv", "PUT", "/x", JSON, put("x", "57", "b")).await;
    replay.case("PUT stale rv (Conflict)", "PUT", "/x", JSON, put("x", "57", "b")).await;
    replay.case("PUT no rv", "PUT", "/x", JSON, put("x", "", "b")).await;
    replay.case("PUT to missing, no rv", "PUT", "/putnew", JSON, put("putnew", "", "c")).await;
    replay.case("PUT to missing, with rv", "PUT", "/putnew2", JSON, put("putnew2", "5", "c")).await;
    replay.case("PUT name mismatch", "PUT", "/x", JSON, put("y", "61", "b")).await;
    let stranger = r#"{"metadata":{"name":"x","uid":"11111111-1111-1111-1111-111111111111","resourceVersion":"61"}}"#;
    replay.case("PUT wrong uid", "PUT", "/x", JSON, stranger).await;
    replay.case("PUT identical (no-op keeps rv?)", "PUT", "/x", JSON, put("x", "61", "b")).await;

    // Patching
    replay.case("PATCH merge", "PATCH", "/x", MERGE, r#"{"spec":{"holderIdentity":"m"}}"#).await;
    replay.case("PATCH merge no change", "PATCH", "/x", MERGE, r#"{"spec":{"holderIdentity":"m"}}"#).await;
    let stale = r#"{"metadata":{"resourceVersion":"1"},"spec":{"holderIdentity":"n"}}"#;
    replay.case("PATCH merge stale rv", "PATCH", "/x", MERGE, stale).await;
    let exchange =
        r#"[{"op":"test","path":"/spec/holderIdentity","value":"m"},{"op":"replace","path":"/spec/holderIdentity","value":"j"}]"#;
    replay.case("PATCH json test ok", "PATCH", "/x", "application/json-patch+json", exchange).await;
    replay.case("PATCH json test fails", "PATCH", "/x", "application/json-patch+json", exchange).await;
    let strategic = "application/strategic-merge-patch+json";
    replay.case("PATCH strategic", "PATCH", "/x", strategic, r#"{"spec":{"holderIdentity":null}}"#).await;
    let applied = |name: &str, holder: &str| {
        format!(
            r#"{{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{{"name":"{name}"}},"spec":{{"holderIdentity":"{holder}"}}}}"#
        )
    };
    replay.case("PATCH apply", "PATCH", "/x?fieldManager=me", APPLY, applied("x", "ssa")).await;
    let other = "/x?fieldManager=other";
    replay.case("PATCH apply conflict by other manager", "PATCH", other, APPLY, applied("x", "o")).await;
    replay.case("PATCH apply no fieldManager", "PATCH", "/x", APPLY, applied("x", "o")).await;
    replay.case("PATCH apply create", "PATCH", "/ssanew?fieldManager=me", APPLY, applied("ssanew", "z")).await;
    replay.case("PATCH missing", "PATCH", "/none", MERGE, "{}").await;

    // Reading
    replay.case("LIST limit=1", "GET", "?limit=1", JSON, "").await;
    replay.case("LIST fieldSelector name", "GET", "?fieldSelector=metadata.name%3Dx", JSON, "").await;
    replay.case("LIST fieldSelector bad", "GET", "?fieldSelector=spec.holderIdentity%3Dx", JSON, "").await;
    replay.case("LIST rv=0", "GET", "?resourceVersion=0", JSON, "").await;
    replay.case("LIST rv future", "GET", "?resourceVersion=999999", JSON, "").await;
    replay.case("LIST all namespaces (tail)", "GET", "/apis/coordination.k8s.io/v1/leases?limit=1", JSON, "").await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    replay.accepting(table).case("Table", "GET", "?fieldSelector=metadata.name%3Dx", JSON, "").await;
    let metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    replay.accepting(metadata).case("PartialObjectMetadata", "GET", "/x", JSON, "").await;

    // Watching, while it changes and goes away
    let of_x = "watch=true&resourceVersion=57&fieldSelector=metadata.name%3Dx&timeoutSeconds=1";
    let initial = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=3";
    let watches = [replay.watch(of_x).await, replay.watch("watch=true&timeoutSeconds=1").await, replay.watch(initial).await];
    replay.replayed.insert("WATCH from rv + changes");
    replay.unrecorded("PATCH", "/x", MERGE, r#"{"spec":{"holderIdentity":"w"}}"#).await;
    let wrong_version = r#"{"preconditions":{"resourceVersion":"1"}}"#;
    replay.case("DELETE wrong rv precondition", "DELETE", "/x", JSON, wrong_version).await;
    replay.case("DELETE wrong uid precondition", "DELETE", "/x", JSON, r#"{"preconditions":{"uid":"111"}}"#).await;
    replay.case("DELETE", "DELETE", "/x", JSON, "").await;
    replay.case("DELETE again", "DELETE", "/x", JSON, "").await;
    for (title, watch) in ["--- w1\n", "--- w2\n", "--- w3\n"].into_iter().zip(watches) {
        let lines = watch.await.expect("no panic");
        replay.compare_lines(title, after(&replay.recording["DELETE again"].more, title), &lines);
    }
    replay.watch_from_the_beginning("WATCH rv=1 (too old?)").await;
    replay.case("WATCH rv=garbage", "GET", "?watch=true&resourceVersion=abc", JSON, "").await;

    // The real server's own Lease was renewed twice meanwhile.
    replay.write_elsewhere().await;
    replay.write_elsewhere().await;
    replay.case("DELETECOLLECTION", "DELETE", "?labelSelector=no%3Dsuch", JSON, "").await;
    replay.case("/apis/coordination.k8s.io/v1", "GET", "/apis/coordination.k8s.io/v1", JSON, "").await;
    replay.case("/apis/coordination.k8s.io", "GET", "/apis/coordination.k8s.io", JSON, "").await;
    replay.case("/api", "GET", "/api", JSON, "").await;
    replay.aggregated_discovery("/apis aggregated (coordination only)").await;
    // Nobody is asked who he is; the recorded server asked nobody either.
    replay.case("unauth", "GET", "", JSON, "").await;
    replay.paths_about_itself().await;

    replay.ensure_all_replayed();
}

/// One recorded answer.
struct Recorded {
    status: u16,
    content_type: String,
    body: String,
    /// What stands behind it.
    more: String,
}

fn recording() -> BTreeMap<&'static str, Recorded> {
    let cases = RECORDING.split("\n### ").skip(1).map(|case| {
        let (title, rest) = case.split_once('\n').expect("a title");
        let Some((body, rest)) = rest.split_once("-> HTTP ") else {
            // The watch that ran beside the others; its lines stand elsewhere.
            return (title, Recorded { status: 200, content_type: JSON.to_owned(), body: String::new(), more: String::new() });
        };
        let (first, more) = rest.split_once('\n').unwrap_or((rest, ""));
        let (status, content_type) = first.split_once(" ct=").expect("a content type");
        let recorded = Recorded {
            status: status.parse().expect("a status"),
            content_type: content_type.trim().to_owned(),
            body: body.trim_end().to_owned(),
            more: more.to_owned(),
        };
        (title, recorded)
    });
    cases.collect()
}

/// The lines behind a title, up to the next.
fn after(text: &str, title: &str) -> Vec<String> {
    let (_, rest) = text.split_once(title).unwrap_or_else(|| panic!("{title:?} is in the recording"));
    rest.lines().take_while(|it| !it.starts_with("---")).filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

struct Replay<'a> {
    kubernetes: &'a Kubernetes,
    recording: BTreeMap<&'static str, Recorded>,
    replayed: BTreeSet<&'static str>,
    names: Names,
    /// Of the next request only.
    accept: &'static str,
}

impl<'a> Replay<'a> {
    fn new(kubernetes: &'a Kubernetes) -> Self {
        let mut names = Names::default();
        names.pair("127.0.0.1:6443", &kubernetes.address());
        Self { kubernetes, recording: recording(), replayed: BTreeSet::new(), names, accept: JSON }
    }

    fn accepting(&mut self, accept: &'static str) -> &mut Self {
        self.accept = accept;
        self
    }

    async fn unrecorded(&mut self, method: &str, path: &str, content_type: &str, body: impl Into<Bytes>) -> Answer {
        let path = if path.starts_with("/api") { path.to_owned() } else { format!("{LEASES}{path}") };
        // The recording was made with curl, for which answers are indented and which owns the fields.
        let headers = [("user-agent", "curl/7.88.1"), ("accept", self.accept), ("content-type", content_type)];
        self.accept = JSON;
        ask(&self.kubernetes.address(), method, &path, &headers, body).await
    }

    /// Takes a version, as the real server's own Lease did.
    async fn write_elsewhere(&mut self) {
        let elsewhere = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
        let body = r#"{"metadata":{"name":"apiserver"},"spec":{"holderIdentity":"it"}}"#;
        if self.unrecorded("POST", elsewhere, JSON, body).await.status == 201 {
            return;
        }
        let before = self.unrecorded("GET", &format!("{elsewhere}/apiserver"), JSON, "").await.json();
        let holder = format!("{}+", before["spec"]["holderIdentity"].as_str().expect("a holder"));
        let patch = format!(r#"{{"spec":{{"holderIdentity":"{holder}"}}}}"#);
        assert_eq!(self.unrecorded("PATCH", &format!("{elsewhere}/apiserver"), MERGE, patch).await.status, 200);
    }

    async fn case(&mut self, title: &'static str, method: &str, path: &str, content_type: &str, body: impl Into<Bytes>) {
        let answer = self.unrecorded(method, path, content_type, body).await;
        let recorded = self.head(title, &answer).body.clone();
        self.compare(title, &recorded, &answer.text());
    }

    /// Learns the generated name first.
    async fn generated_name(&mut self, title: &'static str) {
        let answer = self.unrecorded("POST", "", JSON, r#"{"metadata":{"generateName":"g-"}}"#).await;
        let recorded = self.head(title, &answer).body.clone();
        let name = |text: &str| {
            let value: Value = serde_json::from_str(text).expect("JSON");
            value["metadata"]["name"].as_str().expect("a name").to_owned()
        };
        let (one, other) = (name(&recorded), name(&answer.text()));
        assert_eq!((one.len(), &one[..2]), (other.len(), &other[..2]));
        self.names.pair(&one, &other);
        self.compare(title, &recorded, &answer.text());
    }

    /// Starts a watch, and returns when the server has it.
    async fn watch(&self, query: &str) -> tokio::task::JoinHandle<Vec<String>> {
        let path = format!("{LEASES}?{query}");
        let answer = open(&self.kubernetes.address(), "GET", &path, &[("accept", JSON)], "").await.expect("a watch");
        assert_eq!((answer.status().as_u16(), answer.headers()["content-type"].to_str().expect("text")), (200, JSON));
        tokio::spawn(async move {
            let body = answer.into_body().collect().await.expect("the whole watch").to_bytes();
            String::from_utf8(body.to_vec()).expect("text").lines().map(str::to_owned).collect()
        })
    }

    async fn watch_from_the_beginning(&mut self, title: &'static str) {
        let answer = self.unrecorded("GET", "?watch=true&resourceVersion=1&timeoutSeconds=1", JSON, "").await;
        let recorded: Vec<String> = self.head(title, &answer).body.lines().map(str::to_owned).collect();
        self.compare_lines(title, recorded, &answer.text().lines().map(str::to_owned).collect::<Vec<_>>());
    }

    fn compare_lines(&self, title: &str, recorded: Vec<String>, answered: &[String]) {
        assert_eq!(answered.len(), recorded.len(), "the events of {title:?}: {answered:#?}");
        for (recorded, answered) in recorded.iter().zip(answered) {
            let recorded = self.names.translate(&without_times(recorded));
            let answered = without_times(answered);
            // A name or a time may have been cut through: the last letters of a cut line are not compared.
            let whole = recorded.ends_with("}}");
            let length = if whole { recorded.len() } else { recorded.len().saturating_sub(40) };
            assert_eq!(&answered[..length.min(answered.len())], &recorded[..length], "an event of {title:?}");
            assert!(!whole || answered.len() == length, "an event of {title:?} is longer: {answered}");
        }
    }

    /// The recording has only a part of it, in Python's indentation.
    async fn aggregated_discovery(&mut self, title: &'static str) {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let answer = self.accepting(accept).unrecorded("GET", "/apis", JSON, "").await;
        let recorded = self.head(title, &answer).more.clone();
        let body = answer.json();
        let (head, items) = recorded.split_once('\n').expect("a list");
        assert_eq!(
            format!("{} {}", body["kind"].as_str().unwrap_or_default(), body["apiVersion"].as_str().unwrap_or_default()),
            head
        );
        assert_eq!(body["items"], serde_json::from_str::<Value>(items).expect("JSON"));
    }

    /// The last lines of the recording: path, status, content type and length of the body.
    async fn paths_about_itself(&mut self) {
        let lines = self.recording["unauth"].more.clone();
        for line in lines.lines() {
            let (path, rest) = line.split_once(' ').expect("a path");
            if OUT_OF_REACH.iter().any(|(title, _)| *title == path) {
                continue;
            }
            let (status, rest) = rest.split_once(' ').expect("a status");
            let (content_type, length) = rest.rsplit_once(' ').expect("a length");
            let answer = ask(&self.kubernetes.address(), "GET", &format!("/{path}"), &[], "").await;
            assert_eq!((answer.status.as_str(), answer.header("content-type")), (status, content_type), "{path}");
            // What it says of its build is its own affair.
            assert!(path == "version" || answer.body.len().to_string() == length, "{path}");
        }
    }

    /// Compares all but the body.
    fn head(&mut self, title: &'static str, answer: &Answer) -> &Recorded {
        let recorded = self.recording.get(title).unwrap_or_else(|| panic!("{title:?} is not in the recording"));
        assert!(self.replayed.insert(title), "{title:?} is replayed once");
        assert_eq!(answer.status.as_u16(), recorded.status, "the status of {title:?}: {answer:?}");
        assert_eq!(answer.header("content-type"), recorded.content_type, "the content type of {title:?}");
        for usual in ["audit-id", "cache-control", "date"] {
            assert!(!answer.header(usual).is_empty(), "{title:?} has {usual}");
        }
        recorded
    }

    fn compare(&mut self, title: &str, recorded: &str, answered: &str) {
        self.names.learn_uuids(recorded, answered);
        let recorded = decoded_tokens(&self.names.translate(&without_times(recorded)));
        // Tokens hold names, so they are compared as what they hold.
        let recorded = self.names.translate(&recorded);
        assert_eq!(decoded_tokens(&without_times(answered)), recorded, "the body of {title:?}");
    }

    #[allow(clippy::print_stdout, reason = "what is out of reach is for people to read")]
    fn ensure_all_replayed(&self) {
        for (title, reason) in OUT_OF_REACH {
            println!("out of reach: {title}: {reason}");
        }
        let left: Vec<_> = self.recording.keys().filter(|it| !self.replayed.contains(*it)).collect();
        assert!(left.is_empty(), "recorded and not replayed: {left:?}");
        println!("{} of {} recorded cases reproduced", self.replayed.len(), self.recording.len());
    }
}

/// Times in whole seconds, and the age in a table, written over. Times in microseconds come from requests and stay.
fn without_times(text: &str) -> String {
    const FORM: &str = "dddd-dd-ddTdd:dd:ddZ";
    let mut out = text.to_owned();
    for at in 0..out.len().saturating_sub(FORM.len() - 1) {
        let here = out.as_bytes()[at..at + FORM.len()].iter().zip(FORM.bytes());
        if here.into_iter().all(|(letter, form)| if form == b'd' { letter.is_ascii_digit() } else { *letter == form }) {
            out.replace_range(at..at + FORM.len(), FORM);
        }
    }
    (0..10).fold(out, |text, age| text.replace(&format!("        \"{age}s\""), "        \"age\""))
}

/// With every continue token as what it says.
fn decoded_tokens(text: &str) -> String {
    use base64::Engine as _;
    let Some((before, rest)) = text.split_once("\"continue\": \"") else { return text.to_owned() };
    let (token, rest) = rest.split_once('"').expect("its end");
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(token).expect("a token");
    format!("{before}\"continue\": \"{}\"{rest}", String::from_utf8(bytes).expect("text"))
}
