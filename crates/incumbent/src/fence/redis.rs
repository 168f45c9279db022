//! A fence inside Redis or Valkey: scripts that compare, remember and write in one step.
//!
//! Two keys: one holds the greatest token seen, the other what is written. In a cluster both must be in one slot: `{billing}:fence`, `{billing}:total`.
//! The fence's key must neither expire nor be evicted (`maxmemory-policy noeviction`, or one of the `volatile-` ones).
//!
//! **What Redis cannot promise:** it is asynchronous towards its replicas, and with `appendfsync everysec` towards its disk. A failover or a crash of the machine
//! can take back the last second, what was seen included; then a former leader is let in. Where that matters, let something else be the judge.
//!
//! ```text
//! EVAL (ADMIT) 1 {billing}:fence 42                     → 1, or the error STALE
//! EVAL (SET) 2 {billing}:fence {billing}:total 42 1000  → 1, or the error STALE
//! ```
//!
//! Any client will do: these are texts. For the crate `redis` there is `Guarded` (feature `fence-redis`).

/// Admits the token `ARGV[1]` for the fence `KEYS[1]`; an error that begins with [`STALE`] if a greater one was seen. For what is read and written back,
/// before the first read.
pub const ADMIT: &str = concat!(include_str!("admit.lua"), "return 1\n");

/// The same, and sets `KEYS[2]` to `ARGV[2]`.
pub const SET: &str = concat!(include_str!("admit.lua"), "redis.call('SET', KEYS[2], ARGV[2])\nreturn 1\n");

/// The first word of the error that refuses a stale token. The message names the token that was seen.
pub const STALE: &str = "STALE";

#[cfg(feature = "fence-redis")]
pub use guarded::Guarded;

#[cfg(feature = "fence-redis")]
mod guarded {
    use std::sync::Arc;

    use ::redis::aio::MultiplexedConnection;
    use ::redis::{RedisError, Script, ToRedisArgs};
    use incumbent_protocol::protocol::Token;

    use super::{ADMIT, SET, STALE};
    use crate::engine::Error;
    use crate::fence::{Refusal, Stale, parse_token};
    use crate::metrics::Metrics;

    /// Keys behind one fence, on a connection that the application has made.
    #[derive(Clone)]
    pub struct Guarded {
        connection: MultiplexedConnection,
        fence: String,
        admit: Script,
        set: Script,
        metrics: Option<Arc<Metrics>>,
    }

    impl Guarded {
        /// What is guarded by the token in the key `fence`: `{billing}:fence`, for example.
        pub fn at(connection: MultiplexedConnection, fence: impl Into<String>) -> Guarded {
            Guarded { connection, fence: fence.into(), admit: Script::new(ADMIT), set: Script::new(SET), metrics: None }
        }

        /// Counts refusals into these figures, with the key of the fence for the resource.
        #[must_use]
        pub fn metrics(mut self, metrics: Arc<Metrics>) -> Guarded {
            self.metrics = Some(metrics);
            self
        }

        /// Admits the token: from here on every smaller one is refused. For what is read and written back, before the read.
        pub async fn admit(&self, token: Token) -> Result<(), Refusal> {
            let mut connection = self.connection.clone();
            let call = self.admit.key(&self.fence).arg(token.get()).invoke_async(&mut connection).await;
            call.map_err(|why| self.refusal(token, &why))
        }

        /// Sets a key. In a cluster it must be in the slot of the fence: `{billing}:total`.
        ///
        /// # Errors
        /// [`Refusal::Stale`]: not set. [`Refusal::Trouble`] of unknown outcome: it may have been.
        pub async fn set(&self, token: Token, key: &str, value: impl ToRedisArgs) -> Result<(), Refusal> {
            let mut connection = self.connection.clone();
            let call = self.set.key(&self.fence).key(key).arg(token.get()).arg(value).invoke_async(&mut connection).await;
            call.map_err(|why| self.refusal(token, &why))
        }

        /// What an error means, in the one place that knows; a refusal is counted.
        fn refusal(&self, offered: Token, why: &RedisError) -> Refusal {
            let seen = || why.detail()?.rsplit_once(": ")?.1.split(' ').next().and_then(parse_token);
            if why.code() == Some(STALE)
                && let Some(seen) = seen()
            {
                if let Some(metrics) = &self.metrics {
                    metrics.on_fence_refusal(&self.fence);
                }
                return Stale { resource: self.fence.clone(), offered, seen }.into();
            }
            // An answer is an answer: the script ends before it writes. Anything else may have happened.
            match why.code() {
                Some(_) => Error::refused(why.to_string()).into(),
                None => Error::unknown(why.to_string()).into(),
            }
        }
    }
}
