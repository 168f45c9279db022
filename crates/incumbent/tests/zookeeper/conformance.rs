//! The conformance suite, through lines that fail.

use incumbent::conformance::check;
use incumbent_testbed::Server as _;

use crate::support::Networked;
use crate::{TTL, ZOOKEEPER};

#[tokio::test]
async fn zookeeper_conforms() {
    let url = |port| format!("zookeeper://127.0.0.1:{port}/conformance?tick-ms=100");
    check(&Networked { port: ZOOKEEPER.server().port(), url, ttl: TTL }).await;
}
