//! Those who wait for a seat: the greater priority first, then whoever came first. A candidate has one place.

use alloc::boxed::Box;
use alloc::string::String;
use core::cmp::Reverse;
use core::ops::Bound;

use crate::election::Candidate;
use crate::limits::Limits;
use crate::tree::Tree;

/// Priority and arrival.
type Place = (Reverse<i32>, u64);

/// Those who wait. In most elections nobody does, and an empty line costs next to nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line(Option<Box<Places>>);

#[derive(Clone, Debug, Default)]
struct Places {
    candidates: Tree<Place, Candidate>,
    by_identity: Tree<String, Place>,
    /// Several may have one name.
    by_name: Tree<(String, Place), ()>,
}

impl Line {
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |it| it.candidates.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Next one first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Candidate> {
        self.0.iter().flat_map(|it| it.candidates.values())
    }

    pub(crate) fn first(&self) -> Option<&Candidate> {
        self.iter().next()
    }

    pub(crate) fn find(&self, identity: &str) -> Option<&Candidate> {
        let places = self.0.as_ref()?;
        places.candidates.get(places.by_identity.get(identity)?)
    }

    /// The candidate of this identity, or else the first of this name.
    pub(crate) fn named(&self, to: &str) -> Option<&Candidate> {
        self.find(to).or_else(|| {
            let places = self.0.as_ref()?;
            let first = (String::from(to), (Reverse(i32::MAX), 0));
            let ((_, place), ()) = places.by_name.from(Bound::Included(&first)).next().filter(|(it, ())| it.0 == to)?;
            places.candidates.get(place)
        })
    }

    /// Takes a place. Whoever has one already keeps its arrival.
    pub(crate) fn stand(&mut self, mut candidate: Candidate) {
        if let Some(before) = self.leave(&candidate.identity) {
            candidate.arrival = before.arrival;
        }
        let place = (Reverse(candidate.priority), candidate.arrival);
        let places = self.0.get_or_insert_default();
        places.by_identity.insert(candidate.identity.clone(), place);
        places.by_name.insert((candidate.name.clone(), place), ());
        places.candidates.insert(place, candidate);
    }

    pub(crate) fn leave(&mut self, identity: &str) -> Option<Candidate> {
        let places = self.0.as_mut()?;
        let (_, place) = places.by_identity.remove(identity)?;
        let (_, candidate) = places.candidates.remove(&place)?;
        places.by_name.remove(&(candidate.name.clone(), place));
        if places.candidates.is_empty() {
            self.0 = None;
        }
        Some(candidate)
    }

    /// 1 is first. Told up to [`Limits::PLACE_TOLD_MAX`]: counting a long line for each who asks would cost its square.
    pub(crate) fn place(&self, identity: &str) -> Option<u32> {
        let places = self.0.as_ref()?;
        let place = places.by_identity.get(identity)?;
        let ahead = places.candidates.keys().take(Limits::PLACE_TOLD_MAX as usize - 1).take_while(|it| *it < place).count();
        Some(ahead as u32 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(identity: &str, priority: i32, arrival: u64) -> Candidate {
        Candidate { identity: identity.into(), name: identity[..1].into(), priority, arrival, ..Candidate::default() }
    }

    #[test]
    fn priority_goes_before_arrival_and_arrival_is_kept() {
        let mut line = Line::default();
        for (identity, priority, arrival) in [("a1", 0, 1), ("b1", 5, 2), ("c1", 0, 3), ("c2", i32::MIN, 4)] {
            line.stand(candidate(identity, priority, arrival));
        }
        let order = |line: &Line| line.iter().map(|it| it.identity.clone()).collect::<alloc::vec::Vec<_>>();
        assert_eq!(order(&line), ["b1", "a1", "c1", "c2"]);
        line.stand(candidate("a1", 0, 9));
        assert_eq!(order(&line), ["b1", "a1", "c1", "c2"]);
        line.stand(candidate("c2", 5, 9));
        assert_eq!(order(&line), ["b1", "c2", "a1", "c1"]);
        assert_eq!((line.place("b1"), line.place("c1"), line.place("x")), (Some(1), Some(4), None));
        assert_eq!(line.named("c").map(|it| it.identity.as_str()), Some("c2"));
        assert!(line.named("").is_none() && line.named("c3").is_none() && line.named("d").is_none());
        assert_eq!(line.named("c1").map(|it| it.identity.as_str()), Some("c1"));
        assert!(line.leave("b1").is_some() && line.leave("b1").is_none());
        let places = line.0.as_ref().expect("some wait");
        assert_eq!((line.len(), places.by_identity.len(), places.by_name.len()), (3, 3, 3));
        assert!(line.leave("a1").is_some() && line.leave("c1").is_some() && !line.is_empty());
        assert!(line.leave("c2").is_some() && line.is_empty() && line.first().is_none());
    }
}
