//! `sriov-vf`: the container gets a virtual function of a card (SR-IOV), for which the card has a hardware address and a VLAN.
//!
//! ```text
//!   card ens1f0:  vf 3  MAC, VLAN          host: ens1f0v3  --ADD-->  container: eth0         a driver of the kernel
//!                                          host: ens1f0v3  --ADD-->  vfio-pci, no interface  a program in the container (DPDK)
//! ```
//!
//! The container can change neither: the card drops what is sent from another hardware address, where its check of that is on. On DEL the function
//! and its card are as they were.

use cni::{AddResult, AttachmentId, CniArgs, CniError, Code, Config, Dns, Interface, Mac, PluginType, Version};
use linux::link::{self, Change};
use linux::{Inside, Link};
use plugin::{About, Call, Cx, Draft, Key, PlannedChange, Plugin};
use serde::Deserialize;

use crate::address::{self, Addresses};
use crate::card::{Before, Card, USERSPACE_DRIVERS};
use crate::conflict::Wire;
use crate::device_id::RuntimeKeys;
use crate::{host_device, internal, mac, open, verify};

/// The plugin `sriov-vf`.
pub(crate) struct SriovVf;

static ABOUT: About = About {
    name: "sriov-vf",
    summary: "gives the container a virtual function of a card (SR-IOV) with a hardware address and a VLAN",
    versions: Version::ALL,
    capabilities: &["deviceID", "mac"],
    keys: &[
        Key::new("pciBusID", "string", "none", "the virtual function's PCI address, such as 0000:03:02.1"),
        Key::new("runtimeConfig.deviceID", "string", "none", "the same, chosen by the runtime; takes precedence"),
        Key::new("mac", "string", "chosen by its driver", "hardware address, which the card enforces"),
        Key::new(
            "vlan",
            "number",
            "0",
            "the VLAN to which the container belongs, up to 4094, whose tags the card adds and removes; 0: none",
        ),
        Key::new("vlanQoS", "number", "0", "the priority in these tags, 0 to 7"),
        Key::new("mtu", "bytes", "as it is", "MTU of the interface"),
        Key::new(
            "driver",
            "string",
            "as it is",
            "driver for a program in the container: vfio-pci, uio_pci_generic or igb_uio; no interface then",
        ),
        Key::new("ipam", "object", "none", "addresses; without it the interface has none"),
    ],
    needs_link: false,
};

#[derive(Deserialize, Default)]
#[serde(default)]
struct Keys {
    #[serde(rename = "pciBusID")]
    pci_bus_id: String,
    vlan: i64,
    #[serde(rename = "vlanQoS")]
    vlan_qos: i64,
    mtu: i64,
    driver: String,
    #[serde(rename = "runtimeConfig")]
    runtime_config: RuntimeKeys,
    dns: Dns,
}

/// The checked configuration.
struct Conf {
    /// The key that names the device, and its PCI address; empty where the runtime chooses it later.
    device: (&'static str, String),
    mac: Option<Mac>,
    vlan: u16,
    qos: u8,
    mtu: Option<u32>,
    driver: Option<String>,
    ipam: Option<PluginType>,
    dns: Dns,
}

// === impl Conf ===

impl Conf {
    fn read(config: &Config, args: &CniArgs) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        let device = match keys.runtime_config.device_id {
            id if id.is_empty() => ("pciBusID", keys.pci_bus_id),
            id => ("runtimeConfig.deviceID", id),
        };
        let vlan = u16::try_from(keys.vlan).ok().filter(|vlan| *vlan <= 4094);
        let vlan = vlan.ok_or_else(|| CniError::invalid("vlan", format!("{} is not between 0 and 4094", keys.vlan)))?;
        let qos = u8::try_from(keys.vlan_qos).ok().filter(|qos| *qos <= 7);
        let qos = qos.ok_or_else(|| CniError::invalid("vlanQoS", format!("{} is not between 0 and 7", keys.vlan_qos)))?;
        if qos > 0 && vlan == 0 {
            return Err(CniError::invalid("vlanQoS", "without a VLAN there is no tag that could have it: set vlan"));
        }
        let mtu = match keys.mtu {
            0 => None,
            68..=65535 => u32::try_from(keys.mtu).ok(),
            other => return Err(CniError::invalid("mtu", format!("{other} is not between 68 and 65535"))),
        };
        let driver = driver(keys.driver)?;
        args.only(&["MAC"])?;
        let mac = mac::requested(config, args, mac::INTERFACE)?;
        Ok(Conf { device, mac, vlan, qos, mtu, driver, ipam: config.ipam()?, dns: keys.dns })
    }

    fn card(&self) -> Result<Card, CniError> {
        match &self.device {
            (key, id) if id.is_empty() => {
                Err(CniError::invalid(key, "no virtual function is named: set it, or let the runtime choose one (deviceID)"))
            }
            (key, id) => Card::find(key, id),
        }
    }
}

/// A driver for programs; one of the kernel's own would make an interface, which is not moved.
pub(crate) fn driver(name: String) -> Result<Option<String>, CniError> {
    match name.as_str() {
        "" => Ok(None),
        known if USERSPACE_DRIVERS.contains(&known) => Ok(Some(name)),
        other => {
            let (shown, known): (String, _) = (other.chars().take(40).collect(), USERSPACE_DRIVERS.join(", "));
            Err(CniError::invalid("driver", format!("{shown:?} is no driver for programs: use one of {known}")))
        }
    }
}

/// Addresses of what has no interface in the container: who gives them cannot ask on one.
pub(crate) fn addresses_without_link(ipam: Option<PluginType>, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
    match Addresses::before_link(ipam, call, cx)? {
        Addresses::Later(kind) => {
            let why = format!("{} asks on an interface, and there is none: use another one", kind.as_str());
            Err(CniError::invalid("ipam.type", why))
        }
        known => known.with_link(call, cx, &Wire::None),
    }
}

/// The result of what has no interface in the container.
pub(crate) fn without_link(
    call: &Call<'_>,
    card: &Card,
    mac: Option<&Mac>,
    dns: Dns,
    mut result: AddResult,
) -> Result<AddResult, CniError> {
    let (mac, sandbox) = (mac.map(ToString::to_string).unwrap_or_default(), call.netns()?.path().display().to_string());
    result.interfaces =
        vec![Interface { name: call.id.ifname.to_string(), mac, sandbox, pci_id: card.id().to_owned(), ..Interface::default() }];
    result.ips.iter_mut().for_each(|ip| ip.interface = Some(0));
    address::name_resolution(call.config, dns, &mut result);
    Ok(result)
}

/// CHECK of what has no interface in the container: whether a program can drive it; `driver`: with which one.
pub(crate) fn check_driven(call: &Call<'_>, card: &Card, driver: Option<&str>) -> Result<(), CniError> {
    match card.driver()? {
        Some(found) if driver.map_or(USERSPACE_DRIVERS.contains(&found.as_str()), |driver| driver == found) => Ok(()),
        found => {
            let found = found.map_or_else(|| "no driver".to_owned(), |found| format!("the driver {found}"));
            Err(verify::changed(call.id.ifname.as_str(), format!("PCI device {} has {found}, so that no program can drive it", card.id())))
        }
    }
}

impl Plugin for SriovVf {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        let conf = Conf::read(draft.config, &CniArgs::default())?;
        match conf.device.1.is_empty() && !draft.may_get("deviceID") {
            true => conf.card().map(drop),
            false => Ok(()),
        }
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let conf = Conf::read(call.config, call.args)?;
        call.netns()?;
        let card = conf.card()?;
        let not_virtual = || CniError::invalid(conf.device.0, format!("PCI device {} is no virtual function of a card", card.id()));
        card.settings(cx.host.netlink()?)?.ok_or_else(not_virtual)?;
        let link = card.own_interface(conf.device.0, cx.host.netlink()?);
        match (link, &conf.driver) {
            // Whose it is says who has noted it.
            (Err(e), _) => Err(Before::is_anothers(&card, call, cx).err().unwrap_or(e)),
            (Ok(Some(link)), None) => add_moved(call, cx, conf, &card, &link),
            (Ok(link), _) => add_driven(call, cx, conf, &card, link.as_ref()),
        }
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(call.config, call.args)?;
        verify::ipam(call, cx)?;
        let name = call.id.ifname.as_str();
        let (card, is_driven) = Before::device_of(call, cx)?;
        match is_driven {
            true => check_driven(call, &card, conf.driver.as_deref())?,
            false => host_device::check_moved(call, &verify::told(call, cx)?)?,
        }
        let settings = card.settings(cx.host.netlink()?)?.ok_or_else(|| verify::changed(name, "it is no virtual function any more"))?;
        if (settings.vlan, settings.qos) != (conf.vlan, conf.qos) {
            let (vlan, qos) = (settings.vlan, settings.qos);
            return Err(verify::changed(
                name,
                format!("its card has VLAN {vlan} with priority {qos} for it, not {} with {}", conf.vlan, conf.qos),
            ));
        }
        match &conf.mac {
            Some(mac) if mac.as_bytes() != settings.mac => {
                Err(verify::changed(name, format!("its card has another hardware address for it than {mac}")))
            }
            _ => Ok(()),
        }
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        host_device::give_back(call, cx);
        Before::collect(call, cx);
        address::release(call, cx)
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(config, &CniArgs::default())?;
        if !conf.device.1.is_empty() {
            conf.card().map_err(|e| CniError { code: Code::NOT_AVAILABLE, ..e })?;
        }
        address::status(config, cx)
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        host_device::give_back_stale(config, valid, cx)?;
        Before::collect_stale(config, valid, cx)?;
        address::gc(config, valid, cx)
    }
}

/// Its interface moves.
fn add_moved(call: &Call<'_>, cx: &mut Cx<'_>, conf: Conf, card: &Card, before: &Link) -> Result<AddResult, CniError> {
    let addresses = Addresses::before_link(conf.ipam, call, cx)?;
    Before::keep(card, false, call, cx)?;
    cx.review(PlannedChange::Moved(before))?;
    card.set(cx.host.netlink()?, conf.mac.as_ref().and_then(bytes), Some((conf.vlan, conf.qos)))?;
    linux::crash_point!("sriov-set");
    let link = card.interface_with(cx.host.netlink()?, conf.mac.as_ref())?;
    let link = link.ok_or_else(|| internal(format!("the driver of PCI device {} did not take over its hardware address", card.id())))?;
    host_device::lend_link(call, cx, &link)?;
    let netns = call.netns()?;
    if let Some(mtu) = conf.mtu {
        netns.enter(|inside| set_mtu(inside, call, mtu)).map_err(internal)??;
    }
    let mut result = addresses.with_link(call, cx, &Wire::Own)?;
    let link = netns.enter(|inside| host_device::configure(inside, call, &mut result)).map_err(internal)??;
    result.interfaces = vec![Interface { pci_id: card.id().to_owned(), ..address::interface(&link, netns) }];
    result.ips.iter_mut().for_each(|ip| ip.interface = Some(0));
    address::name_resolution(call.config, conf.dns, &mut result);
    Ok(result)
}

/// A program in the container drives it.
fn add_driven(call: &Call<'_>, cx: &mut Cx<'_>, conf: Conf, card: &Card, link: Option<&Link>) -> Result<AddResult, CniError> {
    card.may_be_bound(conf.driver.as_deref())?;
    let result = addresses_without_link(conf.ipam, call, cx)?;
    Before::keep(card, true, call, cx)?;
    link.into_iter().try_for_each(|link| cx.review(PlannedChange::Moved(link)))?;
    card.set(cx.host.netlink()?, conf.mac.as_ref().and_then(bytes), Some((conf.vlan, conf.qos)))?;
    linux::crash_point!("sriov-set-driven");
    conf.driver.iter().try_for_each(|driver| card.bind(driver))?;
    without_link(call, card, conf.mac.as_ref(), conf.dns, result)
}

fn bytes(mac: &Mac) -> Option<[u8; 6]> {
    mac.as_bytes().try_into().ok()
}

fn set_mtu(inside: &Inside, call: &Call<'_>, mtu: u32) -> Result<(), CniError> {
    let (mut netlink, name) = (open(inside)?, call.id.ifname.as_str());
    let link = netlink.link(name).map_err(internal)?.ok_or_else(|| internal(format!("{name} disappeared while it was configured")))?;
    let set = link::set(link.index, &Change { mtu: Some(mtu), ..Change::default() });
    netlink.send_one(set.called(format!("set the MTU of {name} to {mtu}"))).map(drop).map_err(internal)
}
