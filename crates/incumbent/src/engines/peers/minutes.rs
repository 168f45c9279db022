//! What the nodes of a group tell each other of an election besides who leads: the holder's name and value, who led before, what was noted. Pure.
//!
//! Every node keeps a copy and merges what it hears into it. Merging is commutative, associative and idempotent, so that copies which have heard the same things
//! are the same, in whatever order they came. Nothing here decides who leads: that is the machines' business, and a copy may lag behind.

use incumbent_protocol::protocol::Token;
use serde::{Deserialize, Serialize};

use crate::desk::{Holder, Kept, token_as_number, wall_ms};
use crate::engine::{Note, Past};

/// A copy of the minutes of an election.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Minutes {
    /// Who took the seat last, with the greatest token; in office unless `past` says otherwise. Its `beat` counts what it published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) holder: Option<Holder>,
    /// Leaderships that have ended, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) past: Vec<Past>,
    /// What was noted of leaderships, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<Noted>,
    /// For whom the seat was kept when the last leadership ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kept: Option<KeptAfter>,
}

/// A note, and how often there has been one for this leadership.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Noted {
    #[serde(with = "token_as_number")]
    token: Token,
    text: String,
    edition: u64,
}

/// For whom the seat is kept after the leadership with this token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct KeptAfter {
    #[serde(with = "token_as_number")]
    pub(super) after: Token,
    pub(super) kept: Kept,
}

/// A node that only sees that the leader is gone cannot know more; whoever knows more is believed.
pub(super) const EXPIRED: &str = "lease expired";

impl Minutes {
    /// Takes in what another copy says. Whether anything was new.
    pub(super) fn merge(&mut self, other: Minutes) -> bool {
        let before = self.clone();
        for past in other.past {
            self.add_past(past);
        }
        for noted in other.notes {
            self.add_note(noted);
        }
        if let Some(theirs) = other.holder
            && self.holder.as_ref().is_none_or(|ours| rank(&theirs) > rank(ours))
        {
            self.holder = Some(theirs);
        }
        if let Some(theirs) = other.kept
            && self.kept.as_ref().is_none_or(|ours| (theirs.after, &theirs.kept.to) > (ours.after, &ours.kept.to))
        {
            self.kept = Some(theirs);
        }
        *self != before
    }

    /// Somebody has taken the seat. Whoever is still thought to have it has left without a word, for this reason.
    pub(super) fn seat(&mut self, holder: Holder, fate_of_the_former: &str) {
        self.end(None, fate_of_the_former);
        self.holder = Some(holder);
    }

    /// The leadership with this token, or whichever is the last, has ended.
    pub(super) fn end(&mut self, token: Option<Token>, reason: &str) {
        let Some(holder) = self.sitting().filter(|it| token.is_none_or(|token| token == it.token)).cloned() else { return };
        self.add_past(Past {
            identity: holder.identity,
            token: holder.token,
            since_ms: holder.since_ms,
            until_ms: wall_ms(),
            reason: reason.to_owned(),
        });
    }

    /// The last holder, unless its leadership is known to have ended.
    pub(super) fn sitting(&self) -> Option<&Holder> {
        self.holder.as_ref().filter(|it| self.past.iter().all(|past| past.token != it.token))
    }

    /// The holder publishes something else.
    pub(super) fn publish(&mut self, token: Token, value: &str) -> bool {
        match &mut self.holder {
            Some(holder) if holder.token == token => {
                value.clone_into(&mut holder.value);
                holder.beat += 1;
                true
            }
            Some(_) | None => false,
        }
    }

    pub(super) fn annotate(&mut self, token: Token, text: &str) {
        let edition = self.notes.iter().find(|it| it.token == token).map_or(1, |it| it.edition + 1);
        self.add_note(Noted { token, text: text.to_owned(), edition });
    }

    pub(super) fn notes(&self) -> Vec<Note> {
        self.notes.iter().map(|it| Note { token: it.token, text: it.text.clone() }).collect()
    }

    fn add_past(&mut self, new: Past) {
        match self.past.iter_mut().find(|it| it.token == new.token) {
            Some(known) => {
                if certainty(&new) > certainty(known) {
                    *known = new;
                }
            }
            None => {
                let at = self.past.iter().position(|it| it.token < new.token).unwrap_or(self.past.len());
                self.past.insert(at, new);
                self.past.truncate(Past::KEPT_MAX);
            }
        }
    }

    fn add_note(&mut self, new: Noted) {
        match self.notes.iter_mut().find(|it| it.token == new.token) {
            Some(known) => {
                if (new.edition, &new.text) > (known.edition, &known.text) {
                    *known = new;
                }
            }
            None => {
                let at = self.notes.iter().position(|it| it.token < new.token).unwrap_or(self.notes.len());
                self.notes.insert(at, new);
                self.notes.truncate(Past::KEPT_MAX);
            }
        }
    }
}

/// Which of two copies of a holder is the later one; the rest only makes that an order.
fn rank(holder: &Holder) -> (Token, u64, &str, &str) {
    (holder.token, holder.beat, holder.identity.as_str(), &holder.value)
}

/// Which of two accounts of an end is to be believed.
fn certainty(past: &Past) -> (bool, u64, &str) {
    (past.reason != EXPIRED, u64::MAX - past.until_ms, &past.reason)
}

#[cfg(test)]
mod tests {
    use incumbent_protocol::protocol::Term;

    use super::*;
    use crate::identity::Identity;

    fn token(term: u64) -> Token {
        Token::new(0, Term(term)).expect("fits")
    }

    fn holder(name: &str, term: u64, beat: u64) -> Holder {
        Holder {
            identity: Identity::stored(name),
            token: token(term),
            value: format!("{name}{beat}"),
            priority: 0,
            ttl_ms: 1000,
            since_ms: 1,
            beat,
            renewed_ms: None,
        }
    }

    /// Some copies that have heard different things.
    fn copies() -> Vec<Minutes> {
        let mut first = Minutes::default();
        first.seat(holder("a", 1, 0), EXPIRED);
        let mut second = first.clone();
        second.publish(token(1), "new");
        second.annotate(token(1), "begun");
        let mut third = first.clone();
        third.end(Some(token(1)), "resigned");
        third.kept = Some(KeptAfter { after: token(1), kept: Kept { to: "b".into(), ms: 5 } });
        let mut fourth = first.clone();
        fourth.seat(holder("b", 3, 0), EXPIRED);
        fourth.annotate(token(3), "b's");
        fourth.annotate(token(3), "b's, again");
        vec![Minutes::default(), first, second, third, fourth]
    }

    #[test]
    fn copies_that_have_heard_the_same_are_the_same_in_whatever_order() {
        let copies = copies();
        let all = |order: &[usize]| {
            let mut merged = Minutes::default();
            for &at in order {
                merged.merge(copies[at].clone());
                assert!(!merged.merge(copies[at].clone()), "twice is as good as once");
            }
            merged
        };
        let expected = all(&[0, 1, 2, 3, 4]);
        for order in [[4, 3, 2, 1, 0], [2, 0, 4, 1, 3], [3, 4, 0, 2, 1], [1, 4, 3, 0, 2]] {
            assert_eq!(all(&order), expected);
        }
        assert_eq!(expected.sitting().map(|it| it.token), Some(token(3)));
        assert_eq!(
            expected.past.iter().map(|it| it.reason.as_str()).collect::<Vec<_>>(),
            ["resigned"],
            "the word of one that knows"
        );
        let notes: Vec<_> = expected.notes().into_iter().map(|it| it.text).collect();
        assert_eq!(notes, ["b's, again", "begun"]);
    }

    #[test]
    fn one_that_has_left_does_not_sit_any_more_and_cannot_publish_for_another() {
        let mut minutes = Minutes::default();
        minutes.seat(holder("a", 1, 0), EXPIRED);
        minutes.end(Some(token(2)), "resigned");
        assert!(minutes.sitting().is_some(), "another's end");
        minutes.end(Some(token(1)), "resigned");
        assert!(minutes.sitting().is_none());
        assert!(!minutes.publish(token(2), "x"));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut minutes = Minutes::default();
        for term in 1..100 {
            minutes.seat(holder("a", term, 0), EXPIRED);
            minutes.annotate(token(term), "x");
        }
        assert_eq!((minutes.past.len(), minutes.notes.len()), (Past::KEPT_MAX, Past::KEPT_MAX));
        assert_eq!(minutes.past[0].token, token(98));
    }
}
