//! SET NX PX with a counter in one script, and a script that deletes its own and tells those who wait.

use async_trait::async_trait;
use futures_util::StreamExt as _;
use tokio::sync::Notify;

use crate::TTL;
use crate::contender::Contender;

pub(crate) struct Redis {
    connection: redis::aio::MultiplexedConnection,
    freed: redis::aio::PubSub,
    me: &'static str,
    claim: redis::Script,
    release: redis::Script,
}

impl Redis {
    pub(crate) async fn connect(port: u16, me: &'static str) -> Redis {
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).expect("a good URL");
        let connection = client.get_multiplexed_async_connection().await.expect("it was just started");
        let mut freed = client.get_async_pubsub().await.expect("it was just started");
        freed.subscribe("by-hand-freed").await.expect("Redis is well");
        let claim = redis::Script::new(
            "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return redis.call('incr', KEYS[2]) else return 0 end",
        );
        let release = redis::Script::new(
            "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end \
             redis.call('del', KEYS[1]) redis.call('publish', 'by-hand-freed', '') return 1",
        );
        Redis { connection, freed, me, claim, release }
    }
}

#[async_trait]
impl Contender for Redis {
    async fn claim(&mut self, waits: &Notify) {
        loop {
            let ttl_ms = TTL.as_millis() as u64;
            let mut claim = self.claim.key("by-hand");
            let token: u64 = claim
                .key("by-hand-token")
                .arg(self.me)
                .arg(ttl_ms)
                .invoke_async(&mut self.connection)
                .await
                .expect("Redis is well");
            if token > 0 {
                return;
            }
            waits.notify_one();
            self.freed.on_message().next().await.expect("Redis is well");
        }
    }

    async fn release(&mut self) {
        let mut release = self.release.key("by-hand");
        let deleted: u64 = release.arg(self.me).invoke_async(&mut self.connection).await.expect("Redis is well");
        assert_eq!(deleted, 1);
    }
}
