//! Reads entries while others are being written: a laggard's catching up does not wait for a sync.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::contents::{Contents, Slot};
use super::disk::{Disk, DiskFile};
use super::record::{Codec, RECORD_HEAD_LENGTH};
use super::refused::{Damage, Unreadable};
use super::{DirectoryId, Entry, segment_name};

/// As much is read by one call: enough for a disk to be at its best, little enough for the memory.
const SPAN_MAX: u64 = 1 << 20;

/// What writer and readers of a log have together.
#[derive(Debug)]
pub(super) struct Shared<D: Disk> {
    index: Mutex<Index<D::File>>,
    pub(super) disk: Arc<D>,
    pub(super) directory: DirectoryId,
}

#[derive(Debug)]
pub(super) struct Index<F> {
    pub(super) contents: Contents,
    /// The segments by sequence.
    pub(super) files: BTreeMap<u32, Arc<F>>,
}

impl<D: Disk> Shared<D> {
    pub(super) fn new(disk: Arc<D>, directory: DirectoryId, contents: Contents, files: BTreeMap<u32, Arc<D::File>>) -> Self {
        Shared { index: Mutex::new(Index { contents, files }), disk, directory }
    }

    pub(super) fn index(&self) -> MutexGuard<'_, Index<D::File>> {
        // Nothing that is done with it in hand can stop half-way.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a log; as many as one likes, on any thread.
#[derive(Debug)]
pub struct Reader<D: Disk> {
    pub(super) shared: Arc<Shared<D>>,
}

impl<D: Disk> Clone for Reader<D> {
    fn clone(&self) -> Self {
        Reader { shared: Arc::clone(&self.shared) }
    }
}

impl<D: Disk> Reader<D> {
    /// The first entry that is there, or would be.
    pub fn first(&self) -> u64 {
        self.shared.index().contents.base().index + 1
    }

    /// The last entry that is there; one less than the first if there is none.
    pub fn last(&self) -> u64 {
        self.shared.index().contents.last()
    }

    /// The term of an entry, also of the one before the first.
    pub fn term(&self, index: u64) -> Result<u64, Unreadable> {
        let shared = self.shared.index();
        shared.contents.term(index).ok_or_else(|| absent(&shared.contents, index))
    }

    /// The entries `from..to`, or as many of them from the front as have `bytes_max` bytes together: at least one, however long it is.
    pub fn read(&self, from: u64, to: u64, bytes_max: usize) -> Result<Vec<Entry>, Unreadable> {
        let mut entries = Vec::new();
        let mut room = bytes_max;
        let mut next = from;
        while next < to {
            let Some(span) = self.span(next, to, room, entries.is_empty())? else { break };
            let count = span.slots.len() as u64;
            room -= span.slots.iter().map(|it| it.length as usize).sum::<usize>().min(room);
            self.read_span(&span, &mut entries)?;
            next += count;
        }
        Ok(entries)
    }

    /// The longest run of entries from `from` on that stand in one segment and may be read at one time. At least one if `forced`.
    fn span(&self, from: u64, to: u64, room: usize, forced: bool) -> Result<Option<Span<D::File>>, Unreadable> {
        let index = self.shared.index();
        let contents = &index.contents;
        let first = contents.slot(from).ok_or_else(|| absent(contents, from))?;
        if to > contents.last() + 1 {
            return Err(absent(contents, to - 1));
        }
        let sequence = first.place.sequence();
        let file = index.files.get(&sequence).map(Arc::clone);
        let file = file.ok_or_else(|| Unreadable::Broken { error: format!("{} is not open", segment_name(sequence)) })?;
        let mut span = Span { from, sequence, file, slots: Vec::new() };
        let mut left = room;
        for slot in (from..to).map_while(|it| contents.slot(it)) {
            let length = slot.length as usize;
            let end = u64::from(slot.place.offset()) + u64::from(slot.length);
            let elsewhere = slot.place.sequence() != sequence || end - u64::from(first.place.offset()) > SPAN_MAX;
            let first_of_all = forced && span.slots.is_empty();
            if !first_of_all && (length > left || elsewhere && !span.slots.is_empty()) {
                break;
            }
            left -= length.min(left);
            span.slots.push(slot);
        }
        Ok((!span.slots.is_empty()).then_some(span))
    }

    fn read_span(&self, span: &Span<D::File>, entries: &mut Vec<Entry>) -> Result<(), Unreadable> {
        let (Some(first), Some(last)) = (span.slots.first(), span.slots.last()) else { return Ok(()) };
        let start = first.place.offset();
        let length = (last.place.offset() - start) as usize + RECORD_HEAD_LENGTH + last.length as usize;
        let mut bytes = vec![0; length];
        let read = span.file.read_at(&mut bytes, start.into());
        let codec = Codec::new(self.shared.directory, span.sequence);
        for (index, slot) in (span.from..).zip(&span.slots) {
            let offset = slot.place.offset();
            let found = read.as_ref().ok().and_then(|()| codec.decode(&bytes[(offset - start) as usize..], offset));
            match found {
                Some((head, content)) if (head.index, head.term) == (index, slot.term) => {
                    entries.push(Entry { index, term: slot.term, payload: content.to_vec() });
                }
                Some(_) | None => return Err(self.explain(index, *slot, read.as_ref().err())),
            }
        }
        Ok(())
    }

    /// Why an entry is not where it was when we looked.
    fn explain(&self, index: u64, slot: Slot, error: Option<&io::Error>) -> Unreadable {
        let shared = self.shared.index();
        let contents = &shared.contents;
        if contents.slot(index) != Some(slot) {
            // Put away or overwritten by another since then, so that its segment may be in use for something else.
            let base = contents.base().index;
            return if index <= base {
                absent(contents, index)
            } else {
                Unreadable::Beyond { last: contents.last().min(index - 1) }
            };
        }
        match error {
            Some(error) => Unreadable::Broken { error: error.to_string() },
            None => {
                let (name, offset) = (segment_name(slot.place.sequence()), slot.place.offset());
                let damage = Damage::of(&name, offset.into(), format!("entry {index} cannot be read"));
                Unreadable::Damaged(Damage {
                    whole_through: contents.base().index,
                    seen_through: contents.last(),
                    state: contents.state(),
                    ..damage
                })
            }
        }
    }
}

struct Span<F> {
    from: u64,
    sequence: u32,
    file: Arc<F>,
    slots: Vec<Slot>,
}

fn absent(contents: &Contents, index: u64) -> Unreadable {
    if index <= contents.base().index {
        Unreadable::Compacted { first: contents.base().index + 1 }
    } else {
        Unreadable::Beyond { last: contents.last() }
    }
}
