//! A key with its value and its history in numbers, and spans of keys.

use prost::bytes::Bytes;

/// A key and what is known of it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Item {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Its value.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    /// The revision at which it was created.
    #[prost(uint64, tag = "3")]
    pub created: u64,
    /// The revision at which it was last written.
    #[prost(uint64, tag = "4")]
    pub modified: u64,
    /// How often it was written since it was created: 1 for a new one.
    #[prost(uint64, tag = "5")]
    pub version: u64,
    /// The session it goes with; 0 for none.
    #[prost(uint64, tag = "6")]
    pub session: u64,
    /// It stays when its session ends, and only the session is taken from it.
    #[prost(bool, tag = "7")]
    pub outlives_session: bool,
    /// It is a child of the key that is the first so many bytes of it; 0 for none.
    #[prost(uint32, tag = "8")]
    pub parent_len: u32,
    /// When it was created and last written, by the wall clock.
    #[prost(uint64, tag = "9")]
    pub created_wall_ms: u64,
    /// See `created_wall_ms`.
    #[prost(uint64, tag = "10")]
    pub modified_wall_ms: u64,
    /// So many children it has. What is known of children is no part of a key's history: in a read of the past it is 0, all of it, if a child has come or gone since.
    #[prost(uint64, tag = "11")]
    pub children: u64,
    /// So many sequential children were named, ever.
    #[prost(uint64, tag = "12")]
    pub named: u64,
    /// So often a child came or went.
    #[prost(uint64, tag = "13")]
    pub children_changes: u64,
    /// The revision at which a child last came or went.
    #[prost(uint64, tag = "14")]
    pub children_changed: u64,
}

impl Item {
    /// What it counts for in limits and answers, in bytes.
    pub fn size(&self) -> usize {
        self.key.len() + self.value.len()
    }

    /// What is known of its children is of a later time.
    pub(crate) fn forget_children(&mut self) {
        (self.children, self.named, self.children_changes, self.children_changed) = (0, 0, 0, 0);
    }

    /// Its parent's key, if it is a child.
    pub fn parent(&self) -> Option<Bytes> {
        let len = self.parent_len as usize;
        (len > 0 && len <= self.key.len()).then(|| self.key.slice(..len))
    }
}

/// Keys from `start` on.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Span {
    /// The first key.
    #[prost(bytes = "bytes", tag = "1")]
    pub start: Bytes,
    /// The first key behind the span. Empty: `start` alone. One byte of zero: all from `start` on.
    #[prost(bytes = "bytes", tag = "2")]
    pub end: Bytes,
}

impl Span {
    /// One key.
    pub fn key(key: impl Into<Bytes>) -> Span {
        Span { start: key.into(), end: Bytes::new() }
    }

    /// All keys that begin so.
    pub fn prefix(prefix: impl Into<Bytes>) -> Span {
        let start = prefix.into();
        let end = successor(&start);
        Span { start, end }
    }

    /// All keys.
    pub fn all() -> Span {
        Span { start: Bytes::new(), end: Bytes::from_static(&[0]) }
    }

    /// Whether it is one key.
    pub fn is_one(&self) -> bool {
        self.end.is_empty()
    }

    /// Whether it has no end.
    pub fn is_open(&self) -> bool {
        *self.end == [0]
    }

    /// Whether it can hold any key at all.
    pub fn is_empty(&self) -> bool {
        !self.is_one() && !self.is_open() && self.end <= self.start
    }

    /// The prefix that all its keys begin with and that makes up the span, if it is such a one.
    pub fn as_prefix(&self) -> Option<&Bytes> {
        (!self.is_one() && successor(&self.start) == self.end).then_some(&self.start)
    }

    /// What all its keys begin with, as far as that follows from its ends.
    pub(crate) fn common_prefix(&self) -> Bytes {
        if self.is_one() {
            return self.start.clone();
        }
        let common = self.start.iter().zip(&self.end).take_while(|(start, end)| !self.is_open() && start == end).count();
        self.start.slice(..common)
    }

    /// Whether the key is in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        if self.is_one() {
            return key == self.start;
        }
        key >= &self.start[..] && (self.is_open() || key < &self.end[..])
    }
}

/// The first key behind all those that begin with `prefix`; one byte of zero if there is none.
pub(crate) fn successor(prefix: &[u8]) -> Bytes {
    match prefix.iter().rposition(|it| *it < u8::MAX) {
        Some(at) => {
            let mut end = prefix[..=at].to_vec();
            end[at] += 1;
            end.into()
        }
        None => Bytes::from_static(&[0]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_holds_what_it_says() {
        let prefix = Span::prefix("a/");
        assert!(prefix.contains(b"a/") && prefix.contains(b"a/\xff") && !prefix.contains(b"a0") && !prefix.contains(b"a"));
        assert_eq!(prefix.as_prefix(), Some(&Bytes::from("a/")));
        let last = Span::prefix(&b"\xff\xff"[..]);
        assert!(last.contains(b"\xff\xff\xff") && !last.contains(b"\xff\xfe") && last.as_prefix().is_some());
        let one = Span::key("k");
        assert!(one.contains(b"k") && !one.contains(b"k\0") && one.as_prefix().is_none());
        assert!(Span::all().contains(b"") && Span::all().contains(b"\xff") && Span::all().as_prefix().is_some());
        let backward = Span { start: "b".into(), end: "a".into() };
        assert!(backward.is_empty() && !backward.contains(b"b"));
        assert!(!Span { start: "b".into(), end: Bytes::from_static(&[0]) }.is_empty());
    }
}
