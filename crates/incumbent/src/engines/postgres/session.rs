//! A connection, and which calls are prepared in it.
//!
//! A server that has a call prepared neither reads nor plans it again. The names are not those of the client crate (`s0`, `s1`, ...): behind a pooler, where each statement may
//! go to another session, such a name may stand for somebody else's statement, which would be done in place of ours. A name with a digest of its text stands for that text or for nothing,
//! and where it stands for nothing the server says so and does nothing.
//!
//! It leaves out all poolers: the first time that a name is not known where it should be, the connection goes on without names.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::sql::Function;

pub(super) struct Session {
    pub(super) client: Client,
    names: Mutex<Names>,
}

/// What is prepared, by name.
enum Names {
    These(BTreeMap<String, Stage>),
    /// The session is not ours alone, or knows no names.
    None,
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Stage {
    UnderWay,
    Prepared,
}

impl Session {
    pub(super) fn with(client: Client) -> Session {
        Session { client, names: Mutex::new(Names::These(BTreeMap::new())) }
    }

    /// Calls a function and returns what it does.
    pub(super) async fn call(
        self: Arc<Session>,
        function: &Function,
        literals: &str,
    ) -> Result<Option<String>, tokio_postgres::Error> {
        if self.has(function) {
            match self.client.simple_query(&function.by_name(literals)).await {
                Err(why) if why.code() == Some(&SqlState::INVALID_SQL_STATEMENT_NAME) => self.do_without_names(),
                answer => return answer.map(only_text),
            }
        }
        let answer = self.client.simple_query(&function.plainly(literals)).await?;
        self.prepare(function);
        Ok(only_text(answer))
    }

    fn has(&self, function: &Function) -> bool {
        match &*self.names.lock().unwrap_or_else(PoisonError::into_inner) {
            Names::These(names) => names.get(&function.prepared_name) == Some(&Stage::Prepared),
            Names::None => false,
        }
    }

    fn do_without_names(&self) {
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = Names::None;
    }

    /// For the next call. This one has its answer, and nobody waits.
    fn prepare(self: Arc<Session>, function: &Function) {
        match &mut *self.names.lock().unwrap_or_else(PoisonError::into_inner) {
            Names::These(names) if !names.contains_key(&function.prepared_name) => {
                names.insert(function.prepared_name.clone(), Stage::UnderWay);
            }
            Names::These(_) | Names::None => return,
        }
        let (name, statement) = (function.prepared_name.clone(), function.prepare.clone());
        tokio::spawn(async move {
            match self.client.batch_execute(&statement).await {
                Ok(()) => self.note(name),
                // By whoever had this session of a pooler's before.
                Err(why) if why.code() == Some(&SqlState::DUPLICATE_PSTATEMENT) => self.note(name),
                Err(why) => {
                    tracing::debug!(%why, "calls are not prepared here");
                    self.do_without_names();
                }
            }
        });
    }

    fn note(&self, name: String) {
        if let Names::These(names) = &mut *self.names.lock().unwrap_or_else(PoisonError::into_inner) {
            names.insert(name, Stage::Prepared);
        }
    }
}

/// Of an answer with one row of one column.
fn only_text(answer: Vec<SimpleQueryMessage>) -> Option<String> {
    let row = answer.iter().find_map(|it| if let SimpleQueryMessage::Row(row) = it { Some(row) } else { None });
    row?.get(0).map(str::to_owned)
}
