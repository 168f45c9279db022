//! What the engine says to PostgreSQL: each call one statement, so that it needs neither a transaction nor anything that a session must keep. What is asked again and
//! again is a call of a function (`functions.sql`): a session plans that once, and a pooler need not know of it. Even so the server reads and plans the call itself each
//! time, unless the session has it prepared (`session.rs`).
//!
//! Time is `clock_timestamp()`: `now()` stands still in a transaction, and a statement that waited for a lock would count from before it waited.

use std::hash::Hasher;

use super::Fnv;

/// The statements, with the schema's name in them.
pub(super) struct Statements {
    pub(super) claim: Function,
    pub(super) renew: Function,
    pub(super) release: Function,
    pub(super) changed: String,
    pub(super) withdraw: String,
    pub(super) proclaim: String,
    pub(super) ask: String,
    pub(super) raise: String,
    pub(super) annotate: String,
    pub(super) missed: String,
    pub(super) look: String,
}

/// How to call a function of `functions.sql`.
pub(super) struct Function {
    /// Of the statement that is prepared to call it. It ends with a digest of that statement: where the name is known it stands for the same, whoever has prepared it. Behind a
    /// pooler that may have been another program.
    pub(super) prepared_name: String,
    pub(super) prepare: String,
    qualified: String,
}

impl Function {
    fn of(schema: &str, name: &str, types: &str) -> Function {
        let qualified = in_schema(&format!("{{s}}.incumbent_{name}_{{v}}"), schema);
        let places: Vec<String> = (1..=types.split(',').count()).map(|it| format!("${it}")).collect();
        let call = format!("({types}) AS SELECT {qualified}({})", places.join(", "));
        let mut digest = Fnv::default();
        digest.write(call.as_bytes());
        let prepared_name = format!("incumbent_{name}_{:016x}", digest.finish());
        Function { prepare: format!("PREPARE {prepared_name} {call}"), prepared_name, qualified }
    }

    /// Calls it where nothing is prepared.
    pub(super) fn plainly(&self, literals: &str) -> String {
        format!("SELECT {}({literals})", self.qualified)
    }

    /// Calls it where its statement is prepared.
    pub(super) fn by_name(&self, literals: &str) -> String {
        format!("EXECUTE {}({literals})", self.prepared_name)
    }
}

/// Texts, numbers and what may be missing, as SQL wants them in the list of a function's arguments.
pub(super) fn literals(texts: &[Option<&str>]) -> String {
    texts.iter().map(|it| it.map_or_else(|| "NULL".to_owned(), literal)).collect::<Vec<_>>().join(", ")
}

/// Right whether or not the server takes a backslash in a plain text for itself (`standard_conforming_strings`).
fn literal(text: &str) -> String {
    let quotes_doubled = text.replace('\'', "''");
    if text.contains('\\') { format!("E'{}'", quotes_doubled.replace('\\', "\\\\")) } else { format!("'{quotes_doubled}'") }
}

/// Of the functions' texts, in their names. To be raised whenever one of them changes: then programs of both versions find what they need.
const FUNCTIONS_VERSION: u32 = 6;

/// Makes the tables and functions. To be run once, by somebody who may create them in the schema; those who elect need
/// `SELECT, INSERT, UPDATE, DELETE` on the tables and `USAGE` on the schema. Where they are there already, from an earlier version too, it does no harm.
pub fn schema_sql(schema: &str) -> String {
    let tables = tables_sql(schema);
    if schema == "public" { tables } else { format!("CREATE SCHEMA IF NOT EXISTS {};\n{tables}", quoted(schema)) }
}

/// The same for a schema that is there: creating one that exists is forbidden to whoever may not create any.
pub(super) fn tables_sql(schema: &str) -> String {
    in_schema(&[TABLES, FUNCTIONS].concat(), schema)
}

/// A name as SQL wants it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn in_schema(text: &str, schema: &str) -> String {
    text.replace("{v}", &FUNCTIONS_VERSION.to_string()).replace("{s}", &quoted(schema))
}

impl Statements {
    pub(super) fn of(schema: &str) -> Statements {
        let fill = |text: &str| in_schema(&text.replace("{next}", NEXT), schema);
        Statements {
            claim: Function::of(schema, "claim", "text, text, text, integer, text, bigint, text, bigint, boolean"),
            renew: Function::of(schema, "renew", "text, text, bigint, bigint"),
            release: Function::of(schema, "release", "text, text, bigint, text, text, text"),
            changed: fill(CHANGED),
            withdraw: fill(WITHDRAW),
            proclaim: fill(PROCLAIM),
            ask: fill(ASK),
            raise: fill(RAISE),
            annotate: fill(ANNOTATE),
            missed: fill(MISSED),
            look: fill(LOOK),
        }
    }
}

/// Renewals change no indexed column and find room on their page, so that they leave little for the vacuum.
const TABLES: &str = "\
CREATE TABLE IF NOT EXISTS {s}.incumbent_election (
  election text PRIMARY KEY,
  incarnation integer NOT NULL DEFAULT 0 CHECK (incarnation BETWEEN 0 AND 32767),
  term bigint NOT NULL DEFAULT 0 CHECK (term BETWEEN 0 AND 281474976710655),
  token bigint,
  holder text,
  value text NOT NULL DEFAULT '',
  priority integer NOT NULL DEFAULT 0,
  ttl_ms bigint NOT NULL DEFAULT 0,
  since timestamptz,
  expires_at timestamptz,
  wish text,
  kept_for text,
  kept_until timestamptz
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS {s}.incumbent_candidate (
  election text NOT NULL,
  candidate text NOT NULL,
  name text NOT NULL,
  priority integer NOT NULL,
  arrived bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (election, candidate)
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS {s}.incumbent_past (
  election text NOT NULL,
  token bigint NOT NULL,
  holder text NOT NULL,
  since timestamptz NOT NULL,
  until timestamptz NOT NULL,
  reason text NOT NULL,
  PRIMARY KEY (election, token)
);
CREATE TABLE IF NOT EXISTS {s}.incumbent_note (
  election text NOT NULL,
  token bigint NOT NULL,
  text text NOT NULL,
  PRIMARY KEY (election, token)
);
";

const FUNCTIONS: &str = include_str!("functions.sql");

/// The identity of the next in line of election `$1`: the one the seat is kept for, or who came first.
const NEXT: &str = "\
(SELECT c.candidate FROM {s}.incumbent_candidate c LEFT JOIN {s}.incumbent_election k
    ON k.election = c.election AND k.kept_until > clock_timestamp()
  WHERE c.election = $1 AND c.expires_at > clock_timestamp() AND (k.kept_for IS NULL OR k.kept_for IN (c.candidate, c.name))
  ORDER BY c.arrived LIMIT 1)";

/// `$1` channel. For those who look on.
const CHANGED: &str = "SELECT pg_notify($1, '*')::text";

/// `$1` election, `$2` identity, `$3` channel. Whoever was told of a free seat and goes must not be the only one.
const WITHDRAW: &str = "\
WITH gone AS (
  DELETE FROM {s}.incumbent_candidate WHERE election = $1 AND candidate = $2 RETURNING candidate
)
SELECT pg_notify($3, (
  SELECT candidate FROM {s}.incumbent_candidate
  WHERE election = $1 AND candidate <> $2 AND expires_at > clock_timestamp() ORDER BY arrived LIMIT 1))::text
FROM gone WHERE NOT EXISTS (
  SELECT FROM {s}.incumbent_election WHERE election = $1 AND holder IS NOT NULL AND expires_at > clock_timestamp())";

/// `$1` election, `$2` token, `$3` value, `$4` channel.
const PROCLAIM: &str = "\
WITH said AS (
  UPDATE {s}.incumbent_election SET value = $3
  WHERE election = $1 AND token = $2 AND holder IS NOT NULL AND expires_at > clock_timestamp() RETURNING holder
)
SELECT pg_notify($4, '*')::text FROM said";

/// `$1` election, `$2` token, `$3` wish, `$4` channel.
const ASK: &str = "\
WITH asked AS (
  UPDATE {s}.incumbent_election SET wish = $3
  WHERE election = $1 AND token = $2 AND holder IS NOT NULL AND expires_at > clock_timestamp() RETURNING holder
)
SELECT pg_notify($4, holder)::text, pg_notify($4, '*')::text FROM asked";

/// `$1` election, `$2` token.
const RAISE: &str = "\
INSERT INTO {s}.incumbent_election AS e (election, incarnation) VALUES ($1, ($2::bigint >> 48)::integer + 1)
ON CONFLICT (election) DO UPDATE SET incarnation = greatest(e.incarnation, EXCLUDED.incarnation)";

/// `$1` election, `$2` token, `$3` text, `$4` channel.
const ANNOTATE: &str = "\
WITH noted AS (
  INSERT INTO {s}.incumbent_note (election, token, text) VALUES ($1, $2, $3) ON CONFLICT (election, token) DO UPDATE SET text = EXCLUDED.text
), swept AS (
  DELETE FROM {s}.incumbent_note WHERE election = $1 AND token < (
    SELECT min(token) FROM (SELECT token FROM {s}.incumbent_note WHERE election = $1 ORDER BY token DESC LIMIT 31) AS newest)
    AND (SELECT count(*) FROM {s}.incumbent_note WHERE election = $1) > 31
)
SELECT pg_notify($4, '*')::text";

/// `$1` election, `$2` identity: is there anything that this one would have been told while it was not listening?
const MISSED: &str = "\
SELECT EXISTS (SELECT FROM {s}.incumbent_election WHERE election = $1 AND holder = $2 AND wish IS NOT NULL)
  OR (NOT EXISTS (SELECT FROM {s}.incumbent_election WHERE election = $1 AND holder IS NOT NULL AND expires_at > clock_timestamp())
    AND {next} = $2)";

/// `$1` election. Whose lease is over is in the past, though the row names it until somebody claims. One reading of the clock decides which it is: in office or in the past, and not both.
const LOOK: &str = "\
SELECT e.holder, e.token, e.value, e.priority, (extract(epoch FROM e.since) * 1000)::bigint AS since_ms,
  (SELECT coalesce(json_agg(c), '[]') FROM (
    SELECT candidate AS identity, priority FROM {s}.incumbent_candidate
    WHERE election = $1 AND expires_at > clock_timestamp() ORDER BY arrived) AS c)::text AS candidates,
  (SELECT coalesce(json_agg(p), '[]') FROM (
    SELECT holder AS identity, token, (extract(epoch FROM since) * 1000)::bigint AS since_ms, (extract(epoch FROM until) * 1000)::bigint AS until_ms, reason
    FROM (
      SELECT holder, token, since, until, reason FROM {s}.incumbent_past WHERE election = $1
      UNION ALL
      SELECT holder, token, since, expires_at, 'lease expired' FROM {s}.incumbent_election
      WHERE election = $1 AND holder IS NOT NULL AND expires_at <= one.now) AS ended
    ORDER BY token DESC LIMIT 32) AS p)::text AS past,
  (SELECT coalesce(json_agg(n), '[]') FROM (
    SELECT token, text FROM {s}.incumbent_note WHERE election = $1 ORDER BY token DESC LIMIT 32) AS n)::text AS notes
FROM (SELECT clock_timestamp() AS now) AS one LEFT JOIN {s}.incumbent_election e ON e.election = $1 AND e.holder IS NOT NULL AND e.expires_at > one.now";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_of_any_name_is_quoted() {
        assert!(schema_sql("a\"b").starts_with("CREATE SCHEMA IF NOT EXISTS \"a\"\"b\";\n"));
        assert!(schema_sql("public").starts_with("CREATE TABLE IF NOT EXISTS \"public\".incumbent_election"));
        assert!(!Statements::of("x").look.contains('{') && !schema_sql("x").contains('{'));
    }

    #[test]
    fn a_text_is_no_more_than_a_text_whatever_is_in_it() {
        assert_eq!(literals(&[Some("it's"), None, Some("a\\'b"), Some("7")]), "'it''s', NULL, E'a\\\\''b', '7'");
    }

    /// Somebody else's statement may be called `claim`, and another schema's functions are other functions.
    #[test]
    fn a_prepared_call_is_named_after_all_that_it_says() {
        let (here, there) = (Statements::of("x").claim, Statements::of("y").claim);
        assert_ne!(here.prepared_name, there.prepared_name);
        assert_eq!(here.prepared_name, Statements::of("x").claim.prepared_name);
        assert!(here.prepared_name.len() < 64, "the server cuts it off there");
        let said = "(text, text, bigint, bigint) AS SELECT \"x\".incumbent_renew_6($1, $2, $3, $4)";
        assert!(Statements::of("x").renew.prepare.ends_with(said), "{}", Statements::of("x").renew.prepare);
    }

    /// A server that has functions of this version is not given others.
    #[test]
    fn functions_that_change_have_another_version() {
        let mut digest = Fnv::default();
        digest.write(FUNCTIONS.as_bytes());
        let known = (6, 1_249_512_833_354_979_622);
        let now = (FUNCTIONS_VERSION, digest.finish());
        assert_eq!(now, known, "raise FUNCTIONS_VERSION if it was published with other texts, and note both here");
    }
}
