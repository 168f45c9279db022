//! `cargo xtask tidy`: the rules of the house that no compiler checks. One file for each kind of rule.
//!
//! A rule is a pure function from the tree to its complaints, so that its test can feed it a tree that breaks it.

mod crates;
mod documents;
mod scenarios;
mod sources;
mod words;

use std::fmt;
use std::fs;
use std::path::Path;

use crate::metadata::{self, Package};
use crate::shell;

/// A text file of the project.
pub(crate) struct File {
    /// From the root, with slashes.
    path: String,
    text: String,
}

/// Everything that rules look at.
pub(crate) struct Tree {
    /// In the order of their paths.
    files: Vec<File>,
    packages: Vec<Package>,
}

impl Tree {
    /// The files whose names end so.
    fn ending<'a>(&'a self, end: &'a str) -> impl Iterator<Item = &'a File> {
        self.files.iter().filter(move |file| file.path.ends_with(end))
    }

    fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether there is a file or a folder of this path.
    fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        self.files.iter().any(|file| file.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    }
}

impl File {
    /// The lines with their numbers, without what stands behind `//`.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().zip(1..).map(|(line, number)| (number, line.split_once("//").map_or(line, |(code, _)| code)))
    }

    /// A complaint about a line of this file; line 0 is the whole of it.
    fn complain(&self, line: usize, what: impl Into<String>) -> Complaint {
        Complaint { path: self.path.clone(), line, what: what.into() }
    }
}

/// What is not as it should be, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Complaint {
    path: String,
    /// 0 for the whole file.
    line: usize,
    what: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

type Rule = fn(&Tree) -> Vec<Complaint>;

const RULES: &[(&str, Rule)] = &[
    ("a Rust file begins with what it is", sources::heads),
    ("a Rust file can be read in one sitting", sources::length),
    ("names say what a thing is", sources::names),
    ("the pure crates need no operating system", sources::no_std),
    ("time and chance are arguments", sources::ambient),
    ("nothing depends on the wall clock", sources::wall_clock),
    ("nothing is left for later", words::unfinished),
    ("no test waits for real time", words::sleeps),
    ("no file knows the machine it was written on", words::machine_paths),
    ("crates depend on each other as drawn", crates::edges),
    ("versions and lints stand in the workspace", crates::manifests),
    ("links lead somewhere", documents::links),
    ("paths in documents exist", documents::paths),
    ("docs/dependencies.md names what we build on", documents::dependencies),
    ("every scenario is run", scenarios::run_by_a_test),
];

/// Applies every rule to the tree as it is.
pub(crate) fn run() -> Result<(), String> {
    let mut files = Vec::new();
    let root = shell::root();
    collect(&root, &root, &mut files).map_err(|wrong| format!("cannot read the tree: {wrong}"))?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let tree = Tree { files, packages: metadata::read()? };
    let mut broken = 0;
    for (name, rule) in RULES {
        let complaints = rule(&tree);
        if !complaints.is_empty() {
            broken += 1;
            println!("{name}:");
        }
        for complaint in complaints {
            println!("  {complaint}");
        }
    }
    if broken > 0 {
        return Err(format!("{broken} of {} rules are broken", RULES.len()));
    }
    println!("{} files keep {} rules", tree.files.len(), RULES.len());
    Ok(())
}

/// Folders that are not the project's own: what cargo and git make.
const FOREIGN: [&str; 2] = ["target", ".git"];

fn collect(root: &Path, folder: &Path, files: &mut Vec<File>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if FOREIGN.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            collect(root, &path, files)?;
        } else if let Ok(text) = fs::read_to_string(&path) {
            // What is not text (a picture) is nobody's concern here, but may be linked to: it is kept without its content.
            files.push(File { path: relative(root, &path), text });
        } else {
            files.push(File { path: relative(root, &path), text: String::new() });
        }
    }
    Ok(())
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

/// Trees for the tests of the rules.
#[cfg(test)]
mod examples {
    use super::*;

    pub(super) fn tree(files: &[(&str, &str)]) -> Tree {
        with_packages(files, Vec::new())
    }

    pub(super) fn with_packages(files: &[(&str, &str)], packages: Vec<Package>) -> Tree {
        let files = files.iter().map(|(path, text)| File { path: (*path).into(), text: (*text).into() }).collect();
        Tree { files, packages }
    }

    /// The complaints as `path:line`, for short comparisons.
    pub(super) fn places(complaints: &[Complaint]) -> Vec<String> {
        complaints.iter().map(|it| format!("{}:{}", it.path, it.line)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::examples::tree;

    #[test]
    fn a_folder_is_had_by_its_files_and_a_prefix_is_not() {
        let tree = tree(&[("docs/cli.md", "")]);
        assert!(tree.has("docs") && tree.has("docs/") && tree.has("docs/cli.md"));
        assert!(!tree.has("doc") && !tree.has("docs/cli"));
    }

    #[test]
    fn a_complaint_says_where() {
        let tree = tree(&[("a.rs", "")]);
        assert_eq!(tree.files[0].complain(3, "it is wrong").to_string(), "a.rs:3: it is wrong");
        assert_eq!(tree.files[0].complain(0, "it is wrong").to_string(), "a.rs: it is wrong");
    }
}
