//! A span: something that took a while, and what is known of it. Nothing at all where nobody wants to be told.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::Desk;
use super::context::Context;

/// A text from outside is told up to so many bytes.
const TEXT_BYTES_MAX: usize = 256;

/// What a span is of.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Something within the process.
    Internal,
    /// Something that somebody else has asked for.
    Server,
}

/// What an attribute says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
    /// Whether something is so.
    Flag(bool),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Value {
        Value::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value {
    fn from(mut text: String) -> Value {
        if text.len() > TEXT_BYTES_MAX {
            let end = (0..=TEXT_BYTES_MAX).rev().find(|it| text.is_char_boundary(*it)).unwrap_or(0);
            text.truncate(end);
        }
        Value::Text(Cow::Owned(text))
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value {
    fn from(is_so: bool) -> Value {
        Value::Flag(is_so)
    }
}

/// Something under way. It ends when it is dropped, and is told then; or it is nothing, and so is all that is done to it.
#[must_use = "dropped, it has ended"]
#[derive(Default)]
pub struct Span(State);

#[derive(Default)]
enum State {
    #[default]
    Nothing,
    /// Its trace is not told, nor what belongs to it elsewhere.
    Untold(Box<Context>),
    Told(Box<Open>),
}

struct Open {
    desk: Arc<Desk>,
    began: Instant,
    span: Ended,
}

/// A span that has ended, or what is known of one that has not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    pub(crate) context: Context,
    pub(crate) parent: Option<u64>,
    pub(crate) name: Cow<'static, str>,
    pub(crate) kind: Kind,
    pub(crate) start: SystemTime,
    pub(crate) took: Duration,
    pub(crate) attributes: Vec<(&'static str, Value)>,
    /// Each with the time since the start.
    pub(crate) events: Vec<(&'static str, Duration)>,
    /// What went wrong, if something did.
    pub(crate) fault: Option<&'static str>,
}

impl Span {
    /// Nothing.
    pub fn none() -> Span {
        Span(State::Nothing)
    }

    pub(crate) fn begin(desk: &Arc<Desk>, name: &'static str, kind: Kind, parent: Option<Context>) -> Span {
        let trace = parent.map_or_else(|| desk.ids.trace(), |it| it.trace);
        let is_told = parent.map_or_else(|| desk.share.takes(trace), |it| it.is_told);
        let context = Context { trace, span: desk.ids.span(), is_told };
        if !is_told {
            return Span(State::Untold(Box::new(context)));
        }
        let span = Ended {
            context,
            parent: parent.map(|it| it.span),
            name: Cow::Borrowed(name),
            kind,
            start: SystemTime::now(),
            took: Duration::ZERO,
            attributes: Vec::new(),
            events: Vec::new(),
            fault: None,
        };
        Span(State::Told(Box::new(Open { desk: Arc::clone(desk), began: Instant::now(), span })))
    }

    /// Whether it will be told to anybody. What is dear to find out need not be, if not.
    #[inline]
    pub fn is_told(&self) -> bool {
        matches!(self.0, State::Told(_))
    }

    /// For what is done for it elsewhere.
    pub fn context(&self) -> Option<Context> {
        match &self.0 {
            State::Nothing => None,
            State::Untold(context) => Some(**context),
            State::Told(open) => Some(open.span.context),
        }
    }

    /// Calls it by another name.
    pub fn rename(&mut self, name: String) {
        if let State::Told(open) = &mut self.0 {
            open.span.name = Cow::Owned(name);
        }
    }

    /// Says something of it. Never a secret, and no value that a user has stored.
    pub fn set(&mut self, what: &'static str, value: impl Into<Value>) {
        if let State::Told(open) = &mut self.0 {
            open.span.attributes.push((what, value.into()));
        }
    }

    /// Something has happened on the way.
    #[inline]
    pub fn event(&mut self, name: &'static str) {
        if let State::Told(open) = &mut self.0 {
            let at = open.began.elapsed();
            open.span.events.push((name, at));
        }
    }

    /// It has gone wrong, for a reason that is not the asker's; `None` takes it back.
    pub fn fault(&mut self, what: Option<&'static str>) {
        if let State::Told(open) = &mut self.0 {
            open.span.fault = what;
        }
    }
}

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        if let State::Told(open) = std::mem::take(&mut self.0) {
            let Open { desk, began, span } = *open;
            desk.push(Ended { took: began.elapsed(), ..span });
        }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            State::Told(open) => open.span.fmt(f),
            State::Untold(context) => write!(f, "Span({context})"),
            State::Nothing => f.write_str("Span(none)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_letters() {
        let Value::Text(text) = Value::from("ü".repeat(TEXT_BYTES_MAX)) else { panic!("a text") };
        assert_eq!(text.len(), TEXT_BYTES_MAX);
        let Value::Text(text) = Value::from(format!("x{}", "ü".repeat(TEXT_BYTES_MAX))) else { panic!("a text") };
        assert_eq!(text.len(), TEXT_BYTES_MAX - 1);
    }
}
