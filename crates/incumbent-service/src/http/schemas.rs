//! The shapes that have a name: what is taken and what is told, field by field. [`super::views`] tells in them, [`super::bodies`] reads them.
//!
//! Bytes (values and keys) are in the field of their name if they are UTF-8, else in base64 in the field of their name with `_base64` behind; never in both.

use super::shapes::{Field, Shape, always, sometimes};

/// The shape of this name.
///
/// # Panics
/// If there is none: names are only written in this folder, and a test looks at them all.
pub(super) fn named(name: &str) -> &'static Shape {
    let found = SCHEMAS.iter().find(|(it, _)| *it == name);
    &found.unwrap_or_else(|| panic!("there is no shape {name}")).1
}

const TOKEN: Field = always("token", Shape::Id, "The token of the leadership: greater than all before.");
const TOKEN_TAKEN: Field = always("token", Shape::AnyId, "The token of the leadership.");
const TOKEN_OR_PRESENT: Field =
    sometimes("token", Shape::AnyId, "The token of the leadership; the present one, if there is only one and this is left out.");
const REVISION: Field =
    always("revision", Shape::Whole, "The store's revision: events after it are watched from the next one on.");
const ELECTION: Field = always("election", Shape::Text, "The election's name.");
const IDENTITY: Field = always("identity", Shape::Text, "Who: compared whole.");
const NAME: Field = always("name", Shape::Text, "What people call it.");
const SESSION: Field = always("session", Shape::Id, "The session that it goes with.");
const PRIORITY: Field = always("priority", Shape::Signed, "The greater, the further ahead in line.");
const TENURE: Field = always("tenure_ms_min", Shape::Whole, "Its minimum tenure.");
const VALUE: Field = sometimes("value", Shape::Text, "The value, if it is UTF-8.");
const VALUE_BASE64: Field = sometimes("value_base64", Shape::Base64, "The value, if it is not UTF-8.");
const KEY: Field = sometimes("key", Shape::Text, "The key, if it is UTF-8.");
const KEY_BASE64: Field = sometimes("key_base64", Shape::Base64, "The key, if it is not UTF-8.");
const MORE: Field = always("more", Shape::Flag, "There are more behind: ask again with after= the last one.");
const PREFIX: Field = sometimes("prefix", Shape::Text, "Instead of a key: all keys that begin so.");
const PREFIX_BASE64: Field = sometimes("prefix_base64", Shape::Base64, "The same in base64.");
const WANTS_PREVIOUS: Field = sometimes("previous", Shape::Flag, "Answer what was there before.");

/// Every named shape.
pub(super) static SCHEMAS: &[(&str, Shape)] = &[
    (
        "Error",
        Shape::Record(&[always(
            "error",
            Shape::Record(&[
                always("code", Shape::Text, "For programs."),
                always("message", Shape::Text, "What is wrong."),
                always("what_to_do", Shape::Text, "What helps."),
                sometimes("retry_after_ms", Shape::Whole, "It may be tried again after so long."),
                sometimes(
                    "found",
                    Shape::Maybe(&Shape::Named("Item")),
                    "The key as it is, where a guard did not hold; null if it is not there.",
                ),
            ]),
            "Why it was not done, or may not have been.",
        )]),
    ),
    ("Done", Shape::Record(&[REVISION])),
    (
        "Wish",
        Shape::Record(&[
            TOKEN,
            always("demand", Shape::Word(&["resign", "evict", "hand_over", "unknown"]), "What the holder should do."),
            always("to", Shape::Text, "To whom it should hand over; else empty."),
            always("by", Shape::Text, "Who wants it."),
        ]),
    ),
    (
        "Holder",
        Shape::Record(&[
            IDENTITY,
            NAME,
            TOKEN,
            VALUE,
            VALUE_BASE64,
            PRIORITY,
            SESSION,
            always("since_wall_ms", Shape::Whole, "Since when, in milliseconds since 1970 by the wall clock. For people."),
            TENURE,
            always("wish", Shape::Maybe(&Shape::Named("Wish")), "What somebody wants of it."),
        ]),
    ),
    (
        "Candidate",
        Shape::Record(&[
            IDENTITY,
            NAME,
            VALUE,
            VALUE_BASE64,
            PRIORITY,
            SESSION,
            always("arrival", Shape::Whole, "The revision at which it came."),
            TENURE,
        ]),
    ),
    (
        "Past",
        Shape::Record(&[
            IDENTITY,
            NAME,
            TOKEN,
            always("since_wall_ms", Shape::Whole, "When it began, by the wall clock."),
            always("until_wall_ms", Shape::Whole, "When it ended, by the wall clock."),
            always("lasted_ms", Shape::Whole, "How long it lasted, in cluster time."),
            always("reason", Shape::Text, "Why it ended."),
        ]),
    ),
    ("Note", Shape::Record(&[TOKEN, always("text", Shape::Text, "What was noted.")])),
    (
        "Completion",
        Shape::Record(&[
            always("job", Shape::Text, "Which."),
            TOKEN,
            always("wall_ms", Shape::Whole, "When, by the wall clock."),
            always("outcome", Shape::Text, "What came of it."),
        ]),
    ),
    (
        "Reservation",
        Shape::Record(&[
            always("to", Shape::Text, "For whom the seat is kept; empty for nobody: a lock delay."),
            always("until_ms", Shape::Whole, "Until when, in cluster time."),
        ]),
    ),
    (
        "Board",
        Shape::Record(&[
            ELECTION,
            always("seats", Shape::Whole, "How many may lead at once; 0 if nobody has said."),
            always("leaders", Shape::List(&Shape::Named("Holder")), "Who leads, oldest first."),
            always("candidates", Shape::List(&Shape::Named("Candidate")), "Who waits, next one first; the first thousand."),
            always("waiting", Shape::Whole, "How many wait."),
            always("notes", Shape::List(&Shape::Named("Note")), "What was noted of leaderships."),
            always("completions", Shape::List(&Shape::Named("Completion")), "Jobs that were done, newest first."),
            always("reservations", Shape::List(&Shape::Named("Reservation")), "Seats that are free and yet not to be had."),
            always("incarnation", Shape::Whole, "The incarnation of its tokens, if it is above the store's."),
            REVISION,
        ]),
    ),
    (
        "History",
        Shape::Record(&[
            ELECTION,
            always("past", Shape::List(&Shape::Named("Past")), "Leaderships that have ended, newest first; the last 32."),
            REVISION,
        ]),
    ),
    (
        "Summary",
        Shape::Record(&[
            ELECTION,
            always("leader", Shape::Maybe(&Shape::Named("Holder")), "The oldest of those who lead."),
            always("leading", Shape::Whole, "So many lead."),
            always("waiting", Shape::Whole, "So many wait."),
        ]),
    ),
    (
        "Elections",
        Shape::Record(&[
            always("elections", Shape::List(&Shape::Named("Summary")), "In the order of their names."),
            MORE,
            REVISION,
        ]),
    ),
    (
        "Campaign",
        Shape::Record(&[
            always("session", Shape::AnyId, "The candidate goes with this session."),
            IDENTITY,
            sometimes("name", Shape::Text, "What people call it; the identity if left out. A seat can be handed over to a name."),
            VALUE,
            VALUE_BASE64,
            sometimes("priority", Shape::Signed, "The greater, the further ahead in line; 0 if left out."),
            sometimes("seats", Shape::Whole, "How many may lead at once; 1 if left out. The same for all candidates."),
            sometimes(
                "tenure_ms_min",
                Shape::Whole,
                "Once it leads, it is not asked to make way for a better candidate for so long.",
            ),
            sometimes("seen", Shape::AnyId, "The greatest token that the candidate has seen: it is granted a greater one."),
            sometimes("only_if_free", Shape::Flag, "Do not stand in line: answer who leads."),
        ]),
    ),
    (
        "Standing",
        Shape::Record(&[
            always("won", Shape::Flag, "Whether the candidate leads."),
            sometimes("token", Shape::Id, "If it leads: the token of its leadership. Give it to all that it writes to."),
            sometimes("ttl_ms", Shape::Whole, "If it leads: the ttl of the session, counted from before the request was sent."),
            sometimes(
                "place",
                Shape::Whole,
                "If it waits: 1 is first, 100 is the hundredth or behind; 0 is not in line, as it was asked.",
            ),
            sometimes("leader", Shape::Maybe(&Shape::Named("Holder")), "If it waits: who leads."),
            sometimes(
                "free_in_ms",
                Shape::Whole,
                "If it waits: how long until a seat is free unless it is renewed; 0 if that is not known.",
            ),
            REVISION,
        ]),
    ),
    ("Renew", Shape::Record(&[TOKEN_TAKEN])),
    (
        "Renewed",
        Shape::Record(&[
            always("in_office", Shape::Flag, "If not, it never will be again: stop."),
            always("ttl_ms", Shape::Whole, "The ttl of the session, counted from before the request was sent."),
            always("wish", Shape::Maybe(&Shape::Named("Wish")), "What somebody wants of it."),
            REVISION,
        ]),
    ),
    ("Proclaim", Shape::Record(&[TOKEN_TAKEN, VALUE, VALUE_BASE64])),
    (
        "Resign",
        Shape::Record(&[
            TOKEN_TAKEN,
            sometimes("reason", Shape::Text, "Why, for the record."),
            sometimes("to", Shape::Text, "Who shall have the seat next: a candidate's identity or name."),
        ]),
    ),
    ("Withdraw", Shape::Record(&[IDENTITY])),
    (
        "Handover",
        Shape::Record(&[
            always("to", Shape::Text, "To whom: a candidate's identity or name."),
            TOKEN_OR_PRESENT,
            sometimes("by", Shape::Text, "Who wants it, for the record."),
            sometimes("after_tenure", Shape::Flag, "Refuse until the leadership has served its minimum tenure."),
        ]),
    ),
    (
        "Evict",
        Shape::Record(&[
            TOKEN_OR_PRESENT,
            sometimes("by", Shape::Text, "Who wants it, for the record."),
            sometimes("after_tenure", Shape::Flag, "Refuse until the leadership has served its minimum tenure."),
            sometimes(
                "force",
                Shape::Flag,
                "Take the seat away at once, without waiting for the holder to stop. Not safe without fencing: the holder may be at work still.",
            ),
        ]),
    ),
    ("Annotate", Shape::Record(&[TOKEN_TAKEN, always("text", Shape::Text, "What, in place of the note before.")])),
    ("Raise", Shape::Record(&[always("above", Shape::AnyId, "Every later token is greater than this one.")])),
    (
        "Complete",
        Shape::Record(&[
            TOKEN_TAKEN,
            always("job", Shape::Text, "Which job: a date, for example."),
            sometimes("outcome", Shape::Text, "What came of it."),
        ]),
    ),
    (
        "OpenSession",
        Shape::Record(&[
            always(
                "ttl_ms",
                Shape::Whole,
                "It ends when it has not been heard of for so long; at least 100, and without admin: at most 86400000.",
            ),
            sometimes("owner", Shape::Text, "Whose it is, for people."),
            sometimes("session", Shape::AnyId, "The number it shall have; the store chooses one if left out."),
            sometimes(
                "lock_delay_ms",
                Shape::Whole,
                "A seat or key that it loses without having given it back is nobody's for so long.",
            ),
        ]),
    ),
    ("Opened", Shape::Record(&[SESSION, REVISION])),
    (
        "Introduced",
        Shape::Record(&[always("client", Shape::Id, "The client's number, for Idempotency-Key: CLIENT-SEQUENCE."), REVISION]),
    ),
    (
        "Session",
        Shape::Record(&[
            SESSION,
            always("ttl_ms", Shape::Whole, "Its ttl."),
            always("left_ms", Shape::Whole, "What is left of it, in cluster time."),
            always("owner", Shape::Text, "Whose it is."),
            always("ends_with_connection", Shape::Flag, "It ends with its connection of the binary protocol."),
            always("lock_delay_ms", Shape::Whole, "Its lock delay."),
            always("ending", Shape::Flag, "It has ended, and what is attached to it is going."),
            always("candidacies", Shape::Whole, "So many candidacies and leaderships."),
            sometimes("keys", Shape::List(&Shape::Named("Key")), "The keys that go with it; not in lists."),
            sometimes("revision", Shape::Whole, "The store's revision; not in lists."),
        ]),
    ),
    ("Key", Shape::Record(&[KEY, KEY_BASE64])),
    (
        "Sessions",
        Shape::Record(&[
            always("sessions", Shape::List(&Shape::Named("Session")), "In the order of their numbers."),
            MORE,
            REVISION,
        ]),
    ),
    (
        "Item",
        Shape::Record(&[
            KEY,
            KEY_BASE64,
            VALUE,
            VALUE_BASE64,
            always("created", Shape::Whole, "The revision at which it was created."),
            always("modified", Shape::Whole, "The revision at which it was last written."),
            always("version", Shape::Whole, "How often it was written since it was created."),
            always("session", Shape::Maybe(&Shape::Id), "The session it goes with."),
            always("modified_wall_ms", Shape::Whole, "When it was last written, by the wall clock."),
        ]),
    ),
    ("Found", Shape::Record(&[always("item", Shape::Named("Item"), "The key."), REVISION])),
    (
        "Items",
        Shape::Record(&[
            always("items", Shape::List(&Shape::Named("Item")), "In the order of their keys."),
            MORE,
            sometimes("count", Shape::Whole, "How many there are in the whole span, if that was asked for."),
            sometimes("revision", Shape::Whole, "The store's revision; not in transactions."),
        ]),
    ),
    (
        "Written",
        Shape::Record(&[
            always("item", Shape::Named("Item"), "The key as it is now, without its value."),
            sometimes("previous", Shape::Maybe(&Shape::Named("Item")), "What was there before, if that was asked for."),
            sometimes("revision", Shape::Whole, "The store's revision; not in transactions."),
        ]),
    ),
    (
        "Deleted",
        Shape::Record(&[
            always("count", Shape::Whole, "So many keys."),
            sometimes("previous", Shape::List(&Shape::Named("Item")), "What was there, if that was asked for."),
            sometimes("revision", Shape::Whole, "The store's revision; not in transactions."),
        ]),
    ),
    (
        "Transaction",
        Shape::Record(&[
            sometimes("guards", Shape::List(&Shape::Named("Guard")), "What must hold: all of it."),
            sometimes("then", Shape::List(&Shape::Named("Operation")), "What is done if it does."),
            sometimes("otherwise", Shape::List(&Shape::Named("Operation")), "What is done if it does not."),
        ]),
    ),
    (
        "Guard",
        Shape::Record(&[
            KEY,
            KEY_BASE64,
            PREFIX,
            PREFIX_BASE64,
            sometimes(
                "comparison",
                Shape::Word(&["equal", "greater", "less", "not_equal"]),
                "How what is there compares with what follows; equal if left out.",
            ),
            sometimes("exists", Shape::Flag, "Whether the key is there."),
            sometimes("version", Shape::Whole, "How often it was written; 0 if it is not there."),
            sometimes("created", Shape::Whole, "The revision of its creation."),
            sometimes("modified", Shape::Whole, "The revision of its last writing."),
            VALUE,
            VALUE_BASE64,
            sometimes("session", Shape::AnyId, "The session it goes with; 0 for none."),
            sometimes("children", Shape::Whole, "How many children it has."),
            sometimes("undelayed", Shape::Flag, "Whether it is free of lock delays."),
            sometimes(
                "holding",
                Shape::Record(&[ELECTION, TOKEN_TAKEN]),
                "That this leadership is in office; takes no key. The fence: a write of a former leader finds that it does not hold.",
            ),
        ]),
    ),
    (
        "Operation",
        Shape::Record(&[
            sometimes("put", Shape::Named("Put"), "Write a key."),
            sometimes("delete", Shape::Named("Delete"), "Delete keys."),
            sometimes("read", Shape::Named("Read"), "Read keys, as they are at this point."),
            sometimes("transact", Shape::Named("Transaction"), "Decide once more."),
            sometimes("abort", Shape::Whole, "Give all of it up, as if nothing had been; the error names this number."),
        ]),
    ),
    (
        "Put",
        Shape::Record(&[
            KEY,
            KEY_BASE64,
            VALUE,
            VALUE_BASE64,
            sometimes("session", Shape::AnyId, "The session it goes with."),
            sometimes("outlives_session", Shape::Flag, "When the session ends the key stays, without it."),
            sometimes("parent_len", Shape::Whole, "It is a child of the key that is the first so many bytes of this one."),
            sometimes("sequential", Shape::Flag, "Append the number of the parent's next child, in ten digits."),
            sometimes("keeps_value", Shape::Flag, "Leave the value as it is; the key must be there."),
            sometimes("keeps_session", Shape::Flag, "Leave the session as it is; the key must be there."),
            WANTS_PREVIOUS,
        ]),
    ),
    ("Delete", Shape::Record(&[KEY, KEY_BASE64, PREFIX, PREFIX_BASE64, WANTS_PREVIOUS])),
    (
        "Read",
        Shape::Record(&[
            KEY,
            KEY_BASE64,
            PREFIX,
            PREFIX_BASE64,
            sometimes("limit", Shape::Whole, "So many at most."),
            sometimes("keys_only", Shape::Flag, "Without values."),
            sometimes("counts", Shape::Flag, "Count all, also those behind the limit."),
        ]),
    ),
    (
        "Transacted",
        Shape::Record(&[
            always("held", Shape::Flag, "Whether the guards held."),
            always("results", Shape::List(&Shape::Named("Result")), "What each operation has answered, in order."),
            sometimes("revision", Shape::Whole, "The store's revision; not in nested ones."),
        ]),
    ),
    (
        "Result",
        Shape::Record(&[
            sometimes("written", Shape::Named("Written"), "To put."),
            sometimes("deleted", Shape::Named("Deleted"), "To delete."),
            sometimes("read", Shape::Named("Items"), "To read."),
            sometimes("transacted", Shape::Named("Transacted"), "To transact."),
        ]),
    ),
    ("Compact", Shape::Record(&[always("revision", Shape::Whole, "The last revision to drop.")])),
    (
        "Event",
        Shape::Record(&[
            REVISION,
            always(
                "type",
                Shape::Word(&[
                    "elected",
                    "ended",
                    "proclaimed",
                    "wished",
                    "joined",
                    "left",
                    "first",
                    "noted",
                    "completed",
                    "put",
                    "deleted",
                    "session_ended",
                    "unknown",
                ]),
                "What has changed; also the name of the event.",
            ),
            sometimes("election", Shape::Text, "In which election."),
            sometimes("holder", Shape::Named("Holder"), "elected: who."),
            sometimes("past", Shape::Named("Past"), "ended: whose leadership, and why."),
            sometimes("token", Shape::Id, "proclaimed: which leadership."),
            VALUE,
            VALUE_BASE64,
            sometimes("identity", Shape::Text, "wished, joined, left, first: who."),
            sometimes("priority", Shape::Signed, "joined, left, first."),
            sometimes("session", Shape::Id, "joined, left, first, session_ended."),
            sometimes("reason", Shape::Text, "session_ended: why."),
            sometimes("wish", Shape::Named("Wish"), "wished: what."),
            sometimes("note", Shape::Named("Note"), "noted: what."),
            sometimes("completion", Shape::Named("Completion"), "completed: which job."),
            sometimes("item", Shape::Named("Item"), "put: the key as it is now."),
            sometimes("previous", Shape::Maybe(&Shape::Named("Item")), "put, deleted: the key as it was before."),
        ]),
    ),
    (
        "Line",
        Shape::Record(&[
            always("node", Shape::Whole, "The other end."),
            always("address", Shape::Text, "Where it is."),
            always("state", Shape::Word(&["up", "silent", "down"]), "Whether it is heard."),
            always("round_trip_ms", Shape::Maybe(&Shape::Real), "The last round trip."),
            always("via", Shape::Maybe(&Shape::Whole), "The node through which mail goes while the line itself is not good."),
            always("trouble", Shape::Maybe(&Shape::Text), "Why it is not connected: what was wrong when that was last tried."),
        ]),
    ),
    (
        "StoreStatus",
        Shape::Record(&[
            always("oldest", Shape::Whole, "The oldest revision whose events are kept."),
            always("incarnation", Shape::Whole, "Its incarnation."),
            always("sessions", Shape::Whole, "So many sessions."),
            always("elections", Shape::Whole, "So many elections."),
            always("keys", Shape::Whole, "So many keys."),
            always("keys_bytes", Shape::Whole, "So many bytes in them."),
            always("clients", Shape::Whole, "So many clients are remembered."),
            always("events", Shape::Whole, "So many events are kept."),
        ]),
    ),
    (
        "Status",
        Shape::Record(&[
            always("node", Shape::Whole, "This node."),
            always("leader", Shape::Maybe(&Shape::Whole), "Who leads, as it sees it."),
            always("leads", Shape::Flag, "Whether that is this node."),
            always("term", Shape::Whole, "In which term."),
            always("why", Shape::Text, "Why this has last changed, as far as this node can tell."),
            always("voters", Shape::List(&Shape::Whole), "Who votes."),
            always("learners", Shape::List(&Shape::Whole), "Who hears everything and decides nothing."),
            always("changing", Shape::Flag, "Whether a change of members is under way."),
            always("commit", Shape::Whole, "Up to where entries are known to be decided."),
            always("applied", Shape::Whole, "Up to where they are applied."),
            always("first", Shape::Whole, "The first entry that is kept."),
            always("last", Shape::Whole, "The last entry."),
            always("snapshot", Shape::Whole, "The last snapshot."),
            REVISION,
            always(
                "disk",
                Shape::Record(&[
                    always("writes", Shape::Whole, "Writes with their syncs."),
                    always("last_ms", Shape::Real, "How long the last one took."),
                    always("longest_ms", Shape::Real, "How long the longest took."),
                    always("slow", Shape::Flag, "Whether it is too slow for a leader."),
                    always("full", Shape::Maybe(&Shape::Text), "Set while it is full: what the system says."),
                ]),
                "Its disk.",
            ),
            always("watches", Shape::Whole, "Watches on this node."),
            always("waiting", Shape::Whole, "Requests and questions that wait."),
            always("lines", Shape::List(&Shape::Named("Line")), "Its lines to the others."),
            always("store", Shape::Named("StoreStatus"), "What this node has stored."),
        ]),
    ),
    (
        "Readiness",
        Shape::Record(&[
            always("ready", Shape::Flag, "Whether it can serve."),
            always("node", Shape::Whole, "This node."),
            always("why", Shape::List(&Shape::Text), "Why not."),
        ]),
    ),
    ("Alive", Shape::Record(&[always("node", Shape::Whole, "This node.")])),
];

#[cfg(test)]
mod tests {
    use super::super::routes::{ROUTES, Takes};
    use super::*;

    /// Every name that is used is there, and every one that is there is used.
    #[test]
    fn names_lead_to_shapes_and_shapes_are_used() {
        fn collect(shape: &Shape, names: &mut std::collections::BTreeSet<&'static str>) {
            match shape {
                Shape::Named(name) => {
                    if names.insert(name) {
                        collect(named(name), names);
                    }
                }
                Shape::Maybe(inner) | Shape::List(inner) => collect(inner, names),
                Shape::Record(fields) => fields.iter().for_each(|it| collect(&it.shape, names)),
                Shape::Text
                | Shape::Base64
                | Shape::Word(_)
                | Shape::Flag
                | Shape::Whole
                | Shape::Signed
                | Shape::Real
                | Shape::Id
                | Shape::AnyId
                | Shape::Anything => {}
            }
        }
        let mut names = std::collections::BTreeSet::from(["Error"]);
        collect(named("Error"), &mut names);
        for route in ROUTES {
            if let Takes::Json(shape) = &route.takes {
                collect(shape, &mut names);
            }
            for gives in route.gives {
                if let Some(shape) = gives.shape() {
                    collect(shape, &mut names);
                }
            }
        }
        let all: std::collections::BTreeSet<&str> = SCHEMAS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, all);
        assert_eq!(all.len(), SCHEMAS.len(), "a name is there twice");
    }
}
