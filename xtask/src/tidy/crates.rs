//! Rules about our crates: who may know whom, and what every manifest leaves to the workspace.

use super::{Complaint, Tree};
use crate::metadata::{Origin, Package, Purpose};

/// Which crates of ours a crate may depend on. What is not drawn is not allowed.
///
/// ```text
///   cli ──► service, lab, incumbent, supervisor, client      service ──► store, client, peer, protocol      supervisor ──► protocol      cli, service ──► traces
///                                                          lab ──► protocol, store                        incumbent ──► client, peer, protocol, store
///                                                          client ──► store                               peer ──► protocol
///   tests of cli, service, lab, incumbent, client, peer ──► testbed      tests of incumbent ──► service
/// ```
const DRAWN: &[(&str, &[&str])] = &[
    ("incumbent-protocol", &[]),
    ("incumbent-store", &[]),
    ("incumbent-client", &["incumbent-store"]),
    ("incumbent", &["incumbent-client", "incumbent-peer", "incumbent-protocol", "incumbent-store"]),
    ("incumbent-peer", &["incumbent-protocol"]),
    ("incumbent-lab", &["incumbent-protocol", "incumbent-store"]),
    ("incumbent-traces", &[]),
    ("incumbent-service", &["incumbent-client", "incumbent-peer", "incumbent-protocol", "incumbent-store", "incumbent-traces"]),
    ("incumbent-supervisor", &["incumbent-protocol"]),
    (
        "incumbent-cli",
        &[
            "incumbent-service",
            "incumbent-supervisor",
            "incumbent-traces",
            "incumbent-lab",
            "incumbent",
            "incumbent-client",
            "incumbent-store",
            "incumbent-protocol",
        ],
    ),
    ("incumbent-testbed", &[]),
    ("xtask", &[]),
];

/// What only tests may know, and whose tests: engines started for a test are no part of a product.
const DRAWN_FOR_TESTS: &[(&str, &[&str])] = &[
    (
        "incumbent-testbed",
        &["incumbent", "incumbent-client", "incumbent-lab", "incumbent-peer", "incumbent-service", "incumbent-cli"],
    ),
    ("incumbent-service", &["incumbent"]),
];

/// Every edge between our crates is drawn, and so is every crate. Dependencies of tests count: they are knowledge too.
pub(super) fn edges(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for package in tree.packages.iter().filter(|it| it.origin == Origin::Ours) {
        let complain = |what| Complaint { path: manifest(package), line: 0, what };
        let Some((_, drawn)) = DRAWN.iter().find(|(name, _)| *name == package.name) else {
            complaints.push(complain("this crate is not drawn: say in xtask/src/tidy/crates.rs whom it may know".to_owned()));
            continue;
        };
        for known in package.dependencies.iter().filter(|it| it.origin == Origin::Ours) {
            let by_tests =
                |(engine, testers): &(&str, &[&str])| known.name == *engine && testers.contains(&package.name.as_str());
            if DRAWN_FOR_TESTS.iter().any(by_tests) {
                if known.purpose == Purpose::Product {
                    complaints.push(complain(format!("{} is for tests: name it under [dev-dependencies]", known.name)));
                }
            } else if !drawn.contains(&known.name.as_str()) {
                complaints.push(complain(format!("{} must not know {}", package.name, known.name)));
            }
        }
    }
    complaints
}

fn manifest(package: &Package) -> String {
    if package.name == "xtask" { "xtask/Cargo.toml".into() } else { format!("crates/{}/Cargo.toml", package.name) }
}

/// A workspace of its own, which cannot take anything from ours.
const APART: &str = "fuzz/Cargo.toml";

/// Every crate takes the workspace's lints, edition and versions: each of them is said once.
pub(super) fn manifests(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in tree.ending("/Cargo.toml").filter(|file| file.path != APART) {
        if !file.text.contains("\n[lints]\nworkspace = true\n") {
            complaints.push(file.complain(0, "take the lints of the workspace: [lints] workspace = true"));
        }
        for field in ["version", "edition", "rust-version", "license"] {
            if !file.text.contains(&format!("\n{field}.workspace = true\n")) {
                complaints.push(file.complain(0, format!("take the {field} of the workspace: {field}.workspace = true")));
            }
        }
        let mut section = "";
        for (line, number) in file.text.lines().zip(1..) {
            if line.starts_with('[') {
                section = line;
            } else if section.ends_with("dependencies]") && line.contains('=') && !line.contains("workspace = true") {
                complaints.push(file.complain(number, "say the version in [workspace.dependencies], and here workspace = true"));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::super::examples::{places, tree, with_packages};
    use super::*;
    use crate::metadata::examples::{foreign_crate, our_crate, with_tests_on};

    #[test]
    fn an_edge_that_is_not_drawn_is_found() {
        let packages = vec![
            our_crate("incumbent-protocol", &["incumbent-store"], &[]),
            our_crate("incumbent-lab", &["incumbent-protocol"], &["clap"]),
            our_crate("incumbent", &["incumbent-lab"], &[]),
            our_crate("incumbent-cli", &["incumbent-lab", "incumbent-protocol"], &[]),
            our_crate("incumbent-novelty", &[], &[]),
            foreign_crate("clap", None),
        ];
        let found: Vec<String> = edges(&with_packages(&[], packages)).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("incumbent-protocol must not know incumbent-store"));
        assert!(found[1].contains("incumbent must not know incumbent-lab"));
        assert!(found[2].contains("not drawn"));
    }

    #[test]
    fn the_testbed_is_known_to_tests_alone_and_not_to_everyones() {
        let testbed = "incumbent-testbed";
        let packages = vec![
            with_tests_on(our_crate("incumbent", &[], &[]), testbed),
            our_crate("incumbent-service", &[testbed], &[]),
            with_tests_on(our_crate("incumbent-protocol", &[], &[]), testbed),
            with_tests_on(our_crate(testbed, &[], &[]), "incumbent"),
        ];
        let found: Vec<String> = edges(&with_packages(&[], packages)).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("dev-dependencies"), "{found:?}");
        assert!(found[1].contains("incumbent-protocol must not know incumbent-testbed"), "{found:?}");
        assert!(found[2].contains("incumbent-testbed must not know incumbent"), "{found:?}");
    }

    #[test]
    fn nothing_but_the_cli_may_know_the_cli_or_the_lab() {
        for (name, drawn) in DRAWN.iter().filter(|(name, _)| *name != "incumbent-cli") {
            assert!(!drawn.contains(&"incumbent-cli") && !drawn.contains(&"incumbent-lab"), "{name}");
        }
    }

    #[test]
    fn a_manifest_that_goes_its_own_way_is_found() {
        let good = "[package]\nname = \"a\"\nversion.workspace = true\nedition.workspace = true\nrust-version.workspace = true\nlicense.workspace = true\n\n[dependencies]\nclap = { workspace = true }\n\n[lints]\nworkspace = true\n";
        let own =
            good.replace("clap = { workspace = true }", "clap = \"4\"").replace("edition.workspace = true", "edition = \"2024\"");
        let lax = good.replace("[lints]", "[features]");
        let tree = tree(&[
            ("crates/a/Cargo.toml", good),
            ("crates/b/Cargo.toml", &own),
            ("crates/c/Cargo.toml", &lax),
            ("fuzz/Cargo.toml", &own),
        ]);
        assert_eq!(places(&manifests(&tree)), ["crates/b/Cargo.toml:0", "crates/b/Cargo.toml:9", "crates/c/Cargo.toml:0"]);
    }
}
