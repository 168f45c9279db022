//! Folders for the files of servers. Each goes when its owner is dropped, and all of them when the process ends, even if it is killed.
//!
//! For the latter there is the undertaker: a shell that waits for the end of a pipe whose other end only this process holds.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ask;

/// A folder of its own for one server.
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// An empty folder; `name` is for people who look.
    pub(crate) fn new(name: &str) -> Result<Folder, String> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let root = ROOT.as_ref().map_err(Clone::clone)?;
        let path = root.path.join(format!("{name}-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir(&path).map_err(|wrong| format!("cannot make {}: {wrong}", path.display()))?;
        Ok(Folder { path })
    }

    /// Makes it another user's, by name; `None` leaves it as it is.
    pub(crate) fn give_to(&self, user: Option<&str>) -> Result<(), String> {
        let Some(user) = user else { return Ok(()) };
        ask::program(Command::new("chown").arg(format!("{user}:")).arg(&self.path)).map(drop)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A path in it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file in it and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let path = self.join(name);
        fs::write(&path, text).map_err(|wrong| format!("cannot write {}: {wrong}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If it fails, the undertaker tries again.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The folder of this process, in which all others are.
struct Root {
    path: PathBuf,
    /// Holds our end of the pipe. Never dropped, because it is in a static: the kernel closes it when the process ends.
    _undertaker: Child,
}

static ROOT: LazyLock<Result<Root, String>> = LazyLock::new(|| {
    // Short, because the path of a Unix socket in it must fit in 108 bytes.
    let path = std::env::temp_dir().join(format!("incumbent-testbed-{}", std::process::id()));
    // One of a process that had this id before us, in another container or before a crash of the machine, is nobody's.
    let _ = fs::remove_dir_all(&path);
    // A server under another user must be able to reach its own folder in it.
    fs::DirBuilder::new().mode(0o755).create(&path).map_err(|wrong| format!("cannot make {}: {wrong}", path.display()))?;
    let undertaker = Command::new("sh")
        .args(["-c", UNDERTAKER, "testbed-undertaker"])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C and a runner's time limit end the whole group of the tests, and it must outlive them.
        .process_group(0)
        .spawn()
        .map_err(|wrong| format!("cannot run sh: {wrong}"))?;
    Ok(Root { path, _undertaker: undertaker })
});

/// Servers that have just been killed may still write: a folder that fills again is removed again.
const UNDERTAKER: &str = r#"cat >/dev/null; for _ in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$1" && exit; sleep 0.2; done"#;
