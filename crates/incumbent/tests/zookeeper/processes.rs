//! Real processes, killed and paused.

use crate::support::processes::{Arena, a_killed_holder_is_replaced, a_paused_holder_has_stopped_believing};
use crate::{TTL, url};

#[test]
fn a_process_that_is_killed_is_replaced() {
    a_killed_holder_is_replaced(&Arena::new(url("killed"), TTL));
}

#[test]
fn a_process_that_is_paused_has_stopped_believing() {
    a_paused_holder_has_stopped_believing(&Arena::new(url("paused"), TTL));
}
