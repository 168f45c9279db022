//! `incumbent run` as a shell sees it, with real processes: how it ends, what the command sees and hears, and that nothing of its tree lives when it should not.
//!
//! What needs several hosts is in `run_rounds`. Wherever a tree is killed, the test is run twice: with a control group, and by descent alone.

#[path = "../places/mod.rs"]
mod places;
#[path = "../shell/mod.rs"]
mod shell;
mod world;

mod codes;
mod jeopardy;
mod job;
mod last_lines;
mod office;
mod passing;
mod policy;
mod stopped;
mod tree;
