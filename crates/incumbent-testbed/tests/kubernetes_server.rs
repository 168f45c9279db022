//! What the recording does not show of the test server of Kubernetes: tokens, a forgotten past, restart, pause, selectors, bookmarks.

mod wire;

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use incumbent_testbed::{Access, Kubernetes};
use serde_json::{Value, json};
use wire::{Answer, ask, open};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

async fn request(kubernetes: &Kubernetes, method: &str, path: &str, body: Value) -> Answer {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    ask(&kubernetes.address(), method, &format!("{LEASES}{path}"), &[("content-type", kind)], body).await
}

async fn create(kubernetes: &Kubernetes, name: &str) -> Value {
    let answer =
        request(kubernetes, "POST", "", json!({ "metadata": { "name": name }, "spec": { "holderIdentity": "a" } })).await;
    assert_eq!(answer.status, 201);
    answer.json()
}

/// A watch that is read event by event.
struct Watch {
    body: Incoming,
    unread: Vec<u8>,
}

impl Watch {
    async fn open(kubernetes: &Kubernetes, query: &str) -> Self {
        let answer = open(&kubernetes.address(), "GET", &format!("{LEASES}?watch=true&{query}"), &[], "").await.expect("a watch");
        Self { body: answer.into_body(), unread: Vec::new() }
    }

    /// `TYPE name`, or `ERROR code`; nothing at the end.
    async fn next(&mut self) -> Option<String> {
        while !self.unread.contains(&b'\n') {
            self.unread.extend(self.body.frame().await?.ok()?.into_data().expect("bytes"));
        }
        let end = self.unread.iter().position(|it| *it == b'\n').expect("a line");
        let line: Vec<u8> = self.unread.drain(..=end).collect();
        let event: Value = serde_json::from_slice(&line).expect("JSON");
        let object = &event["object"];
        let about = object["code"].as_u64().map(|it| it.to_string()).or(object["metadata"]["name"].as_str().map(str::to_owned));
        Some(format!("{} {}", event["type"].as_str().expect("a type"), about.unwrap_or_default()))
    }
}

#[tokio::test]
async fn an_unknown_token_is_401_none_is_403_and_a_reader_may_not_write() {
    let plan = Kubernetes::plan().token("reader", Access::Read).token("writer", Access::Write);
    let kubernetes = plan.start().expect("a free port");
    let cases = [
        (
            "GET",
            None,
            403,
            r#"leases.coordination.k8s.io "x" is forbidden: User "system:anonymous" cannot get resource "leases" in API group "coordination.k8s.io" in the namespace "default""#,
        ),
        ("GET", Some("Bearer stranger"), 401, "Unauthorized"),
        ("GET", Some("Bearer reader"), 404, "leases.coordination.k8s.io \"x\" not found"),
        (
            "DELETE",
            Some("Bearer reader"),
            403,
            r#"leases.coordination.k8s.io "x" is forbidden: User "testbed" cannot delete resource "leases" in API group "coordination.k8s.io" in the namespace "default""#,
        ),
        ("DELETE", Some("Bearer writer"), 404, "leases.coordination.k8s.io \"x\" not found"),
    ];
    for (method, token, status, message) in cases {
        let headers: Vec<_> = token.map(|it| ("authorization", it)).into_iter().collect();
        let answer = ask(&kubernetes.address(), method, &format!("{LEASES}/x"), &headers, "").await;
        assert_eq!((answer.status.as_u16(), &answer.json()["message"]), (status, &json!(message)), "{method} with {token:?}");
    }
    assert!(kubernetes.kubeconfig().contains("token: \"writer\""));
}

#[tokio::test]
async fn a_micro_time_without_six_digits_is_refused() {
    let kubernetes = Kubernetes::start().expect("a free port");
    let spec = json!({ "renewTime": "2026-01-01T00:00:00.123Z" });
    let answer = request(&kubernetes, "POST", "", json!({ "metadata": { "name": "x" }, "spec": spec })).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["reason"]), (400, &json!("BadRequest")));
}

#[tokio::test]
async fn a_late_leader_brings_a_deleted_lease_back_unless_it_names_its_uid() {
    let kubernetes = Kubernetes::start().expect("a free port");
    let mut late = create(&kubernetes, "x").await;
    assert_eq!(request(&kubernetes, "DELETE", "/x", Value::Null).await.status, 200);
    let answer = request(&kubernetes, "PUT", "/x", late.clone()).await;
    assert_eq!(answer.status, 409);
    assert!(answer.json()["message"].as_str().expect("a text").ends_with("UID in object meta: "));
    late["metadata"].as_object_mut().expect("an object").remove("uid");
    assert_eq!(request(&kubernetes, "PUT", "/x", late).await.status, 201);
}

#[tokio::test]
async fn a_restart_cuts_watches_keeps_leases_and_forgets_the_past() {
    let kubernetes = Kubernetes::start().expect("a free port");
    create(&kubernetes, "x").await;
    let mut watch = Watch::open(&kubernetes, "").await;
    assert_eq!(watch.next().await.as_deref(), Some("ADDED x"));
    create(&kubernetes, "y").await;
    kubernetes.restart().expect("the same port");
    // What was sent before the cut may still be read.
    while watch.next().await.is_some() {}
    assert_eq!(request(&kubernetes, "GET", "/x", Value::Null).await.status, 200);
    let mut old = Watch::open(&kubernetes, "resourceVersion=57").await;
    assert_eq!(old.next().await.as_deref(), Some("ERROR 410"));
    assert_eq!(old.next().await, None);
    assert_eq!(Watch::open(&kubernetes, "").await.next().await.as_deref(), Some("ADDED x"));
}

#[tokio::test]
async fn a_list_goes_on_where_it_was_until_its_past_is_forgotten() {
    let kubernetes = Kubernetes::start().expect("a free port");
    for name in ["a", "b", "c"] {
        create(&kubernetes, name).await;
    }
    let names = |answer: &Answer| {
        let list = answer.json();
        list["items"]
            .as_array()
            .expect("items")
            .iter()
            .map(|it| it["metadata"]["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let first = request(&kubernetes, "GET", "?limit=2", Value::Null).await;
    assert_eq!(names(&first), ["a", "b"]);
    request(&kubernetes, "DELETE", "/c", Value::Null).await;
    let list = first.json();
    let rest = format!("?limit=2&continue={}", list["metadata"]["continue"].as_str().expect("a token"));
    let second = request(&kubernetes, "GET", &rest, Value::Null).await;
    assert_eq!(names(&second), ["c"], "as it was when the list began");
    assert_eq!(second.json()["metadata"]["resourceVersion"], list["metadata"]["resourceVersion"]);
    kubernetes.compact();
    assert_eq!(request(&kubernetes, "GET", &rest, Value::Null).await.status, 410);
}

#[tokio::test]
async fn a_watch_by_label_sees_leases_come_and_go() {
    let kubernetes = Kubernetes::start().expect("a free port");
    create(&kubernetes, "x").await;
    create(&kubernetes, "y").await;
    let mut watch = Watch::open(&kubernetes, "labelSelector=team%3Dred&timeoutSeconds=600").await;
    for patch in [json!({ "team": "red" }), json!({ "size": "big" }), json!({ "team": "blue" })] {
        request(&kubernetes, "PATCH", "/y", json!({ "metadata": { "labels": patch } })).await;
        request(&kubernetes, "PATCH", "/x", json!({ "spec": { "holderIdentity": patch.to_string() } })).await;
    }
    for event in ["ADDED y", "MODIFIED y", "DELETED y"] {
        assert_eq!(watch.next().await.as_deref(), Some(event));
    }
}

#[tokio::test]
async fn bookmarks_come_to_who_wants_them() {
    let kubernetes = Kubernetes::plan().bookmark_every(Duration::from_millis(1)).start().expect("a free port");
    let mut watch = Watch::open(&kubernetes, "allowWatchBookmarks=true").await;
    assert_eq!(watch.next().await.as_deref(), Some("BOOKMARK "));
    let mut plain = Watch::open(&kubernetes, "").await;
    assert_eq!(watch.next().await.as_deref(), Some("BOOKMARK "));
    create(&kubernetes, "x").await;
    assert_eq!(plain.next().await.as_deref(), Some("ADDED x"));
}

#[tokio::test]
async fn a_namespace_that_the_test_makes_is_there() {
    let kubernetes = Kubernetes::start().expect("a free port");
    kubernetes.create_namespace("billing");
    let path = "/apis/coordination.k8s.io/v1/namespaces/billing/leases";
    let answer = ask(&kubernetes.address(), "POST", path, &[], r#"{"metadata":{"name":"x"}}"#).await;
    assert_eq!(answer.status, 201);
    assert_eq!(request(&kubernetes, "GET", "/x", Value::Null).await.status, 404);
    assert_eq!(kubernetes.requests().of(&format!("create {path}")), 1);
}

#[tokio::test]
async fn a_paused_server_answers_when_it_goes_on() {
    let kubernetes = Kubernetes::start().expect("a free port");
    kubernetes.pause();
    let to = kubernetes.address();
    let asked = tokio::spawn(async move { ask(&to, "GET", "/readyz", &[], "").await.text() });
    assert!(
        tokio::time::timeout(Duration::from_millis(50), ask(&kubernetes.address(), "GET", "/readyz", &[], "")).await.is_err()
    );
    assert!(!asked.is_finished());
    kubernetes.resume();
    assert_eq!(asked.await.expect("no panic"), "ok");
}
