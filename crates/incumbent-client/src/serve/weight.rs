//! How much a message would weigh, seen before it is made.
//!
//! An operation of a transaction is two bytes on the wire if it says nothing, and a hundred times as much in memory. So operations are counted where they lie, and a message with too many of
//! them is refused without having been made (C85, C89: what it costs is known before work is done).

use prost::bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint};

/// [`Asked::Submit`](crate::message::Asked::Submit) in a message to a server.
const SUBMIT: u32 = 11;
/// [`Command::Transact`](incumbent_store::command::Command::Transact) in a request.
const TRANSACT: u32 = 42;
/// In a transaction.
const GUARDS: u32 = 1;
const THEN: u32 = 2;
const OTHERWISE: u32 = 3;
/// [`Act::Transact`](incumbent_store::keys::transaction::Act::Transact) in an operation.
const NESTED: u32 = 4;
/// So deep are messages read, as prost does.
const DEPTH_MAX: usize = 100;

/// How many guards and operations a message to a server has, nested ones included; `None` if it cannot be read.
pub(super) fn operations(message: &[u8]) -> Option<usize> {
    sum(message, |field, request| match field {
        SUBMIT => sum(request, |field, transaction| if field == TRANSACT { in_transaction(transaction, 0) } else { Some(0) }),
        _ => Some(0),
    })
}

fn in_transaction(transaction: &[u8], depth: usize) -> Option<usize> {
    if depth > DEPTH_MAX {
        return None;
    }
    sum(transaction, |field, part| match field {
        GUARDS => Some(1),
        THEN | OTHERWISE => {
            let nested = sum(part, |field, act| if field == NESTED { in_transaction(act, depth + 1) } else { Some(0) })?;
            Some(nested + 1)
        }
        _ => Some(0),
    })
}

/// Adds up what the parts of a message weigh.
fn sum(mut message: &[u8], weigh: impl Fn(u32, &[u8]) -> Option<usize>) -> Option<usize> {
    let mut weight = 0usize;
    while message.has_remaining() {
        let (field, kind) = decode_key(&mut message).ok()?;
        let len = match kind {
            WireType::Varint => {
                decode_varint(&mut message).ok()?;
                0
            }
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => usize::try_from(decode_varint(&mut message).ok()?).ok()?,
            // Nobody has sent groups for years. What they hide would not be counted.
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        let (part, behind) = message.split_at_checked(len)?;
        message = behind;
        if kind == WireType::LengthDelimited {
            weight = weight.checked_add(weigh(field, part)?)?;
        }
    }
    Some(weight)
}

#[cfg(test)]
mod tests {
    use incumbent_store::command::{Command, Request};
    use incumbent_store::keys::transaction::{Act, Guard, Operation, Put, Transaction};
    use prost::Message;

    use super::*;
    use crate::message::{Asked, ToServer};

    fn weigh(transaction: Transaction) -> Option<usize> {
        let request = Request::of(Command::Transact(transaction));
        operations(&ToServer::new(1, Asked::Submit(request)).encode_to_vec())
    }

    #[test]
    fn operations_are_counted_where_they_lie() {
        let put = || Operation::from(Act::Put(Put { key: "\x22\x02\x12\x00".into(), ..Put::default() }));
        let inner = Transaction { guards: vec![Guard::default()], then: vec![put(), put()], otherwise: vec![put()] };
        assert_eq!(weigh(inner.clone()), Some(4));
        let nested = Operation::from(Act::Transact(inner.clone()));
        let outer =
            Transaction { guards: Vec::new(), then: vec![nested.clone(), put()], otherwise: vec![nested, Operation::default()] };
        assert_eq!(weigh(outer), Some(4 + 8));
        assert_eq!(operations(&[]), Some(0));
        assert_eq!(operations(&[0x5a, 0x05, 0x00]), None, "longer than it is");
        assert_eq!(operations(&[0x0b, 0x0c]), None, "groups");
    }

    #[test]
    fn no_depth_overflows_the_stack() {
        let mut bytes: Vec<u8> = Vec::new();
        for _ in 0..5_000 {
            for field in [NESTED, THEN] {
                let mut outer = Vec::new();
                prost::encoding::encode_key(field, WireType::LengthDelimited, &mut outer);
                prost::encoding::encode_varint(bytes.len() as u64, &mut outer);
                outer.append(&mut bytes);
                bytes = outer;
            }
        }
        assert_eq!(in_transaction(&bytes, 0), None);
    }
}
