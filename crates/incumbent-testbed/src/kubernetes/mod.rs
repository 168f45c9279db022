//! A test server of the Lease API of Kubernetes, that answers as the real one does.
//!
//! It reproduces the recorded answers in `golden/` (kube-apiserver 1.38); `tests/golden_kubernetes.rs` replays them. Leases can be read,
//! listed, created, replaced, patched, applied, deleted and watched, with the real server's versions, conflicts, owners of fields and texts.
//! Left out: every other resource (namespaces are made by the test), YAML, OpenAPI, admission, finalizers that hold up a deletion.

mod api;
mod discovery;
mod fields;
mod lease;
mod protobuf;
mod selector;
mod status;
mod store;
mod time;
mod watch;
mod wire;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::watch as channel;

use self::lease::Lease;
use self::store::Store;
use crate::certificates::{Clients, Tls};
use crate::server::Requests;
use crate::serving::{Access, Ask, Reply, Serving, Site, locked};

/// A running server. It stops when it is dropped.
pub struct Kubernetes {
    serving: Serving<Apiserver>,
    token: Option<String>,
    tls: Option<Tls>,
}

impl Kubernetes {
    /// A server that lets everybody in, without TLS.
    ///
    /// # Errors
    /// If there is no port to be had.
    pub fn start() -> Result<Self, String> {
        Self::plan().start()
    }

    /// A server with other settings.
    pub fn plan() -> KubernetesPlan {
        KubernetesPlan::default()
    }

    /// The loopback port on which it serves. It stays the same through restarts.
    pub fn port(&self) -> u16 {
        self.serving.port()
    }

    /// Host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// Scheme, host and port.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address())
    }

    /// What clients need to reach it, with a token that may write if there is one: the content of a kubeconfig file. With TLS it names
    /// the files of the certificates.
    pub fn kubeconfig(&self) -> String {
        let mut cluster = vec![format!("server: {:?}", self.url())];
        let mut user: Vec<String> = self.token.iter().map(|it| format!("token: {it:?}")).collect();
        if let Some(tls) = &self.tls {
            cluster.push(format!("certificate-authority: {:?}", tls.authority));
            if tls.clients == Clients::MustShow {
                user.push(format!("client-certificate: {:?}", tls.client.certificate));
                user.push(format!("client-key: {:?}", tls.client.key));
            }
        }
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: testbed\n\
             clusters:\n- name: testbed\n  cluster: {{ {} }}\n\
             users:\n- name: testbed\n  user: {{ {} }}\n\
             contexts:\n- name: testbed\n  context: {{ cluster: testbed, user: testbed, namespace: default }}\n",
            cluster.join(", "),
            user.join(", ")
        )
    }

    /// What it was asked since it was last started, by verb and path, as in `update /apis/coordination.k8s.io/v1/namespaces/default/leases/x`.
    /// Verbs are those of access rules: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub fn requests(&self) -> Requests {
        self.serving.requests()
    }

    /// Stops and cuts every connection. Leases are kept.
    pub fn stop(&self) {
        self.serving.stop();
    }

    /// Starts on the same port, after a stop if it still runs. As with the real server, whose watch cache is empty then, a watch
    /// cannot start in the time before: it is told 410.
    ///
    /// # Errors
    /// If somebody else took the port.
    pub fn restart(&self) -> Result<(), String> {
        self.stop();
        self.compact();
        self.serving.start_again()
    }

    /// Stops it in its tracks: connections stay open and nothing is answered.
    pub fn pause(&self) {
        self.serving.pause();
    }

    /// Lets it go on after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.serving.resume();
    }

    /// Forgets all history: who wants to watch or to go on with a list from before is told 410.
    pub fn compact(&self) {
        let mut store = locked(&self.serving.site().cluster.store);
        let version = store.version();
        store.compact(version);
    }

    /// Makes a namespace. `default` and those of the system are there.
    pub fn create_namespace(&self, name: &str) {
        locked(&self.serving.site().cluster.store).namespaces.insert(name.to_owned());
    }
}

/// How a Kubernetes shall be started.
#[derive(Clone, Debug)]
pub struct KubernetesPlan {
    first_version: u64,
    bookmark_every: Duration,
    tokens: BTreeMap<String, Access>,
    only_leases: bool,
    tls: Option<Tls>,
}

impl Default for KubernetesPlan {
    fn default() -> Self {
        // A fresh real server has written about this much before its first client comes, and makes a bookmark every minute.
        Self {
            first_version: 57,
            bookmark_every: Duration::from_secs(60),
            tokens: BTreeMap::new(),
            only_leases: false,
            tls: None,
        }
    }
}

impl KubernetesPlan {
    /// The version of the first write.
    pub fn first_version(mut self, version: u64) -> Self {
        self.first_version = version.max(1);
        self
    }

    /// How often a watch that wants bookmarks gets one.
    pub fn bookmark_every(mut self, period: Duration) -> Self {
        self.bookmark_every = period;
        self
    }

    /// Turns access control on: whoever has this bearer token has this access. An unknown token is told 401, none at all 403.
    pub fn token(mut self, token: impl Into<String>, access: Access) -> Self {
        self.tokens.insert(token.into(), access);
        self
    }

    /// Tells nobody anything but Leases: whoever asks for a version or the list of resources is told 403, as where `system:public-info-viewer` and
    /// `system:discovery` were taken away.
    pub fn only_leases(mut self) -> Self {
        self.only_leases = true;
        self
    }

    /// Turns TLS on.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Starts the server on a free loopback port.
    ///
    /// # Errors
    /// If there is none, or the certificates cannot be read.
    pub fn start(self) -> Result<Kubernetes, String> {
        let token = self.tokens.iter().find(|(_, access)| **access == Access::Write).map(|(token, _)| token.clone());
        let cluster = Cluster {
            store: Mutex::new(Store::new(self.first_version)),
            changed: channel::Sender::new(()),
            bookmark_every: self.bookmark_every,
            tokens: self.tokens,
            only_leases: self.only_leases,
        };
        let serving = Serving::start(Apiserver { cluster: Arc::new(cluster), port: OnceLock::new() }, self.tls.as_ref())?;
        // Set before anybody can know the port, and so before anybody can ask.
        let _ = serving.site().port.set(serving.port());
        Ok(Kubernetes { serving, token, tls: self.tls })
    }
}

/// The server behind the port.
struct Apiserver {
    cluster: Arc<Cluster>,
    /// It tells its own address.
    port: OnceLock<u16>,
}

/// What requests and watches share.
struct Cluster {
    store: Mutex<Store>,
    /// Told of every write, so that watches look.
    changed: channel::Sender<()>,
    bookmark_every: Duration,
    tokens: BTreeMap<String, Access>,
    only_leases: bool,
}

impl Cluster {
    fn put(&self, store: &mut Store, lease: Lease) -> Lease {
        let written = store.put(lease);
        self.changed.send_replace(());
        written
    }

    fn delete(&self, store: &mut Store, namespace: &str, name: &str) {
        store.delete(namespace, name);
        self.changed.send_replace(());
    }
}

impl Site for Apiserver {
    fn verb(&self, ask: &Ask) -> String {
        api::verb(ask)
    }

    async fn answer(&self, ask: Ask) -> Reply {
        api::answer(&self.cluster, &ask, self.port.get().copied().unwrap_or_default())
    }

    async fn housekeeping(&self) {}
}
