//! Reads a log again, and tells a torn write from damage.
//!
//! **The problem.** The log ends where no record is any more. That may be the true end, a write that a crash has torn, or a place where the disk has lost what
//! it had confirmed. The first two are cut and forgotten: nobody was told of them. To cut the third would be to break promises silently, and it is what most systems do.
//!
//! **The insight.** Every record says up to where the log was safe when it was written (`synced`), and when nothing more is to be written a seal says it once more. So all that lies
//! behind the end is searched, at every place where a record could begin: one that says that more was safe than can be read is the proof of damage.
//! And a segment has all its length before anything in it is confirmed, and says what that is: one that is shorter was cut off, whatever it still holds.
//! What remains undecided is damage to the very last batch in the moment between its sync and the write-back of its seal.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::contents::{Change, Contents, Slot};
use super::disk::{self, Disk, DiskFile};
use super::record::{Codec, HEAD_LENGTH, INDEX_MAX, Kind, NoHead, Place, RecordHead, SegmentHead, decode_vote, record_length};
use super::refused::{Damage, Refused};
use super::{DirectoryId, HardState, Mark, Options, segment_name, segment_sequence, segments};

/// A log as it was found.
pub(super) struct Found<F> {
    pub(super) contents: Contents,
    /// The segments of the log.
    pub(super) files: BTreeMap<u32, Arc<F>>,
    /// Where the next record goes.
    pub(super) tail: Place,
    /// Segments behind it, which hold nothing that counts.
    pub(super) ahead: Vec<(u32, Arc<F>)>,
    /// Files that nobody needs.
    pub(super) stray: Vec<String>,
}

/// A segment, opened but not read.
struct Opened<F> {
    sequence: u32,
    file: Arc<F>,
    /// None if the segment was never begun, or its head is damaged.
    head: Option<SegmentHead>,
    length: u32,
}

impl<F> Opened<F> {
    /// How long it must be, if it is shorter. One that was not begun holds nothing that could have been cut off.
    fn cut_from(&self, options: Options) -> Option<u32> {
        let whole = match self.head?.length {
            // Written before heads said it, when every node made them as long as it makes them now.
            0 => segments::length_of(self.sequence, options),
            length => length,
        };
        (self.length < whole).then_some(whole)
    }
}

/// The segments of a log, and names of files that nobody needs.
type Listed<F> = (Vec<Opened<F>>, Vec<String>);

/// Reads the log of `directory`. Changes nothing; but what was read is safe afterwards.
pub(super) fn recover<D: Disk>(disk: &D, directory: DirectoryId, options: Options) -> Result<Found<D::File>, Refused> {
    let (segments, stray) = open_segments(disk, directory)?;
    let first = segments.first().ok_or_else(|| Refused::Gone { what: "the log".to_owned() })?;
    let Some(head) = first.head else {
        let damage = Damage::of(&segment_name(first.sequence), 0, "the head of the first segment cannot be read");
        return Err(Refused::Damaged(search(&segments, 0, None, directory)?.complete(damage)));
    };
    let mut walk = Walk { contents: Contents::from_summary(head.summary), life: head.life, synced: head.synced };
    let mut number = 0;
    let (tail, bytes) = loop {
        let segment = &segments[number];
        let bytes = read(segment)?;
        match walk.segment(segment.sequence, &bytes, directory, segments.get(number + 1).and_then(|it| it.head.as_ref()))? {
            Step::Next => number += 1,
            Step::End(tail) => break (tail, bytes),
        }
    };
    let behind = search(&segments, number, Some((tail, &bytes)), directory)?;
    if let Some((segment, whole)) = segments.iter().find_map(|it| Some((it, it.cut_from(options)?))) {
        let length = segment.length;
        let what = format!("it has {length} bytes and had {whole}: it was cut off");
        let damage = Damage::of(&segment_name(segment.sequence), length.into(), what);
        return Err(Refused::Damaged(behind.with(&walk.contents).complete(damage)));
    }
    if behind.synced > tail {
        let what = format!("entries up to {} or more were confirmed", behind.seen_through.max(walk.contents.last()));
        let damage = Damage::of(&segment_name(tail.sequence()), tail.offset().into(), what);
        return Err(Refused::Damaged(behind.with(&walk.contents).complete(damage)));
    }
    if let Some(missing) = walk.contents.missing() {
        let damage = Damage::of(&segment_name(first.sequence), 0, format!("entries from {missing} on are missing before it"));
        return Err(Refused::Damaged(behind.with(&walk.contents).complete(damage)));
    }
    // A process that was killed leaves what it has written to the kernel, which may not have written it yet.
    for segment in segments[..=number].iter().filter(|it| it.sequence >= walk.synced.sequence()) {
        segment.file.sync().map_err(|error| Refused::unusable(segment_name(segment.sequence), "sync", &error))?;
    }
    let mut files: BTreeMap<u32, Arc<D::File>> = segments.into_iter().map(|it| (it.sequence, it.file)).collect();
    let ahead = files.split_off(&(tail.sequence() + 1)).into_iter().collect();
    Ok(Found { contents: walk.contents, files, tail, ahead, stray })
}

/// The last segments without a gap between them; what is before a gap was being removed when the node ended.
fn open_segments<D: Disk>(disk: &D, directory: DirectoryId) -> Result<Listed<D::File>, Refused> {
    let names = disk.names().map_err(|error| Refused::unusable("the log", "list", &error))?;
    let mut stray: Vec<String> = names.iter().filter(|it| it.ends_with(".new")).cloned().collect();
    let mut sequences: Vec<u32> = names.iter().filter_map(|it| segment_sequence(it)).collect();
    sequences.sort_unstable();
    let start = sequences.windows(2).rposition(|pair| pair[1] - pair[0] > 1).map_or(0, |it| it + 1);
    stray.extend(sequences[..start].iter().copied().map(segment_name));
    let mut segments = Vec::new();
    for &sequence in &sequences[start..] {
        let name = segment_name(sequence);
        let unusable = |error: io::Error| Refused::unusable(&name, "read", &error);
        let file = disk.open(&name).map_err(unusable)?;
        let mut bytes = [0; HEAD_LENGTH];
        let length = file.length().map_err(unusable)?;
        let Some(length) = u32::try_from(length).ok().filter(|it| *it as usize >= HEAD_LENGTH) else {
            return Err(Refused::damaged(&name, length, format!("it has {length} bytes: it was cut off, or is no segment")));
        };
        file.read_at(&mut bytes, 0).map_err(unusable)?;
        let head = match SegmentHead::decode(&bytes, directory) {
            // Of its former use: it was to be the next, and was not begun.
            Ok(head) if head.sequence != sequence => None,
            Ok(head) => Some(head),
            Err(NoHead::Unknown) => None,
            Err(NoHead::Newer(version)) => return Err(Refused::Newer { file: name, version }),
        };
        segments.push(Opened { sequence, file: Arc::new(file), head, length });
    }
    Ok((segments, stray))
}

fn read<F: DiskFile>(segment: &Opened<F>) -> Result<Vec<u8>, Refused> {
    disk::read_whole(&*segment.file).map_err(|error| Refused::unusable(segment_name(segment.sequence), "read", &error))
}

enum Step {
    Next,
    End(Place),
}

/// The way through the log, record by record.
struct Walk {
    contents: Contents,
    life: u64,
    /// The most that a record said to be safe.
    synced: Place,
}

impl Walk {
    fn segment(
        &mut self,
        sequence: u32,
        bytes: &[u8],
        directory: DirectoryId,
        next: Option<&SegmentHead>,
    ) -> Result<Step, Refused> {
        let codec = Codec::new(directory, sequence);
        let mut at = HEAD_LENGTH as u32;
        let (mut end, mut goes_on) = (None, false);
        while end.is_none() {
            // The next segment was begun here, and by nobody who knew less than we have read so far.
            if next.is_some_and(|it| it.follows == Place::new(sequence, at) && it.life >= self.life) {
                goes_on = true;
                break;
            }
            match codec.decode(&bytes[(at as usize).min(bytes.len())..], at) {
                Some((head, content)) if head.life >= self.life && head.kind != Kind::Seal => {
                    let place = Place::new(sequence, at);
                    let applied = change(&head, content, place).and_then(|it| self.contents.apply(it).map_err(|it| it.0));
                    applied.map_err(|what| self.nonsense(place, what))?;
                    self.life = head.life;
                    self.synced = self.synced.max(head.synced);
                    at += record_length(content.len()) as u32;
                }
                Some(_) | None => end = Some(Place::new(sequence, at)),
            }
        }
        if let (true, Some(next)) = (goes_on, next) {
            if self.contents.summary() != next.summary {
                return Err(self.nonsense(Place::new(sequence + 1, 0), "it does not begin as the segment before it ended"));
            }
            self.life = next.life;
            self.synced = self.synced.max(next.synced);
            return Ok(Step::Next);
        }
        Ok(Step::End(end.unwrap_or(Place::new(sequence, at))))
    }

    fn nonsense(&self, place: Place, what: &str) -> Refused {
        let behind = Behind::default().with(&self.contents);
        Refused::Damaged(behind.complete(Damage::of(&segment_name(place.sequence()), place.offset().into(), what)))
    }
}

/// What a record does.
fn change(head: &RecordHead, content: &[u8], place: Place) -> Result<Change, &'static str> {
    let mark = Mark { index: head.index, term: head.term };
    if head.index > INDEX_MAX {
        return Err("a number that no entry has");
    }
    Ok(match head.kind {
        Kind::Entry => {
            let length = u32::try_from(content.len()).map_err(|_| "an entry longer than any")?;
            Change::Entry { index: head.index, slot: Slot { term: head.term, place, length } }
        }
        Kind::Truncate => Change::Truncate { from: head.index },
        Kind::Compact => Change::Compact(mark),
        Kind::Restart => Change::Restart(mark),
        Kind::State => {
            let vote = decode_vote(content).ok_or("a vote for nobody")?;
            Change::State(HardState { term: head.term, vote, commit: head.index })
        }
        Kind::Seal => return Err("a seal where no end is"),
    })
}

/// What was found behind the end, where nothing counts.
#[derive(Default)]
struct Behind {
    synced: Place,
    whole_through: u64,
    seen_through: u64,
    state: HardState,
}

impl Behind {
    fn with(mut self, contents: &Contents) -> Self {
        self.whole_through = if contents.missing().is_some() { contents.base().index } else { contents.last() };
        self.seen_through = self.seen_through.max(contents.last());
        self.see_state(contents.state());
        self
    }

    fn see_state(&mut self, state: HardState) {
        if (state.term, state.vote.is_some()) > (self.state.term, self.state.vote.is_some()) {
            (self.state.term, self.state.vote) = (state.term, state.vote);
        }
        self.state.commit = self.state.commit.max(state.commit);
    }

    fn complete(self, damage: Damage) -> Damage {
        let Behind { whole_through, seen_through, state, .. } = self;
        Damage { whole_through, seen_through, state, ..damage }
    }
}

/// Looks for records behind the end: in the segment with that `number`, whose bytes are at hand if it has a tail, and in all later ones.
fn search<F: DiskFile>(
    segments: &[Opened<F>],
    number: usize,
    tail: Option<(Place, &[u8])>,
    directory: DirectoryId,
) -> Result<Behind, Refused> {
    let mut behind = Behind::default();
    for segment in &segments[number..] {
        let here = tail.filter(|(place, _)| place.sequence() == segment.sequence);
        match here {
            Some((place, bytes)) => search_bytes(&mut behind, segment.sequence, bytes, place.offset(), directory),
            None => {
                if let Some(head) = segment.head {
                    behind.synced = behind.synced.max(head.synced);
                }
                search_bytes(&mut behind, segment.sequence, &read(segment)?, HEAD_LENGTH as u32, directory);
            }
        }
    }
    Ok(behind)
}

fn search_bytes(behind: &mut Behind, sequence: u32, bytes: &[u8], from: u32, directory: DirectoryId) {
    let codec = Codec::new(directory, sequence);
    let from = from as usize;
    for at in (from..bytes.len()).step_by(8) {
        let Some((head, content)) = codec.decode(&bytes[at..], at as u32) else { continue };
        behind.synced = behind.synced.max(head.synced);
        match change(&head, content, Place::default()) {
            Ok(Change::Entry { index, .. }) => behind.seen_through = behind.seen_through.max(index),
            Ok(Change::State(state)) => behind.see_state(state),
            Ok(Change::Truncate { .. } | Change::Compact(_) | Change::Restart(_)) | Err(_) => {}
        }
    }
}
