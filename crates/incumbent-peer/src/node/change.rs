//! A change of the members: one at a time, decided by the node that is in office for it. See [`roll`](super::roll) for why it is safe.

use std::sync::Arc;
use std::time::Duration;

use incumbent_protocol::protocol::{NodeId, Term, Token};
use tokio::task::JoinSet;

use super::roll::{Change, ELECTION, Roll};
use super::{Declined, Node};
use crate::clock;

/// A question of a node to a node, and not of their users. Those are text, and text does not begin like this.
const OWN: u8 = 0;
/// "Which roll do you go by?"
const WHICH: u8 = b'?';
/// "Go by this one, and say when that is on your disk."
const INSTALL: u8 = b'!';
/// "It is."
const INSTALLED: &[u8] = b"+";

/// What a node asks another about the roll.
pub(super) enum Request {
    Which,
    Install(Roll),
}

impl Request {
    /// `None` if it is a question for the user.
    pub(super) fn read(body: &[u8]) -> Option<Option<Request>> {
        match body {
            [OWN, WHICH] => Some(Some(Request::Which)),
            [OWN, INSTALL, roll @ ..] => Some(Roll::read(roll).map(Request::Install)),
            [OWN, ..] => Some(None),
            _ => None,
        }
    }

    pub(super) fn write(&self) -> Vec<u8> {
        match self {
            Request::Which => vec![OWN, WHICH],
            Request::Install(roll) => [&[OWN, INSTALL], roll.write().as_slice()].concat(),
        }
    }
}

/// What is answered to [`Request::Install`].
pub(super) fn installed(outcome: Result<(), String>) -> Vec<u8> {
    match outcome {
        Ok(()) => INSTALLED.to_vec(),
        Err(why) => why.into_bytes(),
    }
}

/// Changes the roll, or says why not. `patience` is the longest of the group.
pub(super) async fn change(node: &Node, change: &Change, patience: Duration) -> Result<Roll, String> {
    let election: Arc<str> = Arc::from(ELECTION);
    node.stand(Arc::clone(&election)).await.map_err(|why| why.to_string())?;
    let outcome = change_in_office(node, &election, change, patience).await;
    node.abstain(election);
    outcome
}

async fn change_in_office(node: &Node, election: &Arc<str>, change: &Change, patience: Duration) -> Result<Roll, String> {
    let gone = |why: Declined| why.to_string();
    let token = take_office(node, election, patience).await?;
    let term = Term(token.get() & Term::MAX.0);
    let roll = node.roll().await.map_err(gone)?;
    let settled = roll.in_term(term).ok_or("the term of this group is too great: begin a new one")?;
    let wanted = settled.changed(change)?;
    install(node, &settled, settled.majority(), patience).await?;
    // Leases that were given under an older roll have ended by then.
    tokio::time::sleep(patience * 2).await;
    let standing = node.look(Arc::clone(election)).await.map_err(gone)?;
    if standing.own.is_none_or(|it| it.token != token) {
        return Err("this node lost the office while it changed the members: nothing has changed, try again".to_owned());
    }
    if let Change::Remove(id) = change
        && *id != node.me()
    {
        // While there is a line to it: nobody talks to it afterwards. One that does not hear it is not heard either.
        let asked = node.ask(*id, Request::Install(wanted.clone()).write());
        let _ = tokio::time::timeout(patience, asked).await;
    }
    install(node, &wanted, wanted.majority(), patience).await?;
    Ok(wanted)
}

/// Waits until this node is in office for changing the roll.
async fn take_office(node: &Node, election: &Arc<str>, patience: Duration) -> Result<Token, String> {
    let give_up = clock::now() + patience * 8;
    loop {
        let standing = node.look(Arc::clone(election)).await.map_err(|why| why.to_string())?;
        match (standing.own, standing.leader) {
            (Some(mandate), _) => return Ok(mandate.token),
            (None, Some(other)) => return Err(format!("node {other} changes the members just now: try again when it has")),
            (None, None) if clock::now() > give_up => {
                return Err("no majority of the members answers: nothing has changed".to_owned());
            }
            (None, None) => tokio::time::sleep(patience / 20).await,
        }
    }
}

/// Has the roll installed on so many of its members, this one first.
async fn install(node: &Node, roll: &Roll, needed: usize, patience: Duration) -> Result<(), String> {
    node.install(roll.clone()).await.map_err(|why| why.to_string())??;
    let body = Request::Install(roll.clone()).write();
    let others: Vec<NodeId> = roll.members().iter().map(|(id, _)| *id).filter(|id| *id != node.me()).collect();
    let mut count = usize::from(roll.has(node.me()));
    // One that was just added has to be connected first, and one that is down may come up.
    let give_up = clock::now() + patience * 8;
    let mut asked = JoinSet::new();
    for to in others {
        let (node, body) = (node.clone(), body.clone());
        asked.spawn(async move {
            while clock::now() < give_up {
                if node.ask(to, body.clone()).await.is_ok_and(|it| it == INSTALLED) {
                    return true;
                }
                tokio::time::sleep(patience / 10).await;
            }
            false
        });
    }
    while count < needed {
        match asked.join_next().await {
            Some(done) => count += usize::from(done.unwrap_or(false)),
            None => {
                return Err(format!(
                    "{count} of {} members go by the new roll, and {needed} must: start the others; the change goes on when they meet",
                    roll.members().len()
                ));
            }
        }
    }
    // The rest hears of it as soon as it hears of anything.
    asked.detach_all();
    Ok(())
}
