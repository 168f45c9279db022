//! Who may hold office: votes asked for, given and counted.
//!
//! Two promises hold this file together: a node votes at most once in a term, and a vote is on disk before anyone hears of it.

use alloc::vec;
use alloc::vec::Vec;

use super::{Answer, Held, Mandate, Notice, Office, OfficeMessage, Promise, Reign, Round, Seat, Voting};
use crate::protocol::{Effects, Event, NodeId, Term};
use crate::settings::PreVote;
use crate::time::Instant;

/// A request for votes under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Ballot {
    pub(super) until: Instant,
    round: Round,
    term: Term,
    released: Term,
    /// When the requests were made: never after they were sent.
    sent: Instant,
    granted: Voters,
    refused: Voters,
}

impl Office {
    /// Asks the others for the office, or first whether they would give it.
    pub(super) fn stand<M: From<OfficeMessage>>(&mut self, now: Instant, mandate: Mandate, out: &mut Effects<M>) -> Notice {
        let released = match mandate {
            Mandate::Vacancy => Term(0),
            Mandate::HandedOver(term) => term,
        };
        let Some(term) = self.next_term() else { return Notice::Nothing };
        if !self.is_free_for(self.me, released, now) {
            // Our own vote is promised to another for a little longer.
            self.due_at = self.promise.until + self.nudge();
            return Notice::Nothing;
        }
        if self.voting == Voting::Always || mandate != Mandate::Vacancy {
            // Otherwise the contest that led here has said so already.
            self.contends(out);
        }
        let asks_first = self.settings.pre_vote() == PreVote::On && mandate == Mandate::Vacancy;
        if asks_first {
            self.open(now, Round::Pre, term, released);
            return self.ask(now, out);
        }
        self.stand_in_earnest(now, term, released, out);
        Notice::Nothing
    }

    /// Votes for itself and, once that is safe, asks the others.
    fn stand_in_earnest<M>(&mut self, now: Instant, term: Term, released: Term, out: &mut Effects<M>) {
        assert!(!self.abstains, "who abstains asks for no votes");
        (self.term, self.vote, self.leader) = (term, Some(self.me), None);
        self.promise = Promise { to: Some(self.me), term, until: now };
        self.open(now, Round::Real, term, released);
        self.persist(out);
        self.hold(Held::AskForVotes { term });
    }

    fn open(&mut self, now: Instant, round: Round, term: Term, released: Term) {
        self.wait(now);
        let voters = self.settings.members().len();
        self.seat = Seat::Candidate(Ballot {
            until: self.due_at,
            round,
            term,
            released,
            sent: now,
            granted: Voters::none(voters),
            refused: Voters::none(voters),
        });
    }

    /// Our own vote for `term` is on disk.
    pub(super) fn ask_for_votes<M: From<OfficeMessage>>(&mut self, now: Instant, term: Term, out: &mut Effects<M>) -> Notice {
        match &self.seat {
            Seat::Candidate(ballot) if ballot.round == Round::Real && ballot.term == term => self.ask(now, out),
            Seat::Follower | Seat::Candidate(_) | Seat::Leader(_) => Notice::Nothing,
        }
    }

    /// Sends the requests and counts our own vote.
    fn ask<M: From<OfficeMessage>>(&mut self, now: Instant, out: &mut Effects<M>) -> Notice {
        let Seat::Candidate(ballot) = &self.seat else { return Notice::Nothing };
        let (term, round, released, sent) = (ballot.term, ballot.round, ballot.released, ballot.sent);
        for to in self.others() {
            out.send(to, OfficeMessage::VoteRequest { term, round, released, sent });
        }
        self.count(now, self.me, Answer::Granted, out)
    }

    /// Answers a request for our vote.
    #[allow(clippy::too_many_arguments, reason = "the fields of one message")]
    pub(super) fn on_vote_request<M: From<OfficeMessage>>(
        &mut self,
        now: Instant,
        from: NodeId,
        term: Term,
        round: Round,
        released: Term,
        sent: Instant,
        out: &mut Effects<M>,
    ) {
        let answer = if term < self.term || (round == Round::Pre && term == self.term) {
            Answer::Stale
        } else if !self.is_free_for(from, released, now) {
            // Thesis 4.2.3: whoever hears a leader lets nobody talk it into a later term.
            let loyal = self.leader.is_some_and(|leader| leader == self.me || self.promise.to == Some(leader));
            if loyal { Answer::Loyal } else { Answer::Bound }
        } else if !match round {
            Round::Pre => self.defers_to(now, from, out),
            Round::Real => term > self.term || self.vote.is_none_or(|it| it == from),
        } {
            Answer::Taken
        } else {
            Answer::Granted
        };
        if answer != Answer::Granted {
            self.say(from, OfficeMessage::Vote { term: self.term, round, answer, sent }, out);
            // It may not have heard of us: a leader says so.
            self.assure(now, from, out);
            return;
        }
        if round == Round::Real {
            if term > self.term {
                self.adopt(now, term, out);
            }
            if self.vote != Some(from) {
                self.vote = Some(from);
                self.persist(out);
            }
            self.promise = Promise { to: Some(from), term, until: now + self.settings.pace().patience_min };
            self.wait(now);
        } else if self.hurries > 0 {
            // The office is free and it was quicker: our own turn waits for what comes of it.
            self.wait_for(now, self.settings.pace().reply / 2);
        }
        self.say(from, OfficeMessage::Vote { term, round, answer, sent }, out);
    }

    /// Two that ask at the same time would both be told yes and then split the votes. So the lesser one gives up its question;
    /// since a pre-vote binds nobody, any order will do.
    ///
    /// A question that found no quorum in the time that an answer takes is no rival any more, and who has asked in vain before is none at
    /// all: a node that reaches too few asks on and on, and would for ever keep those few from the one node that reaches enough (C20, C23).
    fn defers_to<M>(&mut self, now: Instant, other: NodeId, out: &mut Effects<M>) -> bool {
        let Seat::Candidate(Ballot { round: Round::Pre, sent, term, .. }) = &self.seat else { return true };
        if self.asked_in_vain || now - *sent > self.settings.pace().reply {
            return true;
        }
        let weight = |node| (self.settings.priority(node), node);
        let defers = weight(other) > weight(self.me);
        if defers {
            out.emit(Event::Rejected { term: *term });
            self.seat = Seat::Follower;
            self.wait(now);
        }
        defers
    }

    /// Whether nothing binds us to another than `candidate`.
    fn is_free_for(&self, candidate: NodeId, released: Term, now: Instant) -> bool {
        if let Seat::Leader(reign) = &self.seat {
            return reign.has_ended(now);
        }
        self.promise.until <= now || self.promise.to == Some(candidate) || (released > Term(0) && self.promise.term <= released)
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one message")]
    pub(super) fn on_vote<M: From<OfficeMessage>>(
        &mut self,
        now: Instant,
        from: NodeId,
        term: Term,
        round: Round,
        answer: Answer,
        sent: Instant,
        out: &mut Effects<M>,
    ) -> Notice {
        if answer != Answer::Granted && term > self.term {
            let was_candidate = matches!(self.seat, Seat::Candidate(_));
            self.adopt(now, term, out);
            self.persist(out);
            return if was_candidate { Notice::Rejected } else { Notice::Nothing };
        }
        match &self.seat {
            Seat::Candidate(ballot)
                if ballot.round == round && ballot.sent == sent && (answer != Answer::Granted || ballot.term == term) =>
            {
                self.count(now, from, answer, out)
            }
            Seat::Follower | Seat::Candidate(_) | Seat::Leader(_) => Notice::Nothing,
        }
    }

    fn count<M: From<OfficeMessage>>(&mut self, now: Instant, from: NodeId, answer: Answer, out: &mut Effects<M>) -> Notice {
        let needed = self.settings.quorum().unwrap_or(self.settings.majority());
        let members = self.settings.members().len();
        let dead = self.buried().and_then(|it| self.settings.rank(it));
        let (Seat::Candidate(ballot), Some(rank)) = (&mut self.seat, self.settings.rank(from)) else { return Notice::Nothing };
        if answer != Answer::Granted {
            ballot.refused.add(rank);
            // Who is dead will not answer any more.
            let silent = usize::from(dead.is_some_and(|it| !ballot.refused.has(it) && !ballot.granted.has(it)));
            return if ballot.refused.count() + silent > members - needed { self.reject(now, out) } else { Notice::Nothing };
        }
        ballot.granted.add(rank);
        if ballot.granted.count() < needed {
            return Notice::Nothing;
        }
        let (term, released) = (ballot.term, ballot.released);
        match ballot.round {
            Round::Pre => {
                self.stand_in_earnest(now, term, released, out);
                Notice::Nothing
            }
            Round::Real => {
                let reign = Reign::elected(now, &self.settings, self.me, ballot.sent, &ballot.granted);
                if reign.has_ended(now) {
                    // The votes were so long on the way that the voters are no longer bound.
                    return self.reject(now, out);
                }
                self.enter(now, reign, out);
                Notice::Elected
            }
        }
    }

    /// The ballot is lost. What is left of its time is waited out before the next.
    pub(super) fn reject<M>(&mut self, now: Instant, out: &mut Effects<M>) -> Notice {
        if let Seat::Candidate(ballot) = &self.seat {
            out.emit(Event::Rejected { term: ballot.term });
            self.due_at = ballot.until.max(now);
            self.seat = Seat::Follower;
            if self.hurries > 0 {
                self.hurries -= 1;
                let soon = now + self.settings.pace().reply / 2 + self.nudge();
                self.due_at = self.due_at.min(soon);
            }
        }
        Notice::Rejected
    }
}

/// A set of members by rank.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Voters {
    bits: Vec<u64>,
    count: usize,
}

impl Voters {
    fn none(members: usize) -> Self {
        Self { bits: vec![0; members.div_ceil(64)], count: 0 }
    }

    fn add(&mut self, rank: usize) {
        let (word, bit) = (rank / 64, 1 << (rank % 64));
        if self.bits[word] & bit == 0 {
            self.bits[word] |= bit;
            self.count += 1;
        }
    }

    pub(super) fn has(&self, rank: usize) -> bool {
        self.bits[rank / 64] & (1 << (rank % 64)) != 0
    }

    fn count(&self) -> usize {
        self.count
    }
}
