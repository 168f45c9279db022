//! Runs a command while a lease lasts, and proves its whole process tree dead before it ends. Linux only; knows no engine.

pub mod clock;
pub mod network_fence;
