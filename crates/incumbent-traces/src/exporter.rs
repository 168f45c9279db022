//! Takes what has ended to the collector, a batch at a time over one connection, until it is closed and nothing is left.
//!
//! What the collector cannot take now is kept and tried again, ever more seldom; what it refuses is dropped. Each is said once, and that it is over.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::collector::Collector;
use super::{Desk, Source, wire};

/// What has ended is sent so often, or sooner if a batch is full.
const EXPORT_EVERY: Duration = Duration::from_millis(500);

/// A collector that has not answered by then is away.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Between the first two tries; each wait is twice the last.
const BACK_OFF_MIN: Duration = Duration::from_millis(500);

/// Never longer than this: a collector that is back should not be waited for.
const BACK_OFF_MAX: Duration = Duration::from_secs(30);

/// Of an answer, what is read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// What came of a request.
enum Sent {
    /// All but so many were taken.
    Taken { rejected: u64 },
    /// It may be taken later: why not now.
    NotNow(String),
    /// It never will be: why not.
    Refused(String),
}

/// Until it is closed.
pub(super) async fn run(desk: &Arc<Desk>, collector: Collector, source: &Source) {
    let mut exporter = Exporter { desk: Arc::clone(desk), collector, line: None, trouble: None };
    let mut closing = desk.closing.subscribe();
    loop {
        let is_closing = tokio::select! {
            biased;
            _ = closing.wait_for(|it| *it) => true,
            () = desk.full.notified() => false,
            () = sleep(EXPORT_EVERY) => false,
        };
        loop {
            let spans = desk.take();
            if spans.is_empty() {
                break;
            }
            exporter.export(wire::encode(source, &spans).into(), spans.len()).await;
        }
        if is_closing {
            return;
        }
    }
}

struct Exporter {
    desk: Arc<Desk>,
    collector: Collector,
    line: Option<SendRequest<Full<Bytes>>>,
    /// What was last said of it.
    trouble: Option<Trouble>,
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Trouble {
    Away,
    Refuses,
}

impl Exporter {
    /// Until it is taken or refused; or, when closing, tried.
    async fn export(&mut self, body: Bytes, count: usize) {
        let mut closing = self.desk.closing.subscribe();
        let mut wait = BACK_OFF_MIN;
        loop {
            match self.send(body.clone()).await {
                Sent::Taken { rejected } => {
                    let rejected = usize::try_from(rejected).unwrap_or(count).min(count);
                    self.desk.drop_some(rejected);
                    self.desk.exported.fetch_add((count - rejected) as u64, Ordering::Relaxed);
                    if self.trouble.take().is_some() {
                        tracing::warn!(collector = %self.collector.place(), "the collector of traces takes them again");
                    }
                    return;
                }
                Sent::Refused(why) => {
                    self.say(Trouble::Refuses, &why);
                    return self.desk.drop_some(count);
                }
                Sent::NotNow(why) => self.say(Trouble::Away, &why),
            }
            if *closing.borrow() {
                return self.desk.drop_some(count);
            }
            tokio::select! {
                () = sleep(wait) => {}
                _ = closing.wait_for(|it| *it) => {}
            }
            wait = (wait * 2).min(BACK_OFF_MAX);
        }
    }

    /// Once for each kind of trouble.
    fn say(&mut self, trouble: Trouble, why: &str) {
        if self.trouble.replace(trouble) == Some(trouble) {
            return;
        }
        let collector = self.collector.place();
        match trouble {
            Trouble::Away => {
                tracing::warn!(%collector, %why, "traces cannot be sent now: they are tried again, and those that are too many are dropped; nothing else waits for it");
            }
            Trouble::Refuses => {
                tracing::warn!(%collector, %why, "the collector refuses traces, and they are dropped: look at its address and at what it wants (OTEL_EXPORTER_OTLP_HEADERS)");
            }
        }
    }

    async fn send(&mut self, body: Bytes) -> Sent {
        let sent = timeout(ANSWER_WITHIN, self.ask(body)).await;
        match sent {
            Ok(Ok((status, answer))) if status.is_success() => Sent::Taken { rejected: wire::rejected(&answer) },
            Ok(Ok((status, _))) => {
                // As OTLP has it: these may be tried again, and no others.
                let passes = [
                    StatusCode::TOO_MANY_REQUESTS,
                    StatusCode::BAD_GATEWAY,
                    StatusCode::SERVICE_UNAVAILABLE,
                    StatusCode::GATEWAY_TIMEOUT,
                ];
                let why = format!("it answers {status}");
                if passes.contains(&status) { Sent::NotNow(why) } else { Sent::Refused(why) }
            }
            Ok(Err(why)) => {
                self.line = None;
                Sent::NotNow(why)
            }
            Err(_) => {
                self.line = None;
                Sent::NotNow(format!("no answer within {} s", ANSWER_WITHIN.as_secs()))
            }
        }
    }

    async fn ask(&mut self, body: Bytes) -> Result<(StatusCode, Bytes), String> {
        // A connection that was closed meanwhile is no fault of anybody's, even if that is seen only now.
        if let Some(mut line) = self.line.take()
            && line.ready().await.is_ok()
            && let Ok(asked) = self.ask_over(line, body.clone()).await
        {
            return Ok(asked);
        }
        let line = self.connect().await?;
        self.ask_over(line, body).await
    }

    async fn ask_over(&mut self, mut line: SendRequest<Full<Bytes>>, body: Bytes) -> Result<(StatusCode, Bytes), String> {
        let mut request = Request::post(&self.collector.path)
            .header(HOST, self.collector.place())
            .header(CONTENT_TYPE, "application/x-protobuf")
            .header(USER_AGENT, concat!("incumbent/", env!("CARGO_PKG_VERSION")));
        for (name, value) in &self.collector.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body)).map_err(text)?;
        let (head, answer) = line.send_request(request).await.map_err(text)?.into_parts();
        let answer = Limited::new(answer, ANSWER_BYTES_MAX).collect().await.map_err(text)?.to_bytes();
        self.line = Some(line);
        Ok((head.status, answer))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let Collector { host, port, tls, .. } = &self.collector;
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(text)?;
        let _ = stream.set_nodelay(true);
        match tls {
            Some((config, name)) => {
                let stream = TlsConnector::from(Arc::clone(config)).connect(name.clone(), stream).await;
                begin(stream.map_err(text)?).await
            }
            None if stream.peer_addr().is_ok_and(|it| it.ip().is_loopback()) => begin(stream).await,
            None => Err(format!("{host} is not this machine, and without https nothing is sent elsewhere")),
        }
    }
}

async fn begin(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<SendRequest<Full<Bytes>>, String> {
    let (line, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    // How it ends is told to whoever sends.
    tokio::spawn(connection);
    Ok(line)
}

fn text(why: impl Display) -> String {
    why.to_string()
}
