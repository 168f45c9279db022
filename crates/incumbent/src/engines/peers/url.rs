//! What a URL says of a node or of an operator, and what is wrong with it.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use incumbent_peer::node::{Evidence, Plan};
use incumbent_peer::switchboard::{GroupKey, Peer, Security, TlsFiles};
use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::NodeId;
use incumbent_protocol::settings::{Guard, Pace};

use crate::engine::Error;
use crate::engines::file::usual_directory;
use crate::place::{Host, Place, span};

/// Where nodes listen unless told otherwise.
pub(super) const PORT_USUAL: u16 = 7373;

/// How long a leader may be silent: a second bears a busy machine and a bad network, and is short beside what people notice.
pub(super) const PATIENCE_USUAL: Duration = Duration::from_secs(1);

const OPTIONS: &[&str] =
    &["me", "ids", "listen", "protocol", "guard", "patience", "reply", "data", "key-file", "death", "work", "join", "trace"];

/// What a URL asks for.
pub(super) enum Wanted {
    /// To be a member of the group.
    Member(Box<Plan>),
    /// To ask its members something.
    Guest { addresses: Vec<String>, cluster: String, security: Security },
}

pub(super) fn read(place: &Place) -> Result<Wanted, Error> {
    let bad = |what: String| Error::misconfigured(what);
    let (addresses, cluster, security) = guest(place)?;
    let Some(me) = place.option("me") else {
        // Those who contend say it of themselves, so nobody need have written it: what is missing is the number.
        if place.option("work").is_some() {
            return Err(bad("to contend, a process must be a member: add me=N, its place among the hosts".to_owned()));
        }
        if let Some(odd) = OPTIONS.iter().find(|it| **it != "key-file" && place.option(it).is_some()) {
            return Err(bad(format!(
                "{odd}= is for members: add me=N, the place of this process among the hosts, or leave it out"
            )));
        }
        return Ok(Wanted::Guest { addresses, cluster, security });
    };
    let ids = ids(place, addresses.len())?;
    let me: NodeId = NodeId(number("me", me)?);
    let Some(at) = ids.iter().position(|it| *it == me) else {
        let known: Vec<String> = ids.iter().map(ToString::to_string).collect();
        return Err(bad(format!("me={me} is none of the members {}: say which of the hosts this process is", known.join(", "))));
    };
    let listen = place.option("listen").map_or_else(|| addresses[at].clone(), str::to_owned);
    let everywhere_loopback = place.hosts().iter().all(is_loopback);
    let peers = ids.iter().zip(&addresses).filter(|(id, _)| **id != me);
    let directory = match place.option("data") {
        Some(directory) => PathBuf::from(directory),
        None => usual_directory()?.join("peers").join(cluster.replace('/', "_")).join(me.to_string()),
    };
    let plan = Plan {
        me,
        listen,
        peers: peers.map(|(id, address)| Peer { id: *id, address: address.clone() }).collect(),
        protocol: match place.option("protocol") {
            Some(text) => Kind::from_str(text).map_err(|why| bad(why.to_string()))?,
            None => Kind::Raft,
        },
        pace: pace(place)?,
        guard: guard(place)?,
        security,
        directory,
        death: match place.option("death") {
            Some("refused") => Evidence::Refusal,
            Some("lease") => Evidence::None,
            Some(other) => return Err(bad(format!("death={other}: say death=refused or death=lease"))),
            // Between two processes of one machine there is nothing that could forge it.
            None if everywhere_loopback => Evidence::Refusal,
            None => Evidence::None,
        },
        mortal: match place.option("work") {
            Some("here") | None => true,
            Some("elsewhere") => false,
            Some(other) => {
                return Err(bad(format!(
                    "work={other}: say work=here if what a leader does ends with this process, else work=elsewhere"
                )));
            }
        },
        joins: match place.option("join") {
            Some("on") => true,
            Some("off") | None => false,
            Some(other) => return Err(bad(format!("join={other}: say join=on for a node that is new to a group that exists"))),
        },
        trace: place.option("trace").map(PathBuf::from),
        cluster,
    };
    Ok(Wanted::Member(Box::new(plan)))
}

/// What is needed to ask a group something, whatever else the URL says.
pub(super) fn guest(place: &Place) -> Result<(Vec<String>, String, Security), Error> {
    if place.scheme() != "peers" {
        return Err(Error::misconfigured(format!("{place} is no group of peers: give --on peers://HOST:PORT,HOST:PORT/GROUP")));
    }
    place.knows_only(OPTIONS)?;
    Ok((addresses(place)?, cluster(place), security(place)?))
}

fn addresses(place: &Place) -> Result<Vec<String>, Error> {
    if place.hosts().is_empty() {
        let what = "peers: names no members: write peers://HOST:PORT,HOST:PORT,HOST:PORT/GROUP?me=1";
        return Err(Error::misconfigured(what));
    }
    Ok(place.hosts_or_local(PORT_USUAL))
}

fn cluster(place: &Place) -> String {
    if place.path().is_empty() { "incumbent".to_owned() } else { place.namespace() }
}

fn number<T: FromStr>(option: &str, text: &str) -> Result<T, Error> {
    text.trim().parse().map_err(|_| Error::misconfigured(format!("{option}={text}: it must be a number")))
}

/// The members' ids: their places among the hosts, from 1, unless given.
fn ids(place: &Place, count: usize) -> Result<Vec<NodeId>, Error> {
    let Some(text) = place.option("ids") else {
        return Ok((1..=u32::try_from(count).unwrap_or(u32::MAX)).map(NodeId).collect());
    };
    let ids = text.split(',').map(|it| number("ids", it).map(NodeId)).collect::<Result<Vec<_>, _>>()?;
    if let Some(twice) = ids.iter().enumerate().find(|(at, id)| ids[..*at].contains(id)) {
        return Err(Error::misconfigured(format!("node {} is named twice: give every node an id of its own", twice.1)));
    }
    if ids.len() == count {
        return Ok(ids);
    }
    Err(Error::misconfigured(format!("ids= gives {} ids to {count} hosts: give each its own", ids.len())))
}

fn pace(place: &Place) -> Result<Pace, Error> {
    let option = |key: &str| {
        let given = place.option(key).map(|it| span(it).map_err(|why| Error::misconfigured(format!("{key}={it}: {why}"))));
        given.transpose()
    };
    let patience = option("patience")?.unwrap_or(PATIENCE_USUAL);
    let mut pace = Pace::of(patience).map_err(|why| Error::misconfigured(format!("patience={patience:?}: {why}")))?;
    if let Some(reply) = option("reply")? {
        pace.reply = reply;
    }
    Ok(pace)
}

fn guard(place: &Place) -> Result<Guard, Error> {
    match place.option("guard") {
        None | Some("majority") => Ok(Guard::Majority),
        Some("off") => Ok(Guard::Off),
        Some(size) => Ok(Guard::Quorum(number("guard", size).map_err(|_| {
            Error::misconfigured(format!(
                "guard={size}: say guard=majority, guard=off, or how many nodes a leader needs behind it"
            ))
        })?)),
    }
}

fn security(place: &Place) -> Result<Security, Error> {
    let tls = place.tls()?;
    match (place.option("key-file"), tls) {
        (Some(_), Some(_)) => Err(Error::misconfigured("key-file= and TLS are two ways to know each other: choose one")),
        (Some(file), None) => {
            let key = GroupKey::read(file.as_ref()).map_err(|why| Error::misconfigured(why.to_string()))?;
            Ok(Security::Key(key))
        }
        (None, Some(files)) => match (files.ca, files.cert, files.key) {
            (Some(authority), Some(certificate), Some(key)) => {
                Ok(Security::Tls(TlsFiles { authority, certificate, key, revoked: None }))
            }
            (_, _, _) => Err(Error::misconfigured("peers know each other by certificates: give ca=FILE, cert=FILE and key=FILE")),
        },
        (None, None) => Ok(Security::Open),
    }
}

fn is_loopback(host: &Host) -> bool {
    host.name == "localhost" || host.name.parse::<std::net::IpAddr>().is_ok_and(|it| it.is_loopback())
}
