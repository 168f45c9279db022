//! The cases that a swarm must have met before its silence means anything.

/// Something that is meant to happen in some worlds.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Case {
    /// C13: a process stood still while its leadership ran out.
    PausedAcrossDeadline,
    /// C32: an answer came after the time that a call may take.
    ReplyAfterTimeout,
    /// C32: a grant came when its validity was already gone.
    ReplyAfterValidity,
    /// C76: a claim of unknown outcome turned out to have been granted, and was entered.
    UnknownClaimWasGranted,
    /// A grant was not entered because it came too late.
    DeclinedTooLate,
    /// A grant was not entered because its holder had withdrawn.
    DeclinedUnwanted,
    /// A seat was found that had been given back, but not taken back.
    DeclinedLeftover,
    /// A call arrived twice.
    CallRepeated,
    /// A holder was warned and recovered.
    Recovered,
    /// A leadership ended because it could not be renewed.
    LostByExpiry,
    /// A leadership ended on the service's word.
    Superseded,
    /// Work ran on after its leadership was over.
    WorkOverran,
    /// The service went down while the seat was taken.
    OutageWhileHeld,
    /// A holder contended again after a loss and got the seat back.
    CameBack,
}

impl Case {
    /// All of them.
    pub const ALL: [Case; 14] = [
        Case::PausedAcrossDeadline,
        Case::ReplyAfterTimeout,
        Case::ReplyAfterValidity,
        Case::UnknownClaimWasGranted,
        Case::DeclinedTooLate,
        Case::DeclinedUnwanted,
        Case::DeclinedLeftover,
        Case::CallRepeated,
        Case::Recovered,
        Case::LostByExpiry,
        Case::Superseded,
        Case::WorkOverran,
        Case::OutageWhileHeld,
        Case::CameBack,
    ];
}

/// How often each case came up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally([u64; Case::ALL.len()]);

impl Tally {
    /// One more.
    pub fn count(&mut self, case: Case) {
        self.0[case as usize] += 1;
    }

    /// How often it came up.
    pub fn of(&self, case: Case) -> u64 {
        self.0[case as usize]
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Tally) {
        for (mine, others) in self.0.iter_mut().zip(other.0) {
            *mine += others;
        }
    }

    /// What never came up.
    pub fn never(&self) -> impl Iterator<Item = Case> {
        Case::ALL.into_iter().filter(|case| self.of(*case) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_has_a_count_of_its_own() {
        let mut tally = Tally::default();
        for (index, case) in Case::ALL.into_iter().enumerate() {
            assert_eq!(tally.never().count(), Case::ALL.len() - index);
            tally.count(case);
        }
        let mut sum = tally.clone();
        sum.add(&tally);
        assert!(Case::ALL.into_iter().all(|case| sum.of(case) == 2));
    }
}
