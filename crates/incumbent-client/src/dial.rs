//! How a node is reached: TCP, with TLS where anybody else could listen; or whatever a test has instead.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use crate::failure::Ended;

/// A connection, whatever it is made of.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection that is being made.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = Result<Box<dyn Stream>, Ended>> + Send + 'a>>;

/// A way to reach nodes.
pub trait Dial: Send + Sync {
    /// Connects to an address: host and port.
    fn dial<'a>(&'a self, address: &'a str) -> Dialing<'a>;
}

/// What protects a connection.
#[derive(Clone, Default)]
pub enum Security {
    /// Nothing, and so only on this machine.
    #[default]
    LoopbackOnly,
    /// TLS.
    Tls {
        /// Whom to believe, and what to show.
        config: Arc<ClientConfig>,
        /// The name that the nodes' certificates have; `None` for the host in each address.
        server_name: Option<String>,
    },
    /// Nothing, anywhere: for networks that protect what goes over them.
    PlainAnywhere,
}

/// TCP.
#[derive(Clone, Default)]
pub struct Tcp {
    security: Security,
}

impl Tcp {
    /// TCP that is protected so.
    pub fn new(security: Security) -> Tcp {
        Tcp { security }
    }

    async fn connect(&self, address: &str) -> Result<Box<dyn Stream>, Ended> {
        let tcp = match &self.security {
            // Looked up before anything is sent: not even a greeting leaves this machine.
            Security::LoopbackOnly => {
                let found: Vec<_> =
                    lookup_host(address).await.map_err(Ended::Unreachable)?.filter(|it| it.ip().is_loopback()).collect();
                if found.is_empty() {
                    return Err(Ended::Insecure(address.to_owned()));
                }
                TcpStream::connect(&found[..]).await
            }
            Security::PlainAnywhere | Security::Tls { .. } => TcpStream::connect(address).await,
        };
        let tcp = tcp.map_err(Ended::Unreachable)?;
        // Frames are gathered before they are written: waiting for more would only delay them.
        tcp.set_nodelay(true).map_err(Ended::Unreachable)?;
        match &self.security {
            Security::PlainAnywhere | Security::LoopbackOnly => Ok(Box::new(tcp)),
            Security::Tls { config, server_name } => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                let host = host.trim_start_matches('[').trim_end_matches(']');
                let name = server_name.as_deref().unwrap_or(host);
                let name = ServerName::try_from(name.to_owned())
                    .map_err(|_| Ended::Unreachable(io::Error::other(format!("{name} is no name for a certificate"))))?;
                let connector = TlsConnector::from(Arc::clone(config));
                match connector.connect(name, tcp).await {
                    Ok(stream) => Ok(Box::new(stream)),
                    // What rustls says against the other side.
                    Err(wrong) if wrong.kind() == io::ErrorKind::InvalidData => Err(Ended::Untrusted(wrong)),
                    Err(wrong) => Err(Ended::Unreachable(wrong)),
                }
            }
        }
    }
}

impl Dial for Tcp {
    fn dial<'a>(&'a self, address: &'a str) -> Dialing<'a> {
        Box::pin(self.connect(address))
    }
}
