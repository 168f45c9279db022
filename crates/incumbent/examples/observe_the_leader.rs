//! Who leads, and when that changes, without taking part: for those who must find the leader. "Nobody" is an answer.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use incumbent::{Election, Identity};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), incumbent::Error> {
    let url = "memory:examples/primary";
    let mut view = Election::on(url).build().await?.observe();
    println!("{}", if view.leader().await.is_none() { "nobody leads" } else { "somebody leads" });

    // What the leader publishes is what others need to find it.
    let primary = Election::on(url).identity(Identity::named("db-1")?).value("10.0.0.7:5432").build().await?;
    let leadership = primary.campaign().await?;
    if let Some(leader) = view.next().await {
        println!("{} leads with token {}, at {}", leader.identity, leader.token, leader.value);
    }
    primary.proclaim(&leadership, "10.0.0.7:6432").await?;
    if let Some(leader) = view.next().await {
        println!("{} is now at {}", leader.identity, leader.value);
    }
    leadership.resign().await?;
    println!("{}", if view.next().await.is_none() { "nobody leads" } else { "somebody leads" });
    Ok(())
}
