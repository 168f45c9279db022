//! Which engine a command works on, and with which lease: from the command line, else the environment, else the configuration file, else the default.
//!
//! Every command that takes part in elections or looks at them takes [`TargetArguments`]. A URL may hold a password: it is never printed, and a
//! child process gets it through its environment, which only its owner may read.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use incumbent::election::Builder;
use incumbent::engine::Error;
use incumbent::place::Place;
use incumbent::{Election, Identity, Timing};
use serde::{Deserialize, Serialize};

use super::config::{self, Config};
use super::log::Talk;
use super::span;
use crate::exit::Exit;
use crate::failure::Failure;

/// An engine that has not answered by then is not there. Longer than any engine takes to fail over to another of its servers.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Reads one variable; a value that is empty or not text is none.
pub(crate) type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Which engine, and how.
#[derive(clap::Args, Debug, Clone, Default, Serialize, Deserialize)]
#[command(next_help_heading = "Engine")]
pub(crate) struct TargetArguments {
    /// The engine and the namespace, as in etcd://10.0.0.1:2379/prod; else INCUMBENT_ON, else `on` in the configuration
    #[arg(long, value_name = "URL")]
    pub(crate) on: Option<Url>,
    /// The configuration; else INCUMBENT_CONFIG, else ./incumbent.toml, else incumbent/incumbent.toml in the XDG folder
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// How long a lease lasts; else INCUMBENT_TTL, else `ttl` in the configuration, else 15s or the engine's shortest
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    pub(crate) ttl: Option<Duration>,
    /// What this process is called in elections; else INCUMBENT_IDENTITY, else `identity` in the configuration, else the host's name
    #[arg(long, value_name = "NAME")]
    pub(crate) identity: Option<String>,
    /// Say on the standard error what the library does; INCUMBENT_LOG says it by module
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

impl TargetArguments {
    /// How much the library is to say.
    pub(crate) fn talk(&self) -> Talk {
        if self.verbose { Talk::Everything } else { Talk::Warnings }
    }
}

/// An engine's URL. Its `Debug` hides everything that could be secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Url(String);

impl Url {
    /// The whole text, secrets and all: for the library and for a child's environment.
    pub(crate) fn exposed(&self) -> &str {
        &self.0
    }
}

impl From<String> for Url {
    fn from(text: String) -> Url {
        Url(text)
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Place::parse(&self.0) {
            Ok(place) => place.fmt(f),
            Err(_) => f.write_str("a URL that cannot be read"),
        }
    }
}

/// Where the URL comes from, for whoever wonders why it is this one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    CommandLine,
    Environment,
    File(PathBuf),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::CommandLine => f.write_str("--on"),
            Origin::Environment => f.write_str("INCUMBENT_ON"),
            Origin::File(path) => path.display().fmt(f),
            Origin::Default => f.write_str("the default: no --on, no INCUMBENT_ON, no configuration"),
        }
    }
}

/// An engine and the terms on which this process takes part in elections on it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) url: Url,
    pub(crate) origin: Origin,
    pub(crate) ttl: Option<Duration>,
    pub(crate) identity: Option<Identity>,
}

impl Target {
    /// What the arguments, the environment and the configuration come to.
    pub(crate) fn find(arguments: &TargetArguments) -> Result<Target, Failure> {
        for name in ["INCUMBENT_ON", "INCUMBENT_TTL", "INCUMBENT_IDENTITY", "INCUMBENT_CONFIG"] {
            // Passed over, it would be another engine that is asked.
            if matches!(std::env::var(name), Err(std::env::VarError::NotUnicode(_))) {
                return Err(wrong(format!("{name} is no text: write it anew, in UTF-8")));
            }
        }
        let environment = |name: &str| std::env::var(name).ok().filter(|it| !it.is_empty());
        Target::found(arguments, &environment)
    }

    fn found(arguments: &TargetArguments, environment: &Environment<'_>) -> Result<Target, Failure> {
        let file = config::find(arguments.config.as_deref(), environment)?;
        let (path, file) = file.map_or((PathBuf::new(), Config::default()), |(path, file)| (path, file));
        let named = |name: &str| environment(name).map(|value| (name.to_owned(), value));
        let in_file = |key: &str, value: Option<String>| value.map(|value| (format!("{key} in {}", path.display()), value));

        let (url, origin) = match (&arguments.on, environment("INCUMBENT_ON"), file.on) {
            (Some(url), _, _) => (url.clone(), Origin::CommandLine),
            (None, Some(url), _) => (Url(url), Origin::Environment),
            (None, None, Some(url)) => (url, Origin::File(path.clone())),
            // On this machine, in files: needs nothing but a directory, and the library knows one.
            (None, None, None) => (Url("file:".to_owned()), Origin::Default),
        };
        let ttl = match (arguments.ttl, named("INCUMBENT_TTL").or_else(|| in_file("ttl", file.ttl))) {
            (Some(ttl), _) => Some(ttl),
            (None, Some((name, text))) => Some(span::parse(&text).map_err(|why| wrong(format!("{name}: {why}")))?),
            (None, None) => None,
        };
        let identity = arguments.identity.clone().map(|it| ("--identity".to_owned(), it));
        let identity = identity.or_else(|| named("INCUMBENT_IDENTITY")).or_else(|| in_file("identity", file.identity));
        let identity = match identity {
            // Beneath `incumbent run` the variable holds a whole identity; its name is what counts.
            Some((name, text)) => {
                let given = Identity::stored(text);
                let identity = Identity::named(given.name()).map_err(|why| wrong(format!("{name}: {why}")))?;
                // Nobody has chosen what every process of this host is called.
                let is_chosen = given.boot().is_none() || given.name() != Identity::unique().name();
                is_chosen.then_some(identity)
            }
            None => None,
        };
        Ok(Target { url, origin, ttl, identity })
    }

    /// The engine's place, taken apart.
    pub(crate) fn place(&self) -> Result<Place, Failure> {
        Place::parse(self.url.exposed()).map_err(|why| Failure::setting(&why))
    }

    /// The timing of the lease that was asked for; `None` if none was.
    pub(crate) fn timing(&self) -> Result<Option<Timing>, Failure> {
        match self.ttl {
            Some(ttl) => Timing::of(ttl).build().map(Some).map_err(|why| wrong(format!("the ttl: {why}"))),
            None => Ok(None),
        }
    }

    /// For work that is done by another process than this one, and may outlive it: engines that take the end of a process for the end of its work must then wait
    /// for the lease to end.
    pub(crate) fn for_work_elsewhere(&self) -> Result<Target, Failure> {
        let place = self.place()?;
        let mut target = self.clone();
        if matches!(place.scheme(), "peers" | "incumbent") && place.option("work").is_none() {
            let joint = if self.url.exposed().contains('?') { '&' } else { '?' };
            target.url = Url(format!("{}{joint}work=elsewhere", self.url.exposed()));
        }
        Ok(target)
    }

    /// An election here, in the making.
    pub(crate) fn builder(&self, name: &str) -> Result<Builder, Failure> {
        let mut builder = Election::on(self.url.exposed()).name(name);
        if let Some(identity) = &self.identity {
            builder = builder.identity(identity.clone());
        }
        if let Some(timing) = self.timing()? {
            builder = builder.timing(timing);
        }
        Ok(builder)
    }

    /// An election here. Gives up on an engine that does not answer.
    pub(crate) async fn election(&self, name: &str) -> Result<Election, Failure> {
        let built = answer(self.builder(name)?.build()).await;
        built.map_err(|why| Failure::asking(&why))
    }

    /// How another command is told of this engine, for people who copy the line. What a URL may hold besides is not printed, but they are told that there is something.
    pub(crate) fn option(&self) -> String {
        let shown = format!("{:?}", self.url);
        let is_all = shown == self.url.exposed();
        format!("--on {shown}{}", if is_all { "" } else { " (with the password and options of its URL)" })
    }

    /// Who wants something, for the record: the name, else the user's and the host's.
    pub(crate) fn who(&self) -> String {
        match &self.identity {
            Some(identity) => identity.name().to_owned(),
            None => {
                let host = Identity::unique();
                match std::env::var("USER").ok().filter(|it| !it.is_empty()) {
                    Some(user) => format!("{user}@{}", host.name()),
                    None => host.name().to_owned(),
                }
            }
        }
    }
}

/// Waits for an engine, but not for ever.
pub(crate) async fn answer<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(ANSWER_MAX, asked).await.unwrap_or_else(|_| {
        Err(Error::unknown(format!("no answer from the engine within {ANSWER_MAX:?}: check the address, and whether it is up")))
    })
}

fn wrong(what: String) -> Failure {
    Failure::Engine { what, exit: Exit::Usage }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(arguments: &TargetArguments, variables: &[(&str, &str)]) -> Result<Target, Failure> {
        let environment = |name: &str| variables.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned());
        Target::found(arguments, &environment)
    }

    fn file(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("incumbent-target-{name}-{}.toml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A supervisor that dies is not its command, which may live a moment longer: engines that believe a death at once must not.
    #[test]
    fn work_of_another_process_is_not_over_when_this_one_dies() {
        for (url, meant) in [
            ("incumbent://a:1/x", "incumbent://a:1/x?work=elsewhere"),
            ("peers://a:1/x?me=1", "peers://a:1/x?me=1&work=elsewhere"),
            ("incumbent://a:1/x?work=here", "incumbent://a:1/x?work=here"),
            ("etcd://a:1/x", "etcd://a:1/x"),
        ] {
            let arguments = TargetArguments { on: Some(Url::from(url.to_owned())), ..TargetArguments::default() };
            let target = found(&arguments, &[]).unwrap().for_work_elsewhere().unwrap();
            assert_eq!(target.url.exposed(), meant);
        }
    }

    #[test]
    fn the_command_line_wins_then_the_environment_then_the_file_then_the_default() {
        let config = file("order", "on = \"etcd://file/\"\nttl = \"7s\"\nidentity = \"filed\"\n");
        let on = Some(Url::from("etcd://flag/".to_owned()));
        let flags = TargetArguments {
            on,
            config: Some(config.clone()),
            ttl: Some(Duration::from_secs(9)),
            identity: Some("flagged".into()),
            verbose: false,
        };
        let variables = [("INCUMBENT_ON", "etcd://variable/"), ("INCUMBENT_TTL", "8s"), ("INCUMBENT_IDENTITY", "variable")];
        let only_file = TargetArguments { config: Some(config.clone()), ..TargetArguments::default() };
        let in_variable = [("INCUMBENT_CONFIG", config.to_str().unwrap())];
        let none = TargetArguments::default();
        for (arguments, variables, url, ttl, identity) in [
            (&flags, &variables[..], "etcd://flag/", Some(9), Some("flagged")),
            (&only_file, &variables[..], "etcd://variable/", Some(8), Some("variable")),
            (&only_file, &[], "etcd://file/", Some(7), Some("filed")),
            (&none, &in_variable, "etcd://file/", Some(7), Some("filed")),
            (&none, &[], "file:", None, None),
        ] {
            let target = found(arguments, variables).unwrap();
            assert_eq!(target.url.exposed(), url);
            assert_eq!(target.ttl, ttl.map(Duration::from_secs), "{url}");
            assert_eq!(target.identity.as_ref().map(Identity::name), identity, "{url}");
        }
        std::fs::remove_file(config).unwrap();
    }

    #[test]
    fn what_is_wrong_is_told_with_where_it_stands() {
        let config = file("wrong", "ttl = \"soon\"\n");
        let with_file = TargetArguments { config: Some(config.clone()), ..TargetArguments::default() };
        let missing = TargetArguments { config: Some(PathBuf::from("/nowhere/at-all.toml")), ..TargetArguments::default() };
        let none = TargetArguments::default();
        let home = ("HOME", "/h");
        for (arguments, variables, says) in [
            (&with_file, vec![home], "ttl in "),
            (&none, vec![home, ("INCUMBENT_TTL", "soon")], "INCUMBENT_TTL: \"soon\" is no span of time"),
            (&none, vec![home, ("INCUMBENT_IDENTITY", "a b")], "INCUMBENT_IDENTITY: ' ' cannot stand in the name"),
            (&missing, vec![home], "/nowhere/at-all.toml"),
        ] {
            let failure = found(arguments, &variables).unwrap_err();
            let (what, _) = failure.message().unwrap();
            assert!(what.contains(says) && !what.contains('\n'), "{what}");
        }
        std::fs::remove_file(config).unwrap();
    }

    #[test]
    fn an_engine_is_named_for_another_command_without_what_may_be_secret() {
        let option = |url: &str| {
            let url = Url::from(url.to_owned());
            Target { url, origin: Origin::Default, ttl: None, identity: None }.option()
        };
        assert_eq!(option("etcd://10.0.0.1:2379/prod"), "--on etcd://10.0.0.1:2379/prod");
        assert_eq!(option("file:/var/lib/jobs"), "--on file:/var/lib/jobs");
        let more = option("redis://me:secret@host:1/jobs?ca=/a");
        assert_eq!(more, "--on redis://me@host:1/jobs (with the password and options of its URL)");
    }

    #[test]
    fn no_url_is_printed_with_its_password() {
        for url in ["redis://me:secret@host/", "redis://me:secret@host:port/", "secret"] {
            assert!(!format!("{:?}", Url::from(url.to_owned())).contains("secret"));
        }
    }
}
