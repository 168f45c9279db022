//! Any bytes from a wire: no panic, and what is taken for a packet comes back the same when it is sent on.

#![no_main]

use incumbent_peer::packet::{MEMBER_FRAME_MAX, Packet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // As they come.
    let _ = Packet::decode(bytes, MEMBER_FRAME_MAX);
    // With a head that fits, which no fuzzer would find.
    let Ok(len) = u32::try_from(bytes.len()) else { return };
    let frame = [&len.to_le_bytes(), &crc32c::crc32c(bytes).to_le_bytes(), bytes].concat();
    if let Ok(Some((packet, used))) = Packet::decode(&frame, MEMBER_FRAME_MAX) {
        assert_eq!(used, frame.len());
        let mut again = Vec::new();
        packet.clone().encode(&mut again).expect("what was taken can be sent");
        assert_eq!(Packet::decode(&again, MEMBER_FRAME_MAX), Ok(Some((packet, again.len()))));
    }
});
