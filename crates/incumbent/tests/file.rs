//! Elections in a directory: the conformance suite, and what only a file can do wrong.

mod support;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use incumbent::conformance::{Subject, bid, check, fresh_name};
use incumbent::election::Builder;
use incumbent::engine::{Claim, Farewell};
use incumbent::engines::file::Files;
use incumbent::{Election, Engine, Name, Reason, Timing};
use support::granted_in_the_end;
use support::processes::Arena;

struct Directory(tempfile::TempDir);

impl Directory {
    fn new() -> Directory {
        Directory(tempfile::tempdir().expect("a temporary directory"))
    }
}

#[async_trait]
impl Subject for Directory {
    async fn engine(&self) -> Arc<dyn Engine> {
        Arc::new(Files::at(self.0.path()))
    }

    fn election(&self, name: &Name) -> Builder {
        let timing = Timing::of(self.ttl()).build().expect("a good ttl");
        Election::on(format!("file:{}", self.0.path().display())).name(name.as_str()).own_connection().timing(timing)
    }

    /// A disk that others use too can take half a second for a sync.
    fn ttl(&self) -> Duration {
        Duration::from_millis(1500)
    }
}

#[tokio::test]
async fn files_conform() {
    check(&Directory::new()).await;
}

async fn token(engine: &dyn Engine, election: &Name, subject: &Directory) -> Option<u64> {
    match engine.claim(election, &bid(subject, "a")).await.expect("the directory is there") {
        Claim::Granted(grant) => Some(grant.token.get()),
        Claim::Occupied { .. } => None,
    }
}

/// A seat of one that has died, and whose lock is not gone yet.
async fn lock_of_the_dead(directory: &Directory, election: &Name) -> File {
    let dead = directory.engine().await;
    assert!(token(&*dead, election, directory).await.is_some());
    drop(dead);
    let path = directory.0.path().join(format!("{election}.lock"));
    let lock = File::options().read(true).write(true).open(path).expect("it has led");
    // It goes with the last of its threads.
    lock.lock().expect("nobody else has it");
    lock
}

/// The kernel tells that a file was closed, and takes its lock away afterwards.
#[tokio::test(start_paused = true)]
async fn who_waits_looks_again_for_a_lock_that_goes_a_moment_later() {
    let (directory, election) = (Directory::new(), fresh_name("later"));
    let lock = lock_of_the_dead(&directory, &election).await;
    let (engine, own) = (directory.engine().await, bid(&directory, "b"));
    assert!(matches!(engine.claim(&election, &own).await, Ok(Claim::Occupied { leader: Some(_), .. })));
    let again = engine.claim(&election, &own);
    tokio::pin!(again);
    // In tokio's time, which stands still while a thread is at work: it has looked once.
    let early = tokio::time::timeout(Duration::from_micros(500), &mut again).await;
    assert!(early.is_err(), "{early:?}");
    lock.unlock().expect("it was locked");
    let granted = again.await;
    assert!(matches!(granted, Ok(Claim::Granted(_))), "{granted:?}");
}

/// A claim that nobody waits for goes on while its disk hangs, and takes a seat that nobody knows of.
#[tokio::test]
async fn a_seat_that_was_granted_to_nobody_is_free_after_its_ttl() {
    let (directory, election) = (Directory::new(), fresh_name("nobody"));
    let (engine, other) = (directory.engine().await, directory.engine().await);
    let (gone, own) = (bid(&directory, "a"), bid(&directory, "b"));
    let mut claim = engine.claim(&election, &gone);
    assert!(futures_util::poll!(&mut claim).is_pending());
    drop(claim);
    while other.look(&election).await.expect("the directory is there").leaders.is_empty() {
        tokio::task::yield_now().await;
    }
    granted_in_the_end(&*other, &election, &own).await;
}

#[tokio::test]
async fn who_has_died_is_in_the_past_and_whoever_looks_writes_nothing() {
    let (directory, election) = (Directory::new(), fresh_name("died"));
    drop(lock_of_the_dead(&directory, &election).await);
    let (engine, path) = (directory.engine().await, directory.0.path().join(format!("{election}.desk")));
    let told = async || {
        let board = engine.look(&election).await.expect("the directory is there");
        let past: Vec<_> = board.past.iter().map(|it| (it.token.get(), it.reason.clone())).collect();
        (board.leaders.len(), past)
    };
    let written = std::fs::read(&path).expect("it has led");
    for _ in 0..2 {
        assert_eq!(told().await, (0, vec![(1, "process died".to_owned())]));
    }
    assert_eq!(std::fs::read(&path).expect("it is there"), written);
    assert_eq!(token(&*engine, &election, &directory).await, Some(2));
    assert_eq!(told().await, (1, vec![(1, "process died".to_owned())]), "as it was told before");
}

/// A desk that was read before its holder resigned, and a lock that is looked at afterwards.
#[tokio::test]
async fn who_resigns_while_somebody_looks_has_not_died() {
    let (directory, election) = (Directory::new(), fresh_name("resigns"));
    let (engine, onlooker) = (directory.engine().await, directory.engine().await);
    let (a, farewell) = (bid(&directory, "a"), Farewell { reason: Reason::Resigned, to: None });
    let leading = tokio::spawn({
        let election = election.clone();
        async move {
            for _ in 0..200 {
                // One that looks has the lock for an instant.
                let grant = granted_in_the_end(&*engine, &election, &a).await;
                engine.release(&election, &a, grant.token, &farewell).await.expect("the directory is there");
            }
        }
    });
    while !leading.is_finished() {
        let past = onlooker.look(&election).await.expect("the directory is there").past;
        assert!(past.iter().all(|it| it.reason == "resigned"), "{past:?}");
    }
    leading.await.expect("it was always granted in the end");
}

#[tokio::test]
async fn what_happens_between_a_claim_and_the_watch_is_heard() {
    let (directory, election) = (Directory::new(), fresh_name("between"));
    let lock = lock_of_the_dead(&directory, &election).await;
    let (engine, own) = (directory.engine().await, bid(&directory, "b"));
    assert!(matches!(engine.claim(&election, &own).await, Ok(Claim::Occupied { .. })));
    let mut onlooker = engine.watch(&election, None);
    drop(lock);
    // It is told to all who listen, and then over.
    onlooker.next().await.expect("goes on").expect("the directory is there");
    let hint = tokio::time::timeout(Duration::from_secs(10), engine.watch(&election, Some(&own)).next()).await;
    assert!(matches!(hint, Ok(Some(Ok(())))), "{hint:?}");
}

#[tokio::test]
async fn tokens_survive_the_loss_of_the_desk() {
    let (directory, election) = (Directory::new(), fresh_name("desk"));
    for expected in 1..4 {
        let engine = directory.engine().await;
        // The lock of the one before goes with the last of its threads, which may be a moment later.
        let grant = granted_in_the_end(&*engine, &election, &bid(&directory, "a")).await;
        assert_eq!(grant.token.get(), expected);
        drop(engine);
        std::fs::remove_file(directory.0.path().join(format!("{election}.desk"))).expect("was written");
    }
}

/// What a power cut can do to pages that were not yet on the disk: the head has reached it, and the text has not.
fn tear(directory: &Directory, election: &Name, page: u64) {
    let path = directory.0.path().join(format!("{election}.desk"));
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("was written");
    file.write_all_at(&[0; 64], page * 256 * 1024 + 100).expect("writable");
}

#[tokio::test]
async fn a_torn_desk_costs_some_history_and_no_token() {
    let (directory, election) = (Directory::new(), fresh_name("torn"));
    let engine = directory.engine().await;
    let mut torn = Vec::new();
    for (expected, pages) in [(1, &[][..]), (2, &[0]), (3, &[1]), (4, &[0, 1]), (5, &[])] {
        let a = bid(&directory, "a");
        let grant = granted_in_the_end(&*engine, &election, &a).await;
        assert_eq!(grant.token.get(), expected);
        let leaders = engine.look(&election).await.expect("the directory is there").leaders;
        assert_eq!(leaders.iter().map(|it| it.token).collect::<Vec<_>>(), [grant.token], "what was torn is written again");
        let farewell = Farewell { reason: Reason::Resigned, to: None };
        engine.release(&election, &a, grant.token, &farewell).await.expect("the directory is there");
        for page in pages {
            tear(&directory, &election, *page);
        }
        torn.push(engine.look(&election).await.expect("not somebody else's").past.len());
    }
    assert_eq!(torn[0], 1);
    assert_eq!(torn[3], 0, "both pages were torn");
    assert_eq!(torn[4], 1, "and history begins anew");
}

#[tokio::test]
async fn a_lock_that_was_removed_is_no_leadership() {
    let (directory, election) = (Directory::new(), fresh_name("removed"));
    let (first, second) = (directory.engine().await, directory.engine().await);
    let a = bid(&directory, "a");
    let Ok(Claim::Granted(grant)) = first.claim(&election, &a).await else { panic!("a new election is free") };
    std::fs::remove_file(directory.0.path().join(format!("{election}.lock"))).expect("was made");
    let renewal = first.renew(&election, &a, grant.token).await.expect("the directory is there");
    assert_eq!(renewal, incumbent::engine::Renewal::Gone);
    assert!(token(&*second, &election, &directory).await > Some(grant.token.get()), "the desk remembers");
}

#[tokio::test]
async fn a_desk_that_is_no_desk_stops_the_election_rather_than_the_tokens() {
    let (directory, election) = (Directory::new(), fresh_name("garbage"));
    std::fs::write(directory.0.path().join(format!("{election}.desk")), "garbage").expect("writable");
    let engine = directory.engine().await;
    let why = engine.claim(&election, &bid(&directory, "a")).await.expect_err("not a desk").to_string();
    assert!(why.contains("not written by incumbent") && why.contains(".desk"), "{why}");
}

#[tokio::test]
async fn whoever_only_looks_makes_no_directory() {
    let directory = Directory::new();
    let deep = directory.0.path().join("not/there/yet");
    let (engine, election) = (Files::at(&deep), fresh_name("seen"));
    assert_eq!(engine.look(&election).await.expect("nobody is an answer"), incumbent::engine::Board::default());
    assert!(!directory.0.path().join("not").exists());
    assert!(token(&engine, &election, &directory).await.is_some(), "who wants to lead makes it");
    assert_eq!(engine.look(&election).await.expect("it is there").leaders.len(), 1);
}

#[tokio::test]
async fn what_cannot_be_is_refused_in_one_line() {
    let why = Election::on("file:/tmp/x?colour=red").build().await.expect_err("no such option").to_string();
    assert!(why.contains("no option") && !why.contains('\n'), "{why}");
    let election = Election::on("file:/proc/no/such/x").build().await.expect("nobody has asked for anything yet");
    let why = election.campaign().await.expect_err("nothing can be made there").to_string();
    assert!(why.contains("cannot make the directory") && !why.contains('\n'), "{why}");
}

#[test]
fn contender() {
    support::processes::be_a_contender();
}

#[test]
fn a_killed_process_is_replaced_at_once() {
    let directory = Directory::new();
    // So long a lease that only the kernel can have told of the death.
    let arena = Arena::new(format!("file:{}", directory.0.path().display()), Duration::from_secs(600));
    support::processes::a_killed_holder_is_replaced(&arena);
}
