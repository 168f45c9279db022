//! The replicated service: elections for teams that run neither etcd nor ZooKeeper.
//!
//! What a node must not forget is in [`log`]; what it decides with the others, in [`replica`], which touches no clock, socket or file;
//! both, and a store, make a running node in [`server`]. [`http`] is its API for everybody who has no client of ours; who may do what is said in [`rights`].

pub mod http;
pub mod log;
pub mod replica;
pub mod rights;
pub mod server;
