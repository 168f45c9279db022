//! Election protocols as pure machines: given the same start and the same inputs, the same effects, on every run.
//!
//! - [`bully`], [`ring`], [`chang_roberts`] and [`raft`] decide *who* should lead; [`office`] is what they share: terms,
//!   votes, heartbeats, the lease that a majority gives, hand-over.
//! - [`machine`] is any of them behind one type.
//! - [`tenure`] is the machine of one who holds a lease at a lock service, and [`timing`] the times that it keeps.
//!
//! There is no clock, socket, file, thread or hash map here, and no chance but a seed: everything that happens comes in through
//! [`protocol::Protocol::step`] and everything wanted goes out as [`protocol::Effects`].

#![no_std]

extern crate alloc;

pub mod protocol;
pub mod settings;
pub mod time;

pub mod bully;
pub mod chang_roberts;
pub mod circuit;
pub mod office;
pub mod raft;
pub mod ring;

pub mod machine;

pub mod tenure;
pub mod timing;

pub mod chance;
mod detector;
mod stabilizer;
