//! The last words to a client whose connection ends because the node wants it so: why, for a program and for people, as far as the client still listens.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::{Bounds, Closed};
use crate::frame::{self, BadFrame};
use crate::message::{Objection, ToClient, Told, TurnedAway};

/// They may take so long.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// So much of what comes meanwhile is passed over.
const PASSED_OVER_MAX: usize = 1024 * 1024;

/// What is being written: kept apart, so that whatever interrupts the writing knows how far it came.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) sent: usize,
}

impl Closed {
    /// Why a client is told that it ends, unless it knows that already or does not listen.
    fn last_words(&self, bounds: &Bounds) -> Option<(Objection, String)> {
        match self {
            Closed::BadFrame(bad @ BadFrame::Version { .. }) => Some((Objection::Version, bad.to_string())),
            Closed::BadFrame(bad @ (BadFrame::TooLong { .. } | BadFrame::Checksum | BadFrame::Message(_))) => {
                let what_to_do =
                    "connect again; if it comes again, use a client of this node's release, and look at what lies between";
                Some((Objection::Unreadable, format!("{bad}: {what_to_do}")))
            }
            Closed::Handshake => {
                let why = format!("no hello has come in {:?}: connect again, and say it at once", bounds.handshake);
                Some((Objection::Late, why))
            }
            Closed::Silent => {
                let why = format!("nothing was heard for {:?}: connect again, and ping more often", bounds.silence);
                Some((Objection::Late, why))
            }
            Closed::Dismissed(objection, why) => Some((*objection, why.clone())),
            // It speaks another protocol, has left, was told before, or takes nothing of what waits for it.
            Closed::BadFrame(BadFrame::Preamble)
            | Closed::Goodbye
            | Closed::ByClient
            | Closed::TurnedAway(_)
            | Closed::Stalled
            | Closed::Unread
            | Closed::Broken(_) => None,
        }
    }

    /// Says it behind what is being written.
    pub(super) async fn say<C: AsyncRead + AsyncWrite>(
        self,
        bounds: &Bounds,
        mut reader: ReadHalf<C>,
        mut writer: WriteHalf<C>,
        mut batch: Batch,
    ) -> Closed {
        let Some((objection, why)) = self.last_words(bounds) else { return self };
        let told = Told::TurnedAway(TurnedAway { objection: objection.into(), why });
        frame::append(&ToClient::new(0, told), &mut batch.bytes);
        let speaks_on = matches!(self, Closed::BadFrame(_) | Closed::Dismissed(..));
        let saying = async {
            writer.write_all(&batch.bytes[batch.sent..]).await?;
            writer.shutdown().await?;
            // What is unread when a socket is closed makes a reset of it, which overtakes what was said.
            let (mut unread, mut passed_over) = (vec![0; 16 * 1024], 0);
            while speaks_on && passed_over < PASSED_OVER_MAX {
                match reader.read(&mut unread).await? {
                    0 => break,
                    read => passed_over += read,
                }
            }
            io::Result::Ok(())
        };
        let _ = timeout(LAST_WORDS, saying).await;
        self
    }
}
