//! The file of tokens: read at the start, and again whenever it changes.
//!
//! What cannot be read or makes no sense changes nothing: those who had rights keep them, and it is said. What is taken away is taken from those who are connected, too (C96).

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use incumbent_peer::reread::{Reread, Stamp};

use super::tokens::List;
use super::{Denied, Guest};

/// The longest file, in bytes.
const FILE_LEN_MAX: u64 = 16 * 1024 * 1024;

/// Who may what, as a file says.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    list: Arc<List>,
    /// As the file was when it was last looked at, good or bad; `None` if it was not there.
    stamp: Option<Stamp>,
}

impl Tokens {
    /// Reads the file.
    ///
    /// # Errors
    /// Why it cannot be used, and what to do.
    pub fn read(path: impl Into<PathBuf>) -> Result<Tokens, String> {
        let path = path.into();
        let (list, stamp) = read(&path)?;
        Ok(Tokens { path, kept: Mutex::new(Kept { list: Arc::new(list), stamp: Some(stamp) }) })
    }

    /// Lets in whose token it is.
    ///
    /// # Errors
    /// If there is none, or it is nobody's.
    pub fn admit(&self, token: &str) -> Result<Guest, Denied> {
        let list = Arc::clone(&self.kept().list);
        list.admit(token)
    }

    /// Lets in who has shown a certificate, and no token: `has_name` says whether the certificate has a name.
    ///
    /// # Errors
    /// If it is nobody's.
    pub fn admit_certified(&self, has_name: impl Fn(&str) -> bool) -> Result<Guest, Denied> {
        let list = Arc::clone(&self.kept().list);
        list.admit_certified(&has_name)
    }

    /// So many tokens are good.
    pub fn len(&self) -> usize {
        self.kept().list.len()
    }

    /// Whether nobody is let in.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the file again if it is not as it was; otherwise it costs one look at its times. Guests whose lines are not as they were are withdrawn.
    pub fn reread_if_changed(&self) -> Reread {
        let found = Stamp::at(&self.path);
        if found == self.kept().stamp {
            return Reread::Unchanged;
        }
        match read(&self.path) {
            Ok((mut list, stamp)) => {
                let mut kept = self.kept();
                list.succeed(&kept.list);
                *kept = Kept { list: Arc::new(list), stamp: Some(stamp) };
                Reread::Changed
            }
            Err(why) => {
                self.kept().stamp = found;
                Reread::Kept(why)
            }
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(path: &Path) -> Result<(List, Stamp), String> {
    let shown = path.display();
    let cannot = |wrong: std::io::Error| format!("cannot read the tokens from {shown}: {wrong}");
    let file = File::open(path).map_err(cannot)?;
    // Of what was opened, not of what has the name by now. Before it is read: what is written meanwhile is seen the next time.
    let found = file.metadata().map_err(cannot)?;
    if !found.is_file() {
        return Err(format!("cannot read the tokens from {shown}: it is no file"));
    }
    if found.mode() & 0o077 != 0 {
        let mode = found.mode() & 0o777;
        return Err(format!("the tokens in {shown} are open to others (mode {mode:o}): chmod 600 {shown}"));
    }
    let mut text = String::new();
    let len = file.take(FILE_LEN_MAX + 1).read_to_string(&mut text).map_err(cannot)?;
    if len as u64 > FILE_LEN_MAX {
        return Err(format!("the file of tokens {shown} is longer than {FILE_LEN_MAX} bytes"));
    }
    let list = List::parse(&text).map_err(|wrong| format!("{shown}, {wrong}"))?;
    if list.len() == 0 {
        return Err(format!("there are no tokens in {shown}: nobody could be let in"));
    }
    Ok((list, Stamp::of(&found)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use incumbent_store::query::Query;

    use super::super::{Made, make};
    use super::*;

    fn write(path: &Path, text: &str, mode: u32) {
        // Replaced as a whole, as an operator's tool does it.
        let next = path.with_extension("next");
        std::fs::write(&next, text).expect("written");
        std::fs::set_permissions(&next, std::fs::Permissions::from_mode(mode)).expect("a mode");
        std::fs::rename(&next, path).expect("renamed");
    }

    #[test]
    fn a_file_that_others_can_read_or_that_says_nothing_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens");
        assert!(Tokens::read(&path).expect_err("absent").contains("cannot read"));
        assert!(Tokens::read(folder.path()).expect_err("a folder").contains("no file"));
        let Made { line, token } = make("a", "observe:").expect("made");
        for mode in [0o604, 0o640, 0o610, 0o602] {
            write(&path, &line, mode);
            let told = Tokens::read(&path).expect_err("open to others");
            assert!(told.contains("chmod 600"), "{told}");
        }
        write(&path, "# nobody yet\n", 0o600);
        assert!(Tokens::read(&path).expect_err("empty").contains("no tokens"));
        write(&path, &format!("{line}\nb"), 0o600);
        assert!(Tokens::read(&path).expect_err("half a line").contains("line 2: b has no token"));
        write(&path, &line, 0o400);
        let tokens = Tokens::read(&path).expect("good");
        assert_eq!((tokens.len(), tokens.admit(&token).expect("known").name()), (1, "a"));
        assert!(!format!("{tokens:?}").contains(line.split(' ').nth(1).expect("a digest")), "{tokens:?}");
    }

    #[tokio::test]
    async fn a_change_is_seen_a_bad_one_is_told_once_and_who_is_not_touched_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens");
        let (stays, goes, changes) = (make("stays", "observe:a"), make("goes", "observe:a"), make("changes", "observe:a"));
        let [stays, goes, changes] = [stays, goes, changes].map(|it| it.expect("made"));
        write(&path, &format!("{}\n{}\n{}\n", stays.line, goes.line, changes.line), 0o600);
        let tokens = Tokens::read(&path).expect("good");
        let guests = [&stays, &goes, &changes].map(|it| tokens.admit(&it.token).expect("known"));
        assert_eq!(tokens.reread_if_changed(), Reread::Unchanged);

        write(&path, "nonsense\n", 0o600);
        let Reread::Kept(why) = tokens.reread_if_changed() else { panic!("taken") };
        assert!(why.contains("line 1"), "{why}");
        assert_eq!(tokens.reread_if_changed(), Reread::Unchanged, "told once");
        std::fs::remove_file(&path).expect("there");
        assert!(matches!(tokens.reread_if_changed(), Reread::Kept(_)));
        assert_eq!(tokens.reread_if_changed(), Reread::Unchanged, "told once");
        let look = Query::Look("a".to_owned());
        assert!(guests.iter().all(|it| it.may_ask(&look).is_ok()), "all is as before");

        let less = changes.line.replace("observe:a", "observe:b");
        write(&path, &format!("# in another order\n{less}\n{}\n", stays.line), 0o600);
        assert_eq!((tokens.reread_if_changed(), tokens.len()), (Reread::Changed, 2));
        let [stayed, gone, changed] = &guests;
        assert!(stayed.may_ask(&look).is_ok() && *stayed == tokens.admit(&stays.token).expect("known"));
        assert_eq!(gone.may_ask(&look), Err(Denied::Withdrawn));
        assert_eq!(changed.may_ask(&look), Err(Denied::Withdrawn));
        // Both are told, who waits for it and who asks later.
        gone.withdrawn().await;
        changed.withdrawn().await;
        assert_eq!(tokens.admit(&goes.token), Err(Denied::BadToken));
        let again = tokens.admit(&changes.token).expect("known");
        assert!(again.may_ask(&look).is_err() && again.may_ask(&Query::Look("b".to_owned())).is_ok());
    }

    #[test]
    fn a_mode_that_is_corrected_is_seen() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens");
        let (one, two) = (make("a", "observe:").expect("made"), make("b", "observe:").expect("made"));
        write(&path, &one.line, 0o600);
        let tokens = Tokens::read(&path).expect("good");
        write(&path, &two.line, 0o644);
        assert!(matches!(tokens.reread_if_changed(), Reread::Kept(_)));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("a mode");
        assert_eq!(tokens.reread_if_changed(), Reread::Changed);
        assert!(tokens.admit(&one.token).is_err() && tokens.admit(&two.token).is_ok());
    }
}
