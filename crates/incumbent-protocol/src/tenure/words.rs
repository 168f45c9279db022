//! What a [`Tenure`](super::Tenure) and its driver say to each other: inputs, calls and their outcomes, effects, events. Plain data.

use core::fmt;
use core::time::Duration;

use crate::protocol::Token;
use crate::time::Instant;

/// Numbers the calls of one machine. Never used twice.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId(pub u64);

/// What may happen to the machine.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input {
    /// The deadline has come. Early or repeated wake-ups are harmless.
    Wake,
    /// A call has been answered, or has failed. Answers may be late, repeated, out of order, or missing.
    Answer {
        /// Which call.
        call: CallId,
        /// With what.
        outcome: Outcome,
    },
    /// A watch says that the seat may be free. Losing a hint costs delay, never safety; so does a false one.
    Hint,
    /// Everything that acted for the leadership with this token has ended: the future finished, the process tree is dead.
    /// Due once for every [`Event::Elected`], even if nothing was ever begun.
    WorkEnded {
        /// The token of the leadership.
        token: Token,
    },
    /// The holder's own user wants something.
    Request(Request),
}

/// What the holder's own user may want.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Request {
    /// Contend for the seat from now on, and again after every loss.
    Contend,
    /// Stop the work, give the seat back, let others have it, then contend again. Ignored unless in office.
    Resign,
    /// As [`Request::Resign`]; the release says that the seat is handed to somebody, whom the driver names to the service.
    HandOver,
    /// As [`Request::Resign`], because an operator wants somebody else in office.
    Evict,
    /// Stop contending; if in office, resign first.
    Withdraw,
    /// As [`Request::Withdraw`], because this node is not fit to lead. [`Request::Contend`] when it is again.
    HealthFailed,
}

/// What the machine wants of the lock service.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Call {
    /// Give me the seat if it is free.
    Claim,
    /// Do I hold it? Asked after a claim whose outcome is unknown.
    Inquire,
    /// Begin the ttl of my leadership anew.
    Renew {
        /// The leadership.
        token: Token,
    },
    /// Free the seat if this leadership still has it; a newer one is never freed.
    Release {
        /// The leadership.
        token: Token,
        /// Why it ended, for the record.
        reason: Reason,
    },
}

/// What became of a call: four facts about the seat, and two ways of not having one.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// The seat is the caller's, and the service began the ttl *after this call was sent*: a claim that was granted, a renewal
    /// that was done, an inquiry that renewed. (Or after `counted_from`.)
    Granted {
        /// The token of the leadership.
        token: Token,
        /// The ttl that the service keeps; `None` if it is the one that was asked for.
        ttl: Option<Duration>,
        /// Since when the service may have counted, if that was before this call was sent: a keep-alive of a session that several
        /// leaderships share. Too old a one gives too little time; it never gives too much.
        counted_from: Option<Instant>,
    },
    /// The seat is the caller's, but this call did not begin the ttl anew.
    Held {
        /// The token of the leadership.
        token: Token,
    },
    /// The seat is somebody else's.
    Occupied {
        /// The token of that leadership, if the service tells.
        token: Option<Token>,
        /// How long until it is free unless renewed, if the service tells. A hint.
        free_in: Option<Duration>,
    },
    /// The seat is nobody's. Also the answer to a release that was done.
    Vacant,
    /// The service did not do it, and says nothing about the seat: overload, no permission, a lost race.
    Refused,
    /// It may have been done or not: a timeout, a broken connection.
    Unknown,
}

/// What the machine wants done, in this order.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// Call the service, and answer with [`Input::Answer`]. A call takes the place of the one before it, which the driver may drop;
    /// should its answer come all the same, it is welcome.
    Call {
        /// What to answer with.
        id: CallId,
        /// What to ask.
        call: Call,
        /// After this the machine goes on without an answer.
        timeout: Duration,
    },
    /// Tell the user.
    Emit(Event),
}

/// What the machine tells its user. Instants are on the holder's own clock.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// In office: work may begin.
    Elected {
        /// The leadership.
        token: Token,
        /// When it ends unless it is renewed.
        until: Instant,
    },
    /// A renewal was acknowledged.
    Renewed {
        /// When the leadership ends now.
        until: Instant,
    },
    /// No renewal has been acknowledged for a while: begin nothing that cannot be ended soon.
    Jeopardy {
        /// When the leadership ends unless it is renewed.
        until: Instant,
    },
    /// The jeopardy is over. Comes after [`Event::Renewed`]: until when is known by then.
    Recovered {
        /// When the leadership ends now.
        until: Instant,
    },
    /// End the work now. There is no way back: should a renewal still come, it only gives the work more time to end.
    Stopping {
        /// Why.
        reason: Reason,
        /// When the leadership ends unless it is renewed.
        until: Instant,
    },
    /// The work has not ended in time: kill what is left of it.
    Kill {
        /// When the leadership ends unless it is renewed.
        until: Instant,
    },
    /// Out of office. Work that still runs must be killed at once.
    Lost {
        /// The leadership that ended.
        token: Token,
        /// Why.
        reason: Reason,
    },
    /// The service has taken the seat back.
    Released {
        /// The leadership that was given back.
        token: Token,
    },
    /// The service did not acknowledge the release; the seat is free at the latest when the ttl has passed.
    NotReleased {
        /// The leadership that was to be given back.
        token: Token,
    },
    /// A grant was not entered, and is being given back.
    Declined {
        /// The leadership that was offered.
        token: Token,
        /// Why.
        why: Decline,
    },
    /// No longer contending, nothing held, nothing open.
    Withdrawn,
}

/// Why a leadership ended.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// The holder's user gave it back.
    Resigned,
    /// The holder's user gave it to somebody.
    HandedOver,
    /// The work ended by itself.
    Finished,
    /// This node was not fit to lead.
    HealthFailed,
    /// No renewal was acknowledged in time.
    Expired,
    /// An operator wanted somebody else.
    Evicted,
    /// The service says that the seat is not this leadership's any more.
    Superseded,
    /// It was never entered; see [`Decline`].
    Declined,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Resigned => "resigned",
            Reason::HandedOver => "handed over",
            Reason::Finished => "work finished",
            Reason::HealthFailed => "health failed",
            Reason::Expired => "lease expired",
            Reason::Evicted => "evicted",
            Reason::Superseded => "superseded",
            Reason::Declined => "declined",
        })
    }
}

/// Why a grant was not entered.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Decline {
    /// Too little of its validity was left when the answer came.
    TooLate,
    /// The user has withdrawn in the meantime.
    Unwanted,
    /// It is the last leadership, which has ended: its release never arrived.
    Leftover,
    /// Its token is smaller than one seen before. The service has lost its memory: whatever is fenced would refuse this leader.
    Regressed {
        /// The greatest token seen.
        seen: Token,
    },
}

impl fmt::Display for Decline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decline::TooLate => f.write_str("granted too late"),
            Decline::Unwanted => f.write_str("no longer wanted"),
            Decline::Leftover => f.write_str("left over from the last leadership"),
            Decline::Regressed { seen } => write!(f, "token is not greater than {seen}, seen before"),
        }
    }
}

/// What the holder is at an instant.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Not contending.
    Idle,
    /// Not in office, and wants to be (or still has to find out what became of a claim before it can withdraw).
    Contending,
    /// In office.
    Held {
        /// The leadership.
        token: Token,
        /// When it ends unless it is renewed.
        until: Instant,
    },
    /// In office, but no renewal has been acknowledged for a while.
    Jeopardy {
        /// The leadership.
        token: Token,
        /// When it ends unless it is renewed.
        until: Instant,
    },
    /// In office, and on the way out of it.
    Stopping {
        /// The leadership.
        token: Token,
        /// When it ends unless it is renewed.
        until: Instant,
    },
    /// Out of office, and work that should have ended has not.
    Lost {
        /// The leadership that ended.
        token: Token,
    },
    /// Out of office, the work has ended, the seat is being given back.
    Releasing {
        /// The leadership that ended.
        token: Token,
    },
}

impl State {
    /// The leadership and its end, for one that is in office.
    pub fn office(self) -> Option<(Token, Instant)> {
        match self {
            State::Held { token, until } | State::Jeopardy { token, until } | State::Stopping { token, until } => {
                Some((token, until))
            }
            State::Idle | State::Contending | State::Lost { .. } | State::Releasing { .. } => None,
        }
    }
}
