//! Members that come, move, go and are brought back, with real nodes: what operators do, while others write.
#![allow(clippy::wildcard_enum_match_arm, reason = "a test wants one kind of answer")]

#[path = "server/cluster.rs"]
mod cluster;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::{LONG, done, patient, put, soon, value};
use incumbent_client::administration::{
    AddMember, Administration, AskCluster, Attended, ClusterView, MemberChange, Membership, RemoveMember, TransferLeadership,
};
use incumbent_client::client::{Client, Line, Options};
use incumbent_client::failure::Ended;
use incumbent_peer::switchboard::Peer;
use incumbent_protocol::protocol::NodeId;
use incumbent_service::log::sim::{SimDisk, Weather};
use incumbent_service::replica::Settings;
use incumbent_service::server::{Beginning, Config, End, Handle, Node, Outcome, Unattended};
use incumbent_testbed::port::Port;
use tempfile::TempDir;
use tokio::time::timeout;

/// Nodes that know one other when they begin.
struct Town {
    directories: TempDir,
    ports: BTreeMap<u32, Port>,
    nodes: BTreeMap<u32, Node>,
}

impl Town {
    /// One founder, alone.
    fn found() -> Town {
        let directories = tempfile::tempdir().expect("a directory");
        let mut town = Town { directories, ports: BTreeMap::new(), nodes: BTreeMap::new() };
        town.start(1);
        town
    }

    /// A newcomer is told of the founder alone.
    fn config(&mut self, node: u32) -> Config {
        let port = |it: &mut Town, node| it.ports.entry(node).or_insert_with(|| Port::free().expect("a port")).number();
        let founder = format!("127.0.0.1:{}", port(self, 1));
        let listen = format!("127.0.0.1:{}", port(self, node));
        let alone = Config::alone(self.directories.path().join(node.to_string()));
        let (peers, beginning) = match node {
            1 => (Vec::new(), Beginning::Founds),
            _ => (vec![Peer { id: NodeId(1), address: founder }], Beginning::Joins),
        };
        let clients = Some("127.0.0.1:0".to_owned());
        Config { me: NodeId(node), listen, peers, beginning, clients, settings: patient(), ..alone }
    }

    fn start(&mut self, node: u32) {
        let config = self.config(node);
        self.nodes.insert(node, Node::start(config).expect("starts"));
    }

    fn handle(&self, node: u32) -> Handle {
        self.nodes[&node].handle()
    }

    fn place(&self, node: u32) -> String {
        self.nodes[&node].address().to_string()
    }

    /// Asks whoever leads.
    async fn administer(&self, wanted: Administration) -> Attended {
        soon("an answer of the leader", || async {
            for node in self.nodes.values() {
                match node.handle().administer(wanted.clone()).await {
                    Ok(attended) => return Some(attended),
                    Err(Unattended::NotNow(_) | Unattended::Unknown) => {}
                }
            }
            None
        })
        .await
    }

    async fn add(&self, node: u32) -> Attended {
        let add = AddMember { node, peer: self.place(node), client: String::new() };
        self.administer(Administration::Add(add)).await
    }

    async fn grow(&mut self, node: u32) {
        self.start(node);
        soon("it votes", || async { Some(change(self.add(node).await)).filter(|it| *it == Membership::Voter) }).await;
    }

    async fn remove(&self, node: u32, force: bool) -> Attended {
        self.administer(Administration::Remove(RemoveMember { node, force })).await
    }

    async fn view(&self, node: u32) -> ClusterView {
        match self.handle(node).administer(Administration::Status(AskCluster {})).await {
            Ok(Attended::Cluster(view)) => view,
            other => panic!("{other:?}"),
        }
    }

    async fn leader(&self) -> u32 {
        soon("a leader", || async { self.nodes.iter().find(|it| it.1.handle().role().borrow().leads).map(|it| *it.0) }).await
    }

    /// Waits until all that run have applied the same, and are equal.
    async fn equal(&self) {
        soon("equal nodes", || async {
            let mut seen = Vec::new();
            for node in self.nodes.values() {
                seen.push(node.handle().digest().await?);
            }
            seen.windows(2).all(|two| two[0] == two[1]).then_some(())
        })
        .await;
    }
}

#[track_caller]
fn change(attended: Attended) -> Membership {
    match attended {
        Attended::Member(it @ MemberChange { .. }) => it.membership(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refusal(attended: Attended) -> String {
    match attended {
        Attended::Refused(why) => why,
        other => panic!("not refused: {other:?}"),
    }
}

/// Writes until it is told to stop; answers how many were acknowledged.
fn write(handle: Handle, name: &'static str, stop: &Arc<AtomicBool>) -> tokio::task::JoinHandle<u64> {
    let stop = Arc::clone(stop);
    tokio::spawn(async move {
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) {
            match handle.submit(put(&format!("{name}-{count}"), "kept")).await {
                Outcome::Done { .. } => count += 1,
                // The same key again: it does not matter whether it has happened.
                Outcome::NotNow(_) | Outcome::Unknown => tokio::task::yield_now().await,
                Outcome::Refused(refusal) => panic!("{refusal}"),
            }
        }
        count
    })
}

#[tokio::test]
async fn a_founder_grows_to_three_and_five_and_shrinks_again_while_others_write() {
    let mut town = Town::found();
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = vec![("a", write(town.handle(1), "a", &stop))];
    town.grow(2).await;
    town.grow(3).await;
    writers.push(("b", write(town.handle(3), "b", &stop)));
    town.grow(4).await;
    town.grow(5).await;
    writers.push(("c", write(town.handle(5), "c", &stop)));
    // One that was told of the founder alone, and is away while others come, finds them in its own store.
    town.nodes.remove(&1);
    town.nodes.remove(&2);
    town.start(2);
    soon("it finds the others without the founder", || async {
        let lines = town.handle(2).status().await?.lines;
        [3, 4, 5]
            .iter()
            .all(|id| lines.iter().any(|it| it.peer == NodeId(*id) && format!("{:?}", it.state) == "Up"))
            .then_some(())
    })
    .await;
    assert!(value(&town.handle(2), "a-0").await.is_some());
    assert_eq!(change(town.remove(1, false).await), Membership::None);
    let leader = town.leader().await;
    assert_eq!(change(town.remove(leader, false).await), Membership::None, "a leader makes way first");
    let removed = town.nodes.remove(&leader).expect("runs");
    let End::Removed(why) = timeout(LONG, removed.handle().ended()).await.expect("in time") else { panic!("another end") };
    assert!(why.contains("another number"), "{why}");
    stop.store(true, Ordering::Relaxed);
    town.equal().await;
    let left = *town.nodes.keys().next().expect("three are left");
    for (name, writer) in writers {
        let count = timeout(LONG, writer).await.expect("in time").expect("no panic");
        for number in (0..count).step_by(7).chain(count.checked_sub(1)) {
            assert!(value(&town.handle(left), &format!("{name}-{number}")).await.is_some(), "{name}-{number} was acknowledged");
        }
    }
    let view = town.view(left).await;
    assert_eq!(view.members.len(), 3, "{view:?}");
    for member in &view.members {
        assert!(member.health.is_some() && member.line_up && !member.client.is_empty(), "{member:?}");
        assert_eq!(member.membership(), Membership::Voter);
    }
}

/// A newcomer knows that it is a member before it has the state in which it stands whether it shall vote: its disk writes that, and here takes its time.
#[tokio::test]
async fn a_newcomer_does_not_write_over_the_record_that_it_shall_vote() {
    let mut town = Town::found();
    done(town.handle(1).submit(put("a", "1")).await);
    let (disk, config) = (SimDisk::new(2), town.config(2));
    let looks_around = config.settings.election_timeout();
    town.nodes.insert(2, Node::start_on(disk.clone(), config).expect("starts"));
    disk.turns(Weather::Slow(looks_around * 3));
    let newcomer = town.handle(2);
    let between = soon("it is a member and has no record", || async {
        let status = newcomer.status().await?;
        (status.roll.contains(NodeId(2)) && !status.members.contains_key(&NodeId(2))).then_some(())
    });
    let votes = async {
        // Once: whoever asks again has it put on record again.
        tokio::join!(between, town.add(2));
        soon("it votes", || async {
            town.view(1).await.members.into_iter().find(|it| it.node == 2 && it.membership() == Membership::Voter)
        })
        .await;
    };
    let mut records = town.handle(1).members();
    tokio::select! {
        () = votes => {}
        // It might be put right again by chance: the newcomer repeats what it knows when it knows more.
        _ = records.wait_for(|it| it.get(&NodeId(2)).is_some_and(|it| !it.shall_vote)) => panic!("the record says that it shall not vote"),
    }
}

/// C31: it answers, and there is nothing that it could do. Its clients are told without asking for anything.
#[tokio::test]
async fn clients_of_a_node_that_does_not_reach_the_others_try_another() {
    let mut town = Town::found();
    town.grow(2).await;
    let place = town.nodes[&2].clients_address().expect("it serves clients").to_string();
    let options = Options { learns_members: false, ping_idle: Duration::from_millis(100), ..Options::default() };
    let client = Client::connect([place], options).await.expect("connected");
    let mut line = client.line();
    assert!(matches!(&*line.borrow(), Line::Up { node: 2, .. }));
    town.nodes.remove(&1);
    let rerouted = Ended::Rerouted.to_string();
    let down = timeout(LONG, line.wait_for(|it| matches!(it, Line::Down { why } if *why == rerouted))).await;
    down.expect("in time").expect("the client lives");
    // Operators are not sent to a leader that there is none of.
    let why = soon("it says that nobody leads", || async {
        let transfer = Administration::Transfer(TransferLeadership { to: None });
        match town.handle(2).administer(transfer).await {
            Err(Unattended::NotNow(not_now)) if not_now.leader.is_none() => Some(not_now.to_string()),
            _ => None,
        }
    });
    let why = why.await;
    assert!(why.contains("no node leads") && why.contains("cluster status"), "{why}");
}

#[tokio::test]
async fn a_node_that_was_removed_while_it_was_away_ends_and_says_why() {
    let mut town = Town::found();
    town.grow(2).await;
    town.grow(3).await;
    town.nodes.remove(&3);
    assert_eq!(change(town.remove(3, false).await), Membership::None);
    assert_eq!(change(town.remove(3, false).await), Membership::None, "it may be asked twice");
    town.start(3);
    let gone = town.nodes.remove(&3).expect("runs");
    let End::Removed(why) = timeout(LONG, gone.handle().ended()).await.expect("in time") else { panic!("another end") };
    assert!(why.contains("node 3 was removed"), "{why}");
    drop(gone);
    // C56: nor does it come back with an empty directory under its number.
    std::fs::remove_dir_all(town.directories.path().join("3")).expect("there");
    town.start(3);
    let why = refusal(town.add(3).await);
    assert!(why.contains("never used"), "{why}");
    done(town.handle(1).submit(put("after", "all")).await);
}

#[tokio::test]
async fn who_cannot_be_a_member_is_refused_with_what_to_do() {
    let mut town = Town::found();
    done(town.handle(1).submit(put("a", "1")).await);
    let add = |node, peer: &str| Administration::Add(AddMember { node, peer: peer.to_owned(), client: String::new() });
    let nowhere = format!("127.0.0.1:{}", Port::free().expect("a port").number());
    assert!(refusal(town.administer(add(2, &nowhere)).await).contains("does not answer"));
    assert!(refusal(town.administer(add(2, "")).await).contains("host and port"));
    town.start(2);
    let second = town.place(2);
    assert!(refusal(town.administer(add(3, &second)).await).contains("not node 3"));
    let apart = Config { me: NodeId(4), settings: patient(), ..Config::alone(town.directories.path().join("apart")) };
    let apart = Node::start(apart).expect("starts");
    assert!(refusal(town.administer(add(4, &apart.address().to_string())).await).contains("cluster of its own"));
    let stranger = Config { cluster: "other".to_owned(), ..Config::alone(town.directories.path().join("stranger")) };
    let stranger =
        Node::start(Config { me: NodeId(5), beginning: Beginning::Joins, settings: patient(), ..stranger }).expect("starts");
    assert!(refusal(town.administer(add(5, &stranger.address().to_string())).await).contains("belongs to cluster"));
    assert_eq!(town.view(1).await.members.len(), 1, "nothing has changed");
    assert!(refusal(town.remove(1, true).await).contains("only one that votes"));
    assert!(refusal(town.remove(77, true).await).contains("node 77 is no member"));
    assert!(refusal(town.administer(add(1, &nowhere)).await).contains("says itself where it is"), "it leads");
    assert_eq!(change(town.administer(add(1, &town.place(1))).await), Membership::Voter, "it is there already");
}

#[tokio::test]
async fn a_majority_is_not_given_away_unless_it_is_forced() {
    let mut town = Town::found();
    for node in [2, 3, 4, 5] {
        town.grow(node).await;
    }
    let to = TransferLeadership { to: Some(1) };
    assert_eq!(town.administer(Administration::Transfer(to)).await, Attended::Leader(1));
    assert_eq!(town.leader().await, 1);
    for node in [4, 5] {
        town.nodes.remove(&node);
    }
    soon("it is seen that two are away", || async {
        let away = town.view(1).await.members.iter().filter(|it| it.health.is_none()).count();
        (away == 2).then_some(())
    })
    .await;
    // Of 1, 2, 4 and 5 two can be heard: that is no majority.
    let why = refusal(town.remove(3, false).await);
    assert!(why.contains("no majority"), "{why}");
    let there = TransferLeadership { to: Some(4) };
    assert!(refusal(town.administer(Administration::Transfer(there)).await).contains("cannot be heard"));
    assert_eq!(change(town.remove(4, false).await), Membership::None, "of 1, 2, 3 and 5 three can");
    done(town.handle(2).submit(put("a", "1")).await);
}

/// The whole way: by a client's connection, to whichever node, and on to the one that leads.
#[tokio::test]
async fn clients_find_the_members_and_operators_the_leader() {
    let mut town = Town::found();
    town.grow(2).await;
    town.grow(3).await;
    let places: Vec<String> = town.nodes.values().filter_map(|it| Some(it.clients_address()?.to_string())).collect();
    soon("all know where all are", || async {
        let known = town.handle(3).members().borrow().values().filter(|it| !it.client.is_empty()).count();
        (known == 3).then_some(())
    })
    .await;
    let client = Client::connect([places[2].clone()], Options::default()).await.expect("connected");
    for to in [2, 3, 1] {
        let wanted = Administration::Transfer(TransferLeadership { to: Some(to) });
        let attended = soon("transferred", || async { client.administer(wanted.clone()).await.ok() }).await;
        assert_eq!(attended, Attended::Leader(to));
    }
    let Ok(Attended::Cluster(view)) = client.administer(Administration::Status(AskCluster {})).await else { panic!("no view") };
    assert_eq!((view.leader, view.members.len()), (Some(1), 3));
    let told: Vec<String> = view.members.iter().map(|it| it.client.clone()).collect();
    assert_eq!(told, places);
    // Where they are is there after a restart of all, whatever was told at first; and a node that has moved says so.
    let before = town.place(2);
    for node in [1, 2, 3] {
        town.nodes.remove(&node);
    }
    town.ports.remove(&2);
    for node in [3, 2, 1] {
        town.start(node);
    }
    soon("they know where node 2 is", || async {
        let known = town.handle(3).members().borrow().get(&NodeId(2)).map(|it| it.peer.clone());
        known.filter(|it| *it == town.place(2) && *it != before)
    })
    .await;
    town.equal().await;
    assert!(Path::new(&town.directories.path().join("1")).exists());
}

#[tokio::test]
async fn a_node_that_began_alone_does_not_go_on_alone_beside_others_that_it_is_told_of() {
    let mut town = Town::found();
    done(town.handle(1).submit(put("a", "1")).await);
    let second = Peer { id: NodeId(2), address: town.config(2).listen };
    let told = Config { peers: vec![second], ..town.config(1) };
    town.nodes.remove(&1);
    let why = Node::start(told.clone()).expect_err("refused").to_string();
    assert!(why.contains("the only member") && why.contains("told of 2") && why.contains("cluster add"), "{why}");
    // Once the other was added, it may be told of it.
    town.start(1);
    town.grow(2).await;
    town.nodes.remove(&1);
    town.nodes.insert(1, Node::start(told).expect("starts"));
    assert_eq!(value(&town.handle(1), "a").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn a_node_whose_fellow_founders_were_removed_starts_with_the_words_that_it_began_with() {
    let mut town = Town::found();
    town.nodes.remove(&1);
    let settings = Settings { snapshot_entries: 5, entries_kept: 1, ..patient() };
    let listens = [1, 2].map(|node| town.config(node).listen);
    let directories = tempfile::tempdir().expect("a directory");
    let founder = |at: usize| Config {
        me: NodeId(at as u32 + 1),
        listen: listens[at].clone(),
        peers: vec![Peer { id: NodeId(2 - at as u32), address: listens[1 - at].clone() }],
        settings: settings.clone(),
        ..Config::alone(directories.path().join(at.to_string()))
    };
    for at in 0..2 {
        town.nodes.insert(at as u32 + 1, Node::start(founder(at)).expect("starts"));
    }
    soon("the second is gone", || async { Some(town.remove(2, false).await).filter(|it| matches!(it, Attended::Member(_))) })
        .await;
    town.nodes.remove(&2);
    let alone = town.handle(1);
    let status = alone.status().await.expect("it runs");
    assert_eq!(status.roll.voters().len(), 1);
    // Nothing in its log says any more that there was another.
    let removed_by = status.last;
    let mut is_forgotten = false;
    for number in 0..10_000 {
        done(
            soon("a write", || async {
                Some(alone.submit(put("a", &number.to_string())).await).filter(|it| matches!(it, Outcome::Done { .. }))
            })
            .await,
        );
        is_forgotten = alone.status().await.expect("it runs").first > removed_by;
        if is_forgotten {
            break;
        }
    }
    assert!(is_forgotten, "its log begins anew");
    drop(alone);
    town.nodes.remove(&1);
    let node = Node::start(founder(0)).expect("starts");
    assert!(value(&node.handle(), "a").await.is_some());
}
