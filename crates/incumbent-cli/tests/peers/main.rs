//! Peers on a real network: `incumbent peer` as processes, each in a network namespace of its own, broken in every way of the fault catalogue (C01–C34, C46, C47 and what of
//! C49–C59 is theirs), and judged by the lab's own oracles over what all of them have recorded.
//!
//! A test runs itself again inside a network namespace that ends with it (see `apart`): nothing that it sends leaves there, and tests run side by side.
//! The names of the cases begin with their numbers in the catalogue.

#[path = "../apart/mod.rs"]
mod apart;
mod oracle;
mod world;

mod crashes;
mod disks;
mod network;
mod refused;
mod scenarios;
mod weather;
