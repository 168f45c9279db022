//! Message counts equal theory, to the message, for every group size from 2 to 64.
//!
//! The theory counts the algorithm's own messages ([`Purpose::Contest`]), as the papers do: no heartbeats, no
//! acknowledgements of hops, and the guard's votes apart. The network is the papers' too: every message takes the same
//! time and none is lost. Nobody but the named initiators detects anything, because they are told to before any patience ends.
//! A formula here is derived from the algorithm and never from a run.

use std::collections::BTreeMap;
use std::time::Duration;

use incumbent_lab::fault::Fault;
use incumbent_lab::observation::Moment;
use incumbent_lab::world::{World, WorldSettings};
use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::{NodeId, Purpose, Request};
use incumbent_protocol::settings::{Guard, Pace, PreVote, Settings};

const SIZES: std::ops::RangeInclusive<u32> = 2..=64;

/// One way. Two laps of the greatest ring stay below the shortest patience.
const DELAY: Duration = Duration::from_millis(1);

/// How the ids stand in the direction of the ring.
#[derive(Copy, Clone)]
enum Order {
    Ascending,
    Descending,
}

/// Who calls the election.
#[derive(Copy, Clone)]
enum Initiators {
    All,
    One(u32),
}

/// An election in a fresh group, called at its first moment.
struct Election {
    kind: Kind,
    nodes: u32,
    order: Order,
    guard: Guard,
    pre_vote: PreVote,
    initiators: Initiators,
    dead: Option<u32>,
}

impl Election {
    fn of(kind: Kind, nodes: u32, initiators: Initiators) -> Election {
        Election { kind, nodes, order: Order::Ascending, guard: Guard::Off, pre_vote: PreVote::On, initiators, dead: None }
    }

    /// Holds it, sees `leader` in office and followed by all others that live, and then returns what was sent.
    fn hold(&self, leader: u32) -> Sent {
        let ids = (1..=self.nodes).map(NodeId);
        let settings = Settings::of(ids.clone()).guard(self.guard).pre_vote(self.pre_vote);
        let settings = match self.order {
            Order::Ascending => settings.ring(ids.clone()),
            Order::Descending => settings.ring(ids.clone().rev()),
        };
        let mut world = World::new(WorldSettings::plain(self.kind, settings.build().unwrap(), 1, DELAY));
        if let Some(dead) = self.dead {
            world.inject(Fault::Crash(NodeId(dead)));
        }
        for node in ids {
            let called = match self.initiators {
                Initiators::All => true,
                Initiators::One(one) => node == NodeId(one),
            };
            if called {
                world.inject(Fault::Request { node, request: Request::Campaign });
            }
        }
        let what = format!("{} with {} nodes", self.kind, self.nodes);
        assert!(world.run_while(|world| world.agreed_leader().is_none(), Moment::ZERO + Pace::LAN.patience_max), "{what}");
        assert_eq!(world.agreed_leader(), Some(NodeId(leader)), "{what}");
        // Long enough for the last lap and the last answer to come home.
        world.run_for(DELAY * (self.nodes + 2));
        assert_eq!(world.meter().elected(), 1, "{what}");
        Sent::by(&world)
    }
}

/// What was sent, without upkeep.
#[derive(PartialEq, Eq, Debug)]
struct Sent {
    contest: BTreeMap<&'static str, u64>,
    guard: BTreeMap<&'static str, u64>,
}

impl Sent {
    fn by(world: &World) -> Sent {
        let of = |purpose| {
            let tallies = world.meter().by_name().iter().filter(|tally| tally.purpose == purpose);
            tallies.map(|tally| (tally.name, tally.count)).collect()
        };
        Sent { contest: of(Purpose::Contest), guard: of(Purpose::Guard) }
    }

    fn expect<const C: usize, const G: usize>(contest: [(&'static str, u64); C], guard: [(&'static str, u64); G]) -> Sent {
        let some = |(_, count): &(&str, u64)| *count > 0;
        Sent { contest: contest.into_iter().filter(some).collect(), guard: guard.into_iter().filter(some).collect() }
    }
}

/// What the guard adds to a protocol without votes of its own, if `answering` of `n − 1` others live: one ballot. It asks all
/// others whether they would vote (thesis 9.6), then for the votes; each that lives answers both. 2·2(n−1) if all live.
fn ballot(n: u64, answering: u64) -> [(&'static str, u64); 4] {
    [("prevote-request", n - 1), ("prevote", answering), ("vote-request", n - 1), ("vote", answering)]
}

/// Holds the election without guard and with it: the guard adds one ballot and changes nothing else.
fn with_and_without_guard<const C: usize>(election: &mut Election, leader: u32, contest: [(&'static str, u64); C]) {
    let n = u64::from(election.nodes);
    assert_eq!(election.hold(leader), Sent::expect(contest, []), "{} without guard, n = {n}", election.kind);
    election.guard = Guard::Majority;
    let answering = n - 1 - u64::from(election.dead.is_some());
    assert_eq!(election.hold(leader), Sent::expect(contest, ballot(n, answering)), "{} under guard, n = {n}", election.kind);
}

/// Ids ascend in the direction of the ring: every id but the greatest meets a greater one at its first hop and ends there,
/// n−1 messages. The greatest goes all the way round, n. Together 2n−1. Then COORDINATOR goes round, n.
#[test]
fn chang_roberts_at_its_best_takes_2n_minus_1() {
    for n in SIZES {
        let mut election = Election::of(Kind::ChangRoberts, n, Initiators::All);
        let count = u64::from(n);
        with_and_without_guard(&mut election, n, [("election", 2 * count - 1), ("coordinator", count)]);
    }
}

/// Ids descend: the id k passes k−1, …, 1 and ends at n, after k hops. 1 + 2 + … + n = n(n+1)/2. Then COORDINATOR, n.
#[test]
fn chang_roberts_at_its_worst_takes_n_times_n_plus_1_over_2() {
    for n in SIZES {
        let mut election = Election::of(Kind::ChangRoberts, n, Initiators::All);
        election.order = Order::Descending;
        let count = u64::from(n);
        with_and_without_guard(&mut election, n, [("election", count * (count + 1) / 2), ("coordinator", count)]);
    }
}

/// One initiator, just behind the greatest id and in an ascending ring: n−1 hops, on each of which the next node puts its own id in the place
/// of the last, until the greatest is reached. Its id then goes all the way round, n. Together 2n−1; then COORDINATOR, n.
#[test]
fn chang_roberts_with_one_initiator_at_the_worst_place_takes_2n_minus_1() {
    for n in SIZES {
        let mut election = Election::of(Kind::ChangRoberts, n, Initiators::One(1));
        let count = u64::from(n);
        with_and_without_guard(&mut election, n, [("election", 2 * count - 1), ("coordinator", count)]);
    }
}

/// And at the best place, the greatest id itself: its id goes round once, n; then COORDINATOR, n.
#[test]
fn chang_roberts_with_the_greatest_as_its_one_initiator_takes_n() {
    for n in SIZES {
        let mut election = Election::of(Kind::ChangRoberts, n, Initiators::One(n));
        let count = u64::from(n);
        with_and_without_guard(&mut election, n, [("election", count), ("coordinator", count)]);
    }
}

/// The list goes round and is complete when it is back, n; COORDINATOR goes round and ends where it began, n. Wherever it began.
#[test]
fn the_collecting_ring_takes_2n_whoever_begins() {
    for n in SIZES {
        for initiator in [1, n / 2 + 1, n] {
            let mut election = Election::of(Kind::Ring, n, Initiators::One(initiator));
            let count = u64::from(n);
            with_and_without_guard(&mut election, n, [("election", count), ("coordinator", count)]);
        }
    }
}

/// The greatest is dead and the second greatest detects it: one ELECTION to the dead one, which nobody answers, then COORDINATOR to all
/// n−1 others, the dead one among them because nobody knows that it stays dead. Together n.
#[test]
fn bully_at_its_best_takes_n() {
    // Of two nodes with one dead no majority is left, so the guard rightly lets nobody lead.
    for n in SIZES {
        let mut election = Election::of(Kind::Bully, n, Initiators::One(n - 1));
        election.dead = Some(n);
        let contest = [("election", 1), ("coordinator", u64::from(n) - 1)];
        if n == 2 {
            assert_eq!(election.hold(n - 1), Sent::expect(contest, []));
        } else {
            with_and_without_guard(&mut election, n - 1, contest);
        }
    }
}

/// The greatest is dead and the smallest detects it.
///
/// - ELECTION: 1 asks all n−1 greater ids. Each of them that lives begins a contest of its own, once, and asks all greater than itself:
///   node k asks n−k, the dead one included. (n−1) + (n−2) + … + 1 = n(n−1)/2.
/// - ALIVE: of the n−k that k asks, all answer but the dead one: n−1−k. (n−2) + … + 0 = (n−1)(n−2)/2.
/// - COORDINATOR: node n−1 hears from nobody, wins, and tells all others: n−1.
///
/// Together (n−1)·(n + n−2 + 2)/2 = n(n−1).
#[test]
fn bully_at_its_worst_takes_n_times_n_minus_1() {
    for n in SIZES {
        let mut election = Election::of(Kind::Bully, n, Initiators::One(1));
        election.dead = Some(n);
        let count = u64::from(n);
        let contest =
            [("election", count * (count - 1) / 2), ("alive", (count - 1) * (count - 2) / 2), ("coordinator", count - 1)];
        assert_eq!(contest.iter().map(|(_, count)| count).sum::<u64>(), count * (count - 1));
        if n == 2 {
            assert_eq!(election.hold(n - 1), Sent::expect(contest, []));
        } else {
            with_and_without_guard(&mut election, n - 1, contest);
        }
    }
}

/// The greatest itself calls the election (it has just come up): nobody is greater, so it has won. COORDINATOR to all others, n−1.
#[test]
fn bully_called_by_the_greatest_takes_n_minus_1() {
    for n in SIZES {
        let mut election = Election::of(Kind::Bully, n, Initiators::One(n));
        with_and_without_guard(&mut election, n, [("coordinator", u64::from(n) - 1)]);
    }
}

/// One ballot: a request to each of the n−1 others and an answer from each, 2(n−1); with pre-vote the same again before it. Heartbeats follow and
/// are not counted. The votes are Raft's own, so with guard and without the count is the same.
#[test]
fn raft_takes_one_ballot() {
    for n in SIZES {
        for guard in [Guard::Off, Guard::Majority] {
            let mut election = Election { guard, ..Election::of(Kind::Raft, n, Initiators::One(n / 2 + 1)) };
            let count = u64::from(n);
            assert_eq!(election.hold(n / 2 + 1), Sent::expect(ballot(count, count - 1), []), "n = {n}");
            election.pre_vote = PreVote::Off;
            let [_, _, requests, votes] = ballot(count, count - 1);
            assert_eq!(election.hold(n / 2 + 1), Sent::expect([requests, votes], []), "n = {n} without pre-vote");
        }
    }
}
