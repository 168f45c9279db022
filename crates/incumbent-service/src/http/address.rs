//! What stands in the address of a request: one name or key in the path, parameters behind the question mark.
//!
//! Both are percent-encoded, and what is encoded wrongly is refused rather than guessed at. A name is one segment of the path (a slash in it is `%2F`), so what follows is a verb;
//! a key is all the rest of the path, slashes and all, and nothing follows. In parameters `+` is a space, as forms have it; in a path it is itself.

use std::borrow::Cow;
use std::time::Duration;

use percent_encoding::percent_decode;

use super::failure::Failure;
use super::shapes::id;

/// A parameter that a route knows.
#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) says: &'static str,
}

/// What a parameter holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Any bytes: a key.
    Key,
    /// A text in UTF-8.
    Text,
    /// One of these.
    Word(&'static [&'static str]),
    /// A whole number of 64 bits.
    Whole,
    /// The same, for what has no order: in JSON it is a text.
    Id,
    /// A time: `500ms`, `30s`, `2m`.
    Span,
    /// There or not; also `=true` or `=false`.
    Flag,
}

/// The parameters of a request, each once, all of them known to its route and well formed.
#[derive(Debug, Default)]
pub(super) struct Parameters(Vec<(&'static str, Vec<u8>)>);

impl Parameters {
    pub(super) fn read(query: Option<&str>, known: &'static [Parameter]) -> Result<Parameters, Failure> {
        let mut found: Vec<(&'static str, Vec<u8>)> = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|it| !it.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(parameter) = known.iter().find(|it| it.name == name) else {
                let names: Vec<&str> = known.iter().map(|it| it.name).collect();
                let knows = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                return Err(Failure::malformed(
                    format!("there is no parameter '{name}' here"),
                    format!("leave it out; known are: {knows}"),
                ));
            };
            if found.iter().any(|(it, _)| *it == parameter.name) {
                return Err(Failure::malformed(format!("the parameter {name} is there twice"), "say it once"));
            }
            let value = decode(&value.replace('+', " ")).ok_or_else(|| bad_percent("the parameter", name))?;
            parameter.check(&value)?;
            found.push((parameter.name, value));
        }
        Ok(Parameters(found))
    }

    pub(super) fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(it, _)| *it == name).map(|(_, value)| &value[..])
    }

    pub(super) fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        self.bytes(name).map(String::from_utf8_lossy)
    }

    pub(super) fn whole(&self, name: &str) -> Option<u64> {
        self.text(name).and_then(|it| id(&it))
    }

    pub(super) fn span(&self, name: &str) -> Option<Duration> {
        self.text(name).and_then(|it| span(&it))
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.bytes(name).is_some_and(|it| it != b"false")
    }
}

impl Parameter {
    fn check(&self, value: &[u8]) -> Result<(), Failure> {
        let text = std::str::from_utf8(value).ok();
        let (fits, wanted) = match self.kind {
            Kind::Key => (true, String::new()),
            Kind::Text => (text.is_some(), "a text in UTF-8".to_owned()),
            Kind::Word(words) => (text.is_some_and(|it| words.contains(&it)), words.join(" or ")),
            Kind::Whole | Kind::Id => (text.and_then(id).is_some(), "a whole number".to_owned()),
            Kind::Span => (text.and_then(span).is_some(), "a time, like 500ms, 30s or 2m".to_owned()),
            Kind::Flag => (matches!(value, b"" | b"true" | b"false"), "nothing, or true or false".to_owned()),
        };
        if fits {
            return Ok(());
        }
        Err(Failure::malformed(format!("the parameter {} is not what it should be", self.name), format!("give {wanted}")))
    }
}

/// The name or key in a path.
pub(super) fn variable(raw: &str) -> Result<Vec<u8>, Failure> {
    decode(raw).ok_or_else(|| bad_percent("the path", raw))
}

/// The same, as text.
pub(super) fn name(raw: &str) -> Result<String, Failure> {
    String::from_utf8(variable(raw)?)
        .map_err(|_| Failure::malformed("the name in the path is not UTF-8", "percent-encode the bytes of UTF-8"))
}

fn bad_percent(what: &str, which: &str) -> Failure {
    Failure::malformed(
        format!("{what} '{which}' has a percent sign without two hexadecimal digits behind it"),
        "write % itself as %25",
    )
}

/// `None` if a percent sign stands for nothing.
fn decode(raw: &str) -> Option<Vec<u8>> {
    let mut parts = raw.split('%');
    parts.next();
    let whole = parts.all(|it| it.len() >= 2 && it.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit));
    whole.then(|| percent_decode(raw.as_bytes()).collect())
}

fn span(text: &str) -> Option<Duration> {
    let digits = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number = id(number)?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Parameter] = &[
        Parameter { name: "prefix", kind: Kind::Key, says: "" },
        Parameter { name: "limit", kind: Kind::Whole, says: "" },
        Parameter { name: "wait", kind: Kind::Span, says: "" },
        Parameter { name: "raw", kind: Kind::Flag, says: "" },
        Parameter { name: "to", kind: Kind::Text, says: "" },
    ];

    #[test]
    fn what_is_encoded_is_what_was_meant() {
        let read = |query| Parameters::read(Some(query), KNOWN).map_err(|it| it.message);
        let all = read("prefix=a%2F%ff+%2b&limit=7&wait=2m&raw").expect("fits");
        assert_eq!(all.bytes("prefix"), Some(&b"a/\xff +"[..]));
        assert_eq!((all.whole("limit"), all.span("wait")), (Some(7), Some(Duration::from_secs(120))));
        assert!(all.flag("raw") && !read("raw=false").expect("fits").flag("raw") && !read("").expect("fits").flag("raw"));
        for bad in [
            "prefx=a",
            "limit=7&limit=7",
            "limit=-1",
            "limit=",
            "wait=3",
            "wait=3h",
            "raw=yes",
            "prefix=%f",
            "prefix=%zz",
            "prefix=%",
            "to=%ff",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert_eq!(variable("a+b%25%C3%A9/c"), Ok("a+b%é/c".into()));
        assert!(name("%ff").is_err() && variable("%f").is_err() && variable("100%").is_err());
    }
}
