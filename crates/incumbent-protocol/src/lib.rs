//! Election protocols as pure machines: given the same start and the same inputs, the same effects, on every run.
//!
//! - [`bully`], [`ring`], [`chang_roberts`] and [`raft`] decide *who* should lead; [`office`] is what they share: terms,
//!   votes, heartbeats, the lease that a majority gives, hand-over.
//! - [`machine`] is any of them behind one type.
//! - [`tenure`] is the machine of one who holds a lease at a lock service, and [`timing`] the times that it keeps.
//!
//! A machine is driven like this; the lab, a test and a real network differ only in where `now` and the messages come from:
//!
//! ```
//! use incumbent_protocol::machine::{Kind, Machine};
//! use incumbent_protocol::protocol::{Effect, Effects, Event, Input, NodeId};
//! use incumbent_protocol::settings::Settings;
//! use incumbent_protocol::time::Instant;
//!
//! let settings = Settings::of([NodeId(1)]).build()?;
//! let mut node = Machine::start(Kind::Raft, NodeId(1), &settings, 7, None, Instant::ZERO);
//! let mut out = Effects::default();
//! let now = node.deadline(); // nobody leads: when to do something about it
//! let mut inputs = vec![Input::Wake];
//! while let Some(input) = inputs.pop() {
//!     node.step(now, input, &mut out);
//!     for effect in out.drain() {
//!         match effect {
//!             // Its vote for itself must be safe on disk before it counts.
//!             Effect::Persist { mark, .. } => inputs.push(Input::Persisted(mark)),
//!             Effect::Emit(Event::Elected { term }) => println!("in office, term {term}"),
//!             Effect::Emit(_) | Effect::Send { .. } => {}
//!         }
//!     }
//! }
//! assert!(node.view().in_office(now));
//! # Ok::<(), incumbent_protocol::settings::Invalid>(())
//! ```
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
