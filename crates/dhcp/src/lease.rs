//! A lease as it is kept: whose it is, where, and what the servers granted. One file each.

use std::path::PathBuf;
use std::time::Duration;

use cni::{AddResult, AttachmentId, CniArgs, CniError};
use json::{Object, Value};
use linux::packet::EtherAddr;
use linux::{BootId, Netns, NetnsId};

use crate::family::Grant;
use crate::link::internal;
use crate::times::Phase;
use crate::turns::Moment;
use crate::wanted::Wanted;
use crate::{maintain, v4, v6};

/// The form of the file. A newer one is refused by name.
const SCHEMA: u64 = 1;

/// A container's namespace: its path, and which one that was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseNetns {
    pub(crate) path: PathBuf,
    pub(crate) id: NetnsId,
    /// The number that no other namespace gets before the next boot.
    pub(crate) cookie: Option<u64>,
}

/// What is held of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FamilyLease<G> {
    pub(crate) grant: G,
    /// It has ended, and its address is not on the interface any more.
    pub(crate) lost: bool,
    /// How often it was asked for in vain since.
    pub(crate) tries: u32,
    /// In which phase it was asked for in vain last; [`Phase::Bound`]: in none.
    pub(crate) tried: Phase,
}

/// A lease.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Lease {
    pub(crate) id: AttachmentId,
    pub(crate) place: LeaseNetns,
    /// The interface's number in its namespace.
    pub(crate) link: u32,
    /// The hardware address that it was asked for with.
    pub(crate) mac: EtherAddr,
    pub(crate) wanted: Wanted,
    pub(crate) v4: Option<FamilyLease<v4::client::Grant>>,
    pub(crate) v6: Option<FamilyLease<v6::client::Grant>>,
}

/// A file that is no lease.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotALease {
    /// It cannot be read, or is torn.
    #[error("{0}")]
    Torn(String),
    /// What it tells of went with the boot.
    #[error("it is from an earlier boot")]
    OtherBoot,
}

// === impl LeaseNetns ===

impl LeaseNetns {
    pub(crate) fn of(netns: &Netns) -> Result<Self, CniError> {
        Ok(LeaseNetns { path: netns.path().to_owned(), id: netns.id(), cookie: netns.cookie().map_err(internal)? })
    }

    /// The namespace, unless it is gone: nothing is at its path, or another one.
    pub(crate) fn open(&self) -> Result<Option<Netns>, CniError> {
        match Netns::open(&self.path) {
            Ok(Some(netns)) if netns.id() == self.id => {
                let same = self.cookie.is_none() || netns.cookie().map_err(internal)? == self.cookie;
                Ok(same.then_some(netns))
            }
            Ok(_) | Err(linux::NetnsError::NotANamespace { .. }) => Ok(None),
            Err(e) => Err(internal(e)),
        }
    }
}

// === impl FamilyLease ===

impl<G: Grant> FamilyLease<G> {
    pub(crate) fn new(grant: G) -> Self {
        FamilyLease { grant, lost: false, tries: 0, tried: Phase::Bound }
    }

    /// How far it has come.
    pub(crate) fn phase(&self, now: Duration) -> Phase {
        if self.lost { Phase::Expired } else { self.grant.times().phase(now) }
    }

    /// When its address goes off the interface; `None`: never, or it has gone.
    fn end(&self) -> Option<Duration> {
        self.grant.times().end.filter(|_| !self.lost)
    }

    /// For the log.
    pub(crate) fn shown(&self) -> String {
        let address = self.grant.address();
        match self.grant.times().end {
            _ if self.lost => format!("{address}, expired"),
            None => format!("{address} without expiry"),
            Some(end) => format!("{address}, expires in {} s", end.saturating_sub(linux::boot::uptime()).as_secs()),
        }
    }

    fn to_object(&self) -> Object {
        let mut o = self.grant.to_object();
        o.set("lost", self.lost);
        o
    }

    fn from_object(o: &Object) -> Option<Self> {
        let lost = o.get("lost").and_then(Value::as_bool)?;
        Some(FamilyLease { lost, ..FamilyLease::new(G::from_object(o)?) })
    }
}

// === impl Lease ===

impl Lease {
    /// What ADD returns.
    pub(crate) fn result(&self) -> Result<AddResult, CniError> {
        let mut result = AddResult::default();
        if let Some(held) = &self.v4 {
            held.grant.add_to(&mut result, &self.wanted).map_err(internal)?;
        }
        if let Some(held) = &self.v6 {
            held.grant.add_to(&mut result, &self.wanted).map_err(internal)?;
        }
        Ok(result)
    }

    /// When something is to be done for it; `None`: never.
    pub(crate) fn next(&self, now: Duration) -> Option<Duration> {
        let v4 = self.v4.as_ref().and_then(|held| maintain::next(held, now));
        v4.into_iter().chain(self.v6.as_ref().and_then(|held| maintain::next(held, now))).min()
    }

    /// The same with the end that is to be kept.
    pub(crate) fn moment(&self, now: Duration) -> Option<Moment> {
        let v4 = self.v4.as_ref().and_then(FamilyLease::end);
        let end = v4.into_iter().chain(self.v6.as_ref().and_then(FamilyLease::end)).min();
        self.next(now).map(|at| Moment { at, end })
    }

    /// How far the one that is worst off has come.
    pub(crate) fn worst(&self, now: Duration) -> Phase {
        let phases = self.v4.as_ref().map(|held| held.phase(now)).into_iter().chain(self.v6.as_ref().map(|held| held.phase(now)));
        phases.max().unwrap_or(Phase::Bound)
    }

    /// For the log and for errors: addresses, and how long they are held.
    pub(crate) fn shown(&self) -> String {
        let both: Vec<String> =
            self.v4.as_ref().map(FamilyLease::shown).into_iter().chain(self.v6.as_ref().map(FamilyLease::shown)).collect();
        both.join("; ")
    }

    /// As it stands in its file.
    pub(crate) fn print(&self, boot: BootId) -> String {
        let (ipam, args) = self.wanted.source();
        let mut o = Object::new();
        o.set("schema", SCHEMA);
        o.set("boot", boot.to_string());
        o.set("network", self.id.network.as_str());
        o.set("container", self.id.container.as_str());
        o.set("ifname", self.id.ifname.as_str());
        o.set("netns", self.place.path.to_string_lossy().into_owned());
        o.set("netnsId", self.place.id.to_string());
        if let Some(cookie) = self.place.cookie {
            o.set("netnsCookie", cookie);
        }
        o.set("link", u64::from(self.link));
        o.set("mac", hex(&self.mac));
        o.set("ipam", ipam.clone());
        o.set("args", args.to_string());
        if let Some(held) = &self.v4 {
            o.set("v4", held.to_object());
        }
        if let Some(held) = &self.v6 {
            o.set("v6", held.to_object());
        }
        json::compact(&o)
    }

    /// Reads a file.
    pub(crate) fn parse(bytes: &[u8], boot: BootId) -> Result<Self, NotALease> {
        let torn = |e: &dyn std::fmt::Display| NotALease::Torn(e.to_string());
        let value = json::parse(bytes).map_err(|e| torn(&e))?;
        let o = value.as_object().ok_or_else(|| torn(&"it is not a JSON object"))?;
        let text = |key: &str| o.str(key).ok_or_else(|| NotALease::Torn(format!("it has no {key:?}")));
        if number(o.get("schema")) != Some(SCHEMA) {
            return Err(torn(&"it was written by a newer version: run that version"));
        }
        if text("boot")?.parse() != Ok(boot) {
            return Err(NotALease::OtherBoot);
        }
        let id = AttachmentId {
            network: text("network")?.parse().map_err(|e| torn(&e))?,
            container: text("container")?.parse().map_err(|e| torn(&e))?,
            ifname: text("ifname")?.parse().map_err(|e| torn(&e))?,
        };
        let netns_id = text("netnsId")?.parse().map_err(|e| torn(&e))?;
        let place = LeaseNetns { path: text("netns")?.into(), id: netns_id, cookie: number(o.get("netnsCookie")) };
        let args = CniArgs::parse(text("args")?).map_err(|e| torn(&e))?;
        let wanted = Wanted::of(o.object("ipam").cloned().unwrap_or_default(), &args).map_err(|e| torn(&e))?;
        let v4 = o.object("v4").map(|v4| FamilyLease::from_object(v4).ok_or_else(|| torn(&"\"v4\" is not a lease"))).transpose()?;
        let v6 = o.object("v6").map(|v6| FamilyLease::from_object(v6).ok_or_else(|| torn(&"\"v6\" is not a lease"))).transpose()?;
        let link = number(o.get("link")).and_then(|n| u32::try_from(n).ok()).ok_or_else(|| torn(&"it has no \"link\""))?;
        let mac = unhex(text("mac")?).and_then(|mac| mac.try_into().ok()).ok_or_else(|| torn(&"\"mac\" is not a hardware address"))?;
        Ok(Lease { id, place, link, mac, wanted, v4, v6 })
    }
}

fn number(value: Option<&Value>) -> Option<u64> {
    match value {
        Some(Value::Number(n)) => n.as_u64(),
        _ => None,
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn duration(value: &Value) -> Option<Duration> {
    number(Some(value)).map(Duration::from_millis)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    text.len().is_multiple_of(2).then(|| text.as_bytes().chunks(2).map(digits).collect()).flatten()
}
