//! What goes on while nobody calls: what the node tells, what others ask, whose time is up.

use std::sync::{Arc, Weak};

use incumbent_peer::node::{Change, Notice, Report};
use incumbent_peer::switchboard::Asker;
use incumbent_protocol::protocol::{Cause, NodeId};
use incumbent_protocol::tenure::Reason;
use tokio::sync::mpsc;

use super::Inner;
use super::question::{Answer, Gossip, Question, read, write};
use crate::clock;
use crate::engine::{Error, Farewell};

/// Serves until the engine is dropped or its node has ended.
pub(super) async fn serve(inner: Weak<Inner>, mut notices: mpsc::UnboundedReceiver<Notice>) {
    let Some(mut sweep) = inner.upgrade().map(|it| tokio::time::interval(it.patience / 4)) else { return };
    sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut sweeps = 0_u32;
    loop {
        let Some(it) = inner.upgrade() else { return };
        tokio::select! {
            notice = notices.recv() => match notice {
                Some(notice) => on_notice(&it, notice),
                None => return,
            },
            () = it.untold.notified() => tell_lines(&it),
            // Drops what it holds of the engine now and then, to see whether anybody else does.
            _ = sweep.tick() => {
                sweeps = sweeps.wrapping_add(1);
                look_round(&it, sweeps.is_multiple_of(RETOLD_EVERY));
            }
        }
    }
}

fn on_notice(inner: &Arc<Inner>, notice: Notice) {
    let now = clock::now();
    match notice {
        Notice::Elected { election, .. } => {
            let heir = inner.in_hall(&election, |hall| {
                hall.elected(now);
                (!hall.is_wanted(now)).then(|| hall.heir(now))
            });
            if let Some(heir) = heir {
                // Whoever wanted it has left in the meantime.
                inner.give_office(&election, heir);
            }
        }
        Notice::Lost { election, token, reason } => {
            if inner.in_hall(&election, |hall| hall.lost(token, &reason.to_string())) {
                inner.keep(&election);
            }
        }
        Notice::LeaderGone { election, cause, .. } => inner.in_hall(&election, |hall| {
            hall.fate = match cause {
                Cause::Dead => "process died",
                Cause::Silent | Cause::Released | Cause::Challenged => super::minutes::EXPIRED,
            };
            hall.changed();
        }),
        Notice::Follows { election, .. } | Notice::Rejected { election } => inner.in_hall(&election, |hall| hall.changed()),
        Notice::ShouldHandOver { election, to, why } => inner.in_hall(&election, |hall| hall.should_hand_over(to, why)),
        Notice::Gossip { election, from, body } => match read::<Gossip>(&body) {
            Ok(Gossip::Line(line)) => inner.in_hall(&election, |hall| hall.heard_of(from, line)),
            Ok(Gossip::Minutes(minutes)) => {
                if inner.hear(&election, minutes) {
                    let minutes = inner.in_hall(&election, |hall| hall.minutes.clone());
                    inner.shelf.keep_soon(&election, minutes);
                }
            }
            Err(why) => tracing::warn!(%from, %why, "gossip that cannot be read"),
        },
        Notice::Question { from, body, reply } => {
            let inner = Arc::clone(inner);
            tokio::spawn(async move {
                let answered = inner.answer(&from, &body).await;
                reply.send(write(&answered));
            });
        }
        Notice::Up(peer) => {
            for (election, hall) in inner.halls().iter() {
                inner.gossip(election, peer, write(&Gossip::Line(hall.own_line())));
                inner.gossip(election, peer, write(&Gossip::Minutes(hall.minutes.clone())));
            }
        }
        Notice::Down(peer) => {
            for hall in inner.halls().values_mut() {
                hall.forget(peer);
            }
        }
        Notice::Members(members) => {
            let others = members.into_iter().filter(|it| *it != inner.node.me()).collect();
            *inner.others.lock().expect("nobody panics with it") = others;
        }
        Notice::Removed => {
            let why = "this node is no member of the group any more: end it".to_owned();
            *inner.broken.lock().expect("nobody panics with it") = Some(why);
        }
        Notice::Broken(why) => *inner.broken.lock().expect("nobody panics with it") = Some(why),
    }
}

/// Tells the other nodes which candidates wait here, where they do not know.
fn tell_lines(inner: &Inner) {
    for (election, hall) in inner.halls().iter_mut() {
        if let Some(line) = hall.untold_line() {
            let body = write(&Gossip::Line(line));
            for to in inner.others() {
                inner.gossip(election, to, body.clone());
            }
        }
    }
}

/// Gossip may be lost: who waits is told again, every so many sweeps.
const RETOLD_EVERY: u32 = 8;

/// Whose time is up, and what is in office for nobody's sake.
fn look_round(inner: &Arc<Inner>, again: bool) {
    let now = clock::now();
    let elections: Vec<Arc<str>> = inner.halls().keys().cloned().collect();
    for election in elections {
        let (overdue, idle) = inner.in_hall(&election, |hall| (hall.overdue(now), hall.idle_for(inner.patience, now)));
        if let Some(token) = overdue {
            let (inner, election) = (Arc::clone(inner), Arc::clone(&election));
            tokio::spawn(async move {
                inner.release(&election, token, &Farewell { reason: Reason::Expired, to: None }).await;
            });
        } else if let Some(heir) = idle {
            inner.give_office(&election, heir);
        } else {
            inner.rest_if_unwanted(&election);
        }
    }
    if again {
        inner.halls().values_mut().for_each(super::hall::Hall::tell_again);
    }
    tell_lines(inner);
}

impl Inner {
    /// Takes in what another node says. Whether anything was new.
    fn hear(&self, election: &Arc<str>, minutes: super::minutes::Minutes) -> bool {
        self.in_hall(election, |hall| {
            let new = hall.minutes.merge(minutes);
            if new {
                hall.heard(clock::now());
            }
            new
        })
    }

    /// Has this node removed by another: nobody would answer one that is no member any more.
    async fn leave_group(&self) -> Result<(), Error> {
        let me = self.node.me();
        let is_member = async || {
            self.node.roll().await.map(|it| it.members().iter().any(|(id, _)| *id == me)).map_err(|why| self.trouble(why))
        };
        if !is_member().await? {
            return Err(Error::refused(format!("node {me} is no member")));
        }
        let Some(other) = self.others().first().copied() else {
            return Err(Error::refused("a group needs at least one node"));
        };
        let mut asked = std::pin::pin!(self.node.ask(other, write(&Question::Change { add: None, remove: Some(me.0) })));
        let give_up = clock::now() + self.patience * 32;
        let mut unanswered = true;
        while is_member().await? {
            tokio::select! {
                answer = &mut asked, if unanswered => {
                    unanswered = false;
                    if let Ok(answer) = answer {
                        read::<Answer>(&answer)?.done()?;
                    }
                }
                () = tokio::time::sleep(self.patience / 10) => {}
            }
            if clock::now() > give_up {
                return Err(Error::unknown(format!("node {other} was asked to remove this one, and has not answered")));
            }
        }
        Ok(())
    }

    async fn answer(self: &Arc<Inner>, from: &Asker, body: &[u8]) -> Answer {
        match read::<Question>(body) {
            Ok(question) => self.answer_to(from, question).await.unwrap_or_else(|why| Answer::from_error(&why)),
            Err(why) => Answer::from_error(&why),
        }
    }

    async fn answer_to(self: &Arc<Inner>, from: &Asker, question: Question) -> Result<Answer, Error> {
        Ok(match question {
            Question::Look { election } => match from {
                // A node asks the one that it follows, and nobody asks on.
                Asker::Member(_) => {
                    let election = Arc::from(election);
                    let own = self.standing(&election).await?.own.is_some();
                    self.own_board(&election, own)
                }
                Asker::Guest(_) => self.look(&Arc::from(election)).await?,
            },
            Question::Hear { election, minutes, safely } => {
                let election = Arc::from(election);
                self.hear(&election, minutes);
                let minutes = self.in_hall(&election, |hall| hall.minutes.clone());
                if safely {
                    Answer::of(self.shelf.keep(&election, &minutes).await)
                } else {
                    self.shelf.keep_soon(&election, minutes);
                    Answer::Done
                }
            }
            Question::Ask { election, wish } => {
                let election: Arc<str> = Arc::from(election);
                match from {
                    Asker::Member(_) => Answer::of(self.in_hall(&election, |hall| hall.ask(&wish))),
                    Asker::Guest(_) => Answer::of(self.ask(&election, &wish).await),
                }
            }
            Question::Raise { election, epoch } => {
                let election = Arc::from(election);
                match from {
                    Asker::Member(_) => Answer::of(self.node.raise(election, epoch).await.map_err(|why| self.trouble(why))),
                    Asker::Guest(_) => Answer::of(self.raise(&election, epoch).await),
                }
            }
            Question::Note { election, token, text } => Answer::of(self.annotate(&Arc::from(election), token, &text).await),
            Question::Change { add: None, remove: Some(id) } if id == self.node.me().0 => Answer::of(self.leave_group().await),
            Question::Change { add, remove } => {
                let change = match (add, remove) {
                    (Some((id, address)), None) => Change::Add(NodeId(id), address),
                    (None, Some(id)) => Change::Remove(NodeId(id)),
                    (_, _) => return Err(Error::misconfigured("one member at a time: add one or remove one")),
                };
                Answer::of(self.node.change(&change).await.map(drop).map_err(Error::refused))
            }
            Question::Report => {
                let report = self.node.report().await.map_err(|why| self.trouble(why))?;
                Answer::Report(in_json(&report))
            }
        })
    }
}

/// A node as operators see it.
pub(super) fn in_json(report: &Report) -> serde_json::Value {
    use incumbent_peer::switchboard::LineState;
    use serde_json::json;
    let ms = |it: std::time::Duration| it.as_secs_f64() * 1e3;
    let lines = report.lines.iter().map(|it| {
        let state = match it.state {
            LineState::Up => "up",
            LineState::Silent => "silent",
            LineState::Down => "down",
        };
        json!({
            "node": it.peer.0, "address": it.address, "state": state, "round_trip_ms": it.round_trip.map(ms), "via": it.via.map(|it| it.0),
            "words_sent": it.sent.words, "words_received": it.received.words, "relayed": it.relayed, "dropped": it.dropped,
        })
    });
    let elections = report.elections.iter().map(|(name, it)| {
        json!({ "name": &**name, "leader": it.leader.map(|it| it.0), "term": it.term.0, "epoch": it.epoch, "in_office": it.own.is_some() })
    });
    let disk = &report.disk;
    let members = report.roll.members().iter().map(|(id, address)| json!({ "node": id.0, "address": address }));
    json!({
        "members": members.collect::<Vec<_>>(),
        "messages": report.said.iter().map(|it| json!({ "name": it.name, "sent": it.sent, "received": it.received })).collect::<Vec<_>>(),
        "lines": lines.collect::<Vec<_>>(),
        "elections": elections.collect::<Vec<_>>(),
        "disk": { "writes": disk.writes, "last_ms": disk.last.map(ms), "p99_ms": disk.p99.map(ms), "slowest_ms": ms(disk.slowest), "stalled": disk.busy_since.is_some(), "failure": disk.failure.as_ref().map(ToString::to_string) },
        "contests": { "begun": report.contests.begun, "won": report.contests.won, "lost": report.contests.lost, "silences": report.contests.silences, "deaths": report.contests.deaths },
    })
}
