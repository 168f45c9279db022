//! What went wrong with a call, judged once: etcd's and the transport's errors end here.
//!
//! `Refused` is what etcd has surely not done: it said so, or the request never left. Whatever is not known to be that is `Unknown`.

use std::error::Error as _;
use std::sync::Arc;

use tonic::{Code, ConnectError, Status};

use crate::engine::{Error, Kind};
use crate::place::Place;

/// Why a call brought no answer. Shared by all who waited for it.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// There is no such lease, or no longer.
    NoLease,
    /// There is such a lease already.
    LeaseExists,
    /// What the caller of the engine should hear.
    Other(Arc<Error>),
}

impl Fault {
    /// What the caller of the engine should hear. No `From`: one for a public type would be everybody's, and leave `?` elsewhere in doubt.
    pub(super) fn into_error(self) -> Error {
        match self {
            Fault::NoLease => Error::refused("etcd knows the lease no more"),
            Fault::LeaseExists => Error::refused("etcd has a lease of this number already"),
            Fault::Other(error) => Arc::try_unwrap(error).unwrap_or_else(|shared| Error::clone_of(&shared)),
        }
    }

    pub(super) fn may_have_happened(&self) -> bool {
        match self {
            Fault::NoLease | Fault::LeaseExists => false,
            Fault::Other(error) => error.kind() == Kind::Unknown,
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Other(Arc::new(error))
    }
}

/// The request never left: there was no connection to send it on.
pub(super) fn never_left(status: &Status) -> bool {
    causes(status).any(|it| it.is::<ConnectError>())
}

/// The server does not take our token, or not any more: it has restarted, the token is too old, or rights have changed.
pub(super) fn wants_log_in(status: &Status) -> bool {
    let text = status.message();
    status.code() == Code::Unauthenticated
        || ["invalid auth token", "revision of auth store is old", "user name is empty"].iter().any(|it| text.contains(it))
}

/// Another server may do better: this one is cut off, shutting down, or not there.
pub(super) fn try_another_server(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Internal | Code::DeadlineExceeded)
}

/// Whether a server has ever answered us. One that wants something else hangs up without a word.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Acquaintance {
    Answered,
    /// It never has, and we speak without TLS.
    NeverWithoutTls,
    /// It never has, and we show no certificate.
    NeverWithoutCertificate,
    /// It never has, whatever the reason.
    Never,
}

/// What the failure means to the caller. `server` is for people.
pub(super) fn judge(status: &Status, server: &str, acquaintance: Acquaintance) -> Fault {
    let text = status.message();
    if text.contains("requested lease not found") {
        return Fault::NoLease;
    }
    if text.contains("lease already exists") {
        return Fault::LeaseExists;
    }
    let why = root_cause(status);
    if is_about_tls(&why) {
        return Error::misconfigured(format!(
            "no TLS with etcd at {server} ({why}): check ca=, server-name=, cert= and key= in the URL"
        ))
        .into();
    }
    if never_left(status) {
        let question = match acquaintance {
            Acquaintance::Answered | Acquaintance::NeverWithoutTls => "is it running there, and is the address right?",
            Acquaintance::NeverWithoutCertificate | Acquaintance::Never => "is it running there, and does it speak TLS?",
        };
        return Error::refused(format!("cannot reach etcd at {server} ({why}): {question}")).into();
    }
    let text = text.trim_start_matches("etcdserver: ");
    match status.code() {
        Code::PermissionDenied => Error::misconfigured(format!(
            "etcd at {server} does not permit it ({text}): grant the user's role `readwrite` with --prefix on NAMESPACE/ELECTION/ and NAMESPACE/.incumbent/ELECTION/"
        )),
        Code::Unauthenticated => {
            Error::misconfigured(format!("etcd at {server} does not know us ({text}): {}", Place::GIVE_PASSWORD))
        }
        Code::InvalidArgument if text.contains("user name is empty") => {
            Error::misconfigured(format!("etcd at {server} wants to know who we are: {}", Place::GIVE_PASSWORD))
        }
        Code::InvalidArgument if text.contains("authentication failed") => {
            Error::misconfigured(format!("etcd at {server} refuses this user and password: {}", Place::GIVE_PASSWORD))
        }
        Code::InvalidArgument if text.contains("too many operations") => Error::misconfigured(format!(
            "etcd at {server} takes no transactions as long as ours: start it with --max-txn-ops=128 or more"
        )),
        Code::Unimplemented => Error::misconfigured(format!(
            "what runs at {server} is no etcd, or one older than 3.4 ({text}): check host and port in the URL"
        )),
        Code::ResourceExhausted if text.contains("space exceeded") => Error::refused(format!(
            "etcd at {server} is full ({text}): compact and defragment it, then disarm its alarm (etcdctl alarm disarm)"
        )),
        Code::ResourceExhausted | Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange | Code::NotFound => {
            Error::refused(format!("etcd at {server} refuses: {text}"))
        }
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::AlreadyExists
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => {
            let hint = match acquaintance {
                Acquaintance::Answered | Acquaintance::Never => "",
                Acquaintance::NeverWithoutTls => ": if it wants TLS, say tls=on",
                Acquaintance::NeverWithoutCertificate => ": if it wants a certificate of ours, say cert= and key=",
            };
            Error::unknown(format!("etcd at {server} gave no answer ({why}){hint}"))
        }
    }
    .into()
}

fn causes(status: &Status) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(status.source(), |it: &&(dyn std::error::Error + 'static)| (*it).source())
}

/// The deepest cause is the one that says something: those above it say «transport error».
fn root_cause(status: &Status) -> String {
    let text = status.message().trim_start_matches("etcdserver: ");
    causes(status).last().map_or_else(|| text.to_owned(), ToString::to_string)
}

fn is_about_tls(why: &str) -> bool {
    ["certificate", "received fatal alert", "corrupt message", "UnknownIssuer", "NotValidForName"]
        .iter()
        .any(|it| why.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: Code, text: &str) -> Kind {
        let error = judge(&Status::new(code, text), "h:1", Acquaintance::Answered).into_error();
        assert!(!error.to_string().contains('\n'));
        error.kind()
    }

    #[test]
    fn what_may_have_happened_is_not_called_refused() {
        assert_eq!(kind(Code::Unavailable, "etcdserver: request timed out"), Kind::Unknown);
        assert_eq!(kind(Code::Unavailable, "etcdserver: leader changed"), Kind::Unknown);
        assert_eq!(kind(Code::Cancelled, "operation was canceled"), Kind::Unknown);
        assert_eq!(kind(Code::Unknown, "transport error"), Kind::Unknown);
    }

    #[test]
    fn what_surely_did_not_happen_is_refused() {
        assert_eq!(kind(Code::ResourceExhausted, "etcdserver: too many requests"), Kind::Refused);
        assert_eq!(kind(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"), Kind::Refused);
    }

    #[test]
    fn what_only_people_can_mend_says_so() {
        assert_eq!(kind(Code::PermissionDenied, "etcdserver: permission denied"), Kind::Misconfigured);
        assert_eq!(kind(Code::InvalidArgument, "etcdserver: user name is empty"), Kind::Misconfigured);
        assert_eq!(
            kind(Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password"),
            Kind::Misconfigured
        );
    }

    #[test]
    fn leases_are_told_apart_from_other_troubles() {
        let status = |code, text| judge(&Status::new(code, text), "h:1", Acquaintance::Answered);
        assert!(matches!(status(Code::NotFound, "etcdserver: requested lease not found"), Fault::NoLease));
        assert!(matches!(status(Code::FailedPrecondition, "etcdserver: lease already exists"), Fault::LeaseExists));
    }
}
