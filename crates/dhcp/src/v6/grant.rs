//! A DHCPv6 lease as the rest of the crate sees it.

use std::net::IpAddr;

use cni::{AddResult, AttachmentId};
use json::Object;

use super::client::{Client, Grant};
use super::{message, terms};
use crate::family::{self, Ask};
use crate::lease::{duration, hex, millis, unhex};
use crate::times::Times;
use crate::trouble::Trouble;
use crate::wanted::Wanted;

impl family::Grant for Grant {
    fn client_id(id: &AttachmentId) -> Vec<u8> {
        terms::duid(id)
    }

    fn address(&self) -> IpAddr {
        self.granted().into()
    }

    fn times(&self) -> Times {
        terms::times(&self.reply, self.begun)
    }

    fn add_to(&self, result: &mut AddResult, _: &Wanted) -> Result<(), Trouble> {
        terms::add_to(result, &self.reply);
        Ok(())
    }

    fn extend(&self, ask: Ask<'_>, all: bool) -> Result<Self, Trouble> {
        Client::open(ask)?.extend(self, all)
    }

    fn again(&self, ask: Ask<'_>, _: bool) -> Result<Self, Trouble> {
        Client::open(ask)?.acquire(Some(self.granted()))
    }

    fn release(&self, ask: Ask<'_>) -> Result<(), Trouble> {
        Client::open(ask)?.release(self)
    }

    fn to_object(&self) -> Object {
        let mut o = Object::new();
        o.set("address", self.granted().to_string());
        o.set("message", hex(&message::print(&self.reply)));
        o.set("begun", millis(self.begun));
        o
    }

    fn from_object(o: &Object) -> Option<Self> {
        let reply = message::parse(&unhex(o.str("message")?)?)?;
        terms::granted(&reply)?;
        Some(Grant { reply, begun: duration(o.get("begun")?)? })
    }
}
