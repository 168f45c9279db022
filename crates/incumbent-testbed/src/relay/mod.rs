//! A relay that stands before a server and misbehaves as a network does, when a test tells it to.
//!
//! It passes bytes and understands none of them. Each of the two ways, requests towards the server and replies back, can be delayed,
//! held or made to lose everything by itself; connections can be cut and refused. What a test waits for is an event
//! ([`Relay::wait_until`]), not a time.
//!
//! | in the field | here |
//! | --- | --- |
//! | the request is lost | `relay.requests(Way::Lose)` |
//! | the request is carried out, its reply is lost | `relay.replies(Way::Lose)` |
//! | the connection dies between the two | [`Relay::inspect`] with [`Verdict::Disconnect`] on a reply |
//! | replies are slow | `relay.replies(Way::Delay(..))` |
//! | a partition that TCP survives | [`Relay::partition`], then [`Relay::heal`] |
//! | a host that is down | [`Relay::cut`]: connections end, new ones are refused |
//! | a firewall that forgot us | [`Relay::disconnect`] |
//! | a middlebox that resets healthy connections | [`Relay::reset`] |
//! | packets are lost, and sent again by TCP | `relay.requests(Way::Lossy { .. })` |
//!
//! One thing differs from a real partition: a connection to the relay itself is always made. It gets no further while its requests do not pass.

mod connection;
mod pipe;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::port::Port;
use connection::Connection;

/// A relay before one server. Dropping it cuts all that goes through it.
pub struct Relay {
    host: Ipv4Addr,
    port: Port,
    desk: Arc<Desk>,
    /// The thread that lets clients in; none while they are refused.
    door: Mutex<Option<JoinHandle<()>>>,
}

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// From the client to the server.
    Request,
    /// From the server to the client.
    Reply,
}

/// What happens to bytes on their way. The end of a connection goes the same way as its bytes: who is cut off does not hear of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// They pass at once.
    Pass,
    /// They pass this long after they came, in order.
    Delay(Duration),
    /// Each chunk is lost this often, and again when it is sent again, which takes twice as long every time: what is behind it waits, as on TCP.
    Lossy {
        /// How many in a hundred.
        percent: u8,
        /// How long the sender waits before it sends for the second time.
        again: Duration,
    },
    /// They are kept, and pass when the way is open again: as TCP sends again what was lost in a partition.
    Hold,
    /// They are thrown away. A connection that lost something is closed when the way is open again: a stream with a hole is none.
    Lose,
}

impl Way {
    fn is_open(self) -> bool {
        match self {
            Way::Pass | Way::Delay(_) | Way::Lossy { .. } => true,
            Way::Hold | Way::Lose => false,
        }
    }
}

/// Bytes as they came in.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// Connections are counted from 1, in the order in which clients came; those that the server refused are left out.
    pub connection: u64,
    /// Which way they go.
    pub direction: Direction,
    /// What one read returned: not always a whole message, and not always only one.
    pub bytes: &'a [u8],
}

/// What an inspector wants done with a chunk, and with what follows it on the same connection and way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It goes the way that is set.
    Pass,
    /// It and what follows is kept until [`Relay::heal`].
    Hold,
    /// It and what follows is thrown away, and the connection is closed by [`Relay::heal`].
    Lose,
    /// It is thrown away and the connection ends for both sides at once.
    Disconnect,
}

/// What went through a relay since it was made.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// Connections that clients made.
    pub connections: u64,
    /// Those of them that have not ended yet.
    pub open: u64,
    /// From clients to the server.
    pub requests: Flow,
    /// From the server to clients.
    pub replies: Flow,
}

/// What went one way.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Flow {
    /// How many reads brought something.
    pub chunks: u64,
    /// Bytes that came in.
    pub arrived: u64,
    /// Bytes that went out on the other side.
    pub passed: u64,
    /// Bytes that were thrown away.
    pub lost: u64,
}

impl Flow {
    /// Bytes that came in and have neither passed nor been lost.
    pub fn held(&self) -> u64 {
        self.arrived - self.passed - self.lost
    }
}

type Inspector = Box<dyn FnMut(&Chunk<'_>) -> Verdict + Send>;

/// What all threads of a relay share. Locks are taken one at a time, except that `setting` may be held while a connection's are taken.
struct Desk {
    setting: Mutex<Setting>,
    inspector: Mutex<Option<Inspector>>,
    traffic: Mutex<Traffic>,
    /// Traffic has changed.
    moved: Condvar,
}

struct Setting {
    /// Where the server is.
    target: SocketAddr,
    requests: Way,
    replies: Way,
    /// Clients are not let in.
    refusing: bool,
    /// Connections that were led on to the server, or wait for it.
    made: u64,
    connections: BTreeMap<u64, Arc<Connection>>,
}

/// A test waits for what will happen at once, unless the machine is very busy.
const PATIENCE: Duration = Duration::from_secs(30);

impl Relay {
    /// A relay before the server at `target` (host and port), through which everything passes.
    ///
    /// # Errors
    /// If `target` is no address, or there is no port to listen on.
    pub fn before(target: &str) -> Result<Relay, String> {
        Relay::listening_on(Ipv4Addr::LOCALHOST, target)
    }

    /// The same, on another address of this machine: for servers and clients in network namespaces, which share no loopback.
    ///
    /// # Errors
    /// If `target` is no address, or there is no port to listen on.
    pub fn listening_on(host: Ipv4Addr, target: &str) -> Result<Relay, String> {
        let setting = Setting {
            target: target.parse().map_err(|_| format!("not a host and a port in numbers: {target}"))?,
            requests: Way::Pass,
            replies: Way::Pass,
            refusing: false,
            made: 0,
            connections: BTreeMap::new(),
        };
        let desk = Desk {
            setting: Mutex::new(setting),
            inspector: Mutex::new(None),
            traffic: Mutex::new(Traffic::default()),
            moved: Condvar::new(),
        };
        let relay = Relay { host, port: Port::free()?, desk: Arc::new(desk), door: Mutex::new(None) };
        relay.open().map_err(|wrong| format!("cannot listen on {}: {wrong}", relay.address()))?;
        Ok(relay)
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Host and port on which it listens.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port())
    }

    /// From now on, new connections lead to another server: as a name does after a failover.
    ///
    /// # Panics
    /// If `target` is no address.
    pub fn retarget(&self, target: &str) {
        held(&self.desk.setting).target = target.parse().unwrap_or_else(|_| panic!("not a host and a port in numbers: {target}"));
    }

    /// What happens to requests from now on, and to those that have not passed yet.
    pub fn requests(&self, way: Way) {
        self.set(Direction::Request, way);
    }

    /// What happens to replies from now on, and to those that have not passed yet.
    pub fn replies(&self, way: Way) {
        self.set(Direction::Reply, way);
    }

    fn set(&self, direction: Direction, way: Way) {
        let mut setting = held(&self.desk.setting);
        match direction {
            Direction::Request => setting.requests = way,
            Direction::Reply => setting.replies = way,
        }
        for connection in setting.connections.values() {
            connection.set(direction, way);
        }
    }

    /// Nothing passes in either direction, and nobody is told. What was under way arrives after [`heal`](Self::heal).
    pub fn partition(&self) {
        self.requests(Way::Hold);
        self.replies(Way::Hold);
    }

    /// Ends every connection and refuses new ones, until [`heal`](Self::heal).
    pub fn cut(&self) {
        held(&self.desk.setting).refusing = true;
        let door = held(&self.door).take();
        if let Some(door) = door {
            // It waits for a client, so one must come. Behind it, the door is closed.
            let _ = TcpStream::connect((self.host, self.port()));
            let _ = door.join();
        }
        self.disconnect();
    }

    /// Ends every connection there is. New ones are let in.
    pub fn disconnect(&self) {
        let connections: Vec<_> = held(&self.desk.setting).connections.values().cloned().collect();
        for connection in connections {
            connection.close();
        }
    }

    /// Ends every connection there is with a reset (RST) to both sides. New ones are let in.
    pub fn reset(&self) {
        let connections: Vec<_> = held(&self.desk.setting).connections.values().cloned().collect();
        for connection in connections {
            connection.reset();
        }
    }

    /// Lets everything pass again: what was held arrives, connections that lost something end, new ones are let in. An inspector stays.
    ///
    /// # Panics
    /// If another program has taken the port meanwhile.
    pub fn heal(&self) {
        let connections: Vec<_> = {
            let mut setting = held(&self.desk.setting);
            (setting.requests, setting.replies) = (Way::Pass, Way::Pass);
            setting.refusing = false;
            setting.connections.values().cloned().collect()
        };
        for connection in connections {
            connection.heal();
        }
        let closed = held(&self.door).is_none();
        if closed {
            self.open().unwrap_or_else(|wrong| panic!("cannot listen on {} again: {wrong}", self.address()));
        }
    }

    /// Shows every chunk to `inspector` as it comes in, and does what it says. It replaces the one before.
    pub fn inspect(&self, inspector: impl FnMut(&Chunk<'_>) -> Verdict + Send + 'static) {
        *held(&self.desk.inspector) = Some(Box::new(inspector));
    }

    /// What went through up to now.
    pub fn traffic(&self) -> Traffic {
        *held(&self.desk.traffic)
    }

    /// Waits until the traffic is as wanted, and returns it.
    ///
    /// # Panics
    /// If it does not come to that within half a minute, with `what` was waited for.
    #[track_caller]
    pub fn wait_until(&self, what: &str, wanted: impl Fn(&Traffic) -> bool) -> Traffic {
        let began = Instant::now();
        let mut traffic = held(&self.desk.traffic);
        while !wanted(&traffic) {
            let left = PATIENCE.saturating_sub(began.elapsed());
            assert!(!left.is_zero(), "waited {PATIENCE:?} in vain: {what}; {:?}", *traffic);
            traffic = self.desk.moved.wait_timeout(traffic, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *traffic
    }

    /// Opens the door: clients are let in by a thread of its own.
    fn open(&self) -> io::Result<()> {
        let listener = TcpListener::bind((self.host, self.port()))?;
        let desk = Arc::clone(&self.desk);
        let thread = std::thread::Builder::new().name("relay-door".into());
        *held(&self.door) = Some(thread.spawn(move || {
            for client in listener.incoming() {
                if held(&desk.setting).refusing {
                    return;
                }
                if let Ok(client) = client {
                    connection::begin(&desk, client);
                }
            }
        })?);
        Ok(())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.cut();
    }
}

impl Desk {
    /// Notes a change of the traffic and wakes who waits for it.
    fn count(&self, change: impl FnOnce(&mut Traffic)) {
        change(&mut held(&self.traffic));
        self.moved.notify_all();
    }

    fn count_flow(&self, direction: Direction, change: impl FnOnce(&mut Flow)) {
        self.count(|traffic| match direction {
            Direction::Request => change(&mut traffic.requests),
            Direction::Reply => change(&mut traffic.replies),
        });
    }

    fn verdict(&self, chunk: &Chunk<'_>) -> Verdict {
        held(&self.inspector).as_mut().map_or(Verdict::Pass, |inspect| inspect(chunk))
    }
}

/// A test that failed while it held a lock has changed nothing by halves.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
