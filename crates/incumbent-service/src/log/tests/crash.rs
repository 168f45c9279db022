//! C07, C42: a crash at every step of the disk; any life of a log.

use proptest::prelude::*;

use super::super::sim::Fault;
use super::*;

/// A log, what it has confirmed, and what it has not.
struct Kept {
    confirmed: Model,
    unconfirmed: Vec<Append>,
    /// What is in a snapshot does not change any more.
    snapshot: u64,
}

impl Kept {
    fn new() -> Self {
        Kept { confirmed: Model::default(), unconfirmed: Vec::new(), snapshot: 0 }
    }

    fn now(&self) -> Model {
        let mut model = self.confirmed.clone();
        self.unconfirmed.iter().for_each(|it| model.apply(it));
        model
    }

    fn write(&mut self, log: &mut Log<SimDisk>, appends: Vec<Append>) -> Result<(), Failure> {
        // Also if it fails: a part of it may be there.
        self.unconfirmed.extend(appends.clone());
        log.write(&appends)
    }

    /// What is in a snapshot was confirmed by this node or by others; here there are no others.
    fn compact(&mut self, log: &mut Log<SimDisk>, index: u64) -> Result<(), Failure> {
        self.sync(log)?;
        let mark = Mark { index, term: log.reader().term(index).unwrap() };
        self.unconfirmed.push(Append::Compact(mark));
        self.snapshot = index;
        compact(log, index).map(|_| ())
    }

    fn sync(&mut self, log: &mut Log<SimDisk>) -> Result<(), Failure> {
        log.sync()?;
        self.confirmed = self.now();
        self.unconfirmed.clear();
        Ok(())
    }

    /// Whether a log that was opened again holds what was confirmed, and of the rest a part from the front. From then on that counts.
    fn judge(&mut self, log: &Log<SimDisk>) -> Result<(), String> {
        let found = Model::of(log);
        let mut model = self.confirmed.clone();
        let mut fits = found == model;
        for append in &self.unconfirmed {
            model.apply(append);
            fits |= found == model;
        }
        let (last, base) = (found.last(), found.base.index);
        let why = format!("found {base}+1..={last} {:?}, confirmed {:?}", found.state, self.confirmed.last());
        (self.confirmed, self.unconfirmed) = (found, Vec::new());
        if fits { Ok(()) } else { Err(why) }
    }
}

/// All that a log is made for, over several segments.
fn workload(log: &mut Log<SimDisk>, kept: &mut Kept) -> Result<(), Failure> {
    kept.write(log, vec![state(1, 1, 0)])?;
    kept.sync(log)?;
    kept.write(log, entries(1..=6, 1, 200))?;
    kept.write(log, vec![entry(7, 1, 700), state(1, 1, 5)])?;
    kept.sync(log)?;
    log.rest()?;
    kept.write(log, entries(6..=14, 2, 500))?;
    kept.sync(log)?;
    kept.compact(log, 8)?;
    kept.write(log, vec![state(3, 2, 9)])?;
    kept.sync(log)?;
    log.rest()?;
    while log.maintain()? {}
    kept.write(log, [entries(15..=20, 3, 900), vec![Append::Truncate { from: 20 }]].concat())?;
    kept.sync(log)?;
    kept.compact(log, 18)?;
    kept.sync(log)?;
    log.rest()?;
    while log.maintain()? {}
    let mark = Mark { index: 40, term: 3 };
    let mut writer = log.snapshots().begin(mark, &[])?;
    writer.piece(b"from another")?;
    // Already safe, though the log does not know it yet: a crash between the two is as good as after both.
    kept.unconfirmed.push(Append::Restart(mark));
    writer.commit()?;
    kept.confirmed = kept.now();
    kept.unconfirmed.clear();
    log.write(&[Append::Restart(mark)])?;
    kept.write(log, entries(41..=44, 4, 900))?;
    kept.sync(log)
}

#[test]
fn a_crash_at_every_step_of_the_disk_loses_nothing_that_was_confirmed() {
    let disk = SimDisk::new(1);
    let mut kept = Kept::new();
    workload(&mut open(disk.clone()).unwrap().0, &mut kept).unwrap();
    let steps = disk.steps();
    assert!(steps > 80, "{steps}");
    let losses = [Loss::Nothing, Loss::Everything].into_iter().chain((0..12).map(Loss::Some));
    for (step, loss) in (1..=steps).flat_map(|step| losses.clone().map(move |loss| (step, loss))) {
        let disk = SimDisk::new(1);
        disk.dies_at(step);
        let mut kept = Kept::new();
        if let Ok((mut log, _)) = open(disk.clone()) {
            assert!(workload(&mut log, &mut kept).is_err() || step == steps, "it died at {step}");
        }
        disk.crash(loss);
        let (mut log, _) = open(disk.clone()).unwrap_or_else(|refused| panic!("step {step}, {loss:?}: {refused}"));
        kept.judge(&log).unwrap_or_else(|why| panic!("step {step}, {loss:?}: {why}"));
        // And it goes on from there.
        let next = kept.now().last() + 1;
        kept.write(&mut log, entries(next..=next + 5, 9, 333)).unwrap();
        kept.sync(&mut log).unwrap();
        drop(log);
        disk.crash(Loss::Everything);
        kept.judge(&open(disk).unwrap().0).unwrap_or_else(|why| panic!("step {step}, {loss:?}, later: {why}"));
    }
}

#[test]
fn a_crash_in_a_recovery_from_a_crash_loses_nothing_either() {
    for (seed, step) in (0..60).flat_map(|seed| (1..12).map(move |step| (seed, step))) {
        let disk = SimDisk::new(seed);
        let (mut log, _) = open(disk.clone()).unwrap();
        let mut kept = Kept::new();
        kept.write(&mut log, entries(1..=9, 1, 300)).unwrap();
        kept.sync(&mut log).unwrap();
        kept.write(&mut log, entries(8..=20, 2, 300)).unwrap();
        disk.crash(Loss::Some(seed));
        disk.dies_at(disk.steps() + step);
        let mut generation = 1;
        if let Ok((mut log, recovered)) = open(disk.clone()) {
            assert!(recovered.generation > generation);
            generation = recovered.generation;
            kept.judge(&log).unwrap();
            let next = kept.now().last() + 1;
            // The same lengths as those that were lost: what is left of them must not be taken for what follows.
            let _ = kept.write(&mut log, vec![entry(next, 5, 300)]).and_then(|()| kept.sync(&mut log));
        }
        disk.crash(Loss::Some(seed + 1));
        let (log, recovered) = open(disk).unwrap();
        kept.judge(&log).unwrap_or_else(|why| panic!("seed {seed}, step {step}: {why}"));
        assert!(recovered.generation > generation, "seed {seed}, step {step}");
    }
}

#[test]
fn what_a_full_disk_has_half_taken_is_never_taken_for_what_follows() {
    for (step, loss) in (1..8).flat_map(|step| [Loss::Nothing, Loss::Everything].map(|loss| (step, loss))) {
        let disk = SimDisk::new(1);
        let (mut log, _) = open(disk.clone()).unwrap();
        log.rest().unwrap();
        while log.maintain().unwrap() {}
        let mut kept = Kept::new();
        kept.write(&mut log, entries(1..=3, 1, 100)).unwrap();
        kept.sync(&mut log).unwrap();
        disk.injects(disk.steps() + step, Fault::Full);
        if kept.write(&mut log, entries(4..=30, 1, 300)).is_err() {
            kept.unconfirmed.clear();
            assert_eq!(Model::of(&log), kept.confirmed, "nothing of it can be read");
        }
        let next = kept.now().last() + 1;
        // A sync that fails is final, also when it says that the disk is full.
        if kept.write(&mut log, vec![entry(next, 2, 300)]).and_then(|()| kept.sync(&mut log)).is_ok() {
            disk.crash(loss);
            kept.judge(&open(disk).unwrap().0).unwrap_or_else(|why| panic!("step {step}, {loss:?}: {why}"));
        }
    }
}

/// What happens to a log.
#[derive(Clone, Debug)]
enum Deed {
    Append { count: u64, length: usize },
    Overwrite { back: u64, count: u64, length: usize },
    Truncate { back: u64 },
    Vote { term: u64, vote: u32 },
    Compact { back: u64 },
    Sync,
    Maintain,
    Full { within: u64 },
    Crash { loss: Loss },
    CrashWithin { steps: u64, loss: Loss },
}

fn deed() -> impl Strategy<Value = Deed> {
    let loss = || prop_oneof![Just(Loss::Nothing), Just(Loss::Everything), any::<u64>().prop_map(Loss::Some)];
    // Few lengths, so that what is written often has the length of what was there.
    let length = || prop_oneof![Just(0_usize), Just(300), Just(472), 0..2000_usize];
    prop_oneof![
        4 => (1..8_u64, length()).prop_map(|(count, length)| Deed::Append { count, length }),
        2 => (0..6_u64, 1..4_u64, length()).prop_map(|(back, count, length)| Deed::Overwrite { back, count, length }),
        1 => (0..4_u64).prop_map(|back| Deed::Truncate { back }),
        1 => (1..9_u64, 1..4_u32).prop_map(|(term, vote)| Deed::Vote { term, vote }),
        1 => (0..6_u64).prop_map(|back| Deed::Compact { back }),
        4 => Just(Deed::Sync),
        1 => Just(Deed::Maintain),
        1 => (1..4_u64).prop_map(|within| Deed::Full { within }),
        1 => loss().prop_map(|loss| Deed::Crash { loss }),
        2 => (1..30_u64, loss()).prop_map(|(steps, loss)| Deed::CrashWithin { steps, loss }),
    ]
}

/// One deed after the other; what fails for want of power or room has not happened, and all goes on.
fn live(deeds: &[Deed]) -> Result<(), String> {
    let disk = SimDisk::new(7);
    let (mut log, _) = open(disk.clone()).map_err(|it| it.to_string())?;
    let mut kept = Kept::new();
    let mut dies_with = None;
    for (term, deed) in (1..).zip(deeds) {
        let now = kept.now();
        let (base, last) = (now.base.index.max(kept.snapshot), now.last());
        let done = match deed {
            Deed::Append { count, length } => kept.write(&mut log, entries(last + 1..=last + count, term, *length)),
            Deed::Overwrite { back, count, length } => {
                let from = last.saturating_sub(*back).max(base + 1);
                kept.write(&mut log, entries(from..=from + count, term, *length))
            }
            Deed::Truncate { back } => {
                kept.write(&mut log, vec![Append::Truncate { from: last.saturating_sub(*back).max(base + 1) }])
            }
            Deed::Vote { term, vote } => kept.write(&mut log, vec![state(*term, *vote, last)]),
            Deed::Compact { back } => kept.compact(&mut log, last.saturating_sub(*back).max(base)),
            Deed::Sync => kept.sync(&mut log),
            Deed::Maintain => log.rest().and_then(|()| log.maintain()).map(|_| ()),
            Deed::Full { within } => {
                disk.injects(disk.steps() + within, Fault::Full);
                Ok(())
            }
            Deed::CrashWithin { steps, loss } => {
                disk.dies_at(disk.steps() + steps);
                dies_with = Some(*loss);
                Ok(())
            }
            Deed::Crash { .. } => Ok(()),
        };
        let crash = match (deed, done) {
            (Deed::Crash { loss }, _) => Some(dies_with.take().unwrap_or(*loss)),
            (_, Err(Failure::Full { .. })) => {
                // Nothing of it counts; but a part of it may be there after a crash, so we look.
                Some(Loss::Nothing)
            }
            (_, Err(Failure::Broken { .. })) => Some(dies_with.take().unwrap_or(Loss::Everything)),
            (_, Ok(()) | Err(Failure::TooLarge { .. })) => None,
        };
        if let Some(loss) = crash {
            drop(log);
            disk.crash(loss);
            log = loop {
                match open(disk.clone()) {
                    Ok((log, _)) => break log,
                    Err(Refused::Unusable { .. }) => disk.crash(loss),
                    Err(refused) => return Err(format!("deed {term}: {refused}")),
                }
            };
            kept.judge(&log).map_err(|why| format!("deed {term}: {why}"))?;
        } else if Model::of(&log) != kept.now() {
            return Err(format!("deed {term}: it holds something else"));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_life_of_a_log_keeps_what_was_synced_and_of_the_rest_a_part_from_the_front(deeds in prop::collection::vec(deed(), 1..40)) {
        live(&deeds).map_err(TestCaseError::fail)?;
    }
}
