//! Elections on one machine without any server: a kernel lock on a file, freed by the kernel when its holder dies, however it dies.
//!
//! ```text
//!   DIR/NAME.lock              locked by the leader; holds the last token, on disk before it is granted
//!   DIR/NAME.desk              who leads and led; written in place, by the leader
//!   DIR/NAME.wish              what the leader is asked to do; written by anybody, removed with the leadership
//!   DIR/NAME.notes             what was noted of leaderships; replaced as a whole, by anybody, under DIR/NAME.notes-lock
//!   DIR/NAME.candidates/ID     one for each that waits, locked by it: one that is not locked is left over from the dead
//! ```
//!
//! The lock is `flock`'s: it belongs to the open file, so two elections in one process exclude each other too, and a program that is executed does not
//! inherit it. It works between containers that share the directory on one kernel. It does not work between machines: network file systems are refused.
//!
//! There is no lease: a holder that stops renewing gives the lock back by itself when its ttl has passed, but one whose whole process is paused keeps it until
//! it goes on or is killed. That is safe, and not live; a lock that was taken from a paused process would be neither.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use incumbent_protocol::protocol::{Term, Token};
use incumbent_protocol::time::Instant;
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::desk::{Desk, LAPSED, wall_ms, whole_ms};
use crate::engine::{Bid, Board, Candidate, Claim, Engine, Error, Farewell, Grant, Note, Renewal, Wish};
use crate::guarantees::{Exclusive, Guarantees, Lateness, Notice, Order, Tokens, WhoseClock};
use crate::identity::Identity;
use crate::name::Name;
use crate::place::Place;
use sheet::{Sheet, Written};

mod hints;
mod sheet;

/// A looker holds the lock for microseconds; a claim that meets one tries again at once, this often.
const COLLISIONS_MAX: u32 = 5;

/// Why a leadership has ended whose lock the kernel has freed. When that was it does not tell.
const DIED: &str = "process died";

/// Desks that are known without being read again.
const KNOWN_MAX: usize = 64;

/// File systems whose locks other machines do not see, or see too late, by their numbers in statfs.
const REMOTE: &[(u32, &str)] = &[
    (0x6969, "NFS"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x517B, "SMB"),
    (0x0102_1997, "9p"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x5346_414F, "AFS"),
    (0x0116_1970, "GFS2"),
    (0x6573_5546, "FUSE"),
];

/// Who waits looks again so much later, if the seat is still taken: the kernel tells that a file is closed before it takes the lock on it away, and whoever is woken by that may be quicker than the process that dies.
const AGAIN_AFTER: [Duration; 3] = [Duration::from_millis(1), Duration::from_millis(5), Duration::from_millis(25)];

/// Elections in a directory. Clones share it.
#[derive(Clone)]
pub struct Files {
    inner: Arc<Inner>,
}

struct Inner {
    directory: PathBuf,
    hints: hints::Hints,
    state: Mutex<State>,
    /// Desks as they were last written here: to read a text again that has not changed costs more than to write it.
    known: Mutex<BTreeMap<Name, Known>>,
}

struct Known {
    written: sheet::Written,
    desk: Desk,
}

#[derive(Default)]
struct State {
    held: BTreeMap<Name, Vec<Held>>,
    waiting: BTreeMap<(Name, Identity), Waiting>,
    /// When a seat that is kept for somebody was first seen so, by the term it was handed over in.
    kept_since: BTreeMap<Name, (u64, Instant)>,
}

struct Held {
    identity: Identity,
    token: Token,
    until: Instant,
    /// Locked. Closing it is what frees the seat.
    lock: File,
}

struct Waiting {
    lock: File,
    /// Locked, so that one left over from the dead can be told.
    marker: File,
}

/// What stands in a candidate's file.
#[derive(Serialize, Deserialize)]
struct Marker {
    priority: i32,
}

impl Files {
    /// The directory that the URL names; the usual one if it names none. Made by the first who wants to lead there, and not by those who look.
    pub(super) fn open(place: &Place) -> Result<Arc<dyn Engine>, Error> {
        place.knows_only(&["network-filesystem"])?;
        let directory = Files::directory_of(place)?;
        if let Some(kind) = remote_kind(&directory)? {
            match place.option("network-filesystem") {
                Some("allow") => {
                    tracing::warn!(directory = %directory.display(), kind, "locks here are not seen by other machines")
                }
                Some(_) | None => {
                    return Err(Error::misconfigured(format!(
                        "{} is on {kind}, whose locks cannot be relied on between machines: use a local directory, or an engine on the \
                         network; if only one machine uses it, add ?network-filesystem=allow",
                        directory.display()
                    )));
                }
            }
        }
        Ok(Arc::new(Files::at(&directory)))
    }

    /// Where the elections of this URL are kept.
    pub fn directory_of(place: &Place) -> Result<PathBuf, Error> {
        match place.file_path() {
            path if path.as_os_str().is_empty() => usual_directory(),
            path => Ok(path),
        }
    }

    /// Elections in `directory`, made by the first who wants to lead there.
    pub fn at(directory: &Path) -> Files {
        Files {
            inner: Arc::new(Inner {
                directory: directory.to_owned(),
                hints: hints::Hints::of(directory),
                state: Mutex::default(),
                known: Mutex::default(),
            }),
        }
    }

    /// Files may be slow, so they are not waited for on the thread that renews.
    async fn blocking<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Inner) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let inner = Arc::clone(&self.inner);
        let done = tokio::task::spawn_blocking(move || act(&inner)).await;
        done.unwrap_or_else(|why| Err(Error::unknown(format!("the thread for files has ended: {why}"))))
    }

    /// Brings the desk to the disk while work goes on: nobody's right depends on it.
    fn settle_soon(&self, election: Name) {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || {
            if let Err(why) = inner.sheet(&election).settle() {
                tracing::debug!(%election, %why, "the desk is not on the disk yet");
            }
        });
    }

    /// Lets go of a seat that is not renewed.
    fn let_go_in_time(&self, election: Name, token: Token, until: Instant) {
        let inner = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            let mut until = until;
            loop {
                tokio::time::sleep(until - clock::now()).await;
                let Some(inner) = inner.upgrade() else { return };
                let checked = tokio::task::spawn_blocking({
                    let election = election.clone();
                    move || inner.expire(&election, token)
                });
                match checked.await {
                    Ok(Some(later)) => until = later,
                    Ok(None) | Err(_) => return,
                }
            }
        });
    }
}

/// Where this user's processes keep what must outlast a reboot.
pub fn usual_directory() -> Result<PathBuf, Error> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/incumbent"));
    }
    let from = |key: &str| std::env::var_os(key).filter(|it| !it.is_empty()).map(PathBuf::from);
    from("XDG_STATE_HOME")
        .or_else(|| from("HOME").map(|it| it.join(".local/state")))
        .map(|it| it.join("incumbent"))
        .ok_or_else(|| Error::misconfigured("no home to keep elections in: name a directory, for example file:/var/lib/jobs"))
}

/// The file system of the directory, or of where it would be made.
fn remote_kind(directory: &Path) -> Result<Option<&'static str>, Error> {
    let there = directory.ancestors().find(|it| it.exists()).unwrap_or(Path::new("."));
    let stat = rustix::fs::statfs(there)
        .map_err(|why| Error::misconfigured(format!("cannot see what file system {} is on: {why}", directory.display())))?;
    // Some are negative as the kernel gives them.
    let number = (stat.f_type as u64 & 0xFFFF_FFFF) as u32;
    Ok(REMOTE.iter().find(|(it, _)| *it == number).map(|(_, kind)| *kind))
}

impl Inner {
    fn path(&self, election: &Name, what: &str) -> PathBuf {
        self.directory.join(format!("{election}.{what}"))
    }

    fn trouble(&self, doing: &str) -> impl Fn(std::io::Error) -> Error {
        let directory = self.directory.display().to_string();
        let doing = doing.to_owned();
        move |why| {
            if why.kind() == std::io::ErrorKind::PermissionDenied {
                Error::misconfigured(format!("may not {doing} in {directory}: give this user the right to write there"))
            } else {
                Error::refused(format!("cannot {doing} in {directory}: {why}"))
            }
        }
    }

    fn open_lock(&self, election: &Name) -> Result<File, Error> {
        self.open_to_lock(&self.path(election, "lock"))
    }

    /// Opens a file, made if it is not there; and so is the directory.
    fn open_to_lock(&self, path: &Path) -> Result<File, Error> {
        let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let opened = match open() {
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
                let directory = &self.directory;
                std::fs::create_dir_all(directory)
                    .map_err(|why| Error::misconfigured(format!("cannot make the directory {}: {why}", directory.display())))?;
                open()
            }
            opened => opened,
        };
        opened.map_err(self.trouble("open a lock"))
    }

    /// Whether the lock is still the file under its name: one that was removed locks nobody out.
    fn is_in_place(&self, election: &Name, lock: &File) -> bool {
        let there = std::fs::metadata(self.path(election, "lock"));
        matches!((lock.metadata(), there), (Ok(own), Ok(there)) if own.ino() == there.ino() && own.dev() == there.dev())
    }

    fn sheet(&self, election: &Name) -> Sheet {
        Sheet::at(self.path(election, "desk"))
    }

    fn read_desk(&self, election: &Name) -> Result<OnSheet, Error> {
        let sheet = self.sheet(election);
        let desk = match sheet.read() {
            Ok(None) => return Ok(OnSheet { desk: Desk::default(), turn: 0 }),
            Ok(Some(written)) => {
                let known = self.known.lock().expect("nobody panics with it").remove(election);
                match known.filter(|it| it.written == written) {
                    Some(known) => Ok((known.desk, written.turn)),
                    None => Desk::read(&written.text).map(|desk| (desk, written.turn)),
                }
            }
            // Not even a page of ours: the same complaint.
            Err(why) if why.kind() == std::io::ErrorKind::InvalidData => Desk::read(&[]).map(|desk| (desk, 0)),
            Err(why) => return Err(self.trouble("read a desk")(why)),
        };
        let (desk, turn) = desk.map_err(|why| why.during(&format!("{}", sheet.path().display())))?;
        Ok(OnSheet { desk, turn })
    }

    fn know(&self, election: &Name, written: Written, desk: Desk) {
        let mut known = self.known.lock().expect("nobody panics with it");
        if known.len() >= KNOWN_MAX && !known.contains_key(election) {
            known.pop_first();
        }
        known.insert(election.clone(), Known { written, desk });
    }

    /// Writes the desk in place of what was read. A power cut may take that back until it is [settled](Sheet::settle): the token is in the lock.
    fn put_desk(&self, election: &Name, changed: OnSheet) -> Result<(), Error> {
        let written = self.sheet(election).write(changed.turn, changed.desk.write()).map_err(self.trouble("write a desk"))?;
        self.know(election, written, changed.desk);
        Ok(())
    }

    /// The same, and waits for the disk.
    fn put_desk_for_good(&self, election: &Name, changed: OnSheet) -> Result<(), Error> {
        self.put_desk(election, changed)?;
        self.sheet(election).settle().map_err(self.trouble("write a desk"))
    }

    /// Replaces a file as a whole, safe on disk before anybody can see it.
    fn replace(&self, path: &Path, text: &str) -> Result<(), Error> {
        let attempt = || {
            let fresh = path.with_extension(format!("{:016x}.new", crate::identity::nonce()));
            let mut file = File::create(&fresh)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&fresh, path)?;
            File::open(&self.directory)?.sync_all()
        };
        attempt().map_err(self.trouble("write a file"))
    }

    fn claim(&self, election: &Name, bid: &Bid) -> Result<Claimed, Error> {
        let mut state = self.state.lock().expect("nobody panics with it");
        let now = clock::now();
        let own = state.held.get_mut(election).and_then(|it| it.iter_mut().find(|it| it.identity == bid.identity));
        if let Some(held) = own
            && now < held.until
            && self.is_in_place(election, &held.lock)
        {
            held.until = now + bid.ttl;
            return Ok(Claimed::Again(held.token));
        }
        self.expire_in(&mut state, election);
        let key = (election.clone(), bid.identity.clone());
        // Who waits has it open already: closing it is an event to all who wait.
        let (lock, waited) = match state.waiting.remove(&key) {
            Some(waiting) => (waiting.lock, Some(waiting.marker)),
            None => (self.open_lock(election)?, None),
        };
        let has_waited = waited.is_some();
        if !take(&lock, Patience::None)? {
            let desk = match self.read_desk(election) {
                Ok(found) => found.desk,
                Err(why) => {
                    self.stand(&mut state, key, bid, Some((lock, waited)))?;
                    return Err(why);
                }
            };
            let kept = self.is_kept_from(&mut state, election, &desk, &bid.identity);
            // If nobody is known to lead, who has it is only looking.
            if kept || desk.holder.is_some() || !take(&lock, Patience::Some)? {
                self.stand(&mut state, key, bid, Some((lock, waited)))?;
                let leader = desk.holder.filter(|_| !kept).map(|it| it.leader());
                return Ok(Claimed::Occupied { leader, waited: has_waited });
            }
        }
        if !self.is_in_place(election, &lock) {
            // Somebody has removed the file: what is locked locks nobody out. Begin anew.
            return Err(Error::refused("the lock was removed while it was waited for"));
        }
        let mut on_sheet = match self.read_desk(election) {
            Ok(found) if !self.is_kept_from(&mut state, election, &found.desk, &bid.identity) => found,
            Ok(_) => {
                let _ = lock.unlock();
                self.stand(&mut state, key, bid, Some((lock, waited)))?;
                return Ok(Claimed::Occupied { leader: None, waited: has_waited });
            }
            Err(why) => {
                let _ = lock.unlock();
                self.stand(&mut state, key, bid, Some((lock, waited)))?;
                return Err(why);
            }
        };
        let desk = &mut on_sheet.desk;
        if let Some(former) = desk.holder.take() {
            desk.remember(former, DIED);
        }
        let (last_incarnation, last_term) = last_token(&lock);
        desk.incarnation = desk.incarnation.max(last_incarnation);
        let term = desk.term.max(last_term) + 1;
        let token = desk.token(term, bid.seen)?;
        desk.term = term;
        desk.seat(bid, token);
        write_token(&lock, token).map_err(self.trouble("write a token"))?;
        if (last_incarnation, last_term) == (0, 0) {
            // The first of all: the file itself must outlast a power cut too.
            File::open(&self.directory).and_then(|it| it.sync_all()).map_err(self.trouble("write a token"))?;
        }
        // Once the desk says who leads, wishes may come: a former leader's must be gone before.
        let _ = std::fs::remove_file(self.path(election, "wish"));
        self.put_desk(election, on_sheet)?;
        if waited.is_some() {
            self.unmark(election, &bid.identity);
        }
        let until = now + bid.ttl;
        state.kept_since.remove(election);
        let seats = state.held.entry(election.clone()).or_default();
        seats.push(Held { identity: bid.identity.clone(), token, until, lock });
        Ok(Claimed::Now(token, until))
    }

    /// Puts one who waits on the list, with the lock and the marker that it has already.
    fn stand(&self, state: &mut State, key: (Name, Identity), bid: &Bid, has: Option<(File, Option<File>)>) -> Result<(), Error> {
        if has.is_none() && state.waiting.contains_key(&key) {
            return Ok(());
        }
        let (lock, marker) = has.map_or((None, None), |(lock, marker)| (Some(lock), marker));
        let marker = marker.map_or_else(|| self.mark(&key.0, bid), Ok)?;
        let lock = lock.map_or_else(|| self.open_lock(&key.0), Ok)?;
        state.waiting.insert(key, Waiting { lock, marker });
        Ok(())
    }

    /// Whether the seat is kept for somebody else, and has not been for too long.
    fn is_kept_from(&self, state: &mut State, election: &Name, desk: &Desk, bidder: &Identity) -> bool {
        let Some(kept) = desk.kept.as_ref().filter(|_| desk.is_kept_from(bidder)) else { return false };
        let now = clock::now();
        let since = state.kept_since.entry(election.clone()).or_insert((desk.term, now));
        if since.0 != desk.term {
            *since = (desk.term, now);
        }
        now - since.1 < Duration::from_millis(kept.ms)
    }

    fn mark(&self, election: &Name, bid: &Bid) -> Result<File, Error> {
        let directory = self.path(election, "candidates");
        let attempt = || {
            std::fs::create_dir_all(&directory)?;
            let mut file = File::create(directory.join(bid.identity.as_str()))?;
            file.try_lock()?;
            let text = serde_json::to_string(&Marker { priority: bid.priority })?;
            file.write_all(text.as_bytes())?;
            Ok(file)
        };
        attempt().map_err(self.trouble("stand as a candidate"))
    }

    fn unmark(&self, election: &Name, identity: &Identity) {
        let _ = std::fs::remove_file(self.path(election, "candidates").join(identity.as_str()));
    }

    fn renew(&self, election: &Name, bid: &Bid, token: Token) -> Result<Renewal, Error> {
        let mut state = self.state.lock().expect("nobody panics with it");
        self.expire_in(&mut state, election);
        let held = state.held.get_mut(election).and_then(|it| it.iter_mut().find(|it| it.token == token));
        let Some(held) = held else { return Ok(Renewal::Gone) };
        if !self.is_in_place(election, &held.lock) {
            return Ok(Renewal::Gone);
        }
        held.until = clock::now() + bid.ttl;
        let wish = match std::fs::read(self.path(election, "wish")) {
            Ok(text) => serde_json::from_slice(&text).ok().filter(|it: &Wish| it.token == token),
            Err(_) => None,
        };
        Ok(Renewal::Kept { grant: Grant::of(token), wish })
    }

    fn release(&self, election: &Name, token: Token, farewell: &Farewell) -> Result<(), Error> {
        let mut state = self.state.lock().expect("nobody panics with it");
        let Some(seats) = state.held.get_mut(election) else { return Ok(()) };
        let Some(at) = seats.iter().position(|it| it.token == token) else { return Ok(()) };
        let mut found = self.read_desk(election)?;
        if found.desk.leave(token, farewell) {
            self.put_desk(election, found)?;
        }
        let _ = std::fs::remove_file(self.path(election, "wish"));
        // Closing is what frees the seat and what the others hear; all else is done by then.
        drop(seats.remove(at));
        Ok(())
    }

    /// Gives back what was not renewed in time.
    fn expire_in(&self, state: &mut State, election: &Name) {
        let now = clock::now();
        let Some(seats) = state.held.get_mut(election) else { return };
        while let Some(at) = seats.iter().position(|it| now >= it.until) {
            let held = seats.remove(at);
            if let Ok(mut found) = self.read_desk(election)
                && let Some(former) = found.desk.holder.take_if(|it| it.token == held.token)
            {
                let until_ms = wall_ms().saturating_sub(whole_ms(now - held.until));
                found.desk.remember_until(former, LAPSED, until_ms);
                let _ = self.put_desk_for_good(election, found);
            }
        }
    }

    /// When to look again, if the seat is still held.
    fn expire(&self, election: &Name, token: Token) -> Option<Instant> {
        let mut state = self.state.lock().expect("nobody panics with it");
        self.expire_in(&mut state, election);
        state.held.get(election).and_then(|it| it.iter().find(|it| it.token == token)).map(|it| it.until)
    }

    /// Whether somebody holds the lock, asked without standing in anybody's way for long.
    fn is_held(&self, election: &Name) -> Result<bool, Error> {
        let lock = match File::open(self.path(election, "lock")) {
            Ok(lock) => lock,
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(why) => return Err(self.trouble("open a lock")(why)),
        };
        match lock.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(why)) => Err(self.trouble("try a lock")(why)),
        }
    }

    fn look(&self, election: &Name) -> Result<Board, Error> {
        let mut desk = self.read_desk(election)?.desk;
        if let Some(seen) = desk.holder.as_ref().map(|it| it.token)
            && !self.is_held(election)?
        {
            // Whoever gives the seat back writes so before it frees the lock. So one who is still on the desk after the lock was found free has died; anybody else has come or gone meanwhile.
            desk = self.read_desk(election)?.desk;
            if let Some(former) = desk.holder.take_if(|it| it.token == seen) {
                // For those who look. It is written down by the next who leads.
                desk.remember(former, DIED);
            }
        }
        let mut board = desk.board(self.candidates(election)?);
        board.notes = self.notes(election)?;
        Ok(board)
    }

    fn candidates(&self, election: &Name) -> Result<Vec<Candidate>, Error> {
        let entries = match std::fs::read_dir(self.path(election, "candidates")) {
            Ok(entries) => entries,
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(why) => return Err(self.trouble("list candidates")(why)),
        };
        let mut candidates = Vec::new();
        for entry in entries.filter_map(Result::ok) {
            let Ok(mut file) = File::open(entry.path()) else { continue };
            if file.try_lock_shared().is_ok() {
                // Its process is dead.
                let _ = std::fs::remove_file(entry.path());
                continue;
            }
            let mut text = String::new();
            let _ = file.read_to_string(&mut text);
            let priority = serde_json::from_str(&text).map_or(0, |it: Marker| it.priority);
            candidates.push(Candidate { identity: Identity::stored(entry.file_name().to_string_lossy()), priority });
        }
        candidates.sort_by(|a, b| a.identity.cmp(&b.identity));
        Ok(candidates)
    }

    /// Not on the desk, which only the holder of the seat may write: notes are anybody's.
    fn annotate(&self, election: &Name, token: Token, text: &str) -> Result<(), Error> {
        let lock = self.open_to_lock(&self.path(election, "notes-lock"))?;
        // Held for as long as it takes to write a page.
        lock.lock().map_err(self.trouble("take a lock"))?;
        let mut desk = Desk { notes: self.notes(election)?, ..Desk::default() };
        desk.annotate(token, text);
        self.replace(&self.path(election, "notes"), &desk.write())
    }

    fn notes(&self, election: &Name) -> Result<Vec<Note>, Error> {
        match std::fs::read(self.path(election, "notes")) {
            Ok(text) => Ok(Desk::read(&text)?.notes),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(why) => Err(self.trouble("read the notes")(why)),
        }
    }

    fn ask(&self, election: &Name, wish: &Wish) -> Result<(), Error> {
        self.read_desk(election)?.desk.ask(wish)?;
        if !self.is_held(election)? {
            return Err(Error::refused(format!("the leadership with token {} is no longer in office", wish.token)));
        }
        let text = serde_json::to_string(wish).expect("a wish is plain");
        self.replace(&self.path(election, "wish"), &text)
    }

    /// Changes the desk under the lock, one's own or one that is free.
    fn change_desk(
        &self,
        election: &Name,
        holder: Option<Token>,
        change: impl FnOnce(&mut Desk) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let state = self.state.lock().expect("nobody panics with it");
        let own = state.held.get(election).is_some_and(|it| it.iter().any(|it| Some(it.token) == holder || holder.is_none()));
        // Held to the end. Who leads has it already: to open and close it again would wake all who wait.
        let lock = if own { None } else { Some(self.open_lock(election)?) };
        if let Some(lock) = &lock
            && !take(lock, Patience::Some)?
        {
            return Err(Error::refused("somebody leads at present: ask again when nobody does"));
        }
        let mut found = self.read_desk(election)?;
        change(&mut found.desk)?;
        self.put_desk_for_good(election, found)
    }
}

/// A desk as it was read, to be changed and written.
struct OnSheet {
    desk: Desk,
    turn: u64,
}

/// What became of a claim.
enum Claimed {
    Now(Token, Instant),
    Again(Token),
    Occupied {
        leader: Option<crate::engine::Leader>,
        /// It has waited since before this claim.
        waited: bool,
    },
}

/// Whether one who has the lock may be only looking.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Patience {
    None,
    Some,
}

/// Takes the lock if nobody has it.
fn take(lock: &File, patience: Patience) -> Result<bool, Error> {
    let tries = match patience {
        Patience::None => 1,
        Patience::Some => COLLISIONS_MAX,
    };
    for left in (0..tries).rev() {
        match lock.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if left > 0 => std::thread::sleep(Duration::from_millis(1)),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(why)) => return Err(Error::refused(format!("cannot lock a file: {why}"))),
        }
    }
    Ok(false)
}

/// Incarnation and term of the last token that was granted; zeros if there was none.
fn last_token(lock: &File) -> (u16, u64) {
    let mut text = [0; TOKEN_LEN];
    let read = lock.read_exact_at(&mut text, 0).ok().and_then(|()| std::str::from_utf8(&text).ok());
    let number: u64 = read.and_then(|it| it.trim().parse().ok()).unwrap_or(0);
    (u16::try_from(number >> 48).unwrap_or(0), number & Term::MAX.0)
}

/// Twenty digits and the end of the line, so that a later one always covers an earlier.
const TOKEN_LEN: usize = 21;

/// On disk afterwards; when that was is of no interest.
fn write_token(lock: &File, token: Token) -> std::io::Result<()> {
    lock.write_all_at(format!("{:020}\n", token.get()).as_bytes(), 0)?;
    lock.sync_data()
}

/// What elections in files promise, wherever they are.
pub(super) fn promises() -> Guarantees {
    Guarantees {
        engine: "file",
        exclusive: Exclusive::OnOneMachine,
        tokens: Tokens::Durable,
        token_source: "a counter in the file, synced to disk",
        clock: WhoseClock::Kernel,
        notice: Notice::Pushed,
        order: Order::Race,
        seats_max: 1,
        lists_candidates: true,
        keeps_history: true,
        ttl_min: Duration::from_millis(100),
        ttl_max: Duration::from_secs(86_400),
        late: Lateness::NONE,
        caveats: vec![
            "It is for one machine: containers that share the directory on one kernel are fine, other machines are not.",
            "A holder whose whole process is paused keeps the seat until it goes on or is killed.",
        ],
    }
}

#[async_trait]
impl Engine for Files {
    fn guarantees(&self) -> Guarantees {
        promises()
    }

    async fn claim(&self, election: &Name, bid: &Bid) -> Result<Claim, Error> {
        let candidate = (election.clone(), bid.identity.clone());
        // Before the seat is looked at. Whoever cannot listen polls.
        let heard = self.inner.hints.listen().ok();
        let mut again = AGAIN_AFTER.iter();
        let claimed = loop {
            let (files, name, own) = (self.clone(), election.clone(), bid.clone());
            let claimed = self.blocking(move |it| {
                let claimed = it.claim(&name, &own)?;
                // Here, because nobody may wait any more for what becomes of it.
                if let Claimed::Now(token, until) = claimed {
                    files.let_go_in_time(name.clone(), token, until);
                    files.settle_soon(name);
                }
                Ok(claimed)
            });
            let claimed = claimed.await?;
            let may_go = matches!(claimed, Claimed::Occupied { leader: Some(_), waited: true });
            match again.next().filter(|_| may_go) {
                Some(span) => tokio::time::sleep(*span).await,
                None => break claimed,
            }
        };
        if let (Claimed::Occupied { .. }, Some(heard)) = (&claimed, heard) {
            self.inner.hints.keep(candidate, heard);
        }
        Ok(match claimed {
            Claimed::Now(token, _) | Claimed::Again(token) => Claim::Granted(Grant::of(token)),
            Claimed::Occupied { leader, .. } => Claim::Occupied { leader, free_in: None },
        })
    }

    async fn renew(&self, election: &Name, bid: &Bid, token: Token) -> Result<Renewal, Error> {
        let (name, own) = (election.clone(), bid.clone());
        self.blocking(move |it| it.renew(&name, &own, token)).await
    }

    async fn release(&self, election: &Name, _bid: &Bid, token: Token, farewell: &Farewell) -> Result<(), Error> {
        let (name, farewell) = (election.clone(), farewell.clone());
        // Brought to the disk with the next leadership, whose claim would wait for it now.
        self.blocking(move |it| it.release(&name, token, &farewell)).await
    }

    async fn look(&self, election: &Name) -> Result<Board, Error> {
        let name = election.clone();
        self.blocking(move |it| it.look(&name)).await
    }

    async fn withdraw(&self, election: &Name, bid: &Bid) -> Result<(), Error> {
        let (name, identity) = (election.clone(), bid.identity.clone());
        self.blocking(move |it| {
            let mut state = it.state.lock().expect("nobody panics with it");
            let candidate = (name, identity);
            state.waiting.remove(&candidate);
            it.hints.forget(&candidate);
            it.unmark(&candidate.0, &candidate.1);
            Ok(())
        })
        .await
    }

    async fn proclaim(&self, election: &Name, _bid: &Bid, token: Token, value: &str) -> Result<(), Error> {
        let (name, value) = (election.clone(), value.to_owned());
        self.blocking(move |it| {
            it.change_desk(&name, Some(token), |desk| match desk.holder.as_mut().filter(|holder| holder.token == token) {
                Some(holder) => {
                    holder.value = value;
                    Ok(())
                }
                None => Err(Error::refused(format!("token {token} is no longer in office"))),
            })
        })
        .await
    }

    async fn ask(&self, election: &Name, wish: &Wish) -> Result<(), Error> {
        let (name, wish) = (election.clone(), wish.clone());
        self.blocking(move |it| it.ask(&name, &wish)).await
    }

    async fn raise(&self, election: &Name, above: Token) -> Result<(), Error> {
        let name = election.clone();
        self.blocking(move |it| it.change_desk(&name, None, |desk| desk.raise(above))).await
    }

    async fn annotate(&self, election: &Name, token: Token, text: &str) -> Result<(), Error> {
        let (name, text) = (election.clone(), text.to_owned());
        self.blocking(move |it| it.annotate(&name, token, &text)).await
    }

    fn watch(&self, election: &Name, bid: Option<&Bid>) -> BoxStream<'static, Result<(), Error>> {
        let holds = |bid: &Bid| {
            let state = self.inner.state.lock().expect("nobody panics with it");
            state.held.get(election).is_some_and(|it| it.iter().any(|it| it.identity == bid.identity))
        };
        let wanted = match bid {
            Some(bid) if holds(bid) => hints::Wanted::Wish,
            Some(_) => hints::Wanted::Seat,
            None => hints::Wanted::Anything,
        };
        self.inner.hints.watch(election, bid.map(|it| &it.identity), wanted)
    }
}
