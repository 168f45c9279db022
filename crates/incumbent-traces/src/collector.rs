//! Where spans are sent: what the user has said, by option or by the variables that programs with OpenTelemetry have in common, checked before anything is sent.
//!
//! Spans tell who asks for what. So they go in the clear to this machine's own addresses alone; elsewhere the collector must speak TLS.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::header::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use super::context::Share;

/// Where OTLP has traces, below the address of a collector.
const TRACES_PATH: &str = "/v1/traces";

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const DISABLED: &str = "OTEL_SDK_DISABLED";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";

/// What a user wants of traces by options. What is not said may be said by the environment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Wish {
    /// The collector's address, without `/v1/traces`; else `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub endpoint: Option<String>,
    /// A file with those who sign its certificate, if not those whom the machine trusts; else `OTEL_EXPORTER_OTLP_CERTIFICATE`.
    pub authority: Option<PathBuf>,
    /// How many of the traces that begin here are told, from 0 to 1; else `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`; else all. Whoever asks us decides for its own.
    pub share: Option<f64>,
}

/// A collector that may be spoken to.
#[derive(Clone)]
pub struct Collector {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) path: String,
    /// Of `OTEL_EXPORTER_OTLP_HEADERS`: most often a secret.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    pub(crate) share: Share,
}

/// Why there are no traces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotUsable {
    /// One line that says what to do.
    pub what: String,
    /// Whether the user has said it to us. What only stands in the environment may be meant for others.
    pub by_option: bool,
}

impl fmt::Display for NotUsable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for NotUsable {}

impl Wish {
    /// The collector that is wanted, if one is. `variable` reads the environment, where what is empty is not there.
    ///
    /// # Errors
    /// It cannot be spoken to, or must not.
    pub fn collector(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Collector>, NotUsable> {
        let variable = |name: &str| variable(name).filter(|it| !it.trim().is_empty());
        let by_option = self.endpoint.is_some();
        let is_disabled = variable(DISABLED).is_some_and(|it| it.trim().eq_ignore_ascii_case("true"));
        let named = if is_disabled { None } else { variable(ENDPOINT) };
        let Some(endpoint) = self.endpoint.clone().or(named) else { return Ok(None) };
        let authority = self.authority.clone().or_else(|| variable(CERTIFICATE).map(PathBuf::from));
        let collector = Collector::at(endpoint.trim(), authority.as_deref(), variable(HEADERS).as_deref());
        let collector = collector.map_err(|what| {
            let said = if by_option { String::new() } else { format!("{ENDPOINT}: ") };
            NotUsable { what: format!("{said}{what}"), by_option }
        })?;
        Ok(Some(Collector { share: self.share(variable)?, ..collector }))
    }

    fn share(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Share, NotUsable> {
        if let Some(ratio) = self.share {
            let none = || format!("{ratio} is no share of traces: say a number from 0, none, to 1, all");
            return Share::of(ratio).ok_or_else(|| NotUsable { what: none(), by_option: true });
        }
        let Some(sampler) = variable(SAMPLER) else { return Ok(Share::ALL) };
        let ratio = match sampler.trim().strip_prefix("parentbased_").unwrap_or(sampler.trim()) {
            "always_on" => Some(1.0),
            "always_off" => Some(0.0),
            "traceidratio" => variable(SAMPLER_ARGUMENT).map_or(Some(1.0), |it| it.trim().parse().ok()),
            _ => None,
        };
        ratio.and_then(Share::of).ok_or_else(|| NotUsable {
            what: format!(
                "{SAMPLER}={sampler}: write parentbased_traceidratio, with a number from 0 to 1 in {SAMPLER_ARGUMENT}, or always_on or always_off"
            ),
            by_option: false,
        })
    }
}

impl Collector {
    fn at(endpoint: &str, authority: Option<&Path>, headers: Option<&str>) -> Result<Collector, String> {
        let malformed = || format!("{endpoint:?} is no address of a collector: write http://127.0.0.1:4318 or https://HOST:4318");
        let (scheme, rest) = endpoint.split_once("://").ok_or_else(malformed)?;
        let (place, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        if place.contains('@') || endpoint.contains(['?', '#', ' ']) || !endpoint.is_ascii() {
            return Err(format!("{} ({HEADERS} has what else a collector wants to know)", malformed()));
        }
        let is_secure = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err(malformed()),
        };
        let (host, port) = split(place, if is_secure { 443 } else { 80 }).ok_or_else(malformed)?;
        if !is_secure && !is_loopback(&host) {
            return Err(format!(
                "traces to {place} would go over the network in the clear: say https, or run a collector on this machine (http://127.0.0.1:4318) that passes them on"
            ));
        }
        let tls = if is_secure {
            let name = ServerName::try_from(host.clone()).map_err(|_| malformed())?;
            Some((Arc::new(client_config(authority)?), name))
        } else {
            None
        };
        let path = path.trim_end_matches('/');
        let path = if path.ends_with(TRACES_PATH) { path.to_owned() } else { format!("{path}{TRACES_PATH}") };
        Ok(Collector { host, port, path, headers: headers.map_or(Ok(Vec::new()), read_headers)?, tls, share: Share::ALL })
    }

    /// Host and port, as a request names them.
    pub(crate) fn place(&self) -> String {
        if self.host.contains(':') { format!("[{}]:{}", self.host, self.port) } else { format!("{}:{}", self.host, self.port) }
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").field("place", &self.place()).field("path", &self.path).finish_non_exhaustive()
    }
}

fn split(place: &str, usual: u16) -> Option<(String, u16)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, if behind.is_empty() { None } else { Some(behind.strip_prefix(':')?) })
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let port = port.map_or(Some(usual), |it| it.parse().ok())?;
    (!host.is_empty() && port != 0).then(|| (host.to_owned(), port))
}

/// A name that stands for loopback is looked at again when it has led somewhere.
fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
}

/// `NAME=VALUE,NAME=VALUE`, with what has a meaning there written as `%2C`. Values are secrets: none is quoted.
fn read_headers(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let read = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::from_bytes(name.trim().as_bytes()).ok()?, value))
    };
    let read: Option<Vec<_>> = text.split(',').filter(|it| !it.trim().is_empty()).map(read).collect();
    read.ok_or_else(|| format!("{HEADERS} cannot be read: write NAME=VALUE,NAME=VALUE, and a comma in a value as %2C"))
}

fn client_config(authority: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    match authority {
        Some(file) => {
            let unusable =
                |why: &dyn fmt::Display| format!("cannot use {} to check the collector's certificate: {why}", file.display());
            for certificate in CertificateDer::pem_file_iter(file).map_err(|why| unusable(&why))? {
                roots.add(certificate.map_err(|why| unusable(&why))?).map_err(|why| unusable(&why))?;
            }
            if roots.is_empty() {
                return Err(unusable(&"no certificate in it"));
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err("this machine trusts no authorities: name the collector's with --otlp-ca FILE".to_owned());
            }
        }
    }
    // Named here rather than left to the process: an application may have chosen another, or two.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring speaks TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wished(endpoint: &str) -> Result<Option<Collector>, NotUsable> {
        Wish { endpoint: Some(endpoint.to_owned()), ..Wish::default() }.collector(|_| None)
    }

    #[test]
    fn addresses_are_read_as_other_programs_read_them() {
        for (endpoint, place, path) in [
            ("http://127.0.0.1:4318", "127.0.0.1:4318", "/v1/traces"),
            ("http://localhost:4318/", "localhost:4318", "/v1/traces"),
            ("http://[::1]:4318/otlp/", "[::1]:4318", "/otlp/v1/traces"),
            ("http://127.0.0.2/v1/traces", "127.0.0.2:80", "/v1/traces"),
        ] {
            let collector = wished(endpoint).unwrap().unwrap();
            assert_eq!((collector.place().as_str(), collector.path.as_str()), (place, path), "{endpoint}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_to_do() {
        for (endpoint, word) in [
            ("127.0.0.1:4318", "http://127.0.0.1:4318"),
            ("grpc://127.0.0.1:4317", "https://HOST"),
            ("http://", "https://HOST"),
            ("http://127.0.0.1:0", "https://HOST"),
            ("http://127.0.0.1:x", "https://HOST"),
            ("http://[::1", "https://HOST"),
            ("http://me:secret@127.0.0.1:4318", "OTEL_EXPORTER_OTLP_HEADERS"),
            ("http://127.0.0.1:4318?a=b", "OTEL_EXPORTER_OTLP_HEADERS"),
            ("http://10.0.0.1:4318", "run a collector on this machine"),
            ("http://collector.example.org:4318", "say https"),
            ("http://127.0.0.1.example.org:4318", "say https"),
        ] {
            let refused = wished(endpoint).unwrap_err();
            assert!(refused.by_option && refused.what.contains(word) && !refused.what.contains('\n'), "{endpoint}: {refused}");
        }
    }

    #[test]
    fn the_environment_is_asked_where_nothing_is_said_and_its_mistakes_are_told_apart() {
        let variable = |name: &str| match name {
            ENDPOINT => Some("http://collector:4317".to_owned()),
            _ => None,
        };
        let refused = Wish::default().collector(variable).unwrap_err();
        assert!(!refused.by_option && refused.what.starts_with(ENDPOINT), "{refused}");
        let option = Wish { endpoint: Some("http://127.0.0.1:4318".to_owned()), ..Wish::default() };
        assert_eq!(option.collector(variable).unwrap().unwrap().port, 4318);
        assert!(Wish::default().collector(|_| Some(String::new())).unwrap().is_none());
        let disabled = |name: &str| (name == DISABLED).then(|| "true".to_owned()).or_else(|| variable(name));
        assert!(Wish::default().collector(disabled).unwrap().is_none());
    }

    #[test]
    fn a_share_is_said_by_option_or_as_other_programs_are_told() {
        let share = |share, sampler: &'static str, argument: &'static str| {
            let said = move |name: &str| match name {
                SAMPLER => Some(sampler.to_owned()),
                SAMPLER_ARGUMENT => Some(argument.to_owned()),
                _ => None,
            };
            let wish = Wish { endpoint: Some("http://127.0.0.1:4318".to_owned()), share, ..Wish::default() };
            wish.collector(said).map(|it| it.expect("one is named").share)
        };
        assert_eq!(share(None, "", "").unwrap(), Share::ALL);
        assert_eq!(share(None, "parentbased_traceidratio", "0.25").unwrap(), Share::of(0.25).unwrap());
        assert_eq!(share(None, "always_off", "").unwrap(), Share::of(0.0).unwrap());
        assert_eq!(share(Some(0.5), "always_off", "").unwrap(), Share::of(0.5).unwrap(), "the option counts");
        let (bad, unknown) = (share(Some(2.0), "", "").unwrap_err(), share(None, "jaeger_remote", "").unwrap_err());
        assert!(bad.by_option && bad.what.contains("from 0"), "{bad}");
        assert!(!unknown.by_option && unknown.what.contains(SAMPLER), "{unknown}");
        assert!(share(None, "traceidratio", "often").is_err());
    }

    #[test]
    fn headers_are_read_and_never_shown() {
        let headers = read_headers("api-key=a%2Cb, x-scope = 7").unwrap();
        assert_eq!((headers[0].0.as_str(), headers[0].1.as_bytes()), ("api-key", &b"a,b"[..]));
        assert_eq!((headers[1].0.as_str(), headers[1].1.as_bytes()), ("x-scope", &b"7"[..]));
        let refused = read_headers("api-key secret").unwrap_err();
        assert!(!refused.contains("secret"), "{refused}");
        let collector = Collector { headers, ..wished("http://127.0.0.1:4318").unwrap().unwrap() };
        assert!(!format!("{collector:?}").contains("a,b"));
    }
}
