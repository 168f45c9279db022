//! The replicated service: elections for teams that run neither etcd nor ZooKeeper.
//!
//! What a node must not forget is in [`log`].

pub mod log;
