//! Many independent runs on a few threads, with the results in the order of the runs, whatever the number of threads.
//!
//! A run depends on its number alone, so threads change nothing but the time it takes. Left out: what a run is, and how
//! progress is shown.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Whoever waits for the runs: hears how far they are, and may stop them.
pub trait Audience: Sync {
    /// So many runs have ended. Called now and then, in ascending order, by one thread.
    fn progress(&self, done: usize);
    /// Whether no further run shall begin.
    fn has_enough(&self) -> bool;
}

/// Nobody listens, and nothing stops the runs.
impl Audience for () {
    fn progress(&self, _: usize) {}
    fn has_enough(&self) -> bool {
        false
    }
}

/// Does the runs `0..runs` on `threads` threads. The results stand in the order of the runs; if the audience had enough before the
/// end, the last ones are missing.
pub fn run_all<T: Send>(runs: usize, threads: NonZeroUsize, audience: &impl Audience, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    // Bounded: threads that run ahead of the audience would not hear in time that it has enough.
    let (sender, ended) = mpsc::sync_channel(threads.get());
    let mut results: Vec<Option<T>> = Vec::new();
    thread::scope(|scope| {
        for _ in 0..threads.get().min(runs) {
            let (sender, next, run) = (sender.clone(), &next, &run);
            scope.spawn(move || {
                while !audience.has_enough() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= runs || sender.send((number, run(number))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (done, (number, result)) in ended.iter().enumerate() {
            if number >= results.len() {
                results.resize_with(number + 1, || None);
            }
            results[number] = Some(result);
            audience.progress(done + 1);
        }
    });
    // Runs are begun in order, and one that was begun is ended: there are no gaps.
    results.into_iter().map(|result| result.expect("a run that was begun has ended")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(count: usize) -> NonZeroUsize {
        NonZeroUsize::new(count).unwrap()
    }

    #[test]
    fn results_stand_in_the_order_of_the_runs_whatever_the_threads() {
        let expected: Vec<_> = (0..1000).map(|number| number * number).collect();
        for count in [1, 2, 7] {
            assert_eq!(run_all(1000, threads(count), &(), |number| number * number), expected);
        }
        assert!(run_all(0, threads(3), &(), |number| number).is_empty());
    }

    /// Has enough after a few runs.
    struct Impatient {
        seen: AtomicUsize,
    }

    impl Audience for Impatient {
        fn progress(&self, done: usize) {
            assert_eq!(done, self.seen.load(Ordering::Relaxed) + 1);
            self.seen.store(done, Ordering::Relaxed);
        }
        fn has_enough(&self) -> bool {
            self.seen.load(Ordering::Relaxed) >= 5
        }
    }

    #[test]
    fn who_has_enough_gets_what_was_done_so_far() {
        let audience = Impatient { seen: AtomicUsize::new(0) };
        let results = run_all(1_000_000, threads(2), &audience, |number| number);
        assert!((5..15).contains(&results.len()), "{}", results.len());
        assert_eq!(results, (0..results.len()).collect::<Vec<_>>());
    }
}
