//! One connection to one node, from the first byte to the last.
//!
//! Reading, writing and listening for silence go on side by side in one task; whichever ends first ends the connection, with the reason. What it carries is the [`Docket`]'s.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep_until, timeout};

use crate::dial::Stream;
use crate::docket::{Docket, Patience};
use crate::failure::Ended;
use crate::frame::{self, ANSWER_MAX, GREETING_MAX, Inbox, KEPT_MAX, PREAMBLE};
use crate::message::{Asked, Goodbye, Hello, ToClient, ToServer, Told, VERSION, VERSION_OLDEST, Welcome};

/// A node that we leave is given so long to hear our goodbye, while the next one serves us.
const LINGER: Duration = Duration::from_secs(60);
/// A node that is not heard of for so many round trips is not merely far away.
const ROUND_TRIPS: u32 = 3;

/// A connection to a node that has welcomed us.
pub(crate) struct Connection {
    reader: ReadHalf<Box<dyn Stream>>,
    writer: WriteHalf<Box<dyn Stream>>,
    inbox: Inbox,
    pub(crate) welcome: Welcome,
    round_trip: Duration,
}

/// What is being written: kept apart, so that whatever interrupts the writing knows how far it came.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    sent: usize,
}

impl Connection {
    /// Says hello.
    pub(crate) async fn open(stream: Box<dyn Stream>, hello: Hello) -> Result<Connection, Ended> {
        let began = Instant::now();
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut bytes = PREAMBLE.to_vec();
        frame::append(&ToServer::new(0, Asked::Hello(hello)), &mut bytes);
        writer.write_all(&bytes).await.map_err(|wrong| Ended::Closed(Some(wrong)))?;
        writer.flush().await.map_err(|wrong| Ended::Closed(Some(wrong)))?;
        let mut inbox = Inbox::new();
        let ToClient { id: _, told } = loop {
            if let Some(message) = inbox.take(GREETING_MAX).map_err(Ended::BadFrame)? {
                break message;
            }
            if reader.read_buf(inbox.room()).await.map_err(|wrong| Ended::Closed(Some(wrong)))? == 0 {
                let why = "closed before it greeted us: does it take TLS (ca= in the URL), or plain text?";
                return Err(Ended::Closed(Some(io::Error::new(io::ErrorKind::UnexpectedEof, why))));
            }
        };
        match told {
            Some(Told::Welcome(welcome)) if (VERSION_OLDEST..=VERSION).contains(&welcome.version) => {
                Ok(Connection { reader, writer, inbox, welcome, round_trip: began.elapsed() })
            }
            Some(Told::Welcome(welcome)) => {
                Err(Ended::Nonsense(format!("it wants to speak version {}, which we have not offered", welcome.version)))
            }
            Some(Told::TurnedAway(told)) => Err(Ended::TurnedAway { objection: told.objection(), why: told.why }),
            other => Err(Ended::Nonsense(format!("no welcome: {other:?}"))),
        }
    }

    /// Carries what the docket has until it ends.
    pub(crate) async fn converse(self, docket: &Docket, patience: Patience) -> Ended {
        let Connection { mut reader, mut writer, mut inbox, welcome: _, round_trip } = self;
        // What is far away is not silent.
        let patience = Patience { silence: patience.silence.max(round_trip * ROUND_TRIPS), ..patience };
        let mut batch = Batch::default();
        let ended = tokio::select! {
            ended = read(&mut reader, &mut inbox, docket) => ended,
            ended = write(&mut writer, &mut batch, docket) => ended,
            ended = listen(docket, patience) => ended,
        };
        match &ended {
            // The client waits for us, so that the goodbye is heard before its process ends.
            Ended::Done => leave(reader, writer, batch).await,
            Ended::Silent | Ended::Rerouted | Ended::Nonsense(_) | Ended::BadFrame(_) => {
                tokio::spawn(leave(reader, writer, batch));
            }
            Ended::Closed(_)
            | Ended::Unreachable(_)
            | Ended::Insecure(_)
            | Ended::Untrusted(_)
            | Ended::Handshake
            | Ended::TurnedAway { .. } => {}
        }
        ended
    }
}

async fn read(reader: &mut ReadHalf<Box<dyn Stream>>, inbox: &mut Inbox, docket: &Docket) -> Ended {
    loop {
        loop {
            match inbox.take::<ToClient>(ANSWER_MAX) {
                Ok(Some(message)) => {
                    if let Err(ended) = docket.deliver(message) {
                        return ended;
                    }
                }
                Ok(None) => break,
                Err(bad) => return Ended::BadFrame(bad),
            }
        }
        match reader.read_buf(inbox.room()).await {
            Ok(0) => return Ended::Closed(None),
            Ok(_) => docket.heard(),
            Err(wrong) => return Ended::Closed(Some(wrong)),
        }
    }
}

async fn write(writer: &mut WriteHalf<Box<dyn Stream>>, batch: &mut Batch, docket: &Docket) -> Ended {
    loop {
        batch.bytes.clear();
        batch.sent = 0;
        if batch.bytes.capacity() > KEPT_MAX {
            batch.bytes = Vec::new();
        }
        if let Err(ended) = docket.fill(&mut batch.bytes) {
            return ended;
        }
        if batch.bytes.is_empty() {
            match docket.due() {
                Some(due) => {
                    let _ = tokio::time::timeout_at(due, docket.more.notified()).await;
                }
                None => docket.more.notified().await,
            }
            continue;
        }
        while batch.sent < batch.bytes.len() {
            match writer.write(&batch.bytes[batch.sent..]).await {
                Ok(0) => return Ended::Closed(None),
                Ok(sent) => batch.sent += sent,
                Err(wrong) => return Ended::Closed(Some(wrong)),
            }
        }
        if let Err(wrong) = writer.flush().await {
            return Ended::Closed(Some(wrong));
        }
    }
}

/// Ends when the node is silent for too long.
async fn listen(docket: &Docket, patience: Patience) -> Ended {
    loop {
        match docket.pulse(patience) {
            Ok(again) => tokio::select! {
                () = sleep_until(again) => {}
                () = docket.stirred.notified() => {}
            },
            Err(ended) => return ended,
        }
    }
}

/// Says goodbye, so that the sessions that are bound to this connection do not end with it: if the node ever hears that it is closed, it has heard the goodbye before.
async fn leave(mut reader: ReadHalf<Box<dyn Stream>>, mut writer: WriteHalf<Box<dyn Stream>>, mut batch: Batch) {
    frame::append(&ToServer::new(0, Asked::Goodbye(Goodbye {})), &mut batch.bytes);
    let leaving = async {
        writer.write_all(&batch.bytes[batch.sent..]).await?;
        writer.shutdown().await?;
        // What is unread when a socket is closed makes a reset of it, which overtakes the goodbye.
        let mut unread = vec![0; 16 * 1024];
        while reader.read(&mut unread).await? > 0 {}
        std::io::Result::Ok(())
    };
    let _ = timeout(LINGER, leaving).await;
}
