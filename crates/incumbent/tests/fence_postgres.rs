//! The fence in SQL, on a real PostgreSQL: what is refused, what waits for whom, and what an aborted transaction leaves behind.

use std::process::Command;

use incumbent::fence::postgres::{SQL, STALE};
use incumbent_testbed::{Contender, POSTGRES_DATABASE, POSTGRES_USER, Postgres, Server as _, eventually};

/// A connection of its own, in which a transaction can stay open while others run.
struct Session {
    psql: Contender,
}

impl Session {
    fn open(postgres: &Postgres) -> Session {
        let folder = postgres.process().folder().display().to_string();
        let port = postgres.port();
        let script = format!(
            "exec /usr/lib/postgresql/15/bin/psql -X -q -A -t -U {POSTGRES_USER} -d {POSTGRES_DATABASE} -p {port} -h '{folder}' 2>&1"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        let session = Session { psql: Contender::start(&command).unwrap() };
        session.psql.say("\\set VERBOSITY verbose").unwrap();
        session
    }

    /// Begins to run it; [`Session::end`] waits for that.
    fn begin(&self, sql: &str) {
        self.psql.say(&format!("{sql}\n\\echo end")).unwrap();
    }

    /// Waits for the end of what was begun.
    fn end(&self) {
        self.psql.hear("the end of a statement", |line| line == "end");
    }

    /// Runs it; `Err` with what PostgreSQL says.
    fn run(&self, sql: &str) -> Result<(), String> {
        let before = self.errors();
        self.begin(sql);
        self.end();
        self.verdict(before)
    }

    fn errors(&self) -> usize {
        self.psql.lines().iter().filter(|it| it.starts_with("ERROR:")).count()
    }

    fn verdict(&self, before: usize) -> Result<(), String> {
        let lines = self.psql.lines();
        let errors: Vec<&String> = lines.iter().filter(|it| it.starts_with("ERROR:")).collect();
        errors.get(before).map_or(Ok(()), |it| Err((*it).clone()))
    }
}

fn fenced() -> Postgres {
    let postgres = Postgres::debian().start().unwrap();
    postgres.sql(SQL).unwrap();
    postgres
}

fn admit(token: u64) -> String {
    format!("select incumbent_admit('billing', {token});")
}

fn waits(postgres: &Postgres, count: usize) {
    eventually("sessions wait for a lock", || {
        let waiting = postgres.sql("select count(*) from pg_stat_activity where wait_event_type = 'Lock'").unwrap();
        waiting == count.to_string()
    });
}

#[test]
fn a_smaller_token_is_refused_and_told_what_was_seen() {
    let postgres = fenced();
    for good in [0, 7, 7, (1 << 48) + 1] {
        postgres.sql(&admit(good)).unwrap();
    }
    let why = postgres.sql(&admit(1 << 48)).unwrap_err();
    assert!(why.contains("stale token 281474976710656 for billing: 281474976710657 has been seen"), "{why}");
    postgres.sql("select incumbent_admit('shipping', 1)").unwrap();
    for odd in ["incumbent_admit('billing', null)", "incumbent_admit(null, 1)", "incumbent_admit('billing', -1)"] {
        let why = postgres.sql(&format!("select {odd}")).unwrap_err();
        assert!(why.contains("is no token"), "{odd}: {why}");
    }
    postgres.sql(SQL).unwrap();
    assert!(postgres.sql(&admit(5)).is_err(), "installing it again must not forget");
}

#[test]
fn what_an_aborted_transaction_has_shown_counts_for_nothing() {
    let postgres = fenced();
    postgres.sql(&admit(3)).unwrap();
    let session = Session::open(&postgres);
    session.run("begin;").unwrap();
    session.run(&admit(9)).unwrap();
    session.run("rollback;").unwrap();
    postgres.sql(&admit(4)).unwrap();
    let why = session.run(&admit(3)).unwrap_err();
    assert!(why.contains(STALE) && why.contains("4 has been seen"), "{why}");
}

#[test]
fn a_greater_token_waits_for_the_transactions_of_smaller_ones_and_equals_do_not() {
    let postgres = fenced();
    let [a, b, c, d] = [(); 4].map(|()| Session::open(&postgres));
    postgres.sql(&admit(5)).unwrap();
    for session in [&a, &b] {
        session.run("begin;").unwrap();
        session.run(&admit(5)).unwrap();
    }
    // Both want more than what two others share.
    c.begin(&admit(6));
    d.begin(&admit(7));
    waits(&postgres, 2);
    a.run("commit;").unwrap();
    waits(&postgres, 2);
    b.run("commit;").unwrap();
    d.end();
    d.verdict(0).unwrap();
    c.end();
    match c.verdict(0) {
        Ok(()) => {}
        Err(why) => assert!(why.contains(STALE) && why.contains("7 has been seen"), "no deadlock: {why}"),
    }
    assert!(a.run(&admit(5)).unwrap_err().contains("7 has been seen"));
}

#[test]
fn while_a_greater_token_waits_nobody_with_a_smaller_one_begins() {
    let postgres = fenced();
    let [open, greater, late] = [(); 3].map(|()| Session::open(&postgres));
    postgres.sql(&admit(5)).unwrap();
    open.run("begin;").unwrap();
    open.run(&admit(5)).unwrap();
    greater.begin(&admit(6));
    waits(&postgres, 1);
    // Whoever was let in can go on: it is not late.
    open.run(&admit(5)).unwrap();
    late.begin(&admit(5));
    waits(&postgres, 2);
    open.run("commit;").unwrap();
    greater.end();
    greater.verdict(0).unwrap();
    late.end();
    let why = late.verdict(0).unwrap_err();
    assert!(why.contains(STALE) && why.contains("6 has been seen"), "{why}");
}

#[test]
fn a_snapshot_that_is_older_than_the_fence_lets_nobody_in() {
    let postgres = fenced();
    // What the snapshot shows, what is admitted since, what is offered then: nothing, a smaller one, the same.
    for (shown, since, offered) in [(None, 2, 1), (Some(3), 5, 4), (Some(6), 7, 6)] {
        if let Some(shown) = shown {
            postgres.sql(&admit(shown)).unwrap();
        }
        let old = Session::open(&postgres);
        old.run("begin isolation level repeatable read; select 1;").unwrap();
        postgres.sql(&admit(since)).unwrap();
        let why = old.run(&admit(offered)).unwrap_err();
        assert!(why.contains("40001") || why.contains("55000"), "{why}");
    }
}

#[test]
fn a_new_leader_sees_the_last_write_of_the_former_one_at_every_isolation_level() {
    let postgres = fenced();
    postgres.sql("create table entries (n int); create table sums (n int)").unwrap();
    let [former, ours, aside] = [(); 3].map(|()| Session::open(&postgres));
    for (token, level) in (1..).zip(["read committed", "repeatable read", "serializable"]) {
        postgres.sql(&admit(token)).unwrap();
        former.run(&format!("begin; {} insert into entries values (10);", admit(token))).unwrap();
        ours.run(&format!("begin isolation level {level};")).unwrap();
        if level == "read committed" {
            ours.begin(&admit(token + 1));
            waits(&postgres, 1);
            former.run("commit;").unwrap();
            ours.end();
        } else {
            let why = ours.run(&admit(token + 1)).unwrap_err();
            assert!(why.contains("55000") && why.contains("is new"), "{why}");
            ours.run("rollback;").unwrap();
            aside.begin(&admit(token + 1));
            waits(&postgres, 1);
            former.run("commit;").unwrap();
            aside.end();
            ours.run(&format!("begin isolation level {level}; {}", admit(token + 1))).unwrap();
        }
        ours.run("insert into sums select sum(n) from entries; commit;").unwrap();
        assert_eq!(postgres.sql("select max(n) from sums").unwrap(), (10 * token).to_string(), "{level}");
    }
}

#[test]
fn the_trigger_refuses_rows_of_former_leaders() {
    let postgres = fenced();
    let run = |sql: &str| postgres.sql(sql);
    run("create table invoices (id int primary key, amount int, epoch bigint)").unwrap();
    run("create trigger fence before insert or update or delete on invoices \
         for each row execute function incumbent_fence_row('billing', 'epoch')")
    .unwrap();
    run("insert into invoices values (1, 10, 7)").unwrap();
    run("update invoices set amount = 11, epoch = 8 where id = 1").unwrap();
    for (late, word) in [
        ("insert into invoices values (2, 20, 7)", "stale token 7 for billing: 8 has been seen"),
        ("update invoices set amount = 0, epoch = 7 where id = 1", "8 has been seen"),
        ("insert into invoices values (3, 30, null)", "is no token"),
        ("delete from invoices", "is no token"),
        ("begin; set local incumbent.token = '7'; delete from invoices; commit", "8 has been seen"),
    ] {
        let why = run(late).unwrap_err();
        assert!(why.contains(word), "{late}: {why}");
    }
    assert_eq!(run("select * from invoices").unwrap(), "1|11|8");
    run("begin; set local incumbent.token = '9'; delete from invoices; commit").unwrap();
    assert!(run("insert into invoices values (1, 10, 8)").is_err());
    // Without arguments: the table's name and the column `token`.
    run("create table runs (token bigint)").unwrap();
    run("create trigger fence before insert on runs for each row execute function incumbent_fence_row()").unwrap();
    run("insert into runs values (2)").unwrap();
    assert!(run("insert into runs values (1)").unwrap_err().contains("stale token 1 for runs"));
}

#[test]
fn all_partitions_of_a_table_are_behind_one_fence() {
    let postgres = fenced();
    let run = |sql: &str| postgres.sql(sql);
    run("create table events (day int, token bigint) partition by range (day)").unwrap();
    run("create table later (day int, token bigint) partition by range (day)").unwrap();
    run("create table first_week partition of events for values from (0) to (7)").unwrap();
    run("alter table events attach partition later for values from (7) to (100)").unwrap();
    run("create table second_week partition of later for values from (7) to (14)").unwrap();
    run("create trigger fence before insert on events for each row execute function incumbent_fence_row()").unwrap();
    run("insert into events values (1, 2)").unwrap();
    for late in ["insert into events values (8, 1)", "insert into second_week values (8, 1)"] {
        let why = run(late).unwrap_err();
        assert!(why.contains("stale token 1 for events: 2 has been seen"), "{late}: {why}");
    }
    run("insert into second_week values (8, 2)").unwrap();
}

#[test]
fn a_table_is_not_truncated_by_a_former_leader() {
    let postgres = fenced();
    let run = |sql: &str| postgres.sql(sql);
    run("create table invoices (id int)").unwrap();
    run("create trigger fence before truncate on invoices for each statement execute function incumbent_fence_row('billing')")
        .unwrap();
    run("insert into invoices values (1)").unwrap();
    run(&admit(8)).unwrap();
    let truncate = |token: u64| run(&format!("begin; set local incumbent.token = '{token}'; truncate invoices; commit"));
    assert!(run("truncate invoices").unwrap_err().contains("is no token"));
    assert!(truncate(7).unwrap_err().contains("stale token 7 for billing: 8 has been seen"));
    assert_eq!(run("select count(*) from invoices").unwrap(), "1");
    truncate(8).unwrap();
    assert_eq!(run("select count(*) from invoices").unwrap(), "0");
}

#[test]
fn whatever_runs_at_once_tokens_are_written_in_their_order() {
    let postgres = fenced();
    postgres.sql("create table log (at serial, token bigint)").unwrap();
    let sessions = [(); 4].map(|()| Session::open(&postgres));
    for (number, session) in (0..).zip(&sessions) {
        for round in 0..25 {
            let token = 1 + round * 2 + number % 2;
            session.begin(&format!("begin; {} insert into log (token) values ({token}); commit;", admit(token)));
        }
    }
    for session in &sessions {
        for _ in 0..25 {
            session.end();
        }
        let strange =
            session.psql.lines().into_iter().find(|it| it.starts_with("ERROR:") && !it.contains(STALE) && !it.contains("25P02"));
        assert_eq!(strange, None);
    }
    assert_eq!(postgres.sql("select token from log order by at desc limit 1").unwrap(), "50");
    let disorder = "select count(*) from log a join log b on a.at < b.at and a.token > b.token";
    assert_eq!(postgres.sql(disorder).unwrap(), "0");
}
