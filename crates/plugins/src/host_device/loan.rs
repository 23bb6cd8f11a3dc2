//! What a borrowed device was before: `<borrowed>/<network>@<container>@<interface>.json`.
//!
//! It need not outlive a reboot, after which a device is as its driver and the host's own programs make it.

use std::path::{Path, PathBuf};

use cni::{AttachmentId, CniError, Code, Config, Mac};
use json::{Object, Value};
use linux::file::{self, Durability, Links};
use linux::link::{BusDevice, LinkFlags, SegmentLimits};
use linux::{Link, Netns, NetnsId, sysfs};

use super::conf::Device;
use crate::{device_files, identity, internal};

/// What such a file may have, in bytes: it has about six hundred.
const MAX_FILE: usize = 64 << 10;

/// What its name has at the most, its hash left aside: while it is written it has some bytes more.
const LONGEST: usize = 200;

/// The file of one attachment.
#[derive(Debug, Clone)]
pub(super) struct LoanFile {
    path: PathBuf,
    id: AttachmentId,
}

/// What is to be given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Loan {
    /// Who has it.
    pub(super) id: AttachmentId,
    /// Its name on the host.
    pub(super) device: String,
    pub(super) identity: Identity,
    /// Its index in the container's namespace, which nobody can change there; `None`: it was on its way when the call died.
    pub(super) inside: Option<u32>,
    pub(super) altnames: Vec<String>,
    pub(super) group: u32,
    pub(super) alias: String,
    pub(super) up: bool,
    pub(super) switches: Switches,
    pub(super) mtu: u32,
    pub(super) txqlen: u32,
    pub(super) segments: SegmentLimits,
    pub(super) mac: Option<Mac>,
    /// The name of its bridge, bond or VRF.
    pub(super) master: Option<String>,
    /// Where it was moved to.
    pub(super) netns: PathBuf,
    /// Which namespace that was: the path may be another one's by now.
    pub(super) place: LoanLocation,
}

/// A namespace, as far as the kernel tells one from all others, also those that are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoanLocation {
    id: NetnsId,
    cookie: Option<u64>,
}

/// What of a link nobody can change, whoever has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    kind: Option<String>,
    permanent_mac: Option<Mac>,
    device: Option<BusDevice>,
}

/// Flags that it has, but for up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Switches {
    pub(super) promisc: bool,
    pub(super) allmulti: bool,
    pub(super) multicast: bool,
    pub(super) arp: bool,
}

// === impl LoanLocation ===

impl LoanLocation {
    fn of(netns: &Netns) -> Result<Self, CniError> {
        Ok(LoanLocation { id: netns.id(), cookie: netns.cookie().map_err(internal)? })
    }

    pub(super) fn is(&self, netns: &Netns) -> bool {
        netns.id() == self.id && LoanLocation::of(netns).as_ref() == Ok(self)
    }

    /// The namespace, where it has no path any more, but a process.
    pub(super) fn of_a_process(&self) -> Option<Netns> {
        use std::os::unix::fs::MetadataExt;
        let paths = std::fs::read_dir("/proc").ok()?.flatten().map(|process| process.path().join("ns/net"));
        // Where it is not a process's, there is nothing of that name.
        let mut same = paths.filter(|path| path.metadata().is_ok_and(|m| NetnsId { dev: m.dev(), ino: m.ino() } == self.id));
        same.find_map(|path| Netns::open(&path).ok().flatten().filter(|netns| self.is(netns)))
    }
}

// === impl Identity ===

impl Identity {
    fn of(link: &Link) -> Self {
        Identity { kind: link.kind.clone(), permanent_mac: link.permanent_mac.clone(), device: link.device.clone() }
    }

    /// Whether the link can be that device.
    pub(super) fn fits(&self, link: &Link) -> bool {
        let other = Identity::of(link);
        *self == other || (&self.kind, &self.device) == (&other.kind, &other.device) && self.is_function()
    }

    /// Whether it is a virtual function, which has one interface: its driver makes the address that the card has for it the permanent one
    /// (`igbvf_reset` in drivers/net/ethernet/intel/igbvf/netdev.c).
    fn is_function(&self) -> bool {
        let folder = self.device.as_ref().and_then(sysfs::folder);
        folder.is_some_and(|folder| matches!(sysfs::physical_function(&folder), Ok(Some(_))))
    }

    /// Whether the link cannot be another device: of a card's several interfaces each has a hardware address of its own.
    pub(super) fn proves(&self, link: &Link) -> bool {
        self.permanent_mac.is_some() && self.fits(link)
    }

    /// Whether it must still be somewhere: no container can delete hardware, and the kernel gives it back with the
    /// namespace. A link of a kind (veth, ifb) may be deleted by whoever has it, and ends with its namespace.
    pub(super) fn must_exist(&self) -> bool {
        self.kind.is_none() && self.device.as_ref().is_none_or(|device| sysfs::folder(device).is_some())
    }
}

// === impl Switches ===

impl Switches {
    fn of(flags: LinkFlags) -> Self {
        Switches { promisc: flags.promisc(), allmulti: flags.allmulti(), multicast: flags.multicast(), arp: !flags.noarp() }
    }
}

// === impl Loan ===

impl Loan {
    /// `link` as it is now. What an attachment of this very name left on it, which nobody cleared up, counts for nothing.
    pub(super) fn of(link: &Link, master: Option<String>, id: &AttachmentId, own_group: u32, netns: &Netns) -> Result<Self, CniError> {
        Ok(Loan {
            id: id.clone(),
            device: link.name.clone(),
            identity: Identity::of(link),
            inside: None,
            altnames: link.altnames.clone(),
            group: if link.group == own_group { 0 } else { link.group },
            alias: link.alias.clone().unwrap_or_default(),
            up: link.flags.up(),
            switches: Switches::of(link.flags),
            mtu: link.mtu,
            txqlen: link.txqlen,
            segments: link.segments,
            mac: link.mac.clone(),
            master,
            netns: netns.path().to_owned(),
            place: LoanLocation::of(netns)?,
        })
    }

    /// Whether it is the device that a configuration means.
    pub(super) fn is(&self, device: &Device) -> bool {
        match device {
            Device::Name(name) => self.device == *name || self.altnames.contains(name),
            Device::Mac(mac) => [&self.mac, &self.identity.permanent_mac].contains(&&Some(mac.clone())),
            Device::Folder { folder, .. } => {
                self.identity.device.as_ref().and_then(sysfs::folder).is_some_and(|its| its.starts_with(folder))
            }
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let Ok(Value::Object(o)) = json::parse(bytes) else { return None };
        let number = |key: &str| match o.get(key) {
            Some(Value::Number(n)) => n.as_u64().and_then(|n| u32::try_from(n).ok()),
            _ => None,
        };
        let text = |key: &str| o.str(key).map(str::to_owned);
        let mac = |key: &str| o.str(key).and_then(|s| s.parse().ok());
        let switch = |key: &str| o.get(key).and_then(Value::as_bool);
        let altnames = o.get("altnames").and_then(Value::as_array).into_iter().flatten();
        Some(Loan {
            id: AttachmentId {
                network: o.str("network")?.parse().ok()?,
                container: o.str("container")?.parse().ok()?,
                ifname: o.str("ifname")?.parse().ok()?,
            },
            device: text("device")?,
            identity: Identity {
                kind: text("kind"),
                permanent_mac: mac("permanentMac"),
                device: o.str("onBus").zip(o.str("busDevice")).map(|(bus, name)| BusDevice { bus: bus.into(), name: name.into() }),
            },
            inside: number("inside"),
            altnames: altnames.filter_map(Value::as_str).map(str::to_owned).collect(),
            group: number("group")?,
            alias: text("alias").unwrap_or_default(),
            up: switch("up")?,
            switches: Switches {
                promisc: switch("promisc")?,
                allmulti: switch("allmulti")?,
                multicast: switch("multicast")?,
                arp: switch("arp")?,
            },
            mtu: number("mtu")?,
            txqlen: number("txQLen")?,
            segments: SegmentLimits {
                gso: number("gsoMaxSize"),
                gso_v4: number("gsoIPv4MaxSize"),
                segments: number("gsoMaxSegs"),
                gro: number("groMaxSize"),
                gro_v4: number("groIPv4MaxSize"),
            },
            mac: mac("mac"),
            master: text("master"),
            netns: o.str("netns")?.into(),
            place: LoanLocation { id: o.str("netnsId")?.parse().ok()?, cookie: o.str("netnsCookie").and_then(|s| s.parse().ok()) },
        })
    }

    fn print(&self) -> String {
        let mut o = Object::new();
        let (identity, switches) = (&self.identity, &self.switches);
        for (key, text) in [
            ("network", Some(self.id.network.as_str())),
            ("container", Some(self.id.container.as_str())),
            ("ifname", Some(self.id.ifname.as_str())),
            ("device", Some(&self.device)),
            ("kind", identity.kind.as_deref()),
            ("permanentMac", identity.permanent_mac.as_ref().map(Mac::to_string).as_deref()),
            ("onBus", identity.device.as_ref().map(|device| device.bus.as_str())),
            ("busDevice", identity.device.as_ref().map(|device| device.name.as_str())),
            ("alias", Some(&self.alias)),
            ("mac", self.mac.as_ref().map(Mac::to_string).as_deref()),
            ("master", self.master.as_deref()),
            ("netns", Some(&self.netns.to_string_lossy())),
            ("netnsId", Some(&self.place.id.to_string())),
            ("netnsCookie", self.place.cookie.map(|cookie| cookie.to_string()).as_deref()),
        ] {
            if let Some(text) = text {
                o.set(key, text);
            }
        }
        for (key, on) in [
            ("up", self.up),
            ("promisc", switches.promisc),
            ("allmulti", switches.allmulti),
            ("multicast", switches.multicast),
            ("arp", switches.arp),
        ] {
            o.set(key, on);
        }
        let numbers = [
            ("group", Some(self.group)),
            ("mtu", Some(self.mtu)),
            ("txQLen", Some(self.txqlen)),
            ("gsoMaxSize", self.segments.gso),
            ("gsoIPv4MaxSize", self.segments.gso_v4),
            ("gsoMaxSegs", self.segments.segments),
            ("groMaxSize", self.segments.gro),
            ("groIPv4MaxSize", self.segments.gro_v4),
            ("inside", self.inside),
        ];
        numbers.into_iter().filter_map(|(key, n)| n.map(|n| (key, n))).for_each(|(key, n)| o.set(key, u64::from(n)));
        o.set("altnames", self.altnames.iter().map(|name| Value::from(name.as_str())).collect::<Vec<_>>());
        json::indented(&o, 1)
    }
}

// === impl LoanFile ===

impl LoanFile {
    pub(super) fn of(dir: &Path, id: &AttachmentId) -> Self {
        // No network's name and no container's ID has an `@` in it.
        let mut name = format!("{}@{}@{}", id.network, id.container, id.ifname);
        if name.len() > LONGEST {
            name = format!("{}@{:016x}", name.chars().take(LONGEST).collect::<String>(), identity::fingerprint(id));
        }
        LoanFile { path: dir.join(format!("{name}.json")), id: id.clone() }
    }

    /// Those that can be read in `dir`, with what is in them.
    pub(super) fn all(dir: &Path) -> Result<Vec<(Self, Loan)>, CniError> {
        let mut all = Vec::new();
        for path in device_files::list(dir)? {
            // A file that is being written has no name that ends so; one that is not its attachment's is nobody's.
            if let Some(loan) = read(&path).filter(|loan| LoanFile::of(dir, &loan.id).path == path) {
                all.push((LoanFile { path, id: loan.id.clone() }, loan));
            }
        }
        Ok(all)
    }

    /// Those of a network whose attachments are not in `valid`.
    pub(super) fn stale(dir: &Path, config: &Config, valid: &[AttachmentId]) -> Result<Vec<(Self, Loan)>, CniError> {
        let mut all = LoanFile::all(dir)?;
        all.retain(|(_, loan)| loan.id.network == config.network && !valid.contains(&loan.id));
        Ok(all)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn write(&self, loan: &Loan) -> Result<(), CniError> {
        use std::os::unix::fs::DirBuilderExt;
        let fail = |e: String| CniError::new(Code::IO, format!("store the state of {} in {}: {e}", loan.device, self.path.display()));
        if let Some(dir) = self.path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| fail(e.to_string()))?;
        }
        file::write_atomic(&self.path, loan.print().as_bytes(), 0o600, Durability::Volatile).map_err(|e| fail(e.to_string()))
    }

    /// `None` if nothing was kept, or what was kept cannot be understood: DEL goes on with what the device itself tells.
    pub(super) fn read(&self) -> Option<Loan> {
        read(&self.path).filter(|loan| loan.id == self.id)
    }

    pub(super) fn remove(&self) -> Result<(), CniError> {
        file::remove(&self.path).map_err(|e| CniError::new(Code::IO, e.to_string()))
    }
}

fn read(path: &Path) -> Option<Loan> {
    Loan::parse(&file::read(path, MAX_FILE, Links::Refused).ok()?)
}

#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8]) {
    drop(Loan::parse(bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let id = AttachmentId { network: "net".parse().unwrap(), container: "c1".parse().unwrap(), ifname: "eth0".parse().unwrap() };
        let identity = Identity {
            kind: None,
            permanent_mac: Some("02:00:00:00:00:02".parse().unwrap()),
            device: Some(BusDevice { bus: "pci".into(), name: "0000:03:00.1".into() }),
        };
        let loan = Loan {
            id,
            device: "ens5".into(),
            identity,
            inside: Some(4),
            altnames: vec!["enp0s20f0u1u4i5long".into()],
            group: 7,
            alias: "uplink \"1\"".into(),
            up: true,
            switches: Switches { promisc: true, allmulti: false, multicast: true, arp: false },
            mtu: 9000,
            txqlen: 1000,
            segments: SegmentLimits { gso: Some(65_536), segments: Some(65_535), ..SegmentLimits::default() },
            mac: Some("02:00:00:00:00:01".parse().unwrap()),
            master: Some("br0".into()),
            netns: "/run/netns/c1".into(),
            place: LoanLocation { id: NetnsId { dev: 4, ino: 4026532281 }, cookie: Some(u64::MAX) },
        };
        assert_eq!(Loan::parse(loan.print().as_bytes()), Some(loan.clone()));
        let identity = Identity { kind: Some("veth".into()), permanent_mac: None, device: None };
        let without = Loan { mac: None, up: false, alias: String::new(), master: None, inside: None, identity, ..loan };
        assert_eq!(Loan::parse(without.print().as_bytes()), Some(without));
        for bad in ["", "{}", "[]", "{\"network\":\"net\"}"] {
            assert_eq!(Loan::parse(bad.as_bytes()), None);
        }
    }
}
