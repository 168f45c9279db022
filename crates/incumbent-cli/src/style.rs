//! Colour: when it is used, and the few kinds of text that have one.
//!
//! A colour never carries what the words do not say: without colour nothing is lost.

use std::fmt::{self, Display};

use anstyle::{AnsiColor, Style};

/// When to colour.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Colour {
    /// If the output is a terminal and the environment does not object
    Auto,
    /// Also into files and pipes
    Always,
    /// Not at all
    Never,
}

impl From<Colour> for clap::ColorChoice {
    fn from(colour: Colour) -> clap::ColorChoice {
        match colour {
            Colour::Auto => clap::ColorChoice::Auto,
            Colour::Always => clap::ColorChoice::Always,
            Colour::Never => clap::ColorChoice::Never,
        }
    }
}

/// Paints text, or leaves it as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    colours: bool,
}

impl Paint {
    /// For a stream that is a terminal or not.
    pub(crate) fn on_a(terminal: bool, colour: Colour) -> Paint {
        Paint { colours: wanted(colour, terminal, |name| std::env::var(name).ok()) }
    }

    /// Whether there is any colour at all.
    pub(crate) fn has_colours(self) -> bool {
        self.colours
    }

    /// What went well or is safe.
    pub(crate) fn good<T: Display>(self, text: T) -> Painted<T> {
        self.with(AnsiColor::Green.on_default(), text)
    }

    /// What went wrong or is not safe.
    pub(crate) fn bad<T: Display>(self, text: T) -> Painted<T> {
        self.with(AnsiColor::Red.on_default().bold(), text)
    }

    /// Names and headings.
    pub(crate) fn strong<T: Display>(self, text: T) -> Painted<T> {
        self.with(Style::new().bold(), text)
    }

    fn with<T>(self, style: Style, text: T) -> Painted<T> {
        Painted { style: if self.colours { style } else { Style::new() }, text }
    }
}

/// Text with its colour. Width and alignment apply to the text alone.
pub(crate) struct Painted<T> {
    style: Style,
    text: T,
}

impl<T: Display> Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.style.render())?;
        self.text.fmt(f)?;
        write!(f, "{}", self.style.render_reset())
    }
}

/// The conventions of no-color.org and bixense.com/clicolors; the command line wins over both.
fn wanted(colour: Colour, terminal: bool, environment: impl Fn(&str) -> Option<String>) -> bool {
    let says = |name| environment(name).filter(|value| !value.is_empty());
    match colour {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto if says("NO_COLOR").is_some() => false,
        Colour::Auto if says("CLICOLOR_FORCE").is_some_and(|value| value != "0") => true,
        Colour::Auto if says("CLICOLOR").is_some_and(|value| value == "0") => false,
        Colour::Auto => terminal && says("TERM").is_none_or(|value| value != "dumb"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_wins_then_the_environment_then_the_terminal() {
        let with = |colour, terminal, set: &'static [(&str, &str)]| {
            wanted(colour, terminal, |name| set.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(with(Colour::Auto, true, &[]));
        assert!(!with(Colour::Auto, false, &[]));
        assert!(!with(Colour::Auto, true, &[("NO_COLOR", "1")]));
        assert!(with(Colour::Auto, true, &[("NO_COLOR", "")]), "an empty NO_COLOR says nothing");
        assert!(!with(Colour::Auto, true, &[("CLICOLOR", "0")]));
        assert!(with(Colour::Auto, false, &[("CLICOLOR_FORCE", "1")]));
        assert!(!with(Colour::Auto, true, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
        assert!(!with(Colour::Auto, true, &[("TERM", "dumb")]));
        assert!(with(Colour::Always, false, &[("NO_COLOR", "1")]));
        assert!(!with(Colour::Never, true, &[("CLICOLOR_FORCE", "1")]));
    }

    #[test]
    fn without_colour_nothing_but_the_text_is_printed_and_columns_line_up_either_way() {
        let plain = Paint { colours: false };
        assert_eq!(format!("[{:<6}]", plain.bad("no")), "[no    ]");
        let painted = format!("[{:<6}]", Paint { colours: true }.bad("no"));
        assert!(painted.contains("no    ") && painted.contains('\u{1b}'), "{painted:?}");
    }
}
