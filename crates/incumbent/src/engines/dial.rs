//! Lines to servers: TCP, and TLS where the URL asks for it. Reaching nobody is [`Kind::Refused`](crate::engine::Kind::Refused): nothing was asked.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

pub(super) use super::knock::knocked;
pub(super) use super::slot::Slot;
use super::tls::client_config;
pub(super) use super::tls::tls_complaint;
use crate::engine::Error;
use crate::place::Place;

/// A server that has not taken the connection by then is down or behind a firewall.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Shorter than [`knocked`] waits, so that it is heard when an engine is opened: a server that does not know TLS may wait for more in silence.
const TLS_TIMEOUT: Duration = Duration::from_millis(1500);

/// Bytes both ways.
pub(super) trait Line: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Line for T {}

/// How to reach servers, as a URL says it.
#[derive(Clone)]
pub(super) struct Dialer {
    pub(super) tls: Option<Tls>,
}

/// How to speak TLS.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) config: Arc<ClientConfig>,
    /// What the certificate must be for, if not the host.
    pub(super) server_name: Option<String>,
}

impl Dialer {
    /// Reads the files that the URL names.
    pub(super) fn of(place: &Place) -> Result<Dialer, Error> {
        let tls = match place.tls()? {
            Some(files) => Some(Tls { config: Arc::new(client_config(&files)?), server_name: files.server_name.clone() }),
            None => None,
        };
        Ok(Dialer { tls })
    }

    /// Reaches `host:port`, without TLS.
    pub(super) async fn tcp(&self, address: &str) -> Result<TcpStream, Error> {
        let stream = match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(why)) => return Err(unreachable(address, why)),
            Err(_) => return Err(unreachable(address, "no answer")),
        };
        // Requests are small and each is waited for.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    /// Reaches `host:port`, with TLS if the URL asks for it.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "others begin TLS in a way of their own"))]
    pub(super) async fn line(&self, address: &str) -> Result<Box<dyn Line>, Error> {
        let stream = self.tcp(address).await?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let name = tls.name_at(address)?;
        match timeout(TLS_TIMEOUT, TlsConnector::from(Arc::clone(&tls.config)).connect(name, stream)).await {
            Ok(Ok(stream)) => Ok(Box::new(stream)),
            Ok(Err(why)) => Err(tls_complaint(address, &why).unwrap_or_else(|| unreachable(address, why))),
            Err(_) => Err(Error::refused(format!("{address} does not answer in TLS: does it speak TLS at this port?"))),
        }
    }
}

impl Tls {
    /// The name that the certificate of the server at `host:port` must be for.
    pub(super) fn name_at(&self, address: &str) -> Result<ServerName<'static>, Error> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
        let name = self.server_name.as_deref().unwrap_or(host);
        ServerName::try_from(name.to_owned())
            .map_err(|_| Error::misconfigured(format!("{name:?} can be no name in a certificate: say server-name=NAME")))
    }
}

fn unreachable(address: &str, why: impl Display) -> Error {
    Error::refused(format!("cannot reach {address} ({why}): is the server running there, and may this machine connect to it?"))
}
