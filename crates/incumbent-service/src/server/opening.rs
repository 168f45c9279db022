//! Opening a node's directory: the store as its snapshot and log make it, and what the replica starts from.

use incumbent_protocol::protocol::Term;
use incumbent_store::store::Store;

use super::config::{Beginning, Config, NotStarted};
use super::{keeper, members};
use crate::log::{Append, Disk, HardState, Identity, Log, Mark, Recovered as Found};
use crate::replica::{Entry, Recovered, Roll, Snapshot, Vote};

/// What a directory held.
#[derive(Debug)]
pub(super) struct Opened<D: Disk> {
    pub(super) log: Log<D>,
    /// As it is after the snapshot: the replica hands out the rest.
    pub(super) store: Store,
    pub(super) recovered: Recovered,
    pub(super) found: Found,
}

pub(super) fn open<D: Disk>(disk: D, config: &Config) -> Result<Opened<D>, NotStarted> {
    let identity = Identity { cluster: config.cluster.clone(), node: config.me };
    let (mut log, mut found) = Log::open(disk, &identity, config.log).map_err(NotStarted::Directory)?;
    let (entry, room) = (config.entry_bytes_max(), log.payload_length_max());
    if entry > room {
        return Err(NotStarted::Config(format!(
            "entries of up to {entry} bytes do not fit the segments of the log, which take {room}: make them longer, or lower the limits of payloads and entries"
        )));
    }
    if found.snapshot.is_none() && config.beginning == Beginning::Founds {
        let everyone = config.peers.iter().map(|it| it.id).chain([config.me]);
        let roll = Roll::of(everyone).map_err(NotStarted::Members)?;
        let base = be_born(&mut log, &Recovered::birth(roll).snapshot, &Store::new(0))?;
        (found.base, found.last) = (base, base.index);
        found.state = HardState { term: base.term, vote: None, commit: base.index };
    }
    let Some((snapshot, extent, store)) = keeper::load(&log.snapshots()).map_err(NotStarted::Snapshot)? else {
        // It knows nothing until somebody adds it, except perhaps a vote.
        let vote = Vote { term: Term(found.state.term), candidate: found.state.vote, commit: 0 };
        return Ok(Opened { log, store: Store::new(0), recovered: Recovered { vote, ..Recovered::nothing() }, found });
    };
    let entries = log.reader().read(found.base.index + 1, found.last + 1, usize::MAX);
    let entries = entries.map_err(|why| NotStarted::Snapshot(why.to_string()))?;
    let entries = entries.into_iter().map(|it| Entry { index: it.index, term: Term(it.term), bytes: it.payload.into() });
    // What is in the snapshot is decided, whatever was written of that; a commit goes with the entries that it speaks of.
    let commit = found.state.commit.clamp(snapshot.index, found.last.max(snapshot.index));
    let vote = Vote { term: Term(found.state.term), candidate: found.state.vote, commit };
    let recovered = Recovered { vote, snapshot, extent, entries: entries.collect() };
    check_told(config, &recovered)?;
    Ok(Opened { log, store, recovered, found })
}

/// Who the members are is the directory's to say. But a node that began alone and is now told of others would go on alone, and they would be a second cluster of the same name, with leaders of its own.
fn check_told(config: &Config, recovered: &Recovered) -> Result<(), NotStarted> {
    let (me, snapshot) = (config.me, &recovered.snapshot);
    let told = Roll::of(config.peers.iter().map(|it| it.id).chain([me])).map_err(NotStarted::Members)?;
    // Others have come or gone meanwhile, and a command line stays what it was on the first day.
    let changed = recovered.entries.iter().any(Entry::changes_members) || snapshot.origin.is_some_and(|it| it.is_with(&told));
    let mut strangers = told.voters().clone();
    strangers.retain(|it| !snapshot.roll.contains(*it));
    if config.beginning == Beginning::Joins || changed || strangers.is_empty() {
        return Ok(());
    }
    let strangers = members::listed(&strangers);
    if snapshot.roll.everyone().iter().eq([&me]) {
        return Err(NotStarted::Config(format!(
            "node {me} is the only member of the cluster in its directory, and was told of {strangers}: start it as it was, and add them to it one by one \
             (incumbent serve --join, then incumbent cluster add); or begin all with empty directories"
        )));
    }
    tracing::warn!(node = %me, members = %members::listed(&snapshot.roll.everyone()), %strangers, "told of nodes that are no members: they are left out until they are added");
    Ok(())
}

/// A cluster begins with a snapshot, the same on every founder, so that its members are on record from the start: of nothing, or of what was brought back.
pub(super) fn be_born<D: Disk>(log: &mut Log<D>, birth: &Snapshot, store: &Store) -> Result<Mark, NotStarted> {
    let mark = Mark { index: birth.index, term: birth.term.0 };
    let state = HardState { term: mark.term, vote: None, commit: mark.index };
    keeper::save(&log.snapshots(), birth, store)
        .and_then(|_| log.write(&[Append::Restart(mark), Append::State(state)]))
        .and_then(|()| log.sync())
        .map_err(|failure| NotStarted::Snapshot(failure.to_string()))?;
    Ok(mark)
}
