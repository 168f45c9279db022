//! Who leads, as far as nodes have said, and whether it makes sense to go there.

use std::time::Duration;

use tokio::time::Instant;

use super::{Docket, State};

/// A leader that fell silent is tried again after so long: the others may not have noticed yet, and send us back.
pub(crate) const SILENT_SHUNNED: Duration = Duration::from_secs(3);
/// One that cannot be reached, after so long: each attempt leaves a connection that is good.
pub(crate) const UNREACHABLE_SHUNNED: Duration = Duration::from_secs(300);
/// While nobody is known to lead, or another node is said to, the node is asked so often who does.
pub(super) const LEADER_ASKED: Duration = Duration::from_millis(100);

/// A node that says for so long that nobody leads is left for another: it may be cut off from the others. Where those are well they elect somebody in less.
const VACANCY_MAX: Duration = Duration::from_millis(250);
/// If the next ones say the same, each is given twice as long as the one before, so many times: nobody leads, and whoever goes round gains nothing.
const DOUBLINGS_MAX: u32 = 4;

/// That nobody leads, as nodes say.
#[derive(Default)]
pub(super) struct Vacancy {
    /// This node has said so since then.
    pub(super) since: Option<Instant>,
    /// So many were left for it.
    left: u32,
}

impl Vacancy {
    /// A node says whether nobody leads. Whether to leave it.
    pub(super) fn told(&mut self, leaderless: bool) -> bool {
        if !leaderless {
            *self = Vacancy::default();
            return false;
        }
        let now = Instant::now();
        let enough = now - *self.since.get_or_insert(now) >= VACANCY_MAX * (1 << self.left.min(DOUBLINGS_MAX));
        self.left += u32::from(enough);
        enough
    }
}

impl Docket {
    /// Where the node that leads is said to be; empty if nobody has said.
    pub(crate) fn leader(&self) -> String {
        self.state().leader.clone()
    }

    /// There is no reaching this address for a time.
    pub(crate) fn shun(&self, address: &str, why: &str, time: Duration) {
        let mut state = self.state();
        state.unreached = format!("{address}: {why}");
        if state.leader == address {
            state.shunned = Some((address.to_owned(), Instant::now() + time));
        }
    }

    /// Whether it makes no sense to try this address now.
    pub(crate) fn shuns(&self, address: &str) -> bool {
        self.state().shuns(address)
    }

    pub(crate) fn lead_by(&self, leader: &str) {
        if !leader.is_empty() {
            self.state().leader = leader.to_owned();
        }
    }
}

impl State {
    /// Remembers who is said to lead. Whether that is another node than this one, and not one that cannot be reached.
    pub(super) fn leads_elsewhere(&mut self, leader: String) -> bool {
        if leader.is_empty() {
            return false;
        }
        self.leader = leader;
        self.leader != self.address && !self.shuns(&self.leader)
    }

    fn shuns(&self, address: &str) -> bool {
        self.shunned.as_ref().is_some_and(|(shunned, until)| shunned == address && Instant::now() < *until)
    }
}
