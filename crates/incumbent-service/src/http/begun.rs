//! A connection of which something was read already, to see what is spoken on it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Gives what was read first, then the rest.
pub(super) struct Begun<C> {
    begun: Vec<u8>,
    /// So much of it was given.
    given: usize,
    connection: C,
}

impl<C> Begun<C> {
    pub(super) fn of(begun: Vec<u8>, connection: C) -> Begun<C> {
        Begun { begun, given: 0, connection }
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Begun<C> {
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

impl<C: AsyncWrite + Unpin> AsyncWrite for Begun<C> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().connection).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().connection).poll_write_vectored(cx, slices)
    }
}
