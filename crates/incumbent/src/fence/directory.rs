//! A fence before a directory of files, and the memory on disk of other fences.
//!
//! ```text
//!   DIR/.incumbent-fence/lock          locked (flock) by whoever compares, remembers or writes
//!   DIR/.incumbent-fence/NAME.token    the greatest token seen for a resource; replaced as a whole
//!   DIR/.incumbent-fence/incoming      what is being written; takes its place by a rename
//! ```
//!
//! Under one lock: compare, put the token on disk, write. So no smaller token can come between, and a crash at any point loses the write at most, never the
//! order. Safe between processes and containers of one kernel; on a network file system only as far as its locks are.
//!
//! It guards what goes through it. Whoever writes to the directory by other ways is not stopped. A process that is stopped (SIGSTOP) in the
//! middle of a write keeps the others waiting, who give up after [`LOCK_PATIENCE`]: that is safe, and not live.
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # let token = |number| incumbent::fence::token(number).expect("fits");
//! # let (ours, former) = (token(8), token(7));
//! use incumbent::fence::directory::Guarded;
//!
//! let reports = Guarded::at(folder.path())?;
//! let before = reports.read(ours, "total")?; // admits the token too: from here on no former leader can write
//! reports.write(ours, "total", b"42")?; // ours = leadership.token()
//! let refusal = reports.write(former, "total", b"41").expect_err("somebody else leads since");
//! assert!(refusal.to_string().contains("8 has been seen"));
//! # assert_eq!((before, std::fs::read(folder.path().join("total"))?), (None, b"42".to_vec()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use incumbent_protocol::protocol::Token;

use super::{Admission, Fence, Refusal, judge, parse_token};
use crate::engine::Error;
use crate::metrics::Metrics;

/// The folder, inside the guarded one, in which the fence keeps its own files.
pub const FOLDER: &str = ".incumbent-fence";

/// Who holds the lock writes one file. One who has not finished by then is stopped, or its disk is.
pub const LOCK_PATIENCE: Duration = Duration::from_secs(30);

/// Short beside the write to disk that is waited for.
const LOCK_LOOK_EVERY: Duration = Duration::from_millis(1);

/// So that the name of its file, every odd byte of it written with three, fits every file system.
pub const RESOURCE_LEN_MAX: usize = 80;

/// The record of a directory's own token. No resource of a [`Ledger`] has it, because a resource's name is never empty.
const OWN_RECORD: &str = ".token";

/// Files in a directory, written only by those whose token is not stale. All of them together are one resource.
///
/// It blocks while it writes, as `std::fs` does: from async code use `spawn_blocking`.
pub struct Guarded {
    directory: PathBuf,
    resource: String,
    ledger: Ledger,
    metrics: Option<Arc<Metrics>>,
}

impl Guarded {
    /// Guards `directory`, which is made if it is not there.
    pub fn at(directory: impl Into<PathBuf>) -> Result<Guarded, Error> {
        let directory = directory.into();
        let ledger = Ledger::at(&directory)?;
        Ok(Guarded { resource: directory.display().to_string(), directory, ledger, metrics: None })
    }

    /// Counts refusals into these figures.
    #[must_use]
    pub fn metrics(mut self, metrics: Arc<Metrics>) -> Guarded {
        self.metrics = Some(metrics);
        self
    }

    /// Admits the token: from here on every smaller one is refused.
    pub fn admit(&self, token: Token) -> Result<(), Refusal> {
        self.under_lock(token, || Ok(()))
    }

    /// What stands in a file, `None` if there is none. Admits the token first, so that what is read stays so until this token, or a greater, writes.
    pub fn read(&self, token: Token, path: impl AsRef<Path>) -> Result<Option<Vec<u8>>, Refusal> {
        let path = self.inside(path.as_ref())?;
        self.under_lock(token, || match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(trouble("read", &path)(why)),
        })
    }

    /// Replaces a file as a whole, or makes it with all folders above it. `path` is relative to the directory. When it returns, it is on disk.
    ///
    /// # Errors
    /// [`Refusal::Stale`]: not written. [`Refusal::Trouble`] of unknown outcome: it may be in its place and not yet safe from a crash of the machine.
    pub fn write(&self, token: Token, path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), Refusal> {
        let path = self.inside(path.as_ref())?;
        self.under_lock(token, || {
            self.make_parents(&path)?;
            self.ledger.replace(&path, bytes)
        })
    }

    /// Removes a file; one that is not there is as good as removed.
    pub fn remove(&self, token: Token, path: impl AsRef<Path>) -> Result<(), Refusal> {
        let path = self.inside(path.as_ref())?;
        self.under_lock(token, || match fs::remove_file(&path) {
            Ok(()) => sync_folder_of(&path),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(why) => Err(trouble("remove", &path)(why)),
        })
    }

    fn under_lock<T>(&self, token: Token, act: impl FnOnce() -> Result<T, Error>) -> Result<T, Refusal> {
        let _locked = self.ledger.lock()?;
        let admitted = self.ledger.admit_under_lock(OWN_RECORD, &self.resource, token);
        if let (Err(Refusal::Stale(_)), Some(metrics)) = (&admitted, &self.metrics) {
            metrics.on_fence_refusal(&self.resource);
        }
        admitted?;
        Ok(act()?)
    }

    /// The path in the directory; an error if it leads out of it, or to the fence's own files.
    fn inside(&self, path: &Path) -> Result<PathBuf, Error> {
        let is_plain = path.components().all(|it| matches!(it, Component::Normal(_)));
        let is_own = path.components().next() == Some(Component::Normal(FOLDER.as_ref()));
        if !is_plain || is_own || path.as_os_str().is_empty() {
            return Err(Error::misconfigured(format!(
                "{} is not a file in {}: name one by its path from there, without ..",
                path.display(),
                self.resource
            )));
        }
        Ok(self.directory.join(path))
    }

    /// A file is safe only if the folders that lead to it are.
    fn make_parents(&self, path: &Path) -> Result<(), Error> {
        let mut missing = Vec::new();
        let mut folder = path.parent();
        while let Some(it) = folder.filter(|it| !it.exists()) {
            missing.push(it);
            folder = it.parent();
        }
        for it in missing.into_iter().rev() {
            fs::create_dir(it).map_err(trouble("make", it))?;
            sync_folder_of(it)?;
        }
        Ok(())
    }
}

/// The greatest token of each resource, in a directory. A [`Fence`] for what is not a file: the layer and the proxy before HTTP services keep their memory here.
#[derive(Clone)]
pub struct Ledger {
    /// The fence's own folder.
    folder: PathBuf,
}

impl Ledger {
    /// The ledger in `directory`, which is made if it is not there.
    pub fn at(directory: impl AsRef<Path>) -> Result<Ledger, Error> {
        let folder = directory.as_ref().join(FOLDER);
        fs::create_dir_all(&folder).map_err(trouble("make", &folder))?;
        sync_folder_of(&folder)?;
        Ok(Ledger { folder })
    }

    /// As [`Fence::admit`]; blocks while it writes.
    pub fn admit_blocking(&self, resource: &str, token: Token) -> Result<(), Refusal> {
        let record = record_of(resource)?;
        let _locked = self.lock()?;
        self.admit_under_lock(&record, resource, token)
    }

    /// The greatest token seen for `resource`. For people: it may be old when it is read.
    pub fn seen(&self, resource: &str) -> Result<Option<Token>, Error> {
        self.recorded(&record_of(resource)?)
    }

    fn admit_under_lock(&self, record: &str, resource: &str, token: Token) -> Result<(), Refusal> {
        match judge(resource, token, self.recorded(record)?)? {
            Admission::Known => Ok(()),
            Admission::New => Ok(self.replace(&self.folder.join(record), format!("{token}\n").as_bytes())?),
        }
    }

    fn recorded(&self, record: &str) -> Result<Option<Token>, Error> {
        let path = self.folder.join(record);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(trouble("read", &path)(why)),
        };
        // A record that cannot be read is a reason to stop: without it every former leader would be let in.
        text.strip_suffix('\n').and_then(parse_token).map(Some).ok_or_else(|| {
            Error::misconfigured(format!(
                "{} is not a token: write the greatest token ever used into it, or remove it if none was",
                path.display()
            ))
        })
    }

    /// Waits for the lock; it is free when the file is closed, however that comes about.
    fn lock(&self) -> Result<File, Error> {
        let path = self.folder.join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(trouble("open", &path))?;
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_PATIENCE => std::thread::sleep(LOCK_LOOK_EVERY),
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::refused(format!(
                        "{} has been locked for {LOCK_PATIENCE:?}: is a process that writes there stopped, or its disk?",
                        path.display()
                    )));
                }
                Err(TryLockError::Error(why)) => return Err(trouble("lock", &path)(why)),
            }
        }
    }

    /// Replaces a file as a whole, safe on disk before it returns. Only under the lock: there is one file for what comes in.
    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let incoming = self.folder.join("incoming");
        let write = || {
            let mut file = File::create(&incoming)?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        write().map_err(trouble("write", &incoming))?;
        fs::rename(&incoming, path).map_err(trouble("replace", path))?;
        sync_folder_of(path)
    }
}

#[async_trait]
impl Fence for Ledger {
    async fn admit(&self, resource: &str, token: Token) -> Result<(), Refusal> {
        let (ledger, resource) = (self.clone(), resource.to_owned());
        let done = tokio::task::spawn_blocking(move || ledger.admit_blocking(&resource, token)).await;
        done.unwrap_or_else(|why| Err(Error::unknown(format!("the thread for files has ended: {why}")).into()))
    }
}

/// The file in which a resource's token stands: letters, digits, `-` and `_` as they are, all else as `%` and two digits.
fn record_of(resource: &str) -> Result<String, Error> {
    if resource.is_empty() || resource.len() > RESOURCE_LEN_MAX {
        return Err(Error::misconfigured(format!(
            "the name of a resource has 1 to {RESOURCE_LEN_MAX} bytes, and {resource:?} has {}",
            resource.len()
        )));
    }
    let mut name = String::new();
    for byte in resource.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            odd => name.push_str(&format!("%{odd:02X}")),
        }
    }
    Ok(name + ".token")
}

/// A name in a folder is on disk when the folder is.
fn sync_folder_of(path: &Path) -> Result<(), Error> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The change is in its place already: whether it outlasts a crash of the machine is what is not known.
    let sync = File::open(folder).and_then(|it| it.sync_all());
    sync.map_err(|why| Error::unknown(format!("cannot sync {}: {why}", folder.display())))
}

fn trouble(doing: &str, path: &Path) -> impl Fn(io::Error) -> Error {
    move |why| {
        if why.kind() == io::ErrorKind::PermissionDenied {
            Error::misconfigured(format!("may not {doing} {}: give this user the right to", path.display()))
        } else {
            Error::refused(format!("cannot {doing} {}: {why}", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::token;

    fn of(number: u64) -> Token {
        token(number).expect("fits")
    }

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary directory")
    }

    #[test]
    fn a_stale_write_is_refused_and_changes_nothing() {
        let folder = folder();
        // Two processes would each have their own.
        let (ours, former) = (Guarded::at(folder.path()).unwrap(), Guarded::at(folder.path()).unwrap());
        former.write(of(1), "a/b/file", b"first").unwrap();
        ours.admit(of(2)).unwrap();
        for late in [former.write(of(1), "a/b/file", b"late"), former.remove(of(1), "a/b/file"), former.admit(of(1))] {
            let stale = late.unwrap_err().stale().cloned().expect("stale");
            assert_eq!((stale.offered, stale.seen), (of(1), of(2)));
        }
        assert!(former.read(of(1), "a/b/file").unwrap_err().stale().is_some());
        assert_eq!(ours.read(of(2), "a/b/file").unwrap().as_deref(), Some(&b"first"[..]));
        ours.remove(of(2), "a/b/file").unwrap();
        ours.remove(of(2), "a/b/file").unwrap();
        assert_eq!(ours.read(of(2), "a/b/file").unwrap(), None);
    }

    #[test]
    fn what_was_seen_is_on_disk_before_the_write() {
        let folder = folder();
        let guarded = Guarded::at(folder.path()).unwrap();
        // A folder stands where the file should go, so the write fails after the token was recorded: as if it had crashed there.
        fs::create_dir_all(folder.path().join("file/inside")).unwrap();
        assert!(guarded.write(of(9), "file", b"x").unwrap_err().stale().is_none());
        let after_restart = Guarded::at(folder.path()).unwrap();
        assert_eq!(after_restart.write(of(8), "other", b"x").unwrap_err().stale().map(|it| it.seen), Some(of(9)));
        assert!(!folder.path().join("other").exists());
    }

    #[test]
    fn what_a_crash_left_behind_is_nobodys_hindrance() {
        let folder = folder();
        let guarded = Guarded::at(folder.path()).unwrap();
        guarded.write(of(3), "file", b"whole").unwrap();
        fs::write(folder.path().join(FOLDER).join("incoming"), "half of someth").unwrap();
        assert_eq!(guarded.read(of(3), "file").unwrap().as_deref(), Some(&b"whole"[..]));
        guarded.write(of(3), "file", b"x").unwrap();
        assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"x");
    }

    #[test]
    fn a_record_that_is_no_token_stops_everybody() {
        let folder = folder();
        let ledger = Ledger::at(folder.path()).unwrap();
        for garbage in ["", "12", "x\n", "-1\n", "9223372036854775808\n"] {
            fs::write(folder.path().join(FOLDER).join("a.token"), garbage).unwrap();
            let why = ledger.admit_blocking("a", of(5)).unwrap_err().to_string();
            assert!(why.contains("is not a token"), "{garbage:?}: {why}");
        }
        ledger.admit_blocking("b", of(5)).unwrap();
    }

    #[test]
    fn resources_have_a_record_each_whatever_their_names() {
        let folder = folder();
        let ledger = Ledger::at(folder.path()).unwrap();
        let names = ["a", "A", "a/b", "a%2Fb", "..", ".", "lock", "incoming", "naïve", "\n", &"%".repeat(RESOURCE_LEN_MAX)];
        for (name, number) in names.iter().zip(1..) {
            assert_eq!(ledger.seen(name).unwrap(), None, "{name:?}");
            ledger.admit_blocking(name, of(number)).unwrap();
        }
        for (name, number) in names.iter().zip(1..) {
            assert_eq!(ledger.seen(name).unwrap(), Some(of(number)), "{name:?}");
        }
        for bad in ["", &"x".repeat(RESOURCE_LEN_MAX + 1)] {
            assert!(ledger.admit_blocking(bad, of(1)).unwrap_err().to_string().contains("1 to 80 bytes"), "{bad:?}");
        }
    }

    #[test]
    fn paths_out_of_the_directory_are_refused() {
        let folder = folder();
        let guarded = Guarded::at(folder.path().join("inner")).unwrap();
        for bad in ["", "..", "../x", "a/../../x", "/tmp/x", "./x", ".incumbent-fence/lock", ".incumbent-fence"] {
            let why = guarded.write(of(1), bad, b"x").unwrap_err().to_string();
            assert!(why.contains("is not a file in"), "{bad:?}: {why}");
        }
    }

    #[test]
    fn of_many_writers_the_greatest_token_has_the_last_word() {
        let folder = folder();
        let barrier = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for number in 1..=8 {
                let (barrier, guarded) = (&barrier, Guarded::at(folder.path()).unwrap());
                scope.spawn(move || {
                    barrier.wait();
                    for _ in 0..10 {
                        match guarded.write(of(number), "file", number.to_string().as_bytes()) {
                            Ok(()) => {}
                            Err(Refusal::Stale(stale)) => assert!(stale.seen > of(number)),
                            Err(Refusal::Trouble(why)) => panic!("{why}"),
                        }
                    }
                });
            }
        });
        assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"8");
    }

    #[test]
    fn refusals_are_counted() {
        let folder = folder();
        let mut registry = prometheus_client::registry::Registry::default();
        let guarded = Guarded::at(folder.path()).unwrap().metrics(Arc::new(Metrics::register(&mut registry)));
        guarded.admit(of(2)).unwrap();
        guarded.admit(of(1)).unwrap_err();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("incumbent_fence_refusals_total{resource=\""), "{text}");
        assert!(text.lines().any(|line| line.starts_with("incumbent_fence_refusals_total") && line.ends_with("} 1")), "{text}");
    }
}
