//! What a node must not forget, on its disk: term and vote of every election, who it is, whom it knows, who the members are.
//!
//! ```text
//!   directory/lock      held for as long as a process uses the directory
//!             ledger    who this node is, how often it was opened, and a cell for each election   (ledger.rs)
//!             members   the members, if they were ever changed                                    (note.rs)
//!             known     the directories and generations of the others, as last heard              (note.rs)
//! ```
//!
//! - What is told to be written is on the disk: `done` is called after the sync, never before.
//! - A directory that cannot be right (damaged, cut off, of a newer version, another node's, another group's, in use) is [`Refused`] with what to do; none of it is changed.
//! - After a failed sync nothing is written any more: the kernel may have thrown away what it could not write, and a second sync that succeeds would prove nothing.
//!
//! A thread of its own writes, because a disk may stand still for seconds and the node must notice. All that waits is written together and synced once.

mod ledger;
mod note;
mod refused;
#[cfg(test)]
pub(crate) mod tests;
mod vitals;

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use incumbent_protocol::protocol::{NodeId, Record};
use incumbent_protocol::time::Instant;

use self::ledger::{Ledger, Medium};
use self::note::Note;
pub use self::refused::{Failure, Refused};
use self::vitals::Durations;
pub use self::vitals::Vitals;
use crate::clock;

/// Who wrote a directory: drawn when it was made, and never again.
pub type DirectoryId = [u8; 16];

/// Others become known a few at a time; their note is written once for all of them, when votes are probably not waiting.
const KNOWN_WAITS: Duration = Duration::from_secs(1);

/// What is kept of an election.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Stored {
    /// The machine's record; `None` if it never wrote one.
    pub record: Option<Record>,
    /// The epoch: rises when the group was made anew under the same name.
    pub epoch: u16,
}

/// The members of a group and where they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Members {
    /// Counts the changes.
    pub version: u64,
    /// Who, and its address.
    pub list: Vec<(NodeId, String)>,
}

/// What is told when a write is safe on disk, or cannot be.
pub type Done = Box<dyn FnOnce(Result<(), Failure>) + Send>;

/// A node's directory, in use by this process.
#[derive(Debug)]
pub struct Archive {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
    directory_id: DirectoryId,
    generation: u64,
    elections: Vec<(String, Stored)>,
    known: Vec<(NodeId, DirectoryId, u64)>,
    members: Option<Members>,
}

impl Archive {
    /// Opens `directory`, or makes it, for node `me` of the group `cluster`. It counts as opened once more before anything is told of it.
    pub fn open(directory: &Path, cluster: &str, me: NodeId) -> Result<Archive, Refused> {
        let lock = lock(directory)?;
        let (mut ledger, elections) = ledger::open(directory, cluster, me)?;
        let directory_id = ledger.directory_id();
        let members = Note::members(directory).read(directory_id)?.map(|it| note::members_from(&it)).transpose()?;
        let known = Note::known(directory).read(directory_id)?.map(|it| note::known_from(&it)).transpose()?.unwrap_or_default();
        let generation = ledger.count_opening().map_err(|error| Refused::unusable(directory, "write to", error))?;
        let mut archive = Archive::with(ledger, directory.to_path_buf(), known.clone(), Some(lock));
        (archive.generation, archive.elections, archive.members) = (generation, elections, members);
        archive.known = known.into_iter().map(|(peer, (directory, generation))| (peer, directory, generation)).collect();
        Ok(archive)
    }

    /// Begins to write to `ledger`.
    fn with<M: Medium>(
        ledger: Ledger<M>,
        directory: PathBuf,
        known: BTreeMap<NodeId, (DirectoryId, u64)>,
        lock: Option<Lock>,
    ) -> Archive {
        let directory_id = ledger.directory_id();
        let shared = Arc::new(Shared::default());
        shared.tray().known = known;
        let writer = Writer { shared: Arc::clone(&shared), ledger, directory, _lock: lock };
        let writer = thread::Builder::new().name("incumbent-disk".to_owned()).spawn(move || writer.run());
        Archive {
            shared,
            // Without a thread every write waits for ever, and the node sees a disk that stands still.
            writer: writer.ok(),
            directory_id,
            generation: 0,
            elections: Vec::new(),
            known: Vec::new(),
            members: None,
        }
    }

    /// Who wrote this directory.
    pub fn directory_id(&self) -> DirectoryId {
        self.directory_id
    }

    /// How often the directory was opened, this time included. Rises with every start of the node.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// What was kept of each election when the directory was opened.
    pub fn elections(&self) -> &[(String, Stored)] {
        &self.elections
    }

    /// The others as this node knew them when the directory was opened: directory and generation.
    pub fn known(&self) -> &[(NodeId, DirectoryId, u64)] {
        &self.known
    }

    /// The members when the directory was opened, if they were ever kept.
    pub fn members(&self) -> Option<&Members> {
        self.members.as_ref()
    }

    /// Writes what is to be kept of `election`. What still waits for the same election is replaced, and done when this is. `done` is called on the writer's thread.
    pub fn write(&self, election: &str, stored: Stored, done: impl FnOnce(Result<(), Failure>) + Send + 'static) {
        let mut tray = self.shared.tray();
        let waiting = tray.elections.entry(election.to_owned()).or_default();
        waiting.what = stored;
        waiting.done.push(Box::new(done));
        self.shared.ring(tray);
    }

    /// Notes the directory and generation of another node. Written some time later: a note that is lost costs no promise.
    pub fn remember(&self, peer: NodeId, directory: DirectoryId, generation: u64) {
        let mut tray = self.shared.tray();
        if tray.known.insert(peer, (directory, generation)) != Some((directory, generation)) {
            tray.known_since.get_or_insert_with(clock::now);
            drop(tray);
            self.shared.bell.notify_all();
        }
    }

    /// Keeps the members. `done` is called on the writer's thread.
    pub fn keep_members(&self, members: Members, done: impl FnOnce(Result<(), Failure>) + Send + 'static) {
        let mut tray = self.shared.tray();
        let waiting = tray.members.get_or_insert_default();
        waiting.what = Some(members);
        waiting.done.push(Box::new(done));
        self.shared.ring(tray);
    }

    /// Since when something waits for the disk; `None` if nothing does.
    pub fn busy_since(&self) -> Option<Instant> {
        self.shared.tray().busy_since()
    }

    /// How the disk does.
    pub fn vitals(&self) -> Vitals {
        let tray = self.shared.tray();
        tray.durations.vitals(tray.busy_since(), tray.failure.clone())
    }

    /// Writes what waits and gives the directory back. Takes as long as the disk does; without it, the same happens some time after the drop.
    pub fn close(mut self) {
        self.shared.close();
        if let Some(writer) = self.writer.take() {
            // It ends by itself; a panic of a `done` has been told already.
            let _ = writer.join();
        }
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Keeps everyone else out of a directory.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // To close it is not enough: a process that is just being started has a copy of the file until it runs its own program.
        let _ = self.0.unlock();
    }
}

/// Makes the directory if there is none, and keeps everyone else out.
fn lock(directory: &Path) -> Result<Lock, Refused> {
    if !directory.exists() {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.and_then(|()| directory.parent().map_or(Ok(()), sync_directory))
            .map_err(|error| Refused::unusable(directory, "make", error))?;
    }
    let path = directory.join("lock");
    let lock = File::options().create(true).truncate(false).write(true).open(&path);
    let lock = lock.map_err(|error| Refused::unusable(&path, "open", error))?;
    match lock.try_lock() {
        Ok(()) => Ok(Lock(lock)),
        Err(TryLockError::WouldBlock) => Err(Refused::InUse { path: directory.to_path_buf() }),
        Err(TryLockError::Error(error)) => Err(Refused::unusable(&path, "lock", error)),
    }
}

/// Makes names that were given in `directory` last.
fn sync_directory(directory: &Path) -> io::Result<()> {
    let here = Path::new(".");
    File::open(if directory.as_os_str().is_empty() { here } else { directory })?.sync_all()
}

/// What waits to be written, and how it went so far.
#[derive(Debug, Default)]
struct Shared {
    tray: Mutex<Tray>,
    bell: Condvar,
}

#[derive(Default)]
struct Tray {
    elections: BTreeMap<String, Waiting<Stored>>,
    members: Option<Waiting<Option<Members>>>,
    /// All that is known, written or not.
    known: BTreeMap<NodeId, (DirectoryId, u64)>,
    /// Since when some of it is not written.
    known_since: Option<Instant>,
    waiting_since: Option<Instant>,
    at_work_since: Option<Instant>,
    failure: Option<Failure>,
    durations: Durations,
    closing: bool,
}

#[derive(Default)]
struct Waiting<T> {
    what: T,
    done: Vec<Done>,
}

impl Shared {
    fn tray(&self) -> MutexGuard<'_, Tray> {
        // Whoever panicked with the tray in hand left it whole: nothing that is done to it can stop half-way.
        self.tray.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, mut tray: MutexGuard<'_, Tray>) {
        tray.waiting_since.get_or_insert_with(clock::now);
        drop(tray);
        self.bell.notify_all();
    }

    fn close(&self) {
        self.tray().closing = true;
        self.bell.notify_all();
    }
}

impl Tray {
    fn busy_since(&self) -> Option<Instant> {
        self.at_work_since.or(self.waiting_since)
    }
}

impl std::fmt::Debug for Tray {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tray").field("waiting", &self.elections.len()).field("failure", &self.failure).finish_non_exhaustive()
    }
}

/// What the writer takes from the tray at one time.
enum Load {
    /// Votes, and the members if they changed.
    Urgent { elections: BTreeMap<String, Waiting<Stored>>, members: Option<Waiting<Option<Members>>> },
    /// Whom we know.
    Known(BTreeMap<NodeId, (DirectoryId, u64)>),
    /// Nothing, ever again.
    End,
}

struct Writer<M> {
    shared: Arc<Shared>,
    ledger: Ledger<M>,
    directory: PathBuf,
    _lock: Option<Lock>,
}

impl<M: Medium> Writer<M> {
    fn run(mut self) {
        loop {
            match self.next_load() {
                Load::Urgent { elections, members } => self.write(elections, members),
                Load::Known(known) => self.write_known(&known),
                Load::End => return,
            }
        }
    }

    /// Waits for something to write.
    fn next_load(&self) -> Load {
        let mut tray = self.shared.tray();
        loop {
            if !tray.elections.is_empty() || tray.members.is_some() {
                // Counted from when it was wanted: that this thread got no time is as bad as a slow disk.
                tray.at_work_since = tray.waiting_since.take();
                return Load::Urgent { elections: std::mem::take(&mut tray.elections), members: tray.members.take() };
            }
            let known_for = tray.known_since.map(|since| clock::now() - since);
            if known_for.is_some_and(|it| it >= KNOWN_WAITS || tray.closing) {
                tray.known_since = None;
                tray.at_work_since = Some(clock::now());
                return Load::Known(tray.known.clone());
            }
            if tray.closing {
                return Load::End;
            }
            let nap = known_for.map_or(Duration::MAX, |it| KNOWN_WAITS - it);
            tray = self.shared.bell.wait_timeout(tray, nap).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn write(&mut self, elections: BTreeMap<String, Waiting<Stored>>, members: Option<Waiting<Option<Members>>>) {
        let began = clock::now();
        let broken = self.broken();
        let mut results: Vec<(Vec<Done>, Result<(), Failure>)> = Vec::new();
        if let Some(failure) = broken {
            results.extend(elections.into_values().map(|it| (it.done, Err(failure.clone()))));
            results.extend(members.map(|it| (it.done, Err(failure))));
        } else {
            let mut written = Vec::new();
            for (election, waiting) in elections {
                match self.ledger.write(&election, waiting.what) {
                    Ok(()) => written.push(waiting.done),
                    Err(failure) => results.push((waiting.done, Err(failure))),
                }
            }
            let synced = if written.is_empty() { Ok(()) } else { self.ledger.sync() };
            results.extend(written.into_iter().map(|done| (done, synced.clone())));
            if let Some(Waiting { what: Some(members), done }) = members {
                let note = Note::members(&self.directory);
                results.push((done, note.write(self.ledger.directory_id(), &note::members_to(&members))));
            }
        }
        let failure = results.iter().find_map(|(_, result)| result.clone().err());
        self.finish(began, failure);
        for (done, result) in results {
            done.into_iter().for_each(|done| done(result.clone()));
        }
    }

    fn write_known(&mut self, known: &BTreeMap<NodeId, (DirectoryId, u64)>) {
        let began = clock::now();
        if self.broken().is_none() {
            let written = Note::known(&self.directory).write(self.ledger.directory_id(), &note::known_to(known));
            self.finish(began, written.err());
        }
    }

    fn broken(&self) -> Option<Failure> {
        self.shared.tray().failure.clone().filter(Failure::is_final)
    }

    fn finish(&self, began: Instant, failure: Option<Failure>) {
        let mut tray = self.shared.tray();
        tray.at_work_since = None;
        tray.durations.add(clock::now() - began);
        if !tray.failure.as_ref().is_some_and(Failure::is_final) {
            tray.failure = failure;
        }
    }
}
