//! How this node's disk does, for people. Whether that lets the node lead is the replica's to say (`replica/fitness.rs`).

use std::time::Duration;

use incumbent_peer::clock;

use super::Driver;
use crate::server::handle::DiskStatus;

impl Driver {
    pub(super) fn note_write(&mut self, took: Duration) {
        let status = &mut self.disk_status;
        status.writes += 1;
        status.last = took;
        status.longest = status.longest.max(took);
        if took >= self.settings.disk_patience {
            if !std::mem::replace(&mut status.slow, true) {
                tracing::warn!(node = %self.me, disk = ?self.disk_status, "this node's disk is too slow for a leader's");
            }
        } else if status.slow {
            status.slow = self.replica.disk_is_slow(clock::now());
        }
    }

    pub(super) fn disk(&self) -> DiskStatus {
        DiskStatus { slow: self.replica.disk_is_slow(clock::now()), ..self.disk_status.clone() }
    }
}
