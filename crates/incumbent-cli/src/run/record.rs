//! What supervisors put on record for each leadership, and what follows from it: which former leaders are not known to be dead.
//!
//! A note is one line of words, `guarded as=web-1_… berth=8:131@0a1b…`, so that other programs can read it; words that are not known here are passed over. Some engines
//! write the past of an election a little later than they fill its seat, so a note that says "something runs" counts even before the past tells of that leadership.
//!
//! **Problem.** An engine keeps the last 32 leaderships. A silent leader that nobody could fence would leave the record when so many others have been elected and have given up after it, and
//! whoever comes then would start beside it.
//!
//! **Rule.** Who leaves its seat without having started anything notes whom it has left unsettled, all of them. So nobody needs to look further back than to the newest such note. In the
//! same way every note of a leadership that was for a job says when that job was done last ([`Done`]).

use std::fmt;

use incumbent::engine::{Board, Note};
use incumbent::{Election, Error, Identity, Token};

use crate::elections::raise;
use crate::elections::target::answer;

/// What stands on record for one leadership. The last word counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Record {
    /// In office, and nothing was started.
    Idle {
        /// All former leaders that were not known to be dead then; `None` if it does not say.
        owes: Option<Vec<Owed>>,
    },
    /// A command runs under a guardian, or is about to.
    Guarded {
        /// The leader.
        by: Identity,
        /// The lock that is held while anything of the command lives; see [`super::fence::Here`].
        berth: String,
    },
    /// A program beside a sidecar acts for it, or is about to. No guardian holds it.
    Led {
        /// The leader.
        by: Identity,
    },
    /// Its own supervisor saw everything of it dead, too late for a farewell.
    Ended,
    /// Its command has done its job, and nothing of it lives.
    Done {
        /// The slot that it was due in, in seconds since 1970; `None` if it has none.
        slot: Option<u64>,
        /// When it was done, in seconds since 1970.
        at: u64,
    },
    /// It need not be feared any more.
    Settled {
        /// In which way.
        proof: Proof,
        /// Who or what made sure.
        by: String,
        /// When, for people.
        at: String,
    },
}

/// That a job was done, as the leadership that did it has noted it, or one after it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Done {
    /// The leadership that did it.
    pub(crate) token: Token,
    /// The slot that it was due in, in seconds since 1970; `None` if it has none.
    pub(crate) slot: Option<u64>,
    /// When it was done, in seconds since 1970.
    pub(crate) at: u64,
}

impl Done {
    /// What a note says of it, if anything.
    pub(crate) fn read(note: &Note) -> Option<Done> {
        if let Some(Record::Done { slot, at }) = Record::read(&note.text) {
            return Some(Done { token: note.token, slot, at });
        }
        let field = |name: &str| note.text.split(' ').find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
        let slot = field("done-slot").and_then(|it| it.parse().ok());
        Some(Done { token: raise::token(field("done")?).ok()?, slot, at: field("done-at")?.parse().ok()? })
    }
}

/// A former leader of whom nobody has made sure yet, as another has noted it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owed {
    token: Token,
    by: Identity,
    work: Work,
}

/// What a former leader has noted of its work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// A command under a guardian, and its berth.
    Guarded(String),
    /// A program beside a sidecar: no guardian holds it, nor any lock of its machine.
    Unguarded,
    /// Nothing: one of ours has not started anything yet then.
    Unknown,
}

/// Why a leader that left without a word is believed to be dead.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Proof {
    /// Its host was turned off or reset.
    Fenced,
    /// A person said so.
    Confirmed,
    /// The kernel of this machine says so.
    Dead,
    /// It was left to its own guardian.
    Trusted,
    /// Time has passed.
    Waited,
}

impl Proof {
    const ALL: [Proof; 5] = [Proof::Fenced, Proof::Confirmed, Proof::Dead, Proof::Trusted, Proof::Waited];

    fn word(self) -> &'static str {
        match self {
            Proof::Fenced => "fenced",
            Proof::Confirmed => "confirmed",
            Proof::Dead => "dead",
            Proof::Trusted => "trusted",
            Proof::Waited => "waited",
        }
    }
}

impl Record {
    /// Nothing was started, and these are left to whoever comes next.
    pub(crate) fn idle(silent: &[Unsettled]) -> Record {
        let owed = |it: &Unsettled| Owed { token: it.token, by: it.by.clone(), work: it.work.clone() };
        Record::Idle { owes: Some(silent.iter().map(owed).collect()) }
    }

    /// Settled now.
    pub(crate) fn settled(proof: Proof, by: &str) -> Record {
        let at = crate::elections::describe::time(std::time::SystemTime::now());
        // A blank would end the word.
        Record::Settled { proof, by: by.split_whitespace().collect::<Vec<_>>().join("-"), at }
    }

    /// The note, which also says when the job was done last, if it is one.
    pub(crate) fn after(&self, done: Option<Done>) -> String {
        let mut note = self.to_string();
        if let Some(Done { token, slot, at }) = done {
            note.push_str(&format!(" done={token} done-at={at}"));
            note.extend(slot.map(|it| format!(" done-slot={it}")));
        }
        note
    }

    /// Reads a note; `None` if it says nothing of this.
    pub(crate) fn read(text: &str) -> Option<Record> {
        let mut words = text.split(' ');
        let first = words.next()?;
        let fields: Vec<(&str, &str)> = words.filter_map(|it| it.split_once('=')).collect();
        let field = |name: &str| fields.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned());
        match first {
            "idle" => Some(Record::Idle { owes: owed(&fields) }),
            "ended" => Some(Record::Ended),
            "done" => {
                let slot = field("slot").and_then(|it| it.parse().ok());
                Some(Record::Done { slot, at: field("at")?.parse().ok()? })
            }
            "led" => Some(Record::Led { by: Identity::stored(field("as")?) }),
            "guarded" => Some(Record::Guarded { by: Identity::stored(field("as")?), berth: field("berth").unwrap_or_default() }),
            other => {
                let proof = Proof::ALL.into_iter().find(|it| it.word() == other)?;
                Some(Record::Settled { proof, by: field("by")?, at: field("at").unwrap_or_default() })
            }
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Record::Idle { owes: None } => f.write_str("idle"),
            Record::Idle { owes: Some(owes) } if owes.is_empty() => write!(f, "idle owes={NOBODY}"),
            Record::Idle { owes: Some(owes) } => {
                f.write_str("idle")?;
                owes.iter().try_for_each(|Owed { token, by, work }| {
                    write!(f, " owes={token} as={}", by.as_str())?;
                    match work {
                        Work::Guarded(berth) => write!(f, " berth={berth}"),
                        Work::Unguarded => write!(f, " led=yes"),
                        Work::Unknown => Ok(()),
                    }
                })
            }
            Record::Ended => f.write_str("ended"),
            Record::Done { slot: Some(slot), at } => write!(f, "done slot={slot} at={at}"),
            Record::Done { slot: None, at } => write!(f, "done at={at}"),
            Record::Led { by } => write!(f, "led as={}", by.as_str()),
            Record::Guarded { by, berth } => write!(f, "guarded as={} berth={berth}", by.as_str()),
            Record::Settled { proof, by, at } => write!(f, "{} by={by} at={at}", proof.word()),
        }
    }
}

/// What an idle leader owes if there is nothing.
const NOBODY: &str = "nobody";

/// Whom an idle leader owes, each with the words up to the next. `None` if it does not say, or not so that it can be understood: then one looks further back.
fn owed(fields: &[(&str, &str)]) -> Option<Vec<Owed>> {
    let mut words = fields.iter().skip_while(|(name, _)| *name != "owes").peekable();
    let (_, first) = words.peek()?;
    if *first == NOBODY {
        return Some(Vec::new());
    }
    let mut found = Vec::new();
    for (name, value) in words {
        match (*name, found.last_mut()) {
            ("owes", _) => found.push((raise::token(value).ok()?, None, Work::Unknown)),
            ("as", Some((_, by @ None, _))) => *by = Some(Identity::stored(*value)),
            ("led", Some((_, _, work @ Work::Unknown))) => *work = Work::Unguarded,
            ("berth", Some((_, _, work @ Work::Unknown))) => *work = Work::Guarded((*value).to_owned()),
            (_, _) => {}
        }
    }
    found.into_iter().map(|(token, by, work)| Some(Owed { token, by: by?, work })).collect()
}

/// A former leader that is not known to be dead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unsettled {
    pub(crate) token: Token,
    pub(crate) by: Identity,
    /// What the past says of its end; `None` if it does not tell of it yet.
    pub(crate) reason: Option<String>,
    pub(crate) work: Work,
}

/// How a leadership ended, as the past has it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// Its holder gave the seat back after its work was dead.
    Clean,
    /// Its holder never entered office.
    Declined,
    /// Nobody said anything, or it was not understood.
    Unclean,
}

impl End {
    /// Only what a holder says itself, word by word: [`incumbent::Reason`].
    pub(crate) fn of(reason: &str) -> End {
        match reason {
            "resigned" | "handed over" | "work finished" | "health failed" | "evicted" => End::Clean,
            "declined" => End::Declined,
            _ => End::Unclean,
        }
    }
}

/// The former leaders that are not known to be dead, newest first: all up to the newest that ran and ended in order, because that one had seen to those before it, or up to one that
/// has noted whom it left unsettled.
pub(crate) fn unsettled(board: &Board) -> Vec<Unsettled> {
    let in_office: Vec<Token> = board.leaders.iter().map(|it| it.token).collect();
    let mut tokens: Vec<Token> = board.past.iter().map(|it| it.token).chain(board.notes.iter().map(|it| it.token)).collect();
    tokens.sort_unstable_by(|a, b| b.cmp(a));
    tokens.dedup();
    let mut found = Vec::new();
    for token in tokens.into_iter().filter(|it| !in_office.contains(it)) {
        let past = board.past.iter().find(|it| it.token == token);
        let record = board.notes.iter().find(|it| it.token == token).and_then(|it| Record::read(&it.text));
        match (past.map(|it| End::of(&it.reason)), record) {
            (_, Some(Record::Idle { owes: Some(owes) })) => {
                found.extend(owes.into_iter().filter(|it| !is_settled(board, it.token)).map(|it| {
                    let past = board.past.iter().find(|past| past.token == it.token);
                    // The record may not reach back to it any more.
                    let reason = past.map_or_else(|| "without a word".to_owned(), |it| it.reason.clone());
                    Unsettled { token: it.token, by: it.by, reason: Some(reason), work: it.work }
                }));
                break;
            }
            // Such a one has settled nothing, and started nothing.
            (_, Some(Record::Idle { owes: None })) | (Some(End::Declined), _) => {}
            (Some(End::Clean), _) => break,
            (_, Some(Record::Ended | Record::Done { .. } | Record::Settled { .. })) | (None, None) => {}
            (_, Some(Record::Guarded { by, berth })) => {
                found.push(Unsettled { token, by, reason: past.map(|it| it.reason.clone()), work: Work::Guarded(berth) });
            }
            (_, Some(Record::Led { by })) => {
                found.push(Unsettled { token, by, reason: past.map(|it| it.reason.clone()), work: Work::Unguarded });
            }
            (Some(End::Unclean), None) => {
                let past = past.into_iter().map(|it| (it.identity.clone(), it.reason.clone()));
                found.extend(past.map(|(by, reason)| Unsettled { token, by, reason: Some(reason), work: Work::Unknown }));
            }
        }
    }
    found
}

fn is_settled(board: &Board, token: Token) -> bool {
    let record = board.notes.iter().find(|it| it.token == token).and_then(|it| Record::read(&it.text));
    matches!(record, Some(Record::Ended | Record::Done { .. } | Record::Settled { .. }))
}

/// Puts on record that a former leader need not be feared any more: with its leadership, and, because the record may not reach back to that, with all who have noted that they owe it.
pub(crate) async fn settle(election: &Election, board: &Board, token: Token, record: &Record) -> Result<(), Error> {
    for note in &board.notes {
        if let Some(Record::Idle { owes: Some(mut owes) }) = Record::read(&note.text)
            && owes.iter().any(|it| it.token == token)
        {
            owes.retain(|it| it.token != token);
            answer(election.annotate(note.token, &Record::Idle { owes: Some(owes) }.after(Done::read(note)))).await?;
        }
    }
    let done = board.notes.iter().find(|it| it.token == token).and_then(Done::read);
    answer(election.annotate(token, &record.after(done))).await
}

#[cfg(test)]
mod tests {
    use incumbent::engine::{Leader, Past};
    use incumbent_protocol::protocol::Term;

    use super::*;

    fn token(number: u64) -> Token {
        Token::new(0, Term(number)).unwrap()
    }

    /// A board from a line such as `7 a leads; 6 b lease expired [idle]; 5 - [guarded as=c berth=1:2]`: newest first, `-` where the past tells nothing.
    fn board(line: &str) -> Board {
        let mut board = Board::default();
        for entry in line.split(';').map(str::trim).filter(|it| !it.is_empty()) {
            let (entry, note) =
                entry.split_once('[').map_or((entry, None), |(it, note)| (it.trim(), Some(note.trim_end_matches(']'))));
            let mut words = entry.splitn(3, ' ');
            let number = token(words.next().unwrap().parse().unwrap());
            let identity = Identity::stored(words.next().unwrap());
            if let Some(text) = note {
                board.notes.push(Note { token: number, text: text.to_owned() });
            }
            match words.next() {
                Some("leads") => board.leaders.push(Leader {
                    identity,
                    token: number,
                    value: String::new(),
                    priority: 0,
                    since: None,
                    heeds_wishes: true,
                }),
                Some(reason) => {
                    board.past.push(Past { identity, token: number, since_ms: 0, until_ms: 0, reason: reason.to_owned() });
                }
                None => {}
            }
        }
        board
    }

    #[test]
    fn what_is_written_is_read() {
        let by = Identity::stored("web-1_0a1b2c3d_17_0123456789abcdef");
        let owed = |number, work| Owed { token: token(number), by: by.clone(), work };
        for record in [
            Record::Idle { owes: None },
            Record::Idle { owes: Some(vec![]) },
            Record::Idle { owes: Some(vec![owed(41, Work::Guarded("8:131".to_owned())), owed(40, Work::Unknown)]) },
            Record::Idle { owes: Some(vec![owed(41, Work::Unguarded), owed(40, Work::Unguarded)]) },
            Record::Ended,
            Record::Guarded { by: by.clone(), berth: "8:131".to_owned() },
            Record::Led { by: by.clone() },
            Record::settled(Proof::Fenced, "agent:fence_virsh"),
            Record::settled(Proof::Confirmed, "root at web-2"),
            Record::settled(Proof::Dead, "berth"),
            Record::settled(Proof::Trusted, "guardian"),
            Record::settled(Proof::Waited, "delay:30s"),
        ] {
            let text = record.to_string();
            assert_eq!(Record::read(&text).as_ref(), Some(&record), "{text}");
            assert!(text.len() < 128, "{text}");
            assert_eq!(Done::read(&Note { token: token(42), text }), None);
            for done in [Done { token: token(39), slot: Some(60), at: 61 }, Done { token: token(39), slot: None, at: 61 }] {
                let note = Note { token: token(42), text: record.after(Some(done)) };
                assert_eq!((Record::read(&note.text).as_ref(), Done::read(&note)), (Some(&record), Some(done)), "{note:?}");
            }
        }
        let later = Record::read("guarded as=a berth=1:2 done=2026-01-01 more");
        assert_eq!(
            later,
            Some(Record::Guarded { by: Identity::stored("a"), berth: "1:2".to_owned() }),
            "a later version's words"
        );
        // Nobody knows whom it owes: one looks further back.
        for unclear in ["idle owes=", "idle owes=x as=a", "idle owes=41", "idle as=a berth=1:2"] {
            assert_eq!(Record::read(unclear), Some(Record::Idle { owes: None }), "{unclear}");
        }
        for other in ["", "done", "fenced", "guarded", "idler", "a person's remark"] {
            assert_eq!(Record::read(other), None, "{other:?}");
        }
    }

    #[test]
    fn former_leaders_are_feared_back_to_the_newest_that_ran_and_ended_in_order() {
        for (line, feared) in [
            ("", &[][..]),
            ("2 b leads; 1 a resigned", &[]),
            ("2 b leads; 1 a lease expired", &[1]),
            ("2 b leads; 1 a process died", &[1]),
            ("2 b leads; 1 a some word of a later version", &[1]),
            ("2 b leads [guarded as=b berth=1:1]; 1 a lease expired [guarded as=a berth=1:1]", &[1]),
            // What has been settled stays so, each for itself.
            ("3 c leads; 2 b lease expired [fenced by=x at=y]; 1 a lease expired", &[1]),
            ("3 c leads; 2 b lease expired; 1 a lease expired [confirmed by=x at=y]", &[2]),
            ("2 b leads; 1 a lease expired [ended]", &[]),
            ("2 b leads; 1 a lease expired [a person's remark]", &[1]),
            // One that ran and ended in order had seen to those before it; one that never ran had not.
            ("3 c leads; 2 b resigned [guarded as=b berth=1:1]; 1 a lease expired", &[]),
            ("3 c leads; 2 b handed over; 1 a lease expired", &[]),
            ("3 c leads; 2 b resigned [idle]; 1 a lease expired", &[1]),
            ("3 c leads; 2 b declined; 1 a lease expired", &[1]),
            ("3 c leads; 2 b lease expired [idle]; 1 a lease expired", &[1]),
            ("4 d leads; 3 c evicted [idle]; 2 b health failed; 1 a lease expired", &[]),
            // The past may lag behind: a note that something runs counts by itself, in its place among the others.
            ("3 c leads; 2 b [guarded as=b berth=1:1]; 1 a resigned", &[2]),
            ("3 c leads; 2 b [guarded as=b berth=1:1]; 1 a lease expired", &[2, 1]),
            ("3 c leads; 2 b resigned; 1 a [guarded as=a berth=1:1]", &[]),
            ("3 c leads; 2 b [idle]; 1 a work finished", &[]),
            // What one who started nothing has noted counts for all before it, unless it has been settled since.
            ("9 c leads; 8 b resigned [idle owes=2 as=a berth=1:1 owes=1 as=b]", &[2, 1]),
            ("9 c leads; 8 b resigned [idle owes=2 as=a owes=1 as=b]; 2 a lease expired [fenced by=x at=y]", &[1]),
            ("9 c leads; 8 b resigned [idle owes=nobody]; 2 a lease expired", &[]),
            (
                "9 d leads; 8 c lease expired; 7 b resigned [idle owes=2 as=a]; 6 b resigned [idle owes=2 as=a owes=1 as=b]",
                &[8, 2],
            ),
            ("9 d leads [idle owes=1 as=a]; 8 c resigned; 7 b resigned [idle owes=1 as=a]", &[]),
        ] {
            let found: Vec<u64> = unsettled(&board(line)).iter().map(|it| it.token.get()).collect();
            assert_eq!(found, feared, "{line}");
        }
    }

    #[test]
    fn a_silent_leader_that_has_left_the_record_is_feared_until_it_is_settled() {
        let mut board = board("1 a lease expired [guarded as=a berth=1:1]");
        for number in 2..100 {
            let owed = unsettled(&board);
            assert_eq!(owed.iter().map(|it| it.token.get()).collect::<Vec<_>>(), [1], "before {number}");
            // Elected, not able to fence, and gone again, as the engines remember it.
            board.notes.insert(0, Note { token: token(number), text: Record::idle(&owed).to_string() });
            let past = Past {
                identity: Identity::stored("b"),
                token: token(number),
                since_ms: 0,
                until_ms: 0,
                reason: "resigned".to_owned(),
            };
            board.past.insert(0, past);
            board.notes.truncate(Past::KEPT_MAX);
            board.past.truncate(Past::KEPT_MAX);
        }
        assert_eq!(unsettled(&board)[0].work, Work::Guarded("1:1".to_owned()));
    }

    #[test]
    fn every_reason_that_a_holder_gives_is_judged() {
        use incumbent::Reason;
        for (reason, end) in [
            (Reason::Resigned, End::Clean),
            (Reason::HandedOver, End::Clean),
            (Reason::Finished, End::Clean),
            (Reason::HealthFailed, End::Clean),
            (Reason::Evicted, End::Clean),
            (Reason::Expired, End::Unclean),
            (Reason::Superseded, End::Unclean),
            (Reason::Declined, End::Declined),
        ] {
            assert_eq!(End::of(&reason.to_string()), end, "{reason}");
        }
    }
}
