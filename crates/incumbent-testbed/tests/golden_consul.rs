//! The recorded answers of a real Consul, replayed against the test server: status, headers and body must be the same.
//!
//! The recording has the answers and what each case was about, not the requests: those stand here. Written over before comparing: the
//! ids of sessions, one for one, and the name of the node. Indexes are compared as they are: every write must take exactly the index
//! that it took in the real server. Times are not compared.

mod wire;

use std::collections::{BTreeMap, BTreeSet};

use hyper::body::Bytes;
use incumbent_testbed::Consul;
use serde_json::Value;
use wire::{Answer, Names, ask};

const RECORDING: &str = include_str!("../golden/consul.txt");

/// Cases that the test server cannot reproduce, and why.
const OUT_OF_REACH: &[(&str, &str)] = &[];

#[tokio::test]
async fn every_recorded_answer_is_reproduced() {
    let consul = Consul::plan().first_index(14).start().expect("a free port");
    let mut replay = Replay::new(consul.address());

    replay.agent_self().await;
    replay.case("status/leader", "GET", "status/leader", "").await;
    replay.case("status/peers", "GET", "status/peers", "").await;

    // Sessions. The first two are alike; the second is S1 of the recording, the third is S2.
    let alike = r#"{"Name": "a", "TTL": "10s", "LockDelay": "2s"}"#;
    replay.case("session create TTL", "PUT", "session/create", alike).await;
    let s1 = replay.unrecorded_session(alike).await;
    let s2 = replay.unrecorded_session(r#"{"Name": "b", "TTL": "10s", "LockDelay": "0s", "Behavior": "delete"}"#).await;
    replay.case("session create empty body", "PUT", "session/create", "").await;
    replay.case("session create bad ttl", "PUT", "session/create", r#"{"TTL": "1s"}"#).await;
    replay.case("session create bad behavior", "PUT", "session/create", r#"{"Behavior": "x"}"#).await;
    replay.case("session create POST", "POST", "session/create", "").await;
    replay.case("session info", "GET", &format!("session/info/{s1}"), "").await;
    let nobody = "00000000-0000-0000-0000-000000000000";
    replay.case("session info unknown", "GET", &format!("session/info/{nobody}"), "").await;
    replay.case("session info malformed", "GET", "session/info/x", "").await;
    // Learned from a list sorted by index, below, not from the order of random ids.
    replay.sessions("session list", "session/list").await;
    replay.case("session renew", "PUT", &format!("session/renew/{s1}"), "").await;
    replay.case("session renew unknown", "PUT", &format!("session/renew/{nobody}"), "").await;

    // Locks
    replay.case("acquire S1", "PUT", &format!("kv/lead?acquire={s1}"), "v1").await;
    replay.case("acquire S1 again (update)", "PUT", &format!("kv/lead?acquire={s1}"), "v2").await;
    replay.case("acquire S2 while held", "PUT", &format!("kv/lead?acquire={s2}"), "v3").await;
    replay.case("acquire unknown session", "PUT", &format!("kv/lead?acquire={nobody}"), "v3").await;
    replay.case("acquire malformed session", "PUT", "kv/lead?acquire=x", "v3").await;
    replay.case("get", "GET", "kv/lead", "").await;
    replay.case("get raw", "GET", "kv/lead?raw", "").await;
    replay.case("get missing", "GET", "kv/missing", "").await;
    replay.case("get recurse", "GET", "kv/?recurse", "").await;
    replay.case("get keys", "GET", "kv/?keys", "").await;
    replay.case("plain put over a locked key", "PUT", "kv/lead", "v4").await;
    replay.case("release by wrong session", "PUT", &format!("kv/lead?release={s2}"), "v5").await;
    replay.case("release by S1", "PUT", &format!("kv/lead?release={s1}"), "v5").await;
    replay.case("get after release", "GET", "kv/lead", "").await;
    replay.case("acquire S2 after release (no lock-delay)", "PUT", &format!("kv/lead?acquire={s2}"), "y").await;
    replay.unrecorded("PUT", &format!("kv/lead?release={s2}"), "y").await;
    replay.unrecorded("PUT", &format!("kv/lead?acquire={s1}"), "z").await;
    let blocked = replay.block_on_lead(&consul, 28).await;
    replay.case("session destroy S1 (holder) -> lock-delay", "PUT", &format!("session/destroy/{s1}"), "").await;
    replay.blocked_result(blocked.await.expect("no panic"));
    replay.case("acquire S2 inside lock-delay", "PUT", &format!("kv/lead?acquire={s2}"), "w").await;
    // The server's own clock: an answer that comes when the lock-delay of 2 s is over.
    replay.unrecorded("GET", "kv/lead?index=29&wait=2s", "").await;
    replay.case("acquire S2 after lock-delay", "PUT", &format!("kv/lead?acquire={s2}"), "w").await;
    replay.case("destroy S2 (behavior delete)", "PUT", &format!("session/destroy/{s2}"), "").await;
    replay.case("get (deleted by behavior)", "GET", "kv/lead", "").await;
    replay.case("destroy unknown", "PUT", &format!("session/destroy/{nobody}"), "").await;

    // Keys
    replay.case("cas=0 create", "PUT", "kv/c?cas=0", "1").await;
    replay.case("cas=0 again", "PUT", "kv/c?cas=0", "2").await;
    replay.case("cas ok", "PUT", "kv/c?cas=33", "3").await;
    replay.case("delete cas stale", "DELETE", "kv/c?cas=33", "").await;
    replay.case("delete", "DELETE", "kv/c", "").await;
    replay.case("delete missing", "DELETE", "kv/c", "").await;
    let set_and_see = r#"[{"KV": {"Verb": "set", "Key": "t", "Value": "dGVzdA=="}}, {"KV": {"Verb": "get", "Key": "t"}}]"#;
    replay.case("txn", "PUT", "txn", set_and_see).await;
    replay.case("txn fail", "PUT", "txn", r#"[{"KV": {"Verb": "check-not-exists", "Key": "t"}}]"#).await;
    replay.case("blocking on missing key, wait=1s", "GET", "kv/missing?index=1&wait=1s", "").await;
    replay.case("consistent + stale both", "GET", "kv/t?consistent&stale", "").await;
    replay.case("flags", "PUT", "kv/f?flags=42", "x").await;
    replay.case("get f", "GET", "kv/f", "").await;
    replay.case("kv empty key", "GET", "kv/", "").await;
    replay.sessions("session node", "session/node/testbed").await;
    replay.case("catalog/nodes", "GET", "catalog/nodes", "").await;

    replay.ensure_all_replayed();
}

/// One recorded answer.
struct Recorded {
    status: u16,
    content_type: String,
    headers: BTreeMap<String, String>,
    body: String,
    /// What stands behind the headers.
    more: String,
}

fn recording() -> BTreeMap<&'static str, Recorded> {
    let cases = RECORDING.split("\n### ").skip(1).map(|case| {
        let (title, rest) = case.split_once('\n').expect("a title");
        // An empty body leaves only the line that begins with the arrow.
        let (body, rest) = rest.split_once("\n-> ").expect("an answer");
        let (first, rest) = rest.split_once('\n').unwrap_or((rest, ""));
        let (headers, more) = rest.split_once('\n').unwrap_or((rest, ""));
        let (status, first) = first.split_once(" ct=").expect("a content type");
        let (content_type, _) = first.split_once(" t=").expect("a time");
        let recorded = Recorded {
            status: status.parse().expect("a status"),
            content_type: content_type.to_owned(),
            headers: headers_of(headers),
            body: body.to_owned(),
            more: more.to_owned(),
        };
        (title, recorded)
    });
    cases.collect()
}

/// `X-Consul-A: 1 X-Consul-B: 2`, on one line or on several.
fn headers_of(text: &str) -> BTreeMap<String, String> {
    let text = format!(" {}", text.replace('\n', " "));
    let each = text.split(" X-Consul-").skip(1).map(|it| it.split_once(": ").expect("a header"));
    each.map(|(name, value)| (format!("x-consul-{}", name.to_lowercase()), value.trim().to_owned())).collect()
}

struct Replay {
    address: String,
    recording: BTreeMap<&'static str, Recorded>,
    replayed: BTreeSet<&'static str>,
    names: Names,
}

impl Replay {
    fn new(address: String) -> Self {
        let mut names = Names::default();
        names.pair("\"vm\"", "\"testbed\"");
        Self { address, recording: recording(), replayed: BTreeSet::new(), names }
    }

    async fn unrecorded(&self, method: &str, path: &str, body: &'static str) -> Answer {
        let separator = if path.contains('?') { '&' } else { '?' };
        // The recording is indented.
        ask(&self.address, method, &format!("/v1/{path}{separator}pretty"), &[], Bytes::from(body)).await
    }

    async fn unrecorded_session(&self, body: &'static str) -> String {
        self.unrecorded("PUT", "session/create", body).await.json()["ID"].as_str().expect("an id").to_owned()
    }

    async fn case(&mut self, title: &'static str, method: &str, path: &str, body: &'static str) {
        let answer = self.unrecorded(method, path, body).await;
        let recorded = self.head(title, &answer);
        let recorded = recorded.body.clone();
        self.names.learn_uuids(&recorded, &answer.text());
        assert_eq!(answer.text(), self.names.translate(&recorded), "the body of {title:?}");
    }

    /// A list of sessions is sorted by their random ids: it is compared in the order of their making.
    async fn sessions(&mut self, title: &'static str, path: &str) {
        let answer = self.unrecorded("GET", path, "").await;
        let recorded = self.head(title, &answer).body.clone();
        let by_index = |text: &str| {
            let mut sessions: Vec<Value> = serde_json::from_str(text).expect("sessions");
            assert!(sessions.is_sorted_by_key(|it| it["ID"].as_str().map(str::to_owned)), "{title:?} is sorted by id");
            sessions.sort_by_key(|it| it["CreateIndex"].as_u64());
            serde_json::to_string_pretty(&sessions).expect("text")
        };
        let (recorded, answered) = (by_index(&recorded), by_index(&answer.text()));
        self.names.learn_uuids(&recorded, &answered);
        assert_eq!(answered, self.names.translate(&recorded), "the body of {title:?}");
    }

    /// The recording has only the names of the parts, and the settings.
    async fn agent_self(&mut self) {
        let answer = self.unrecorded("GET", "agent/self", "").await;
        let more =
            self.head("agent/self (keys)", &answer).more.replace("'vm'", "'testbed'").replace('\'', "\"").replace("True", "true");
        let (parts, settings) = more.trim().split_once("] ").expect("a list, then settings");
        let parts: BTreeSet<String> = serde_json::from_str(&format!("{parts}]")).expect("names");
        let body = answer.json();
        assert_eq!(body.as_object().expect("an object").keys().cloned().collect::<BTreeSet<_>>(), parts);
        let mut settings = serde_json::Deserializer::from_str(settings).into_iter::<Value>();
        let recorded = [settings.next().expect("Config").expect("JSON"), settings.next().expect("DebugConfig").expect("JSON")];
        assert_eq!([&body["Config"], &body["DebugConfig"]], [&recorded[0], &recorded[1]]);
    }

    /// Starts a read of `lead` that waits behind `index`, and returns when the server has it.
    async fn block_on_lead(&self, consul: &Consul, index: u64) -> tokio::task::JoinHandle<Answer> {
        let before = consul.requests().beginning("GET /v1/kv/lead");
        let (address, path) = (self.address.clone(), format!("/v1/kv/lead?pretty&index={index}&wait=30s"));
        let blocked = tokio::spawn(async move { ask(&address, "GET", &path, &[], "").await });
        while consul.requests().beginning("GET /v1/kv/lead") == before {
            tokio::task::yield_now().await;
        }
        blocked
    }

    fn blocked_result(&mut self, answer: Answer) {
        let more = &self.recording["session destroy S1 (holder) -> lock-delay"].more;
        let (body, rest) =
            more.split_once("--- blocking query result\n").expect("it").1.split_once("\nblock t=").expect("its time");
        compare_headers("the blocked read", &headers_of(rest), &answer);
        assert_eq!(answer.text(), self.names.translate(body), "the body of the blocked read");
    }

    /// Compares all but the body.
    fn head(&mut self, title: &'static str, answer: &Answer) -> &Recorded {
        let recorded = self.recording.get(title).unwrap_or_else(|| panic!("{title:?} is not in the recording"));
        assert!(self.replayed.insert(title), "{title:?} is replayed once");
        assert_eq!(answer.status.as_u16(), recorded.status, "the status of {title:?}: {answer:?}");
        assert_eq!(answer.header("content-type"), recorded.content_type, "the content type of {title:?}");
        compare_headers(title, &recorded.headers, answer);
        recorded
    }

    #[allow(clippy::print_stdout, reason = "what is out of reach is for people to read")]
    fn ensure_all_replayed(&self) {
        for (title, reason) in OUT_OF_REACH {
            println!("out of reach: {title}: {reason}");
            assert!(self.recording.contains_key(title) && !self.replayed.contains(title), "{title} is out of reach");
        }
        let left: Vec<_> = self
            .recording
            .keys()
            .filter(|it| !self.replayed.contains(*it) && !OUT_OF_REACH.iter().any(|(title, _)| title == *it))
            .collect();
        assert!(left.is_empty(), "recorded and not replayed: {left:?}");
        println!("{} of {} recorded cases reproduced", self.replayed.len(), self.recording.len());
    }
}

/// Every header of the recording, and none of Consul's besides.
fn compare_headers(title: &str, recorded: &BTreeMap<String, String>, answer: &Answer) {
    let of_consul = answer.headers.iter().filter(|(name, _)| name.as_str().starts_with("x-consul-"));
    let answered: BTreeMap<String, String> =
        of_consul.map(|(name, value)| (name.to_string(), value.to_str().expect("text").to_owned())).collect();
    assert_eq!(&answered, recorded, "the headers of {title:?}");
}
