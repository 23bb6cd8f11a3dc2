//! A device goes into a container, and comes back as it was.
//!
//! ```text
//!   lend       file -> one message: namespace, name, group, alias          the original name is the alias
//!   give back  in the container: namespace, name -> on the host: MAC, MTU, then group, alias, up
//! ```
//!
//! Wherever a crash, or the end of a namespace, left the device, it is known by its group until its last step back. One that
//! another implementation has lent is known by its alias.

use std::os::fd::AsFd;
use std::sync::Arc;

use cni::{AttachmentId, CniError, Code, IfName};
use linux::link::{self, Change};
use linux::{Errno, Link, Netlink, Netns};
use plugin::{Call, Cx, Host, Stage};

use super::conf::Conf;
use super::loan::{Loan, LoanFile};
use crate::single::open;
use crate::{identity, internal};

/// Who has a device, and what is known of it.
#[derive(Clone)]
struct Borrower {
    id: AttachmentId,
    /// The container's namespace, where it was told.
    netns: Option<Arc<Netns>>,
    /// The device that the configuration names.
    device: Option<IfName>,
    file: LoanFile,
}

/// Moves the device into the container. It is down there.
pub(super) fn lend(call: &Call<'_>, x: &mut Cx<'_>, device: &Link) -> Result<(), CniError> {
    let netns = call.netns()?;
    let name = call.id.ifname.clone();
    let taken =
        netns.enter(|inside| Netlink::open(inside).map_err(internal)?.link(name.as_str()).map_err(internal)).map_err(internal)??;
    if taken.is_some() {
        return Err(internal(format!("interface name {name} already exists in the container: choose another CNI_IFNAME")));
    }
    let group = identity::group(call.id);
    let borrower = Borrower::of(call, x);
    borrower.file.write(&Loan::of(device, call.id, group, netns))?;
    linux::crash_point!("device-noted");
    borrower.note(x);
    let change = Change {
        netns: Some(netns.as_fd()),
        name: Some(name.clone()),
        group: Some(group),
        alias: Some(device.name.clone()),
        ..Change::default()
    };
    let set = link::set(device.index, &change).called(format!("move {} into the container as {name}", device.name));
    x.host.netlink()?.send_one(set).map_err(|e| match e.errno() {
        Errno::EINVAL => internal(format!("failed to move link: {e}; an interface of this kind stays where it was made")),
        _ => internal(format!("failed to move link: {e}")),
    })?;
    linux::crash_point!("device-lent");
    Ok(())
}

/// DEL: the device is to come back.
pub(super) fn collect(call: &Call<'_>, x: &mut Cx<'_>) {
    Borrower::of(call, x).note(x);
}

/// GC: those of gone attachments come back.
pub(super) fn collect_stale(config: &cni::Config, valid: &[AttachmentId], x: &mut Cx<'_>) -> Result<(), CniError> {
    for (file, loan) in LoanFile::stale(&x.host.dirs.borrowed, config, valid)? {
        Borrower { id: loan.id, netns: None, device: None, file }.note(x);
    }
    Ok(())
}

/// Whether a container has the device of that name.
pub(super) fn is_lent(host: &Host, name: &str) -> Result<bool, CniError> {
    Ok(LoanFile::all(&host.dirs.borrowed)?.iter().any(|(_, loan)| loan.device == name))
}

// === impl Borrower ===

impl Borrower {
    fn of(call: &Call<'_>, x: &Cx<'_>) -> Self {
        let file = LoanFile::of(&x.host.dirs.borrowed, call.id);
        Borrower { id: call.id.clone(), netns: call.netns.cloned(), device: Conf::name(call.config), file }
    }

    fn note(self, x: &mut Cx<'_>) {
        let (file, name) = (self.file.clone(), self.id.ifname.clone());
        x.teardown.at(Stage::Devices, format!("give back the device of {name}"), move |host| self.give_back(host));
        x.teardown.at(Stage::Files, format!("remove {}", file.path().display()), move |_| file.remove());
    }

    fn give_back(self, host: &mut Host) -> Result<(), CniError> {
        let loan = self.file.read();
        // A runtime that does not tell the namespace, or GC: ADD has kept its path.
        let kept = loan.as_ref().and_then(|loan| Netns::open(&loan.netns).ok().flatten()).map(Arc::new);
        let here = Netns::current().map_err(internal)?;
        let mut back = None;
        for netns in self.netns.iter().chain(kept.iter()).filter(|ns| ns.id() != here.id()) {
            let found = netns.enter(|inside| self.inside(&mut open(inside)?, loan.as_ref())).map_err(internal)??;
            if let Some(link) = found {
                let name = self.original(&link, loan.as_ref())?;
                is_free(host.netlink()?, &name, &link)?;
                netns.enter(|inside| out(&mut open(inside)?, &link, &name, &here)).map_err(internal)??;
                linux::crash_point!("device-back");
                back = Some(name);
            }
        }
        let netlink = host.netlink()?;
        let found = match back {
            Some(name) => netlink.link(name.as_str()).map_err(internal)?,
            None => self.on_host(netlink, loan.as_ref())?,
        };
        match found {
            Some(link) => self.restore(netlink, &link, loan.as_ref()),
            None => Ok(()),
        }
    }

    /// The device in the container.
    fn inside(&self, netlink: &mut Netlink, loan: Option<&Loan>) -> Result<Option<Link>, CniError> {
        let group = identity::group(&self.id);
        let links = netlink.links().map_err(internal)?;
        if let Some(link) = links.iter().find(|l| l.group == group && (loan.is_some() || alias(l).is_some())) {
            return Ok(Some(link.clone()));
        }
        // Another implementation's: it has the original name as its alias.
        let theirs = |l: &&Link| l.name == self.id.ifname.as_str() && alias(l).is_some();
        Ok(links.iter().find(theirs).filter(|_| loan.is_none()).cloned())
    }

    /// The device, if it is back on the host and not yet as it was. When a namespace ends, the kernel gives back hardware,
    /// under the name that it had there or, where that is taken, as `dev7`.
    fn on_host(&self, netlink: &mut Netlink, loan: Option<&Loan>) -> Result<Option<Link>, CniError> {
        let group = identity::group(&self.id);
        let links = netlink.links().map_err(internal)?;
        if let Some(link) = links.iter().find(|l| l.group == group && (loan.is_some() || alias(l).is_some())) {
            return Ok(Some(link.clone()));
        }
        let (None, Some(device)) = (loan, &self.device) else { return Ok(None) };
        let number = |name: &str| name.strip_prefix("dev").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
        let known = |name: &str| name == device.as_str() || name == self.id.ifname.as_str() || number(name);
        let theirs = |l: &&Link| l.alias.as_deref() == Some(device.as_str()) && known(&l.name);
        Ok(links.iter().find(theirs).cloned())
    }

    /// The name that it had on the host.
    fn original(&self, link: &Link, loan: Option<&Loan>) -> Result<IfName, CniError> {
        let kept = loan.and_then(|loan| IfName::parse(&loan.device).ok());
        kept.or_else(|| alias(link)).ok_or_else(|| {
            internal(format!("failed to find original ifname for {:?} (alias is not set): move it to the host by hand", link.name))
        })
    }

    /// On the host, everything but its name and namespace.
    fn restore(&self, netlink: &mut Netlink, link: &Link, loan: Option<&Loan>) -> Result<(), CniError> {
        let name = self.original(link, loan)?;
        if link.name != name.as_str() {
            is_free(netlink, &name, link)?;
            let change = Change { name: Some(name.clone()), ..Change::default() };
            netlink.send_one(link::set(link.index, &change).called(format!("rename {} to {name}", link.name))).map_err(internal)?;
            linux::crash_point!("device-renamed");
        }
        // As far as it goes: what it can no longer be must not keep its container from being deleted.
        if let Some(loan) = loan {
            let mac = loan.mac.clone().filter(|mac| link.mac.as_ref() != Some(mac));
            let mtu = Some(loan.mtu).filter(|mtu| link.mtu != *mtu);
            for change in [Change { mac, ..Change::default() }, Change { mtu, ..Change::default() }] {
                let _ = netlink.send_one(link::set(link.index, &change));
            }
            linux::crash_point!("device-restored");
        }
        // What it was before another implementation lent it nobody knows: then it stays down, as there.
        let change = match loan {
            Some(loan) => {
                Change { group: Some(loan.group), alias: Some(loan.alias.clone()), up: loan.up.then_some(true), ..Change::default() }
            }
            None => {
                let group = (link.group == identity::group(&self.id)).then_some(0);
                Change { group, alias: Some(String::new()), ..Change::default() }
            }
        };
        netlink
            .send_one(link::set(link.index, &change).called(format!("give {name} back its group, alias and state")))
            .map_err(internal)?;
        linux::crash_point!("device-as-it-was");
        Ok(())
    }
}

/// An alias that can be an interface's name.
fn alias(link: &Link) -> Option<IfName> {
    link.alias.as_deref().and_then(|alias| IfName::parse(alias).ok())
}

/// Out of the container, under the name that it had. Were it taken, the kernel would leave it half way.
fn out(netlink: &mut Netlink, link: &Link, name: &IfName, host: &Netns) -> Result<(), CniError> {
    let change = Change { netns: Some(host.as_fd()), name: Some(name.clone()), ..Change::default() };
    netlink
        .send_one(link::set(link.index, &change).called(format!("move {} back to the host as {name}", link.name)))
        .map(drop)
        .map_err(internal)
}

fn is_free(netlink: &mut Netlink, name: &IfName, link: &Link) -> Result<(), CniError> {
    match netlink.link(name.as_str()).map_err(internal)? {
        None => Ok(()),
        Some(_) => {
            let msg = format!("the host has another interface {name} now: rename it, and DEL again; the device waits as {}", link.name);
            Err(CniError::new(Code::INTERNAL, msg))
        }
    }
}
