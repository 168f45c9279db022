//! All that can be asked, in one table: it finds the way, checks what comes in, names the figures, and is told as the OpenAPI document.
//!
//! No two rows fit the same path and method, so their order does not matter.

use hyper::Method;

use super::address::{Kind, Parameter};
use super::shapes::Shape;

/// One row.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) verb: Verb,
    /// `{name}` is one segment; `{key*}` all the rest, not empty. At most one of either.
    pub(super) path: &'static str,
    pub(super) deed: Deed,
    pub(super) says: &'static str,
    pub(super) asks: &'static [Parameter],
    pub(super) takes: Takes,
    pub(super) gives: &'static [Gives],
}

/// A method.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Verb {
    Get,
    Put,
    Post,
    Delete,
}

/// What is done.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Deed {
    Health,
    Ready,
    Figures,
    Document,
    Status,
    Introduce,
    Elections,
    Board,
    History,
    Events,
    Campaign,
    Renew,
    Proclaim,
    Resign,
    Withdraw,
    HandOver,
    Evict,
    Annotate,
    Raise,
    Complete,
    Forget,
    OpenSession,
    Sessions,
    Session,
    EndSession,
    KeepAlive,
    Keys,
    Key,
    PutKey,
    DeleteKey,
    Transact,
    Compact,
    Watch,
}

/// What a body may be.
#[derive(Debug)]
pub(super) enum Takes {
    Nothing,
    /// An empty body is an empty object.
    Json(Shape),
    /// The body is the value, byte for byte.
    Value,
}

/// What an answer may be, beside an error.
#[derive(Debug)]
pub(super) enum Gives {
    Json(u16, Shape),
    /// The value of a key, byte for byte.
    Value,
    /// Text for Prometheus.
    Figures,
    /// A stream of events, each of this shape.
    Events(Shape),
}

impl Gives {
    pub(super) fn status(&self) -> u16 {
        match self {
            Gives::Json(status, _) => *status,
            Gives::Value | Gives::Figures | Gives::Events(_) => 200,
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Gives::Json(..) => "application/json",
            Gives::Value => "application/octet-stream",
            Gives::Figures => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Gives::Events(_) => "text/event-stream",
        }
    }

    /// The shape of the JSON in it.
    pub(super) fn shape(&self) -> Option<&Shape> {
        match self {
            Gives::Json(_, shape) | Gives::Events(shape) => Some(shape),
            Gives::Value | Gives::Figures => None,
        }
    }
}

impl Verb {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Verb::Get => "GET",
            Verb::Put => "PUT",
            Verb::Post => "POST",
            Verb::Delete => "DELETE",
        }
    }

    /// HEAD is asked and answered as GET; hyper leaves the body out.
    fn of(method: &Method) -> Option<Verb> {
        let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
        [Verb::Get, Verb::Put, Verb::Post, Verb::Delete].into_iter().find(|it| it.name() == method)
    }
}

impl Route {
    /// Whether nobody needs a right for it: it tells nothing that is stored, and probes have no tokens.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.deed, Deed::Health | Deed::Ready | Deed::Document)
    }

    /// Whether machines ask for it again and again, to see whether the node is well.
    pub(super) fn is_probe(&self) -> bool {
        matches!(self.deed, Deed::Health | Deed::Ready | Deed::Figures)
    }

    /// Whether it changes something, and so may have a number.
    pub(super) fn commands(&self) -> bool {
        self.verb != Verb::Get
    }

    /// What stands in the path for its variable, as it was sent; empty if it has none. `None` if the path is another.
    fn fits<'a>(&self, path: &'a str) -> Option<&'a str> {
        let mut rest = path;
        let mut variable = "";
        for part in self.path.split('/').skip(1) {
            rest = rest.strip_prefix('/')?;
            let end = if part.ends_with("*}") { rest.len() } else { rest.find('/').unwrap_or(rest.len()) };
            let (segment, behind) = rest.split_at(end);
            if part.starts_with('{') {
                variable = Some(segment).filter(|it| !it.is_empty())?;
            } else if part != segment {
                return None;
            }
            rest = behind;
        }
        rest.is_empty().then_some(variable)
    }

    /// The name of its variable.
    pub(super) fn variable(&self) -> Option<&'static str> {
        let (_, rest) = self.path.split_once('{')?;
        rest.split_once('}').map(|(name, _)| name.trim_end_matches('*'))
    }
}

/// Where a request leads.
#[derive(Debug)]
pub(super) enum Way<'a> {
    /// Here, with what stands in the path for its variable.
    To(&'static Route, &'a str),
    /// Nowhere by this method: these are known.
    OtherMethods(Vec<&'static str>),
    /// Nowhere.
    Nowhere,
}

/// The way of a request.
pub(super) fn way<'a>(method: &Method, path: &'a str) -> Way<'a> {
    let fitting: Vec<(&'static Route, &'a str)> = ROUTES.iter().filter_map(|it| Some((it, it.fits(path)?))).collect();
    if let Some((route, variable)) = fitting.iter().find(|(it, _)| Some(it.verb) == Verb::of(method)) {
        return Way::To(route, variable);
    }
    let mut names: Vec<&str> = fitting.iter().map(|(it, _)| it.verb.name()).collect();
    if names.contains(&"GET") {
        names.push("HEAD");
    }
    if names.is_empty() { Way::Nowhere } else { Way::OtherMethods(names) }
}

const fn parameter(name: &'static str, kind: Kind, says: &'static str) -> Parameter {
    Parameter { name, kind, says }
}

const CONSISTENCY: Parameter = parameter(
    "consistency",
    Kind::Word(&["linearizable", "local"]),
    "local: whatever this node knows, at once, also when nobody leads. Else not older than the question.",
);
const LIMIT: Parameter = parameter("limit", Kind::Whole, "So many at most; 100 if left out, 0 for as many as may be.");
const FROM: Parameter =
    parameter("from", Kind::Whole, "From this revision on; from now on if left out. The header Last-Event-ID counts more.");
const IF_VERSION: Parameter = parameter("if-version", Kind::Whole, "Only if the key has this version; 0 is not there.");
const HOLDING: Parameter =
    parameter("holding", Kind::Text, "Only while the leadership of this election with token= is in office: the fence.");
const TOKEN: Parameter = parameter("token", Kind::Id, "The token that belongs to holding=.");
const PREVIOUS: Parameter = parameter("previous", Kind::Flag, "Answer what was there before.");

const ONLY_CONSISTENCY: &[Parameter] = &[CONSISTENCY];
const DONE: &[Gives] = &[Gives::Json(200, Shape::Named("Done"))];

/// A row of a command that takes JSON and answers that it is done.
const fn command(path: &'static str, deed: Deed, takes: &'static str, says: &'static str) -> Route {
    Route { verb: Verb::Post, path, deed, says, asks: &[], takes: Takes::Json(Shape::Named(takes)), gives: DONE }
}

/// A row of a question without a body.
const fn question(
    path: &'static str,
    deed: Deed,
    asks: &'static [Parameter],
    gives: &'static [Gives],
    says: &'static str,
) -> Route {
    Route { verb: Verb::Get, path, deed, says, asks, takes: Takes::Nothing, gives }
}

/// All rows.
pub(super) static ROUTES: &[Route] = &[
    question("/health", Deed::Health, &[], &[Gives::Json(200, Shape::Named("Alive"))], "200 as long as the process answers."),
    question(
        "/ready",
        Deed::Ready,
        &[],
        &[Gives::Json(200, Shape::Named("Readiness")), Gives::Json(503, Shape::Named("Readiness"))],
        "200 while a leader is known and the disk is not full; else 503, and why.",
    ),
    question("/metrics", Deed::Figures, &[], &[Gives::Figures], "Figures for Prometheus."),
    question("/openapi.json", Deed::Document, &[], &[Gives::Json(200, Shape::Anything)], "This document."),
    question(
        "/v1/status",
        Deed::Status,
        &[],
        &[Gives::Json(200, Shape::Named("Status"))],
        "This node, its cluster, its disk and its store.",
    ),
    Route {
        verb: Verb::Post,
        path: "/v1/clients",
        deed: Deed::Introduce,
        says: "Gives a number for Idempotency-Key: requests of a client are done once, however often they are repeated.",
        asks: &[],
        takes: Takes::Nothing,
        gives: &[Gives::Json(200, Shape::Named("Introduced"))],
    },
    question(
        "/v1/elections",
        Deed::Elections,
        &[
            parameter("prefix", Kind::Text, "Those whose names begin so."),
            parameter("after", Kind::Text, "Those behind this name: the last of the page before."),
            LIMIT,
            CONSISTENCY,
        ],
        &[Gives::Json(200, Shape::Named("Elections"))],
        "Elections, each in short.",
    ),
    question(
        "/v1/elections/{name}",
        Deed::Board,
        ONLY_CONSISTENCY,
        &[Gives::Json(200, Shape::Named("Board"))],
        "Who leads, who waits, what was noted and done. An election that nobody knows is an empty one.",
    ),
    Route {
        verb: Verb::Delete,
        path: "/v1/elections/{name}",
        deed: Deed::Forget,
        says: "Forgets an election in which nobody leads or waits. Its tokens are not given again.",
        asks: &[],
        takes: Takes::Nothing,
        gives: DONE,
    },
    question(
        "/v1/elections/{name}/history",
        Deed::History,
        ONLY_CONSISTENCY,
        &[Gives::Json(200, Shape::Named("History"))],
        "Leaderships that have ended, and why.",
    ),
    question(
        "/v1/elections/{name}/events",
        Deed::Events,
        &[FROM],
        &[Gives::Events(Shape::Named("Event"))],
        "All that happens in the election, as Server-Sent Events.",
    ),
    Route {
        verb: Verb::Post,
        path: "/v1/elections/{name}/campaign",
        deed: Deed::Campaign,
        says: "Takes a free seat (200), or a place in the line (202). Also keeps the session alive. Repeated, it answers how things stand.",
        asks: &[parameter(
            "wait",
            Kind::Span,
            "Answer when it is won, or after this time: up to 55s. Shorter than the ttl, or the session must be kept alive meanwhile.",
        )],
        takes: Takes::Json(Shape::Named("Campaign")),
        gives: &[Gives::Json(200, Shape::Named("Standing")), Gives::Json(202, Shape::Named("Standing"))],
    },
    Route {
        verb: Verb::Post,
        path: "/v1/elections/{name}/renew",
        deed: Deed::Renew,
        says: "Keeps the session of a leadership alive, and brings what others want of the holder.",
        asks: &[],
        takes: Takes::Json(Shape::Named("Renew")),
        gives: &[Gives::Json(200, Shape::Named("Renewed"))],
    },
    command("/v1/elections/{name}/proclaim", Deed::Proclaim, "Proclaim", "Changes what a leader publishes."),
    command(
        "/v1/elections/{name}/resign",
        Deed::Resign,
        "Resign",
        "Gives a seat back, and in the same step to the next. Stop the work first.",
    ),
    command("/v1/elections/{name}/withdraw", Deed::Withdraw, "Withdraw", "Leaves the line; a seat is kept."),
    command(
        "/v1/elections/{name}/handover",
        Deed::HandOver,
        "Handover",
        "Leaves a wish: the holder should stop, and resign in favour of one who waits in line.",
    ),
    command(
        "/v1/elections/{name}/evict",
        Deed::Evict,
        "Evict",
        "Leaves a wish: the holder should stop and resign. By force, the seat is taken away at once.",
    ),
    command("/v1/elections/{name}/annotate", Deed::Annotate, "Annotate", "Puts a note on record for a leadership."),
    command(
        "/v1/elections/{name}/raise",
        Deed::Raise,
        "Raise",
        "Makes every later token of the election greater than one that was seen.",
    ),
    command("/v1/elections/{name}/complete", Deed::Complete, "Complete", "Records that a job was done, once."),
    question(
        "/v1/sessions",
        Deed::Sessions,
        &[parameter("after", Kind::Whole, "Those behind this number."), LIMIT, CONSISTENCY],
        &[Gives::Json(200, Shape::Named("Sessions"))],
        "Sessions, in the order of their numbers.",
    ),
    Route {
        verb: Verb::Post,
        path: "/v1/sessions",
        deed: Deed::OpenSession,
        says: "Opens a session: what is attached to it goes with it.",
        asks: &[],
        takes: Takes::Json(Shape::Named("OpenSession")),
        gives: &[Gives::Json(200, Shape::Named("Opened"))],
    },
    question(
        "/v1/sessions/{id}",
        Deed::Session,
        ONLY_CONSISTENCY,
        &[Gives::Json(200, Shape::Named("Session"))],
        "One session, and the keys that go with it.",
    ),
    Route {
        verb: Verb::Delete,
        path: "/v1/sessions/{id}",
        deed: Deed::EndSession,
        says: "Ends a session, and with it what is attached.",
        asks: &[parameter("reason", Kind::Text, "Why, for the record of its leaderships.")],
        takes: Takes::Nothing,
        gives: DONE,
    },
    Route {
        verb: Verb::Post,
        path: "/v1/sessions/{id}/keep-alive",
        deed: Deed::KeepAlive,
        says: "Begins the ttl of a session anew.",
        asks: &[],
        takes: Takes::Nothing,
        gives: DONE,
    },
    question(
        "/v1/kv",
        Deed::Keys,
        &[
            parameter("prefix", Kind::Key, "Those that begin so."),
            parameter("after", Kind::Key, "Those behind this key: the last of the page before."),
            LIMIT,
            parameter("revision", Kind::Whole, "As they were at this revision."),
            parameter("keys-only", Kind::Flag, "Without values."),
            parameter("count", Kind::Flag, "Count all that begin so, also those behind the limit."),
            CONSISTENCY,
        ],
        &[Gives::Json(200, Shape::Named("Items"))],
        "Keys, in their order.",
    ),
    question(
        "/v1/kv/{key*}",
        Deed::Key,
        &[
            parameter("revision", Kind::Whole, "As it was at this revision."),
            parameter("raw", Kind::Flag, "Answer the value alone, byte for byte."),
            CONSISTENCY,
        ],
        &[Gives::Json(200, Shape::Named("Found")), Gives::Value],
        "One key.",
    ),
    Route {
        verb: Verb::Put,
        path: "/v1/kv/{key*}",
        deed: Deed::PutKey,
        says: "Writes a key: the body is the value, byte for byte.",
        asks: &[
            parameter("session", Kind::Id, "The session it goes with."),
            parameter("outlives-session", Kind::Flag, "When the session ends the key stays, without it."),
            PREVIOUS,
            IF_VERSION,
            parameter("if-absent", Kind::Flag, "Only if the key is not there."),
            HOLDING,
            TOKEN,
        ],
        takes: Takes::Value,
        gives: &[Gives::Json(200, Shape::Named("Written"))],
    },
    Route {
        verb: Verb::Delete,
        path: "/v1/kv/{key*}",
        deed: Deed::DeleteKey,
        says: "Deletes a key. One that is not there is no error: the count is 0.",
        asks: &[PREVIOUS, IF_VERSION, HOLDING, TOKEN],
        takes: Takes::Nothing,
        gives: &[Gives::Json(200, Shape::Named("Deleted"))],
    },
    Route {
        verb: Verb::Post,
        path: "/v1/txn",
        deed: Deed::Transact,
        says: "All of then if every guard holds, all of otherwise if not: all or nothing, at one revision. 200 in both cases; held says which.",
        asks: &[],
        takes: Takes::Json(Shape::Named("Transaction")),
        gives: &[Gives::Json(200, Shape::Named("Transacted"))],
    },
    command(
        "/v1/compact",
        Deed::Compact,
        "Compact",
        "Drops the events up to a revision: nobody will watch from there or read as of then.",
    ),
    question(
        "/v1/watch",
        Deed::Watch,
        &[
            parameter("prefix", Kind::Key, "Keys that begin so; all if left out."),
            parameter("key", Kind::Key, "One key, instead of a prefix."),
            FROM,
        ],
        &[Gives::Events(Shape::Named("Event"))],
        "Changes of keys, as Server-Sent Events.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_deed_is_reached_by_one_row_and_no_path_by_two() {
        let deeds: std::collections::BTreeSet<Deed> = ROUTES.iter().map(|it| it.deed).collect();
        assert_eq!(deeds.len(), ROUTES.len());
        for route in ROUTES {
            let path = route.path.replace("{key*}", "a/campaign").replace("{name}", "history").replace("{id}", "7");
            let fitting: Vec<_> = ROUTES.iter().filter(|it| it.verb == route.verb && it.fits(&path).is_some()).collect();
            assert_eq!(fitting.len(), 1, "{path}: {fitting:?}");
        }
    }

    #[test]
    fn a_name_is_one_segment_and_a_key_is_the_rest() {
        let to = |method: Method, path: &str| match way(&method, path) {
            Way::To(route, variable) => format!("{:?} {variable}", route.deed),
            Way::OtherMethods(names) => names.join(" "),
            Way::Nowhere => "nowhere".to_owned(),
        };
        for (path, expected) in [
            ("/v1/elections/a%2Fb/history", "History a%2Fb"),
            ("/v1/elections/events", "Board events"),
            ("/v1/elections/events/events", "Events events"),
            ("/v1/elections/a/b/history", "nowhere"),
            ("/v1/elections/", "nowhere"),
            ("/v1/elections//history", "nowhere"),
            ("/v1/elections", "Elections "),
            ("/v1/kv/a/b//c/", "Key a/b//c/"),
            ("/v1/kv/", "nowhere"),
            ("/v1/kv", "Keys "),
            ("/v1/sessions/7/keep-alive", "POST"),
            ("/v1/txn", "POST"),
            ("/", "nowhere"),
            ("*", "nowhere"),
            ("", "nowhere"),
            ("/v2/status", "nowhere"),
        ] {
            assert_eq!(to(Method::GET, path), expected, "{path}");
        }
        assert_eq!(to(Method::HEAD, "/health"), "Health ");
        assert_eq!(to(Method::PATCH, "/v1/kv/a"), "GET PUT DELETE HEAD");
    }
}
