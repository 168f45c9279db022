//! An ephemeral sequential node, the list of all, and a watch of the one before: ZooKeeper's own recipe. The token is the czxid.

use async_trait::async_trait;
use tokio::sync::Notify;
use zookeeper_client::{Acls, Client, CreateMode};

use crate::TTL;
use crate::contender::Contender;

pub(crate) struct ZooKeeper {
    client: Client,
    me: &'static str,
    own: Option<String>,
}

impl ZooKeeper {
    pub(crate) async fn connect(port: u16, me: &'static str) -> ZooKeeper {
        let connector = Client::connector().with_session_timeout(TTL);
        let client = connector.connect(&format!("127.0.0.1:{port}")).await.expect("it was just started");
        client.mkdir("/by-hand", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.expect("ZooKeeper is well");
        ZooKeeper { client, me, own: None }
    }
}

#[async_trait]
impl Contender for ZooKeeper {
    async fn claim(&mut self, waits: &Notify) {
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (_token, sequence) =
            self.client.create("/by-hand/n-", self.me.as_bytes(), &options).await.expect("ZooKeeper is well");
        let own = format!("n-{sequence}");
        loop {
            let line = self.client.list_children("/by-hand").await.expect("ZooKeeper is well");
            let Some(before) = line.into_iter().filter(|it| *it < own).max() else { break };
            let watch = self.client.check_and_watch_stat(&format!("/by-hand/{before}")).await;
            if let (Some(_), watcher) = watch.expect("ZooKeeper is well") {
                waits.notify_one();
                watcher.changed().await;
            }
        }
        self.own = Some(own);
    }

    async fn release(&mut self) {
        let own = self.own.take().expect("in office");
        self.client.delete(&format!("/by-hand/{own}"), None).await.expect("ZooKeeper is well");
    }
}
