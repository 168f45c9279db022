//! The incumbent command.

fn main() {}
