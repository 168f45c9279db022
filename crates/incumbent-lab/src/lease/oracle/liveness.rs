//! LV4, after faults have ended: somebody gets the seat in time and keeps it; and when that one crashes, one who waits gets it in the
//! time that the timing promises for a failover. Nobody is left a zombie that no longer contends.
//!
//! Sometimes: one who waited took over after the crash.

use core::time::Duration;

use super::super::sighting::{HolderId, Sighting};
use super::{Oracle, note};
use crate::observation::Moment;
use crate::oracle::Violation;

/// Sees that a healthy world gets a holder and keeps it.
#[derive(Clone, Debug)]
pub struct Liveness {
    settled_within: Duration,
    failover_within: Duration,
    /// Who believes, as last seen, and until when.
    believer: Option<(HolderId, Moment)>,
    /// When faults ended.
    healed: Option<Moment>,
    /// When the one in office was crashed.
    decapitated: Option<Moment>,
    slowest_failover: Option<Duration>,
    violation: Option<Violation>,
}

impl Liveness {
    /// At the beginning of a run.
    pub fn new(settled_within: Duration, failover_within: Duration) -> Self {
        Self {
            settled_within,
            failover_within,
            believer: None,
            healed: None,
            decapitated: None,
            slowest_failover: None,
            violation: None,
        }
    }

    /// How long the failover took in the end.
    pub fn failover(&self) -> Option<Duration> {
        self.slowest_failover
    }

    fn settled_at(&self) -> Option<Moment> {
        self.healed.map(|healed| healed + self.settled_within)
    }

    /// From the time by which it must have settled until it is decapitated, somebody believes without a break.
    fn demand_believer(&mut self, at: Moment) {
        let Some(settled_at) = self.settled_at().filter(|settled_at| at >= *settled_at && self.decapitated.is_none()) else {
            return;
        };
        let within = self.settled_within;
        match self.believer {
            Some((_, until)) if until >= at => {}
            Some((holder, until)) if until >= settled_at => {
                note(&mut self.violation, Self::NAME, at, || {
                    format!("holder {holder} lost a seat that nobody contested, at {until}")
                });
            }
            Some(_) | None => {
                note(&mut self.violation, Self::NAME, at, || {
                    format!("nobody is in office {within:?} after all faults have ended")
                });
            }
        }
    }
}

impl Oracle for Liveness {
    const NAME: &'static str = "liveness";
    const SOMETIMES: &'static str = "one who waited took over after the one in office had crashed";

    fn see(&mut self, at: Moment, seen: &Sighting) {
        self.demand_believer(at);
        match *seen {
            Sighting::Believes { holder, until, .. } => {
                self.believer = Some((holder, until));
                if let Some(decapitated) = self.decapitated.filter(|_| self.slowest_failover.is_none()) {
                    let took = at - decapitated;
                    self.slowest_failover = Some(took);
                    let within = self.failover_within;
                    if took > within {
                        note(&mut self.violation, Self::NAME, at, || format!("the failover took {took:?}, more than {within:?}"));
                    }
                }
            }
            Sighting::Ceases { holder, .. } | Sighting::Crashed { holder } => {
                self.believer = self.believer.filter(|(believer, _)| *believer != holder);
            }
            Sighting::Healed => self.healed = Some(at),
            Sighting::Decapitated => self.decapitated = Some(at),
            Sighting::Started { .. }
            | Sighting::Granted { .. }
            | Sighting::Freed { .. }
            | Sighting::Entered { .. }
            | Sighting::WorkBegan { .. }
            | Sighting::WorkEnded { .. }
            | Sighting::Written { .. } => {}
        }
    }

    fn finish(&mut self, at: Moment) {
        self.demand_believer(at);
        if let Some(decapitated) = self.decapitated.filter(|_| self.slowest_failover.is_none()) {
            let waited = at - decapitated;
            if waited > self.failover_within {
                note(&mut self.violation, Self::NAME, at, || format!("nobody has taken over in {waited:?}"));
            }
        }
    }

    fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    fn sometimes(&self) -> u64 {
        u64::from(self.slowest_failover.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;

    fn oracle() -> Liveness {
        Liveness::new(Duration::from_millis(10), Duration::from_millis(5))
    }

    const HEALED: Sighting = Sighting::Healed;
    const DECAPITATED: Sighting = Sighting::Decapitated;

    #[test]
    fn a_healed_world_without_a_holder_is_a_violation_when_its_time_is_up() {
        assert!(verdict(&mut oracle(), 10, &[(0, HEALED)]).contains("nobody is in office"));
        assert_eq!(verdict(&mut oracle(), 9, &[(0, HEALED)]), "");
        assert_eq!(
            verdict(&mut oracle(), 11, &[(0, HEALED), (10, believes(1, 1, 20))]),
            "nobody is in office 10ms after all faults have ended"
        );
        assert_eq!(verdict(&mut oracle(), 11, &[(0, HEALED), (9, believes(1, 1, 20))]), "");
    }

    #[test]
    fn a_holder_that_loses_the_seat_in_fair_weather_is_a_violation() {
        let text = verdict(&mut oracle(), 30, &[(0, HEALED), (5, believes(1, 1, 20))]);
        assert!(text.contains("holder 1 lost a seat"), "{text}");
        let ceased = [(0, HEALED), (5, believes(1, 1, 20)), (12, ceases(1, 1)), (13, believes(2, 2, 40))];
        assert!(!verdict(&mut oracle(), 30, &ceased).is_empty());
    }

    #[test]
    fn a_failover_that_takes_too_long_or_for_ever_is_a_violation() {
        let until = |at: u64, more: Option<(u64, Sighting)>| {
            let mut it = oracle();
            let mut history = vec![(0, HEALED), (5, believes(1, 1, 40)), (20, DECAPITATED), (20, crashed(1))];
            history.extend(more);
            (verdict(&mut it, at, &history), it.sometimes())
        };
        assert!(until(26, None).0.contains("nobody has taken over"));
        assert!(until(40, Some((26, believes(2, 2, 50)))).0.contains("the failover took 6ms"));
        assert_eq!(until(40, Some((25, believes(2, 2, 50)))), (String::new(), 1));
    }
}
