//! `incumbent peer`: a node of a group that elects one of its members, with no service at all; and the sidecar's answers about it over HTTP.
//!
//! It is the sidecar on an engine of its own making: the options become the URL that `--on peers://...` would take, so that both are one thing.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::candidacy::CandidacyArguments;
use crate::console::Console;
use crate::elections::log::{self, Talk};
use crate::elections::span;
use crate::elections::target::Url;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::sidecar::{self, SidecarArguments};

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent peer --id 1 --listen 127.0.0.1:7001 --peers 2@127.0.0.1:7002,3@127.0.0.1:7003
  incumbent peer --id 2 --listen 10.0.0.2:7373 --peers 1@10.0.0.1:7373,3@10.0.0.3:7373 \\
    --key-file /etc/incumbent/group.key --http 127.0.0.1:8002
  # Elects in every part of a split network: says so first
  incumbent peer --protocol bully --guard off ...
  incumbent who leader --on 'peers://10.0.0.1:7373,10.0.0.2:7373/incumbent?key-file=group.key'
  # A key for the group
  head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n' > group.key

Without a key or certificates every address must be one of this machine's own (127.0.0.1).";

/// Where HTTP is answered unless told otherwise.
const HTTP_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8127);

#[derive(clap::Args, Debug)]
pub(crate) struct PeerArguments {
    #[command(flatten)]
    candidacy: CandidacyArguments,
    /// The number of this node; no other node of the group ever has the same
    #[arg(long, help_heading = "Group", value_name = "N")]
    id: u32,
    /// Where this node listens for the others
    #[arg(long, help_heading = "Group", value_name = "HOST:PORT")]
    listen: String,
    /// The other nodes
    #[arg(long, help_heading = "Group", value_name = "N@HOST:PORT", value_delimiter = ',')]
    peers: Vec<Member>,
    /// The name of the group; nodes of others are refused
    #[arg(long, help_heading = "Group", value_name = "NAME", default_value = "incumbent")]
    group: String,
    /// How they elect: raft, bully, ring or chang-roberts
    #[arg(long, help_heading = "Group", value_name = "NAME", default_value = "raft")]
    protocol: String,
    /// How many nodes a leader needs behind it: majority, a number of them, or off, with which a network that splits has several leaders
    #[arg(long, help_heading = "Group", value_name = "HOW", default_value = "majority")]
    guard: String,
    /// How long a leader may be silent; also the length of its lease
    #[arg(long, help_heading = "Group", value_name = "SPAN", value_parser = span::parse, default_value = "1s")]
    patience: Duration,
    /// How long an answer between two nodes may take; else a tenth of the patience, at most 20ms
    #[arg(long, help_heading = "Group", value_name = "SPAN", value_parser = span::parse)]
    reply: Option<Duration>,
    /// Where this node keeps its term and votes; else a folder of the group and the id in /var/lib/incumbent or the XDG state folder
    #[arg(long, help_heading = "Group", value_name = "DIR")]
    data: Option<PathBuf>,
    /// A secret that all nodes share: 64 hexadecimal digits in a file
    #[arg(long, help_heading = "Group", value_name = "FILE", conflicts_with_all = ["ca", "cert", "key"])]
    key_file: Option<PathBuf>,
    /// Who signs the certificates of the nodes
    #[arg(long, help_heading = "Group", value_name = "FILE", requires_all = ["cert", "key"])]
    ca: Option<PathBuf>,
    /// The certificate of this node
    #[arg(long, help_heading = "Group", value_name = "FILE", requires_all = ["ca", "key"])]
    cert: Option<PathBuf>,
    /// Its key
    #[arg(long, help_heading = "Group", value_name = "FILE", requires_all = ["ca", "cert"])]
    key: Option<PathBuf>,
    /// What proves a leader's process dead: refused (its machine ends and refuses connections) or lease; else refused if all addresses are this machine's
    #[arg(long, help_heading = "Group", value_name = "HOW")]
    death: Option<String>,
    /// Another process acts on the word of this one, and may go on when this one dies: its lease is always waited out
    #[arg(long, help_heading = "Group")]
    work_elsewhere: bool,
    /// This node is new to a group that exists; it was or will be added with `incumbent members --add`
    #[arg(long, help_heading = "Group")]
    join: bool,
    /// Record what this node does there, a line of JSON each
    #[arg(long, help_heading = "Group", value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Where to answer HTTP; port 0 is any that is free, and the first line printed says which
    #[arg(long, help_heading = "HTTP", value_name = "HOST:PORT", default_value_t = HTTP_DEFAULT)]
    http: SocketAddr,
    /// Answer HTTP on other addresses than those of this machine, though without TLS and users anybody there can make it resign
    #[arg(long, help_heading = "HTTP")]
    unprotected: bool,
    /// Keep a file there while leading, with the token and the deadline; no other process may use the same
    #[arg(long, help_heading = "Program", value_name = "PATH")]
    file: Option<PathBuf>,
}

/// Another node.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) id: u32,
    pub(crate) address: String,
}

impl FromStr for Member {
    type Err = String;

    fn from_str(text: &str) -> Result<Member, String> {
        let wrong = || format!("{text:?} is no node: write its number and where it listens, as 2@HOST:PORT");
        let (id, address) = text.split_once('@').ok_or_else(wrong)?;
        let id = id.trim().parse().map_err(|_| wrong())?;
        if address.is_empty() || address.contains(['/', '?', '@', ',']) {
            return Err(wrong());
        }
        Ok(Member { id, address: address.to_owned() })
    }
}

/// Takes part in the group, and answers, until told to stop.
pub(crate) fn run(wanted: PeerArguments, console: &mut Console<'_>) -> Result<Exit, Failure> {
    if wanted.candidacy.target.on.is_some() {
        return Err(Failure::Input {
            what: "peer has an engine of its own, and --on names another".to_owned(),
            hint: "leave --on out, or use `incumbent sidecar --on URL`",
        });
    }
    // Who watches over a node wants to know of every change and why.
    if !wanted.candidacy.quiet && !wanted.candidacy.target.verbose {
        log::begin(Talk::Changes)?;
    }
    let url = url(&wanted);
    let mut candidacy = wanted.candidacy;
    candidacy.target.on = Some(Url::from(url));
    // Several nodes may be on one host, and the number is what people know them by.
    candidacy.target.identity.get_or_insert_with(|| format!("node-{}", wanted.id));
    sidecar::run(
        &SidecarArguments {
            candidacy,
            listen: wanted.http,
            unprotected: wanted.unprotected,
            drain: Duration::ZERO,
            no_drain: true,
            file: wanted.file,
        },
        console,
    )
}

/// What stands in a URL as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'/').remove(b':');

fn url(wanted: &PeerArguments) -> String {
    let own = Member { id: wanted.id, address: wanted.listen.clone() };
    let members: Vec<&Member> = std::iter::once(&own).chain(&wanted.peers).collect();
    let addresses: Vec<&str> = members.iter().map(|it| it.address.as_str()).collect();
    let ids: Vec<String> = members.iter().map(|it| it.id.to_string()).collect();
    let path = |it: &Option<PathBuf>| it.as_ref().map(|it| it.display().to_string());
    let span = |it: Duration| format!("{}us", it.as_micros());
    let options = [
        ("me", Some(wanted.id.to_string())),
        ("ids", Some(ids.join(","))),
        ("protocol", Some(wanted.protocol.clone())),
        ("guard", Some(wanted.guard.clone())),
        ("patience", Some(span(wanted.patience))),
        ("reply", wanted.reply.map(span)),
        ("data", path(&wanted.data)),
        ("key-file", path(&wanted.key_file)),
        ("ca", path(&wanted.ca)),
        ("cert", path(&wanted.cert)),
        ("key", path(&wanted.key)),
        ("death", wanted.death.clone()),
        ("join", wanted.join.then(|| "on".to_owned())),
        ("trace", path(&wanted.trace)),
        ("work", Some(if wanted.work_elsewhere { "elsewhere" } else { "here" }.to_owned())),
    ];
    let options: Vec<String> =
        options.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", utf8_percent_encode(&value?, PLAIN)))).collect();
    format!("peers://{}/{}?{}", addresses.join(","), utf8_percent_encode(&wanted.group, PLAIN), options.join("&"))
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;
    use incumbent::place::Place;

    use super::*;

    fn peer(line: &str) -> Result<PeerArguments, clap::Error> {
        let matches = crate::arguments::command().try_get_matches_from(line.split_whitespace())?;
        let crate::arguments::Command::Peer(wanted) = crate::arguments::Command::from_arg_matches(&matches)? else {
            panic!("{line} is no peer")
        };
        Ok(*wanted)
    }

    #[test]
    fn the_options_become_a_url_that_the_engine_reads() {
        let wanted =
            peer("incumbent peer --id 2 --listen 10.0.0.2:7373 --peers 1@10.0.0.1:7373,3@[::1]:7 --data /a/b&c").unwrap();
        assert_eq!(wanted.candidacy.election, "leader", "one name will do where there is one election");
        let place = Place::parse(&url(&wanted)).unwrap();
        assert_eq!(place.hosts_or_local(1), ["10.0.0.2:7373", "10.0.0.1:7373", "[::1]:7"]);
        assert_eq!((place.option("ids"), place.option("me")), (Some("2,1,3"), Some("2")));
        assert_eq!((place.option("data"), place.option("patience")), (Some("/a/b&c"), Some("1000000us")));
    }

    #[test]
    fn a_node_without_a_number_is_refused_with_an_example() {
        let why = peer("incumbent peer --id 1 --listen h:1 --peers 10.0.0.2:7373").unwrap_err().to_string();
        assert!(why.contains("2@HOST:PORT"), "{why}");
    }
}
