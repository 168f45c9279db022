//! Streams: from any revision, whole, without a hole or a repetition, across reconnections and deaths.

use std::sync::Arc;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::{Desk, Everybody, serve_http};
use super::house::{Heard, House, LONG, Street};
use super::schema::misfit;

#[tokio::test]
async fn a_stream_tells_all_of_an_election_in_the_shape_of_the_document_and_is_resumed() {
    let house = House::open().await;
    let document = house.look("/openapi.json").await;
    let mut events = house.listen("/v1/elections/a%2Fb/events", "").await;
    let begun = events.block().await.expect("a beginning");
    assert!(begun.contains("retry: ") && begun.contains("id: "), "{begun}");
    let (one, two) = (house.session(60_000).await, house.session(60_000).await);
    let path = |verb: &str| format!("/v1/elections/a%2Fb/{verb}");
    let won = house.done(&path("campaign"), json!({ "session": one, "identity": "x" })).await;
    house.post(&path("campaign"), json!({ "session": two, "identity": "y" })).await;
    house.done(&path("proclaim"), json!({ "token": won["token"], "value": "v" })).await;
    house.done(&path("evict"), json!({})).await;
    house.done(&path("annotate"), json!({ "token": won["token"], "text": "n" })).await;
    house.done(&path("complete"), json!({ "token": won["token"], "job": "j" })).await;
    house.done("/v1/elections/other/raise", json!({ "above": "1" })).await;
    // Ends and elects, at one revision or two.
    house.done(&path("resign"), json!({ "token": won["token"] })).await;
    let schema =
        &document["paths"]["/v1/elections/{name}/events"]["get"]["responses"]["200"]["content"]["text/event-stream"]["schema"];
    let mut all = Vec::new();
    while all.iter().filter(|it: &&Heard| it.name == "elected").count() < 2 {
        let heard = events.next().await.expect("an event");
        assert_eq!(misfit(&document, schema, &heard.told, ""), None);
        assert_eq!((&heard.told["type"], &heard.told["election"]), (&json!(heard.name), &json!("a/b")));
        all.push(heard);
    }
    let names: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
    for name in ["elected", "joined", "proclaimed", "wished", "noted", "completed", "ended"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    // From wherever it broke: the rest, each once.
    for (place, heard) in all.iter().enumerate() {
        let Some(id) = heard.id else { continue };
        let mut again = house.listen(&path("events?from=999"), &format!("last-event-id: {id}\r\n")).await;
        for expected in &all[place + 1..] {
            let heard = again.next().await.expect("the rest");
            assert_eq!(heard.told, expected.told, "after {id}");
        }
    }
    // What belongs to one revision has one id, on its last event.
    for pair in all.windows(2) {
        assert_eq!(pair[0].id.is_none(), pair[0].told["revision"] == pair[1].told["revision"], "{pair:?}");
    }
}

#[tokio::test]
async fn keys_are_watched_by_prefix_and_one_by_one() {
    let house = House::open().await;
    let mut under = house.listen("/v1/watch?prefix=a/", "").await;
    let mut one = house.listen("/v1/watch?key=a/%FF", "").await;
    let mut everything = house.listen("/v1/watch", "").await;
    for listener in [&mut under, &mut one, &mut everything] {
        listener.block().await.expect("a beginning");
    }
    for key in ["a/b", "a/%ff", "b"] {
        house.ask("PUT", &format!("/v1/kv/{key}"), &[], b"v").await;
    }
    let session = house.session(60_000).await;
    house.ask("DELETE", "/v1/kv/a/b", &[], b"").await;
    house.ask("PUT", &format!("/v1/kv/a/c?session={session}"), &[], b"v").await;
    house.ask("DELETE", &format!("/v1/sessions/{session}"), &[], b"").await;
    assert_eq!(under.names(5).await, ["put", "put", "deleted", "put", "deleted"]);
    assert_eq!(one.next().await.expect("an event").told["item"]["key_base64"], "YS//");
    assert_eq!(everything.names(6).await.len(), 6);
    // One transaction is one revision: an id stands on its last event.
    let both = json!({ "then": [{ "put": { "key": "a/1" } }, { "put": { "key": "a/2" } }] });
    house.done("/v1/txn", both).await;
    let (first, second) = (under.next().await.expect("an event"), under.next().await.expect("an event"));
    assert_eq!((first.id, second.id), (None, second.told["revision"].as_u64()));
    assert_eq!(first.told["revision"], second.told["revision"]);
}

/// What is not kept any more is said, with where to go on; whoever does so misses nothing from there.
#[tokio::test]
async fn who_comes_too_late_is_told_and_can_go_on() {
    let house = House::open().await;
    for value in ["1", "2", "3"] {
        house.ask("PUT", "/v1/kv/a", &[], value.as_bytes()).await;
    }
    let revision = house.look("/v1/kv/a").await["revision"].as_u64().expect("a revision");
    house.done("/v1/compact", json!({ "revision": revision })).await;
    let mut late = house.listen("/v1/watch?from=1", "").await;
    let told = late.next().await.expect("the last word");
    assert_eq!((told.name.as_str(), &told.told["error"]["code"]), ("lagged", &json!("compacted")));
    assert!(told.told["error"]["what_to_do"].as_str().is_some_and(|it| it.contains("read")));
    assert_eq!(late.next().await, None, "it has ended");
    house.ask("PUT", "/v1/kv/a", &[], b"4").await;
    // As a browser does by itself: the same address, and the last id.
    let id = told.id.expect("where to go on");
    let mut again = house.listen("/v1/watch?from=1", &format!("last-event-id: {id}\r\n")).await;
    assert_eq!(again.next().await.expect("an event").told["item"]["value"], "4");
}

/// Without anything to tell, both sides still notice that the other is gone.
#[tokio::test]
async fn a_silent_stream_gives_signs_of_life() {
    let house = House::open().await;
    let desk = Desk::of(house.node.handle());
    let (mut near, far) = tokio::io::duplex(1 << 16);
    let begun = b"GET /v1/watch HTTP".to_vec();
    near.write_all(b"/1.0\r\n\r\n").await.expect("sent");
    tokio::spawn(serve_http(far, begun, desk, Arc::new(Everybody)));
    let mut told = String::new();
    let mut listen = async |until: &str| {
        while !told.contains(until) {
            let mut some = [0; 1024];
            let len = near.read(&mut some).await.expect("told");
            assert!(len > 0, "{told}");
            told.push_str(std::str::from_utf8(&some[..len]).expect("text"));
        }
    };
    tokio::time::timeout(LONG, listen("from revision")).await.expect("a beginning");
    tokio::time::pause();
    listen(": alive").await;
    tokio::time::resume();
}

/// A leader dies: who listens to another node hears everything, once; who listened to the dead one goes on with any other from where it was.
#[tokio::test]
async fn a_change_of_leaders_is_no_hole_in_any_stream() {
    let mut street = Street::open().await;
    let leader = street.leader().await;
    let (near, far) = ((leader + 1) % 3, (leader + 2) % 3);
    let mut listeners = Vec::new();
    for at in [leader, near, far] {
        let mut listener = street.ports[at].listen("/v1/watch?from=1", "").await;
        listener.block().await.expect("a beginning");
        listeners.push(listener);
    }
    let put = async |at: usize, street: &Street, number: u64| {
        let answer = street.ports[at].ask("PUT", &format!("/v1/kv/{number:02}"), &[], b"v").await;
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    for number in 0..5 {
        put(usize::try_from(number).expect("small") % 3, &street, number).await;
    }
    let mut heard: Vec<Vec<Heard>> = Vec::new();
    for listener in &mut listeners {
        let mut some = Vec::new();
        for _ in 0..5 {
            some.push(listener.next().await.expect("an event"));
        }
        heard.push(some);
    }
    street.nodes[leader] = None;
    let last = loop {
        // Whatever the last word is, the stream ends.
        match listeners[0].next().await {
            Some(word) => assert_eq!(word.name, "closing"),
            None => break heard[0].last().and_then(|it| it.id).expect("an id"),
        }
    };
    for number in 5..10 {
        put(if number % 2 == 0 { near } else { far }, &street, number).await;
    }
    listeners[0] = street.ports[near].listen("/v1/watch?from=1", &format!("last-event-id: {last}\r\n")).await;
    for (listener, heard) in listeners.iter_mut().zip(&mut heard) {
        while heard.len() < 10 {
            heard.push(listener.next().await.expect("an event"));
        }
        let keys: Vec<&str> = heard.iter().filter_map(|it| it.told["item"]["key"].as_str()).collect();
        assert_eq!(keys, ["00", "01", "02", "03", "04", "05", "06", "07", "08", "09"]);
    }
    assert_ne!(street.leader().await, leader);
}
