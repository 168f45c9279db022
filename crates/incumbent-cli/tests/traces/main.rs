//! `--otlp`: what a collector gets of `incumbent serve` and `incumbent run`, read by a collector of the test's own.

mod collector;
#[path = "../places/mod.rs"]
mod places;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::Arc;

use collector::{Collector, INTERNAL, SERVER, Span};
use incumbent_testbed::port::Port;
use incumbent_testbed::{Certificates, Contender, eventually};
use places::{Places, code, incumbent};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Nothing around the test says where traces go.
const VARIABLES: [&str; 5] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_SDK_DISABLED",
    "OTEL_SERVICE_NAME",
];

fn quiet(mut command: Command) -> Command {
    for name in VARIABLES {
        command.env(name, "");
    }
    command
}

/// One node with these options and variables.
fn serve(places: &Places, more: &[&str], variables: &[(&str, &str)]) -> Contender {
    let (clients, nodes) = places.addresses[0];
    let mut command = quiet(incumbent(&["serve", "--listen", &clients.to_string(), "--peer-listen", &nodes.to_string()]));
    command.arg("--data").arg(places.path("1")).args(more).envs(variables.iter().copied());
    let node = Contender::start(&command).unwrap();
    node.hear("where it serves", |line| line.starts_with("serving clients on "));
    node
}

/// Asks by HTTP, and returns the whole answer.
fn ask_http(places: &Places, head: &str, headers: &[&str], body: &str) -> String {
    let mut stream = TcpStream::connect(places.addresses[0].0).unwrap();
    let mut request = format!("{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for header in headers {
        request += &format!("{header}\r\n");
    }
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The secret of a new token, and its line.
fn token(words: &[&str]) -> (String, String) {
    let made = incumbent(&[&["token", "new"], words].concat()).output().unwrap();
    let said = String::from_utf8(made.stdout).unwrap();
    let mut lines = said.lines();
    (lines.next().unwrap().to_owned(), lines.next().unwrap().to_owned())
}

fn is_in(bytes: &[u8], what: &str) -> bool {
    bytes.windows(what.len()).any(|it| it == what.as_bytes())
}

/// What there is once it is there.
#[track_caller]
fn first(collector: &Collector, what: &str, is_it: impl Fn(&Span) -> bool) -> Span {
    let mut span = None;
    eventually(what, || {
        span = collector.spans().into_iter().find(|it| is_it(it));
        span.is_some()
    });
    span.unwrap()
}

#[test]
fn each_request_is_a_span_that_says_what_came_of_it_and_no_secret() {
    let (collector, places) = (Collector::start(0, None), Places::of(1));
    let (root, root_line) = token(&["root", "--admin", ""]);
    let (guest, guest_line) = token(&["guest", "--read", "config/", "--write", "other/"]);
    let tokens = places.path("tokens");
    fs::write(&tokens, format!("{root_line}\n{guest_line}\n")).unwrap();
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).unwrap();
    let node = serve(&places, &["--otlp", &collector.url(), "--tokens", tokens.to_str().unwrap()], &[]);
    let (root_file, guest_file) = (places.path("root"), places.path("guest"));
    for (file, secret) in [(&root_file, &root), (&guest_file, &guest)] {
        fs::write(file, secret).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let ask = |file: &std::path::Path, words: &[&str]| {
        let url = format!("{}?password-file={}", places.url(), file.display());
        incumbent(words).args(["--on", &url]).output().unwrap()
    };
    assert_eq!(code(&ask(&root_file, &["kv", "put", "config/seldom", "unspeakable"])), 0);
    assert_eq!(code(&ask(&root_file, &["kv", "get", "config/seldom"])), 0);
    assert_eq!(code(&ask(&root_file, &["elections"])), 0);
    assert_eq!(code(&ask(&root_file, &["cluster", "status"])), 0);
    assert_ne!(code(&ask(&guest_file, &["kv", "put", "config/seldom", "unspeakable"])), 0);
    let bearer = format!("Authorization: Bearer {root}");
    let caller = format!("traceparent: {CALLER}");
    let path = "/v1/kv/config/by-http-alone";
    assert!(ask_http(&places, &format!("PUT {path}"), &[&bearer, &caller], "unspeakable").starts_with("HTTP/1.1 200"));
    assert!(ask_http(&places, &format!("GET {path}"), &["Authorization: Bearer wrong-but-dear"], "").starts_with("HTTP/1.1 401"));
    assert!(ask_http(&places, "GET /v1/elections", &[&bearer, &caller.replace("-01", "-00")], "").starts_with("HTTP/1.1 200"));
    assert!(ask_http(&places, "GET /health", &[], "").starts_with("HTTP/1.1 200"));
    assert!(ask_http(&places, "GET /v1/nowhere-at-all", &[&bearer], "").starts_with("HTTP/1.1 404"));

    let is_write = |it: &Span| it.kind == SERVER && matches!(it.name.as_str(), "put" | "transact");
    let done = first(&collector, "what was written", |it| is_write(it) && it.attribute("incumbent.outcome") == Some("done"));
    assert_eq!((done.attribute("incumbent.keys_under"), done.parent.as_str(), &done.fault), (Some("config/"), "", &None));
    assert!(done.attribute("incumbent.revision").is_some() && done.attribute("incumbent.term").is_some(), "{done:?}");
    assert_eq!(done.event_names(), ["taken", "decided"], "{done:?}");
    let times: Vec<u64> = [done.start].into_iter().chain(done.events.iter().map(|it| it.1)).chain([done.end]).collect();
    assert!(times.is_sorted() && times[0] > 1_700_000_000_000_000_000, "{times:?}");
    assert_eq!((done.trace.len(), done.id.len()), (32, 16));
    assert_eq!(done.of_process("service.name"), Some("incumbent"));
    assert_eq!(done.of_process("service.instance.id"), Some("node-1.incumbent"));
    assert_eq!(done.of_process("incumbent.node"), Some("1"));
    let refused =
        first(&collector, "what was refused", |it| is_write(it) && it.attribute("incumbent.outcome") == Some("refused"));
    assert_eq!((refused.attribute("incumbent.reason"), &refused.fault), (Some("denied"), &None));
    let read = first(&collector, "what was read", |it| it.name == "range");
    assert_eq!((read.kind, read.event_names()), (SERVER, vec!["taken", "confirmed"]));
    first(&collector, "the list", |it| it.name == "list elections" && it.kind == SERVER);
    first(&collector, "the errand", |it| it.name == "cluster status" && it.attribute("incumbent.outcome") == Some("done"));

    let by_http = first(&collector, "the request by HTTP", |it| it.name == "PUT /v1/kv/{key*}");
    assert_eq!((by_http.trace.as_str(), by_http.parent.as_str(), by_http.kind), (TRACE, "00f067aa0ba902b7", SERVER));
    assert_eq!(by_http.attribute("http.response.status_code"), Some("200"));
    let below = first(&collector, "what it asked of the node", |it| it.parent == by_http.id);
    assert_eq!((below.trace.as_str(), below.kind, below.attribute("incumbent.outcome")), (TRACE, INTERNAL, Some("done")));
    let stranger = first(&collector, "the stranger", |it| it.name == "GET /v1/kv/{key*}");
    assert_eq!((stranger.attribute("error.type"), &stranger.fault), (Some("no_token"), &None));
    assert_ne!(stranger.trace, TRACE);
    let nowhere = first(&collector, "what is nowhere", |it| it.attribute("http.response.status_code") == Some("404"));
    assert_eq!((nowhere.name.as_str(), nowhere.attribute("error.type")), ("http", Some("no_route")));

    node.stop().unwrap();
    assert!(collector.named("GET /v1/elections").is_empty(), "its caller does not want it told");
    assert!(collector.spans().iter().all(|it| !it.name.contains("/health")), "probes are not told");
    for post in collector.posts() {
        assert!(post.head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{}", post.head);
        assert!(post.head.to_ascii_lowercase().contains("content-type: application/x-protobuf\r\n"), "{}", post.head);
        for secret in [&*root, &*guest, "unspeakable", "wrong-but-dear", "seldom", "by-http-alone", "nowhere-at-all"] {
            assert!(!is_in(&post.body, secret) && !post.head.contains(secret), "{secret} is told");
        }
    }
}

#[test]
fn what_is_left_is_sent_when_the_node_is_told_to_end_and_it_says_how_it_led() {
    let (collector, places) = (Collector::start(0, None), Places::of(1));
    let node = serve(&places, &[], &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url()), ("OTEL_SERVICE_NAME", "ballots")]);
    assert_eq!(code(&places.ask(&["kv", "put", "a", "1"])), 0);
    node.stop().unwrap();
    // It has ended, so whatever it was going to send is here.
    let spans = collector.spans();
    let written = spans.iter().find(|it| matches!(it.name.as_str(), "put" | "transact")).unwrap_or_else(|| panic!("{spans:?}"));
    assert_eq!(written.of_process("service.name"), Some("ballots"));
    let elected = collector.named("leader election");
    let elected = elected.last().unwrap_or_else(|| panic!("{spans:?}"));
    assert_eq!((elected.attribute("incumbent.leader"), elected.attribute("incumbent.leads")), (Some("1"), Some("true")));
    assert_eq!(elected.attribute("incumbent.why"), Some("this node has started"));
    let led = collector.named("leads");
    assert_eq!(led.len(), 1, "{spans:?}");
    assert_eq!(led[0].attribute("incumbent.why"), Some("this node has ended"));
    assert_eq!(led[0].attribute("incumbent.term"), elected.attribute("incumbent.term"));
    assert!(led[0].start <= written.start && written.end <= led[0].end);
}

#[test]
fn a_collector_that_is_away_costs_nobody_anything_and_is_said_once() {
    let (port, places) = (Port::free().unwrap(), Places::of(1));
    let url = format!("http://127.0.0.1:{}", port.number());
    let broken = TcpListener::bind(("127.0.0.1", port.number())).unwrap();
    let node = serve(&places, &["--otlp", &url], &[]);
    let said = |what: &str| node.process().log_tail(1000).lines().filter(|it| it.contains(what)).count();
    for _ in 0..3 {
        assert_eq!(code(&places.ask(&["kv", "put", "a", "1"])), 0);
    }
    eventually("it says so", || {
        drop(broken.accept().unwrap());
        said("traces cannot be sent now") > 0
    });
    for _ in 0..2 {
        drop(broken.accept().unwrap());
    }
    drop(broken);
    let metrics = ask_http(&places, "GET /metrics", &[], "");
    assert!(metrics.contains("incumbent_service_spans_exported_total 0\n"), "{metrics}");
    let collector = Collector::start(port.number(), None);
    eventually("it is tried again", || !collector.spans().is_empty());
    eventually("and said that it is well", || said("takes them again") == 1);
    assert_eq!(said("traces cannot be sent now"), 1);
    assert!(collector.spans().iter().any(|it| matches!(it.name.as_str(), "put" | "transact")), "what was kept has come");
    let metrics = ask_http(&places, "GET /metrics", &[], "");
    assert!(metrics.contains("incumbent_service_spans_dropped_total 0\n"), "{metrics}");
    assert!(!metrics.contains("incumbent_service_spans_exported_total 0\n"), "{metrics}");
    node.stop().unwrap();
}

#[test]
fn a_node_ends_in_time_although_its_collector_takes_connections_and_says_nothing() {
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let places = Places::of(1);
    let url = format!("http://{}", mute.local_addr().unwrap());
    let node = serve(&places, &["--otlp", &url], &[]);
    assert_eq!(code(&places.ask(&["kv", "put", "a", "1"])), 0);
    let began = std::time::Instant::now();
    node.stop().unwrap();
    assert!(began.elapsed() < std::time::Duration::from_secs(8), "it took {:?}", began.elapsed());
}

#[test]
fn beyond_loopback_there_is_tls_and_the_certificate_is_checked() {
    let (certificates, places) = (Certificates::new().unwrap(), Places::of(1));
    let pair = certificates.both_ways("localhost").unwrap();
    let chain: Vec<_> = CertificateDer::pem_file_iter(&pair.certificate).unwrap().map(Result::unwrap).collect();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(chain, PrivateKeyDer::from_pem_file(&pair.key).unwrap()).unwrap();
    let collector = Collector::start(0, Some(Arc::new(config)));
    let url = format!("https://localhost:{}", collector.address.port());
    let stranger = certificates.stranger();
    let node = serve(&places, &["--otlp", &url, "--otlp-ca", stranger.to_str().unwrap()], &[]);
    eventually("it is refused", || node.process().log_tail(1000).contains("traces cannot be sent now"));
    node.stop().unwrap();
    assert!(collector.posts().is_empty(), "nothing is told to a stranger");
    let authority = certificates.authority();
    let headers = [("OTEL_EXPORTER_OTLP_HEADERS", "api-key=dear%2Cvery")];
    let node = serve(&places, &["--otlp", &url, "--otlp-ca", authority.to_str().unwrap()], &headers);
    eventually("it is trusted", || !collector.spans().is_empty());
    assert!(collector.posts()[0].head.contains("api-key: dear,very\r\n"), "{}", collector.posts()[0].head);
    node.stop().unwrap();
    assert!(!node.process().log_tail(1000).contains("dear"));
}

#[test]
fn mistakes_are_told_and_those_of_the_environment_keep_no_node_from_serving() {
    let places = Places::of(1);
    let data = places.path("other");
    for (url, word) in [
        ("http://10.255.255.1:4318", "run a collector on this machine"),
        ("http://collector.example.org:4318", "say https"),
        ("127.0.0.1:4318", "http://127.0.0.1:4318"),
    ] {
        for words in [&["serve", "--data", data.to_str().unwrap()][..], &["run", "job", "--on", "redis://127.0.0.1:1/"][..]] {
            let mut command = quiet(incumbent(words));
            command.args(["--otlp", url]);
            if words[0] == "run" {
                command.args(["--", "true"]);
            }
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && said.contains(word) && said.contains("--otlp"), "{words:?} {url}: {said}");
        }
    }
    assert!(!data.exists(), "nothing was begun");
    let node = serve(&places, &[], &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317")]);
    assert_eq!(code(&places.ask(&["kv", "put", "a", "1"])), 0);
    let said = node.process().log_tail(100);
    assert!(said.contains("nothing is traced") && said.contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{said}");
    node.stop().unwrap();
}

#[test]
fn a_candidacy_is_a_trace_that_the_command_may_go_on_with() {
    let (collector, folder) = (Collector::start(0, None), tempfile::tempdir().unwrap());
    let seen = folder.path().join("seen");
    let url = format!("file:{}", folder.path().join("elections").display());
    let mut command = quiet(incumbent(&["run", "nightly", "--on", &url, "--identity", "web-1", "--otlp", &collector.url()]));
    command.args(["--", "sh", "-c", "echo $TRACEPARENT > \"$0\"; exit 7"]).arg(&seen);
    assert_eq!(code(&command.output().unwrap()), 7);
    let spans = collector.spans();
    let (campaign, office) = (&collector.named("campaign")[0], &collector.named("in office")[0]);
    assert_eq!((spans.len(), campaign.attribute("incumbent.election")), (2, Some("nightly")));
    assert_eq!(campaign.attribute("incumbent.outcome"), Some("elected"));
    assert_eq!((&office.trace, &office.parent), (&campaign.trace, &campaign.id));
    assert_eq!(office.event_names(), ["command started", "command dead", "released"]);
    assert_eq!(office.attribute("incumbent.outcome"), Some("command ended"));
    assert_eq!(office.attribute("process.exit.code"), Some("7"));
    assert!(office.of_process("service.instance.id").is_some_and(|it| it.starts_with("web-1")), "{office:?}");
    assert_eq!(fs::read_to_string(seen).unwrap().trim(), format!("00-{}-{}-01", office.trace, office.id));
}

#[test]
fn a_command_that_is_told_to_end_is_told_why() {
    let (collector, folder) = (Collector::start(0, None), tempfile::tempdir().unwrap());
    let url = format!("file:{}", folder.path().join("elections").display());
    let mut command = quiet(incumbent(&["run", "nightly", "--on", &url, "--otlp", &collector.url()]));
    command.args(["--", "sh", "-c", "echo begun; exec sleep 600"]);
    let leading = Contender::start(&command).unwrap();
    leading.hear("the command", |line| line == "begun");
    leading.stop().unwrap();
    let office = &collector.named("in office")[0];
    assert_eq!(office.attribute("incumbent.why"), Some("told to end"));
    assert_eq!(office.event_names()[..2], ["command started", "stopping"]);
    assert_eq!(office.event_names().last(), Some(&"released"));
}

#[test]
fn who_gives_the_lead_away_says_why_and_the_others_who_has_it() {
    let (collector, places) = (Collector::start(0, None), Places::of(3));
    let start = |node: usize| places.serve(node, &[1, 2, 3], &["--otlp", &collector.url()]);
    let mut nodes: Vec<_> = (1..=3).map(start).collect();
    // A busy machine may make another lead between the look and the signal: then it is looked again.
    for _ in 0..10 {
        let mut leader = 0;
        eventually("somebody leads", || {
            let status = places.json(&["cluster", "status"]);
            leader = usize::try_from(status["leader"].as_u64().unwrap_or(0)).unwrap();
            leader != 0
        });
        let began = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
        nodes[leader - 1].stop().unwrap();
        let of_leader = |it: &Span| it.of_process("incumbent.node") == Some(&leader.to_string());
        let led = collector.named("leads").into_iter().rfind(of_leader);
        let Some(led) = led.filter(|it| u128::from(it.end) >= began) else {
            nodes[leader - 1] = start(leader);
            continue;
        };
        assert_eq!(led.attribute("incumbent.why"), Some("this node is closing, and gave the lead away"), "{led:?}");
        let term = |it: &Span| it.attribute("incumbent.term").unwrap().parse::<u64>().unwrap();
        let is_next = |it: &Span| it.name == "leader election" && !of_leader(it) && term(it) > term(&led);
        let next = first(&collector, "the others tell who leads", is_next);
        assert_ne!(next.attribute("incumbent.leader"), Some(&*leader.to_string()));
        return;
    }
    panic!("nobody led for long enough");
}
