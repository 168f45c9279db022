//! `incumbent fence` as storage and its clients see it: what passes, what is refused, what waits for what, and the end in good order.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::{Arc, Condvar, Mutex};

use incumbent_testbed::{Contender, eventually};

/// Answers everything with 200 once it has all of it, and notes what it was sent, byte by byte, and that it has answered.
#[derive(Clone)]
struct Storage {
    address: SocketAddr,
    received: Arc<Mutex<String>>,
    answers: Arc<(Mutex<Answers>, Condvar)>,
}

/// What clients get before the storage is told to answer in full.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Answers {
    Whole,
    Nothing,
    /// The head, as storages send it that need long for what they promise in it.
    Head,
}

impl Storage {
    fn start() -> Storage {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let storage =
            Storage { address, received: Arc::default(), answers: Arc::new((Mutex::new(Answers::Whole), Condvar::new())) };
        let server = storage.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = server.clone();
                std::thread::spawn(move || server.serve(stream));
            }
        });
        storage
    }

    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        loop {
            let (mut length, mut chunked) = (0, false);
            while let Some(line) = self.line(&mut reader).filter(|it| it != "\r\n") {
                let line = line.to_ascii_lowercase();
                chunked |= line.starts_with("transfer-encoding: chunked");
                length = line.strip_prefix("content-length:").map_or(length, |it| it.trim().parse().unwrap());
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).ok()?;
            self.received.lock().unwrap().push_str(&String::from_utf8_lossy(&body));
            while chunked && self.line(&mut reader)? != "0\r\n" {}
            if chunked {
                self.line(&mut reader)?;
            }
            let (answers, changed) = &*self.answers;
            let early = *answers.lock().unwrap() == Answers::Head;
            if early {
                stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n \r\n").ok()?;
            }
            drop(changed.wait_while(answers.lock().unwrap(), |it| *it != Answers::Whole).unwrap());
            self.received.lock().unwrap().push_str("(answered)");
            let whole = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nkeep-alive: timeout=5\r\nx-from: storage\r\n\r\nhello";
            let rest = if early { "5\r\nhello\r\n0\r\n\r\n" } else { whole };
            stream.write_all(rest.as_bytes()).ok()?;
        }
    }

    fn line(&self, reader: &mut BufReader<TcpStream>) -> Option<String> {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        self.received.lock().unwrap().push_str(&line);
        Some(line)
    }

    fn has(&self, text: &str) -> bool {
        self.received.lock().unwrap().contains(text)
    }

    /// What it answers from now on.
    fn answer(&self, now: Answers) {
        *self.answers.0.lock().unwrap() = now;
        self.answers.1.notify_all();
    }
}

struct Proxy {
    process: Contender,
    address: SocketAddr,
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent"));
    command.arg("fence").args(arguments);
    command
}

fn start(storage: &Storage, store: &tempfile::TempDir, more: &[&str]) -> Proxy {
    let (to, store) = (format!("http://{}", storage.address), store.path().to_str().unwrap());
    let mut command = command(&["proxy", "--listen", "127.0.0.1:0", "--to", &to, "--store", store]);
    command.args(more);
    let process = Contender::start(&command).unwrap();
    let line = process.hear("where it listens", |line| line.starts_with("listening on "));
    let address = line.split(' ').nth(2).unwrap().parse().unwrap();
    Proxy { process, address }
}

impl Proxy {
    /// Sends a request as it stands and returns the answer as it stands.
    fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn put(&self, path: &str, token: u64) -> String {
        self.raw(&format!(
            "PUT {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nincumbent-token: {token}\r\ncontent-length: 4\r\n\r\nbody"
        ))
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn stale_requests_do_not_reach_the_storage_even_after_a_restart() {
    let (storage, store) = (Storage::start(), folder());
    let proxy = start(&storage, &store, &[]);
    assert!(proxy.put("/billing/a", 7).starts_with("HTTP/1.1 200"));
    assert!(proxy.put("/billing/b", 8).starts_with("HTTP/1.1 200"));
    proxy.process.kill();
    let proxy = start(&storage, &store, &[]);
    let refused = proxy.put("/billing/c", 7);
    assert!(refused.starts_with("HTTP/1.1 412") && refused.contains("incumbent-seen: 8\r\n"), "{refused}");
    assert!(refused.contains("stale token 7 for billing: 8 has been seen"), "{refused}");
    assert!(proxy.put("/other/d", 1).starts_with("HTTP/1.1 200"));
    let get = "GET /billing/e HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert!(proxy.raw(get).ends_with("\r\n\r\nhello"));
    for odd in
        [get.replace("GET", "DELETE"), get.replace("GET", "CONNECT"), get.replace("host: x", "host: x\r\nincumbent-token: x")]
    {
        let answer = proxy.raw(&odd);
        assert!(answer.starts_with("HTTP/1.1 400") || answer.starts_with("HTTP/1.1 501"), "{answer}");
    }
    assert!(storage.has("PUT /billing/b HTTP/1.1\r\n") && !storage.has("/billing/c") && !storage.has("DELETE"));
}

#[test]
fn headers_of_one_hop_stay_there_and_all_others_pass() {
    let (storage, store) = (Storage::start(), folder());
    let proxy = start(&storage, &store, &["--resource", "all", "--reads", "token"]);
    let get =
        "GET /x?y=z HTTP/1.1\r\nhost: storage.example\r\nconnection: close, x-hop\r\nx-hop: 1\r\nte: trailers\r\nx-mine: 2\r\n";
    assert!(proxy.raw(&format!("{get}\r\n")).starts_with("HTTP/1.1 400"), "reads need a token here");
    let answer = proxy.raw(&format!("{get}incumbent-token: 5\r\n\r\n"));
    assert!(answer.contains("x-from: storage\r\n") && !answer.contains("keep-alive"), "{answer}");
    for there in ["GET /x?y=z HTTP/1.1", "host: storage.example", "x-mine: 2", "via: 1.1 incumbent", "incumbent-token: 5"] {
        assert!(storage.has(there), "{there}");
    }
    assert!(!storage.has("x-hop") && !storage.has("te: "));
    assert!(proxy.put("/quite/another/path", 4).starts_with("HTTP/1.1 412"));
}

#[test]
fn an_offer_of_http2_is_passed_over_and_other_upgrades_are_refused() {
    let (storage, store) = (Storage::start(), folder());
    let proxy = start(&storage, &store, &[]);
    let get = "GET /x HTTP/1.1\r\nhost: x\r\nconnection: close, upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n\r\n";
    let answer = proxy.raw(get);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(!storage.has("upgrade") && !storage.has("http2-settings"));
    assert!(proxy.raw(&get.replace("h2c", "websocket")).starts_with("HTTP/1.1 501"));
}

#[test]
fn bodies_are_streamed() {
    let (storage, store) = (Storage::start(), folder());
    let proxy = start(&storage, &store, &[]);
    let mut stream = TcpStream::connect(proxy.address).unwrap();
    let head = "POST /a/b HTTP/1.1\r\nhost: x\r\nconnection: close\r\nincumbent-token: 1\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(format!("{head}5\r\nfirst\r\n").as_bytes()).unwrap();
    eventually("the storage has the first part", || storage.has("first"));
    stream.write_all(b"6\r\nsecond\r\n0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && storage.has("second"), "{answer}");
}

#[test]
fn a_greater_token_waits_until_the_storage_has_answered_smaller_ones() {
    let (storage, store) = (Storage::start(), folder());
    let proxy = start(&storage, &store, &[]);
    storage.answer(Answers::Nothing);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| proxy.put("/b/one", 1));
        eventually("the first is at the storage", || storage.has("/b/one"));
        let second = scope.spawn(|| proxy.put("/b/two", 2));
        let record = store.path().join(".incumbent-fence/b.token");
        eventually("the second has been seen", || std::fs::read_to_string(&record).is_ok_and(|it| it == "2\n"));
        assert!(proxy.put("/b/three", 1).starts_with("HTTP/1.1 412"));
        assert!(!storage.has("/b/two"), "it must wait for the first");
        storage.answer(Answers::Whole);
        assert!(first.join().unwrap().starts_with("HTTP/1.1 200"));
        assert!(second.join().unwrap().starts_with("HTTP/1.1 200"));
    });
    assert!(storage.has("/b/two") && !storage.has("/b/three"));
}

#[test]
fn a_greater_token_waits_for_the_end_of_an_answer_even_if_nobody_listens_to_it() {
    let (storage, store) = (Storage::start(), folder());
    let proxy = start(&storage, &store, &[]);
    storage.answer(Answers::Head);
    let put = "PUT /b/one HTTP/1.1\r\nhost: x\r\nconnection: close\r\nincumbent-token: 1\r\ncontent-length: 4\r\n\r\nbody";
    let mut listener = TcpStream::connect(proxy.address).unwrap();
    let mut leaver = TcpStream::connect(proxy.address).unwrap();
    listener.write_all(put.as_bytes()).unwrap();
    leaver.write_all(put.replace("one", "two").as_bytes()).unwrap();
    for stream in [&mut listener, &mut leaver] {
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).unwrap();
        assert_eq!(&begin, b"HTTP/1.1 200");
    }
    drop(leaver);
    std::thread::scope(|scope| {
        let greater = scope.spawn(|| proxy.put("/b/three", 2));
        let record = store.path().join(".incumbent-fence/b.token");
        eventually("the greater has been seen", || std::fs::read_to_string(&record).is_ok_and(|it| it == "2\n"));
        assert!(proxy.put("/b/four", 1).starts_with("HTTP/1.1 412"));
        storage.answer(Answers::Whole);
        let mut answer = String::new();
        listener.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("5\r\nhello\r\n0\r\n\r\n"), "{answer}");
        assert!(greater.join().unwrap().starts_with("HTTP/1.1 200"));
    });
    let received = storage.received.lock().unwrap().clone();
    let (before, _) = received.split_once("/b/three").unwrap();
    assert_eq!(before.matches("(answered)").count(), 2, "{received}");
}

#[test]
fn told_to_stop_it_ends_what_is_under_way_and_takes_nothing_more() {
    let (storage, store) = (Storage::start(), folder());
    let proxy = start(&storage, &store, &[]);
    storage.answer(Answers::Nothing);
    std::thread::scope(|scope| {
        let under_way = scope.spawn(|| proxy.put("/b/one", 1));
        eventually("it is at the storage", || storage.has("/b/one"));
        let stopped = scope.spawn(|| proxy.process.stop());
        eventually("nobody is let in any more", || TcpStream::connect(proxy.address).is_err());
        storage.answer(Answers::Whole);
        assert!(under_way.join().unwrap().ends_with("hello"));
        stopped.join().unwrap().unwrap();
    });
    assert_eq!(proxy.process.wait(), Some(0));
}

#[test]
fn what_cannot_be_is_said() {
    let (storage, store) = (Storage::start(), folder());
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = start(&Storage { address: gone, ..storage }, &store, &[]);
    let answer = proxy.put("/a/b", 1);
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("nothing was done"), "{answer}");
    let taken = store.path().to_str().unwrap();
    let other = folder();
    let free = other.path().to_str().unwrap();
    for (listen, to, store, says) in [
        ("127.0.0.1:0", "http://127.0.0.1:9", taken, "another proxy uses"),
        ("127.0.0.1:0", "https://127.0.0.1:9", free, "http://HOST:PORT"),
        ("127.0.0.1:0", "http://127.0.0.1:9/path", free, "has a path"),
        ("127.0.0.1:0", "http://u:secret@127.0.0.1:9", free, "names a user"),
        ("0.0.0.0:0", "http://127.0.0.1:9", free, "--unprotected"),
        ("127.0.0.1:0", "http://127.0.0.1:9", "/proc/no/such", "--store"),
        ("nowhere", "http://127.0.0.1:9", free, "invalid"),
    ] {
        let Output { status, stdout, stderr } =
            command(&["proxy", "--listen", listen, "--to", to, "--store", store]).output().unwrap();
        let complaint = String::from_utf8(stderr).unwrap();
        assert!(status.code() == Some(2) && stdout.is_empty() && complaint.contains(says), "{says}: {status} {complaint}");
        assert!(!complaint.contains("secret"), "{complaint}");
    }
    for name in ["", &"x".repeat(81)] {
        let words = ["proxy", "--listen", "127.0.0.1:0", "--to", "http://127.0.0.1:9", "--store", free, "--resource", name];
        let Output { status, stdout, stderr } = command(&words).output().unwrap();
        let complaint = String::from_utf8(stderr).unwrap();
        assert!(status.code() == Some(2) && stdout.is_empty() && complaint.contains("1 to 80"), "{status} {complaint}");
    }
}

#[test]
fn the_sql_is_printed_as_the_library_has_it() {
    let printed = command(&["sql", "--for", "postgres"]).output().unwrap();
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), incumbent::fence::postgres::SQL);
    assert_eq!(command(&["sql", "--for", "oracle"]).output().unwrap().status.code(), Some(2));
}
