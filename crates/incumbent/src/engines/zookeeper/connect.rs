//! The way to the ensemble: what the URL says of it, how a session is asked for, and why none was given.

use std::io::{self, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig, ClientConnection};
use zookeeper_client::{Client, Connector, Error as Fault, TlsOptions};

use super::session::{Session, Terms};
use crate::clock;
use crate::engine::{Error, Kind};
use crate::engines::tls::{client_config, tls_complaint};
use crate::place::{Credentials, Place};

/// An ensemble, as the URL describes it.
pub(super) struct Ensemble {
    /// `h1:2181,h2:2181`
    hosts: String,
    credentials: Option<Credentials>,
    tls: Option<Tls>,
    /// The servers' `tickTime`.
    tick: Duration,
}

/// How to speak TLS: as the client wants it said, and to find out by hand why it does not get on.
struct Tls {
    options: TlsOptions,
    by_hand: Arc<ClientConfig>,
}

/// A server that does not take our certificate says so behind the handshake: so long is it listened to. One that has nothing to say waits for us.
const COMPLAINT_WITHIN: Duration = Duration::from_secs(1);

/// Where clients connect without TLS, and with it.
const PORT: u16 = 2181;
const PORT_TLS: u16 = 2281;

/// ZooKeeper's own default, and that of every package of it.
pub(super) const TICK_USUAL: Duration = Duration::from_secs(2);

impl Ensemble {
    pub(super) fn of(place: &Place) -> Result<Ensemble, Error> {
        let tls = place.tls()?.map(|files| {
            let options = tls_options(place, &files)?;
            Ok::<_, Error>(Tls { options, by_hand: Arc::new(client_config(&files)?) })
        });
        let tls = tls.transpose()?;
        let tick = match place.option("tick-ms") {
            None => TICK_USUAL,
            Some(text) => {
                text.parse().ok().filter(|it| (1..=60_000).contains(it)).map(Duration::from_millis).ok_or_else(|| {
                    Error::misconfigured(format!("tick-ms={text}: say the servers' tickTime in milliseconds, 2000 for example"))
                })?
            }
        };
        let credentials = place.credentials()?;
        if credentials.as_ref().is_some_and(|it| it.user.is_empty() || it.user.contains(':')) {
            return Err(Error::misconfigured("a user of ZooKeeper has a name without a colon: give it as USER:PASSWORD@HOST"));
        }
        let hosts = place.hosts_or_local(if tls.is_some() { PORT_TLS } else { PORT }).join(",");
        Ok(Ensemble { hosts, credentials, tls, tick })
    }

    pub(super) fn tick(&self) -> Duration {
        self.tick
    }

    pub(super) fn hosts(&self) -> &str {
        &self.hosts
    }

    pub(super) fn has_user(&self) -> bool {
        self.credentials.is_some()
    }

    /// Asks for a session in which `ttl` can be promised.
    pub(super) async fn session(&self, ttl: Duration) -> Result<Session, Refusal> {
        let timeout = Terms::to_ask_for(ttl, self.tick);
        let asked = clock::now();
        let connector = self.connector(timeout);
        let opened = match self.tls {
            Some(_) => connector.secure_connect(&self.hosts).await,
            None => connector.connect(&self.hosts).await,
        };
        match opened {
            Ok(client) => Ok(Session::new(client, self.tick, asked)),
            Err(Fault::AuthFailed) => Err(Refusal {
                kind: Kind::Misconfigured,
                what: format!("ZooKeeper at {} does not accept the user and password: {}", self.hosts, Place::GIVE_PASSWORD),
            }),
            Err(Fault::BadArguments(why)) => Err(Refusal { kind: Kind::Misconfigured, what: format!("{}: {why}", self.hosts) }),
            // No session, so nothing was done in one.
            Err(why) => Err(self.diagnosis(timeout, &why).await),
        }
    }

    fn connector(&self, timeout: Duration) -> Connector {
        let connector = Client::connector()
            // A connection that is silent for two fifths of that is given up: there is still time for another.
            .with_session_timeout(timeout)
            .with_fail_eagerly();
        let connector = match &self.credentials {
            Some(who) => connector.with_auth("digest", format!("{}:{}", who.user, who.password).as_bytes()),
            None => connector,
        };
        match &self.tls {
            Some(tls) => connector.with_tls(tls.options.clone()),
            None => connector,
        }
    }

    /// Why there is no session: the client does not tell, so the servers are tried once more, by hand.
    async fn diagnosis(&self, timeout: Duration, why: &Fault) -> Refusal {
        let (hosts, tls) = (self.hosts.clone(), self.tls.as_ref().map(|it| Arc::clone(&it.by_hand)));
        let tried =
            tokio::task::spawn_blocking(move || hosts.split(',').find_map(|host| trouble(host, timeout / 4, tls.as_ref())));
        tried.await.ok().flatten().unwrap_or_else(|| {
            let tls = if self.tls.is_some() { "" } else { ", or it wants tls=on" };
            let what = format!("ZooKeeper at {} gives no session ({why}): it may have lost its quorum{tls}", self.hosts);
            Refusal { kind: Kind::Refused, what }
        })
    }
}

/// What is wrong with the way to a server, if anything is.
fn trouble(host: &str, timeout: Duration, tls: Option<&Arc<ClientConfig>>) -> Option<Refusal> {
    let line = match connect(host, timeout) {
        Ok(line) => line,
        Err(why) => {
            return Some(Refusal { kind: Kind::Refused, what: format!("cannot reach ZooKeeper at {host}: {why}") });
        }
    };
    let why = shake_hands(host, line, timeout, tls?).err()?;
    let name = name_of(host);
    let wrong_name = why.get_ref().and_then(|it| it.downcast_ref()).is_some_and(|it| {
        matches!(
            it,
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
            )
        )
    });
    let (kind, what) = if wrong_name {
        let what = format!("its certificate is not for {name} ({why}): name the server in the URL as its certificate does");
        (Kind::Misconfigured, what)
    } else {
        match tls_complaint(host, &why) {
            Some(complaint) => (Kind::Misconfigured, complaint.to_string()),
            // A server that has lost its quorum hangs up before the handshake, and one that stands still says nothing: that passes.
            None => (Kind::Refused, format!("{why}; it may have lost its quorum, or not speak it at this port")),
        }
    };
    Some(Refusal { kind, what: format!("no TLS with ZooKeeper at {host}: {what}") })
}

fn connect(host: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::ErrorKind::NotFound.into();
    for address in host.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(line) => return Ok(line),
            Err(why) => last = why,
        }
    }
    Err(last)
}

/// The name in `name:port`, without the brackets of an address.
fn name_of(host: &str) -> &str {
    host.rsplit_once(':').map_or(host, |it| it.0).trim_matches(['[', ']'])
}

fn shake_hands(host: &str, mut line: TcpStream, timeout: Duration, tls: &Arc<ClientConfig>) -> io::Result<()> {
    let name = ServerName::try_from(name_of(host).to_owned()).map_err(io::Error::other)?;
    let mut connection = ClientConnection::new(Arc::clone(tls), name).map_err(io::Error::other)?;
    line.set_read_timeout(Some(timeout.max(Duration::from_millis(1))))?;
    line.set_write_timeout(Some(timeout.max(Duration::from_millis(1))))?;
    while connection.is_handshaking() {
        connection.complete_io(&mut line)?;
    }
    line.set_read_timeout(Some(COMPLAINT_WITHIN.min(timeout).max(Duration::from_millis(1))))?;
    match rustls::Stream::new(&mut connection, &mut line).read(&mut [0]) {
        Err(why) if !matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Err(why),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn tls_options(place: &Place, files: &crate::place::TlsFiles) -> Result<TlsOptions, Error> {
    if files.server_name.is_some() {
        return Err(Error::misconfigured(
            "server-name is not possible with ZooKeeper: name the servers in the URL as their certificates do",
        ));
    }
    let Some(ca) = &files.ca else {
        return Err(Error::misconfigured(
            "ZooKeeper over TLS needs ca=FILE: the authorities that signed the servers' certificates",
        ));
    };
    // The client panics on other names.
    if let Some(odd) = place.hosts().iter().find(|it| !can_be_certified(&it.name)) {
        return Err(Error::misconfigured(format!(
            "{:?} cannot be the name in a certificate: use the server's DNS name",
            odd.name
        )));
    }
    choose_cryptography();
    let bad = |file: &Path, why: Fault| Error::misconfigured(format!("{}: {why}", file.display()));
    let options = TlsOptions::new().with_pem_ca(&read(ca)?).map_err(|why| bad(ca, why))?;
    match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => options.with_pem_identity(&read(cert)?, &read(key)?).map_err(|why| bad(cert, why)),
        (_, _) => Ok(options),
    }
}

/// Whether a certificate can have this name: an address, or labels of letters, digits and dashes.
fn can_be_certified(host: &str) -> bool {
    let label = |it: &str| {
        (1..=63).contains(&it.len())
            && it.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !it.starts_with('-')
            && !it.ends_with('-')
    };
    host.parse::<std::net::IpAddr>().is_ok() || host.len() <= 253 && host.split('.').all(label)
}

/// The client uses the cryptography that the process has chosen, and panics if there are several and none was chosen.
fn choose_cryptography() {
    if CryptoProvider::get_default().is_none() {
        // Should somebody else choose at the same time, theirs is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn read(file: &Path) -> Result<String, Error> {
    std::fs::read_to_string(file).map_err(|why| Error::misconfigured(format!("cannot read {}: {why}", file.display())))
}

/// Why there is no session, for all who wait for it.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    kind: Kind,
    what: String,
}

impl Refusal {
    pub(super) fn closed() -> Refusal {
        Refusal { kind: Kind::Refused, what: "no session was opened: the program is ending, or the client has failed".to_owned() }
    }

    pub(super) fn into_error(self) -> Error {
        match self.kind {
            Kind::Refused => Error::refused(self.what),
            Kind::Unknown => Error::unknown(self.what),
            Kind::Misconfigured => Error::misconfigured(self.what),
        }
    }
}
