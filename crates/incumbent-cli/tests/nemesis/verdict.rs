//! What must hold of a history, whatever the nemesis did.

use std::collections::{BTreeMap, BTreeSet};

use crate::clients::{ELECTIONS, LAST};
use crate::history::{Entry, Outcome, Pages, Told, Wanted};
use crate::linear::{self, Operation, Value};

/// All that is wrong with it; nothing if all is well.
pub(crate) fn judge(pages: &Pages) -> Vec<String> {
    let mut wrong = registers_are_linearizable(pages);
    wrong.extend(nobody_believes_beside_another(pages));
    wrong.extend(tokens_rise(pages));
    wrong.extend(watched_without_gap(pages));
    wrong.extend(told_is_what_was_done(pages));
    wrong.extend(fenced(pages));
    wrong
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Belief;

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
}
