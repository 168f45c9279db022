//! Nodes of the service on real sockets, disks and clocks: what users see of starts, ends, deaths and returns.

#[path = "server/cluster.rs"]
mod cluster;

use std::time::{Duration, Instant};

use cluster::{Cluster, LONG, done, id, key, keys, open, opened, patient, put, soon, value};
use incumbent_client::client::{Client, Options};
use incumbent_client::message;
use incumbent_peer::switchboard::Peer;
use incumbent_protocol::protocol::NodeId;
use incumbent_service::replica::{Settings, Step};
use incumbent_service::server::{Beginning, Config, Consistency, End, Node, Outcome, Unanswered, Unchanged, WatchEnd, Why};
use incumbent_store::command::{Campaign, Command, Introduce, KeepAlive, Request};
use incumbent_store::keys::item::Span;
use incumbent_store::query::{AskStatus, Query};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::Reply;
use incumbent_store::watch::{Interest, Topic};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

#[tokio::test]
async fn a_node_alone_serves_at_once_and_remembers_after_a_death_and_after_a_close() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = Config::alone(directory.path());
    let node = Node::start(config.clone()).expect("starts");
    let handle = node.handle();
    let first = done(handle.submit(put("a", "1")).await);
    assert_eq!(value(&handle, "a").await.as_deref(), Some("1"));
    drop(node);
    let node = Node::start(config.clone()).expect("starts again");
    let handle = node.handle();
    assert_eq!(value(&handle, "a").await.as_deref(), Some("1"));
    let second = done(handle.submit(put("a", "2")).await);
    assert!(second > first);
    node.close().await;
    let node = Node::start(config).expect("starts a third time");
    assert_eq!(value(&node.handle(), "a").await.as_deref(), Some("2"));
    assert_eq!(key(&node.handle(), "b").await, None);
    let too_long = node.handle().submit(put("long", &"x".repeat(2 << 20))).await;
    assert!(matches!(too_long, Outcome::Refused(Refusal::Limit { .. })), "{too_long:?}");
}

#[tokio::test]
async fn three_nodes_elect_one_and_each_of_them_serves() {
    let cluster = Cluster::start(patient());
    cluster.leader().await;
    for at in 0..3 {
        let name = format!("key-{at}");
        done(cluster.handle(at).submit(put(&name, "here")).await);
        for reader in 0..3 {
            assert_eq!(value(&cluster.handle(reader), &name).await.as_deref(), Some("here"), "written on {at}, read on {reader}");
        }
    }
    // C76: a request that is repeated, on whichever node, is applied once.
    let introduce = cluster.handle(0).submit(Request::of(Command::Introduce(Introduce {}))).await;
    let Outcome::Done { reply: Reply::Introduced(client), .. } = introduce else { panic!("{introduce:?}") };
    let request = Request { client, sequence: 1, ..put("once", "1") };
    let first = cluster.handle(0).submit(request.clone()).await;
    done(cluster.handle(1).submit(put("once", "2")).await);
    for at in 0..3 {
        let again = cluster.handle(at).submit(request.clone()).await;
        let (Outcome::Done { reply: first, .. }, Outcome::Done { reply, .. }) = (&first, &again) else { panic!("{again:?}") };
        assert_eq!(reply, first);
    }
    assert_eq!(value(&cluster.handle(2), "once").await.as_deref(), Some("2"));
    cluster.equal().await;
}

#[tokio::test]
async fn a_node_without_a_majority_says_so_and_answers_what_it_knows() {
    let mut cluster = Cluster::start(Settings { patience: Duration::from_millis(500), ..patient() });
    let left = cluster.leader().await;
    done(cluster.handle(left).submit(put("a", "1")).await);
    assert_eq!(cluster.status(left).await.why, "this node was elected");
    cluster.kill((left + 1) % 3);
    cluster.kill((left + 2) % 3);
    let handle = cluster.handle(left);
    let first = timeout(LONG, handle.submit(put("a", "2"))).await.expect("in time");
    assert!(matches!(first, Outcome::Unknown | Outcome::NotNow(_)), "{first:?}");
    handle.role().wait_for(|it| !it.leads).await.expect("runs");
    let why = cluster.status(left).await.why;
    assert!(why.contains("a majority was not heard") || why.contains("stands"), "{why}");
    let second = timeout(LONG, handle.submit(put("a", "3"))).await.expect("in time");
    assert!(matches!(&second, Outcome::NotNow(it) if it.why == Why::NoLeader), "{second:?}");
    let status = || Query::Status(AskStatus {});
    let new = timeout(LONG, handle.ask(status(), Consistency::Linearizable)).await.expect("in time");
    assert!(matches!(&new, Err(Unanswered::NotNow(_))), "{new:?}");
    assert!(handle.ask(status(), Consistency::Local).await.is_ok());
    cluster.revive((left + 1) % 3);
    done(
        soon("a majority", || async { Some(handle.submit(put("a", "4")).await).filter(|it| matches!(it, Outcome::Done { .. })) })
            .await,
    );
    assert_ne!(value(&handle, "a").await.as_deref(), Some("3"), "it was said not to have happened");
}

/// A fourth node comes, learns by a snapshot, votes, and one of the founders goes.
#[tokio::test]
async fn members_come_and_go() {
    let settings = Settings { snapshot_entries: 20, entries_kept: 2, ..patient() };
    let mut cluster = Cluster::start(settings);
    let leader = cluster.leader().await;
    for number in 0..50 {
        done(cluster.handle(leader).submit(put(&format!("key-{number}"), "")).await);
    }
    let port = incumbent_testbed::port::Port::free().expect("a port");
    let directory = tempfile::tempdir().expect("a directory");
    let mut peers: Vec<Peer> = cluster.config(0).peers;
    peers.push(Peer { id: id(0), address: cluster.config(0).listen });
    let config = Config {
        me: NodeId(4),
        listen: format!("127.0.0.1:{}", port.number()),
        peers: peers.clone(),
        beginning: Beginning::Joins,
        directory: directory.path().to_owned(),
        ..cluster.config(0)
    };
    let fourth = Node::start(config.clone()).expect("starts");
    peers.push(Peer { id: NodeId(4), address: config.listen.clone() });
    for at in 0..3 {
        cluster.handle(at).set_peers(peers.clone()).await;
    }
    let handle = cluster.handle(leader);
    let voter = handle.change(vec![Step::Voter(NodeId(4))]).await;
    assert!(matches!(voter, Err(Unchanged::Refused(_))), "it must learn first: {voter:?}");
    let elsewhere = cluster.handle((leader + 1) % 3).change(vec![Step::Learner(NodeId(4))]).await;
    assert!(matches!(&elsewhere, Err(Unchanged::NotNow(it)) if it.leader == Some(id(leader))), "{elsewhere:?}");
    assert!(handle.change(vec![Step::Learner(NodeId(4))]).await.expect("changed").learners().contains(&NodeId(4)));
    let roll = soon("it has learnt", || async { handle.change(vec![Step::Voter(NodeId(4))]).await.ok() }).await;
    assert!(roll.voters().contains(&NodeId(4)));
    let gone = (leader + 1) % 3;
    soon("one goes", || async { handle.change(vec![Step::Remove(id(gone))]).await.ok() }).await;
    cluster.kill(gone);
    // Three are left, and with one of them away it takes the new one.
    cluster.kill((leader + 2) % 3);
    done(handle.submit(put("after", "all")).await);
    assert_eq!(value(&fourth.handle(), "after").await.as_deref(), Some("all"));
    drop(fourth);
    let fourth = Node::start(config).expect("starts again");
    assert_eq!(value(&fourth.handle(), "after").await.as_deref(), Some("all"));
}

#[tokio::test]
async fn a_leader_that_dies_is_replaced_and_comes_back_with_all_it_knew() {
    let mut cluster = Cluster::start(patient());
    let leader = cluster.leader().await;
    let other = (leader + 1) % 3;
    done(cluster.handle(leader).submit(put("before", "1")).await);
    cluster.kill(leader);
    // Not repeated: it waits until somebody leads.
    done(cluster.handle(other).submit(put("between", "2")).await);
    assert_ne!(cluster.leader().await, leader);
    cluster.revive(leader);
    assert_eq!(value(&cluster.handle(leader), "between").await.as_deref(), Some("2"));
    assert_eq!(value(&cluster.handle(leader), "before").await.as_deref(), Some("1"));
    cluster.equal().await;
}

/// C06.
#[tokio::test]
async fn all_nodes_die_and_what_was_confirmed_is_there_in_whatever_order_they_return() {
    let mut cluster = Cluster::start(patient());
    let mut last = 0;
    for (round, order) in [[0, 1, 2], [2, 0, 1], [1, 2, 0]].into_iter().enumerate() {
        for number in 0..20 {
            let outcome = cluster.handle(number % 3).submit(put(&format!("{round}-{number}"), "kept")).await;
            last = done(outcome).max(last);
        }
        for at in order {
            cluster.kill(at);
        }
        for at in order {
            cluster.revive(at);
        }
        let handle = cluster.handle(order[2]);
        for number in 0..20 {
            assert_eq!(value(&handle, &format!("{round}-{number}")).await.as_deref(), Some("kept"), "{round}-{number}");
        }
    }
    assert!(done(cluster.handle(0).submit(put("last", "")).await) > last);
    cluster.equal().await;
}

/// L3: whoever keeps a session alive keeps it, through the deaths of leaders; whoever stops loses it, not before its time is over.
#[tokio::test]
async fn sessions_end_when_nobody_keeps_them_and_never_early() {
    const TTL: Duration = Duration::from_millis(1_500);
    let mut cluster = Cluster::start(patient());
    let leader = cluster.leader().await;
    let other = cluster.handle((leader + 1) % 3);
    let ttl_ms = u64::try_from(TTL.as_millis()).expect("short");
    let session = opened(other.submit(open(ttl_ms)).await);
    let silent = opened(other.submit(open(ttl_ms)).await);
    let mut ends = other.watch(Interest::of(Topic::Session(session)), 0).await.expect("runs");
    let mut silent_ends = other.watch(Interest::of(Topic::Session(silent)), 0).await.expect("runs");
    let began = Instant::now();
    cluster.kill(leader);
    let mut last_sent = began;
    while began.elapsed() < TTL * 2 {
        let sent = Instant::now();
        let outcome = other.submit(Request::of(Command::KeepAlive(KeepAlive { sessions: vec![session] }))).await;
        let Outcome::Done { reply: Reply::KeptAlive(kept), .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(kept.gone, Vec::<u64>::new(), "it was kept alive all the time");
        last_sent = sent;
    }
    let ended = timeout(LONG, silent_ends.next()).await.expect("in time").expect("an event");
    assert_eq!(ended.events.len(), 1);
    assert!(began.elapsed() >= TTL);
    timeout(LONG, ends.next()).await.expect("in time").expect("an event");
    assert!(last_sent.elapsed() >= TTL, "after {:?}", last_sent.elapsed());
    let outcome = other.submit(Request::of(Command::KeepAlive(KeepAlive { sessions: vec![session, silent] }))).await;
    let Outcome::Done { reply: Reply::KeptAlive(kept), .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(kept.gone, vec![session, silent]);
}

/// Every event once, in order, though the node that told them has died.
#[tokio::test]
async fn a_watch_is_resumed_on_another_node() {
    let mut cluster = Cluster::start(patient());
    let leader = cluster.leader().await;
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    let all = Interest::of(Topic::Keys(Span::prefix("watched-")));
    let mut watch = cluster.handle(leader).watch(all.clone(), 0).await.expect("runs");
    let mut seen = Vec::new();
    let mut resume = 0;
    for number in 0..10 {
        done(cluster.handle(others[0]).submit(put(&format!("watched-{number}"), "")).await);
        done(cluster.handle(others[0]).submit(put("other", "")).await);
    }
    while seen.len() < 5 {
        let batch = timeout(LONG, watch.next()).await.expect("in time").expect("events");
        seen.extend(keys(&batch));
        resume = batch.revision + 1;
    }
    cluster.kill(leader);
    while let Ok(batch) = watch.next().await {
        seen.extend(keys(&batch));
        resume = batch.revision + 1;
    }
    assert_eq!(watch.next().await, Err(WatchEnd::NodeEnded));
    let mut watch = cluster.handle(others[1]).watch(all, resume).await.expect("runs");
    for number in 10..20 {
        done(cluster.handle(others[1]).submit(put(&format!("watched-{number}"), "")).await);
    }
    while seen.len() < 20 {
        seen.extend(keys(&timeout(LONG, watch.next()).await.expect("in time").expect("events")));
    }
    assert_eq!(seen, (0..20).map(|it| format!("watched-{it}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_node_that_was_away_catches_up_by_a_snapshot() {
    let settings = Settings { snapshot_entries: 40, entries_kept: 5, ..patient() };
    let mut cluster = Cluster::start(settings);
    let leader = cluster.leader().await;
    let away = (leader + 1) % 3;
    let long = "x".repeat(100_000);
    done(cluster.handle(leader).submit(put("long", &long)).await);
    cluster.equal().await;
    let had = cluster.status(away).await.last;
    cluster.kill(away);
    for number in 0..150 {
        done(cluster.handle(leader).submit(put(&format!("key-{number}"), &long)).await);
    }
    let handle = cluster.handle(leader);
    soon("a log that begins behind what the other has", || async {
        handle.status().await.filter(|it| it.first > had + 1 && it.snapshot > had)
    })
    .await;
    // Its own log and snapshot make the same state again.
    let before = handle.digest().await.expect("runs");
    cluster.kill(leader);
    cluster.revive(leader);
    cluster.revive(away);
    let handle = cluster.handle(leader);
    soon("the same state", || async { handle.digest().await.filter(|it| it.0 >= before.0) }).await;
    cluster.equal().await;
    let status = cluster.status(away).await;
    assert!(status.snapshot > had, "{status:?}");
    // What came that way is on its own disk too.
    cluster.kill(away);
    cluster.revive(away);
    cluster.equal().await;
    assert_eq!(value(&cluster.handle(away), "key-149").await, Some(long));
}

/// C02.
#[tokio::test]
async fn a_leader_that_closes_hands_over_and_no_request_fails() {
    let mut cluster = Cluster::start(patient());
    for round in 0..3 {
        let leader = cluster.leader().await;
        let others = [cluster.handle((leader + 1) % 3), cluster.handle((leader + 2) % 3)];
        let (closed, is_closed) = tokio::sync::watch::channel(false);
        let writers = others.map(|handle| {
            let is_closed = is_closed.clone();
            tokio::spawn(async move {
                let mut count = 0;
                while !*is_closed.borrow() || count < 10 {
                    done(handle.submit(put(&format!("{round}-{count}"), "")).await);
                    count += 1;
                }
            })
        });
        let own = cluster.handle(leader).submit(put("own", "")).await;
        done(own);
        let node = cluster.nodes[leader].take().expect("runs");
        assert_eq!(timeout(LONG, node.close()).await.expect("in time"), End::Closed);
        closed.send_replace(true);
        for writer in writers {
            timeout(LONG, writer).await.expect("in time").expect("no request failed");
        }
        assert_ne!(cluster.leader().await, leader);
        cluster.revive(leader);
    }
    cluster.equal().await;
}

#[tokio::test]
async fn what_is_asked_over_the_stream_is_counted_beside_what_is_asked_by_http() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = Config { clients: Some("127.0.0.1:0".to_owned()), ..Config::alone(directory.path()) };
    let node = Node::start(config).expect("starts");
    let address = node.clients_address().expect("it serves clients");
    let client = Client::connect([address.to_string()], Options::default()).await.expect("connected");
    for _ in 0..2 {
        let put = put("a", "1").command.expect("a command");
        client.submit(put).await.expect("done");
    }
    let gone = Campaign { session: 99, election: "e".to_owned(), identity: "a".to_owned(), ..Campaign::default() };
    client.submit(Command::Campaign(gone)).await.expect_err("its session is gone");
    client.ask(Query::Status(AskStatus {}), message::Consistency::Local).await.expect("answered");
    client.watch(Interest::EVERYTHING, 1).next().await.expect("told");
    let mut stream = TcpStream::connect(address).await.expect("connected");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.expect("sent");
    let mut told = String::new();
    timeout(LONG, stream.read_to_string(&mut told)).await.expect("in time").expect("read");
    for (method, route, status, count) in [
        ("command", "introduce", "done", 1),
        ("command", "put", "done", 2),
        ("command", "campaign", "refused", 1),
        ("question", "status", "done", 1),
        ("watch", "watch", "done", 1),
    ] {
        let labels = format!("protocol=\"stream\",method=\"{method}\",route=\"{route}\",status=\"{status}\"");
        let line = format!("incumbent_service_requests_total{{{labels}}} {count}\n");
        assert!(told.contains(&line), "{line} is not in {told}");
    }
}

/// Whoever has connected before the end gets an answer, and one that says whether it was done.
#[tokio::test]
async fn a_node_that_closes_answers_everybody_who_asked_by_http() {
    let directory = tempfile::tempdir().expect("a directory");
    for round in 0..5 {
        let config = Config { clients: Some("127.0.0.1:0".to_owned()), ..Config::alone(directory.path()) };
        let node = Node::start(config).expect("starts");
        done(node.handle().submit(put("a", "1")).await);
        let address = node.clients_address().expect("it serves clients");
        let mut asked = Vec::new();
        for number in 0..20 {
            let mut stream = TcpStream::connect(address).await.expect("connected");
            let request = format!("PUT /v1/kv/key-{number} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx");
            stream.write_all(request.as_bytes()).await.expect("sent");
            asked.push(stream);
        }
        let answered = tokio::spawn(async move {
            let mut answers = Vec::new();
            for mut stream in asked {
                let mut answer = String::new();
                let read = timeout(LONG, stream.read_to_string(&mut answer)).await.expect("in time");
                answers.push(read.map(|_| answer));
            }
            answers
        });
        assert_eq!(node.close().await, End::Closed);
        for answer in answered.await.expect("no panic") {
            let status = answer.as_ref().ok().and_then(|it| it.split(' ').nth(1));
            assert!(matches!(status, Some("200" | "503")), "round {round}: {answer:?}");
        }
    }
}

/// Who waits in line for its turn has come into it: whatever the node cannot say any more, that was done.
#[tokio::test]
async fn a_node_that_closes_tells_nobody_in_line_that_it_is_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = Config { clients: Some("127.0.0.1:0".to_owned()), ..Config::alone(directory.path()) };
    let node = Node::start(config).expect("starts");
    let handle = node.handle();
    let session = opened(handle.submit(open(60_000)).await);
    let leads = Campaign { session, election: "e".to_owned(), identity: "a".to_owned(), ..Campaign::default() };
    done(handle.submit(Request::of(Command::Campaign(leads))).await);
    let body = format!("{{\"session\":\"{session}\",\"identity\":\"b\"}}");
    let mut stream = TcpStream::connect(node.clients_address().expect("it serves clients")).await.expect("connected");
    let head =
        format!("POST /v1/elections/e/campaign?wait=50s HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes()).await.expect("sent");
    // It watches for its turn, so it has been told that it waits.
    soon("it waits", || async { (handle.status().await.expect("runs").watches == 1).then_some(()) }).await;
    let answered = tokio::spawn(async move {
        let mut answer = String::new();
        timeout(LONG, stream.read_to_string(&mut answer)).await.expect("in time").map(|_| answer)
    });
    assert_eq!(node.close().await, End::Closed);
    let answer = answered.await.expect("no panic").expect("read");
    let status = answer.split(' ').nth(1);
    assert!(matches!(status, Some("202" | "504")), "{answer}");
}
