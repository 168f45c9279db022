//! TLS for engines: what to trust, what to show, and what to say when it fails.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, ClientConfig, ConfigBuilder, RootCertStore};

use crate::engine::Error;
use crate::place::TlsFiles;

/// What is wrong with the other side's TLS, or ours in its eyes; `None` if it is not about that.
pub(super) fn tls_complaint(address: &str, why: &(dyn std::error::Error + 'static)) -> Option<Error> {
    type Shared = Arc<dyn std::error::Error + Send + Sync>;
    let mut cause = Some(why);
    while let Some(error) = cause {
        if let Some(tls) = error.downcast_ref() {
            return Some(Error::misconfigured(complaint(address, tls)));
        }
        // Neither an error of input and output nor a shared one names what it wraps as its source.
        let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref).map(|it| it as &dyn std::error::Error);
        let shared = error.downcast_ref::<Shared>().map(|it| &**it as &dyn std::error::Error);
        cause = inside.or(shared).or_else(|| error.source());
    }
    None
}

#[allow(clippy::wildcard_enum_match_arm, reason = "rustls has many errors; these are those for which there is advice")]
fn complaint(address: &str, error: &rustls::Error) -> String {
    use CertificateError as C;
    match error {
        rustls::Error::InvalidCertificate(C::NotValidForName | C::NotValidForNameContext { .. }) => {
            format!("{address} shows a certificate for somebody else ({error}): correct the host, or say server-name=NAME")
        }
        rustls::Error::InvalidCertificate(why) => {
            format!("the certificate of {address} is not trusted ({why}): name its authority with ca=FILE")
        }
        rustls::Error::InvalidMessage(_) => format!("{address} does not speak TLS: leave out tls=on and the files for it"),
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateUnknown
            | AlertDescription::HandshakeFailure,
        ) => format!("{address} does not accept our certificate ({error}): say cert=FILE and key=FILE"),
        other => format!("no TLS with {address}: {other}"),
    }
}

/// One that trusts nobody, for a client that wants to be told how to speak TLS although it will not.
#[cfg(any(feature = "consul", feature = "nats"))]
pub(super) fn unused_config() -> ClientConfig {
    config_trusting(RootCertStore::empty()).with_no_client_auth()
}

/// What to trust and what to show.
#[cfg(any(feature = "consul", feature = "postgres", feature = "redis", feature = "service", feature = "zookeeper"))]
pub(super) fn client_config(files: &TlsFiles) -> Result<ClientConfig, Error> {
    showing(files, config_trusting(roots(files)?))
}

/// The same for a client that can only expect a certificate for the host it speaks to: `server-name=` is looked after here.
#[cfg(feature = "nats")]
pub(super) fn client_config_for_the_name(files: &TlsFiles) -> Result<ClientConfig, Error> {
    let Some(name) = &files.server_name else { return showing(files, config_trusting(roots(files)?)) };
    showing(files, named::config_trusting(roots(files)?, name)?)
}

fn roots(files: &TlsFiles) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    match &files.ca {
        Some(file) => {
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|why| unusable(file, why))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(Error::misconfigured("this machine trusts no authorities: name one with ca=FILE"));
            }
        }
    }
    Ok(roots)
}

fn showing(files: &TlsFiles, config: ConfigBuilder<ClientConfig, WantsClientCert>) -> Result<ClientConfig, Error> {
    match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => {
            let secret = PrivateKeyDer::from_pem_file(key).map_err(|why| unusable(key, why))?;
            config.with_client_auth_cert(certificates(cert)?, secret).map_err(|why| unusable(cert, why))
        }
        (_, _) => Ok(config.with_no_client_auth()),
    }
}

fn config_trusting(roots: RootCertStore) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    // Named here rather than left to the process: an application may have chosen another, or two.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring speaks TLS 1.2 and 1.3")
        .with_root_certificates(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found = CertificateDer::pem_file_iter(file).map_err(|why| unusable(file, why))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|why| unusable(file, why))?;
    if found.is_empty() { Err(unusable(file, "no certificate in it")) } else { Ok(found) }
}

fn unusable(file: &Path, why: impl Display) -> Error {
    Error::misconfigured(format!("cannot use {} for TLS: {why}", file.display()))
}

/// Certificates that must be for a name of our choice, whatever the client asks for.
#[cfg(feature = "nats")]
mod named {
    use std::sync::Arc;

    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::client::{WantsClientCert, WebPkiServerVerifier};
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme};

    use crate::engine::Error;

    pub(super) fn config_trusting(
        roots: RootCertStore,
        name: &str,
    ) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
        let expected = ServerName::try_from(name.to_owned())
            .map_err(|_| Error::misconfigured(format!("{name:?} can be no name in a certificate: say server-name=NAME")))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|why| Error::misconfigured(format!("cannot check certificates ({why}): name an authority with ca=FILE")))?;
        Ok(ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring speaks TLS 1.2 and 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Named { usual, expected })))
    }

    /// Checks all that is usually checked, for the expected name.
    #[derive(Debug)]
    struct Named {
        usual: Arc<WebPkiServerVerifier>,
        expected: ServerName<'static>,
    }

    impl ServerCertVerifier for Named {
        fn verify_server_cert(
            &self,
            certificate: &CertificateDer<'_>,
            between: &[CertificateDer<'_>],
            _asked_for: &ServerName<'_>,
            ocsp: &[u8],
            now: UnixTime,
        ) -> Result<ServerCertVerified, rustls::Error> {
            self.usual.verify_server_cert(certificate, between, &self.expected, ocsp, now)
        }

        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            self.usual.verify_tls12_signature(message, certificate, signature)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            self.usual.verify_tls13_signature(message, certificate, signature)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.usual.supported_verify_schemes()
        }
    }
}
