//! A desk on the disk: two pages of one file, written in turn and in place.
//!
//! To replace a file by another is the slowest thing that a file system does, and it would be done twice in every leadership. So the older page is
//! written over, and whoever reads takes the newer one that is whole: nobody waits for a writer, and a writer that dies or a power cut leaves what was there
//! before. At worst, when two writes in a row did not reach the disk, nothing is left. Then the desk is empty; the token is in the lock.
//!
//! One writes at a time: who holds the lock.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Every page begins with it. Another form would begin with another.
const MARK: &[u8] = b"incumbent-desk ";

/// The mark, then turn, length and checksum of the text, in so many digits.
const HEAD_LEN: usize = MARK.len() + 20 + 1 + 8 + 1 + 16 + 1;

/// From one page to the next. What is never written takes no room on the disk.
const PAGE_LEN: usize = 256 * 1024;

/// Most desks have come with the first read.
const FIRST_READ: usize = 2 * BLOCK;

/// The length of the file changes only in such steps: a new length is one more thing to bring to the disk.
const BLOCK: usize = 4096;

/// A writer is done in microseconds; who meets one on both pages reads again, this often.
const COLLISIONS_MAX: usize = 100;

/// The file that a desk is in.
pub(super) struct Sheet {
    path: PathBuf,
}

/// What stands on it.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Written {
    /// Rises with each write; zero if there was none.
    pub(super) turn: u64,
    pub(super) text: Vec<u8>,
}

/// What stands on one page.
#[derive(Debug)]
enum Page {
    Blank,
    Whole(Written),
    /// Is being written, or was when the power failed.
    Torn,
    /// Nothing of ours.
    Foreign,
}

impl Sheet {
    pub(super) fn at(path: PathBuf) -> Sheet {
        Sheet { path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The last that was written; `None` if that is nothing, or lost. [`ErrorKind::InvalidData`] if somebody else has written there.
    pub(super) fn read(&self) -> Result<Option<Written>, Error> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(why) if why.kind() == ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(why),
        };
        for _ in 0..COLLISIONS_MAX {
            let (mut one, other) = (page(&file, 0)?, page(&file, 1)?);
            if let Page::Torn = other {
                // What stood on the first page may have been two turns ago by now.
                one = page(&file, 0)?;
            }
            match (one, other) {
                (Page::Foreign, _) | (_, Page::Foreign) => return Err(ErrorKind::InvalidData.into()),
                (Page::Whole(one), Page::Whole(other)) => return Ok(Some(if one.turn > other.turn { one } else { other })),
                (Page::Whole(it), Page::Blank | Page::Torn) | (Page::Blank | Page::Torn, Page::Whole(it)) => return Ok(Some(it)),
                (Page::Blank, Page::Blank) => return Ok(None),
                (Page::Torn, Page::Blank | Page::Torn) | (Page::Blank, Page::Torn) => std::thread::yield_now(),
            }
        }
        Ok(None)
    }

    /// Writes over what was there before the turn `last`, which must be the last that was read. Others see it at once, and a restart of the machine may take it
    /// back until it is [settled](Self::settle).
    pub(super) fn write(&self, last: u64, text: String) -> Result<Written, Error> {
        let turn = last + 1;
        let mut page = Vec::with_capacity((HEAD_LEN + text.len()).next_multiple_of(BLOCK));
        page.extend_from_slice(MARK);
        page.extend_from_slice(format!("{turn:020} {:08} {:016x}\n", text.len(), checksum(turn, text.as_bytes())).as_bytes());
        page.extend_from_slice(text.as_bytes());
        page.resize(page.len().next_multiple_of(BLOCK), b'\n');
        if page.len() > PAGE_LEN {
            return Err(Error::new(ErrorKind::FileTooLarge, format!("what is to be kept there is longer than {PAGE_LEN} bytes")));
        }
        // Closing it is what observers hear.
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&self.path)?;
        file.write_all_at(&page, place_of(turn % 2))?;
        Ok(Written { turn, text: text.into_bytes() })
    }

    /// Brings to the disk what was written, and the first time the file itself.
    pub(super) fn settle(&self) -> Result<(), Error> {
        let file = File::open(&self.path)?;
        file.sync_data()?;
        // The first turn leaves the other page blank, and nothing else does.
        if matches!(page(&file, 0)?, Page::Blank)
            && let Some(directory) = self.path.parent()
        {
            File::open(directory)?.sync_all()?;
        }
        Ok(())
    }
}

fn place_of(number: u64) -> u64 {
    number * PAGE_LEN as u64
}

fn page(file: &File, number: u64) -> Result<Page, Error> {
    let mut found = read_at(file, place_of(number), FIRST_READ)?;
    if found.iter().all(|it| *it == 0) {
        return Ok(Page::Blank);
    }
    if number == 0 && found.starts_with(b"{") {
        // Of before there were pages: the whole file was the text. It gives way with the second turn.
        let all = read_at(file, 0, PAGE_LEN)?;
        let text = all.split(|it| *it == 0).next().unwrap_or_default().to_vec();
        return Ok(Page::Whole(Written { turn: 0, text }));
    }
    if !found.starts_with(MARK) {
        // Part of the text may have reached the disk without the head.
        let began = MARK.starts_with(&found) || found.iter().take(HEAD_LEN).all(|it| *it == 0);
        return Ok(if began { Page::Torn } else { Page::Foreign });
    }
    let Some((turn, len, sum)) = head(&found) else { return Ok(Page::Torn) };
    if turn % 2 != number || len > PAGE_LEN - HEAD_LEN {
        return Ok(Page::Torn);
    }
    if found.len() < HEAD_LEN + len {
        found = read_at(file, place_of(number), HEAD_LEN + len)?;
    }
    let Some(text) = found.get(HEAD_LEN..HEAD_LEN + len) else { return Ok(Page::Torn) };
    if head(&found) != Some((turn, len, sum)) || checksum(turn, text) != sum {
        return Ok(Page::Torn);
    }
    Ok(Page::Whole(Written { turn, text: text.to_vec() }))
}

/// Turn, length and checksum.
fn head(page: &[u8]) -> Option<(u64, usize, u64)> {
    let words = std::str::from_utf8(page.get(MARK.len()..HEAD_LEN)?).ok()?;
    let mut words = words.strip_suffix('\n')?.split(' ');
    let (turn, len, sum) = (words.next()?, words.next()?, words.next()?);
    Some((turn.parse().ok()?, len.parse().ok()?, u64::from_str_radix(sum, 16).ok()?))
}

/// As much as there is, up to `len`; of a page that is shorter, all of it.
fn read_at(file: &File, place: u64, len: usize) -> Result<Vec<u8>, Error> {
    let mut found = vec![0; len];
    let mut has = 0;
    while has < len {
        match file.read_at(&mut found[has..], place + has as u64) {
            Ok(0) => break,
            Ok(more) => has += more,
            Err(why) if why.kind() == ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    found.truncate(has);
    Ok(found)
}

/// Tells halves of two texts from one text; nobody here forges any. In the manner of FNV-1a, eight bytes at a time.
fn checksum(turn: u64, text: &[u8]) -> u64 {
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let mix = |sum: u64, word: u64| {
        let sum = (sum ^ word).wrapping_mul(PRIME);
        // A product carries upwards only.
        sum ^ (sum >> 32)
    };
    let (words, rest) = text.as_chunks::<8>();
    let sum = words.iter().fold(mix(START, turn), |sum, word| mix(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(mix(sum, text.len() as u64), |sum, byte| mix(sum, u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn sheet() -> (tempfile::TempDir, Sheet) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let sheet = Sheet::at(directory.path().join("it"));
        (directory, sheet)
    }

    fn last(sheet: &Sheet) -> Option<(u64, String)> {
        let written = sheet.read().expect("nobody else writes here")?;
        Some((written.turn, String::from_utf8(written.text).expect("it was text")))
    }

    fn spoil(sheet: &Sheet, place: u64, with: &[u8]) {
        let file = OpenOptions::new().write(true).open(sheet.path()).expect("was written");
        file.write_all_at(with, place).expect("writable");
    }

    #[test]
    fn the_last_that_was_written_is_read_whatever_its_length() {
        let (_directory, sheet) = sheet();
        assert_eq!(last(&sheet), None);
        for (before, len) in
            [0, 10, 5000, FIRST_READ - HEAD_LEN, FIRST_READ, 100_000, 3, PAGE_LEN - HEAD_LEN].into_iter().enumerate()
        {
            let text = format!("{before}").repeat(len);
            sheet.write(before as u64, text.clone()).expect("it fits");
            assert_eq!(last(&sheet), Some((before as u64 + 1, text)), "{len} bytes");
        }
        let why = sheet.write(8, "x".repeat(PAGE_LEN - HEAD_LEN + 1)).expect_err("it does not fit");
        assert!(why.to_string().contains("longer than"), "{why}");
        assert_eq!(last(&sheet).map(|it| it.0), Some(8), "what was there is still there");
    }

    #[test]
    fn a_torn_page_gives_way_to_the_one_before() {
        let (_directory, sheet) = sheet();
        sheet.write(0, "first".into()).expect("writable");
        sheet.write(1, "second".into()).expect("writable");
        // Every byte of the last one, one after the other: of the mark, the head and the text.
        for at in 0..HEAD_LEN + "second".len() {
            let whole = std::fs::read(sheet.path()).expect("was written");
            spoil(&sheet, at as u64, &[0]);
            let found = sheet.read();
            if at < MARK.len() {
                assert_eq!(found.expect_err("another mark").kind(), ErrorKind::InvalidData);
            } else {
                assert_eq!(last(&sheet), Some((1, "first".into())), "byte {at}");
            }
            std::fs::write(sheet.path(), whole).expect("writable");
        }
        // A head that reached the disk without its text, and a text without its head.
        spoil(&sheet, HEAD_LEN as u64, &[0; 6]);
        assert_eq!(last(&sheet), Some((1, "first".into())));
        sheet.write(1, "second".into()).expect("writable");
        spoil(&sheet, 0, &[0; HEAD_LEN]);
        assert_eq!(last(&sheet), Some((1, "first".into())));
        sheet.write(1, "again".into()).expect("writable");
        assert_eq!(last(&sheet), Some((2, "again".into())));
    }

    #[test]
    fn what_a_power_cut_leaves_is_an_empty_desk_and_what_others_wrote_is_none() {
        let (_directory, sheet) = sheet();
        for left in [&b""[..], &[0; 5000], b"incumbent-", b"incumbent-desk ", b"incumbent-desk 00000000000000000001 00"] {
            std::fs::write(sheet.path(), left).expect("writable");
            assert_eq!(last(&sheet), None, "{left:?}");
        }
        for garbage in [&b"garbage"[..], b"[]", b"\n", b"incumbent desk"] {
            std::fs::write(sheet.path(), garbage).expect("writable");
            assert_eq!(sheet.read().expect_err("not ours").kind(), ErrorKind::InvalidData, "{garbage:?}");
        }
    }

    #[test]
    fn a_text_of_before_there_were_pages_is_read_and_then_written_over() {
        let (_directory, sheet) = sheet();
        let before = format!("{{{}}}", " ".repeat(3 * BLOCK));
        std::fs::write(sheet.path(), &before).expect("writable");
        assert_eq!(last(&sheet), Some((0, before.clone())));
        sheet.write(0, "first".into()).expect("writable");
        assert_eq!(last(&sheet), Some((1, "first".into())));
        spoil(&sheet, place_of(1) + HEAD_LEN as u64, b"F");
        assert_eq!(last(&sheet), Some((0, before)), "what was there before is there if the first turn is torn");
        sheet.write(0, "first".into()).expect("writable");
        sheet.write(1, "second".into()).expect("writable");
        assert_eq!(last(&sheet), Some((2, "second".into())));
    }

    #[test]
    fn who_reads_while_it_is_written_reads_one_text_and_never_an_older_one() {
        const TURNS: u64 = 20_000;
        let (_directory, sheet) = sheet();
        let text = |turn: u64| format!("{turn} ").repeat(1 + (turn as usize * 37) % 3000);
        sheet.write(0, text(1)).expect("writable");
        let done = AtomicBool::new(false);
        let seen = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut before, mut seen) = (0, 0_u64);
                while !done.load(Ordering::Relaxed) {
                    let (turn, found) = last(&sheet).expect("something is always there");
                    assert!(turn >= before, "{turn} after {before}");
                    assert!(found == text(turn), "not what was written in turn {turn}");
                    seen += u64::from(turn > before);
                    before = turn;
                }
                seen
            });
            for turn in 1..TURNS {
                sheet.write(turn, text(turn + 1)).expect("writable");
            }
            done.store(true, Ordering::Relaxed);
            reader.join().expect("all that was read was whole")
        });
        assert!(seen > 1, "it has read while it was written");
        assert_eq!(last(&sheet).map(|it| it.0), Some(TURNS));
    }
}
