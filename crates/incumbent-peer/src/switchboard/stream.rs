//! The bytes of a connection, protected as the group wants it: by nothing (loopback only), by a key, or by certificates.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use incumbent_protocol::protocol::NodeId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::exchange::Exchange;
use super::key::{Sealed, SealedStream};
use super::tls::{Certified, Credentials};
use super::{Lines, Security, Unusable};
use crate::reread::Reread;

/// What the first bytes say, so that nodes that are set up differently can tell each other so. TLS has its own first bytes.
const OPEN: [u8; 4] = *b"INo1";
const KEYED: [u8; 4] = *b"INk1";

/// Certificates, and lists of revoked ones, are looked at so often: as those of clients are.
const FILES_LOOKED_AT: Duration = Duration::from_millis(500);

/// How connections are protected.
pub(super) enum Guard {
    Open,
    Key(Sealed),
    Tls(Arc<Credentials>),
}

/// A protected connection.
pub(super) enum Stream {
    Open(TcpStream),
    Key(Box<SealedStream>),
    Tls(Certified),
}

/// Whom a certificate must name.
#[derive(Copy, Clone)]
pub(super) enum Expected<'a> {
    /// This member.
    Member(&'a str, NodeId),
    /// Any member: who asks as a guest does not know whom it meets.
    Anyone,
}

impl Guard {
    pub(super) fn new(lines: &Lines) -> Result<Guard, Unusable> {
        match &lines.security {
            Security::Open => {
                let addresses = lines.peers.iter().map(|peer| peer.address.as_str()).chain([lines.listen.as_str()]);
                for address in addresses {
                    loopback_only(address)?;
                }
                Ok(Guard::Open)
            }
            Security::Key(key) => Ok(Guard::Key(Sealed::new(key))),
            Security::Tls(files) => Ok(Guard::Tls(Arc::new(Credentials::of_member(files, &lines.cluster, lines.me)?))),
        }
    }

    /// Without protection, a name may lead to other machines at any time.
    pub(super) fn admits(&self, address: SocketAddr) -> Result<(), String> {
        match self {
            Guard::Open if !address.ip().is_loopback() => Err(unprotected(&address.to_string())),
            Guard::Open | Guard::Key(_) | Guard::Tls(_) => Ok(()),
        }
    }

    /// Protects a connection that we have dialled.
    pub(super) async fn dialled(&self, tcp: TcpStream, expected: Expected<'_>) -> Result<Stream, Fault> {
        match self {
            Guard::Open => {
                let mut tcp = tcp;
                // With the first packet it would be one segment less; it is sent once a connection.
                tcp.write_all(&OPEN).await?;
                Ok(Stream::Open(tcp))
            }
            Guard::Key(sealed) => Ok(Stream::Key(Box::new(sealed.dialled(tcp, &KEYED).await?))),
            Guard::Tls(credentials) => Ok(Stream::Tls(credentials.dialled(tcp, expected).await?)),
        }
    }

    /// Protects a connection that somebody else has dialled.
    pub(super) async fn accepted(&self, mut tcp: TcpStream) -> Result<Stream, Fault> {
        let wanted = match self {
            Guard::Tls(credentials) => return Ok(Stream::Tls(credentials.accepted(tcp).await?)),
            Guard::Open => OPEN,
            Guard::Key(_) => KEYED,
        };
        let mut first = [0; 4];
        if let Err(wrong) = tcp.read_exact(&mut first[..1]).await {
            // Who hangs up without a word only wanted to see whether anybody listens.
            return Err(if wrong.kind() == io::ErrorKind::UnexpectedEof { Fault::Ended } else { wrong.into() });
        }
        tcp.read_exact(&mut first[1..]).await?;
        if first != wanted {
            return Err(Fault::Insecure(difference(first, wanted)));
        }
        match self {
            Guard::Key(sealed) => Ok(Stream::Key(Box::new(sealed.accepted(tcp).await?))),
            Guard::Open | Guard::Tls(_) => Ok(Stream::Open(tcp)),
        }
    }
}

/// Until the lines end: what has changed of the files holds for the next connections. Those that stand are left.
pub(super) fn follow_files(exchange: &Arc<Exchange>) {
    let Guard::Tls(credentials) = &exchange.guard else { return };
    let (credentials, keeper) = (Arc::clone(credentials), Arc::clone(exchange));
    exchange.spawn(async move {
        loop {
            sleep(FILES_LOOKED_AT).await;
            let here = Arc::clone(&credentials);
            // A disk may be slow, and this thread carries all lines.
            let reread = tokio::task::spawn_blocking(move || here.reread_if_changed()).await;
            match reread {
                Ok(Reread::Unchanged) => {}
                Ok(Reread::Changed) => tracing::info!("the certificates of the lines between the nodes have changed"),
                Ok(Reread::Kept(why)) => keeper.complain(
                    "this node",
                    "certificates",
                    format!("the certificates of the lines have changed and cannot be used, the former stay in force: {why}"),
                ),
                Err(_) => keeper.complain(
                    "this node",
                    "certificates",
                    "the certificates of the lines could not be looked at: they are looked at again".into(),
                ),
            }
        }
    });
}

fn difference(first: [u8; 4], wanted: [u8; 4]) -> String {
    let speaks = match first {
        OPEN => "without a key",
        KEYED => "with a key",
        [0x16, 3, _, _] => "TLS",
        _ => return "it is no node of incumbent".into(),
    };
    let here = if wanted == OPEN { "none" } else { "a key" };
    format!("it speaks {speaks}, and this node expects {here}: give all members the same protection")
}

fn loopback_only(address: &str) -> Result<(), Unusable> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let loopback = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    if loopback { Ok(()) } else { Err(Unusable(unprotected(address))) }
}

fn unprotected(address: &str) -> String {
    format!(
        "{address} is not a loopback address, and without a key or certificates anybody there could vote: give the group a key"
    )
}

impl Stream {
    /// Whether the other end has shown that it may call itself this member.
    pub(super) fn vouches_for(&self, cluster: &str, id: NodeId) -> Result<(), String> {
        match self {
            // Who knows the key is a member of the group, and members trust each other.
            Stream::Open(_) | Stream::Key(_) => Ok(()),
            Stream::Tls(certified) => certified.names(cluster, id),
        }
    }

    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Open(tcp) => Pin::new(tcp).poll_read(cx, into),
            Stream::Key(sealed) => sealed.poll_read(cx, into),
            Stream::Tls(certified) => Pin::new(&mut certified.stream).poll_read(cx, into),
        }
    }

    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Stream::Open(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Stream::Key(sealed) => sealed.poll_write(cx, bytes),
            Stream::Tls(certified) => Pin::new(&mut certified.stream).poll_write(cx, bytes),
        }
    }

    /// A plain connection has nothing that waits.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Open(_) => Poll::Ready(Ok(())),
            Stream::Key(sealed) => sealed.poll_flush(cx),
            Stream::Tls(certified) => Pin::new(&mut certified.stream).poll_flush(cx),
        }
    }

    /// Says that nothing more will come. For TLS the last words are written as far as the socket takes them.
    pub(super) async fn shut(&mut self) {
        /// Who does not read does not hear it either.
        const LAST_WORDS: Duration = Duration::from_millis(250);
        let shutting = async {
            match self {
                Stream::Open(tcp) => tcp.shutdown().await,
                Stream::Key(sealed) => sealed.shut().await,
                Stream::Tls(certified) => certified.stream.shutdown().await,
            }
        };
        let _ = tokio::time::timeout(LAST_WORDS, shutting).await;
    }
}

/// Small segments at once; and the kernel gives up on a peer that acknowledges nothing, even while we have nothing to say.
pub(super) fn prepare(tcp: &TcpStream, silence: Duration) {
    let _ = tcp.set_nodelay(true);
    let millis = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
    let _ = rustix::net::sockopt::set_tcp_user_timeout(tcp, millis);
}

/// Why a connection has ended, or was not made.
#[derive(Debug)]
pub(super) enum Fault {
    /// The other end closed it.
    Ended,
    /// The other end reset it.
    Reset,
    /// Nobody listens there.
    NobodyListens,
    /// It took too long.
    TimedOut,
    /// The system said so.
    Io(io::Error),
    /// What came is not our protocol.
    Malformed(crate::packet::Malformed),
    /// A packet that has no place there.
    Misplaced(&'static str),
    /// Key or certificates do not fit.
    Insecure(String),
    /// The other end has refused us.
    Refusal(String),
    /// We refuse the other end.
    Unwelcome(String),
    /// Nothing was heard for too long.
    Silent,
    /// We have ended it.
    Closed,
}

impl From<io::Error> for Fault {
    fn from(wrong: io::Error) -> Fault {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, TimedOut, UnexpectedEof};
        let kind = wrong.kind();
        if [ConnectionReset, BrokenPipe, ConnectionAborted].contains(&kind) {
            Fault::Reset
        } else if kind == UnexpectedEof {
            Fault::Ended
        } else if kind == ConnectionRefused {
            Fault::NobodyListens
        } else if kind == TimedOut {
            Fault::TimedOut
        } else {
            Fault::Io(wrong)
        }
    }
}

impl From<crate::packet::Malformed> for Fault {
    fn from(wrong: crate::packet::Malformed) -> Fault {
        Fault::Malformed(wrong)
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Ended => f.write_str("it hung up"),
            Fault::Reset => f.write_str("it reset the connection"),
            Fault::NobodyListens => f.write_str("nobody listens there"),
            Fault::TimedOut => f.write_str("no answer in time"),
            Fault::Io(wrong) => wrong.fmt(f),
            Fault::Malformed(wrong) => write!(f, "it sent {wrong}"),
            Fault::Misplaced(kind) => write!(f, "it sent a {kind} where none belongs"),
            Fault::Insecure(why) => f.write_str(why),
            Fault::Refusal(why) => write!(f, "it refuses us: {why}"),
            Fault::Unwelcome(why) => write!(f, "refused: {why}"),
            Fault::Silent => f.write_str("nothing was heard for too long"),
            Fault::Closed => f.write_str("we have hung up"),
        }
    }
}
