//! A thousand elections held by one process for a minute: what they cost it, and whether one was lost. Each engine's are held by a process of its
//! own, all at the same time.

use std::process::{Command, Stdio};
use std::time::Duration;

use incumbent::{Election, Timing};
use incumbent_testbed::{Etcd, Server, ZooKeeper};

use crate::TTL;

/// The word by which this program is told to be such a process.
pub(crate) const HOLD: &str = "hold";

const ELECTIONS: usize = 1_000;
const HELD: Duration = Duration::from_secs(60);

pub(crate) fn held() {
    println!("{ELECTIONS} elections held by one process for {HELD:?}, ttl {TTL:?}");
    let etcd = Etcd::recent().start().expect("etcd starts");
    let zookeeper = ZooKeeper::debian().start().expect("ZooKeeper starts");
    let urls = [
        ("etcd", format!("etcd://{}/bench", etcd.address())),
        ("zookeeper", format!("zookeeper://{}/bench", zookeeper.address())),
    ];
    let program = std::env::current_exe().expect("runs");
    let holding = urls.map(|(name, url)| {
        let child = Command::new(&program).args([HOLD, &url]).stdout(Stdio::piped()).spawn().expect("starts");
        (name, child)
    });
    for (name, child) in holding {
        let said = child.wait_with_output().expect("ends");
        print!("  {name:<11}{}", String::from_utf8_lossy(&said.stdout));
    }
}

/// Holds them and says how it went.
pub(crate) async fn hold(url: &str) {
    let timing = Timing::of(TTL).build().expect("a good ttl");
    let mut held = Vec::with_capacity(ELECTIONS);
    for at in 0..ELECTIONS {
        let election = Election::on(url).name(format!("e{at}")).timing(timing).build().await.expect("the engine is there");
        held.push(election.campaign().await.expect("nobody else contends"));
    }
    let cpu = cpu_time();
    tokio::time::sleep(HELD).await;
    let used = cpu_time() - cpu;
    let lost = held.iter().filter(|it| it.check().is_err()).count();
    println!("{lost} lost, {:.2} % of a core", used.as_secs_f64() / HELD.as_secs_f64() * 100.0);
    for leadership in held {
        leadership.resign().await.expect("released");
    }
}

/// What this process has used of the processor, in its own and in the kernel's code.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    // Behind the program's name, which may contain anything: user and system time are the 12th and 13th, in hundredths of a second.
    let rest = text.rsplit_once(')').expect("has a name").1;
    let ticks: u64 = rest.split_whitespace().skip(11).take(2).map(|it| it.parse::<u64>().expect("a number")).sum();
    Duration::from_millis(ticks * 10)
}
