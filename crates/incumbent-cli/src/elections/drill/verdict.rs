//! What a drill has seen, judged: how long the failovers took, and whether two were ever in office at once. Pure.

use std::time::Duration;

use incumbent_protocol::time::Instant;

/// One leadership: from when its holder could act to when it could not any more, on the machine's one clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tenancy {
    pub(super) name: String,
    pub(super) token: u64,
    pub(super) begin: Instant,
    pub(super) end: Instant,
}

/// What is wrong with these leaderships: for how long two of them overlapped, and which tokens did not rise.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Verdict {
    pub(super) overlap: Duration,
    /// Tokens, each not greater than that of a leadership that began before.
    pub(super) fallen: Vec<u64>,
}

impl Verdict {
    /// Judges leaderships in any order.
    pub(super) fn on(tenancies: &[Tenancy]) -> Verdict {
        let mut sorted: Vec<&Tenancy> = tenancies.iter().collect();
        sorted.sort_by_key(|it| (it.begin, it.token));
        let mut verdict = Verdict::default();
        let mut latest: Option<(Instant, u64)> = None;
        for it in sorted {
            if let Some((end, token)) = latest {
                verdict.overlap += end.min(it.end) - it.begin;
                if it.token <= token {
                    verdict.fallen.push(it.token);
                }
            }
            let (end, token) = latest.unwrap_or((it.end, it.token));
            latest = Some((end.max(it.end), token.max(it.token)));
        }
        verdict
    }

    pub(super) fn is_good(&self) -> bool {
        self.overlap.is_zero() && self.fallen.is_empty()
    }
}

/// The least, the middle, the 99th in a hundred, the greatest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spread {
    pub(super) min: Duration,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) max: Duration,
}

impl Spread {
    /// Of these, by the nearest rank; `None` of nothing.
    pub(super) fn of(spans: &[Duration]) -> Option<Spread> {
        let mut sorted = spans.to_vec();
        sorted.sort();
        let rank = |hundredths: usize| sorted.get((sorted.len() * hundredths).div_ceil(100).max(1) - 1).copied();
        Some(Spread { min: rank(0)?, p50: rank(50)?, p99: rank(99)?, max: rank(100)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenancy(token: u64, begin: u64, end: u64) -> Tenancy {
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        Tenancy { name: "a".into(), token, begin: at(begin), end: at(end) }
    }

    #[test]
    fn two_at_once_are_found_whatever_lies_between() {
        let ms = Duration::from_millis;
        let good = [tenancy(2, 30, 40), tenancy(1, 0, 10), tenancy(3, 40, 50)];
        assert!(Verdict::on(&good).is_good(), "one that begins as another ends is no overlap");
        assert_eq!(Verdict::on(&[tenancy(1, 0, 10), tenancy(2, 9, 20)]).overlap, ms(1));
        let long = [tenancy(1, 0, 100), tenancy(2, 20, 30), tenancy(3, 50, 60)];
        assert_eq!(Verdict::on(&long).overlap, ms(20), "the first is still there when the third comes");
        assert_eq!(Verdict::on(&[]), Verdict::default());
    }

    #[test]
    fn tokens_that_do_not_rise_are_found() {
        let fallen = Verdict::on(&[tenancy(5, 0, 1), tenancy(4, 2, 3), tenancy(5, 4, 5), tenancy(6, 6, 7)]).fallen;
        assert_eq!(fallen, [4, 5]);
    }

    #[test]
    fn ranks_are_those_of_the_textbook() {
        let spans: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        let ms = Duration::from_millis;
        assert_eq!(Spread::of(&spans), Some(Spread { min: ms(1), p50: ms(100), p99: ms(198), max: ms(200) }));
        assert_eq!(Spread::of(&[ms(7)]), Some(Spread { min: ms(7), p50: ms(7), p99: ms(7), max: ms(7) }));
        assert_eq!(Spread::of(&[]), None);
    }
}
