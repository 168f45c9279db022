//! A collector of traces: takes what is posted to it, and reads OTLP with a reader of its own, which knows protobuf's form and the numbers of OTLP's fields and no code of ours.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// What it answers to everything.
const TAKEN: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";

/// One that runs until the test ends.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    posts: Arc<Mutex<Vec<Post>>>,
}

/// What was posted.
#[derive(Clone)]
pub(crate) struct Post {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Collector {
    /// On loopback; port 0 is any.
    pub(crate) fn start(port: u16, tls: Option<Arc<ServerConfig>>) -> Collector {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let address = listener.local_addr().unwrap();
        let posts = Arc::<Mutex<Vec<Post>>>::default();
        let taken = Arc::clone(&posts);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (taken, tls) = (Arc::clone(&taken), tls.clone());
                std::thread::spawn(move || match tls {
                    Some(config) => take(StreamOwned::new(ServerConnection::new(config).unwrap(), stream), &taken),
                    None => take(stream, &taken),
                });
            }
        });
        Collector { address, posts }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn posts(&self) -> Vec<Post> {
        self.posts.lock().unwrap().clone()
    }

    /// All spans that have come.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.posts().iter().flat_map(|it| spans(&it.body)).collect()
    }

    /// Those of this name.
    pub(crate) fn named(&self, name: &str) -> Vec<Span> {
        self.spans().into_iter().filter(|it| it.name == name).collect()
    }
}

/// Takes what comes over one connection until it ends.
fn take(stream: impl Read + Write, taken: &Mutex<Vec<Post>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            match stream.read_line(&mut head) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        let length = head.lines().find_map(|it| it.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        let mut body = vec![0; length.unwrap()];
        stream.read_exact(&mut body).unwrap();
        taken.lock().unwrap().push(Post { head, body });
        if stream.get_mut().write_all(TAKEN).and_then(|()| stream.get_mut().flush()).is_err() {
            return;
        }
    }
}

/// A span as a collector sees it.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) kind: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) events: Vec<(String, u64)>,
    /// What went wrong, if something did.
    pub(crate) fault: Option<String>,
    /// Of the process.
    pub(crate) resource: Vec<(String, String)>,
}

pub(crate) const INTERNAL: u64 = 1;
pub(crate) const SERVER: u64 = 2;

impl Span {
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        found(&self.attributes, name)
    }

    pub(crate) fn of_process(&self, name: &str) -> Option<&str> {
        found(&self.resource, name)
    }

    pub(crate) fn event_names(&self) -> Vec<&str> {
        self.events.iter().map(|it| it.0.as_str()).collect()
    }
}

fn found<'a>(among: &'a [(String, String)], name: &str) -> Option<&'a str> {
    among.iter().find(|it| it.0 == name).map(|it| it.1.as_str())
}

fn spans(body: &[u8]) -> Vec<Span> {
    let mut spans = Vec::new();
    for resource_spans in parts(body, 1) {
        let resource: Vec<_> = parts(&resource_spans, 1).iter().flat_map(|it| attributes(it, 1)).collect();
        for scope_spans in parts(&resource_spans, 2) {
            spans.extend(parts(&scope_spans, 2).iter().map(|it| span(it, resource.clone())));
        }
    }
    spans
}

fn span(bytes: &[u8], resource: Vec<(String, String)>) -> Span {
    let hex = |field| parts(bytes, field).concat().iter().map(|it| format!("{it:02x}")).collect::<String>();
    let events = parts(bytes, 11);
    Span {
        name: text(bytes, 5),
        trace: hex(1),
        id: hex(2),
        parent: hex(4),
        kind: number(bytes, 6),
        start: number(bytes, 7),
        end: number(bytes, 8),
        attributes: attributes(bytes, 9),
        events: events.iter().map(|it| (text(it, 2), number(it, 1))).collect(),
        fault: parts(bytes, 15).first().filter(|it| number(it, 3) == 2).map(|it| text(it, 2)),
        resource,
    }
}

fn attributes(bytes: &[u8], field: u64) -> Vec<(String, String)> {
    let value = |any: &[u8]| match read(any).into_iter().next() {
        Some((1, Field::Part(text))) => String::from_utf8(text).unwrap(),
        Some((2, Field::Number(flag))) => (flag == 1).to_string(),
        Some((3, Field::Number(number))) => number.to_string(),
        other => panic!("{other:?} is no value"),
    };
    parts(bytes, field).iter().map(|it| (text(it, 1), value(&parts(it, 2).concat()))).collect()
}

#[derive(Debug)]
enum Field {
    Number(u64),
    Part(Vec<u8>),
}

fn parts(bytes: &[u8], field: u64) -> Vec<Vec<u8>> {
    let part = |(number, value)| match value {
        Field::Part(part) if number == field => Some(part),
        Field::Part(_) | Field::Number(_) => None,
    };
    read(bytes).into_iter().filter_map(part).collect()
}

fn text(bytes: &[u8], field: u64) -> String {
    String::from_utf8(parts(bytes, field).concat()).unwrap()
}

fn number(bytes: &[u8], field: u64) -> u64 {
    let number = |(number, value)| match value {
        Field::Number(value) if number == field => Some(value),
        Field::Number(_) | Field::Part(_) => None,
    };
    read(bytes).into_iter().find_map(number).unwrap_or(0)
}

/// Protobuf, field by field.
fn read(mut bytes: &[u8]) -> Vec<(u64, Field)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => Field::Number(u64::from_le_bytes(split(&mut bytes, 8).try_into().unwrap())),
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                Field::Part(split(&mut bytes, length).to_vec())
            }
            5 => Field::Number(u32::from_le_bytes(split(&mut bytes, 4).try_into().unwrap()).into()),
            other => panic!("{other} is no kind of field"),
        };
        fields.push((key >> 3, value));
    }
    fields
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = split(bytes, 1)[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    number
}

fn split<'a>(bytes: &mut &'a [u8], at: usize) -> &'a [u8] {
    let (head, rest) = bytes.split_at(at);
    *bytes = rest;
    head
}
