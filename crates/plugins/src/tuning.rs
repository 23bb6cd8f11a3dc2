//! `tuning`: settings of an interface that an earlier plugin of the chain made.
//!
//! What the interface was before is kept in a file, from which DEL restores it: the interface may be borrowed.

mod backup;
mod sysctls;

#[cfg(fuzzing)]
pub(crate) use backup::fuzz;

use std::path::PathBuf;

use cni::{AddResult, AttachmentId, CniArgs, CniError, Code, Config, Mac, Version};
use linux::link::{self, Change};
use linux::{Inside, Link, Netlink};
use plugin::{About, Call, Cx, Draft, Key, Plugin, Stage};
use serde::Deserialize;

use crate::mac::{self, Source};
use crate::{identity, internal, open, spoof, verify};
use backup::{Backup, Before};
use sysctls::Setting;

/// The plugin `tuning`.
pub(crate) struct Tuning;

static ABOUT: About = About {
    name: "tuning",
    summary: "changes sysctls and properties of an interface that another plugin created",
    versions: Version::ALL,
    capabilities: &["mac"],
    keys: &[
        Key::new("sysctl", "object", "none", "net.* settings; IFNAME stands for the interface's name"),
        Key::new("mac", "string", "unchanged", "hardware address"),
        Key::new("promisc", "bool", "unchanged", "receive every frame"),
        Key::new("mtu", "bytes", "unchanged", "largest packet"),
        Key::new("allmulti", "bool", "unchanged", "receive every multicast frame"),
        Key::new("txQLen", "packets", "unchanged", "length of the transmit queue"),
        Key::directory("dataDir", "/run/cni/tuning", "directory of the previous settings"),
    ],
    needs_link: false,
};

/// Who may ask for a hardware address, in this plugin's own order.
const MAC_ORDER: [Source; 4] = [Source::Args, Source::Runtime, Source::CniArgs, Source::Own];

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    sysctl: json::Object,
    promisc: Option<bool>,
    mtu: Option<i64>,
    allmulti: Option<bool>,
    tx_q_len: Option<i64>,
    args: ArgsKey,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ArgsKey {
    cni: CniKey,
}

/// The same settings by the convention `args.cni`, which win.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct CniKey {
    sysctl: json::Object,
    promisc: Option<bool>,
    mtu: Option<i64>,
    allmulti: Option<bool>,
    tx_q_len: Option<i64>,
}

/// The checked configuration.
struct Conf {
    settings: Vec<Setting>,
    mac: Option<Mac>,
    promisc: bool,
    mtu: Option<u32>,
    allmulti: Option<bool>,
    txqlen: Option<u32>,
}

impl Conf {
    fn read(call: &Call<'_>) -> Result<Self, CniError> {
        Conf::of(call.config, call.args, call.id.ifname.as_str())
    }

    /// For an interface of this name.
    fn of(config: &Config, args: &CniArgs, ifname: &str) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        sysctls::once(config, ifname)?;
        let cni = keys.args.cni;
        args.only(&["MAC", "IP", "GATEWAY"])?;
        let positive = |key: &str, n: Option<i64>| {
            let checked = |n| u32::try_from(n).map_err(|_| CniError::invalid(key, format!("{n} is not a positive number")));
            n.map(checked).transpose()
        };
        Ok(Conf {
            settings: sysctls::read(&[&keys.sysctl, &cni.sysctl], ifname)?,
            mac: mac::requested(config, args, MAC_ORDER)?,
            promisc: cni.promisc.or(keys.promisc).unwrap_or(false),
            // An MTU of 0 is none; a queue without a place is one.
            mtu: positive("mtu", cni.mtu.or(keys.mtu))?.filter(|mtu| *mtu != 0),
            allmulti: cni.allmulti.or(keys.allmulti),
            txqlen: positive("txQLen", cni.tx_q_len.or(keys.tx_q_len))?,
        })
    }

    fn change(&self) -> Change<'_> {
        Change {
            mac: self.mac.clone(),
            promisc: self.promisc.then_some(true),
            mtu: self.mtu,
            allmulti: self.allmulti,
            txqlen: self.txqlen,
            ..Change::default()
        }
    }

    /// Where sysctls alone are set there may be no interface: a device that DPDK drives is none.
    fn changes_link(&self) -> bool {
        self.mac.is_some() || self.promisc || self.mtu.is_some() || self.allmulti.is_some() || self.txqlen.is_some()
    }
}

impl Plugin for Tuning {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        Conf::of(draft.config, &CniArgs::default(), draft.ifname.as_str())?;
        draft.prev()
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let conf = Conf::read(call)?;
        let mut result = call.prev()?.clone();
        let netns = call.netns()?;
        let name = call.id.ifname.as_str();
        sysctls::allowed(&conf.settings)?;
        let backup = kept(call, cx);
        undo(call, cx, backup.clone());
        if let Some(mac) = &conf.mac {
            spoof::change(call, cx, mac)?;
        }
        netns.enter(|inside| apply(inside, name, &conf, &backup)).map_err(internal)??;
        if let Some(mac) = &conf.mac {
            let ours = result.interfaces.iter_mut().filter(|i| i.name == name && !i.sandbox.is_empty());
            ours.for_each(|i| i.mac = mac.to_string());
        }
        if let Some(mtu) = conf.mtu {
            let told = result.interfaces.iter_mut().filter(|i| i.name == name && !i.sandbox.is_empty() && i.mtu != 0);
            told.for_each(|i| i.mtu = mtu);
        }
        Ok(result)
    }

    fn check(&self, call: &Call<'_>, _: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(call)?;
        call.prev()?;
        let name = call.id.ifname.as_str();
        call.netns()?.enter(|inside| unchanged(inside, name, &conf)).map_err(internal)?
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        // A configuration that ADD refused is no reason for DEL to fail: nothing else of it is read.
        let mut backup = kept(call, cx);
        if let (Some(other), Some(netns)) = (backup.of_other(), call.netns) {
            let id = AttachmentId { network: other.clone(), ..call.id.clone() };
            if !netns.enter(|inside| is_of(inside, &id)).map_err(internal)?? {
                backup = Backup::of(&data_dir(call.config, cx), &id);
            }
        }
        undo(call, cx, backup);
        Ok(())
    }

    /// Whether the node's owner allows what is configured. Keys with `IFNAME` hold for any interface.
    fn status(&self, config: &Config, _: &mut Cx<'_>) -> Result<(), CniError> {
        let keys: Keys = config.read()?;
        sysctls::once(config, "IFNAME")?;
        let settings = sysctls::read(&[&keys.sysctl, &keys.args.cni.sysctl], "IFNAME")?;
        sysctls::allowed(&settings).map_err(|e| CniError { code: Code::NOT_AVAILABLE, ..e })
    }

    /// Nothing is restored: nobody says where the container is, if there still is one.
    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        for backup in Backup::stale(&data_dir(config, cx), &config.network, valid)? {
            forget(backup, cx);
        }
        Ok(())
    }
}

fn undo(call: &Call<'_>, cx: &mut Cx<'_>, backup: Backup) {
    if let Some(netns) = call.netns.cloned() {
        let (name, backup) = (call.id.ifname.clone(), backup.clone());
        // Sysctls are the namespace's: they go with it.
        cx.teardown.at(Stage::Devices, format!("restore {name}"), move |_| {
            let Some(before) = backup.read() else { return Ok(()) };
            netns.enter(|inside| restore(inside, name.as_str(), &before)).map_err(internal)?
        });
    }
    forget(backup, cx);
}

/// Whether the interface of that name was made for an attachment: what `tuning` changed for it is that attachment's DEL's to
/// restore. Otherwise its network has got another name since, or a caller names another one.
fn is_of(inside: &Inside, id: &AttachmentId) -> Result<bool, CniError> {
    let link = open(inside)?.link(id.ifname.as_str()).map_err(internal)?;
    Ok(link.is_some_and(|link| link.group == identity::group(id)))
}

fn forget(backup: Backup, cx: &mut Cx<'_>) {
    cx.teardown.at(Stage::Files, format!("remove {}", backup.path().display()), move |_| backup.remove());
}

/// Where the attachment's properties are kept.
fn kept(call: &Call<'_>, cx: &Cx<'_>) -> Backup {
    Backup::of(&data_dir(call.config, cx), call.id)
}

fn data_dir(config: &Config, cx: &Cx<'_>) -> PathBuf {
    let named = config.raw().str("dataDir").unwrap_or_default();
    cx.host.dirs.configured(named, &cx.host.dirs.tuning)
}

fn apply(inside: &Inside, name: &str, conf: &Conf, backup: &Backup) -> Result<(), CniError> {
    let found = conf.changes_link().then(|| find(inside, name)).transpose()?;
    if let Some((_, link)) = &found {
        if let Some(mtu) = conf.mtu
            && (mtu < link.min_mtu || (link.max_mtu != 0 && mtu > link.max_mtu))
        {
            let most = if link.max_mtu == 0 { "any".to_owned() } else { link.max_mtu.to_string() };
            return Err(CniError::invalid("mtu", format!("{name} cannot have an MTU of {mtu}, only {} to {most}", link.min_mtu)));
        }
        backup.write(before(link, conf))?;
        linux::crash_point!("tuning-kept");
    }
    for setting in &conf.settings {
        setting.write(inside)?;
        linux::crash_point!("tuning-sysctl-set");
    }
    if let Some((mut netlink, link)) = found {
        netlink.send_one(link::set(link.index, &conf.change())).map_err(|e| internal(format!("tuning {name}: {e}")))?;
        linux::crash_point!("tuning-changed");
    }
    Ok(())
}

fn find(inside: &Inside, name: &str) -> Result<(Netlink, Link), CniError> {
    let mut netlink = open(inside)?;
    let link = netlink.link(name).map_err(internal)?;
    let link = link.ok_or_else(|| CniError::new(Code::INTERNAL, format!("tuning: there is no interface {name} in the container")))?;
    Ok((netlink, link))
}

/// What is to be changed, as it is now.
fn before(link: &Link, conf: &Conf) -> Before {
    Before {
        mac: conf.mac.as_ref().and(link.mac.clone()),
        promisc: conf.promisc.then_some(link.flags.promisc()),
        mtu: conf.mtu.map(|_| link.mtu),
        allmulti: conf.allmulti.map(|_| link.flags.allmulti()),
        txqlen: conf.txqlen.map(|_| link.txqlen),
    }
}

/// As far as it goes: an interface that is gone needs nothing restored, and one that can no longer be what it was (its
/// parent's MTU has become smaller, say) must not keep the container from being deleted.
fn restore(inside: &Inside, name: &str, before: &Before) -> Result<(), CniError> {
    let mut netlink = open(inside)?;
    let Some(link) = netlink.link(name).map_err(internal)? else { return Ok(()) };
    for change in before.changes() {
        let _ = netlink.send_one(link::set(link.index, &change));
        linux::crash_point!("tuning-restored");
    }
    Ok(())
}

/// CHECK: only what was configured.
fn unchanged(inside: &Inside, name: &str, conf: &Conf) -> Result<(), CniError> {
    for setting in &conf.settings {
        setting.check(inside)?;
    }
    if !conf.changes_link() {
        return Ok(());
    }
    let (_, link) = find(inside, name)?;
    let differs = |what: &str, found: String, wanted: String| Err(verify::changed(name, format!("its {what} is {found}, not {wanted}")));
    match conf {
        Conf { mac: Some(mac), .. } if link.mac.as_ref() != Some(mac) => {
            differs("hardware address", link.mac.map(|m| m.to_string()).unwrap_or_default(), mac.to_string())
        }
        Conf { promisc: true, .. } if !link.flags.promisc() => differs("promiscuous mode", "off".into(), "on".into()),
        Conf { mtu: Some(mtu), .. } if link.mtu != *mtu => differs("MTU", link.mtu.to_string(), mtu.to_string()),
        Conf { allmulti: Some(on), .. } if link.flags.allmulti() != *on => {
            differs("all-multicast mode", link.flags.allmulti().to_string(), on.to_string())
        }
        Conf { txqlen: Some(len), .. } if link.txqlen != *len => differs("queue length", link.txqlen.to_string(), len.to_string()),
        _ => Ok(()),
    }
}
