//! The door: who dials us, and what becomes of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::time::{sleep, timeout};

use super::Unusable;
use super::crowd::{Origin, STRANGERS_MAX};
use super::exchange::Exchange;
use super::greet::Admitted;
use super::line::{Connection, carry, serve};
use super::post::Outlet;
use super::stream::{Fault, prepare};
use crate::clock;

/// How long a greeting may take.
const GREETING: Duration = Duration::from_secs(3);
/// When the process has no descriptors left: until the next try.
const BREATH: Duration = Duration::from_millis(50);

pub(super) async fn bind(listen: &str) -> Result<TcpListener, Unusable> {
    let cannot = |wrong: std::io::Error| {
        const HINTS: [(std::io::ErrorKind, &str); 3] = [
            (std::io::ErrorKind::AddrInUse, ": another process listens there"),
            (std::io::ErrorKind::AddrNotAvailable, ": this machine has no such address"),
            (std::io::ErrorKind::PermissionDenied, ": take a port above 1023"),
        ];
        let hint = HINTS.iter().find(|(kind, _)| *kind == wrong.kind()).map_or("", |(_, hint)| hint);
        Unusable(format!("cannot listen on {listen}: {wrong}{hint}"))
    };
    let addresses = lookup_host(listen).await.map_err(cannot)?;
    let mut last = Unusable(format!("cannot listen on {listen}: the name has no address"));
    for address in addresses {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(wrong) => last = cannot(wrong),
        }
    }
    Err(last)
}

pub(super) fn open(exchange: &Arc<Exchange>, listener: TcpListener) {
    let keeper = Arc::clone(exchange);
    let door = exchange.spawn(async move {
        loop {
            match listener.accept().await {
                Ok((tcp, remote)) => let_in(&keeper, tcp, remote),
                Err(wrong) => {
                    keeper.complain("this node", "accept", format!("cannot take connections: {wrong}"));
                    sleep(BREATH).await;
                }
            }
        }
    });
    exchange.board().door = Some(door);
}

fn let_in(exchange: &Arc<Exchange>, tcp: TcpStream, remote: SocketAddr) {
    let from = remote.ip();
    // Who means it has greeted long since, and so nobody can keep others out by saying nothing.
    let (origin, admitted, crowded) = {
        let mut board = exchange.board();
        let origin = if board.is_of_member(from) { Origin::Member } else { Origin::Elsewhere };
        let admitted = board.crowd.admits(clock::now(), from, origin);
        (origin, admitted, admitted && board.crowd.make_room())
    };
    if !admitted {
        let what = format!("{remote}: more connections come from there than are taken in so short a time");
        return exchange.complain(&from.to_string(), "pace", what);
    }
    if crowded {
        exchange.complain(
            &from.to_string(),
            "crowd",
            format!(
                "{remote}: {STRANGERS_MAX} connections have not greeted; the oldest of those who have most of them was ended"
            ),
        );
    }
    let number = exchange.number();
    let stranger = Stranger { exchange: Arc::clone(exchange), number };
    let visited = Arc::clone(exchange);
    let task = exchange.spawn(async move {
        if let Err(fault) = visit(&visited, stranger, number, tcp, remote).await {
            blame(&visited, remote, &fault);
        }
    });
    exchange.board().crowd.enter(number, from, origin, task);
}

async fn visit(
    exchange: &Arc<Exchange>,
    stranger: Stranger,
    number: u64,
    tcp: TcpStream,
    remote: SocketAddr,
) -> Result<(), Fault> {
    prepare(&tcp, exchange.give_up_after());
    let greeting = async {
        let mut connection = Connection::new(exchange.turns.take(exchange.guard.accepted(tcp)).await?, remote);
        let admitted = exchange.answer(&mut connection).await?;
        Ok::<_, Fault>((connection, admitted))
    };
    let (mut connection, admitted) = timeout(GREETING, greeting).await.unwrap_or(Err(Fault::TimedOut))?;
    drop(stranger);
    match admitted {
        Admitted::Member(passport, lane) => {
            if let Some(post) = exchange.board().posts.get_mut(&passport.id) {
                post.came_from = Some(remote.ip().to_canonical());
            }
            let fault = carry(exchange, connection, number, passport, lane).await;
            // The weather; the driver hears of it as Down.
            if matches!(fault, Fault::Silent | Fault::TimedOut) { Ok(()) } else { Err(fault) }
        }
        Admitted::Knocker(peer) => {
            if let Some(post) = exchange.board().posts.get(&peer) {
                post.nudge.notify_one();
                post.nudge_bulk.notify_one();
            }
            Ok(())
        }
        Admitted::Guest => {
            exchange.board().guests.insert(number, Outlet::of(number));
            let fault = serve(exchange, &mut connection, number).await;
            exchange.guest_left(number);
            Err(fault)
        }
    }
}

/// One line for each address and cause.
fn blame(exchange: &Exchange, remote: SocketAddr, fault: &Fault) {
    let cause = match fault {
        // Somebody looked whether we are here, or died while it said hello.
        Fault::Ended | Fault::Reset | Fault::Closed | Fault::NobodyListens => return,
        Fault::TimedOut | Fault::Silent => "slow",
        Fault::Io(_) => "io",
        Fault::Malformed(_) | Fault::Misplaced(_) => "malformed",
        Fault::Insecure(_) => "insecure",
        // Several nodes may be wrong at one address, each in its own way.
        Fault::Refusal(why) | Fault::Unwelcome(why) => why,
    };
    exchange.complain(&remote.ip().to_string(), cause, format!("{remote}: {fault}"));
}

/// One that has not been let in.
struct Stranger {
    exchange: Arc<Exchange>,
    number: u64,
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.exchange.board().crowd.leave(self.number);
    }
}
