//! The recipes that a good engineer would write with the same client crates: a seat, a fencing token, a successor that is told at once.
//!
//! No history, no list of candidates, no wishes, no deadline, no answer to lost replies; one election, and a session that is there already.

mod consul;
mod etcd;
mod file;
mod kubernetes;
mod nats;
mod postgres;
mod redis;
mod zookeeper;

pub(crate) use consul::Consul;
pub(crate) use etcd::Etcd;
pub(crate) use file::File;
pub(crate) use kubernetes::Kubernetes;
pub(crate) use nats::Nats;
pub(crate) use postgres::Postgres;
pub(crate) use redis::Redis;
pub(crate) use zookeeper::ZooKeeper;
