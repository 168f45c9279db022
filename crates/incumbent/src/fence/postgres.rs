//! A fence inside PostgreSQL: a table, a function and a trigger, in the same transaction as what is written.
//!
//! Nothing is compared outside the database, so this is SQL and needs no client of ours: `incumbent fence sql` prints it. What holds: once a transaction with
//! a token has committed, none with a smaller one commits any write behind its fence, whatever either of them does with clocks, leases and pauses.
//! It holds at every isolation level. Above READ COMMITTED a transaction sees the database as it was when it began, so there a token must have been admitted
//! before, once, by a READ COMMITTED transaction of its own (SQLSTATE 55000 otherwise); and the database may ask to try again (40001), as it always may there.
//!
//! ```text
//! let transaction = client.transaction().await?;
//! transaction.execute("select incumbent_admit('billing', $1)", &[&(leadership.token().get() as i64)]).await?;
//! transaction.execute("update accounts set ...", &[]).await?;
//! transaction.commit().await?;
//! ```
//!
//! It is as durable as the database: a failover to a replica that lags behind forgets what was seen with all else that was lost.

/// What to run once in the database. Running it again does no harm.
pub const SQL: &str = include_str!("fence.sql");

/// The SQLSTATE of a refusal; the message names the token that was seen.
pub const STALE: &str = "IF409";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_raises_what_is_promised() {
        assert!(SQL.contains(&format!("errcode = '{STALE}'")));
    }
}
