//! Rules about words that must not stand in a file.
//!
//! The words are put together at compile time here, or this file would break its own rules.

use super::{Complaint, Tree};

const UNFINISHED: [&str; 6] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("#[ig", "nore"),
];

/// What is begun is finished, in code and in documents, and a test that is there is run.
pub(super) fn unfinished(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in tree.ending(".rs").chain(tree.ending(".md")) {
        for (line, number) in file.text.lines().zip(1..) {
            for word in UNFINISHED {
                if stands_alone(line, word) {
                    complaints.push(file.complain(number, format!("{word}: finish it, or leave it out")));
                }
            }
        }
    }
    complaints
}

fn stands_alone(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let name = |it: char| it.is_alphanumeric() || it == '_';
        let longer_before = line[..at].ends_with(name);
        let longer_behind = word.ends_with(name) && line[at + word.len()..].starts_with(name);
        !longer_before && !longer_behind
    })
}

const SLEEP: &str = concat!("slee", "p(");
const THREAD_SLEEP: &str = concat!("thread::slee", "p");
const PAUSED: &str = concat!("#[tokio::test(start_pa", "used = true)]");

/// A test that waits for real time is slow on a good day and wrong on a bad one. Where all tests of a file pause tokio's clock, its time is virtual.
pub(super) fn sleeps(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in tree.ending(".rs") {
        let mut in_tests = file.path.split('/').any(|part| part == "tests" || part == "tests.rs" || part == "examples");
        let paused =
            file.text.contains(PAUSED) && !file.text.contains(concat!("#[tokio::te", "st]")) && !file.text.contains(THREAD_SLEEP);
        for (number, code) in file.code() {
            // Tests stand last in a file, so all behind this line is theirs.
            in_tests |= code.trim_start().starts_with("#[cfg(test)]");
            if in_tests && !paused && code.contains(SLEEP) {
                complaints
                    .push(file.complain(number, "a test must not wait for real time: let virtual time, or an answer, wake it"));
            }
        }
    }
    complaints
}

/// Where people and machines keep their checkouts.
const HOMES: [&str; 6] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("\\Us", "ers\\"),
    concat!("/worksp", "ace/"),
];

/// A path of the machine that a file was written on means nothing on another.
pub(super) fn machine_paths(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in &tree.files {
        for (line, number) in file.text.lines().zip(1..) {
            for home in HOMES {
                // Behind a letter it is a part of something else: an address, a longer path.
                let found = line
                    .match_indices(home)
                    .any(|(at, _)| !line[..at].ends_with(|before: char| before.is_alphanumeric() || before == '.'));
                if found {
                    complaints.push(
                        file.complain(number, format!("{home} is a path of one machine: use one from the root of the project")),
                    );
                }
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::super::examples::{places, tree};
    use super::*;

    #[test]
    fn what_is_left_for_later_is_found_and_longer_words_are_not() {
        let lines = UNFINISHED.map(|word| format!("// {word} it\n")).concat();
        let tree = tree(&[
            ("a.rs", &lines),
            ("b.md", &lines),
            ("c.rs", concat!("TO", "DOS my_to", "do! methodo", "logy\n")),
            ("d.txt", &lines),
        ]);
        let found = unfinished(&tree);
        assert_eq!(found.len(), 2 * UNFINISHED.len(), "{found:?}");
        assert!(found.iter().all(|it| it.path == "a.rs" || it.path == "b.md"));
    }

    #[test]
    fn a_wait_in_a_test_is_found_and_one_elsewhere_is_not() {
        let wait = format!("thread::{SLEEP}x);\n");
        let inside = format!("{wait}#[cfg(test)]\nmod tests {{\n// {wait}{wait}}}\n");
        let virtual_time = format!("{PAUSED}\nfn a() {{ {SLEEP}x) }}\n");
        let tree = tree(&[("src/a.rs", &inside), ("tests/b.rs", &wait), ("src/c.rs", &wait), ("tests/d.rs", &virtual_time)]);
        assert_eq!(places(&sleeps(&tree)), ["src/a.rs:5", "tests/b.rs:1"]);
    }

    #[test]
    fn a_path_of_one_machine_is_found_and_one_of_the_project_is_not() {
        let lines = HOMES.map(|home| format!("see {home}x\n")).concat();
        let innocent = format!("https://example.org{}x and net{}x\n", HOMES[2], HOMES[0]);
        let tree = tree(&[("a.txt", &lines), ("b.md", &innocent)]);
        assert_eq!(machine_paths(&tree).len(), HOMES.len());
    }
}
