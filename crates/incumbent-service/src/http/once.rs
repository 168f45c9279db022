//! Reads JSON in which no object has a field twice.
//!
//! Readers of JSON mostly take the last one, and so a guard that stands before an empty list of the same name would be gone without a word. Whoever sends such a body
//! has made a mistake that no answer but a refusal can tell.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Why there is no value.
#[derive(Debug)]
pub(super) enum Unread {
    /// The field of this name.
    Twice(String),
    NoJson(serde_json::Error),
}

/// All of `bytes` as one value.
pub(super) fn value(bytes: &[u8]) -> Result<Value, Unread> {
    let mut twice = None;
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let read = Once { twice: &mut twice }.deserialize(&mut reader).and_then(|it| reader.end().map(|()| it));
    read.map_err(|why| twice.map_or(Unread::NoJson(why), Unread::Twice))
}

/// Builds a value, and leaves the name of a field that is there twice.
struct Once<'a> {
    twice: &'a mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for Once<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Once<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, it: bool) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_u64<E>(self, it: u64) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_i64<E>(self, it: i64) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_f64<E>(self, it: f64) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_str<E>(self, it: &str) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(Once { twice: self.twice })? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = object.next_key::<String>()? {
            if fields.contains_key(&name) {
                *self.twice = Some(name);
                return Err(A::Error::custom("a field is there twice"));
            }
            let value = object.next_value_seed(Once { twice: self.twice })?;
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_once_is_read_as_ever() {
        for json in
            [r#"{"a":[1,-2,2.5,true,null,"\u00e4\n",{"a":{"a":1}}],"b":{"a":[]}}"#, "18446744073709551615", " [ ] ", "\"\""]
        {
            let expected: Value = serde_json::from_str(json).expect("it is JSON");
            assert_eq!(value(json.as_bytes()).expect(json), expected);
        }
    }

    #[test]
    fn what_is_no_json_is_not_read() {
        let deep = "[".repeat(100_000);
        for bytes in [&b"{"[..], b"{} {}", b"{\"a\":\"\xff\"}", b"nan", b"", b"{\"a\":1,}", deep.as_bytes()] {
            assert!(matches!(value(bytes), Err(Unread::NoJson(_))), "{}", bytes.len());
        }
    }
}
