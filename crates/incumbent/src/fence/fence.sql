-- Refuses what former leaders write. To be run once, by whoever owns the schema; running it again changes nothing that was seen.
--
-- In the transaction that writes, before it reads or writes anything else:
--   select incumbent_admit('billing', 42);                       -- 42 is the token of the leadership
-- or by itself, for every row that is written to a table that has a column for the token:
--   create trigger fence before insert or update on invoices
--     for each row execute function incumbent_fence_row('billing', 'token');
-- The arguments are the resource (the table's name, if none is given; of a partition, that of the whole table) and the column ('token', if none
-- is given). Every statement must set the column: an UPDATE that does not keeps the token of whoever wrote the row last. A row that is deleted
-- brings no token: for BEFORE DELETE the trigger takes that of
--   set local incumbent.token = '42';
-- and so it does for TRUNCATE, which passes without a word unless it has a trigger of its own, on each partition as well:
--   create trigger fence_truncate before truncate on invoices
--     for each statement execute function incumbent_fence_row('billing');
--
-- A smaller token than the greatest seen is an error with the SQLSTATE IF409, whose message names the token that was seen. What an aborted
-- transaction has shown counts for nothing. Transactions with one and the same token run side by side; a greater one waits
-- until those with smaller ones have ended, so that nothing of theirs comes behind it, and while it waits none of theirs begins.
--
-- Above READ COMMITTED a transaction sees the database as it was before it waited, without the former leader's last writes. There a token is let in only
-- if it has been admitted before, in a transaction of its own at READ COMMITTED; SQLSTATE 55000 otherwise:
--   begin isolation level read committed; select incumbent_admit('billing', 42); commit;   -- once, when elected
--
-- Who writes needs: grant select, insert, update on incumbent_fence to ...;

create table if not exists incumbent_fence (
  resource text primary key,
  token bigint not null check (token >= 0),
  seen_at timestamptz not null default now() -- for people
);

create or replace function incumbent_admit(resource text, token bigint) returns void
language plpgsql set search_path from current as $$
#variable_conflict use_column
declare
  seen bigint;
  line int := hashtext(incumbent_admit.resource); -- two resources of one hash stand in one line: they wait more often, and that is all
begin
  if incumbent_admit.resource is null or incumbent_admit.token is null or incumbent_admit.token < 0 then
    raise exception '% is no token for %', coalesce(incumbent_admit.token::text, 'nothing'), coalesce(incumbent_admit.resource, 'nothing')
      using errcode = 'invalid_parameter_value', hint = 'Write with the token of the leadership.';
  end if;
  loop
    -- First without a lock: one that was shared by two who both want to raise the token would be a deadlock.
    select f.token into seen from incumbent_fence f where f.resource = incumbent_admit.resource;
    if seen = incumbent_admit.token then
      -- A row that is shared can be shared by ever more while somebody waits to raise its token; in this line nobody overtakes.
      perform pg_advisory_xact_lock_shared('incumbent_fence'::regclass::oid::int, line);
      -- Shared until the transaction ends: a greater token waits for us. It may have been raised before we got it, so look again.
      select f.token into seen from incumbent_fence f where f.resource = incumbent_admit.resource for share;
      if seen = incumbent_admit.token then
        return;
      end if;
    elsif seen is null or seen < incumbent_admit.token then
      -- Not even if nobody has to be waited for: whoever ended between our snapshot and this line is not in the snapshot either.
      if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
        raise exception 'token % for % is new, and a transaction above READ COMMITTED may miss what was written before it', incumbent_admit.token, incumbent_admit.resource
          using errcode = 'object_not_in_prerequisite_state', hint = 'Have it admitted once before, in a READ COMMITTED transaction of its own.';
      end if;
      -- Waits for whoever has admitted a token and has not committed yet, before those who come now.
      perform pg_advisory_xact_lock('incumbent_fence'::regclass::oid::int, line);
      -- Changes nothing if a greater one was admitted meanwhile.
      insert into incumbent_fence as f (resource, token) values (incumbent_admit.resource, incumbent_admit.token)
        on conflict on constraint incumbent_fence_pkey
        do update set token = excluded.token, seen_at = now() where f.token < excluded.token
        returning f.token into seen;
      if seen = incumbent_admit.token then
        return;
      end if;
    end if;
    if seen > incumbent_admit.token then
      raise exception 'stale token % for %: % has been seen, so somebody else leads since', incumbent_admit.token, incumbent_admit.resource, seen
        using errcode = 'IF409', hint = 'Stop: this leadership has ended.';
    end if;
    -- It has changed while we waited.
  end loop;
end
$$;

create or replace function incumbent_fence_row() returns trigger
language plpgsql set search_path from current as $$
declare
  -- A trigger on a partitioned table runs on each partition as if it were that one's.
  resource text := coalesce(tg_argv[0], (select relname from pg_class where oid = pg_partition_root(tg_relid)), tg_table_name);
  token_column text := coalesce(tg_argv[1], 'token');
begin
  if tg_op in ('DELETE', 'TRUNCATE') then
    perform incumbent_admit(resource, nullif(current_setting('incumbent.token', true), '')::bigint);
    return case tg_op when 'DELETE' then old end;
  end if;
  perform incumbent_admit(resource, (to_jsonb(new) ->> token_column)::bigint);
  return new;
end
$$;
