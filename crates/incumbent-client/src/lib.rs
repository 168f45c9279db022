//! The client of incumbent's replicated service, and the binary stream that both of its ends speak.
//!
//! [`client::Client`] asks any node of the service, many things at once, over one connection. When the connection ends it makes another, repeats what is unanswered so that it is applied
//! once, and goes on with its watches where they were. Its answers say first whether something has happened: done, refused, not now (it did not), unknown (it may have).
//!
//! In reading order: what is said ([`message`]) and how it goes over a connection ([`frame`]); the client ([`client`], [`failure`], [`watch`], [`session`]) and how it reaches a node ([`dial`]);
//! the server's half ([`serve`]). What operators ask is in [`administration`], and how they take a backup home in [`backup`].
//!
//! It knows the store's commands, questions and events, and neither a log nor a replica nor an election's rules.

pub mod administration;
pub mod backup;
pub mod client;
pub mod dial;
pub mod failure;
pub mod frame;
pub mod message;
pub mod serve;
pub mod session;
pub mod watch;

mod connection;
mod docket;
mod numbering;
mod roster;
