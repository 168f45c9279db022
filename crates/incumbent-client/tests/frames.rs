//! Frames: what they are, byte by byte; and that no bytes whatever do harm.

use incumbent_client::administration::*;
use incumbent_client::frame::{self, ANSWER_MAX, BadFrame, HEAD, Inbox, PREAMBLE, REQUEST_MAX};
use incumbent_client::message::*;
use incumbent_store::command::{Command, KeepAlive, Request};
use incumbent_store::query::{Answer, Answered, AskStatus, Query, Question, Status};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::{Outcome, Reply};
use incumbent_store::watch::{Interest, Topic};
use proptest::prelude::*;

fn to_server() -> Vec<ToServer> {
    let keep = Command::KeepAlive(KeepAlive { sessions: vec![5, 300] });
    let question = Some(Question { query: Some(Query::Status(AskStatus {})) });
    let hello = Hello { version: 1, oldest: 1, cluster: "c".into(), token: "t".into(), name: "n".into() };
    let interest = Some(Interest::of(Topic::Election("e".into())));
    let asked = [
        Asked::Hello(hello),
        Asked::Submit(Request { answered: 6, ..Request::numbered(7, 8, keep) }),
        Asked::Ask(Inquiry { question, consistency: Consistency::Local.into(), seen: 9 }),
        Asked::Watch(WatchFrom { interest, from: 10, seen: 11 }),
        Asked::Unwatch(12),
        Asked::Bind(Sessions { sessions: vec![13], again: false }),
        Asked::Ping(Ping {}),
        Asked::Goodbye(Goodbye {}),
        Asked::Unbind(Sessions { sessions: vec![14], again: false }),
        Asked::Bind(Sessions { sessions: vec![15], again: true }),
        administer(Administration::Status(AskCluster {})),
        administer(Administration::Add(AddMember { node: 3, peer: "a:1".into(), client: "b:2".into() })),
        administer(Administration::Remove(RemoveMember { node: 3, force: true })),
        administer(Administration::Transfer(TransferLeadership { to: Some(0) })),
        administer(Administration::Snapshot(TakeSnapshot {})),
        administer(Administration::ReadBackup(ReadBackup { index: 1, checksum: 2, offset: 3 })),
    ];
    asked.into_iter().zip(1..).map(|(asked, id)| ToServer::new(id, asked)).collect()
}

fn to_client() -> Vec<ToClient> {
    let members = vec!["a:1".into(), "b:2".into()];
    let status = Status { revision: 3, ..Status::default() };
    let told = [
        Told::Welcome(Welcome { version: 1, node: 2, cluster: "c".into(), leads: true, leader: "a:1".into(), members }),
        Told::TurnedAway(TurnedAway { objection: Objection::Token.into(), why: "w".into() }),
        Told::Outcome(Outcome::of(&Ok(Reply::Done(4)), 5)),
        Told::Answered(Answered { revision: 6, answer: Some(Answer::Status(status)) }),
        Told::Refused(Refusal::NoKey.to_wire()),
        Told::NotNow(NotNow { why: "w".into(), leader: "a:1".into(), retry_after_ms: 7 }),
        Told::Unknown(Unknown { why: "w".into() }),
        Told::Events(Tidings { events: Vec::new(), next: 8 }),
        Told::WatchEnded(Refusal::Lagged(9).to_wire()),
        Told::Pong(Pong { told: 10, leader: "a:1".into(), leads: true, leaderless: false }),
        Told::Bound(Bound {}),
        administered(Attended::Cluster(cluster())),
        administered(Attended::Member(MemberChange { node: 3, membership: Membership::Learner.into(), lag: Some(0) })),
        administered(Attended::Leader(2)),
        administered(Attended::Backup(BackupView { index: 1, checksum: 2, bytes: 3, revision: 4 })),
        administered(Attended::Piece("piece".into())),
        administered(Attended::Refused("why".into())),
        Told::Pong(Pong { leaderless: true, ..Pong::default() }),
    ];
    told.into_iter().zip(1..).map(|(told, id)| ToClient::new(id, told)).collect()
}

fn administer(administration: Administration) -> Asked {
    Asked::Administer(Administer { administration: Some(administration) })
}

fn administered(attended: Attended) -> Told {
    Told::Administered(Administered { attended: Some(attended) })
}

fn cluster() -> ClusterView {
    let health = Health {
        release: "1".into(),
        commit: 1,
        applied: 2,
        last: 3,
        snapshot: 4,
        revision: 5,
        disk_last_us: 6,
        disk_longest_us: 7,
        disk_slow: true,
        disk_full: "f".into(),
    };
    let member = MemberView {
        node: 1,
        membership: Membership::Voter.into(),
        peer: "a:1".into(),
        client: "b:2".into(),
        health: Some(health),
        lag: Some(8),
        line_up: true,
        round_trip_us: 9,
        why: "w".into(),
    };
    ClusterView { cluster: "c".into(), node: 1, leader: Some(0), term: 2, members: vec![member], incarnation: 3 }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|it| format!("{it:02x}")).collect()
}

fn framed(message: &impl incumbent_store::Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::append(message, &mut bytes);
    bytes
}

/// Version 1 is spoken by clients that nobody can change any more.
#[test]
fn version_1_is_what_it_was() {
    assert_eq!(hex(&PREAMBLE), "494e434201");
    let requests: Vec<String> = to_server().iter().map(|it| hex(&framed(it))).collect();
    let answers: Vec<String> = to_client().iter().map(|it| hex(&framed(it))).collect();
    let written = format!("{}\n\n{}\n", requests.join("\n"), answers.join("\n"));
    assert_eq!(written, include_str!("golden/frames-1.txt"), "written:\n{written}");
}

#[test]
fn messages_come_out_whole_however_they_are_cut() {
    let mut bytes = PREAMBLE.to_vec();
    to_server().iter().for_each(|it| frame::append(it, &mut bytes));
    for step in 1..bytes.len() {
        let (mut inbox, mut begun, mut came) = (Inbox::new(), false, Vec::new());
        for part in bytes.chunks(step) {
            inbox.room().extend_from_slice(part);
            begun = begun || inbox.take_preamble().expect("ours");
            while begun && let Some(message) = inbox.take::<ToServer>(REQUEST_MAX).expect("good") {
                came.push(message);
            }
        }
        assert!(came == to_server() && inbox.is_empty(), "in steps of {step}");
    }
}

#[test]
fn a_buffer_grows_with_what_comes_and_is_given_back() {
    let mut bytes = Vec::new();
    let value = "x".repeat(1024 * 1024);
    frame::append(&ToServer::new(1, Asked::Hello(Hello { name: value, ..Hello::default() })), &mut bytes);
    let mut inbox = Inbox::new();
    assert!(inbox.room().capacity() <= 1024, "idle connections are many");
    let (mut rest, mut reads) = (&bytes[..], 0);
    while !rest.is_empty() {
        assert!(inbox.take::<ToServer>(REQUEST_MAX).expect("good").is_none());
        // As much as a socket would put there.
        let room = inbox.room();
        let (part, behind) = rest.split_at((room.capacity() - room.len()).min(rest.len()));
        room.extend_from_slice(part);
        assert!(room.capacity() <= 3 * (bytes.len() - behind.len()) + 64 * 1024 + 1024);
        (rest, reads) = (behind, reads + 1);
    }
    assert!(reads < 40, "{reads}");
    assert!(inbox.take::<ToServer>(REQUEST_MAX).expect("good").is_some());
    assert!(inbox.room().capacity() <= 64 * 1024);
}

#[test]
fn what_is_no_frame_is_told_by_what_is_wrong_with_it() {
    let take = |bytes: &[u8]| {
        let mut inbox = Inbox::new();
        inbox.room().extend_from_slice(bytes);
        inbox.take::<ToClient>(ANSWER_MAX)
    };
    assert_eq!(take(b"HTTP/1.1 400 Bad Request"), Err(BadFrame::Preamble));
    assert_eq!(take(&[0xff; 8]), Err(BadFrame::TooLong { len: u32::MAX as usize, len_max: ANSWER_MAX }));
    let good = framed(&to_client()[0]);
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        // A longer one may be announced, and waited for; it is never taken for what it is not.
        assert!(!matches!(take(&bad), Ok(Some(_))), "C34: bit {bit}");
    }
    let mut garbage = vec![3, 0, 0, 0];
    garbage.extend(crc(&[0xff; 3]));
    garbage.extend([0xff; 3]);
    assert!(matches!(take(&garbage), Err(BadFrame::Message(_))));
    let mut unknown = vec![3, 0, 0, 0];
    unknown.extend(crc(&[0xf8, 0x07, 0x01]));
    unknown.extend([0xf8, 0x07, 0x01]);
    assert_eq!(take(&unknown), Ok(Some(ToClient::default())), "a field of a later version is passed over");
}

fn crc(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).to_le_bytes()
}

#[test]
fn a_token_is_not_shown() {
    assert!(!format!("{:?}", to_server()[0]).contains("\"t\""));
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_read_and_take_no_more_memory_than_they_are(
        bytes in proptest::collection::vec(any::<u8>(), 0..4096),
        honest in any::<bool>(),
    ) {
        let mut inbox = Inbox::new();
        let bytes = if honest {
            // Past length and checksum, so that what reads messages sees them too.
            let mut framed = u32::try_from(bytes.len()).expect("short").to_le_bytes().to_vec();
            framed.extend(crc(&bytes));
            framed.extend(bytes);
            framed
        } else {
            bytes
        };
        inbox.room().extend_from_slice(&bytes);
        while let Ok(Some(_)) = inbox.take::<ToServer>(REQUEST_MAX) {}
        prop_assert!(inbox.room().capacity() <= 2 * (bytes.len() + HEAD) + 4 * 1024, "nothing is allocated for what is only announced");
        let mut inbox = Inbox::new();
        inbox.room().extend_from_slice(&bytes);
        while let Ok(Some(_)) = inbox.take::<ToClient>(ANSWER_MAX) {}
    }
}
