//! What the server says about itself: the groups and resources it has, and that it lives.
//!
//! Only what it serves is told: Leases. Left out: OpenAPI, which clients for one known resource do not ask for.

use hyper::StatusCode;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use serde::Serialize;
use serde_json::{Value, json};

use super::status::{API_VERSION, GROUP};
use super::wire::{bytes, json, layout, set};
use crate::serving::{Ask, Reply};

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// What the server says about itself at this path, if it says anything.
pub(super) fn about(path: &str, ask: &Ask, port: u16) -> Option<Reply> {
    /// Fields in the order of the real server, which ours would sort.
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Told<T> {
        kind: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        api_version: Option<&'static str>,
        #[serde(flatten)]
        rest: T,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        group_version: &'static str,
        version: &'static str,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Group {
        name: &'static str,
        versions: [Version; 1],
        preferred_version: Version,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Resource {
        name: &'static str,
        singular_name: &'static str,
        namespaced: bool,
        kind: &'static str,
        verbs: [&'static str; 8],
        storage_version_hash: &'static str,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Resources {
        group_version: &'static str,
        resources: [Resource; 1],
    }
    #[derive(Serialize)]
    struct Groups {
        groups: [Group; 1],
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Address {
        #[serde(rename = "clientCIDR")]
        client_cidr: &'static str,
        server_address: String,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Core {
        versions: [&'static str; 1],
        #[serde(rename = "serverAddressByClientCIDRs")]
        addresses: [Address; 1],
    }
    let version = || Version { group_version: API_VERSION, version: "v1" };
    let group = || Group { name: GROUP, versions: [version()], preferred_version: version() };
    let layout = layout(ask);
    let ok = StatusCode::OK;
    let reply = match path {
        "/api" => {
            let addresses = [Address { client_cidr: "0.0.0.0/0", server_address: format!("127.0.0.1:{port}") }];
            json(layout, ok, &Told { kind: "APIVersions", api_version: None, rest: Core { versions: ["v1"], addresses } })
        }
        "/apis" if ask.header(ACCEPT.as_str()).is_some_and(|it| it.contains("as=APIGroupDiscoveryList")) => {
            let mut reply = json(layout, ok, &aggregated());
            set(&mut reply, CONTENT_TYPE.as_str(), "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
            reply
        }
        "/apis" => json(layout, ok, &Told { kind: "APIGroupList", api_version: Some("v1"), rest: Groups { groups: [group()] } }),
        "/apis/coordination.k8s.io" => json(layout, ok, &Told { kind: "APIGroup", api_version: Some("v1"), rest: group() }),
        "/apis/coordination.k8s.io/v1" => {
            let resource = Resource {
                name: "leases",
                singular_name: "lease",
                namespaced: true,
                kind: "Lease",
                verbs: VERBS,
                storage_version_hash: "gqkMMb/YqFM=",
            };
            let rest = Resources { group_version: API_VERSION, resources: [resource] };
            json(layout, ok, &Told { kind: "APIResourceList", api_version: Some("v1"), rest })
        }
        "/version" => {
            json(layout, ok, &json!({ "major": "1", "minor": "38", "gitVersion": "v1.38.0-alpha.0", "platform": "linux/amd64" }))
        }
        "/healthz" | "/livez" | "/readyz" => bytes(ok, "text/plain; charset=utf-8", b"ok".to_vec()),
        _ => return None,
    };
    Some(reply)
}

fn aggregated() -> Value {
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [{
            "metadata": { "name": GROUP },
            "versions": [{
                "version": "v1",
                "resources": [{
                    "resource": "leases",
                    "responseKind": { "group": "", "version": "", "kind": "Lease" },
                    "scope": "Namespaced",
                    "singularResource": "lease",
                    "verbs": VERBS,
                }],
                "freshness": "Current",
            }],
        }],
    })
}
