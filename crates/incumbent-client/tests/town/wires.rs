//! Connections in memory: they live in virtual time, and break exactly where a test wants.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use incumbent_client::dial::{Dial, Dialing};
use incumbent_client::failure::Ended;
use incumbent_client::serve::{Bounds, serve};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use super::{Node, Town, name};

/// As much as a socket's buffer holds, about.
const BUFFER: usize = 64 * 1024;

/// Wires to the nodes of a town.
pub(crate) struct Wires {
    town: Arc<Town>,
    bounds: Bounds,
    nodes: BTreeMap<String, Arc<Node>>,
    plan: Mutex<Plan>,
}

#[derive(Default)]
struct Plan {
    /// What becomes of the next connections; after that, nothing does.
    fates: VecDeque<Fate>,
    dialled: Vec<String>,
    /// Nodes that are not reached.
    down: Vec<String>,
    /// How many bytes went each way on the first connection.
    carried: Arc<Mutex<(usize, usize)>>,
}

/// What becomes of a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Whole,
    /// It breaks behind so many bytes to the node.
    BreaksAfterRequest(usize),
    /// It breaks behind so many bytes to the client.
    BreaksAfterReply(usize),
    /// Behind so many bytes to the client nothing passes in either direction, and nobody is told.
    HangsAfterReply(usize),
}

impl Wires {
    pub(crate) fn new(town: &Arc<Town>, addresses: &[&str], bounds: Bounds) -> Arc<Wires> {
        let node = |(address, number): (&&str, u64)| {
            let node = Node { town: Arc::clone(town), number, address: (*address).to_owned() };
            ((*address).to_owned(), Arc::new(node))
        };
        let nodes = addresses.iter().zip(1..).map(node).collect();
        Arc::new(Wires { town: Arc::clone(town), bounds, nodes, plan: Mutex::default() })
    }

    pub(crate) fn fate(&self, fates: impl IntoIterator<Item = Fate>) {
        self.plan.lock().expect("whole").fates.extend(fates);
    }

    pub(crate) fn down(&self, addresses: &[&str]) {
        self.plan.lock().expect("whole").down = addresses.iter().map(|it| (*it).to_owned()).collect();
    }

    /// Which addresses were dialled, in order.
    pub(crate) fn dialled(&self) -> Vec<String> {
        self.plan.lock().expect("whole").dialled.clone()
    }

    /// How many bytes went to the nodes, and how many came back.
    pub(crate) fn carried(&self) -> (usize, usize) {
        let carried = Arc::clone(&self.plan.lock().expect("whole").carried);
        let carried = carried.lock().expect("whole");
        *carried
    }

    fn connect(&self, address: &str) -> Result<Wire, Ended> {
        let refused = || Ended::Unreachable(io::Error::from(io::ErrorKind::ConnectionRefused));
        let mut plan = self.plan.lock().expect("whole");
        plan.dialled.push(address.to_owned());
        let node = self.nodes.get(address).filter(|_| !plan.down.contains(&address.to_owned())).ok_or_else(refused)?;
        let fate = plan.fates.pop_front().unwrap_or(Fate::Whole);
        let (ours, theirs) = tokio::io::duplex(BUFFER);
        let (node, bounds) = (Arc::clone(node), self.bounds.clone());
        node.town.note(|it| it.connections += 1);
        tokio::spawn(async move {
            let closed = serve(theirs, &[], &*node, &bounds).await;
            node.town.note(|it| it.closed.push(name(&closed)));
        });
        Ok(Wire { inner: ours, fate, sent: 0, came: 0, carried: Arc::clone(&plan.carried) })
    }
}

impl Dial for Wires {
    fn dial<'a>(&'a self, address: &'a str) -> Dialing<'a> {
        Box::pin(async move { Ok(Box::new(self.connect(address)?) as Box<dyn incumbent_client::dial::Stream>) })
    }
}

/// A client's end of a connection.
struct Wire {
    inner: DuplexStream,
    fate: Fate,
    sent: usize,
    came: usize,
    carried: Arc<Mutex<(usize, usize)>>,
}

enum Left {
    Bytes(usize),
    Broken,
    Hung,
}

impl Wire {
    fn requests_left(&self) -> Left {
        match self.fate {
            Fate::Whole => Left::Bytes(usize::MAX),
            Fate::BreaksAfterRequest(bytes) if bytes > self.sent => Left::Bytes(bytes - self.sent),
            Fate::BreaksAfterRequest(_) => Left::Broken,
            Fate::BreaksAfterReply(bytes) if bytes > self.came => Left::Bytes(usize::MAX),
            Fate::BreaksAfterReply(_) => Left::Broken,
            Fate::HangsAfterReply(bytes) if bytes > self.came => Left::Bytes(usize::MAX),
            Fate::HangsAfterReply(_) => Left::Hung,
        }
    }

    fn replies_left(&self) -> Left {
        match self.fate {
            Fate::Whole => Left::Bytes(usize::MAX),
            Fate::BreaksAfterRequest(bytes) if bytes > self.sent => Left::Bytes(usize::MAX),
            Fate::BreaksAfterRequest(_) => Left::Broken,
            Fate::BreaksAfterReply(bytes) if bytes > self.came => Left::Bytes(bytes - self.came),
            Fate::BreaksAfterReply(_) => Left::Broken,
            Fate::HangsAfterReply(bytes) if bytes > self.came => Left::Bytes(bytes - self.came),
            Fate::HangsAfterReply(_) => Left::Hung,
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let left = match self.replies_left() {
            Left::Bytes(left) => left,
            Left::Broken => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Left::Hung => return Poll::Pending,
        };
        let mut bytes = [0; 4096];
        let len = left.min(buf.remaining()).min(bytes.len());
        let mut read = ReadBuf::new(&mut bytes[..len]);
        std::task::ready!(Pin::new(&mut self.inner).poll_read(cx, &mut read))?;
        buf.put_slice(read.filled());
        self.came += read.filled().len();
        self.carried.lock().expect("whole").1 += read.filled().len();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let left = match self.requests_left() {
            Left::Bytes(left) => left,
            Left::Broken => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Left::Hung => return Poll::Pending,
        };
        let bytes = &bytes[..bytes.len().min(left)];
        let written = std::task::ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
        self.sent += written;
        self.carried.lock().expect("whole").0 += written;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
