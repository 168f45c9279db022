//! What a node does before it takes a directory that is nobody's: all that may fail once the directory is its own, to no effect.
//!
//! **Problem.** A directory is given a node, a cluster and members for good when it is first opened. Whoever then corrects the command line, because a file was not there or a port was
//! taken, finds a directory that remembers the first attempt. **Insight.** Lines and doors can be opened and closed again before anybody knows who opens them: nothing is read from them, nor sent.
//!
//! Left out: keeping them open. Who comes while a long log is read shall go to another node, and not wait here.

use std::thread;
use std::time::Duration;

use incumbent_peer::switchboard::{Lines, Switchboard};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::config::{Beginning, Config, NotStarted};
use super::door::Guard;
use crate::replica::Roll;

/// Refuses what would be refused once the directory is made.
pub(super) fn rehearse(config: &Config) -> Result<(), NotStarted> {
    // Whoever starts a node may be in a runtime, where no other can run.
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("incumbent-rehearsal".to_owned()).spawn_scoped(scope, || rehearse_here(config));
        let thread = thread.map_err(|error| NotStarted::System(error.to_string()))?;
        thread.join().unwrap_or_else(|_| Err(NotStarted::System("the node has ended while it started".to_owned())))
    })
}

fn rehearse_here(config: &Config) -> Result<(), NotStarted> {
    if config.beginning == Beginning::Founds {
        Roll::of(config.peers.iter().map(|it| it.id).chain([config.me])).map_err(NotStarted::Members)?;
    }
    Guard::read(&config.admission).map_err(NotStarted::Clients)?;
    // One of its own: with it ends whatever the lines have begun, and they have not had a turn.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| NotStarted::System(error.to_string()))?;
    runtime.block_on(async {
        let lines = Lines {
            cluster: config.cluster.clone(),
            me: config.me,
            directory: [0; 16],
            generation: 0,
            origin: None,
            nonce: 0,
            listen: config.listen.clone(),
            peers: config.peers.clone(),
            settings: config.terms(),
            security: config.security.clone(),
            patience: Duration::ZERO,
            known: Vec::new(),
        };
        // Before the lines: from those on nothing may be waited for, or they would begin to speak.
        let clients = listen_to_clients(config).await?;
        let lines = Switchboard::open(lines, mpsc::channel(1).0).await.map_err(|why| NotStarted::Lines(why.to_string()))?;
        drop((lines, clients));
        Ok(())
    })
}

/// The door for clients, if there is to be one, where it may be.
pub(super) async fn listen_to_clients(config: &Config) -> Result<Option<TcpListener>, NotStarted> {
    let Some(address) = &config.clients else { return Ok(None) };
    let listener = TcpListener::bind(address).await.map_err(|error| {
        NotStarted::Clients(format!("clients cannot be served at {address}: {error}; name another address or free this one"))
    })?;
    let bound = listener.local_addr().map_err(|error| NotStarted::System(error.to_string()))?;
    config.admission.check(bound.ip()).map_err(NotStarted::Exposed)?;
    Ok(Some(listener))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use incumbent_protocol::protocol::NodeId;

    use super::super::{Admission, Node, Peer, Security, ServerTls, TlsFiles};
    use super::*;
    use crate::log::Disk as _;
    use crate::log::sim::SimDisk;

    fn served() -> Config {
        Config { clients: Some("127.0.0.1:0".to_owned()), ..Config::alone("nowhere") }
    }

    #[test]
    fn what_cannot_start_leaves_no_directory_behind_and_can_be_corrected_to_anything() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let taken = taken.local_addr().map(|it| (taken, it.to_string())).expect("it has an address");
        let nope = || PathBuf::from("/nope");
        let (certificate, key, authority) = (nope(), nope(), nope());
        let peer = |id, address: &str| Peer { id: NodeId(id), address: address.to_owned() };
        let tls = Some(ServerTls { certificate: nope(), key: nope(), authority: None });
        for wrong in [
            Config { admission: Admission { tokens: Some(nope()), tls: None }, ..served() },
            Config { admission: Admission { tokens: None, tls }, ..served() },
            Config { clients: Some("0.0.0.0:0".to_owned()), ..served() },
            Config { clients: Some(taken.1.clone()), ..served() },
            Config { clients: Some("no address".to_owned()), ..served() },
            Config { listen: taken.1.clone(), ..served() },
            Config { listen: "no address".to_owned(), ..served() },
            Config { listen: "0.0.0.0:0".to_owned(), ..served() },
            Config { peers: vec![peer(2, "192.0.2.1:7273")], ..served() },
            Config { peers: (2..100).map(|id| peer(id, &format!("127.0.0.1:{}", 7000 + id))).collect(), ..served() },
            Config { security: Security::Tls(TlsFiles { authority, certificate, key, revoked: None }), ..served() },
        ] {
            let disk = SimDisk::new(1);
            let refused = Node::start_on(disk.clone(), wrong.clone()).map(drop);
            assert!(refused.is_err(), "{wrong:?}");
            assert_eq!(disk.names().expect("listed"), Vec::<String>::new(), "{refused:?}: {wrong:?}");
            // Another node of another cluster, with others.
            let corrected =
                Config { me: NodeId(3), cluster: "other".to_owned(), peers: vec![peer(2, "127.0.0.1:1")], ..served() };
            Node::start_on(disk, corrected).map(drop).expect("nothing is remembered");
        }
    }

    #[test]
    fn ports_are_free_again_after_the_rehearsal() {
        for _ in 0..3 {
            let free = || {
                let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
                port.local_addr().expect("it has an address").to_string()
            };
            let config = Config { listen: free(), clients: Some(free()), ..Config::alone("nowhere") };
            Node::start_on(SimDisk::new(1), config).map(drop).expect("it is bound once more");
        }
    }
}
