//! From a death or a silence to the next election won, and how many operations have failed on the way.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use incumbent::{Election, clock};
use rustix::process::Signal;

use super::cable::Cable;
use super::clusters::{Servers, send};
use super::shown;

const ROUNDS: usize = 20;
/// Long enough for everybody to have settled.
const SETTLED: Duration = Duration::from_millis(1500);
/// Who is not elected by then will not be.
const LONG: Duration = Duration::from_secs(60);

/// The leading node dies: when is the next election won?
pub(crate) fn node_killed(servers: &mut dyn Servers) {
    let mut course =
        of_the_leading_node(servers, |servers, at| servers.signal(at, Signal::KILL), |servers, at| servers.restart(at));
    println!("  {:<10} leading node killed, first election won after: {}", servers.name(), course.shown());
}

/// The leading node is told to end and is started again, as for an update: when is the next election won, and does anything fail?
pub(crate) fn node_terminated(servers: &mut dyn Servers) {
    let mut course = of_the_leading_node(servers, |servers, at| servers.terminate(at), |servers, at| servers.restart(at));
    println!("  {:<10} leading node told to end (SIGTERM), first election won after: {}", servers.name(), course.shown());
    assert!(course.failed == 0 || servers.name() != "incumbent", "nothing fails when a node of ours is told to end");
}

/// The leading node falls silent: when is the next election won?
pub(crate) fn node_paused(servers: &mut dyn Servers) {
    let signal = |signal| move |servers: &mut dyn Servers, at: usize| servers.signal(at, signal);
    let mut course = of_the_leading_node(servers, signal(Signal::STOP), signal(Signal::CONT));
    println!("  {:<10} leading node paused, first election won after: {}", servers.name(), course.shown());
}

/// Nothing that the leading node sends arrives any more: when is the next election won?
pub(crate) fn node_cut_off(servers: &mut dyn Servers) {
    let count = servers.processes().len();
    let cables: Vec<Cable> = (0..count).map(|at| Cable::of(servers, at)).collect();
    let mut course = of_the_leading_node(servers, |_, at| cables[at].cut(), |_, at| cables[at].mend());
    println!("  {:<10} leading node cut off, first election won after: {}", servers.name(), course.shown());
    cables.into_iter().for_each(Cable::end);
}

/// What the client says of an operation.
enum Said {
    /// An election was won.
    Won { began: Instant, at: Instant },
    /// It or its end failed.
    Failed,
}

/// How it went for the client, round by round.
struct Course {
    /// From the harm to the first election that was begun after it and won.
    took: Vec<Duration>,
    /// The longest time between two elections that were won, in each round.
    gaps: Vec<Duration>,
    done: usize,
    failed: usize,
}

impl Course {
    fn shown(&mut self) -> String {
        let (took, gaps) = (shown(&mut self.took), shown(&mut self.gaps));
        format!("{took}; longest time without: {gaps}; {} of {} operations failed", self.failed, self.done + self.failed)
    }

    /// Counts what was said; the last election that was won by then.
    fn hear(&mut self, said: impl Iterator<Item = Said>, until: Instant) -> Option<Instant> {
        let mut last = None;
        for it in said {
            match it {
                Said::Won { at, .. } => {
                    self.done += 1;
                    last = Some(at).filter(|it| *it <= until).or(last);
                }
                Said::Failed => self.failed += 1,
            }
        }
        last
    }
}

fn of_the_leading_node(
    servers: &mut dyn Servers,
    harm: impl Fn(&mut dyn Servers, usize),
    heal: impl Fn(&mut dyn Servers, usize),
) -> Course {
    // A client that elects and resigns, over and over, and says when each election that it won was begun and won.
    let (speaker, said) = mpsc::channel();
    let url = servers.url();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(elect_over_and_over(&url, &speaker));
    });
    let mut course = Course { took: Vec::new(), gaps: Vec::new(), done: 0, failed: 0 };
    for _ in 0..ROUNDS {
        std::thread::sleep(SETTLED);
        let leader = servers.leader();
        let at = Instant::now();
        // What was said until now is of the time before.
        let mut last = course.hear(said.try_iter(), at).unwrap_or(at);
        let mut gap = Duration::ZERO;
        harm(servers, leader);
        // Won, and not by an answer that was on its way already.
        let first = loop {
            match said.recv_timeout(LONG) {
                Ok(Said::Won { began, at: won }) => {
                    course.done += 1;
                    gap = gap.max(won.saturating_duration_since(last));
                    last = won;
                    if began >= at {
                        break Some(won);
                    }
                }
                Ok(Said::Failed) => course.failed += 1,
                Err(_) => break None,
            }
        };
        course.took.push(first.map_or(LONG, |when| when.saturating_duration_since(at)));
        course.gaps.push(if first.is_some() { gap } else { LONG });
        heal(servers, leader);
    }
    std::thread::sleep(SETTLED);
    course.hear(said.try_iter(), Instant::now());
    course
}

/// Until nobody listens.
async fn elect_over_and_over(url: &str, speaker: &mpsc::Sender<Said>) {
    let election = Election::on(url).name("failover").build().await.expect("they run");
    loop {
        let began = Instant::now();
        let said = match election.campaign().await {
            Ok(leadership) => {
                let won = Said::Won { began, at: Instant::now() };
                if speaker.send(won).is_err() {
                    return;
                }
                leadership.resign().await.is_err().then_some(Said::Failed)
            }
            Err(_) => Some(Said::Failed),
        };
        if let Some(failed) = said
            && speaker.send(failed).is_err()
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A process that leads dies: when does the next one lead?
pub(crate) fn client_killed(servers: &mut dyn Servers) {
    let ttl = servers.ttl();
    let (speaker, said) = mpsc::channel();
    let start = || Candidate::start(&servers.url(), ttl, &speaker);
    let mut candidates = [start(), start()];
    let next = || said.recv_timeout(LONG).expect("one is elected");
    let (mut leader, _) = next();
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        std::thread::sleep(SETTLED);
        // On a machine that is too busy for its ttl, leaders change by themselves.
        leader = said.try_iter().last().map_or(leader, |(last, _)| last);
        let at = candidates.iter().position(|it| it.process.id() == leader).expect("one of them");
        let killed = clock::now().as_nanos();
        send(leader.cast_signed(), Signal::KILL);
        candidates[at].process.wait().expect("a child of ours");
        let (heir, when) = next();
        took.push(Duration::from_nanos(when.saturating_sub(killed)));
        leader = heir;
        candidates[at] = start();
    }
    for candidate in &mut candidates {
        let _ = candidate.process.kill();
        let _ = candidate.process.wait();
    }
    println!("  {:<10} process that leads killed, ttl {ttl:?}, the next leads after: {}", servers.name(), shown(&mut took));
}

struct Candidate {
    process: Child,
}

impl Candidate {
    fn start(url: &str, ttl: Duration, speaker: &mpsc::Sender<(u32, u64)>) -> Candidate {
        let me = std::env::current_exe().expect("this program");
        let mut process = Command::new(me)
            .args(["candidate", url, &ttl.as_millis().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program");
        let (id, out, speaker) = (process.id(), process.stdout.take().expect("piped"), speaker.clone());
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let at = line.strip_prefix("elected ").and_then(|it| it.parse().ok()).expect("all that it says");
                let _ = speaker.send((id, at));
            }
        });
        Candidate { process }
    }
}

/// Contends, says when it is elected, and stays in office.
pub(crate) fn candidate(url: &str, ttl_ms: &str) {
    let ttl = Duration::from_millis(ttl_ms.parse().expect("milliseconds"));
    std::thread::spawn(|| {
        let _ = std::io::stdin().lines().count();
        // Whoever started this one is gone.
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let timing = incumbent::Timing::of(ttl).build().expect("a good ttl");
        let election = Election::on(url).name("client-killed").timing(timing).build().await.expect("they run");
        loop {
            let leadership = election.campaign().await.expect("nothing is wrong with it");
            let mut out = std::io::stdout().lock();
            writeln!(out, "elected {}", clock::now().as_nanos()).and_then(|()| out.flush()).expect("somebody listens");
            drop(out);
            leadership.lost().await;
        }
    });
}
