//! The way to Leases: configuration, calls, and what their failures mean. Nothing is tried twice.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::config::{ExecAuthCluster, KubeConfigOptions, Kubeconfig, KubeconfigError, NoProxyError};
use kube::{Api, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::time::{Instant, timeout};

use super::proxy;
use crate::engine::Error;
use crate::engines::locked::locked;
use crate::name::Name;
use crate::place::Place;

/// Where a server listens that names no port.
const HTTPS_PORT: u16 = 443;
/// A server that has not taken the connection by then is down or behind a firewall.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Whoever calls gives up sooner, when its own time is over; this is for those who do not.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// A watch ends after this long and goes on where it was, so that a line that died in silence is noticed.
const WATCH_SECONDS: u32 = 30;
/// One that has not ended by then never will.
pub(super) const WATCH_LASTS_MAX: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 10);

/// Credentials that were refused are read anew if they are older than this. What is refused sooner stays so.
const CREDENTIALS_AGE_MIN: Duration = Duration::from_secs(5);

/// The Leases of one namespace.
#[derive(Clone)]
pub(super) struct Client {
    place: Place,
    way: Arc<Mutex<Way>>,
    namespace: String,
}

/// A client with the credentials of its time. It renews tokens by itself, and certificates never.
#[derive(Clone)]
struct Way {
    kube: kube::Client,
    leases: Api<Lease>,
    /// Watches have connections of their own: a call must not find all of them taken and dial another first.
    watched: Api<Lease>,
    begun: Instant,
}

/// What became of a write.
pub(super) enum Written {
    Done(Box<Lease>),
    /// Nothing was written: it is not as it was read, or already there.
    Conflict,
    /// Nothing was written: it is not there any more.
    Missing,
}

/// Whether a request that was sent may have changed something.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Purpose {
    Read,
    Write,
}

impl Client {
    /// The way that the URL names, or what Kubernetes' own programs would take.
    pub(super) async fn new(place: &Place) -> Result<Client, Error> {
        let way = Way::new(place).await?;
        let namespace = way.leases.namespace().unwrap_or_default().to_owned();
        Ok(Client { place: place.clone(), way: Arc::new(Mutex::new(way)), namespace })
    }

    /// Whether anybody is there. Whoever says that we may not know its version is: a Role for Leases does not allow that by itself.
    pub(super) async fn knock(&self) -> Result<(), Error> {
        match self.within(async |way| way.kube.apiserver_version().await).await {
            Ok(_) => Ok(()),
            Err(Failure::Told(kube::Error::Api(status))) if matches!(status.code, 403 | 404) => Ok(()),
            Err(why) => Err(self.error(Purpose::Read, why)),
        }
    }

    pub(super) async fn read(&self, election: &Name) -> Result<Option<Lease>, Error> {
        let read = self.within(async |way| way.leases.get_opt(election.as_str()).await).await;
        read.map_err(|why| self.error(Purpose::Read, why))
    }

    /// By POST, which fails if it is there already.
    pub(super) async fn create(&self, lease: &Lease) -> Result<Written, Error> {
        let created = self.within(async |way| way.leases.create(&PostParams::default(), lease).await).await;
        self.written(created, "create")
    }

    /// Overwrites the version that it bears.
    pub(super) async fn replace(&self, election: &Name, lease: &Lease) -> Result<Written, Error> {
        // Without a version it would overwrite anything, and make what was deleted.
        assert!(lease.metadata.resource_version.is_some(), "what was not read is not replaced");
        let replaced = self.within(async |way| way.leases.replace(election.as_str(), &PostParams::default(), lease).await).await;
        self.written(replaced, "replace")
    }

    /// The Lease and the version to watch from.
    pub(super) async fn list(&self, election: &Name) -> Result<(Option<Lease>, String), Error> {
        let only = ListParams::default().fields(&format!("metadata.name={election}"));
        let list = self.within(async |way| way.leases.list(&only).await).await.map_err(|why| self.error(Purpose::Read, why))?;
        Ok((list.items.into_iter().next(), list.metadata.resource_version.unwrap_or_default()))
    }

    /// What happens to it after `version`.
    pub(super) async fn watch(
        &self,
        election: &Name,
        version: &str,
    ) -> Result<futures_util::stream::BoxStream<'static, kube::Result<WatchEvent<Lease>>>, Error> {
        let only = WatchParams::default().fields(&format!("metadata.name={election}")).timeout(WATCH_SECONDS);
        let watch = self.within(async |way| way.watched.watch(&only, version).await).await;
        watch.map(|it| Box::pin(it) as _).map_err(|why| self.error(Purpose::Read, why))
    }

    async fn within<T>(&self, call: impl AsyncFnOnce(&Way) -> kube::Result<T>) -> Result<T, Failure> {
        let way = locked(&self.way).clone();
        match timeout(ANSWER_TIMEOUT, call(&way)).await {
            Ok(Err(kube::Error::Api(status))) if status.code == 401 && self.has_other_way(&way).await => Err(Failure::Outdated),
            Ok(answer) => answer.map_err(Failure::Told),
            Err(_) => Err(Failure::Silence),
        }
    }

    /// Whether there is a way with credentials that were read after those of this one, which is the case if those are old enough.
    async fn has_other_way(&self, way: &Way) -> bool {
        if locked(&self.way).begun == way.begun {
            if way.begun.elapsed() < CREDENTIALS_AGE_MIN {
                return false;
            }
            let Ok(Ok(other)) = timeout(ANSWER_TIMEOUT, Way::new(&self.place)).await else { return false };
            *locked(&self.way) = other;
        }
        true
    }

    fn written(&self, answer: Result<Lease, Failure>, verb: &str) -> Result<Written, Error> {
        match answer {
            Ok(lease) => Ok(Written::Done(Box::new(lease))),
            Err(Failure::Told(kube::Error::Api(status))) if status.code == 409 => Ok(Written::Conflict),
            Err(Failure::Told(kube::Error::Api(status))) if status.code == 404 && verb == "replace" => Ok(Written::Missing),
            Err(why) => Err(self.error(Purpose::Write, why)),
        }
    }

    /// The one place where failures become ours.
    fn error(&self, purpose: Purpose, failure: Failure) -> Error {
        let open = |text: String| if purpose == Purpose::Read { Error::refused(text) } else { Error::unknown(text) };
        let why = match failure {
            Failure::Silence => return open("Kubernetes did not answer".to_owned()),
            Failure::Outdated => {
                return Error::refused(
                    "Kubernetes does not accept our credentials any more: they were read anew, for the next call",
                );
            }
            Failure::Told(why) => why,
        };
        if let kube::Error::Api(status) = &why {
            let told = format!("Kubernetes answered {}: {}", status.code, status.message);
            return match status.code {
                401 => Error::misconfigured(format!(
                    "{told}: the credentials are not accepted; renew those of the kubeconfig's user (token, client certificate or \
                     exec), or of the pod's service account"
                )),
                403 => Error::misconfigured(format!(
                    "{told}: give the account a Role in the namespace {:?} with the verbs get, list, watch, create and update on \
                     leases.coordination.k8s.io",
                    self.namespace
                )),
                404 => Error::misconfigured(format!("{told}: is there a namespace {:?}?", self.namespace)),
                429 => Error::refused(told),
                400..=499 => Error::misconfigured(told),
                _ => open(told),
            };
        }
        let mut cause: &(dyn std::error::Error + 'static) = &why;
        let mut not_sent = false;
        loop {
            let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
            not_sent |= matches!(
                kind,
                Some(io::ErrorKind::ConnectionRefused | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable)
            );
            match cause.source() {
                Some(deeper) => cause = deeper,
                None => break,
            }
        }
        let cause = cause.to_string();
        if cause.contains("certificate") {
            Error::misconfigured(format!(
                "no TLS with Kubernetes ({cause}): check server, certificate-authority and tls-server-name in the kubeconfig"
            ))
        } else if not_sent {
            Error::refused(format!(
                "cannot reach Kubernetes ({cause}): is the server of the kubeconfig the right one, and may this machine connect to it?"
            ))
        } else {
            open(format!("Kubernetes did not answer: {cause}"))
        }
    }
}

impl Way {
    /// Reads the configuration.
    async fn new(place: &Place) -> Result<Way, Error> {
        let context = place.option("context").or_else(|| place.hosts().first().map(|it| it.name.as_str())).map(str::to_owned);
        let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
        let unusable = |why: &dyn std::fmt::Display| {
            Error::misconfigured(format!(
                "no way to Kubernetes ({why}): say kubeconfig=FILE or set KUBECONFIG, or run in a pod with a service account"
            ))
        };
        let kubeconfig = place.option("kubeconfig").map(Kubeconfig::read_from).transpose().map_err(|why| unusable(&why))?;
        let loaded: Result<Config, Box<dyn std::error::Error>> = match &kubeconfig {
            Some(it) => Config::from_custom_kubeconfig(it.clone(), &options).await.map_err(Into::into),
            None if options.context.is_some() => Config::from_kubeconfig(&options).await.map_err(Into::into),
            None => Config::infer().await.map_err(Into::into),
        };
        let mut config = match loaded {
            Ok(config) => config,
            Err(why) if is_about_no_proxy(&*why) => {
                let kubeconfig = kubeconfig.clone().map_or_else(Kubeconfig::read, Ok).map_err(|why| unusable(&why))?;
                loaded_by_hand(&kubeconfig, options.context.as_deref()).map_err(|why| unusable(&why))?
            }
            Err(why) => return Err(unusable(&why)),
        };
        // What was found in a pod needs no proxy.
        if config.root_cert_file.is_none() {
            let kubeconfig = kubeconfig.or_else(|| Kubeconfig::read().ok());
            let named = kubeconfig.and_then(|it| proxy::named(&it, options.context.as_deref()));
            let (host, port) =
                (config.cluster_url.host().unwrap_or_default(), config.cluster_url.port_u16().unwrap_or(HTTPS_PORT));
            let proxy = proxy::chosen(named, &proxy::Environment::of_the_process(), host, port);
            config.proxy_url = proxy.map(|it| it.parse()).transpose().map_err(|why| unusable(&why))?;
        }
        if config.cluster_url.scheme_str() == Some("http") {
            // Without TLS nobody needs to be trusted, and all that the machine trusts need not be read.
            config.root_cert.get_or_insert_default();
        }
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        // A write that is sent again by itself could meet its own first attempt.
        config.default_retry = false;
        let namespace = Some(place.namespace()).filter(|it| !it.is_empty()).unwrap_or_else(|| config.default_namespace.clone());
        choose_cryptography();
        // A program that is run for credentials may ask somebody for them: once is enough.
        let user = &config.auth_info;
        let shared = user.exec.is_some() || user.auth_provider.is_some();
        let kube = kube::Client::try_from(config.clone()).map_err(|why| unusable(&why))?;
        let watches = if shared { kube.clone() } else { kube::Client::try_from(config).map_err(|why| unusable(&why))? };
        let [leases, watched] = [kube.clone(), watches].map(|it| Api::namespaced(it, &namespace));
        Ok(Way { kube, leases, watched, begun: Instant::now() })
    }
}

/// The client reads `NO_PROXY` wherever there is a proxy, and more strictly than anybody else: an empty entry is too much for it.
fn is_about_no_proxy(why: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(why), |it| it.source()).any(|it| it.downcast_ref::<NoProxyError>().is_some())
}

/// A context as the client loads it, without a look at the environment's proxies: which one is gone through is decided in `proxy.rs`.
fn loaded_by_hand(kubeconfig: &Kubeconfig, context: Option<&str>) -> Result<Config, KubeconfigError> {
    let name = context.or(kubeconfig.current_context.as_deref()).ok_or(KubeconfigError::CurrentContextNotSet)?;
    let context = kubeconfig.contexts.iter().find(|it| it.name == name).and_then(|it| it.context.as_ref());
    let context = context.ok_or_else(|| KubeconfigError::LoadContext(name.to_owned()))?;
    let cluster = kubeconfig.clusters.iter().find(|it| it.name == context.cluster).and_then(|it| it.cluster.as_ref());
    let cluster = cluster.ok_or_else(|| KubeconfigError::LoadClusterOfContext(context.cluster.clone()))?;
    let server = cluster.server.as_ref().ok_or(KubeconfigError::MissingClusterUrl)?;
    let mut config = Config::new(server.parse().map_err(KubeconfigError::ParseClusterUrl)?);
    let told = ExecAuthCluster::try_from(cluster)?;
    // The client has read these before it came to the proxy.
    let authorities = |pem: &Vec<u8>| CertificateDer::pem_slice_iter(pem).flatten().map(|it| it.to_vec()).collect();
    config.root_cert = told.certificate_authority_data.as_ref().map(authorities);
    config.default_namespace = context.namespace.clone().unwrap_or_else(|| "default".to_owned());
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or(false);
    config.disable_compression = cluster.disable_compression.unwrap_or(false);
    config.tls_server_name = cluster.tls_server_name.clone();
    let user = kubeconfig.auth_infos.iter().find(|it| Some(&it.name) == context.user.as_ref());
    config.auth_info = user.and_then(|it| it.auth_info.clone()).unwrap_or_default();
    if let Some(exec) = config.auth_info.exec.as_mut().filter(|it| it.provide_cluster_info) {
        exec.cluster = Some(told);
    }
    Ok(config)
}

/// kube takes the process's provider of cryptography, and panics if several are built in and none is chosen. An application that has chosen is left alone.
fn choose_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // If somebody else was quicker, that is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// A call without its answer.
enum Failure {
    Told(kube::Error),
    /// With credentials that were not accepted. There are others by now.
    Outdated,
    Silence,
}
