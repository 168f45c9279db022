//! Lines to servers: TCP, and TLS where the URL asks for it. Reaching nobody is [`Kind::Refused`](crate::engine::Kind::Refused): nothing was asked.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// So long may all of it take, greetings included: a server that hangs still takes connections, and not everybody who calls has a limit of their own.
const GREETED_WITHIN: Duration = Duration::from_secs(10);

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

/// The hosts that a URL names, and which of them is asked: one that has served is asked until it fails.
pub(super) struct Hosts {
    names: Vec<String>,
    /// How often one was left for the next.
    at: AtomicUsize,
}

impl Hosts {
    pub(super) fn of(names: Vec<String>) -> Hosts {
        Hosts { names, at: AtomicUsize::new(0) }
    }

    /// The one that is asked.
    pub(super) fn current(&self) -> &str {
        self.nth(self.at.load(Ordering::Relaxed))
    }

    /// Whether there is another to turn to.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "others ask no host what it is"))]
    pub(super) fn are_several(&self) -> bool {
        self.names.len() > 1
    }

    /// The current one is of no use: the next call tries the next one.
    pub(super) fn leave(&self) {
        self.at.fetch_add(1, Ordering::Relaxed);
    }

    /// What the first host says that lets itself be connected to, beginning with the current one. Dropped while a host is waited for, it leaves that one for the next.
    pub(super) async fn first<'a, C, F>(&'a self, connect: impl Fn(&'a str) -> F) -> Result<C, Error>
    where
        F: Future<Output = Result<C, Error>>,
    {
        let mut trouble = None;
        for _ in 0..self.names.len() {
            let attempt = Attempt { hosts: self, at: self.at.load(Ordering::Relaxed), serves: false };
            let host = self.nth(attempt.at);
            match timeout(GREETED_WITHIN, connect(host)).await {
                Ok(Ok(connection)) => {
                    attempt.served();
                    return Ok(connection);
                }
                Ok(Err(why)) => trouble = Some(why),
                Err(_) => trouble = Some(unreachable(host, "it takes the connection and says nothing")),
            }
        }
        Err(trouble.expect("there is at least one host"))
    }

    fn nth(&self, at: usize) -> &str {
        &self.names[at % self.names.len()]
    }
}

/// A host is being tried. Whatever becomes of it, it is left for the next one unless it has served.
struct Attempt<'a> {
    hosts: &'a Hosts,
    at: usize,
    serves: bool,
}

impl Attempt<'_> {
    fn served(mut self) {
        self.serves = true;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.serves {
            // Two that have tried the same host at once leave it once, or they would pass by the next.
            let _ = self.hosts.at.compare_exchange(self.at, self.at + 1, Ordering::Relaxed, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> Hosts {
        Hosts::of(["a", "b", "c"].map(str::to_owned).into())
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_serves_stays_and_whoever_fails_or_is_not_waited_for_is_left() {
        let hosts = hosts();
        let asked = hosts.first(async |host| if host == "a" { Err(Error::refused("no")) } else { Ok(host) }).await;
        assert_eq!((asked.expect("b serves"), hosts.current()), ("b", "b"));
        assert_eq!(hosts.first(async |host| Ok(host)).await.expect("serves"), "b");
        let silent = async |_: &str| std::future::pending::<Result<(), Error>>().await;
        let (one, other) = tokio::join!(
            timeout(Duration::from_secs(1), hosts.first(silent)),
            timeout(Duration::from_secs(1), hosts.first(silent))
        );
        assert!(one.is_err() && other.is_err());
        assert_eq!(hosts.current(), "c", "left once, by both");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_for_a_host_that_says_nothing() {
        let hosts = hosts();
        let asked = hosts.first(async |host| if host == "c" { Ok(host) } else { std::future::pending().await }).await;
        assert_eq!((asked.expect("c serves"), hosts.current()), ("c", "c"));
    }
}
