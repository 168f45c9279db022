//! Ports on loopback that stay ours for as long as we need them.
//!
//! The usual way (bind port 0, note the number, close) has two holes. The number lies where the kernel takes ports for outgoing
//! connections, so while a server is down a client that dials it may be given the server's own port and talk to itself, and the server
//! cannot come back. And another test process may take the same number while the server restarts. So a port here is taken from below
//! that range, and claimed against other users of this crate by a name that the kernel frees when the process ends.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A loopback port that no other user of this crate takes until it is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _claim: UnixDatagram,
}

/// Below are the well-known ones, on which the machine's own services listen.
const LOWEST: u16 = 10_000;

/// Where Linux begins with outgoing connections unless told otherwise.
const OUTGOING_FROM: u16 = 32_768;

impl Port {
    /// A port on which nobody listens.
    ///
    /// # Errors
    /// If there is none.
    pub fn free() -> Result<Port, String> {
        let highest = outgoing_from().clamp(LOWEST + 1000, OUTGOING_FROM);
        let count = highest - LOWEST;
        // Processes begin at different places, or they would all stand in line for the first.
        let start = (RandomState::new().hash_one(std::process::id()) % u64::from(count)) as u16;
        for step in 0..count {
            let number = LOWEST + (start + step) % count;
            if let Some(port) = Port::claim(number) {
                return Ok(port);
            }
        }
        Err(format!("every port from {LOWEST} to {highest} is taken"))
    }

    fn claim(number: u16) -> Option<Port> {
        let name = SocketAddr::from_abstract_name(format!("incumbent-testbed-port-{number}")).ok()?;
        let claim = UnixDatagram::bind_addr(&name).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Port { number, _claim: claim })
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

fn outgoing_from() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(OUTGOING_FROM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_nobody_elses_until_it_is_dropped() {
        let port = Port::free().unwrap();
        assert!(Port::claim(port.number()).is_none());
        let number = port.number();
        drop(port);
        assert!(Port::claim(number).is_some());
    }

    #[test]
    fn a_port_on_which_somebody_listens_is_not_taken() {
        let port = Port::free().unwrap();
        let number = port.number();
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, number)).unwrap();
        drop(port);
        assert!(Port::claim(number).is_none());
    }
}
