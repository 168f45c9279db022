//! Where an election is held: an engine's URL, taken apart. Says what is wrong with it in one line, and never prints a secret.
//!
//! ```text
//!   SCHEME://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...]/NAMESPACE/.../ELECTION[?OPTION=VALUE&...]
//! ```
//!
//! Several hosts are several servers of one engine. Options that every engine on a network knows: `tls=on|off`, `ca=FILE`, `cert=FILE`, `key=FILE`,
//! `server-name=NAME`, `user=NAME`, `password-file=FILE`. The password may also be in `INCUMBENT_PASSWORD`, the user in `INCUMBENT_USER`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::engine::Error;

/// A URL, taken apart.
#[derive(Clone, PartialEq, Eq)]
pub struct Place {
    scheme: String,
    user: Option<String>,
    password: Option<String>,
    hosts: Vec<Host>,
    path: Vec<String>,
    /// Whether `//` stood before the hosts.
    has_authority: bool,
    options: BTreeMap<String, String>,
}

/// One server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// A name or an address; IPv6 without brackets.
    pub name: String,
    /// The port, if the URL gives one.
    pub port: Option<u16>,
}

impl Host {
    /// `name:port`, as sockets want it.
    pub fn with_port(&self, usual: u16) -> String {
        let port = self.port.unwrap_or(usual);
        if self.name.contains(':') { format!("[{}]:{port}", self.name) } else { format!("{}:{port}", self.name) }
    }
}

/// How to speak TLS.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsFiles {
    /// Authorities to trust instead of the system's.
    pub ca: Option<PathBuf>,
    /// Our own certificate.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// The name that the server's certificate must have, if not the host's.
    pub server_name: Option<String>,
}

/// Who we are to the engine.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name.
    pub user: String,
    /// The password; empty if there is none.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:***", self.user)
    }
}

/// Options that every engine on a network knows.
const COMMON_OPTIONS: &[&str] = &["tls", "ca", "cert", "key", "server-name", "user", "password-file"];

impl Place {
    /// Takes a URL apart.
    pub fn parse(url: &str) -> Result<Place, Error> {
        let bad = |why: String| {
            Error::misconfigured(format!(
                "{why}: write it as SCHEME://HOST:PORT/NAMESPACE, for example etcd://127.0.0.1:2379/prod"
            ))
        };
        let (scheme, rest) = url.split_once(':').ok_or_else(|| bad(format!("{} is no URL", without_secrets(url))))?;
        if scheme.is_empty() || !scheme.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '+') {
            return Err(bad(format!("{} is no URL", without_secrets(url))));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut place = Place {
            scheme: scheme.to_owned(),
            user: None,
            password: None,
            hosts: Vec::new(),
            path: Vec::new(),
            has_authority: rest.starts_with("//"),
            options: BTreeMap::new(),
        };
        let path = match rest.strip_prefix("//") {
            Some(rest) => {
                let (authority, path) = rest.split_once('/').map_or((rest, ""), |(authority, path)| (authority, path));
                if is_cut_in_a_password(authority, path, query) {
                    return Err(bad("there is an @ behind the first / or ?, so it cannot be told what is a password here (write %2F for a / in a password, %3F for a ?, and %40 for an @ that is part of a name)".to_owned()));
                }
                place.take_authority(authority).map_err(bad)?;
                path
            }
            None => rest,
        };
        if !path.is_empty() {
            place.path = path.split('/').map(decoded).collect::<Result<_, _>>().map_err(bad)?;
        }
        for option in query.split('&').filter(|it| !it.is_empty()) {
            let (key, value) = option.split_once('=').unwrap_or((option, "on"));
            if place.options.insert(decoded(key).map_err(bad)?, decoded(value).map_err(bad)?).is_some() {
                return Err(bad(format!("the option {key} is given twice")));
            }
        }
        Ok(place)
    }

    fn take_authority(&mut self, authority: &str) -> Result<(), String> {
        let hosts = match authority.rsplit_once('@') {
            Some((who, hosts)) => {
                let (user, password) = who.split_once(':').map_or((who, None), |(user, password)| (user, Some(password)));
                self.user = Some(decoded(user)?).filter(|it| !it.is_empty());
                self.password = password.map(decoded).transpose()?;
                hosts
            }
            None => authority,
        };
        for host in hosts.split(',').filter(|it| !it.is_empty()) {
            self.hosts.push(parse_host(host)?);
        }
        Ok(())
    }

    /// The engine: `etcd`, `file`, ...
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The servers, in order; none if the URL names none.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The servers, or the engine's usual one on this machine.
    pub fn hosts_or_local(&self, usual_port: u16) -> Vec<String> {
        if self.hosts.is_empty() {
            vec![format!("127.0.0.1:{usual_port}")]
        } else {
            self.hosts.iter().map(|it| it.with_port(usual_port)).collect()
        }
    }

    /// The path, decoded, without its first `/`, as segments.
    pub fn path(&self) -> &[String] {
        &self.path
    }

    /// The path as text: `a/b/c`.
    pub fn namespace(&self) -> String {
        self.path.join("/")
    }

    /// The path as one of a file: `file:///a/b` and `file:/a/b` are `/a/b`, `file:a/b` is relative.
    pub fn file_path(&self) -> PathBuf {
        let path = self.namespace();
        if self.has_authority && !path.is_empty() { PathBuf::from(format!("/{path}")) } else { PathBuf::from(path) }
    }

    /// Takes the last segment of the path off: the election's name, if it stands there.
    pub fn split_election(mut self) -> (Place, Option<String>) {
        let last = self.path.pop().filter(|it| !it.is_empty());
        (self, last)
    }

    /// An option of this engine's.
    pub fn option(&self, key: &str) -> Option<&str> {
        self.options.get(key).map(String::as_str)
    }

    /// Complains about options that neither every engine on a network nor this one knows.
    pub fn knows_only(&self, own: &[&str]) -> Result<(), Error> {
        match self.options.keys().find(|it| !COMMON_OPTIONS.contains(&it.as_str()) && !own.contains(&it.as_str())) {
            Some(odd) => {
                let known: Vec<&str> = own.iter().chain(COMMON_OPTIONS).copied().collect();
                Err(Error::misconfigured(format!("{} knows no option {odd:?}; it knows {}", self.scheme, known.join(", "))))
            }
            None => Ok(()),
        }
    }

    /// What to do where a user or a password is not accepted.
    pub const GIVE_PASSWORD: &str =
        "give user and password in the URL, as user= and password-file=FILE, or in INCUMBENT_USER and INCUMBENT_PASSWORD";

    /// Who we are: from the URL, its options, or the environment, in this order.
    pub fn credentials(&self) -> Result<Option<Credentials>, Error> {
        let environment = |key| std::env::var(key).ok().filter(|it| !it.is_empty());
        let user = self.user.clone().or_else(|| self.option("user").map(str::to_owned)).or_else(|| environment("INCUMBENT_USER"));
        let password = match (&self.password, self.option("password-file")) {
            (Some(password), _) => Some(password.clone()),
            (None, Some(file)) => Some(
                std::fs::read_to_string(file)
                    .map_err(|why| Error::misconfigured(format!("cannot read the password from {file}: {why}")))?
                    .trim_end_matches(['\r', '\n'])
                    .to_owned(),
            ),
            (None, None) => environment("INCUMBENT_PASSWORD"),
        };
        Ok(match (user, password) {
            (None, None) => None,
            (user, password) => Some(Credentials { user: user.unwrap_or_default(), password: password.unwrap_or_default() }),
        })
    }

    /// Whether and how to speak TLS: `tls=on`, or any of its files.
    pub fn tls(&self) -> Result<Option<TlsFiles>, Error> {
        let file = |key| self.option(key).map(PathBuf::from);
        let files = TlsFiles {
            ca: file("ca"),
            cert: file("cert"),
            key: file("key"),
            server_name: self.option("server-name").map(str::to_owned),
        };
        if files.cert.is_some() != files.key.is_some() {
            return Err(Error::misconfigured("a certificate and its key belong together: give both cert=FILE and key=FILE"));
        }
        match self.option("tls") {
            Some("on") => Ok(Some(files)),
            Some("off") if files == TlsFiles::default() => Ok(None),
            Some("off") => Err(Error::misconfigured("tls=off, but files for TLS are given: leave one of them out")),
            Some(other) => Err(Error::misconfigured(format!("tls={other}: say tls=on or tls=off"))),
            None => Ok((files != TlsFiles::default()).then_some(files)),
        }
    }
}

/// The URL as it may be printed: without the password.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self
            .hosts
            .iter()
            .map(|it| match it.port {
                Some(port) => it.with_port(port),
                None => it.name.clone(),
            })
            .collect();
        if hosts.is_empty() && self.user.is_none() {
            // As people write it when there is no server: file:/var/lib/jobs.
            return write!(f, "{}:{}", self.scheme, self.namespace());
        }
        write!(f, "{}://", self.scheme)?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        write!(f, "{}", hosts.join(","))?;
        if self.path.is_empty() { Ok(()) } else { write!(f, "/{}", self.namespace()) }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads a span of time as people write it: `800ms`, `3s`, `1m30s`. Numbers with units, one after the other. A number without a unit is refused: nobody knows whether seconds were meant.
pub fn span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no span of time: write it as 800ms, 3s or 1m30s (us, ms, s, m, h, d)");
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let unit_at = rest.find(|it: char| !it.is_ascii_digit() && it != '.').ok_or_else(wrong)?;
        let (number, behind) = rest.split_at(unit_at);
        let end = behind.find(|it: char| it.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        let seconds = match unit.trim() {
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        sum = sum.checked_add(part).ok_or_else(wrong)?;
        rest = behind;
    }
    // Floating point leaves a few nanoseconds that nobody wrote.
    Ok(Duration::from_micros(u64::try_from((sum.as_nanos() + 500) / 1000).map_err(|_| wrong())?))
}

/// Whether the authority may be the beginning of `USER:PASSWORD@HOST` with a `/` or `?` in the password, perhaps behind an `@`: the rest of it would be taken for a host or a namespace, and printed.
fn is_cut_in_a_password(authority: &str, path: &str, query: &str) -> bool {
    let may_have_a_password = authority.contains(':') && !authority.starts_with('[');
    may_have_a_password && (path.contains('@') || query.contains('@'))
}

fn parse_host(text: &str) -> Result<Host, String> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, rest) = rest.split_once(']').ok_or(format!("the address {text} has no closing bracket"))?;
            (name, rest.strip_prefix(':'))
        }
        None => text.rsplit_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
    };
    let port = match port {
        // What stands there may be a password whose host was forgotten, so it is not repeated.
        Some(digits) => Some(digits.parse().map_err(|_| "what follows the host's colon is no port".to_owned())?),
        None => None,
    };
    if name.is_empty() {
        return Err("there is a port and no host".to_owned());
    }
    Ok(Host { name: decoded(name)?, port })
}

fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |it: Option<u8>| it.and_then(|it| char::from(it).to_digit(16));
        match (digit(rest.next()), digit(rest.next())) {
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            (_, _) => return Err("a % in the URL is not followed by two hexadecimal digits (write %25 for a %)".to_owned()),
        }
    }
    String::from_utf8(bytes).map_err(|_| "the URL is not UTF-8 once decoded".to_owned())
}

/// For URLs that cannot even be taken apart.
fn without_secrets(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, rest)) => format!("\"...@{rest}\""),
        None => format!("{url:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let place =
            Place::parse("etcd://me:s%40crt@10.0.0.1:2379,[::1]:2380,db/prod/billing?ca=/etc/ca.pem&ttl=3s").expect("good");
        assert_eq!(place.scheme(), "etcd");
        assert_eq!(place.hosts_or_local(1), ["10.0.0.1:2379", "[::1]:2380", "db:1"]);
        assert_eq!(place.namespace(), "prod/billing");
        let who = place.credentials().expect("nothing to read").expect("given");
        assert_eq!((who.user.as_str(), who.password.as_str()), ("me", "s@crt"));
        assert_eq!(place.tls().expect("good").expect("a file for it").ca, Some("/etc/ca.pem".into()));
        let (place, election) = place.split_election();
        assert_eq!((place.namespace().as_str(), election.as_deref()), ("prod", Some("billing")));
        assert!(place.knows_only(&["ttl"]).is_ok());
        assert!(place.knows_only(&[]).expect_err("no such option").to_string().contains("\"ttl\""));
    }

    #[test]
    fn a_path_may_stand_alone() {
        let place = Place::parse("file:/var/lock/jobs").expect("good");
        assert_eq!(
            (place.hosts().len(), place.path()),
            (0, ["".to_owned(), "var".into(), "lock".into(), "jobs".into()].as_slice())
        );
        assert_eq!(place.file_path(), PathBuf::from("/var/lock/jobs"));
        assert_eq!(Place::parse("file:///var/lock").expect("good").file_path(), PathBuf::from("/var/lock"));
        assert_eq!(Place::parse("file:jobs").expect("good").file_path(), PathBuf::from("jobs"));
        assert_eq!(Place::parse("file:").expect("good").file_path(), PathBuf::new());
        assert_eq!(Place::parse("memory:").expect("good").namespace(), "");
        assert_eq!(Place::parse("redis://").expect("good").hosts_or_local(6379), ["127.0.0.1:6379"]);
    }

    #[test]
    fn a_secret_is_never_printed() {
        let place = Place::parse("redis://me:hunter2@h:1/x?password-file=/hunter2").expect("good");
        let shown = format!("{place} {place:?} {:?}", place.credentials().expect("in the URL"));
        assert!(!shown.contains("hunter2"), "{shown}");
        for bad in [
            "://me:hunter2@h",
            "redis://me:hunter2/x@h/db",
            "redis://me:1/hunter2@h/db",
            "redis://me:1?hunter2@h/db",
            "redis://me:p@hunter2/x@h/db",
            "redis://me:hunter2",
            "redis://:hunter2",
        ] {
            let why = Place::parse(bad).expect_err(bad).to_string();
            assert!(!why.contains("hunter2"), "{why}");
        }
        // An @ in a name is fine where it can be no password's end.
        assert_eq!(Place::parse("etcd://[::1]:1,h/team@prod").expect("good").namespace(), "team@prod");
    }

    #[test]
    fn a_bad_url_is_refused_with_what_to_do() {
        for (bad, word) in [
            ("", "no URL"),
            ("etcd", "no URL"),
            ("Etcd://h", "no URL"),
            ("etcd://h:99999", "port"),
            ("etcd://h:x", "port"),
            ("etcd://[::1", "bracket"),
            ("etcd://:1", "no host"),
            ("etcd://h:1/team@prod", "%40"),
            ("etcd://h/%zz", "%25"),
            ("etcd://h/%ff", "UTF-8"),
            ("etcd://h/?a=1&a=2", "twice"),
        ] {
            let why = Place::parse(bad).expect_err(bad).to_string();
            assert!(why.contains(word) && !why.contains('\n'), "{bad:?}: {why}");
        }
        assert!(Place::parse("etcd://h?tls=maybe").expect("parses").tls().is_err());
        assert!(Place::parse("etcd://h?cert=a").expect("parses").tls().is_err());
        assert!(Place::parse("etcd://h?tls=off&ca=x").expect("parses").tls().is_err());
    }

    #[test]
    fn a_span_is_read_as_people_write_it() {
        for (text, ms) in [("800ms", 800), ("3s", 3000), ("1m30s", 90_000), ("1.5s", 1500), ("2h", 7_200_000), ("1d", 86_400_000)]
        {
            assert_eq!(span(text).unwrap(), Duration::from_millis(ms), "{text}");
        }
        assert_eq!(span("40us").unwrap(), Duration::from_micros(40));
        for bad in ["", "3", "s", "-3s", "3 parsecs", "1.2.3s", "99999999999999999999d", "3s4", "inf s", "NaNs"] {
            assert!(span(bad).unwrap_err().contains("1m30s"), "{bad}");
        }
    }
}
