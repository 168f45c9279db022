//! Lines to servers: TCP, TLS where the URL asks for it, and one connection that all calls share until it fails.
//!
//! A connection that breaks, or leaves a call without an answer, is replaced by the next call: a line that died in silence (a firewall that forgot it, a
//! server that failed over) would otherwise be waited on for a quarter of an hour. Reaching nobody is [`Kind::Refused`](crate::engine::Kind::Refused): nothing was asked.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

pub(super) use super::knock::knocked;
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

/// One connection for all, made when it is needed, replaced when it has failed.
pub(super) struct Slot<C> {
    current: tokio::sync::Mutex<(u64, Option<C>)>,
    /// Connections up to this number are not used any more.
    retired: AtomicU64,
}

/// A connection in use. Dropped before [`Borrowed::answered`], it counts as failed.
pub(super) struct Borrowed<'a, C> {
    pub(super) connection: C,
    number: u64,
    slot: &'a Slot<C>,
}

impl<C> Default for Slot<C> {
    fn default() -> Slot<C> {
        Slot { current: tokio::sync::Mutex::new((0, None)), retired: AtomicU64::new(0) }
    }
}

impl<C: Clone> Slot<C> {
    /// The connection; a new one if there is none or it has failed.
    pub(super) async fn borrow(&self, connect: impl Future<Output = Result<C, Error>>) -> Result<Borrowed<'_, C>, Error> {
        let mut current = self.current.lock().await;
        if let (number, Some(connection)) = &*current
            && *number > self.retired.load(Ordering::Acquire)
        {
            return Ok(Borrowed { connection: connection.clone(), number: *number, slot: self });
        }
        current.1 = None;
        let connection = connect.await?;
        let number = current.0 + 1;
        *current = (number, Some(connection.clone()));
        Ok(Borrowed { connection, number, slot: self })
    }
}

impl<C> Borrowed<'_, C> {
    /// It has answered: it may be used again.
    pub(super) fn answered(mut self) {
        self.number = 0;
    }
}

impl<C> Drop for Borrowed<'_, C> {
    fn drop(&mut self) {
        self.slot.retired.fetch_max(self.number, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_is_kept_until_a_call_is_left_without_an_answer() {
        let slot = Slot::<u32>::default();
        slot.borrow(async { Ok(1) }).await.expect("connects").answered();
        let (second, third) = (slot.borrow(async { Ok(2) }).await, slot.borrow(async { Ok(3) }).await);
        let (second, third) = (second.expect("is there"), third.expect("is there"));
        assert_eq!((second.connection, third.connection), (1, 1));
        drop(second);
        let fourth = slot.borrow(async { Ok(4) }).await.expect("connects");
        assert_eq!(fourth.connection, 4);
        // What the old one does no longer matters.
        drop(third);
        fourth.answered();
        assert_eq!(slot.borrow(async { Ok(5) }).await.expect("is there").connection, 4);
    }
}
