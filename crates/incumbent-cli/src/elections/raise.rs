//! `incumbent raise`: makes every later token greater than one that was seen, after the engine was restored from a backup, wiped or replaced.

use incumbent::Token;
use serde_json::json;

use super::target::{Target, TargetArguments, answer};
use crate::console::{Console, Form};
use crate::exit::Exit;
use crate::failure::Failure;

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent raise billing --above 281474976710700 --on etcd://127.0.0.1:2379/prod
  incumbent raise billing --above \"$(psql -Atc 'select max(token) from fences')\"";

#[derive(clap::Args, Debug)]
pub(crate) struct RaiseArguments {
    /// The name of the election
    election: String,
    /// The greatest token that anybody has seen: what the resources refuse to go below
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    above: Token,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// Reads a token as people write it.
pub(crate) fn token(text: &str) -> Result<Token, String> {
    let wrong = || format!("{text:?} is no token: give a whole number such as `incumbent who` prints");
    let number: u64 = text.parse().map_err(|_| wrong())?;
    let incarnation = u16::try_from(number >> 48).map_err(|_| wrong())?;
    let term = incumbent_protocol::protocol::Term(number & incumbent_protocol::protocol::Term::MAX.0);
    Token::new(incarnation, term).ok_or_else(wrong)
}

/// Raises, and says so.
pub(crate) async fn run(wanted: &RaiseArguments, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let election = Target::find(&wanted.target)?.election(&wanted.election).await?;
    answer(election.raise(wanted.above)).await.map_err(|why| Failure::changing(&why))?;
    if wanted.form.json {
        writeln!(console.out, "{:#}", json!({ "election": wanted.election, "above": wanted.above.to_string() }))?;
    } else {
        writeln!(console.out, "every later leadership of {} has a token greater than {}", wanted.election, wanted.above)?;
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_are_taken() {
        assert_eq!(token("281474976710657").unwrap().get(), (1 << 48) + 1);
        for bad in ["", "-1", "1.5", "0x10", "18446744073709551615"] {
            assert!(token(bad).unwrap_err().contains("incumbent who"), "{bad}");
        }
    }
}
