//! A client goes to the node that leads, and not after one that cannot be reached.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_idle_client_follows_the_lead_and_does_not_run_after_one_that_cannot_be_reached() {
    let town = Town::new();
    town.set_leader("a");
    let wires = Wires::new(&town, &["a", "b", "c"], Bounds::default());
    let client = connect(&wires, &["a", "b"]).await;
    let bound = OpenSession { ends_with_connection: true, ..session(600_000) };
    let _bound = client.open_session(bound).await.expect("opened");
    let mut watch = client.watch(Interest::EVERYTHING, 1);
    town.set_leader("b");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(wires.dialled(), ["a", "b"]);
    wires.down(&["c"]);
    town.set_leader("c");
    sleep(Duration::from_secs(60)).await;
    let dialled = wires.dialled();
    assert_eq!(dialled[..3], ["a", "b", "c"]);
    assert!(dialled.len() <= 5, "{dialled:?}");
    assert!(town.happened().lost.is_empty(), "whoever leaves says goodbye");
    client.submit(put("a", "")).await.expect("done");
    assert_eq!(watch.next().await.expect("goes on").events.len(), 1);
}

/// The others have not noticed yet that the leader is silent: whoever has does not go back to it, and does when it leads again.
#[tokio::test(start_paused = true)]
async fn a_client_does_not_go_back_to_a_leader_that_fell_silent_until_that_is_over() {
    // It says besides that it leads, and its address.
    let greeting = greeting_len().await + 5;
    let town = Town::new();
    town.set_leader("a");
    let wires = Wires::new(&town, &["a", "b"], Bounds::default());
    wires.fate([Fate::HangsAfterReply(greeting)]);
    let client = connect(&wires, &["a", "b"]).await;
    client.submit(put("x", "")).await.expect("done by the other");
    assert_eq!(wires.dialled(), ["a", "b"]);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(wires.dialled(), ["a", "b", "a"]);
}

/// Nobody leads yet when it connects: it goes to the leader soon after there is one.
#[tokio::test(start_paused = true)]
async fn a_client_that_came_before_there_was_a_leader_goes_to_it_at_once() {
    let town = Town::new();
    let wires = Wires::new(&town, &["a", "b"], Bounds::default());
    let client = connect(&wires, &["a", "b"]).await;
    town.set_leader("b");
    sleep(Duration::from_millis(250)).await;
    assert_eq!(wires.dialled(), ["a", "b"]);
    client.submit(put("x", "")).await.expect("done");
}
