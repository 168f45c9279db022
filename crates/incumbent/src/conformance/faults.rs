//! A line that is cut, slow, or swallows replies: leadership may be lost, but never shared, and comes back by itself.

use std::time::Duration;

use super::leaderships::{candidate, lead};
use super::record::{Belief, Record};
use super::{Case, Line, Subject, Verdict, case, ensure, fresh_name};
use crate::clock;
use crate::leadership::{Leadership, State};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(a_holder_that_is_cut_off_stops_before_another_begins),
        case!(late_replies_do_not_lengthen_a_leadership),
        case!(a_claim_whose_reply_is_lost_is_resolved),
        case!(one_that_was_cut_off_contends_again_by_itself),
    ]
}

/// A look every five milliseconds that comes so late was not made.
const STOOD_STILL: Duration = Duration::from_millis(60);

fn line(subject: &dyn Subject) -> Option<Box<dyn Line>> {
    subject.line()
}

/// C13, C16: silence, not a broken connection.
async fn a_holder_that_is_cut_off_stops_before_another_begins(subject: &dyn Subject) -> Verdict {
    let Some(line) = line(subject) else { return Ok(()) };
    let (name, record) = (fresh_name("cut-off"), Record::new());
    let a = line.election(&name).build().await.map_err(|why| format!("{why:?}"))?;
    let b = candidate(subject, &name, "b").await?;
    let first = lead(subject, &a).await?;
    let from = clock::now();
    line.swallow();
    let (second, warned) = tokio::join!(lead(subject, &b), async {
        let (mut seen, mut looked) = (false, clock::now());
        while first.check().is_ok() {
            seen |= first.state() == State::Jeopardy;
            tokio::time::sleep(Duration::from_millis(5)).await;
            // A machine that stood still for so long may have slept through the warning.
            seen |= clock::now() - looked > STOOD_STILL;
            looked = clock::now();
        }
        seen
    });
    let (second, elected) = (second?, clock::now());
    record.add(Belief { token: first.token(), from, until: first.deadline() });
    record.add(Belief { token: second.token(), from: elected, until: elected });
    line.heal();
    drop(first);
    let _ = second.resign().await;
    ensure(warned, || "the holder was not warned before it was lost".to_owned())?;
    record.verdict()
}

/// C32: validity counts from the send, so a reply that is late by half a ttl brings half as much.
async fn late_replies_do_not_lengthen_a_leadership(subject: &dyn Subject) -> Verdict {
    let Some(line) = line(subject) else { return Ok(()) };
    let (name, record) = (fresh_name("late"), Record::new());
    let ttl = subject.ttl();
    let a = line.election(&name).build().await.map_err(|why| format!("{why:?}"))?;
    let b = candidate(subject, &name, "b").await?;
    let first = lead(subject, &a).await?;
    let from = clock::now();
    line.delay_replies(ttl / 2);
    tokio::time::sleep(ttl).await;
    line.swallow();
    let second = lead(subject, &b).await?;
    let elected = clock::now();
    record.add(Belief { token: first.token(), from, until: first.deadline() });
    record.add(Belief { token: second.token(), from: elected, until: elected });
    line.heal();
    drop(first);
    let _ = second.resign().await;
    record.verdict()
}

/// C76: the request was carried out and nobody knows.
async fn a_claim_whose_reply_is_lost_is_resolved(subject: &dyn Subject) -> Verdict {
    let Some(line) = line(subject) else { return Ok(()) };
    let name = fresh_name("reply-lost");
    let a = line.election(&name).build().await.map_err(|why| format!("{why:?}"))?;
    line.swallow_replies();
    let elected = {
        let campaign = a.campaign();
        let mut campaign = std::pin::pin!(campaign);
        tokio::select! {
            _ = &mut campaign => return Err("elected without a reply".to_owned()),
            () = tokio::time::sleep(subject.ttl() / 2) => line.heal(),
        }
        tokio::time::timeout(subject.ttl() * 20, campaign).await
    };
    let leadership = elected.map_err(|_| "the claim was never resolved".to_owned())?.map_err(|why| format!("{why:?}"))?;
    let board = a.look().await.map_err(|why| format!("{why:?}"))?;
    let tokens: Vec<_> = board.leaders.iter().map(|it| it.token).collect();
    let own = leadership.token();
    let _ = leadership.resign().await;
    ensure(tokens == [own], || format!("token {own} believes, the engine knows {tokens:?}"))
}

/// C63: no zombie standby after a blip.
async fn one_that_was_cut_off_contends_again_by_itself(subject: &dyn Subject) -> Verdict {
    let Some(line) = line(subject) else { return Ok(()) };
    let name = fresh_name("again");
    let a = candidate(subject, &name, "a").await?;
    let b = line.election(&name).build().await.map_err(|why| format!("{why:?}"))?;
    let first = lead(subject, &a).await?;
    let waiting = b.campaign();
    let mut waiting = std::pin::pin!(waiting);
    for _ in 0..2 {
        line.cut();
        let blip = tokio::time::sleep(subject.ttl() / 2);
        tokio::select! { ended = &mut waiting => return Err(too_soon(&first, ended)), () = blip => {} }
        line.heal();
        let calm = tokio::time::sleep(subject.ttl());
        tokio::select! { ended = &mut waiting => return Err(too_soon(&first, ended)), () = calm => {} }
    }
    first.resign().await.map_err(|why| format!("{why:?}"))?;
    let second = tokio::time::timeout(subject.ttl() * 20, waiting).await;
    let second = second.map_err(|_| "the standby never came back".to_owned())?.map_err(|why| format!("{why:?}"))?;
    let board = a.look().await.map_err(|why| format!("{why:?}"))?;
    let mess = (board.leaders.len(), board.candidates.len());
    let _ = second.resign().await;
    ensure(mess == (1, 0), || format!("leaders and candidates left behind: {mess:?}"))
}

/// What it means that a campaign came to an end while `first` should have led.
fn too_soon(first: &Leadership, ended: Result<Leadership, crate::Error>) -> String {
    match (ended, first.check()) {
        (Ok(_), Ok(_)) => "two led at once".to_owned(),
        (Ok(_), Err(why)) => format!("the leader was lost, and nobody had touched its line: {why}"),
        (Err(why), _) => format!("the standby gave up: {why}"),
    }
}
