//! A ledger that was interrupted, damaged, cut off or exchanged: what was told is there, or the ledger is refused.

use std::sync::{Arc, Mutex};

use super::*;

const DIRECTORY: DirectoryId = [7; 16];
const SECTOR: usize = 512;

/// A file in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paper(Arc<Mutex<Vec<u8>>>);

impl Paper {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn elections(&self) -> Elections {
        elections(&self.bytes()).unwrap()
    }
}

impl Medium for Paper {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut paper = self.0.lock().unwrap();
        let (from, to) = (offset as usize, offset as usize + bytes.len());
        if paper.len() < to {
            paper.resize(to, 0);
        }
        paper[from..to].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A ledger that was never written to, whose writes go through `medium` to `paper`.
pub(crate) fn fresh_on<M>(medium: M, paper: &Paper) -> Ledger<M> {
    let bytes = blank(DIRECTORY, "orders", NodeId(3));
    paper.write_at(&bytes, 0).unwrap();
    read(medium, &bytes).unwrap().0
}

fn fresh() -> Ledger<Paper> {
    let paper = Paper::default();
    fresh_on(paper.clone(), &paper)
}

fn elections(bytes: &[u8]) -> Result<Elections, Wrong> {
    read((), bytes).map(|(_, elections)| elections)
}

fn vote(term: u64) -> Stored {
    Stored { record: Some(Record { term: Term(term), vote: Some(NodeId(2)) }), epoch: 1 }
}

fn write(ledger: &mut Ledger<Paper>, election: &str, term: u64) {
    ledger.write(election, vote(term)).unwrap();
    ledger.sync().unwrap();
}

/// The first election of the ledger, before and after a further write.
fn before_and_after(name: &str, writes: u64) -> (Vec<u8>, Vec<u8>) {
    let mut ledger = fresh();
    (1..=writes).for_each(|term| write(&mut ledger, name, term));
    let before = ledger.medium.bytes();
    write(&mut ledger, name, writes + 1);
    (before, ledger.medium.bytes())
}

/// The term that the first election is found in.
fn term(bytes: &[u8]) -> u64 {
    let copy = read_cell(&bytes[CELL..2 * CELL], 1, Some(DIRECTORY)).unwrap();
    let (name, stored) = decode_election(copy.payload).unwrap();
    if name.is_empty() { 0 } else { stored.record.unwrap().term.0 }
}

fn differing(before: &[u8], after: &[u8]) -> std::ops::Range<usize> {
    let at = |it: &usize| before[*it] != after[*it];
    let first = (0..before.len()).find(at).unwrap();
    first / PAGE * PAGE..first / PAGE * PAGE + PAGE
}

#[test]
fn a_write_that_stops_at_any_byte_leaves_the_record_before_it_or_the_new_one() {
    let long = "n".repeat(NAME_MAX);
    for (name, writes) in [("nightly", 1), ("nightly", 2), ("nightly", 7), (&long, 0), (&long, 4)] {
        let (before, after) = before_and_after(name, writes);
        let page = differing(&before, &after);
        let (mut old, mut new) = (0, 0);
        for stops in 0..=PAGE {
            for begins in [true, false] {
                let mut torn = before.clone();
                // A disk may begin at the end as well.
                let done = if begins { page.start..page.start + stops } else { page.end - stops..page.end };
                torn[done.clone()].copy_from_slice(&after[done]);
                match term(&torn) {
                    it if it == writes => old += 1,
                    it if it == writes + 1 => new += 1,
                    other => panic!("{name}: term {other} after {stops} bytes"),
                }
            }
        }
        assert!(old > PAGE / 4 && new > PAGE / 4, "{old} {new}");
        assert_eq!(term(&after), writes + 1);
    }
}

#[test]
fn the_sectors_of_a_page_may_be_written_in_any_order() {
    let (before, after) = before_and_after("nightly", 5);
    let page = differing(&before, &after);
    let mut found = [0, 0];
    for done in 0..1u32 << (PAGE / SECTOR) {
        let mut torn = before.clone();
        for sector in (0..PAGE / SECTOR).filter(|it| done & (1 << it) != 0) {
            let bytes = page.start + sector * SECTOR..page.start + (sector + 1) * SECTOR;
            torn[bytes.clone()].copy_from_slice(&after[bytes]);
        }
        found[(term(&torn) - 5) as usize] += 1;
    }
    assert_eq!(found, [64, 192], "new as soon as one of two copies is");
}

#[test]
fn a_bit_that_flips_anywhere_changes_nothing() {
    let (_, bytes) = before_and_after("nightly", 5);
    for cell in 0..2 {
        let whole = &bytes[cell * CELL..(cell + 1) * CELL];
        let expected = read_cell(whole, cell as u32, None).unwrap().payload.to_vec();
        let mut flipped = whole.to_vec();
        for bit in 0..CELL * 8 {
            flipped[bit / 8] ^= 1 << (bit % 8);
            let found = read_cell(&flipped, cell as u32, None).unwrap_or_else(|wrong| panic!("bit {bit}: {wrong:?}"));
            assert_eq!(found.payload, expected, "bit {bit} of cell {cell}");
            flipped[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn damage_to_both_copies_is_refused_and_never_an_older_record() {
    let (_, bytes) = before_and_after("nightly", 5);
    for page in 0..2 {
        for byte in 0..COPY {
            let mut damaged = bytes.clone();
            let at = CELL + page * PAGE + byte;
            damaged[at] ^= 0x10;
            damaged[at + COPY] ^= 0x10;
            assert!(matches!(elections(&damaged), Err(Wrong::Damaged(_))), "byte {byte} of page {page}");
        }
    }
}

#[test]
fn a_ledger_that_is_cut_off_anywhere_is_refused() {
    let (_, bytes) = before_and_after("nightly", 5);
    for length in (0..bytes.len()).step_by(61).chain([0, 1, CELL - 1, CELL, bytes.len() - 1]) {
        match elections(&bytes[..length]) {
            Err(Wrong::Damaged(what)) => assert!(what.contains("cut off"), "{what}"),
            other => panic!("{length} bytes: {other:?}"),
        }
    }
    assert!(matches!(elections(&vec![0; bytes.len()]), Err(Wrong::Damaged(_))));
}

#[test]
fn a_later_format_is_told_from_damage() {
    let (_, mut bytes) = before_and_after("nightly", 5);
    let copy: &mut [u8; COPY] = (&mut bytes[..COPY]).try_into().unwrap();
    copy[MAGIC.len()] = 9;
    assert!(elections(&bytes).is_ok(), "one such copy is damage, since its checksum is wrong");
    let copy: &mut [u8; COPY] = (&mut bytes[..COPY]).try_into().unwrap();
    seal(copy);
    assert_eq!(elections(&bytes), Err(Wrong::Newer(9)));
}

#[test]
fn a_cell_that_belongs_elsewhere_is_refused() {
    let (_, bytes) = before_and_after("nightly", 5);
    let mut moved = bytes.clone();
    moved.copy_within(CELL..2 * CELL, 2 * CELL);
    assert!(matches!(elections(&moved), Err(Wrong::Damaged(_))), "a cell in another's place");
    let mut exchanged = bytes.clone();
    exchanged[CELL..2 * CELL].copy_from_slice(&cell([8; 16], Kind::Election, 1, &encode_election("nightly", vote(1))));
    assert!(matches!(elections(&exchanged), Err(Wrong::Damaged(_))), "a cell of another directory");
    let mut twice = bytes.clone();
    twice[2 * CELL..3 * CELL].copy_from_slice(&cell(DIRECTORY, Kind::Election, 2, &encode_election("nightly", vote(1))));
    assert!(matches!(elections(&twice), Err(Wrong::Damaged(_))), "an election in two cells");
    let mut beyond = bytes;
    let term_max = encode_election("nightly", vote(Term::MAX.0 + 1));
    beyond[CELL..2 * CELL].copy_from_slice(&cell(DIRECTORY, Kind::Election, 1, &term_max));
    assert!(matches!(elections(&beyond), Err(Wrong::Damaged(_))), "a term that does not exist");
}

#[test]
fn it_grows_and_may_be_interrupted_while_it_does() {
    let mut ledger = fresh();
    let name = |number: u32| format!("election {number}");
    for number in 1..=CELLS_ADDED {
        write(&mut ledger, &name(number), u64::from(number));
    }
    let full = ledger.medium.bytes();
    write(&mut ledger, &name(CELLS_ADDED + 1), 99);
    let grown = ledger.medium.bytes();
    assert_eq!(grown.len(), full.len() + CELLS_ADDED as usize * CELL);
    assert_eq!(elections(&grown).unwrap().len(), CELLS_ADDED as usize + 1);
    // The new cells were being written; the head does not speak of them yet.
    for added in [0, 1, PAGE, CELL, CELL + 77] {
        let mut interrupted = grown[..full.len() + added].to_vec();
        interrupted[..full.len()].copy_from_slice(&full);
        let (mut again, found) = read(Paper(Arc::new(Mutex::new(interrupted.clone()))), &interrupted).unwrap();
        assert_eq!(found.len(), CELLS_ADDED as usize);
        write(&mut again, &name(CELLS_ADDED + 1), 99);
        assert_eq!(elections(&again.medium.bytes()).unwrap(), elections(&grown).unwrap());
    }
}

#[test]
fn names_that_do_not_fit_are_refused_and_leave_no_trace() {
    let mut ledger = fresh();
    let before = ledger.medium.bytes();
    for name in ["", &"n".repeat(NAME_MAX + 1)] {
        assert!(matches!(ledger.write(name, vote(1)), Err(Failure::TooLong { .. })));
    }
    assert_eq!(ledger.medium.bytes(), before);
    write(&mut ledger, &"n".repeat(NAME_MAX), 1);
    assert_eq!(elections(&ledger.medium.bytes()).unwrap().len(), 1);
}

#[test]
fn each_opening_is_counted_before_it_is_known() {
    let mut ledger = fresh();
    for generation in 1..=5 {
        assert_eq!(ledger.count_opening(), Ok(generation));
        let bytes = ledger.medium.bytes();
        assert_eq!(read((), &bytes).unwrap().0.header.generation, generation);
    }
}
