//! The exhaustive check: every run of the shipping protocol code within a small scope, and not one of them left out.
//!
//! **The problem.** A seed tries one order of events. The order that breaks a protocol is often short, and one in millions.
//!
//! **The insight.** Most faults of such protocols show with three nodes, a crash or two and a few timeouts. Within such bounds
//! the orders can be gone through one and all: a breadth-first search over the machines of `incumbent_protocol` themselves, not
//! over a model of them. The machines are values with equality and a hash, so a state of the group is a value too.
//!
//! **What is searched.** A state is: every node with its machine, its own clock, its disk and what it is writing; the messages
//! under way; what is left of the [`Budget`]. From each state whatever may happen next happens: any one message arrives, in any order,
//! is repeated or lost; a node's clock comes to its deadline; it is woken; a record becomes safe; a node crashes, with or without
//! what it was writing, or starts again; a user asks for something. What must be true is checked on every step ([`Property`]), and what
//! should happen at all is counted ([`Case`]), because a search that never meets an election proves nothing.
//!
//! A message may stay under way for ever, so any number may be lost without a budget for it. For the same reason a message that changes
//! nothing where it arrives is not followed further: whatever comes after it comes without it, too.
//!
//! **What is left out.** A clock only ever moves to its node's next deadline, and no clock knows of the others. So nothing is checked
//! that rests on the rates of clocks: that no two leases overlap is for the world's oracles. Nor is liveness: the search sees what can
//! happen, not what must.
//!
//! **Why not stateright.** It would do. But here a node's part in a step is computed once and then looked up (the same node in the same
//! state gets the same message in thousands of states of the group: 99 of 100 steps are looked up); a state costs some 70 bytes, not a list of machines;
//! a counterexample is a list of steps in the words of the lab's traces; and the lab gains no dependency. That is worth its lines.

mod scope;

mod group;
mod node;
mod search;
mod state;
mod step;

mod report;

pub use report::{Case, Counterexample, End, Property, Report, Step};
pub use scope::{Begin, Budget, Disk, NODES_MAX, NODES_MIN, Refused, Scope};
pub use search::check;
