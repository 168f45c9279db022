//! All that a node's store shows of itself: keys, sessions, elections with their history, and what has happened.
//!
//! Two stores that show the same picture are equal as far as anybody can ask. Left out: what requests came to, of which only the number of clients is shown.

use incumbent_client::client::Client;
use incumbent_client::message::Consistency;
use incumbent_store::Message as _;
use incumbent_store::keys::item::Span;
use incumbent_store::query::{Answer, Answered, AskStatus, ListElections, ListSessions, Query, Range, ReadEvents};

/// What a store shows, as it is sent: by question, in their order.
#[derive(PartialEq, Eq)]
pub(crate) struct Picture {
    answers: Vec<(Query, Answer)>,
}

impl Picture {
    /// Of the one node that this client asks; or why there is none now.
    pub(crate) async fn of(client: &Client, revision: u64) -> Result<Picture, String> {
        let status = Query::Status(AskStatus {});
        let before = ask(client, &status, revision).await?;
        let mut answers = vec![(status.clone(), before.clone())];
        let mut all = vec![
            Query::Range(Range { span: Some(Span::all()), ..Range::default() }),
            Query::Sessions(ListSessions::default()),
            Query::Events(ReadEvents { from: oldest(&before), ..ReadEvents::default() }),
            Query::Elections(ListElections::default()),
        ];
        while let Some(query) = all.pop() {
            let answer = ask(client, &query, revision).await?;
            if let Answer::Elections(elections) = &answer {
                all.extend(elections.elections.iter().map(|it| Query::Look(it.election.clone())));
            }
            // In pages, to the end.
            if let Answer::Events(events) = &answer
                && events.more
            {
                all.push(Query::Events(ReadEvents { from: events.next, ..ReadEvents::default() }));
            }
            answers.push((query, answer));
        }
        // It is of one moment, or it is none.
        if ask(client, &status, revision).await? == before { Ok(Picture { answers }) } else { Err("it changes".to_owned()) }
    }
}

/// In short: all of it would fill pages.
impl std::fmt::Debug for Picture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digest = |answer: &Answer| {
            let bytes = Answered { revision: 0, answer: Some(answer.clone()) }.encode_to_vec();
            bytes.iter().fold(0_u32, |sum, byte| sum.rotate_left(5) ^ u32::from(*byte))
        };
        for (query, answer) in &self.answers {
            let text = format!("{answer:?}");
            let text: String = text.chars().take(500).collect();
            writeln!(f, "{query:?} ({:08x}): {text}", digest(answer))?;
        }
        Ok(())
    }
}

fn oldest(status: &Answer) -> u64 {
    if let Answer::Status(status) = status { status.oldest } else { 1 }
}

/// What the node itself has, if it is as new as that.
async fn ask(client: &Client, query: &Query, revision: u64) -> Result<Answer, String> {
    let shown = client.ask(query.clone(), Consistency::Local).await.map_err(|why| why.to_string())?;
    if shown.revision < revision { Err(format!("it is at revision {}", shown.revision)) } else { Ok(shown.answer) }
}
