//! Hears what happens to keys and tells who listens, until the connection ends. One consumer for each election that this process watches.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use futures_util::stream::{self, AbortHandle, BoxStream, SelectAll};

use super::Heard;
use super::client::Client;
use super::record::{Mark, Record, Scene};
use crate::clock;
use crate::engine::Error;
use crate::engines::hints::{Order, Orders, Topics};
use crate::engines::locked::locked;
use crate::engines::observed::Observed;
use crate::name::Name;

/// Each is an object on the server that sends a sign of life every few seconds. Elections beyond that ask now and then.
pub(super) const FOLLOWED_MAX: usize = 256;

/// One election's key as it was last heard of.
struct Followed {
    end: AbortHandle,
    scene: Option<Scene>,
}

/// Serves orders whose topics are names of elections.
pub(super) async fn hear(
    client: Arc<Client>,
    prefix: String,
    observed: Arc<Mutex<Observed<Mark>>>,
    heard: Heard,
    mut orders: Orders,
) -> Error {
    // What was heard on another connection may be old.
    locked(&heard).clear();
    let connection = match client.connection().await {
        Ok(connection) => connection,
        Err(why) => return why,
    };
    let (mut topics, mut followed) = (Topics::default(), BTreeMap::<String, Followed>::new());
    let mut news = SelectAll::<BoxStream<'static, (String, Option<Record>)>>::new();
    loop {
        tokio::select! {
            Some((election, record)) = news.next() => {
                let Some(of) = followed.get_mut(&election) else { continue };
                let scene = record.as_ref().map(Record::scene);
                let Ok(name) = Name::new(&*election) else { continue };
                match record {
                    Some(record) => {
                        // So that the span of silence begins when it does.
                        locked(&observed).unchanged_for(&name, record.mark(), clock::now());
                        locked(&heard).insert(name, (record, clock::now()));
                    }
                    None => {
                        locked(&heard).remove(&name);
                    }
                }
                // Signs of life are no news: they would wake every candidate with every renewal.
                if scene.is_none() || of.scene != scene {
                    of.scene = scene;
                    topics.tell(&election);
                }
            }
            order = orders.recv() => match order {
                Some(Order::Listen(election, tell)) => {
                    if topics.enter(&election) && followed.len() < FOLLOWED_MAX {
                        let Ok(name) = Name::new(&*election) else { continue };
                        let records = match client.follow(&connection, &super::keys::key(&prefix, &name)).await {
                            Ok(records) => records,
                            Err(why) => return why,
                        };
                        let of = election.clone();
                        let (records, end) = stream::abortable(records.map(move |it| (of.clone(), it)));
                        followed.insert(election.clone(), Followed { end, scene: None });
                        news.push(records.boxed());
                    }
                    topics.seat(&election, tell);
                }
                Some(Order::Leave(election)) => {
                    if topics.leave(&election) && let Some(former) = followed.remove(&election) {
                        former.end.abort();
                        if let Ok(name) = Name::new(&*election) {
                            locked(&heard).remove(&name);
                        }
                    }
                }
                None => return Error::refused("nobody listens"),
            },
            why = connection.ended() => return why,
        }
    }
}
