//! Rules about scenarios: a file that no test runs proves nothing.

use super::{Complaint, Tree};

/// The test that runs every `.txt` below scenarios/.
const RUNNER: &str = "crates/incumbent-lab/tests/scenarios.rs";

/// Every file below scenarios/ has the ending that the runner looks for, and the runner is there.
pub(super) fn run_by_a_test(tree: &Tree) -> Vec<Complaint> {
    let scenarios = || tree.files.iter().filter(|file| file.path.starts_with("scenarios/") && !file.path.ends_with(".md"));
    let mut complaints: Vec<Complaint> = scenarios()
        .filter(|file| !file.path.ends_with(".txt"))
        .map(|file| file.complain(0, "no test runs it: a scenario ends with .txt"))
        .collect();
    let walks =
        tree.file(RUNNER).is_some_and(|file| file.code().any(|(_, code)| code.contains("\"") && code.contains("scenarios")));
    if !walks {
        complaints
            .extend(scenarios().map(|file| file.complain(0, format!("no test runs it: {RUNNER} does not read scenarios/"))));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::super::examples::{places, tree};
    use super::*;

    #[test]
    fn a_scenario_that_nothing_runs_is_found() {
        let runner = (RUNNER, "let folder = root.join(\"scenarios\");\n");
        let files = [("scenarios/raft/a.txt", ""), ("scenarios/raft/b.text", ""), ("scenarios/README.md", "")];
        assert_eq!(places(&run_by_a_test(&tree(&[files[0], files[1], files[2], runner]))), ["scenarios/raft/b.text:0"]);
        assert_eq!(places(&run_by_a_test(&tree(&[files[0]]))), ["scenarios/raft/a.txt:0"]);
        assert_eq!(places(&run_by_a_test(&tree(&[files[0], (RUNNER, "// scenarios\n")]))), ["scenarios/raft/a.txt:0"]);
        assert!(run_by_a_test(&tree(&[])).is_empty());
    }
}
