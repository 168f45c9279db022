//! A job that must run on exactly one host: contend, work while in office, stop in time, give the office back.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use incumbent::{Election, Leadership, Next};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), incumbent::Error> {
    // On one machine: file:/var/lib/jobs/nightly. With servers: etcd://10.0.0.1:2379/jobs/nightly, redis://..., postgres://...
    let election = Election::on("memory:examples/nightly").build().await?;
    election
        .run(|leadership| async move {
            println!("leading {} with token {}", leadership.election(), leadership.token());
            tokio::select! {
                // Told early enough to end in good order; whoever does not is dropped before another may begin.
                reason = leadership.stopping() => {
                    println!("stopping: {reason}");
                    Ok::<_, incumbent::Error>(Next::Resign) // contend again
                }
                written = report(&leadership) => {
                    println!("{written} pages written");
                    Ok(Next::Quit) // that was all
                }
            }
        })
        .await?;
    println!("the office is free again: {}", election.look().await?.leaders.is_empty());
    Ok(())
}

/// Takes the leadership as the right to work: without one there is no calling it.
async fn report(right: &Leadership) -> usize {
    let mut written = 0;
    while written < 3 && right.check().is_ok() {
        tokio::task::yield_now().await; // here a page is written
        written += 1;
    }
    written
}
