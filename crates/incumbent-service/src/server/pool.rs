//! Room that all guests of a node take from, in bytes, so that nobody takes what the others need.
//!
//! There is one hard bound over all. Below it a guest has as much as it takes, as long as that is not more than so many times what is left: where that is once, one alone has half of it, two have
//! a third each, and there is always some left for the next. Nobody is made to give anything back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Room for so many bytes. Clones are of the same.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    bytes_max: usize,
    books: Arc<Mutex<Books>>,
}

#[derive(Debug, Default)]
struct Books {
    taken: usize,
    /// By whom. Who has nothing is not in it.
    guests: BTreeMap<Arc<str>, usize>,
}

/// Some of a pool, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    pool: Pool,
    guest: Arc<str>,
    bytes: usize,
}

impl Pool {
    pub(crate) fn new(bytes_max: usize) -> Pool {
        Pool { bytes_max, books: Arc::default() }
    }

    /// So much for a guest, if it then has no more than so many times what is left. Nothing is always to be had.
    pub(crate) fn take(&self, guest: &Arc<str>, bytes: usize, times: usize) -> Option<Share> {
        let mut books = self.books();
        if bytes > 0 {
            let left = self.bytes_max.checked_sub(books.taken)?.checked_sub(bytes)?;
            let has = books.guests.get(guest).copied().unwrap_or_default() + bytes;
            if has > left.saturating_mul(times) {
                return None;
            }
            books.guests.insert(Arc::clone(guest), has);
            books.taken += bytes;
        }
        Some(Share { pool: self.clone(), guest: Arc::clone(guest), bytes })
    }

    /// How much is taken, by all.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.books().taken
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut books = self.pool.books();
        books.taken -= self.bytes;
        if let Some(has) = books.guests.get_mut(&self.guest) {
            *has -= self.bytes;
            if *has == 0 {
                books.guests.remove(&self.guest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that a guest gets, a little at a time.
    fn fill(pool: &Pool, guest: &str, times: usize) -> Vec<Share> {
        std::iter::from_fn(|| pool.take(&guest.into(), 10, times)).collect()
    }

    #[test]
    fn whoever_takes_all_it_gets_leaves_some_for_the_next() {
        let pool = Pool::new(1_200);
        let first = fill(&pool, "a", 1);
        assert_eq!(first.len(), 60, "half");
        let second = fill(&pool, "b", 1);
        assert_eq!(second.len(), 30, "half of the rest");
        assert_eq!(fill(&pool, "c", 1).len(), 15);
        drop(first);
        assert_eq!(fill(&pool, "c", 1).len(), 45, "what was given back is there for others");
        drop(second);
        assert_eq!((pool.taken(), pool.books().guests.len()), (0, 0));
    }

    #[test]
    fn there_is_never_more_than_there_is() {
        let pool = Pool::new(1_200);
        let most = fill(&pool, "a", 3);
        assert_eq!(most.len(), 90);
        let all: Vec<Share> = ["b", "c", "d", "e"].into_iter().flat_map(|it| fill(&pool, it, usize::MAX)).collect();
        assert_eq!((pool.taken(), all.len()), (1_190, 29), "the last is nobody's");
        assert!(pool.take(&"f".into(), 10, usize::MAX).is_none());
        assert!(pool.take(&"f".into(), usize::MAX, usize::MAX).is_none());
        assert!(pool.take(&"a".into(), 0, 1).is_some(), "nothing is always to be had");
    }
}
