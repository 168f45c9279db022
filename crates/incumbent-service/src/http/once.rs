//! Reads JSON in which no object has a field twice, and of which there is not too much.
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
    /// There are more values in it than may be.
    TooMany,
    NoJson(serde_json::Error),
}

/// All of `bytes` as one value, if there are no more than so many in it.
pub(super) fn value(bytes: &[u8], values_max: usize) -> Result<Value, Unread> {
    let (mut refused, mut left) = (None, values_max);
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let once = Once { refused: &mut refused, left: &mut left };
    let read = once.deserialize(&mut reader).and_then(|it| reader.end().map(|()| it));
    read.map_err(|why| refused.unwrap_or(Unread::NoJson(why)))
}

/// Builds a value, and leaves why it does not if that is no fault of the JSON.
struct Once<'a> {
    refused: &'a mut Option<Unread>,
    /// So many more values may come.
    left: &'a mut usize,
}

impl Once<'_> {
    /// For a value within this one.
    fn inner(&mut self) -> Once<'_> {
        Once { refused: self.refused, left: self.left }
    }
}

impl<'de> DeserializeSeed<'de> for Once<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        let Some(left) = self.left.checked_sub(1) else {
            *self.refused = Some(Unread::TooMany);
            return Err(D::Error::custom("there are too many values"));
        };
        *self.left = left;
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

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(self.inner())? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut object: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = object.next_key::<String>()? {
            if fields.contains_key(&name) {
                *self.refused = Some(Unread::Twice(name));
                return Err(A::Error::custom("a field is there twice"));
            }
            let value = object.next_value_seed(self.inner())?;
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
            assert_eq!(value(json.as_bytes(), 20).expect(json), expected);
        }
    }

    #[test]
    fn what_is_no_json_is_not_read() {
        let deep = "[".repeat(100_000);
        for bytes in [&b"{"[..], b"{} {}", b"{\"a\":\"\xff\"}", b"nan", b"", b"{\"a\":1,}", deep.as_bytes()] {
            assert!(matches!(value(bytes, 1_000), Err(Unread::NoJson(_))), "{}", bytes.len());
        }
    }

    #[test]
    fn values_are_counted_before_they_are_built() {
        let json = br#"{"a":[1,{"b":[]}],"c":"d"}"#;
        assert!(value(json, 6).is_ok());
        assert!(matches!(value(json, 5), Err(Unread::TooMany)));
        // What comes behind the last one is not even looked at.
        assert!(matches!(value(b"[1,1,1,nonsense", 3), Err(Unread::TooMany)));
    }
}
