//! Where elections are served: an engine's connection, a thread of its own and its clock, shared by all elections of this process on one URL.
//!
//! The thread is what keeps a busy or blocked application from losing its leadership: renewals never wait behind it. Nothing of the
//! application ever runs here.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::engine::{Engine, Error};
use crate::engines;
use crate::place::Place;

/// So long may an engine take to say goodbye when the last election has ended.
const CLOSING_MAX: Duration = Duration::from_secs(2);

/// An engine with what serves it.
pub(crate) struct Hub {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: Clock,
    /// Of the kernel's time; `None` in tokio's.
    pub(crate) alarm: Option<Arc<Alarm>>,
    runtime: Handle,
    /// Dropped to end the thread; `None` if there is none.
    thread: Option<oneshot::Sender<()>>,
    /// Closed when the thread has ended, and all it had is free again.
    gone: Option<watch::Receiver<()>>,
}

/// What serves one URL. Locked while it is opened: there is one, however many ask for it at once.
#[derive(Default)]
struct Slot {
    hub: Weak<Hub>,
    /// Of the last one that was opened.
    gone: Option<watch::Receiver<()>>,
}

impl Slot {
    /// Whether nobody uses it, and nobody would have to wait for it.
    fn is_over(&self) -> bool {
        self.hub.strong_count() == 0 && self.gone.as_ref().is_none_or(|it| it.has_changed().is_err())
    }
}

impl Hub {
    /// The one for this URL: shared if there already is one.
    pub(crate) async fn shared(url: &str, place: &Place) -> Result<Arc<Hub>, Error> {
        if place.scheme() == "memory" {
            return Hub::open(place).await;
        }
        static SHARED: OnceLock<Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<Slot>>>>> = OnceLock::new();
        let slot = {
            let mut slots = SHARED.get_or_init(Mutex::default).lock().expect("nobody panics with it");
            slots.retain(|_, it| Arc::strong_count(it) > 1 || it.try_lock().is_ok_and(|it| !it.is_over()));
            Arc::clone(slots.entry(url.to_owned()).or_default())
        };
        let mut slot = slot.lock().await;
        if let Some(hub) = slot.hub.upgrade() {
            return Ok(hub);
        }
        // A node among peers has an address and a directory, which are free when it has gone. Of any other engine there may be two for a while.
        if let Some(gone) = slot.gone.as_mut().filter(|_| place.scheme() == "peers") {
            let _ = timeout(CLOSING_MAX * 2, async { while gone.changed().await.is_ok() {} }).await;
        }
        let hub = Hub::open(place).await?;
        *slot = Slot { hub: Arc::downgrade(&hub), gone: hub.gone.clone() };
        Ok(hub)
    }

    /// One for nobody else.
    pub(crate) async fn open(place: &Place) -> Result<Arc<Hub>, Error> {
        if place.scheme() == "memory" {
            return Hub::here(engines::open(place).await?);
        }
        let place = place.clone();
        Hub::with_thread(async move { engines::open(&place).await }).await
    }

    /// One on the caller's own runtime, in tokio's time, which a test can pause.
    pub(crate) fn here(engine: Arc<dyn Engine>) -> Result<Arc<Hub>, Error> {
        let runtime = Handle::try_current()
            .map_err(|_| Error::misconfigured("elections in memory need a tokio runtime to run on: call this from async code"))?;
        Ok(Arc::new(Hub {
            engine,
            clock: Clock::Tokio(tokio::time::Instant::now()),
            alarm: None,
            runtime,
            thread: None,
            gone: None,
        }))
    }

    /// One with a thread of its own, in the kernel's time.
    pub(crate) async fn with_thread(
        open: impl Future<Output = Result<Arc<dyn Engine>, Error>> + Send + 'static,
    ) -> Result<Arc<Hub>, Error> {
        let (opened, engine) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let (going, gone) = watch::channel(());
        std::thread::Builder::new()
            .name("incumbent".to_owned())
            .spawn(move || {
                // Dropped after the runtime, and so after all that is open there.
                let _going = going;
                let runtime = match Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => runtime,
                    Err(why) => {
                        let _ = opened.send(Err(Error::refused(format!("cannot start a runtime for renewals: {why}"))));
                        return;
                    }
                };
                runtime.block_on(async move {
                    let engine = match open.await {
                        Ok(engine) => engine,
                        Err(why) => {
                            let _ = opened.send(Err(why));
                            return;
                        }
                    };
                    if opened.send(Ok((Arc::clone(&engine), Alarm::by_kernel(), Handle::current()))).is_ok() {
                        let _ = ended.await;
                    }
                    let _ = timeout(CLOSING_MAX, engine.close()).await;
                });
            })
            .map_err(|why| Error::refused(format!("cannot start a thread for renewals: {why}")))?;
        let (engine, alarm, runtime) =
            engine.await.map_err(|_| Error::refused("the thread for renewals has ended at once"))??;
        Ok(Arc::new(Hub { engine, clock: Clock::Boottime, alarm, runtime, thread: Some(end), gone: Some(gone) }))
    }

    /// Runs something where the engine lives. The hub stays until it is done.
    pub(crate) fn spawn(self: &Arc<Hub>, task: impl Future<Output = ()> + Send + 'static) {
        let hub = Arc::clone(self);
        self.runtime.spawn(async move {
            task.await;
            drop(hub);
        });
    }

    /// Asks the engine something, where it lives.
    pub(crate) async fn ask<T, F>(self: &Arc<Hub>, question: impl FnOnce(Arc<dyn Engine>) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let asked = self.runtime.spawn(question(Arc::clone(&self.engine)));
        asked.await.map_err(|_| Error::unknown("the engine's thread has ended before it answered"))?
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // The last one out: its thread lets the engine say goodbye, and ends.
        drop(self.thread.take());
    }
}
