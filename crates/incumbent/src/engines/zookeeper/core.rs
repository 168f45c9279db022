//! What all calls share: the sessions, the candidacies of this process, and what is done for them in the background.
//!
//! A session lives as long as its client pings, whether or not anybody cares for a candidacy in it. So each candidacy has a time of its own: one
//! that nobody has claimed or renewed for a ttl is swept out of the line, as if its session had ended.

use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use incumbent_protocol::protocol::Token;
use incumbent_protocol::time::Instant;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, CreateOptions, Error as Fault, Permission};

use super::connect::{Ensemble, Refusal};
use super::fault::explain;
use super::layout::{Layout, Paths, ProtectedId};
use super::ledger::{Ledger, Record, Sheet};
use super::session::{Session, not_connected};
use crate::clock;
use crate::engine::{Bid, Error, Leader, Wish};
use crate::engines::stretched::say_if_stretched;
use crate::identity::Identity;
use crate::name::Name;

/// What all calls share.
pub(super) struct Core {
    pub(super) ensemble: Ensemble,
    pub(super) paths: Paths,
    pub(super) layout: Layout,
    pub(super) access: Access,
    /// Where sessions live: the runtime in which the engine was opened, not the one from which somebody happens to look.
    runtime: Handle,
    doors: Mutex<BTreeMap<Duration, Door>>,
    candidacies: Mutex<BTreeMap<(Name, Identity), Arc<Candidacy>>>,
    /// Sessions of ours that have ended; what is left of them in a line is ours to remove. The newest last.
    former: Mutex<VecDeque<i64>>,
    /// Servers before 3.6 do not know requests that read several nodes.
    pub(super) reads_one_by_one: AtomicBool,
}

/// The way to a session.
enum Door {
    Open(Arc<Session>),
    /// Goes on if those who wait for it give up, so that a slow ensemble is reached at all.
    Opening(Shared<BoxFuture<'static, Result<Arc<Session>, Refusal>>>),
}

/// Who may do what with the nodes that we create.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// Everybody everything: without a user there is no other way.
    Open,
    /// Our user everything, others nothing.
    Private,
    /// Our user everything, others may look.
    Readable,
}

static CREATOR_AND_READERS: std::sync::LazyLock<[Acl; 2]> =
    std::sync::LazyLock::new(|| [Acl::new(Permission::ALL, AuthId::authed()), Acl::new(Permission::READ, AuthId::anyone())]);

impl Access {
    pub(super) fn options(self, mode: CreateMode) -> CreateOptions<'static> {
        mode.with_acls(match self {
            Access::Open => Acls::anyone_all(),
            Access::Private => Acls::creator_all(),
            Access::Readable => Acls::new(CREATOR_AND_READERS.as_slice()),
        })
    }
}

/// So many sessions that have ended are remembered: nodes of older ones have long been removed by the ensemble.
const FORMER_MAX: usize = 64;

/// One candidate of this process in one election.
pub(super) struct Candidacy {
    pub(super) election: Name,
    pub(super) id: ProtectedId,
    /// Calls for one candidacy go one after the other.
    pub(super) standing: tokio::sync::Mutex<Standing>,
    /// For those who watch.
    pub(super) stage: watch::Sender<Stage>,
    /// Who watches has seen that the line has moved.
    pub(super) moved: AtomicBool,
    /// When somebody last cared for it, and for how long that is good.
    cared: Mutex<(Instant, Duration)>,
}

/// What is known of a candidacy's place.
#[derive(Default)]
pub(super) struct Standing {
    pub(super) node: Option<Node>,
    /// A node of ours may be in the line that we do not know of.
    pub(super) doubtful: bool,
    pub(super) seat: Option<Seat>,
}

/// A candidate's node in the line.
pub(super) struct Node {
    pub(super) session: Arc<Session>,
    pub(super) child: String,
    pub(super) czxid: i64,
    /// The greatest token that the bidder knew of when the node was made.
    pub(super) known: Option<Token>,
    /// What its record says; `None` if that is not known.
    pub(super) record: Option<Record>,
    /// Whom it waits for.
    pub(super) ahead: Option<String>,
    /// The first in the line, as it was when that was last looked up.
    pub(super) leader: Option<(String, Leader)>,
}

impl Node {
    /// Whether there may be a record beside it.
    pub(super) fn has_record(&self) -> bool {
        self.record != Some(Record::default())
    }
}

/// A seat that was granted.
pub(super) struct Seat {
    pub(super) token: Token,
    pub(super) since_ms: u64,
    pub(super) bid: Bid,
    /// Whether the ledger has it.
    pub(super) recorded: bool,
    pub(super) own_node: Flag,
    pub(super) ledger: Flag,
    /// The ledger as it was last seen.
    pub(super) sheet: Sheet,
    pub(super) wish: Option<Wish>,
}

/// A watch as a flag: raised when the node may have changed since it was set.
#[derive(Default)]
pub(super) struct Flag(Option<BoxFuture<'static, ()>>);

impl Flag {
    pub(super) fn set(watcher: zookeeper_client::OneshotWatcher) -> Flag {
        // As for hints: the client panics if the session's runtime has ended.
        Flag(Some(AssertUnwindSafe(watcher.changed()).catch_unwind().map(|_| ()).boxed()))
    }

    /// Events stand before the answers to later requests, so after an answer this is up to date.
    pub(super) fn is_raised(&mut self) -> bool {
        let raised = self.0.as_mut().is_none_or(|it| it.as_mut().now_or_never().is_some());
        if raised {
            self.0 = None;
        }
        raised
    }
}

/// What those who watch need to know of a candidacy.
#[derive(Clone)]
pub(super) enum Stage {
    Absent,
    Waiting {
        session: Weak<Session>,
        ahead: String,
        /// Whether it is the next.
        heir: bool,
    },
    Seated {
        session: Weak<Session>,
        child: String,
    },
}

impl Candidacy {
    /// Somebody cares for it.
    pub(super) fn care(&self, ttl: Duration) {
        *self.cared.lock().expect("nobody panics with it") = (clock::now(), ttl);
    }

    /// Nobody does any more.
    pub(super) fn abandon(&self) {
        *self.cared.lock().expect("nobody panics with it") = (Instant::ZERO, Duration::ZERO);
    }

    fn is_abandoned(&self) -> bool {
        let (cared, ttl) = *self.cared.lock().expect("nobody panics with it");
        clock::now() > cared + ttl
    }

    pub(super) fn leave(&self, standing: &mut Standing) {
        standing.node = None;
        standing.seat = None;
        self.stage.send_replace(Stage::Absent);
    }
}

impl Core {
    pub(super) fn new(ensemble: Ensemble, paths: Paths, layout: Layout, access: Access) -> Core {
        Core {
            ensemble,
            paths,
            layout,
            access,
            runtime: Handle::current(),
            doors: Mutex::default(),
            candidacies: Mutex::default(),
            former: Mutex::default(),
            reads_one_by_one: AtomicBool::new(false),
        }
    }

    /// The candidacy of this bidder; made if there is none.
    pub(super) fn candidacy(&self, election: &Name, bid: &Bid) -> Arc<Candidacy> {
        let mut all = self.candidacies.lock().expect("nobody panics with it");
        let candidacy = all.entry((election.clone(), bid.identity.clone())).or_insert_with(|| {
            Arc::new(Candidacy {
                election: election.clone(),
                id: ProtectedId::of(election, &bid.identity),
                standing: tokio::sync::Mutex::default(),
                stage: watch::Sender::new(Stage::Absent),
                moved: AtomicBool::new(false),
                cared: Mutex::new((clock::now(), bid.ttl)),
            })
        });
        candidacy.care(self.keeps(bid.ttl));
        candidacy.clone()
    }

    /// For how long a bidder with this ttl may be silent: what it was promised.
    fn keeps(&self, ttl: Duration) -> Duration {
        match self.doors.lock().expect("nobody panics with it").get(&ttl) {
            Some(Door::Open(session)) => session.promised().max(ttl),
            Some(Door::Opening(_)) | None => ttl,
        }
    }

    /// The session for this ttl; made if there is none. `Misconfigured` if the servers grant none so long: all other times of a leadership
    /// follow from the ttl that was asked for, and would not fit into less.
    pub(super) async fn session(self: &Arc<Core>, ttl: Duration) -> Result<Arc<Session>, Error> {
        let session = self.session_as_granted(ttl).await?;
        if session.promised() < ttl {
            return Err(Error::misconfigured(format!(
                "ZooKeeper at {} grants sessions of at most {:?}, in which a ttl of {:?} cannot be promised: choose one of at most {:?}, or raise the servers' maxSessionTimeout",
                self.ensemble.hosts(),
                session.patience(),
                ttl,
                session.promised()
            )));
        }
        Ok(session)
    }

    async fn session_as_granted(self: &Arc<Core>, ttl: Duration) -> Result<Arc<Session>, Error> {
        let opening = {
            let mut doors = self.doors.lock().expect("nobody panics with it");
            match doors.get(&ttl) {
                Some(Door::Open(session)) if !session.is_over() => return Ok(session.clone()),
                Some(Door::Opening(opening)) => opening.clone(),
                Some(Door::Open(_)) | None => {
                    if let Some(Door::Open(former)) = doors.remove(&ttl) {
                        self.remember(&former);
                    }
                    let opening = self.clone().open(ttl);
                    doors.insert(ttl, Door::Opening(opening.clone()));
                    opening
                }
            }
        };
        opening.await.map_err(Refusal::into_error)
    }

    /// A session that is there, whatever its ttl; or else a new one.
    pub(super) async fn any_session(self: &Arc<Core>) -> Result<Arc<Session>, Error> {
        /// Sessions of those who only look. ZooKeeper's usual limits allow it, and a shorter one does as well.
        const LOOKING: Duration = Duration::from_secs(10);
        let there = self.sessions().into_iter().next();
        match there {
            Some(session) => Ok(session),
            None => self.session_as_granted(LOOKING).await,
        }
    }

    fn sessions(&self) -> Vec<Arc<Session>> {
        let doors = self.doors.lock().expect("nobody panics with it");
        let open = doors.values().filter_map(|door| match door {
            Door::Open(session) if !session.is_over() => Some(session.clone()),
            Door::Open(_) | Door::Opening(_) => None,
        });
        open.collect()
    }

    fn open(self: Arc<Core>, ttl: Duration) -> Shared<BoxFuture<'static, Result<Arc<Session>, Refusal>>> {
        let runtime = self.runtime.clone();
        let task = runtime.spawn(async move {
            let opened = self.ensemble.session(ttl).await.map(Arc::new);
            let mut doors = self.doors.lock().expect("nobody panics with it");
            match &opened {
                Ok(session) => {
                    say_if_stretched("ZooKeeper", ttl, session.promised(), "the servers' minSessionTimeout or tickTime");
                    doors.insert(ttl, Door::Open(session.clone()));
                    let (core, weak, pace) = (Arc::downgrade(&self), Arc::downgrade(session), session.pace());
                    self.runtime.spawn(prove(core.clone(), weak.clone(), session.proof_wanted.clone(), pace));
                    self.runtime.spawn(sweep(core, weak, session.sweep_wanted.clone(), pace));
                }
                Err(_) => {
                    doors.remove(&ttl);
                }
            }
            opened
        });
        task.map(|ended| ended.unwrap_or_else(|_| Err(Refusal::closed()))).boxed().shared()
    }

    fn remember(&self, former: &Session) {
        let mut all = self.former.lock().expect("nobody panics with it");
        all.push_back(former.id());
        if all.len() > FORMER_MAX {
            all.pop_front();
        }
    }

    /// Whether this was a session of ours.
    pub(super) fn is_former(&self, session: i64) -> bool {
        self.former.lock().expect("nobody panics with it").contains(&session)
    }

    /// Does what a call is for, unless it takes longer than any answer does.
    pub(super) async fn in_time<T>(&self, session: &Session, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let patience = session.patience();
        let connected = tokio::time::timeout(patience / 4, session.connected()).await;
        match connected {
            Ok(Ok(())) => {}
            // The session is over, which is for the call itself to judge.
            Ok(Err(_)) => {}
            Err(_) => return Err(not_connected(self.ensemble.hosts())),
        }
        match tokio::time::timeout(patience, call).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Error::unknown(format!("ZooKeeper at {} has not answered within {patience:?}", self.ensemble.hosts()))),
        }
    }

    /// Creates a node that others may need as a parent, with its own parents.
    pub(super) async fn make(&self, session: &Session, path: &str) -> Result<(), Error> {
        let options = self.access.options(CreateMode::Persistent);
        let made = session.request(|client| client.mkdir(path, &options)).await;
        made.map_err(|why| explain(why, &format!("creating {path}")))
    }

    pub(super) async fn ledger(&self, session: &Session, election: &Name) -> Result<Sheet, Error> {
        let path = self.paths.ledger(election);
        match session.request(|client| client.get_data(&path)).await {
            Ok((text, stat)) => Ok(Sheet { ledger: Ledger::read(&text)?, version: Some(stat.version) }),
            Err(Fault::NoNode) => Ok(Sheet::default()),
            Err(why) => Err(explain(why, &format!("reading {path}"))),
        }
    }

    /// Changes the ledger and carries out the steps with it, all or nothing. Who knows the ledger saves a reading, if it has not changed since.
    pub(super) async fn amend(
        &self,
        session: &Session,
        election: &Name,
        mut known: Option<Sheet>,
        steps: &[Step],
        mut change: impl FnMut(&mut Ledger) -> Result<(), Error>,
    ) -> Result<Amended, Error> {
        let path = self.paths.ledger(election);
        for _ in 0..AMEND_TRIES_MAX {
            let sheet = match known.take() {
                Some(sheet) => sheet,
                None => self.ledger(session, election).await?,
            };
            let Sheet { mut ledger, version: Some(version) } = sheet else {
                self.make(session, &path).await?;
                continue;
            };
            change(&mut ledger)?;
            let text = ledger.write();
            let answer = session
                .request(|client| {
                    let mut writer = client.new_multi_writer();
                    let added = steps.iter().try_for_each(|step| match step {
                        Step::Exists(path) => writer.add_check_version(path, -1),
                        Step::Delete(path) => writer.add_delete(path, None),
                    });
                    let added = added.and_then(|()| writer.add_set_data(&path, &text, Some(version)));
                    async move {
                        added?;
                        match writer.commit().await {
                            Ok(_) => Ok(None),
                            Err(zookeeper_client::MultiWriteError::OperationFailed { index, source }) => {
                                Ok(Some((index, source)))
                            }
                            Err(zookeeper_client::MultiWriteError::RequestFailed { source }) => Err(source),
                        }
                    }
                })
                .await;
            match answer.map_err(|why| explain(why, &format!("writing {path}")))? {
                None => return Ok(Amended::Done(Box::new(Sheet { ledger, version: Some(version + 1) }))),
                Some((index, Fault::NoNode)) if index < steps.len() => return Ok(Amended::Absent(index)),
                Some((_, Fault::BadVersion | Fault::NoNode)) => {}
                Some((_, why)) => return Err(explain(why, &format!("writing {path}"))),
            }
        }
        Err(Error::refused(format!("writing {path}: others wrote at the same time, again and again")))
    }

    /// Ends all sessions and waits until the ensemble has been told.
    pub(super) async fn close(&self) {
        /// The ensemble frees what is left by itself, only later.
        const WAIT_MAX: Duration = Duration::from_secs(2);
        let candidacies = std::mem::take(&mut *self.candidacies.lock().expect("nobody panics with it"));
        for candidacy in candidacies.values() {
            let mut standing = candidacy.standing.lock().await;
            candidacy.leave(&mut standing);
        }
        let sessions = self.sessions();
        self.doors.lock().expect("nobody panics with it").clear();
        let mut states: Vec<_> = sessions.iter().map(|it| it.client.state_watcher()).collect();
        for session in &sessions {
            session.proof_wanted.notify_one();
            session.sweep_wanted.notify_one();
        }
        drop(sessions);
        let ended = async {
            for state in &mut states {
                while !state.peek_state().is_terminated() {
                    state.changed().await;
                }
            }
        };
        if tokio::time::timeout(WAIT_MAX, ended).await.is_err() {
            tracing::debug!("the ensemble has not confirmed the end of a session");
        }
    }

    /// Makes a proof, and what it needs.
    async fn prove(&self, session: &Session) {
        let path = self.paths.house();
        let proven = match session.prove(&path).await {
            Err(Fault::NoNode) => match self.make(session, &path).await {
                Ok(()) => session.prove(&path).await.map_err(|why| explain(why, "proving")),
                Err(why) => Err(why),
            },
            other => other.map_err(|why| explain(why, "proving")),
        };
        if let Err(why) = proven {
            tracing::debug!(%why, "cannot prove that the session lives");
        }
    }

    fn all_candidacies(&self) -> Vec<Arc<Candidacy>> {
        self.candidacies.lock().expect("nobody panics with it").values().cloned().collect()
    }

    /// Takes those out of the line whom nobody cares for, and puts those on record that have been seated.
    async fn sweep(&self, session: &Arc<Session>) {
        for candidacy in self.all_candidacies() {
            // A call is under way: it is cared for.
            let Ok(mut standing) = candidacy.standing.try_lock() else { continue };
            let elsewhere = standing.node.as_ref().is_some_and(|it| !Arc::ptr_eq(&it.session, session));
            if candidacy.is_abandoned() && !elsewhere {
                let freed = self.in_time(session, self.step_out(session, &candidacy, &mut standing)).await;
                match freed {
                    Ok(()) => self.forget(&candidacy),
                    Err(why) => {
                        tracing::debug!(%why, election = %candidacy.election, "an abandoned candidate stays in line for now")
                    }
                }
            } else if !elsewhere && standing.seat.as_ref().is_some_and(|it| !it.recorded) {
                match self.in_time(session, self.record(session, &candidacy, &mut standing)).await {
                    Ok(()) => {}
                    Err(why) => tracing::debug!(%why, election = %candidacy.election, "a leadership is not on record yet"),
                }
            }
        }
    }

    fn forget(&self, candidacy: &Arc<Candidacy>) {
        let mut all = self.candidacies.lock().expect("nobody panics with it");
        all.retain(|_, it| !Arc::ptr_eq(it, candidacy) || !it.is_abandoned());
    }

    /// Whether somebody holds or is about to get a seat in this session, so that it must be able to prove that it lives.
    fn needs_proof(&self, session: &Arc<Session>) -> bool {
        let here = |it: &Weak<Session>| std::ptr::eq(it.as_ptr(), Arc::as_ptr(session));
        self.all_candidacies().iter().any(|it| match &*it.stage.borrow() {
            Stage::Absent => false,
            Stage::Waiting { session, heir, .. } => *heir && here(session),
            Stage::Seated { session, .. } => here(session),
        })
    }
}

impl Drop for Core {
    /// Whoever forgot to close may still work: its seats stay until their time is up, as if the process had died.
    fn drop(&mut self) {
        let doors = std::mem::take(self.doors.get_mut().expect("nobody panics with it"));
        for door in doors.into_values() {
            if let Door::Open(session) = door
                && self.needs_proof(&session)
            {
                self.runtime.spawn(async move { tokio::time::sleep(session.promised()).await });
            }
        }
    }
}

/// Something that happens together with a change of the ledger.
pub(super) enum Step {
    Exists(String),
    Delete(String),
}

/// What became of a change.
#[derive(Debug)]
pub(super) enum Amended {
    /// This is the ledger now.
    Done(Box<Sheet>),
    /// The node of that step is not there; nothing was changed.
    Absent(usize),
}

/// Several of ours may write at the same time; each time one of them succeeds.
const AMEND_TRIES_MAX: usize = 8;

/// Proves that a session lives, while that matters or somebody wants to know. Ends with it.
async fn prove(core: Weak<Core>, session: Weak<Session>, wanted: Arc<Notify>, pace: Duration) {
    let mut due = clock::now() + pace;
    loop {
        let hurry = tokio::time::timeout(due - clock::now(), wanted.notified()).await.is_ok();
        let (Some(core), Some(session)) = (core.upgrade(), session.upgrade()) else { return };
        if session.is_over() {
            return;
        }
        if hurry {
            tokio::time::sleep(session.until_next_proof()).await;
        }
        if hurry || core.needs_proof(&session) {
            core.prove(&session).await;
        }
        due = clock::now() + pace;
    }
}

/// Sweeps at every pace of a session, and when somebody was seated. Ends with it.
async fn sweep(core: Weak<Core>, session: Weak<Session>, wanted: Arc<Notify>, pace: Duration) {
    loop {
        let _seated_or_time = tokio::time::timeout(pace, wanted.notified()).await;
        let (Some(core), Some(session)) = (core.upgrade(), session.upgrade()) else { return };
        if session.is_over() {
            return;
        }
        core.sweep(&session).await;
    }
}
