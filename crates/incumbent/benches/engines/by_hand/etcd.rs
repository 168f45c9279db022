//! A lease kept by somebody, a key on it, and a wait for the key before it to go: Go's `concurrency.Election`. The token is the create revision.

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use tokio::sync::Notify;

use crate::contender::Contender;

mod proto {
    #![allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::wildcard_enum_match_arm)]
    tonic::include_proto!("etcdserverpb");
}

pub(crate) struct Etcd {
    keys: proto::kv_client::KvClient<tonic::transport::Channel>,
    watches: proto::watch_client::WatchClient<tonic::transport::Channel>,
    lease: i64,
    me: &'static str,
}

impl Etcd {
    pub(crate) async fn connect(port: u16, me: &'static str) -> Etcd {
        let channel = tonic::transport::Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("a good URL");
        let channel = channel.connect().await.expect("it was just started");
        let mut leases = proto::lease_client::LeaseClient::new(channel.clone());
        let granted =
            leases.lease_grant(proto::LeaseGrantRequest { ttl: 3_600, id: 0 }).await.expect("etcd is well").into_inner();
        let watches = proto::watch_client::WatchClient::new(channel.clone());
        Etcd { keys: proto::kv_client::KvClient::new(channel), watches, lease: granted.id, me }
    }

    fn key(&self) -> Vec<u8> {
        format!("by-hand/{:x}", self.lease).into_bytes()
    }

    async fn txn(&mut self, compare: Vec<proto::Compare>, then: proto::request_op::Request) -> proto::TxnResponse {
        let success = vec![proto::RequestOp { request: Some(then) }];
        let request = proto::TxnRequest { compare, success, failure: Vec::new() };
        self.keys.txn(request).await.expect("etcd is well").into_inner()
    }

    /// The key that was made last of those before ours, and the revision at which it was seen.
    async fn predecessor(&mut self, own: i64) -> Option<(Vec<u8>, i64)> {
        use proto::range_request::{SortOrder, SortTarget};
        let before = proto::RangeRequest {
            key: b"by-hand/".to_vec(),
            range_end: b"by-hand0".to_vec(),
            limit: 1,
            sort_order: SortOrder::Descend as i32,
            sort_target: SortTarget::Create as i32,
            max_create_revision: own - 1,
        };
        let answer = self.txn(Vec::new(), proto::request_op::Request::RequestRange(before)).await;
        let revision = answer.header.expect("always there").revision;
        let Some(proto::response_op::Response::ResponseRange(range)) = answer.responses.into_iter().next()?.response else {
            panic!("it was asked for a range")
        };
        range.kvs.into_iter().next().map(|it| (it.key, revision))
    }

    async fn gone(&mut self, key: Vec<u8>, since: i64, waits: &Notify) {
        let create = proto::WatchCreateRequest { key, start_revision: since + 1, ..proto::WatchCreateRequest::default() };
        let create = proto::WatchRequest { request_union: Some(proto::watch_request::RequestUnion::CreateRequest(create)) };
        // The request's stream stays open, and ends with this call: its end is the watch's, which would go on for ever otherwise.
        let (_open, closed) = tokio::sync::oneshot::channel::<()>();
        let end = stream::once(closed).filter_map(|_| std::future::ready(None));
        let requests = stream::once(std::future::ready(create)).chain(end);
        let mut events = self.watches.watch(requests).await.expect("etcd is well").into_inner();
        loop {
            let answer = events.message().await.expect("etcd is well").expect("goes on");
            if answer.created {
                waits.notify_one();
            }
            if answer.events.iter().any(|it| it.r#type == proto::event::EventType::Delete as i32) {
                return;
            }
        }
    }
}

#[async_trait]
impl Contender for Etcd {
    async fn claim(&mut self, waits: &Notify) {
        use proto::compare::{CompareResult, CompareTarget, TargetUnion};
        let absent = proto::Compare {
            result: CompareResult::Equal as i32,
            target: CompareTarget::Create as i32,
            key: self.key(),
            target_union: Some(TargetUnion::CreateRevision(0)),
        };
        let put = proto::PutRequest { key: self.key(), value: self.me.as_bytes().to_vec(), lease: self.lease };
        let created = self.txn(vec![absent], proto::request_op::Request::RequestPut(put)).await;
        assert!(created.succeeded);
        let own = created.header.expect("always there").revision;
        while let Some((key, seen)) = self.predecessor(own).await {
            self.gone(key, seen, waits).await;
        }
    }

    async fn release(&mut self) {
        let delete = proto::DeleteRangeRequest { key: self.key(), ..proto::DeleteRangeRequest::default() };
        self.txn(Vec::new(), proto::request_op::Request::RequestDeleteRange(delete)).await;
    }
}
