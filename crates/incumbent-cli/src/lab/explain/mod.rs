//! `incumbent lab explain PROTOCOL`: teaches an algorithm step by step, from a real run of the shipping code.

mod cost;
mod lesson;
mod sentence;

use std::collections::BTreeSet;
use std::io::BufRead;

use incumbent_lab::scenario::{self, Outcome, Scenario};
use incumbent_lab::trace::Entry;
use incumbent_protocol::machine::Kind;
use serde_json::json;

use self::cost::{Cost, costs, legend, starter};
use self::lesson::{Chapter, Lesson, Run, lesson};
use self::sentence::Teacher;
use super::run::told_json;
use crate::console::{Console, Form};
use crate::exit::Exit;
use crate::failure::Failure;

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent lab explain bully
  incumbent lab explain raft --step
  incumbent lab explain ring --json | jq -r 'select(.means) | .means'";

/// Text is broken at this width: a line of more is hard to read, whatever the terminal.
const WIDTH: usize = 92;

#[derive(clap::Args, Debug)]
pub(crate) struct ExplainArguments {
    /// bully, ring, chang-roberts or raft
    #[arg(value_name = "PROTOCOL", value_parser = parse_kind)]
    kind: Kind,
    /// Wait for Enter behind every line; q and Enter ends
    #[arg(long, conflicts_with = "json")]
    step: bool,
    #[command(flatten)]
    form: Form,
}

fn parse_kind(text: &str) -> Result<Kind, String> {
    text.parse().map_err(|wrong: incumbent_protocol::settings::Invalid| wrong.to_string())
}

/// Teaches.
pub(crate) fn run(arguments: &ExplainArguments, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let lesson = lesson(arguments.kind);
    if arguments.form.json {
        print_json(arguments.kind, lesson, console)?;
    } else {
        let mut reader = Reader { waits: arguments.step, input: std::io::stdin().lock() };
        print_text(arguments.kind, lesson, &mut reader, console)?;
    }
    Ok(Exit::Done)
}

/// A run of a lesson, played.
struct Played {
    scenario: Scenario,
    outcome: Outcome,
}

impl Played {
    fn of(run: &Run) -> Played {
        let blocks: Vec<String> = run.chapters.iter().map(|chapter| format!("{}\n----\n", chapter.commands)).collect();
        let text = format!("# A lesson.\n{}\n{}", run.cluster, blocks.join("\n"));
        let scenario = scenario::parse("lesson", &text).unwrap_or_else(|mistake| panic!("a lesson is wrong: {mistake}"));
        let outcome = scenario::run(&scenario);
        Played { scenario, outcome }
    }

    /// The chapters with their acts.
    fn chapters<'a>(&'a self, run: &'a Run) -> impl Iterator<Item = (&'a Chapter, Vec<&'a scenario::Act>)> {
        let mut acts = self.outcome.acts.iter();
        let counts = self.scenario.blocks.iter().map(|block| block.steps.len());
        run.chapters.iter().zip(counts).map(move |(chapter, count)| (chapter, acts.by_ref().take(count).collect()))
    }

    fn teacher(&self) -> Teacher<'_> {
        Teacher { world: &self.scenario.world, entries: &self.outcome.entries }
    }

    /// What happened in the chapters that the theory is about.
    fn counted<'a>(&'a self, run: &'a Run) -> Vec<&'a Entry> {
        let counted = self.chapters(run).filter(|(chapter, _)| chapter.counted);
        counted.flat_map(|(_, acts)| acts).flat_map(|act| &self.outcome.entries[act.entries.clone()]).collect()
    }
}

/// What an election cost, in the run in which it was counted.
struct Bill {
    costs: Vec<Cost>,
    legend: String,
}

fn bill(kind: Kind, lesson: &Lesson) -> Option<Bill> {
    let run = lesson.runs.iter().find(|run| run.chapters.iter().any(|chapter| chapter.counted))?;
    let played = Played::of(run);
    let entries = played.counted(run);
    let settings = &played.scenario.world.settings;
    Some(Bill { costs: costs(kind, settings, &entries), legend: legend(kind, settings, starter(&entries)) })
}

/// The person who reads, and perhaps presses Enter.
struct Reader<R> {
    waits: bool,
    input: R,
}

impl<R: BufRead> Reader<R> {
    /// Waits if that is wanted. False: the person has had enough.
    fn goes_on(&mut self, console: &mut Console<'_>) -> Result<bool, Failure> {
        if !self.waits {
            return Ok(true);
        }
        console.out.flush()?;
        let mut line = String::new();
        match self.input.read_line(&mut line) {
            Ok(0) | Err(_) => {
                // Nobody is there to press a key: show the rest.
                self.waits = false;
                Ok(true)
            }
            Ok(_) => Ok(!line.trim().eq_ignore_ascii_case("q")),
        }
    }
}

fn print_text<R: BufRead>(kind: Kind, lesson: &Lesson, reader: &mut Reader<R>, console: &mut Console<'_>) -> Result<(), Failure> {
    let paint = console.paint;
    writeln!(console.out, "{}\n", paint.strong(lesson.title))?;
    for paragraph in lesson.introduction {
        writeln!(console.out, "{}\n", wrap(paragraph, WIDTH, ""))?;
    }
    // A reason is told when it is met first.
    let mut told_topics = BTreeSet::new();
    for run in lesson.runs {
        let played = Played::of(run);
        let teacher = played.teacher();
        for (chapter, acts) in played.chapters(run) {
            writeln!(console.out, "{}", paint.strong(format_args!("== {} ==", chapter.heading)))?;
            if !chapter.text.is_empty() {
                writeln!(console.out, "{}", wrap(chapter.text, WIDTH, ""))?;
            }
            writeln!(console.out)?;
            if !reader.goes_on(console)? {
                return Ok(());
            }
            for act in acts {
                for told in played.outcome.told(act) {
                    writeln!(console.out, "{}", paint.good(told.line()))?;
                    let mut sentence = teacher.sentence(&told);
                    if told_topics.insert(sentence.topic) {
                        sentence.what = format!("{} {}", sentence.what, sentence.why);
                    }
                    writeln!(console.out, "{}", wrap(&sentence.what, WIDTH, "    "))?;
                    if !reader.goes_on(console)? {
                        return Ok(());
                    }
                }
                for line in &act.shown {
                    writeln!(console.out, "{}", paint.strong(line))?;
                }
            }
            writeln!(console.out)?;
        }
    }
    print_bill(kind, lesson, console)?;
    writeln!(console.out, "{}", paint.strong("== What it cannot promise =="))?;
    for limit in lesson.limits {
        writeln!(console.out, "- {}", wrap(limit, WIDTH, "  ").trim_start())?;
    }
    Ok(())
}

fn print_bill(kind: Kind, lesson: &Lesson, console: &mut Console<'_>) -> Result<(), Failure> {
    let Some(bill) = bill(kind, lesson) else { return Ok(()) };
    writeln!(console.out, "{}", console.paint.strong("== What it costs =="))?;
    writeln!(console.out, "{:<16} {:>7}  {:>6}  formula", "message", "counted", "theory")?;
    for cost in &bill.costs {
        writeln!(console.out, "{:<16} {:>7}  {:>6}  {}", cost.message, cost.counted, cost.expected, cost.formula)?;
    }
    let sum = |of: fn(&Cost) -> usize| bill.costs.iter().map(of).sum::<usize>();
    writeln!(console.out, "{:<16} {:>7}  {:>6}", "together", sum(|it| it.counted), sum(|it| it.expected))?;
    writeln!(console.out, "{}\n", wrap(&bill.legend, WIDTH, ""))?;
    Ok(())
}

/// One object a line: `lesson`, `chapter`, what happened with `means` and `because`, `cost`, `limits`.
fn print_json(kind: Kind, lesson: &Lesson, console: &mut Console<'_>) -> Result<(), Failure> {
    writeln!(
        console.out,
        "{}",
        json!({ "kind": "lesson", "protocol": kind.name(), "title": lesson.title, "introduction": lesson.introduction })
    )?;
    for run in lesson.runs {
        let played = Played::of(run);
        let teacher = played.teacher();
        for (chapter, acts) in played.chapters(run) {
            writeln!(
                console.out,
                "{}",
                json!({ "kind": "chapter", "heading": chapter.heading, "text": chapter.text, "cluster": run.cluster })
            )?;
            for act in acts {
                writeln!(console.out, "{}", json!({ "kind": "command", "at_ns": act.at.0, "text": act.text }))?;
                for told in played.outcome.told(act) {
                    let mut line = told_json(&told, &played.outcome.entries);
                    let sentence = teacher.sentence(&told);
                    line["means"] = sentence.what.into();
                    line["because"] = sentence.why.into();
                    writeln!(console.out, "{line}")?;
                }
                for line in &act.shown {
                    writeln!(console.out, "{}", json!({ "kind": "shown", "text": line }))?;
                }
            }
        }
    }
    for cost in bill(kind, lesson).iter().flat_map(|bill| &bill.costs) {
        let Cost { message, counted, formula, expected } = cost;
        writeln!(
            console.out,
            "{}",
            json!({ "kind": "cost", "message": message, "counted": counted, "formula": formula, "theory": expected })
        )?;
    }
    writeln!(console.out, "{}", json!({ "kind": "limits", "cannot_promise": lesson.limits }))?;
    Ok(())
}

/// Breaks `text` at spaces; every line begins with `indent`.
fn wrap(text: &str, width: usize, indent: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut line = indent.to_owned();
    for word in text.split_whitespace() {
        let is_first = line.len() == indent.len();
        if !is_first && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, indent.to_owned()));
        } else if !is_first {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lesson_is_true_every_line_has_its_sentence_and_theory_agrees_with_what_was_counted() {
        for kind in Kind::ALL {
            let lesson = lesson(kind);
            for run in lesson.runs {
                let played = Played::of(run);
                assert_eq!(played.outcome.failures, [], "{kind} {}", run.cluster);
                let mut told = 0;
                for (chapter, acts) in played.chapters(run) {
                    for line in acts.iter().flat_map(|act| played.outcome.told(act)) {
                        told += 1;
                        let sentence = played.teacher().sentence(&line);
                        assert!(
                            sentence.what.ends_with(['.', '?']) && sentence.what.len() > 20,
                            "{kind}, {}: {} {sentence:?}",
                            chapter.heading,
                            line.text
                        );
                    }
                }
                assert!(told > 5, "{kind} {}", run.cluster);
            }
            for cost in bill(kind, lesson).expect("every lesson counts").costs {
                assert_eq!(cost.counted, cost.expected, "{kind} {}", cost.message);
            }
        }
    }

    #[test]
    fn a_partition_shows_two_leaders_without_the_guard_and_never_with_it() {
        for kind in Kind::ALL {
            let mut overlaps = lesson(kind).runs.iter().map(|run| {
                let played = Played::of(run);
                (played.scenario.world.settings.quorum().is_some(), !played.outcome.meter.overlaps().is_empty())
            });
            assert!(overlaps.clone().any(|it| it == (false, true)), "{kind}: no two leaders to see");
            assert!(overlaps.clone().any(|(guarded, _)| guarded), "{kind}: nothing guarded to see");
            assert!(!overlaps.any(|it| it == (true, true)), "{kind}");
        }
    }

    #[test]
    fn text_is_broken_at_spaces_and_indented() {
        assert_eq!(wrap("one two three four", 11, "  "), "  one two\n  three\n  four");
        assert_eq!(wrap("unbreakable", 4, ""), "unbreakable");
        assert_eq!(wrap("", 4, "  "), "  ");
    }

    #[test]
    fn a_reader_who_has_had_enough_is_let_go_and_one_who_is_gone_gets_the_rest() {
        let shown = |input: &str| {
            let mut out = Vec::new();
            let paint = crate::style::Paint::on_a(false, crate::style::Colour::Never);
            let mut console = Console { out: &mut out, paint };
            let mut reader = Reader { waits: true, input: input.as_bytes() };
            print_text(Kind::Bully, lesson(Kind::Bully), &mut reader, &mut console).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(!shown("\n\nq\n").contains("What it costs"));
        assert!(shown("\n\n").contains("What it cannot promise"));
    }
}
