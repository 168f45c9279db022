//! Who is at the desk, and what it may: asked before each operation, with the operation itself.
//!
//! The desk knows no rights. Whoever keeps them says by a [`Gate`] who a token belongs to, and by a [`Visitor`] what that one may.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use incumbent_store::command::Request;
use incumbent_store::query::Query;
use incumbent_store::watch::Interest;

/// Lets visitors in by one connection; asked with every request, for each may bring another token.
pub trait Gate: Send + Sync {
    /// Whose token this is; `None` is one who brings none.
    ///
    /// # Errors
    /// Why it is not let in.
    fn admit(&self, token: Option<&str>) -> Result<Arc<dyn Visitor>, Denial>;

    /// Whether whoever comes is let in, without a token.
    fn is_open(&self) -> bool;

    /// Whether it is known by now who asks by this connection, or need not be.
    fn knows_somebody(&self) -> bool;
}

/// Who was let in.
pub trait Visitor: Send + Sync {
    /// Its name: under it is counted what it takes of the node, and others have their turns.
    fn name(&self) -> &str;

    /// The request as the store may have it: checked, and with whatever must be in it of the one who asks.
    ///
    /// # Errors
    /// Why it may not.
    fn sign(&self, request: Request) -> Result<Request, Denial>;

    /// Whether it may ask this.
    ///
    /// # Errors
    /// Why it may not.
    fn may_ask(&self, query: &Query) -> Result<(), Denial>;

    /// Whether it may hear of this.
    ///
    /// # Errors
    /// Why it may not.
    fn may_watch(&self, interest: &Interest) -> Result<(), Denial>;

    /// Until it is not to be served any more.
    fn withdrawn(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// Why somebody may not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Denial {
    /// It is not known who asks: no token, or nobody's.
    Stranger(String),
    /// It is known, and has no right to this.
    NoRight(String),
}

/// Lets everybody do everything: on the same machine, and only there.
#[derive(Copy, Clone, Debug)]
pub struct Everybody;

impl Gate for Everybody {
    fn admit(&self, _: Option<&str>) -> Result<Arc<dyn Visitor>, Denial> {
        Ok(Arc::new(Everybody))
    }

    fn is_open(&self) -> bool {
        true
    }

    fn knows_somebody(&self) -> bool {
        true
    }
}

impl Visitor for Everybody {
    fn name(&self) -> &'static str {
        ""
    }

    fn sign(&self, request: Request) -> Result<Request, Denial> {
        Ok(request)
    }

    fn may_ask(&self, _: &Query) -> Result<(), Denial> {
        Ok(())
    }

    fn may_watch(&self, _: &Interest) -> Result<(), Denial> {
        Ok(())
    }

    fn withdrawn(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}
