//! Every row of the table is asked on a real node, and its answer is what the served document says.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::routes::ROUTES;
use super::house::{Answer, House};
use super::schema::misfit;

/// A house whose answers are compared with its own document.
struct Checked {
    house: House,
    document: Value,
    /// Method and path of what was asked, and the status of the answer.
    asked: BTreeSet<(String, String, u16)>,
}

impl Checked {
    async fn open() -> Checked {
        let house = House::open().await;
        let document = house.look("/openapi.json").await;
        Checked { house, document, asked: BTreeSet::new() }
    }

    /// Asks what stands in the document under `path`, with `variable` in its place.
    async fn ask(&mut self, method: &str, path: &str, variable: &str, query: &str, body: Option<Value>, status: u16) -> Value {
        let place = |it: &str| {
            it.split_once('{').map(|(before, rest)| (before.to_owned(), rest.split_once('}').expect("closed").1.to_owned()))
        };
        let real = place(path).map_or(path.to_owned(), |(before, behind)| format!("{before}{variable}{behind}"));
        let operation = self.document["paths"][path][method.to_lowercase()].clone();
        assert!(operation.is_object(), "{method} {path} is not in the document");
        if let Some(body) = &body {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            assert_eq!(misfit(&self.document, schema, body, ""), None, "{method} {path}");
        }
        let sent = body.map(|it| it.to_string()).unwrap_or_default();
        let answer = self.house.ask(method, &format!("{real}{query}"), &[], sent.as_bytes()).await;
        assert_eq!(answer.status, status, "{method} {real}: {answer:?}");
        self.compare(&operation, &answer, &format!("{method} {real}"))
    }

    fn compare(&mut self, operation: &Value, answer: &Answer, what: &str) -> Value {
        let id = operation["operationId"].as_str().expect("a name").to_owned();
        self.asked.insert((id, String::new(), answer.status));
        let told = &operation["responses"][answer.status.to_string()];
        let told = if told.is_null() { &operation["responses"]["default"] } else { told };
        let kind = answer.header("content-type").expect("a kind");
        let content = &told["content"][kind];
        assert!(content.is_object(), "{what} gives {kind}, which is not in the document: {told}");
        let Some(schema) = content.get("schema") else { return Value::Null };
        let value = answer.json();
        assert_eq!(misfit(&self.document, schema, &value, ""), None, "{what}");
        value
    }
}

#[tokio::test]
async fn every_route_answers_what_the_document_says() {
    let mut all = Checked::open().await;
    all.ask("GET", "/health", "", "", None, 200).await;
    assert_eq!(all.ask("GET", "/ready", "", "", None, 200).await["ready"], true);
    all.ask("GET", "/openapi.json", "", "", None, 200).await;
    all.ask("GET", "/metrics", "", "", None, 200).await;
    let status = all.ask("GET", "/v1/status", "", "", None, 200).await;
    assert_eq!((&status["leads"], &status["leader"], &status["voters"]), (&json!(true), &json!(1), &json!([1])));
    assert!(all.ask("POST", "/v1/clients", "", "", None, 200).await["client"].is_string());

    elections(&mut all).await;
    sessions(&mut all).await;
    keys(&mut all).await;

    let rows: BTreeSet<String> = ROUTES.iter().map(|it| format!("{:?}", it.deed)).collect();
    let asked: BTreeSet<String> = all.asked.iter().map(|(id, _, _)| id.clone()).collect();
    let streams = BTreeSet::from(["Events".to_owned(), "Watch".to_owned()]);
    assert_eq!(asked, &rows - &streams, "streams have tests of their own");
}

async fn elections(all: &mut Checked) {
    let open = json!({ "ttl_ms": 60_000, "owner": "web", "lock_delay_ms": 0 });
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let opened = all.ask("POST", "/v1/sessions", "", "", Some(open.clone()), 200).await;
        sessions.push(opened["session"].as_str().expect("a session").to_owned());
    }
    let bid = |at: usize| json!({ "session": sessions[at], "identity": format!("web-{at}"), "value": "here", "priority": -1, "seats": 1 });
    let path = |verb: &str| format!("/v1/elections/{{name}}/{verb}");
    // A name with a slash, a percent sign and a letter of two bytes.
    let name = "team%2F100%25%C3%A9";
    let won = all.ask("POST", &path("campaign"), name, "", Some(bid(0)), 200).await;
    assert_eq!(won["won"], true);
    let token = won["token"].clone();
    let line = all.ask("POST", &path("campaign"), name, "?wait=1ms", Some(bid(1)), 202).await;
    assert_eq!((&line["won"], &line["place"], &line["leader"]["token"]), (&json!(false), &json!(1), &token));
    let only = json!({ "session": sessions[1], "identity": "web-9", "only_if_free": true });
    assert_eq!(all.ask("POST", &path("campaign"), name, "", Some(only), 202).await["place"], 0);
    all.ask("POST", &path("proclaim"), name, "", Some(json!({ "token": token, "value_base64": "/w==" })), 200).await;
    let mistyped = json!({ "to": "web-l", "by": "an operator" });
    let refused = all.ask("POST", &path("handover"), name, "", Some(mistyped), 409).await;
    assert_eq!(refused["error"]["code"], "not_in_line");
    let says = refused["error"]["message"].as_str().expect("a sentence");
    assert!(says.contains("\"web-l\"") && says.ends_with("there wait web-1"), "{says}");
    let undisturbed = all.ask("POST", &path("renew"), name, "", Some(json!({ "token": token })), 200).await;
    assert_eq!(undisturbed["wish"], json!(null), "the leader is not asked to go for a name that nobody has");
    let wish = json!({ "to": "web-1", "by": "an operator" });
    all.ask("POST", &path("handover"), name, "", Some(wish), 200).await;
    let renewed = all.ask("POST", &path("renew"), name, "", Some(json!({ "token": token })), 200).await;
    assert_eq!((&renewed["in_office"], &renewed["wish"]["demand"]), (&json!(true), &json!("hand_over")));
    all.ask("POST", &path("evict"), name, "", Some(json!({ "by": "an operator" })), 200).await;
    all.ask("POST", &path("annotate"), name, "", Some(json!({ "token": token, "text": "slow" })), 200).await;
    let job = json!({ "token": token, "job": "2026-11-16", "outcome": "fine" });
    all.ask("POST", &path("complete"), name, "", Some(job.clone()), 200).await;
    all.ask("POST", &path("complete"), name, "", Some(job), 409).await;
    let board = all.ask("GET", "/v1/elections/{name}", name, "", None, 200).await;
    assert_eq!(board["election"], "team/100%é");
    assert_eq!(board["leaders"][0]["value_base64"], "/w==");
    assert_eq!(board["leaders"][0]["wish"]["demand"], "evict");
    assert_eq!((&board["waiting"], &board["candidates"][0]["identity"]), (&json!(1), &json!("web-1")));
    assert_eq!((&board["notes"][0]["text"], &board["completions"][0]["job"]), (&json!("slow"), &json!("2026-11-16")));
    all.ask("POST", &path("withdraw"), name, "", Some(json!({ "identity": "web-1" })), 200).await;
    all.ask("DELETE", "/v1/elections/{name}", name, "", None, 409).await;
    all.ask("POST", &path("resign"), name, "", Some(json!({ "token": token, "reason": "enough" })), 200).await;
    let history = all.ask("GET", &path("history"), name, "?consistency=local", None, 200).await;
    assert_eq!((&history["past"][0]["token"], &history["past"][0]["reason"]), (&token, &json!("enough")));
    let listed = all.ask("GET", "/v1/elections", "", "?prefix=team/&limit=1&consistency=linearizable", None, 200).await;
    assert_eq!((&listed["elections"][0]["election"], &listed["more"]), (&json!("team/100%é"), &json!(false)));
    // Above 2^53, where JavaScript rounds.
    let above = "18014398509481985";
    all.ask("POST", &path("raise"), name, "", Some(json!({ "above": above })), 200).await;
    let token = all.ask("POST", &path("campaign"), name, "", Some(bid(0)), 200).await["token"].clone();
    assert!(token.as_str().and_then(|it| it.parse::<u64>().ok()) > above.parse().ok(), "{token}");
    let forced = json!({ "token": token, "force": true, "by": "an operator" });
    all.ask("POST", &path("evict"), name, "", Some(forced), 200).await;
    let history = all.ask("GET", &path("history"), name, "", None, 200).await;
    assert_eq!((&history["past"][0]["token"], &history["past"][0]["reason"]), (&token, &json!("evicted by force: an operator")));
    all.ask("DELETE", "/v1/elections/{name}", name, "", None, 200).await;
    all.ask("DELETE", "/v1/elections/{name}", name, "", None, 404).await;
}

async fn sessions(all: &mut Checked) {
    let opened =
        all.ask("POST", "/v1/sessions", "", "", Some(json!({ "ttl_ms": 60_000, "session": "9223372036854775808" })), 200).await;
    let session = opened["session"].as_str().expect("a session").to_owned();
    assert_eq!(session, "9223372036854775808");
    all.house.ask("PUT", &format!("/v1/kv/of-session?session={session}"), &[], b"x").await;
    let view = all.ask("GET", "/v1/sessions/{id}", &session, "", None, 200).await;
    assert_eq!((&view["ttl_ms"], &view["keys"]), (&json!(60_000), &json!([{ "key": "of-session" }])));
    all.ask("POST", "/v1/sessions/{id}/keep-alive", &session, "", None, 200).await;
    let first = all.ask("GET", "/v1/sessions", "", "?limit=1", None, 200).await;
    assert_eq!(first["more"], true);
    let after = format!("?after={}", first["sessions"][0]["session"].as_str().expect("a number"));
    let rest = all.ask("GET", "/v1/sessions", "", &after, None, 200).await;
    assert_eq!(rest["sessions"].as_array().map(Vec::len), Some(2));
    let bid = json!({ "session": session, "identity": "web-1" });
    all.ask("POST", "/v1/elections/{name}/campaign", "of-session", "", Some(bid), 200).await;
    all.ask("DELETE", "/v1/sessions/{id}", &session, "?reason=resigned", None, 200).await;
    let history = all.ask("GET", "/v1/elections/{name}/history", "of-session", "", None, 200).await;
    assert_eq!(history["past"][0]["reason"], "session ended: resigned", "only a leadership resigns");
    all.ask("GET", "/v1/sessions/{id}", &session, "", None, 410).await;
    all.ask("POST", "/v1/sessions/{id}/keep-alive", &session, "", None, 410).await;
    assert_eq!(all.house.ask("GET", "/v1/kv/of-session", &[], b"").await.status, 404, "it went with its session");
}

async fn keys(all: &mut Checked) {
    let put = |query: &'static str, value: &'static [u8]| (query, value);
    let document = all.document.clone();
    let written = &document["paths"]["/v1/kv/{key}"]["put"];
    for (query, value) in [put("", b"one"), put("?if-version=1&previous", b"two"), put("?if-version=2", b"\xff\0")] {
        let answer = all.house.ask("PUT", &format!("/v1/kv/config/a%2Fb//%FF{query}"), &[], value).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let told = all.compare(written, &answer, "PUT");
        assert_eq!(told.get("previous").is_some(), query.contains("previous"), "{told}");
    }
    let refused = all.house.ask("PUT", "/v1/kv/config/a%2Fb//%FF?if-absent", &[], b"three").await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "guard_failed"));
    let told = all.compare(written, &refused, "PUT");
    assert_eq!((&told["error"]["found"]["version"], &told["error"]["found"]["value_base64"]), (&json!(3), &json!("/wA=")));
    let found = all.ask("GET", "/v1/kv/{key}", "config/a/b//%ff", "", None, 200).await;
    assert_eq!((&found["item"]["key_base64"], &found["item"]["version"]), (&json!("Y29uZmlnL2EvYi8v/w=="), &json!(3)));
    let created = found["item"]["created"].as_u64().expect("a revision");
    let before = all.ask("GET", "/v1/kv/{key}", "config/a/b//%ff", &format!("?revision={created}"), None, 200).await;
    assert_eq!(before["item"]["value"], "one", "as it was");
    let raw = all.house.ask("GET", "/v1/kv/config/a/b//%ff?raw", &[], b"").await;
    assert_eq!((raw.status, &raw.body[..], raw.header("incumbent-modified").is_some()), (200, &b"\xff\0"[..], true));
    all.compare(&document["paths"]["/v1/kv/{key}"]["get"], &raw, "GET raw");
    for key in ["list/a", "list/b", "list/c"] {
        all.house.ask("PUT", &format!("/v1/kv/{key}"), &[], b"v").await;
    }
    let page = all.ask("GET", "/v1/kv", "", "?prefix=list/&limit=2&count&keys-only", None, 200).await;
    assert_eq!((&page["count"], &page["more"], page["items"][0].get("value")), (&json!(3), &json!(true), None));
    let rest = all.ask("GET", "/v1/kv", "", "?prefix=list/&after=list/b&consistency=local", None, 200).await;
    assert_eq!((&rest["items"][0]["key"], &rest["more"]), (&json!("list/c"), &json!(false)));
    assert_eq!(all.ask("GET", "/v1/kv", "", "", None, 200).await["items"].as_array().map(Vec::len), Some(4));
    all.ask("GET", "/v1/kv/{key}", "list/d", "", None, 404).await;
    let transaction = json!({
        "guards": [{ "key": "list/a", "exists": true }, { "key": "list/z", "version": 0 }],
        "then": [
            { "put": { "key": "list/a", "value": "w", "previous": true } },
            { "read": { "prefix": "list/", "limit": 1, "counts": true } },
            { "delete": { "key": "list/b", "previous": true } },
            { "transact": { "guards": [{ "key": "list/b", "exists": false }], "then": [{ "put": { "key": "list/z" } }] } },
        ],
        "otherwise": [{ "abort": 7 }],
    });
    let done = all.ask("POST", "/v1/txn", "", "", Some(transaction.clone()), 200).await;
    assert_eq!((&done["held"], &done["results"][0]["written"]["previous"]["value"]), (&json!(true), &json!("v")));
    assert_eq!((&done["results"][1]["read"]["count"], &done["results"][3]["transacted"]["held"]), (&json!(3), &json!(true)));
    assert_eq!(all.ask("POST", "/v1/txn", "", "", Some(transaction), 409).await["error"]["code"], "aborted");
    let gone = all.ask("DELETE", "/v1/kv/{key}", "list/a", "?if-version=2&previous", None, 200).await;
    assert_eq!((&gone["count"], &gone["previous"][0]["value"]), (&json!(1), &json!("w")));
    assert_eq!(all.ask("DELETE", "/v1/kv/{key}", "list/a", "", None, 200).await["count"], 0);
    all.ask("POST", "/v1/compact", "", "", Some(json!({ "revision": created })), 200).await;
    all.ask("GET", "/v1/kv/{key}", "config/a/b//%ff", &format!("?revision={created}"), None, 200).await;
    all.ask("POST", "/v1/compact", "", "", Some(json!({ "revision": 1_000_000 })), 409).await;
}

/// What was not written down cannot be asked, and what was is: the document is the table, and both are whole.
#[tokio::test]
async fn the_document_has_a_shape_for_every_body_and_answer() {
    let house = House::open().await;
    let document = house.look("/openapi.json").await;
    assert_eq!(document["openapi"], "3.1.0");
    let mut operations = 0;
    for (path, rows) in document["paths"].as_object().expect("paths") {
        for (method, operation) in rows.as_object().expect("rows") {
            operations += 1;
            let responses = operation["responses"].as_object().expect("responses");
            assert!(responses.contains_key("default") && responses.len() > 1, "{method} {path}");
            for (status, response) in responses {
                for (kind, content) in response["content"].as_object().expect("contents") {
                    let needs_schema = ["application/json", "text/event-stream"].contains(&kind.as_str());
                    assert_eq!(content["schema"].is_object(), needs_schema, "{method} {path} {status} {kind}");
                }
            }
            if let Some(body) = operation["requestBody"]["content"].get("application/json") {
                assert!(body["schema"].is_object(), "{method} {path}");
            }
            let in_path = path.contains('{');
            let names = operation["parameters"].as_array().expect("parameters").iter().filter(|it| it["in"] == "path").count();
            assert_eq!(names, usize::from(in_path), "{method} {path}");
        }
    }
    assert_eq!(operations, ROUTES.len());
}
