//! TLS on the clients' port: what the node shows, whom it believes, and when it may go without.
//!
//! The files are read again when they change, so that a certificate is replaced without a restart; connections that are there stay (C94). A new file that does not fit changes
//! nothing. Who reads the PEM files of peers and engines does the same in a few lines of its own: their errors go to others, and rustls' types stay behind each border.

use std::fmt::Display;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use incumbent_peer::reread::{Reread, Stamp};
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// What is spoken besides our own stream, which needs no such word.
const PROTOCOL: &[u8] = b"http/1.1";

/// Who is let in by the clients' port, and how.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Admission {
    /// TLS; without it, everything can be read on the way.
    pub tls: Option<ServerTls>,
    /// The file of tokens; without it, whoever comes may do everything.
    pub tokens: Option<PathBuf>,
}

/// The files for TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerTls {
    /// Our certificate, and those between it and the authority (PEM).
    pub certificate: PathBuf,
    /// Its key (PEM).
    pub key: PathBuf,
    /// The authority of the clients' certificates (PEM). If there is one, each client must show a certificate of it; then it needs no token where the file of tokens has its name.
    pub authority: Option<PathBuf>,
}

impl Admission {
    /// Whether clients may be served at this address: on loopback in any way, anywhere else with TLS and tokens alone.
    ///
    /// # Errors
    /// What to do.
    pub fn check(&self, address: IpAddr) -> Result<(), String> {
        if address.to_canonical().is_loopback() {
            return Ok(());
        }
        let missing = match (&self.tls, &self.tokens) {
            (Some(_), Some(_)) => return Ok(()),
            (None, None) => "TLS and tokens: name a certificate, its key and a file of tokens",
            (None, Some(_)) => "TLS: name a certificate and its key",
            (Some(_), None) => "tokens: name a file of tokens",
        };
        Err(format!(
            "clients at {address} can be anybody on the network, and there is no {missing}; or listen on 127.0.0.1 alone"
        ))
    }
}

/// What the node shows, and whom it believes.
pub(super) struct Credentials {
    files: ServerTls,
    kept: Mutex<Kept>,
}

struct Kept {
    acceptor: TlsAcceptor,
    /// As the files were when they were last looked at, good or bad.
    stamps: Stamps,
}

type Stamps = [Option<Stamp>; 3];

impl Credentials {
    pub(super) fn read(files: &ServerTls) -> Result<Credentials, String> {
        let stamps = files.stamps();
        let acceptor = files.read()?;
        Ok(Credentials { files: files.clone(), kept: Mutex::new(Kept { acceptor, stamps }) })
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.kept().acceptor.clone()
    }

    /// Reads the files again if one of them is not as it was. Connections that are there stay.
    pub(super) fn reread_if_changed(&self) -> Reread {
        // Before they are read: what is written meanwhile is seen the next time.
        let stamps = self.files.stamps();
        if stamps == self.kept().stamps {
            return Reread::Unchanged;
        }
        let read = self.files.read();
        let mut kept = self.kept();
        kept.stamps = stamps;
        match read {
            Ok(acceptor) => {
                kept.acceptor = acceptor;
                Reread::Changed
            }
            Err(why) => Reread::Kept(why),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerTls {
    fn stamps(&self) -> Stamps {
        let ServerTls { certificate, key, authority } = self;
        [Stamp::at(certificate), Stamp::at(key), authority.as_deref().and_then(Stamp::at)]
    }

    fn read(&self) -> Result<TlsAcceptor, String> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|why| unusable(&self.key, why))?;
        // Named here, so that nothing depends on what else the process has chosen.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|why| unusable(&self.certificate, why))?;
        let config = match &self.authority {
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(authority)? {
                    roots.add(certificate).map_err(|why| unusable(authority, why))?;
                }
                let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                config.with_client_cert_verifier(clients.map_err(|why| unusable(authority, why))?)
            }
            None => config.with_no_client_auth(),
        };
        let mut config = config.with_single_cert(chain, key).map_err(|why| {
            format!(
                "the certificate in {} and the key in {} cannot be used: {why}",
                self.certificate.display(),
                self.key.display()
            )
        })?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Arc::new(config).into())
    }
}

/// Whether a certificate, which the handshake has found good, is for this name.
pub(super) fn has_name(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let (Ok(parsed), Ok(name)) = (ParsedCertificate::try_from(certificate), ServerName::try_from(name)) else { return false };
    verify_server_name(&parsed, &name).is_ok()
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let found = found.map_err(|why| unusable(file, why))?;
    if found.is_empty() { Err(unusable(file, "there is no certificate in it")) } else { Ok(found) }
}

fn unusable(file: &Path, why: impl Display) -> String {
    format!("cannot use {} for TLS: {why}", file.display())
}

#[cfg(test)]
mod tests {
    use incumbent_testbed::Certificates;

    use super::*;

    #[test]
    fn beyond_loopback_clients_are_served_with_tls_and_tokens_alone() {
        let files = || ServerTls { certificate: "c".into(), key: "k".into(), authority: None };
        let with = |tls: bool, tokens: bool| Admission { tls: tls.then(files), tokens: tokens.then(|| "t".into()) };
        let all = [with(false, false), with(false, true), with(true, false), with(true, true)];
        for here in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"] {
            for admission in &all {
                assert_eq!(admission.check(here.parse().expect("an address")), Ok(()), "{here}");
            }
        }
        for there in ["0.0.0.0", "::", "10.0.0.1", "192.168.1.1", "8.8.8.8", "fe80::1", "2001:db8::1", "::ffff:10.0.0.1"] {
            let told = all.each_ref().map(|it| it.check(there.parse().expect("an address")));
            let words = ["a certificate, its key and a file of tokens", "a certificate and its key", "a file of tokens"];
            for (told, words) in told.iter().zip(words) {
                let told = told.as_ref().expect_err(there);
                assert!(
                    told.contains(words) && told.contains(there) && told.contains("127.0.0.1") && !told.contains('\n'),
                    "{told}"
                );
            }
            assert_eq!(told[3], Ok(()));
        }
    }

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let certificates = Certificates::new().expect("certificates");
        let pair = certificates.both_ways("node.example").expect("signed");
        let good =
            ServerTls { certificate: pair.certificate.clone(), key: pair.key.clone(), authority: Some(certificates.authority()) };
        assert!(Credentials::read(&good).is_ok());
        let cases = [
            (ServerTls { certificate: "no/such".into(), ..good.clone() }, "no/such"),
            (ServerTls { certificate: pair.key.clone(), ..good.clone() }, "no certificate"),
            (ServerTls { key: pair.certificate.clone(), ..good.clone() }, "cannot use"),
            (ServerTls { key: certificates.client().key, ..good.clone() }, "cannot be used"),
            (ServerTls { authority: Some("no/such".into()), ..good.clone() }, "no/such"),
            (ServerTls { authority: Some(pair.key), ..good }, "no certificate"),
        ];
        for (files, words) in cases {
            let told = Credentials::read(&files).err().expect("refused");
            assert!(told.contains(words), "{told}");
        }
    }

    #[test]
    fn a_new_certificate_is_shown_and_a_bad_one_is_told_once() {
        let certificates = Certificates::new().expect("certificates");
        let folder = tempfile::tempdir().expect("a folder");
        let files = ServerTls { certificate: folder.path().join("c"), key: folder.path().join("k"), authority: None };
        let place = |name: &str| {
            let pair = certificates.both_ways(name).expect("signed");
            std::fs::copy(pair.certificate, &files.certificate).expect("copied");
            std::fs::copy(pair.key, &files.key).expect("copied");
        };
        place("one.example");
        let credentials = Credentials::read(&files).expect("good");
        let shown = |credentials: &Credentials| Arc::as_ptr(credentials.acceptor().config());
        let first = shown(&credentials);
        assert_eq!(credentials.reread_if_changed(), Reread::Unchanged);
        std::fs::write(&files.key, "no key").expect("written");
        assert!(matches!(credentials.reread_if_changed(), Reread::Kept(_)));
        assert_eq!(credentials.reread_if_changed(), Reread::Unchanged);
        assert_eq!(shown(&credentials), first);
        place("two.example");
        assert_eq!(credentials.reread_if_changed(), Reread::Changed);
        assert_ne!(shown(&credentials), first);
    }

    #[test]
    fn a_certificate_has_the_names_that_are_in_it() {
        let certificates = Certificates::new().expect("certificates");
        let pair = certificates.both_ways("one.example").expect("signed");
        let shown = super::certificates(&pair.certificate).expect("read");
        assert!(has_name(&shown[0], "one.example"));
        for other in ["two.example", "example", "x.one.example", "", "no name at all", "one.example."] {
            assert!(!has_name(&shown[0], other) || other == "one.example.", "{other}");
        }
        assert!(!has_name(&CertificateDer::from(vec![1, 2, 3]), "one.example"));
    }
}
