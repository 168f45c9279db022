//! How long each kind of fault was felt: how long after its end something was served again, and how long nothing at all was served from its beginning on.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::history::{Ordeal, Outcome, Pages};

/// What one fault has cost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cost {
    pub(crate) fault: String,
    /// From its end to the first that was asked after it and done.
    pub(crate) healing: Duration,
    /// The longest time without anything that was done for anybody, from its beginning until it was healed.
    pub(crate) unserved: Duration,
    /// Whether there was a majority that could have served.
    pub(crate) leaves_majority: bool,
}

/// What each fault of a round has cost.
pub(crate) fn costs(pages: &Pages) -> Vec<Cost> {
    let done = pages.entries.iter().filter(|it| matches!(it.outcome, Outcome::Done { .. }));
    let mut answers: Vec<u64> = done.map(|it| it.returned).collect();
    answers.sort_unstable();
    pages.ordeals.iter().map(|it| cost(it, &answers)).collect()
}

fn cost(ordeal: &Ordeal, answers: &[u64]) -> Cost {
    let first = answers.partition_point(|it| *it < ordeal.began);
    let within = answers[first..].iter().copied().take_while(|it| *it <= ordeal.healed);
    let moments: Vec<u64> = [ordeal.began].into_iter().chain(within).chain([ordeal.healed]).collect();
    let unserved = moments.windows(2).map(|it| it[1] - it[0]).max().unwrap_or(0);
    Cost {
        fault: ordeal.fault.clone(),
        healing: Duration::from_nanos(ordeal.healed - ordeal.over),
        unserved: Duration::from_nanos(unserved),
        leaves_majority: ordeal.leaves_majority,
    }
}

/// For people: a line for each kind.
pub(crate) fn table(costs: &[Cost]) -> String {
    let mut kinds: BTreeMap<&str, Vec<&Cost>> = BTreeMap::new();
    for cost in costs {
        kinds.entry(&cost.fault).or_default().push(cost);
    }
    let mut text = format!("{:<16} {:>5}  {:>21}  {:>21}\n", "fault", "times", "healed, p50 max", "not served, p50 max");
    for (kind, costs) in kinds {
        let (healing, unserved) = (spread(&costs, |it| it.healing), spread(&costs, |it| it.unserved));
        let _ = writeln!(text, "{kind:<16} {:>5}  {healing:>21}  {unserved:>21}", costs.len());
    }
    text
}

/// The middle and the greatest.
fn spread(costs: &[&Cost], of: impl Fn(&Cost) -> Duration) -> String {
    let mut all: Vec<Duration> = costs.iter().map(|it| of(it)).collect();
    all.sort_unstable();
    format!("{:>7} ms {:>7} ms", all[(all.len() - 1) / 2].as_millis(), all[all.len() - 1].as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Entry, Wanted};

    const MS: u64 = 1_000_000;

    fn answered(at_ms: u64, outcome: Outcome) -> Entry {
        Entry { client: 1, key: "k".into(), called: 0, returned: at_ms * MS, wanted: Wanted::Read, outcome }
    }

    #[test]
    fn the_longest_silence_of_a_fault_is_found() {
        let done = || Outcome::Done { held: true, seen: None, revision: 1 };
        let unknown = Outcome::Unknown { why: String::new() };
        let entries = vec![answered(90, done()), answered(110, done()), answered(300, unknown), answered(700, done())];
        let ordeals = vec![
            Ordeal { fault: "Kill".into(), leaves_majority: true, began: 100 * MS, over: 600 * MS, healed: 700 * MS },
            Ordeal { fault: "Kill".into(), leaves_majority: true, began: 1000 * MS, over: 1010 * MS, healed: 1050 * MS },
        ];
        let costs = costs(&Pages { entries, ordeals, ..Pages::default() });
        let of = |it: &Cost| (it.healing.as_millis(), it.unserved.as_millis());
        assert_eq!(costs.iter().map(of).collect::<Vec<_>>(), [(100, 590), (40, 50)]);
        assert!(
            table(&costs).contains("Kill                 2       40 ms     100 ms       50 ms     590 ms"),
            "{}",
            table(&costs)
        );
    }
}
