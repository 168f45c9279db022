//! Rules about documents: what they point to exists, and what they list is complete.

use std::collections::{BTreeMap, BTreeSet};

use super::{Complaint, File, Tree};
use crate::metadata::Origin;

/// Every relative link in a Markdown file leads to a file or folder, and its anchor to a heading there.
pub(super) fn links(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in tree.ending(".md") {
        for (number, line) in prose(file) {
            for target in without_code(line).split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
            {
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
                let Some(path) = (if path.is_empty() { Some(file.path.clone()) } else { beside(&file.path, path) }) else {
                    complaints.push(file.complain(number, format!("{target} leads out of the project")));
                    continue;
                };
                if !tree.has(&path) {
                    complaints.push(file.complain(number, format!("{target} leads nowhere: there is no {path}")));
                } else if let Some(anchor) = anchor
                    && !tree.file(&path).is_some_and(|it| headings(it).contains(anchor))
                {
                    complaints.push(file.complain(number, format!("{target} leads nowhere: {path} has no heading #{anchor}")));
                }
            }
        }
    }
    complaints
}

/// Folders whose files documents speak of.
const ROOTS: [&str; 6] = ["crates/", "xtask/", "docs/", "scenarios/", "examples/", ".ci/"];

/// A path of the project in backticks is one that exists. Patterns (`*`, `<name>`, `…`) are not looked at.
pub(super) fn paths(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in tree.ending(".md") {
        for (number, line) in prose(file) {
            for quoted in line.split('`').skip(1).step_by(2) {
                let path = quoted.split_once("::").map_or(quoted, |(path, _)| path);
                let pattern = path.contains(['*', '<', '{', '…', ' ', '$']);
                if !pattern && ROOTS.iter().any(|root| path.starts_with(root)) && !tree.has(path) {
                    complaints.push(file.complain(number, format!("there is no {path}")));
                }
            }
        }
    }
    complaints
}

const LIST: &str = "docs/dependencies.md";

/// The table under `## Taken` has a row for every crate of others that ours name, with who uses it, and no other row.
pub(super) fn dependencies(tree: &Tree) -> Vec<Complaint> {
    let mut used: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in tree.packages.iter().filter(|it| it.origin == Origin::Ours) {
        for dependency in package.dependencies.iter().filter(|it| it.origin != Origin::Ours) {
            used.entry(&dependency.name).or_default().insert(&package.name);
        }
    }
    let Some(file) = tree.file(LIST) else {
        return vec![Complaint {
            path: LIST.into(),
            line: 0,
            what: "there is no such file: it says what we build on, and why".into(),
        }];
    };
    let mut complaints = Vec::new();
    let mut section = "";
    for (line, number) in file.text.lines().zip(1..) {
        if line.starts_with("## ") {
            section = line;
        }
        if section != "## Taken" || !line.starts_with("| `") {
            continue;
        }
        let quoted =
            |cell: Option<&str>| cell.unwrap_or_default().split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        let mut cells = line.split('|').skip(1);
        let (names, users) = (quoted(cells.next()), quoted(cells.next()));
        for name in names {
            match used.remove(name.as_str()) {
                None => complaints.push(file.complain(number, format!("nobody uses {name}, or it has two rows"))),
                Some(real) if !users.iter().map(String::as_str).eq(real.iter().copied()) => {
                    let real: Vec<&str> = real.into_iter().collect();
                    complaints.push(file.complain(number, format!("{name} is used by: {}", real.join(", "))));
                }
                Some(_) => {}
            }
        }
    }
    complaints.extend(used.keys().map(|name| file.complain(0, format!("{name} has no row: say where and why it is used"))));
    complaints
}

/// The lines that are not in a block of code.
fn prose(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let mut in_block = false;
    file.text.lines().zip(1..).filter_map(move |(line, number)| {
        let fence = line.trim_start().starts_with("```");
        in_block ^= fence;
        (!in_block && !fence).then_some((number, line))
    })
}

fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// The path that `target` means in the file at `from`; `None` if it leaves the project.
fn beside(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The anchors of a file's headings, as GitHub makes them.
fn headings(file: &File) -> BTreeSet<String> {
    prose(file)
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(_, line)| {
            let title = line.trim_start_matches('#').trim();
            let kept = title.chars().filter(|it| it.is_alphanumeric() || [' ', '-', '_'].contains(it));
            kept.collect::<String>().to_lowercase().replace(' ', "-")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::examples::{places, tree, with_packages};
    use super::*;
    use crate::metadata::examples::our_crate;

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let good =
            "[a](docs/cli.md) [b](docs/cli.md#exit-codes) [c](https://example.org/x) [d](docs) [e](#top-of-it)\n# Top of it\n";
        let bad = "x\n[a](cli.md) [b](../nothing.md)\n[c](cli.md#no-such) [d](../../x)\n```\n[e](nothing)\n```\n`[f](nothing)`\n";
        let tree = tree(&[("README.md", good), ("docs/cli.md", "## Exit codes\n"), ("docs/bad.md", bad)]);
        assert_eq!(places(&links(&tree)), ["docs/bad.md:2", "docs/bad.md:3", "docs/bad.md:3"]);
    }

    #[test]
    fn a_path_that_is_gone_is_found() {
        let text = "`crates/a/src/lib.rs` `crates/a` `crates/*/x` `docs/<name>.md` `cargo x docs/no`\n`crates/b`\n`crates/a/src/lib.rs::thing`\n";
        let tree = tree(&[("ARCHITECTURE.md", text), ("crates/a/src/lib.rs", "")]);
        assert_eq!(places(&paths(&tree)), ["ARCHITECTURE.md:2"]);
    }

    #[test]
    fn a_list_that_is_not_complete_or_not_true_is_found() {
        let list = "## Taken\n| crate | where |\n| --- | --- |\n| `clap` | `incumbent-cli` |\n| `serde` | `incumbent-cli` |\n| `gone` | `xtask` |\n\n## Not taken\n| `openssl` | |\n";
        let packages = || {
            vec![
                our_crate("incumbent-cli", &["incumbent-lab"], &["clap", "serde", "libc"]),
                our_crate("incumbent-lab", &[], &["serde"]),
            ]
        };
        let found = dependencies(&with_packages(&[(LIST, list)], packages()));
        assert_eq!(places(&found), ["docs/dependencies.md:5", "docs/dependencies.md:6", "docs/dependencies.md:0"]);
        assert!(found[0].what.contains("incumbent-cli, incumbent-lab") && found[2].what.contains("libc"), "{found:?}");
        assert_eq!(dependencies(&with_packages(&[], packages())).len(), 1);
    }
}
