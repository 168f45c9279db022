//! The replicated service: elections for teams that run neither etcd nor ZooKeeper.
//!
//! What a node must not forget is in [`log`]; what it decides with the others, in [`replica`], which touches no clock, socket or file.

pub mod log;
pub mod replica;
