//! The engine alone, call by call.
//!
//! Who claims here does not renew unless the case says so. What is claimed of such a holder holds for a ttl; on a machine that is too busy to get through the
//! case by then, the case is run again (`prompt!`).

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use incumbent_protocol::protocol::{Term, Token};
use incumbent_protocol::tenure::Reason;

use super::{Case, Subject, Verdict, bid, case, ensure, fresh_name};
use crate::clock;
use crate::engine::{Bid, Claim, Demand, Engine, Error, Farewell, Grant, Kind, Past, Renewal, Seat, Wish};
use crate::guarantees::Order;
use crate::name::Name;

/// So often a case is run that took longer than its leases last.
const ATTEMPTS_MAX: usize = 3;

/// A case about somebody who has the seat and does not renew it.
macro_rules! prompt {
    ($path:path) => {
        Case { claim: stringify!($path), run: |subject| Box::pin(within(subject.ttl(), move || $path(subject))) }
    };
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(of_many_claims_at_once_one_is_granted),
        prompt!(claiming_again_is_the_same_leadership),
        case!(tokens_rise_from_one_leadership_to_the_next),
        prompt!(a_release_frees_its_own_leadership_or_nothing),
        prompt!(another_process_of_the_same_name_is_somebody_else),
        case!(a_lost_leadership_cannot_be_renewed),
        case!(the_seat_is_kept_for_the_ttl_and_then_given_away),
        case!(one_that_falls_silent_is_in_the_past_before_anybody_follows_it),
        case!(a_wish_reaches_the_holder),
        case!(a_seat_that_is_handed_over_is_kept_for_the_successor),
        prompt!(the_board_tells_who_leads_who_waits_and_who_led),
        prompt!(what_the_leader_proclaims_is_seen),
        prompt!(what_is_noted_of_a_leadership_is_kept),
        prompt!(what_is_noted_with_the_seat_is_on_record_when_it_is_granted),
        case!(tokens_rise_above_all_that_were_seen),
        prompt!(one_that_withdraws_is_not_waited_for),
        case!(a_watch_hints_that_the_seat_is_free),
        case!(a_watch_hints_at_what_has_happened_since_the_claim),
        prompt!(elections_do_not_know_each_other),
    ]
}

/// The verdict of an attempt that took less than a ttl, or was fine all the same. A complaint that took longer says nothing about the engine: by then it may, and
/// should, have given the seat away.
async fn within<F: Future<Output = Verdict>>(ttl: Duration, attempt: impl Fn() -> F) -> Verdict {
    let mut complaint = String::new();
    for _ in 0..ATTEMPTS_MAX {
        let begun = clock::now();
        let Err(why) = attempt().await else { return Ok(()) };
        let took = clock::now() - begun;
        if took < ttl {
            return Err(why);
        }
        tracing::warn!(%why, ?took, ?ttl, "took longer than a seat is kept for: once more");
        complaint = format!("{why} (after {took:?}, when the ttl of {ttl:?} was over, as in all {ATTEMPTS_MAX} attempts)");
    }
    Err(complaint)
}

fn resigned() -> Farewell {
    Farewell { reason: Reason::Resigned, to: None }
}

/// The error as a verdict.
fn fine<T>(answer: Result<T, Error>) -> Result<T, String> {
    answer.map_err(|why| format!("an engine that is well answered {why:?}"))
}

async fn claim(engine: &dyn Engine, election: &Name, bid: &Bid) -> Result<Option<Grant>, String> {
    Ok(match fine(engine.claim(election, bid).await)? {
        Claim::Granted(grant) => Some(grant),
        Claim::Occupied { .. } => None,
    })
}

/// Claims until granted, for so many ttls at most.
async fn claim_until_granted(engine: &dyn Engine, election: &Name, bid: &Bid, ttls: u32) -> Result<Grant, String> {
    let give_up = clock::now() + bid.ttl * ttls;
    loop {
        if let Some(grant) = claim(engine, election, bid).await? {
            return Ok(grant);
        }
        if clock::now() > give_up {
            return Err(format!("{} was not seated within {ttls} ttls", bid.identity));
        }
        tokio::time::sleep(bid.ttl / 20).await;
    }
}

async fn of_many_claims_at_once_one_is_granted(subject: &dyn Subject) -> Verdict {
    let election = fresh_name("many");
    let engines = join_all((0..3).map(|_| subject.engine())).await;
    let bids: Vec<Bid> = (0..12).map(|it| bid(subject, &format!("c{it}"))).collect();
    let claims = bids.iter().enumerate().map(|(at, bid)| claim(&*engines[at % engines.len()], &election, bid));
    let granted = join_all(claims).await.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().count();
    // In a line the first of it may have looked before it was in; then the next claim seats it.
    if granted == 0 {
        let mut seated = 0;
        for bid in &bids {
            seated += usize::from(claim(&*engines[0], &election, bid).await?.is_some());
        }
        return ensure(seated == 1, || format!("{seated} of 12 were granted the seat"));
    }
    ensure(granted == 1, || format!("{granted} of 12 were granted the seat"))
}

async fn claiming_again_is_the_same_leadership(subject: &dyn Subject) -> Verdict {
    let (election, engine, bid) = (fresh_name("again"), subject.engine().await, bid(subject, "a"));
    let first = claim_until_granted(&*engine, &election, &bid, 3).await?;
    let again = claim(&*engine, &election, &bid).await?.ok_or("its own seat was refused to the holder")?;
    ensure(first.token == again.token, || format!("{} became {}", first.token, again.token))?;
    let seat = fine(engine.inquire(&election, &bid).await)?;
    ensure(seat == Seat::Own(first.token), || format!("asked whose the seat is, the engine said {seat:?}"))
}

async fn tokens_rise_from_one_leadership_to_the_next(subject: &dyn Subject) -> Verdict {
    let (election, engine) = (fresh_name("rise"), subject.engine().await);
    let mut last = None;
    for round in 0..6 {
        // Every other time through a connection of its own: a restart of the process.
        let engine = if round % 2 == 0 { engine.clone() } else { subject.engine().await };
        let bid = bid(subject, "a");
        let grant = claim_until_granted(&*engine, &election, &bid, 3).await?;
        ensure(Some(grant.token) > last, || format!("{} after {last:?}", grant.token))?;
        last = Some(grant.token);
        fine(engine.release(&election, &bid, grant.token, &resigned()).await)?;
        fine(engine.withdraw(&election, &bid).await)?;
    }
    Ok(())
}

async fn a_release_frees_its_own_leadership_or_nothing(subject: &dyn Subject) -> Verdict {
    let (election, engine) = (fresh_name("release"), subject.engine().await);
    let (a, b) = (bid(subject, "a"), bid(subject, "b"));
    let first = claim_until_granted(&*engine, &election, &a, 3).await?.token;
    fine(engine.release(&election, &a, first, &resigned()).await)?;
    fine(engine.release(&election, &a, first, &resigned()).await)?;
    let second = claim_until_granted(&*engine, &election, &b, 3).await?.token;
    fine(engine.release(&election, &a, first, &resigned()).await)?;
    let renewal = fine(engine.renew(&election, &b, second).await)?;
    ensure(matches!(renewal, Renewal::Kept { .. }), || "a late release freed the seat of a newer leadership".to_owned())
}

async fn another_process_of_the_same_name_is_somebody_else(subject: &dyn Subject) -> Verdict {
    let (election, first, second) = (fresh_name("namesake"), subject.engine().await, subject.engine().await);
    let (a, namesake) = (bid(subject, "web-1"), bid(subject, "web-1"));
    let token = claim_until_granted(&*first, &election, &a, 3).await?.token;
    let taken = claim(&*second, &election, &namesake).await?;
    ensure(taken.is_none(), || format!("a namesake was given the seat of token {token}: {taken:?}"))
}

async fn a_lost_leadership_cannot_be_renewed(subject: &dyn Subject) -> Verdict {
    let (election, engine) = (fresh_name("lost"), subject.engine().await);
    let (a, b) = (bid(subject, "a"), bid(subject, "b"));
    let first = claim_until_granted(&*engine, &election, &a, 3).await?.token;
    fine(engine.release(&election, &a, first, &resigned()).await)?;
    let renewal = fine(engine.renew(&election, &a, first).await)?;
    ensure(renewal == Renewal::Gone, || format!("renewed after its release: {renewal:?}"))?;
    claim_until_granted(&*engine, &election, &b, 3).await?;
    let renewal = fine(engine.renew(&election, &a, first).await)?;
    ensure(renewal == Renewal::Gone, || format!("renewed while another has the seat: {renewal:?}"))
}

async fn the_seat_is_kept_for_the_ttl_and_then_given_away(subject: &dyn Subject) -> Verdict {
    let (election, first, second) = (fresh_name("ttl"), subject.engine().await, subject.engine().await);
    let (a, b) = (bid(subject, "a"), bid(subject, "b"));
    let granted = claim_until_granted(&*first, &election, &a, 3).await?;
    let sent = clock::now();
    let renewal = fine(first.renew(&election, &a, granted.token).await)?;
    let Renewal::Kept { grant, .. } = renewal else { return Err("a fresh leadership was gone".to_owned()) };
    let counted_from = grant.counted_from.unwrap_or(sent).min(sent);
    claim_until_granted(&*second, &election, &b, 8).await?;
    let took = clock::now() - counted_from;
    // Less than the drift bound, on one machine.
    let kept = grant.ttl.unwrap_or(a.ttl).mul_f64(0.999);
    ensure(took >= kept, || format!("given away after {took:?}, promised for {kept:?}"))?;
    let renewal = fine(first.renew(&election, &a, granted.token).await)?;
    ensure(renewal == Renewal::Gone, || format!("the former holder could still renew: {renewal:?}"))
}

/// What is not told of a leader that has died looks as if nobody had led.
async fn one_that_falls_silent_is_in_the_past_before_anybody_follows_it(subject: &dyn Subject) -> Verdict {
    let (election, engine, operator) = (fresh_name("silent"), subject.engine().await, subject.engine().await);
    if !engine.guarantees().keeps_history {
        return Ok(());
    }
    let (a, b) = (bid(subject, "a"), bid(subject, "b"));
    let first = claim_until_granted(&*engine, &election, &a, 3).await?.token;
    let give_up = clock::now() + a.ttl * 8;
    let board = loop {
        let board = fine(operator.look(&election).await)?;
        if board.leaders.is_empty() {
            break board;
        }
        ensure(clock::now() < give_up, || format!("leads after eight ttls: {board:?}"))?;
        tokio::time::sleep(a.ttl / 20).await;
    };
    let told = |past: &[Past]| past.iter().map(|it| (it.token, it.reason.clone())).collect::<Vec<_>>();
    let silent = (first, Reason::Expired.to_string());
    ensure(told(&board.past) == [silent.clone()], || format!("nobody leads, and of who led is told {:?}", board.past))?;
    let second = claim_until_granted(&*operator, &election, &b, 8).await?.token;
    fine(operator.release(&election, &b, second, &resigned()).await)?;
    let past = fine(engine.look(&election).await)?.past;
    let expected = [(second, Reason::Resigned.to_string()), silent];
    ensure(told(&past) == expected, || format!("not newest first, or not all: {past:?}"))?;
    ensure(past.iter().all(|it| it.since_ms > 0 && it.until_ms >= it.since_ms), || format!("{past:?}"))
}

async fn a_wish_reaches_the_holder(subject: &dyn Subject) -> Verdict {
    let (election, engine, operator) = (fresh_name("wish"), subject.engine().await, subject.engine().await);
    let (a, b) = (bid(subject, "a"), bid(subject, "b"));
    let token = claim_until_granted(&*engine, &election, &a, 3).await?.token;
    // An engine may refuse to ask for a hand-over to somebody who does not wait.
    ensure(claim(&*operator, &election, &b).await?.is_none(), || "two were seated".to_owned())?;
    let wish = Wish { token, what: Demand::HandOver("b".into()), by: "the suite".into() };
    fine(operator.ask(&election, &wish).await)?;
    // A renewal that shares an earlier keep-alive may have been on its way before the wish.
    let give_up = clock::now() + a.ttl;
    loop {
        match fine(engine.renew(&election, &a, token).await)? {
            Renewal::Kept { wish: Some(heard), .. } if heard == wish => break,
            Renewal::Kept { wish: heard, .. } if clock::now() > give_up => return Err(format!("heard {heard:?} instead")),
            Renewal::Kept { .. } => tokio::time::sleep(a.ttl / 20).await,
            Renewal::Gone => return Err("the wish took the seat away".to_owned()),
        }
    }
    fine(engine.release(&election, &a, token, &resigned()).await)?;
    match operator.ask(&election, &wish).await {
        Err(why) if why.kind() == Kind::Refused => Ok(()),
        other => Err(format!("a wish for one who has left was answered {other:?}")),
    }
}

async fn a_seat_that_is_handed_over_is_kept_for_the_successor(subject: &dyn Subject) -> Verdict {
    let (election, engine) = (fresh_name("handover"), subject.engine().await);
    let (a, b, c) = (bid(subject, "a"), bid(subject, "b"), bid(subject, "c"));
    let token = claim_until_granted(&*engine, &election, &a, 3).await?.token;
    for waiting in [&b, &c] {
        ensure(claim(&*engine, &election, waiting).await?.is_none(), || "two were seated".to_owned())?;
    }
    let farewell = Farewell { reason: Reason::HandedOver, to: Some("c".into()) };
    fine(engine.release(&election, &a, token, &farewell).await)?;
    ensure(claim(&*engine, &election, &b).await?.is_none(), || "another than the successor was seated".to_owned())?;
    let successor = claim_until_granted(&*engine, &election, &c, 3).await?;
    ensure(successor.token > token, || format!("{} after {token}", successor.token))?;
    // And the one that was passed over comes after, with a greater token still.
    fine(engine.release(&election, &c, successor.token, &resigned()).await)?;
    let third = claim_until_granted(&*engine, &election, &b, 3).await?;
    ensure(third.token > successor.token, || format!("{} after {}", third.token, successor.token))
}

async fn the_board_tells_who_leads_who_waits_and_who_led(subject: &dyn Subject) -> Verdict {
    let (election, engine, operator) = (fresh_name("board"), subject.engine().await, subject.engine().await);
    let promised = engine.guarantees();
    let empty = fine(operator.look(&election).await)?;
    ensure(empty.leaders.is_empty() && empty.candidates.is_empty() && empty.past.is_empty(), || format!("not empty: {empty:?}"))?;
    let (a, mut b) = (bid(subject, "a"), bid(subject, "b"));
    b.priority = 7;
    let token = claim_until_granted(&*engine, &election, &a, 3).await?.token;
    claim(&*engine, &election, &b).await?;
    let board = fine(operator.look(&election).await)?;
    let [leader] = board.leaders.as_slice() else { return Err(format!("not one leader: {board:?}")) };
    ensure(leader.identity == a.identity && leader.token == token && leader.value == a.value && leader.heeds_wishes, || {
        format!("{leader:?}")
    })?;
    if promised.lists_candidates {
        let [candidate] = board.candidates.as_slice() else { return Err(format!("not one candidate: {board:?}")) };
        ensure(candidate.identity == b.identity && candidate.priority == 7, || format!("{candidate:?}"))?;
    }
    fine(engine.release(&election, &a, token, &resigned()).await)?;
    if promised.keeps_history {
        let past = fine(operator.look(&election).await)?.past;
        let [last] = past.as_slice() else { return Err(format!("not one past leadership: {past:?}")) };
        ensure(last.identity == a.identity && last.token == token && last.reason == "resigned", || format!("{last:?}"))?;
        ensure(last.since_ms > 0 && last.until_ms >= last.since_ms, || format!("{last:?}"))?;
    }
    Ok(())
}

async fn what_the_leader_proclaims_is_seen(subject: &dyn Subject) -> Verdict {
    let (election, engine) = (fresh_name("proclaim"), subject.engine().await);
    let a = bid(subject, "a");
    let token = claim_until_granted(&*engine, &election, &a, 3).await?.token;
    fine(engine.proclaim(&election, &a, token, "10.1.2.3:80 \"quoted\" ü").await)?;
    let board = fine(engine.look(&election).await)?;
    let value = board.leaders.first().map(|it| it.value.clone());
    ensure(value.as_deref() == Some("10.1.2.3:80 \"quoted\" ü"), || format!("{value:?}"))?;
    let renewal = fine(engine.renew(&election, &a, token).await)?;
    ensure(matches!(renewal, Renewal::Kept { .. }), || "proclaiming cost the seat".to_owned())?;
    fine(engine.release(&election, &a, token, &resigned()).await)?;
    ensure(engine.proclaim(&election, &a, token, "late").await.is_err(), || "one who has left could still proclaim".to_owned())
}

async fn what_is_noted_of_a_leadership_is_kept(subject: &dyn Subject) -> Verdict {
    let (election, engine, operator) = (fresh_name("notes"), subject.engine().await, subject.engine().await);
    let (a, b) = (bid(subject, "a"), bid(subject, "b"));
    let first = claim_until_granted(&*engine, &election, &a, 3).await?.token;
    fine(engine.annotate(&election, first, "begun").await)?;
    fine(operator.annotate(&election, first, "done \"quoted\" ü").await)?;
    let renewal = fine(engine.renew(&election, &a, first).await)?;
    ensure(matches!(renewal, Renewal::Kept { .. }), || "a note cost the seat".to_owned())?;
    fine(engine.release(&election, &a, first, &resigned()).await)?;
    let second = claim_until_granted(&*engine, &election, &b, 3).await?.token;
    fine(engine.annotate(&election, second, "b's").await)?;
    let notes: Vec<_> = fine(operator.look(&election).await)?.notes.into_iter().map(|it| (it.token, it.text)).collect();
    let expected = [(second, "b's".to_owned()), (first, "done \"quoted\" ü".to_owned())];
    ensure(notes == expected, || format!("{notes:?}"))?;
    fine(operator.annotate(&election, first, "after the end").await)?;
    let noted = fine(operator.look(&election).await)?.notes;
    ensure(noted.last().is_some_and(|it| it.token == first && it.text == "after the end"), || format!("{noted:?}"))?;
    fine(engine.release(&election, &b, second, &resigned()).await)
}

/// For engines that can; all others leave it to whoever wants it, and say so.
async fn what_is_noted_with_the_seat_is_on_record_when_it_is_granted(subject: &dyn Subject) -> Verdict {
    let (election, engine, other) = (fresh_name("noted"), subject.engine().await, subject.engine().await);
    let [a, b] = ["a", "b"].map(|who| Bid { note: Some(format!("{who} \"quoted\" ü")), ..bid(subject, who) });
    let is_noted = async |grant: &Grant, bid: &Bid| {
        let notes = fine(other.look(&election).await)?.notes;
        let found = notes.iter().find(|it| it.token == grant.token).map(|it| &it.text);
        ensure(!grant.noted || found == bid.note.as_ref(), || format!("{grant:?} to {}, but {notes:?}", bid.identity))
    };
    let first = claim_until_granted(&*engine, &election, &a, 3).await?;
    is_noted(&first, &a).await?;
    // The next one stands in line first, where there is a line.
    ensure(claim(&*other, &election, &b).await?.is_none(), || "the seat was given twice".to_owned())?;
    fine(engine.release(&election, &a, first.token, &resigned()).await)?;
    let second = claim_until_granted(&*other, &election, &b, 3).await?;
    is_noted(&second, &b).await?;
    is_noted(&first, &a).await?;
    let renewal = fine(other.renew(&election, &b, second.token).await)?;
    ensure(matches!(renewal, Renewal::Kept { .. }), || "a note cost the seat".to_owned())?;
    fine(other.release(&election, &b, second.token, &resigned()).await)
}

async fn tokens_rise_above_all_that_were_seen(subject: &dyn Subject) -> Verdict {
    let (election, engine) = (fresh_name("raise"), subject.engine().await);
    let seen = Token::new(3, Term(1 << 40)).expect("fits");
    let a = Bid { seen: Some(seen), ..bid(subject, "a") };
    let first = claim_until_granted(&*engine, &election, &a, 3).await?.token;
    ensure(first > seen, || format!("{first} was granted to one that has seen {seen}"))?;
    fine(engine.release(&election, &a, first, &resigned()).await)?;
    let above = Token::new(9, Term(5)).expect("fits");
    fine(engine.raise(&election, above).await)?;
    let greatest = Token::new(Token::INCARNATION_MAX, Term::MAX).expect("fits");
    ensure(engine.raise(&election, greatest).await.is_err(), || "raised above the greatest token".to_owned())?;
    let b = bid(subject, "b");
    let second = claim_until_granted(&*engine, &election, &b, 3).await?.token;
    ensure(second > above, || format!("{second} after it was raised above {above}"))
}

async fn one_that_withdraws_is_not_waited_for(subject: &dyn Subject) -> Verdict {
    let (election, engine) = (fresh_name("withdraw"), subject.engine().await);
    let (a, b, c) = (bid(subject, "a"), bid(subject, "b"), bid(subject, "c"));
    let token = claim_until_granted(&*engine, &election, &a, 3).await?.token;
    for waiting in [&b, &c] {
        claim(&*engine, &election, waiting).await?;
    }
    fine(engine.withdraw(&election, &b).await)?;
    fine(engine.release(&election, &a, token, &resigned()).await)?;
    let seated = claim(&*engine, &election, &c).await?;
    ensure(seated.is_some(), || "the seat waits for one that has withdrawn".to_owned())
}

async fn a_watch_hints_that_the_seat_is_free(subject: &dyn Subject) -> Verdict {
    let (election, engine, other) = (fresh_name("watch"), subject.engine().await, subject.engine().await);
    let (a, b) = (bid(subject, "a"), bid(subject, "b"));
    let token = claim_until_granted(&*engine, &election, &a, 3).await?.token;
    claim(&*other, &election, &b).await?;
    let mut hints = other.watch(&election, Some(&b));
    if other.guarantees().notice == crate::guarantees::Notice::Polled {
        return Ok(());
    }
    let limit = (a.ttl * 3).max(Duration::from_secs(3));
    let waiting = tokio::time::timeout(limit, async {
        loop {
            match hints.next().await {
                Some(Ok(())) => match other.claim(&election, &b).await {
                    Ok(Claim::Granted(_)) => return Ok(()),
                    // Something else has changed, or the hint was quicker than the release.
                    Ok(Claim::Occupied { .. }) => {}
                    Err(why) => return Err(format!("{why:?}")),
                },
                Some(Err(why)) => return Err(format!("the watch ended: {why:?}")),
                None => {
                    // A watch for the predecessor ends with it.
                    hints = other.watch(&election, Some(&b));
                    if let Ok(Claim::Granted(_)) = other.claim(&election, &b).await {
                        return Ok(());
                    }
                }
            }
        }
    });
    let releasing = async {
        // While it waits: what happens before is the next case's.
        tokio::time::sleep(a.ttl / 10).await;
        let released = engine.release(&election, &a, token, &resigned()).await;
        (clock::now(), released)
    };
    let (told, (_, released)) = tokio::join!(waiting, releasing);
    fine(released)?;
    told.map_err(|_| "no hint came".to_owned())?
}

/// Whoever dies between another's claim and its watch must not be missed: that other would wait for a poll.
async fn a_watch_hints_at_what_has_happened_since_the_claim(subject: &dyn Subject) -> Verdict {
    let (election, engine, other) = (fresh_name("since"), subject.engine().await, subject.engine().await);
    let (a, b) = (bid(subject, "a"), bid(subject, "b"));
    let token = claim_until_granted(&*engine, &election, &a, 3).await?.token;
    claim(&*other, &election, &b).await?;
    fine(engine.release(&election, &a, token, &resigned()).await)?;
    if other.guarantees().notice == crate::guarantees::Notice::Polled {
        return Ok(());
    }
    // However long it takes: an engine that says nothing says nothing for ever.
    let limit = (a.ttl * 10).max(Duration::from_secs(10));
    let told = tokio::time::timeout(limit, async {
        // One that has ended says that there is something to look for, too.
        match other.watch(&election, Some(&b)).next().await {
            Some(Ok(())) | None => Ok(()),
            Some(Err(why)) => Err(format!("the watch ended: {why:?}")),
        }
    });
    told.await.unwrap_or_else(|_| Err("no hint came of a release before the watch".to_owned()))
}

async fn elections_do_not_know_each_other(subject: &dyn Subject) -> Verdict {
    let engine = subject.engine().await;
    // One name is the beginning of the other: prefixes must not be taken for names.
    let first = fresh_name("apart");
    let second = Name::new(format!("{first}.b")).expect("made to fit");
    let (a, b) = (bid(subject, "a"), bid(subject, "b"));
    claim_until_granted(&*engine, &first, &a, 3).await?;
    let other = claim(&*engine, &second, &b).await?;
    ensure(other.is_some(), || format!("{second} was not free although only {first} was taken"))?;
    let order = engine.guarantees().order;
    let board = fine(engine.look(&first).await)?;
    ensure(board.leaders.len() == 1 && board.candidates.is_empty(), || format!("{order:?}: {board:?}"))
}

/// Whether candidates stand in a line here.
pub(super) fn has_a_line(engine: &dyn Engine) -> bool {
    engine.guarantees().order == Order::Line
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Complains so many times; then all is well. With the verdict, how often it was asked.
    async fn complaining(times: usize, ttl: Duration) -> (Verdict, usize) {
        let asked = Cell::new(0);
        let attempt = || {
            asked.set(asked.get() + 1);
            std::future::ready(ensure(asked.get() > times, || "gone".to_owned()))
        };
        (within(ttl, attempt).await, asked.get())
    }

    #[tokio::test]
    async fn a_complaint_counts_if_it_came_within_the_ttl() {
        let hour = Duration::from_secs(3600);
        assert_eq!(complaining(1, hour).await, (Err("gone".to_owned()), 1));
        assert_eq!(complaining(0, hour).await, (Ok(()), 1));
    }

    #[tokio::test]
    async fn a_complaint_that_came_later_is_looked_into_again_but_not_for_ever() {
        let none = Duration::ZERO;
        assert_eq!(complaining(ATTEMPTS_MAX - 1, none).await, (Ok(()), ATTEMPTS_MAX));
        let (verdict, asked) = complaining(usize::MAX, none).await;
        assert!(verdict.is_err_and(|why| why.starts_with("gone (after")));
        assert_eq!(asked, ATTEMPTS_MAX);
    }
}
