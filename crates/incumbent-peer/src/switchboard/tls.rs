//! Connections between nodes with certificates: both ends show one of the group's authority.
//!
//! A member's certificate names it: `node-3.blue` is node 3 of cluster `blue`, so a stolen certificate is good for one node only. Who dials checks
//! the name while it connects; who is dialled, when the caller has said which member it is.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use incumbent_protocol::protocol::NodeId;
use rustls::client::verify_server_name;
use rustls::client::{
    WebPkiServerVerifier, danger::HandshakeSignatureValid, danger::ServerCertVerified, danger::ServerCertVerifier,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::stream::{Expected, Fault};
use super::{TlsFiles, Unusable};
use crate::reread::{Reread, Stamp};

/// What a node shows, and whom it believes: as its files say, which are read again when they change.
pub(super) struct Credentials {
    files: TlsFiles,
    /// The member that it is; a guest is none.
    member: Option<(String, NodeId)>,
    kept: Mutex<Kept>,
}

struct Kept {
    shown: Arc<Shown>,
    /// As the files were when they were last looked at, good or bad.
    stamps: Stamps,
}

type Stamps = [Option<Stamp>; 4];

/// What one look at the files came to.
struct Shown {
    acceptor: TlsAcceptor,
    /// Members must show the right name.
    to_member: TlsConnector,
    /// A guest asks any member.
    to_anyone: TlsConnector,
}

/// A connection whose other end has shown a certificate.
pub(super) struct Certified {
    pub(super) stream: Box<TlsStream<TcpStream>>,
}

/// The name that a member's certificate must have.
pub(super) fn certified_name(cluster: &str, id: NodeId) -> String {
    format!("node-{id}.{cluster}")
}

fn server_name(cluster: &str, id: NodeId) -> Result<ServerName<'static>, String> {
    let name = certified_name(cluster, id);
    ServerName::try_from(name.clone()).map_err(|_| {
        format!("certificates name members as {name}, which is no name: use letters, digits and hyphens for the cluster")
    })
}

impl Credentials {
    /// Of a member, whose certificate must be the one that others expect of it: better told here than by all of them.
    pub(super) fn of_member(files: &TlsFiles, cluster: &str, me: NodeId) -> Result<Credentials, Unusable> {
        Credentials::of(files, Some((cluster.to_owned(), me)))
    }

    pub(super) fn of_guest(files: &TlsFiles) -> Result<Credentials, Unusable> {
        Credentials::of(files, None)
    }

    fn of(files: &TlsFiles, member: Option<(String, NodeId)>) -> Result<Credentials, Unusable> {
        let stamps = stamps(files);
        let shown = Arc::new(Shown::read(files, member.as_ref())?);
        Ok(Credentials { files: files.clone(), member, kept: Mutex::new(Kept { shown, stamps }) })
    }

    /// Reads the files again if one of them is not as it was.
    pub(super) fn reread_if_changed(&self) -> Reread {
        // Before they are read: what is written meanwhile is seen the next time.
        let stamps = stamps(&self.files);
        if stamps == self.kept().stamps {
            return Reread::Unchanged;
        }
        let read = Shown::read(&self.files, self.member.as_ref());
        let mut kept = self.kept();
        kept.stamps = stamps;
        match read {
            Ok(shown) => {
                kept.shown = Arc::new(shown);
                Reread::Changed
            }
            Err(why) => Reread::Kept(why.0),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shown(&self) -> Arc<Shown> {
        Arc::clone(&self.kept().shown)
    }

    pub(super) async fn dialled(&self, tcp: TcpStream, expected: Expected<'_>) -> Result<Certified, Fault> {
        let stream = match expected {
            Expected::Member(cluster, id) => {
                let name = server_name(cluster, id).map_err(Fault::Insecure)?;
                self.shown().to_member.connect(name, tcp).await.map_err(|wrong| fault(wrong, &certified_name(cluster, id)))?
            }
            Expected::Anyone => {
                // Not looked at, but TLS wants one.
                let name = server_name("any", NodeId(0)).map_err(Fault::Insecure)?;
                self.shown().to_anyone.connect(name, tcp).await.map_err(|wrong| fault(wrong, "any member"))?
            }
        };
        Ok(Certified { stream: Box::new(stream.into()) })
    }

    pub(super) async fn accepted(&self, tcp: TcpStream) -> Result<Certified, Fault> {
        let stream = self.shown().acceptor.accept(tcp).await.map_err(|wrong| fault(wrong, "a member"))?;
        Ok(Certified { stream: Box::new(stream.into()) })
    }
}

fn stamps(TlsFiles { authority, certificate, key, revoked }: &TlsFiles) -> Stamps {
    [Stamp::at(authority), Stamp::at(certificate), Stamp::at(key), revoked.as_deref().and_then(Stamp::at)]
}

impl Shown {
    fn read(files: &TlsFiles, member: Option<&(String, NodeId)>) -> Result<Shown, Unusable> {
        let unreadable = |path: &Path, why: String| Unusable(format!("cannot read {}: {why}", path.display()));
        let lists = |path: &Path| -> Result<Vec<CertificateRevocationListDer<'static>>, Unusable> {
            let read: Result<Vec<_>, _> = CertificateRevocationListDer::pem_file_iter(path).and_then(Iterator::collect);
            let read = read.map_err(|wrong| unreadable(path, wrong.to_string()))?;
            if read.is_empty() {
                Err(unreadable(path, "there is no list of revoked certificates in it".into()))
            } else {
                Ok(read)
            }
        };
        let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, Unusable> {
            let read: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
            let read = read.map_err(|wrong| unreadable(path, wrong.to_string()))?;
            if read.is_empty() { Err(unreadable(path, "there is no certificate in it".into())) } else { Ok(read) }
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&files.authority)? {
            roots.add(certificate).map_err(|wrong| unreadable(&files.authority, wrong.to_string()))?;
        }
        let roots = Arc::new(roots);
        let chain = certificates(&files.certificate)?;
        if let Some((cluster, me)) = member {
            named(&chain[0], cluster, *me).map_err(|why| Unusable(format!("our own certificate will not do: {why}")))?;
        }
        let revoked = files.revoked.as_deref().map(lists).transpose()?.unwrap_or_default();
        let key = || PrivateKeyDer::from_pem_file(&files.key).map_err(|wrong| unreadable(&files.key, wrong.to_string()));
        let unusable = |wrong: &dyn std::fmt::Display| {
            Unusable(format!("cannot use {} with {}: {wrong}", files.certificate.display(), files.key.display()))
        };
        // Named, so that nothing depends on what else the process has chosen.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .with_crls(revoked.clone())
            .build()
            .map_err(|wrong| unusable(&wrong))?;
        let versions = [&rustls::version::TLS13];
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)
            .map_err(|wrong| unusable(&wrong))?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain.clone(), key()?)
            .map_err(|wrong| unusable(&wrong))?;
        let client = || {
            ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_protocol_versions(&versions)
                .map_err(|wrong| unusable(&wrong))
        };
        let members = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .with_crls(revoked)
            .build()
            .map_err(|wrong| unusable(&wrong))?;
        let to_member = client()?
            .with_webpki_verifier(Arc::clone(&members))
            .with_client_auth_cert(chain.clone(), key()?)
            .map_err(|wrong| unusable(&wrong))?;
        let to_anyone = client()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyMember { members, provider }))
            .with_client_auth_cert(chain, key()?)
            .map_err(|wrong| unusable(&wrong))?;
        Ok(Shown {
            acceptor: Arc::new(server).into(),
            to_member: Arc::new(to_member).into(),
            to_anyone: Arc::new(to_anyone).into(),
        })
    }
}

impl Certified {
    /// Whether the certificate shown is this member's.
    pub(super) fn names(&self, cluster: &str, id: NodeId) -> Result<(), String> {
        let shown = self.stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        named(shown.ok_or("it has shown no certificate")?, cluster, id)
    }
}

fn named(certificate: &CertificateDer<'_>, cluster: &str, id: NodeId) -> Result<(), String> {
    let name = server_name(cluster, id)?;
    let parsed = ParsedCertificate::try_from(certificate).map_err(|wrong| format!("the certificate cannot be read: {wrong}"))?;
    verify_server_name(&parsed, &name)
        .map_err(|_| format!("the certificate is not for {}: it must have this DNS name", certified_name(cluster, id)))
}

/// What went wrong in a handshake, for people.
fn fault(wrong: std::io::Error, expected: &str) -> Fault {
    let Some(cause) = wrong.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else { return wrong.into() };
    use rustls::Error::{InvalidCertificate, InvalidMessage, NoCertificatesPresented};
    Fault::Insecure(if is_about_the_name(cause) {
        format!("the certificate is not for {expected}")
    } else if matches!(cause, InvalidCertificate(CertificateError::UnknownIssuer)) {
        "its certificate is of another authority".into()
    } else if matches!(cause, InvalidCertificate(CertificateError::Revoked)) {
        "its certificate is revoked".into()
    } else if matches!(cause, InvalidCertificate(CertificateError::UnknownRevocationStatus)) {
        "whether its certificate is revoked is not known: give the list of each authority between it and the group's".into()
    } else if matches!(cause, NoCertificatesPresented) {
        "it has shown no certificate".into()
    } else if matches!(cause, InvalidMessage(_)) {
        "it does not speak TLS: give all members certificates".into()
    } else {
        format!("TLS: {cause}")
    })
}

fn is_about_the_name(cause: &rustls::Error) -> bool {
    use CertificateError::{NotValidForName, NotValidForNameContext};
    matches!(cause, rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }))
}

/// Believes any certificate of the authority, whatever its name: for guests, who ask whom they can reach.
#[derive(Debug)]
struct AnyMember {
    members: Arc<WebPkiServerVerifier>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyMember {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.members.verify_server_cert(certificate, between, name, stapled, now) {
            // The name is checked last: all else is in order.
            Err(wrong) if is_about_the_name(&wrong) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
