//! Whether this node's disk lets it lead.

use std::time::Duration;

use incumbent_peer::clock;

use super::Driver;
use crate::replica::{Health, Input};
use crate::server::config::{PATIENCES_TO_TRUST, QUICK_WRITES};

impl Driver {
    pub(super) fn judge_disk(&mut self, took: Duration) {
        let status = &mut self.disk_status;
        status.writes += 1;
        status.last = took;
        status.longest = status.longest.max(took);
        if took >= self.settings.disk_patience {
            self.quick_writes = 0;
            status.slow = true;
            self.slow_until = Some(clock::now() + self.settings.disk_patience * PATIENCES_TO_TRUST);
            self.judge();
        } else if status.slow {
            self.quick_writes += 1;
            if self.quick_writes >= QUICK_WRITES {
                self.trust_disk();
            }
        }
    }

    pub(super) fn trust_disk(&mut self) {
        self.slow_until = None;
        self.disk_status.slow = false;
        self.judge();
    }

    /// A leader whose disk is slow or full gives the leadership away (C47, C52). Alone, there is nobody to give it to.
    pub(super) fn judge(&mut self) {
        let unfit = self.disk_status.slow || self.disk_status.full.is_some();
        if unfit == self.unfit_again.is_some() || self.replica.roll().voters().len() < 2 {
            return;
        }
        if unfit {
            tracing::warn!(node = %self.me, disk = ?self.disk_status, "this node's disk is unfit for a leader's");
            self.unfit_again = Some(clock::now() + self.settings.election_timeout());
            self.step(Input::Health(Health::Unfit));
        } else {
            self.unfit_again = None;
            self.step(Input::Health(Health::Fit));
        }
    }
}
