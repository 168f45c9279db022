//! The table of routes as an OpenAPI 3.1 document.

use std::sync::OnceLock;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::address::{Kind, Parameter};
use super::routes::{Gives, ROUTES, Route, Takes};
use super::schemas::SCHEMAS;
use super::shapes::Shape;

/// The document. Made once: whoever wants it need not say who it is.
pub(super) fn text() -> Bytes {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    TEXT.get_or_init(|| (document().to_string() + "\n").into()).clone()
}

fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = route.path.replace("*}", "}");
        let rows = paths.entry(path).or_insert_with(|| json!({}));
        rows[route.verb.name().to_lowercase()] = operation(route);
    }
    let schemas: Map<String, Value> = SCHEMAS.iter().map(|(name, shape)| ((*name).to_owned(), shape.document())).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "incumbent",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Elections, sessions, fenced keys and watches. 4xx: it was not done, and will not be as it was asked. 503: it was not done, try again. 504: it may have been done.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut told = json!({
        "summary": route.says,
        "operationId": format!("{:?}", route.deed),
        "parameters": parameters(route),
        "responses": responses(route),
        "security": if route.is_open() { json!([]) } else { json!([{ "token": [] }, {}]) },
    });
    match &route.takes {
        Takes::Nothing => {}
        Takes::Json(shape) => told["requestBody"] = json!({ "content": { "application/json": { "schema": shape.document() } } }),
        Takes::Value => told["requestBody"] = json!({ "content": { "application/octet-stream": {} } }),
    }
    told
}

fn parameters(route: &Route) -> Vec<Value> {
    let mut told = Vec::new();
    if let Some(name) = route.variable() {
        let says = match name {
            "key" => "All the rest of the path; slashes may stand for themselves.",
            "id" => "A number.",
            _ => "One segment: a slash in it is %2F.",
        };
        let schema = if name == "id" { Shape::Id } else { Shape::Text }.document();
        told.push(json!({ "name": name, "in": "path", "required": true, "description": says, "schema": schema }));
    }
    told.extend(route.asks.iter().map(parameter));
    if route.gives.iter().any(|it| matches!(it, Gives::Events(_))) {
        told.push(json!({
            "name": "Last-Event-ID", "in": "header", "description": "The last id that was received: go on behind it.", "schema": Shape::Id.document(),
        }));
    }
    if route.commands() {
        told.push(json!({
            "name": "Idempotency-Key", "in": "header",
            "description": "CLIENT-SEQUENCE: the number of POST /v1/clients, and a count from 1. Repeated with the same, it is done once.",
            "schema": { "type": "string", "pattern": "^[0-9]{1,20}-[0-9]{1,20}$" },
        }));
    }
    told
}

fn parameter(it: &Parameter) -> Value {
    let schema = match it.kind {
        Kind::Key | Kind::Text => json!({ "type": "string" }),
        Kind::Word(words) => json!({ "type": "string", "enum": words }),
        Kind::Whole => json!({ "type": "integer", "minimum": 0 }),
        // As in JSON: a number of 64 bits, which others would round.
        Kind::Id => json!({ "type": "string", "pattern": "^[0-9]+$" }),
        Kind::Span => json!({ "type": "string", "pattern": "^[0-9]+(ms|s|m)$" }),
        Kind::Flag => json!({ "type": "boolean" }),
    };
    json!({ "name": it.name, "in": "query", "description": it.says, "schema": schema, "allowEmptyValue": it.kind == Kind::Flag })
}

fn responses(route: &Route) -> Value {
    let error = json!({ "description": "It was not done (4xx, 503), or may not have been (504).", "content": { "application/json": { "schema": Shape::Named("Error").document() } } });
    let mut told = json!({ "default": error });
    for gives in route.gives {
        let status = gives.status().to_string();
        if told[&status].is_null() {
            told[&status] = json!({ "description": route.says, "content": {} });
        }
        let content = gives.shape().map_or(json!({}), |it| json!({ "schema": it.document() }));
        told[&status]["content"][gives.kind()] = content;
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_made_once() {
        assert_eq!(text().as_ptr(), text().as_ptr());
        assert_eq!(serde_json::from_slice::<Value>(&text()).expect("JSON"), document());
    }
}
