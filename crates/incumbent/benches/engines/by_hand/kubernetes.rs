//! A Lease that is read and replaced, as client-go's `leaderelection` does it, and watched while it is taken, which that does not. The token is
//! `leaseTransitions`.

use async_trait::async_trait;
use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::Notify;

use crate::TTL;
use crate::contender::Contender;

pub(crate) struct Kubernetes {
    leases: Api<Lease>,
    me: &'static str,
    held: Option<Lease>,
}

impl Kubernetes {
    pub(crate) async fn connect(kubeconfig: &str, me: &'static str) -> Kubernetes {
        let kubeconfig = Kubeconfig::from_yaml(kubeconfig).expect("a good file");
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a good file");
        let client = kube::Client::try_from(config).expect("a client");
        let leases: Api<Lease> = Api::namespaced(client, "default");
        let mut lease = Lease::default();
        lease.metadata.name = Some("by-hand".to_owned());
        if leases.get_opt("by-hand").await.expect("Kubernetes is well").is_none() {
            leases.create(&PostParams::default(), &lease).await.expect("Kubernetes is well");
        }
        Kubernetes { leases, me, held: None }
    }

    async fn replace(&self, lease: &Lease) -> Option<Lease> {
        match self.leases.replace("by-hand", &PostParams::default(), lease).await {
            Ok(lease) => Some(lease),
            Err(kube::Error::Api(status)) if status.code == 409 => None,
            Err(why) => panic!("Kubernetes is well: {why}"),
        }
    }
}

#[async_trait]
impl Contender for Kubernetes {
    async fn claim(&mut self, waits: &Notify) {
        let mut lease = self.leases.get("by-hand").await.expect("Kubernetes is well");
        loop {
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref().unwrap_or_default().is_empty() {
                let token = spec.lease_transitions.unwrap_or(0) + 1;
                *spec = LeaseSpec {
                    holder_identity: Some(self.me.to_owned()),
                    lease_duration_seconds: Some(TTL.as_secs() as i32),
                    lease_transitions: Some(token),
                    ..LeaseSpec::default()
                };
                if let Some(held) = self.replace(&lease).await {
                    self.held = Some(held);
                    return;
                }
                lease = self.leases.get("by-hand").await.expect("Kubernetes is well");
                continue;
            }
            let version = lease.metadata.resource_version.clone().expect("always there");
            let only = WatchParams::default().fields("metadata.name=by-hand").timeout(30);
            let mut events = Box::pin(self.leases.watch(&only, &version).await.expect("Kubernetes is well"));
            waits.notify_one();
            while let Some(event) = events.next().await {
                if let WatchEvent::Modified(now) = event.expect("Kubernetes is well") {
                    lease = now;
                    break;
                }
            }
        }
    }

    async fn release(&mut self) {
        let mut lease = self.held.take().expect("in office");
        lease.spec.get_or_insert_default().holder_identity = Some(String::new());
        self.replace(&lease).await.expect("nobody else writes");
    }
}
