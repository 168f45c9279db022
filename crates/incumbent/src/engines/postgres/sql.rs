//! What the engine says to PostgreSQL: each call one statement, so that it needs neither a transaction nor anything that a session must keep. What is asked again and
//! again is a call of a function (`functions.sql`): a session plans that once, and a pooler need not know of it.
//!
//! Time is `clock_timestamp()`: `now()` stands still in a transaction, and a statement that waited for a lock would count from before it waited.

/// The statements, with the schema's name in them.
pub(super) struct Statements {
    pub(super) claim: String,
    pub(super) changed: String,
    pub(super) renew: String,
    pub(super) release: String,
    pub(super) withdraw: String,
    pub(super) proclaim: String,
    pub(super) ask: String,
    pub(super) raise: String,
    pub(super) annotate: String,
    pub(super) missed: String,
    pub(super) look: String,
}

/// Of the functions' texts, in their names. To be raised whenever one of them changes: then programs of both versions find what they need.
const FUNCTIONS_VERSION: u32 = 4;

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
            claim: fill(CLAIM),
            changed: fill(CHANGED),
            renew: fill(RENEW),
            release: fill(RELEASE),
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

/// `$1` election, `$2` identity, `$3` name, `$4` priority, `$5` value, `$6` ttl in ms, `$7` channel, `$8` greatest token seen, or -1, `$9` whether it must be the first in line.
const CLAIM: &str = "SELECT {s}.incumbent_claim_{v}($1, $2, $3, $4, $5, $6, $7, $8, $9)";

/// `$1` channel. For those who look on.
const CHANGED: &str = "SELECT pg_notify($1, '*')::text";

/// `$1` election, `$2` identity, `$3` token, `$4` ttl in ms.
const RENEW: &str = "SELECT * FROM {s}.incumbent_renew_{v}($1, $2, $3, $4)";

/// `$1` election, `$2` identity, `$3` token, `$4` reason, `$5` successor or null, `$6` channel.
const RELEASE: &str = "SELECT {s}.incumbent_release_{v}($1, $2, $3, $4, $5, $6)::text";

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

/// `$1` election.
const LOOK: &str = "\
SELECT e.holder, e.token, e.value, e.priority, (extract(epoch FROM e.since) * 1000)::bigint AS since_ms,
  (SELECT coalesce(json_agg(c), '[]') FROM (
    SELECT candidate AS identity, priority FROM {s}.incumbent_candidate
    WHERE election = $1 AND expires_at > clock_timestamp() ORDER BY arrived) AS c)::text AS candidates,
  (SELECT coalesce(json_agg(p), '[]') FROM (
    SELECT holder AS identity, token, (extract(epoch FROM since) * 1000)::bigint AS since_ms, (extract(epoch FROM until) * 1000)::bigint AS until_ms, reason
    FROM {s}.incumbent_past WHERE election = $1 ORDER BY token DESC LIMIT 32) AS p)::text AS past,
  (SELECT coalesce(json_agg(n), '[]') FROM (
    SELECT token, text FROM {s}.incumbent_note WHERE election = $1 ORDER BY token DESC LIMIT 32) AS n)::text AS notes
FROM (SELECT) AS one LEFT JOIN {s}.incumbent_election e ON e.election = $1 AND e.holder IS NOT NULL AND e.expires_at > clock_timestamp()";

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use super::super::Fnv;
    use super::*;

    #[test]
    fn a_schema_of_any_name_is_quoted() {
        assert!(schema_sql("a\"b").starts_with("CREATE SCHEMA IF NOT EXISTS \"a\"\"b\";\n"));
        assert!(schema_sql("public").starts_with("CREATE TABLE IF NOT EXISTS \"public\".incumbent_election"));
        assert!(!Statements::of("x").claim.contains('{') && !schema_sql("x").contains('{'));
    }

    /// A server that has functions of this version is not given others.
    #[test]
    fn functions_that_change_have_another_version() {
        let mut digest = Fnv::default();
        digest.write(FUNCTIONS.as_bytes());
        let known = (4, 15_626_430_235_371_768_209);
        let now = (FUNCTIONS_VERSION, digest.finish());
        assert_eq!(now, known, "raise FUNCTIONS_VERSION if it was published with other texts, and note both here");
    }
}
