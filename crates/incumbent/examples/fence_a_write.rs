//! A leader that was paused comes back and writes. The lease cannot stop it; the fence does.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use incumbent::Election;
use incumbent::fence::directory::Guarded;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let election = Election::on("memory:examples/ledger").build().await?;
    let folder = tempfile::tempdir()?;
    let ledger = Guarded::at(folder.path())?;

    let first = election.campaign().await?;
    let old = first.token();
    ledger.write(old, "balance", b"100")?;
    println!("token {old} wrote 100");
    first.resign().await?; // or its lease ran out while it was paused: what follows is the same

    let second = election.campaign().await?;
    // Reading admits the token, so nothing of the former leader can come between this and the write.
    let balance = ledger.read(second.token(), "balance")?.unwrap_or_default();
    println!("token {} read {}", second.token(), String::from_utf8_lossy(&balance));

    let refusal = ledger.write(old, "balance", b"0").expect_err("somebody else leads since");
    println!("refused: {}", refusal.stale().is_some_and(|it| it.seen == second.token()));
    ledger.write(second.token(), "balance", b"120")?;
    println!("the balance is {}", std::fs::read_to_string(folder.path().join("balance"))?);
    second.resign().await?;
    Ok(())
}
