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

/// C31: a node answers its clients and does not reach the other nodes.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_cut_off_from_the_others_is_left_in_less_than_a_second() {
    let town = Town::new();
    town.set_leader("b");
    let wires = Wires::new(&town, &["a", "b", "c"], Bounds::default());
    let options = Options { timeout: Duration::from_secs(60), ..Options::default() };
    let dial: Arc<Wires> = Arc::clone(&wires);
    let client = Client::connect_by(dial, ["a", "b", "c"], options).await.expect("connected");
    client.submit(put("before", "")).await.expect("done");
    assert_eq!(wires.dialled(), ["a", "b"]);
    // A moment without a leader, as when one dies, costs nothing but time.
    for _ in 0..5 {
        town.cut_off(&["a", "b", "c"]);
        let waiting = client.clone();
        let submitted = tokio::spawn(async move { waiting.submit(put("meanwhile", "")).await });
        sleep(Duration::from_millis(200)).await;
        town.cut_off(&[]);
        town.set_mood(Mood::Serve);
        submitted.await.expect("whole").expect("done");
        sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(wires.dialled(), ["a", "b"], "it stayed");
    town.cut_off(&["b"]);
    town.set_leader("c");
    let before = Instant::now();
    client.submit(put("after", "")).await.expect("done");
    assert!(before.elapsed() < Duration::from_millis(500), "{:?}", before.elapsed());
    assert_eq!(wires.dialled()[2..], ["a", "c"]);
    // Who only listens hears of it, too.
    town.cut_off(&["c"]);
    town.set_leader("b");
    sleep(Duration::from_secs(4)).await;
    assert_eq!(wires.dialled().last().map(String::as_str), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn while_nobody_leads_at_all_nodes_are_tried_less_and_less_often() {
    let town = Town::new();
    let wires = Wires::new(&town, &["a", "b"], Bounds::default());
    let client = connect(&wires, &["a", "b"]).await;
    client.submit(put("before", "")).await.expect("done");
    town.cut_off(&["a", "b"]);
    let waiting = client.clone();
    let submitted = tokio::spawn(async move { waiting.submit_within(put("after", ""), Duration::from_secs(90)).await });
    sleep(Duration::from_secs(60)).await;
    let dialled = wires.dialled().len();
    assert!((15..25).contains(&dialled), "{dialled}");
    town.cut_off(&[]);
    town.set_mood(Mood::Serve);
    submitted.await.expect("whole").expect("done");
}
