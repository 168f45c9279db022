//! A key of a stream that is written only over the revision that was read, and followed while it is taken: what a bucket's `update` and `watch` do. The token
//! is the revision that the write expects.

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{DeliverPolicy, push};
use async_nats::jetstream::stream::Config;
use async_trait::async_trait;
use base64::Engine as _;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::contender::Contender;

const STREAM: &str = "KV_by-hand";
const KEY: &str = "$KV.by-hand.seat";

pub(crate) struct Nats {
    client: async_nats::Client,
    changes: push::Ordered,
    me: &'static str,
    held: Option<u64>,
}

impl Nats {
    pub(crate) async fn connect(port: u16, me: &'static str) -> Nats {
        let client = async_nats::connect(format!("nats://127.0.0.1:{port}")).await.expect("it was just started");
        let jetstream = async_nats::jetstream::new(client.clone());
        let config = Config {
            name: STREAM.into(),
            subjects: vec!["$KV.by-hand.>".into()],
            max_messages_per_subject: 1,
            ..Config::default()
        };
        let stream = jetstream.get_or_create_stream(config).await.expect("NATS is well");
        let follow = push::OrderedConfig {
            deliver_subject: client.new_inbox(),
            filter_subject: KEY.into(),
            deliver_policy: DeliverPolicy::LastPerSubject,
            ..push::OrderedConfig::default()
        };
        let consumer = stream.create_consumer(follow).await.expect("NATS is well");
        let changes = consumer.messages().await.expect("NATS is well");
        Nats { client, changes, me, held: None }
    }

    /// Who has it, and the revision of that; 0 if nobody ever had.
    async fn read(&mut self) -> (String, u64) {
        let wanted = json!({ "last_by_subj": KEY }).to_string();
        let subject = format!("$JS.API.STREAM.MSG.GET.{STREAM}");
        let answer = self.client.request(subject, wanted.into()).await.expect("NATS is well");
        let answer: Value = serde_json::from_slice(&answer.payload).expect("JSON");
        let holder = answer["message"]["data"].as_str().unwrap_or_default();
        let holder = base64::engine::general_purpose::STANDARD.decode(holder).expect("as it was written");
        (String::from_utf8(holder).expect("as it was written"), answer["message"]["seq"].as_u64().unwrap_or(0))
    }

    /// The revision that was written, if the last one was the expected.
    async fn write(&mut self, holder: &'static str, expected: u64) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Last-Subject-Sequence", expected.to_string());
        let answer = self.client.request_with_headers(KEY, headers, holder.into()).await.expect("NATS is well");
        let answer: Value = serde_json::from_slice(&answer.payload).expect("JSON");
        answer["seq"].as_u64().filter(|_| answer["error"].is_null())
    }
}

#[async_trait]
impl Contender for Nats {
    async fn claim(&mut self, waits: &Notify) {
        let (mut holder, mut revision) = self.read().await;
        loop {
            if holder.is_empty() {
                self.held = self.write(self.me, revision).await;
                if self.held.is_some() {
                    return;
                }
            }
            waits.notify_one();
            // What came before the reading is old.
            while let Some(change) = self.changes.next().await {
                let change = change.expect("NATS is well");
                let now = change.info().expect("has a sequence").stream_sequence;
                if now > revision {
                    (holder, revision) = (String::from_utf8_lossy(&change.payload).into_owned(), now);
                    break;
                }
            }
        }
    }

    async fn release(&mut self) {
        let held = self.held.take().expect("in office");
        self.write("", held).await.expect("nobody else writes");
    }
}
