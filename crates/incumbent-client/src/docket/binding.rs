//! Sessions that are bound to a connection, and from one connection to the next.

use std::mem;

use super::{BIND_MAX, Docket, Flight, Pending, State};
use crate::message::{Asked, Sessions, ToServer};

impl Docket {
    /// It is bound to nothing any more.
    pub(crate) fn unbound(&self, session: u64) {
        let mut state = self.state();
        if state.bound.remove(&session) && state.connected {
            let id = state.new_id();
            state.control.push(ToServer::new(id, Asked::Unbind(Sessions { sessions: vec![session], again: false })));
            drop(state);
            self.more.notify_one();
        }
    }
}

impl State {
    /// There is another connection: all that are bound are bound to that one.
    pub(super) fn rebind_all(&mut self) {
        let bound: Vec<u64> = self.bound.iter().copied().collect();
        for id in mem::take(&mut self.rebinding) {
            // What was to bind them to the connection before this one.
            match self.requests.remove(&id).map(|it| it.flight) {
                Some(Flight::Later(at)) => drop(self.later.remove(&(at, id))),
                Some(Flight::Unsent | Flight::Sent) => self.unsent.retain(|it| *it != id),
                None => {}
            }
        }
        for sessions in bound.chunks(BIND_MAX) {
            self.rebind(sessions.to_vec());
        }
    }

    /// Binds sessions to this connection, before anything else is asked: what is then heard of them, no earlier connection takes back. Nobody waits for the answer, but it is asked until there is one.
    fn rebind(&mut self, sessions: Vec<u64>) {
        let id = self.new_id();
        let pending = Pending::unsent(Asked::Bind(Sessions { sessions, again: true }), None, None);
        self.requests.insert(id, pending);
        self.unsent.push_front(id);
        self.rebinding.insert(id);
    }
}
