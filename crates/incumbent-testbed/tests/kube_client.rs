//! A real client, `kube`, against the test server of Kubernetes: over TLS, by a kubeconfig with a token.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use incumbent_testbed::{Access, Certificates, Kubernetes, Tls};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::Kubeconfig;
use kube::{Client, Config};

async fn leases(kubernetes: &Kubernetes) -> Api<Lease> {
    // Other crates of the workspace bring a second one along; then nobody but the program can choose.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::from_yaml(&kubernetes.kubeconfig()).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.expect("a config");
    Api::default_namespaced(Client::try_from(config).expect("a client"))
}

fn lease(holder: &str) -> Lease {
    let spec = LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(15),
        // A time without a fraction of a second: it must be sent with six zeros all the same.
        renew_time: Some(MicroTime(Timestamp::from_second(1_800_000_000).expect("a time"))),
        ..LeaseSpec::default()
    };
    Lease { metadata: ObjectMeta { name: Some("x".into()), ..ObjectMeta::default() }, spec: Some(spec) }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|it| it.holder_identity.as_deref()).unwrap_or_default()
}

fn code(result: kube::Result<Lease>) -> u16 {
    match result {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_real_client_reads_writes_and_watches() {
    let certificates = Certificates::new().expect("certificates");
    let plan =
        Kubernetes::plan().tls(certificates.server()).token("secret", Access::Write).bookmark_every(Duration::from_millis(1));
    let kubernetes = plan.start().expect("a free port");
    let leases = leases(&kubernetes).await;
    assert!(leases.get_opt("x").await.expect("an answer").is_none());
    let first = leases.create(&PostParams::default(), &lease("a")).await.expect("created");
    assert_eq!(code(leases.create(&PostParams::default(), &lease("a")).await), 409);

    let from = first.metadata.resource_version.clone().expect("a version");
    let events = leases.watch(&WatchParams::default().fields("metadata.name=x"), &from).await.expect("a watch");
    let mut events = std::pin::pin!(events);

    let mut next = first.clone();
    next.spec = lease("b").spec;
    let second = leases.replace("x", &PostParams::default(), &next).await.expect("replaced");
    assert!(second.metadata.resource_version > first.metadata.resource_version);
    assert_eq!(code(leases.replace("x", &PostParams::default(), &next).await), 409, "a version that is past");
    let merge = serde_json::json!({ "spec": { "holderIdentity": "c" } });
    leases.patch("x", &PatchParams::default(), &Patch::Merge(merge)).await.expect("patched");
    let apply = serde_json::json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": { "leaseTransitions": 7 } });
    leases.patch("x", &PatchParams::apply("me"), &Patch::Apply(apply)).await.expect("applied");
    leases.delete("x", &Default::default()).await.expect("deleted");

    let mut seen = Vec::new();
    let mut bookmarked = false;
    while !(seen.len() == 4 && bookmarked) {
        match events.try_next().await.expect("no error").expect("no end") {
            WatchEvent::Added(lease) => seen.push(format!("added {}", holder(&lease))),
            WatchEvent::Modified(lease) => seen.push(format!("modified {}", holder(&lease))),
            WatchEvent::Deleted(lease) => seen.push(format!("deleted {}", holder(&lease))),
            WatchEvent::Bookmark(_) => bookmarked = true,
            WatchEvent::Error(status) => panic!("{status:?}"),
        }
    }
    assert_eq!(seen, ["modified b", "modified c", "modified c", "deleted c"]);
    assert!(leases.list(&ListParams::default()).await.expect("a list").items.is_empty());

    kubernetes.compact();
    let events = leases.watch(&WatchParams::default(), &from).await.expect("a watch");
    let first = std::pin::pin!(events).try_next().await.expect("an event").expect("no end");
    assert!(matches!(&first, WatchEvent::Error(status) if status.code == 410), "{first:?}");
    let at = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let requests = kubernetes.requests();
    assert_eq!((requests.of(&format!("update {at}/x")), requests.of(&format!("watch {at}"))), (2, 2));
}

#[tokio::test]
async fn a_certificate_with_another_name_is_refused_and_one_that_the_server_asks_for_is_shown() {
    let certificates = Certificates::new().expect("certificates");
    let start = |tls: Tls| Kubernetes::plan().tls(tls).start().expect("a free port");
    let elsewhere = start(certificates.wrong_name());
    assert!(leases(&elsewhere).await.get_opt("x").await.is_err());
    assert_eq!(elsewhere.requests().total(), 0);
    let exacting = start(certificates.server().requiring_clients());
    assert!(leases(&exacting).await.get_opt("x").await.expect("an answer").is_none());
}
