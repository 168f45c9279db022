//! The library in virtual time, on the engine in memory: what an application sees of campaigns, leaderships, hand-overs and wishes.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use incumbent::election::Builder;
use incumbent::engine::{Bid, Board, Claim, Demand, Engine, Error, Farewell, Kind, Renewal, Seat, Wish};
use incumbent::engines::memory::Memory;
use incumbent::metrics::Metrics;
use incumbent::{Election, Guarantees, Identity, Leadership, Name, Next, Preemption, Reason, State, Timing, Token};
use tokio::time::{Instant, sleep, timeout};

const TTL: Duration = Duration::from_secs(10);
const PROBED_EVERY: Duration = Duration::from_millis(500);

fn builder(memory: &Memory, who: &str) -> Builder {
    Election::in_test(Arc::new(memory.clone()), "billing")
        .identity(Identity::named(who).expect("a good name"))
        .timing(Timing::of(TTL).build().expect("a good ttl"))
}

async fn candidate(memory: &Memory, who: &str) -> Election {
    builder(memory, who).build().await.expect("memory takes anything")
}

async fn lead(election: &Election) -> Leadership {
    timeout(TTL * 3, election.campaign()).await.expect("elected in time").expect("memory has no settings to be wrong")
}

#[tokio::test(start_paused = true)]
async fn one_leads_at_a_time_and_tokens_rise() {
    let memory = Memory::new();
    let (a, b) = (candidate(&memory, "a").await, candidate(&memory, "b").await);
    let first = lead(&a).await;
    assert!(b.try_campaign().await.expect("answers").is_none());
    assert!(b.campaign_within(TTL * 5).await.expect("answers").is_none(), "a renews for ever");
    assert!(first.check().is_ok() && first.state() == State::Held);
    let (second, resigned) = tokio::join!(lead(&b), first.resign());
    resigned.expect("released");
    assert!(second.token().get() > 1);
    let past = b.look().await.expect("answers").past;
    assert_eq!((past[0].identity.name(), past[0].reason.as_str()), ("a", "resigned"));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_leadership_is_neither_renewed_nor_given_back_before_its_time() {
    let memory = Memory::new();
    let (a, b) = (candidate(&memory, "a").await, candidate(&memory, "b").await);
    let first = lead(&a).await;
    let valid_until = Instant::now() + first.remaining();
    let watcher = first.watcher();
    drop(first);
    let second = lead(&b).await;
    assert!(Instant::now() >= valid_until, "somebody else was elected while it was valid");
    assert!(watcher.check().is_err());
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn a_campaign_that_is_dropped_leaves_the_line() {
    let memory = Memory::new();
    let (a, b, c) = (candidate(&memory, "a").await, candidate(&memory, "b").await, candidate(&memory, "c").await);
    let first = lead(&a).await;
    assert!(timeout(TTL, b.campaign()).await.is_err());
    let waiting = tokio::spawn(async move { lead(&c).await });
    sleep(Duration::from_secs(1)).await;
    let names =
        |board: incumbent::engine::Board| board.candidates.iter().map(|it| it.identity.name().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(a.look().await.expect("answers")), ["c"]);
    first.resign().await.expect("released");
    let before = Instant::now();
    let second = waiting.await.expect("elected");
    assert_eq!(second.identity().name(), "c");
    assert!(before.elapsed() < Duration::from_millis(10), "the hint woke it at once");
}

#[tokio::test(start_paused = true)]
async fn the_seat_goes_to_whom_it_is_handed_over() {
    let memory = Memory::new();
    let a = candidate(&memory, "a").await;
    let first = lead(&a).await;
    let mut waiting = Vec::new();
    for who in ["b", "c", "d"] {
        let election = candidate(&memory, who).await;
        waiting.push(tokio::spawn(async move { lead(&election).await.identity().name().to_owned() }));
        sleep(Duration::from_millis(5)).await;
    }
    first.hand_over("c").await.expect("released");
    let mut observer = a.observe();
    while observer.leader().await.is_none() {
        observer.next().await;
    }
    assert_eq!(observer.leader().await.map(|it| it.identity.name().to_owned()).as_deref(), Some("c"));
    for task in waiting {
        task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_seat_kept_for_one_that_never_comes_is_anybodys_after_a_ttl() {
    let memory = Memory::new();
    let (a, b) = (candidate(&memory, "a").await, candidate(&memory, "b").await);
    lead(&a).await.hand_over("nobody").await.expect("released");
    let begun = Instant::now();
    let leadership = lead(&b).await;
    assert!(begun.elapsed() >= TTL && begun.elapsed() < TTL * 2, "{:?}", begun.elapsed());
    drop(leadership);
}

#[tokio::test(start_paused = true)]
async fn work_is_told_to_stop_before_the_seat_is_given_back() {
    let memory = Memory::new();
    let (a, operator) = (candidate(&memory, "a").await, candidate(&memory, "operator").await);
    let running = Arc::new(AtomicBool::new(false));
    let reasons = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (flag, told) = (Arc::clone(&running), Arc::clone(&reasons));
    let led = tokio::spawn(async move {
        a.run(|leadership| {
            let (flag, told) = (Arc::clone(&flag), Arc::clone(&told));
            async move {
                flag.store(true, Ordering::SeqCst);
                let reason = leadership.stopping().await;
                sleep(Duration::from_secs(1)).await;
                told.lock().expect("fine").push(reason);
                flag.store(false, Ordering::SeqCst);
                Ok::<_, Infallible>(Next::Resign)
            }
        })
        .await
    });
    let mut observer = operator.observe();
    for demand in [Demand::Evict, Demand::Resign] {
        while observer.leader().await.is_none() {
            observer.next().await;
        }
        operator.ask(demand, "the test").await.expect("a leads");
        while observer.next().await.is_some() {}
        assert!(!running.load(Ordering::SeqCst), "the seat was free while work ran");
    }
    assert_eq!(*reasons.lock().expect("fine"), [Reason::Evicted, Reason::Resigned]);
    let past = operator.look().await.expect("answers").past;
    assert_eq!(past.iter().map(|it| it.reason.as_str()).collect::<Vec<_>>(), ["resigned", "evicted"]);
    led.abort();
}

#[tokio::test(start_paused = true)]
async fn work_that_will_not_end_is_cancelled_when_its_time_to_drain_is_over() {
    let memory = Memory::new();
    let (a, operator) = (candidate(&memory, "a").await, candidate(&memory, "operator").await);
    let drain = a.timing().drain();
    let rounds = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&rounds);
    let led = tokio::spawn(async move {
        a.run(|_| {
            count.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<Result<Next, Infallible>>()
        })
        .await
    });
    let mut observer = operator.observe();
    while observer.leader().await.is_none() {
        observer.next().await;
    }
    let asked = Instant::now();
    operator.ask(Demand::Resign, "the test").await.expect("a leads");
    while observer.next().await.is_some() {}
    assert!(asked.elapsed() >= drain && asked.elapsed() < drain + Duration::from_secs(1), "{:?}", asked.elapsed());
    // And it contends again by itself.
    while observer.next().await.is_none() {}
    assert_eq!(rounds.load(Ordering::SeqCst), 2);
    led.abort();
}

#[tokio::test(start_paused = true)]
async fn run_gives_the_seat_back_when_the_work_fails_and_says_so() {
    let memory = Memory::new();
    let a = candidate(&memory, "a").await;
    let failed = a.run(|_| async { Err::<Next, _>("disk full") }).await;
    assert_eq!(failed, Err("disk full"));
    let board = a.look().await.expect("answers");
    assert!(board.leaders.is_empty() && board.candidates.is_empty(), "{board:?}");
    a.run(|_| async { Ok::<_, Infallible>(Next::Quit) }).await.expect("quits");
}

#[tokio::test(start_paused = true)]
async fn work_is_neither_begun_nor_polled_once_its_leadership_is_over() {
    let memory = Memory::new();
    let (a, name) = (candidate(&memory, "a").await, Name::new("billing").expect("a good name"));
    // Takes the seat away and waits until the clerk knows, while nobody polls the run.
    let depose = async || {
        let leader = loop {
            match memory.look(&name).await.expect("memory is well").leaders.pop() {
                Some(leader) => break leader,
                None => sleep(Duration::from_millis(1)).await,
            }
        };
        let bid =
            Bid { identity: leader.identity, ttl: TTL, value: String::new(), priority: 0, seats: 1, seen: None, note: None };
        let farewell = Farewell { reason: Reason::Evicted, to: None };
        memory.release(&name, &bid, leader.token, &farewell).await.expect("memory is well");
        sleep(TTL).await;
        leader.token
    };
    let polled = std::sync::Mutex::new(Vec::new());
    let mut run = std::pin::pin!(a.run(|leadership| {
        polled.lock().expect("fine").push(leadership.token());
        let polled = &polled;
        std::future::poll_fn(move |_| {
            polled.lock().expect("fine").push(leadership.token());
            std::task::Poll::<Result<Next, Infallible>>::Pending
        })
    }));
    assert!(timeout(Duration::ZERO, &mut run).await.is_err());
    let first = depose().await;
    assert!(timeout(TTL * 3, &mut run).await.is_err());
    let second = polled.lock().expect("fine").pop().expect("elected again");
    assert!(second > first && !polled.lock().expect("fine").contains(&first), "begun when it was over");
    polled.lock().expect("fine").clear();
    assert_eq!(depose().await, second);
    assert!(timeout(TTL * 3, &mut run).await.is_err());
    assert!(!polled.lock().expect("fine").contains(&second), "polled when it was over");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_frees_the_seat() {
    let memory = Memory::new();
    let a = candidate(&memory, "a").await;
    let run = a.run(|_| std::future::pending::<Result<Next, Infallible>>());
    assert!(timeout(TTL, run).await.is_err());
    let mut observer = a.observe();
    while observer.leader().await.is_some() {
        observer.next().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_better_candidate_gets_the_seat_after_the_minimum_tenure() {
    let memory = Memory::new();
    let preemption = Preemption { margin: 1, min_tenure: TTL * 3 };
    let a = builder(&memory, "a").priority(1).preempt(preemption).build().await.expect("good");
    let b = builder(&memory, "b").priority(2).preempt(preemption).build().await.expect("good");
    let scoped = |election: Election| {
        tokio::spawn(async move {
            election
                .run(|leadership| async move {
                    leadership.stopping().await;
                    Ok::<_, Infallible>(Next::Resign)
                })
                .await
        })
    };
    let mut observer = a.observe();
    let (first, begun) = (scoped(a.clone()), Instant::now());
    while observer.leader().await.is_none() {
        observer.next().await;
    }
    let second = scoped(b);
    while observer.next().await.is_none_or(|it| it.priority == 1) {}
    assert!(begun.elapsed() >= TTL * 3 && begun.elapsed() < TTL * 4, "{:?}", begun.elapsed());
    assert!(
        timeout(TTL * 20, async { while observer.next().await.is_none_or(|it| it.priority == 2) {} }).await.is_err(),
        "no flapping"
    );
    first.abort();
    second.abort();
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_fit_neither_contends_nor_stays() {
    let memory = Memory::new();
    let fit = Arc::new(AtomicBool::new(false));
    let probed = Arc::clone(&fit);
    let probe = move || {
        let fit = probed.load(Ordering::SeqCst);
        async move { if fit { Ok(()) } else { Err("replication lags".to_owned()) } }
    };
    let a = builder(&memory, "a").health(Duration::from_secs(1), probe).build().await.expect("good");
    assert!(a.campaign_within(TTL * 3).await.expect("answers").is_none());
    fit.store(true, Ordering::SeqCst);
    let leadership = lead(&a).await;
    fit.store(false, Ordering::SeqCst);
    assert_eq!(leadership.stopping().await, Reason::HealthFailed);
    leadership.resign().await.expect("released");
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_fit_any_more_is_not_waited_for_in_line() {
    let memory = Memory::new();
    let fit = Arc::new(AtomicBool::new(true));
    let probed = Arc::clone(&fit);
    let probe = move || {
        let fit = probed.load(Ordering::SeqCst);
        async move { if fit { Ok(()) } else { Err("replication lags".to_owned()) } }
    };
    let (a, c) = (candidate(&memory, "a").await, candidate(&memory, "c").await);
    let b = builder(&memory, "b").health(PROBED_EVERY, probe).build().await.expect("good");
    let first = lead(&a).await;
    let in_line = async |count: usize| {
        while a.look().await.expect("answers").candidates.len() != count {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let unfit = tokio::spawn(async move { b.campaign().await });
    in_line(1).await;
    let next = tokio::spawn(async move { c.campaign().await });
    in_line(2).await;
    let began = Instant::now();
    fit.store(false, Ordering::SeqCst);
    in_line(1).await;
    first.resign().await.expect("released");
    let second = next.await.expect("does not panic").expect("elected");
    assert!(began.elapsed() < PROBED_EVERY * 2, "{:?}", began.elapsed());
    // Fit again, it stands in line anew.
    fit.store(true, Ordering::SeqCst);
    in_line(1).await;
    second.resign().await.expect("released");
    unfit.await.expect("does not panic").expect("elected").resign().await.expect("released");
}

#[tokio::test(start_paused = true)]
async fn as_many_lead_as_there_are_seats() {
    let memory = Memory::new();
    let election = |who| builder(&memory, who).seats(2).build();
    let (a, b, c) = (election("a").await.expect("good"), election("b").await.expect("good"), election("c").await.expect("good"));
    let (first, second) = (lead(&a).await, lead(&b).await);
    assert!(first.token() != second.token());
    assert!(c.try_campaign().await.expect("answers").is_none());
    first.resign().await.expect("released");
    let third = lead(&c).await;
    assert!(third.token() > second.token() && second.check().is_ok());
}

#[tokio::test(start_paused = true)]
async fn of_several_leaders_any_may_go_first_and_is_not_named_any_more() {
    let memory = Memory::new();
    let mut leaderships = Vec::new();
    let mut elections = Vec::new();
    for who in ["a", "b", "c"] {
        let election = builder(&memory, who).seats(3).build().await.expect("good");
        leaderships.push(lead(&election).await);
        elections.push(election);
    }
    let mut observer = elections[0].observe();
    assert_eq!(observer.leader().await.map(|it| it.token), Some(leaderships[0].token()));
    leaderships.pop().expect("c").resign().await.expect("released");
    leaderships.remove(0).resign().await.expect("released");
    let next = timeout(TTL, observer.next()).await.expect("the first has gone").expect("b leads");
    assert_eq!(next.token, leaderships[0].token());
    elections[1].proclaim(&leaderships[0], "10.0.0.1:81").await.expect("in office");
    assert_eq!(timeout(TTL, observer.next()).await.expect("told").map(|it| it.value).as_deref(), Some("10.0.0.1:81"));
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_of_another_leader_is_remembered_in_the_next_campaign() {
    let engine = Troubled::new(&Memory::new(), 0);
    let (a, b) = (troubled(&engine, "a", 0).await, troubled(&engine, "b", 0).await);
    lead(&a).await.resign().await.expect("released");
    let first = lead(&a).await;
    assert!(b.try_campaign().await.expect("answers").is_none());
    engine.has_forgotten.store(true, Ordering::SeqCst);
    assert!(lead(&b).await.token() > first.token(), "the engine has lost its memory, and b has not");
}

#[tokio::test(start_paused = true)]
async fn what_the_leader_proclaims_is_seen() {
    let memory = Memory::new();
    let a = builder(&memory, "a").value("10.0.0.1:80").build().await.expect("good");
    let mut observer = a.observe();
    assert!(observer.leader().await.is_none(), "nobody is an answer");
    let leadership = lead(&a).await;
    assert_eq!(observer.next().await.map(|it| it.value).as_deref(), Some("10.0.0.1:80"));
    a.proclaim(&leadership, "10.0.0.1:81").await.expect("in office");
    assert_eq!(observer.next().await.map(|it| it.value).as_deref(), Some("10.0.0.1:81"));
}

#[tokio::test(start_paused = true)]
async fn what_is_to_be_noted_is_on_record_before_the_leadership_is_known() {
    let memory = Memory::new();
    let a = builder(&memory, "a").note(|identity| format!("led by {identity}")).build().await.expect("fits");
    let leadership = lead(&a).await;
    assert!(leadership.is_noted());
    let noted = memory.look(leadership.election()).await.expect("memory is well").notes;
    assert_eq!((noted[0].token, noted[0].text.clone()), (leadership.token(), format!("led by {}", leadership.identity())));
    leadership.resign().await.expect("memory is well");
    assert!(!lead(&candidate(&memory, "b").await).await.is_noted(), "it has said nothing");
}

#[tokio::test(start_paused = true)]
async fn figures_are_counted_in_the_applications_registry() {
    let memory = Memory::new();
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = Arc::new(Metrics::register(&mut registry));
    let a = builder(&memory, "a").metrics(Arc::clone(&metrics)).build().await.expect("good");
    let standby = builder(&memory, "b").name("other").metrics(Arc::clone(&metrics)).build().await.expect("good");
    let c = builder(&memory, "c").name("other").build().await.expect("good");
    let _other = lead(&c).await;
    assert!(standby.try_campaign().await.expect("answers").is_none());
    let leadership = lead(&a).await;
    sleep(TTL - Duration::from_secs(1)).await;
    let text = |registry: &_| {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).expect("a string takes anything");
        text
    };
    assert!(text(&registry).contains("incumbent_in_office{election=\"billing\"} 1"));
    assert!(text(&registry).contains("incumbent_in_office{election=\"other\"} 0"), "a standby is seen");
    leadership.resign().await.expect("released");
    let shown = text(&registry);
    for line in [
        "incumbent_in_office{election=\"billing\"} 0",
        "incumbent_leadership_changes_total{election=\"billing\",reason=\"resigned\"} 1",
        "incumbent_election_duration_seconds_count{election=\"billing\"} 1",
        "incumbent_call_duration_seconds_count{election=\"billing\",call=\"renew\"} 3",
        "incumbent_deadline_margin_seconds_count{election=\"billing\"} 3",
    ] {
        assert!(shown.contains(line), "{line} is not in\n{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_refused_in_one_line() {
    for (url, word) in [
        ("gopher://h/x", "no engine"),
        ("memory:", "names no election"),
        ("memory:room/two words", "' '"),
        ("nonsense", "no URL"),
        ("memory:room/x?colour=red", "no option"),
    ] {
        let why = Election::on(url).build().await.expect_err(url).to_string();
        assert!(why.contains(word) && !why.contains('\n'), "{url}: {why}");
    }
    let memory = Memory::new();
    let long = Timing::of(Duration::from_secs(86_400)).build().expect("long, but good");
    assert!(builder(&memory, "a").timing(long).build().await.is_ok());
    assert!(builder(&memory, "a").seats(0).build().await.expect_err("no seat").to_string().contains("leaders at once"));
}

/// Memory, with what goes wrong between it and its users.
struct Troubled {
    memory: Memory,
    /// What it has after it lost its memory.
    memory_anew: Memory,
    has_forgotten: AtomicBool,
    /// So many wishes do not get through.
    asks_lost: AtomicUsize,
    /// What its user's probe says.
    fit: AtomicBool,
    /// The next grant takes its time, and meanwhile its user is not fit any more.
    fails_when_granted: AtomicBool,
    /// Giving a seat back takes its time, and meanwhile its user is fit again.
    recovers_when_released: AtomicBool,
    /// To whom the seats that were given back should go.
    farewells: std::sync::Mutex<Vec<Option<String>>>,
    /// How candidacies ended.
    partings: std::sync::Mutex<Vec<&'static str>>,
    /// How often somebody has begun to listen for hints.
    watches: AtomicUsize,
    /// It has a bug.
    panics_when_watched: AtomicBool,
}

impl Troubled {
    fn new(memory: &Memory, asks_lost: usize) -> Arc<Troubled> {
        Arc::new(Troubled {
            memory: memory.clone(),
            memory_anew: Memory::new(),
            has_forgotten: AtomicBool::new(false),
            asks_lost: AtomicUsize::new(asks_lost),
            fit: AtomicBool::new(true),
            fails_when_granted: AtomicBool::new(false),
            recovers_when_released: AtomicBool::new(false),
            farewells: std::sync::Mutex::default(),
            partings: std::sync::Mutex::default(),
            watches: AtomicUsize::new(0),
            panics_when_watched: AtomicBool::new(false),
        })
    }

    fn memory(&self) -> &Memory {
        if self.has_forgotten.load(Ordering::SeqCst) { &self.memory_anew } else { &self.memory }
    }
}

#[async_trait]
impl Engine for Troubled {
    fn guarantees(&self) -> Guarantees {
        self.memory().guarantees()
    }

    fn accepts(&self, election: &Name) -> Result<(), Error> {
        self.memory().accepts(election)
    }

    async fn claim(&self, election: &Name, bid: &Bid) -> Result<Claim, Error> {
        let claim = self.memory().claim(election, bid).await;
        if let Ok(Claim::Granted(_)) = claim
            && self.fails_when_granted.load(Ordering::SeqCst)
        {
            self.fit.store(false, Ordering::SeqCst);
            sleep(PROBED_EVERY * 2).await;
        }
        claim
    }

    async fn renew(&self, election: &Name, bid: &Bid, token: Token) -> Result<Renewal, Error> {
        self.memory().renew(election, bid, token).await
    }

    async fn release(&self, election: &Name, bid: &Bid, token: Token, farewell: &Farewell) -> Result<(), Error> {
        self.farewells.lock().expect("nobody panics with it").push(farewell.to.clone());
        if self.recovers_when_released.load(Ordering::SeqCst) {
            self.fit.store(true, Ordering::SeqCst);
            sleep(PROBED_EVERY * 2).await;
        }
        self.memory().release(election, bid, token, farewell).await
    }

    async fn look(&self, election: &Name) -> Result<Board, Error> {
        self.memory().look(election).await
    }

    async fn inquire(&self, election: &Name, bid: &Bid) -> Result<Seat, Error> {
        self.memory().inquire(election, bid).await
    }

    async fn withdraw(&self, election: &Name, bid: &Bid) -> Result<(), Error> {
        self.partings.lock().expect("nobody panics with it").push("withdrawn");
        self.memory().withdraw(election, bid).await
    }

    async fn depart(&self, election: &Name, bid: &Bid) -> Result<(), Error> {
        self.partings.lock().expect("nobody panics with it").push("departed");
        self.memory().withdraw(election, bid).await
    }

    async fn proclaim(&self, election: &Name, bid: &Bid, token: Token, value: &str) -> Result<(), Error> {
        self.memory().proclaim(election, bid, token, value).await
    }

    async fn ask(&self, election: &Name, wish: &Wish) -> Result<(), Error> {
        if self.asks_lost.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |it| it.checked_sub(1)).is_ok() {
            return Err(Error::unknown("the request was lost"));
        }
        self.memory().ask(election, wish).await
    }

    async fn raise(&self, election: &Name, above: Token) -> Result<(), Error> {
        self.memory().raise(election, above).await
    }

    async fn annotate(&self, election: &Name, token: Token, text: &str) -> Result<(), Error> {
        self.memory().annotate(election, token, text).await
    }

    fn watch(&self, election: &Name, bid: Option<&Bid>) -> BoxStream<'static, Result<(), Error>> {
        assert!(!self.panics_when_watched.load(Ordering::SeqCst), "an engine with a bug");
        self.watches.fetch_add(1, Ordering::SeqCst);
        self.memory().watch(election, bid)
    }
}

async fn troubled(engine: &Arc<Troubled>, who: &str, priority: i32) -> Election {
    Election::in_test(Arc::clone(engine) as Arc<dyn Engine>, "billing")
        .identity(Identity::named(who).expect("a good name"))
        .timing(Timing::of(TTL).build().expect("a good ttl"))
        .priority(priority)
        .preempt(Preemption { margin: 1, min_tenure: TTL })
        .build()
        .await
        .expect("memory takes anything")
}

#[tokio::test(start_paused = true)]
async fn one_that_has_given_its_seat_back_need_not_be_taken_out_of_the_line() {
    let engine = Troubled::new(&Memory::new(), 0);
    let (a, b) = (troubled(&engine, "a", 0).await, troubled(&engine, "b", 0).await);
    // What is dropped ends by itself, a moment later.
    let partings = async || {
        sleep(TTL).await;
        std::mem::take(&mut *engine.partings.lock().expect("nobody panics with it"))
    };
    let first = a.campaign().await.expect("free");
    assert!(b.campaign_within(TTL).await.expect("memory is well").is_none());
    assert_eq!(partings().await, ["withdrawn"], "it stood in line");
    first.resign().await.expect("memory is well");
    assert_eq!(partings().await, ["departed"]);
    // Whose seat is gone has not given it back.
    let second = b.campaign().await.expect("free");
    engine.has_forgotten.store(true, Ordering::SeqCst);
    second.lost().await;
    drop(second);
    assert_eq!(partings().await, ["withdrawn"]);
}

#[tokio::test(start_paused = true)]
async fn a_better_candidate_whose_request_was_lost_asks_again() {
    let engine = Troubled::new(&Memory::new(), 2);
    let (a, b) = (troubled(&engine, "a", 1).await, troubled(&engine, "b", 2).await);
    let first = lead(&a).await;
    let waiting = tokio::spawn(async move { b.campaign().await });
    let reason = timeout(TTL * 6, first.stopping()).await.expect("asked in the end");
    assert_eq!(reason, Reason::HandedOver);
    first.resign().await.expect("released");
    waiting.await.expect("does not panic").expect("elected").resign().await.expect("released");
}

#[tokio::test(start_paused = true)]
async fn it_is_known_how_long_the_engine_took_to_answer() {
    let engine = Troubled::new(&Memory::new(), 0);
    let a = troubled(&engine, "a", 1).await;
    assert_eq!(a.answered_in(), None);
    engine.fails_when_granted.store(true, Ordering::SeqCst);
    let _leadership = lead(&a).await;
    assert_eq!(a.answered_in(), Some(PROBED_EVERY * 2));
}

#[tokio::test(start_paused = true)]
async fn a_leadership_that_is_dropped_after_it_was_lost_holds_up_nobody() {
    let memory = Memory::new();
    let a = candidate(&memory, "a").await;
    let leadership = lead(&a).await;
    let (name, token) = (Name::new("billing").expect("a good name"), leadership.token());
    let identity = leadership.identity().clone();
    let bid = Bid { identity, ttl: TTL, value: String::new(), priority: 0, seats: 1, seen: None, note: None };
    memory.release(&name, &bid, token, &Farewell { reason: Reason::Evicted, to: None }).await.expect("memory is well");
    timeout(TTL, leadership.lost()).await.expect("a renewal finds out");
    drop(leadership);
    timeout(TTL * 10, a.close()).await.expect("nothing is held or open any more");
}

/// A candidate that is fit while its engine says so.
async fn probed(engine: &Arc<Troubled>) -> Election {
    let probed = Arc::clone(engine);
    let probe = move || {
        let fit = probed.fit.load(Ordering::SeqCst);
        async move { if fit { Ok(()) } else { Err("replication lags".to_owned()) } }
    };
    let election = Election::in_test(Arc::clone(engine) as Arc<dyn Engine>, "billing")
        .timing(Timing::of(TTL).build().expect("a good ttl"))
        .health(PROBED_EVERY, probe);
    election.build().await.expect("memory takes anything")
}

#[tokio::test(start_paused = true)]
async fn one_that_is_fit_again_or_has_lost_its_seat_listens_for_hints_anew() {
    let (memory, name) = (Memory::new(), Name::new("billing").expect("a good name"));
    let bid_of = |identity: &Identity| {
        let identity = identity.clone();
        Bid { identity, ttl: TTL, value: String::new(), priority: 0, seats: 1, seen: None, note: None }
    };
    let other = bid_of(&Identity::named("other").expect("a good name"));
    let engine = Troubled::new(&memory, 0);
    let watches = async |count: usize| {
        let waits = async {
            while engine.watches.load(Ordering::SeqCst) < count {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(TTL, waits).await.unwrap_or_else(|_| panic!("it listens {count} times"));
    };
    memory.claim(&name, &Bid { ttl: TTL * 100, ..other.clone() }).await.expect("memory is well");
    let a = probed(&engine).await;
    let leads = a.run(async |leadership| {
        // Somebody has taken the seat away and given it to another.
        let farewell = Farewell { reason: Reason::Evicted, to: None };
        let own = bid_of(leadership.identity());
        memory.release(&name, &own, leadership.token(), &farewell).await.expect("memory is well");
        memory.claim(&name, &Bid { ttl: TTL * 100, ..other.clone() }).await.expect("memory is well");
        leadership.lost().await;
        Ok::<_, Infallible>(Next::Resign)
    });
    let tells = async {
        watches(1).await;
        engine.fit.store(false, Ordering::SeqCst);
        sleep(PROBED_EVERY * 4).await;
        assert_eq!(engine.watches.load(Ordering::SeqCst), 1);
        engine.fit.store(true, Ordering::SeqCst);
        watches(2).await;
        let held = memory.look(&name).await.expect("memory is well").leaders.remove(0).token;
        memory.release(&name, &other, held, &Farewell { reason: Reason::Resigned, to: None }).await.expect("memory is well");
        // In office, and in line again.
        watches(4).await;
    };
    tokio::select! {
        _ = leads => panic!("it never wants to end"),
        () = tells => {}
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_candidacy_that_ended_with_a_panic() {
    let memory = Memory::new();
    let _leadership = lead(&candidate(&memory, "other").await).await;
    let engine = Troubled::new(&memory, 0);
    engine.panics_when_watched.store(true, Ordering::SeqCst);
    let a = probed(&engine).await;
    let why = timeout(TTL, a.campaign()).await.expect("an answer").expect_err("nobody contends any more");
    assert_eq!(why.kind(), Kind::Refused, "{why}");
    timeout(TTL * 10, a.close()).await.expect("nothing is held or open any more");
}

/// Two operators ask for the same: the second wish comes to whom the first has brought in.
#[tokio::test(start_paused = true)]
async fn whoever_is_asked_to_hand_over_to_itself_stays_and_one_who_has_left_is_not_asked() {
    let memory = Memory::new();
    let (a, b) = (candidate(&memory, "a").await, candidate(&memory, "b").await);
    let first = lead(&a).await;
    let leader = a.look().await.expect("memory answers").leaders.remove(0);
    first.resign().await.expect("released");
    let second = lead(&b).await;
    let why = a.ask_this(&leader, Demand::HandOver("b".to_owned()), "me").await.expect_err("it leads no longer");
    assert_eq!(why.kind(), Kind::Refused);
    a.ask(Demand::HandOver("b".to_owned()), "me").await.expect("b is asked");
    sleep(TTL * 6).await;
    assert!(matches!(second.state(), State::Held), "{:?}", second.state());
}

#[tokio::test(start_paused = true)]
async fn a_seat_is_handed_over_by_the_leadership_of_which_it_was_said_and_no_later_one() {
    let engine = Troubled::new(&Memory::new(), 0);
    let a = probed(&engine).await;
    let fails = Arc::clone(&engine);
    let running = a.run(async |_| {
        fails.fails_when_granted.store(true, Ordering::SeqCst);
        Ok::<_, Infallible>(Next::HandOver("b".to_owned()))
    });
    // The seat is handed over, b does not come for it, and what is granted then is not wanted any more.
    assert!(timeout(TTL * 5, running).await.is_err());
    assert_eq!(*engine.farewells.lock().expect("nobody panics with it"), [Some("b".to_owned()), None]);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_fit_again_while_it_gives_its_seat_back_for_good_does_not_contend_for_it() {
    for how in ["resigns", "hands over", "quits", "fails"] {
        let engine = Troubled::new(&Memory::new(), 0);
        engine.recovers_when_released.store(true, Ordering::SeqCst);
        let a = probed(&engine).await;
        let is_unfit = async |leadership: &Leadership| {
            engine.fit.store(false, Ordering::SeqCst);
            assert_eq!(leadership.stopping().await, Reason::HealthFailed);
        };
        let leaving = async {
            match how {
                "resigns" | "hands over" => {
                    let leadership = lead(&a).await;
                    is_unfit(&leadership).await;
                    let left = if how == "resigns" { leadership.resign().await } else { leadership.hand_over("b").await };
                    left.expect("released");
                }
                _ => {
                    let result = a.run(async |leadership| {
                        is_unfit(&leadership).await;
                        if how == "quits" { Ok(Next::Quit) } else { Err("disk full") }
                    });
                    assert_eq!(result.await.is_ok(), how == "quits");
                }
            }
        };
        timeout(TTL * 5, leaving).await.expect(how);
        let board = a.look().await.expect("answers");
        assert!(board.leaders.is_empty() && board.past.len() == 1, "{how}: {board:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_says_no_panics_or_hangs_keeps_from_leading_and_an_only_try_says_so() {
    for (how, said) in [("no", "replication lags"), ("panics", "panicked"), ("hangs", "said nothing")] {
        let memory = Memory::new();
        let probe = move || async move {
            match how {
                "no" => Err("replication lags".to_owned()),
                "panics" => panic!("a probe with a bug"),
                _ => std::future::pending().await,
            }
        };
        let a = builder(&memory, "a").health(Duration::from_secs(1), probe).build().await.expect("good");
        let why = timeout(TTL * 12, a.try_campaign()).await.expect("an answer").expect_err(how);
        assert!(why.to_string().contains(said), "{why}");
    }
}
