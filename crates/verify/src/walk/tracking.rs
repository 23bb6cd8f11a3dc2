//! Connection tracking: what namespaces rewrite of the request, and take back of the answer.
//!
//! ```text
//!   request   comes as 10.244.0.2 to 10.96.0.5 ---node---> goes as 10.244.0.2 to 10.244.1.2      an entry
//!   answer    goes as 10.96.0.5 to 10.244.0.2 <---node---  comes as 10.244.1.2 to 10.244.0.2     the same entry, reversed
//! ```

use std::net::IpAddr;

use super::filter::{Culprit, Passage};
use super::packet::{Connection, Packet, Tuple};
use super::{RESTORE, Walk};
use crate::fault::{Direction, Fault, Finding};
use crate::snapshot::{Namespace, Place};

/// What was rewritten in a namespace on the way.
#[derive(Debug, Clone)]
pub(crate) struct Translation {
    pub(crate) place: Place,
    pub(crate) of_source: bool,
    pub(crate) before: IpAddr,
    pub(crate) now: IpAddr,
    /// The rule.
    pub(crate) by: String,
    /// It is one of Netloom's.
    pub(crate) is_own: bool,
}

/// What a namespace's connection tracking has of the conversation.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(super) place: Place,
    /// As its first packet came, or was sent.
    pub(super) came: Tuple,
    /// As it went on: what is rewritten of packets in its direction, and taken back of those in the other one.
    pub(super) went: Tuple,
}

impl<'a> Walk<'a> {
    /// Connection tracking, where a packet comes in or is sent: whether it belongs to what is known, and what is taken back of it then.
    pub(super) fn recognise(&mut self, namespace: &Namespace, packet: &mut Packet) {
        if self.in_tunnel {
            return;
        }
        self.came = Some(packet.tuple());
        self.untracked = None;
        if self.direction == Direction::Request {
            packet.connection = Connection::New;
            return;
        }
        self.answers = self.known_as(namespace, packet);
        packet.connection = if self.answers.is_some() { Connection::Established } else { Connection::Unknown };
        if let Some(entry) = self.answers {
            (packet.destination, packet.port) = (entry.came.source, entry.came.source_port);
        }
    }

    /// A rule keeps the packet out of connection tracking: nothing is rewritten where it is, and nothing taken back.
    pub(super) fn leave_untracked(&mut self, packet: &mut Packet, by: Culprit) {
        packet.connection = Connection::Untracked;
        // What is noted is of the packet in the tunnel.
        if self.in_tunnel {
            return;
        }
        if let Some(came) = self.came.take() {
            (packet.destination, packet.port) = (came.destination, came.port);
        }
        self.answers = None;
        self.untracked = Some(by);
    }

    /// What a namespace knows of the request that a packet answers.
    pub(super) fn known_as(&self, namespace: &Namespace, packet: &Packet) -> Option<&'a Entry> {
        let answered = packet.tuple().reversed();
        self.known.iter().rev().find(|entry| entry.place == namespace.place && entry.went == answered)
    }

    /// Connection tracking, where a packet leaves or is taken.
    pub(super) fn track(&mut self, namespace: &Namespace, packet: &Packet) {
        let came = self.came.take().filter(|_| self.direction == Direction::Request && !self.in_tunnel);
        self.entries.extend(came.map(|came| Entry { place: namespace.place.clone(), came, went: packet.tuple() }));
    }

    pub(super) fn rewrite_source(&mut self, namespace: &Namespace, own: Option<IpAddr>, passage: Passage, packet: &mut Packet) {
        let before = packet.source;
        if let Some((to, by)) = passage.source {
            let Some(now) = to.or(own) else { return };
            packet.source = now;
            self.translations.push(Translation {
                place: namespace.place.clone(),
                of_source: true,
                before,
                now,
                by: by.text,
                is_own: by.is_own,
            });
        }
        if let Some(entry) = self.answers.filter(|entry| entry.place == namespace.place) {
            (packet.source, packet.source_port) = (entry.came.destination, entry.came.port);
        }
    }

    pub(super) fn rewrite_destination(
        &mut self,
        namespace: &Namespace,
        (now, port, by): (IpAddr, Option<u16>, Culprit),
        packet: &mut Packet,
    ) -> Result<(), Finding> {
        let before = packet.tuple();
        packet.destination = now;
        packet.port = port.unwrap_or(packet.port);
        packet.rewritten = true;
        let (place, of_source) = (namespace.place.clone(), false);
        self.translations.push(Translation { place, of_source, before: before.destination, now, by: by.text.clone(), is_own: by.is_own });
        if self.service.is_none() {
            self.mislead(namespace, before, packet, &by);
        }
        self.lead(namespace, before, packet, &by)
    }

    /// A rule has rewritten the destination of what is for a pod or a node, or leads a published port to another host.
    pub(super) fn mislead(&mut self, namespace: &Namespace, before: Tuple, packet: &Packet, by: &Culprit) {
        let (now, port) = (packet.destination, packet.port);
        // Every host has the loopback's addresses.
        let may_be_its_own = if now.is_loopback() { namespace.place == *self.to } else { self.network.has(self.to, now) != Some(false) };
        let is_right = may_be_its_own && (self.is_published || (now, port) == (before.destination, before.port));
        if is_right || self.in_tunnel || self.direction == Direction::Reply {
            self.misled = self.misled.take().filter(|_| !is_right);
            return;
        }
        let whose = match self.network.holders(now).next() {
            _ if namespace.is_local(now) => format!("{} itself has", namespace.place),
            Some(holder) => format!("{} has", holder.namespace.place),
            None => "nobody has".to_owned(),
        };
        let asked = format!("{} port {}", before.destination, before.port);
        let port = if port == 0 { "another port".to_owned() } else { format!("port {port}") };
        let evidence = format!("{} leads packets for {asked} to {now} {port}, which {whose}; {} is to answer", by.text, self.to);
        let restore = if by.is_own { RESTORE.to_owned() } else { Fault::RedirectedByRule.next_step(None) };
        let next_step = format!("{restore}: {}", by.show);
        self.misled = Some(Finding { next_step, ..self.finding(Fault::RedirectedByRule, namespace, None, evidence) });
    }
}
