//! Every crate we build on comes from crates.io under a licence that we accept.
//!
//! The list of licences stands in deny.toml and nowhere else, so that cargo-deny, for those who have it, decides the same.
//! Advisories need a database that cannot be had offline; cargo-deny checks them where it is installed.

use std::fs;

use crate::metadata::{self, CRATES_IO, Origin, Package};
use crate::shell;

/// Checks licences and origins here, and all of deny.toml by cargo-deny if it is installed.
pub(crate) fn run() -> Result<(), String> {
    let deny = fs::read_to_string(shell::root().join("deny.toml")).map_err(|wrong| format!("cannot read deny.toml: {wrong}"))?;
    let accepted = accepted(&deny)?;
    let packages = metadata::read()?;
    let complaints = check(&packages, &accepted);
    for complaint in &complaints {
        println!("{complaint}");
    }
    if !complaints.is_empty() {
        return Err(format!("{} crates may not be used", complaints.len()));
    }
    let foreign = packages.iter().filter(|it| it.origin != Origin::Ours).count();
    println!("{foreign} crates of others: all from crates.io, all under an accepted licence");
    if shell::exists("cargo-deny") {
        return shell::run(&mut shell::cargo(&["deny", "check"]));
    }
    println!("NOT CHECKED: advisories and yanked versions; that takes cargo-deny and its database (see CONTRIBUTING.md)");
    Ok(())
}

/// The licences that `[licenses] allow` in deny.toml names.
fn accepted(deny: &str) -> Result<Vec<String>, String> {
    let section = deny.split("\n[").find(|section| section.trim_start_matches('[').starts_with("licenses]"));
    let list =
        section.and_then(|it| it.split_once("\nallow = [")).and_then(|(_, rest)| rest.split_once(']')).map(|(list, _)| list);
    let names: Vec<String> = list.unwrap_or_default().split('"').skip(1).step_by(2).map(str::to_owned).collect();
    if names.is_empty() { Err("deny.toml has no [licenses] with an allow list".into()) } else { Ok(names) }
}

/// What is wrong with whom.
fn check(packages: &[Package], accepted: &[String]) -> Vec<String> {
    packages
        .iter()
        .filter_map(|package| {
            let Origin::Source(source) = &package.origin else { return None };
            let wrong = if source != CRATES_IO {
                format!("comes from {source}, not from crates.io")
            } else {
                match package.licence.as_deref().map(|licence| satisfied(licence, accepted)) {
                    None => "names no licence".to_owned(),
                    Some(Ok(true)) => return None,
                    Some(Ok(false)) => {
                        format!("is under '{}', which deny.toml does not allow", package.licence.as_deref().unwrap_or_default())
                    }
                    Some(Err(wrong)) => wrong,
                }
            };
            Some(format!("{} {} {wrong}", package.name, package.version))
        })
        .collect()
}

/// Whether an SPDX expression can be satisfied with the accepted licences alone.
///
/// `WITH` binds closest, then `AND`, then `OR`. The slash of old manifests means `OR`.
fn satisfied(expression: &str, accepted: &[String]) -> Result<bool, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    match (either(&mut rest, accepted), rest) {
        (Some(answer), []) => Ok(answer),
        (Some(_) | None, _) => Err(format!("has '{expression}' for a licence, which is no SPDX expression")),
    }
}

fn either(rest: &mut &[&str], accepted: &[String]) -> Option<bool> {
    let mut answer = both(rest, accepted)?;
    while take(rest, "OR") {
        answer |= both(rest, accepted)?;
    }
    Some(answer)
}

fn both(rest: &mut &[&str], accepted: &[String]) -> Option<bool> {
    let mut answer = one(rest, accepted)?;
    while take(rest, "AND") {
        answer &= one(rest, accepted)?;
    }
    Some(answer)
}

fn one(rest: &mut &[&str], accepted: &[String]) -> Option<bool> {
    if take(rest, "(") {
        let answer = either(rest, accepted)?;
        return take(rest, ")").then_some(answer);
    }
    let licence = identifier(rest)?;
    let named = |name: &str| accepted.iter().any(|it| it == name);
    if !take(rest, "WITH") {
        return Some(named(licence));
    }
    // An exception only ever gives more rights, so it does no harm to a licence that is accepted without it.
    let exception = identifier(rest)?;
    Some(named(licence) || named(&format!("{licence} WITH {exception}")))
}

fn identifier<'a>(rest: &mut &[&'a str]) -> Option<&'a str> {
    let (first, others) = rest.split_first()?;
    *rest = others;
    (!["AND", "OR", "WITH", "(", ")"].contains(first)).then_some(first)
}

fn take(rest: &mut &[&str], word: &str) -> bool {
    match rest.split_first() {
        Some((first, others)) if *first == word => {
            *rest = others;
            true
        }
        Some(_) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::examples::{foreign_crate, our_crate};

    fn list() -> Vec<String> {
        ["MIT", "Apache-2.0", "Unicode-3.0"].map(str::to_owned).to_vec()
    }

    #[test]
    fn expressions_are_decided_by_precedence() {
        for (expression, answer) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("GPL-3.0-only OR MIT", true),
            ("MIT AND GPL-3.0-only", false),
            ("MIT OR GPL-3.0-only AND GPL-2.0-only", true),
            ("(MIT OR GPL-3.0-only) AND GPL-2.0-only", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("Apache-2.0 WITH LLVM-exception OR GPL-2.0-only", true),
            ("GPL-2.0-only WITH Classpath-exception-2.0", false),
            ("Unlicense/MIT", true),
            ("mit", false),
        ] {
            assert_eq!(satisfied(expression, &list()), Ok(answer), "{expression}");
        }
        assert_eq!(
            satisfied("GPL-2.0-only WITH Classpath-exception-2.0", &["GPL-2.0-only WITH Classpath-exception-2.0".into()]),
            Ok(true)
        );
    }

    #[test]
    fn what_is_no_expression_is_refused_and_never_accepted() {
        for expression in ["", "MIT OR", "OR MIT", "(MIT", "MIT)", "MIT Apache-2.0", "MIT WITH", "AND"] {
            assert!(satisfied(expression, &list()).is_err(), "{expression}");
        }
    }

    #[test]
    fn a_crate_is_refused_for_its_licence_for_none_and_for_its_origin() {
        let mut elsewhere = foreign_crate("elsewhere", Some("MIT"));
        elsewhere.origin = Origin::Source("git+https://example.org/it".into());
        let packages = [
            our_crate("ours", &[], &[]),
            foreign_crate("fine", Some("MIT OR Apache-2.0")),
            foreign_crate("copyleft", Some("AGPL-3.0-only")),
            foreign_crate("nameless", None),
            elsewhere,
        ];
        let complaints = check(&packages, &list());
        assert_eq!(complaints.len(), 3, "{complaints:?}");
        for (complaint, says) in
            complaints.iter().zip(["copyleft 1.2.3 is under 'AGPL-3.0-only'", "nameless 1.2.3 names no", "elsewhere"])
        {
            assert!(complaint.starts_with(says), "{complaint}");
        }
    }

    #[test]
    fn the_list_is_read_from_the_right_section() {
        let deny = "[bans]\nallow = [\"x\"]\n\n[licenses]\n# why\nallow = [\n    \"MIT\",\n    \"Apache-2.0\",\n]\n[sources]\n";
        assert_eq!(accepted(deny).unwrap(), ["MIT", "Apache-2.0"]);
        assert!(accepted("[licenses]\nconfidence-threshold = 1\n").is_err());
        assert!(accepted(include_str!("../../deny.toml")).unwrap().contains(&"MIT".to_owned()));
    }
}
