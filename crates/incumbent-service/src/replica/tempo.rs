//! A replica's time: ticks for the engine, who stands first when a leader is proven dead, and whether this node keeps up with its own clock.
//!
//! A node that slept must not blame the leader for it: what it missed may be waiting at its door. A leader that slept counts every tick, for
//! in that time others may have elected another.

use incumbent_protocol::protocol::{NodeId, Term};
use incumbent_protocol::time::Instant;

use super::engine::Engine;
use super::exchange::Role;
use super::letter::{Kind, Raft};
use super::settings::{Reads, Settings};

/// How often a node asks for votes on the ground of one proof of death, before it waits for its timeout like everyone.
const VACANCY_TRIES_MAX: u32 = 4;

pub(super) struct Tempo {
    next_tick: Instant,
    /// Whether time was given back for a late awakening since the leader was last heard.
    graced: bool,
    /// Late awakenings in a row.
    late: u32,
    vacancy: Option<Vacancy>,
    /// A question for our vote that came while we still believed in the leader.
    parked: Option<(NodeId, Raft, Instant)>,
    last_leader: Option<NodeId>,
    /// Whose death was proven since a leader was last known. Who knocks at a closed door hears it again and again; it is news once.
    proven: Option<NodeId>,
    /// Before this, no vote: in its former life this node may have promised a leader that there would be no other.
    quiet_until: Instant,
    transfer_until: Option<Instant>,
}

/// The leader is dead: when to stand, in which term, how often it was tried.
struct Vacancy {
    at: Instant,
    term: Term,
    tries: u32,
}

impl Tempo {
    pub(super) fn new(now: Instant, settings: &Settings, engine: &Engine) -> Tempo {
        let quiet = match settings.reads {
            Reads::Quorum => now,
            // Its own clock may be the fast one, and the leader's the slow one.
            Reads::Lease { drift_ppm } => now + settings.election_timeout().mul_f64(1.0 + 3.0 * f64::from(drift_ppm) / 1e6),
        };
        let vacancy = engine.alone().then(|| Vacancy { at: now, term: engine.term(), tries: 0 });
        Tempo {
            next_tick: now + settings.tick,
            graced: false,
            late: 0,
            vacancy,
            parked: None,
            last_leader: None,
            proven: None,
            quiet_until: quiet,
            transfer_until: None,
        }
    }

    /// Gives the engine the ticks that have passed, and stands if it is time.
    pub(super) fn advance(&mut self, now: Instant, settings: &Settings, engine: &mut Engine) {
        if now >= self.next_tick {
            let passed = (now - self.next_tick).as_nanos() / settings.tick.as_nanos() + 1;
            let passed = u32::try_from(passed).unwrap_or(u32::MAX);
            let given = self.ticks_to_give(now, passed, settings, engine);
            let leads = engine.leads();
            for _ in 0..given {
                engine.tick();
                if engine.leads() != leads {
                    break;
                }
            }
            self.next_tick = self.next_tick + settings.tick.saturating_mul(passed);
        }
        self.fill_vacancy(now, settings, engine);
    }

    fn ticks_to_give(&mut self, now: Instant, passed: u32, settings: &Settings, engine: &Engine) -> u32 {
        let left = engine.ticks_left().unwrap_or(u32::MAX);
        let due = self.next_tick + settings.tick.saturating_mul(left - 1);
        let lateness = now - due;
        if now >= due {
            self.late = if lateness >= settings.lateness.by { self.late + 1 } else { 0 };
        }
        // Twice the timeout, and a leader has seen every quorum it could have lost.
        let passed = passed.min(2 * settings.election_ticks + 2);
        if engine.leads() || self.graced || now < due || lateness < settings.tick * settings.heartbeat_ticks {
            return passed;
        }
        self.graced = true;
        passed.min(left.saturating_sub(settings.heartbeat_ticks))
    }

    fn fill_vacancy(&mut self, now: Instant, settings: &Settings, engine: &mut Engine) {
        let Some(vacancy) = &mut self.vacancy else { return };
        if engine.leader().is_some() || engine.term() != vacancy.term || vacancy.tries >= VACANCY_TRIES_MAX {
            self.vacancy = None;
        } else if vacancy.at <= now {
            vacancy.tries += 1;
            vacancy.at = now + settings.stagger * engine.roll().voters().len() as u32;
            engine.stand();
        }
    }

    /// The process of `peer` is dead. If we followed it, the first in line stands at once, and the others if that has not helped.
    pub(super) fn on_death(&mut self, now: Instant, id: NodeId, peer: NodeId, settings: &Settings, engine: &mut Engine) {
        if engine.leads() || engine.leader().or(self.last_leader) != Some(peer) || self.proven == Some(peer) {
            return;
        }
        self.proven = Some(peer);
        engine.forget_leader();
        let parked =
            self.parked.take().filter(|(_, raft, came)| raft.term > engine.term().0 && now < *came + settings.election_timeout());
        let asked = parked.is_some_and(|(from, raft, _)| engine.receive(from, &raft).is_ok());
        let heirs = engine.roll().voters().iter().filter(|it| **it != peer);
        // Round the ring from the dead one on, so that not always the same node leads.
        let mut line: Vec<NodeId> = heirs.copied().collect();
        line.sort_by_key(|it| (*it < peer, *it));
        let Some(place) = line.iter().position(|it| *it == id) else { return };
        let place = if asked { place.max(1) } else { place };
        self.vacancy = Some(Vacancy { at: now + settings.stagger * place as u32, term: engine.term(), tries: 0 });
        self.fill_vacancy(now, settings, engine);
    }

    /// Whether a message of the engine may be heard at all.
    pub(super) fn may_hear(&mut self, now: Instant, from: NodeId, raft: &Raft, engine: &Engine) -> bool {
        let asks = raft.kind == Kind::VoteRequest as i32 || raft.kind == Kind::PreVoteRequest as i32;
        if asks && now < self.quiet_until {
            return false;
        }
        if raft.kind == Kind::PreVoteRequest as i32 && engine.leader().is_some_and(|it| it != from) {
            self.parked = Some((from, raft.clone(), now));
        }
        true
    }

    pub(super) fn on_leader_heard(&mut self) {
        self.graced = false;
    }

    pub(super) fn on_role(&mut self, role: Role) {
        self.last_leader = role.leader.or(self.last_leader);
        if role.leader.is_some() {
            self.proven = None;
        }
        self.transfer_until = None;
        self.late = 0;
    }

    pub(super) fn on_transfer(&mut self, now: Instant, settings: &Settings) {
        self.transfer_until = Some(now + settings.election_timeout());
    }

    /// Whether the leadership was to go elsewhere just now, and has not. What failed longer ago says nothing of the next attempt.
    pub(super) fn transfer_failed(&self, now: Instant, settings: &Settings) -> bool {
        self.transfer_until.is_some_and(|until| until <= now && now < until + settings.election_timeout())
    }

    /// Whether this node is woken too late too often.
    pub(super) fn too_late(&self, settings: &Settings) -> bool {
        self.late >= settings.lateness.times
    }

    pub(super) fn deadline(&self, settings: &Settings, engine: &Engine) -> Option<Instant> {
        let tick = engine.ticks_left().map(|left| self.next_tick + settings.tick.saturating_mul(left - 1));
        [tick, self.vacancy.as_ref().map(|it| it.at)].into_iter().flatten().min()
    }

    /// `at`, or if that is over, the next tick: nothing that was done in vain is done again before.
    pub(super) fn not_before(&self, at: Instant) -> Instant {
        at.max(self.next_tick)
    }
}
