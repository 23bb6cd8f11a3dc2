//! A device goes into a container, and comes back as it was.
//!
//! ```text
//!   lend       file -> one message: namespace, name, group, alias          the original name is the alias
//!   give back  in the container: namespace, name -> on the host: MAC, MTU, then group, alias, up
//! ```
//!
//! Wherever a crash, or the end of a namespace, left the device, it is known by what is kept of it: what its container can
//! change, as its group and alias, counts only where the container had no hand in it. The file stays until the device is
//! back. One that another implementation has lent is known by its alias, and by what the configuration says of it. The container can change
//! the alias as well: it gives the device no name that could be another's on the host ([`HostNames`]). Nor does an altname of the container's
//! choice come along.

use std::collections::BTreeSet;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use cni::{AttachmentId, CniError, Code, Config, IfName};
use linux::link::{self, Change, SegmentLimits};
use linux::{Batch, Errno, Link, Netlink, Netns};
use plugin::{Call, Cx, Host, Stage};

use super::conf::{Conf, Device};
use super::loan::{Loan, LoanFile};
use crate::{identity, internal, is_switch_name, open, program_of_link, veth};

/// The kernel takes a namespace down some time after its last holder has gone, and only then its hardware is back.
const LOOKS: usize = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// How often a device is moved whose container gives it a name of the host's just then.
const MOVES: usize = 5;

/// Groups of attachments, but for one in ten thousand; those that people choose are small.
const GROUPS: Range<u32> = 1 << 16..1 << 30;

/// What is known of a device's time before.
#[derive(Clone, Copy)]
enum Before<'a> {
    Kept(&'a Loan),
    /// But for the group, if it is this one, of which nobody else makes use.
    Unknown(u32),
}

/// Who has a device, and what is known of it.
#[derive(Clone)]
struct Borrower {
    id: AttachmentId,
    /// The container's namespace, where it was told.
    netns: Option<Arc<Netns>>,
    /// The device that the configuration names.
    device: Option<Device>,
    file: LoanFile,
}

/// Moves the device into the container. It is down there.
pub(crate) fn lend(call: &Call<'_>, cx: &mut Cx<'_>, device: &Link) -> Result<(), CniError> {
    let netns = call.netns()?;
    let name = call.id.ifname.clone();
    let inside = || netns.enter(|inside| open(inside)?.link(name.as_str()).map_err(internal)).map_err(internal)?;
    if inside()?.is_some() {
        return Err(internal(format!("interface name {name} already exists in the container: choose another CNI_IFNAME")));
    }
    let group = identity::group(call.id);
    let borrower = Borrower::of(call, cx);
    if let Some(other) = borrower.file.read().filter(|loan| loan.device != device.name) {
        return Err(internal(format!("{name} of this container has {} already: DEL it first", other.device)));
    }
    let master = device.master.map(|index| cx.host.netlink()?.link_by_index(index).map_err(internal)).transpose()?.flatten();
    let mut loan = Loan::of(device, master.map(|master| master.name), call.id, group, netns)?;
    borrower.file.write(&loan)?;
    linux::crash_point!("device-noted");
    let file = borrower.file.clone();
    borrower.note(cx);
    let change = Change {
        netns: Some(netns.as_fd()),
        name: Some(name.clone()),
        group: Some(group),
        alias: Some(device.name.clone()),
        ..Change::default()
    };
    let set = link::set(device.index, &change).called(format!("move {} into the container as {name}", device.name));
    cx.host.netlink()?.send_one(set).map_err(|e| match e.errno() {
        Errno::EINVAL => internal(format!("failed to move link: {e}; an interface of this kind cannot be moved")),
        _ => internal(format!("failed to move link: {e}")),
    })?;
    linux::crash_point!("device-lent");
    loan.inside = inside()?.map(|link| link.index);
    file.write(&loan)?;
    linux::crash_point!("device-lent-noted");
    Ok(())
}

/// DEL: the device is to come back.
pub(crate) fn collect(call: &Call<'_>, cx: &mut Cx<'_>) {
    Borrower::of(call, cx).note(cx);
}

/// GC: those of gone attachments come back.
pub(crate) fn collect_stale(config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
    for (file, loan) in LoanFile::stale(&cx.host.dirs.borrowed, config, valid)? {
        Borrower { id: loan.id, netns: None, device: None, file }.note(cx);
        cx.teardown.next_attachment();
    }
    if let Some(device) = named(config) {
        let valid: Vec<u32> = valid.iter().map(identity::group).collect();
        cx.teardown.at(Stage::Devices, "return an unused device", move |host| give_back_stray(host, &device, &valid));
        cx.teardown.next_attachment();
    }
    Ok(())
}

/// Who has a device.
pub(super) fn borrower(host: &Host, device: &Device) -> Result<Option<Loan>, CniError> {
    Ok(LoanFile::all(&host.dirs.borrowed)?.into_iter().map(|(_, loan)| loan).find(|loan| loan.is(device)))
}

/// The device that a configuration names; `None` also where it is not there any more.
fn named(config: &Config) -> Option<Device> {
    Conf::read(config).and_then(|conf| conf.device()).ok().flatten()
}

// === impl Borrower ===

impl Borrower {
    fn of(call: &Call<'_>, cx: &Cx<'_>) -> Self {
        let file = LoanFile::of(&cx.host.dirs.borrowed, call.id);
        Borrower { id: call.id.clone(), netns: call.netns.cloned(), device: named(call.config), file }
    }

    fn note(self, cx: &mut Cx<'_>) {
        let (file, name) = (self.file.clone(), self.id.ifname.clone());
        cx.teardown.at(Stage::Devices, format!("return the device of {name}"), move |host| self.give_back(host));
        cx.teardown.at(Stage::Files, format!("remove {}", file.path().display()), move |_| file.remove());
    }

    fn give_back(self, host: &mut Host) -> Result<(), CniError> {
        match (self.file.read(), &self.device) {
            (Some(loan), _) => self.give_back_loan(host, &loan),
            // What another attachment has is not this one's, whatever its container has that looks like it.
            (None, Some(device)) if borrower(host, device)?.is_none() => self.give_back_theirs(host, device),
            (None, _) => Ok(()),
        }
    }

    fn give_back_loan(&self, host: &mut Host, loan: &Loan) -> Result<(), CniError> {
        let name = IfName::parse(&loan.device).map_err(|e| internal(format!("{}: {e}", self.file.path().display())))?;
        // A runtime that does not tell the namespace, or GC: ADD has kept its path. Without it a process may still be there.
        let kept = Netns::open(&loan.netns).ok().flatten().map(Arc::new);
        let here = Netns::current().map_err(internal)?;
        let mut places: Vec<Arc<Netns>> = self.netns.iter().cloned().chain(kept).filter(|ns| ns.id() != here.id()).collect();
        if !places.iter().any(|ns| loan.place.is(ns)) {
            places.extend(loan.place.of_a_process().map(Arc::new));
        }
        for netns in &places {
            let index = loan.inside.filter(|_| loan.place.is(netns));
            let links = netns.enter(|inside| open(inside)?.links().map_err(internal)).map_err(internal)??;
            if let Some(link) = self.lent(&links, loan, index) {
                return self.out(host, netns, &here, link, &name, Before::Kept(loan));
            }
        }
        for look in 0..LOOKS {
            let links = host.netlink()?.links().map_err(internal)?;
            if let Some(link) = self.on_host(&links, loan) {
                return restore(host.netlink()?, link, &name, Before::Kept(loan));
            }
            if !loan.identity.must_exist() {
                return Ok(());
            }
            if look + 1 < LOOKS {
                sleep(BETWEEN_LOOKS);
            }
        }
        let msg = format!(
            "{name} is neither in {} nor on the host: a process may still use that namespace, or the device was moved elsewhere; its \
                record stays in {} until it returns or you remove that file",
            loan.netns.display(),
            self.file.path().display()
        );
        Err(CniError::new(Code::TRY_AGAIN_LATER, msg))
    }

    /// The lent device among a container's links. A container can make links of a kind with any group, name and alias, but no
    /// hardware; and it can choose no index of its namespace for what was there before.
    fn lent<'l>(&self, links: &'l [Link], loan: &Loan, index: Option<u32>) -> Option<&'l Link> {
        let group = identity::group(&self.id);
        let by_index = links.iter().find(|l| index == Some(l.index) && loan.identity.fits(l));
        let proven = || links.iter().find(|l| loan.identity.proves(l));
        let by_group = || links.iter().find(|l| l.group == group && loan.identity.fits(l) && (l.kind.is_none() || loan.inside.is_none()));
        by_index.or_else(proven).or_else(by_group)
    }

    /// The device, if it is back on the host. When a namespace ends, the kernel gives back hardware, under the name that it
    /// had there or, where that is taken, as `dev7`.
    fn on_host<'l>(&self, links: &'l [Link], loan: &Loan) -> Option<&'l Link> {
        let group = identity::group(&self.id);
        let by_group = links.iter().find(|l| l.group == group && loan.identity.fits(l));
        let proven = || links.iter().find(|l| loan.identity.proves(l));
        let by_name = || links.iter().find(|l| l.name == loan.device && l.kind.is_none() && loan.identity.fits(l));
        by_group.or_else(proven).or_else(by_name)
    }

    /// What another implementation has lent, or what was lent here and noted in a file that is gone.
    fn give_back_theirs(&self, host: &mut Host, device: &Device) -> Result<(), CniError> {
        let here = Netns::current().map_err(internal)?;
        let group = identity::group(&self.id);
        let known = |l: &Link| l.name == self.id.ifname.as_str() || l.group == group;
        if let Some(netns) = self.netns.as_ref().filter(|ns| ns.id() != here.id()) {
            let links = netns.enter(|inside| open(inside)?.links().map_err(internal)).map_err(internal)??;
            if let Some(link) = links.iter().find(|l| device.is(l) && known(l) && l.alias.is_some()) {
                let on_host = host.netlink()?.links().map_err(internal)?;
                let names = HostNames::of(host, &on_host)?;
                let name = names.returned(device, link);
                // Only hardware is the host's in any case. A container can make a link of a kind itself, with any alias.
                if link.kind.is_some() && name.as_ref().is_none_or(|name| names.has(name.as_str())) {
                    return Ok(());
                }
                let name = name.map_or_else(|| names.numbered(), Ok)?;
                return self.out(host, netns, &here, link, &name, Before::Unknown(group));
            }
        }
        let links = host.netlink()?.links().map_err(internal)?;
        // What the kernel gives back is down; an interface that is in use may have an alias like a name, too.
        let back = links.iter().find(|l| device.is(l) && !l.flags.up() && alias(l).is_some());
        let is_called = |l: &Link| l.alias.as_deref() == Some(l.name.as_str());
        match back.filter(|l| known(l) || is_called(l) || is_numbered(&l.name)) {
            Some(link) => back_on_host(host, device, link, &links, group),
            None => Ok(()),
        }
    }

    /// From the container to the host, and there as it was.
    fn out(&self, host: &mut Host, netns: &Netns, here: &Netns, link: &Link, name: &IfName, before: Before<'_>) -> Result<(), CniError> {
        is_free(host.netlink()?, name, link)?;
        // Its group is what it is known by until it is as it was, whatever the container made of that.
        let group = matches!(before, Before::Kept(_)).then(|| identity::group(&self.id));
        let change = Change { netns: Some(here.as_fd()), name: Some(name.clone()), group, ..Change::default() };
        let set = link::set(link.index, &change).called(format!("move {} back to the host as {name}", link.name));
        let mut link = link.clone();
        for round in 1.. {
            let mut strays = before.strays(&link);
            if matches!(before, Before::Unknown(_)) {
                let on_host = host.netlink()?;
                strays.extend(link.altnames.iter().filter(|name| !matches!(on_host.link(name), Ok(None))).cloned());
            }
            let moved = netns.enter(|inside| {
                let mut netlink = open(inside)?;
                drop_altnames(&mut netlink, link.index, &strays)?;
                match netlink.send_one(set.clone()) {
                    Err(e) if e.errno() == Errno::EEXIST && round < MOVES => {
                        netlink.link_by_index(link.index).map_err(internal)?.ok_or_else(|| internal(e)).map(Some)
                    }
                    moved => moved.map(|_| None).map_err(internal),
                }
            });
            match moved.map_err(internal)?? {
                Some(again) => link = again,
                None => break,
            }
        }
        linux::crash_point!("device-back");
        let netlink = host.netlink()?;
        match netlink.link(name.as_str()).map_err(internal)? {
            Some(link) => restore(netlink, &link, name, before),
            None => Ok(()),
        }
    }
}

// === impl Before ===

impl Before<'_> {
    /// The altnames of a device that its container has given it. If another implementation has lent it, these are at least the names that
    /// would be taken for those of others' links.
    fn strays(self, link: &Link) -> Vec<String> {
        let is_stray = |altname: &&String| match self {
            Before::Kept(loan) => !loan.altnames.contains(altname),
            Before::Unknown(_) => is_of_others(altname),
        };
        link.altnames.iter().filter(is_stray).cloned().collect()
    }
}

/// Removes altnames of a device. If an altname, or the device, is gone already, that is no error.
fn drop_altnames(netlink: &mut Netlink, index: u32, names: &[String]) -> Result<(), CniError> {
    let all = names.iter().map(|name| link::remove_altname(index, name).tolerate(Errno::ENOENT).tolerate(Errno::ENODEV));
    netlink.send(all.collect::<Batch<'_>>()).map(drop).map_err(internal)
}

/// On the host, everything but its namespace.
fn restore(netlink: &mut Netlink, link: &Link, name: &IfName, before: Before<'_>) -> Result<(), CniError> {
    // Before the name: the container may have made that an altname of the device.
    drop_altnames(netlink, link.index, &before.strays(link))?;
    if let Before::Kept(loan) = before {
        let missing = loan.altnames.iter().filter(|altname| !link.altnames.contains(altname));
        let added: Batch<'_> = missing.map(|altname| link::add_altname(link.index, altname).tolerate(Errno::EEXIST)).collect();
        netlink.send(added).map_err(internal)?;
    }
    if link.name != name.as_str() {
        is_free(netlink, name, link)?;
        let change = Change { name: Some(name.clone()), ..Change::default() };
        netlink.send_one(link::set(link.index, &change).called(format!("rename {} to {name}", link.name))).map_err(internal)?;
        linux::crash_point!("device-renamed");
    }
    // As far as it goes: what it can no longer be must not keep its container from being deleted.
    if let Before::Kept(loan) = before {
        for change in differences(netlink, link, loan)? {
            let _ = netlink.send_one(link::set(link.index, &change));
        }
        linux::crash_point!("device-restored");
    }
    // What it was before another implementation lent it nobody knows: then it stays down, as there.
    let change = match before {
        Before::Kept(loan) => {
            Change { group: Some(loan.group), alias: Some(loan.alias.clone()), up: loan.up.then_some(true), ..Change::default() }
        }
        Before::Unknown(own) => {
            let is_chosen = link.group == own || link.group >= GROUPS.start;
            Change { group: is_chosen.then_some(0), alias: Some(String::new()), ..Change::default() }
        }
    };
    netlink.send_one(link::set(link.index, &change).called(format!("restore the group, alias and state of {name}"))).map_err(internal)?;
    linux::crash_point!("device-as-it-was");
    Ok(())
}

/// One change for each property: what one cannot have does not keep the others from being restored.
fn differences(netlink: &mut Netlink, link: &Link, loan: &Loan) -> Result<Vec<Change<'static>>, CniError> {
    let mac = loan.mac.clone().filter(|mac| link.mac.as_ref() != Some(mac));
    let mtu = Some(loan.mtu).filter(|mtu| link.mtu != *mtu);
    let txqlen = Some(loan.txqlen).filter(|len| link.txqlen != *len);
    let segments = if loan.segments == link.segments { SegmentLimits::default() } else { loan.segments };
    let switch = |before: bool, now: bool| (before != now).then_some(before);
    let (before, now) = (loan.switches, link.flags);
    let master = loan.master.as_ref().map(|name| netlink.link(name).map_err(internal)).transpose()?.flatten().map(|master| master.index);
    let none = Change::default;
    Ok(vec![
        Change { mac, ..none() },
        Change { mtu, ..none() },
        Change { txqlen, ..none() },
        Change { segments, ..none() },
        Change { promisc: switch(before.promisc, now.promisc()), ..none() },
        Change { allmulti: switch(before.allmulti, now.allmulti()), ..none() },
        Change { multicast: switch(before.multicast, now.multicast()), ..none() },
        Change { arp: switch(before.arp, !now.noarp()), ..none() },
        // A bond takes only what is down.
        Change { master: master.filter(|index| link.master != Some(*index)), ..none() },
    ])
}

/// GC of a device that the kernel gave back, and of which no file tells: it has a group of ours, and is still not called as
/// it was. As it is on the host, no container has it.
fn give_back_stray(host: &mut Host, device: &Device, valid: &[u32]) -> Result<(), CniError> {
    if borrower(host, device)?.is_some() {
        return Ok(());
    }
    let links = host.netlink()?.links().map_err(internal)?;
    let is_stray = |l: &Link| {
        let is_away = l.alias.as_deref().is_some_and(|name| !name.is_empty() && links.iter().all(|other| other.name != name));
        GROUPS.contains(&l.group) && !l.flags.up() && !valid.contains(&l.group) && is_away
    };
    match links.iter().find(|l| device.is(l) && is_stray(l)) {
        Some(link) => back_on_host(host, device, link, &links, link.group),
        None => Ok(()),
    }
}

/// A device that the kernel has given back, with whatever alias and name it has from its container. Where the alias says nothing it keeps its name,
/// unless that is another program's.
fn back_on_host(host: &mut Host, device: &Device, link: &Link, links: &[Link], group: u32) -> Result<(), CniError> {
    let others: Vec<Link> = links.iter().filter(|other| other.index != link.index).cloned().collect();
    let name = HostNames::of(host, &others)?.on_host(device, link)?;
    restore(host.netlink()?, link, &name, Before::Unknown(group))
}

/// The names of the host's links and of devices that are lent, which are no other device's.
struct HostNames(BTreeSet<String>);

// === impl HostNames ===

impl HostNames {
    fn of(host: &Host, links: &[Link]) -> Result<Self, CniError> {
        let lent = LoanFile::all(&host.dirs.borrowed)?;
        let lent = lent.into_iter().flat_map(|(_, loan)| [loan.device].into_iter().chain(loan.altnames));
        let own = links.iter().flat_map(|link| [&link.name].into_iter().chain(&link.altnames)).cloned();
        Ok(HostNames(own.chain(lent).collect()))
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// The name that the reference plugin has kept in the alias of a device. The container can change it: where the configuration does not have
    /// the same name, it counts only if nobody has it, and no program of the node would take the device for a link of its own.
    fn returned(&self, device: &Device, link: &Link) -> Option<IfName> {
        let is_configured = |name: &str| matches!(device, Device::Name(own) if own == name);
        alias(link).filter(|name| is_configured(name.as_str()) || !self.has(name.as_str()) && !is_of_others(name.as_str()))
    }

    /// The same for one that is on the host already, or else the name that it has there, or a new one: its container may have renamed it.
    fn on_host(&self, device: &Device, link: &Link) -> Result<IfName, CniError> {
        let is_own = |name: &IfName| matches!(device, Device::Name(own) if own == name.as_str()) || !is_of_others(name.as_str());
        let name = self.returned(device, link).or_else(|| IfName::parse(&link.name).ok().filter(is_own));
        name.map_or_else(|| self.numbered(), Ok)
    }

    /// A name as the kernel gives a device whose own is taken.
    fn numbered(&self) -> Result<IfName, CniError> {
        let free = (0..).map(|n| format!("dev{n}")).find(|name| !self.has(name));
        IfName::parse(&free.unwrap_or_default()).map_err(internal)
    }
}

/// Whether a link of such a name would be taken for one of a program of the node, of a plugin, or for the bridge of a network that names none.
fn is_of_others(name: &str) -> bool {
    program_of_link(name).is_some() || is_switch_name(name) || veth::is_own_name(name) || ["cni0", "cbr0"].contains(&name)
}

/// An alias that can be an interface's name.
fn alias(link: &Link) -> Option<IfName> {
    link.alias.as_deref().and_then(|alias| IfName::parse(alias).ok())
}

/// `dev7`, which the kernel makes of a name that is taken.
fn is_numbered(name: &str) -> bool {
    name.strip_prefix("dev").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn is_free(netlink: &mut Netlink, name: &IfName, link: &Link) -> Result<(), CniError> {
    match netlink.link(name.as_str()).map_err(internal)? {
        None => Ok(()),
        Some(_) => {
            let msg = format!(
                "the host has another interface {name} now: rename it and retry the DEL; the device is named {} until \
                then",
                link.name
            );
            Err(CniError::new(Code::INTERNAL, msg))
        }
    }
}

#[cfg(test)]
mod tests {
    use linux::Netns;
    use plugin::Dirs;

    use super::*;

    /// Hardware, which a container cannot make: it always comes back, and under no name that its container has chosen for it.
    #[test]
    fn names_that_a_device_comes_back_under() {
        let links = Netns::unnamed().unwrap().enter(|inside| open(inside).unwrap().links().unwrap()).unwrap();
        let mut link = links.into_iter().next().unwrap();
        (link.name, link.kind, link.altnames) = ("eth0".to_owned(), None, vec!["enp1s0".to_owned()]);
        let mut other = link.clone();
        (other.name, other.altnames) = ("dev0".to_owned(), Vec::new());
        let names = HostNames::of(&Host::here(Dirs::below("/nonexistent".as_ref())), &[link.clone(), other]).unwrap();
        let mac = Device::Mac("02:00:00:00:00:07".parse().unwrap());
        let mut returned = |device: &Device, alias: Option<&str>| {
            link.alias = alias.map(str::to_owned);
            names.returned(device, &link).map(|name| name.to_string())
        };
        for alias in ["eth0", "enp1s0", "cni0", "cbr0", "br-int", "kube-ipvs0", "cali12", "netloom0", "veth0123456789a", "a b", "..", ""] {
            assert_eq!(returned(&mac, Some(alias)), None, "{alias}");
        }
        assert_eq!(returned(&mac, None), None);
        assert_eq!(returned(&mac, Some("enp3s0")).as_deref(), Some("enp3s0"));
        // The owner's own word counts whatever it is; that nobody has it is asked where it is used.
        assert_eq!(returned(&Device::Name("cali12".to_owned()), Some("cali12")).as_deref(), Some("cali12"));
        assert_eq!(returned(&Device::Name("enp1s0f0".to_owned()), Some("cni0")), None);
        assert_eq!(names.numbered().unwrap().as_str(), "dev1");
        // The kernel gives a device back under the name that it had in its container.
        let mut on_host = |device: &Device, name: &str, alias: Option<&str>| {
            (link.name, link.alias) = (name.to_owned(), alias.map(str::to_owned));
            names.on_host(device, &link).unwrap().to_string()
        };
        for name in ["cni0", "br-int", "kube-ipvs0", "cali12"] {
            assert_eq!(on_host(&mac, name, None), "dev1", "{name}");
            assert_eq!(on_host(&mac, name, Some(name)), "dev1", "{name}");
        }
        assert_eq!(on_host(&mac, "cni0", Some("enp3s0")), "enp3s0");
        assert_eq!(on_host(&mac, "net1", Some("cni0")), "net1");
        assert_eq!(on_host(&Device::Name("cali12".to_owned()), "cali12", None), "cali12");
    }
}
