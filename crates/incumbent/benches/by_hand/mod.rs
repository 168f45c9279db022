//! The shortest recipes that somebody would write with the same client crates: no history, no candidates, no wishes, no shared sessions.

use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use redis::AsyncCommands as _;

mod proto {
    #![allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::wildcard_enum_match_arm)]
    tonic::include_proto!("etcdserverpb");
}

/// A seat by hand.
#[async_trait]
pub(crate) trait ByHand {
    /// Takes the free seat.
    async fn claim(&mut self, me: &str, ttl: Duration);
    /// Gives it back.
    async fn release(&mut self, me: &str);
}

/// A lock on a file with a counter in it, synced: what a durable token costs.
pub(crate) struct File {
    path: PathBuf,
    held: Option<std::fs::File>,
}

impl File {
    pub(crate) fn new(directory: &Path) -> File {
        File { path: directory.join("by-hand"), held: None }
    }
}

#[async_trait]
impl ByHand for File {
    async fn claim(&mut self, me: &str, _ttl: Duration) {
        let mut file =
            std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.path).expect("a file");
        file.try_lock().expect("free");
        let mut text = String::new();
        file.read_to_string(&mut text).expect("readable");
        let term: u64 = text.split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0);
        file.rewind().and_then(|()| file.write_all(format!("{} {me}", term + 1).as_bytes())).expect("writable");
        file.sync_all().expect("a disk");
        self.held = Some(file);
    }

    async fn release(&mut self, _me: &str) {
        self.held = None;
    }
}

/// SET NX PX, a counter, and a script that deletes its own.
pub(crate) struct Redis {
    connection: redis::aio::MultiplexedConnection,
    release: redis::Script,
}

impl Redis {
    pub(crate) async fn connect(port: u16) -> Redis {
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).expect("a good URL");
        let connection = client.get_multiplexed_async_connection().await.expect("it was just started");
        let release = redis::Script::new(
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
        );
        Redis { connection, release }
    }
}

#[async_trait]
impl ByHand for Redis {
    async fn claim(&mut self, me: &str, ttl: Duration) {
        let set: Option<String> = redis::cmd("SET")
            .arg("by-hand")
            .arg(me)
            .arg("NX")
            .arg("PX")
            .arg(ttl.as_millis() as u64)
            .query_async(&mut self.connection)
            .await
            .expect("Redis is well");
        assert_eq!(set.as_deref(), Some("OK"));
        let _token: u64 = self.connection.incr("by-hand-token", 1).await.expect("Redis is well");
    }

    async fn release(&mut self, me: &str) {
        let deleted: u64 = self.release.key("by-hand").arg(me).invoke_async(&mut self.connection).await.expect("Redis is well");
        assert_eq!(deleted, 1);
    }
}

/// A lease kept by somebody, a key on it, and a look at who is first: Go's `concurrency.Election` without its waiting.
pub(crate) struct Etcd {
    keys: proto::kv_client::KvClient<tonic::transport::Channel>,
    lease: i64,
}

impl Etcd {
    pub(crate) async fn connect(port: u16) -> Etcd {
        let channel = tonic::transport::Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("a good URL");
        let channel = channel.connect().await.expect("it was just started");
        let mut leases = proto::lease_client::LeaseClient::new(channel.clone());
        let granted =
            leases.lease_grant(proto::LeaseGrantRequest { ttl: 3_600, id: 0 }).await.expect("etcd is well").into_inner();
        Etcd { keys: proto::kv_client::KvClient::new(channel), lease: granted.id }
    }

    fn key(&self) -> Vec<u8> {
        format!("by-hand/{:x}", self.lease).into_bytes()
    }
}

#[async_trait]
impl ByHand for Etcd {
    async fn claim(&mut self, me: &str, _ttl: Duration) {
        use proto::compare::{CompareResult, CompareTarget, TargetUnion};
        use proto::range_request::{SortOrder, SortTarget};
        use proto::request_op::Request;
        let absent = proto::Compare {
            result: CompareResult::Equal as i32,
            target: CompareTarget::Create as i32,
            key: self.key(),
            target_union: Some(TargetUnion::CreateRevision(0)),
        };
        let put = proto::PutRequest { key: self.key(), value: me.as_bytes().to_vec(), lease: self.lease };
        let claim = proto::TxnRequest {
            compare: vec![absent],
            success: vec![proto::RequestOp { request: Some(Request::RequestPut(put)) }],
            failure: vec![],
        };
        assert!(self.keys.txn(claim).await.expect("etcd is well").into_inner().succeeded);
        let first = proto::RangeRequest {
            key: b"by-hand/".to_vec(),
            range_end: b"by-hand0".to_vec(),
            limit: 1,
            sort_order: SortOrder::Ascend as i32,
            sort_target: SortTarget::Create as i32,
            ..proto::RangeRequest::default()
        };
        let look = proto::TxnRequest {
            compare: vec![],
            success: vec![proto::RequestOp { request: Some(Request::RequestRange(first)) }],
            failure: vec![],
        };
        self.keys.txn(look).await.expect("etcd is well");
    }

    async fn release(&mut self, _me: &str) {
        use proto::request_op::Request;
        let delete = proto::DeleteRangeRequest { key: self.key(), ..proto::DeleteRangeRequest::default() };
        let release = proto::TxnRequest {
            compare: vec![],
            success: vec![proto::RequestOp { request: Some(Request::RequestDeleteRange(delete)) }],
            failure: vec![],
        };
        self.keys.txn(release).await.expect("etcd is well");
    }
}
