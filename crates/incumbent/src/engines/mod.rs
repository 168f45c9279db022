//! The engines, one file and one feature each, and the one place that knows their schemes.

#[cfg(feature = "consul")]
pub mod consul;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "file")]
pub mod file;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
pub mod memory;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "peers")]
pub mod peers;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "service")]
pub mod service;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

#[cfg(any(feature = "postgres", feature = "redis"))]
mod dial;
#[cfg(any(feature = "nats", feature = "postgres", feature = "redis"))]
mod hints;
#[cfg(any(feature = "consul", feature = "kubernetes", feature = "nats", feature = "postgres", feature = "redis"))]
mod knock;
mod local;
#[cfg(any(feature = "consul", feature = "kubernetes", feature = "nats", feature = "service"))]
mod locked;
#[cfg(any(feature = "consul", feature = "kubernetes", feature = "nats"))]
mod observed;
#[cfg(any(feature = "nats", feature = "postgres", feature = "redis"))]
mod slot;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod stretched;
#[cfg(any(
    feature = "consul",
    feature = "nats",
    feature = "postgres",
    feature = "redis",
    feature = "service",
    feature = "zookeeper"
))]
mod tls;
#[cfg(any(feature = "consul", feature = "etcd", feature = "kubernetes", feature = "service", feature = "zookeeper"))]
mod watching;

use std::sync::Arc;

use crate::engine::{Engine, Error};
use crate::guarantees::Guarantees;
use crate::place::Place;

/// An engine as its URL names it.
struct Scheme {
    /// In the URL.
    name: &'static str,
    /// The cargo feature that brings it.
    feature: &'static str,
}

const SCHEMES: &[Scheme] = &[
    Scheme { name: "memory", feature: "" },
    Scheme { name: "file", feature: "file" },
    Scheme { name: "etcd", feature: "etcd" },
    Scheme { name: "zookeeper", feature: "zookeeper" },
    Scheme { name: "kubernetes", feature: "kubernetes" },
    Scheme { name: "consul", feature: "consul" },
    Scheme { name: "postgres", feature: "postgres" },
    Scheme { name: "redis", feature: "redis" },
    Scheme { name: "nats", feature: "nats" },
    Scheme { name: "peers", feature: "peers" },
    Scheme { name: "incumbent", feature: "service" },
];

/// Connects to the engine at `place`, whose path is the namespace.
pub async fn open(place: &Place) -> Result<Arc<dyn Engine>, Error> {
    match place.scheme() {
        #[cfg(feature = "file")]
        "file" => file::Files::open(place),
        "memory" => Ok(memory::Memory::open(place)?),
        #[cfg(feature = "consul")]
        "consul" => consul::Consul::open(place).await,
        #[cfg(feature = "kubernetes")]
        "kubernetes" => kubernetes::Kubernetes::open(place).await,
        #[cfg(feature = "etcd")]
        "etcd" => etcd::Etcd::open(place).await,
        #[cfg(feature = "zookeeper")]
        "zookeeper" => zookeeper::ZooKeeper::open(place),
        #[cfg(feature = "postgres")]
        "postgres" => postgres::Postgres::open(place).await,
        #[cfg(feature = "redis")]
        "redis" => redis::Redis::open(place).await,
        #[cfg(feature = "nats")]
        "nats" => nats::Nats::open(place).await,
        #[cfg(feature = "peers")]
        "peers" => peers::Peers::open(place).await,
        #[cfg(feature = "service")]
        "incumbent" => service::Service::open(place).await,
        unknown => Err(unknown_scheme(unknown)),
    }
}

/// What each engine in this program promises, in the order of their schemes. None is asked: one that is open may know of a caveat more.
pub fn built_in() -> Vec<Guarantees> {
    vec![
        memory::Memory::new().guarantees(),
        #[cfg(feature = "file")]
        file::promises(),
        #[cfg(feature = "etcd")]
        etcd::promises(),
        #[cfg(feature = "zookeeper")]
        zookeeper::promises(),
        #[cfg(feature = "kubernetes")]
        kubernetes::promises(),
        #[cfg(feature = "consul")]
        consul::promises(),
        #[cfg(feature = "postgres")]
        postgres::promises(),
        #[cfg(feature = "redis")]
        redis::promises(),
        #[cfg(feature = "nats")]
        nats::promises(),
        #[cfg(feature = "peers")]
        peers::promises(),
        #[cfg(feature = "service")]
        service::promises(),
    ]
}

/// What the engine of this scheme promises.
pub fn promised(scheme: &str) -> Result<Guarantees, Error> {
    built_in().into_iter().find(|it| it.engine == scheme).ok_or_else(|| unknown_scheme(scheme))
}

fn unknown_scheme(unknown: &str) -> Error {
    match SCHEMES.iter().find(|it| it.name == unknown) {
        Some(scheme) => Error::misconfigured(format!(
            "this program was built without {unknown}: build incumbent with the feature {:?}",
            scheme.feature
        )),
        None => Error::misconfigured(format!(
            "there is no engine {unknown:?}; there are {}",
            SCHEMES.iter().map(|it| it.name).collect::<Vec<_>>().join(", ")
        )),
    }
}
