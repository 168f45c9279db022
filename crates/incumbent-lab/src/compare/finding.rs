//! In one sentence: what a comparison shows. Made from the figures, so it cannot say what was not measured.

use std::time::Duration;

use incumbent_protocol::machine::Kind;

use super::Cell;
use super::scenario::Scenario;

/// The size whose figures are shown in full if there are several: five, the commonest group, or the smallest there is.
pub fn detailed_size(cells: &[Cell]) -> Option<u32> {
    let sizes = || cells.iter().map(|cell| cell.nodes);
    sizes().find(|nodes| *nodes == 5).or_else(|| sizes().min())
}

/// What the cells of `scenario` show; empty if nothing was measured.
pub fn sentence(scenario: Scenario, cells: &[Cell]) -> String {
    let measured: Vec<&Cell> = cells.iter().filter(|cell| cell.scenario == scenario && !cell.figures.is_empty()).collect();
    let owned: Vec<Cell> = measured.iter().map(|cell| (*cell).clone()).collect();
    let Some(size) = detailed_size(&owned) else { return String::new() };
    let shown: Vec<&Cell> = measured.iter().copied().filter(|cell| cell.nodes == size).collect();
    let clauses = match scenario {
        Scenario::ColdStart => [led(&shown, "the first leader was in office"), growth(&measured)],
        Scenario::LeaderCrash => [led(&shown, "a new leader was in office"), growth(&measured)],
        Scenario::LeaderReturn => [led(&shown, "a new leader was in office"), changes(&shown)],
        Scenario::Resign | Scenario::HandOver => [led(&shown, "the next leader was in office"), changes(&shown)],
        Scenario::MajorityCrash => [led(&shown, "a leader was in office again"), without_majority(&shown)],
        Scenario::Partition | Scenario::Pause => [split(&shown), led(&shown, "a new leader was in office")],
        Scenario::OneWay | Scenario::SlowNode => [unnoticed(&shown), led(&shown, "a new leader was in office")],
        Scenario::Flapping | Scenario::Loss => [split(&shown), changes(&shown)],
    };
    // Two leaders at once are always worth a word, also where nobody expects them.
    let surprise = match scenario {
        Scenario::Partition | Scenario::Pause | Scenario::Flapping | Scenario::Loss => None,
        Scenario::ColdStart
        | Scenario::LeaderCrash
        | Scenario::LeaderReturn
        | Scenario::MajorityCrash
        | Scenario::Resign
        | Scenario::HandOver
        | Scenario::OneWay
        | Scenario::SlowNode => split(&shown).filter(|_| shown.iter().any(|cell| cell.split_brain_runs() > 0)),
    };
    let clauses: Vec<String> = clauses.into_iter().chain([surprise]).flatten().collect();
    capitalised(&clauses.join("; ")) + "."
}

/// "two leaders at once without guard: every protocol, in 100 of 100 runs, for up to 2.9 s; with guard never"
fn split(cells: &[&Cell]) -> Option<String> {
    let split: Vec<&Cell> = cells.iter().copied().filter(|cell| cell.split_brain_runs() > 0).collect();
    if split.is_empty() {
        return Some("nobody ever had two leaders at once".into());
    }
    let runs: Vec<usize> = split.iter().map(|cell| cell.split_brain_runs()).collect();
    let longest = split.iter().filter_map(|cell| cell.greatest(|it| it.overlap_longest)).max().unwrap_or_default();
    let (least, most) = (runs.iter().min().copied()?, runs.iter().max().copied()?);
    let of = split.iter().map(|cell| cell.figures.len()).max()?;
    let often = if least == most { format!("{most}") } else { format!("{least} to {most}") };
    let never = if cells.iter().any(|cell| cell.split_brain_runs() == 0 && cell.guarded) && split.iter().all(|it| !it.guarded) {
        ", with guard never"
    } else {
        ""
    };
    Some(format!("{} had two leaders at once in {often} of {of} runs, for up to {}{never}", who(&split, cells), time(longest)))
}

/// "a new leader was in office after 154 ms with raft, …": the median of each protocol, with guard if there is one.
fn led(cells: &[&Cell], what: &str) -> Option<String> {
    let shown = preferred(cells);
    let guarded = if shown.iter().all(|cell| cell.guarded) { "median, guarded" } else { "median" };
    let worse: Vec<&Cell> = cells.iter().copied().filter(|cell| cell.leaderless_runs() > 0).collect();
    let left =
        if worse.is_empty() { String::new() } else { format!(", and {} ended some runs without a leader", who(&worse, cells)) };
    Some(format!("{what} after {} ({guarded}){left}", medians(&shown)?))
}

/// "without guard a leader of the few that are left was in office after 235 ms with bully, …": those who do not wait for a majority.
fn without_majority(cells: &[&Cell]) -> Option<String> {
    let bold: Vec<&Cell> = cells
        .iter()
        .copied()
        .filter(|cell| cell.percentile(50, |it| it.failover) < cell.percentile(50, |it| it.followed))
        .collect();
    let early: Vec<&Cell> = bold.into_iter().filter(|cell| !cell.guarded && cell.kind != Kind::Raft).collect();
    let after = medians(&early)?;
    Some(format!("without guard the few that were left elected one of themselves after {after}"))
}

/// "154 ms with raft, 277 ms with ring and chang-roberts": medians of the failover, the shortest first.
fn medians(cells: &[&Cell]) -> Option<String> {
    let mut medians: Vec<(Duration, Kind)> =
        cells.iter().filter_map(|cell| Some((cell.percentile(50, |it| it.failover)?, cell.kind))).collect();
    medians.sort_unstable();
    let shown: Vec<(String, String)> = medians.into_iter().map(|(median, kind)| (time(median), kind.to_string())).collect();
    let parts: Vec<String> = shown
        .chunk_by(|a, b| a.0 == b.0)
        .map(|group| format!("{} with {}", group[0].0, and(&group.iter().map(|(_, kind)| kind.clone()).collect::<Vec<_>>())))
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// "messages of the contest among 100 nodes: 9703 with bully, …": the algorithm's own messages, in the greatest group.
fn growth(cells: &[&Cell]) -> Option<String> {
    let nodes = cells.iter().map(|cell| cell.nodes).max()?;
    if cells.iter().all(|cell| cell.nodes == nodes) {
        return None;
    }
    let greatest: Vec<&Cell> = cells.iter().copied().filter(|cell| cell.nodes == nodes).collect();
    let parts: Vec<String> = preferred(&greatest)
        .into_iter()
        .filter_map(|cell| Some(format!("{} with {}", cell.percentile(50, |it| Some(it.contest_messages))?, cell.kind)))
        .collect();
    Some(format!("messages of the contest among {nodes} nodes: {}", parts.join(", ")))
}

/// "bully changed the leader 8 times (half of the runs), raft once": with guard if there is one.
fn changes(cells: &[&Cell]) -> Option<String> {
    let mut counts: Vec<(u64, Kind)> = preferred(cells)
        .into_iter()
        .filter_map(|cell| Some((cell.percentile(50, |it| Some(it.leaderships))?, cell.kind)))
        .collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let mut parts: Vec<String> = Vec::new();
    for group in counts.chunk_by(|a, b| a.0 == b.0) {
        let names: Vec<String> = group.iter().map(|(_, kind)| kind.to_string()).collect();
        parts.push(format!("{} {}", and(&names), times(group[0].0)));
    }
    (!parts.is_empty()).then(|| format!("the office changed hands: {}", parts.join(", ")))
}

/// "without guard nobody noticed: the leader stayed in office in every run"
fn unnoticed(cells: &[&Cell]) -> Option<String> {
    let blind: Vec<&Cell> = cells.iter().copied().filter(|cell| cell.figures.iter().all(|it| it.failover.is_none())).collect();
    (!blind.is_empty()).then(|| format!("{} did not notice and kept the leader in every run", who(&blind, cells)))
}

/// One cell a protocol: the guarded one, if there is one.
fn preferred<'a>(cells: &[&'a Cell]) -> Vec<&'a Cell> {
    let guarded = cells.iter().any(|cell| cell.guarded);
    cells.iter().copied().filter(|cell| cell.guarded == guarded).collect()
}

/// Names `some` of `all`: "every protocol without guard", "bully and ring with guard".
fn who(some: &[&Cell], all: &[&Cell]) -> String {
    let mut parts = Vec::new();
    for guarded in [false, true] {
        let count = all.iter().filter(|cell| cell.guarded == guarded).count();
        let names: Vec<String> = some.iter().filter(|cell| cell.guarded == guarded).map(|cell| cell.kind.to_string()).collect();
        let suffix = if guarded { "with guard" } else { "without guard" };
        match names.len() {
            0 => {}
            some if some == count && count > 1 => parts.push(format!("every protocol {suffix}")),
            _ => parts.push(format!("{} {suffix}", and(&names))),
        }
    }
    and(&parts)
}

/// "a", "a and b", "a, b and c".
fn and(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [init @ .., last] => format!("{} and {last}", init.join(", ")),
    }
}

fn times(count: u64) -> String {
    match count {
        0 => "never".into(),
        1 => "once".into(),
        2 => "twice".into(),
        more => format!("{more} times"),
    }
}

/// A span as people say it: `0`, `3.2 ms`, `154 ms`, `2.9 s`.
pub fn time(span: Duration) -> String {
    let ms = span.as_secs_f64() * 1000.0;
    if span.is_zero() {
        "0".into()
    } else if ms < 10.0 {
        format!("{ms:.1} ms")
    } else if ms < 1000.0 {
        format!("{ms:.0} ms")
    } else {
        format!("{:.1} s", ms / 1000.0)
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::super::trial::Figures;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn cell(kind: Kind, guarded: bool, figures: Figures) -> Cell {
        Cell { scenario: Scenario::Partition, nodes: 5, kind, guarded, figures: vec![figures; 10] }
    }

    #[test]
    fn two_leaders_are_named_with_who_how_often_and_how_long() {
        let calm = Figures { failover: Some(MS * 200), led_at_end: true, ..Figures::default() };
        let split = Figures { overlaps: 1, overlap_longest: MS * 2900, ..calm };
        let cells = [
            cell(Kind::Bully, false, split),
            cell(Kind::Raft, false, split),
            cell(Kind::Bully, true, calm),
            cell(Kind::Raft, true, Figures { failover: Some(MS * 100), ..calm }),
        ];
        assert_eq!(
            sentence(Scenario::Partition, &cells),
            "Every protocol without guard had two leaders at once in 10 of 10 runs, for up to 2.9 s, with guard never; \
             a new leader was in office after 100 ms with raft, 200 ms with bully (median, guarded)."
        );
        assert!(sentence(Scenario::Partition, &cells[2..]).starts_with("Nobody ever had two leaders at once;"));
    }

    #[test]
    fn a_guarded_protocol_with_two_leaders_is_never_passed_over() {
        let split = Figures { overlaps: 1, overlap_longest: MS, led_at_end: true, ..Figures::default() };
        let cells = [cell(Kind::Ring, true, split)];
        assert!(sentence(Scenario::Partition, &cells).starts_with("Ring with guard had two leaders at once"));
        let elsewhere = [Cell { scenario: Scenario::Resign, ..cells[0].clone() }];
        assert!(sentence(Scenario::Resign, &elsewhere).contains("ring with guard had two leaders at once"));
    }

    #[test]
    fn nothing_measured_says_nothing() {
        let mut empty = cell(Kind::Ring, true, Figures::default());
        empty.figures.clear();
        assert_eq!(sentence(Scenario::Partition, &[empty]), "");
    }
}
