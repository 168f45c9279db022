//! How fast a replica is and how much it takes in. Every limit has a name, and every default its reason.

use std::time::Duration;

/// What must be the same on all nodes, or nearly so.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The grain of all the times below.
    pub tick: Duration,
    /// How often a leader says that it is there, in ticks.
    pub heartbeat_ticks: u32,
    /// How long a leader may be silent, in ticks; what a node waits before it asks for votes is drawn between this and twice as much.
    pub election_ticks: u32,
    /// How long the second in line waits for the first after the leader's death is proven; the third twice as long.
    pub stagger: Duration,
    /// After this long, what was proposed or asked is answered: not done if it never left, else unknown.
    pub patience: Duration,
    /// A leader whose disk has not answered for this long gives the leadership away, if another's is better.
    pub disk_patience: Duration,
    /// A leader that is woken this much too late, this often in a row, gives the leadership away, if another is not known to be so.
    pub lateness: Lateness,
    /// That an entry is decided is told with the next ones; if there are none for so long, by itself. Whoever watches at another node than the leader hears of it so much later at most.
    pub news_delay: Duration,
    /// How reads are made safe.
    pub reads: Reads,
    /// A longer payload is refused.
    pub payload_bytes_max: usize,
    /// An entry takes payloads up to this length in all; always one.
    pub entry_bytes_max: usize,
    /// A message takes entries up to this length in all; always one.
    pub message_bytes_max: usize,
    /// Messages with entries that a follower has not answered.
    pub messages_in_flight: usize,
    /// Proposals that wait, or that wait for their outcome.
    pub proposals_max: usize,
    /// Bytes of proposals that wait to be appended or forwarded.
    pub proposal_bytes_max: usize,
    /// Reads that wait.
    pub reads_max: usize,
    /// A snapshot is taken after this many entries ...
    pub snapshot_entries: u64,
    /// ... or this many bytes of them.
    pub snapshot_bytes: u64,
    /// So many entries are kept behind a snapshot, so that a node that was away for a moment needs none.
    pub entries_kept: u64,
    /// The length of a snapshot's part.
    pub piece_bytes: u64,
    /// Parts of a snapshot under way to one node.
    pub pieces_in_flight: u64,
}

/// When a leader is too slow to lead.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Lateness {
    /// Counts as late.
    pub by: Duration,
    /// So many in a row are too many.
    pub times: u32,
}

/// How a leader knows that it still leads when it answers a read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reads {
    /// It asks a quorum, each time. Assumes nothing about clocks.
    Quorum,
    /// It believes the last answer of a quorum for nearly an election timeout, if clock rates differ by less than this many parts per million.
    /// A node that has just started votes for nobody for as long.
    Lease {
        /// The bound.
        drift_ppm: u32,
    },
}

/// Why settings are none.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum BadSettings {
    /// A time or a limit is zero.
    Zero(&'static str),
    /// A leader must be heard several times before it is missed.
    HeartbeatsTooRare,
    /// An entry, a message or the queue does not take the longest payload.
    PayloadTooLong,
    /// The bound is no bound.
    DriftTooGreat,
}

impl Settings {
    /// For nodes on one network, with disks that sync in milliseconds.
    ///
    /// A leader that is cut off is missed after 100 to 200 ms: five heartbeats may be lost. Clocks of 5 ms keep those times apart
    /// that would otherwise make two candidates of one vacancy.
    pub fn lan() -> Settings {
        Settings {
            tick: Duration::from_millis(5),
            heartbeat_ticks: 4,
            election_ticks: 20,
            stagger: Duration::from_millis(10),
            patience: Duration::from_secs(2),
            disk_patience: Duration::from_millis(200),
            lateness: Lateness { by: Duration::from_millis(60), times: 3 },
            news_delay: Duration::from_millis(1),
            reads: Reads::Quorum,
            payload_bytes_max: 1 << 20,
            entry_bytes_max: 256 << 10,
            message_bytes_max: 512 << 10,
            messages_in_flight: 64,
            proposals_max: 65_536,
            proposal_bytes_max: 64 << 20,
            reads_max: 65_536,
            snapshot_entries: 10_000,
            snapshot_bytes: 64 << 20,
            entries_kept: 5_000,
            piece_bytes: 64 << 10,
            pieces_in_flight: 8,
        }
    }

    /// So much of a snapshot may be on its way, or wait for the receiver's disk.
    pub(super) fn bytes_in_flight(&self) -> u64 {
        self.piece_bytes.saturating_mul(self.pieces_in_flight)
    }

    /// The shortest time in which a silent leader is missed.
    pub fn election_timeout(&self) -> Duration {
        self.tick * self.election_ticks
    }

    /// Refuses what cannot work.
    pub(super) fn check(&self) -> Result<(), BadSettings> {
        let zero = [
            ("tick", self.tick.is_zero()),
            ("heartbeat_ticks", self.heartbeat_ticks == 0),
            ("patience", self.patience.is_zero()),
            ("disk_patience", self.disk_patience.is_zero()),
            ("payload_bytes_max", self.payload_bytes_max == 0),
            ("messages_in_flight", self.messages_in_flight == 0),
            ("proposals_max", self.proposals_max == 0),
            ("snapshot_entries", self.snapshot_entries == 0),
            ("snapshot_bytes", self.snapshot_bytes == 0),
            ("piece_bytes", self.piece_bytes == 0),
            ("pieces_in_flight", self.pieces_in_flight == 0),
        ];
        if let Some((name, _)) = zero.iter().find(|(_, zero)| *zero) {
            return Err(BadSettings::Zero(name));
        }
        if self.election_ticks < 3 * self.heartbeat_ticks {
            return Err(BadSettings::HeartbeatsTooRare);
        }
        let longest = self.payload_bytes_max.max(self.entry_bytes_max).max(self.message_bytes_max);
        if self.payload_bytes_max > self.proposal_bytes_max || longest > super::letter::LETTER_BYTES_MAX / 2 {
            return Err(BadSettings::PayloadTooLong);
        }
        match self.reads {
            Reads::Quorum => Ok(()),
            Reads::Lease { drift_ppm } if drift_ppm <= 100_000 => Ok(()),
            Reads::Lease { .. } => Err(BadSettings::DriftTooGreat),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused() {
        assert_eq!(Settings::lan().check(), Ok(()));
        assert_eq!(Settings { tick: Duration::ZERO, ..Settings::lan() }.check(), Err(BadSettings::Zero("tick")));
        assert_eq!(Settings { election_ticks: 11, ..Settings::lan() }.check(), Err(BadSettings::HeartbeatsTooRare));
        assert_eq!(Settings { payload_bytes_max: 1 << 30, ..Settings::lan() }.check(), Err(BadSettings::PayloadTooLong));
        let reads = Reads::Lease { drift_ppm: 2_000_000 };
        assert_eq!(Settings { reads, ..Settings::lan() }.check(), Err(BadSettings::DriftTooGreat));
    }
}
