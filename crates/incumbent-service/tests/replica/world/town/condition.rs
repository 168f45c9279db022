//! What must be true of a store whenever it is looked at: it equals every other after the same entry (S4), no seat is free while somebody waits for it (LV4), and what ends by time ends soon
//! when nothing fails (L7).
//!
//! It is told what a store says, and sees none.

use std::collections::BTreeMap;

use incumbent_service::replica::Index;

use crate::world::MILLISECOND;

#[derive(Default)]
pub(crate) struct Condition {
    digests: BTreeMap<Index, u64>,
    /// How late something may end: nothing fails any more. None while something may.
    lateness_max: Option<u64>,
    /// The greatest lateness since then, in nanoseconds.
    pub(crate) lateness: u64,
    /// How often a store was compared with another.
    pub(crate) compared: u64,
    /// How often somebody waited, and rightly.
    pub(crate) waited: u64,
}

impl Condition {
    /// Nothing fails any more: from now on nothing may be later than this.
    pub(crate) fn calms_down(&mut self, lateness_max: u64) {
        self.lateness_max = Some(lateness_max);
    }

    /// Whether something may fail.
    pub(crate) fn storms(&self) -> bool {
        self.lateness_max.is_none()
    }

    /// S4: equal stores at equal places, however they came to be.
    pub(crate) fn on_digest(&mut self, index: Index, digest: u64) -> Result<(), String> {
        match self.digests.insert(index, digest) {
            Some(before) if before != digest => return Err(format!("S4: two stores differ after entry {index}")),
            Some(_) => self.compared += 1,
            None => {}
        }
        Ok(())
    }

    /// LV4: of so many seats so many are held or kept for somebody, and this one waits, if anyone whose session lives does.
    pub(crate) fn on_line(
        &mut self,
        index: Index,
        election: &str,
        seats: usize,
        taken: usize,
        waits: Option<&str>,
    ) -> Result<(), String> {
        let Some(waits) = waits else { return Ok(()) };
        if taken < seats {
            return Err(format!("LV4: {election} has a free seat after entry {index}, and {waits} waits"));
        }
        self.waited += 1;
        Ok(())
    }

    /// L7: by so many nanoseconds a store was behind with what ends by time.
    pub(crate) fn on_overdue(&mut self, index: Index, overdue: u64) -> Result<(), String> {
        let Some(max) = self.lateness_max else { return Ok(()) };
        self.lateness = self.lateness.max(overdue);
        if overdue <= max {
            return Ok(());
        }
        Err(format!("L7: at entry {index} something is {} ms overdue", overdue / MILLISECOND))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(what: Result<(), String>, which: &str) {
        assert!(what.as_ref().is_err_and(|it| it.starts_with(which)), "{what:?}");
    }

    #[test]
    fn stores_that_differ_after_the_same_entry_are_found() {
        let mut condition = Condition::default();
        assert_eq!((condition.on_digest(16, 5), condition.on_digest(32, 6)), (Ok(()), Ok(())));
        assert_eq!((condition.on_digest(16, 5), condition.compared), (Ok(()), 1));
        wrong(condition.on_digest(32, 5), "S4");
    }

    #[test]
    fn a_seat_that_is_free_while_somebody_waits_is_found() {
        let mut condition = Condition::default();
        assert_eq!(condition.on_line(3, "two", 2, 0, None), Ok(()), "nobody waits");
        assert_eq!((condition.on_line(3, "two", 2, 2, Some("a")), condition.waited), (Ok(()), 1));
        wrong(condition.on_line(3, "two", 2, 1, Some("a")), "LV4");
    }

    #[test]
    fn what_ends_late_is_found_when_nothing_fails_any_more() {
        let mut condition = Condition::default();
        assert_eq!((condition.on_overdue(3, 900), condition.storms()), (Ok(()), true), "while faults rage it may be late");
        condition.calms_down(100);
        assert_eq!((condition.on_overdue(4, 100), condition.storms()), (Ok(()), false));
        wrong(condition.on_overdue(5, 101), "L7");
        assert_eq!(condition.lateness, 101);
    }
}
