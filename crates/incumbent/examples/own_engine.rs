//! An engine of one's own: anything that can compare and set one row can hold elections. Here the rows are in memory, under a lock.
//!
//! All timing, retrying and waiting is the library's; an engine answers single calls. The conformance suite says whether it does so rightly.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use incumbent::conformance::{Subject, cases, check};
use incumbent::desk::Desk;
use incumbent::election::Builder;
use incumbent::engine::{Bid, Board, Claim, Farewell, Grant, Renewal, Wish};
use incumbent::guarantees::{Exclusive, Lateness, Notice, Order, Tokens, WhoseClock};
use incumbent::{Election, Engine, Error, Guarantees, Name, Timing, Token};
use tokio::sync::watch;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Error> {
    let rows = Rows::default();
    let election = Election::with(Arc::new(rows.clone()), "billing").build().await?;
    let leadership = election.campaign().await?;
    println!("leading with token {}", leadership.token());
    leadership.resign().await?;

    check(&rows).await; // panics with what is wrong
    println!("all {} claims hold", cases().len());
    Ok(())
}

#[derive(Clone, Default)]
struct Rows {
    rows: Arc<Mutex<BTreeMap<Name, Row>>>,
    changes: watch::Sender<u64>,
}

/// The desk is what the library offers for this: who leads and led, whom the seat is kept for, what the holder is asked to do.
#[derive(Default)]
struct Row {
    desk: Desk,
    /// When the holder's ttl, or the time for which the seat is kept for somebody, is over.
    until: Option<Instant>,
}

impl Rows {
    /// One transaction. Whoever watches looks again after it.
    fn on<T>(&self, election: &Name, act: impl FnOnce(&mut Row) -> Result<T, Error>) -> Result<T, Error> {
        let mut rows = self.rows.lock().expect("nobody panics with it");
        let row = rows.entry(election.clone()).or_default();
        if row.until.is_some_and(|it| it <= Instant::now()) {
            if let Some(former) = row.desk.holder.take() {
                row.desk.remember(former, "lease expired");
            }
            (row.desk.kept, row.until) = (None, None);
        }
        act(row)
    }

    fn holding<T>(&self, election: &Name, token: Token, act: impl FnOnce(&mut Row) -> T) -> Result<Option<T>, Error> {
        self.on(election, |row| Ok(row.desk.holder.as_ref().is_some_and(|it| it.token == token).then(|| act(row))))
    }

    fn changed(&self) {
        self.changes.send_modify(|it| *it += 1);
    }
}

#[async_trait]
impl Engine for Rows {
    fn guarantees(&self) -> Guarantees {
        Guarantees {
            engine: "rows",
            exclusive: Exclusive::InOneProcess,
            tokens: Tokens::WhileTheProcessLives,
            token_source: "a counter",
            clock: WhoseClock::Engine,
            notice: Notice::Pushed,
            order: Order::Race,
            seats_max: 1,
            lists_candidates: false,
            keeps_history: true,
            ttl_min: Duration::from_millis(100),
            ttl_max: Duration::from_secs(3600),
            late: Lateness::NONE,
            caveats: vec!["It is an example."],
        }
    }

    async fn claim(&self, election: &Name, bid: &Bid) -> Result<Claim, Error> {
        self.on(election, |row| {
            let own = row.desk.holder.as_ref().filter(|it| it.identity == bid.identity).map(|it| it.token);
            let token = match own {
                Some(token) => token,
                None if row.desk.holder.is_some() || row.desk.is_kept_from(&bid.identity) => {
                    let leader = row.desk.holder.as_ref().map(|it| it.leader());
                    return Ok(Claim::Occupied { leader, free_in: row.until.map(|it| it - Instant::now()) });
                }
                None => {
                    row.desk.term += 1;
                    let token = row.desk.token(row.desk.term, bid.seen)?;
                    row.desk.seat(bid, token);
                    token
                }
            };
            row.until = Some(Instant::now() + bid.ttl);
            self.changed();
            Ok(Claim::Granted(Grant::of(token)))
        })
    }

    async fn renew(&self, election: &Name, bid: &Bid, token: Token) -> Result<Renewal, Error> {
        let kept = self.holding(election, token, |row| {
            row.until = Some(Instant::now() + bid.ttl);
            Renewal::Kept { grant: Grant::of(token), wish: row.desk.wish_for(token) }
        })?;
        Ok(kept.unwrap_or(Renewal::Gone))
    }

    async fn release(&self, election: &Name, bid: &Bid, token: Token, farewell: &Farewell) -> Result<(), Error> {
        self.on(election, |row| {
            if row.desk.leave(token, farewell) {
                row.until = row.desk.kept.is_some().then(|| Instant::now() + bid.ttl);
                self.changed();
            }
            Ok(())
        })
    }

    async fn look(&self, election: &Name) -> Result<Board, Error> {
        self.on(election, |row| Ok(row.desk.board(Vec::new())))
    }

    async fn proclaim(&self, election: &Name, _bid: &Bid, token: Token, value: &str) -> Result<(), Error> {
        let done = self.holding(election, token, |row| {
            if let Some(holder) = &mut row.desk.holder {
                value.clone_into(&mut holder.value);
            }
            self.changed();
        })?;
        done.ok_or_else(|| Error::refused(format!("token {token} is no longer in office")))
    }

    async fn ask(&self, election: &Name, wish: &Wish) -> Result<(), Error> {
        self.on(election, |row| row.desk.ask(wish))?;
        self.changed();
        Ok(())
    }

    async fn raise(&self, election: &Name, above: Token) -> Result<(), Error> {
        self.on(election, |row| row.desk.raise(above))
    }

    async fn annotate(&self, election: &Name, token: Token, text: &str) -> Result<(), Error> {
        self.on(election, |row| {
            row.desk.annotate(token, text);
            Ok(())
        })
    }

    fn watch(&self, _election: &Name, _bid: Option<&Bid>) -> BoxStream<'static, Result<(), Error>> {
        let hints = stream::unfold(self.changes.subscribe(), async |mut changes| {
            changes.changed().await.ok()?;
            Some((Ok(()), changes))
        });
        hints.boxed()
    }
}

#[async_trait]
impl Subject for Rows {
    async fn engine(&self) -> Arc<dyn Engine> {
        Arc::new(self.clone())
    }

    fn election(&self, name: &Name) -> Builder {
        let timing = Timing::of(self.ttl()).build().expect("a good ttl");
        Election::with(Arc::new(self.clone()), name.as_str()).timing(timing)
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(400)
    }
}
