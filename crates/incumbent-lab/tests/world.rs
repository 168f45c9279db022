//! The world keeps its word: chance, links, crashes, pauses, clocks and disks do what they say, and nothing else.
//!
//! The machines are the shipping ones; where the protocol does not matter it is Raft.

use std::time::Duration;

use incumbent_lab::disk::DiskSettings;
use incumbent_lab::fault::{Fault, Links};
use incumbent_lab::network::{Delay, NetworkSettings, Refusal};
use incumbent_lab::node::Condition;
use incumbent_lab::observation::{Moment, Observation, Observer};
use incumbent_lab::trace::{Detail, Entry, Happening, Recording, Undelivered};
use incumbent_lab::world::{World, WorldSettings};
use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::{Event, NodeId, Request, Role};
use incumbent_protocol::settings::Settings;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn n(id: u32) -> NodeId {
    NodeId(id)
}

fn group(count: u32) -> Settings {
    Settings::of((1..=count).map(NodeId)).build().unwrap()
}

/// Raft with everything recorded, on links that take a millisecond.
fn plain(count: u32, seed: u64) -> WorldSettings {
    WorldSettings { recording: Recording::All, ..WorldSettings::plain(Kind::Raft, group(count), seed, MS) }
}

/// A world with a leader that everyone follows.
fn led(settings: WorldSettings) -> (World, NodeId) {
    let mut world = World::new(settings);
    let settled = world.run_while(|world| world.agreed_leader().is_none(), Moment::ZERO + SECOND * 5);
    assert!(settled, "no leader after 5 s");
    let leader = world.agreed_leader().unwrap();
    // Away from the moment at which the last message arrived, so that "since now" means after it.
    world.run_for(MS / 2);
    (world, leader)
}

fn others(world: &World, leader: NodeId) -> Vec<NodeId> {
    world.nodes().iter().map(|node| node.id()).filter(|id| *id != leader).collect()
}

fn since(world: &World, from: Moment) -> impl Iterator<Item = &Entry> {
    world.trace().entries().filter(move |entry| entry.at >= from)
}

/// The whole trace of a run with a bit of everything.
fn eventful(seed: u64) -> String {
    let settings = WorldSettings { recording: Recording::All, ..WorldSettings::new(Kind::Raft, group(5), seed) };
    let mut world = World::new(settings);
    let at = |ms: u32| Moment::ZERO + MS * ms;
    let plan = [
        (400, Fault::Crash(n(1))),
        (500, Fault::Loss { links: Links::All, ppm: 100_000 }),
        (500, Fault::Duplicate { links: Links::All, ppm: 100_000 }),
        (500, Fault::Reorder { links: Links::All, ppm: 100_000, by: MS * 50 }),
        (600, Fault::Pause(n(2))),
        (900, Fault::Restart(n(1))),
        (950, Fault::Resume(n(2))),
        (1000, Fault::Partition(vec![vec![n(1), n(2)], vec![n(3), n(4), n(5)]])),
        (1500, Fault::ClockRate { node: n(3), ppm: 80_000 }),
        (1500, Fault::Flap { links: Links::Between(n(4), n(5)), period: MS * 100 }),
        (1700, Fault::DiskSlow { node: n(4), by: MS * 30 }),
        (1800, Fault::Slow { node: n(5), by: MS * 3 }),
        (1900, Fault::ResetStorm { every: MS * 10, times: 5 }),
        (2500, Fault::Heal),
    ];
    for (ms, fault) in plan {
        world.schedule(at(ms), fault);
    }
    world.run_until(at(4000));
    world.trace().lines(Detail::Everything).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let mut seen = Vec::new();
    for seed in 0..20 {
        let first = eventful(seed);
        assert_eq!(first, eventful(seed), "seed {seed}");
        assert!(first.lines().count() > 500);
        seen.push(first);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 20);
}

#[test]
fn a_cut_link_carries_nothing_not_even_what_was_under_way() {
    let (mut world, leader) = led(plain(3, 1));
    let [a, b] = others(&world, leader)[..] else { panic!() };
    // Cut between the send of a heartbeat and its arrival.
    let sends = |entry: &Entry| matches!(&entry.what, Happening::Sent { from, to, .. } if *from == leader && *to == a);
    let now = world.now();
    assert!(world.run_while(|world| !since(world, now + MS).any(sends), now + SECOND));
    let cut_at = world.now();
    world.inject(Fault::cut(leader, a));
    world.run_for(MS * 100);
    let between = |sender: NodeId, receiver: NodeId| {
        since(&world, cut_at).filter(
            move |entry| matches!(&entry.what, Happening::Received { from, to, .. } if (*from, *to) == (sender, receiver)),
        )
    };
    assert_eq!(between(leader, a).count() + between(a, leader).count(), 0);
    assert!(between(leader, b).count() > 0 && between(b, leader).count() > 0);
    let in_flight = since(&world, cut_at).find(|entry| matches!(&entry.what, Happening::Dropped { .. })).unwrap();
    assert!(matches!(&in_flight.what, Happening::Dropped { sent, why: Undelivered::Cut, .. } if *sent == cut_at), "{in_flight}");
    assert!(in_flight.to_string().contains(&format!("{leader} x> {a} ")), "{in_flight}");
    assert!(in_flight.to_string().ends_with("(cut)"), "{in_flight}");
}

#[test]
fn a_one_way_cut_leaves_the_way_back() {
    let (mut world, leader) = led(plain(3, 2));
    let deaf = others(&world, leader)[0];
    world.inject(Fault::cut_one_way(leader, deaf));
    assert!(!world.reaches(leader, deaf) && world.reaches(deaf, leader));
    let from = world.now();
    world.run_for(SECOND);
    let heard = |by: NodeId, of: NodeId| {
        since(&world, from)
            .filter(|entry| matches!(&entry.what, Happening::Received { from, to, .. } if (*from, *to) == (of, by)))
            .count()
    };
    assert_eq!(heard(deaf, leader), 0);
    assert!(heard(leader, deaf) > 0);
    world.inject(Fault::Mend(Links::OneWay { from: leader, to: deaf }));
    assert!(world.reaches(leader, deaf));
}

#[test]
fn a_partition_separates_its_groups_both_ways_until_mended() {
    let (mut world, leader) = led(plain(5, 3));
    let others = others(&world, leader);
    let (small, large) = (vec![leader, others[0]], others[1..].to_vec());
    world.inject(Fault::Partition(vec![small.clone(), large.clone()]));
    for node in &small {
        for other in &large {
            assert!(!world.reaches(*node, *other) && !world.reaches(*other, *node));
        }
    }
    assert!(world.reaches(small[0], small[1]) && world.reaches(large[0], large[2]));
    world.run_for(SECOND * 2);
    assert!(large.contains(&world.leader().expect("the majority elects")));
    world.inject(Fault::Mend(Links::All));
    world.run_for(SECOND * 2);
    assert!(world.agreed_leader().is_some());
}

#[test]
fn a_repeated_message_arrives_twice_and_is_sent_once() {
    let (mut world, _) = led(plain(3, 4));
    world.inject(Fault::Duplicate { links: Links::All, ppm: 1_000_000 });
    // What was sent before arrives once.
    world.run_for(MS * 10);
    let (from, messages) = (world.now(), world.meter().messages());
    world.run_for(SECOND);
    let count = |wanted: fn(&Happening) -> bool| since(&world, from).filter(|entry| wanted(&entry.what)).count();
    let sent = count(|what| matches!(what, Happening::Sent { .. }));
    let received = count(|what| matches!(what, Happening::Received { .. }));
    assert!(sent > 10 && received.abs_diff(2 * sent) <= 12, "{sent} sent, {received} received");
    assert_eq!(world.meter().messages() - messages, sent as u64);
}

#[test]
fn what_a_crashed_node_sent_still_arrives_and_what_is_sent_to_it_does_not() {
    let (mut world, leader) = led(plain(3, 5));
    let now = world.now();
    let beats = |entry: &Entry| matches!(&entry.what, Happening::Sent { from, .. } if *from == leader);
    assert!(world.run_while(|world| !since(world, now + MS).any(beats), now + SECOND));
    let crashed_at = world.now();
    world.inject(Fault::Crash(leader));
    assert_eq!(world.node(leader).unwrap().condition(), Condition::Down);
    assert_eq!(world.node(leader).unwrap().view(), None);
    world.run_for(MS * 10);
    let arrived = since(&world, crashed_at)
        .filter(|entry| matches!(&entry.what, Happening::Received { from, sent, .. } if *from == leader && *sent == crashed_at));
    assert!(arrived.count() > 0);
    let lost = since(&world, crashed_at)
        .filter(|entry| matches!(&entry.what, Happening::Dropped { to, why: Undelivered::Down, .. } if *to == leader));
    assert!(lost.count() > 0);
    assert!(!since(&world, crashed_at + MS).any(|entry| matches!(&entry.what, Happening::Received { to, .. } if *to == leader)));
}

#[test]
fn a_restarted_node_knows_what_its_disk_kept_and_follows() {
    let (mut world, leader) = led(plain(3, 6));
    let follower = others(&world, leader)[0];
    let durable = *world.node(follower).unwrap().disk().durable().expect("it has voted or learnt a term");
    world.inject(Fault::Crash(follower));
    world.run_for(SECOND);
    world.inject(Fault::Restart(follower));
    let node = world.node(follower).unwrap();
    assert_eq!(node.incarnation(), 2);
    assert!(node.view().unwrap().term >= durable.term);
    world.run_for(SECOND);
    assert_eq!(world.agreed_leader(), Some(leader));
}

#[test]
fn a_write_under_way_is_lost_in_a_crash_and_one_that_completed_is_not() {
    let disk = DiskSettings { latency: Delay::Constant(MS * 20), kept_ppm: 0, torn_ppm: 500_000 };
    let mut world = World::new(WorldSettings { disk, ..plain(3, 7) });
    let writing = |world: &World| world.nodes().iter().find(|node| node.disk().pending() > 0).map(|node| node.id());
    assert!(world.run_while(|world| writing(world).is_none(), Moment::ZERO + SECOND));
    let node = writing(&world).unwrap();
    world.run_for(MS * 19);
    world.inject(Fault::Crash(node));
    world.inject(Fault::Restart(node));
    assert_eq!(world.node(node).unwrap().disk().durable(), None);
    assert!(world.run_while(|world| world.node(node).unwrap().disk().durable().is_none(), Moment::ZERO + SECOND * 5));
    let kept = *world.node(node).unwrap().disk().durable().unwrap();
    world.inject(Fault::Crash(node));
    world.inject(Fault::Restart(node));
    assert_eq!(world.node(node).unwrap().disk().durable(), Some(&kept));
}

#[test]
fn a_stalled_disk_answers_nothing_until_it_works_again() {
    let mut world = World::new(plain(1, 8));
    world.inject(Fault::DiskStall(n(1)));
    world.run_for(SECOND * 3);
    assert_eq!(world.leader(), None, "nobody leads in a term that is not on disk");
    assert!(world.node(n(1)).unwrap().disk().pending() > 0);
    world.inject(Fault::DiskNormal(n(1)));
    world.run_for(SECOND * 3);
    assert_eq!(world.leader(), Some(n(1)));
}

#[test]
fn a_paused_node_gets_what_has_waited_in_order_when_it_goes_on() {
    let (mut world, leader) = led(plain(3, 9));
    let sleeper = others(&world, leader)[0];
    world.inject(Fault::Pause(sleeper));
    let paused_at = world.now();
    world.run_for(MS * 120);
    let arrivals = |world: &World| -> Vec<(Moment, Moment)> {
        let arrival = |entry: &Entry| {
            let Happening::Received { to, sent, .. } = &entry.what else { return None };
            (*to == sleeper).then_some((*sent, entry.at))
        };
        since(world, paused_at).filter_map(arrival).collect()
    };
    assert_eq!(arrivals(&world), []);
    let waiting = world.node(sleeper).unwrap().waiting();
    assert!(waiting >= 2, "{waiting}");
    let resumed_at = world.now();
    world.inject(Fault::Resume(sleeper));
    world.run_for(Duration::ZERO);
    let arrived = arrivals(&world);
    assert_eq!(arrived.len(), waiting);
    assert!(arrived.iter().all(|(_, at)| *at == resumed_at));
    assert!(arrived.is_sorted());
    assert_eq!(world.node(sleeper).unwrap().waiting(), 0);
}

#[test]
fn a_paused_leader_believes_on_until_its_lease_ends_and_no_longer() {
    for seed in 0..50 {
        let (mut world, leader) = led(plain(5, seed));
        world.inject(Fault::Pause(leader));
        assert_eq!(world.leader(), Some(leader));
        world.run_for(SECOND * 2);
        assert!(world.leader().is_some_and(|now| now != leader));
        world.inject(Fault::Resume(leader));
        world.run_for(SECOND);
        assert!(world.agreed_leader().is_some_and(|now| now != leader));
        assert_eq!(world.meter().overlaps(), [], "seed {seed}");
    }
}

#[test]
fn a_slow_node_takes_one_thing_after_the_other() {
    let (mut world, leader) = led(plain(3, 10));
    let slow = others(&world, leader)[0];
    world.inject(Fault::Slow { node: slow, by: MS * 7 });
    let from = world.now() + MS * 8;
    world.run_for(SECOND);
    let taken: Vec<(Moment, Moment)> = since(&world, from)
        .filter_map(|entry| {
            let Happening::Received { to, sent, .. } = &entry.what else { return None };
            (*to == slow).then_some((entry.at, *sent))
        })
        .collect();
    assert!(taken.len() > 5);
    assert!(taken.windows(2).all(|pair| pair[1].0 - pair[0].0 >= MS * 7));
    assert!(taken.iter().all(|(at, sent)| *at - *sent >= MS * 8));
}

#[test]
fn a_refused_connection_is_heard_of_only_where_a_process_is_down_and_the_way_is_open() {
    let network = NetworkSettings { refusal: Refusal::Heard, ..NetworkSettings::constant(MS) };
    let hinted = |fault: fn(NodeId) -> Fault| {
        let (mut world, leader) = led(WorldSettings { network, ..plain(3, 11) });
        let gone = others(&world, leader)[0];
        let from = world.now();
        world.inject(fault(gone));
        world.run_for(MS * 140);
        since(&world, from)
            .filter(|entry| matches!(&entry.what, Happening::Requested { node, request: Request::Suspect { peer } } if (*node, *peer) == (leader, gone)))
            .count()
    };
    assert!(hinted(Fault::Crash) > 0);
    assert_eq!(hinted(Fault::Pause), 0);
    assert_eq!(hinted(Fault::Isolate), 0);
}

#[test]
fn a_reset_storm_reaches_every_follower_as_often_as_told() {
    let (mut world, leader) = led(plain(3, 12));
    let from = world.now();
    world.inject(Fault::ResetStorm { every: MS * 5, times: 10 });
    world.run_for(SECOND);
    let hints = since(&world, from).filter(
        |entry| matches!(&entry.what, Happening::Requested { request: Request::Suspect { peer }, .. } if *peer == leader),
    );
    assert_eq!(hints.count(), 20);
    assert_eq!(world.leader(), Some(leader), "a hint alone deposes nobody");
}

#[test]
fn a_clock_that_jumps_wakes_its_node_at_once() {
    let (mut world, leader) = led(plain(3, 13));
    let from = world.now();
    world.inject(Fault::ClockJump { node: leader, by: SECOND * 5 });
    world.run_for(Duration::ZERO);
    // Its lease has run out on its own clock, and it knows.
    assert_eq!(world.leader(), None);
    assert!(
        since(&world, from)
            .any(|entry| matches!(&entry.what, Happening::Told { node, event: Event::Lost { .. } } if *node == leader))
    );
}

#[test]
fn a_clock_that_stands_still_never_ends_a_belief_until_it_catches_up() {
    let (mut world, leader) = led(plain(5, 14));
    world.inject(Fault::ClockFreeze { node: leader, lasting: SECOND * 3 });
    world.inject(Fault::Isolate(leader));
    world.run_for(SECOND * 2);
    assert_eq!(world.leaders().count(), 2, "a frozen clock is beyond any drift bound");
    world.run_for(SECOND * 2);
    assert!(world.leader().is_some_and(|now| now != leader));
    assert_eq!(world.meter().overlaps().len(), 1);
    assert!(world.meter().longest_overlap() > SECOND * 2 && world.meter().longest_overlap() < SECOND * 3);
}

#[test]
fn healing_undoes_everything_and_calls_off_what_was_planned() {
    struct Saw(Vec<String>);
    impl Observer for Saw {
        fn observe(&mut self, at: Moment, seen: &Observation<'_>) {
            if matches!(seen, Observation::Healed | Observation::Started { .. } | Observation::Crashed { .. }) {
                self.0.push(format!("{at} {seen:?}"));
            }
        }
    }
    let mut world = World::watched(plain(5, 15), Saw(Vec::new()));
    world.run_for(SECOND);
    for fault in [
        Fault::Crash(n(1)),
        Fault::Pause(n(2)),
        Fault::Isolate(n(3)),
        Fault::cut(n(4), n(5)),
        Fault::Loss { links: Links::All, ppm: 900_000 },
        Fault::ClockRate { node: n(4), ppm: 500_000 },
        Fault::ClockFreeze { node: n(5), lasting: SECOND * 60 },
        Fault::DiskStall(n(4)),
        Fault::Slow { node: n(4), by: SECOND },
    ] {
        world.inject(fault);
    }
    world.schedule(world.now() + SECOND * 3, Fault::Crash(n(2)));
    world.run_for(SECOND * 2);
    world.heal();
    for node in world.nodes() {
        assert_eq!((node.condition(), node.clock().rate_ppm(), node.slowness()), (Condition::Up, 0, Duration::ZERO));
        assert!(!node.disk().is_stalled());
    }
    world.run_for(SECOND * 3);
    assert!(world.agreed_leader().is_some());
    let seen = &world.observer().0;
    assert_eq!(seen.iter().filter(|line| line.contains("Crashed")).count(), 1);
    assert_eq!(seen.iter().filter(|line| line.contains("Started")).count(), 6);
    assert_eq!(seen.last().map(String::as_str), Some("3.000 Healed"));
}

#[test]
fn five_nodes_elect_a_leader_within_a_second_and_another_when_it_crashes() {
    for seed in 0..1000 {
        let mut world = World::new(WorldSettings::new(Kind::Raft, group(5), seed));
        assert!(world.run_while(|world| world.agreed_leader().is_none(), Moment::ZERO + SECOND), "seed {seed}: nobody leads");
        let first = world.agreed_leader().unwrap();
        world.run_for(SECOND);
        assert_eq!(world.agreed_leader(), Some(first), "seed {seed}: a calm world changed its leader");
        world.inject(Fault::Crash(first));
        let limit = world.now() + SECOND * 2;
        let followed = world.run_while(|world| world.agreed_leader().is_none(), limit);
        assert!(followed, "seed {seed}: nobody followed {first}");
        world.inject(Fault::Restart(first));
        world.run_for(SECOND);
        assert!(world.agreed_leader().is_some_and(|leader| leader != first), "seed {seed}: a restart disturbed the leader");
        assert_eq!(world.meter().overlaps(), [], "seed {seed}: two leaders at once");
        assert!(world.nodes().iter().all(|node| node.view().is_some_and(|view| view.role != Role::Candidate)));
    }
}

#[test]
fn every_protocol_elects_and_replaces_a_crashed_leader() {
    for kind in Kind::ALL {
        for seed in 0..100 {
            let mut world = World::new(WorldSettings::new(kind, group(5), seed));
            assert!(world.run_while(|world| world.agreed_leader().is_none(), Moment::ZERO + SECOND * 5), "{kind} seed {seed}");
            let first = world.agreed_leader().unwrap();
            world.inject(Fault::Crash(first));
            let limit = world.now() + SECOND * 5;
            assert!(
                world.run_while(|world| world.agreed_leader().is_none(), limit),
                "{kind} seed {seed}: nobody follows {first}"
            );
            world.heal();
            world.run_for(SECOND * 5);
            assert!(world.agreed_leader().is_some(), "{kind} seed {seed}");
            assert_eq!(world.meter().overlaps(), [], "{kind} seed {seed}");
        }
    }
}

#[test]
fn what_waited_for_a_node_that_crashes_is_lost_and_said_to_be() {
    let (mut world, leader) = led(plain(3, 16));
    let sleeper = others(&world, leader)[0];
    world.inject(Fault::Pause(sleeper));
    world.run_for(MS * 120);
    let (waiting, from) = (world.node(sleeper).unwrap().waiting(), world.now());
    world.inject(Fault::Crash(sleeper));
    let lost = since(&world, from)
        .filter(|entry| matches!(&entry.what, Happening::Dropped { to, why: Undelivered::Down, .. } if *to == sleeper));
    assert!(waiting >= 2);
    assert_eq!(lost.count(), waiting);
}

#[test]
fn a_belief_is_observed_in_true_time_whatever_the_clock_does() {
    #[derive(Default)]
    struct Last(Option<(NodeId, Moment)>);
    impl Observer for Last {
        fn observe(&mut self, _: Moment, seen: &Observation<'_>) {
            match seen {
                Observation::InOffice { node, until, .. } => self.0 = Some((*node, *until)),
                Observation::OutOfOffice { .. } => self.0 = None,
                Observation::Told { .. }
                | Observation::Started { .. }
                | Observation::Crashed { .. }
                | Observation::Sent { .. }
                | Observation::Healed => {}
            }
        }
    }
    let mut world = World::watched(plain(3, 17), Last::default());
    world.run_for(SECOND);
    let (leader, until) = world.observer().0.unwrap();
    let left = until - world.now();
    // Twice as fast, the clock reaches the end of the lease in half the time; half as fast, in twice.
    world.inject(Fault::ClockRate { node: leader, ppm: 1_000_000 });
    let (_, sooner) = world.observer().0.unwrap();
    assert!((sooner - world.now()).abs_diff(left / 2) < Duration::from_micros(1));
    world.inject(Fault::ClockRate { node: leader, ppm: -500_000 });
    let (_, later) = world.observer().0.unwrap();
    assert!((later - world.now()).abs_diff(left * 2) < Duration::from_micros(1));
    // Beyond the end of the lease nobody is in office, though the node itself has not noticed yet.
    world.inject(Fault::ClockJump { node: leader, by: SECOND });
    assert_eq!(world.observer().0, None);
}

#[test]
fn one_more_fault_does_not_change_the_delays_of_what_others_send() {
    let delays = |fault: Option<Fault>| -> Vec<Duration> {
        let settings = WorldSettings { recording: Recording::All, ..WorldSettings::new(Kind::Raft, group(3), 18) };
        let (mut world, leader) = led(settings);
        let bystander = others(&world, leader)[1];
        world.trace_mut().clear();
        if let Some(fault) = fault {
            world.inject(fault);
        }
        world.run_for(SECOND);
        let delay = |entry: &Entry| {
            let Happening::Received { from, to, sent, .. } = &entry.what else { return None };
            ((*from, *to) == (leader, bystander)).then(|| entry.at - *sent)
        };
        world.trace().entries().filter_map(delay).collect()
    };
    let calm = delays(None);
    let leader = led(WorldSettings::new(Kind::Raft, group(3), 18)).1;
    let victim = n((1..=3).find(|id| n(*id) != leader).unwrap());
    let faulty = delays(Some(Fault::Crash(victim)));
    assert!(calm.len() > 10);
    assert_eq!(calm, faulty);
}

#[test]
fn what_is_sent_on_a_cut_link_is_lost_though_it_be_mended_before_the_arrival() {
    let network = NetworkSettings::constant(MS * 10);
    let (mut world, leader) = led(WorldSettings { network, ..plain(3, 19) });
    let follower = others(&world, leader)[0];
    let cut_at = world.now();
    world.inject(Fault::cut(leader, follower));
    let sends = |entry: &Entry| matches!(&entry.what, Happening::Sent { from, to, .. } if (*from, *to) == (leader, follower));
    assert!(world.run_while(|world| !since(world, cut_at).any(sends), cut_at + SECOND));
    let sent_at = world.now();
    world.inject(Fault::Mend(Links::Between(leader, follower)));
    world.run_for(MS * 20);
    let arrived =
        |entry: &Entry| matches!(&entry.what, Happening::Received { to, sent, .. } if *to == follower && *sent == sent_at);
    assert!(!world.trace().entries().any(arrived));
}

#[test]
fn nothing_overtakes_what_has_waited() {
    let (mut world, leader) = led(plain(3, 20));
    let sleeper = others(&world, leader)[0];
    world.inject(Fault::Pause(sleeper));
    world.run_for(MS * 120);
    let (waiting, from) = (world.node(sleeper).unwrap().waiting(), world.now());
    world.inject(Fault::Resume(sleeper));
    world.inject(Fault::Request { node: sleeper, request: Request::Campaign });
    world.run_for(Duration::ZERO);
    let mine = since(&world, from).filter(|entry| match &entry.what {
        Happening::Received { to, .. } => *to == sleeper,
        Happening::Requested { .. } => true,
        Happening::Sent { .. }
        | Happening::Dropped { .. }
        | Happening::Told { .. }
        | Happening::Changed { .. }
        | Happening::Done(_)
        | Happening::Started { .. }
        | Happening::Crashed { .. }
        | Happening::Writing { .. }
        | Happening::Written { .. } => false,
    });
    let order: Vec<bool> = mine.map(|entry| matches!(entry.what, Happening::Requested { .. })).collect();
    assert_eq!(order.len(), waiting + 1);
    assert_eq!(order.iter().position(|requested| *requested), Some(waiting));
}

#[test]
fn a_deadline_that_keeps_moving_leaves_no_litter_in_the_queue() {
    let (mut world, leader) = led(plain(3, 21));
    for round in 0..1000 {
        for node in others(&world, leader) {
            world.inject(Fault::ClockRate { node, ppm: if round % 2 == 0 { 1_000_000 } else { -500_000 } });
        }
        world.run_for(MS);
    }
    world.heal();
    world.run_for(SECOND);
    assert!(world.pending() < 50, "{} pending", world.pending());
}

#[test]
fn every_life_of_a_node_draws_its_own_chances() {
    let mut world = World::new(plain(1, 22));
    let mut waits = Vec::new();
    for _ in 0..10 {
        let started = world.now();
        assert!(world.run_while(|world| world.leader().is_none(), started + SECOND * 5));
        waits.push(world.now() - started);
        world.inject(Fault::Crash(n(1)));
        world.inject(Fault::Restart(n(1)));
    }
    waits.sort();
    waits.dedup();
    assert!(waits.len() >= 9, "{waits:?}");
}
