//! A read, a lock with a session, and a blocking read while it is taken: `Lock` of Consul's own Go client. The lock is a transaction, whose answer
//! has the LockIndex: Go's has no token.

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::contender::Contender;

pub(crate) struct Consul {
    http: reqwest::Client,
    base: String,
    session: String,
}

impl Consul {
    pub(crate) async fn connect(port: u16) -> Consul {
        let http = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build().expect("a client");
        let base = format!("http://127.0.0.1:{port}/v1");
        let made = http.put(format!("{base}/session/create")).body(r#"{"TTL":"3600s"}"#).send().await.expect("Consul is well");
        let made: Value = serde_json::from_slice(&made.bytes().await.expect("Consul is well")).expect("JSON");
        let session = made["ID"].as_str().expect("has one").to_owned();
        Consul { http, base, session }
    }

    /// The session that has it and what to wait behind.
    async fn read(&self, query: &str) -> (Option<String>, String) {
        let url = format!("{}/kv/by-hand{query}", self.base);
        let answer = self.http.get(url).send().await.expect("Consul is well");
        let index = answer.headers()["X-Consul-Index"].to_str().expect("a number").to_owned();
        let found: Option<Value> = serde_json::from_slice(&answer.bytes().await.expect("Consul is well")).ok();
        let holder = found.and_then(|it| it[0]["Session"].as_str().map(str::to_owned));
        (holder, index)
    }

    async fn lock(&self) -> bool {
        let lock = json!([{ "KV": { "Verb": "lock", "Key": "by-hand", "Value": "", "Session": self.session } }]);
        let answer = self.http.put(format!("{}/txn", self.base)).body(lock.to_string()).send().await.expect("Consul is well");
        let locked = answer.status().is_success();
        let answer: Value = serde_json::from_slice(&answer.bytes().await.expect("Consul is well")).expect("JSON");
        locked && answer["Results"][0]["KV"]["LockIndex"].as_u64().expect("a token") > 0
    }
}

#[async_trait]
impl Contender for Consul {
    async fn claim(&mut self, waits: &Notify) {
        let mut query = String::new();
        loop {
            let (holder, index) = self.read(&query).await;
            if holder.is_none() && self.lock().await {
                return;
            }
            waits.notify_one();
            query = format!("?index={index}&wait=15s");
        }
    }

    async fn release(&mut self) {
        let url = format!("{}/kv/by-hand?release={}", self.base, self.session);
        let answer = self.http.put(url).send().await.expect("Consul is well");
        assert_eq!(&answer.bytes().await.expect("Consul is well")[..], b"true");
    }
}
