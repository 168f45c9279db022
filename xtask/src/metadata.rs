//! The workspace as cargo knows it: our crates, what they depend on, and all that comes with it.

use serde_json::Value;

use crate::shell;

/// Where crates.io's packages come from, as cargo spells it.
pub(crate) const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// A crate in the lock file.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// An SPDX expression.
    pub(crate) licence: Option<String>,
    pub(crate) origin: Origin,
    pub(crate) dependencies: Vec<Dependency>,
}

/// Where a crate comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// This workspace.
    Ours,
    /// Elsewhere, as cargo spells it.
    Source(String),
}

/// A crate that another names in its manifest.
#[derive(Clone, Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) origin: Origin,
    pub(crate) purpose: Purpose,
}

/// What a dependency is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// The crate itself, or its build script: whoever uses the crate gets it too.
    Product,
    /// Tests, examples and benches alone.
    Tests,
}

/// All crates in the lock file, ours included.
pub(crate) fn read() -> Result<Vec<Package>, String> {
    let json = shell::output(&mut shell::cargo(&["metadata", "--format-version", "1", "--locked", "--quiet"]))?;
    parse(&json)
}

fn parse(json: &str) -> Result<Vec<Package>, String> {
    let document: Value = serde_json::from_str(json).map_err(|wrong| format!("cargo metadata printed no JSON: {wrong}"))?;
    list(&document, "packages")?.iter().map(package).collect()
}

fn package(it: &Value) -> Result<Package, String> {
    Ok(Package {
        name: text(it, "name")?,
        version: text(it, "version")?,
        licence: it["license"].as_str().map(str::to_owned),
        origin: origin(it),
        dependencies: list(it, "dependencies")?
            .iter()
            .map(|it| Ok(Dependency { name: text(it, "name")?, origin: origin(it), purpose: purpose(it) }))
            .collect::<Result<_, String>>()?,
    })
}

fn origin(it: &Value) -> Origin {
    it["source"].as_str().map_or(Origin::Ours, |source| Origin::Source(source.to_owned()))
}

fn purpose(it: &Value) -> Purpose {
    if it["kind"].as_str() == Some("dev") { Purpose::Tests } else { Purpose::Product }
}

fn text(it: &Value, field: &str) -> Result<String, String> {
    it[field].as_str().map(str::to_owned).ok_or_else(|| format!("cargo metadata has a package without {field}"))
}

fn list<'a>(it: &'a Value, field: &str) -> Result<&'a Vec<Value>, String> {
    it[field].as_array().ok_or_else(|| format!("cargo metadata has no {field}"))
}

/// Packages for the tests of other files.
#[cfg(test)]
pub(crate) mod examples {
    use super::*;

    /// A crate of ours that depends on `ours`, which are ours, and on `foreign`, which are not.
    pub(crate) fn our_crate(name: &str, ours: &[&str], foreign: &[&str]) -> Package {
        let dependency = |name: &&str, origin| Dependency { name: (*name).to_owned(), origin, purpose: Purpose::Product };
        let ours = ours.iter().map(|name| dependency(name, Origin::Ours));
        let foreign = foreign.iter().map(|name| dependency(name, Origin::Source(CRATES_IO.into())));
        Package {
            name: name.into(),
            version: "0.1.0".into(),
            licence: None,
            origin: Origin::Ours,
            dependencies: ours.chain(foreign).collect(),
        }
    }

    /// The same crate, with `name` of ours in its tests.
    pub(crate) fn with_tests_on(mut package: Package, name: &str) -> Package {
        package.dependencies.push(Dependency { name: name.into(), origin: Origin::Ours, purpose: Purpose::Tests });
        package
    }

    /// A crate of others, from crates.io.
    pub(crate) fn foreign_crate(name: &str, licence: Option<&str>) -> Package {
        Package {
            name: name.into(),
            version: "1.2.3".into(),
            licence: licence.map(str::to_owned),
            origin: Origin::Source(CRATES_IO.into()),
            dependencies: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_tell_ours_from_others() {
        let json = r#"{"packages":[
            {"name":"ours","version":"0.1.0","license":"MIT","source":null,"dependencies":[
                {"name":"clap","source":"registry+x","kind":null},{"name":"proptest","source":"registry+x","kind":"dev"}]},
            {"name":"clap","version":"4.0.0","license":null,"source":"registry+x","dependencies":[]}]}"#;
        let packages = parse(json).unwrap();
        assert_eq!(packages[0].origin, Origin::Ours);
        assert_eq!(packages[0].dependencies[0].origin, Origin::Source("registry+x".into()));
        assert_eq!(packages[0].dependencies.iter().map(|it| it.purpose).collect::<Vec<_>>(), [Purpose::Product, Purpose::Tests]);
        assert_eq!(packages[1].licence, None);
    }

    #[test]
    fn other_output_is_refused_with_what_is_missing() {
        assert!(parse("no").unwrap_err().contains("no JSON"));
        assert!(parse("{}").unwrap_err().contains("no packages"));
        assert!(parse(r#"{"packages":[{"version":"1"}]}"#).unwrap_err().contains("without name"));
    }
}
