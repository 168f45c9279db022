//! A fence agent: one of the `fence_*` programs that turn hosts off, run as their common interface has it: `key=value` lines on the standard input, the answer in the exit code.
//!
//! Only exit code 0 is success, and after `off` the agent must also say that the host is off. An agent that takes too long is killed with its whole process group. What the options
//! say is given to the agent and to nobody else: no message repeats it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use clap::ValueEnum;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::program;
use crate::candidacy::hook::Group;
use crate::candidacy::own_variables;

/// More than any agent says of itself.
const SAID_MAX: u64 = 1024 * 1024;
/// What is repeated of an agent's complaint at most.
const COMPLAINT_MAX: usize = 200;
/// Shorter options are no secrets, and would be found everywhere.
const SECRET_LEN_MIN: usize = 4;
/// What `status` answers when a host is off.
const STATUS_IS_OFF: i32 = 2;
/// Where Debian has the agents; not on every user's PATH.
const USUAL_FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// What is done to a host.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Action {
    /// Turn it off, and have the agent say that it is
    Off,
    /// Reset it; whether it was can only be believed
    Reboot,
}

impl Action {
    fn word(self) -> &'static str {
        match self {
            Action::Off => "off",
            Action::Reboot => "reboot",
        }
    }
}

/// What an agent is told.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Options {
    /// For every host.
    all: Vec<(String, String)>,
    /// For one host, after those for all.
    of_host: BTreeMap<String, Vec<(String, String)>>,
}

impl Options {
    /// From a file of `key=value` lines; those below a line `[HOST]` are for that host. Its owner alone may read it.
    pub(crate) fn read(path: &Path) -> Result<Options, String> {
        let cannot = |why: std::io::Error| format!("cannot read {}: {why}", path.display());
        let mode = std::fs::metadata(path).map_err(cannot)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(format!("{} may be read or written by others than its owner: chmod 600 it", path.display()));
        }
        Options::parse(&std::fs::read_to_string(path).map_err(cannot)?).map_err(|why| format!("{}: {why}", path.display()))
    }

    fn parse(text: &str) -> Result<Options, String> {
        let mut options = Options::default();
        let mut host = None;
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
                host = Some(name.trim().to_owned());
                options.of_host.entry(name.trim().to_owned()).or_default();
                continue;
            }
            // The line itself may be a secret.
            let wrong = || format!("line {number} is neither key=value nor [HOST]");
            let (key, value) = line.split_once('=').ok_or_else(wrong)?;
            match &host {
                None => options.add(key.trim(), value.trim())?,
                Some(host) => {
                    allowed(key.trim(), false)?;
                    options.of_host.entry(host.clone()).or_default().push((key.trim().to_owned(), value.trim().to_owned()));
                }
            }
        }
        Ok(options)
    }

    /// One more, for every host.
    pub(crate) fn add(&mut self, key: &str, value: &str) -> Result<(), String> {
        allowed(key, true)?;
        if value.contains('\n') {
            return Err(format!("the option {key} has more than one line"));
        }
        self.all.push((key.to_owned(), value.to_owned()));
        Ok(())
    }

    fn values(&self) -> impl Iterator<Item = &str> {
        self.all.iter().chain(self.of_host.values().flatten()).map(|(_, value)| value.as_str())
    }
}

/// What names the host must not be the same for all of them.
fn allowed(key: &str, for_all: bool) -> Result<(), String> {
    let is_word = !key.is_empty() && key.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '_' | '-'));
    match key {
        _ if !is_word => Err("an option's key has letters, digits, '_' and '-'".to_owned()),
        "action" | "option" => Err("the action is chosen by --fence-action".to_owned()),
        "plug" | "port" | "nodename" if for_all => Err(format!(
            "{key} names one host: use --fence-port HOST=PORT, or put it below [HOST] in the file of --fence-options"
        )),
        _ => Ok(()),
    }
}

/// An agent that has been found fit.
pub(crate) struct Agent {
    program: PathBuf,
    action: Action,
    options: Options,
    /// What the agent calls a host, if it is not the host's name.
    ports: BTreeMap<String, String>,
    within: Duration,
    can: Abilities,
}

/// What an agent says of itself.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Abilities {
    actions: BTreeSet<String>,
    parameters: BTreeSet<String>,
}

impl Abilities {
    /// Reads the names out of the XML that all agents print alike. Nothing else of it is needed.
    fn read(metadata: &str) -> Abilities {
        let named = |tag: &str| {
            let opening = format!("<{tag} ");
            let tags = metadata.split(opening.as_str()).skip(1).filter_map(|it| it.split('>').next());
            tags.filter_map(|it| it.split_once("name=\"")?.1.split('"').next().map(str::to_owned)).collect()
        };
        Abilities { actions: named("action"), parameters: named("parameter") }
    }

    /// The parameter that names the host.
    fn target(&self) -> Option<&'static str> {
        ["plug", "port"].into_iter().find(|it| self.parameters.contains(*it))
    }
}

/// What became of a call.
struct Answer {
    code: i32,
    said: String,
    complaint: String,
}

impl Agent {
    /// Finds the agent, and tries what can be tried without harm. `Err` says in one line what to change.
    pub(crate) async fn open(
        name: &str,
        action: Action,
        options: Options,
        ports: BTreeMap<String, String>,
        within: Duration,
    ) -> Result<Agent, String> {
        let program = locate(name)?;
        let mut agent = Agent { program, action, options, ports, within, can: Abilities::default() };
        let answer = agent.ask("metadata", &[]).await?;
        agent.can = Abilities::read(&answer.said);
        if answer.code != 0 || agent.can.actions.is_empty() {
            return Err(format!(
                "{} does not describe itself as fence agents do: name a fence_* program",
                agent.program.display()
            ));
        }
        if !agent.can.actions.contains(action.word()) {
            return Err(format!("{} cannot do {}: choose another --fence-action", agent.program.display(), action.word()));
        }
        if agent.can.actions.contains("monitor") {
            agent.monitor().await?;
        }
        Ok(agent)
    }

    /// Whether the device can be reached, for each host that has options of its own.
    async fn monitor(&self) -> Result<(), String> {
        let hosts: Vec<Option<&str>> = match self.options.of_host.len() {
            0 => vec![None],
            _ => self.options.of_host.keys().map(|it| Some(it.as_str())).collect(),
        };
        for host in hosts {
            let own = host.and_then(|it| self.options.of_host.get(it)).map(Vec::as_slice).unwrap_or_default();
            let answer = self.ask("monitor", own).await?;
            if answer.code != 0 {
                let of = host.map_or_else(String::new, |it| format!(" for {it}"));
                return Err(format!("{} cannot reach its device{of}: {}", self.program.display(), answer.why()));
            }
        }
        Ok(())
    }

    /// Turns a host off, or resets it. `Ok` only if the agent is sure, and does not contradict itself.
    pub(crate) async fn fence(&self, host: &str) -> Result<(), String> {
        let target = self.target(host)?;
        let answer = self.ask(self.action.word(), &target).await?;
        if answer.code != 0 {
            return Err(answer.why());
        }
        if self.action == Action::Reboot || !self.can.actions.contains("status") {
            return Ok(());
        }
        let status = self.ask("status", &target).await?;
        match status.code {
            STATUS_IS_OFF => Ok(()),
            0 => Err(format!("it says that it has turned {host} off, and also that {host} is on: it is not believed")),
            _ => Err(format!("it says that it has turned {host} off, and cannot say whether {host} is off: {}", status.why())),
        }
    }

    /// What tells the agent which host is meant.
    fn target(&self, host: &str) -> Result<Vec<(String, String)>, String> {
        let own = self.options.of_host.get(host);
        let mut target = own.cloned().unwrap_or_default();
        let named = target.iter().any(|(key, _)| key == "plug" || key == "port");
        match (self.can.target(), own, named) {
            (Some(_), _, true) => {}
            (Some(key), _, false) => {
                let port = self.ports.get(host).map_or(host, String::as_str);
                target.push((key.to_owned(), port.to_owned()));
            }
            (None, Some(_), _) => {}
            (None, None, _) => {
                return Err(format!(
                    "it has no parameter that names a host: give it options of its own for {host}, below [{host}] in the file of --fence-options"
                ));
            }
        }
        if self.can.parameters.contains("nodename") && target.iter().all(|(key, _)| key != "nodename") {
            target.push(("nodename".to_owned(), host.to_owned()));
        }
        Ok(target)
    }

    async fn ask(&self, action: &str, more: &[(String, String)]) -> Result<Answer, String> {
        let mut lines = format!("action={action}\n");
        for (key, value) in self.options.all.iter().chain(more) {
            lines.push_str(&format!("{key}={value}\n"));
        }
        let mut command = Command::new(&self.program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
        for name in own_variables() {
            command.env_remove(name);
        }
        let mut child = command.spawn().map_err(|why| format!("{} could not be run: {why}", self.program.display()))?;
        let mut group = Group(child.id().and_then(|it| Pid::from_raw(it.cast_signed())));
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let talk = async {
            let tell = async {
                if let Some(mut stdin) = stdin {
                    // One that does not listen answers all the same.
                    let _ = stdin.write_all(lines.as_bytes()).await;
                }
            };
            tokio::join!(child.wait(), tell, hear(stdout), hear(stderr))
        };
        let Ok((ended, (), said, complaint)) = tokio::time::timeout(self.within, talk).await else {
            return Err(format!("{action} had not ended after {:?}, and was killed", self.within));
        };
        group.0 = None;
        let ended = ended.map_err(|why| format!("{} could not be waited for: {why}", self.program.display()))?;
        let code = ended.code().ok_or_else(|| format!("{action} was ended by a signal"))?;
        Ok(Answer { code, said, complaint: self.without_secrets(&complaint) })
    }

    fn without_secrets(&self, text: &str) -> String {
        let secrets = self.options.values().filter(|it| it.len() >= SECRET_LEN_MIN);
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
    }
}

impl Answer {
    fn why(&self) -> String {
        let last = self.complaint.lines().rev().map(str::trim).find(|it| !it.is_empty());
        match last {
            Some(line) => format!("exit code {}: {}", self.code, line.chars().take(COMPLAINT_MAX).collect::<String>()),
            None => format!("exit code {}", self.code),
        }
    }
}

async fn hear(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut heard = Vec::new();
    if let Some(stream) = stream {
        // What broke off is judged by what came.
        let _ = stream.take(SAID_MAX).read_to_end(&mut heard).await;
    }
    String::from_utf8_lossy(&heard).into_owned()
}

/// `fence_NAME` or `NAME`, on the PATH or where Debian has them; or a path.
fn locate(name: &str) -> Result<PathBuf, String> {
    if name.contains('/') {
        return program::locate(OsStr::new(name), None).map_err(|why| why.to_string());
    }
    for file in [format!("fence_{name}"), name.to_owned()] {
        let usual = USUAL_FOLDERS.iter().map(|it| Path::new(it).join(&file));
        let places = std::iter::once(PathBuf::from(&file)).chain(usual);
        if let Some(found) = places.filter_map(|it| program::locate(it.as_os_str(), None).ok()).next() {
            return Ok(found);
        }
    }
    Err(format!(
        "there is no fence_{name} and no {name} on the PATH or in /usr/sbin: install fence-agents, or give the agent's path"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_says_of_itself_is_read() {
        let text = r#"<?xml version="1.0" ?><resource-agent name="fence_x" shortdesc="x > y">
            <parameters><parameter name="action" unique="0"></parameter><parameter unique="0" name="plug" required="1">
            </parameter><parameter name="port" deprecated="1"/></parameters>
            <actions><action name="on" automatic="0"/><action name="off" /><action timeout="5" name="status"/></actions>"#;
        let abilities = Abilities::read(text);
        let names = |it: &BTreeSet<String>| it.iter().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!(
            (names(&abilities.actions), names(&abilities.parameters)),
            ("off on status".into(), "action plug port".into())
        );
        assert_eq!(abilities.target(), Some("plug"));
        for other in ["", "hello", "<action", "<action >", "<action name=", "<parameter name=\"port"] {
            assert!(Abilities::read(other).actions.is_empty(), "{other}");
        }
    }

    #[test]
    fn options_are_for_all_hosts_or_for_one() {
        let options = Options::parse("# device\nip = 10.0.0.9\npassword=a=b c\n\n[web-1]\nplug=7\n[web-2]\n").unwrap();
        assert_eq!(options.all, [("ip".into(), "10.0.0.9".into()), ("password".into(), "a=b c".into())]);
        assert_eq!(options.of_host["web-1"], [("plug".into(), "7".into())]);
        assert!(options.of_host["web-2"].is_empty());
        for (bad, says) in [
            ("secret", "line 1"),
            ("ip=1\nsecret", "line 2"),
            ("=secret", "key has letters"),
            ("action=on", "--fence-action"),
            ("[a]\naction=on", "--fence-action"),
            ("plug=7", "--fence-port"),
        ] {
            let why = Options::parse(bad).err().unwrap();
            assert!(why.contains(says) && !why.contains("secret"), "{why}");
        }
    }

    #[test]
    fn each_host_is_named_as_the_agent_knows_it() {
        let agent = |parameters: &[&str], file: &str| Agent {
            program: PathBuf::from("x"),
            action: Action::Off,
            options: Options::parse(file).unwrap(),
            ports: BTreeMap::from([("web-2".to_owned(), "outlet 2".to_owned())]),
            within: Duration::from_secs(1),
            can: Abilities { parameters: parameters.iter().map(|it| (*it).to_owned()).collect(), ..Abilities::default() },
        };
        let line = |agent: &Agent, host: &str| {
            agent.target(host).map(|it| it.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" "))
        };
        let plain = agent(&["port"], "[web-3]\nport=x3\nip=10.0.0.3");
        assert_eq!(line(&plain, "web-1").unwrap(), "port=web-1");
        assert_eq!(line(&plain, "web-2").unwrap(), "port=outlet 2");
        assert_eq!(line(&plain, "web-3").unwrap(), "port=x3 ip=10.0.0.3");
        assert_eq!(line(&agent(&["port", "plug", "nodename"], ""), "web-1").unwrap(), "plug=web-1 nodename=web-1");
        let for_one = agent(&["ip"], "[web-3]\nip=10.0.0.3");
        assert_eq!(line(&for_one, "web-3").unwrap(), "ip=10.0.0.3");
        assert!(line(&for_one, "web-1").unwrap_err().contains("[web-1]"), "it would turn off whatever the options say");
        assert_eq!(for_one.without_secrets("at 10.0.0.3: no"), "at ***: no");
    }
}
