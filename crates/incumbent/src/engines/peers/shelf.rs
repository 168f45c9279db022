//! Where a node keeps the minutes of its elections: a file each, replaced as a whole, on disk before anybody is told that it is kept.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::minutes::Minutes;
use crate::engine::Error;
use crate::name::Name;

/// What nobody counts on is written after this time: a file that is replaced makes the file system write its journal, and whoever waits for a vote on the same disk waits for that too.
/// An election is long over by then.
const SOON: Duration = Duration::from_millis(50);

/// A folder of minutes. Clones share it.
#[derive(Clone)]
pub(super) struct Shelf {
    directory: PathBuf,
    /// What lies there. Locked while it is written, so that an older copy never replaces a newer one.
    held: Arc<Mutex<BTreeMap<Arc<str>, Minutes>>>,
    /// What is to be written soon.
    due: Arc<Mutex<BTreeMap<Arc<str>, Minutes>>>,
}

impl Shelf {
    /// Opens the one in the directory of a node, with what lies there.
    pub(super) fn open(node: &Path) -> Result<(Shelf, BTreeMap<Arc<str>, Minutes>), Error> {
        let directory = node.join("minutes");
        let cannot = |what: &str, why: &dyn std::fmt::Display| {
            Error::misconfigured(format!(
                "cannot {what} {}: {why}: give this user the right to, or name another data=DIR",
                directory.display()
            ))
        };
        std::fs::create_dir_all(&directory).map_err(|why| cannot("make", &why))?;
        let mut held = BTreeMap::new();
        for entry in std::fs::read_dir(&directory).map_err(|why| cannot("read", &why))? {
            let entry = entry.map_err(|why| cannot("read", &why))?;
            let Some(name) = entry.file_name().to_str().and_then(|it| Name::new(it.strip_suffix(".json")?).ok()) else {
                continue;
            };
            let text = std::fs::read(entry.path()).map_err(|why| cannot("read", &why))?;
            // Minutes decide nothing. Those that cannot be read are heard again from the other nodes.
            match serde_json::from_slice(&text) {
                Ok(minutes) => drop(held.insert(Arc::from(name.as_str()), minutes)),
                Err(why) => tracing::warn!(file = %entry.path().display(), %why, "minutes that cannot be read are begun anew"),
            }
        }
        Ok((Shelf { directory, held: Arc::new(Mutex::new(held.clone())), due: Arc::default() }, held))
    }

    /// Keeps what is new in this copy; `Ok` once it is on disk.
    pub(super) async fn keep(&self, election: &Arc<str>, minutes: &Minutes) -> Result<(), Error> {
        let (shelf, election, minutes) = (self.clone(), Arc::clone(election), minutes.clone());
        match tokio::task::spawn_blocking(move || shelf.keep_now(&election, minutes)).await {
            Ok(kept) => kept.map_err(|why| Error::refused(format!("cannot keep the minutes of an election: {why}"))),
            Err(_) => Err(Error::unknown("the thread that keeps minutes has ended")),
        }
    }

    /// Keeps it before long; nobody counts on it.
    pub(super) fn keep_soon(&self, election: &Arc<str>, minutes: Minutes) {
        let mut due = self.due.lock().expect("nobody panics with it");
        let nothing_was_due = due.is_empty();
        due.entry(Arc::clone(election)).or_default().merge(minutes);
        if nothing_was_due {
            let shelf = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(SOON).await;
                shelf.keep_due().await;
            });
        }
    }

    /// Keeps what is due soon, now.
    pub(super) async fn keep_due(&self) {
        let shelf = self.clone();
        let kept = tokio::task::spawn_blocking(move || {
            let due = std::mem::take(&mut *shelf.due.lock().expect("nobody panics with it"));
            for (election, minutes) in due {
                if let Err(why) = shelf.keep_now(&election, minutes) {
                    tracing::warn!(%election, %why, "cannot keep the minutes of an election");
                }
            }
        });
        let _ = kept.await;
    }

    fn keep_now(&self, election: &Arc<str>, minutes: Minutes) -> std::io::Result<()> {
        let mut held = self.held.lock().expect("nobody panics with it");
        let known = held.entry(Arc::clone(election)).or_default();
        if !known.merge(minutes) {
            return Ok(());
        }
        let text = serde_json::to_vec(known)?;
        let (path, new) = (self.directory.join(format!("{election}.json")), self.directory.join(format!("{election}.new")));
        let mut file = File::create(&new)?;
        file.write_all(&text)?;
        file.sync_data()?;
        std::fs::rename(&new, &path)?;
        File::open(&self.directory)?.sync_all()
    }
}
