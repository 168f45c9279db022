//! Who asks by HTTP, and what it may: the same tokens, the same certificate and the same table as on our own stream.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use incumbent_store::command::Request;
use incumbent_store::query::Query;
use incumbent_store::watch::Interest;

use super::visit::Visit;
use crate::http::{Denial, Gate, Visitor};
use crate::rights::{Denied, Guest};

impl Gate for Visit {
    fn admit(&self, token: Option<&str>) -> Result<Arc<dyn Visitor>, Denial> {
        let guest = Visit::admit(self, token.unwrap_or_default()).map_err(denial)?;
        Ok(Arc::new(guest))
    }

    fn is_open(&self) -> bool {
        self.asks_for_nothing()
    }

    fn knows_somebody(&self) -> bool {
        self.asks_for_nothing() || self.has_admitted()
    }
}

impl Visitor for Guest {
    fn name(&self) -> &str {
        Guest::name(self)
    }

    fn sign(&self, request: Request) -> Result<Request, Denial> {
        Guest::sign(self, request).map_err(denial)
    }

    fn may_ask(&self, query: &Query) -> Result<(), Denial> {
        Guest::may_ask(self, query).map_err(denial)
    }

    fn may_watch(&self, interest: &Interest) -> Result<(), Denial> {
        Guest::may_watch(self, interest).map_err(denial)
    }

    fn withdrawn(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Guest::withdrawn(self))
    }
}

fn denial(denied: Denied) -> Denial {
    let why = denied.to_string();
    match denied {
        Denied::NoToken | Denied::BadToken | Denied::Withdrawn => Denial::Stranger(why),
        Denied::Missing { .. } | Denied::Useless { .. } | Denied::Lasting(_) | Denied::Reserved | Denied::Nobody(_) => {
            Denial::NoRight(why)
        }
    }
}
