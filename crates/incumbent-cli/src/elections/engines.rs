//! `incumbent engines`: which are built in, and of each first what it cannot promise.

use incumbent::Guarantees;
use incumbent::guarantees::{Exclusive, Lateness, Notice, Order, Tokens, WhoseClock};
use serde_json::{Value, json};

use crate::console::{Console, Form};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::table::{Entry, Side, Table, Tone};

pub(crate) const EXAMPLES: &str = "\
Examples:
  incumbent engines
  incumbent engines --json | jq -r '.engines[] | select(.exclusive.kind == \"always\") | .engine'
  # What candidates on PostgreSQL would make themselves, if they may create nothing
  incumbent engines --sql=elections | psql \"$DATABASE_URL\"";

#[derive(clap::Args, Debug)]
pub(crate) struct EnginesArguments {
    /// Print instead the SQL that makes the tables and functions of elections on PostgreSQL, in this schema (public unless said)
    #[arg(long, value_name = "SCHEMA", num_args = 0..=1, require_equals = true, default_missing_value = "public", conflicts_with = "json")]
    sql: Option<String>,
    #[command(flatten)]
    form: Form,
}

/// Prints the table, then every engine's caveats; or what is asked for instead.
pub(crate) fn run(wanted: &EnginesArguments, console: &mut Console<'_>) -> Result<Exit, Failure> {
    if let Some(schema) = &wanted.sql {
        if schema.is_empty() {
            let what = "--sql names a schema without a name: a variable may be empty".to_owned();
            return Err(Failure::Input { what, hint: "say --sql=NAME, or --sql alone for the schema public" });
        }
        write!(console.out, "{}", incumbent::engines::postgres::schema_sql(schema))?;
        return Ok(Exit::Done);
    }
    let form = wanted.form;
    let engines = incumbent::engines::built_in();
    if form.json {
        writeln!(console.out, "{:#}", json!({ "engines": engines.iter().map(guarantees).collect::<Vec<_>>() }))?;
        return Ok(Exit::Done);
    }
    for it in &engines {
        print_caveats(it, console)?;
    }
    writeln!(console.out)?;
    let heads = [
        "engine",
        "one leader",
        "tokens rise",
        "token",
        "clock",
        "notice",
        "next",
        "seats",
        "ttl",
        "freed",
        "candidates",
        "history",
    ];
    let mut table = Table::new(heads.map(|it| (it, Side::Left)));
    for it in &engines {
        let has = |it| if it { "listed" } else { "no" };
        table.row(vec![
            it.engine.into(),
            Entry::new(exclusive(it.exclusive).1, tone(it.exclusive)),
            tokens(it.tokens).1.into(),
            it.token_source.into(),
            clock(it.clock).1.into(),
            notice(it.notice).into(),
            order(it.order).into(),
            seats(it.seats_max).into(),
            format!("{} to {}", super::span::short(it.ttl_min), super::span::short(it.ttl_max)).into(),
            freed(it).into(),
            has(it.lists_candidates).into(),
            if it.keeps_history { "kept" } else { "no" }.into(),
        ]);
    }
    table.print("", console)?;
    Ok(Exit::Done)
}

/// What an engine cannot promise, the worst first.
pub(crate) fn print_caveats(it: &Guarantees, console: &mut Console<'_>) -> Result<(), Failure> {
    let paint = console.paint;
    writeln!(console.out, "{}", paint.strong(it.engine))?;
    if it.caveats.is_empty() {
        writeln!(console.out, "  no caveats")?;
    }
    for caveat in &it.caveats {
        writeln!(console.out, "  {} {caveat}", paint.bad("not promised:"))?;
    }
    Ok(())
}

/// All of it, for a program.
pub(crate) fn guarantees(it: &Guarantees) -> Value {
    let said = |(kind, says): (&str, &str)| json!({ "kind": kind, "says": says });
    json!({
        "engine": it.engine,
        "caveats": it.caveats,
        "exclusive": said(exclusive(it.exclusive)),
        "tokens": said(tokens(it.tokens)),
        "token_source": it.token_source,
        "clock": said(clock(it.clock)),
        "notice": notice(it.notice),
        "order": order(it.order),
        "seats_max": it.seats_max,
        "lists_candidates": it.lists_candidates,
        "keeps_history": it.keeps_history,
        "ttl_min_ms": super::span::ms(it.ttl_min),
        "ttl_max_ms": super::span::ms(it.ttl_max),
        "late": late(it.late),
    })
}

/// Under what there is one leader: for programs, and for people.
pub(crate) fn exclusive(it: Exclusive) -> (&'static str, &'static str) {
    match it {
        Exclusive::Always => ("always", "always"),
        Exclusive::UnlessItFailsOver => ("unless-it-fails-over", "unless it fails over"),
        Exclusive::UnlessTheNetworkSplits => ("unless-the-network-splits", "unless the network splits"),
        Exclusive::OnOneMachine => ("on-one-machine", "on one machine"),
        Exclusive::InOneProcess => ("in-one-process", "in one process"),
    }
}

/// Under what tokens rise.
pub(crate) fn tokens(it: Tokens) -> (&'static str, &'static str) {
    match it {
        Tokens::Durable => ("durable", "always"),
        Tokens::UnlessItForgets => ("unless-it-forgets", "unless it forgets"),
        Tokens::WhileTheProcessLives => ("while-the-process-lives", "in one process"),
    }
}

/// Whose clock decides.
pub(crate) fn clock(it: WhoseClock) -> (&'static str, &'static str) {
    match it {
        WhoseClock::Engine => ("engine", "the engine's"),
        WhoseClock::Candidate => ("candidate", "each candidate's"),
        WhoseClock::Kernel => ("kernel", "none: the kernel frees it"),
    }
}

/// When a seat whose holder died is free, in words.
pub(crate) fn freed(it: &Guarantees) -> String {
    if it.clock == WhoseClock::Kernel {
        return "at once".to_owned();
    }
    let it = it.late;
    let besides = if it.span.is_zero() { String::new() } else { super::span::short(it.span) };
    let part = match (it.percent, it.percent % 100) {
        (0, _) => String::new(),
        (100, _) => "a ttl".to_owned(),
        (_, 0) => format!("{} ttls", it.percent / 100),
        (_, _) => format!("{}% of the ttl", it.percent),
    };
    match (part.is_empty(), besides.is_empty()) {
        (true, true) => "when the ttl is over".to_owned(),
        (false, false) => format!("up to {part} and {besides} after the ttl"),
        (_, _) => format!("up to {part}{besides} after the ttl"),
    }
}

/// The same, for a program.
pub(crate) fn late(it: Lateness) -> Value {
    json!({ "percent_of_ttl": it.percent, "ms": super::span::ms(it.span) })
}

pub(crate) fn notice(it: Notice) -> &'static str {
    match it {
        Notice::Pushed => "pushed",
        Notice::Polled => "polled",
    }
}

pub(crate) fn order(it: Order) -> &'static str {
    match it {
        Order::Line => "line",
        Order::Race => "race",
    }
}

/// How many may lead at once.
pub(crate) fn seats(most: u32) -> String {
    if most == u32::MAX { "any number".to_owned() } else { most.to_string() }
}

fn tone(it: Exclusive) -> Tone {
    match it {
        Exclusive::Always | Exclusive::OnOneMachine => Tone::Good,
        Exclusive::InOneProcess => Tone::Plain,
        Exclusive::UnlessItFailsOver | Exclusive::UnlessTheNetworkSplits => Tone::Bad,
    }
}
