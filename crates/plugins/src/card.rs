//! A PCI network card that a container gets, or a virtual function of one, and what it was before: which driver it had, and which hardware
//! address and VLAN its card had for it.
//!
//! ```text
//!   note   file: driver, override, the card's settings     ADD; DEL finds it there after a crash as well
//!   use    the card's settings, or a driver for programs
//!   back   hardware address, driver, VLAN, then the file goes
//! ```
//!
//! An interface is moved and given back as that of `host-device` is, before the rest is as it was. A file need not outlive a reboot, after which
//! cards are as their drivers make them.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use cni::{AttachmentId, CniError, Code, Config, Mac};
use json::{Object, Value};
use linux::file::{self, Durability, Links};
use linux::link::{self, Change, VirtualFunction};
use linux::sysfs::{self, Bus};
use linux::{Link, Netlink};
use plugin::{Call, Cx, Host, Stage, Teardown};

use crate::verify::changed;
use crate::{device_files, identity, internal};

/// Drivers whose devices have no interface: a program in the container drives them (DPDK).
pub(crate) const USERSPACE_DRIVERS: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];

/// What such a file may have, in bytes: it has about four hundred.
const MAX_FILE: usize = 16 << 10;

/// How long a driver may take until its device has the hardware address that its card was given for it, or an interface.
const LOOKS: usize = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// How often a driver is asked to give its device an address.
const TRIES: usize = 4;

/// A PCI network card, or a virtual function of one.
#[derive(Debug, Clone)]
pub(crate) struct Card {
    id: String,
    folder: PathBuf,
}

/// A virtual function: its card's own device, and what the card has for it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Function {
    card: String,
    settings: VirtualFunction,
}

/// What a device was before a container got it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Before {
    id: AttachmentId,
    device: String,
    /// Whether a program in the container drives it.
    is_driven: bool,
    driver: String,
    chosen_driver: Option<String>,
    mac: Option<Mac>,
    function: Option<Function>,
}

// === impl Card ===

impl Card {
    /// The network card of a PCI address; `key` names it.
    pub(crate) fn find(key: &'static str, id: &str) -> Result<Self, CniError> {
        let why = || format!("there is no PCI device {id:?}; `ls /sys/bus/pci/devices`");
        let folder = Bus::Pci.device(id).ok_or_else(|| CniError::invalid(key, why()))?;
        let card = Card { id: id.to_owned(), folder };
        match sysfs::is_network_card(&card.folder).map_err(|e| card.unreadable(&e))? {
            true => Ok(card),
            false => Err(CniError::invalid(key, format!("PCI device {id} is not a network card"))),
        }
    }

    /// Its PCI address.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The driver that it is bound to.
    pub(crate) fn driver(&self) -> Result<Option<String>, CniError> {
        sysfs::driver(&self.folder).map_err(|e| self.unreadable(&e))
    }

    /// Its interface, where `netlink` is; `None`: it has none, or not here.
    pub(crate) fn interface(&self, netlink: &mut Netlink) -> Result<Option<Link>, CniError> {
        let Some(shown) = sysfs::interface(&self.folder).map_err(|e| self.unreadable(&e))? else { return Ok(None) };
        Ok(netlink.link(&shown.name).map_err(internal)?.filter(|link| shown.is(link)))
    }

    /// Its interface, which a driver of the kernel has; `None`: a driver for programs has it. `key` names it.
    ///
    /// # Errors
    /// If it has an interface elsewhere: it is another container's.
    pub(crate) fn own_interface(&self, key: &'static str, netlink: &mut Netlink) -> Result<Option<Link>, CniError> {
        let driver = self.driver()?.ok_or_else(|| self.without_driver())?;
        if USERSPACE_DRIVERS.contains(&driver.as_str()) {
            return Ok(None);
        }
        let why = "it may be in another container, or its driver makes none";
        let missing = || CniError::invalid(key, format!("PCI device {} with the driver {driver} has no interface here: {why}", self.id));
        self.interface(netlink)?.ok_or_else(missing).map(Some)
    }

    /// All of its interfaces where `netlink` is: a card has one for each of its ports. `first`: one of them.
    pub(crate) fn interfaces(&self, netlink: &mut Netlink, first: &Link) -> Result<Vec<Link>, CniError> {
        let is_other = |link: &Link| link.index != first.index && sysfs::pci_address(link).as_ref() == Some(&self.id);
        let others = netlink.links().map_err(internal)?.into_iter().filter(is_other);
        Ok(std::iter::once(first.clone()).chain(others).collect())
    }

    /// How many virtual functions it has, which end with its driver.
    pub(crate) fn functions(&self) -> usize {
        let count = std::fs::read_to_string(self.folder.join("sriov_numvfs"));
        count.ok().and_then(|count| count.trim().parse().ok()).unwrap_or_default()
    }

    /// The interface of the card of a virtual function, and the number that the function has there.
    fn physical(&self, netlink: &mut Netlink) -> Result<Option<(Card, Link, u32)>, CniError> {
        let Some((folder, number)) = sysfs::physical_function(&self.folder).map_err(|e| self.unreadable(&e))? else { return Ok(None) };
        let id = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let card = Card { id, folder };
        let next = "its own interface must be in the network namespace of the host";
        let missing = || internal(format!("PCI device {}, whose virtual function {} is, has no interface here: {next}", card.id, self.id));
        let link = card.interface(netlink)?.ok_or_else(missing)?;
        Ok(Some((card, link, number)))
    }

    fn function(&self, netlink: &mut Netlink) -> Result<Option<Function>, CniError> {
        let Some((card, link, number)) = self.physical(netlink)? else { return Ok(None) };
        let all = netlink.virtual_functions(link.index).map_err(internal)?;
        let settings = all.into_iter().find(|function| function.number == number).ok_or_else(|| {
            let why = "its driver has no settings for virtual functions: with a card in switchdev mode, use its representors";
            internal(format!("{} does not tell of its virtual function {number}, {}: {why}", link.name, self.id))
        })?;
        Ok(Some(Function { card: card.id, settings }))
    }

    /// What the card has for this virtual function; `None`: it is none.
    pub(crate) fn settings(&self, netlink: &mut Netlink) -> Result<Option<VirtualFunction>, CniError> {
        Ok(self.function(netlink)?.map(|function| function.settings))
    }

    /// Has the card take packets for this virtual function at this hardware address, and with the tag of this VLAN; an interface of it, too. All
    /// zero stands for the address that its driver chooses. `tag`: VLAN and priority. What is not given stays as it is.
    pub(crate) fn set(&self, netlink: &mut Netlink, mac: Option<[u8; 6]>, tag: Option<(u16, u8)>) -> Result<(), CniError> {
        let Some((_, link, number)) = self.physical(netlink)? else { return Ok(()) };
        let called = |what: String| format!("{what} of virtual function {number} of {}, PCI device {}", link.name, self.id);
        if let Some(bytes) = mac {
            // Before the card has one: afterwards many drivers refuse another one, and even the same. So what the card has goes first, where it lets go.
            if let Some(mac) = Mac::from_bytes(&bytes).filter(|_| bytes != [0; 6])
                && self.interface(netlink)?.is_some_and(|own| own.mac.as_ref() != Some(&mac))
            {
                drop(netlink.send_one(link::set_vf_mac(link.index, number, [0; 6])));
                linux::crash_point!("card-mac-unset");
                self.set_own(netlink, &mac)?;
            }
            let set = link::set_vf_mac(link.index, number, bytes).called(called("set the hardware address".to_owned()));
            netlink.send_one(set).map_err(internal)?;
            linux::crash_point!("card-mac-set");
        }
        let Some((vlan, qos)) = tag else { return Ok(()) };
        let set = link::set_vf_vlan(link.index, number, vlan, qos).called(called(format!("set VLAN {vlan}")));
        netlink.send_one(set).map(drop).map_err(internal)
    }

    /// The hardware address of its interface, as far as its driver allows. One that asks its card refuses while the card is busy with it.
    fn set_own(&self, netlink: &mut Netlink, mac: &Mac) -> Result<(), CniError> {
        for _ in 0..TRIES {
            let Some(own) = self.interface(netlink)?.filter(|own| own.mac.as_ref() != Some(mac)) else { return Ok(()) };
            if netlink.send_one(link::set(own.index, &Change { mac: Some(mac.clone()), ..Change::default() })).is_ok() {
                return Ok(());
            }
            sleep(BETWEEN_LOOKS);
        }
        Ok(())
    }

    /// Its interface, when its driver has taken over the hardware address that its card was given for it. A driver that does not do so by itself gets
    /// the device once more.
    pub(crate) fn interface_with(&self, netlink: &mut Netlink, mac: Option<&Mac>) -> Result<Option<Link>, CniError> {
        for again in [true, false] {
            for _ in 0..LOOKS {
                if let Some(link) = self.interface(netlink)?.filter(|link| mac.is_none_or(|mac| link.mac.as_ref() == Some(mac))) {
                    return Ok(Some(link));
                }
                sleep(BETWEEN_LOOKS);
            }
            if again {
                sysfs::rebind(&self.folder).map_err(|e| self.not_bound(&e))?;
            }
        }
        Ok(None)
    }

    /// A card stays with a driver for programs that it has: the host may have given it to one, and there is no interface by which that could be
    /// seen.
    pub(crate) fn may_be_bound(&self, wanted: Option<&str>) -> Result<(), CniError> {
        match (self.driver()?, wanted) {
            (Some(has), Some(wanted)) if has != wanted && USERSPACE_DRIVERS.contains(&has.as_str()) => {
                let next = format!("set driver to {has}, or give it back to the kernel's driver first");
                Err(CniError::invalid("driver", format!("PCI device {} has the driver {has}, which a program may use: {next}", self.id)))
            }
            _ => Ok(()),
        }
    }

    /// Binds it to a driver that is loaded, whatever other drivers know it.
    pub(crate) fn bind(&self, driver: &str) -> Result<(), CniError> {
        self.bind_now(driver, Some(driver))
    }

    /// The same; `chosen`: what its override says from then on.
    fn bind_now(&self, driver: &str, chosen: Option<&str>) -> Result<(), CniError> {
        let choose = |driver| sysfs::set_driver_override(&self.folder, driver).map_err(|e| self.not_bound(&e));
        if self.driver()?.as_deref() != Some(driver) {
            choose(Some(driver))?;
            linux::crash_point!("card-driver-chosen");
            sysfs::rebind(&self.folder).map_err(|e| self.not_bound(&e))?;
            linux::crash_point!("card-bound");
        }
        choose(chosen)?;
        if self.driver()?.as_deref() == Some(driver) {
            return Ok(());
        }
        let next = format!("load it on the node (modprobe {driver}), and look at the kernel's log (dmesg)");
        Err(internal(format!("driver {driver} did not take PCI device {}: {next}", self.id)))
    }

    fn unreadable(&self, e: &std::io::Error) -> CniError {
        internal(format!("PCI device {}: {}: {e}", self.id, self.folder.display()))
    }

    fn without_driver(&self) -> CniError {
        internal(format!("PCI device {} has no driver: bind one to it", self.id))
    }

    fn not_bound(&self, e: &std::io::Error) -> CniError {
        internal(format!("choose a driver for PCI device {}: {}: {e}", self.id, self.folder.display()))
    }
}

// === impl Before ===

impl Before {
    /// Keeps what a device is before it is changed, and notes that it is to be so again. `is_driven`: a program in the container is to drive it.
    ///
    /// # Errors
    /// If another container has it.
    pub(crate) fn keep(card: &Card, is_driven: bool, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        Before::is_anothers(card, call, cx)?;
        let dir = directory(cx.host);
        let path = path(&dir, call.id);
        if read(&path).is_some() {
            return Err(internal(format!("interface {} of this container has a PCI device already: DEL it first", call.id.ifname)));
        }
        let netlink = cx.host.netlink()?;
        let before = Before {
            id: call.id.clone(),
            device: card.id.clone(),
            is_driven,
            driver: card.driver()?.ok_or_else(|| card.without_driver())?,
            chosen_driver: sysfs::driver_override(&card.folder).map_err(|e| card.unreadable(&e))?,
            mac: card.interface(netlink)?.and_then(|link| link.mac),
            function: card.function(netlink)?,
        };
        before.write(&path)?;
        linux::crash_point!("card-noted");
        before.note(path, cx.teardown);
        Ok(())
    }

    /// # Errors
    /// If another container has a device.
    pub(crate) fn is_anothers(card: &Card, call: &Call<'_>, cx: &Cx<'_>) -> Result<(), CniError> {
        let other = all(&directory(cx.host))?.into_iter().find(|other| other.device == card.id && other.id != *call.id);
        other.map_or(Ok(()), |other| {
            let msg = format!("PCI device {} is that of container {} (network {})", card.id, other.id.container, other.id.network);
            Err(CniError::new(Code::TRY_AGAIN_LATER, format!("{msg}: wait until it is gone, or DEL it")))
        })
    }

    /// DEL: what the device of an attachment was.
    pub(crate) fn collect(call: &Call<'_>, cx: &mut Cx<'_>) {
        let path = path(&directory(cx.host), call.id);
        if let Some(before) = read(&path).filter(|before| before.id == *call.id) {
            before.note(path, cx.teardown);
        }
    }

    /// GC: the same of attachments of a network that are gone; which ones these are.
    pub(crate) fn collect_stale(config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<Vec<AttachmentId>, CniError> {
        let dir = directory(cx.host);
        let mut gone = Vec::new();
        for before in all(&dir)?.into_iter().filter(|before| before.id.network == config.network && !valid.contains(&before.id)) {
            gone.push(before.id.clone());
            let path = path(&dir, &before.id);
            before.note(path, cx.teardown);
            cx.teardown.next_attachment();
        }
        Ok(gone)
    }

    /// CHECK: the device that an attachment has, and whether a program in the container drives it.
    pub(crate) fn device_of(call: &Call<'_>, cx: &Cx<'_>) -> Result<(Card, bool), CniError> {
        let before = read(&path(&directory(cx.host), call.id)).filter(|before| before.id == *call.id);
        let before = before.ok_or_else(|| changed(call.id.ifname.as_str(), "the record of its PCI device is gone"))?;
        Ok((Card::find("pciBusID", &before.device)?, before.is_driven))
    }

    /// Behind the stage in which interfaces come back: until then the container has what its card has for it.
    fn note(self, path: PathBuf, teardown: &mut Teardown) {
        let what = format!("restore PCI device {}", self.device);
        teardown.at(Stage::Links, what, move |host| {
            self.restore(host)?;
            linux::crash_point!("card-restored");
            file::remove(&path).map_err(|e| CniError::new(Code::IO, e.to_string()))
        });
    }

    /// A device that is gone, or that is no virtual function any more, needs nothing.
    fn restore(&self, host: &mut Host) -> Result<(), CniError> {
        let Some(folder) = Bus::Pci.device(&self.device) else { return Ok(()) };
        let card = Card { id: self.device.clone(), folder };
        let netlink = host.netlink()?;
        let is_same = |now: &(Card, Link, u32), before: &Function| now.0.id == before.card && now.2 == before.settings.number;
        let before = match &self.function {
            Some(before) if card.physical(netlink)?.is_some_and(|now| is_same(&now, before)) => Some(&before.settings),
            _ => None,
        };
        // Its own driver takes over the address that it finds; in the container's VLAN it stays until the container's program has lost it.
        if let Some(before) = before.filter(|_| self.is_driven) {
            card.set(netlink, Some(before.mac), None)?;
        }
        card.bind_now(&self.driver, self.chosen_driver.as_deref())?;
        if !self.is_driven && self.function.is_some() && card.interface(netlink)?.is_none() {
            let msg = format!("the interface of PCI device {} has not come back: its card keeps its VLAN until then", self.device);
            return Err(CniError::new(Code::TRY_AGAIN_LATER, msg));
        }
        if let Some(before) = before {
            card.set(netlink, Some(before.mac).filter(|_| !self.is_driven), Some((before.vlan, before.qos)))?;
            linux::crash_point!("card-set-back");
            // What its driver had chosen itself.
            self.mac.iter().try_for_each(|mac| card.set_own(netlink, mac))?;
        }
        Ok(())
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let Ok(Value::Object(o)) = json::parse(bytes) else { return None };
        let text = |key: &str| o.str(key).map(str::to_owned);
        let number = |key: &str| match o.get(key) {
            Some(Value::Number(number)) => number.as_u64(),
            _ => None,
        };
        let function = || {
            let mac: Mac = o.str("functionMac")?.parse().ok()?;
            let settings = VirtualFunction {
                number: number("function")?.try_into().ok()?,
                mac: mac.as_bytes().try_into().ok()?,
                vlan: number("vlan")?.try_into().ok()?,
                qos: number("qos")?.try_into().ok()?,
            };
            Some(Function { card: text("card")?, settings })
        };
        Some(Before {
            id: AttachmentId {
                network: o.str("network")?.parse().ok()?,
                container: o.str("container")?.parse().ok()?,
                ifname: o.str("ifname")?.parse().ok()?,
            },
            device: text("device")?,
            is_driven: o.get("driven").and_then(Value::as_bool)?,
            driver: text("driver")?,
            chosen_driver: text("driverOverride"),
            mac: o.str("mac").and_then(|mac| mac.parse().ok()),
            function: function(),
        })
    }

    fn print(&self) -> String {
        let mut o = Object::new();
        let mut put = |key: &str, text: Option<&str>| text.into_iter().for_each(|text| o.set(key, text));
        put("network", Some(self.id.network.as_str()));
        put("container", Some(self.id.container.as_str()));
        put("ifname", Some(self.id.ifname.as_str()));
        put("device", Some(&self.device));
        put("driver", Some(&self.driver));
        put("driverOverride", self.chosen_driver.as_deref());
        put("mac", self.mac.as_ref().map(Mac::to_string).as_deref());
        if let Some(Function { card, settings }) = &self.function {
            put("card", Some(card));
            put("functionMac", Mac::from_bytes(&settings.mac).map(|mac| mac.to_string()).as_deref());
            let numbers = [("function", settings.number), ("vlan", settings.vlan.into()), ("qos", settings.qos.into())];
            numbers.into_iter().for_each(|(key, number)| o.set(key, u64::from(number)));
        }
        o.set("driven", self.is_driven);
        json::indented(&o, 1)
    }

    fn write(&self, path: &Path) -> Result<(), CniError> {
        use std::os::unix::fs::DirBuilderExt;
        let fail = |e: String| CniError::new(Code::IO, format!("store the state of {} in {}: {e}", self.device, path.display()));
        if let Some(dir) = path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| fail(e.to_string()))?;
        }
        file::write_atomic(path, self.print().as_bytes(), 0o600, Durability::Volatile).map_err(|e| fail(e.to_string()))
    }
}

fn directory(host: &Host) -> PathBuf {
    host.dirs.borrowed.join("pci")
}

fn path(dir: &Path, id: &AttachmentId) -> PathBuf {
    dir.join(format!("{:016x}.json", identity::fingerprint(id)))
}

fn read(path: &Path) -> Option<Before> {
    Before::parse(&file::read(path, MAX_FILE, Links::Refused).ok()?)
}

/// Those that can be read; a file that is not its attachment's is nobody's.
fn all(dir: &Path) -> Result<Vec<Before>, CniError> {
    let own = |found: &PathBuf| read(found).filter(|before| path(dir, &before.id) == *found);
    Ok(device_files::list(dir)?.iter().filter_map(own).collect())
}

#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8]) {
    if let Some(before) = Before::parse(bytes) {
        assert_eq!(Before::parse(before.print().as_bytes()), Some(before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let id = AttachmentId { network: "net".parse().unwrap(), container: "c1".parse().unwrap(), ifname: "eth0".parse().unwrap() };
        let settings = VirtualFunction { number: 63, mac: [0; 6], vlan: 4094, qos: 7 };
        let function = Function { card: "0000:01:00.0".to_owned(), settings };
        let before = Before {
            id,
            device: "0000:01:10.2".to_owned(),
            is_driven: true,
            driver: "igbvf".to_owned(),
            chosen_driver: Some("vfio-pci".to_owned()),
            mac: Some("02:00:00:00:00:01".parse().unwrap()),
            function: Some(function),
        };
        assert_eq!(Before::parse(before.print().as_bytes()), Some(before.clone()));
        let without = Before { chosen_driver: None, mac: None, function: None, ..before };
        assert_eq!(Before::parse(without.print().as_bytes()), Some(without));
        for bad in ["", "{}", "[]", "{\"network\":\"net\"}"] {
            assert_eq!(Before::parse(bad.as_bytes()), None);
        }
    }
}
