//! What must hold of a history, whatever the nemesis did.

use std::collections::{BTreeMap, BTreeSet};

use crate::clients::{ELECTIONS, LAST};
use crate::history::{Belief, Entry, Outcome, Pages, Told, Wanted};
use crate::linear::{self, Operation, Value};

/// All that is wrong with it; nothing if all is well.
pub(crate) fn judge(pages: &Pages) -> Vec<String> {
    let mut wrong = registers_are_linearizable(pages);
    wrong.extend(nobody_believes_beside_another(pages));
    wrong.extend(tokens_rise(pages));
    wrong.extend(watched_without_gap(pages));
    wrong.extend(watches_agree(pages));
    wrong.extend(told_is_what_was_done(pages));
    wrong.extend(fenced(pages));
    wrong.extend(nobody_is_robbed(pages));
    wrong
}

/// What a round must have done, or it proves nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug, Default)]
pub(crate) struct Deeds {
    pub(crate) reads: usize,
    /// Swaps that found what they had expected.
    pub(crate) swaps: usize,
    /// Writes under the fence that were made.
    pub(crate) fenced: usize,
    /// Watches that were begun in the past and were told something.
    pub(crate) watches: usize,
}

impl Deeds {
    const MIN: Deeds = Deeds { reads: 50, swaps: 20, fenced: 10, watches: 3 };

    /// What has come about; what failed or is unknown does not count.
    pub(crate) fn of(pages: &Pages) -> Deeds {
        let mut deeds = Deeds::default();
        for entry in &pages.entries {
            let Outcome::Done { held: true, .. } = entry.outcome else { continue };
            match entry.wanted {
                Wanted::Read => deeds.reads += 1,
                Wanted::Swap { .. } => deeds.swaps += 1,
                Wanted::Fenced { .. } => deeds.fenced += 1,
                Wanted::Write { .. } => {}
            }
        }
        deeds.watches = pages.watches.iter().filter(|it| it.from > 1 && it.batches.iter().any(|it| !it.told.is_empty())).count();
        deeds
    }

    pub(crate) fn suffice(&self) -> bool {
        let Deeds { reads, swaps, fenced, watches } = Deeds::MIN;
        self.reads >= reads && self.swaps >= swaps && self.fenced >= fenced && self.watches >= watches
    }
}

fn registers_are_linearizable(pages: &Pages) -> Vec<String> {
    let mut registers: BTreeMap<&str, Vec<Operation>> = BTreeMap::new();
    for entry in &pages.entries {
        registers.entry(&entry.key).or_default().extend(entry.operation());
    }
    let stuck = |(key, history): (&str, Vec<Operation>)| {
        let stuck = linear::check(&history).err()?;
        Some(format!("{key} is not linearizable: {} operations fit, and then {stuck:?} does not", stuck.placed))
    };
    registers.into_iter().filter_map(stuck).collect()
}

/// Times in which two believe to lead one election do not overlap.
fn nobody_believes_beside_another(pages: &Pages) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, one) in pages.beliefs.iter().enumerate() {
        for other in &pages.beliefs[at + 1..] {
            let same = (&one.election, one.token) == (&other.election, other.token);
            if one.election == other.election && !same && one.from < other.until && other.from < one.until {
                wrong.push(format!("two believed to lead at once: {one:?} and {other:?}"));
            }
            if same && one.identity != other.identity {
                wrong.push(format!("one token for two: {one:?} and {other:?}"));
            }
            if one.election == other.election && one.until <= other.from && one.token > other.token {
                wrong.push(format!("a later leader has a lesser token: {one:?}, then {other:?}"));
            }
        }
    }
    wrong
}

/// Each grant has a greater token than those before it, and whoever believed to lead was granted it.
fn tokens_rise(pages: &Pages) -> Vec<String> {
    let mut wrong = Vec::new();
    for election in (0..ELECTIONS).map(|it| format!("election-{it}")) {
        let mut granted: BTreeMap<u64, &str> = BTreeMap::new();
        let mut lagged = false;
        for told in &pages.told {
            match told {
                Told::Elected { election: of, identity, token, revision } if *of == election => {
                    if granted.last_key_value().is_some_and(|(last, _)| last >= token) {
                        wrong.push(format!(
                            "{election} at revision {revision}: token {token} after {:?}",
                            granted.last_key_value()
                        ));
                    }
                    granted.insert(*token, identity);
                }
                Told::Elected { .. } | Told::Put { .. } => {}
                Told::Lagged { .. } => lagged = true,
            }
        }
        for belief in pages.beliefs.iter().filter(|it| it.election == election && !lagged) {
            if granted.get(&belief.token) != Some(&belief.identity.as_str()) {
                wrong.push(format!("{belief:?} was granted to {:?}", granted.get(&belief.token)));
            }
        }
    }
    wrong
}

/// Of each key the watcher is told every version, once and in order; or it is told that it lags.
fn watched_without_gap(pages: &Pages) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut last: BTreeMap<&str, (u64, Value)> = BTreeMap::new();
    let mut revision_before = 0;
    for told in &pages.told {
        match told {
            Told::Put { revision, key, version, value, previous } => {
                let expected = last.insert(key, (*version, Some(*value))).unwrap_or((0, None));
                if (version - 1, *previous) != expected {
                    wrong.push(format!("the watcher of {key} was at {expected:?} and was told {told:?}"));
                }
                if *revision < revision_before {
                    wrong.push(format!("the watcher was at revision {revision_before} and was told {told:?}"));
                }
                revision_before = *revision;
            }
            Told::Elected { .. } => {}
            Told::Lagged { oldest } => wrong.push(format!("a watcher that keeps up was told that it lags behind {oldest}")),
        }
    }
    wrong
}

/// Whoever watches, wherever it began, is told what the one was told who hears of everything: all of it, once (W3, W5). A revision is in one batch (W4), and what was told up to is never
/// taken back (W6).
fn watches_agree(pages: &Pages) -> Vec<String> {
    // One that lags does not know all, and that is wrong by itself.
    let lagged = pages.told.iter().any(|it| it.revision().is_none());
    let mut wrong = Vec::new();
    for (number, watch) in pages.watches.iter().enumerate() {
        let mut at = watch.from;
        for batch in &watch.batches {
            let who = || format!("watch {number} of {:?} from {}", watch.prefix, watch.from);
            if batch.next < at {
                wrong.push(format!("W6: {} had been told all before {at}, and then all before {}", who(), batch.next));
            }
            let within = at..batch.next;
            if let Some(told) = batch.told.iter().find(|it| it.revision().is_some_and(|revision| !within.contains(&revision))) {
                wrong.push(format!("W4, W6: {} was told of {within:?}, and of {told:?}", who()));
            }
            let due = pages.told.iter().filter(|it| it.revision().is_some_and(|it| within.contains(&it)) && watch.wants(it));
            if !lagged && !due.clone().eq(&batch.told) {
                let due: Vec<_> = due.collect();
                wrong.push(format!("W3: {} was told of {within:?}: {:?}, and there have happened {due:?}", who(), batch.told));
            }
            at = at.max(batch.next);
        }
    }
    wrong
}

/// What was done is told once, at the revision that was answered; what was not done is not told; nothing is told that nobody wanted.
fn told_is_what_was_done(pages: &Pages) -> Vec<String> {
    let mut told: BTreeMap<(&str, u64), Vec<u64>> = BTreeMap::new();
    for it in &pages.told {
        match it {
            Told::Put { revision, key, value, .. } => told.entry((key, *value)).or_default().push(*revision),
            Told::Elected { .. } | Told::Lagged { .. } => {}
        }
    }
    let mut wrong = Vec::new();
    let mut wanted = BTreeSet::new();
    for entry in &pages.entries {
        let Some(value) = entry.value() else { continue };
        wanted.insert((entry.key.as_str(), value));
        let times = told.get(&(entry.key.as_str(), value)).map_or(&[][..], |it| &it[..]);
        let right = match &entry.outcome {
            // Also if it was asked again later: whoever watches from the next revision on must miss nothing.
            Outcome::Done { held: true, revision, .. } => times == [*revision],
            Outcome::Done { held: false, .. } | Outcome::Not { .. } => times.is_empty(),
            Outcome::Unknown { .. } => times.len() <= 1,
        };
        if !right {
            wrong.push(format!("committed at {times:?}: {entry:?}"));
        }
    }
    let strange = told.keys().filter(|it| it.0 != LAST && !wanted.contains(*it));
    wrong.extend(strange.map(|it| format!("nobody has written {it:?}")));
    wrong
}

/// What is written under the fence is written in the order of the tokens: nothing of a former leader lies behind what a later one wrote.
fn fenced(pages: &Pages) -> Vec<String> {
    let token = |entry: &Entry| match &entry.wanted {
        Wanted::Fenced { token, value, .. } => Some(((entry.key.clone(), *value), *token)),
        Wanted::Read | Wanted::Write { .. } | Wanted::Swap { .. } => None,
    };
    let tokens: BTreeMap<(String, u64), u64> = pages.entries.iter().filter_map(token).collect();
    let mut greatest: BTreeMap<&str, u64> = BTreeMap::new();
    let mut wrong = Vec::new();
    for it in &pages.told {
        if let Told::Put { key, value, .. } = it
            && let Some(token) = tokens.get(&(key.clone(), *value))
        {
            let before = greatest.insert(key, *token).unwrap_or(0);
            if before > *token {
                wrong.push(format!("{key}: written under token {token} after {before}: {it:?}"));
            }
        }
    }
    wrong
}

/// A write under the fence is made if its writer counts on its leadership from when it asks until it is answered: it has not resigned by then, and nobody else ends what lasts.
fn nobody_is_robbed(pages: &Pages) -> Vec<String> {
    let mut wrong = Vec::new();
    for entry in &pages.entries {
        let Wanted::Fenced { election, token, .. } = &entry.wanted else { continue };
        let Outcome::Done { held: false, .. } = entry.outcome else { continue };
        let counts_on_it = |it: &&Belief| {
            (&it.election, it.token) == (election, *token) && it.from <= entry.called && entry.returned <= it.until
        };
        if let Some(belief) = pages.beliefs.iter().find(counts_on_it) {
            wrong.push(format!("the fence did not hold for one who leads: {entry:?}, {belief:?}"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Batch, Watched};

    fn belief(token: u64, from: u64, until: u64) -> Belief {
        Belief { election: "election-0".into(), identity: format!("c{token}"), token, from, until }
    }

    fn elected(token: u64) -> Told {
        Told::Elected { revision: token, election: "election-0".into(), identity: format!("c{token}"), token }
    }

    fn told(revision: u64, version: u64, value: u64, previous: Value) -> Told {
        Told::Put { revision, key: "k".into(), version, value, previous }
    }

    fn entry(wanted: Wanted, outcome: Outcome) -> Entry {
        Entry { client: 1, key: "k".into(), called: 1, returned: 2, wanted, outcome }
    }

    fn done(revision: u64) -> Outcome {
        Outcome::Done { held: true, seen: None, revision }
    }

    fn finds(pages: &Pages, what: &str) {
        let wrong = judge(pages);
        assert!(wrong.iter().any(|it| it.contains(what)), "{what} was not found: {wrong:?}");
    }

    #[test]
    fn a_good_history_is_good() {
        let pages = Pages {
            entries: vec![
                entry(Wanted::Write { value: 7 }, done(5)),
                entry(Wanted::Write { value: 8 }, Outcome::Unknown { why: String::new() }),
            ],
            beliefs: vec![belief(1, 10, 20), belief(2, 20, 30)],
            told: vec![elected(1), elected(2), told(5, 1, 7, None)],
            ..Pages::default()
        };
        assert_eq!(judge(&pages), Vec::<String>::new());
    }

    #[test]
    fn beliefs_that_overlap_and_tokens_that_fall_are_found() {
        let beside = Pages { beliefs: vec![belief(1, 10, 21), belief(2, 20, 30)], ..Pages::default() };
        finds(&beside, "at once");
        finds(&Pages { beliefs: vec![belief(2, 10, 20), belief(1, 20, 30)], ..Pages::default() }, "lesser token");
        finds(&Pages { told: vec![elected(2), elected(1)], ..Pages::default() }, "after");
        finds(&Pages { beliefs: vec![belief(1, 10, 20)], ..Pages::default() }, "was granted to None");
    }

    #[test]
    fn gaps_repetitions_and_lost_writes_are_found() {
        let write = || entry(Wanted::Write { value: 7 }, done(5));
        finds(&Pages { entries: vec![write()], ..Pages::default() }, "committed at []");
        let twice = vec![told(5, 1, 7, None), told(5, 1, 7, None)];
        finds(&Pages { entries: vec![write()], told: twice, ..Pages::default() }, "committed at [5, 5]");
        finds(&Pages { told: vec![told(5, 2, 7, None)], ..Pages::default() }, "the watcher of k");
        finds(&Pages { told: vec![told(5, 1, 7, None)], ..Pages::default() }, "nobody has written");
        let not = entry(Wanted::Write { value: 7 }, Outcome::Not { why: String::new() });
        finds(&Pages { entries: vec![not], told: vec![told(5, 1, 7, None)], ..Pages::default() }, "committed at [5]");
    }

    #[test]
    fn a_write_of_a_former_leader_behind_a_later_ones_is_found() {
        let fenced = |token, value, revision| entry(Wanted::Fenced { election: "e".into(), token, value }, done(revision));
        let pages = Pages {
            entries: vec![fenced(1, 7, 6), fenced(2, 8, 5)],
            told: vec![told(5, 1, 8, None), told(6, 2, 7, Some(8))],
            ..Pages::default()
        };
        finds(&pages, "under token 1 after 2");
    }
    #[test]
    fn a_write_that_fails_under_a_leadership_that_lasts_is_found() {
        let robbed = |called, returned| {
            let wanted = Wanted::Fenced { election: "election-0".into(), token: 1, value: 7 };
            let outcome = Outcome::Done { held: false, seen: None, revision: 9 };
            let entry = Entry { client: 1, key: "k".into(), called, returned, wanted, outcome };
            Pages { entries: vec![entry], beliefs: vec![belief(1, 10, 20)], told: vec![elected(1)], ..Pages::default() }
        };
        finds(&robbed(10, 20), "the fence did not hold");
        for (called, returned) in [(9, 12), (19, 21), (30, 31)] {
            assert_eq!(judge(&robbed(called, returned)), Vec::<String>::new(), "{called} to {returned}");
        }
        let mut other = robbed(10, 20);
        other.beliefs[0].token = 2;
        other.told = vec![elected(2)];
        other.beliefs[0].identity = "c2".into();
        assert_eq!(judge(&other), Vec::<String>::new(), "another leads");
    }

    /// What was told of two keys, and of an election between them.
    fn everything() -> Vec<Told> {
        let put = |revision, key: &str, value| Told::Put { revision, key: key.into(), version: 1, value, previous: None };
        vec![put(3, "register/1", 7), elected(4), put(5, "other", 8)]
    }

    fn watching(prefix: Option<&str>, from: u64, batches: Vec<(Vec<Told>, u64)>) -> Pages {
        let batches = batches.into_iter().map(|(told, next)| Batch { told, next }).collect();
        let watches = vec![Watched { prefix: prefix.map(str::to_owned), from, batches }];
        let write = |key: &str, value, revision| {
            let entry = entry(Wanted::Write { value }, done(revision));
            Entry { key: key.into(), ..entry }
        };
        let entries = vec![write("register/1", 7, 3), write("other", 8, 5)];
        Pages { entries, told: everything(), watches, ..Pages::default() }
    }

    #[test]
    fn watches_that_are_told_something_else_than_another_are_found() {
        let all = everything();
        let good = [
            watching(None, 1, vec![(all.clone(), 6)]),
            watching(None, 1, vec![(all[..1].to_vec(), 4), (all[1..].to_vec(), 6)]),
            watching(None, 4, vec![(all[1..].to_vec(), 6), (Vec::new(), 9)]),
            watching(Some("register/"), 1, vec![(all[..1].to_vec(), 6)]),
        ];
        for pages in good {
            assert_eq!(judge(&pages), Vec::<String>::new(), "{:?}", pages.watches);
        }
        finds(&watching(None, 1, vec![(all[..2].to_vec(), 6)]), "W3");
        finds(&watching(Some("register/"), 1, vec![(all.clone(), 6)]), "W3");
        finds(&watching(Some("register/"), 1, vec![(Vec::new(), 6)]), "W3");
        finds(&watching(None, 4, vec![(all.clone(), 6)]), "W4, W6");
        finds(&watching(None, 1, vec![(all.clone(), 5)]), "W4, W6");
        finds(&watching(None, 1, vec![(all.clone(), 6), (all[2..].to_vec(), 6)]), "W4, W6");
        finds(&watching(None, 1, vec![(all.clone(), 6), (Vec::new(), 5)]), "W6");
    }

    #[test]
    fn a_round_in_which_nearly_all_failed_is_too_little() {
        let of = |count: usize, wanted: Wanted, outcome: Outcome| std::iter::repeat_n(entry(wanted, outcome), count);
        let fenced = || Wanted::Fenced { election: "e".into(), token: 1, value: 7 };
        let swap = || Wanted::Swap { from: None, to: 8 };
        let unknown = || Outcome::Unknown { why: String::new() };
        let not_held = || Outcome::Done { held: false, seen: None, revision: 9 };
        let Deeds { reads, swaps, fenced: writes, watches } = Deeds::MIN;
        let mut pages = watching(None, 4, vec![(everything()[1..].to_vec(), 6)]);
        pages.watches = vec![pages.watches[0].clone(); watches];
        pages.entries = of(reads, Wanted::Read, done(9)).chain(of(swaps, swap(), done(9))).collect();
        pages.entries.extend(of(1000, fenced(), unknown()).chain(of(1000, fenced(), not_held())));
        assert!(!Deeds::of(&pages).suffice(), "no write under the fence was made");
        pages.entries.extend(of(writes, fenced(), done(9)));
        assert!(Deeds::of(&pages).suffice(), "{:?}", Deeds::of(&pages));
        pages.watches.pop();
        assert!(!Deeds::of(&pages).suffice(), "too few have watched");
    }
}
