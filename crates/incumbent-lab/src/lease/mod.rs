//! A small world of its own for the lease holder's machine: one lock service, a few holders, and everything between them that can go
//! wrong. It is here to doubt one sentence, L4: *at no instant do two holders believe*.
//!
//! [`world`] runs the shipping [`incumbent_protocol::tenure::Tenure`] of each holder, with clocks that drift and processes that
//! pause; [`service`] keeps the leases; [`setup`] is what a seed draws; [`sighting`] is what can be seen, by [`oracle`]s that know
//! nothing else. [`Flaw`]s are the mistakes that other lock clients are known to make: with one of them in place an oracle must
//! speak up, or it has no teeth.
//!
//! ```
//! use incumbent_lab::lease::{Setup, run};
//!
//! let outcome = run(&Setup::draw(7));
//! assert_eq!(outcome.violation, None);
//! ```

pub mod setup;
mod weather;
pub mod world;

mod process;
pub mod resource;
pub mod service;

pub mod oracle;
pub mod sighting;
pub mod tally;

pub use setup::{Flaw, Setup};
pub use world::{Outcome, run};
