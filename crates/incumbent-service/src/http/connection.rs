//! A connection as hyper is given it: what was read of it already comes first, and whoever takes nothing of an answer for too long loses it.
//!
//! hyper waits for ever for a client that does not read. Its answer, up to some megabytes, would be kept for as long.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::limits::READ_WITHIN;

/// A connection with a beginning and a patience.
pub(super) struct Connection<C> {
    begun: Vec<u8>,
    /// So much of it was given.
    given: usize,
    connection: C,
    /// Runs while the other side takes nothing.
    patience: Option<Pin<Box<Sleep>>>,
}

impl<C> Connection<C> {
    pub(super) fn of(begun: Vec<u8>, connection: C) -> Connection<C> {
        Connection { begun, given: 0, connection, patience: None }
    }

    /// What came of a write: an error if nothing was taken for too long.
    fn patiently<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.patience = None;
            return written;
        }
        let patience = self.patience.get_or_insert_with(|| Box::pin(sleep(READ_WITHIN)));
        ready!(patience.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the other side reads nothing")))
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
        this.patiently(cx, written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.connection).poll_flush(cx);
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
        this.patiently(cx, written)
    }
}
