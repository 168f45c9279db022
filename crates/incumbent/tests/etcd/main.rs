//! The engine on etcd, with real servers: the recipe, what it costs the server, what others in the same election see of it, and what it does when
//! things go wrong. What it shares with all engines is checked by the conformance suite.

mod cluster;
mod conformance;
mod cost;
mod interop;
mod recipe;
mod support;
mod tls;
mod trouble;

#[path = "../support/mod.rs"]
mod networked;

#[test]
fn contender() {
    networked::processes::be_a_contender();
}
