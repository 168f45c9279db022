//! A planned change of leader: the old one ends its work, then names the next. Nobody waits for a lease to run out.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use incumbent::{Election, Identity, Timing};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // With a lease of a minute, a leader that only disappeared would be missed for that long.
    let timing = Timing::of(Duration::from_secs(60)).build()?;
    let candidate = async |name| {
        let election = Election::on("memory:examples/shop").identity(Identity::named(name)?).timing(timing);
        election.build().await
    };
    let (old, new, third) = (candidate("web-1").await?, candidate("web-2").await?, candidate("web-3").await?);

    let leadership = old.campaign().await?;
    println!("{} leads with token {}", leadership.identity(), leadership.token());
    let mut elected = std::pin::pin!(async {
        tokio::select! {
            web_2 = new.campaign() => web_2,
            web_3 = third.campaign() => web_3,
        }
    });
    // Both stand in line before anything is handed over: a seat can only be kept for somebody who is there.
    while old.look().await?.candidates.len() < 2 {
        tokio::select! {
            _ = &mut elected => unreachable!("the seat is taken"),
            () = tokio::task::yield_now() => {}
        }
    }
    // Here the work has ended. "web-2" is enough: names are for people, and the engine knows whom it means.
    leadership.hand_over("web-2").await?;
    let next = elected.await?;
    println!("{} leads with token {}", next.identity(), next.token());
    next.resign().await?;
    Ok(())
}
