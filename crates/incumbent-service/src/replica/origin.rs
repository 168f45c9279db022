//! How a cluster began: with which members, and with what in its store.
//!
//! Its name alone does not say. Nodes restored from two backups, or a node that has served alone and others that were started empty, have one name and one another's numbers, and logs that never
//! were one: whoever would join them loses what one of them has confirmed. So every snapshot says how its cluster began, from the first one on, and nodes that began otherwise do not speak.

use ring::digest::{SHA256, digest};

use super::roll::Roll;

/// How a cluster began. The same on all of its nodes for as long as it lives, whoever comes and goes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// A digest of the first members.
    members: u64,
    /// A digest of the first store; 0 if that was empty.
    store: u64,
}

impl Origin {
    /// A cluster that begins with nothing. Does not depend on how an empty store is written: founders may be of two releases.
    pub fn empty(first: &Roll) -> Origin {
        Origin { members: members(first), store: 0 }
    }

    /// A cluster that begins with a store of this digest.
    pub fn restored(first: &Roll, store: u64) -> Origin {
        Origin { members: members(first), store: store.max(1) }
    }

    /// Whether these were the first members.
    pub fn is_with(&self, first: &Roll) -> bool {
        self.members == members(first)
    }

    /// As it is told and kept.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.members.to_be_bytes());
        bytes[8..].copy_from_slice(&self.store.to_be_bytes());
        bytes
    }

    /// None if it has another length.
    pub fn from_bytes(bytes: &[u8]) -> Option<Origin> {
        let number = u128::from_be_bytes(bytes.try_into().ok()?);
        Some(Origin { members: (number >> 64) as u64, store: number as u64 })
    }
}

fn members(first: &Roll) -> u64 {
    let numbers: Vec<u8> = first.voters().iter().flat_map(|it| it.0.to_be_bytes()).collect();
    digest(&SHA256, &numbers).as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use incumbent_protocol::protocol::NodeId;

    use super::*;

    /// A founder that is started for the first time after an update must be one of those that began before it.
    #[test]
    fn an_origin_is_what_it_was() {
        let roll = Roll::of([NodeId(3), NodeId(1), NodeId(2)]).expect("three voters");
        let hex = |origin: Origin| origin.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(Origin::empty(&roll)), "7b0b5ea3ff36958c0000000000000000");
        assert_eq!(hex(Origin::restored(&roll, 0xABCD)), "7b0b5ea3ff36958c000000000000abcd");
        assert_eq!(Origin::from_bytes(&Origin::restored(&roll, 7).to_bytes()), Some(Origin::restored(&roll, 7)));
        assert_eq!(Origin::from_bytes(&[0; 15]), None);
        let alone = Roll::of([NodeId(1)]).expect("a voter");
        assert!(Origin::restored(&roll, 7).is_with(&roll) && !Origin::empty(&roll).is_with(&alone));
    }
}
