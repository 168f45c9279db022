//! One client's connection: two sockets, two pipes between them, and the threads that move bytes.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;

use super::pipe::{Halt, Item, Next, Pipe};
use super::{Chunk, Desk, Direction, Verdict, Way, held};

/// A connection that a client made.
pub(super) struct Connection {
    number: u64,
    client: TcpStream,
    /// None for a connection that got no further than the relay.
    server: Option<TcpStream>,
    requests: Pipe,
    replies: Pipe,
    /// Threads that still move its bytes.
    movers: AtomicUsize,
}

/// A server on loopback that is not reached by then will not be.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A read brings at most this much.
const CHUNK_MAX: usize = 64 << 10;

/// Threads move bytes and nothing else; a connection has four of them.
const STACK_SIZE: usize = 128 << 10;

/// Takes a client in, and leads it to the server unless requests do not pass.
pub(super) fn begin(desk: &Arc<Desk>, client: TcpStream) {
    let (target, open) = {
        let setting = held(&desk.setting);
        (setting.target, setting.requests.is_open())
    };
    let server = if open { TcpStream::connect_timeout(&target, CONNECT_WITHIN).ok() } else { None };
    if open && server.is_none() {
        // A server that refuses us refuses the client, as far as it can see.
        let _ = client.shutdown(Shutdown::Both);
        return desk.count(|traffic| traffic.connections += 1);
    }
    let _ = client.set_nodelay(true);
    let _ = server.as_ref().map(|server| server.set_nodelay(true));
    let mut setting = held(&desk.setting);
    setting.made += 1;
    let number = setting.made;
    let movers = AtomicUsize::new(if server.is_some() { 4 } else { 1 });
    let (requests, replies) = (Pipe::new(setting.requests), Pipe::new(setting.replies));
    let connection = Arc::new(Connection { number, client, server, requests, replies, movers });
    setting.connections.insert(number, Arc::clone(&connection));
    drop(setting);
    // Only now, so that who waits for it and then changes a way changes it for this one too.
    desk.count(|traffic| {
        traffic.connections += 1;
        traffic.open += 1;
    });
    if connection.server.is_none() {
        return mover(desk, &connection, |_, connection| connection.wait_for_the_end());
    }
    for direction in [Direction::Request, Direction::Reply] {
        mover(desk, &connection, move |desk, connection| connection.read(desk, direction));
        mover(desk, &connection, move |desk, connection| connection.write(desk, direction));
    }
}

fn mover(desk: &Arc<Desk>, connection: &Arc<Connection>, work: impl FnOnce(&Desk, &Connection) + Send + 'static) {
    let (desk, connection) = (Arc::clone(desk), Arc::clone(connection));
    let thread = std::thread::Builder::new().name("relay-mover".into()).stack_size(STACK_SIZE);
    let started = thread.spawn(move || {
        work(&desk, &connection);
        if connection.movers.fetch_sub(1, Ordering::AcqRel) == 1 {
            connection.forget(&desk);
        }
    });
    started.expect("a thread can be started");
}

impl Connection {
    pub(super) fn set(&self, direction: Direction, way: Way) {
        if !self.pipe(direction).set(way) || (direction == Direction::Request && self.server.is_none() && way.is_open()) {
            self.close();
        }
    }

    /// Lets it go on, or ends it if it cannot.
    pub(super) fn heal(&self) {
        let (requests, replies) = (self.requests.heal(), self.replies.heal());
        if self.server.is_none() || !requests || !replies {
            self.close();
        }
    }

    /// Ends it for both sides at once.
    pub(super) fn close(&self) {
        self.requests.close();
        self.replies.close();
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.as_ref().map(|server| server.shutdown(Shutdown::Both));
    }

    /// Ends it for both sides with a reset: the sockets are closed with nothing said before, when the last thread has let go of them.
    pub(super) fn reset(&self) {
        // First, or an end that is read would be passed on as one.
        self.requests.close();
        self.replies.close();
        for socket in [Some(&self.client), self.server.as_ref()].into_iter().flatten() {
            // One that has ended already cannot be reset.
            let _ = set_socket_linger(socket, Some(Duration::ZERO));
            // Wakes the thread that reads, and tells the other side nothing.
            let _ = socket.shutdown(Shutdown::Read);
        }
    }

    fn pipe(&self, direction: Direction) -> &Pipe {
        match direction {
            Direction::Request => &self.requests,
            Direction::Reply => &self.replies,
        }
    }

    /// From where bytes of this direction come, and where they go.
    fn sockets(&self, direction: Direction) -> Option<(&TcpStream, &TcpStream)> {
        let server = self.server.as_ref()?;
        match direction {
            Direction::Request => Some((&self.client, server)),
            Direction::Reply => Some((server, &self.client)),
        }
    }

    /// Puts what comes into the pipe, until its sender ends.
    fn read(&self, desk: &Desk, direction: Direction) {
        let Some((mut from, _)) = self.sockets(direction) else { return };
        let mut buffer = vec![0; CHUNK_MAX];
        loop {
            // A reset is an end too: the other side learns it in the same way.
            let size = from.read(&mut buffer).unwrap_or(0);
            let arrived = Instant::now();
            if size == 0 {
                self.pipe(direction).put(arrived, Item::End, None);
                return;
            }
            let bytes = &buffer[..size];
            let verdict = desk.verdict(&Chunk { connection: self.number, direction, bytes });
            desk.count_flow(direction, |flow| {
                flow.chunks += 1;
                flow.arrived += size as u64;
            });
            let halt = match verdict {
                Verdict::Pass => None,
                Verdict::Hold => Some(Halt::Hold),
                Verdict::Lose => Some(Halt::Lose),
                Verdict::Disconnect => {
                    self.close();
                    desk.count_flow(direction, |flow| flow.lost += size as u64);
                    return;
                }
            };
            if !self.pipe(direction).put(arrived, Item::Bytes(bytes.to_vec()), halt) {
                desk.count_flow(direction, |flow| flow.lost += size as u64);
                return;
            }
        }
    }

    /// Passes on what the pipe gives out, until there is no more.
    fn write(&self, desk: &Desk, direction: Direction) {
        let Some((_, mut to)) = self.sockets(direction) else { return };
        loop {
            match self.pipe(direction).next() {
                Next::Pass(Item::Bytes(bytes)) => {
                    // Who is gone gets nothing. The sender learns of it when the other way brings the end.
                    let passed = to.write_all(&bytes).is_ok();
                    desk.count_flow(direction, |flow| {
                        let flow = if passed { &mut flow.passed } else { &mut flow.lost };
                        *flow += bytes.len() as u64;
                    });
                }
                Next::Pass(Item::End) => {
                    let _ = to.shutdown(Shutdown::Write);
                    return;
                }
                Next::Lost(size) => desk.count_flow(direction, |flow| flow.lost += size as u64),
                Next::Closed => return,
            }
        }
    }

    /// For a connection that got no further than the relay.
    fn wait_for_the_end(&self) {
        while self.requests.next() != Next::Closed {}
    }

    fn forget(&self, desk: &Desk) {
        held(&desk.setting).connections.remove(&self.number);
        desk.count(|traffic| traffic.open -= 1);
    }
}
