//! The lab: a deterministic world in which the election protocols are broken, checked, compared and replayed.
//!
//! [`world`] runs the nodes; [`fault`] is what can be done to them; [`observation`] is what can be seen of them, by
//! [`oracle`], by [`meter`] and, as text, through [`trace`]. [`plan`] draws a whole run from a seed, [`swarm`] makes thousands of
//! them, and [`shrink`] makes a failing one small.
//!
//! [`check`] needs no world: it goes through all runs of a small group. [`lease`] is a small world of its own, for those who
//! hold leases at a lock service.

pub mod fault;
mod injection;
pub mod node;
pub mod world;

pub mod clock;
pub mod disk;
pub mod network;
pub mod queue;

pub mod lease;

pub mod meter;
pub mod observation;
pub mod oracle;
pub mod trace;

pub mod plan;
pub mod shrink;
pub mod swarm;

pub mod check;

pub mod report;
pub mod scenario;

pub mod compare;
pub mod graphs;
pub mod jobs;
