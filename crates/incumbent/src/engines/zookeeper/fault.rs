//! ZooKeeper's errors as ours: the one place where it is decided whether something may have happened.

use zookeeper_client::Error as Fault;

use crate::engine::Error;
use crate::place::Place;

/// What a request that failed means. `doing` says what was wanted, for people.
///
/// Only what the server itself answered counts as an answer. All else may have happened.
pub(super) fn explain(fault: Fault, doing: &str) -> Error {
    let error = match fault {
        Fault::NoAuth => Error::misconfigured(
            "ZooKeeper does not allow it: give the user the right (setAcl), or name a user that has it, as in zookeeper://USER:PASSWORD@HOST/",
        ),
        Fault::AuthFailed => {
            Error::misconfigured(format!("ZooKeeper does not accept the user and password: {}", Place::GIVE_PASSWORD))
        }
        Fault::InvalidAcl => Error::misconfigured("ZooKeeper does not take the access list: it needs a user with a password"),
        Fault::QuotaExceeded => Error::misconfigured("the quota on the path is used up: raise it (setquota)"),
        Fault::NoChildrenForEphemerals => {
            Error::misconfigured("the path is an ephemeral node, which has no children: choose another namespace")
        }
        Fault::Unimplemented => Error::misconfigured("the server does not know the request: it must be ZooKeeper 3.5 or later"),
        Fault::BadArguments(why) => Error::misconfigured(*why),
        Fault::Throttled => Error::refused("ZooKeeper is too busy"),
        Fault::NotReadOnly => Error::refused("the server has lost its ensemble and only reads"),
        Fault::NoNode | Fault::BadVersion | Fault::NodeExists | Fault::NotEmpty | Fault::NoWatcher => {
            Error::refused(format!("somebody else was quicker ({fault})"))
        }
        Fault::SessionExpired | Fault::SessionMoved => Error::unknown("the session has expired"),
        Fault::ClientClosed => Error::unknown("the session was closed"),
        Fault::ConnectionLoss => Error::unknown("the connection was lost"),
        Fault::UnmarshalError { .. }
        | Fault::NoHosts
        | Fault::Timeout
        | Fault::UnexpectedError(_)
        | Fault::MarshallingError
        | Fault::ReconfigDisabled
        | Fault::UnexpectedErrorCode(_)
        | Fault::RuntimeInconsistent
        | Fault::Custom(_)
        | _ => Error::unknown(fault.to_string()),
    };
    error.during(doing)
}

/// Whether the server has answered, so that it has heard of the session.
pub(super) fn is_answer(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::NoNode
            | Fault::NoAuth
            | Fault::BadVersion
            | Fault::NodeExists
            | Fault::NotEmpty
            | Fault::NoChildrenForEphemerals
            | Fault::InvalidAcl
            | Fault::QuotaExceeded
    )
}

/// Whether the session is over, for good.
pub(super) fn ends_session(fault: &Fault) -> bool {
    matches!(fault, Fault::SessionExpired | Fault::SessionMoved | Fault::ClientClosed | Fault::AuthFailed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Kind;

    #[test]
    fn what_the_server_did_not_answer_may_have_happened() {
        for fault in [Fault::ConnectionLoss, Fault::Timeout, Fault::SessionExpired, Fault::UnexpectedError("x\ny".into())] {
            let error = explain(fault, "deleting");
            assert_eq!(error.kind(), Kind::Unknown);
            assert!(error.to_string().starts_with("deleting: ") && !error.to_string().contains('\n'));
        }
        assert_eq!(explain(Fault::BadVersion, "").kind(), Kind::Refused);
        assert_eq!(explain(Fault::NoAuth, "").kind(), Kind::Misconfigured);
    }
}
