//! Who and where the members are, as far as the driver must know: whom it speaks with, what clients are told, and when it is a member no more.

use std::net::SocketAddr;

use tokio::sync::oneshot;

use super::super::inquiry::{self, NodeReport, Whom};
use super::super::members::{self, Member};
use super::super::{Addresses, RELEASE};
use super::{Config, Driver, End};

impl Driver {
    /// Members have come, gone or moved, or may have.
    pub(super) fn look_around(&mut self) {
        let recorded = members::recorded(&self.store);
        if recorded != self.book.recorded {
            self.book.recorded = recorded;
            self.members.send_replace(self.book.recorded.clone());
        }
        self.set_peers();
        self.tell_clients();
    }

    pub(super) fn set_peers(&self) {
        self.switchboard.set_peers(self.book.peers(self.replica.roll(), &self.switchboard.lines()));
    }

    /// Where clients find the nodes, and the one that leads.
    pub(super) fn tell_clients(&self) {
        let client = |it: &Member| Some(it.client.clone()).filter(|it| !it.is_empty());
        let leader = self.role.leader.and_then(|it| client(self.book.recorded.get(&it)?)).unwrap_or_default();
        let members = self.book.recorded.values().filter_map(client).collect();
        let (leads, leaderless) = (self.role.leads, self.role.leader.is_none());
        self.notice.change(|it| (it.leads, it.leader, it.leaderless, it.members) = (leads, leader, leaderless, members));
    }

    pub(super) fn inquire(&self, whom: Whom, answer: oneshot::Sender<Result<NodeReport, String>>) {
        match whom {
            Whom::Member(node) => {
                let asked = self.switchboard.ask(node, inquiry::question());
                tokio::spawn(async move {
                    let answered = asked.await.map_err(|why| why.to_string()).and_then(|it| inquiry::read(&it));
                    let _ = answer.send(answered);
                });
            }
            Whom::Address(address) => {
                let visit = inquiry::visit(address, self.cluster.clone(), self.security.clone());
                tokio::spawn(async move { drop(answer.send(visit.await)) });
            }
        }
    }

    pub(super) fn be_removed(&mut self, how: &str) {
        let me = self.me;
        self.end = Some(End::Removed(format!(
            "node {me} was removed from the cluster ({how}): its directory is of no more use; to have it back, add it under another number, with an empty directory"
        )));
    }
}

/// Where this node says that it is. An address that is every address of this machine is none for others.
pub(super) fn own_place(config: &Config, addresses: Addresses) -> Member {
    let place = |told: &Option<String>, bound: Option<SocketAddr>| {
        let bound = || bound.filter(|it| !it.ip().is_unspecified()).map(|it| it.to_string());
        told.clone().or_else(bound).unwrap_or_default()
    };
    Member {
        peer: place(&config.peer_address, Some(addresses.peers)),
        client: place(&config.client_address, addresses.clients),
        release: RELEASE.to_owned(),
        shall_vote: false,
    }
}
