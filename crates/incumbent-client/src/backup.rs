//! Takes a backup of a cluster home: part by part, into a file that is there whole or not at all.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::administration::{Administration, Attended, BackupView, ReadBackup, TakeSnapshot};
use crate::client::Client;
use crate::failure::Failure;

/// So often it is begun again: another node may come to lead meanwhile, and has no such backup.
const TRIES: u32 = 5;

/// Why there is no backup. Each says what to do; nothing is left of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unsaved {
    /// The name is taken, and nothing is written over.
    Taken(String),
    /// The file cannot be written.
    File(String),
    /// The service was asked, and gives none.
    Refused(String),
    /// The service does not answer, or does not let us ask.
    Unanswered(Failure),
}

impl fmt::Display for Unsaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsaved::Taken(why) | Unsaved::File(why) | Unsaved::Refused(why) => f.write_str(why),
            Unsaved::Unanswered(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for Unsaved {}

/// Makes a backup of all that was done before, and writes it to `file`, which must not be there.
///
/// # Errors
/// Why there is none: one line that says what to do. Nothing is left of it.
pub async fn save(client: &Client, file: &Path) -> Result<BackupView, String> {
    save_telling(client, file, |_, _| ()).await.map_err(|why| why.to_string())
}

/// The same, and tells after each part how many bytes are here, and of how many.
///
/// # Errors
/// See [`Unsaved`].
pub async fn save_telling(client: &Client, file: &Path, mut tell: impl FnMut(u64, u64)) -> Result<BackupView, Unsaved> {
    let shown = file.display();
    let taken = || Unsaved::Taken(format!("{shown} is there already, and nothing is written over: name another file"));
    if file.exists() {
        return Err(taken());
    }
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let mut why = String::new();
    for _ in 0..TRIES {
        match fetch(client, &part, &mut tell).await {
            Ok(view) => {
                let placed = put_in_place(&part, file).map(|()| view);
                return placed.map_err(|error| {
                    let _ = fs::remove_file(&part);
                    if error.kind() == io::ErrorKind::AlreadyExists { taken() } else { unwritten(file, &error) }
                });
            }
            Err(Unfinished::Again(because)) => why = because,
            Err(Unfinished::Never(because)) => {
                let _ = fs::remove_file(&part);
                return Err(because);
            }
        }
    }
    let _ = fs::remove_file(&part);
    Err(Unsaved::Refused(why))
}

fn unwritten(file: &Path, error: &io::Error) -> Unsaved {
    Unsaved::File(format!("{} cannot be written: {error}", file.display()))
}

enum Unfinished {
    Again(String),
    Never(Unsaved),
}

async fn fetch(client: &Client, part: &Path, tell: &mut impl FnMut(u64, u64)) -> Result<BackupView, Unfinished> {
    let attended = ask(client, Administration::Snapshot(TakeSnapshot {})).await?;
    let Attended::Backup(view) = attended else { return Err(refused(attended)) };
    let unwritten = |error: io::Error| Unfinished::Never(unwritten(part, &error));
    // It has every key: it is for its owner alone.
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(part).map_err(unwritten)?;
    let (mut offset, mut checksum) = (0, 0);
    while offset < view.bytes {
        let wanted = ReadBackup { index: view.index, checksum: view.checksum, offset };
        let attended = ask(client, Administration::ReadBackup(wanted)).await?;
        let Attended::Piece(piece) = attended else { return Err(refused(attended)) };
        if piece.is_empty() {
            return Err(Unfinished::Again("the backup is shorter than it was said to be: take it again".to_owned()));
        }
        file.write_all(&piece).map_err(unwritten)?;
        checksum = crc32c::crc32c_append(checksum, &piece);
        offset += piece.len() as u64;
        tell(offset, view.bytes);
    }
    if (offset, checksum) != (view.bytes, view.checksum) {
        return Err(Unfinished::Again("the backup did not come as it was sent: take it again".to_owned()));
    }
    file.sync_all().map_err(unwritten)?;
    Ok(view)
}

async fn ask(client: &Client, wanted: Administration) -> Result<Attended, Unfinished> {
    client.administer(wanted).await.map_err(|failure| Unfinished::Never(Unsaved::Unanswered(failure)))
}

fn refused(attended: Attended) -> Unfinished {
    match attended {
        Attended::Refused(why) => Unfinished::Again(why),
        Attended::Cluster(_) | Attended::Member(_) | Attended::Leader(_) | Attended::Backup(_) | Attended::Piece(_) => {
            Unfinished::Never(Unsaved::Refused("the node answers another question: it runs another release".to_owned()))
        }
    }
}

fn put_in_place(part: &Path, file: &Path) -> io::Result<()> {
    // A name that was taken meanwhile is not taken away.
    fs::hard_link(part, file)?;
    fs::remove_file(part)?;
    let parent = file.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}
