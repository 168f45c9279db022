//! What the library says while a command runs: warnings as they are, everything else with `--verbose` or `INCUMBENT_LOG`. To the standard error,
//! one line each.

use std::fmt;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::voice::Voice;

/// The variable that says what is to be told: `debug`, or by module, as in `incumbent=debug,redis=warn`.
const VARIABLE: &str = "INCUMBENT_LOG";

/// How much is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Talk {
    /// What a person should know of without having asked.
    Warnings,
    /// The same, and a line whenever somebody else leads.
    Changes,
    /// What the library does, step by step.
    Everything,
}

/// Listens from now on. What is said before that is lost; a second call changes nothing.
pub(crate) fn begin(talk: Talk) -> Result<(), Failure> {
    let wanted = std::env::var(VARIABLE).ok().filter(|it| !it.is_empty());
    let (filter, talk) = match (&wanted, talk) {
        (_, Talk::Everything) => (Targets::new().with_target("incumbent", Level::DEBUG), talk),
        (Some(text), Talk::Warnings | Talk::Changes) => (targets(text)?, Talk::Everything),
        // Only our own: what other libraries call a warning is seldom one to the person.
        (None, Talk::Warnings) => (Targets::new().with_target("incumbent", Level::WARN), talk),
        (None, Talk::Changes) => {
            let filter = Targets::new()
                .with_target("incumbent", Level::WARN)
                .with_target("incumbent_peer::node", Level::INFO)
                .with_target("incumbent_service::server", Level::INFO);
            (filter, talk)
        }
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(Voice::default).with_ansi(false).event_format(Lines(talk));
    // Whoever was first keeps it; there is only one in this program.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
    Ok(())
}

fn targets(text: &str) -> Result<Targets, Failure> {
    text.parse().map_err(|why| Failure::Engine {
        what: format!("{VARIABLE} is {text:?} ({why}): write a level such as debug, or incumbent=debug,redis=warn"),
        exit: Exit::Usage,
    })
}

struct Lines(Talk);

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let level = *event.metadata().level();
        match self.0 {
            Talk::Warnings | Talk::Changes if level == Level::ERROR => write!(out, "error: ")?,
            Talk::Changes if level == Level::INFO => write!(out, "incumbent: ")?,
            Talk::Warnings | Talk::Changes => write!(out, "warning: ")?,
            Talk::Everything => {
                let at = super::describe::time(std::time::SystemTime::now());
                write!(out, "{at} {level:<5} {}: ", event.metadata().target())?;
            }
        }
        context.format_fields(out.by_ref(), event)?;
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_that_cannot_be_read_is_refused_with_what_to_write() {
        assert!(targets("debug").is_ok() && targets("incumbent=debug,redis=warn").is_ok());
        let refused = targets("incumbent=loudly").unwrap_err();
        let (what, _) = refused.message().unwrap();
        assert!(what.contains("incumbent=debug") && !what.contains('\n'), "{what}");
    }
}
