//! What the world of leases shows its oracles: what happened, when in true time, to whom.

use incumbent_protocol::protocol::Token;

use crate::observation::Moment;

/// One life of one process. A process that comes back after a crash is another holder.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HolderId(pub u32);

impl core::fmt::Display for HolderId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

/// How a seat came to be free.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Freed {
    /// Its holder gave it back.
    Released,
    /// The ttl had passed on the service's clock.
    Expired,
}

/// One thing that happened.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Sighting {
    /// `holder` came up and contends.
    Started {
        /// Who.
        holder: HolderId,
    },
    /// `holder` and its work are gone.
    Crashed {
        /// Who.
        holder: HolderId,
    },
    /// The service gave the seat to `holder`: a new leadership.
    Granted {
        /// To whom.
        holder: HolderId,
        /// Its token.
        token: Token,
    },
    /// The seat of `token` became free.
    Freed {
        /// The leadership that had it.
        token: Token,
        /// How.
        how: Freed,
    },
    /// `holder` took office on the answer to a call that it had sent at `sent`.
    Entered {
        /// Who.
        holder: HolderId,
        /// Which leadership.
        token: Token,
        /// When the call was sent, in true time.
        sent: Moment,
    },
    /// `holder` holds itself to be in office, from now until `until`. Repeated whenever `until` moves, be it by a renewal or because
    /// the clock that it is read from changes its pace.
    Believes {
        /// Who.
        holder: HolderId,
        /// Which leadership.
        token: Token,
        /// Until when in true time, if nothing else happens.
        until: Moment,
    },
    /// `holder` has given its belief up. (One that has run out is over without this.)
    Ceases {
        /// Who.
        holder: HolderId,
        /// Which leadership.
        token: Token,
    },
    /// Something acts for `token` from now on.
    WorkBegan {
        /// Whose work.
        holder: HolderId,
        /// For which leadership.
        token: Token,
    },
    /// Nothing acts for `token` any more.
    WorkEnded {
        /// Whose work.
        holder: HolderId,
        /// For which leadership.
        token: Token,
    },
    /// A write with `token` arrived at the fenced resource.
    Written {
        /// The leadership that wrote.
        token: Token,
        /// Whether it was accepted.
        accepted: bool,
    },
    /// From now on no more faults happen: every link works, everyone is up, contends and keeps time.
    Healed,
    /// The one in office crashes for good, as the last test of those who wait.
    Decapitated,
}
