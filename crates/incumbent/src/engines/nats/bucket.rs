//! The bucket: what it is called, how it is made, and which ones are not fit to hold elections. Pure.
//!
//! A key-value bucket is a stream by convention, so that `nats kv` can look at ours. What makes it unfit is whatever lets an entry go away by itself: with it
//! would go the holder, and the memory that keeps tokens rising.

use serde::{Deserialize, Serialize};

use crate::engine::Error;
use crate::place::Place;

const USUAL_NAME: &str = "incumbent";
/// More than NATS keeps.
const REPLICAS_MAX: u8 = 5;

/// Which bucket, and how many servers shall keep it if it has to be made.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    name: String,
    replicas: Option<u8>,
}

/// A stream as the server describes it, as far as it matters here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Described {
    config: Config,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
struct Config {
    max_age: i64,
    storage: String,
    discard: String,
    max_msgs: i64,
    max_bytes: i64,
    max_msgs_per_subject: i64,
    num_replicas: u8,
    mirror: Option<serde_json::Value>,
    sealed: bool,
    no_ack: bool,
    persist_mode: String,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            max_age: 0,
            storage: "file".to_owned(),
            discard: "new".to_owned(),
            max_msgs: -1,
            max_bytes: -1,
            max_msgs_per_subject: 1,
            num_replicas: 1,
            mirror: None,
            sealed: false,
            no_ack: false,
            persist_mode: String::new(),
        }
    }
}

/// What is asked of the server when the bucket is made: as `nats kv add` does it.
#[derive(Serialize)]
struct Order<'a> {
    name: &'a str,
    description: &'static str,
    subjects: [String; 1],
    retention: &'static str,
    storage: &'static str,
    discard: &'static str,
    num_replicas: u8,
    max_msgs_per_subject: i64,
    max_consumers: i64,
    max_msgs: i64,
    max_bytes: i64,
    max_msg_size: i64,
    max_age: i64,
    allow_rollup_hdrs: bool,
    deny_delete: bool,
    /// No replica that lags behind answers reads: neither ours, which never ask for that, nor those of tools.
    allow_direct: bool,
    first_seq: u64,
}

impl Bucket {
    pub(super) fn of(place: &Place) -> Result<Bucket, Error> {
        let name = place.option("bucket").unwrap_or(USUAL_NAME).to_owned();
        if name.is_empty() || !name.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_')) {
            return Err(Error::misconfigured(format!("bucket={name}: use letters, digits, '-' and '_'")));
        }
        let replicas = match place.option("replicas") {
            Some(text) => Some(text.parse().ok().filter(|it| (1..=REPLICAS_MAX).contains(it)).ok_or_else(|| {
                Error::misconfigured(format!(
                    "replicas={text}: say how many servers keep the bucket, 3 for example; at most {REPLICAS_MAX}"
                ))
            })?),
            None => None,
        };
        Ok(Bucket { name, replicas })
    }

    pub(super) fn stream(&self) -> String {
        format!("KV_{}", self.name)
    }

    pub(super) fn subject(&self, key: &str) -> String {
        format!("$KV.{}.{key}", self.name)
    }

    /// The request that makes it. Revisions begin with the wall clock's milliseconds: so those of a bucket that was deleted and made again are greater than they were, as long as
    /// nobody wrote more than a thousand times in a second and the clock was not set back by more than the first one's age. A server before 2.10 begins with 1.
    pub(super) fn order(&self, wall_ms: u64) -> String {
        let order = Order {
            name: &self.stream(),
            description: "elections of incumbent",
            subjects: [self.subject(">")],
            retention: "limits",
            storage: "file",
            discard: "new",
            num_replicas: self.replicas.unwrap_or(1),
            max_msgs_per_subject: 1,
            max_consumers: -1,
            max_msgs: -1,
            max_bytes: -1,
            max_msg_size: -1,
            max_age: 0,
            allow_rollup_hdrs: true,
            deny_delete: true,
            allow_direct: false,
            first_seq: wall_ms,
        };
        serde_json::to_string(&order).expect("texts and numbers")
    }

    /// How an operator makes it.
    pub(super) fn command(&self) -> String {
        format!("nats kv add {} --history=1 --storage=file --replicas={}", self.name, self.replicas.unwrap_or(1))
    }

    /// Complains about one that is there and cannot be trusted with elections.
    pub(super) fn check(&self, found: &Described) -> Result<(), Error> {
        let Config {
            max_age,
            storage,
            discard,
            max_msgs,
            max_bytes,
            max_msgs_per_subject,
            num_replicas,
            mirror,
            sealed,
            no_ack,
            persist_mode,
        } = &found.config;
        let unfit = if *max_age > 0 {
            Some(
                "forgets what was not written for a while (it has a TTL), and with it who leads and which tokens were given"
                    .to_owned(),
            )
        } else if storage != "file" {
            Some(format!("keeps entries in {storage} only: a restart would forget which tokens were given"))
        } else if discard == "old" && (*max_msgs > 0 || *max_bytes > 0) {
            Some("throws away old entries when it is full, and with them who leads".to_owned())
        } else if persist_mode == "async" {
            Some("acknowledges what it has not written yet (persist_mode: async)".to_owned())
        } else if mirror.is_some() || *sealed || *no_ack {
            Some("is a mirror, sealed, or acknowledges nothing: nothing can be written to it for sure".to_owned())
        } else if *max_msgs_per_subject < 1 {
            Some("is a stream, but no bucket".to_owned())
        } else {
            None
        };
        if let Some(why) = unfit {
            return Err(Error::misconfigured(format!(
                "the bucket {:?} {why}: name another with bucket=NAME, or make this one anew with `{}`",
                self.name,
                self.command()
            )));
        }
        match self.replicas {
            Some(wanted) if wanted != *num_replicas => Err(Error::misconfigured(format!(
                "the bucket {:?} is kept by {num_replicas} servers, and the URL says replicas={wanted}: correct the one or the other (`nats stream edit {} --replicas={wanted}`)",
                self.name,
                self.stream()
            ))),
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(url: &str) -> Result<Bucket, Error> {
        Bucket::of(&Place::parse(url).expect("parses"))
    }

    fn found(config: &str) -> Described {
        serde_json::from_str(&format!("{{\"config\":{config}}}")).expect("as the server answers")
    }

    #[test]
    fn what_is_ordered_is_fit() {
        let bucket = bucket("nats://h/x?bucket=seats&replicas=3").expect("good");
        let order = bucket.order(1_700_000_000_000);
        bucket.check(&found(&order)).expect("ours");
        assert!(order.contains("\"subjects\":[\"$KV.seats.>\"]") && order.contains("\"first_seq\":1700000000000"), "{order}");
        assert_eq!(bucket.command(), "nats kv add seats --history=1 --storage=file --replicas=3");
    }

    #[test]
    fn a_bucket_from_which_entries_may_go_away_is_refused() {
        let bucket = bucket("nats://h/x").expect("good");
        bucket.check(&found("{\"max_bytes\":1000,\"discard\":\"new\"}")).expect("a full one refuses");
        bucket.check(&found("{\"max_msgs_per_subject\":5,\"discard\":\"old\"}")).expect("history does no harm");
        for (unfit, word) in [
            ("{\"max_age\":3600000000000}", "TTL"),
            ("{\"storage\":\"memory\"}", "memory"),
            ("{\"discard\":\"old\",\"max_bytes\":1000}", "throws away"),
            ("{\"discard\":\"old\",\"max_msgs\":10}", "throws away"),
            ("{\"mirror\":{\"name\":\"KV_x\"}}", "mirror"),
            ("{\"sealed\":true}", "sealed"),
            ("{\"persist_mode\":\"async\"}", "persist_mode"),
            ("{\"max_msgs_per_subject\":-1}", "no bucket"),
        ] {
            let why = bucket.check(&found(unfit)).expect_err(unfit).to_string();
            assert!(why.contains(word) && why.contains("bucket=NAME") && why.contains("nats kv add"), "{why}");
        }
    }

    #[test]
    fn options_that_cannot_be_are_refused() {
        for (url, word) in [
            ("nats://h?bucket=a.b", "letters"),
            ("nats://h?bucket=", "letters"),
            ("nats://h?replicas=0", "replicas=0"),
            ("nats://h?replicas=six", "replicas=six"),
        ] {
            assert!(bucket(url).expect_err(url).to_string().contains(word), "{url}");
        }
        let three = bucket("nats://h?replicas=3").expect("good");
        assert!(three.check(&found("{\"num_replicas\":1}")).expect_err("one").to_string().contains("replicas=3"));
    }
}
