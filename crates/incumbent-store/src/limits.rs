//! How much there may be of everything. Checked before any work is done.
//!
//! All replicas must have the same limits, or the same log makes different states: they are a part of the version, not of a configuration file.

/// How much there may be of everything.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The longest name of an election, in bytes.
    pub name_len_max: usize,
    /// The longest identity of a candidate or owner of a session, in bytes.
    pub identity_len_max: usize,
    /// The longest reason, note or outcome, in bytes.
    pub text_len_max: usize,
    /// The longest key, in bytes.
    pub key_len_max: usize,
    /// The longest value of a key or a leader, in bytes.
    pub value_len_max: usize,
    /// So many sessions.
    pub sessions_max: usize,
    /// So many sessions of one guest: several would have to go wrong before there are none for the others.
    pub sessions_per_guest_max: usize,
    /// So many elections. Where there are as many, one of which only history is to be remembered is forgotten for another: that whose last
    /// leadership began longest ago.
    pub elections_max: usize,
    /// So many in one line.
    pub line_len_max: usize,
    /// So many seats in one election.
    pub seats_max: u32,
    /// So many bytes in the identities, names, values and wishes of all who lead or wait and in the names that seats are kept for, with some for each.
    pub candidacies_bytes_max: usize,
    /// So many bytes in all leaderships that have ended, with some for each. Elections that were deserted long ago are forgotten for it, then the oldest of the election whose leadership ends.
    pub past_bytes_max: usize,
    /// So many bytes in all notes and jobs that were done, with some for each.
    pub notes_bytes_max: usize,
    /// So many keys, with those that were lost with a session and are delayed.
    pub keys_max: usize,
    /// So many bytes in all keys and values, and in keys that are delayed.
    pub keys_bytes_max: usize,
    /// So many clients whose requests are remembered. Of the guest that has the most, the one that was silent for longest is forgotten.
    pub clients_max: usize,
    /// So many bytes in all outcomes that are remembered, with some for each and for each client. Of the guest that has the most of them, the client that was silent for longest is forgotten.
    pub outcomes_bytes_max: usize,
    /// So many outcomes are remembered of one client.
    pub outcomes_max: usize,
    /// An outcome that is longer than this, in bytes, is remembered without its answer.
    pub outcome_len_max: usize,
    /// So many sessions in one keep-alive, or bound at once.
    pub kept_alive_max: usize,
    /// So many guards and operations in one transaction, nested ones included.
    pub operations_max: usize,
    /// So deep may transactions be nested.
    pub depth_max: usize,
    /// So many keys in one answer.
    pub answer_items_max: usize,
    /// So many bytes of keys and values in one answer, or one item.
    pub answer_bytes_max: usize,
    /// So many keys may one question look at. It can be answered beside the loop, from a copy ([`crate::store::Store::takes_long`]).
    pub visited_max: usize,
    /// So many keys may one request of the log look at, in all its guards, reads, counts, deletions and names that are taken. Whatever is applied, every replica applies, and answers nobody meanwhile.
    pub visited_in_log_max: usize,
    /// So many keys may one request delete. It is all one revision, and every replica applies it at once: more are deleted by several.
    pub deleted_max: usize,
    /// So many events are kept for watches and for reads of the past.
    pub events_max: usize,
    /// So many bytes of events are kept.
    pub events_bytes_max: usize,
    /// So many leaderships that have ended, and so many notes and completions, are kept of one election.
    pub records_max: usize,
    /// So many attachments of a session go at once when it ends; the rest follows with [`crate::command::Expire`].
    pub ended_at_once_max: usize,
}

impl Limits {
    /// Those of version 1.
    pub const STANDARD: Limits = Limits {
        name_len_max: 512,
        identity_len_max: 512,
        text_len_max: 4 * 1024,
        key_len_max: 4 * 1024,
        value_len_max: 1024 * 1024,
        sessions_max: 4_000_000,
        sessions_per_guest_max: 1_000_000,
        elections_max: 4_000_000,
        line_len_max: 100_000,
        seats_max: 1_000,
        candidacies_bytes_max: 1024 * 1024 * 1024,
        past_bytes_max: 1024 * 1024 * 1024,
        notes_bytes_max: 512 * 1024 * 1024,
        keys_max: 16_000_000,
        keys_bytes_max: 4 * 1024 * 1024 * 1024,
        clients_max: 200_000,
        outcomes_bytes_max: 256 * 1024 * 1024,
        outcomes_max: 256,
        outcome_len_max: 1024,
        kept_alive_max: 10_000,
        operations_max: 1024,
        depth_max: 8,
        answer_items_max: 10_000,
        answer_bytes_max: 4 * 1024 * 1024,
        visited_max: 100_000,
        visited_in_log_max: 10_000,
        deleted_max: 2_000,
        events_max: 100_000,
        events_bytes_max: 64 * 1024 * 1024,
        records_max: 32,
        ended_at_once_max: 1_000,
    };

    /// What one who leads or waits counts for beside its texts: what it takes to keep it, about. Many short ones must count, too.
    pub const CANDIDACY_BYTES: usize = 400;
    /// The same for a wish.
    pub const WISH_BYTES: usize = 64;
    /// The same for a seat that is kept.
    pub const RESERVATION_BYTES: usize = 50;
    /// The same for a client whose requests are remembered. To remember an outcome takes no more than a few clients, so no request makes many be forgotten.
    pub const CLIENT_BYTES: usize = 256;
    /// The same for an outcome.
    pub const OUTCOME_BYTES: usize = 64;
    /// The shortest ttl of a session. Shorter ones are lost to a busy machine.
    pub const TTL_MS_MIN: u64 = 100;
    /// The longest: etcd's.
    pub const TTL_MS_MAX: u64 = 9_000_000_000_000;
    /// The longest lock delay.
    pub const LOCK_DELAY_MS_MAX: u64 = 86_400_000;
    /// Places in a line are told up to here; whoever is further behind hears this number.
    pub const PLACE_TOLD_MAX: u32 = 100;
    /// So many items in an answer to a list of elections or sessions, or events.
    pub const LISTED_MAX: usize = 1_000;
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::STANDARD
    }
}
