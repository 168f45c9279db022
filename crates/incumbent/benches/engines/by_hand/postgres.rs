//! A row that one prepared statement takes if it is free, with a counter, and a notification when it is freed.

use std::future::poll_fn;

use async_trait::async_trait;
use tokio::sync::{Notify, mpsc};
use tokio_postgres::{AsyncMessage, Client, NoTls, Statement};

use crate::TTL;
use crate::contender::Contender;

pub(crate) struct Postgres {
    client: Client,
    freed: mpsc::UnboundedReceiver<()>,
    me: &'static str,
    claim: Statement,
    release: Statement,
}

impl Postgres {
    pub(crate) async fn connect(port: u16, me: &'static str) -> Postgres {
        let mut login = tokio_postgres::Config::new();
        login.user(incumbent_testbed::POSTGRES_USER).password(incumbent_testbed::POSTGRES_PASSWORD);
        login.host("127.0.0.1").port(port).dbname(incumbent_testbed::POSTGRES_DATABASE);
        let (client, mut connection) = login.connect(NoTls).await.expect("it was just started");
        let (tell, freed) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(_) = message {
                    let _ = tell.send(());
                }
            }
        });
        let table = "CREATE TABLE IF NOT EXISTS by_hand (election text PRIMARY KEY, holder text, token bigint NOT NULL, \
                     expires_at timestamptz NOT NULL) WITH (fillfactor = 50); LISTEN by_hand_freed";
        client.batch_execute(table).await.expect("PostgreSQL is well");
        let claim = "INSERT INTO by_hand AS it VALUES ('bench', $1, 1, clock_timestamp() + $2 * interval '1 millisecond') \
                     ON CONFLICT (election) DO UPDATE SET holder = EXCLUDED.holder, token = it.token + 1, expires_at = EXCLUDED.expires_at \
                     WHERE it.holder IS NULL OR it.expires_at <= clock_timestamp() RETURNING token";
        let release = "WITH freed AS (UPDATE by_hand SET holder = NULL WHERE election = 'bench' AND holder = $1 RETURNING token) \
                       SELECT pg_notify('by_hand_freed', '')::text FROM freed";
        let claim = client.prepare_typed(claim, &[tokio_postgres::types::Type::TEXT, tokio_postgres::types::Type::INT8]).await;
        let release = client.prepare(release).await;
        let (claim, release) = (claim.expect("good SQL"), release.expect("good SQL"));
        Postgres { client, freed, me, claim, release }
    }
}

#[async_trait]
impl Contender for Postgres {
    async fn claim(&mut self, waits: &Notify) {
        let ttl_ms = i64::try_from(TTL.as_millis()).expect("short");
        loop {
            let rows = self.client.query(&self.claim, &[&self.me, &ttl_ms]).await.expect("PostgreSQL is well");
            if !rows.is_empty() {
                return;
            }
            waits.notify_one();
            self.freed.recv().await.expect("PostgreSQL is well");
        }
    }

    async fn release(&mut self) {
        let rows = self.client.query(&self.release, &[&self.me]).await.expect("PostgreSQL is well");
        assert_eq!(rows.len(), 1);
    }
}
