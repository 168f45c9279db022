//! What the recording does not show of the test server of Consul: sessions that end by themselves, pause, restart, tokens, the count of requests.

mod wire;

use std::time::{Duration, Instant};

use incumbent_testbed::{Access, Consul};
use wire::ask;

async fn session(consul: &Consul, body: &'static str) -> String {
    ask(&consul.address(), "PUT", "/v1/session/create", &[], body).await.json()["ID"].as_str().expect("an id").to_owned()
}

async fn text(consul: &Consul, method: &str, path: &str) -> String {
    ask(&consul.address(), method, path, &[], "").await.text()
}

/// Takes the lock and waits until it is free again; how long that took.
async fn lifetime(consul: &Consul) -> Duration {
    let id = session(consul, r#"{"TTL": "200ms", "LockDelay": "0s"}"#).await;
    let start = Instant::now();
    assert_eq!(text(consul, "PUT", &format!("/v1/kv/k?acquire={id}")).await, "true");
    loop {
        let answer = ask(&consul.address(), "GET", "/v1/kv/k", &[], "").await;
        if answer.json()[0]["Session"].is_null() {
            return start.elapsed();
        }
        let path = format!("/v1/kv/k?index={}&wait=30s", answer.header("x-consul-index"));
        text(consul, "GET", &path).await;
    }
}

#[tokio::test]
async fn a_session_ends_after_its_ttl_times_the_multiplier_and_wakes_who_waits() {
    for (multiplier, expected_ms) in [(1.0, 200), (2.0, 400)] {
        let options = Consul::plan().session_ttl_min(Duration::from_millis(100)).ttl_multiplier(multiplier);
        let consul = options.start().expect("a free port");
        let took = lifetime(&consul).await;
        // The session begins a little before the lock is taken.
        assert!(took > Duration::from_millis(expected_ms - 100), "{took:?} for {multiplier}");
    }
}

#[tokio::test]
async fn a_paused_server_answers_nothing_and_then_all() {
    let consul = Consul::start().expect("a free port");
    consul.pause();
    let address = consul.address();
    let to = address.clone();
    let asked = tokio::spawn(async move { ask(&to, "GET", "/v1/status/leader", &[], "").await.status });
    // The kernel takes the connection: an answer is what does not come.
    let unanswered = tokio::time::timeout(Duration::from_millis(50), ask(&address, "GET", "/v1/status/leader", &[], "")).await;
    assert!(unanswered.is_err() && !asked.is_finished());
    consul.resume();
    assert_eq!(asked.await.expect("no panic"), 200);
}

#[tokio::test]
async fn a_restart_cuts_connections_and_keeps_what_was_written() {
    let consul = Consul::start().expect("a free port");
    assert_eq!(text(&consul, "PUT", "/v1/kv/k?flags=7").await, "true");
    let before = text(&consul, "GET", "/v1/kv/k").await;
    let address = consul.address();
    let to = address.clone();
    let blocked = tokio::spawn(async move {
        let path = "/v1/kv/k?index=14&wait=60s";
        wire::open(&to, "GET", path, &[], "").await.map(|_| ()).map_err(|wrong| wrong.to_string())
    });
    while consul.requests().beginning("GET /v1/kv/k") < 2 {
        tokio::task::yield_now().await;
    }
    consul.stop();
    assert!(blocked.await.expect("no panic").is_err(), "the blocked read is cut");
    assert!(wire::open(&address, "GET", "/v1/status/leader", &[], "").await.is_err(), "nobody listens");
    consul.restart().expect("the same port");
    assert_eq!(text(&consul, "GET", "/v1/kv/k").await, before);
}

#[tokio::test]
async fn without_a_good_token_there_is_no_access() {
    let options = Consul::plan().token("reader", Access::Read).token("writer", Access::Write);
    let consul = options.start().expect("a free port");
    let cases = [
        ("GET", "", 403, "Permission denied"),
        ("GET", "stranger", 403, "ACL not found"),
        ("PUT", "reader", 403, "Permission denied"),
        ("PUT", "writer", 200, "true"),
        ("GET", "reader", 200, ""),
    ];
    for (method, token, status, text) in cases {
        let answer = ask(&consul.address(), method, "/v1/kv/k", &[("x-consul-token", token)], "v").await;
        assert_eq!(answer.status, status, "{method} as {token:?}: {answer:?}");
        assert!(answer.text().starts_with(text), "{method} as {token:?}: {answer:?}");
        assert_eq!(answer.header("x-consul-default-acl-policy"), "deny");
    }
    let bearer = ask(&consul.address(), "GET", "/v1/kv/k?raw", &[("authorization", "Bearer reader")], "").await;
    assert_eq!(bearer.text(), "v");
    assert_eq!(text(&consul, "GET", "/v1/kv/k?raw&token=reader").await, "v");
}

#[tokio::test]
async fn requests_are_counted_by_verb_and_path() {
    let consul = Consul::start().expect("a free port");
    for path in ["/v1/kv/a?raw", "/v1/kv/a", "/v1/kv/b", "/v1/status/leader"] {
        text(&consul, "GET", path).await;
    }
    text(&consul, "PUT", "/v1/kv/a").await;
    let requests = consul.requests();
    assert_eq!((requests.beginning("GET /v1/kv/"), requests.of("GET /v1/kv/a"), requests.total()), (3, 2, 5));
}

#[tokio::test]
async fn a_transaction_is_made_wholly_or_not_at_all() {
    let consul = Consul::start().expect("a free port");
    let both = r#"[{"KV": {"Verb": "set", "Key": "a", "Value": "MQ=="}}, {"KV": {"Verb": "cas", "Key": "b", "Index": 9, "Value": "MQ=="}}]"#;
    let answer = ask(&consul.address(), "PUT", "/v1/txn", &[], both).await;
    assert_eq!(answer.status, 409);
    assert_eq!(answer.json()["Errors"][0]["What"], "failed to set key \"b\", index is stale");
    assert_eq!(ask(&consul.address(), "GET", "/v1/kv/a", &[], "").await.status, 404);
}
