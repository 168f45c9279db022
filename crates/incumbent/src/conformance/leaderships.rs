//! What the library makes of an engine: contention, lost requests and replies, a blocked application, hand-over, crowds.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;

use super::calls::has_a_line;
use super::lossy::Lossy;
use super::record::Record;
use super::{Case, Subject, Verdict, case, ensure, fresh_name};
use crate::clock;
use crate::election::{Election, Next};
use crate::engine::{Demand, Engine};
use crate::identity::{Identity, nonce};
use crate::leadership::Leadership;
use crate::name::Name;
use crate::timing_of;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(at_most_one_leads_while_requests_and_replies_are_lost),
        case!(a_blocked_application_keeps_its_leadership),
        case!(a_dropped_leadership_ends_before_the_next_begins),
        case!(the_seat_is_not_free_while_work_runs),
        case!(hand_over_goes_to_the_one_that_is_named),
        case!(an_eviction_is_heard_without_waiting_for_the_next_renewal),
        case!(a_crowd_is_not_woken_by_one_release),
        case!(elections_of_one_process_share_their_connections),
        case!(an_observer_sees_every_change_and_nobody),
        case!(as_many_lead_as_there_are_seats),
    ]
}

/// So many ttls are enough for anything to happen, on a loaded machine too.
const PATIENCE_TTLS: u32 = 20;

pub(super) async fn candidate(subject: &dyn Subject, name: &Name, who: &str) -> Result<Election, String> {
    let identity = Identity::named(who).expect("made to fit");
    subject.election(name).identity(identity).build().await.map_err(|why| format!("cannot take part: {why}"))
}

pub(super) async fn lead(subject: &dyn Subject, election: &Election) -> Result<Leadership, String> {
    let elected = election.campaign_within(subject.ttl() * PATIENCE_TTLS).await.map_err(|why| format!("{why:?}"))?;
    elected.ok_or_else(|| format!("not elected within {PATIENCE_TTLS} ttls"))
}

/// C76: every tenth request and every tenth reply is lost; some leaderships end by resigning, some by being dropped.
async fn at_most_one_leads_while_requests_and_replies_are_lost(subject: &dyn Subject) -> Verdict {
    let (name, record, seed) = (fresh_name("lossy"), Record::new(), nonce());
    let ttl = subject.ttl();
    let done = AtomicU64::new(0);
    let candidates = (0..4_u64).map(|who| {
        let (name, record, done) = (&name, &record, &done);
        async move {
            let engine = Arc::new(Lossy::new(subject.engine().await, 10, 10, seed.wrapping_add(who)));
            let election = Election::with(engine, name.as_str())
                .identity(Identity::named(&format!("c{who}")).expect("made to fit"))
                .timing(timing_of(ttl))
                .build()
                .await
                .map_err(|why| format!("cannot take part: {why}"))?;
            while done.load(Ordering::Relaxed) < 8 {
                let Some(leadership) = election.campaign_within(ttl / 2).await.map_err(|why| format!("{why:?}"))? else {
                    continue;
                };
                let from = clock::now();
                let count = done.fetch_add(1, Ordering::Relaxed);
                tokio::select! {
                    _ = leadership.stopping() => {}
                    () = tokio::time::sleep(ttl / 10) => {}
                }
                if count % 4 == 3 {
                    // Dropped: believed in until its deadline.
                    let watcher = leadership.watcher();
                    drop(leadership);
                    watcher.lost().await;
                    record.add(super::record::Belief { token: watcher.token(), from, until: watcher.deadline() });
                } else {
                    record.believed(&leadership, from);
                    let _ = leadership.resign().await;
                }
            }
            Ok::<(), String>(())
        }
    });
    let limit = ttl * PATIENCE_TTLS * 3;
    tokio::time::timeout(limit, join_all(candidates))
        .await
        .map_err(|_| format!("{} of 8 leaderships in {limit:?} (seed {seed})", record.len()))?
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    record.verdict().map_err(|why| format!("{why} (seed {seed})"))
}

async fn a_blocked_application_keeps_its_leadership(subject: &dyn Subject) -> Verdict {
    let (name, ttl) = (fresh_name("blocked"), subject.ttl());
    let election = subject.election(&name).build().await.map_err(|why| format!("{why:?}"))?;
    // On a thread and a runtime of its own, because the other cases want to go on.
    let blocked = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let leadership = election.campaign_within(ttl * PATIENCE_TTLS).await.map_err(|why| format!("{why:?}"))?;
            let leadership = leadership.ok_or("not elected")?;
            // The application does not yield for two ttls.
            std::thread::sleep(ttl * 2);
            let kept = leadership.check();
            let _ = leadership.resign().await;
            kept.map(|_| ()).map_err(|why| format!("the leadership was lost while the application was busy: {why}"))
        })
    });
    while !blocked.is_finished() {
        tokio::time::sleep(ttl / 20).await;
    }
    blocked.join().map_err(|_| "the blocked application panicked".to_owned())?
}

async fn a_dropped_leadership_ends_before_the_next_begins(subject: &dyn Subject) -> Verdict {
    let (name, record) = (fresh_name("dropped"), Record::new());
    let (a, b) = (candidate(subject, &name, "a").await?, candidate(subject, &name, "b").await?);
    let first = lead(subject, &a).await?;
    let (from, watcher) = (clock::now(), first.watcher());
    drop(first);
    let second = lead(subject, &b).await?;
    let elected = clock::now();
    record.add(super::record::Belief { token: watcher.token(), from, until: watcher.deadline() });
    record.add(super::record::Belief { token: second.token(), from: elected, until: elected });
    let _ = second.resign().await;
    record.verdict()
}

async fn the_seat_is_not_free_while_work_runs(subject: &dyn Subject) -> Verdict {
    let (name, ttl) = (fresh_name("stop-first"), subject.ttl());
    let (a, b) = (candidate(subject, &name, "a").await?, candidate(subject, &name, "b").await?);
    let running = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&running);
    let working = tokio::spawn(async move {
        a.run(|leadership| {
            let flag = Arc::clone(&flag);
            async move {
                let _running = Running::begin(flag);
                leadership.stopping().await;
                // Draining takes its time; the seat must wait for it.
                tokio::time::sleep(leadership_drain(ttl)).await;
                Ok::<_, Infallible>(Next::Quit)
            }
        })
        .await
    });
    let mut observer = b.observe();
    while observer.leader().await.is_none() {
        observer.next().await;
    }
    b.ask(Demand::Resign, "the suite").await.map_err(|why| format!("{why:?}"))?;
    let second = lead(subject, &b).await?;
    ensure(!running.load(Ordering::SeqCst), || "elected while the former leader's work still ran".to_owned())?;
    let _ = second.resign().await;
    // If it was cancelled it contends again, and would do so for ever.
    working.abort();
    ensure(!working.await.is_err_and(|why| why.is_panic()), || "the work panicked".to_owned())
}

/// Work that runs until it is dropped: on a loaded machine its drain may take too long, and then it is cancelled.
struct Running(Arc<AtomicBool>);

impl Running {
    fn begin(flag: Arc<AtomicBool>) -> Running {
        flag.store(true, Ordering::SeqCst);
        Running(flag)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Half of what is allowed.
fn leadership_drain(ttl: Duration) -> Duration {
    timing_of(ttl).drain() / 2
}

async fn hand_over_goes_to_the_one_that_is_named(subject: &dyn Subject) -> Verdict {
    let name = fresh_name("named");
    let a = candidate(subject, &name, "a").await?;
    let first = lead(subject, &a).await?;
    let (b, c) = (candidate(subject, &name, "b").await?, candidate(subject, &name, "c").await?);
    let (early, late) = (b.campaign(), c.campaign());
    let (mut early, mut late) = (std::pin::pin!(early), std::pin::pin!(late));
    // Both stand in line, b first.
    let settle = tokio::time::sleep(subject.ttl() / 2);
    tokio::select! {
        _ = &mut early => return Err("two led at once".to_owned()),
        _ = &mut late => return Err("two led at once".to_owned()),
        () = settle => {}
    }
    first.hand_over("c").await.map_err(|why| format!("{why:?}"))?;
    tokio::select! {
        _ = &mut early => Err("the seat went to b, who was not named".to_owned()),
        elected = &mut late => {
            let _ = elected.map_err(|why| format!("{why:?}"))?.resign().await;
            Ok(())
        }
        () = tokio::time::sleep(subject.ttl() * PATIENCE_TTLS) => Err("nobody was elected".to_owned()),
    }
}

async fn an_eviction_is_heard_without_waiting_for_the_next_renewal(subject: &dyn Subject) -> Verdict {
    let (name, ttl) = (fresh_name("evict"), subject.ttl());
    let (a, operator) = (candidate(subject, &name, "a").await?, candidate(subject, &name, "operator").await?);
    let leadership = lead(subject, &a).await?;
    operator.ask(Demand::Evict, "the suite").await.map_err(|why| format!("{why:?}"))?;
    let told = tokio::time::timeout(ttl, leadership.stopping()).await;
    let reason = told.map_err(|_| "the holder has not heard of it within a ttl".to_owned())?;
    leadership.resign().await.map_err(|why| format!("{why:?}"))?;
    ensure(reason == crate::Reason::Evicted, || format!("told to stop because {reason}"))?;
    let board = operator.look().await.map_err(|why| format!("{why:?}"))?;
    if operator.guarantees().keeps_history {
        let recorded = board.past.first().map(|it| it.reason.clone());
        ensure(recorded.as_deref() == Some("evicted"), || format!("on record: {recorded:?}"))?;
    }
    Ok(())
}

/// C64: 200 candidates, one release: one is elected, and the others do not rush to the engine.
async fn a_crowd_is_not_woken_by_one_release(subject: &dyn Subject) -> Verdict {
    const CROWD: usize = 200;
    let name = fresh_name("crowd");
    let claims = Arc::new(AtomicU64::new(0));
    let engine = Arc::new(Lossy::counting(subject.engine().await, Arc::clone(&claims)));
    if !has_a_line(&*engine) {
        return Ok(());
    }
    // Without hints nobody would ask for a minute, so that whoever asks was woken.
    let ttl = Duration::from_secs(60).min(engine.guarantees().ttl_max);
    let election =
        Election::with(engine, name.as_str()).timing(timing_of(ttl)).build().await.map_err(|why| format!("{why:?}"))?;
    let first = election.campaign().await.map_err(|why| format!("{why:?}"))?;
    let crowd: Vec<_> = (0..CROWD)
        .map(|_| {
            let election = election.clone();
            tokio::spawn(async move { election.campaign().await })
        })
        .collect();
    let verdict = async {
        let limit = clock::now() + Duration::from_secs(60);
        while claims.load(Ordering::SeqCst) < CROWD as u64 + 1 {
            ensure(clock::now() < limit, || "the crowd does not get in line".to_owned())?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // A hint that comes while the first claim's wait has hardly begun is kept back for a retry; let that pass.
        tokio::time::sleep(timing_of(ttl).retry() * 2).await;
        let before = claims.load(Ordering::SeqCst);
        let token = first.token();
        first.resign().await.map_err(|why| format!("{why:?}"))?;
        let mut observer = election.observe();
        while observer.leader().await.is_none_or(|it| it.token == token) {
            observer.next().await;
        }
        let woken = claims.load(Ordering::SeqCst) - before;
        ensure(woken <= 5, || format!("{woken} of {CROWD} asked for the seat after one release"))
    }
    .await;
    for candidate in crowd {
        candidate.abort();
    }
    verdict
}

async fn elections_of_one_process_share_their_connections(subject: &dyn Subject) -> Verdict {
    const ELECTIONS: usize = 50;
    // Counted where there is somebody between who sees them.
    let line = subject.line();
    let engine = match &line {
        Some(line) => line.engine().await,
        None => subject.engine().await,
    };
    let ttl = subject.ttl();
    let mut held = Vec::new();
    let leading = (0..ELECTIONS).map(|at| {
        let builder = Election::with(Arc::clone(&engine), fresh_name(&format!("share{at}")).as_str()).timing(timing_of(ttl));
        async move {
            let election = builder.build().await.map_err(|why| format!("{why:?}"))?;
            let elected = election.campaign_within(ttl * PATIENCE_TTLS).await.map_err(|why| format!("{why:?}"))?;
            elected.ok_or_else(|| format!("election {at} was not won"))
        }
    });
    for leadership in join_all(leading).await {
        held.push(leadership?);
    }
    tokio::time::sleep(ttl * 2).await;
    let lost: Vec<String> = held.iter().filter_map(|it| it.check().err().map(|why| why.to_string())).collect();
    join_all(held.into_iter().map(Leadership::resign)).await;
    ensure(lost.is_empty(), || format!("{} of {ELECTIONS} leaderships were lost: {}", lost.len(), lost[0]))?;
    let Some(line) = line else { return Ok(()) };
    let (made, max) = (line.connections(), line.connections_max(ELECTIONS as u64));
    ensure(made <= max, || format!("{ELECTIONS} elections made {made} connections, and {max} are enough"))
}

async fn an_observer_sees_every_change_and_nobody(subject: &dyn Subject) -> Verdict {
    let name = fresh_name("observe");
    let (a, onlooker) = (candidate(subject, &name, "a").await?, candidate(subject, &name, "onlooker").await?);
    let mut observer = onlooker.observe();
    ensure(observer.leader().await.is_none(), || "somebody leads a new election".to_owned())?;
    let watching = async {
        for _ in 0..2 {
            let leader = observer.next().await;
            ensure(leader.is_some(), || "nobody was followed by nobody".to_owned())?;
            ensure(observer.next().await.is_none(), || "the end of a leadership was not seen".to_owned())?;
        }
        Ok(())
    };
    let leading = async {
        for _ in 0..2 {
            let leadership = lead(subject, &a).await?;
            // Long enough to be seen by one that only looks now and then.
            tokio::time::sleep(subject.ttl()).await;
            leadership.resign().await.map_err(|why| format!("{why:?}"))?;
            tokio::time::sleep(subject.ttl()).await;
        }
        Ok(())
    };
    let watching = tokio::time::timeout(subject.ttl() * PATIENCE_TTLS, watching);
    let (seen, led) = tokio::join!(watching, leading);
    led.and(seen.unwrap_or_else(|_| Err("a change was not seen".to_owned())))
}

async fn as_many_lead_as_there_are_seats(subject: &dyn Subject) -> Verdict {
    let (name, ttl) = (fresh_name("seats"), subject.ttl());
    if subject.engine().await.guarantees().seats_max < 2 {
        let refused = subject.election(&name).seats(2).build().await;
        return ensure(refused.is_err(), || "two seats were promised by an engine that has one".to_owned());
    }
    let mut elections = Vec::new();
    for _ in 0..3 {
        elections.push(subject.election(&name).seats(2).build().await.map_err(|why| format!("{why:?}"))?);
    }
    let (first, second) = (lead(subject, &elections[0]).await?, lead(subject, &elections[1]).await?);
    let third = elections[2].campaign_within(ttl).await.map_err(|why| format!("{why:?}"))?;
    ensure(third.is_none(), || "three took two seats".to_owned())?;
    first.resign().await.map_err(|why| format!("{why:?}"))?;
    let third = lead(subject, &elections[2]).await?;
    ensure(second.check().is_ok() && third.token() > second.token(), || format!("{second:?} {third:?}"))?;
    // Who came last leaves first: the past is told by beginnings, not by ends.
    for leadership in [third, second] {
        leadership.resign().await.map_err(|why| format!("{why:?}"))?;
    }
    let past = elections[0].look().await.map_err(|why| format!("{why:?}"))?.past;
    ensure(past.is_sorted_by(|newer, older| newer.token > older.token), || format!("not newest first: {past:?}"))
}
