//! What stands in JSON bodies, as the store's own commands. A body has the shape of its route when it comes here; what a shape cannot say is refused here.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use incumbent_store::keys::item::Span;
use incumbent_store::keys::transaction::{Act, Against, Comparison, Delete, Guard, Operation, Put, Transaction};
use incumbent_store::limits::Limits;
use incumbent_store::query::Range;
use incumbent_store::refusal::Refusal;
use serde_json::Value;

use super::failure::Failure;
use super::limits::JSON_VALUES_MAX;
use super::once::{self, Unread};
use super::shapes::{self, Shape};

/// An object that has the shape of its route.
#[derive(Copy, Clone, Debug)]
pub(super) struct Body<'a>(pub(super) &'a Value);

/// Reads a body as JSON of this shape.
pub(super) fn parse(bytes: &[u8], shape: &Shape) -> Result<Value, Failure> {
    let value = if bytes.is_empty() {
        Value::Object(serde_json::Map::new())
    } else {
        once::value(bytes, JSON_VALUES_MAX).map_err(|unread| match unread {
            Unread::TooMany => Refusal::Limit { what: "values in a body".to_owned(), max: JSON_VALUES_MAX as u64 }.into(),
            Unread::Twice(name) => Failure::malformed(format!("the field {name:?} is there twice"), "give it once"),
            Unread::NoJson(why) => Failure::malformed(format!("the body is no JSON: {why}"), "send an object in JSON, in UTF-8"),
        })?
    };
    shape.check(&value, "").map_err(|misfit| {
        let place = if misfit.at.is_empty() { "the body".to_owned() } else { format!("the body at {}", misfit.at) };
        Failure::malformed(format!("{place} is not what it should be"), format!("give {}", misfit.wanted))
    })?;
    Ok(value)
}

impl<'a> Body<'a> {
    /// A text; empty if it is left out.
    pub(super) fn text(self, name: &str) -> String {
        self.0[name].as_str().unwrap_or_default().to_owned()
    }

    /// False if it is left out.
    pub(super) fn flag(self, name: &str) -> bool {
        self.0[name] == true
    }

    /// 0 if it is left out.
    pub(super) fn whole(self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap_or_default()
    }

    pub(super) fn whole_u32(self, name: &str) -> Result<u32, Failure> {
        u32::try_from(self.whole(name)).map_err(|_| Failure::malformed(format!("{name} is too great"), "give a smaller number"))
    }

    /// 0 if it is left out.
    pub(super) fn signed(self, name: &str) -> i32 {
        self.0[name].as_i64().and_then(|it| it.try_into().ok()).unwrap_or_default()
    }

    pub(super) fn id(self, name: &str) -> Option<u64> {
        self.0[name].as_str().and_then(shapes::id).or_else(|| self.0[name].as_u64())
    }

    /// The field of this name, or the one in base64.
    pub(super) fn bytes(self, name: &str) -> Result<Option<Bytes>, Failure> {
        let coded = self.0[format!("{name}_base64")].as_str();
        match (self.0[name].as_str(), coded) {
            (Some(_), Some(_)) => Err(Failure::malformed(format!("{name} and {name}_base64 are both there"), "give one of them")),
            (Some(text), None) => Ok(Some(Bytes::copy_from_slice(text.as_bytes()))),
            (None, Some(coded)) => match BASE64.decode(coded) {
                Ok(bytes) => Ok(Some(bytes.into())),
                Err(why) => Err(Failure::malformed(format!("{name}_base64: {why}"), "give base64 with padding")),
            },
            (None, None) => Ok(None),
        }
    }

    /// Empty if it is left out.
    pub(super) fn value(self) -> Result<Bytes, Failure> {
        Ok(self.bytes("value")?.unwrap_or_default())
    }

    fn key(self) -> Result<Bytes, Failure> {
        self.bytes("key")?.ok_or_else(|| Failure::malformed("a key is missing", "give key or key_base64"))
    }

    /// A key or a prefix.
    fn keys(self) -> Result<Span, Failure> {
        match (self.bytes("key")?, self.bytes("prefix")?) {
            (Some(key), None) => Ok(Span::key(key)),
            (None, Some(prefix)) => Ok(under(prefix)),
            (None, None) => Err(Failure::malformed("a key is missing", "give a key or a prefix; an empty prefix is all keys")),
            (Some(_), Some(_)) => Err(Failure::malformed("a key and a prefix are both there", "give one of them")),
        }
    }

    fn each<T>(self, name: &str, read: impl Fn(Body<'a>) -> Result<T, Failure>) -> Result<Vec<T>, Failure> {
        self.0[name].as_array().into_iter().flatten().map(|it| read(Body(it))).collect()
    }

    /// Refused if it has more guards and operations than the store takes, before any of them is made: whatever goes into the log, every node reads.
    pub(super) fn transaction(self) -> Result<Transaction, Failure> {
        const OPERATIONS_MAX: usize = Limits::STANDARD.operations_max;
        if self.operations() > OPERATIONS_MAX {
            let what = "guards and operations in a transaction".to_owned();
            return Err(Refusal::Limit { what, max: OPERATIONS_MAX as u64 }.into());
        }
        self.read_transaction()
    }

    /// How many guards and operations a transaction has, nested ones included.
    fn operations(self) -> usize {
        let list = |name: &str| self.0[name].as_array().into_iter().flatten();
        let acts = list("then").chain(list("otherwise"));
        list("guards").count() + acts.map(|it| 1 + Body(&it["transact"]).operations()).sum::<usize>()
    }

    fn read_transaction(self) -> Result<Transaction, Failure> {
        Ok(Transaction {
            guards: self.each("guards", Body::guard)?,
            then: self.each("then", Body::operation)?,
            otherwise: self.each("otherwise", Body::operation)?,
        })
    }

    fn guard(self) -> Result<Guard, Failure> {
        const AGAINST: [&str; 10] =
            ["exists", "version", "created", "modified", "value", "value_base64", "session", "children", "undelayed", "holding"];
        let named: Vec<&str> = AGAINST.into_iter().filter(|it| !self.0[*it].is_null()).collect();
        let &[against] = &named[..] else {
            return Err(Failure::malformed(
                format!("a guard compares with one thing, and this one with {}", named.len()),
                format!("give one of: {}", AGAINST.join(", ")),
            ));
        };
        let comparison = match self.0["comparison"].as_str() {
            None | Some("equal") => Comparison::Equal,
            Some("greater") => Comparison::Greater,
            Some("less") => Comparison::Less,
            Some(_) => Comparison::NotEqual,
        };
        if comparison != Comparison::Equal && ["exists", "undelayed", "holding"].contains(&against) {
            return Err(Failure::malformed(format!("{against} is so or not"), "leave comparison out"));
        }
        let (comparison, against) = match against {
            "holding" => {
                let holds = Body(&self.0["holding"]);
                return Ok(Guard::holds(holds.text("election"), holds.id("token").unwrap_or_default()));
            }
            "exists" if self.flag("exists") => (Comparison::Greater, Against::Version(0)),
            "exists" => (Comparison::Equal, Against::Version(0)),
            "version" => (comparison, Against::Version(self.whole("version"))),
            "created" => (comparison, Against::Created(self.whole("created"))),
            "modified" => (comparison, Against::Modified(self.whole("modified"))),
            "session" => (comparison, Against::Session(self.id("session").unwrap_or_default())),
            "children" => (comparison, Against::Children(self.whole("children"))),
            "undelayed" => (comparison, Against::Undelayed(self.flag("undelayed"))),
            _value => (comparison, Against::Value(self.value()?)),
        };
        Ok(Guard { span: Some(self.keys()?), comparison: comparison as i32, against: Some(against) })
    }

    fn operation(self) -> Result<Operation, Failure> {
        let named: Vec<(&String, &Value)> = self.0.as_object().into_iter().flatten().collect();
        let &[(name, value)] = &named[..] else {
            return Err(Failure::malformed(
                format!("an operation does one thing, and this one {}", named.len()),
                "give one of: put, delete, read, transact, abort",
            ));
        };
        let inner = Body(value);
        let act = match name.as_str() {
            "put" => Act::Put(inner.put()?),
            "delete" => Act::Delete(Delete { span: Some(inner.keys()?), wants_previous: inner.flag("previous") }),
            "read" => Act::Read(Range {
                span: Some(inner.keys()?),
                limit: inner.whole("limit"),
                keys_only: inner.flag("keys_only"),
                counts: inner.flag("counts"),
                ..Range::default()
            }),
            "transact" => Act::Transact(inner.read_transaction()?),
            _abort => Act::Abort(value.as_u64().unwrap_or_default()),
        };
        Ok(act.into())
    }

    fn put(self) -> Result<Put, Failure> {
        let (value, session) = (self.bytes("value")?, self.id("session"));
        // The store would keep what is there, and what was given would be gone without a word.
        for (keeps, name, is_there) in
            [("keeps_value", "value", value.is_some()), ("keeps_session", "session", session.is_some())]
        {
            if self.flag(keeps) && is_there {
                return Err(Failure::malformed(format!("{keeps} and a {name} are both there"), "give one of them"));
            }
        }
        Ok(Put {
            key: self.key()?,
            value: value.unwrap_or_default(),
            session: session.unwrap_or_default(),
            outlives_session: self.flag("outlives_session"),
            parent_len: self.whole_u32("parent_len")?,
            sequential: self.flag("sequential"),
            keeps_value: self.flag("keeps_value"),
            keeps_session: self.flag("keeps_session"),
            wants_previous: self.flag("previous"),
        })
    }
}

/// All keys that begin so. For an empty prefix all that are users': keys that begin with a zero byte are the service's own, and are told only to who names them.
pub(super) fn under(prefix: impl Into<Bytes>) -> Span {
    let prefix = prefix.into();
    if prefix.is_empty() { Span { start: Bytes::from_static(&[1]), end: Span::all().end } } else { Span::prefix(prefix) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: &Value) -> Result<Transaction, Box<str>> {
        let value = parse(value.to_string().as_bytes(), &Shape::Named("Transaction")).map_err(|it| it.message)?;
        Body(&value).transaction().map_err(|it| it.message)
    }

    #[test]
    fn a_transaction_is_read_whole() {
        let read = read(&json!({
            "guards": [
                { "key": "a", "version": 3 },
                { "key": "a", "comparison": "less", "value": "z" },
                { "prefix": "", "exists": false },
                { "holding": { "election": "e", "token": "281474976710657" } },
            ],
            "then": [{ "put": { "key_base64": "/w==", "value": "v", "session": 7 } }, { "transact": { "then": [{ "abort": 2 }] } }],
            "otherwise": [{ "read": { "prefix": "a", "limit": 2 } }, { "delete": { "key": "a", "previous": true } }],
        }));
        let expected = Transaction {
            guards: vec![
                Guard::key("a", Comparison::Equal, Against::Version(3)),
                Guard::key("a", Comparison::Less, Against::Value("z".into())),
                Guard { span: Some(under("")), ..Guard::absent("") },
                Guard::holds("e", 281_474_976_710_657),
            ],
            then: vec![
                Act::Put(Put { key: Bytes::from_static(b"\xff"), value: "v".into(), session: 7, ..Put::default() }).into(),
                Act::Transact(Transaction { then: vec![Act::Abort(2).into()], ..Transaction::default() }).into(),
            ],
            otherwise: vec![
                Act::Read(Range { span: Some(Span::prefix("a")), limit: 2, ..Range::default() }).into(),
                Act::Delete(Delete { span: Some(Span::key("a")), wants_previous: true }).into(),
            ],
        };
        assert_eq!(read, Ok(expected));
    }

    #[test]
    fn no_transaction_with_too_many_operations_is_made() {
        const MAX: usize = Limits::STANDARD.operations_max;
        let reads = |count: usize| vec![json!({ "read": { "key": "a" } }); count];
        let guards = |count: usize| vec![json!({ "key": "a", "comparison": "less", "value": "v" }); count];
        let limit =
            |what: &str, max: usize| Err(Failure::from(Refusal::Limit { what: what.to_owned(), max: max as u64 }).message);
        let too_many = || limit("guards and operations in a transaction", MAX);
        assert!(read(&json!({ "then": reads(MAX) })).is_ok() && read(&json!({ "guards": guards(MAX) })).is_ok());
        assert_eq!(read(&json!({ "then": reads(MAX + 1) })), too_many());
        assert_eq!(read(&json!({ "guards": guards(1), "otherwise": reads(MAX) })), too_many());
        let nested = json!({ "transact": { "guards": guards(MAX / 2), "then": reads(MAX / 2) } });
        assert_eq!(read(&json!({ "then": [nested] })), too_many());
        // Of a hundred thousand not even the JSON is kept.
        assert_eq!(read(&json!({ "then": reads(100_000) })), limit("values in a body", JSON_VALUES_MAX));
    }

    /// The wordiest there are: a limit on values must not come before that on operations.
    #[test]
    fn as_many_puts_as_may_be_can_be_said() {
        let put = json!({ "put": {
            "key": "a", "value": "v", "session": 1, "outlives_session": true, "parent_len": 1, "sequential": true, "keeps_value": false,
            "keeps_session": false, "previous": true,
        } });
        assert!(read(&json!({ "then": vec![put; Limits::STANDARD.operations_max] })).is_ok());
    }

    #[test]
    fn what_no_shape_can_say_is_refused() {
        for bad in [
            json!({ "guards": [{ "key": "a" }] }),
            json!({ "guards": [{ "version": 1 }] }),
            json!({ "guards": [{ "key": "a", "prefix": "a", "version": 1 }] }),
            json!({ "guards": [{ "key": "a", "version": 1, "value": "v" }] }),
            json!({ "guards": [{ "key": "a", "comparison": "less", "exists": true }] }),
            json!({ "then": [{}] }),
            json!({ "then": [{ "abort": 1, "delete": { "key": "a" } }] }),
            json!({ "then": [{ "put": { "value": "v" } }] }),
            json!({ "then": [{ "put": { "key": "a", "key_base64": "YQ==" } }] }),
            json!({ "then": [{ "put": { "key_base64": "YQ" } }] }),
            json!({ "then": [{ "put": { "key": "a", "parent_len": 4_294_967_296_u64 } }] }),
            json!({ "then": { "put": {} } }),
            json!({ "then": [{ "put": { "key": "a", "keeps_value": true, "value": "v" } }] }),
            json!({ "then": [{ "put": { "key": "a", "keeps_value": true, "value_base64": "" } }] }),
            json!({ "then": [{ "put": { "key": "a", "keeps_session": true, "session": "7" } }] }),
        ] {
            assert!(read(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_put_keeps_what_is_there_or_says_what_is_to_be() {
        for good in [
            json!({ "key": "a", "keeps_value": true, "session": "7" }),
            json!({ "key": "a", "keeps_session": true, "value": "v" }),
            json!({ "key": "a", "keeps_value": false, "keeps_session": false, "value": "v", "session": 7 }),
        ] {
            assert!(read(&json!({ "then": [{ "put": good }] })).is_ok(), "{good}");
        }
    }

    #[test]
    fn a_field_that_is_there_twice_is_refused_and_not_the_last_one_taken() {
        for (twice, name) in [
            (r#"{"guards":[{"key":"a","version":3}],"then":[],"guards":[]}"#, "guards"),
            (r#"{"then":[{"put":{"key":"a","value":"1","value":"2"}}]}"#, "value"),
            (r#"{"guards":[{"holding":{"election":"e","token":"1","\u0074oken":"2"}}]}"#, "token"),
            (r#"{"then":[{"transact":{"then":[{"abort":1,"abort":1}]}}]}"#, "abort"),
        ] {
            let refused = parse(twice.as_bytes(), &Shape::Named("Transaction")).unwrap_err().message;
            assert_eq!(&*refused, format!("the field \"{name}\" is there twice"), "{twice}");
        }
    }
}
