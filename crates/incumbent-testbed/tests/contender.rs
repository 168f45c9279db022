//! A contender is heard, spoken to, paused and killed.

use std::process::Command;

use incumbent_testbed::Contender;

fn shell(script: &str) -> Contender {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("SEAT", "billing").current_dir("/");
    Contender::start(&command).unwrap()
}

#[test]
fn it_is_heard_line_by_line_and_answers() {
    let contender = shell("echo hello from $PWD for $SEAT; while read word; do echo heard $word; done; echo bye; exit 7");
    assert_eq!(contender.hear("a greeting", |line| line.starts_with("hello")), "hello from / for billing");
    contender.say("one").unwrap();
    contender.say("two").unwrap();
    assert_eq!(contender.hear("the second", |line| line.contains("two")), "heard two");
    contender.hang_up();
    assert_eq!(contender.wait(), Some(7));
    contender.hear("the last word", |line| line == "bye");
    assert_eq!(contender.lines(), ["hello from / for billing", "heard one", "heard two", "bye"]);
}

#[test]
fn paused_it_does_nothing_and_resumed_it_goes_on() {
    let contender = shell("while read word; do echo heard $word; done");
    contender.say("one").unwrap();
    contender.hear("one", |line| line == "heard one");
    contender.pause();
    contender.say("two").unwrap();
    assert_eq!(contender.lines(), ["heard one"]);
    contender.resume();
    contender.hear("two", |line| line == "heard two");
    contender.kill();
    assert_eq!(contender.wait(), None);
}

#[test]
#[should_panic(expected = "no such luck")]
fn one_that_ends_without_the_word_shows_its_complaints() {
    shell("echo something else; echo no such luck >&2; exit 1").hear("the word", |line| line == "the word");
}
