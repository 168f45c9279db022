//! Real engines for tests and benches, and a relay that misbehaves.
//!
//! A server is started on a free loopback port, keeps its files in a folder of its own under the system's temporary one, and dies with the
//! process that started it. What cannot be started is an error that says what to do: no test is skipped because an engine is absent.
//!
//! It knows no other crate of ours, and no program of ours: what it starts is what others run in production. Two engines cannot be had that
//! way, Consul and Kubernetes: for these it has servers of its own, which answer as the real ones did when they were recorded (`golden/`).
//!
//! ```no_run
//! use incumbent_testbed::{Etcd, Server as _};
//!
//! let etcd = Etcd::debian().start()?;
//! println!("http://{} has been asked {} times", etcd.address(), etcd.requests()?.total());
//! etcd.kill();
//! etcd.restart()?; // the same port, the same data
//! # Ok::<(), String>(())
//! ```

mod certificates;
mod cluster;
mod server;

mod etcd;
mod nats;
mod postgres;
mod redis;
mod zookeeper;

mod contender;
mod relay;

mod consul;
mod kubernetes;
mod serving;

mod ask;
mod folder;
mod keeper;
mod patience;
pub mod port;
mod process;
mod programs;

pub use certificates::{CERTIFIED_CLIENT, Certificates, Pair, Tls, WRONG_NAME};
pub use cluster::{Cluster, Member};
pub use consul::{Consul, ConsulPlan};
pub use contender::Contender;
pub use etcd::{Etcd, EtcdCluster, EtcdPlan};
pub use kubernetes::{Kubernetes, KubernetesPlan};
pub use nats::{Nats, NatsCluster, NatsPlan};
pub use patience::eventually;
pub use postgres::{POSTGRES_DATABASE, POSTGRES_PASSWORD, POSTGRES_USER, Passwords, PgBouncer, Postgres, PostgresPlan};
pub use process::Process;
pub use programs::python;
pub use redis::{Redis, RedisPlan};
pub use relay::{Chunk, Direction, Flow, Relay, Traffic, Verdict, Way};
pub use server::{Requests, Server, Shared};
pub use serving::Access;
pub use zookeeper::{ZooKeeper, ZooKeeperEnsemble, ZooKeeperPlan};
