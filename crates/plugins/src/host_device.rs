//! `host-device`: the container borrows an interface of the host.
//!
//! ```text
//!   host: ens5 (up, MTU 9000)  --ADD-->  container: eth0, alias ens5  --DEL-->  host: ens5 (up, MTU 9000)
//! ```

mod conf;
mod lend;
mod loan;

#[cfg(fuzzing)]
pub(crate) use loan::fuzz;

use cni::{AddResult, AttachmentId, CniError, Code, Config, Interface, Version};
use linux::link::{self, Change};
use linux::{Inside, Link};
use plugin::{About, Call, Cx, Draft, Host, Key, PlannedChange, Plugin};

use crate::address::{self, Addresses, Dad};
use crate::conflict::Wire;
use crate::{identity, internal, open, verify};
use conf::{Conf, Device};
pub(crate) use lend::{collect as give_back, collect_stale as give_back_stale, lend as lend_link};

/// The plugin `host-device`.
pub(crate) struct HostDevice;

/// Whether a device that a container has comes back under this name. It is noted before the device goes, so who has looked for the name and
/// found it free asks afterwards.
pub(crate) fn is_lent(host: &Host, name: &str) -> Result<bool, CniError> {
    let is_meant = |loan: &loan::Loan| loan.device == name || loan.altnames.iter().any(|other| other == name);
    Ok(loan::LoanFile::all(&host.dirs.borrowed)?.iter().any(|(_, loan)| is_meant(loan)))
}

static ABOUT: About = About {
    name: "host-device",
    summary: "moves an interface of the host into the container",
    versions: Version::ALL,
    capabilities: &["deviceID"],
    keys: &[
        Key::new("device", "string", "none", "the interface's name"),
        Key::new("hwaddr", "string", "none", "its hardware address"),
        Key::new("kernelpath", "device", "none", "its device below /sys/devices"),
        Key::new("pciBusID", "string", "none", "its PCI address, such as 0000:03:00.1"),
        Key::new("runtimeConfig.deviceID", "string", "none", "its PCI or auxiliary device, chosen by the runtime; takes precedence"),
        Key::new("DPDKMode", "bool", "by the driver", "no interface is moved; detected by the driver of a PCI device"),
        Key::new("ipam", "object", "none", "addresses; without it the interface has none"),
    ],
    needs_link: false,
};

impl Plugin for HostDevice {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        // The runtime may choose it.
        let comes_later = draft.may_get("deviceID") && !Conf::names_one(draft.config)?;
        if comes_later { Ok(()) } else { Conf::read(draft.config).map(drop) }
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let conf = Conf::read(call.config)?;
        let ipam = call.config.ipam()?;
        let netns = call.netns()?;
        let device = conf.device()?.map(|device| find(&device, cx.host)).transpose()?;
        device.iter().try_for_each(conf::may_be_lent)?;
        let addresses = Addresses::before_link(ipam, call, cx)?;
        linux::crash_point!("device-addresses-known");
        if let Some(device) = &device {
            cx.review(PlannedChange::Moved(device))?;
            lend::lend(call, cx, device)?;
        }
        let wire = if device.is_some() { Wire::Own } else { Wire::None };
        let mut result = addresses.with_link(call, cx, &wire)?;
        let name = call.id.ifname.as_str();
        let interface = match device {
            Some(_) => {
                let link = netns.enter(|inside| configure(inside, call, &mut result)).map_err(internal)??;
                address::interface(&link, netns)
            }
            None => Interface { name: name.to_owned(), sandbox: netns.path().display().to_string(), ..Interface::default() },
        };
        linux::crash_point!("device-configured");
        result.interfaces = vec![interface];
        result.ips.iter_mut().for_each(|ip| ip.interface = Some(0));
        address::name_resolution(call.config, conf.dns, &mut result);
        Ok(result)
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        verify::ipam(call, cx)?;
        let (prev, name) = (&verify::told(call, cx)?, call.id.ifname.as_str());
        let (_, told) = verify::interface(prev, name)?;
        if told.mac.is_empty() {
            // A program drives the device: there is nothing that the kernel could tell.
            return Ok(());
        }
        check_moved(call, prev)
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        lend::collect(call, cx);
        address::release(call, cx)
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        if Conf::names_one(config)? {
            let conf = Conf::read(config)?;
            let there = present(&conf, cx.host).map_err(|e| CniError { code: Code::NOT_AVAILABLE, ..e })?;
            there.iter().try_for_each(conf::may_be_lent)?;
        }
        address::status(config, cx)
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        lend::collect_stale(config, valid, cx)?;
        address::gc(config, valid, cx)
    }
}

/// CHECK of an interface that was moved into the container, against the result of its ADD.
pub(crate) fn check_moved(call: &Call<'_>, prev: &AddResult) -> Result<(), CniError> {
    let (name, group) = (call.id.ifname.as_str(), identity::group(call.id));
    let check = |inside: &Inside| {
        let link = verify::device(&mut open(inside)?, prev, name, true)?;
        match link.group == group || link.alias.is_some() {
            true => Ok(()),
            false => Err(verify::changed(name, "it is not the device that was moved here: its alias is gone")),
        }
    };
    call.netns()?.enter(check).map_err(internal)?
}

fn find(device: &Device, host: &mut Host) -> Result<Link, CniError> {
    let loan = lend::borrower(host, device)?;
    device.find(host.netlink()?, loan.as_ref())
}

/// The device, if it is there and has an interface. That a container has it is no error: a runtime that heard of that from
/// STATUS would give up the node.
fn present(conf: &Conf, host: &mut Host) -> Result<Option<Link>, CniError> {
    let Some(device) = conf.device()? else { return Ok(None) };
    match find(&device, host) {
        Err(_) if lend::borrower(host, &device)?.is_some() => Ok(None),
        found => found.map(Some),
    }
}

/// Brings it up in the container, with its addresses.
pub(crate) fn configure(inside: &Inside, call: &Call<'_>, result: &mut AddResult) -> Result<Link, CniError> {
    let mut netlink = open(inside)?;
    let name = call.id.ifname.as_str();
    let link = netlink.link(name).map_err(internal)?.ok_or_else(|| internal(format!("{name} disappeared while it was configured")))?;
    if result.ips.is_empty() {
        let up = link::set(link.index, &Change { up: Some(true), ..Change::default() });
        netlink.send_one(up.called(format!("bring {name} up in the container"))).map_err(internal)?;
        return Ok(link);
    }
    address::ipv6(inside, &link, call, result, &[])?;
    address::configure(&mut netlink, &link, result, Dad::Off)?;
    Ok(link)
}
