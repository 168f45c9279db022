//! Which address is tried next.

/// So many addresses are remembered.
const ADDRESSES_MAX: usize = 64;

/// Where nodes may answer.
#[derive(Clone, Debug)]
pub(crate) struct Roster {
    /// In the order in which they are tried.
    addresses: Vec<String>,
}

impl Roster {
    pub(crate) fn new(addresses: impl IntoIterator<Item = String>) -> Roster {
        let mut roster = Roster { addresses: Vec::new() };
        roster.learn(addresses);
        roster
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    pub(crate) fn contains(&self, address: &str) -> bool {
        self.addresses.iter().any(|it| it == address)
    }

    /// One round: every address once.
    pub(crate) fn round(&self) -> Vec<String> {
        self.addresses.clone()
    }

    /// Addresses that others have told.
    pub(crate) fn learn(&mut self, addresses: impl IntoIterator<Item = String>) {
        for address in addresses {
            if !address.is_empty() && self.addresses.len() < ADDRESSES_MAX && !self.addresses.contains(&address) {
                self.addresses.push(address);
            }
        }
    }

    /// It is tried first.
    pub(crate) fn prefer(&mut self, address: &str) {
        self.learn([address.to_owned()]);
        if let Some(at) = self.addresses.iter().position(|it| it == address) {
            self.addresses[..=at].rotate_right(1);
        }
    }

    /// It is tried last.
    pub(crate) fn put_last(&mut self, address: &str) {
        if let Some(at) = self.addresses.iter().position(|it| it == address) {
            self.addresses[at..].rotate_left(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_tried_first_and_who_failed_last() {
        let mut roster = Roster::new(["a", "b", "c", "b", ""].map(str::to_owned));
        assert_eq!(roster.round(), ["a", "b", "c"]);
        roster.prefer("c");
        assert_eq!(roster.round(), ["c", "a", "b"]);
        roster.put_last("c");
        assert_eq!(roster.round(), ["a", "b", "c"]);
        roster.prefer("d");
        assert_eq!(roster.round(), ["d", "a", "b", "c"]);
        roster.put_last("nobody");
        roster.learn((0..100).map(|it| it.to_string()));
        assert_eq!(roster.round().len(), ADDRESSES_MAX);
    }
}
