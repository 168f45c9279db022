//! What a driver makes of a replica's wishes, step by step.

use incumbent_store::query::AskStatus;

use super::*;
use crate::log::sim::SimDisk;
use crate::log::{Identity, Log};

/// An entry of a later release is decided: whoever cannot read it must not go on as if it were not there.
#[tokio::test]
async fn nothing_is_built_on_a_store_that_lacks_an_entry() {
    let disk = SimDisk::new(1);
    let config = Config { settings: Settings { snapshot_entries: 2, ..Config::lan() }, ..Config::alone("nowhere") };
    let identity = Identity { cluster: config.cluster.clone(), node: config.me };
    let options = config.log;
    let opened = opening::open(disk.clone(), &config).expect("opens");
    let (mut driver, mut inboxes, ..) = Driver::new(opened, config).await.expect("starts");
    let birth = driver.snapshot;
    driver.step(Input::Wake);
    while driver.applied == birth {
        driver.on_report(inboxes.reports.recv().await.expect("the disk is well"));
        driver.step_on();
    }
    let mut later = apply::payload(Request::of(Command::Expire(Expire { limit: 0 })), 0).to_vec();
    later[0] += 1;
    let (answer, mut proposed) = oneshot::channel();
    let tag = driver.desk.wait(Waiter::Submit(answer.into()));
    driver.step(Input::Propose { tag, payload: later.into(), place: Place::Anywhere });

    // In one step the entry is decided, a question may be answered, and a snapshot is due.
    let written = inboxes.reports.recv().await.expect("the disk is well");
    let (answer, mut asked) = oneshot::channel();
    let query = Query::Status(AskStatus {});
    driver.on_order(Order::Ask { query, consistency: Consistency::Linearizable, seen: 0, answer: answer.into() });
    driver.on_report(written);
    driver.step_on();
    assert!(matches!(driver.end, Some(End::Broken(_))), "{:?}", driver.end);
    assert_eq!((driver.applied, driver.replica.view().handed), (birth + 1, birth + 2));
    assert!(proposed.try_recv().is_err() && asked.try_recv().is_err(), "nobody was told anything");
    driver.finish(inboxes).await;
    let (log, _) = Log::open(disk, &identity, options).expect("opens");
    assert_eq!(log.snapshots().latest().map(|it| it.mark.index), Some(birth));
}
