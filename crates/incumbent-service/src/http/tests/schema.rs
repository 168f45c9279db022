//! Checks JSON by the schemas of the OpenAPI document as it is served: the few words of JSON Schema that it uses, and no other. Knows nothing of [`super::super::shapes`], from
//! which the document is made.

use serde_json::Value;

/// What does not fit, and where; `None` if all does.
pub(super) fn misfit(document: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    let wrong = |what: &str| Some(format!("{at}: {what}: {value}"));
    let words = schema.as_object().expect("a schema is an object");
    for (word, says) in words {
        let fits = match word.as_str() {
            "description" | "contentEncoding" => true,
            "$ref" => {
                let path = says.as_str().and_then(|it| it.strip_prefix('#')).expect("within the document");
                let target = document.pointer(path).unwrap_or_else(|| panic!("{path} leads nowhere"));
                if let Some(misfit) = misfit(document, target, value, at) {
                    return Some(misfit);
                }
                true
            }
            "type" => match says.as_str().expect("one type") {
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "integer" => value.is_i64() || value.is_u64(),
                "number" => value.is_number(),
                "array" => value.is_array(),
                "object" => value.is_object(),
                "null" => value.is_null(),
                other => panic!("type {other}"),
            },
            "enum" => says.as_array().expect("a list").contains(value),
            "minimum" => value.as_f64() >= says.as_f64(),
            "maximum" => value.as_f64() <= says.as_f64(),
            "pattern" => {
                assert_eq!(says, "^[0-9]{1,20}$", "a pattern that this checker does not know");
                value.as_str().is_some_and(|it| (1..=20).contains(&it.len()) && it.bytes().all(|it| it.is_ascii_digit()))
            }
            "anyOf" => {
                let options = says.as_array().expect("a list");
                options.iter().any(|it| misfit(document, it, value, at).is_none())
            }
            "items" => {
                let items = value.as_array().into_iter().flatten().enumerate();
                match items.filter_map(|(place, it)| misfit(document, says, it, &format!("{at}/{place}"))).next() {
                    None => true,
                    found => return found,
                }
            }
            "properties" => {
                let known = says.as_object().expect("fields");
                for (name, value) in value.as_object().into_iter().flatten() {
                    if let Some(schema) = known.get(name)
                        && let Some(misfit) = misfit(document, schema, value, &format!("{at}/{name}"))
                    {
                        return Some(misfit);
                    }
                }
                true
            }
            "required" => says.as_array().expect("a list").iter().all(|it| value.get(it.as_str().expect("a name")).is_some()),
            "additionalProperties" => {
                assert_eq!(says, false);
                let known = words["properties"].as_object().expect("fields");
                value.as_object().into_iter().flatten().all(|(name, _)| known.contains_key(name))
            }
            other => panic!("a word that this checker does not know: {other}"),
        };
        if !fits {
            return wrong(&format!("not as {word} says"));
        }
    }
    None
}

#[test]
fn the_checker_finds_what_does_not_fit() {
    use serde_json::json;
    let document = json!({ "x": { "type": "object", "properties": { "n": { "type": "integer", "minimum": 0, "maximum": 9 } }, "required": ["n"], "additionalProperties": false } });
    let schema = json!({ "type": "array", "items": { "anyOf": [{ "$ref": "#/x" }, { "type": "null" }] } });
    let fits = |value: Value| misfit(&document, &schema, &value, "").is_none();
    assert!(fits(json!([{ "n": 0 }, null, { "n": 9 }])) && fits(json!([])));
    for bad in [
        json!({}),
        json!([7]),
        json!([{}]),
        json!([{ "n": 10 }]),
        json!([{ "n": -1 }]),
        json!([{ "n": 1.5 }]),
        json!([{ "n": 1, "m": 1 }]),
    ] {
        assert!(!fits(bad.clone()), "{bad}");
    }
    let token = json!({ "type": "string", "pattern": "^[0-9]{1,20}$" });
    assert!(misfit(&document, &token, &json!("0123"), "").is_none());
    assert!(misfit(&document, &token, &json!("12x"), "").is_some() && misfit(&document, &token, &json!(12), "").is_some());
    let word = json!({ "type": "string", "enum": ["a"] });
    assert!(misfit(&document, &word, &json!("b"), "").is_some());
}
