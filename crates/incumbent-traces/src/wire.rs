//! What is sent: OTLP's messages, as far as we fill them, written down by hand from opentelemetry-proto 1.x.

use std::time::{Duration, SystemTime};

use prost::Message;

use super::Source;
use super::span::{Ended, Kind, Value};

/// Who has written the spans, beside what the process is.
const SCOPE: &str = "incumbent";

/// The whole body of a request.
pub(crate) fn encode(source: &Source, spans: &[Ended]) -> Vec<u8> {
    let text = |text: &str| Value::Text(text.to_owned().into());
    let own = [
        ("service.name", text(&source.service)),
        ("service.instance.id", text(&source.instance)),
        ("service.version", text(&source.version)),
    ];
    let scope = InstrumentationScope { name: SCOPE.to_owned(), version: source.version.clone() };
    let resource = Resource { attributes: own.iter().chain(&source.more).map(attribute).collect() };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans: spans.iter().map(span).collect() }];
    ExportRequest { resource_spans: vec![ResourceSpans { resource: Some(resource), scope_spans }] }.encode_to_vec()
}

/// How many spans the collector has not taken of a request that it took. What cannot be read says nothing.
pub(crate) fn rejected(answer: &[u8]) -> u64 {
    let rejected = ExportAnswer::decode(answer).ok().and_then(|it| it.partial_success).map_or(0, |it| it.rejected_spans);
    u64::try_from(rejected).unwrap_or(0)
}

fn span(ended: &Ended) -> SpanMessage {
    let start = ended.start.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    SpanMessage {
        trace_id: ended.context.trace.to_be_bytes().to_vec(),
        span_id: ended.context.span.to_be_bytes().to_vec(),
        parent_span_id: ended.parent.map(|it| it.to_be_bytes().to_vec()).unwrap_or_default(),
        name: ended.name.to_string(),
        kind: match ended.kind {
            Kind::Internal => 1,
            Kind::Server => 2,
        },
        start_time_unix_nano: nanos(start),
        end_time_unix_nano: nanos(start + ended.took),
        attributes: ended.attributes.iter().map(attribute).collect(),
        events: ended
            .events
            .iter()
            .map(|(name, at)| EventMessage { time_unix_nano: nanos(start + *at), name: (*name).to_owned() })
            .collect(),
        status: ended.fault.map(|what| Status { message: what.to_owned(), code: STATUS_ERROR }),
        flags: 1,
    }
}

fn nanos(since: Duration) -> u64 {
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn attribute((key, value): &(&'static str, Value)) -> KeyValue {
    let value = match value {
        Value::Text(text) => Any::Text(text.to_string()),
        Value::Number(number) => Any::Number(*number),
        Value::Flag(is_so) => Any::Flag(*is_so),
    };
    KeyValue { key: (*key).to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

const STATUS_ERROR: i32 = 2;

#[derive(Clone, PartialEq, Message)]
struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ExportAnswer {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_spans: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<SpanMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct InstrumentationScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct SpanMessage {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "11")]
    events: Vec<EventMessage>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct EventMessage {
    #[prost(fixed64, tag = "1")]
    time_unix_nano: u64,
    #[prost(string, tag = "2")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Any", tags = "1, 2, 3")]
    value: Option<Any>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Any {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Flag(bool),
    #[prost(int64, tag = "3")]
    Number(i64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_collector_has_not_taken_is_counted() {
        let partial = PartialSuccess { rejected_spans: 3 };
        assert_eq!(rejected(&ExportAnswer { partial_success: Some(partial) }.encode_to_vec()), 3);
        assert_eq!((rejected(b""), rejected(b"{\"partialSuccess\":{}}")), (0, 0));
    }
}
