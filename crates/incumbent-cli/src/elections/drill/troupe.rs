//! The candidates of a drill: processes of this very program, and what they say.
//!
//! They live in a process group of their own, so that Ctrl-C reaches the drill alone, which then puts things in order. Dropping a troupe
//! kills what is left of it.

use std::io::{self, BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use incumbent::clock;
use incumbent_protocol::time::Instant;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc;

use super::candidate::Word;
use super::verdict::Tenancy;
use crate::elections::target::Target;
use crate::failure::Failure;

/// How often a child that is to end is looked at.
const REAP_EVERY: Duration = Duration::from_millis(5);

/// The candidates.
pub(super) struct Troupe {
    program: PathBuf,
    target: Target,
    ttl: Duration,
    election: String,
    actors: Vec<Actor>,
    tell: mpsc::UnboundedSender<Said>,
    told: mpsc::UnboundedReceiver<Said>,
    /// Every leadership so far; the end of those still going on is their deadline as last told.
    tenancies: Vec<Tenancy>,
    /// Who leads and with which token; as told.
    leader: Option<(usize, u64)>,
    started: usize,
}

struct Actor {
    /// Rises when it is started anew: what its former self has said is not its own.
    life: usize,
    child: Child,
}

struct Said {
    actor: usize,
    life: usize,
    /// `None`: it says nothing more.
    word: Option<Word>,
}

/// What a drill hears.
pub(super) enum Heard {
    Begun { actor: usize, token: u64, at: Instant },
    Ended { token: u64 },
    Gone { actor: usize },
}

impl Troupe {
    /// Starts `count` candidates.
    pub(super) fn start(count: usize, target: &Target, ttl: Duration, election: &str) -> Result<Troupe, Failure> {
        let program = std::env::current_exe().map_err(|wrong| failed(&wrong))?;
        let (tell, told) = mpsc::unbounded_channel();
        let mut troupe = Troupe {
            program,
            target: target.clone(),
            ttl,
            election: election.to_owned(),
            actors: Vec::new(),
            tell,
            told,
            tenancies: Vec::new(),
            leader: None,
            started: 0,
        };
        for actor in 0..count {
            let new = troupe.spawn(actor)?;
            troupe.actors.push(new);
        }
        Ok(troupe)
    }

    fn spawn(&mut self, actor: usize) -> Result<Actor, Failure> {
        use std::os::unix::process::CommandExt as _;
        self.started += 1;
        let name = name_of(self.started);
        let mut child = Command::new(&self.program)
            .args(["drill-candidate", &self.election, "--identity", &name, "--ttl", &format!("{}us", self.ttl.as_micros())])
            // Not an argument: anybody may read those, and a URL may hold a password.
            .env("INCUMBENT_ON", self.target.url.exposed())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|wrong| failed(&wrong))?;
        let (life, tell) = (self.started, self.tell.clone());
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // A word that cannot be read is none of a candidate's; what matters is what it does not say then, and that is noticed.
                if let Ok(word) = serde_json::from_str(&line) {
                    let _ = tell.send(Said { actor, life, word: Some(word) });
                }
            }
            let _ = tell.send(Said { actor, life, word: None });
        });
        Ok(Actor { life, child })
    }

    /// Who leads, and with which token.
    pub(super) fn leader(&self) -> Option<(usize, u64)> {
        self.leader
    }

    /// What it is called in the election.
    pub(super) fn name(&self, actor: usize) -> String {
        name_of(self.actors[actor].life)
    }

    /// Every leadership so far.
    pub(super) fn tenancies(&self) -> &[Tenancy] {
        &self.tenancies
    }

    /// Waits for the next change.
    pub(super) async fn hear(&mut self) -> Heard {
        loop {
            let said = self.told.recv().await.expect("this end keeps a sender");
            if let Some(heard) = self.note(said) {
                return heard;
            }
        }
    }

    fn note(&mut self, said: Said) -> Option<Heard> {
        let Said { actor, life, word } = said;
        // Whoever was killed may still have words on the way: they count, but nobody of that name leads any more.
        let is_current = self.actors.get(actor).is_some_and(|it| it.life == life);
        match word {
            Some(Word::Begin { token, at, until }) => {
                let (begin, end) = (Instant::from_nanos(at), Instant::from_nanos(until));
                self.tenancies.push(Tenancy { name: name_of(life), token, begin, end });
                if !is_current {
                    return None;
                }
                self.leader = Some((actor, token));
                Some(Heard::Begun { actor, token, at: begin })
            }
            Some(Word::Held { token, until }) => {
                // What a dead one was promised does not matter any more.
                if is_current {
                    self.end(token, Instant::from_nanos(until));
                }
                None
            }
            Some(Word::End { token, at, valid, until, .. }) => {
                self.end(token, Instant::from_nanos(at.min(until).max(valid)));
                self.leader = self.leader.filter(|(_, it)| *it != token);
                Some(Heard::Ended { token })
            }
            None if is_current => {
                self.leader = self.leader.filter(|(it, _)| *it != actor);
                Some(Heard::Gone { actor })
            }
            None => None,
        }
    }

    fn end(&mut self, token: u64, end: Instant) {
        if let Some(it) = self.tenancies.iter_mut().rev().find(|it| it.token == token) {
            it.end = end;
        }
    }

    /// Kills one that leads with `token`, whatever it is doing, and starts another in its place.
    pub(super) fn replace(&mut self, actor: usize, token: u64) -> Result<(), Failure> {
        let old = &mut self.actors[actor].child;
        // It acts no more from here on, whatever it was promised. Not when it has been waited for: the kernel frees what it held before that is told, and another may be in office by then.
        let struck = clock::now();
        old.kill().and_then(|()| old.wait()).map_err(|wrong| failed(&wrong))?;
        self.end(token, struck);
        let new = self.spawn(actor)?;
        self.actors[actor] = new;
        self.leader = None;
        Ok(())
    }

    /// Stops one where it stands.
    pub(super) fn pause(&mut self, actor: usize) -> Result<(), Failure> {
        self.signal(actor, Signal::STOP)?;
        self.leader = None;
        Ok(())
    }

    /// Lets it go on.
    pub(super) fn wake(&self, actor: usize) -> Result<(), Failure> {
        self.signal(actor, Signal::CONT)
    }

    fn signal(&self, actor: usize, signal: Signal) -> Result<(), Failure> {
        let pid = i32::try_from(self.actors[actor].child.id()).ok().and_then(Pid::from_raw);
        match pid {
            Some(pid) => kill_process(pid, signal).map_err(|wrong| failed(&wrong.into())),
            None => Err(failed(&io::Error::from(io::ErrorKind::NotFound))),
        }
    }

    /// Lets all go, the leader last, so that nobody takes its place; what has not gone within `patience` is killed.
    pub(super) async fn dismiss(&mut self, patience: Duration) {
        let leader = self.leader.map(|(it, _)| it);
        let followers = (0..self.actors.len()).filter(|it| Some(*it) != leader);
        let order: Vec<usize> = followers.chain(leader).collect();
        for actor in order {
            drop(self.actors[actor].child.stdin.take());
            let begun = clock::now();
            while clock::now() - begun < patience && matches!(self.actors[actor].child.try_wait(), Ok(None)) {
                tokio::time::sleep(REAP_EVERY).await;
            }
            self.put_down(actor);
        }
        // What they said last.
        while let Ok(said) = self.told.try_recv() {
            self.note(said);
        }
    }

    fn put_down(&mut self, actor: usize) {
        let child = &mut self.actors[actor].child;
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Troupe {
    fn drop(&mut self) {
        for actor in 0..self.actors.len() {
            self.put_down(actor);
        }
    }
}

fn name_of(life: usize) -> String {
    format!("drill-{life}")
}

fn failed(wrong: &io::Error) -> Failure {
    Failure::Io {
        what: format!("cannot start or stop a candidate: {wrong}"),
        hint: "the drill runs this very program: it must be there",
    }
}
