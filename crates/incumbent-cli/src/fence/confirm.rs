//! `incumbent fence confirm`: a person's word that a former leader is dead, where no fence could make sure of it.
//!
//! It is put on record for the leaderships that left without a word and no others. Whoever waits for it goes on at its next look; nobody checks it, so it must be true.

use incumbent::Token;
use incumbent::engine::Board;

use crate::console::Console;
use crate::elections::log;
use crate::elections::raise::token;
use crate::elections::target::{Target, TargetArguments, answer};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::run::record::{End, Proof, Record, Unsettled, settle, unsettled};

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent fence confirm billing                      what there is to confirm; changes nothing
  incumbent fence confirm billing --host web-1 --yes   web-1 is dead: what it ran cannot act
  incumbent fence confirm billing --token 42 --yes";

#[derive(clap::Args, Debug)]
pub(crate) struct ConfirmArguments {
    /// The name of the election
    election: String,
    /// Only this leadership
    #[arg(long, value_name = "TOKEN", value_parser = token, conflicts_with = "host")]
    token: Option<Token>,
    /// Only leaderships of this host, by its name or --identity
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Put it on record; without it, only say what would be
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    target: TargetArguments,
}

/// Says what there is to confirm, and confirms it if told to.
pub(crate) fn run(wanted: &ConfirmArguments, console: &mut Console<'_>) -> Result<Exit, Failure> {
    log::begin(wanted.target.talk())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|wrong| Failure::Io {
        what: format!("cannot start: {wrong}"),
        hint: "raise the limit of open files, or close some",
    })?;
    runtime.block_on(confirm(wanted, console))
}

async fn confirm(wanted: &ConfirmArguments, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let target = Target::find(&wanted.target)?;
    let election = target.election(&wanted.election).await?;
    let board = answer(election.look()).await.map_err(|why| Failure::asking(&why))?;
    let place = &target.url;
    if board.leaders.is_empty() && board.past.is_empty() && board.notes.is_empty() {
        // To say that all is well would be about another election than the one that is meant.
        let (name, origin) = (&wanted.election, &target.origin);
        let what =
            format!("{name}: nothing is on record of it on {place:?}, which is named by {origin}: is it the right engine?");
        return Err(Failure::Engine { what, exit: Exit::Usage });
    }
    let chosen = choose(&board, wanted.token, wanted.host.as_deref())
        .map_err(|why| Failure::Engine { what: format!("{}: {why}", wanted.election), exit: Exit::Usage })?;
    if chosen.is_empty() {
        writeln!(console.out, "nothing to confirm: no former leader of {} is feared to live on {place:?}", wanted.election)?;
        return Ok(Exit::Done);
    }
    for it in &chosen {
        let how = it.reason.as_deref().unwrap_or("without a word");
        let (by, number, whole) = (&it.by, it.token, it.by.as_str());
        if wanted.yes {
            let record = Record::settled(Proof::Confirmed, &target.who());
            settle(&election, &board, number, &record).await.map_err(|why| Failure::changing(&why))?;
            writeln!(console.out, "confirmed that {by} is dead: token {number}, {how} ({whole})")?;
        } else {
            writeln!(console.out, "would confirm that {by} is dead: token {number}, {how} ({whole})")?;
        }
    }
    if !wanted.yes {
        writeln!(console.out, "nothing was changed: make sure that nothing of it runs or can wake up, then say --yes")?;
    }
    Ok(Exit::Done)
}

/// The leaderships that are meant. `Err` if one is named of which there is nothing to confirm.
fn choose(board: &Board, number: Option<Token>, host: Option<&str>) -> Result<Vec<Unsettled>, String> {
    let all = unsettled(board);
    match (number, host) {
        (None, None) => Ok(all),
        (Some(number), _) => {
            let chosen: Vec<Unsettled> = all.into_iter().filter(|it| it.token == number).collect();
            if !chosen.is_empty() {
                return Ok(chosen);
            }
            let past = board.past.iter().find(|it| it.token == number);
            Err(match past {
                _ if board.leaders.iter().any(|it| it.token == number) => format!("{number} is in office: resign or evict it"),
                Some(it) if End::of(&it.reason) == End::Unclean => format!("{number} is settled already: see incumbent history"),
                Some(it) => format!("{number} ended in order ({}): there is nothing to confirm", it.reason),
                None => format!("no leadership {number} is on record: see incumbent history"),
            })
        }
        (None, Some(host)) => {
            let chosen: Vec<Unsettled> = all.into_iter().filter(|it| it.by.name() == host || it.by.as_str() == host).collect();
            if chosen.is_empty() {
                Err(format!("no leader {host:?} is feared to live: see incumbent history"))
            } else {
                Ok(chosen)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use incumbent::Identity;
    use incumbent::engine::{Leader, Past};
    use incumbent_protocol::protocol::Term;

    use super::*;

    #[test]
    fn only_those_who_left_without_a_word_are_confirmed() {
        let number = |it| Token::new(0, Term(it)).unwrap();
        let past = |it, name: &str, reason: &str| Past {
            identity: Identity::stored(name),
            token: number(it),
            since_ms: 0,
            until_ms: 0,
            reason: reason.to_owned(),
        };
        let leader = Leader {
            identity: Identity::stored("d"),
            token: number(4),
            value: String::new(),
            priority: 0,
            since: None,
            heeds_wishes: true,
        };
        let board = Board {
            leaders: vec![leader],
            past: vec![past(3, "c", "lease expired"), past(2, "b", "process died"), past(1, "a", "resigned")],
            ..Board::default()
        };
        let tokens = |chosen: Vec<Unsettled>| chosen.iter().map(|it| it.token.get()).collect::<Vec<_>>();
        assert_eq!(tokens(choose(&board, None, None).unwrap()), [3, 2]);
        assert_eq!(tokens(choose(&board, Some(number(2)), None).unwrap()), [2]);
        assert_eq!(tokens(choose(&board, None, Some("c")).unwrap()), [3]);
        for (token, host, says) in [
            (Some(4), None, "in office"),
            (Some(1), None, "in order (resigned)"),
            (Some(9), None, "no leadership 9"),
            (None, Some("a"), "no leader"),
            (None, Some("d"), "no leader"),
        ] {
            let why = choose(&board, token.map(number), host).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }
}
