//! What a session, an election and a key cost in memory, and a copy of them all: measured as the growth of this process, per object.
//!
//! Alone in its file, so that no other test shares the process. The kernel counts pages, so there must be many objects; the allocator's own losses are in it, as they are in production.

mod scene;

use incumbent_store::command::*;
use incumbent_store::keys::transaction::Put;
use scene::{Scene, bid, put};

const MANY: u64 = 40_000;
const MIB: u64 = 1 << 20;

/// What this process has in memory, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|it| it.starts_with("VmRSS:")).expect("a line");
    let kilobytes: u64 = line.split_whitespace().nth(1).and_then(|it| it.parse().ok()).expect("a number");
    kilobytes * 1024
}

#[test]
fn a_million_idle_elections_fit_in_a_gigabyte_and_a_session_in_a_kilobyte() {
    let mut scene = Scene::new();
    // Whatever is kept of events is bounded, and no part of what one more object costs.
    let settle = |scene: &mut Scene| {
        let revision = scene.store.revision();
        drop(scene.ask(Command::Compact(Compact { revision })));
        resident()
    };
    let start = settle(&mut scene);
    for id in 0..MANY {
        let owner = format!("worker-{id:07}");
        let wanted = OpenSession { session: 1_000_000 + id, ttl_ms: 10_000, owner, ..OpenSession::default() };
        scene.open_as(wanted).expect("opened");
    }
    let sessions = settle(&mut scene);
    for id in 0..MANY {
        let identity = format!("worker-{id:07}_0a1b2c3d_12345_0123456789abcdef");
        let value = format!("10.0.{}.{}:8080", id / 256, id % 256).into();
        scene.win(Campaign { value, ..bid(1_000_000 + id, &format!("jobs/shard-{id:07}"), &identity) });
        if id % 1000 == 0 {
            settle(&mut scene);
        }
    }
    let elections = settle(&mut scene);
    for id in 0..MANY {
        let session = 1_000_000 + id;
        scene.ask(Command::Put(Put { session, ..put(&format!("/config/{id:07}"), "some value") })).expect("written");
        if id % 1000 == 0 {
            settle(&mut scene);
        }
    }
    let keys = settle(&mut scene);
    for id in 0..MANY {
        let election = format!("orders/order-{id:07}");
        let token = scene.win(bid(1_000_000, &election, "worker-0000001_0a1b2c3d_12345_0123456789abcdef"));
        scene.resign(&election, token, "").expect("given back");
        if id % 1000 == 0 {
            settle(&mut scene);
        }
    }
    let deserted = settle(&mut scene);
    let copy = scene.store.clone();
    let copied = resident();
    for id in 0..MANY / 100 {
        scene.ask(Command::KeepAlive(KeepAlive { sessions: vec![1_000_000 + id] })).expect("it lives");
        scene.ask(Command::Put(put(&format!("/config/{:07}", id * 100), "other value"))).expect("written");
    }
    let changed = resident();
    assert!(copied <= deserted + MIB, "{} bytes for a copy", copied - deserted);
    assert!(changed <= copied + 16 * MIB, "{} bytes for what is no longer the same", changed - copied);
    assert_ne!(copy.digest(), scene.store.digest());
    let each = |from: u64, to: u64| to.saturating_sub(from) / MANY;
    let (session, election, key) = (each(start, sessions), each(sessions, elections), each(elections, keys));
    let order = each(keys, deserted);
    let text = format!(
        "{session} bytes a session, {election} an election, {key} a key, {order} an election of which only history is left"
    );
    assert!(session <= 500 && election <= 900 && key <= 900 && order <= 700, "{text}");
    assert!(session > 50 && election > 200 && key > 100 && order > 200, "nothing was measured: {text}");
}
