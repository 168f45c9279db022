//! A connection as hyper is given it: what was read of it already comes first, and whoever takes nothing of an answer for too long, or next to nothing, loses it.
//!
//! hyper waits for ever for a client that does not read. Its answer, up to some megabytes, would be kept for as long.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::limits::{READ_BYTES_PER_S_MIN, READ_WITHIN};

/// A connection with a beginning and a patience.
pub(super) struct Connection<C> {
    begun: Vec<u8>,
    /// So much of it was given.
    given: usize,
    connection: C,
    /// Runs from when the other side did not take at once what there was until it has taken all of it.
    patience: Option<Patience>,
}

/// How long the other side has for what waits for it: a time for all of it, and more with all that it takes.
struct Patience {
    since: Instant,
    taken: u64,
    over: Pin<Box<Sleep>>,
}

impl Patience {
    fn new() -> Patience {
        let since = Instant::now();
        Patience { since, taken: 0, over: Box::pin(sleep_until(since + READ_WITHIN)) }
    }

    fn take(&mut self, bytes: usize) {
        self.taken += bytes as u64;
        let earned = Duration::from_millis(self.taken * 1000 / u64::from(READ_BYTES_PER_S_MIN));
        self.over.as_mut().reset(self.since + READ_WITHIN + earned);
    }
}

impl<C> Connection<C> {
    pub(super) fn of(begun: Vec<u8>, connection: C) -> Connection<C> {
        Connection { begun, given: 0, connection, patience: None }
    }

    /// What came of a write of so many bytes: an error if too little was taken for too long.
    fn written(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let (Poll::Ready(Ok(bytes)), Some(patience)) = (&written, &mut self.patience) {
            patience.take(*bytes);
        }
        self.patiently(cx, written)
    }

    /// What came of something, unless the other side has had all its time.
    fn patiently<T>(&mut self, cx: &mut Context<'_>, came: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if came.is_ready() {
            return came;
        }
        ready!(self.patience.get_or_insert_with(Patience::new).over.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the other side reads nothing, or too slowly")))
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Connection<C> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.given < this.begun.len() {
            let some = into.remaining().min(this.begun.len() - this.given);
            into.put_slice(&this.begun[this.given..this.given + some]);
            this.given += some;
            return Poll::Ready(Ok(()));
        }
        // Not kept for the life of a connection.
        this.begun = Vec::new();
        this.given = 0;
        Pin::new(&mut this.connection).poll_read(cx, into)
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Connection<C> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.connection).poll_write(cx, bytes);
        this.written(cx, written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.connection).poll_flush(cx);
        if flushed.is_ready() {
            // hyper asks for this when it has written all that it had.
            this.patience = None;
        }
        this.patiently(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let ended = Pin::new(&mut this.connection).poll_shutdown(cx);
        this.patiently(cx, ended)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.connection).poll_write_vectored(cx, slices);
        this.written(cx, written)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    const ANSWER_BYTES: usize = 4 << 20;

    /// Writes an answer to somebody who takes so much of it every ten seconds. How long it took, and whether it was told.
    async fn tell(bytes_at_once: usize) -> (Duration, io::Result<()>) {
        let (mut near, far) = duplex(1024);
        let begun = Instant::now();
        let tell = async move {
            let mut connection: Connection<DuplexStream> = Connection::of(Vec::new(), far);
            let told = async {
                connection.write_all(&vec![0; ANSWER_BYTES]).await?;
                connection.flush().await
            };
            let told = told.await;
            (begun.elapsed(), told)
        };
        let telling = tokio::spawn(tell);
        let mut some = vec![0; bytes_at_once];
        while near.read_exact(&mut some).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        telling.await.expect("no panic")
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_takes_next_to_nothing_is_cut_off_and_whoever_is_slow_is_not() {
        let slow = 10 * READ_BYTES_PER_S_MIN as usize;
        let (_, told) = tell(slow).await;
        assert!(told.is_ok(), "{told:?}");
        for crumbs in [1, 1024, slow / 10] {
            let (passed, told) = tell(crumbs).await;
            assert!(told.is_err_and(|why| why.kind() == io::ErrorKind::TimedOut), "{crumbs} at once");
            assert!(passed < 2 * READ_WITHIN, "{crumbs} at once: {passed:?}");
        }
    }

    /// A stream that says little now and then is read at once: its time begins anew with each piece.
    #[tokio::test(start_paused = true)]
    async fn what_is_taken_at_once_may_be_little_and_come_for_ever() {
        let (mut near, far) = duplex(64);
        let mut connection = Connection::of(Vec::new(), far);
        let reading = tokio::spawn(async move {
            let mut all = Vec::new();
            near.read_to_end(&mut all).await.map(|_| all.len())
        });
        for _ in 0..100 {
            connection.write_all(&[0; 100]).await.expect("taken");
            connection.flush().await.expect("taken");
            tokio::time::sleep(Duration::from_secs(15)).await;
        }
        drop(connection);
        assert_eq!(reading.await.expect("no panic").expect("read"), 10_000);
    }
}
