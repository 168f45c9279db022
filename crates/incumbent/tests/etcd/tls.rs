//! TLS: right certificates, wrong names, strangers, clients that must show who they are.

use incumbent::Engine;
use incumbent::engine::Kind;
use incumbent_testbed::{Certificates, Etcd, Server as _, WRONG_NAME};

use crate::support::{ETCD, LONG, bid, granted, jobs, leads, open, release, renewed};

/// Why nobody can elect anything there. Must be something that people can mend.
async fn refused(url: &str) -> String {
    let why = match open(url).await {
        Ok(engine) => engine.claim(&jobs(), &bid("a", LONG)).await.expect_err(url),
        Err(why) => why,
    };
    assert_eq!(why.kind(), Kind::Misconfigured, "{why}");
    assert!(!why.to_string().contains('\n'), "{why}");
    why.to_string()
}

async fn elects(engine: &dyn Engine) {
    let a = bid("a", LONG);
    let held = granted(engine, &a).await;
    assert!(renewed(engine, &a, held.token).await);
    release(engine, &a, held.token).await;
    leads(engine, &a).await;
}

#[tokio::test]
async fn a_certificate_is_checked_against_the_authority_and_the_name() {
    let certificates = Certificates::new().expect("written");
    let etcd = Etcd::debian().tls(certificates.server()).start().expect("starts");
    let (ca, stranger) = (certificates.authority().display().to_string(), certificates.stranger().display().to_string());
    let place = format!("etcd://{}/prod", etcd.address());
    elects(&*open(&format!("{place}?ca={ca}")).await.expect("a good certificate")).await;
    elects(&*open(&format!("etcd://localhost:{}/other?ca={ca}", etcd.port())).await.expect("by name, too")).await;
    let why = refused(&format!("{place}?ca={stranger}")).await;
    assert!(why.contains("ca="), "{why}");
    let why = refused(&format!("{place}?ca={ca}&server-name=db.example")).await;
    assert!(why.contains("server-name=") && why.contains("db.example"), "{why}");
    let why = refused(&format!("{place}?ca=/no/such/file")).await;
    assert!(why.contains("cannot read /no/such/file"), "{why}");
    // Without TLS: the server hangs up.
    let engine = open(&place).await.expect("it may be a passing trouble");
    let why = engine.look(&jobs()).await.expect_err("no TLS").to_string();
    assert!(why.contains("tls=on"), "{why}");
    // And the other way round.
    let engine = open(&format!("etcd://{}/prod?ca={ca}", ETCD.server().address())).await.expect("it may be a passing trouble");
    let why = engine.look(&jobs()).await.expect_err("no TLS there").to_string();
    assert!(why.contains("does it speak TLS"), "{why}");
}

#[tokio::test]
async fn whoever_logs_in_hears_what_is_wrong_with_tls_too() {
    let certificates = Certificates::new().expect("written");
    let etcd = Etcd::debian().tls(certificates.server()).start().expect("starts");
    let (ca, stranger) = (certificates.authority().display().to_string(), certificates.stranger().display().to_string());
    let place = format!("etcd://joe:secret@{}/prod", etcd.address());
    let why = refused(&format!("{place}?ca={stranger}")).await;
    assert!(why.contains("ca="), "{why}");
    let why = refused(&format!("{place}?ca={ca}&server-name=db.example")).await;
    assert!(why.contains("server-name=") && why.contains("db.example"), "{why}");
    let empty = certificates.client().key.display().to_string();
    let why = refused(&format!("{place}?ca={empty}")).await;
    assert!(why.contains("ca="), "{why}");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused_unless_that_is_the_name() {
    let certificates = Certificates::new().expect("written");
    let etcd = Etcd::recent().tls(certificates.wrong_name()).start().expect("starts");
    let ca = certificates.authority().display().to_string();
    let place = format!("etcd://{}/prod?ca={ca}", etcd.address());
    refused(&place).await;
    elects(&*open(&format!("{place}&server-name={WRONG_NAME}")).await.expect("that is its name")).await;
}

#[tokio::test]
async fn a_client_shows_its_certificate_where_it_must() {
    let certificates = Certificates::new().expect("written");
    let etcd = Etcd::debian().tls(certificates.server().requiring_clients()).start().expect("starts");
    let (ca, client) = (certificates.authority().display().to_string(), certificates.client());
    let place = format!("etcd://{}/prod?ca={ca}", etcd.address());
    let (cert, key) = (client.certificate.display(), client.key.display());
    elects(&*open(&format!("{place}&cert={cert}&key={key}")).await.expect("a good certificate")).await;
    // The server hangs up; whether its reason arrives before that is a matter of luck.
    let why = match open(&place).await {
        Ok(engine) => engine.look(&jobs()).await.expect_err("no certificate"),
        Err(why) => why,
    };
    assert!(why.to_string().contains("cert="), "{why}");
    refused(&format!("{place}&cert={key}&key={cert}")).await;
}
