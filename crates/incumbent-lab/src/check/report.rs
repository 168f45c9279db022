//! What a search has found, for a person to read.

use core::fmt;

use super::scope::Scope;

/// What must be true of every step.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Property {
    /// A term is held once, by one node.
    OneLeaderPerTerm,
    /// Whoever was voted into office has told votes of a quorum behind it.
    QuorumBehindLeader,
    /// A node votes for one candidate in a term, whatever crashes lie between.
    OneVotePerTerm,
    /// What a message claims is on the sender's disk when it leaves, and is there when the sender comes up again.
    PersistedBeforeTold,
    /// No node goes back to an earlier term, in its memory or on its disk, nor changes a vote.
    TermsRise,
    /// Only who was elected says so, and nobody else is followed.
    NoPretender,
    /// No machine stops on a broken invariant of its own.
    NoPanic,
    /// A machine that was woken asks for a later deadline: no timer spins.
    Rests,
}

impl Property {
    /// All of them.
    pub const ALL: [Property; 8] = [
        Property::OneLeaderPerTerm,
        Property::QuorumBehindLeader,
        Property::OneVotePerTerm,
        Property::PersistedBeforeTold,
        Property::TermsRise,
        Property::NoPretender,
        Property::NoPanic,
        Property::Rests,
    ];

    /// Its name: that of the oracle, where the lab has one for it.
    pub fn name(self) -> &'static str {
        match self {
            Property::OneLeaderPerTerm => "one_leader_per_term",
            Property::QuorumBehindLeader => "quorum_behind_leader",
            Property::OneVotePerTerm => "one_vote_per_term",
            Property::PersistedBeforeTold => "persisted_before_told",
            Property::TermsRise => "terms_rise",
            Property::NoPretender => "no_pretender",
            Property::NoPanic => "no_panic",
            Property::Rests => "rests",
        }
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a search must meet, or it has proved little.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Case {
    /// A leader was elected.
    Elected,
    /// Two nodes asked for the votes of one term; where nobody votes, two nodes contended at once.
    Contested,
    /// A leader was elected in a later term after an earlier one had crashed.
    Succeeded,
    /// A node came up again with a vote on its disk.
    Remembered,
}

impl Case {
    /// All of them.
    pub const ALL: [Case; 4] = [Case::Elected, Case::Contested, Case::Succeeded, Case::Remembered];

    /// The case in a few words.
    pub fn name(self) -> &'static str {
        match self {
            Case::Elected => "a leader was elected",
            Case::Contested => "two nodes wanted one term",
            Case::Succeeded => "a crashed leader was succeeded",
            Case::Remembered => "a node came up again with a vote on its disk",
        }
    }
}

/// Why a search ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// There is nothing more in the scope.
    Complete,
    /// As many states were found as the scope allows.
    Cut,
    /// It was told to stop.
    Stopped,
}

impl End {
    /// In one word, for programs.
    pub fn name(self) -> &'static str {
        match self {
            End::Complete => "complete",
            End::Cut => "cut",
            End::Stopped => "stopped",
        }
    }
}

/// What a search has found.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was searched.
    pub scope: Scope,
    /// Distinct states of the group that were visited.
    pub states: usize,
    /// Steps taken between them.
    pub transitions: u64,
    /// Steps from the beginning to the farthest state.
    pub depth: usize,
    /// Distinct states of single nodes.
    pub node_states: usize,
    /// Distinct messages.
    pub messages: usize,
    /// Why the search ended.
    pub end: End,
    /// In how many steps each of [`Case::ALL`] was met.
    pub met: [u64; Case::ALL.len()],
    /// What was broken: for each property the shortest way to break it.
    pub violations: Vec<Counterexample>,
}

impl Report {
    /// The cases that the search never met.
    pub fn never_met(&self) -> impl Iterator<Item = Case> {
        Case::ALL.into_iter().zip(self.met).filter(|(_, count)| *count == 0).map(|(case, _)| case)
    }
}

/// A way to break a property.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counterexample {
    /// What was broken.
    pub property: Property,
    /// How, in a sentence.
    pub text: String,
    /// The way there. From where the search began, no shorter one leads to a violation of this property.
    pub steps: Vec<Step>,
}

/// One step of a counterexample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// What happened: `2 -> 3 vote-request term=2 delivered`.
    pub action: String,
    /// What came of it: `3 writes term=2 vote=2`.
    pub effects: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.scope)?;
        let end = match self.end {
            End::Complete => "the whole scope",
            End::Cut => "cut there: not the whole scope",
            End::Stopped => "stopped there: not the whole scope",
        };
        writeln!(
            f,
            "  {} distinct states, {} steps between them, {} deep: {end}",
            Grouped(self.states as u64),
            Grouped(self.transitions),
            self.depth
        )?;
        writeln!(f, "  {} distinct states of a node, {} distinct messages", Grouped(self.node_states as u64), self.messages)?;
        for (case, count) in Case::ALL.into_iter().zip(self.met) {
            match count {
                0 => writeln!(f, "  never: {}", case.name())?,
                _ => writeln!(f, "  {} times: {}", Grouped(count), case.name())?,
            }
        }
        if self.violations.is_empty() {
            return writeln!(f, "  no violation");
        }
        self.violations.iter().try_for_each(|it| it.fmt(f))
    }
}

/// The steps are numbered, what came of each stands below it.
impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  violation of {}: {}", self.property, self.text)?;
        for (step, number) in self.steps.iter().zip(1..) {
            writeln!(f, "  {number:>3}. {}", step.action)?;
            for effect in &step.effects {
                writeln!(f, "         {effect}")?;
            }
        }
        Ok(())
    }
}

/// A number as people read it: `1,234,567`.
struct Grouped(u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::new();
        for (place, digit) in digits.chars().enumerate() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(Grouped(number).to_string(), text);
        }
    }
}
