//! One connection of a client, from the handshake on: as whom it is let in.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use tokio::sync::watch;

use super::tls;
use crate::rights::{Denied, Guest, Tokens};

/// Who comes in by a connection.
pub(super) struct Visit {
    /// Without them, whoever comes is welcome.
    tokens: Option<Arc<Tokens>>,
    /// What it has shown in the handshake, which has found it good.
    certificate: Option<CertificateDer<'static>>,
    guest: watch::Sender<Option<Guest>>,
    /// As whom a client of the stream was let in.
    name: OnceLock<Arc<str>>,
    refused: AtomicBool,
}

impl Visit {
    pub(super) fn new(tokens: Option<Arc<Tokens>>, certificate: Option<CertificateDer<'static>>) -> Visit {
        Visit { tokens, certificate, guest: watch::Sender::new(None), name: OnceLock::new(), refused: AtomicBool::new(false) }
    }

    /// By its token if it shows one, else by its certificate.
    pub(super) fn admit(&self, token: &str) -> Result<Guest, Denied> {
        let admitted = match (&self.tokens, &self.certificate) {
            (None, _) => Ok(Guest::anybody()),
            (Some(tokens), Some(shown)) if token.is_empty() => tokens.admit_certified(|name| tls::has_name(shown, name)),
            (Some(tokens), _) => tokens.admit(token),
        };
        match &admitted {
            Ok(guest) => {
                self.name.get_or_init(|| guest.name().into());
                self.guest.send_replace(Some(guest.clone()));
            }
            Err(_) => self.refused.store(true, Ordering::Relaxed),
        }
        admitted
    }

    /// As whom the first was let in: a connection of the stream has no other. Empty before.
    pub(super) fn name(&self) -> Arc<str> {
        self.name.get().cloned().unwrap_or_default()
    }

    /// Whether whoever comes is welcome.
    pub(super) fn asks_for_nothing(&self) -> bool {
        self.tokens.is_none()
    }

    /// Whether somebody was let in.
    pub(super) fn has_admitted(&self) -> bool {
        self.guest.borrow().is_some()
    }

    /// Until somebody was let in.
    pub(super) async fn admitted(&self) -> Guest {
        let mut guest = self.guest.subscribe();
        loop {
            if let Some(guest) = &*guest.borrow_and_update() {
                return guest.clone();
            }
            if guest.changed().await.is_err() {
                // The sender is ours.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Whether somebody was not let in for want of a good token.
    pub(super) fn was_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Default for Visit {
    fn default() -> Visit {
        Visit::new(None, None)
    }
}

impl fmt::Debug for Visit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visit").field("guest", &*self.guest.borrow()).finish_non_exhaustive()
    }
}
