//! Hints: what to watch depends on where the watcher stands, and follows it.
//!
//! ```text
//!   in line      its own key, and the keys right before it, as many as may lead: a release wakes one, not all
//!   in office    its own key, and the desk, where wishes are left
//!   no bid       the whole line, and the desk
//! ```
//!
//! Each watch begins at the revision at which its keys were read, so nothing is missed in between. One whose beginning was compacted away reads
//! anew. One that breaks ends the stream with an error, and the next call goes to another server.

use std::sync::Arc;

use futures_util::stream::BoxStream;
use incumbent_protocol::protocol::Token;
use tokio::sync::watch;

use super::candidacy::{Candidacy, Spot};
use super::client::{Client, Watch};
use super::fault::Fault;
use super::keys::Keys;
use super::ledger::Ledger;
use super::wire::proto::watch_create_request::FilterType;
use super::wire::proto::{TxnRequest, WatchCreateRequest, WatchResponse};
use super::wire::{self, Answer};
use crate::engine::Error;
use crate::engines::watching::{Watching, hints_of};

/// Watches for one who bids.
pub(super) fn of_bidder(client: Arc<Client>, candidacy: Arc<Candidacy>) -> BoxStream<'static, Result<(), Error>> {
    let spot = candidacy.spot();
    let keys = candidacy.keys.clone();
    hints_of(Watcher { client, keys, bidder: Some(Bidder { candidacy, spot }), open: None })
}

/// Watches for one who only looks.
pub(super) fn of_observer(client: Arc<Client>, keys: Keys) -> BoxStream<'static, Result<(), Error>> {
    hints_of(Watcher { client, keys, bidder: None, open: None })
}

struct Watcher {
    client: Arc<Client>,
    keys: Keys,
    bidder: Option<Bidder>,
    open: Option<Open>,
}

struct Bidder {
    candidacy: Arc<Candidacy>,
    spot: watch::Receiver<Spot>,
}

/// What is being watched, and why.
struct Open {
    watch: Watch,
    interest: Interest,
}

/// What makes an event a hint.
#[derive(Copy, Clone)]
enum Interest {
    /// Anything that happens.
    All,
    /// Nothing but a wish for this leadership, or the end of its key.
    Office(Token),
}

enum Next {
    Hint,
    /// Nothing yet; look anew at where we stand.
    Again,
    Broken(Fault),
}

impl Watching for Watcher {
    async fn change(&mut self) -> Result<(), Error> {
        loop {
            match self.next().await {
                Next::Hint => return Ok(()),
                Next::Again => {}
                Next::Broken(fault) => return Err(fault.into_error()),
            }
        }
    }
}

impl Watcher {
    async fn next(&mut self) -> Next {
        let Some(open) = &mut self.open else {
            return match self.begin().await {
                Ok(next) => next,
                Err(fault) => Next::Broken(fault),
            };
        };
        let event = match &mut self.bidder {
            Some(bidder) => tokio::select! {
                event = open.watch.events.message() => event,
                _ = bidder.spot.changed() => {
                    self.open = None;
                    return Next::Again;
                }
            },
            None => open.watch.events.message().await,
        };
        match event {
            Ok(Some(event)) if event.canceled && event.compact_revision != 0 => {
                self.open = None;
                Next::Hint
            }
            Ok(Some(event)) if event.canceled => {
                let status = tonic::Status::unavailable(event.cancel_reason);
                Next::Broken(self.client.judge_broken(&status))
            }
            Ok(Some(event)) => match open.interest {
                Interest::All if event.events.is_empty() => Next::Again,
                Interest::All => {
                    // The keys before us are others now.
                    if self.bidder.is_some() {
                        self.open = None;
                    }
                    Next::Hint
                }
                Interest::Office(token) => self.in_office(token, &event),
            },
            Ok(None) => Next::Broken(Error::refused("etcd has closed the watch: watch again").into()),
            Err(status) => Next::Broken(self.client.judge_broken(&status)),
        }
    }

    /// The holder's own notes on the desk are no news to it.
    fn in_office(&self, token: Token, event: &WatchResponse) -> Next {
        let is_hint =
            event.events.iter().filter_map(|it| it.kv.as_ref()).any(|it| {
                it.key != self.keys.desk || Ledger::read(&it.value).is_ok_and(|ledger| ledger.wish_for(token).is_some())
            });
        if !is_hint {
            return Next::Again;
        }
        self.look_again();
        Next::Hint
    }

    fn look_again(&self) {
        if let Some(bidder) = &self.bidder
            && let Some(lease) = bidder.candidacy.lease()
        {
            lease.look_again(&bidder.candidacy.election);
        }
    }

    /// Reads what there is to watch, and watches from there.
    async fn begin(&mut self) -> Result<Next, Fault> {
        let Some(bidder) = &mut self.bidder else {
            let answer = read(&self.client, wire::reading(vec![wire::key(&self.keys.desk)])).await?;
            let line = WatchCreateRequest { range_end: wire::end_of(&self.keys.line), ..from(&self.keys.line, answer.revision) };
            let watch = open(&self.client, vec![line, from(&self.keys.desk, answer.revision)]).await?;
            self.open = Some(Open { watch, interest: Interest::All });
            // Something may have happened since the watcher last looked.
            return Ok(Next::Hint);
        };
        let spot = bidder.spot.borrow_and_update().clone();
        match spot {
            Spot::Away => {
                // A sender lives as long as the candidacy, which is held here.
                let _ = bidder.spot.changed().await;
                Ok(Next::Again)
            }
            Spot::Left => Err(Error::refused("no longer in line").into()),
            Spot::Waiting { lease, revision, seats } => {
                let own = self.keys.candidate(lease);
                let before = wire::youngest_before(&self.keys.line, revision, i64::from(seats));
                let answer = read(&self.client, wire::reading(vec![wire::key(&own), before])).await?;
                let stands = answer.one(0).is_some_and(|it| it.create_revision == revision);
                if !stands || answer.all(1).len() < seats as usize {
                    // Our turn, or our key is gone: claim. There is nothing to wait for until that has changed where we stand.
                    self.open = Some(Open {
                        watch: open(&self.client, vec![end_of(&own, answer.revision)]).await?,
                        interest: Interest::All,
                    });
                    return Ok(Next::Hint);
                }
                let keys = answer.all(1).iter().map(|it| it.key.as_slice()).chain([own.as_slice()]);
                let wanted: Vec<_> = keys.map(|it| end_of(it, answer.revision)).collect();
                self.open = Some(Open { watch: open(&self.client, wanted.to_vec()).await?, interest: Interest::All });
                Ok(Next::Again)
            }
            Spot::InOffice { lease, revision, token } => {
                let own = self.keys.candidate(lease);
                let answer = read(&self.client, wire::reading(vec![wire::key(&own), wire::key(&self.keys.desk)])).await?;
                let wanted = [end_of(&own, answer.revision), from(&self.keys.desk, answer.revision)];
                self.open = Some(Open { watch: open(&self.client, wanted.to_vec()).await?, interest: Interest::Office(token) });
                let stands = answer.one(0).is_some_and(|it| it.create_revision == revision);
                let desk = answer.one(1).and_then(|it| Ledger::read(&it.value).ok());
                let is_news = !stands || desk.is_some_and(|it| it.wish_for(token).is_some());
                if is_news {
                    self.look_again();
                }
                Ok(if is_news { Next::Hint } else { Next::Again })
            }
        }
    }
}

/// Reads, for a hint.
async fn read(client: &Arc<Client>, wanted: TxnRequest) -> Result<Answer, Fault> {
    let client = Arc::clone(client);
    carried_on(async move { client.txn(wanted).await }).await
}

/// Watches these keys.
async fn open(client: &Arc<Client>, wanted: Vec<WatchCreateRequest>) -> Result<Watch, Fault> {
    let client = Arc::clone(client);
    carried_on(async move { client.watch(&wanted).await }).await
}

/// A call that is dropped is taken for one that was waited for in vain, and its connection is given up. But whoever waits for hints stops when it is
/// elected, at any moment, which says nothing about the connection: so the call goes on without it.
async fn carried_on<T: Send + 'static>(call: impl Future<Output = Result<T, Fault>> + Send + 'static) -> Result<T, Fault> {
    tokio::spawn(call).await.unwrap_or_else(|_| Err(Error::refused("the program is ending").into()))
}

/// What happens to a key after this revision.
fn from(key: &[u8], revision: i64) -> WatchCreateRequest {
    WatchCreateRequest { key: key.to_vec(), start_revision: revision + 1, ..WatchCreateRequest::default() }
}

/// The end of a key after this revision.
fn end_of(key: &[u8], revision: i64) -> WatchCreateRequest {
    WatchCreateRequest { filters: vec![FilterType::Noput.into()], ..from(key, revision) }
}
