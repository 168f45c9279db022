//! Rules about the form of Rust files, and about what the pure crates must not touch.

use super::{Complaint, File, Tree};

/// Every Rust file says in its first line what it is.
pub(super) fn heads(tree: &Tree) -> Vec<Complaint> {
    tree.ending(".rs")
        .filter(|file| !file.text.starts_with("//! "))
        .map(|file| file.complain(1, "begin with //! and what this file is, what it promises, what it leaves out"))
        .collect()
}

/// A longer file wants to be two.
const LINES_MAX: usize = 800;

/// Files that may be longer, and why.
const LONGER: &[(&str, &str)] = &[];

/// No Rust file is longer than [`LINES_MAX`] without a reason, and no reason outlives its need.
pub(super) fn length(tree: &Tree) -> Vec<Complaint> {
    too_long(tree, LONGER)
}

fn too_long(tree: &Tree, longer: &[(&str, &str)]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in tree.ending(".rs") {
        let lines = file.text.lines().count();
        match (lines > LINES_MAX, longer.iter().any(|(path, _)| *path == file.path)) {
            (true, false) => complaints.push(file.complain(0, format!("{lines} lines are too many: split it below {LINES_MAX}"))),
            (false, true) => complaints.push(file.complain(0, "is short enough: take it off the list of longer files")),
            (true, true) | (false, false) => {}
        }
    }
    complaints
}

/// Words that say nothing about a thing.
const EMPTY: [&str; 8] = ["info", "data", "manager", "handler", "util", "utils", "common", "helpers"];

/// No file is called by an empty word and no function begins with `get_`.
pub(super) fn names(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in tree.ending(".rs") {
        let name = file.path.trim_end_matches("/mod.rs").trim_end_matches(".rs").rsplit('/').next().unwrap_or_default();
        if name.split('_').any(|part| EMPTY.contains(&part)) {
            complaints.push(file.complain(0, format!("'{name}' does not say what is in it: name the thing")));
        }
        for (number, code) in file.code() {
            if code.contains(concat!("fn ", "get_")) {
                complaints.push(file.complain(number, "call it by what it returns, without get_"));
            }
        }
    }
    complaints
}

/// The crates that decide and remember, and nothing else.
const PURE: [&str; 2] = ["crates/incumbent-protocol/", "crates/incumbent-store/"];

/// The pure crates are `no_std`, in their tests too, and keep no order that differs from run to run.
pub(super) fn no_std(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in PURE.iter().flat_map(|folder| under(tree, folder, "src/")) {
        if file.path.ends_with("/src/lib.rs") && !file.code().any(|(_, code)| code.trim() == "#![no_std]") {
            complaints.push(file.complain(0, "a pure crate says #![no_std]"));
        }
        for (number, code) in file.code() {
            for (what, instead) in [
                ("extern crate std", "use core and alloc"),
                ("std::", "use core and alloc"),
                ("HashMap", "use BTreeMap: its order is the same in every run"),
                ("HashSet", "use BTreeSet: its order is the same in every run"),
            ] {
                if has_word(code, what) {
                    complaints.push(file.complain(number, format!("{what} in a pure crate: {instead}")));
                }
            }
        }
    }
    complaints
}

/// Crates in which a run must come out the same every time.
const DETERMINISTIC: [&str; 3] = ["crates/incumbent-protocol/", "crates/incumbent-store/", "crates/incumbent-lab/"];

/// Nothing in a deterministic crate asks the machine for the time or for chance.
pub(super) fn ambient(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in DETERMINISTIC.iter().flat_map(|folder| under(tree, folder, "src/")) {
        for (number, code) in file.code() {
            for what in ["Instant::now", "SystemTime::now", "thread_rng", "RandomState", "getrandom"] {
                if has_word(code, what) {
                    complaints.push(file.complain(number, format!("{what}: time and chance come in as arguments")));
                }
            }
        }
    }
    complaints
}

/// What tells the time on the wall.
const WALL_CLOCKS: [&str; 9] = [
    "SystemTime::now",
    "UNIX_EPOCH.elapsed",
    "Timestamp::now",
    "Zoned::now",
    "Utc::now",
    "ClockId::Realtime",
    "CLOCK_REALTIME",
    "gettimeofday",
    ".modified()",
];

/// Who looks at the wall clock, and why nothing that is promised depends on what it sees there.
const WALL_CLOCK_READERS: &[(&str, &str)] = &[
    ("crates/incumbent-cli/src/elections/history.rs", "shows how long a leadership has lasted"),
    ("crates/incumbent-cli/src/elections/log.rs", "shows when something was said"),
    ("crates/incumbent-cli/src/elections/watch.rs", "shows when somebody began to lead"),
    ("crates/incumbent-cli/src/lab/compare.rs", "writes a date at the head of a report"),
    (
        "crates/incumbent-cli/src/run/job.rs",
        "a job for four o'clock is for four on the wall; who does it is decided by the election",
    ),
    ("crates/incumbent-cli/src/run/record.rs", "writes when something was done, for people"),
    (
        "crates/incumbent-cli/src/sidecar/badge.rs",
        "shows the end of a leadership beside its deadline on the boot clock, which counts",
    ),
    (
        "crates/incumbent-service/src/server/driver.rs",
        "stamps entries for people; the store's tests show that the stamps decide nothing",
    ),
    ("crates/incumbent-supervisor/src/cgroup.rs", "the age of a group that a dead process has left"),
    ("crates/incumbent-testbed/src/kubernetes/time.rs", "a server for tests writes dates as the real one does"),
    ("crates/incumbent-traces/src/span.rs", "collectors want to know when something was"),
    ("crates/incumbent/src/desk.rs", "writes since when somebody leads, for people"),
    (
        "crates/incumbent/src/engines/kubernetes/record.rs",
        "writes dates that other clients show; they are compared with themselves only",
    ),
    ("crates/incumbent/src/identity.rs", "is one of the things that make an identity unique"),
];

/// The wall clock may be set at any time: whatever is promised does not look at it, and whoever does has a reason.
pub(super) fn wall_clock(tree: &Tree) -> Vec<Complaint> {
    who_reads_the_wall(tree, WALL_CLOCK_READERS)
}

fn who_reads_the_wall(tree: &Tree, readers: &[(&str, &str)]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in tree.ending(".rs").filter(|it| it.path.starts_with("crates/") && it.path.contains("/src/")) {
        // Tests stand last in a file.
        let code = file.code().take_while(|(_, code)| !code.trim_start().starts_with("#[cfg(test)]"));
        let reads: Vec<usize> =
            code.filter(|(_, code)| WALL_CLOCKS.iter().any(|it| code.contains(it))).map(|(number, _)| number).collect();
        match (reads.is_empty(), readers.iter().any(|(path, _)| *path == file.path)) {
            (false, false) => complaints.extend(reads.into_iter().map(|number| {
                file.complain(
                    number,
                    "a wall clock may be set at any time: use a clock that only goes on, or say why nothing depends on it",
                )
            })),
            (true, true) => complaints.push(file.complain(0, "reads no wall clock: take it off the list of those that do")),
            (true, false) | (false, true) => {}
        }
    }
    complaints
}

fn under<'a>(tree: &'a Tree, folder: &'a str, part: &'a str) -> impl Iterator<Item = &'a File> {
    tree.ending(".rs").filter(move |file| file.path.strip_prefix(folder).is_some_and(|rest| rest.starts_with(part)))
}

/// Whether `what` stands in `code`, and not as the end of a longer name.
fn has_word(code: &str, what: &str) -> bool {
    code.match_indices(what).any(|(at, _)| !code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_'))
}

#[cfg(test)]
mod tests {
    use super::super::examples::{places, tree};
    use super::*;

    #[test]
    fn a_file_without_a_head_is_found() {
        let tree = tree(&[("a.rs", "//! What it is.\n"), ("b.rs", "use x;\n"), ("c.rs", "//!\n"), ("d.md", "")]);
        assert_eq!(places(&heads(&tree)), ["b.rs:1", "c.rs:1"]);
    }

    #[test]
    fn a_long_file_is_found_and_so_is_an_exception_that_is_not_needed() {
        let long = "x\n".repeat(LINES_MAX + 1);
        let tree = tree(&[("fits.rs", &long[2..]), ("long.rs", &long), ("named.rs", &long), ("short.rs", "x\n")]);
        assert_eq!(places(&too_long(&tree, &[("named.rs", "why"), ("short.rs", "why")])), ["long.rs:0", "short.rs:0"]);
    }

    #[test]
    fn an_empty_name_is_found() {
        let tree = tree(&[
            ("src/utils.rs", ""),
            ("src/common/mod.rs", ""),
            ("src/node_data.rs", ""),
            ("src/dataflow.rs", "fn forget_it() {}\n// fn get_it()\nfn get_it() {}\n"),
        ]);
        assert_eq!(places(&names(&tree)), ["src/utils.rs:0", "src/common/mod.rs:0", "src/node_data.rs:0", "src/dataflow.rs:3"]);
    }

    #[test]
    fn the_standard_library_in_a_pure_crate_is_found() {
        let tree = tree(&[
            ("crates/incumbent-protocol/src/lib.rs", "//! Not #![no_std].\nextern crate std;\n"),
            (
                "crates/incumbent-protocol/src/ring.rs",
                "// std::time\nuse std::time::Duration;\nuse x::HashMap;\nlet x = my_std::y;\n",
            ),
            ("crates/incumbent-store/src/lib.rs", "#![no_std]\n"),
            ("crates/incumbent-lab/src/lib.rs", "use std::fmt;\n"),
        ]);
        assert_eq!(
            places(&no_std(&tree)),
            [
                "crates/incumbent-protocol/src/lib.rs:0",
                "crates/incumbent-protocol/src/lib.rs:2",
                "crates/incumbent-protocol/src/ring.rs:2",
                "crates/incumbent-protocol/src/ring.rs:3"
            ]
        );
    }

    #[test]
    fn who_reads_the_wall_clock_without_a_reason_is_found_and_so_is_a_reason_that_is_not_needed() {
        let lines = WALL_CLOCKS.map(|it| format!("let now = a.{it}();\n")).concat();
        let tree = tree(&[
            ("crates/a/src/bad.rs", &lines),
            ("crates/a/src/named.rs", "let now = SystemTime::now();\n"),
            ("crates/a/src/clean.rs", "// SystemTime::now\n#[cfg(test)]\nmod tests { SystemTime::now() }\n"),
            ("crates/a/src/idle.rs", "let now = Instant::now();\n"),
            ("crates/a/tests/test.rs", "let now = SystemTime::now();\n"),
        ]);
        let found = who_reads_the_wall(&tree, &[("crates/a/src/named.rs", "why"), ("crates/a/src/idle.rs", "why")]);
        let mut expected: Vec<String> = (1..=WALL_CLOCKS.len()).map(|it| format!("crates/a/src/bad.rs:{it}")).collect();
        expected.push("crates/a/src/idle.rs:0".to_owned());
        assert_eq!(places(&found), expected);
    }

    #[test]
    fn a_clock_in_a_deterministic_crate_is_found() {
        let tree = tree(&[
            ("crates/incumbent-lab/src/world.rs", "// Instant::now\nlet now = Instant::now();\nlet then = MyInstant::now();\n"),
            ("crates/incumbent-lab/benches/figures.rs", "let now = Instant::now();\n"),
            ("crates/incumbent-cli/src/main.rs", "let now = Instant::now();\n"),
        ]);
        assert_eq!(places(&ambient(&tree)), ["crates/incumbent-lab/src/world.rs:2"]);
    }
}
