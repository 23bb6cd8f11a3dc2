//! What pods' networks have made of bridges goes with the last pod, where pods selected the networks: who may write definitions would leave
//! the node any number of bridges and addresses for good.
//!
//! ```text
//!   links of the pod are gone --> nobody uses the bridge any more --> addresses that the plugin has marked go
//!                                                                 --> the bridge itself, and its links into VLANs, if they are marked
//!   the agent, now and then  --> each marked bridge, the same way
//! ```
//!
//! Used is a bridge that has a pod's pair or tap as a port, that a sandbox which nobody has deleted names, or on which a macvlan or an ipvlan
//! stands, in whatever namespace. What is another's stays: a port, an address that is not marked, a link that stands on the bridge, and with
//! it the bridge.
//!
//! **Addresses.** An ADD makes its pair before it looks for the addresses: either it finds that one is missing, or its pair is seen here, and
//! they are put back. A kernel before Linux 5.18 forgets the mark, and the address stays.
//!
//! **Bridges.** An ADD has the namespace's lock from its look for the bridge until its pair is a port (`linux::NetnsLock`). Nobody removes a
//! bridge meanwhile: it is left to the agent's next look, as after a kill.
//!
//! A bridge of a network that pods have without asking stays, as with the reference plugin: it is not marked.

use std::collections::BTreeSet;

use cni::{CniError, Code, ContainerId, PluginEntry};
use json::{Object, Value};
use linux::link::{self, TRANSIENT};
use linux::{Address, Batch, Errno, Link, Netlink, NetnsLock, addr};
use plugin::{Host, Stage, Teardown};

use crate::record::Step;
use crate::{Attacher, Record, RecordError, Records};

/// A bridge, and the links by which the host is in its VLANs.
struct Bridge<'l> {
    link: &'l Link,
    ports: Vec<&'l Link>,
    /// With its number, and the other end, which is a port.
    vlans: Vec<(u16, &'l Link, &'l Link)>,
}

/// Notes that what an attachment of the pod's own choice may have made of bridges is to go, if nobody is left there.
pub(crate) fn collect(step: &Step, sandbox: &ContainerId, records: &Records, teardown: &mut Teardown) {
    if !is_chosen(step) {
        return;
    }
    let used = |plugin: &PluginEntry| {
        let stands_on = || plugin.raw().str("master").filter(|master| !master.is_empty()).map(str::to_owned);
        bridge_of(plugin.kind.as_str(), plugin.raw()).or_else(stands_on)
    };
    for bridge in step.list.plugins.iter().filter_map(used).collect::<BTreeSet<_>>() {
        let what = format!("remove what nobody uses any more of bridge {bridge}");
        let (records, sandbox) = (records.clone(), sandbox.clone());
        teardown.at(Stage::Leases, what, move |host| forget(host, &bridge, &records, Some(&sandbox)));
    }
}

impl Attacher {
    /// Removes the bridges, and the links into their VLANs, that were made for definitions and that nobody uses: what a DEL has left that was
    /// killed, or that met an ADD.
    ///
    /// # Errors
    /// What the kernel says, or a record that cannot be read.
    pub fn forget_idle_bridges(&self, host: &mut Host) -> Result<(), CniError> {
        let links = host.netlink()?.links().map_err(internal)?;
        let is_marked = |link: &Link| link.group == TRANSIENT;
        let made = |bridge: &Bridge<'_>| is_marked(bridge.link) || bridge.vlans.iter().any(|(_, way_in, _)| is_marked(way_in));
        let bridges = links.iter().filter(|link| link.is("bridge")).map(|link| Bridge::of(link, &links));
        for bridge in bridges.filter(made) {
            forget(host, &bridge.link.name, &self.records, None)?;
        }
        Ok(())
    }
}

/// Whether the pod, or its author, chose the network. No other network's name has a slash.
pub(crate) fn is_chosen(step: &Step) -> bool {
    step.name.contains('/')
}

/// The bridge that a plugin makes, as it reads its configuration.
fn bridge_of(kind: &str, raw: &Object) -> Option<String> {
    let raw = match kind {
        "bridge" => raw,
        "flannel" => {
            let delegate = raw.object("delegate")?;
            delegate.str("type").is_none_or(|kind| ["", "bridge"].contains(&kind)).then_some(delegate)?
        }
        _ => return None,
    };
    Some(raw.str("bridge").filter(|name| !name.is_empty()).unwrap_or("cni0").to_owned())
}

/// Removes what nobody uses of a bridge. `going`: a sandbox of which what the pod chose does not count.
fn forget(host: &mut Host, bridge: &str, records: &Records, going: Option<&ContainerId>) -> Result<(), CniError> {
    if host.netlink()?.link(bridge).map_err(internal)?.is_none_or(|link| !link.is("bridge")) {
        return Ok(());
    }
    let links = host.netlink()?.links().map_err(internal)?;
    let Some(link) = links.iter().find(|link| link.name == bridge && link.is("bridge")) else { return Ok(()) };
    let seen = Bridge::of(link, &links);
    let idle = seen.idle(host.netlink()?)?;
    if idle.is_empty() || idle.iter().all(|one| one.group != TRANSIENT) && marked(host.netlink()?, &idle)?.is_empty() {
        return Ok(());
    }
    let wanted: BTreeSet<&str> = idle.iter().map(|one| one.name.as_str()).collect();
    let Some(named) = named(records, going, &wanted)? else { return Ok(()) };
    let idle: Vec<&Link> = idle.into_iter().filter(|one| !named.contains(&one.name)).collect();
    clear(host.netlink()?, bridge, &idle)?;
    let idle: BTreeSet<u32> = idle.into_iter().filter(|one| one.group == TRANSIENT).map(|one| one.index).collect();
    let Some(_alone) = NetnsLock::alone(host.inside()).filter(|_| !idle.is_empty()) else { return Ok(()) };
    linux::crash_point!("idle-bridge-locked");
    // Whose record was written later has yet to look for the bridge.
    match self::named(records, going, &wanted)? {
        Some(named) => remove(host.netlink()?, bridge, &idle, &named),
        None => Ok(()),
    }
}

/// Removes those of these links of a bridge that are idle still, and have nothing that is another's.
fn remove(netlink: &mut Netlink, bridge: &str, candidates: &BTreeSet<u32>, named: &BTreeSet<String>) -> Result<(), CniError> {
    let links = netlink.links().map_err(internal)?;
    let addresses = netlink.addresses(None).map_err(internal)?;
    let Some(link) = links.iter().find(|link| link.name == bridge && link.is("bridge")) else { return Ok(()) };
    let seen = Bridge::of(link, &links);
    let idle: Vec<&Link> =
        seen.idle(netlink)?.into_iter().filter(|one| !named.contains(&one.name) && candidates.contains(&one.index)).collect();
    let is_plain = |one: &&&Link| {
        let has_address = addresses.iter().any(|a| a.index == one.index && !is_link_local(a));
        let is_below = links.iter().any(|other| other.link_netnsid.is_none() && other.parent == Some(one.index) && !other.is("veth"));
        !has_address && !is_below && one.master.is_none() && one.alias.is_none()
    };
    let (ways_in, itself): (Vec<&Link>, Vec<&Link>) = idle.iter().filter(is_plain).partition(|one| one.index != link.index);
    for one in &ways_in {
        netlink.send_one(link::delete(one.index).tolerate(Errno::ENODEV)).map_err(internal)?;
        linux::crash_point!("bridge-vlan-idle-gone");
    }
    let is_of_way_in = |port: &Link| ways_in.iter().any(|one| one.other_end() == port.index);
    if !itself.is_empty() && seen.ports.iter().all(|port| is_of_way_in(port)) {
        netlink.send_one(link::delete(link.index).tolerate(Errno::ENODEV)).map_err(internal)?;
    }
    Ok(())
}

fn marked(netlink: &mut Netlink, on: &[&Link]) -> Result<Vec<Address>, CniError> {
    let all = netlink.addresses(None).map_err(internal)?;
    Ok(all.into_iter().filter(|one| one.protocol == addr::TRANSIENT && on.iter().any(|link| link.index == one.index)).collect())
}

/// Takes the addresses that the plugin has marked from links of a bridge without pods.
fn clear(netlink: &mut Netlink, bridge: &str, idle: &[&Link]) -> Result<(), CniError> {
    let gone = marked(netlink, idle)?;
    if gone.is_empty() {
        return Ok(());
    }
    let taken = gone.iter().map(|one| addr::delete(one.index, one.net).tolerate(Errno::EADDRNOTAVAIL).tolerate(Errno::ENODEV));
    netlink.send(taken.collect::<Batch<'_>>()).map_err(internal)?;
    linux::crash_point!("idle-bridge-cleared");
    let links = netlink.links().map_err(internal)?;
    let Some(link) = links.iter().find(|link| link.name == bridge && link.is("bridge")) else { return Ok(()) };
    let still = Bridge::of(link, &links).idle(netlink)?;
    let put = |one: &Address| {
        let again = addr::add_of(one.protocol, one.index, one.net, one.flags);
        again.tolerate(Errno::EEXIST).tolerate(Errno::ENODEV)
    };
    let again: Batch<'_> = gone.iter().filter(|one| still.iter().all(|link| link.index != one.index)).map(put).collect();
    if again.is_empty() { Ok(()) } else { netlink.send(again).map(drop).map_err(internal) }
}

fn is_link_local(address: &Address) -> bool {
    matches!(address.net.addr(), std::net::IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// What is looked for in records, however much stands in them.
struct Names<'a> {
    wanted: &'a BTreeSet<&'a str>,
    found: BTreeSet<String>,
}

/// Those of these names that stand in the networks of sandboxes that nobody has deleted, as any text or as the VLAN of a bridge. `None`: a
/// record that cannot be read may have any.
fn named(records: &Records, going: Option<&ContainerId>, wanted: &BTreeSet<&str>) -> Result<Option<BTreeSet<String>>, CniError> {
    let mut names = Names { wanted, found: BTreeSet::new() };
    for sandbox in records.named(&[".json"])? {
        let is_going = going == Some(&sandbox);
        if !is_going && records.buried(&sandbox).is_some() {
            continue;
        }
        let record = match records.read(&sandbox) {
            Ok(record) => record,
            // Links went with the power.
            Err(RecordError::Lost { .. }) => None,
            Err(_) => return Ok(None),
        };
        let counts = |step: &&Step| !is_going || !is_chosen(step);
        for plugin in record.iter().flat_map(|record: &Record| &record.steps).filter(counts).flat_map(|step| &step.list.plugins) {
            let raw = plugin.raw();
            raw.iter().for_each(|(_, value)| names.take_texts(value));
            if let Some(bridge) = bridge_of(plugin.kind.as_str(), raw) {
                let vlan = raw.get("vlan").and_then(|vlan| if let Value::Number(vlan) = vlan { vlan.as_u64() } else { None });
                vlan.iter().for_each(|vlan| names.take(&format!("{bridge}.{vlan}")));
                names.take(&bridge);
            }
        }
    }
    Ok(Some(names.found))
}

// === impl Names ===

impl Names<'_> {
    fn take(&mut self, name: &str) {
        if self.wanted.contains(name) && !self.found.contains(name) {
            self.found.insert(name.to_owned());
        }
    }

    fn take_texts(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.take(text),
            Value::Array(list) => list.iter().for_each(|value| self.take_texts(value)),
            Value::Object(object) => object.iter().for_each(|(_, value)| self.take_texts(value)),
            _ => {}
        }
    }
}

// === impl Bridge ===

impl<'l> Bridge<'l> {
    fn of(link: &'l Link, all: &'l [Link]) -> Self {
        let ports: Vec<&Link> = all.iter().filter(|port| port.master == Some(link.index)).collect();
        let way_in = |one: &'l Link| {
            let vlan = one.name.strip_prefix(&link.name)?.strip_prefix('.')?.parse().ok()?;
            let other = ports.iter().find(|port| port.index == one.other_end())?;
            (one.is("veth") && one.link_netnsid.is_none()).then_some((vlan, one, *other))
        };
        let vlans = all.iter().filter_map(way_in).collect();
        Bridge { link, ports, vlans }
    }

    /// The links into VLANs without pods, and the bridge if it has none at all: those on which nothing stands that the kernel shows.
    fn idle(&self, netlink: &mut Netlink) -> Result<Vec<&'l Link>, CniError> {
        let is_pods = |port: &&&Link| {
            ["veth", "netkit", "tun"].iter().any(|kind| port.is(kind)) && self.vlans.iter().all(|(_, _, other)| other.index != port.index)
        };
        let pods: Vec<&Link> = self.ports.iter().filter(is_pods).copied().collect();
        let mut idle = Vec::new();
        if !self.vlans.is_empty() {
            let mut used = BTreeSet::new();
            for pod in &pods {
                for row in netlink.port_vlans(pod.index).map_err(internal)? {
                    used.extend(row.first..=row.last);
                }
            }
            idle.extend(self.vlans.iter().filter(|(vlan, ..)| !used.contains(vlan)).map(|(_, way_in, _)| *way_in));
        }
        if pods.is_empty() {
            idle.push(self.link);
        }
        // One that somebody has set promiscuous is so once by itself.
        idle.retain(|one| one.promiscuity <= u32::from(one.flags.promisc()));
        Ok(idle)
    }
}

fn internal(e: impl std::fmt::Display) -> CniError {
    CniError::new(Code::INTERNAL, e.to_string())
}

#[cfg(test)]
mod tests;
