//! NATS starts with JetStream, answers, restarts with its data, wants credentials where told so, and counts what it is asked.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use incumbent_testbed::{Nats, Server as _};

/// Publishes `payload` to `subject` and returns the reply, or the server's error.
fn request(nats: &Nats, credentials: &str, subject: &str, payload: &str) -> Result<String, String> {
    let mut stream = TcpStream::connect(nats.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let size = payload.len();
    let connect = format!(
        "CONNECT {{\"verbose\":false{credentials}}}\r\nSUB reply 1\r\nPUB {subject} reply {size}\r\n{payload}\r\nPING\r\n"
    );
    stream.write_all(connect.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(head) = line.strip_prefix("MSG ") {
            let size: usize = head.split_whitespace().last().unwrap().parse().unwrap();
            let mut body = vec![0; size];
            reader.read_exact(&mut body).unwrap();
            return Ok(String::from_utf8(body).unwrap());
        }
        if line.starts_with("-ERR") || line.is_empty() {
            return Err(line);
        }
    }
}

#[test]
fn it_keeps_its_word() {
    let nats = Nats::recent().start().unwrap();
    let made =
        request(&nats, "", "$JS.API.STREAM.CREATE.SEATS", r#"{"name":"SEATS","subjects":["seat"],"storage":"file"}"#).unwrap();
    assert!(made.contains("\"SEATS\""), "{made}");
    let before = nats.requests().unwrap();
    let kept = request(&nats, "", "seat", "taken").unwrap();
    assert!(kept.contains("\"seq\":1"), "{kept}");
    assert_eq!(nats.requests().unwrap().since(&before).of("messages"), 1);

    let port = nats.port();
    nats.kill();
    assert!(TcpStream::connect(nats.address()).is_err());
    nats.restart().unwrap();
    assert_eq!(nats.port(), port);
    let kept = request(&nats, "", "seat", "taken").unwrap();
    assert!(kept.contains("\"seq\":2"), "it has forgotten the first: {kept}");
    nats.stop().unwrap();
}

#[test]
fn credentials_are_wanted_where_told_so() {
    let nats = Nats::recent().password("app", "open-sesame").start().unwrap();
    assert!(request(&nats, "", "$JS.API.INFO", "").is_err());
    assert!(request(&nats, ",\"user\":\"app\",\"pass\":\"open-sesame\"", "$JS.API.INFO", "").unwrap().contains("streams"));
    let nats = Nats::recent().token("open-sesame").start().unwrap();
    assert!(request(&nats, "", "$JS.API.INFO", "").is_err());
    assert!(request(&nats, ",\"auth_token\":\"open-sesame\"", "$JS.API.INFO", "").unwrap().contains("streams"));
}
