//! Somebody with questions who is no member: the command line.

use std::sync::Arc;
use std::time::Duration;

use incumbent_protocol::protocol::NodeId;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::greet::shown;
use super::key::Sealed;
use super::line::Connection;
use super::stream::{Expected, Fault, Guard};
use super::tls::Credentials;
use super::{AskError, Security, Unusable};
use crate::packet::{FRAME_MAX, Hello, Lane, Mail, Packet, Purpose, Role, Route, VERSION, VERSION_OLDEST};

/// How long one member may take to let us in.
const GREETING: Duration = Duration::from_secs(3);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);

/// A connection to any member, for questions.
pub struct Guest {
    connection: Connection,
    member: NodeId,
    last: u64,
}

impl Guest {
    /// Connects to the first of the addresses (host and port) that answers.
    ///
    /// # Errors
    /// If none does, with what each of them said; or if the security cannot be had.
    pub async fn connect(addresses: &[String], cluster: &str, security: &Security) -> Result<Guest, Unusable> {
        let guard = match security {
            Security::Open => Guard::Open,
            Security::Key(key) => Guard::Key(Sealed::new(key)),
            Security::Tls(files) => Guard::Tls(Arc::new(Credentials::of_guest(files)?)),
        };
        let mut complaints = Vec::new();
        for name in addresses {
            match timeout(GREETING, visit(name, cluster, &guard)).await.unwrap_or(Err(Fault::TimedOut)) {
                Ok((connection, member)) => return Ok(Guest { connection, member, last: 0 }),
                Err(fault) => complaints.push(format!("{name}: {fault}")),
            }
        }
        if complaints.is_empty() {
            complaints.push("no address was given".into());
        }
        Err(Unusable(complaints.join("; ")))
    }

    /// The member that answers.
    pub fn member(&self) -> NodeId {
        self.member
    }

    /// Asks it.
    ///
    /// # Errors
    /// If no answer comes. The question may have been heard.
    pub async fn ask(&mut self, body: Vec<u8>) -> Result<Vec<u8>, AskError> {
        self.last += 1;
        let id = self.last;
        let route = Route { from: self.member, to: self.member, relayed: false, more: 0 };
        let exchange = async {
            self.connection.write(Packet::Mail { route, mail: Mail::Ask { id, body } }).await?;
            loop {
                if let Packet::Mail { mail: Mail::Answer { id: answered, body }, .. } = self.connection.read(FRAME_MAX).await?
                    && answered == id
                {
                    return Ok::<_, Fault>(body);
                }
            }
        };
        match timeout(ANSWER, exchange).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(_)) | Err(_) => Err(AskError::TimedOut),
        }
    }
}

async fn visit(name: &str, cluster: &str, guard: &Guard) -> Result<(Connection, NodeId), Fault> {
    let mut last = Fault::NobodyListens;
    for address in lookup_host(name).await? {
        guard.admits(address).map_err(Fault::Insecure)?;
        let tcp = match TcpStream::connect(address).await {
            Ok(tcp) => tcp,
            Err(wrong) => {
                last = wrong.into();
                continue;
            }
        };
        let _ = tcp.set_nodelay(true);
        let mut connection = Connection::new(guard.dialled(tcp, Expected::Anyone).await?, address);
        let hello = Hello {
            version: VERSION,
            oldest: VERSION_OLDEST,
            cluster: cluster.to_owned(),
            role: Role::Guest,
            purpose: Purpose::Lane(Lane::Bulk),
            settings: String::new(),
            to: None,
        };
        connection.write(Packet::Hello(hello)).await?;
        return match connection.read_greeting().await? {
            Packet::Welcome(welcome) => Ok((connection, welcome.passport.id)),
            Packet::Refusal { why } => Err(Fault::Refusal(shown(&why))),
            other @ (Packet::Hello(_) | Packet::Pulse(_) | Packet::Mail { .. }) => Err(Fault::Misplaced(other.kind())),
        };
    }
    Err(last)
}
