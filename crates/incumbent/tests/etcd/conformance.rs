//! The suite that every engine must pass, on both versions of etcd.

use std::time::Duration;

use incumbent::conformance::check;
use incumbent_testbed::Server as _;

use crate::networked::Networked;
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
