//! Certificates for servers under test, made anew for each run, and wrong ones to be refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};

use crate::folder::Folder;

/// An authority and what it has signed. The files are there until the last server that uses them is gone.
pub struct Certificates {
    files: Arc<Folder>,
    authority: Authority,
    stranger: Authority,
}

/// A certificate and its key, in files of PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pair {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key (PKCS #8).
    pub key: PathBuf,
}

/// How a server under test shall use TLS.
#[derive(Clone)]
pub struct Tls {
    pub(crate) authority: PathBuf,
    pub(crate) server: Pair,
    /// What [`requiring_clients`](Tls::requiring_clients) has set.
    pub(crate) clients: Clients,
    /// What the testbed itself shows to such a server.
    pub(crate) client: Pair,
    /// Keeps the files.
    _files: Arc<Folder>,
}

/// Whether clients must show a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clients {
    NeedNone,
    MustShow,
}

/// The name in the client's certificate, which some servers take for a user's.
pub const CERTIFIED_CLIENT: &str = "incumbent";

/// The only name in the certificate of [`Certificates::wrong_name`].
pub const WRONG_NAME: &str = "elsewhere.example";

impl Certificates {
    /// Makes them all.
    ///
    /// # Errors
    /// If their files cannot be written.
    pub fn new() -> Result<Certificates, String> {
        let files = Folder::new("certificates")?;
        let authority = Authority::new("incumbent's testbed", &files, "authority")?;
        let stranger = Authority::new("somebody else", &files, "stranger")?;
        let here = ["localhost", "127.0.0.1"];
        authority.sign(&files, "server", "localhost", &here, &[ExtendedKeyUsagePurpose::ServerAuth])?;
        authority.sign(&files, "wrong-name", WRONG_NAME, &[WRONG_NAME], &[ExtendedKeyUsagePurpose::ServerAuth])?;
        authority.sign(&files, "client", CERTIFIED_CLIENT, &[], &[ExtendedKeyUsagePurpose::ClientAuth])?;
        Ok(Certificates { files: Arc::new(files), authority, stranger })
    }

    /// The authority's own certificate, which clients are to trust.
    pub fn authority(&self) -> PathBuf {
        self.files.join("authority.pem")
    }

    /// Another authority's certificate: who trusts only this one must refuse our servers.
    pub fn stranger(&self) -> PathBuf {
        self.files.join("stranger.pem")
    }

    /// A client's certificate.
    pub fn client(&self) -> Pair {
        pair(self.files.path(), "client")
    }

    /// A certificate for this name, good for servers and for clients: as nodes that dial each other need it.
    ///
    /// # Errors
    /// If its files cannot be written.
    pub fn both_ways(&self, name: &str) -> Result<Pair, String> {
        self.sign_both_ways(&self.authority, name, name)
    }

    /// The same, signed by the [`stranger`](Certificates::stranger): to be refused.
    ///
    /// # Errors
    /// If its files cannot be written.
    pub fn both_ways_by_stranger(&self, name: &str) -> Result<Pair, String> {
        self.sign_both_ways(&self.stranger, &format!("stranger-{name}"), name)
    }

    /// The authority's list of revoked certificates, with those of [`both_ways`](Certificates::both_ways) for these names.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn revoked(&self, names: &[&str]) -> Result<PathBuf, String> {
        let revoked = |name: &&str| RevokedCertParams {
            serial_number: serial(name),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: names.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.authority.0).map_err(wrong)?;
        self.files.write("revoked.pem", &list.pem().map_err(wrong)?)?;
        Ok(self.files.join("revoked.pem"))
    }

    fn sign_both_ways(&self, authority: &Authority, file: &str, name: &str) -> Result<Pair, String> {
        let purposes = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        authority.sign(&self.files, file, name, &[name], &purposes)?;
        Ok(pair(self.files.path(), file))
    }

    /// A server that shows a certificate for `localhost` and `127.0.0.1`.
    pub fn server(&self) -> Tls {
        self.shown_by("server")
    }

    /// A server that shows a certificate for [`WRONG_NAME`], signed by the right authority: clients must refuse it.
    pub fn wrong_name(&self) -> Tls {
        self.shown_by("wrong-name")
    }

    fn shown_by(&self, name: &str) -> Tls {
        Tls {
            authority: self.authority(),
            server: pair(self.files.path(), name),
            clients: Clients::NeedNone,
            client: self.client(),
            _files: Arc::clone(&self.files),
        }
    }
}

impl Tls {
    /// The server takes only clients that show a certificate of the same authority.
    pub fn requiring_clients(mut self) -> Tls {
        self.clients = Clients::MustShow;
        self
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("server", &self.server).field("clients", &self.clients).finish_non_exhaustive()
    }
}

fn pair(folder: &Path, name: &str) -> Pair {
    Pair { certificate: folder.join(format!("{name}.pem")), key: folder.join(format!("{name}.key")) }
}

/// By the name of its file, so that it can be revoked.
fn serial(file: &str) -> SerialNumber {
    SerialNumber::from(file.bytes().fold(1, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) >> 1)
}

struct Authority(Issuer<'static, KeyPair>);

fn wrong(wrong: rcgen::Error) -> String {
    format!("cannot make a certificate: {wrong}")
}

impl Authority {
    fn new(name: &str, files: &Folder, file: &str) -> Result<Authority, String> {
        let mut wanted = CertificateParams::default();
        wanted.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        wanted.distinguished_name.push(DnType::CommonName, name);
        wanted.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().map_err(wrong)?;
        files.write(&format!("{file}.pem"), &wanted.self_signed(&key).map_err(wrong)?.pem())?;
        Ok(Authority(Issuer::new(wanted, key)))
    }

    /// Writes a certificate of this authority and its key.
    fn sign(
        &self,
        files: &Folder,
        file: &str,
        subject: &str,
        names: &[&str],
        purposes: &[ExtendedKeyUsagePurpose],
    ) -> Result<(), String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut wanted = CertificateParams::new(names).map_err(wrong)?;
        wanted.distinguished_name.push(DnType::CommonName, subject);
        wanted.use_authority_key_identifier_extension = true;
        wanted.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        wanted.extended_key_usages = purposes.to_vec();
        wanted.serial_number = Some(serial(file));
        let key = KeyPair::generate().map_err(wrong)?;
        let certificate = wanted.signed_by(&key, &self.0).map_err(wrong)?;
        files.write(&format!("{file}.pem"), &certificate.pem())?;
        files.write(&format!("{file}.key"), &key.serialize_pem())?;
        Ok(())
    }
}
