//! How a message goes over a connection: a length, a checksum, the message; and nothing that a stranger's bytes could break.
//!
//! ```text
//!   "INCB" 1 │ length u32 │ CRC-32C of the message u32 │ message │ length │ …         numbers little endian
//! ```
//!
//! The client's first five bytes say which protocol this is, so that others can live on the same port. Frames are appended to a buffer, so that many go out in one write. Memory grows
//! with the bytes that have come, never with those announced (C85); a flipped bit past TCP's own checksum is found (C34).

use std::fmt;

use prost::Message;

/// What a client says first: this protocol, and the version of its frames.
pub const PREAMBLE: [u8; 5] = *b"INCB\x01";
/// The protocol alone, which every version begins with.
const PROTOCOL: &[u8] = b"INCB";
/// Length and checksum.
pub const HEAD: usize = 8;
/// The longest message to a server. The longest value with its key fits, and so does the longest keep-alive.
pub const REQUEST_MAX: usize = 2 * 1024 * 1024;
/// The longest message to a client. The longest answer of the store fits, with what its items weigh beside keys and values.
pub const ANSWER_MAX: usize = 8 * 1024 * 1024;
/// The longest first message, of either side: from somebody who is not known yet.
pub const GREETING_MAX: usize = 16 * 1024;
const _: () = assert!(REQUEST_MAX > 1024 * 1024 + 64 * 1024 && ANSWER_MAX >= 2 * 4 * 1024 * 1024);

/// So much is read at once, at first: most connections are idle, and there may be many.
const READ_MIN: usize = 1024;
/// And at most, once there is more than that.
const READ_MAX: usize = 64 * 1024;
/// A buffer that grew larger than this for something long is given back when it is empty.
pub(crate) const KEPT_MAX: usize = 128 * 1024;
const _: () = assert!(READ_MIN < READ_MAX && READ_MAX <= KEPT_MAX);

/// Whether a connection that begins with these bytes is for us, whatever its version; `None` if that cannot be seen yet.
pub fn is_ours(begun: &[u8]) -> Option<bool> {
    let len = begun.len().min(PROTOCOL.len());
    if begun[..len] != PROTOCOL[..len] { Some(false) } else { (len == PROTOCOL.len()).then_some(true) }
}

/// Appends a frame.
///
/// # Panics
/// If the message is longer than a frame can say: 4 GiB.
pub fn append(message: &impl Message, to: &mut Vec<u8>) {
    let begin = to.len();
    to.extend_from_slice(&[0; HEAD]);
    message.encode(to).expect("a vector has room");
    let len = u32::try_from(to.len() - begin - HEAD).expect("no message is longer than 4 GiB");
    let checksum = crc32c::crc32c(&to[begin + HEAD..]);
    to[begin..begin + 4].copy_from_slice(&len.to_le_bytes());
    to[begin + 4..begin + HEAD].copy_from_slice(&checksum.to_le_bytes());
}

/// Bytes as they come in, and messages as they go out.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// Bytes before this one have been taken.
    begin: usize,
    /// There was room for so many bytes, at least, when it was last asked for.
    offered: usize,
}

impl Inbox {
    /// Nothing yet.
    pub fn new() -> Inbox {
        Inbox::default()
    }

    /// Where to read into: what comes is appended.
    pub fn room(&mut self) -> &mut Vec<u8> {
        // Whoever fills all the room has more to say.
        let filled = self.offered > 0 && self.bytes.len() == self.bytes.capacity();
        self.offered = if filled { (self.offered * 4).min(READ_MAX) } else { self.offered.max(READ_MIN) };
        if self.begin == self.bytes.len() {
            self.bytes.clear();
            self.begin = 0;
            if self.bytes.capacity() > KEPT_MAX {
                self.bytes = Vec::new();
            }
        } else if self.begin >= self.bytes.len() / 2 {
            // Moves at most as much as has been taken, so no byte is moved more often than it is read.
            self.bytes.drain(..self.begin);
            self.begin = 0;
        }
        self.bytes.reserve(self.offered);
        &mut self.bytes
    }

    /// The preamble, if all of it has come.
    ///
    /// # Errors
    /// If it is another protocol's or another version's, as soon as that can be seen.
    pub fn take_preamble(&mut self) -> Result<bool, BadFrame> {
        let begun = &self.bytes[self.begin..];
        if is_ours(begun) == Some(false) {
            return Err(BadFrame::Preamble);
        }
        let Some(preamble) = begun.first_chunk() else { return Ok(false) };
        if *preamble != PREAMBLE {
            let [.., theirs] = *preamble;
            return Err(BadFrame::Version { theirs });
        }
        self.begin += PREAMBLE.len();
        Ok(true)
    }

    /// The next message, if all of it has come.
    ///
    /// # Errors
    /// If there is no reading it. Nothing behind it can be read either.
    pub fn take<M: Message + Default>(&mut self, len_max: usize) -> Result<Option<M>, BadFrame> {
        let Some(message) = self.take_bytes(len_max)? else { return Ok(None) };
        M::decode(message).map(Some).map_err(|wrong| BadFrame::Message(wrong.to_string()))
    }

    /// The same, as bytes whose checksum is right.
    ///
    /// # Errors
    /// If there is no reading it. Nothing behind it can be read either.
    pub fn take_bytes(&mut self, len_max: usize) -> Result<Option<&[u8]>, BadFrame> {
        let waiting = &self.bytes[self.begin..];
        let Some((head, behind)) = waiting.split_first_chunk::<HEAD>() else { return Ok(None) };
        let [a, b, c, d, e, f, g, h] = *head;
        let (len, checksum) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > len_max {
            return Err(if head.starts_with(b"HTTP") { BadFrame::Preamble } else { BadFrame::TooLong { len, len_max } });
        }
        let Some(message) = behind.get(..len) else { return Ok(None) };
        if crc32c::crc32c(message) != checksum {
            return Err(BadFrame::Checksum);
        }
        self.begin += HEAD + len;
        Ok(Some(message))
    }

    /// Whether nothing waits: neither a message nor a part of one.
    pub fn is_empty(&self) -> bool {
        self.begin == self.bytes.len()
    }
}

/// Bytes that are no frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BadFrame {
    /// It is another protocol.
    Preamble,
    /// It is another version of this one.
    Version {
        /// Which.
        theirs: u8,
    },
    /// A longer one is announced than is allowed here.
    TooLong {
        /// So long.
        len: usize,
        /// What is allowed.
        len_max: usize,
    },
    /// Not what was sent.
    Checksum,
    /// No message of ours.
    Message(String),
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadFrame::Preamble => f.write_str("the other side speaks another protocol: look at the port"),
            BadFrame::Version { theirs } => {
                let [.., ours] = PREAMBLE;
                write!(
                    f,
                    "the other side frames messages as of version {theirs}, and version {ours} is spoken here: use a client and nodes of one release"
                )
            }
            BadFrame::TooLong { len, len_max } => write!(f, "a message of {len} bytes is announced, {len_max} are allowed"),
            BadFrame::Checksum => f.write_str("the bytes that came are not those that were sent: the checksum is wrong"),
            BadFrame::Message(wrong) => write!(f, "not a message: {wrong}"),
        }
    }
}

impl std::error::Error for BadFrame {}
