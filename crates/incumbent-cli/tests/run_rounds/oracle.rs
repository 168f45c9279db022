//! The judge: from what the processes of the commands wrote down, when each term had anybody alive, and whether two terms ever had at once.
//!
//! A process lived at least from its first beat to its last. That is never more than the truth, so what is found here did happen; what is missed is shorter than the
//! distance of two beats.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// When somebody of a term was alive, in nanoseconds of the boot clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Term {
    pub(crate) host: String,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// How many processes it had.
    pub(crate) processes: usize,
}

/// All terms by their tokens.
pub(crate) type Terms = BTreeMap<u64, Term>;

/// The term with the greatest token, by the names of the records alone.
pub(crate) struct Latest {
    pub(crate) token: u64,
    pub(crate) host: String,
    pub(crate) processes: usize,
}

/// A beat is a number of eight bytes.
const BEAT: u64 = 8;

/// The latest term, if there was one. Cheap, because it is asked often.
pub(crate) fn latest(folder: &Path) -> Option<Latest> {
    let names = fs::read_dir(folder).ok()?.flatten().filter_map(|it| it.file_name().into_string().ok());
    let all: Vec<(u64, String)> = names.filter_map(|it| named(&it).map(|(token, host)| (token, host.to_owned()))).collect();
    let (token, host) = all.iter().max()?.clone();
    let processes = all.iter().filter(|it| it.0 == token).count();
    Some(Latest { token, host, processes })
}

/// Token and host of a record, from its name: host, token and process.
fn named(name: &str) -> Option<(u64, &str)> {
    let (rest, _process) = name.rsplit_once('-')?;
    let (host, token) = rest.rsplit_once('-')?;
    Some((token.parse().ok()?, host))
}

/// Reads what was written down up to now. Says what is wrong with it if a token was on two hosts.
pub(crate) fn read(folder: &Path) -> Result<Terms, String> {
    let mut terms = Terms::new();
    for entry in fs::read_dir(folder).map_err(|why| why.to_string())?.flatten() {
        let name = entry.file_name().into_string().map_err(|odd| format!("{odd:?}"))?;
        let (token, host) = named(&name).ok_or_else(|| format!("{name} is no record"))?;
        let record = fs::File::open(entry.path()).map_err(|why| why.to_string())?;
        let beats = record.metadata().map_err(|why| why.to_string())?.len() / BEAT;
        // One that was killed before its first beat has done nothing.
        let Some(last) = beats.checked_sub(1) else { continue };
        let beat = |number: u64| {
            let mut bytes = [0; BEAT as usize];
            record.read_exact_at(&mut bytes, number * BEAT).map(|()| u64::from_le_bytes(bytes)).map_err(|why| why.to_string())
        };
        let life = Term { host: host.to_owned(), first: beat(0)?, last: beat(last)?, processes: 1 };
        match terms.get_mut(&token) {
            Some(term) if term.host != life.host => {
                return Err(format!("token {token} was on {} and on {}", term.host, life.host));
            }
            Some(term) => {
                term.first = term.first.min(life.first);
                term.last = term.last.max(life.last);
                term.processes += 1;
            }
            None => {
                terms.insert(token, life);
            }
        }
    }
    Ok(terms)
}

/// In the order of their tokens each term begins after the one before has ended: so no two overlap, and tokens rise with time.
pub(crate) fn judge(terms: &Terms) -> Result<(), String> {
    for ((earlier, a), (later, b)) in terms.iter().zip(terms.iter().skip(1)) {
        if b.first <= a.last {
            let by = (a.last.min(b.last) - b.first.min(a.last)) / 1000;
            return Err(format!(
                "token {later} on {} began at {} ns, and token {earlier} on {} lived from {} to {} ns: {by} us too long",
                b.host, b.first, a.host, a.first, a.last
            ));
        }
    }
    Ok(())
}

#[test]
fn an_overlap_a_token_that_falls_and_a_token_on_two_hosts_are_found() {
    let term = |host: &str, first, last| Term { host: host.to_owned(), first, last, processes: 1 };
    let good = Terms::from([(4, term("a", 10, 20)), (5, term("b", 21, 30)), (9, term("a", 31, 31))]);
    judge(&good).unwrap();
    let overlap = Terms::from([(4, term("a", 10, 20)), (5, term("b", 20, 30))]);
    assert!(judge(&overlap).unwrap_err().contains("token 5 on b"));
    let falling = Terms::from([(4, term("a", 21, 30)), (5, term("b", 10, 20))]);
    assert!(judge(&falling).is_err());
    let within = Terms::from([(4, term("a", 10, 90)), (5, term("b", 20, 30))]);
    assert!(judge(&within).is_err());

    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let write = |name: &str, beats: &[u64]| {
        fs::write(folder.path().join(name), beats.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>()).unwrap();
    };
    write("host-1-7-100", &[10, 12, 14]);
    write("host-1-7-101", &[11, 12, 19]);
    write("host-1-8-102", &[]);
    let read_back = read(folder.path()).unwrap();
    assert_eq!(read_back, Terms::from([(7, Term { processes: 2, ..term("host-1", 10, 19) })]));
    write("host-2-7-103", &[20]);
    assert!(
        read(folder.path()).unwrap_err().contains("host-1 and on host-2")
            || read(folder.path()).unwrap_err().contains("host-2 and on host-1")
    );
}
