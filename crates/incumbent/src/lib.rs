//! Leader election on the engine you already run: exactly one process in office, with a fencing token and a deadline.
#![warn(unreachable_pub)]

pub mod clock;
pub mod desk;
pub mod engine;
pub mod engines;
pub mod guarantees;
pub mod identity;
pub mod name;
pub mod place;

pub use engine::{Engine, Error};
pub use guarantees::Guarantees;
pub use identity::Identity;
pub use incumbent_protocol::protocol::Token;
pub use incumbent_protocol::timing::Timing;
pub use name::Name;
