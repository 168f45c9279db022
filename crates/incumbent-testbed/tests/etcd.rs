//! etcd starts, answers, restarts with its data and counts what it is asked.

use incumbent_testbed::{Etcd, EtcdPlan, Server as _};

fn keeps_its_word(plan: &EtcdPlan, version: &str) {
    let etcd = plan.start().unwrap();
    assert!(etcd.etcdctl(&["endpoint", "status"]).unwrap().contains(version));
    let before = etcd.requests().unwrap();
    etcd.etcdctl(&["put", "seat", "taken"]).unwrap();
    assert_eq!(etcd.requests().unwrap().since(&before).of("Put"), 1);

    let port = etcd.port();
    etcd.kill();
    assert!(etcd.etcdctl(&["--dial-timeout=100ms", "--command-timeout=100ms", "get", "seat"]).is_err());
    etcd.restart().unwrap();
    assert_eq!(etcd.port(), port);
    assert_eq!(etcd.etcdctl(&["get", "seat", "--print-value-only"]).unwrap().trim(), "taken");

    etcd.pause();
    assert!(etcd.etcdctl(&["--dial-timeout=100ms", "--command-timeout=100ms", "get", "seat"]).is_err());
    etcd.resume();
    assert_eq!(etcd.etcdctl(&["get", "seat", "--print-value-only"]).unwrap().trim(), "taken");
    etcd.stop().unwrap();
    assert!(!etcd.process().runs());
}

#[test]
fn debians_keeps_its_word() {
    keeps_its_word(&Etcd::debian(), "3.4.");
}

#[test]
fn the_recent_one_keeps_its_word() {
    keeps_its_word(&Etcd::recent(), "3.5.");
}
