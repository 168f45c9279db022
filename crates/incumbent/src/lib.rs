//! Leader election on the engine you already run: exactly one process in office, with a fencing token and a deadline.
//!
//! ```
//! use incumbent::{Election, Next};
//! # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?.block_on(async {
//! let election = Election::on("memory:doc/billing").build().await?; // or etcd://10.0.0.1:2379/billing, file:/var/lock/jobs/billing, ...
//! election
//!     .run(|leadership| async move {
//!         // In office, and nobody else is. Whatever is written carries the token, so that late writes of former leaders are refused.
//!         println!("leading with token {}", leadership.token());
//!         tokio::select! {
//!             reason = leadership.stopping() => println!("leaving: {reason}"),
//!             () = work() => {}
//!         }
//!         Ok::<_, incumbent::Error>(Next::Quit) // or Next::Resign, to contend again after a rest
//!     })
//!     .await // released only after the work has ended
//! # })?;
//! # async fn work() {}
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Election`] is where to begin: [`Election::run`] for a piece of work, [`Election::campaign`] for a [`Leadership`] to hold, [`Election::observe`] to look on.
//! - [`Leadership`] is the right to act: a [`Token`], a deadline, and the signals that it is about to end or has ended.
//! - [`Timing`] holds the times that make that safe; [`Guarantees`] says what an engine promises and what it cannot.
//! - [`fence`] refuses what former leaders write: give it the token.
//! - [`Engine`] is what to write for an engine of one's own; [`engines`] are those that are there.

mod alarm;
mod candidacy;
mod clerk;
mod hub;

pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod desk;
pub mod election;
pub mod engine;
pub mod engines;
pub mod fence;
pub mod guarantees;
pub mod identity;
pub mod leadership;
pub mod metrics;
pub mod name;
pub mod observer;
pub mod place;

pub use clerk::Preemption;
pub use election::{Election, Next};
pub use engine::{Engine, Error};
pub use guarantees::Guarantees;
pub use identity::Identity;
pub use incumbent_protocol::protocol::Token;
pub use incumbent_protocol::tenure::Reason;
pub use incumbent_protocol::timing::Timing;
pub use leadership::{Leadership, Lost, State};
pub use name::Name;
pub use observer::Observer;

/// Times that fit a lease of `ttl`, for the suite.
#[cfg(feature = "conformance")]
pub(crate) fn timing_of(ttl: std::time::Duration) -> Timing {
    Timing::of(ttl).build().expect("a ttl that an engine grants is a good one")
}
