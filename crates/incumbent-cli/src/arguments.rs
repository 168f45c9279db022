//! The command line: what may be said, its help, and how it is read.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::elections::ElectionCommand;
use crate::exit;
use crate::fence::FenceCommand;
use crate::lab::LabCommand;
use crate::peer::{self, PeerArguments};
use crate::run::{self, RunArguments};
use crate::serve::{self, ServeArguments};
use crate::service::ServiceCommand;
use crate::sidecar::{self, SidecarArguments};
use crate::style::Colour;
use crate::token::TokenCommand;

/// Wider help is wrapped; an example that is can be copied no more.
const WIDTH: usize = 100;

const EXAMPLES: &str = "\
Examples:
  incumbent run nightly -- ./report.sh                      a command on one host at a time
  incumbent sidecar billing --listen 127.0.0.1:8127         for programs that are no children
  incumbent peer --id 1 --listen 127.0.0.1:7001 --peers 2@127.0.0.1:7002,3@127.0.0.1:7003
  incumbent serve                                           elections for those who run no etcd
  incumbent cluster status                                  how the nodes of the service do
  incumbent who billing --on etcd://127.0.0.1:2379/prod     who leads, with which token
  incumbent handover billing --to web-2                     on the engine that INCUMBENT_ON names
  incumbent plan --failover 3s --pause 500ms --rtt 40ms     times that are safe, or why none are
  incumbent lab run scenarios/bully/lost_coordinator.txt     an algorithm under faults, step by step
  incumbent lab explain raft                                how an algorithm works, from a real run
  incumbent completions bash > /etc/bash_completion.d/incumbent
  incumbent man --dir /usr/local/share/man/man1";

/// Leader election: exactly one process in office, and proof that it is so.
#[derive(Parser, Debug)]
#[command(name = "incumbent", version, arg_required_else_help = true, max_term_width = WIDTH)]
pub(crate) struct Arguments {
    /// When to colour the output; `auto` heeds NO_COLOR, CLICOLOR and CLICOLOR_FORCE
    #[arg(long = "color", global = true, value_enum, value_name = "WHEN", default_value_t = Colour::Auto)]
    pub(crate) colour: Colour,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a command on exactly one host: here while this process leads, elsewhere when it does not
    Run(Box<RunArguments>),
    /// Contend for a program that is not a child: tell it, and load balancers, over HTTP who leads
    #[command(after_help = sidecar::EXAMPLES)]
    Sidecar(Box<SidecarArguments>),
    /// Elect one of several nodes with no service at all: this is one of them
    #[command(after_help = peer::EXAMPLES)]
    Peer(Box<PeerArguments>),
    /// Serve elections to others: a node of the replicated service
    #[command(after_help = serve::EXAMPLES)]
    Serve(Box<ServeArguments>),
    #[command(flatten)]
    Service(ServiceCommand),
    /// Make tokens for those who use the service
    #[command(arg_required_else_help = true)]
    Token {
        #[command(subcommand)]
        command: TokenCommand,
    },
    #[command(flatten)]
    Election(ElectionCommand),
    /// Make storage refuse what former leaders write, or confirm that they are dead
    #[command(arg_required_else_help = true)]
    Fence {
        #[command(subcommand)]
        command: FenceCommand,
    },
    /// Try the election protocols in a deterministic world
    #[command(arg_required_else_help = true)]
    Lab {
        #[command(subcommand)]
        command: LabCommand,
    },
    /// Print the completions for a shell
    #[command(after_help = "Example:\n  incumbent completions zsh > ~/.zfunc/_incumbent")]
    Completions {
        /// The shell that shall complete
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write a page for every command
    #[command(after_help = "Examples:\n  incumbent man | man -l -\n  incumbent man --dir target/man")]
    Man {
        /// Where to write the pages; made if it is not there
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

/// Reads the command line. An error is an answer to print: help, the version, or what is wrong.
pub(crate) fn parse(words: &[OsString]) -> Result<Arguments, clap::Error> {
    // Help is printed while the line is being read, so the wish for colour must be known before.
    let matches = command().color(early_colour(words).into()).try_get_matches_from(words)?;
    Arguments::from_arg_matches(&matches)
}

/// The whole command, as the completions and the manual need it too.
pub(crate) fn command() -> clap::Command {
    let whole = Arguments::command().after_help(format!("{EXAMPLES}\n\n{}", exit::CODES));
    // Nodes that elect one of themselves mostly have one election, and it needs no name.
    let whole = whole.mut_subcommand("peer", |it| it.mut_arg("election", |it| it.required(false).default_value("leader")));
    // An agent's options say nothing where no agent is called.
    let of_fences = ["fence_action", "fence_port", "fence_option", "fence_options", "fence_timeout", "fence_give_up"];
    let whole =
        whole.mut_subcommand("run", |run| of_fences.iter().fold(run, |run, it| run.mut_arg(it, |it| it.requires("fence"))));
    whole.mut_subcommand("run", |it| it.after_help(format!("{}\n\n{}", run::EXAMPLES, exit::RUN_CODES)))
}

fn early_colour(words: &[OsString]) -> Colour {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).take_while(|word| *word != "--").collect();
    let apart = words.windows(2).filter(|pair| pair[0] == "--color").map(|pair| pair[1]);
    let joined = words.iter().filter_map(|word| word.strip_prefix("--color="));
    match apart.chain(joined).last() {
        Some("always") => Colour::Always,
        Some("never") => Colour::Never,
        Some(_) | None => Colour::Auto,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_command_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn the_examples_use_options_that_exist() {
        let (cron, unit) =
            (include_str!("../../../examples/run/cron"), include_str!("../../../examples/run/systemd/worker.service"));
        let (pods, containers) = (
            include_str!("../../../examples/run/kubernetes/deployment.yaml"),
            include_str!("../../../examples/run/compose/compose.yaml"),
        );
        let service = include_str!("../../../examples/service/incumbent.service");
        let mut count = 0;
        for line in [cron, unit, pods, containers, service].iter().flat_map(|it| it.lines()) {
            let begin = ["incumbent run ", "\"incumbent\", \"run\"", "incumbent serve "].iter().find_map(|it| line.find(it));
            let Some(at) = begin else { continue };
            let line = line[at..].replace("\", \"", " ").replace(['"', ']'], "");
            let parsed = command().try_get_matches_from(line.split_whitespace());
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            count += 1;
        }
        assert_eq!(count, 5);
    }

    #[test]
    fn every_command_stands_in_the_handbook() {
        let handbook = include_str!("../../../docs/cli.md");
        for command in command().get_subcommands().filter(|it| !it.is_hide_set()) {
            let name = format!("incumbent {}", command.get_name());
            assert!(handbook.contains(&name), "docs/cli.md lacks {name}");
        }
    }

    #[test]
    fn every_command_shows_examples_that_are_not_wrapped() {
        fn check(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let is_leaf = command.get_subcommands().next().is_none() && !command.is_hide_set();
            assert!(!is_leaf || help.contains("Example"), "{} has no example", command.get_name());
            for line in help.lines().filter(|it| it.starts_with("  ")) {
                assert!(line.chars().count() <= WIDTH, "{} is wrapped: {line}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&command());
    }

    #[test]
    fn an_option_stands_under_the_heading_of_its_kind() {
        for (name, option, heading) in [
            ("run", "command", None),
            ("run", "quiet", None),
            ("run", "on", Some("Engine")),
            ("run", "chdir", Some("Command")),
            ("run", "give_up_after", Some("Command")),
            ("run", "listen", Some("HTTP")),
            ("run", "once", Some("Schedule")),
            ("run", "watchdog", Some("Fencing")),
            ("run", "fence", Some("Fencing")),
            ("run", "otlp", Some("Traces")),
            ("sidecar", "listen", Some("HTTP")),
            ("sidecar", "drain", Some("Program")),
            ("peer", "ttl", Some("Engine")),
            ("peer", "id", Some("Group")),
            ("peer", "http", Some("HTTP")),
            ("serve", "verbose", None),
            ("serve", "otlp_share", Some("Traces")),
        ] {
            let whole = command();
            let mut options = whole.find_subcommand(name).unwrap().get_arguments();
            let option = options.find(|it| it.get_id() == option).unwrap();
            assert_eq!(option.get_help_heading(), heading, "{name}: {option}");
        }
    }

    #[test]
    fn an_option_that_could_do_nothing_is_refused() {
        for (option, needed) in [
            ("--catch-up none", "--at 02:30"),
            ("--catch-up none", "--every 1h"),
            ("--back-off 2s", "--restart always"),
            ("--give-up-after 3", "--restart on-failure"),
            ("--give-up-after 3", "--every 1h"),
            ("--health-every 1s", "--health true"),
            ("--fence-action reboot", "--fence agent:virsh"),
            ("--fence-options f", "--fence agent:virsh"),
            ("--fence-give-up 1m", "--fence delay:5s"),
        ] {
            let wrong = parse(&words(&format!("incumbent run a {option} -- b"))).expect_err(option).to_string();
            let (name, _) = needed.split_once(' ').unwrap();
            assert!(wrong.contains(name), "{option}: {wrong}");
            let line = format!("incumbent run a {option} {needed} -- b");
            assert!(parse(&words(&line)).is_ok(), "{line}");
        }
        let often = parse(&words("incumbent sidecar a --health true --health-every 0s")).unwrap_err().to_string();
        assert!(often.contains("too often"), "{often}");
    }

    #[test]
    fn the_wish_for_colour_counts_for_help_too() {
        for (line, colour) in [
            ("incumbent --help", Colour::Auto),
            ("incumbent --color always --help", Colour::Always),
            ("incumbent --color=never --help", Colour::Never),
            ("incumbent lab --help -- --color=never", Colour::Auto),
        ] {
            assert_eq!(early_colour(&words(line)), colour, "{line}");
        }
    }

    #[test]
    fn every_command_has_a_line_of_help_and_the_top_shows_examples_and_exit_codes() {
        fn check(command: &clap::Command) {
            assert!(command.get_about().is_some_and(|about| !about.to_string().is_empty()), "{} has no help", command.get_name());
            command.get_subcommands().for_each(check);
        }
        check(&command());
        let help = command().render_long_help().to_string();
        assert!(help.contains("Examples:") && help.contains("130"), "{help}");
    }
}
