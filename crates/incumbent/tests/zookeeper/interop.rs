//! In one election with kazoo (the real one), each sees the other's.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use incumbent::engine::{Bid, Claim, Renewal};
use incumbent_testbed::{Server as _, python};

use crate::{ZOOKEEPER, bid, claim, election, farewell, open};

/// Says `contends`, then `leads` and who contends; gives the office up when it is told to, and says so.
const CANDIDATE: &str = r#"
import sys, threading
from kazoo.client import KazooClient
address, path, name = sys.argv[1:4]
client = KazooClient(hosts=address)
client.start()
election = client.Election(path, name)
one_at_a_time = threading.Lock()
def say(*words):
    with one_at_a_time:
        print(*words, flush=True)
def lead():
    say("leads", *election.contenders())
    sys.stdin.readline()
    say("leaves")
contends = threading.Thread(target=election.run, args=(lead,))
contends.start()
while name not in election.contenders():
    pass
say("contends", *election.contenders())
contends.join()
client.stop()
"#;

struct Kazoo {
    process: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Kazoo {
    fn start(path: &str, name: &str) -> Kazoo {
        let mut process = Command::new(python().expect("installed"))
            .args(["-c", CANDIDATE, &ZOOKEEPER.server().address(), path, name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python starts");
        let input = process.stdin.take().expect("piped");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        Kazoo { process, input, lines }
    }

    fn says(&mut self) -> Vec<String> {
        let line = self.lines.next().expect("it goes on").expect("it is text");
        line.split(' ').map(str::to_owned).collect()
    }
}

impl Drop for Kazoo {
    fn drop(&mut self) {
        // One that has ended is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn kazoo_and_ours_contend_for_one_seat_both_ways() {
    let engine = open(&format!("zookeeper://{}/interop?layout=kazoo&tick-ms=100", ZOOKEEPER.server().address())).await;
    let job = election("job");
    // A ttl that outlasts the steps of this test, in which nobody renews.
    let ours = |who: &str| Bid { ttl: std::time::Duration::from_secs(30), ..bid(who) };
    let (a, b) = (ours("a"), ours("b"));
    let mut kazoo = Kazoo::start("/interop/job", "py-1");
    let mut said = [kazoo.says(), kazoo.says()];
    said.sort();
    assert_eq!(said.map(|it| it[0].clone()), ["contends", "leads"]);
    let theirs = match engine.claim(&job, &a).await.expect("ZooKeeper is well") {
        Claim::Occupied { leader: Some(leader), .. } => leader,
        other @ (Claim::Granted(_) | Claim::Occupied { leader: None, .. }) => panic!("kazoo leads: {other:?}"),
    };
    assert_eq!((theirs.identity.as_str(), theirs.heeds_wishes), ("py-1", false));
    // Another kazoo stands behind us, and sees all of us in order.
    let mut second = Kazoo::start("/interop/job", "py-2");
    assert_eq!(second.says(), ["contends", "py-1", a.identity.as_str(), "py-2"]);
    assert!(crate::try_claim(&*engine, &job, &b).await.is_none());
    writeln!(kazoo.input).expect("it listens");
    assert_eq!(kazoo.says(), ["leaves"]);
    let grant = claim(&*engine, &job, &a).await;
    assert!(grant.token > theirs.token);
    assert!(matches!(engine.renew(&job, &a, grant.token).await, Ok(Renewal::Kept { .. })));
    let board = engine.look(&job).await.expect("ZooKeeper is well");
    let waiting: Vec<&str> = board.candidates.iter().map(|it| it.identity.as_str()).collect();
    assert_eq!((board.leaders[0].identity.as_str(), waiting), (a.identity.as_str(), vec!["py-2", b.identity.as_str()]));
    engine.release(&job, &a, grant.token, &farewell(None)).await.expect("released");
    assert_eq!(second.says(), ["leads", "py-2", b.identity.as_str()]);
    assert!(crate::try_claim(&*engine, &job, &b).await.is_none(), "kazoo leads");
    writeln!(second.input).expect("it listens");
    assert_eq!(second.says(), ["leaves"]);
    assert!(claim(&*engine, &job, &b).await.token > grant.token);
}
