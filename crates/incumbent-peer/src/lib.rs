//! Nodes that elect one of themselves, with no service at all: the machines of `incumbent-protocol` on real sockets, real disks and real clocks.
//!
//! A *node* is a member of a *group*; a group holds many *elections*, each with a machine of its own on every node. Knows nothing of engines or leaderships: the
//! library makes those of it.

pub mod archive;
pub mod clock;
pub mod node;
pub mod pace;
pub mod packet;
pub mod reread;
pub mod switchboard;
pub mod turns;
