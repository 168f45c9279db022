//! Any bytes from a client or a node of the service: no panic, and what is taken for a message comes back the same when it is sent on.

#![no_main]

use incumbent_client::frame::{ANSWER_MAX, Inbox, REQUEST_MAX, append};
use incumbent_client::message::{ToClient, ToServer};
use libfuzzer_sys::fuzz_target;

fn inbox(bytes: &[u8]) -> Inbox {
    let mut inbox = Inbox::new();
    inbox.room().extend_from_slice(bytes);
    inbox
}

fuzz_target!(|bytes: &[u8]| {
    // As they come.
    let mut stranger = inbox(bytes);
    let _ = stranger.take_preamble();
    while let Ok(Some(_)) = stranger.take::<ToServer>(REQUEST_MAX) {}
    // With a head that fits, which no fuzzer would find.
    let Ok(len) = u32::try_from(bytes.len()) else { return };
    let frame = [&len.to_le_bytes(), &crc32c::crc32c(bytes).to_le_bytes(), bytes].concat();
    if let Ok(Some(message)) = inbox(&frame).take::<ToServer>(REQUEST_MAX) {
        let mut again = Vec::new();
        append(&message, &mut again);
        assert_eq!(inbox(&again).take::<ToServer>(REQUEST_MAX), Ok(Some(message)));
    }
    if let Ok(Some(message)) = inbox(&frame).take::<ToClient>(ANSWER_MAX) {
        let mut again = Vec::new();
        append(&message, &mut again);
        assert_eq!(inbox(&again).take::<ToClient>(ANSWER_MAX), Ok(Some(message)));
    }
});
