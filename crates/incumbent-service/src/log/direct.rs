//! Writes that go past the kernel's cache: what is synced at once anyway need not be copied there first, found again and written back. It takes less time
//! (`benches/log.rs`), and less of a processor.
//!
//! **Problem.** Such a write is of whole blocks, from memory that is aligned as they are; a log ends anywhere. **Insight.** What stands before the end of the log in its last block is known: it was
//! written a moment ago. What stands behind it nobody needs.
//!
//! Left out: reading. Others read through the cache, which the kernel keeps true.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

/// What every disk and file system that can do it at all takes.
pub(super) const BLOCK: usize = 4096;
/// As much goes with one write.
const STAGE: usize = 64 * BLOCK;

/// Where writes are put together: one for all files of a directory, as only one of them is written to in this way at a time.
#[derive(Debug, Clone)]
pub(super) struct Stage(Arc<Mutex<Blocks>>);

#[derive(Debug)]
struct Blocks {
    /// Longer than the stage, which begins where memory is aligned.
    memory: Vec<u8>,
    from: usize,
    /// The file and the block of it with which the stage begins, just as it was written.
    holds: Option<(u64, u64)>,
    files: u64,
}

/// A file that can be written to past the cache.
#[derive(Debug)]
pub(super) struct Direct {
    file: File,
    number: u64,
    stage: Stage,
}

impl Stage {
    pub(super) fn new() -> Stage {
        Stage(Arc::new(Mutex::new(Blocks { memory: Vec::new(), from: 0, holds: None, files: 0 })))
    }

    /// For a file that was opened with `O_DIRECT`.
    pub(super) fn direct(&self, file: File) -> Direct {
        let mut blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.files += 1;
        Direct { file, number: blocks.files, stage: self.clone() }
    }
}

impl Direct {
    /// Writes `bytes`, and zeros behind them to the end of their block. `cached` is the same file.
    pub(super) fn append(&self, cached: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut blocks = self.stage.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held = blocks.holds.take();
        let stage = blocks.stage();
        let mut at = offset / BLOCK as u64 * BLOCK as u64;
        let mut filled = (offset - at) as usize;
        if filled > 0 && held != Some((self.number, at)) {
            cached.read_exact_at(&mut stage[..filled], at)?;
        }
        let mut rest = bytes;
        loop {
            let (now, later) = rest.split_at(rest.len().min(STAGE - filled));
            let end = filled + now.len();
            let whole = end.next_multiple_of(BLOCK);
            stage[filled..end].copy_from_slice(now);
            stage[end..whole].fill(0);
            self.file.write_all_at(&stage[..whole], at)?;
            if later.is_empty() {
                let last = whole - BLOCK;
                stage.copy_within(last..whole, 0);
                blocks.holds = Some((self.number, at + last as u64));
                return Ok(());
            }
            (rest, filled) = (later, 0);
            at += whole as u64;
        }
    }
}

impl Blocks {
    fn stage(&mut self) -> &mut [u8] {
        if self.memory.is_empty() {
            self.memory = vec![0; STAGE + BLOCK];
            self.from = self.memory.as_ptr().align_offset(BLOCK).min(BLOCK);
        }
        &mut self.memory[self.from..self.from + STAGE]
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt;

    use incumbent_protocol::chance::Chance;

    use super::*;

    /// Whatever is written, wherever the last write ended, the file holds that, what was before it, and zeros to the end of the block.
    #[test]
    fn the_file_holds_what_was_written_and_what_was_before_it() {
        // Beside this program: not every directory for passing files is on a disk.
        let program = std::env::current_exe().expect("it runs");
        let folder = tempfile::tempdir_in(program.parent().expect("in a directory")).expect("a directory");
        let flags = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).expect("a small number");
        let stage = Stage::new();
        let mut files: Vec<(File, Direct, Vec<u8>, usize)> = (0..2)
            .map(|number| {
                let path = folder.path().join(number.to_string());
                let model = vec![9; 4 * STAGE];
                std::fs::write(&path, &model).expect("written");
                let direct = File::options().write(true).custom_flags(flags).open(&path).expect("a disk that can do it");
                (File::open(&path).expect("made"), stage.direct(direct), model, 0)
            })
            .collect();
        let mut chance = Chance::new(7);
        for round in 0..500_u64 {
            let (cached, direct, model, end) = &mut files[usize::from(chance.below(8) == 0)];
            let length = match chance.below(8) {
                0 => chance.below(2 * STAGE as u64),
                1 => BLOCK as u64 * chance.below(3),
                _ => chance.below(900),
            } as usize;
            // Mostly as a log is written: behind what is there, or once more where it ended before.
            let offset = match chance.below(8) {
                0 => chance.below(STAGE as u64) as usize,
                1 => end.saturating_sub(200),
                _ => *end,
            };
            let offset = if offset + length + BLOCK > model.len() { 0 } else { offset };
            let bytes = vec![round as u8 | 1; length];
            direct.append(cached, &bytes, offset as u64).expect("written");
            *end = offset + length;
            model[offset..*end].copy_from_slice(&bytes);
            if length > 0 {
                let whole = end.next_multiple_of(BLOCK);
                model[*end..whole].fill(0);
            }
            let mut found = vec![0; model.len()];
            cached.read_exact_at(&mut found, 0).expect("read");
            assert!(found == *model, "round {round}: {length} bytes at {offset}");
        }
    }
}
