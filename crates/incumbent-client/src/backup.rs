//! Takes a backup of a cluster home: part by part, into a file that is there whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::administration::{Administration, Attended, BackupView, ReadBackup, TakeSnapshot};
use crate::client::Client;

/// So often it is begun again: another node may come to lead meanwhile, and has no such backup.
const TRIES: u32 = 5;

/// Makes a backup of all that was done before, and writes it to `file`, which must not be there.
///
/// # Errors
/// Why there is none: one line that says what to do. Nothing is left of it.
pub async fn save(client: &Client, file: &Path) -> Result<BackupView, String> {
    let shown = file.display();
    if file.exists() {
        return Err(format!("{shown} is there already, and nothing is written over: name another file"));
    }
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let mut why = String::new();
    for _ in 0..TRIES {
        match fetch(client, &part).await {
            Ok(view) => {
                return put_in_place(&part, file).map(|()| view).map_err(|error| format!("{shown} cannot be written: {error}"));
            }
            Err(Unfinished::Again(because)) => why = because,
            Err(Unfinished::Never(because)) => {
                why = because;
                break;
            }
        }
    }
    let _ = fs::remove_file(&part);
    Err(why)
}

enum Unfinished {
    Again(String),
    Never(String),
}

async fn fetch(client: &Client, part: &Path) -> Result<BackupView, Unfinished> {
    let attended = ask(client, Administration::Snapshot(TakeSnapshot {})).await?;
    let Attended::Backup(view) = attended else { return Err(refused(attended)) };
    let unwritten = |error: io::Error| Unfinished::Never(format!("{} cannot be written: {error}", part.display()));
    let mut file = File::create(part).map_err(unwritten)?;
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
    }
    if (offset, checksum) != (view.bytes, view.checksum) {
        return Err(Unfinished::Again("the backup did not come as it was sent: take it again".to_owned()));
    }
    file.sync_all().map_err(unwritten)?;
    Ok(view)
}

async fn ask(client: &Client, wanted: Administration) -> Result<Attended, Unfinished> {
    client.administer(wanted).await.map_err(|failure| Unfinished::Never(failure.to_string()))
}

fn refused(attended: Attended) -> Unfinished {
    match attended {
        Attended::Refused(why) => Unfinished::Again(why),
        Attended::Cluster(_) | Attended::Member(_) | Attended::Leader(_) | Attended::Backup(_) | Attended::Piece(_) => {
            Unfinished::Never("the node answers another question: it runs another release".to_owned())
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
