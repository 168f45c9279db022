//! What JSON may look like: a small language of shapes. One shape checks what comes in and is written into the OpenAPI document, so neither can say what the other does not.
//!
//! Numbers of 64 bits that somebody hands back (tokens, sessions, clients) are texts of digits: JavaScript and jq round numbers above 2^53, and a token that was rounded is
//! another leadership's. They are taken as numbers too, as long as nobody can have rounded them. All other numbers stay below 2^53: a revision has 48 bits.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::schemas;

/// The greatest whole number that every reader of JSON keeps as it is.
pub(super) const EXACT_MAX: u64 = (1 << 53) - 1;

/// A shape of JSON.
#[derive(Debug)]
pub(super) enum Shape {
    /// Any text.
    Text,
    /// Bytes, in base64 with padding.
    Base64,
    /// One of these texts.
    Word(&'static [&'static str]),
    /// True or false.
    Flag,
    /// A whole number from 0 to [`EXACT_MAX`].
    Whole,
    /// A whole number of 32 bits with a sign.
    Signed,
    /// Any number.
    Real,
    /// A number of 64 bits as a text of digits.
    Id,
    /// The same, or a number up to [`EXACT_MAX`]: as it is taken from others.
    AnyId,
    /// This, or null.
    Maybe(&'static Shape),
    /// Any number of these.
    List(&'static Shape),
    /// These fields and no others.
    Record(&'static [Field]),
    /// The one of this name in [`schemas::SCHEMAS`].
    Named(&'static str),
    /// Any object.
    Anything,
}

/// A field of a record.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) presence: Presence,
    pub(super) says: &'static str,
}

/// Whether a field is there.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Presence {
    Always,
    Sometimes,
}

/// A field that is always there.
pub(super) const fn always(name: &'static str, shape: Shape, says: &'static str) -> Field {
    Field { name, shape, presence: Presence::Always, says }
}

/// A field that may be left out.
pub(super) const fn sometimes(name: &'static str, shape: Shape, says: &'static str) -> Field {
    Field { name, shape, presence: Presence::Sometimes, says }
}

/// Where something does not fit, and what should be there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Misfit {
    /// As a path of fields and places: `/then/0/put/key`. Empty for the whole.
    pub(super) at: String,
    pub(super) wanted: String,
}

/// A number of 64 bits in digits.
pub(super) fn id(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|it| it.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

impl Shape {
    /// Whether the value has this shape; else the first place where it has not.
    pub(super) fn check(&self, value: &Value, at: &str) -> Result<(), Misfit> {
        let misfit = |wanted: String| Misfit { at: at.to_owned(), wanted };
        let require = |fits: bool, wanted: &str| if fits { Ok(()) } else { Err(misfit(wanted.to_owned())) };
        let whole = || value.as_u64().is_some_and(|it| it <= EXACT_MAX);
        let digits = || value.as_str().and_then(id).is_some();
        match self {
            Shape::Text => require(value.is_string(), "a text"),
            Shape::Base64 => require(value.as_str().is_some_and(|it| BASE64.decode(it).is_ok()), "base64 with padding"),
            Shape::Word(words) => {
                let fits = value.as_str().is_some_and(|it| words.contains(&it));
                if fits { Ok(()) } else { Err(misfit(format!("one of: {}", words.join(", ")))) }
            }
            Shape::Flag => require(value.is_boolean(), "true or false"),
            Shape::Whole => require(whole(), "a whole number from 0 to 9007199254740991"),
            Shape::Signed => {
                require(value.as_i64().is_some_and(|it| i32::try_from(it).is_ok()), "a whole number of 32 bits with a sign")
            }
            Shape::Real => require(value.is_number(), "a number"),
            Shape::Id => require(digits(), "a text of digits, at most 18446744073709551615"),
            Shape::AnyId => require(
                digits() || whole(),
                "a text of digits, at most 18446744073709551615 (a number may be rounded above 9007199254740991)",
            ),
            Shape::Maybe(inner) => {
                if value.is_null() {
                    return Ok(());
                }
                inner.check(value, at)
            }
            Shape::List(item) => {
                let Some(items) = value.as_array() else { return Err(misfit("a list".to_owned())) };
                items.iter().enumerate().try_for_each(|(place, it)| item.check(it, &format!("{at}/{place}")))
            }
            Shape::Record(fields) => check_record(fields, value, at),
            Shape::Named(name) => schemas::named(name).check(value, at),
            Shape::Anything => require(value.is_object(), "an object"),
        }
    }

    /// The same as OpenAPI 3.1 says it: JSON Schema.
    pub(super) fn document(&self) -> Value {
        match self {
            Shape::Text => json!({ "type": "string" }),
            Shape::Base64 => json!({ "type": "string", "contentEncoding": "base64" }),
            Shape::Word(words) => json!({ "type": "string", "enum": words }),
            Shape::Flag => json!({ "type": "boolean" }),
            Shape::Whole => json!({ "type": "integer", "minimum": 0, "maximum": EXACT_MAX }),
            Shape::Signed => json!({ "type": "integer", "minimum": i32::MIN, "maximum": i32::MAX }),
            Shape::Real => json!({ "type": "number" }),
            Shape::Id => json!({ "type": "string", "pattern": "^[0-9]{1,20}$" }),
            Shape::AnyId => json!({ "anyOf": [Shape::Id.document(), Shape::Whole.document()] }),
            Shape::Maybe(inner) => json!({ "anyOf": [inner.document(), { "type": "null" }] }),
            Shape::List(item) => json!({ "type": "array", "items": item.document() }),
            Shape::Record(fields) => document_record(fields),
            Shape::Named(name) => json!({ "$ref": format!("#/components/schemas/{name}") }),
            Shape::Anything => json!({ "type": "object" }),
        }
    }
}

fn check_record(fields: &[Field], value: &Value, at: &str) -> Result<(), Misfit> {
    let Some(object) = value.as_object() else {
        return Err(Misfit { at: at.to_owned(), wanted: "an object".to_owned() });
    };
    if let Some(name) = object.keys().find(|name| !fields.iter().any(|it| it.name == **name)) {
        let known: Vec<&str> = fields.iter().map(|it| it.name).collect();
        let wanted =
            if known.is_empty() { "no fields at all".to_owned() } else { format!("no other fields than: {}", known.join(", ")) };
        return Err(Misfit { at: format!("{at}/{name}"), wanted });
    }
    for field in fields {
        let at = format!("{at}/{}", field.name);
        match (object.get(field.name), field.presence) {
            (Some(value), _) => field.shape.check(value, &at)?,
            (None, Presence::Always) => return Err(Misfit { at, wanted: "this field: it is missing".to_owned() }),
            (None, Presence::Sometimes) => {}
        }
    }
    Ok(())
}

fn document_record(fields: &[Field]) -> Value {
    let mut properties = serde_json::Map::new();
    for field in fields {
        let mut shape = field.shape.document();
        if let Some(shape) = shape.as_object_mut() {
            shape.insert("description".to_owned(), field.says.into());
        }
        properties.insert(field.name.to_owned(), shape);
    }
    let required: Vec<&str> = fields.iter().filter(|it| it.presence == Presence::Always).map(|it| it.name).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misfit_is_named_with_its_place() {
        static SHAPE: Shape = Shape::Record(&[
            always("token", Shape::AnyId, ""),
            sometimes("list", Shape::List(&Shape::Record(&[always("n", Shape::Whole, "")])), ""),
        ]);
        let at = |value: Value| SHAPE.check(&value, "").err().map(|it| it.at);
        assert_eq!(at(json!({ "token": "18446744073709551615", "list": [{ "n": 0 }] })), None);
        assert_eq!(at(json!({ "token": 7 })), None);
        for (value, place) in [
            (json!({}), "/token"),
            (json!([]), ""),
            (json!({ "token": "18446744073709551616" }), "/token"),
            (json!({ "token": (1_u64 << 53) }), "/token"),
            (json!({ "token": "" }), "/token"),
            (json!({ "token": "+1" }), "/token"),
            (json!({ "token": -1 }), "/token"),
            (json!({ "token": null }), "/token"),
            (json!({ "token": "1", "typo": 1 }), "/typo"),
            (json!({ "token": "1", "list": [{ "n": 1 }, { "n": 1.5 }] }), "/list/1/n"),
            (json!({ "token": "1", "list": [7] }), "/list/0"),
        ] {
            assert_eq!(at(value.clone()).as_deref(), Some(place), "{value}");
        }
    }
}
