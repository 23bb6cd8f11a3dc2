//! `dpdk-device`: a program in the container drives a PCI network card of the host (DPDK).
//!
//! ```text
//!   host: ens7 (virtio-pci)  --ADD-->  uio_pci_generic, FILE: 0000:00:07.0  --DEL-->  host: ens7 (virtio-pci)
//! ```
//!
//! There is no link, and nothing to configure in the container: addresses are in the result alone. The program learns the PCI address from the
//! result, or from a file as Kuryr writes it.

use std::path::{Path, PathBuf};

use cni::{AddResult, AttachmentId, CniError, Code, Config, Dns, Mac, PluginType, Version};
use linux::Link;
use linux::file::{self, Durability};
use plugin::{About, Call, Cx, Draft, Key, PlannedChange, Plugin};
use serde::Deserialize;

use crate::card::{Before, Card};
use crate::device_id::RuntimeKeys;
use crate::sriov_vf::{addresses_without_link, check_driven, driver, without_link};
use crate::{address, internal, verify};

/// The plugin `dpdk-device`.
pub(crate) struct DpdkDevice;

/// The driver that comes with every kernel.
const USUAL_DRIVER: &str = "uio_pci_generic";

static ABOUT: About = About {
    name: "dpdk-device",
    summary: "gives a PCI network card of the host to a program in the container (DPDK)",
    versions: Version::ALL,
    capabilities: &["deviceID"],
    keys: &[
        Key::new("pciBusID", "string", "none", "its PCI address, such as 0000:00:07.0"),
        Key::new("runtimeConfig.deviceID", "string", "none", "the same, chosen by the runtime; takes precedence"),
        Key::new("hwaddr", "string", "none", "its hardware address, where no PCI address is given"),
        Key::new(
            "driver",
            "string",
            USUAL_DRIVER,
            "driver that it is bound to: vfio-pci, uio_pci_generic or igb_uio; one of them that it has stays",
        ),
        Key::path("pciDir", "none", &[], "directory of a file CONTAINER-INTERFACE with the PCI address; made if it is missing"),
        Key::new("ipam", "object", "none", "addresses that the container's program is to use"),
    ],
    needs_link: false,
};

#[derive(Deserialize, Default)]
#[serde(default)]
struct Keys {
    #[serde(rename = "pciBusID")]
    pci_bus_id: String,
    hwaddr: String,
    driver: String,
    #[serde(rename = "pciDir")]
    pci_dir: String,
    #[serde(rename = "runtimeConfig")]
    runtime_config: RuntimeKeys,
    dns: Dns,
}

/// How the configuration names the device.
enum Selector {
    /// By its PCI address, under this key.
    Pci(&'static str, String),
    /// By the hardware address of its interface.
    Mac(Mac),
    /// Not at all: the runtime chooses it later.
    Nothing,
}

/// The checked configuration.
struct Conf {
    device: Selector,
    driver: Option<String>,
    dir: Option<PathBuf>,
    ipam: Option<PluginType>,
    dns: Dns,
}

// === impl Conf ===

impl Conf {
    fn read(config: &Config) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        let device = match (keys.runtime_config.device_id, keys.pci_bus_id, keys.hwaddr.as_str()) {
            (id, _, _) if !id.is_empty() => Selector::Pci("runtimeConfig.deviceID", id),
            (_, id, _) if !id.is_empty() => Selector::Pci("pciBusID", id),
            (_, _, "") => Selector::Nothing,
            (_, _, mac) => Selector::Mac(mac.parse().map_err(|e| CniError::invalid("hwaddr", e))?),
        };
        let dir = Conf::dir(&keys.pci_dir)?;
        Ok(Conf { device, driver: driver(keys.driver)?, dir, ipam: config.ipam()?, dns: keys.dns })
    }

    fn dir(named: &str) -> Result<Option<PathBuf>, CniError> {
        let dir = Path::new(named);
        let has_steps = dir.components().any(|part| part == std::path::Component::ParentDir);
        match named {
            "" => Ok(None),
            _ if dir.is_absolute() && !has_steps => Ok(Some(dir.to_owned())),
            other => {
                let shown: String = other.chars().take(120).collect();
                Err(CniError::invalid("pciDir", format!("{shown:?} is not a directory: it begins with /, and has no ..")))
            }
        }
    }

    fn card(&self, cx: &mut Cx<'_>) -> Result<Card, CniError> {
        let mac = match &self.device {
            Selector::Pci(key, id) => return Card::find(key, id),
            Selector::Mac(mac) => mac,
            Selector::Nothing => return Err(unnamed()),
        };
        let links = cx.host.netlink()?.links().map_err(internal)?;
        let missing = || CniError::invalid("hwaddr", format!("no interface of this host has the hardware address {mac}"));
        let link = links.into_iter().find(|link| link.kind.is_none() && link.mac.as_ref() == Some(mac)).ok_or_else(missing)?;
        let not_pci = || CniError::invalid("hwaddr", format!("{}, which has the hardware address {mac}, is no PCI device", link.name));
        Card::find("hwaddr", &linux::sysfs::pci_address(&link).ok_or_else(not_pci)?)
    }
}

fn unnamed() -> CniError {
    CniError::invalid("pciBusID", "no device is named: set it or hwaddr, or let the runtime choose one (deviceID)")
}

/// The file that tells the container's program which device it has, as Kuryr names it.
fn file_of(dir: &Path, id: &AttachmentId) -> PathBuf {
    dir.join(format!("{}-{}", id.container, id.ifname))
}

impl Plugin for DpdkDevice {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        match Conf::read(draft.config)?.device {
            Selector::Nothing if !draft.may_get("deviceID") => Err(unnamed()),
            _ => Ok(()),
        }
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let conf = Conf::read(call.config)?;
        call.netns()?;
        let card = conf.card(cx)?;
        Before::is_anothers(&card, call, cx)?;
        card.may_be_bound(conf.driver.as_deref())?;
        let link = card.own_interface("pciBusID", cx.host.netlink()?)?;
        // With another driver it loses all that it has, as the ports of one function.
        let links = match &link {
            Some(link) => card.interfaces(cx.host.netlink()?, link)?,
            None => Vec::new(),
        };
        links.iter().try_for_each(|link| is_unused(&card, link, cx))?;
        let result = addresses_without_link(conf.ipam, call, cx)?;
        Before::keep(&card, true, call, cx)?;
        links.iter().try_for_each(|link| cx.review(PlannedChange::Moved(link)))?;
        if conf.driver.is_some() || link.is_some() {
            card.bind(conf.driver.as_deref().unwrap_or(USUAL_DRIVER))?;
        }
        linux::crash_point!("dpdk-bound");
        if let Some(dir) = &conf.dir {
            let path = file_of(dir, call.id);
            std::fs::create_dir_all(dir).map_err(|e| internal(format!("make the directory {}: {e}", dir.display())))?;
            cx.teardown.file(path.clone());
            file::write_atomic(&path, card.id().as_bytes(), 0o644, Durability::Volatile)
                .map_err(|e| CniError::new(Code::IO, e.to_string()))?;
            linux::crash_point!("dpdk-told");
        }
        let mac = link.and_then(|link| link.mac);
        without_link(call, &card, mac.as_ref(), conf.dns, result)
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(call.config)?;
        verify::ipam(call, cx)?;
        let (card, _) = Before::device_of(call, cx)?;
        check_driven(call, &card, conf.driver.as_deref())?;
        let Some(path) = conf.dir.map(|dir| file_of(&dir, call.id)) else { return Ok(()) };
        match std::fs::read_to_string(&path) {
            Ok(text) if text == card.id() => Ok(()),
            _ => Err(verify::changed(call.id.ifname.as_str(), format!("{} does not have its PCI address {}", path.display(), card.id()))),
        }
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        Before::collect(call, cx);
        // An ADD that such a configuration was refused for has left nothing.
        if let Ok(Conf { dir: Some(dir), .. }) = Conf::read(call.config) {
            cx.teardown.file(file_of(&dir, call.id));
        }
        address::release(call, cx)
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        Conf::read(config)?;
        address::status(config, cx)
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        let gone = Before::collect_stale(config, valid, cx)?;
        if let Ok(Conf { dir: Some(dir), .. }) = Conf::read(config) {
            gone.iter().for_each(|id| cx.teardown.file(file_of(&dir, id)));
        }
        address::gc(config, valid, cx)
    }
}

/// The host would lose what it uses: an interface with an address, one that is part of another, or virtual functions.
fn is_unused(card: &Card, link: &Link, cx: &mut Cx<'_>) -> Result<(), CniError> {
    let addresses = cx.host.netlink()?.addresses(Some(link.index)).map_err(internal)?;
    let used =
        addresses.iter().find(|address| !is_link_local(address.net.addr())).map(|address| format!("has the address {}", address.net));
    let used = used.or_else(|| link.master.map(|_| "is a port of a bridge, bond or VRF".to_owned()));
    let used = used.or_else(|| Some(card.functions()).filter(|count| *count > 0).map(|count| format!("has {count} virtual functions")));
    used.map_or(Ok(()), |why| {
        let next = "take that away, or name another device";
        Err(CniError::new(Code::INVALID_CONFIG, format!("{} is used by the host: it {why}; {next}", link.name)))
    })
}

/// The kernel gives every interface that is up such an IPv6 address.
fn is_link_local(address: std::net::IpAddr) -> bool {
    matches!(address, std::net::IpAddr::V6(v6) if v6.is_unicast_link_local())
}
