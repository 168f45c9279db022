//! What supervisor and guardian say to each other: lines of JSON on a socket, and the descriptors that go with the first.

use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

/// What the supervisor wants.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Start the command; the lease must have been given.
    Start(Launch),
    /// The tree may live until then.
    Lease(Lease),
    /// Send this signal to the command itself.
    Signal(i32),
    /// Tell the whole tree to end, and kill it at `kill_at` (nanoseconds of the boot clock) if it has not.
    Stop { signal: i32, kill_at: u64 },
    /// Kill the tree.
    Kill,
    /// Stop the tree where it is.
    Freeze,
    /// Let it go on.
    Thaw,
    /// The supervisor goes on, and sees to the berth itself. To be answered.
    Settle,
}

/// What the guardian has seen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// It is ready; what holds the tree together, or why no control group does; and why there is no network fence, if one was wanted.
    Ready { cgroup: Result<PathBuf, String>, unfenced: Option<String> },
    /// The command was started.
    Started { pid: i32 },
    /// The command could not be started.
    NotStarted { why: String },
    /// The lease had ended before the command could be started.
    TooLate,
    /// The command itself has ended; others of its tree may live.
    Ended(Ending),
    /// Nobody of the tree lives any more.
    Dead { killed: bool },
    /// The tree could not be frozen.
    NotFrozen { why: String },
    /// The tree is told to end, or killed, because its lease is over. Comes before all that follows from it.
    TimeUp,
    /// The berth is not touched from here until there is another lease.
    Settled,
}

/// A command to start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) program: Text,
    pub(crate) arguments: Vec<Text>,
    /// Beside what the guardian inherited.
    pub(crate) environment: Vec<(Text, Text)>,
    /// What it inherited and the command does not.
    pub(crate) without: Vec<Text>,
    pub(crate) directory: Option<Text>,
}

/// Until when a tree may live, in nanoseconds of the boot clock.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Lease {
    /// Then it is told to end.
    pub(crate) stop_at: u64,
    /// Then it is killed.
    pub(crate) kill_at: u64,
    /// Then nothing may be sent any more.
    pub(crate) deadline: u64,
}

/// How a command ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ending {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// A text of the operating system, which may be any bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Text(Vec<u8>);

impl From<OsString> for Text {
    fn from(text: OsString) -> Text {
        Text(text.into_vec())
    }
}

impl AsRef<std::ffi::OsStr> for Text {
    fn as_ref(&self) -> &std::ffi::OsStr {
        std::ffi::OsStr::from_bytes(&self.0)
    }
}

/// One line. Nothing here holds a line break that JSON would not escape.
pub(crate) fn line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("neither maps nor numbers that JSON lacks");
    line.push(b'\n');
    line
}

/// Takes the lines that are complete.
pub(crate) fn take_lines<T: for<'a> Deserialize<'a>>(buffer: &mut Vec<u8>) -> io::Result<Vec<T>> {
    let Some(end) = buffer.iter().rposition(|it| *it == b'\n') else { return Ok(Vec::new()) };
    let complete: Vec<u8> = buffer.drain(..=end).collect();
    complete
        .split(|it| *it == b'\n')
        .filter(|it| !it.is_empty())
        .map(|it| serde_json::from_slice(it).map_err(io::Error::from))
        .collect()
}

/// Sends descriptors, with a byte to carry them.
pub(crate) fn send_descriptors(socket: &UnixStream, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "there is room for all of them");
    sendmsg(socket, &[IoSlice::new(b"+")], &mut control, SendFlags::empty())?;
    Ok(())
}

/// Receives what [`send_descriptors`] sent.
pub(crate) fn receive_descriptors(socket: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut found = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            found.extend(descriptors);
        }
    }
    Ok(found)
}

const DESCRIPTORS_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_or_not_yet() {
        let mut buffer = [line(&Order::Kill), line(&Order::Freeze)].concat();
        buffer.extend(&line(&Order::Thaw)[..3]);
        assert_eq!(take_lines::<Order>(&mut buffer).unwrap(), [Order::Kill, Order::Freeze]);
        assert_eq!(take_lines::<Order>(&mut buffer).unwrap(), []);
        buffer.extend(&line(&Order::Thaw)[3..]);
        assert_eq!(take_lines::<Order>(&mut buffer).unwrap(), [Order::Thaw]);
        assert!(take_lines::<Order>(&mut b"{}\n".to_vec()).is_err());
    }

    #[test]
    fn texts_may_be_any_bytes() {
        let odd = OsString::from_vec(vec![0xff, b'\n']);
        let mut buffer = line(&Text::from(odd.clone()));
        assert_eq!(take_lines::<Text>(&mut buffer).unwrap()[0].as_ref(), odd);
    }
}
