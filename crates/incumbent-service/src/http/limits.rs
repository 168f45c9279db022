//! How much HTTP clients may ask, hold and wait for. Everything has its limit here, with its reason.
//!
//! What the store itself limits (names, keys, values, lists) stands in [`incumbent_store::limits`]. How many connections there may be is the door's business.

use std::time::Duration;

use incumbent_store::limits::Limits;

/// A raw body is a value, and a value may be so long.
pub(super) const VALUE_BYTES_MAX: usize = Limits::STANDARD.value_len_max;

/// A JSON body: the longest value in base64, and names, keys and punctuation around it. What the store is asked is limited by itself once more.
pub(super) const JSON_BYTES_MAX: usize = VALUE_BYTES_MAX / 3 * 4 + (256 << 10);

/// So many values (objects, lists, texts, numbers) in a JSON body: what it takes to say as many guards and operations as a transaction may have. In memory a value takes some hundred times of
/// what it takes in JSON.
pub(super) const JSON_VALUES_MAX: usize = 16 * Limits::STANDARD.operations_max;

/// Bodies that are being read, or of whose requests the answer is not there yet, of all together. Beyond that who brings one is told to come again (503).
pub(super) const BODIES_BYTES_MAX: usize = 128 << 20;

/// Answers that are not read yet, of all together.
pub(super) const ANSWERS_BYTES_MAX: usize = 256 << 20;

/// A guest has room in those as long as it has no more than so many times what is left: so it has half of it, and keeps out nobody.
pub(super) const TIMES_LEFT: usize = 1;

const _: () = assert!(BODIES_BYTES_MAX > 8 * JSON_BYTES_MAX && ANSWERS_BYTES_MAX > 8 * Limits::STANDARD.answer_bytes_max);

/// On a connection on which nobody has said who it is (probes, and whoever asks for the document) so many requests are answered at once ...
pub(super) const STRANGER_ANSWERED_AT_ONCE: u32 = 10;

/// ... and then one in each such time: a few thousand such connections leave the thread that serves everybody time for others.
pub(super) const STRANGER_ANSWERED_EVERY: Duration = Duration::from_millis(100);

/// The head of a request: the longest key with every byte percent-encoded, a token, and what browsers and proxies add.
pub(super) const HEAD_BYTES_MAX: usize = 32 << 10;

const _: () = assert!(HEAD_BYTES_MAX > 3 * Limits::STANDARD.key_len_max + 8 * 1024);

/// So many headers; more are nobody's.
pub(super) const HEADERS_MAX: usize = 64;

/// The head of a request must be there so soon after the last answer, or the connection is closed: the time that a connection may be idle, and that a slow head may take.
pub(super) const HEAD_WITHIN: Duration = Duration::from_secs(30);

/// A body that has not come by then never will.
pub(super) const BODY_WITHIN: Duration = Duration::from_secs(10);

/// A node that has not answered by then is not waited for. Longer than a replica's own patience when nobody leads, so that its answer, which says more, comes first.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// A candidate waits so long at most in one request: proxies cut off what is silent for a minute.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(55);

/// Streams of events on one node; a connection has one at a time, for HTTP/1.1 has no more.
pub(super) const STREAMS_MAX: usize = 10_000;

/// So often a stream says something in any case, by which both sides notice that the other is gone.
pub(super) const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// A connection whose other side takes nothing of an answer or a stream for so long is closed ...
pub(super) const READ_WITHIN: Duration = Duration::from_secs(60);

/// ... and one that takes less than this in a second, after that time. Whoever takes a byte now and then would have the node keep megabytes for ever.
pub(super) const READ_BYTES_PER_S_MIN: u32 = 32 << 10;

/// Whoever reconnects to a stream waits so long before, unless it knows better.
pub(super) const RECONNECT_AFTER: Duration = Duration::from_millis(500);

/// After something that was certainly not done, it may be tried again so soon.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Lists have so many items unless a limit is given.
pub(super) const LISTED: u64 = 100;

/// A node that ends gives its connections so long.
pub(super) const CLOSE_WITHIN: Duration = Duration::from_secs(2);
