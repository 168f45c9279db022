//! `run` and `sidecar` stay for months beside what they serve, and most of what they would have in memory is what it took to read their command line: all commands of the program with
//! their help. So a process that will stay begins anew as soon as that is read, with what was understood. It is the same process still, by its number, its descriptors and its command line.
//!
//! Left out: whatever stands in the way (no `/proc`, a path that is no text, a line of a hundred kilobytes). Then it goes on as it is, and takes more room.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::arguments::{Arguments, Command};
use crate::run::RunArguments;
use crate::sidecar::SidecarArguments;
use crate::style::Colour;

/// In which a process that begins anew finds what it had understood.
pub(crate) const VARIABLE: &str = "INCUMBENT_UNDERSTOOD";
/// The kernel takes 128 KiB in one variable.
const TEXT_MAX: usize = 100_000;

/// What a command line comes to.
#[derive(Serialize, Deserialize)]
struct Understood {
    /// Of which process: others may inherit the variable.
    process: u32,
    colour: Colour,
    command: Staying,
}

/// Those that stay.
#[derive(Serialize, Deserialize)]
enum Staying {
    Run(Box<RunArguments>),
    Sidecar(Box<SidecarArguments>),
}

impl Staying {
    /// The command itself if it is one that does not stay.
    fn of(command: Command) -> Result<Staying, Box<Command>> {
        match command {
            Command::Run(wanted) => Ok(Staying::Run(wanted)),
            Command::Sidecar(wanted) => Ok(Staying::Sidecar(wanted)),
            Command::Peer(_)
            | Command::Serve(_)
            | Command::Service(_)
            | Command::Token { .. }
            | Command::Election(_)
            | Command::Fence { .. }
            | Command::Lab { .. }
            | Command::Completions { .. }
            | Command::Man { .. } => Err(Box::new(command)),
        }
    }

    fn command(self) -> Command {
        match self {
            Staying::Run(wanted) => Command::Run(wanted),
            Staying::Sidecar(wanted) => Command::Sidecar(wanted),
        }
    }
}

/// What this process had understood before it began anew; nothing if it has not.
pub(crate) fn understood(name: &OsStr) -> Option<Arguments> {
    let text = std::env::var(VARIABLE).ok()?;
    let Understood { process, colour, command } = serde_json::from_str(&text).ok()?;
    if process != std::process::id() {
        return None;
    }
    // The kernel has called it after the link that it was begun by.
    if let Some(name) = Path::new(name).file_name().and_then(|it| CString::new(it.as_bytes()).ok()) {
        let _ = rustix::thread::set_name(&name);
    }
    Some(Arguments { colour, command: command.command() })
}

/// Begins this process anew if it will stay. Returns if it will not, or cannot.
pub(crate) fn begin(words: &[OsString], arguments: Arguments) -> Arguments {
    let Arguments { colour, command } = arguments;
    let command = match Staying::of(command) {
        Ok(staying) => staying,
        Err(command) => return Arguments { colour, command: *command },
    };
    let understood = Understood { process: std::process::id(), colour, command };
    if let (Ok(text), Some((name, rest))) = (serde_json::to_string(&understood), words.split_first())
        && text.len() <= TEXT_MAX
    {
        // By this link it is this very program, whatever has become of its file.
        let _not_begun = std::process::Command::new("/proc/self/exe").arg0(name).args(rest).env(VARIABLE, text).exec();
    }
    Arguments { colour, command: understood.command.command() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments;

    /// As it is read, and as it is after it went from one beginning to the next.
    fn before_and_after(line: &[&str]) -> (String, String) {
        let words: Vec<OsString> = line.iter().map(OsString::from).collect();
        let read = arguments::parse(&words).expect("a good line").command;
        let before = format!("{read:?}");
        let staying = Staying::of(read).unwrap_or_else(|it| panic!("{it:?} does not stay"));
        let text = serde_json::to_string(&staying).expect("plain");
        let after: Staying = serde_json::from_str(&text).expect("just written");
        let after = after.command();
        (before, format!("{after:?}"))
    }

    #[test]
    fn what_was_understood_is_understood_again() {
        let run = "incumbent run job --on file:/x --ttl 1500ms --identity web-1 --max-wait 0s --priority -3 --health true --health-every 1s --on-elected a --on-lost b --value v \
                   --state-dir /s --quiet --verbose --chdir / --grace 3s --on-jeopardy freeze --after-loss exit --restart on-failure --back-off 5ms --give-up-after 3 \
                   --listen 127.0.0.1:0 --network-fence --watchdog /dev/w --watchdog-timeout 9s --fence agent:virsh --fence-action reboot --fence-port a=b --fence-option c=d \
                   --fence-options f --fence-timeout 4s --fence-give-up 1m --otlp http://127.0.0.1:1 --otlp-share 0.25 -- sh -c";
        let run: Vec<&str> = run.split_whitespace().chain(["odd \u{7f} \" line\n"]).collect();
        let others = [
            "incumbent run job -- true",
            "incumbent run job --every 15m --catch-up none -- true",
            "incumbent run job --at 06:00,18:00 --fence delay:3s -- true",
            "incumbent run job --once=12h --fence guardian -- true",
            "incumbent sidecar job --listen [::1]:80 --unprotected --drain 3s --file /x/y",
            "incumbent sidecar job --no-drain --config /c",
        ];
        for line in others.map(|it| it.split(' ').collect()).into_iter().chain([run]) {
            let (before, after) = before_and_after(&line);
            assert_eq!(before, after);
        }
    }

    /// A text of the operating system may be any bytes.
    #[test]
    fn a_command_of_odd_bytes_is_understood_again() {
        let odd = OsString::from(OsStr::from_bytes(b"\xff\n"));
        let words = ["incumbent", "run", "job", "--"].map(OsString::from).into_iter().chain([odd.clone()]).collect::<Vec<_>>();
        let Command::Run(wanted) = arguments::parse(&words).expect("a good line").command else { panic!("it is run") };
        let text = serde_json::to_string(&Staying::Run(wanted)).expect("plain");
        let Ok(Staying::Run(wanted)) = serde_json::from_str(&text) else { panic!("{text}") };
        assert_eq!(wanted.command, [odd]);
    }
}
