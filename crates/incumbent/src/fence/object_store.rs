//! A fence before one object in a bucket, by conditional writes: S3, Google Cloud Storage, Azure, or memory, through the crate `object_store`.
//!
//! ```text
//!   PREFIX/current                     {"token": 42, "data": "PREFIX/data/00000000000000000042-1f…"}
//!   PREFIX/data/TOKEN-NONCE            what was written; never changed
//! ```
//!
//! `current` is replaced only on condition that it is still the version that was read (`PutMode::Update` with its ETag), and only by tokens that are not stale. So
//! its token never goes back, and what it names is a whole write of a leader that had not been replaced at that instant. A writer removes what it wrote
//! itself, but for the last two writes: whoever has just read `current` finds what it named. A stale writer, or one that was killed, can leave objects under
//! `data/` behind, which nobody is led to; [`Guarded::sweep`] removes such.
//!
//! What must hold of the store: conditional writes (`object_store` says so when it has none: a local file system, for example) and reads that follow writes, as
//! all named above give. Whoever reads goes through [`Guarded::read`], or follows `current` by itself.

use std::collections::VecDeque;
use std::sync::Arc;

use ::object_store::path::Path;
use ::object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion};
use futures_util::StreamExt;
use incumbent_protocol::protocol::Token;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::{Admission, Refusal, judge, parse_token};
use crate::engine::Error;
use crate::identity::nonce;
use crate::metrics::Metrics;

/// Each attempt is lost to somebody else's success, and with tokens that are not stale there is one writer: so many mean that something is wrong.
const ATTEMPTS_MAX: u32 = 16;

/// Of one's own writes, the last and the one before it, which readers may still be at.
const WRITES_KEPT: usize = 2;

/// One object behind a fence. Keep it as long as you write: what this one has written, it removes when it has written more.
pub struct Guarded {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// Keys that `current` was made to name, in that order, and that are not removed yet.
    written: Mutex<VecDeque<Path>>,
    metrics: Option<Arc<Metrics>>,
}

/// What stands in `current`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Pointer {
    #[serde(with = "crate::desk::token_as_number")]
    token: Token,
    /// Nothing was written yet, if there is none.
    data: Option<String>,
}

/// What was last written, and by whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Content {
    /// The greatest token seen; its leader has written this or read it.
    pub token: Token,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Guarded {
    /// The object at `prefix`, which nothing else writes to.
    pub fn at(store: Arc<dyn ObjectStore>, prefix: &str) -> Guarded {
        Guarded { store, prefix: Path::from(prefix), written: Mutex::default(), metrics: None }
    }

    /// Counts refusals into these figures.
    #[must_use]
    pub fn metrics(mut self, metrics: Arc<Metrics>) -> Guarded {
        self.metrics = Some(metrics);
        self
    }

    /// Admits the token: from here on every smaller one is refused. For what is read and written back, before the read.
    pub async fn admit(&self, token: Token) -> Result<(), Refusal> {
        self.point(token, None).await
    }

    /// What was last written; `None` if nothing was.
    pub async fn read(&self) -> Result<Option<Content>, Error> {
        for _ in 0..ATTEMPTS_MAX {
            let Some((Pointer { token, data: Some(data) }, _)) = self.pointer().await? else { return Ok(None) };
            match self.store.get(&Path::from(data)).await {
                Ok(found) => {
                    let bytes = found.bytes().await.map_err(failed)?.to_vec();
                    return Ok(Some(Content { token, bytes }));
                }
                // Swept away since: then there is a newer one.
                Err(StoreError::NotFound { .. }) => {}
                Err(why) => return Err(failed(why)),
            }
        }
        Err(Error::refused(format!("{} names an object that is not there", self.current())))
    }

    /// Replaces the object as a whole.
    ///
    /// # Errors
    /// [`Refusal::Stale`]: not written. [`Refusal::Trouble`] of unknown outcome: it may have been.
    pub async fn write(&self, token: Token, bytes: impl Into<Vec<u8>>) -> Result<(), Refusal> {
        // A stale writer shall leave nothing behind if it can be told beforehand.
        let seen = self.pointer().await?.map(|(it, _)| it.token);
        self.judged(token, seen)?;
        let key = self.data().join(format!("{:020}-{:016x}", token.get(), nonce()));
        let payload = PutPayload::from(bytes.into());
        self.store.put(&key, payload).await.map_err(failed)?;
        // One after the other: nothing may be removed that a write under way could still make `current` name.
        let mut written = self.written.lock().await;
        let pointed = self.point(token, Some(key.as_ref())).await;
        let useless = match &pointed {
            Ok(()) => {
                written.push_back(key);
                if written.len() > WRITES_KEPT { written.pop_front() } else { None }
            }
            Err(Refusal::Stale(_)) => Some(key),
            // It may be what `current` names now.
            Err(Refusal::Trouble(_)) => None,
        };
        if let Some(useless) = useless {
            // Nobody is led to it: if it cannot be removed now, it is swept later.
            let _ = self.store.delete(&useless).await;
        }
        pointed
    }

    /// Removes what former leaders left under `data/`; says how many. Only what was written with smaller tokens than the greatest seen: the rest may be in use.
    pub async fn sweep(&self) -> Result<usize, Error> {
        let Some((pointer, _)) = self.pointer().await? else { return Ok(0) };
        let mut objects = self.store.list(Some(&self.data()));
        let mut removed = 0;
        while let Some(object) = objects.next().await {
            let path = object.map_err(failed)?.location;
            let written_with = path.filename().and_then(|it| it.split_once('-')).and_then(|(token, _)| padded(token));
            if written_with.is_some_and(|it| it < pointer.token) && pointer.data.as_deref() != Some(path.as_ref()) {
                self.store.delete(&path).await.map_err(failed)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Raises `current` to the token if that may be, and lets it name `data`, or what it named before; again if somebody else was quicker.
    async fn point(&self, token: Token, data: Option<&str>) -> Result<(), Refusal> {
        for _ in 0..ATTEMPTS_MAX {
            let (seen, mode) = match self.pointer().await? {
                Some((seen, version)) => (Some(seen), PutMode::Update(version)),
                None => (None, PutMode::Create),
            };
            let named = seen.as_ref().and_then(|it| it.data.as_deref());
            // Done before: the store carried it out and did not say so, and the client asked again by itself. Whoever has raised the fence since then has found it there.
            if data.is_some() && data == named {
                return Ok(());
            }
            let admission = self.judged(token, seen.as_ref().map(|it| it.token))?;
            if data.is_none() && admission == Admission::Known {
                return Ok(());
            }
            let pointer = Pointer { token, data: data.or(named).map(str::to_owned) };
            let text = serde_json::to_string(&pointer).expect("a pointer is plain");
            let options = PutOptions { mode, ..PutOptions::default() };
            match self.store.put_opts(&self.current(), PutPayload::from(text), options).await {
                Ok(_) => return Ok(()),
                Err(StoreError::Precondition { .. } | StoreError::AlreadyExists { .. }) => {}
                Err(why) => return Err(failed(why).into()),
            }
        }
        Err(Error::refused(format!("{} changed {ATTEMPTS_MAX} times under our hands: who else writes it?", self.current()))
            .into())
    }

    fn judged(&self, token: Token, seen: Option<Token>) -> Result<Admission, Refusal> {
        let resource = self.prefix.to_string();
        judge(&resource, token, seen).map_err(|stale| {
            if let Some(metrics) = &self.metrics {
                metrics.on_fence_refusal(&resource);
            }
            stale.into()
        })
    }

    async fn pointer(&self) -> Result<Option<(Pointer, UpdateVersion)>, Error> {
        let found = match self.store.get(&self.current()).await {
            Ok(found) => found,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(why) => return Err(failed(why)),
        };
        let version = UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
        let text = found.bytes().await.map_err(failed)?;
        let pointer = serde_json::from_slice(&text).map_err(|why| {
            Error::misconfigured(format!("{} was not written by incumbent ({why}): choose another prefix", self.current()))
        })?;
        Ok(Some((pointer, version)))
    }

    fn current(&self) -> Path {
        self.prefix.clone().join("current")
    }

    fn data(&self) -> Path {
        self.prefix.clone().join("data")
    }
}

/// The token of a key: twenty digits, so that a listing is in the order of the tokens.
fn padded(digits: &str) -> Option<Token> {
    let plain = digits.trim_start_matches('0');
    parse_token(if plain.is_empty() { "0" } else { plain })
}

/// A store's error as ours. What was not refused in so many words may have happened.
fn failed(why: StoreError) -> Error {
    if let StoreError::NotImplemented { .. } | StoreError::NotSupported { .. } = why {
        return Error::misconfigured(format!("this store has no conditional writes, so it cannot be fenced: {why}"));
    }
    if let StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } | StoreError::InvalidPath { .. } = why {
        return Error::misconfigured(why.to_string());
    }
    Error::unknown(why.to_string())
}

#[cfg(test)]
mod tests {
    use ::object_store::memory::InMemory;

    use super::*;
    use crate::fence::token;

    fn of(number: u64) -> Token {
        token(number).expect("fits")
    }

    fn two() -> (Guarded, Guarded) {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        (Guarded::at(Arc::clone(&store), "jobs/billing"), Guarded::at(store, "jobs/billing"))
    }

    async fn text(guarded: &Guarded) -> Option<String> {
        guarded.read().await.unwrap().map(|it| String::from_utf8(it.bytes).unwrap())
    }

    #[tokio::test]
    async fn a_stale_write_is_refused_and_never_seen() {
        let (former, ours) = two();
        assert_eq!(text(&former).await, None);
        former.write(of(1), "first").await.unwrap();
        ours.admit(of(2)).await.unwrap();
        let refusal = former.write(of(1), "late").await.unwrap_err();
        assert_eq!(refusal.stale().map(|it| (it.offered, it.seen)), Some((of(1), of(2))));
        assert!(refusal.to_string().contains("stale token 1 for jobs/billing: 2 has been seen"), "{refusal}");
        assert_eq!(text(&ours).await.as_deref(), Some("first"));
        ours.write(of(2), "second").await.unwrap();
        assert!(former.admit(of(1)).await.is_err());
        assert_eq!(former.read().await.unwrap(), Some(Content { token: of(2), bytes: b"second".to_vec() }));
    }

    #[tokio::test]
    async fn a_fence_raised_between_the_upload_and_the_pointer_stops_the_write() {
        let (former, ours) = two();
        former.write(of(1), "first").await.unwrap();
        // What `write` does after its upload, with the fence raised just then.
        let (seen, version) = former.pointer().await.unwrap().unwrap();
        ours.admit(of(2)).await.unwrap();
        let mode = PutMode::Update(version);
        let text_of = serde_json::to_string(&seen).unwrap();
        let put = former.store.put_opts(&former.current(), text_of.into(), PutOptions { mode, ..PutOptions::default() }).await;
        assert!(matches!(put, Err(StoreError::Precondition { .. })), "{put:?}");
        assert!(former.point(of(1), Some("jobs/billing/data/late")).await.unwrap_err().stale().is_some());
    }

    #[tokio::test]
    async fn a_write_that_was_done_before_the_fence_rose_is_not_taken_for_a_stale_one() {
        let (former, ours) = two();
        former.write(of(1), "first").await.unwrap();
        let written = former.pointer().await.unwrap().unwrap().0.data;
        ours.admit(of(2)).await.unwrap();
        // The store's answer to that write was an error, and the client puts it again: what `current` names must not be removed as a stale writer's.
        former.point(of(1), written.as_deref()).await.unwrap();
        assert_eq!(text(&ours).await.as_deref(), Some("first"));
        assert!(former.write(of(1), "late").await.unwrap_err().stale().is_some());
    }

    #[tokio::test]
    async fn of_many_writers_the_greatest_token_has_the_last_word() {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let writers = (1..=8).map(|number| {
            let guarded = Guarded::at(Arc::clone(&store), "x");
            tokio::spawn(async move {
                for _ in 0..20 {
                    match guarded.write(of(number), number.to_string()).await {
                        Ok(()) => {}
                        Err(Refusal::Stale(stale)) => assert!(stale.seen > of(number)),
                        Err(Refusal::Trouble(why)) => panic!("{why:?}"),
                    }
                    tokio::task::yield_now().await;
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        let guarded = Guarded::at(store, "x");
        assert_eq!(text(&guarded).await.as_deref(), Some("8"));
        guarded.sweep().await.unwrap();
        assert_eq!(text(&guarded).await.as_deref(), Some("8"));
    }

    #[tokio::test]
    async fn a_sweep_takes_what_nobody_is_led_to() {
        let (former, ours) = two();
        for content in ["a", "b", "c"] {
            former.write(of(1), content).await.unwrap();
        }
        assert_eq!(former.sweep().await.unwrap(), 0, "they are of the leader that still may be at work");
        ours.admit(of(2)).await.unwrap();
        assert_eq!(ours.sweep().await.unwrap(), 1);
        assert_eq!(text(&ours).await.as_deref(), Some("c"));
    }

    #[tokio::test]
    async fn a_writer_removes_its_own_but_for_what_readers_may_be_at() {
        let (guarded, other) = two();
        let objects = || async { guarded.store.list(Some(&guarded.data())).count().await };
        let mut named = Vec::new();
        for round in 0..5 {
            guarded.write(of(1), round.to_string()).await.unwrap();
            named.extend(guarded.pointer().await.unwrap().unwrap().0.data);
            // A reader that was led there by the pointer of one write ago.
            if let [.., before, _] = &named[..] {
                let late = guarded.store.get(&Path::from(before.as_str())).await.unwrap().bytes().await.unwrap();
                assert_eq!(late, (round - 1).to_string());
            }
        }
        assert_eq!(objects().await, WRITES_KEPT);
        // Whatever others write and refuse, what `current` names stays.
        other.write(of(1), "theirs").await.unwrap();
        guarded.write(of(1), "ours").await.unwrap();
        assert_eq!(text(&other).await.as_deref(), Some("ours"));
        other.admit(of(2)).await.unwrap();
        assert!(guarded.write(of(1), "late").await.is_err());
        assert_eq!(text(&other).await.as_deref(), Some("ours"));
        other.write(of(2), "next").await.unwrap();
        assert_eq!(other.sweep().await.unwrap(), 3, "two of the former writer, one of our own while its token was smaller");
        assert_eq!(objects().await, 1);
    }

    #[tokio::test]
    async fn what_is_not_ours_stops_everybody() {
        let (guarded, _) = two();
        guarded.store.put(&guarded.current(), "garbage".into()).await.unwrap();
        let why = guarded.write(of(1), "x").await.unwrap_err().to_string();
        assert!(why.contains("not written by incumbent"), "{why}");
    }
}
