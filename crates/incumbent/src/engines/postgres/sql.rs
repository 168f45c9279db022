//! What the engine says to PostgreSQL: each call one statement, so that it needs neither a transaction nor anything that a session keeps.
//!
//! The row of the election decides. A statement that may seat somebody locks it first (`FOR UPDATE` looks at it anew once the lock is there), and all that follows
//! goes by what was found then. The line of candidates is read as it was when the statement began: that may cost somebody a turn, never the seat.
//!
//! Time is `clock_timestamp()`: `now()` stands still in a transaction, and a statement that waited for a lock would count from before it waited.

/// The statements, with the schema's name in them.
pub(super) struct Statements {
    pub(super) claim: String,
    pub(super) create: String,
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

/// Makes the tables. To be run once, by somebody who may create tables in the schema; those who elect need
/// `SELECT, INSERT, UPDATE, DELETE` on them and `USAGE` on the schema.
pub fn schema_sql(schema: &str) -> String {
    let tables = in_schema(TABLES, schema);
    if schema == "public" { tables } else { format!("CREATE SCHEMA IF NOT EXISTS {};\n{tables}", quoted(schema)) }
}

/// The same for a schema that is there: creating one that exists is forbidden to whoever may not create any.
pub(super) fn tables_sql(schema: &str) -> String {
    in_schema(TABLES, schema)
}

/// A name as SQL wants it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn in_schema(text: &str, schema: &str) -> String {
    text.replace("{s}", &quoted(schema))
}

impl Statements {
    pub(super) fn of(schema: &str) -> Statements {
        let fill = |text: &str| in_schema(&text.replace("{next}", NEXT), schema);
        Statements {
            claim: fill(CLAIM),
            create: fill(CREATE),
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

/// The identity of the next in line of election `$1`: the one the seat is kept for, or who came first.
const NEXT: &str = "\
(SELECT c.candidate FROM {s}.incumbent_candidate c LEFT JOIN {s}.incumbent_election k
    ON k.election = c.election AND k.kept_until > clock_timestamp()
  WHERE c.election = $1 AND c.expires_at > clock_timestamp() AND (k.kept_for IS NULL OR k.kept_for IN (c.candidate, c.name))
  ORDER BY c.arrived LIMIT 1)";

/// `$1` election, `$2` identity, `$3` name, `$4` priority, `$5` value, `$6` ttl in ms, `$7` channel, `$8` greatest token seen, or -1, `$9` whether it must be the first in line.
///
/// A server that acknowledges before its disk has it (`synchronous_commit = off`) is told not to, for this statement: a token that was granted must not be granted again.
const CLAIM: &str = "\
WITH seat AS MATERIALIZED (
  SELECT e.*, coalesce(e.holder = $2 AND e.expires_at > clock_timestamp(), false) AS own,
    coalesce(e.kept_until > clock_timestamp(), false) AS is_kept
  FROM {s}.incumbent_election e
  WHERE e.election = $1 AND (e.holder IS NULL OR e.holder = $2 OR e.expires_at <= clock_timestamp())
  FOR UPDATE
), turn AS MATERIALIZED (
  SELECT seat.*, CASE WHEN own THEN term ELSE term + 1 END AS next_term FROM seat
  WHERE own OR CASE WHEN is_kept THEN kept_for IN ($2, $3) ELSE NOT $9 OR NOT EXISTS (
    SELECT FROM {s}.incumbent_candidate c LEFT JOIN {s}.incumbent_candidate me ON me.election = $1 AND me.candidate = $2
    WHERE c.election = $1 AND c.candidate <> $2 AND c.expires_at > clock_timestamp() AND (me.arrived IS NULL OR c.arrived < me.arrived)
  ) END
), dated AS MATERIALIZED (
  SELECT turn.*, CASE WHEN own OR $8 < (incarnation::bigint << 48 | next_term) THEN incarnation
    ELSE greatest(incarnation, ($8 >> 48)::integer) + 1 END AS next_incarnation,
    CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END AS flushed
  FROM turn
), seated AS (
  UPDATE {s}.incumbent_election e SET
    incarnation = d.next_incarnation, term = d.next_term, token = d.next_incarnation::bigint << 48 | d.next_term,
    holder = $2, value = CASE WHEN d.own THEN e.value ELSE $5 END, priority = $4, ttl_ms = $6,
    since = CASE WHEN d.own THEN e.since ELSE clock_timestamp() END, expires_at = clock_timestamp() + $6 * interval '1 millisecond',
    wish = CASE WHEN d.own THEN e.wish END, kept_for = NULL, kept_until = NULL
  FROM dated d WHERE e.election = d.election
  RETURNING e.token, d.own, d.flushed
), remembered AS (
  INSERT INTO {s}.incumbent_past (election, token, holder, since, until, reason)
  SELECT election, token, holder, since, clock_timestamp(), 'lease expired' FROM turn WHERE NOT own AND holder IS NOT NULL
  ON CONFLICT DO NOTHING
), forgotten AS (
  DELETE FROM {s}.incumbent_past WHERE election = $1 AND EXISTS (SELECT FROM turn WHERE NOT own) AND token < (
    SELECT min(token) FROM (SELECT token FROM {s}.incumbent_past WHERE election = $1 ORDER BY token DESC LIMIT 32) AS newest)
), waiting AS (
  INSERT INTO {s}.incumbent_candidate (election, candidate, name, priority, expires_at)
  SELECT $1, $2, $3, $4, clock_timestamp() + $6 * interval '1 millisecond' WHERE NOT EXISTS (SELECT FROM turn)
  ON CONFLICT (election, candidate) DO UPDATE SET priority = EXCLUDED.priority, expires_at = EXCLUDED.expires_at
), departed AS (
  DELETE FROM {s}.incumbent_candidate WHERE election = $1 AND candidate = $2 AND EXISTS (SELECT FROM turn)
), lapsed AS (
  DELETE FROM {s}.incumbent_candidate WHERE election = $1 AND candidate IN (
    SELECT candidate FROM {s}.incumbent_candidate
    WHERE election = $1 AND candidate <> $2 AND expires_at <= clock_timestamp() AND EXISTS (SELECT FROM turn WHERE NOT own)
    FOR UPDATE SKIP LOCKED)
)
SELECT (SELECT token FROM seated) AS granted, EXISTS (SELECT FROM {s}.incumbent_election WHERE election = $1) AS known,
  e.holder, e.token, e.value, e.priority, (extract(epoch FROM e.since) * 1000)::bigint AS since_ms,
  greatest(extract(epoch FROM e.expires_at - clock_timestamp()) * 1000, 0)::bigint AS free_in_ms,
  CASE WHEN EXISTS (SELECT FROM seated WHERE NOT own) THEN pg_notify($7, '*')::text
    WHEN EXISTS (SELECT FROM seat) AND NOT EXISTS (SELECT FROM turn) THEN pg_notify($7, {next})::text END
FROM (SELECT) AS one LEFT JOIN {s}.incumbent_election e ON e.election = $1 AND e.holder IS NOT NULL AND e.expires_at > clock_timestamp()";

const CREATE: &str = "INSERT INTO {s}.incumbent_election (election) VALUES ($1) ON CONFLICT DO NOTHING";

/// `$1` election, `$2` identity, `$3` token, `$4` ttl in ms.
const RENEW: &str = "\
UPDATE {s}.incumbent_election SET expires_at = clock_timestamp() + $4 * interval '1 millisecond', ttl_ms = $4
WHERE election = $1 AND holder = $2 AND token = $3 AND expires_at > clock_timestamp()
RETURNING wish";

/// `$1` election, `$2` identity, `$3` token, `$4` reason, `$5` successor or null, `$6` channel. What it sets free is not yet seen by [`NEXT`], so the successor is looked for here.
const RELEASE: &str = "\
WITH freed AS (
  UPDATE {s}.incumbent_election SET holder = NULL, wish = NULL, kept_for = $5,
    kept_until = CASE WHEN $5 IS NOT NULL THEN clock_timestamp() + ttl_ms * interval '1 millisecond' END
  WHERE election = $1 AND holder = $2 AND token = $3
  RETURNING token, since
), remembered AS (
  INSERT INTO {s}.incumbent_past (election, token, holder, since, until, reason)
  SELECT $1, token, $2, since, clock_timestamp(), $4 FROM freed ON CONFLICT DO NOTHING
)
SELECT pg_notify($6, '*')::text, pg_notify($6, (
  SELECT candidate FROM {s}.incumbent_candidate
  WHERE election = $1 AND expires_at > clock_timestamp() AND ($5 IS NULL OR $5 IN (candidate, name)) ORDER BY arrived LIMIT 1))::text
FROM freed";

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
    use super::*;

    #[test]
    fn a_schema_of_any_name_is_quoted() {
        assert!(schema_sql("a\"b").starts_with("CREATE SCHEMA IF NOT EXISTS \"a\"\"b\";\n"));
        assert!(schema_sql("public").starts_with("CREATE TABLE IF NOT EXISTS \"public\".incumbent_election"));
        assert!(!Statements::of("x").claim.contains('{'));
    }
}
