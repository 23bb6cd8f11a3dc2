//! A DHCPv4 lease as the rest of the crate sees it.

use std::net::IpAddr;

use cni::{AddResult, AttachmentId, Mac};
use json::Object;
use linux::packet::EtherAddr;

use super::client::{Client, Grant};
use super::{message, terms};
use crate::family::{self, Ask};
use crate::lease::{duration, hex, millis, unhex};
use crate::random;
use crate::times::Times;
use crate::trouble::Trouble;
use crate::wanted::Wanted;

/// How often a lease that is over is asked for at a time. The link was set up a moment ago, and a bridge passes nothing on before the
/// kernel has told it of the carrier, which takes up to a second where other links change too (`net/core/link_watch.c`).
const TIMES: u32 = 3;

impl family::Grant for Grant {
    /// Option 61, the reference plugin's: a server keeps its leases when one goes over to the other.
    fn client_id(id: &AttachmentId) -> Vec<u8> {
        let text = format!("{}/{}/{}", id.container, id.network, id.ifname);
        [0].into_iter().chain(text.bytes().take(254)).collect()
    }

    fn address(&self) -> IpAddr {
        self.ack.yiaddr().into()
    }

    fn times(&self) -> Times {
        terms::times(&self.ack, self.begun)
    }

    fn add_to(&self, result: &mut AddResult, wanted: &Wanted) -> Result<(), Trouble> {
        Ok(terms::add_to(result, &self.ack, wanted.priority)?)
    }

    fn extend(&self, ask: Ask<'_>, all: bool) -> Result<Self, Trouble> {
        Client::open(ask)?.extend(self, all)
    }

    fn again(&self, ask: Ask<'_>, first: bool) -> Result<Self, Trouble> {
        let (client, old) = (Client::open(ask)?, self.ack.yiaddr());
        if first {
            match client.reboot(old) {
                Err(Trouble::Refused { .. } | Trouble::Silence(_)) => {}
                other => return other,
            }
        }
        client.acquire(random::number(), 0, Some(old), TIMES)
    }

    fn release(&self, ask: Ask<'_>) -> Result<(), Trouble> {
        Client::open(ask)?.release(self)
    }

    fn to_object(&self) -> Object {
        let mut o = Object::new();
        // The first two are for who looks into the file.
        o.set("address", self.ack.yiaddr().to_string());
        o.set("server", self.server().to_string());
        o.set("message", hex(&message::print(&self.ack)));
        o.set("station", Mac::from_bytes(&self.station).map(|m| m.to_string()).unwrap_or_default());
        o.set("begun", millis(self.begun));
        o
    }

    fn from_object(o: &Object) -> Option<Self> {
        let ack = message::parse(&unhex(o.str("message")?)?)?;
        let station = EtherAddr::try_from(o.str("station")?.parse::<Mac>().ok()?.as_bytes()).ok()?;
        terms::address(&ack).ok()?;
        Some(Grant { ack, station, begun: duration(o.get("begun")?)? })
    }
}
