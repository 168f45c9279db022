//! `incumbent token new`: a secret for a guest of the service, and its line for the file of tokens. Nothing keeps the secret.

use clap::Subcommand;
use incumbent_service::rights::{Right, make};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::json;

use crate::console::{Console, Form};
use crate::exit::Exit;
use crate::failure::Failure;

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent token new billing --campaign billing/ --read config/billing/
  incumbent token new prober --observe ''                   an empty prefix is good for all
  incumbent token new root --admin '' > new
  head -1 new > root.token; tail -1 new >> /etc/incumbent/tokens; rm new
  incumbent token new ci --write deploy/ --json | jq -r .line >> /etc/incumbent/tokens

The first line is the secret, for its owner alone: INCUMBENT_PASSWORD, or password-file=FILE in the URL. The second goes into the file of tokens
of every node, which is read again by itself. docs/security.md says what each right allows.";

#[derive(Subcommand, Debug)]
pub(crate) enum TokenCommand {
    /// Make a token: print the secret, once, and the line for the file of tokens
    #[command(after_help = EXAMPLES)]
    New(NewArguments),
}

#[derive(clap::Args, Debug)]
pub(crate) struct NewArguments {
    /// Whose it is: letters, digits, dots, hyphens and underscores
    name: String,
    /// May see who leads and who waits in elections that begin so
    #[arg(long, value_name = "PREFIX")]
    observe: Vec<String>,
    /// May stand for elections that begin so, and lead them
    #[arg(long, value_name = "PREFIX")]
    campaign: Vec<String>,
    /// May make leaders of elections that begin so leave
    #[arg(long, value_name = "PREFIX")]
    evict: Vec<String>,
    /// May read keys that begin so
    #[arg(long, value_name = "PREFIX")]
    read: Vec<String>,
    /// May write keys that begin so
    #[arg(long, value_name = "PREFIX")]
    write: Vec<String>,
    /// May do all of it under a prefix; with an empty one, the cluster itself
    #[arg(long, value_name = "PREFIX")]
    admin: Vec<String>,
    #[command(flatten)]
    form: Form,
}

/// Stands for itself in the file of tokens: everything but what ends a word, begins a comment, or writes another byte.
const WRITTEN: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'#');

pub(crate) fn run(command: &TokenCommand, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let TokenCommand::New(wanted) = command;
    let rights = rights(wanted);
    if rights.is_empty() {
        return Err(Failure::Input {
            what: format!("a token for {:?} without rights opens nothing", wanted.name),
            hint: "grant some: --campaign PREFIX, --observe PREFIX, --read PREFIX ...; an empty prefix ('') is good for all",
        });
    }
    let made = make(&wanted.name, &rights.join(" ")).map_err(|what| Failure::Engine { what, exit: Exit::Usage })?;
    if wanted.form.json {
        writeln!(console.out, "{:#}", json!({ "name": wanted.name, "token": made.token, "line": made.line }))?;
        return Ok(Exit::Done);
    }
    writeln!(console.out, "{}\n{}", made.token, made.line)?;
    eprintln!(
        "the first line is the secret of {}, and is kept nowhere; the second goes into the file of tokens of every node",
        wanted.name
    );
    Ok(Exit::Done)
}

fn rights(wanted: &NewArguments) -> Vec<String> {
    let prefixes = |right| match right {
        Right::Observe => &wanted.observe,
        Right::Campaign => &wanted.campaign,
        Right::Evict => &wanted.evict,
        Right::Read => &wanted.read,
        Right::Write => &wanted.write,
        Right::Admin => &wanted.admin,
    };
    let written = |right: Right| prefixes(right).iter().map(move |it| format!("{right}:{}", utf8_percent_encode(it, WRITTEN)));
    Right::ALL.into_iter().flat_map(written).collect()
}
