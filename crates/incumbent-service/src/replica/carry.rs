//! Carrying out what the engine wants: what is sent, what is written first, what is handed out, and what is passed on to the engine or the leader.

use incumbent_protocol::protocol::NodeId;
use incumbent_protocol::time::Instant;

use super::engine::{Outgoing, Turn};
use super::exchange::{ClusterTime, Committed, Content, Effect, Entry, Halt, Index, Item, Lane, Mark, Snapshot, Write};
use super::letter::{self, Ask, Body, Returned, Tell};
use super::{LOG_LENGTHS_WHILE_SENDING, Replica, Unsafe, content, fitness};

impl Replica {
    /// Does all that can be done now.
    pub(super) fn settle(&mut self, now: Instant, out: &mut Vec<Effect>) {
        self.proposals.expire(now, self.engine.leader(), out);
        self.reads.expire(now, self.settings.election_timeout(), self.engine.leader(), out);
        if self.engine.leads() && self.tempo.too_late(&self.settings) {
            self.fitness.on_late(now);
        }
        self.make_way(now);
        for peer in self.streams.expire(now, self.engine.term(), &self.settings, out) {
            self.engine.snapshot_sent(peer, false);
        }
        loop {
            self.carry_out(now, out);
            self.note_role(now, out);
            if self.halted || !(self.pass_proposals(now, out) | self.pass_reads(now, out)) {
                break;
            }
        }
        self.tell_news(now, out);
        self.reads.on_handed(self.handed, out);
        self.want_snapshot(out);
    }

    /// Tells the others what is decided, if it is time.
    fn tell_news(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let commit = self.engine.commit();
        let awaited = std::mem::take(&mut self.news.awaited);
        let nobody = self.engine.alone() && self.engine.roll().learners().is_empty();
        if self.halted || !self.engine.leads() || nobody || commit <= self.news.told {
            self.news.due = None;
        } else if awaited || self.news.due.is_some_and(|at| at <= now) {
            self.engine.tell_commit();
            (self.news.told, self.news.due) = (commit, None);
            self.carry_out(now, out);
        } else {
            self.news.due.get_or_insert(now + self.settings.news_delay);
        }
    }

    /// Carries out the engine's turns until it wants nothing more.
    fn carry_out(&mut self, now: Instant, out: &mut Vec<Effect>) {
        while !self.halted
            && !self.engine.settling()
            && let Some(turn) = self.engine.turn()
        {
            self.carry_out_one(now, turn, out);
        }
    }

    fn carry_out_one(&mut self, now: Instant, mut turn: Turn, out: &mut Vec<Effect>) {
        let bound = turn.binding || self.unsafe_turns.iter().any(|it| it.binding);
        if bound {
            // Not even a leader's entries: a lone voter that forgot its term would lead in it twice.
            turn.held.splice(0..0, turn.prompt.drain(..));
        } else {
            // That this node hears its leader promises nothing about its log, so it need not wait for the disk.
            let free = turn.held.extract_if(.., |it| it.letter.kind == letter::Kind::HeartbeatAnswer as i32);
            turn.prompt.extend(free);
        }
        let slow_ms = fitness::told(self.slowness(now));
        for letter in turn.prompt {
            send(letter, slow_ms, out);
        }
        let vote = turn.vote.or(self.vote_owed.take());
        let writes = turn.reset.is_some() || !turn.entries.is_empty() || turn.must_sync;
        if writes {
            self.last_mark = Mark(self.last_mark.0 + 1);
        } else {
            self.vote_owed = vote;
        }
        let kept = Unsafe {
            mark: self.last_mark,
            turn: turn.number,
            held: turn.held,
            binding: turn.binding,
            appends: !turn.entries.is_empty(),
            since: now,
        };
        if writes {
            out.push(Effect::Write(Write { mark: self.last_mark, reset: turn.reset, entries: turn.entries, vote }));
            self.unsafe_turns.push_back(kept);
        } else if self.unsafe_turns.is_empty() {
            for letter in kept.held {
                send(letter, slow_ms, out);
            }
            self.on_safe(kept.turn, out);
        } else {
            self.unsafe_turns.push_back(kept);
        }
        for peer in turn.behind {
            let saved = self.engine.saved().clone();
            self.streams.send(now, peer, self.engine.term(), &saved, self.saved, out);
        }
        for (context, index) in turn.reads {
            for (to, ask) in self.reads.on_confirmed(&context, index, &self.settings) {
                self.news.awaited = true;
                tell(to, &ask, Some(index), out);
            }
        }
        self.hand_out(turn.committed, out);
    }

    /// Hands out what is decided. Changes of members take effect here.
    fn hand_out(&mut self, entries: Vec<Entry>, out: &mut Vec<Effect>) {
        let mut committed = Vec::with_capacity(entries.len());
        let mut news = Vec::new();
        for entry in entries {
            let index = entry.index;
            let Some(content) = self.read_content(&entry, &mut news) else {
                out.push(Effect::Commit(committed));
                out.push(Effect::Halt { index, why: Halt::Unreadable });
                self.halted = true;
                return;
            };
            self.handed = index;
            committed.push(Committed { index, term: entry.term, content });
            self.proposals.on_decided(entry.term, out);
        }
        if !committed.is_empty() {
            out.push(Effect::Commit(committed));
            out.append(&mut news);
            self.engine.applied(self.handed);
        }
    }

    /// None if it cannot be read: then this node must not go on, for it would not know what the others know.
    fn read_content(&mut self, entry: &Entry, news: &mut Vec<Effect>) -> Option<Content> {
        match content::kind(&entry.bytes)? {
            content::Kind::Nothing => Some(Content::Nothing),
            content::Kind::Batch => {
                let batch = content::read_batch(&entry.bytes)?;
                self.news.awaited |= batch.items.iter().any(|it| it.source.node != self.id.0);
                let item = |it: content::BatchItem| Item { tag: self.proposals.on_item(it.source), payload: it.payload };
                Some(Content::Batch { at: ClusterTime(batch.at), items: batch.items.into_iter().map(item).collect() })
            }
            content::Kind::Change => {
                let change = content::read_change(&content::undress_change(&entry.bytes))?;
                let tag = change.source().and_then(|source| self.proposals.on_item(source));
                // What makes no sense any longer changes nothing, and does so on every node.
                self.news.awaited = true;
                if let Some(roll) = change.read_steps().and_then(|steps| self.engine.apply_change(&steps)) {
                    news.push(Effect::Members { index: entry.index, roll });
                }
                Some(Content::Members { tag, roll: self.engine.roll().clone() })
            }
        }
    }

    fn note_role(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let role = self.engine.role();
        // A lone voter is elected before its own vote is safe: it leads when it is, or it might lead the same term in two lives (S1).
        let premature = role.leads && self.unsafe_turns.iter().any(|it| it.binding);
        if role == self.told || premature {
            return;
        }
        let was = std::mem::replace(&mut self.told, role);
        out.push(Effect::Role(role));
        if role.leads && (!was.leads || was.term != role.term) {
            self.office = Some((now, self.engine.time()));
        } else if !role.leads {
            self.office = None;
            self.streams.stop_sending();
        }
        self.tempo.on_role(role);
        let roll = self.engine.roll();
        self.fitness.forget(|it| roll.contains(it));
        for (to, ask) in self.reads.on_new_role(role.leads) {
            tell(to, &ask, None, out);
        }
    }

    /// Appends or forwards what is queued. Whether the engine may want something now.
    fn pass_proposals(&mut self, now: Instant, out: &mut Vec<Effect>) -> bool {
        if self.proposals.is_empty() {
            return false;
        }
        let term = self.engine.term();
        let mut returned = Vec::new();
        let mut appended = false;
        if self.engine.leads() {
            // While the disk is at work, proposals gather: one write then takes all of them.
            let busy = self.engine.transferring() || self.unsafe_turns.iter().any(|it| it.appends);
            let Some(at) = self.cluster_time(now).filter(|_| !busy) else { return false };
            while let Some(batch) = self.proposals.next_batch(term, at, &self.settings, &mut returned, out) {
                if self.engine.propose(content::write_batch(&batch)).is_err() {
                    self.proposals.put_back(batch, term);
                    break;
                }
                appended = true;
            }
            if appended {
                // It went with them.
                self.news.told = self.engine.commit();
            }
        } else if let Some(leader) = self.engine.leader() {
            while let Some(forward) = self.proposals.next_forward(term, &self.settings, &mut returned, out) {
                out.push(Effect::Send { to: leader, lane: Lane::Bulk, bytes: letter::seal(Body::Forward(forward)) });
            }
        }
        for (to, meant, run, tag) in returned {
            give_back(to, Returned { run, term: meant.0, tags: vec![tag], full: false }, out);
        }
        appended
    }

    /// Asks a quorum, or the leader, for what waits to be read. Whether the engine may want something now.
    fn pass_reads(&mut self, now: Instant, out: &mut Vec<Effect>) -> bool {
        let term = self.engine.term();
        if self.engine.leads() {
            if !self.engine.knows_commit() {
                return false;
            }
            if self.reads.lease_holds(now, term) {
                let commit = self.engine.commit();
                for (to, ask) in self.reads.confirm_by_lease(commit) {
                    self.news.awaited = true;
                    tell(to, &ask, Some(commit), out);
                }
            } else if let Some(context) = self.reads.next_round(now, term) {
                self.engine.read(context);
                return true;
            }
        } else if let Some(leader) = self.engine.leader()
            && let Some(ask) = self.reads.next_ask(now, leader, term)
        {
            out.push(Effect::Send { to: leader, lane: Lane::Prompt, bytes: letter::seal(Body::Ask(ask)) });
        }
        false
    }

    /// Wants a snapshot when the log has grown. As long as there is room, not while one is on its way to somebody: it would be old when it arrives.
    fn want_snapshot(&mut self, out: &mut Vec<Effect>) {
        let grown = self.handed.saturating_sub(self.engine.saved().index);
        let full = grown >= self.settings.snapshot_entries || self.engine.log_bytes() >= self.settings.snapshot_bytes;
        let due = self.handed >= self.save_from && grown > 0 && (full || self.engine.snapshot_wanted());
        let room = self.engine.log_bytes() < self.settings.snapshot_bytes.saturating_mul(LOG_LENGTHS_WHILE_SENDING);
        let waits = self.streams.sending() && room && !self.engine.snapshot_wanted();
        let busy = self.taking.is_some() || waits;
        if self.halted || !due || busy || self.engine.settling() {
            return;
        }
        let Some(term) = self.engine.term_at(self.handed) else { return };
        let at = self.engine.time_at(self.handed);
        let origin = self.engine.saved().origin;
        let snapshot = Snapshot { index: self.handed, term, at, roll: self.engine.roll().clone(), origin };
        self.taking = Some(snapshot.clone());
        out.push(Effect::TakeSnapshot(snapshot));
    }
}

/// Every letter says how slow its sender is.
pub(super) fn send(letter: Outgoing, slow_ms: u32, out: &mut Vec<Effect>) {
    let Outgoing { to, lane, letter } = letter;
    out.push(Effect::Send { to, lane, bytes: letter::seal(Body::Raft(letter::Raft { slow_ms, ..letter })) });
}

pub(super) fn tell(to: NodeId, ask: &Ask, index: Option<Index>, out: &mut Vec<Effect>) {
    let tell = Tell { run: ask.run, round: ask.round, index };
    out.push(Effect::Send { to, lane: Lane::Prompt, bytes: letter::seal(Body::Tell(tell)) });
}

pub(super) fn give_back(to: NodeId, returned: Returned, out: &mut Vec<Effect>) {
    out.push(Effect::Send { to, lane: Lane::Prompt, bytes: letter::seal(Body::Returned(returned)) });
}
