//! Clusters elect a leader, survive the loss of one, and want a password where told so.

use incumbent_testbed::{Etcd, Nats, Server as _, ZooKeeper};

const QUICK: [&str; 2] = ["--dial-timeout=200ms", "--command-timeout=200ms"];

#[test]
fn a_cluster_of_etcd_survives_its_leader() {
    let cluster = Etcd::recent().start_cluster(3).unwrap();
    let old = cluster.leader().unwrap();
    cluster.members()[old].etcdctl(&["put", "seat", "taken"]).unwrap();
    cluster.members()[old].pause();
    let new = cluster.leader_after(old).unwrap();
    assert_eq!(cluster.members()[new].etcdctl(&["get", "seat", "--print-value-only"]).unwrap().trim(), "taken");
    cluster.members()[old].resume();
    let newest = cluster.leader().unwrap();
    cluster.members()[newest].kill();
    cluster.leader_after(newest).unwrap();
    cluster.members()[newest].restart().unwrap();
    assert_eq!(cluster.members()[newest].etcdctl(&["get", "seat", "--print-value-only"]).unwrap().trim(), "taken");
    assert_eq!(cluster.addresses().len(), 3);
}

#[test]
fn an_ensemble_of_zookeeper_survives_its_leader() {
    let ensemble = ZooKeeper::debian().start_ensemble(3).unwrap();
    let old = ensemble.leader().unwrap();
    ensemble.members()[old].kill();
    let new = ensemble.leader_after(old).unwrap();
    assert_ne!(old, new);
    ensemble.members()[old].restart().unwrap();
    assert!(ensemble.members()[new].monitor().unwrap().contains_key("zk_packets_received"));
}

#[test]
fn a_cluster_of_nats_survives_its_leader() {
    let cluster = Nats::recent().start_cluster(3).unwrap();
    let old = cluster.leader().unwrap();
    cluster.members()[old].kill();
    assert_ne!(cluster.leader_after(old).unwrap(), old);
    cluster.members()[old].restart().unwrap();
}

#[test]
fn etcd_wants_a_password_where_told_so() {
    for plan in [Etcd::debian(), Etcd::recent()] {
        let etcd = plan.root_password("open-sesame").start().unwrap();
        etcd.etcdctl(&["put", "seat", "taken"]).unwrap();
        let mut stranger = etcd.etcdctl_command().unwrap();
        stranger.args(QUICK).args(["--user=root:wrong", "get", "seat"]);
        assert!(!stranger.output().unwrap().status.success());
        etcd.restart().unwrap();
        assert_eq!(etcd.etcdctl(&["get", "seat", "--print-value-only"]).unwrap().trim(), "taken");
    }
}
