//! The process that a drill kills, pauses or replaces: contends, and says on its standard output from when to when its leadership was valid.
//!
//! It does no work: what counts is whether it could have. It goes when its standard input ends, and dies with the drill.

use std::cell::RefCell;
use std::io::{Read as _, Write};
use std::time::Duration;

use incumbent::{Election, Identity, Leadership, Next, clock};
use incumbent_protocol::time::Instant;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::console::Console;
use crate::elections::target::{Target, TargetArguments, answer};
use crate::exit::Exit;
use crate::failure::Failure;

/// So often a leader asks itself whether it still is one.
const CHECK_EVERY: Duration = Duration::from_millis(2);

/// A withdrawal that takes longer than this is not waited for.
const WITHDRAWAL_MAX: Duration = Duration::from_secs(2);

/// A deadline that moves by less than this has not moved: it is made of two readings of a clock.
const NOISE: Duration = Duration::from_millis(1);

#[derive(clap::Args, Debug)]
pub(crate) struct CandidateArguments {
    /// The name of the election
    election: String,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// What a candidate says, a line each. Instants are nanoseconds of the machine's clock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(super) enum Word {
    /// It is in office, and may act from here on.
    Begin { token: u64, at: u64, until: u64 },
    /// It may act for longer than it said last.
    Held { token: u64, until: u64 },
    /// It is out of office, or about to give the seat back, and acts no more. It last found that it might at `valid`, and might until `until`.
    End { token: u64, at: u64, valid: u64, until: u64, reason: String },
}

/// Contends until told to go.
pub(crate) async fn run(wanted: &CandidateArguments, console: &mut Console<'_>) -> Result<Exit, Failure> {
    // Also if it is paused when the drill dies: then nobody would ever wake it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|wrong| Failure::Io { what: format!("cannot be tied to the drill: {wrong}"), hint: "a drill needs Linux" })?;
    let election = Target::find(&wanted.target)?.election(&wanted.election).await?;
    let going = when_to_go();
    let (leads, mut leading) = watch::channel(false);
    let out = RefCell::new(&mut *console.out);
    let contend = election.run(|leadership| {
        let (out, going, leads) = (&out, going.clone(), &leads);
        async move {
            let leads = Leads::begin(leads);
            let next = lead(&leadership, going, out).await;
            // Who quits is not done before the seat is given back, which `run` sees to.
            if let Ok(Next::Quit) = next {
                std::mem::forget(leads);
            }
            next
        }
    });
    let mut gone = going.clone();
    let idle = async {
        // Who leads gives the seat back first; `run` returns then by itself.
        let _ = gone.wait_for(|it| *it).await;
        let _ = leading.wait_for(|it| !*it).await;
    };
    tokio::select! {
        biased;
        ended = contend => ended?,
        () = idle => {}
    }
    // Here `contend` is dropped: it withdraws, on the library's own thread.
    withdrawn(&election, &wanted.target).await;
    Ok(Exit::Done)
}

/// Waits until nobody of this name stands in the election, for a while: one that is left in line would be elected after its death.
async fn withdrawn(election: &Election, target: &TargetArguments) {
    let is_own = |identity: &Identity| target.identity.as_deref() == Some(identity.name());
    let begun = clock::now();
    while clock::now() - begun < WITHDRAWAL_MAX {
        match answer(election.look()).await {
            Ok(board) => {
                let mut seen = board.leaders.iter().map(|it| &it.identity).chain(board.candidates.iter().map(|it| &it.identity));
                if !seen.any(is_own) {
                    return;
                }
            }
            // Then its place is free when its time has passed, as always.
            Err(_) => return,
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
}

/// Turns true when the standard input ends.
fn when_to_go() -> watch::Receiver<bool> {
    let (tell, told) = watch::channel(false);
    std::thread::spawn(move || {
        let mut nothing = [0; 64];
        while std::io::stdin().read(&mut nothing).is_ok_and(|read| read > 0) {}
        tell.send_replace(true);
        // Kept, so that whoever waits does not take the end of this thread for an answer.
        std::thread::park();
    });
    told
}

/// That it leads, until this is dropped.
struct Leads<'a>(&'a watch::Sender<bool>);

impl Leads<'_> {
    fn begin(leads: &watch::Sender<bool>) -> Leads<'_> {
        leads.send_replace(true);
        Leads(leads)
    }
}

impl Drop for Leads<'_> {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

/// A term, which says that it has ended when it is dropped: whoever was paused across its deadline is not asked any more, and dropped.
struct Tenancy<'a, W: Write> {
    out: &'a RefCell<W>,
    token: u64,
    valid: Instant,
    until: Instant,
    reason: String,
}

impl<W: Write> Drop for Tenancy<'_, W> {
    fn drop(&mut self) {
        // It counts until the deadline, unless it has found itself valid later than that.
        let (at, valid, until) = (clock::now().as_nanos(), self.valid.as_nanos(), self.until.as_nanos());
        let reason = std::mem::take(&mut self.reason);
        // A drill that does not read any more has ended.
        let _ = say(self.out, &Word::End { token: self.token, at, valid, until, reason });
    }
}

/// Says from when to when the leadership is valid.
async fn lead(leadership: &Leadership, mut going: watch::Receiver<bool>, out: &RefCell<impl Write>) -> std::io::Result<Next> {
    let token = leadership.token().get();
    let begin = clock::now();
    let until = deadline(leadership).unwrap_or(begin);
    say(out, &Word::Begin { token, at: begin.as_nanos(), until: until.as_nanos() })?;
    let mut tenancy = Tenancy { out, token, valid: begin, until, reason: "deadline passed".to_owned() };
    loop {
        let at = clock::now();
        let Some(later) = deadline(leadership) else { return Ok(Next::Resign) };
        tenancy.valid = at;
        if later > tenancy.until + NOISE {
            tenancy.until = later;
            say(out, &Word::Held { token, until: later.as_nanos() })?;
        }
        tokio::select! {
            reason = leadership.stopping() => {
                tenancy.reason = reason.to_string();
                return Ok(Next::Resign);
            }
            _ = going.wait_for(|it| *it) => {
                tenancy.reason = "drill over".to_owned();
                return Ok(Next::Quit);
            }
            () = tokio::time::sleep(CHECK_EVERY) => {}
        }
    }
}

/// Until when it may act; `None` if it may not. Read after the check, so that it is never too early.
fn deadline(leadership: &Leadership) -> Option<Instant> {
    let left = leadership.check().ok()?;
    Some(clock::now() + left)
}

/// Borrows the output for one line.
fn say(out: &RefCell<impl Write>, word: &Word) -> std::io::Result<()> {
    let line = serde_json::to_string(word).expect("a word is plain data");
    let mut out = out.borrow_mut();
    writeln!(out, "{line}")?;
    out.flush()
}
