//! From a death or a silence to the next election won.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use incumbent::{Election, clock};
use rustix::process::Signal;

use super::clusters::{Servers, send};
use super::shown;

const ROUNDS: usize = 20;
/// Long enough for everybody to have settled.
const SETTLED: Duration = Duration::from_millis(1500);
/// Who is not elected by then will not be.
const LONG: Duration = Duration::from_secs(60);

/// The leading node dies: when is the next election won?
pub(crate) fn node_killed(servers: &mut dyn Servers) {
    let mut took =
        of_the_leading_node(servers, |servers, at| servers.signal(at, Signal::KILL), |servers, at| servers.restart(at));
    println!("  {:<10} leading node killed, first election won after: {}", servers.name(), shown(&mut took));
}

/// The leading node falls silent: when is the next election won?
pub(crate) fn node_paused(servers: &mut dyn Servers) {
    let signal = |signal| move |servers: &mut dyn Servers, at: usize| servers.signal(at, signal);
    let mut took = of_the_leading_node(servers, signal(Signal::STOP), signal(Signal::CONT));
    println!("  {:<10} leading node paused, first election won after: {}", servers.name(), shown(&mut took));
}

fn of_the_leading_node(
    servers: &mut dyn Servers,
    harm: impl Fn(&mut dyn Servers, usize),
    heal: impl Fn(&mut dyn Servers, usize),
) -> Vec<Duration> {
    // A client that elects and resigns, over and over, and says when each election that it won was begun and won.
    let (said, won) = mpsc::channel();
    let url = servers.url();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let election = Election::on(url).name("failover").build().await.expect("they run");
            loop {
                let began = Instant::now();
                let Ok(leadership) = election.campaign().await else { continue };
                if said.send((began, Instant::now())).is_err() {
                    return;
                }
                let _ = leadership.resign().await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    });
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        std::thread::sleep(SETTLED);
        let leader = servers.leader();
        let at = Instant::now();
        harm(servers, leader);
        // Won, and not by an answer that was on its way already.
        let first = std::iter::from_fn(|| won.recv_timeout(LONG).ok()).find(|(began, _)| *began >= at);
        took.push(first.map_or(LONG, |(_, when)| when.saturating_duration_since(at)));
        heal(servers, leader);
    }
    took
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
