//! The suite that every engine must pass, on both versions of etcd, and real processes in one election.

use std::time::Duration;

use incumbent::conformance::check;
use incumbent_testbed::Server as _;

use crate::networked::Networked;
use crate::networked::processes::{Arena, a_killed_holder_is_replaced, a_paused_holder_has_stopped_believing};
use crate::support::{ETCD, RECENT};

/// Calls may take a tenth of it, also on a machine that is busy with other tests.
const TTL: Duration = Duration::from_secs(3);

fn url(port: u16) -> String {
    format!("etcd://127.0.0.1:{port}/conformance")
}

#[tokio::test]
async fn etcd_conforms() {
    check(&Networked { port: ETCD.server().port(), url, ttl: TTL }).await;
}

#[tokio::test]
async fn a_recent_etcd_conforms() {
    check(&Networked { port: RECENT.server().port(), url, ttl: TTL }).await;
}

#[test]
fn a_killed_process_is_replaced() {
    a_killed_holder_is_replaced(&Arena::new(url(ETCD.server().port()), TTL));
}

#[test]
fn a_paused_process_has_stopped_believing_when_it_goes_on() {
    a_paused_holder_has_stopped_believing(&Arena::new(url(ETCD.server().port()), TTL));
}
