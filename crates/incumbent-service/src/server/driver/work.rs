//! What is done to the store, in the order of the log.
//!
//! A request may take milliseconds, and hundreds of them may be decided at once. If a replica did all that in one go, it would be deposed before it has said that it lives: so it works until its
//! turn is over, lets others have theirs, and goes on. What depends on how far the store has come waits in the same line.

use std::sync::Arc;
use std::vec;

use incumbent_client::administration::BackupView;
use incumbent_client::serve::Lost;
use incumbent_peer::clock;
use incumbent_store::command::{Command, EndSession, Request};
use incumbent_store::event::Event;
use incumbent_store::query::{Answered, Query};
use incumbent_store::refusal::Refusal;
use incumbent_store::reply::Reply;
use incumbent_store::store::Store;
use tokio::sync::oneshot;

use super::{Driver, wall_ms};
use crate::replica::{ClusterTime, Committed, Content, Halt, Index, Input, Item, Place, Roll, Snapshot, Tag};
use crate::server::backup::Label;
use crate::server::config::{CATCHING_UP_MORE, WORK_HELD_BYTES_MAX, WORK_HELD_MAX, WORK_MAX};
use crate::server::desk::{self, Asker, Waiter};
use crate::server::handle::{End, NotNow, Unanswered, Why};
use crate::server::{RELEASE, apply, keeper, members};

/// So many sessions of a connection that was lost are looked at in one go. One may have had a hundred thousand.
pub(super) const LOST_AT_ONCE: usize = 100;

/// One thing to do.
pub(super) enum Work {
    /// A request of an entry.
    Apply(Index, ClusterTime, Item),
    /// The members have changed, for whoever waits for it.
    Changed(Tag, Roll),
    /// An entry is done.
    Reached(Index),
    /// The store is new enough for a question.
    Read(Tag),
    Digest(oneshot::Sender<(Index, u64)>),
    BackUp(oneshot::Sender<Result<BackupView, String>>),
    /// A guest's connection was lost, with these.
    EndSessions(String, vec::IntoIter<Lost>),
    Snapshot(Snapshot),
    /// The store of another node comes in the place of this one.
    Install(Snapshot, Option<(Index, Box<Store>)>),
}

/// What has come of a request of this node's.
pub(super) struct Done {
    tag: Tag,
    result: Result<Reply, Refusal>,
    revision: u64,
}

impl Driver {
    /// At once, if it is its turn.
    pub(super) fn work(&mut self, work: Work) {
        self.work.push_back(work);
        self.work_on();
    }

    pub(super) fn commit(&mut self, entries: Vec<Committed>) {
        for Committed { index, content, .. } in entries {
            match content {
                Content::Batch { at, items } => {
                    self.work_bytes += items.iter().map(|it| it.payload.len()).sum::<usize>();
                    self.work.extend(items.into_iter().map(|item| Work::Apply(index, at, item)));
                }
                Content::Members { tag: Some(tag), roll } => self.work.push_back(Work::Changed(tag, roll)),
                Content::Members { tag: None, .. } | Content::Nothing => {}
            }
            self.work.push_back(Work::Reached(index));
        }
        self.work_on();
    }

    /// Works until there is no more, or the turn is over.
    pub(super) fn work_on(&mut self) {
        if !self.ring_on() {
            return;
        }
        let mut events: Vec<Arc<Event>> = Vec::new();
        // Nothing is built on a store that lacks an entry: nobody is answered from it, and no snapshot is taken of it.
        while !matches!(self.end, Some(End::Broken(_)))
            && self.is_its_turn()
            && let Some(work) = self.work.pop_front()
        {
            match work {
                Work::Apply(index, at, item) => {
                    self.work_bytes -= item.payload.len();
                    let done = self.apply(index, at, &item, &mut events);
                    self.done.extend(done);
                }
                Work::Changed(tag, roll) => self.desk.changed(tag, roll),
                Work::Reached(index) => self.applied = index,
                Work::Read(tag) => {
                    if let Some((query, answer)) = self.desk.read(tag) {
                        self.answer(query, answer);
                    }
                }
                Work::Digest(answer) => drop(answer.send((self.applied, self.store.digest()))),
                Work::BackUp(answer) => self.back_up(answer),
                Work::EndSessions(guest, sessions) => self.end_sessions(guest, sessions),
                Work::Snapshot(snapshot) => self.take_snapshot(snapshot),
                Work::Install(snapshot, arrived) => {
                    // What was there before is told of the store that was.
                    self.tell(&std::mem::take(&mut events));
                    while self.ringing {
                        self.ringing = self.belfry.ring_on();
                    }
                    self.install(&snapshot, arrived);
                }
            }
        }
        self.tell(&events);
        self.ring_on();
    }

    /// Goes on to tell those who listen, who may be very many. Whoever waits for what others do hears first: whoever has done it knows already. False if the turn is over before all have heard.
    fn ring_on(&mut self) -> bool {
        while self.ringing {
            if clock::now() >= self.turn_until {
                return false;
            }
            self.ringing = self.belfry.ring_on();
        }
        self.notice.reach(self.store.revision());
        for Done { tag, result, revision } in std::mem::take(&mut self.done) {
            self.desk.done(tag, result, revision);
        }
        true
    }

    /// Whether work goes on. What was decided may be slow to apply, and there may be much of it: others must hear from this node all the same.
    fn is_its_turn(&self) -> bool {
        match self.work.len() {
            0..=WORK_MAX if self.work_bytes <= WORK_HELD_BYTES_MAX => clock::now() < self.turn_until,
            waiting if waiting <= WORK_HELD_MAX && self.work_bytes <= WORK_HELD_BYTES_MAX => {
                clock::now() < self.turn_until + CATCHING_UP_MORE
            }
            _ => true,
        }
    }

    fn apply(&mut self, index: Index, at: ClusterTime, item: &Item, events: &mut Vec<Arc<Event>>) -> Option<Done> {
        let Ok((result, revision)) = apply::apply(&mut self.store, at, &item.payload, events) else {
            self.halt(index, Halt::Unreadable);
            return None;
        };
        let tag = item.tag?;
        match &result {
            Ok(_) => self.expiry.applied(tag),
            // Whatever the reason: not again at once, or the log would be full of it.
            Err(_) => self.forget_expiry(tag),
        }
        Some(Done { tag, result, revision })
    }

    /// Tells all who listen what has happened.
    fn tell(&mut self, events: &[Arc<Event>]) {
        if events.is_empty() {
            return;
        }
        if members::are_told(events.iter().map(Arc::as_ref)) {
            self.look_around();
        }
        self.watchers.tell(events, self.store.revision());
        self.ringing = self.belfry.ring(events);
    }

    /// Answers a question as things stand: here, or where it keeps nobody waiting.
    pub(super) fn answer(&self, query: Query, answer: Asker<Result<Answered, Unanswered>>) {
        if !self.store.takes_long(&query) {
            answer.tell(desk::answered(&self.store, &query));
        } else if let Err(answer) = self.readers.give(&self.store, query, answer) {
            answer.tell(Err(Unanswered::NotNow(NotNow { why: Why::Full, leader: self.role.leader })));
        }
    }

    fn back_up(&self, answer: oneshot::Sender<Result<BackupView, String>>) {
        let (cluster, release) = (self.cluster.clone(), RELEASE.to_owned());
        let label = Label { cluster, node: self.me.0, wall_ms: wall_ms(), release };
        self.keeper.give(keeper::Task::BackUp { index: self.applied, store: Box::new(self.store.clone()), label, answer });
    }

    /// The process that had them is dead: those end that wished so, some of them now. If that cannot be had now, their deadlines end them.
    pub(super) fn end_sessions(&mut self, guest: String, mut sessions: vec::IntoIter<Lost>) {
        if self.unwilling().is_some() {
            return;
        }
        for Lost { session, binding } in sessions.by_ref().take(LOST_AT_ONCE) {
            if self.store.ends_with_connection(&guest, session) {
                let end = EndSession { session, reason: "process died".to_owned(), unclean: true, binding: Some(binding) };
                let tag = self.desk.wait(Waiter::Nobody);
                let request = Request { guest: guest.clone(), ..Request::of(Command::EndSession(end)) };
                self.propose(tag, request, Place::Anywhere);
            }
        }
        if !sessions.as_slice().is_empty() {
            self.work.push_back(Work::EndSessions(guest, sessions));
        }
    }

    fn take_snapshot(&mut self, snapshot: Snapshot) {
        // It is of what was applied last.
        debug_assert_eq!(self.applied, snapshot.index);
        if self.applied == snapshot.index {
            self.keeper.give(keeper::Task::Save(snapshot, Box::new(self.store.clone())));
        } else {
            self.with_the_rest(Input::Unsaved { index: snapshot.index });
        }
    }

    fn install(&mut self, snapshot: &Snapshot, arrived: Option<(Index, Box<Store>)>) {
        match arrived {
            Some((index, store)) if index == snapshot.index => {
                let revision_before = self.store.revision();
                let old = std::mem::replace(&mut self.store, *store);
                // To free a large one takes its time.
                self.keeper.give(keeper::Task::Forget(Box::new(old)));
                self.applied = index;
                self.snapshot = index;
                if let Some(origin) = snapshot.origin {
                    self.origin = Some(origin);
                    self.switchboard.set_origin(origin.to_bytes());
                }
                self.look_around();
                self.watchers.leap(&self.store, revision_before);
                self.belfry.ring_all(revision_before);
                self.notice.reach(self.store.revision());
            }
            // The disk has it, so the next start finds it; this one cannot go on.
            Some(_) | None => {
                self.end =
                    Some(End::Broken(format!("the snapshot of entry {} is not at hand: start the node again", snapshot.index)));
            }
        }
    }

    pub(super) fn halt(&mut self, index: Index, why: Halt) {
        self.end = Some(End::Broken(match why {
            Halt::Unreadable => format!(
                "entry {index} of the log was written by a later release, or is damaged: start this node with the release of the others"
            ),
            Halt::Forgotten { by } => format!(
                "node {by} knows that this node had entry {index}, which is not in its log: its directory is an older copy of itself, or its disk has lost what it had confirmed, and it may have forgotten votes, too; remove this node from the cluster and add it under a new number with an empty directory"
            ),
            Halt::Contradicted { by } => format!(
                "node {by} leads without entry {index}, which is decided here: a majority of the nodes has lost what it had acknowledged; keep this directory, stop the others, and restore the cluster from it or from a backup"
            ),
        }));
    }
}
