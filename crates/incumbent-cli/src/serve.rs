//! `incumbent serve`: a node of the replicated election service. With no options, a service of one node on this machine.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use incumbent::engines::file::usual_directory;
use incumbent_protocol::protocol::NodeId;
use incumbent_service::server::{
    Admission, Beginning, Config, End, GroupKey, Node, NotStarted, Peer, Security, ServerTls, TlsFiles,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::candidacy::notify::Notify;
use crate::candidacy::signals::{Heard, Signals};
use crate::console::Console;
use crate::elections::log::{self, Talk};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::otlp::OtlpArguments;
use crate::peer::Member;
use crate::service::cluster::place;

pub(crate) const EXAMPLES: &str = "\
Examples:
  # One node, for this machine alone, and an election on it
  incumbent serve
  incumbent run nightly --on incumbent:// -- ./report.sh
  # One of three nodes, and a fourth that joins them
  incumbent serve --node 1 --peer-listen 10.0.0.1:7273 --peers 2@10.0.0.2:7273,3@10.0.0.3:7273 \\
    --key-file /etc/incumbent/nodes.key
  incumbent serve --node 4 --join --peer-listen 10.0.0.4:7273 --peers 1@10.0.0.1:7273 \\
    --key-file /etc/incumbent/nodes.key
  # For clients on other machines
  incumbent serve --listen 0.0.0.0:7272 --advertise n1.example.org:7272 \\
    --tls-cert node.pem --tls-key node.key --tokens /etc/incumbent/tokens
  # Traces for a collector on this machine
  incumbent serve --otlp http://127.0.0.1:4318
  # A key for the nodes
  head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n' > nodes.key

Of three nodes two must be up and reach each other, of five three. SIGTERM gives the lead away first, and what was asked is answered.";

#[derive(clap::Args, Debug)]
pub(crate) struct ServeArguments {
    /// The number of this node; no other node of the cluster ever has the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    node: u32,
    /// The name of the cluster; nodes and clients of others are refused
    #[arg(long, value_name = "NAME", default_value = "incumbent")]
    cluster: String,
    /// Where clients are served; port 0 is any that is free, and the first line printed says which
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7272")]
    listen: String,
    /// Where clients reach this node, if that is not where it listens: needed with 0.0.0.0
    #[arg(long, value_name = "HOST:PORT", value_parser = place)]
    advertise: Option<String>,
    /// Where the other nodes are listened to
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7273")]
    peer_listen: String,
    /// Where the other nodes reach this one, if that is not where it listens: needed with 0.0.0.0
    #[arg(long, value_name = "HOST:PORT", value_parser = place)]
    peer_advertise: Option<String>,
    /// The other nodes
    #[arg(long, value_name = "N@HOST:PORT", value_delimiter = ',')]
    peers: Vec<Member>,
    /// This node is new to a cluster that exists; it was or will be added with `incumbent cluster add`
    #[arg(long)]
    join: bool,
    /// Where this node keeps its log; else a folder of the cluster and the node in /var/lib/incumbent or the XDG state folder
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// A secret that all nodes share: 64 hexadecimal digits in a file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["peer_ca", "peer_cert", "peer_key", "peer_crl"])]
    key_file: Option<PathBuf>,
    /// Who signs the certificates of the nodes
    #[arg(long, value_name = "FILE", requires_all = ["peer_cert", "peer_key"])]
    peer_ca: Option<PathBuf>,
    /// The certificate of this node, with the name node-N.CLUSTER
    #[arg(long, value_name = "FILE", requires_all = ["peer_ca", "peer_key"])]
    peer_cert: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires_all = ["peer_ca", "peer_cert"])]
    peer_key: Option<PathBuf>,
    /// Which certificates of nodes are revoked: a list of each authority between them and that of --peer-ca
    #[arg(long, value_name = "FILE", requires = "peer_ca")]
    peer_crl: Option<PathBuf>,
    /// The certificate that clients are shown; beyond this machine there must be one
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Who signs the certificates of clients; then each must show one
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Who may do what: names, digests of their tokens, and their rights; beyond this machine there must be such a file
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Say nothing of changes on the standard error, but what is wrong
    #[arg(long, short)]
    quiet: bool,
    /// Say what happens, step by step
    #[arg(long, short, conflicts_with = "quiet")]
    verbose: bool,
    #[command(flatten)]
    otlp: OtlpArguments,
}

/// Serves until told to stop.
pub(crate) fn run(wanted: ServeArguments, console: &mut Console<'_>) -> Result<Exit, Failure> {
    log::begin(match (wanted.quiet, wanted.verbose) {
        (true, _) => Talk::Warnings,
        (false, false) => Talk::Changes,
        (false, true) => Talk::Everything,
    })?;
    let config = config(wanted)?;
    raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|wrong| Failure::Io { what: format!("cannot begin: {wrong}"), hint: "free file descriptors and try again" })?;
    let traces = config.traces.clone();
    let served = runtime.block_on(serve(config, console));
    traces.close();
    served
}

async fn serve(config: Config, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let (me, cluster, directory) = (config.me, config.cluster.clone(), config.directory.clone());
    let node = Node::start(config).map_err(|why| not_started(&why))?;
    let clients = node.clients_address();
    let at = clients.as_ref().map(SocketAddr::to_string).unwrap_or_default();
    writeln!(
        console.out,
        "serving clients on {at}, nodes on {}: node {me} of {cluster}, data in {}",
        node.address(),
        directory.display()
    )?;
    console.out.flush()?;
    let notify = Notify::from_environment();
    notify.ready();
    let handle = node.handle();
    let end = tokio::select! {
        end = handle.ended() => {
            drop(node);
            end
        }
        () = told(&mut signals) => {
            notify.stopping();
            node.close().await
        }
        () = notify.keep_alive(async || drop(handle.status().await)) => unreachable!("it never returns"),
    };
    match end {
        End::Closed => Ok(Exit::Done),
        End::Removed(what) | End::Broken(what) => Err(Failure::Engine { what, exit: Exit::Refused }),
    }
}

/// As many descriptors as it may have: shells and service managers give 1,024, for programs that know no better call than `select`.
fn raise_descriptors() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // What it has by then counts, and the node says if that is little.
    if current != maximum
        && let Err(why) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(%why, "the limit of open files cannot be raised");
    }
}

/// Until somebody wants it to end.
async fn told(signals: &mut Signals) {
    loop {
        match signals.next().await {
            Heard::Told(_) => return,
            Heard::Passed(_) => {}
        }
    }
}

fn config(wanted: ServeArguments) -> Result<Config, Failure> {
    let admission = Admission {
        tls: wanted.tls_cert.zip(wanted.tls_key).map(|(certificate, key)| ServerTls {
            certificate,
            key,
            authority: wanted.tls_client_ca,
        }),
        tokens: wanted.tokens,
    };
    // Before a directory is made for what cannot be.
    if let Ok(address) = wanted.listen.parse::<SocketAddr>() {
        admission.check(address.ip()).map_err(|why| exposed(&why))?;
    }
    check_told(&wanted.listen, wanted.advertise.as_deref(), "clients", "--advertise")?;
    check_told(&wanted.peer_listen, wanted.peer_advertise.as_deref(), "the other nodes", "--peer-advertise")?;
    let directory = match wanted.data {
        Some(directory) => directory,
        None => {
            let usual = usual_directory().map_err(|why| Failure::setting(&why))?;
            usual.join("service").join(format!("{}-{}", wanted.cluster, wanted.node))
        }
    };
    let security = match (wanted.key_file, wanted.peer_ca, wanted.peer_cert, wanted.peer_key) {
        (Some(file), _, _, _) => Security::Key(GroupKey::read(&file).map_err(|why| setting(why.to_string()))?),
        (None, Some(authority), Some(certificate), Some(key)) => {
            Security::Tls(TlsFiles { authority, certificate, key, revoked: wanted.peer_crl })
        }
        (None, _, _, _) => Security::Open,
    };
    let traces = wanted.otlp.start(
        format!("node-{}.{}", wanted.node, wanted.cluster),
        vec![("incumbent.node", u64::from(wanted.node).into()), ("incumbent.cluster", wanted.cluster.clone().into())],
    )?;
    let peers = wanted.peers.into_iter().map(|it| Peer { id: NodeId(it.id), address: it.address }).collect();
    Ok(Config {
        cluster: wanted.cluster,
        me: NodeId(wanted.node),
        listen: wanted.peer_listen,
        clients: Some(wanted.listen),
        admission,
        client_address: wanted.advertise,
        peer_address: wanted.peer_advertise,
        peers,
        beginning: if wanted.join { Beginning::Joins } else { Beginning::Founds },
        security,
        traces,
        ..Config::alone(directory)
    })
}

/// All addresses of this machine are no place to be told of: without another, nobody would find this node.
fn check_told(listen: &str, advertised: Option<&str>, whom: &str, option: &str) -> Result<(), Failure> {
    let everywhere = listen.parse::<SocketAddr>().is_ok_and(|it| it.ip().is_unspecified());
    if everywhere && advertised.is_none() {
        return Err(setting(format!(
            "{listen} is every address of this machine, and {whom} must be told one of them: say which with {option} HOST:PORT"
        )));
    }
    Ok(())
}

fn not_started(why: &NotStarted) -> Failure {
    if matches!(why, NotStarted::Exposed(_)) { exposed(why) } else { setting(why.to_string()) }
}

fn exposed(why: &impl fmt::Display) -> Failure {
    setting(format!("{why} (--tls-cert FILE --tls-key FILE --tokens FILE)"))
}

fn setting(what: String) -> Failure {
    Failure::Engine { what, exit: Exit::Usage }
}
