//! Connections between nodes that share a key: the Noise protocol, pattern NNpsk0.
//!
//! Both ends prove that they know the key, and both draw fresh ones for this connection, so that who learns the key later cannot read what was recorded.
//! After the preamble, all bytes are records: a length (u16, big endian) and that many sealed bytes. A record of no bytes instead of the second
//! handshake message means "your key is not ours": not proven, and good for a log line alone.

use std::fmt;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use super::Unusable;
use super::stream::Fault;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Bound into the handshake: bytes of another protocol with the same key mean nothing here.
const PROLOGUE: &[u8] = b"incumbent peer 1";
/// The longest record, as Noise has it.
const RECORD_MAX: usize = 65_535;
/// What sealing adds.
const TAG: usize = 16;
/// The longest handshake message: a public key and a tag, and nothing else is sent with it.
const HANDSHAKE_MAX: usize = 32 + TAG;
/// A record's length.
const HEAD: usize = 2;
/// The bytes sealed at once: small enough that a reader's buffer stays small.
const CHUNK_MAX: usize = 16 * 1024;
const _: () = assert!(CHUNK_MAX + TAG <= RECORD_MAX);
/// The least length of a key that is written as a text.
const TEXT_MIN: usize = 32;

/// The key of a group: whoever knows it is a member.
#[derive(Clone, PartialEq, Eq)]
pub struct GroupKey([u8; 32]);

impl GroupKey {
    /// This key.
    pub fn new(key: [u8; 32]) -> GroupKey {
        GroupKey(key)
    }

    /// The key in a text: 64 hexadecimal digits, or any text of at least 32 bytes (which is hashed). White space around it does not count.
    ///
    /// # Errors
    /// If it is too short to be a secret.
    pub fn parse(text: &str) -> Result<GroupKey, Unusable> {
        let text = text.trim();
        if let Some(key) = of_digits(text) {
            return Ok(GroupKey(key));
        }
        if text.len() < TEXT_MIN {
            let make = "make one with `head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n'`";
            return Err(Unusable(format!(
                "a group's key is 64 hexadecimal digits or a text of at least {TEXT_MIN} bytes: {make}"
            )));
        }
        Ok(GroupKey(hashed(text.as_bytes())))
    }

    /// The key in a file.
    ///
    /// # Errors
    /// If it cannot be read, or is too short.
    pub fn read(path: &Path) -> Result<GroupKey, Unusable> {
        let text = std::fs::read_to_string(path)
            .map_err(|wrong| Unusable(format!("cannot read the group's key from {}: {wrong}", path.display())))?;
        GroupKey::parse(&text).map_err(|Unusable(why)| Unusable(format!("{}: {why}", path.display())))
    }
}

/// Never shown.
impl fmt::Debug for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupKey(..)")
    }
}

fn of_digits(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut key = [0; 32];
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(key)
}

/// The hash that the handshake uses anyway.
fn hashed(text: &[u8]) -> [u8; 32] {
    use snow::resolvers::{CryptoResolver, DefaultResolver};
    let mut key = [0; 32];
    if let Some(mut hash) = DefaultResolver.resolve_hash(&snow::params::HashChoice::Blake2s) {
        hash.input(b"incumbent group key 1");
        hash.input(text);
        hash.result(&mut key);
    }
    key
}

/// Makes sealed connections.
pub(super) struct Sealed(GroupKey);

/// A sealed connection.
pub(super) struct SealedStream {
    tcp: TcpStream,
    noise: snow::TransportState,
    /// Sealed bytes as they came, until a record is complete.
    arrived: Vec<u8>,
    /// Opened bytes that have not been taken.
    opened: Vec<u8>,
    taken: usize,
    /// A sealed record that has not been written in full.
    sealed: Vec<u8>,
    written: usize,
}

impl Sealed {
    pub(super) fn new(key: &GroupKey) -> Sealed {
        Sealed(key.clone())
    }

    fn builder(&self) -> Result<snow::Builder<'_>, snow::Error> {
        let pattern = PATTERN.parse()?;
        snow::Builder::new(pattern).prologue(PROLOGUE)?.psk(0, &self.0.0)
    }

    pub(super) async fn dialled(&self, mut tcp: TcpStream, preamble: &[u8]) -> Result<SealedStream, Fault> {
        let mut noise = self.builder().and_then(snow::Builder::build_initiator).map_err(broken)?;
        let mut bytes = preamble.to_vec();
        push_handshake(&mut noise, &mut bytes)?;
        tcp.write_all(&bytes).await?;
        let answer = read_handshake(&mut tcp).await?;
        if answer.is_empty() {
            return Err(Fault::Insecure("it says that our key is not its own: give all members the same key".into()));
        }
        noise.read_message(&answer, &mut [0; HANDSHAKE_MAX]).map_err(|_| wrong_key())?;
        SealedStream::new(tcp, noise)
    }

    pub(super) async fn accepted(&self, mut tcp: TcpStream) -> Result<SealedStream, Fault> {
        let mut noise = self.builder().and_then(snow::Builder::build_responder).map_err(broken)?;
        let first = read_handshake(&mut tcp).await?;
        if noise.read_message(&first, &mut [0; HANDSHAKE_MAX]).is_err() {
            let _ = tcp.write_all(&[0; HEAD]).await;
            return Err(wrong_key());
        }
        let mut bytes = Vec::with_capacity(HEAD + HANDSHAKE_MAX);
        push_handshake(&mut noise, &mut bytes)?;
        tcp.write_all(&bytes).await?;
        SealedStream::new(tcp, noise)
    }
}

fn wrong_key() -> Fault {
    Fault::Insecure("its key is not ours: give all members the same key".into())
}

fn broken(wrong: snow::Error) -> Fault {
    Fault::Insecure(format!("cannot seal a connection: {wrong}"))
}

fn push_handshake(noise: &mut snow::HandshakeState, out: &mut Vec<u8>) -> Result<(), Fault> {
    let mut message = [0; HANDSHAKE_MAX];
    let len = noise.write_message(&[], &mut message).map_err(broken)?;
    out.extend(u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(&message[..len]);
    Ok(())
}

async fn read_handshake(tcp: &mut TcpStream) -> Result<Vec<u8>, Fault> {
    let mut head = [0; HEAD];
    tcp.read_exact(&mut head).await?;
    let len = usize::from(u16::from_be_bytes(head));
    if len > HANDSHAKE_MAX {
        return Err(Fault::Insecure("it does not begin as a node with a key does".into()));
    }
    let mut message = vec![0; len];
    tcp.read_exact(&mut message).await?;
    Ok(message)
}

impl SealedStream {
    fn new(tcp: TcpStream, noise: snow::HandshakeState) -> Result<SealedStream, Fault> {
        let noise = noise.into_transport_mode().map_err(broken)?;
        let (arrived, opened, sealed) = (Vec::new(), Vec::new(), Vec::new());
        Ok(SealedStream { tcp, noise, arrived, opened, taken: 0, sealed, written: 0 })
    }

    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.taken < self.opened.len() {
                let len = into.remaining().min(self.opened.len() - self.taken);
                into.put_slice(&self.opened[self.taken..self.taken + len]);
                self.taken += len;
                return Poll::Ready(Ok(()));
            }
            if self.open_record()? {
                continue;
            }
            // No more than what is needed for this record, or a little for the next: the buffer stays as small as the records are.
            let mut space = [0; 2048];
            let mut space = ReadBuf::new(&mut space);
            ready!(Pin::new(&mut self.tcp).poll_read(cx, &mut space))?;
            if space.filled().is_empty() {
                // A stream may end between records only: else somebody has cut it.
                let cut = !self.arrived.is_empty();
                return Poll::Ready(if cut { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) });
            }
            self.arrived.extend_from_slice(space.filled());
        }
    }

    /// Opens the first record that has arrived in full. Whether there was one.
    fn open_record(&mut self) -> io::Result<bool> {
        let Some((head, rest)) = self.arrived.split_first_chunk::<HEAD>() else { return Ok(false) };
        let len = usize::from(u16::from_be_bytes(*head));
        if !(TAG..=CHUNK_MAX + TAG).contains(&len) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a sealed record of a wrong length"));
        }
        let Some(record) = rest.get(..len) else { return Ok(false) };
        self.opened.resize(len, 0);
        let opened = self
            .noise
            .read_message(record, &mut self.opened)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a sealed record that was changed on its way"))?;
        self.opened.truncate(opened);
        self.taken = 0;
        self.arrived.drain(..HEAD + len);
        Ok(true)
    }

    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(cx))?;
        let chunk = &bytes[..bytes.len().min(CHUNK_MAX)];
        self.sealed.resize(HEAD + chunk.len() + TAG, 0);
        let len = self
            .noise
            .write_message(chunk, &mut self.sealed[HEAD..])
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "this connection has sealed all it may"))?;
        self.sealed.truncate(HEAD + len);
        self.sealed[..HEAD].copy_from_slice(&u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes());
        self.written = 0;
        // It is taken, whether or not all of it can be written now.
        match self.poll_flush(cx) {
            Poll::Ready(Err(wrong)) => Poll::Ready(Err(wrong)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(chunk.len())),
        }
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.sealed.len() {
            let written = ready!(Pin::new(&mut self.tcp).poll_write(cx, &self.sealed[self.written..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
        }
        self.sealed.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    pub(super) async fn shut(&mut self) -> io::Result<()> {
        self.tcp.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::net::TcpListener;

    use super::*;

    /// Both ends of a sealed connection.
    async fn pair() -> (SealedStream, SealedStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let sealed = Sealed::new(&GroupKey::new([7; 32]));
        let (one, two) =
            tokio::join!(async { sealed.dialled(TcpStream::connect(address).await.expect("connects"), &[]).await }, async {
                sealed.accepted(listener.accept().await.expect("accepts").0).await
            },);
        (one.expect("sealed"), two.expect("sealed"))
    }

    async fn read(stream: &mut SealedStream) -> io::Result<Vec<u8>> {
        let mut space = [0; 100];
        let mut space = ReadBuf::new(&mut space);
        poll_fn(|cx| stream.poll_read(cx, &mut space)).await?;
        Ok(space.filled().to_vec())
    }

    /// What `stream` would write for these bytes.
    fn record(stream: &mut SealedStream, bytes: &[u8]) -> Vec<u8> {
        let mut record = vec![0; HEAD + bytes.len() + TAG];
        let len = stream.noise.write_message(bytes, &mut record[HEAD..]).expect("sealed");
        record[..HEAD].copy_from_slice(&u16::try_from(len).expect("short").to_be_bytes());
        record
    }

    #[tokio::test]
    async fn what_is_sealed_is_opened_and_cannot_be_read_between() {
        let (mut one, mut two) = pair().await;
        let sent = record(&mut one, b"a vote for node 3");
        assert!(!sent.windows(4).any(|window| window == b"vote"));
        one.tcp.write_all(&sent).await.expect("sent");
        assert_eq!(read(&mut two).await.expect("opened"), b"a vote for node 3");
    }

    #[tokio::test]
    async fn what_was_changed_repeated_cut_or_made_up_is_noticed() {
        let (mut one, mut two) = pair().await;
        let mut changed = record(&mut one, b"yes");
        changed[HEAD] ^= 1;
        one.tcp.write_all(&changed).await.expect("sent");
        assert_eq!(read(&mut two).await.unwrap_err().kind(), io::ErrorKind::InvalidData);

        let (mut one, mut two) = pair().await;
        let once = record(&mut one, b"yes");
        one.tcp.write_all(&[once.clone(), once].concat()).await.expect("sent");
        assert_eq!(read(&mut two).await.expect("the first"), b"yes");
        assert_eq!(read(&mut two).await.unwrap_err().kind(), io::ErrorKind::InvalidData);

        let (mut one, mut two) = pair().await;
        let whole = record(&mut one, b"yes");
        one.tcp.write_all(&whole[..whole.len() - 1]).await.expect("sent");
        drop(one);
        assert_eq!(read(&mut two).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);

        for length in [[0, 0], [0, 15], [255, 255]] {
            let (mut one, mut two) = pair().await;
            one.tcp.write_all(&length).await.expect("sent");
            assert_eq!(read(&mut two).await.unwrap_err().kind(), io::ErrorKind::InvalidData, "{length:?}");
        }
    }
}
