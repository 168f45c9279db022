//! In one election with `etcdctl elect`, which is Go's `concurrency.Election`: never two leaders, and each sees the other.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use futures_util::StreamExt;
use incumbent::engine::{Board, Claim, Demand, Wish};
use incumbent::{Engine, Error};
use incumbent_testbed::Etcd;

use crate::support::{
    ETCD, LONG, PATIENCE, RECENT, bid, board, claim, engine, farewell, granted, jobs, leads, namespace, release, waits_behind,
};

/// Somebody who runs `etcdctl elect`.
struct Stranger {
    child: Child,
    lines: tokio::sync::mpsc::UnboundedReceiver<String>,
}

impl Stranger {
    fn new(etcd: &Etcd, arguments: &[&str]) -> Stranger {
        let mut command = etcd.etcdctl_command().expect("installed");
        let mut child = command.arg("elect").args(arguments).stdout(Stdio::piped()).spawn().expect("runs");
        let output = BufReader::new(child.stdout.take().expect("asked for"));
        let (sender, lines) = tokio::sync::mpsc::unbounded_channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Stranger { child, lines }
    }

    async fn says(&mut self) -> String {
        tokio::time::timeout(PATIENCE, self.lines.recv()).await.expect("in time").expect("it runs")
    }

    /// As Ctrl-C does: etcdctl resigns, if it leads, and ends.
    fn interrupt(&mut self) {
        let status = std::process::Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        assert!(status.expect("there is such a program").success());
        self.child.wait().expect("ours");
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for hints until the board is as wanted.
async fn until(engine: &dyn Engine, wanted: impl Fn(&Board) -> bool) -> Result<Board, Error> {
    let mut hints = engine.watch(&jobs(), None);
    loop {
        let board = engine.look(&jobs()).await?;
        if wanted(&board) {
            return Ok(board);
        }
        tokio::time::timeout(PATIENCE, hints.next()).await.expect("in time").expect("goes on")?;
    }
}

#[tokio::test]
async fn ours_first_then_etcdctl_then_ours() {
    for etcd in [ETCD.server(), RECENT.server()] {
        let namespace = namespace();
        let name = format!("{namespace}/jobs");
        let engine = engine(etcd, &namespace).await;
        let a = bid("a", LONG);
        let first = granted(&*engine, &a).await;

        let mut observer = Stranger::new(etcd, &["-l", &name]);
        let key = observer.says().await;
        assert!(key.starts_with(&format!("{name}/")), "{key}");
        assert_eq!(observer.says().await, "at-a");

        let mut stranger = Stranger::new(etcd, &[&name, "from-go"]);
        let board = until(&*engine, |it| it.candidates.len() == 1).await.expect("etcd answers");
        assert!(board.candidates[0].identity.as_str().ends_with(" from-go"), "{board:?}");
        assert_eq!(board.leaders[0].token, first.token);

        release(&*engine, &a, first.token).await;
        assert!(stranger.says().await.starts_with(&name));
        assert_eq!(stranger.says().await, "from-go");
        let leader = match claim(&*engine, &a).await {
            Claim::Occupied { leader, .. } => leader.expect("etcd tells"),
            Claim::Granted(grant) => panic!("two leaders: {grant:?}"),
        };
        assert_eq!((leader.value.as_str(), leader.heeds_wishes), ("from-go", false));
        assert!(leader.token > first.token);
        let wish = Wish { token: leader.token, what: Demand::Evict, by: "me".into() };
        let why = engine.ask(&jobs(), &wish).await.expect_err("it reads none").to_string();
        assert!(why.contains("not one of ours"), "{why}");

        let ((), third) = tokio::join!(
            async {
                tokio::task::yield_now().await;
                stranger.interrupt()
            },
            leads(&*engine, &a)
        );
        assert!(third.token > leader.token);
        assert!(observer.says().await.starts_with(&name));
        assert_eq!(observer.says().await, "from-go");
        observer.says().await;
        assert_eq!(observer.says().await, "at-a");
    }
}

#[tokio::test]
async fn a_stranger_in_line_is_never_passed() {
    let etcd = ETCD.server();
    let namespace = namespace();
    let name = format!("{namespace}/jobs");
    let (one, two, three) = (engine(etcd, &namespace).await, engine(etcd, &namespace).await, engine(etcd, &namespace).await);
    let (a, b, c) = (bid("a", LONG), bid("b", LONG), bid("c", LONG));
    let first = granted(&*one, &a).await;
    waits_behind(&*two, &b).await;
    let mut stranger = Stranger::new(etcd, &[&name, "from-go"]);
    until(&*one, |it| it.candidates.len() == 2).await.expect("etcd answers");
    waits_behind(&*three, &c).await;
    one.release(&jobs(), &a, first.token, &farewell(Some("c"))).await.expect("answers");
    assert!(stranger.says().await.starts_with(&name), "the stranger stood before c, and keeps its turn");
    assert!(waits_behind(&*two, &b).await.as_str().ends_with(" from-go"), "b was passed");
    assert_eq!(board(&*one).await.1, ["c", "b"]);
    stranger.interrupt();
    leads(&*three, &c).await;
}

#[tokio::test]
async fn many_of_both_kinds_take_turns_and_never_lead_together() {
    let etcd = ETCD.server();
    let namespace = namespace();
    let name = format!("{namespace}/jobs");
    let ours = engine(etcd, &namespace).await;
    let mut last = None;
    let mut stranger = Stranger::new(etcd, &[&name, "go-0"]);
    for round in 1..6 {
        let a = bid("a", LONG);
        let leads_now = stranger.says().await;
        assert_eq!(stranger.says().await, format!("go-{}", round - 1));
        let leader = waits_behind(&*ours, &a).await;
        assert!(leader.as_str().starts_with(&leads_now), "{leader:?} and {leads_now}");
        let mut next = Stranger::new(etcd, &[&name, &format!("go-{round}")]);
        until(&*ours, |it| it.candidates.len() == 2).await.expect("etcd answers");
        stranger.interrupt();
        let held = leads(&*ours, &a).await;
        assert!(Some(held.token) > last);
        last = Some(held.token);
        assert!(next.lines.try_recv().is_err(), "two leaders");
        release(&*ours, &a, held.token).await;
        stranger = next;
    }
}
