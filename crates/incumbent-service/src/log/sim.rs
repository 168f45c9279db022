//! A directory in memory, which loses, tears, flips, misdirects, fills, fails and stands still, all from a seed.
//!
//! What a real disk may do, and no more: what was synced stays; of what was not, each sector has any of the states it went through since; names are
//! changed in order, and a part of the changes from the front may have become safe. For tests, and for the lab.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use incumbent_protocol::chance::Chance;
use rustix::io::Errno;

use super::DirectoryId;
use super::direct::BLOCK;
use super::disk::{Disk, DiskFile};
use super::record::SECTOR;

/// What is left of all that was not synced when the power fails.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Loss {
    /// All of it: only the process was killed. It is not safe yet.
    Nothing,
    /// Nothing.
    Everything,
    /// For every sector any of its states since the last sync, drawn from this seed.
    Some(u64),
}

/// What one step does instead of what it should.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing, and says that input or output failed.
    Fails,
    /// Half of it, and says that the disk is full.
    Full,
    /// Nothing, and says that it was done. Names are given all the same: whose file system forgets those has lost more than a write.
    Lost,
    /// The write goes this many sectors further, and says that it was done.
    Misdirected(u64),
}

/// What the disk does until further notice.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Weather {
    /// What it should.
    #[default]
    Fair,
    /// Writes and syncs do not return.
    Still,
    /// Every sync takes so long.
    Slow(Duration),
    /// There is no room for new files, nor for longer ones.
    Full,
    /// The process has no descriptor left: no file can be opened or made.
    Crowded,
    /// Writes and syncs fail.
    Broken,
}

/// The directory. A clone is the same one.
#[derive(Clone, Debug)]
pub struct SimDisk {
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Debug, Default)]
struct State {
    seed: u64,
    names: BTreeMap<String, u64>,
    safe_names: BTreeMap<String, u64>,
    unsynced_names: Vec<NameChange>,
    files: BTreeMap<u64, Bytes>,
    /// Steps so far: whatever changes something, or makes it safe.
    steps: u64,
    /// From this step on there is no power.
    dies_at: Option<u64>,
    faults: BTreeMap<u64, Fault>,
    weather: Weather,
    /// Files that were opened before the power failed are of no use after it.
    boots: u64,
}

#[derive(Clone, Debug)]
enum NameChange {
    Give(String, u64),
    Rename(String, String),
    Remove(String),
}

/// What a file holds, and what of it is safe.
#[derive(Clone, Debug, Default)]
struct Bytes {
    now: Vec<u8>,
    safe: Vec<u8>,
    unsynced: Vec<Write>,
}

#[derive(Clone, Debug)]
struct Write {
    offset: u64,
    bytes: Vec<u8>,
}

impl Write {
    fn span(&self) -> Range<usize> {
        self.offset as usize..self.offset as usize + self.bytes.len()
    }
}

impl SimDisk {
    /// An empty one.
    pub fn new(seed: u64) -> Self {
        SimDisk { state: Arc::new((Mutex::new(State { seed, ..State::default() }), Condvar::new())) }
    }

    /// How many steps were made: whatever changes something, or makes it safe.
    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    /// There is no power from the step with this number on: it may be half done, and nothing is done after it.
    pub fn dies_at(&self, step: u64) {
        self.lock().dies_at = Some(step);
    }

    /// The step with this number does something else than it should.
    pub fn injects(&self, step: u64, fault: Fault) {
        self.lock().faults.insert(step, fault);
    }

    /// From now on.
    pub fn turns(&self, weather: Weather) {
        self.lock().weather = weather;
        self.state.1.notify_all();
    }

    /// The power fails, if it has not yet, and comes back. Whoever has a file open cannot use it any more.
    pub fn crash(&self, loss: Loss) {
        let mut state = self.lock();
        (state.dies_at, state.boots) = (None, state.boots + 1);
        let mut chance = match loss {
            // Not even what was lost before: the kernel lives on, and has it all in hand.
            Loss::Nothing => return,
            Loss::Everything => Chance::new(0),
            Loss::Some(seed) => Chance::new(seed),
        };
        let changes = std::mem::take(&mut state.unsynced_names);
        let count = loss.kept(changes.len(), &mut chance);
        changes.into_iter().take(count).for_each(|it| it.make(&mut state.safe_names));
        state.names = state.safe_names.clone();
        for file in state.files.values_mut() {
            file.crash(loss, &mut chance);
        }
        let named: Vec<u64> = state.names.values().copied().collect();
        state.files.retain(|id, _| named.contains(id));
    }

    /// Flips a bit of what is safe.
    pub fn flip(&self, name: &str, bit: u64) {
        self.change(name, |bytes| bytes[(bit / 8) as usize] ^= 1 << (bit % 8));
    }

    /// Changes what is safe of a file.
    pub fn change(&self, name: &str, change: impl Fn(&mut Vec<u8>)) {
        let mut state = self.lock();
        let id = state.names[name];
        if let Some(file) = state.files.get_mut(&id) {
            change(&mut file.now);
            change(&mut file.safe);
        }
    }

    /// What a file holds.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let state = self.lock();
        state.files[&state.names[name]].now.clone()
    }

    /// The same directory again, as it is now: what happens to one does not happen to the other.
    pub fn copy(&self) -> SimDisk {
        let state = self.lock();
        let copy = SimDisk::new(state.seed);
        {
            let mut other = copy.lock();
            (other.names, other.safe_names) = (state.names.clone(), state.safe_names.clone());
            (other.unsynced_names, other.files) = (state.unsynced_names.clone(), state.files.clone());
            (other.steps, other.boots) = (state.steps, state.boots);
        }
        copy
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a sync takes, unless the weather changes before.
    fn take_its_time(&self) {
        let state = self.lock();
        if let Weather::Slow(takes) = state.weather {
            drop(self.state.1.wait_timeout_while(state, takes, |it| it.weather == Weather::Slow(takes)));
        }
    }

    /// Makes one step with what it has in hand; the fault that it suffers, if any.
    fn step(&self) -> Result<(MutexGuard<'_, State>, Option<Fault>, bool), io::Error> {
        let mut state = self.lock();
        while state.weather == Weather::Still {
            state = self.state.1.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.steps += 1;
        let number = state.steps;
        if state.dies_at.is_some_and(|it| it < number) {
            return Err(no_power());
        }
        let fault = match state.weather {
            Weather::Fair | Weather::Still | Weather::Slow(_) | Weather::Full | Weather::Crowded => state.faults.remove(&number),
            Weather::Broken => Some(Fault::Fails),
        };
        let dies = state.dies_at == Some(number);
        Ok((state, fault, dies))
    }

    fn change_names(&self, change: NameChange) -> io::Result<()> {
        let (mut state, fault, dies) = self.step()?;
        match fault {
            None | Some(Fault::Lost | Fault::Misdirected(_)) => {
                change.clone().make(&mut state.names);
                state.unsynced_names.push(change);
            }
            Some(fault @ (Fault::Fails | Fault::Full)) => fault.result()?,
        }
        if dies { Err(no_power()) } else { Ok(()) }
    }
}

impl State {
    /// Whatever opens something needs one.
    fn find_descriptor(&self) -> io::Result<()> {
        if self.weather == Weather::Crowded { Err(Errno::MFILE.into()) } else { Ok(()) }
    }
}

fn no_power() -> io::Error {
    io::Error::other("there is no power")
}

impl Fault {
    fn result(self) -> io::Result<()> {
        match self {
            Fault::Fails => Err(io::Error::other("input/output error")),
            Fault::Full => Err(io::ErrorKind::StorageFull.into()),
            Fault::Lost | Fault::Misdirected(_) => Ok(()),
        }
    }
}

impl Loss {
    /// Of this many things in a row, how many have happened.
    fn kept(self, count: usize, chance: &mut Chance) -> usize {
        match self {
            Loss::Nothing => count,
            Loss::Everything => 0,
            Loss::Some(_) => chance.below(count as u64 + 1) as usize,
        }
    }
}

impl NameChange {
    fn make(self, names: &mut BTreeMap<String, u64>) {
        match self {
            NameChange::Give(name, id) => {
                names.insert(name, id);
            }
            NameChange::Rename(from, to) => {
                if let Some(id) = names.remove(&from) {
                    names.insert(to, id);
                }
            }
            NameChange::Remove(name) => {
                names.remove(&name);
            }
        }
    }
}

impl Bytes {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let write = Write { offset, bytes: bytes.to_vec() };
        apply(&mut self.now, &write, write.span());
        self.unsynced.push(write);
    }

    fn crash(&mut self, loss: Loss, chance: &mut Chance) {
        let writes = std::mem::take(&mut self.unsynced);
        let mut sectors: BTreeMap<usize, Vec<&Write>> = BTreeMap::new();
        for write in &writes {
            let span = write.span();
            for sector in span.start / SECTOR..span.end.div_ceil(SECTOR) {
                sectors.entry(sector).or_default().push(write);
            }
        }
        for (sector, writes) in sectors {
            let count = loss.kept(writes.len(), chance);
            for write in writes.into_iter().take(count) {
                let span = write.span();
                let part = span.start.max(sector * SECTOR)..span.end.min((sector + 1) * SECTOR);
                apply(&mut self.safe, write, part);
            }
        }
        self.now = self.safe.clone();
    }
}

/// Does the part of a write that goes to `span`.
fn apply(bytes: &mut Vec<u8>, write: &Write, span: Range<usize>) {
    if bytes.len() < span.end {
        bytes.resize(span.end, 0);
    }
    let from = span.start - write.offset as usize;
    let length = span.len();
    bytes[span].copy_from_slice(&write.bytes[from..from + length]);
}

impl Disk for SimDisk {
    type File = SimFile;

    fn names(&self) -> io::Result<Vec<String>> {
        let state = self.lock();
        state.find_descriptor()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<SimFile> {
        let state = self.lock();
        state.find_descriptor()?;
        let id = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(SimFile { disk: self.clone(), id, boot: state.boots })
    }

    fn create(&self, name: &str, size: u64) -> io::Result<SimFile> {
        let (id, boot) = {
            let mut state = self.lock();
            state.find_descriptor()?;
            if state.weather == Weather::Full {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let id = state.files.last_key_value().map_or(0, |it| it.0 + 1);
            state.files.insert(id, Bytes::default());
            (id, state.boots)
        };
        self.change_names(NameChange::Give(name.to_owned(), id))?;
        if size > 0
            && let Some(file) = self.lock().files.get_mut(&id)
        {
            file.write(0, &vec![0; size as usize]);
        }
        Ok(SimFile { disk: self.clone(), id, boot })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        if !self.lock().names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.change_names(NameChange::Rename(from.to_owned(), to.to_owned()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        if !self.lock().names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.change_names(NameChange::Remove(name.to_owned()))
    }

    fn sync_names(&self) -> io::Result<()> {
        let (mut state, fault, dies) = self.step()?;
        if dies {
            return Err(no_power());
        }
        if let Some(fault) = fault {
            return fault.result();
        }
        state.safe_names = state.names.clone();
        state.unsynced_names.clear();
        Ok(())
    }

    fn draw(&self) -> io::Result<DirectoryId> {
        let mut chance = Chance::new(self.lock().seed);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&chance.bits().to_le_bytes());
        id[8..].copy_from_slice(&chance.bits().to_le_bytes());
        Ok(id)
    }
}

/// A file of it.
#[derive(Debug)]
pub struct SimFile {
    disk: SimDisk,
    id: u64,
    boot: u64,
}

impl SimFile {
    fn with<T>(&self, mut state: MutexGuard<'_, State>, what: impl FnOnce(&mut Bytes) -> io::Result<T>) -> io::Result<T> {
        if state.boots != self.boot {
            return Err(no_power());
        }
        what(state.files.get_mut(&self.id).ok_or(io::ErrorKind::NotFound)?)
    }
}

impl DiskFile for SimFile {
    fn length(&self) -> io::Result<u64> {
        self.with(self.disk.lock(), |it| Ok(it.now.len() as u64))
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.with(self.disk.lock(), |it| {
            let from = (offset as usize).min(it.now.len());
            let found = it.now[from..].get(..bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            bytes.copy_from_slice(found);
            Ok(())
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let (state, fault, dies) = self.disk.step()?;
        let full = state.weather == Weather::Full;
        let fault = self.with(state, |it| {
            let longer = offset + bytes.len() as u64 > it.now.len() as u64;
            let fault = if full && longer { Some(Fault::Full) } else { fault };
            match fault {
                None => it.write(offset, bytes),
                Some(Fault::Misdirected(sectors)) => it.write(offset + sectors * SECTOR as u64, bytes),
                Some(Fault::Full) => it.write(offset, &bytes[..bytes.len() / 2]),
                Some(Fault::Fails | Fault::Lost) => {}
            }
            Ok(fault)
        })?;
        fault.map_or(Ok(()), Fault::result)?;
        if dies { Err(no_power()) } else { Ok(()) }
    }

    fn append_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        // As on a disk: whole blocks.
        let end = offset + bytes.len() as u64;
        let whole = end.next_multiple_of(BLOCK as u64).min(self.length()?).max(end);
        let mut blocks = bytes.to_vec();
        blocks.resize((whole - offset) as usize, 0);
        self.write_at(&blocks, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.take_its_time();
        let (state, fault, dies) = self.disk.step()?;
        if dies {
            return Err(no_power());
        }
        match fault {
            Some(Fault::Fails | Fault::Full) => {
                // As kernels do: what could not be written is taken for written, and never tried again.
                self.with(state, |it| {
                    it.unsynced.clear();
                    Ok(())
                })?;
                fault.map_or(Ok(()), Fault::result)
            }
            Some(Fault::Lost | Fault::Misdirected(_)) => Ok(()),
            None => self.with(state, |it| {
                it.safe.clone_from(&it.now);
                it.unsynced.clear();
                Ok(())
            }),
        }
    }
}
