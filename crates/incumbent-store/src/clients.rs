//! What clients' requests came to: so that a request which is repeated, because its answer was lost, is applied once (C76).
//!
//! The memory is bounded three times. Of one client only the last outcomes are kept; of all clients only so many, and so many bytes of outcomes, and whoever has the most of them loses the one
//! that was silent for longest: a guest that introduces clients without end makes room for them among its own. Whoever repeats what has been forgotten
//! is told so ([`Refusal::Forgotten`]) and never taken for somebody new: numbers of clients are given by the store, each once.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::cmp::Reverse;

use prost::Message;

use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::reply::Outcome;
use crate::tree::Tree;

/// All clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clients {
    clients: Tree<u64, Arc<Client>>,
    /// None is without any client.
    guests: Tree<Box<str>, Guest>,
    /// Counts uses.
    uses: u64,
    /// What all of them count for.
    bytes: usize,
}

/// What is known of all clients of one guest.
#[derive(Clone, Debug, Default)]
struct Guest {
    /// By when they were last heard of (see [`Client::used`]); the first is forgotten first.
    by_use: Tree<(u64, u64), ()>,
    /// What they count for.
    bytes: usize,
}

/// One client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Client {
    /// Who has introduced it; see [`Request::guest`](crate::command::Request::guest).
    pub(crate) guest: Box<str>,
    /// Which use it was when it was last heard of.
    pub(crate) used: u64,
    /// Requests up to this one are forgotten.
    pub(crate) floor: u64,
    /// What the others came to.
    pub(crate) outcomes: BTreeMap<u64, Kept>,
}

impl Client {
    /// What it counts for.
    fn bytes(&self) -> usize {
        Limits::CLIENT_BYTES + self.outcomes.values().map(Kept::bytes).sum::<usize>()
    }
}

/// What came of a request.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// As it is sent.
    pub(crate) outcome: Box<[u8]>,
    /// A digest of what was asked; 0 if that was not noted, as in snapshots of before.
    pub(crate) command: u64,
}

impl Kept {
    fn bytes(&self) -> usize {
        Limits::OUTCOME_BYTES + self.outcome.len()
    }
}

impl Clients {
    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Client)> {
        self.clients.iter().map(|(id, client)| (*id, &**client))
    }

    /// Takes up a client with this number, which nobody has or had.
    pub(crate) fn introduce(&mut self, id: u64, guest: &str, limits: &Limits) {
        self.uses += 1;
        self.restore(id, Client { guest: guest.into(), used: self.uses, ..Client::default() });
        self.make_room(limits);
    }

    /// Forgets clients until what is left is not too much.
    fn make_room(&mut self, limits: &Limits) {
        while self.clients.len() > limits.clients_max && self.forget_one(|it| it.by_use.len()) {}
        while self.bytes > limits.outcomes_bytes_max && self.forget_one(|it| it.bytes) {}
    }

    /// Forgets the client that was silent for longest, of the guest that has the most. False if there is none.
    fn forget_one(&mut self, most: fn(&Guest) -> usize) -> bool {
        // Guests are few, as each has a token in a file.
        let size = |it: &Guest| (most(it), Reverse(it.by_use.first().map(|(it, ())| *it)));
        let Some((guest, of)) = self.guests.iter().max_by_key(|(_, it)| size(it)) else { return false };
        let (guest, Some((&(used, silent), ()))) = (guest.clone(), of.by_use.first()) else { return false };
        let bytes = self.clients.remove(&silent).map_or(0, |(_, client)| client.bytes());
        self.bytes -= bytes;
        note_silence(&mut self.guests, &guest, used, silent, bytes);
        if used == self.uses {
            // As it would be counted by whoever knows only those that are left.
            let last = self.guests.iter().filter_map(|(_, it)| it.by_use.last());
            self.uses = last.map(|(it, ())| it.0).max().unwrap_or(0);
        }
        true
    }

    /// Puts a client where it was.
    pub(crate) fn restore(&mut self, id: u64, client: Client) {
        self.uses = self.uses.max(client.used);
        let bytes = client.bytes();
        self.bytes += bytes;
        note_use(&mut self.guests, &client.guest, client.used, id, bytes);
        self.clients.insert(id, Arc::new(client));
    }

    /// What came of the client's request, as it was answered then, with the revision of that time; `None` if it is new. Forgets what the client has the answers to.
    /// Under a number that was used for another command (by its digest) nothing was done of this one, so that one's outcome is not told for it.
    pub(crate) fn look_up(&mut self, id: u64, guest: &str, sequence: u64, answered: u64, command: u64) -> Option<Outcome> {
        // Another guest's is none that this one may know: its outcomes are not told, and nothing is done in its name.
        let known =
            self.clients.find_mut(&id).map(|(_, it)| Arc::make_mut(it)).filter(|it| guest.is_empty() || *it.guest == *guest);
        let forgotten = || Outcome::of(&Err(Refusal::Forgotten), 0);
        let Some(client) = known else { return Some(forgotten()) };
        self.uses += 1;
        let before = client.bytes();
        note_silence(&mut self.guests, &client.guest, client.used, id, before);
        client.used = self.uses;
        // A client that says it has the answer to this very request, and repeats it, has lost count: what it asks may have happened.
        let answered = answered.min(sequence.saturating_sub(1));
        if answered > client.floor {
            client.outcomes = client.outcomes.split_off(&(answered + 1));
            client.floor = answered;
        }
        let after = client.bytes();
        note_use(&mut self.guests, &client.guest, client.used, id, after);
        self.bytes = self.bytes - before + after;
        match client.outcomes.get(&sequence) {
            Some(kept) if kept.command != 0 && kept.command != command => {
                Some(Outcome::of(&Err(Refusal::NumberUsed(sequence)), 0))
            }
            Some(kept) => Some(Outcome::decode(&kept.outcome[..]).unwrap_or_else(|_| forgotten())),
            None if sequence <= client.floor => Some(forgotten()),
            None => None,
        }
    }

    /// Remembers what came of a new request.
    pub(crate) fn remember(&mut self, id: u64, sequence: u64, command: u64, mut outcome: Outcome, limits: &Limits) {
        let Some(client) = self.clients.find_mut(&id).map(|(_, it)| Arc::make_mut(it)) else { return };
        if outcome.encoded_len() > limits.outcome_len_max {
            outcome = Outcome::of(&Err(Refusal::AnswerDropped(outcome.revision)), outcome.revision);
        }
        let before = client.bytes();
        client.outcomes.insert(sequence, Kept { outcome: outcome.encode_to_vec().into(), command });
        while client.outcomes.len() > limits.outcomes_max {
            let Some((oldest, _)) = client.outcomes.pop_first() else { break };
            client.floor = oldest;
        }
        let after = client.bytes();
        self.bytes = self.bytes - before + after;
        if let Some((_, of)) = self.guests.find_mut(&client.guest) {
            of.bytes = of.bytes - before + after;
        }
        self.make_room(limits);
    }
}

fn note_use(guests: &mut Tree<Box<str>, Guest>, guest: &str, used: u64, id: u64, bytes: usize) {
    match guests.find_mut(guest) {
        Some((_, of)) => {
            of.by_use.insert((used, id), ());
            of.bytes += bytes;
        }
        None => {
            guests.insert(guest.into(), Guest { by_use: Tree::from_iter([((used, id), ())]), bytes });
        }
    }
}

fn note_silence(guests: &mut Tree<Box<str>, Guest>, guest: &str, used: u64, id: u64, bytes: usize) {
    if let Some((_, of)) = guests.find_mut(guest) {
        of.by_use.remove(&(used, id));
        of.bytes -= bytes;
        if of.by_use.is_empty() {
            guests.remove(guest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::Reply;

    const LIMITS: Limits = Limits { clients_max: 2, outcomes_max: 2, outcome_len_max: 64, ..Limits::STANDARD };

    fn ask(clients: &mut Clients, id: u64, sequence: u64, answered: u64) -> Option<Result<Reply, Refusal>> {
        let before = clients.look_up(id, "", sequence, answered, sequence).map(Outcome::result);
        if before.is_none() {
            clients.remember(id, sequence, sequence, Outcome::of(&Ok(Reply::Done(sequence)), 9), &LIMITS);
        }
        before
    }

    #[test]
    fn a_repeated_request_is_answered_and_a_forgotten_one_refused() {
        let mut clients = Clients::default();
        clients.introduce(7, "", &LIMITS);
        // Out of order, as requests in flight arrive.
        for sequence in [2, 1, 3] {
            assert_eq!(ask(&mut clients, 7, sequence, 0), None);
        }
        assert_eq!(ask(&mut clients, 7, 3, 0), Some(Ok(Reply::Done(3))));
        assert_eq!(ask(&mut clients, 7, 1, 0), Some(Err(Refusal::Forgotten)));
        assert_eq!(ask(&mut clients, 7, 4, 3), None);
        assert_eq!(ask(&mut clients, 7, 3, 0), Some(Err(Refusal::Forgotten)), "it said that it has the answer");
        assert_eq!(ask(&mut clients, 8, 1, 0), Some(Err(Refusal::Forgotten)), "nobody of this number was introduced");
        assert_eq!(ask(&mut clients, 7, 5, 99), None, "what is asked now was not answered before");
    }

    #[test]
    fn a_client_is_known_to_the_guest_who_introduced_it_and_to_one_who_may_everything() {
        let mut clients = Clients::default();
        clients.introduce(7, "a", &LIMITS);
        assert_eq!(clients.look_up(7, "a", 1, 0, 5), None);
        clients.remember(7, 1, 5, Outcome::of(&Ok(Reply::Done(3)), 3), &LIMITS);
        assert_eq!(clients.look_up(7, "b", 1, 0, 5).map(Outcome::result), Some(Err(Refusal::Forgotten)));
        assert_eq!(
            clients.look_up(7, "b", 2, 1, 5).map(Outcome::result),
            Some(Err(Refusal::Forgotten)),
            "nor can it make others forget"
        );
        assert_eq!(clients.look_up(7, "", 1, 0, 5).map(Outcome::result), Some(Ok(Reply::Done(3))));
    }

    #[test]
    fn a_number_that_was_used_for_another_request_is_refused_unless_nobody_noted_for_which() {
        let mut clients = Clients::default();
        clients.introduce(7, "", &LIMITS);
        clients.remember(7, 1, 5, Outcome::of(&Ok(Reply::Done(3)), 3), &LIMITS);
        assert_eq!(clients.look_up(7, "", 1, 0, 6).map(Outcome::result), Some(Err(Refusal::NumberUsed(1))));
        assert_eq!(
            clients.look_up(7, "", 1, 0, 5).map(Outcome::result),
            Some(Ok(Reply::Done(3))),
            "nothing is forgotten by that"
        );
        clients.remember(7, 2, 0, Outcome::of(&Ok(Reply::Done(4)), 4), &LIMITS);
        assert_eq!(clients.look_up(7, "", 2, 0, 6).map(Outcome::result), Some(Ok(Reply::Done(4))));
    }

    #[test]
    fn the_client_that_was_silent_for_longest_is_forgotten() {
        let mut clients = Clients::default();
        clients.introduce(1, "", &LIMITS);
        clients.introduce(2, "", &LIMITS);
        assert_eq!(ask(&mut clients, 1, 1, 0), None);
        clients.introduce(3, "", &LIMITS);
        assert_eq!(ask(&mut clients, 1, 1, 0), Some(Ok(Reply::Done(1))));
        assert_eq!(ask(&mut clients, 2, 1, 0), Some(Err(Refusal::Forgotten)));
    }

    #[test]
    fn a_guest_that_introduces_clients_without_end_pushes_out_its_own() {
        let limits = Limits { clients_max: 10, ..LIMITS };
        let mut clients = Clients::default();
        for id in 1..=3 {
            clients.introduce(id, "modest", &limits);
            assert_eq!(clients.look_up(id, "modest", 1, 0, 5), None);
            clients.remember(id, 1, 5, Outcome::of(&Ok(Reply::Done(id)), id), &limits);
        }
        let repeated = |clients: &mut Clients, id| clients.look_up(id, "modest", 1, 0, 5).map(Outcome::result);
        for id in 100..200 {
            clients.introduce(id, "greedy", &limits);
        }
        assert_eq!(clients.len(), 10);
        for id in 1..=3 {
            assert_eq!(repeated(&mut clients, id), Some(Ok(Reply::Done(id))), "client {id}, and not applied again");
        }
        let greedy: alloc::vec::Vec<u64> = clients.iter().map(|(id, _)| id).filter(|id| *id >= 100).collect();
        assert_eq!(greedy, [193, 194, 195, 196, 197, 198, 199], "the last ones");
        // The modest one may have as many as anybody.
        for id in 201..=300 {
            clients.introduce(id, "modest", &limits);
        }
        let of = |clients: &Clients, guest: &str| clients.iter().filter(|(_, it)| *it.guest == *guest).count();
        assert_eq!((of(&clients, "modest"), of(&clients, "greedy")), (5, 5));
        // And what is known of it is the same after a snapshot.
        let mut restored = Clients::default();
        clients.iter().for_each(|(id, client)| restored.restore(id, client.clone()));
        for clients in [&mut clients, &mut restored] {
            clients.introduce(400, "third", &limits);
        }
        assert!(clients.iter().map(|(id, _)| id).eq(restored.iter().map(|(id, _)| id)));
        assert_eq!(
            (of(&clients, "modest"), of(&clients, "greedy"), of(&clients, "third")),
            (5, 4, 1),
            "whose was silent for longest"
        );
    }

    #[test]
    fn outcomes_have_so_many_bytes_in_all_and_the_guest_that_has_most_of_them_loses_a_client() {
        let one = Outcome::of(&Ok(Reply::Done(7)), 7);
        let each = Limits::OUTCOME_BYTES + one.encoded_len();
        // Five clients and six outcomes.
        let limits = Limits { clients_max: 10, outcomes_bytes_max: 5 * Limits::CLIENT_BYTES + 6 * each, ..Limits::STANDARD };
        let mut clients = Clients::default();
        for (id, guest) in [(1, "modest"), (2, "modest"), (3, "greedy"), (4, "greedy"), (5, "third")] {
            clients.introduce(id, guest, &limits);
        }
        let ask = |clients: &mut Clients, id, guest: &str, sequence, answered| {
            assert_eq!(clients.look_up(id, guest, sequence, answered, 5), None, "{id}");
            clients.remember(id, sequence, 5, one.clone(), &limits);
        };
        ask(&mut clients, 1, "modest", 1, 0);
        ask(&mut clients, 3, "greedy", 1, 0);
        for sequence in 1..=4 {
            ask(&mut clients, 4, "greedy", sequence, 0);
        }
        assert_eq!(clients.bytes, limits.outcomes_bytes_max);
        // What it has the answers to is not kept, so there is room; and what is known of it is the same after a snapshot.
        ask(&mut clients, 4, "greedy", 5, 1);
        let mut restored = Clients::default();
        clients.iter().for_each(|(id, client)| restored.restore(id, client.clone()));
        for clients in [&mut clients, &mut restored] {
            assert_eq!((clients.len(), clients.bytes), (5, limits.outcomes_bytes_max));
            // The guest with most bytes loses the one that was silent for longest.
            ask(clients, 1, "modest", 2, 0);
            assert!(clients.iter().map(|(id, _)| id).eq([1, 2, 4, 5]));
            assert_eq!(clients.bytes, 4 * Limits::CLIENT_BYTES + 6 * each);
        }
    }

    /// It may be the one that was heard of last. Uses are counted on alike by whoever has only heard of those that are left.
    #[test]
    fn uses_are_counted_alike_after_a_snapshot_whoever_was_forgotten() {
        let long = Outcome::of(&Err(Refusal::Malformed("x".repeat(200))), 5);
        let limits = Limits { outcomes_bytes_max: 2 * Limits::CLIENT_BYTES + 100, ..Limits::STANDARD };
        let mut clients = Clients::default();
        clients.introduce(1, "modest", &limits);
        clients.introduce(2, "greedy", &limits);
        assert_eq!(clients.look_up(2, "greedy", 1, 0, 5), None);
        clients.remember(2, 1, 5, long, &limits);
        let mut restored = Clients::default();
        clients.iter().for_each(|(id, client)| restored.restore(id, client.clone()));
        for clients in [&mut clients, &mut restored] {
            clients.introduce(3, "third", &limits);
        }
        let uses = |clients: &Clients| clients.iter().map(|(id, it)| (id, it.used)).collect::<alloc::vec::Vec<_>>();
        assert_eq!(uses(&clients), [(1, 1), (3, 2)]);
        assert_eq!(uses(&restored), uses(&clients));
    }

    #[test]
    fn a_long_answer_is_not_kept_and_that_is_said() {
        let mut clients = Clients::default();
        clients.introduce(1, "", &LIMITS);
        let long = Err(Refusal::Malformed("x".repeat(100)));
        assert_eq!(clients.look_up(1, "", 1, 0, 1), None);
        clients.remember(1, 1, 1, Outcome::of(&long, 5), &LIMITS);
        assert_eq!(ask(&mut clients, 1, 1, 0), Some(Err(Refusal::AnswerDropped(5))));
    }
}
