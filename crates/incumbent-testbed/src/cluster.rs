//! Several servers that are one service, of which one leads.

use std::time::{Duration, Instant};

use crate::server::{LAUNCH_TRIES, Server, is_port_taken, wait_until_ready};

/// A server that can be one of several.
pub trait Member: Server {
    /// Whether it leads the others now, as far as it knows.
    ///
    /// # Errors
    /// If it does not answer.
    fn leads(&self) -> Result<bool, String>;
}

/// Servers that elect a leader among themselves. Each can be killed, paused and restarted by itself.
pub struct Cluster<S> {
    members: Vec<S>,
}

/// An election among them takes a second or two; on a busy machine it may fail some times.
const LEADER_WITHIN: Duration = Duration::from_secs(60);

const LOOK_EVERY: Duration = Duration::from_millis(10);

impl<S: Member> Cluster<S> {
    /// All of them, in the order of their names.
    pub fn members(&self) -> &[S] {
        &self.members
    }

    /// Host and port of each.
    pub fn addresses(&self) -> Vec<String> {
        self.members.iter().map(Server::address).collect()
    }

    /// Waits until one leads, and returns its place in [`members`](Self::members).
    ///
    /// One that is paused or cut off may lead as far as it knows: while it runs but does not answer, it is not asked.
    ///
    /// # Errors
    /// If none leads within a minute.
    pub fn leader(&self) -> Result<usize, String> {
        let began = Instant::now();
        loop {
            if let Some(leader) = self.members.iter().position(|member| member.process().runs() && member.leads() == Ok(true)) {
                return Ok(leader);
            }
            if began.elapsed() > LEADER_WITHIN {
                return Err(format!("none of {} has led within {LEADER_WITHIN:?}", self.addresses().join(", ")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until another than `old` leads, and returns its place.
    ///
    /// # Errors
    /// If none does within a minute.
    pub fn leader_after(&self, old: usize) -> Result<usize, String> {
        let began = Instant::now();
        loop {
            let others = self.members.iter().enumerate().filter(|(place, member)| *place != old && member.process().runs());
            if let Some((leader, _)) = others.into_iter().find(|(_, member)| member.leads() == Ok(true)) {
                return Ok(leader);
            }
            if began.elapsed() > LEADER_WITHIN {
                return Err(format!("none but {} has led within {LEADER_WITHIN:?}", self.members[old].address()));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Starts all that `make` makes, and waits until all serve; with other ports if theirs were taken meanwhile.
    pub(crate) fn launch(make: impl Fn() -> Result<Vec<S>, String>) -> Result<Cluster<S>, String> {
        let mut tried = 1;
        loop {
            let members = make()?;
            for member in &members {
                member.process().start()?;
            }
            match members.iter().try_for_each(|member| wait_until_ready(member)) {
                Ok(()) => return Ok(Cluster { members }),
                Err(wrong) if tried < LAUNCH_TRIES && is_port_taken(&wrong) => tried += 1,
                Err(wrong) => return Err(wrong),
            }
        }
    }
}
