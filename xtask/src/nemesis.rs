//! `cargo xtask nemesis --minutes N [--seed S]`: the tests of the service under faults, for longer than the tests take.
//!
//! Each round has the seed after the one before, and every third is one of five nodes. Unless a seed is given it begins with one that is drawn, and says which: else every run would begin
//! with what the tests have done already.

use std::hash::{BuildHasher as _, RandomState};

use crate::shell;

/// Three rounds do everything once.
const ROUNDS: u64 = 3;

/// Short enough to be read aloud.
const PACKS: u64 = 1_000_000;

/// For how long, and from which seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    minutes: u64,
    seed: Option<u64>,
}

impl Wanted {
    /// What the command line wants.
    pub(crate) fn parse(words: &[&str]) -> Result<Wanted, String> {
        let number = |name: &str, word: &str| word.parse::<u64>().map_err(|_| format!("{name} takes a number, not '{word}'"));
        let (mut minutes, mut seed, mut rest) = (None, None, words);
        while let [name, value, more @ ..] = rest {
            match *name {
                "--minutes" => minutes = Some(number(name, value)?),
                "--seed" => seed = Some(number(name, value)?),
                other => return Err(format!("nemesis takes --minutes N and --seed S, not '{other}'")),
            }
            rest = more;
        }
        match (rest, minutes) {
            ([], Some(minutes)) => Ok(Wanted { minutes, seed }),
            _ => Err("say for how long: nemesis --minutes N [--seed S]".into()),
        }
    }
}

/// Runs them.
pub(crate) fn run(wanted: &Wanted) -> Result<(), String> {
    let mut command = shell::cargo(&["test", "--locked", "--package", "incumbent-cli", "--test", "nemesis"]);
    command.args(["nodes_keep_what_they_promise", "--", "--nocapture"]);
    command.env("INCUMBENT_NEMESIS_MINUTES", wanted.minutes.to_string());
    let seed = wanted.seed.unwrap_or_else(draw);
    println!("begins with this seed: --seed {seed}");
    command.env("INCUMBENT_NEMESIS_SEED", seed.to_string());
    shell::run(&mut command)
}

/// A seed that nobody knows before, and with which three rounds begin that do everything.
fn draw() -> u64 {
    1 + ROUNDS * (RandomState::new().hash_one("nemesis") % PACKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minutes_must_be_said_and_the_seed_may() {
        assert_eq!(Wanted::parse(&["--minutes", "3"]), Ok(Wanted { minutes: 3, seed: None }));
        assert_eq!(Wanted::parse(&["--seed", "7", "--minutes", "3"]), Ok(Wanted { minutes: 3, seed: Some(7) }));
        for words in [&[][..], &["--seed", "7"], &["--minutes"], &["--minutes", "x"], &["--hours", "3"]] {
            assert!(Wanted::parse(words).is_err(), "{words:?}");
        }
    }
    #[test]
    fn a_seed_that_is_drawn_begins_three_rounds_and_is_seldom_the_same() {
        let drawn: Vec<u64> = (0..10).map(|_| draw()).collect();
        assert!(drawn.iter().all(|it| it % ROUNDS == 1), "{drawn:?}");
        assert!(drawn.iter().any(|it| *it != drawn[0]), "{drawn:?}");
    }
}
