//! What the replicated service remembers: sessions, elections, keys, and what happened to them.
//!
//! A pure state machine. Commands go in through [`store::Store::apply`], in the order of a log that every replica has; questions through
//! [`store::Store::query`]. It knows neither the log nor a wire nor a clock, and answers anything that it is asked: bytes of strangers are refused, never a panic.
//!
//! ```
//! use incumbent_store::command::{Campaign, Command, OpenSession, Request};
//! use incumbent_store::reply::Reply;
//! use incumbent_store::store::Store;
//! use incumbent_store::time::{Stamp, Time};
//!
//! let mut store = Store::new(0);
//! let mut events = Vec::new();
//! let mut ask = |ms, command| store.apply(Stamp::at(Time::from_millis(ms)), Request::of(command), &mut events);
//! let open = OpenSession { ttl_ms: 1_000, owner: "web-1".into(), ..OpenSession::default() };
//! let Ok(Reply::Opened(session)) = ask(0, Command::OpenSession(open)) else { panic!("refused") };
//! let bid = Campaign { session, election: "billing".into(), identity: "web-1_4711".into(), ..Campaign::default() };
//! let Ok(Reply::Granted(seat)) = ask(1, Command::Campaign(bid)) else { panic!("refused") };
//! assert!(seat.token > 0);
//! ```
//!
//! In reading order: what goes in ([`command`], [`keys::transaction`]; what it may cost: [`command::Command::weight`]), what comes out ([`reply`], [`refusal`], [`event`]), what may be asked ([`query`]), who
//! hears of it ([`watch`]), how it is written ([`encoding`], [`snapshot`]) and goes on in another cluster ([`rebirth`]); then the state itself, behind [`store`].

#![no_std]

extern crate alloc;

pub mod command;
pub mod election;
pub mod encoding;
pub mod event;
pub mod keys;
pub mod limits;
pub mod query;
pub mod rebirth;
pub mod refusal;
pub mod reply;
pub mod snapshot;
pub mod store;
pub mod time;
pub mod watch;

mod clients;
mod elections;
mod expiry;
mod journal;
mod owners;
mod sessions;
mod tree;
mod weight;

pub use prost::Message;
pub use prost::bytes::Bytes;
