//! One connection that all calls share until it fails.
//!
//! A connection that breaks, or leaves a call without an answer, is replaced by the next call: a line that died in silence (a firewall that forgot it, a
//! server that failed over) would otherwise be waited on for a quarter of an hour.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::Error;

/// One connection for all, made when it is needed, replaced when it has failed.
pub(super) struct Slot<C> {
    current: tokio::sync::Mutex<(u64, Option<C>)>,
    /// Connections up to this number are not used any more.
    retired: AtomicU64,
}

/// A connection in use. Dropped before [`Borrowed::answered`], it counts as failed.
pub(super) struct Borrowed<'a, C> {
    pub(super) connection: C,
    number: u64,
    slot: &'a Slot<C>,
}

impl<C> Default for Slot<C> {
    fn default() -> Slot<C> {
        Slot { current: tokio::sync::Mutex::new((0, None)), retired: AtomicU64::new(0) }
    }
}

impl<C: Clone> Slot<C> {
    /// The connection; a new one if there is none or it has failed.
    pub(super) async fn borrow(&self, connect: impl Future<Output = Result<C, Error>>) -> Result<Borrowed<'_, C>, Error> {
        let mut current = self.current.lock().await;
        if let (number, Some(connection)) = &*current
            && *number > self.retired.load(Ordering::Acquire)
        {
            return Ok(Borrowed { connection: connection.clone(), number: *number, slot: self });
        }
        current.1 = None;
        let connection = connect.await?;
        let number = current.0 + 1;
        *current = (number, Some(connection.clone()));
        Ok(Borrowed { connection, number, slot: self })
    }
}

impl<C> Borrowed<'_, C> {
    /// It has answered: it may be used again.
    pub(super) fn answered(mut self) {
        self.number = 0;
    }
}

impl<C> Drop for Borrowed<'_, C> {
    fn drop(&mut self) {
        self.slot.retired.fetch_max(self.number, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_is_kept_until_a_call_is_left_without_an_answer() {
        let slot = Slot::<u32>::default();
        slot.borrow(async { Ok(1) }).await.expect("connects").answered();
        let (second, third) = (slot.borrow(async { Ok(2) }).await, slot.borrow(async { Ok(3) }).await);
        let (second, third) = (second.expect("is there"), third.expect("is there"));
        assert_eq!((second.connection, third.connection), (1, 1));
        drop(second);
        let fourth = slot.borrow(async { Ok(4) }).await.expect("connects");
        assert_eq!(fourth.connection, 4);
        // What the old one does no longer matters.
        drop(third);
        fourth.answered();
        assert_eq!(slot.borrow(async { Ok(5) }).await.expect("is there").connection, 4);
    }
}
