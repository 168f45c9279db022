/* What the engine asks again and again, as functions: the server plans a function once in a session, and a statement at every call. Each answers with one text.
   Their names end with the version of their texts, so that programs of two versions can share the tables; tables of before there were functions serve as they are. */

/* Gives the seat to the bidder if it is free and its turn, and a place in line otherwise.

   Returns JSON: the token, or who leads, or null. One value, because a function that is a table to the planner costs more than its work. Those who look on are told by the caller, once it has its answer: to wake them all takes time, and they lose none.

   The row of the election decides: it is locked before anybody is seated, and all that follows goes by what was found then.
   Time is clock_timestamp(): now() stands still in a transaction, and whoever waited for a lock would count from before it waited. */
CREATE OR REPLACE FUNCTION {s}.incumbent_claim_{v}(
  p_election text, p_identity text, p_name text, p_priority integer, p_value text, p_ttl_ms bigint, p_channel text,
  p_seen bigint /* greatest token seen, or -1 */, p_by_turns boolean /* only the first in line is let in */
) RETURNS text LANGUAGE plpgsql AS $incumbent$
DECLARE
  answer text;
  first text;
  durable text;
  granted bigint;
  seat {s}.incumbent_election%ROWTYPE;
  own boolean;
  is_kept boolean;
  is_turn boolean;
  next_term bigint;
  next_incarnation integer;
  next_in_line text;
BEGIN
  /* A free seat that is kept for nobody, no one before us in line, and no greater token seen: most claims. Every statement and every expression of a function costs
     about as much as the row that it writes, so there are few. */
  SELECT c.candidate INTO first FROM {s}.incumbent_candidate c
    WHERE c.election = p_election AND (c.expires_at > clock_timestamp() OR c.candidate = p_identity) ORDER BY c.arrived LIMIT 1;
  UPDATE {s}.incumbent_election e SET
    term = e.term + 1, token = e.incarnation::bigint << 48 | (e.term + 1), holder = p_identity, value = p_value, priority = p_priority, ttl_ms = p_ttl_ms,
    since = clock_timestamp(), expires_at = clock_timestamp() + p_ttl_ms * interval '1 millisecond', wish = NULL
    WHERE e.election = p_election AND e.holder IS NULL AND e.kept_for IS NULL AND p_seen < (e.incarnation::bigint << 48 | (e.term + 1))
      AND (e.term + 1) % 16 <> 0 /* then there is sweeping to do */
      AND (first IS NULL OR first = p_identity OR NOT p_by_turns)
    /* A server that acknowledges before its disk has it is told not to: a token that was granted must not be granted again. */
    RETURNING e.token::text, CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END
    INTO answer, durable;
  IF FOUND THEN
    IF first IS NOT NULL THEN
      DELETE FROM {s}.incumbent_candidate c WHERE c.election = p_election AND c.candidate = p_identity;
    END IF;
    RETURN answer;
  END IF;
  FOR attempt IN 1..2 LOOP
    SELECT e.* INTO seat FROM {s}.incumbent_election e
      WHERE e.election = p_election AND (e.holder IS NULL OR e.holder = p_identity OR e.expires_at <= clock_timestamp()) FOR UPDATE;
    EXIT WHEN FOUND;
    /* Taken, or the first claim of all. Whoever makes the row, all find it afterwards. */
    PERFORM FROM {s}.incumbent_election e WHERE e.election = p_election;
    EXIT WHEN FOUND;
    INSERT INTO {s}.incumbent_election (election) VALUES (p_election) ON CONFLICT DO NOTHING;
  END LOOP;
  IF seat.election IS NOT NULL THEN
    own := coalesce(seat.holder = p_identity AND seat.expires_at > clock_timestamp(), false);
    is_kept := coalesce(seat.kept_until > clock_timestamp(), false);
    /* Whoever had the row may have changed the line. */
    SELECT c.candidate INTO first FROM {s}.incumbent_candidate c
      WHERE c.election = p_election AND (c.expires_at > clock_timestamp() OR c.candidate = p_identity) ORDER BY c.arrived LIMIT 1;
    is_turn := own OR CASE WHEN is_kept THEN seat.kept_for IN (p_identity, p_name) ELSE first IS NULL OR first = p_identity OR NOT p_by_turns END;
    IF is_turn THEN
      next_term := CASE WHEN own THEN seat.term ELSE seat.term + 1 END;
      next_incarnation := CASE WHEN own OR p_seen < (seat.incarnation::bigint << 48 | next_term) THEN seat.incarnation
        ELSE greatest(seat.incarnation, (p_seen >> 48)::integer) + 1 END;
      granted := next_incarnation::bigint << 48 | next_term;
      IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
      END IF;
      UPDATE {s}.incumbent_election e SET
        incarnation = next_incarnation, term = next_term, token = granted, holder = p_identity,
        value = CASE WHEN own THEN e.value ELSE p_value END, priority = p_priority, ttl_ms = p_ttl_ms,
        since = CASE WHEN own THEN e.since ELSE clock_timestamp() END,
        expires_at = clock_timestamp() + p_ttl_ms * interval '1 millisecond',
        wish = CASE WHEN own THEN e.wish END, kept_for = NULL, kept_until = NULL
        WHERE e.election = p_election;
      DELETE FROM {s}.incumbent_candidate c WHERE c.election = p_election AND c.candidate = p_identity;
      IF own THEN
        RETURN granted::text;
      END IF;
      IF seat.holder IS NOT NULL THEN
        INSERT INTO {s}.incumbent_past (election, token, holder, since, until, reason)
          VALUES (p_election, seat.token, seat.holder, seat.since, seat.expires_at, 'lease expired') ON CONFLICT DO NOTHING;
      END IF;
      /* Nobody reads what is swept here. */
      IF next_term % 16 = 0 THEN
        DELETE FROM {s}.incumbent_past p WHERE p.election = p_election AND p.token < (
          SELECT min(n.token) FROM (SELECT q.token FROM {s}.incumbent_past q WHERE q.election = p_election ORDER BY q.token DESC LIMIT 32) AS n);
        DELETE FROM {s}.incumbent_candidate c WHERE c.election = p_election AND c.candidate IN (
          SELECT d.candidate FROM {s}.incumbent_candidate d
          WHERE d.election = p_election AND d.expires_at <= clock_timestamp() FOR UPDATE SKIP LOCKED);
      END IF;
      RETURN granted::text;
    END IF;
  END IF;
  INSERT INTO {s}.incumbent_candidate AS c (election, candidate, name, priority, expires_at)
    VALUES (p_election, p_identity, p_name, p_priority, clock_timestamp() + p_ttl_ms * interval '1 millisecond')
    ON CONFLICT (election, candidate) DO UPDATE SET priority = EXCLUDED.priority, expires_at = EXCLUDED.expires_at;
  IF seat.election IS NOT NULL THEN
    /* Free, and another's turn: who may not have heard of it. */
    SELECT c.candidate INTO next_in_line FROM {s}.incumbent_candidate c
      WHERE c.election = p_election AND c.expires_at > clock_timestamp() AND (NOT is_kept OR seat.kept_for IN (c.candidate, c.name))
      ORDER BY c.arrived LIMIT 1;
    PERFORM pg_notify(p_channel, next_in_line) WHERE next_in_line IS NOT NULL;
    RETURN 'null';
  END IF;
  SELECT json_build_object('identity', e.holder, 'token', e.token, 'value', e.value, 'priority', e.priority, 'since_ms', (extract(epoch FROM e.since) * 1000)::bigint,
      'free_in_ms', greatest(extract(epoch FROM e.expires_at - clock_timestamp()) * 1000, 0)::bigint)::text
    INTO answer
    FROM {s}.incumbent_election e WHERE e.election = p_election AND e.holder IS NOT NULL AND e.expires_at > clock_timestamp();
  RETURN coalesce(answer, 'null');
END
$incumbent$;

/* Begins the ttl of a leadership anew and returns what is wanted of it, or an empty text; null if it is over. A renewal that was acknowledged must outlive a crash, too: its holder goes by it. */
CREATE OR REPLACE FUNCTION {s}.incumbent_renew_{v}(p_election text, p_identity text, p_token bigint, p_ttl_ms bigint) RETURNS text LANGUAGE plpgsql AS $incumbent$
DECLARE
  wanted text;
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  UPDATE {s}.incumbent_election e SET expires_at = clock_timestamp() + p_ttl_ms * interval '1 millisecond', ttl_ms = p_ttl_ms
    WHERE e.election = p_election AND e.holder = p_identity AND e.token = p_token AND e.expires_at > clock_timestamp()
    RETURNING coalesce(e.wish, '') INTO wanted;
  RETURN wanted;
END
$incumbent$;

/* Frees the seat of a leadership if it still has it, for p_to if somebody is named, and tells the next in line. */
CREATE OR REPLACE FUNCTION {s}.incumbent_release_{v}(
  p_election text, p_identity text, p_token bigint, p_reason text, p_to text, p_channel text
) RETURNS text LANGUAGE plpgsql AS $incumbent$
DECLARE
  began timestamptz;
  hasty text;
BEGIN
  UPDATE {s}.incumbent_election e SET holder = NULL, wish = NULL, kept_for = p_to,
      kept_until = CASE WHEN p_to IS NOT NULL THEN clock_timestamp() + e.ttl_ms * interval '1 millisecond' END
    WHERE e.election = p_election AND e.holder = p_identity AND e.token = p_token
    /* The disk need not have it: a grant that comes after it is on the disk behind it in the same log, and a release that a crash undoes leaves a seat that is free when its time has passed. */
    RETURNING e.since, set_config('synchronous_commit', 'off', true) INTO began, hasty;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  INSERT INTO {s}.incumbent_past (election, token, holder, since, until, reason)
    VALUES (p_election, p_token, p_identity, began, clock_timestamp(), p_reason) ON CONFLICT DO NOTHING;
  PERFORM pg_notify(p_channel, '*'), (SELECT pg_notify(p_channel, next.candidate)::text FROM (
    SELECT c.candidate FROM {s}.incumbent_candidate c
      WHERE c.election = p_election AND c.expires_at > clock_timestamp() AND (p_to IS NULL OR p_to IN (c.candidate, c.name))
      ORDER BY c.arrived LIMIT 1) AS next);
  RETURN NULL;
END
$incumbent$;
