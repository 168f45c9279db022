//! etcd's messages, made from `proto/etcd.proto`, and short ways to write transactions and to read their answers.

use std::time::Duration;

use self::proto::compare::{CompareResult, CompareTarget, TargetUnion};
use self::proto::range_request::{SortOrder, SortTarget};
use self::proto::request_op::Request;
use self::proto::response_op::Response;
use self::proto::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp, ResponseHeader, TxnRequest, TxnResponse,
};

/// What the compiler of protocols has written.
pub(super) mod proto {
    #![allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::wildcard_enum_match_arm)]
    tonic::include_proto!("etcdserverpb");
}

/// etcd refuses transactions with more compares or operations than this, unless told otherwise.
pub(super) const TXN_OPERATIONS_MAX: usize = 128;

/// Which cluster answered, and in which term of its leader. Answers of equal stamps, the later one linearizable, were given under
/// one and the same leader.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    cluster: u64,
    term: u64,
}

impl Stamp {
    pub(super) fn of(header: Option<&ResponseHeader>) -> Stamp {
        let header = header.copied().unwrap_or_default();
        Stamp { cluster: header.cluster_id, term: header.raft_term }
    }
}

/// What became of a transaction.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) stamp: Stamp,
    /// Of the whole store; also of what this transaction wrote.
    pub(super) revision: i64,
    pub(super) succeeded: bool,
    /// What each operation has found; nothing for those that write.
    found: Vec<Vec<KeyValue>>,
}

impl Answer {
    /// What the operation at `index` has found.
    pub(super) fn all(&self, index: usize) -> &[KeyValue] {
        self.found.get(index).map_or(&[], Vec::as_slice)
    }

    /// The same, for an operation on one key.
    pub(super) fn one(&self, index: usize) -> Option<&KeyValue> {
        self.all(index).first()
    }
}

impl From<TxnResponse> for Answer {
    fn from(response: TxnResponse) -> Answer {
        let found = response.responses.into_iter().map(|it| match it.response {
            Some(Response::ResponseRange(range)) => range.kvs,
            Some(Response::ResponsePut(_) | Response::ResponseDeleteRange(_)) | None => Vec::new(),
        });
        Answer {
            stamp: Stamp::of(response.header.as_ref()),
            revision: response.header.unwrap_or_default().revision,
            succeeded: response.succeeded,
            found: found.collect(),
        }
    }
}

/// A transaction that only reads. Linearizable, as every one here.
pub(super) fn reading(operations: Vec<RequestOp>) -> TxnRequest {
    TxnRequest { compare: Vec::new(), success: operations, failure: Vec::new() }
}

/// Whether it changes nothing, whatever it finds.
pub(super) fn only_reads(txn: &TxnRequest) -> bool {
    let is_range = |it: &RequestOp| matches!(it.request, Some(Request::RequestRange(_)));
    txn.success.iter().chain(&txn.failure).all(is_range)
}

/// The key was created at this revision; 0: it is not there.
pub(super) fn created(key: &[u8], revision: i64) -> Compare {
    compare(key, CompareTarget::Create, TargetUnion::CreateRevision(revision))
}

/// The key was last written at this revision; 0: it is not there.
pub(super) fn modified(key: &[u8], revision: i64) -> Compare {
    compare(key, CompareTarget::Mod, TargetUnion::ModRevision(revision))
}

fn compare(key: &[u8], target: CompareTarget, value: TargetUnion) -> Compare {
    Compare { result: CompareResult::Equal.into(), target: target.into(), key: key.to_vec(), target_union: Some(value) }
}

/// One key.
pub(super) fn key(key: &[u8]) -> RequestOp {
    range(RangeRequest { key: key.to_vec(), ..RangeRequest::default() })
}

/// The oldest keys that begin so, oldest first.
pub(super) fn oldest(prefix: &[u8], limit: i64) -> RequestOp {
    range(RangeRequest {
        key: prefix.to_vec(),
        range_end: end_of(prefix),
        limit,
        sort_order: SortOrder::Ascend.into(),
        sort_target: SortTarget::Create.into(),
        ..RangeRequest::default()
    })
}

/// The youngest keys that begin so and are older than `revision`, youngest first.
pub(super) fn youngest_before(prefix: &[u8], revision: i64, limit: i64) -> RequestOp {
    range(RangeRequest {
        key: prefix.to_vec(),
        range_end: end_of(prefix),
        limit,
        sort_order: SortOrder::Descend.into(),
        sort_target: SortTarget::Create.into(),
        max_create_revision: revision - 1,
    })
}

fn range(request: RangeRequest) -> RequestOp {
    RequestOp { request: Some(Request::RequestRange(request)) }
}

/// Writes a key; 0 is no lease.
pub(super) fn put(key: &[u8], value: impl Into<Vec<u8>>, lease: i64) -> RequestOp {
    RequestOp { request: Some(Request::RequestPut(PutRequest { key: key.to_vec(), value: value.into(), lease })) }
}

/// Removes a key.
pub(super) fn delete(key: &[u8]) -> RequestOp {
    let request = DeleteRangeRequest { key: key.to_vec(), range_end: Vec::new() };
    RequestOp { request: Some(Request::RequestDeleteRange(request)) }
}

/// The first key behind all that begin with `prefix`, which ends with a slash.
pub(super) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    debug_assert_eq!(end.last(), Some(&b'/'), "our prefixes end so");
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// A ttl in etcd's whole seconds, rounded up: what is promised must not become shorter on the way.
pub(super) fn whole_seconds(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_nanos().div_ceil(1_000_000_000)).unwrap_or(i64::MAX).max(1)
}

/// A ttl as etcd told it.
pub(super) fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_rounded_up() {
        for (ms, seconds) in [(1, 1), (1_000, 1), (1_001, 2), (15_000, 15)] {
            assert_eq!(whole_seconds(Duration::from_millis(ms)), seconds);
        }
    }

    #[test]
    fn a_prefix_ends_before_the_next_name() {
        assert_eq!(end_of(b"prod/jobs/"), b"prod/jobs0");
    }
}
