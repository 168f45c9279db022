//! Rounds of faults against `incumbent run`: three hosts, a real engine, one fault after the other, and a judge who asks whether two of them ever ran the command at once.
//!
//! A "host" is a supervisor with a state directory and a name of its own, the guardian and the tree beneath it, and a network namespace with its own way to the engine. Each test runs every fault
//! once, in an order that the seed decides. For hundreds of rounds, and to replay one that failed (it prints the line to do so):
//!
//! ```sh
//! INCUMBENT_ROUNDS=250 INCUMBENT_ROUNDS_SEED=7 cargo test -p incumbent-cli --test run_rounds -- --nocapture --skip gibibyte
//! INCUMBENT_ROUNDS=1 INCUMBENT_ROUNDS_FIRST=112 INCUMBENT_ROUNDS_SEED=7 cargo test -p incumbent-cli --test run_rounds etcd
//! ```
//!
//! One fault is left out on purpose: supervisor and guardian stopped together across the deadline. Nobody is left on the host who could kill; there a fence in the kernel
//! (`--network-fence`) or at the resource (the token) must protect. Both *killed* together is among the faults where control groups can be made, and holds because the
//! host's supervisor is started again at once and ends what was left behind; on a host where that comes later than the lease's end, or without groups, it would not.

mod faults;
mod hosts;
mod network;
mod oracle;
#[path = "../shell/mod.rs"]
mod shell;

use incumbent_protocol::chance::Chance;
use incumbent_testbed::{Etcd, Postgres, ZooKeeper};

use faults::Fault;
use hosts::{Hosts, Place, Size};

const POSTGRES_LOGIN: &str = "incumbent:a%20password%20with%20spaces%20%26%20signs%2F%2540";

/// A number from the environment.
fn wanted(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |it| it.parse().unwrap_or_else(|_| panic!("{name} is no number: {it}")))
}

/// The faults of a round's pass through all of them, in an order of its own.
fn shuffled(faults: &[Fault], seed: u64, pass: u64) -> Vec<Fault> {
    let mut chance = Chance::new(seed.wrapping_mul(1_000_003).wrapping_add(pass));
    let mut left = faults.to_vec();
    let mut order = Vec::new();
    while !left.is_empty() {
        let next = usize::try_from(chance.below(left.len() as u64)).expect("fits");
        order.push(left.swap_remove(next));
    }
    order
}

#[allow(clippy::print_stderr, reason = "shown with a test that failed, or when asked for")]
fn rounds(engine: &str, place: Place, faults: &[Fault], size: Size) {
    let count = wanted("INCUMBENT_ROUNDS", faults.len() as u64);
    let (seed, first) = (wanted("INCUMBENT_ROUNDS_SEED", 1), wanted("INCUMBENT_ROUNDS_FIRST", 0));
    let mut hosts = Hosts::begin(engine, place, seed, size);
    for round in first..first + count {
        let (pass, at) = (round / faults.len() as u64, round % faults.len() as u64);
        let fault = shuffled(faults, seed, pass)[usize::try_from(at).expect("fits")];
        let replay = format!(
            "INCUMBENT_ROUNDS=1 INCUMBENT_ROUNDS_FIRST={round} INCUMBENT_ROUNDS_SEED={seed} cargo test -p incumbent-cli --test run_rounds {engine}"
        );
        let before = hosts.terms().len();
        eprintln!("{engine} round {round}: {fault:?}; again: {replay}");
        hosts.suffer(fault, round);
        let overlaps = hosts.overlaps();
        let judged = oracle::judge(&hosts.terms()).and(if overlaps.is_empty() { Ok(()) } else { Err(overlaps) });
        if let Err(why) = judged {
            panic!("{engine} round {round}, {fault:?}: {why}\n{}\nagain: {replay}", hosts.story());
        }
        assert!(hosts.terms().len() > before, "the round had a new term");
    }
    let terms = hosts.terms();
    eprintln!("{engine}: {count} rounds from {first} with seed {seed}, {} terms, no two at once", terms.len());
}

/// Every fault that the place can suffer.
fn all_rounds(engine: &str, place: Place) {
    let faults = Fault::on(&place);
    rounds(engine, place, &faults, Size::Mixed);
}

#[test]
fn files() {
    all_rounds("files", Place::files());
}

#[test]
fn etcd() {
    all_rounds("etcd", Place::server(Etcd::debian().start().unwrap(), |address| format!("etcd://{address}/rounds")));
}

#[test]
fn zookeeper() {
    all_rounds(
        "zookeeper",
        Place::server(ZooKeeper::debian().start().unwrap(), |address| format!("zookeeper://{address}/rounds?tick-ms=100")),
    );
}

#[test]
fn postgres() {
    let url = |address: &str| format!("postgres://{POSTGRES_LOGIN}@{address}/postgres/rounds");
    all_rounds("postgres", Place::server(Postgres::debian().start().unwrap(), url));
}

#[test]
fn peers() {
    all_rounds("peers", Place::peers());
}

/// A process of a gibibyte takes the kernel a while to take apart, and until then it is not dead: what it has locked is locked.
#[test]
fn gibibyte() {
    let faults = [Fault::CommandKilled, Fault::SupervisorKilled, Fault::GuardianKilled, Fault::Resigned];
    rounds("gibibyte", Place::files(), &faults, Size::Mebibytes(1024));
}
