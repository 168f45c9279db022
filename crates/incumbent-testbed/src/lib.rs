//! Real engines for tests and benches, and a relay that misbehaves.
//!
//! A server is started on a free loopback port, keeps its files in a folder of its own under the system's temporary one, and dies with the
//! process that started it. What cannot be started is an error that says what to do: no test is skipped because an engine is absent.
//!
//! It knows no other crate of ours, and no program of ours: what it starts is what others run in production.
