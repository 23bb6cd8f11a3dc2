//! What pods' networks have made of bridges goes with the last pod, where pods selected the networks: who may write definitions would leave
//! the node any number of bridges and addresses for good.
//!
//! ```text
//!   links of the pod are gone --> nobody uses the bridge any more --> addresses that the plugin has marked go
//!                                                                 --> the bridge itself, and its links into VLANs, if they are marked
//!   the agent, now and then  --> each marked bridge, the same way
//! ```
//!
//! Used is a bridge that has a pod's pair or tap as a port, that a plugin in the networks of a sandbox names which nobody has deleted, or on
//! which a macvlan or an ipvlan stands, in whatever namespace. What is another's stays: a port, an address that is not marked, a link that
//! stands on the bridge, and with it the bridge.
//!
//! **The lock.** An ADD has the namespace's lock from its look for the bridge until its pair is a port, or its link stands on the bridge
//! (`linux::NetnsLock`). Nobody removes a bridge or an address meanwhile: they are left to the agent's next look, as after a kill. It looks for
//! the addresses after that: either its pair is seen here, or it finds that they are missing.
//!
//! **Addresses.** A kernel before Linux 5.18 forgets the mark, and the address stays. One of IPv4 stays also while another's is in its subnet,
//! where it was first: the kernel would take both.
//!
//! **Records** are read before the lock is taken, and under it only those that are new or changed since: nobody waits for the others.
//!
//! A bridge of a network that pods have without asking stays, as with the reference plugin: it is not marked.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use cni::{CniError, Code, ContainerId};
use ipnet::IpNet;
use linux::link::TRANSIENT;
use linux::{AddrFlags, Address, Batch, Errno, Link, Netlink, NetnsLock, addr};
use plugin::{Host, Stage, Teardown};

use crate::policy::links_of;
use crate::record::Step;
use crate::records::FileVersion;
use crate::{Attacher, Record, RecordError, Records};

/// A bridge, and the links by which the host is in its VLANs.
struct Bridge<'l> {
    link: &'l Link,
    ports: Vec<&'l Link>,
    /// With its number, and the other end, which is a port.
    vlans: Vec<(u16, &'l Link, &'l Link)>,
}

/// The links that sandboxes which go may have made, or that may have lost their last pod with them: records are read once for all of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Left {
    names: BTreeSet<String>,
    sandboxes: BTreeSet<ContainerId>,
}

impl Left {
    /// What an attachment has named, if it is one of the pod's own choice.
    pub(crate) fn add(&mut self, step: &Step, sandbox: &ContainerId) {
        let names: Vec<String> = step.list.plugins.iter().filter(|_| step.is_chosen()).flat_map(links_of).collect();
        if !names.is_empty() {
            self.names.extend(names);
            self.sandboxes.insert(sandbox.clone());
        }
    }

    /// Notes that what nobody else uses of them is to go. By what is still there then, whichever attachment could not be unmade.
    pub(crate) fn note(&self, records: &Records, teardown: &mut Teardown) {
        if self.names.is_empty() {
            return;
        }
        let what = format!("remove what nobody uses any more of {}", shown(&self.names));
        let (records, left) = (records.clone(), self.clone());
        teardown.at(Stage::Leases, what, move |host| left.forget(host, &records));
    }

    /// Whether a sandbox has named any.
    pub(crate) fn has(&self, sandbox: &ContainerId) -> bool {
        self.sandboxes.contains(sandbox)
    }

    fn forget(&self, host: &mut Host, records: &Records) -> Result<(), CniError> {
        let is_meant = |bridge: &Bridge<'_>, _: &[Address]| bridge.own().any(|link| self.names.iter().any(|name| has_name(link, name)));
        // Most name a parent of the node's, and to look at all links takes longer on a node that has many.
        for name in &self.names {
            if host.netlink()?.link(name).map_err(internal)?.is_some_and(|link| link.is("bridge") || link.is("veth")) {
                return forget(host, is_meant, records, &self.sandboxes, Duration::ZERO);
            }
        }
        Ok(())
    }
}

/// Links in a message: a pod may have named many, and in long words.
fn shown(names: &BTreeSet<String>) -> String {
    const MOST: usize = 5;
    let mut shown: Vec<String> = names.iter().take(MOST).map(|name| name.chars().take(15).collect()).collect();
    if names.len() > MOST {
        shown.push(format!("{} more", names.len() - MOST));
    }
    shown.join(", ")
}

impl Attacher {
    /// Removes the bridges, the links into their VLANs, and the gateways' addresses there, that were made for definitions and that nobody uses:
    /// what a DEL has left that was killed, or that met an ADD.
    ///
    /// # Errors
    /// What the kernel says, or a record that cannot be read.
    pub fn forget_idle_bridges(&self, host: &mut Host) -> Result<(), CniError> {
        let is_meant = |bridge: &Bridge<'_>, marked: &[Address]| {
            bridge.own().any(|link| link.group == TRANSIENT || marked.iter().any(|one| one.index == link.index))
        };
        forget(host, is_meant, &self.records, &BTreeSet::new(), PATIENCE)?;
        // No ADD waits for a look that finds nothing.
        if !has_reverse_paths(host)? {
            return Ok(());
        }
        match NetnsLock::alone(host.inside(), Instant::now() + PATIENCE) {
            Some(_alone) => forget_reverse_paths(host),
            None => Ok(()),
        }
    }
}

fn has_name(link: &Link, name: &str) -> bool {
    link.name == name || link.altnames.iter().any(|own| own == name)
}

/// Removes what nobody uses of bridges. `going`: sandboxes of which what the pod chose does not count; `patience`: how long a moment is waited
/// for in which no ADD is looking for a bridge.
fn forget(
    host: &mut Host,
    is_meant: impl Fn(&Bridge<'_>, &[Address]) -> bool,
    records: &Records,
    going: &BTreeSet<ContainerId>,
    patience: Duration,
) -> Result<(), CniError> {
    let links = host.netlink()?.links().map_err(internal)?;
    let marked = marked(&host.netlink()?.addresses(None).map_err(internal)?);
    let mut idle = Vec::new();
    for bridge in bridges(&links).filter(|bridge| is_meant(bridge, &marked)) {
        idle.extend(bridge.idle(host.netlink()?)?);
    }
    idle.retain(|one| one.group == TRANSIENT || marked.iter().any(|address| address.index == one.index));
    if idle.is_empty() {
        return Ok(());
    }
    let mut used = Used { records, going, links: idle.clone(), read: HashMap::new() };
    if !used.look()? {
        return Ok(());
    }
    idle.retain(|one| !used.has(one.index));
    for some in idle.chunks(AT_ONCE) {
        let Some(_alone) = NetnsLock::alone(host.inside(), Instant::now() + patience) else { return Ok(()) };
        linux::crash_point!("idle-bridge-locked");
        // Whose record is written after this look has yet to look for the link.
        if !used.look()? {
            return Ok(());
        }
        remove(host.netlink()?, some, &used)?;
        linux::crash_point!("idle-bridge-reverse-path-left");
        forget_reverse_paths(host)?;
    }
    Ok(())
}

fn has_reverse_paths(host: &mut Host) -> Result<bool, CniError> {
    Ok(host.has_nft()? && rules::has_reverse_paths(host.nft()?).map_err(internal)?)
}

/// Takes away the check of what comes by bridges that are gone. No ADD makes one meanwhile.
fn forget_reverse_paths(host: &mut Host) -> Result<(), CniError> {
    if !has_reverse_paths(host)? {
        return Ok(());
    }
    let links = host.netlink()?.links().map_err(internal)?;
    rules::forget_reverse_paths(host.nft()?, |name| links.iter().any(|link| link.name == name)).map(drop).map_err(internal)
}

/// How long the agent's own look waits, for which nobody waits: on a busy node some ADD is looking most of the time.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many links go while ADDs wait. They lose their mark in the message that deletes them: it must be one.
const AT_ONCE: usize = 100;

/// Removes those of these links that are idle still, and have nothing that is another's; of the others, the marked addresses.
fn remove(netlink: &mut Netlink, candidates: &[&Link], used: &Used<'_>) -> Result<(), CniError> {
    let links = netlink.links().map_err(internal)?;
    let mut addresses = netlink.addresses(None).map_err(internal)?;
    let is_candidate = |one: &Link| candidates.iter().any(|candidate| candidate.index == one.index) && !used.has(one.index);
    let mut idle = Vec::new();
    for bridge in bridges(&links).filter(|bridge| bridge.own().any(is_candidate)) {
        let own: Vec<&Link> = bridge.idle(netlink)?.into_iter().filter(|one| is_candidate(one)).collect();
        idle.push((bridge, own));
    }
    let gone: Vec<Address> =
        marked(&addresses).into_iter().filter(|a| idle.iter().flat_map(|(_, own)| own).any(|one| one.index == a.index)).collect();
    clear(netlink, &gone)?;
    addresses.retain(|one| !gone.contains(one));
    let is_plain = |one: &Link| {
        let has_address = addresses.iter().any(|a| a.index == one.index && !is_link_local(a));
        let is_below = links.iter().any(|other| other.link_netnsid.is_none() && other.parent == Some(one.index) && !other.is("veth"));
        !has_address && !is_below && one.master.is_none() && one.alias.is_none()
    };
    let (mut ways_in, mut themselves) = (Vec::new(), Vec::new());
    for (bridge, own) in idle {
        let own = own.into_iter().filter(|one| one.group == TRANSIENT && is_plain(one));
        let (itself, ways): (Vec<&Link>, Vec<&Link>) = own.partition(|one| one.index == bridge.link.index);
        let is_of_way_in = |port: &&Link| ways.iter().any(|one| one.other_end() == port.index);
        if bridge.ports.iter().all(is_of_way_in) {
            themselves.extend(itself.iter().map(|one| one.index));
        }
        ways_in.extend(ways.iter().map(|one| one.index));
    }
    // Each kind at the price of one: ADDs wait.
    netlink.delete_together(&ways_in).map_err(internal)?;
    if !ways_in.is_empty() {
        linux::crash_point!("bridge-vlan-idle-gone");
    }
    netlink.delete_together(&themselves).map_err(internal)
}

/// The addresses that the plugin has marked, and that can go alone: with the first IPv4 address of a subnet the kernel takes the others.
fn marked(all: &[Address]) -> Vec<Address> {
    let (marked, others): (Vec<&Address>, Vec<&Address>) = all.iter().partition(|one| one.protocol == addr::TRANSIENT);
    let takes_others = |one: &Address| {
        let is_first = one.net.addr().is_ipv4() && !one.flags.contains(AddrFlags::SECONDARY);
        is_first && others.iter().any(|other| one.index == other.index && subnet(one) == subnet(other))
    };
    marked.into_iter().filter(|one| !takes_others(one)).cloned().collect()
}

/// The subnet by which the kernel says which address was there first: that of the other end, where there is one.
fn subnet(address: &Address) -> Option<IpNet> {
    let end = address.peer.unwrap_or(address.net.addr());
    IpNet::new(end, address.net.prefix_len()).ok().map(|net| net.trunc())
}

/// Takes addresses from links.
fn clear(netlink: &mut Netlink, gone: &[Address]) -> Result<(), CniError> {
    if gone.is_empty() {
        return Ok(());
    }
    let taken = gone.iter().map(|one| addr::delete(one.index, one.net).tolerate(Errno::EADDRNOTAVAIL).tolerate(Errno::ENODEV));
    netlink.send(taken.collect::<Batch<'_>>()).map_err(internal)?;
    linux::crash_point!("idle-bridge-cleared");
    Ok(())
}

fn is_link_local(address: &Address) -> bool {
    matches!(address.net.addr(), std::net::IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Which of some links the networks of sandboxes name that nobody has deleted.
struct Used<'a> {
    records: &'a Records,
    /// Sandboxes of which what the pod chose does not count.
    going: &'a BTreeSet<ContainerId>,
    links: Vec<&'a Link>,
    /// The links, by index, that each record names, as long as the record is the one that was read.
    read: HashMap<ContainerId, (FileVersion, BTreeSet<u32>)>,
}

// === impl Used ===

impl Used<'_> {
    /// Reads what records have become since the last look. Whether all could be read: one that cannot be may name any link.
    fn look(&mut self) -> Result<bool, CniError> {
        let mut read = HashMap::new();
        for (sandbox, version) in self.records.living(self.going)? {
            let links = match self.read.remove(&sandbox) {
                Some((of, links)) if of == version => links,
                _ => match self.named_by(&sandbox) {
                    Some(links) => links,
                    None => return Ok(false),
                },
            };
            read.insert(sandbox, (version, links));
        }
        self.read = read;
        Ok(true)
    }

    /// The links that a record names; `None` if it cannot be read.
    fn named_by(&self, sandbox: &ContainerId) -> Option<BTreeSet<u32>> {
        let record = match self.records.read(sandbox) {
            Ok(record) => record,
            // Links went with the power.
            Err(RecordError::Lost { .. }) => None,
            Err(_) => return None,
        };
        let is_going = self.going.contains(sandbox);
        let counts = |step: &&Step| !is_going || !step.is_chosen();
        let steps = record.iter().flat_map(|record: &Record| &record.steps).filter(counts);
        let names = steps.flat_map(|step| &step.list.plugins).flat_map(links_of);
        let named = |name: String| self.links.iter().filter(move |link| has_name(link, &name)).map(|link| link.index);
        Some(names.flat_map(named).collect())
    }

    fn has(&self, index: u32) -> bool {
        self.read.values().any(|(_, links)| links.contains(&index))
    }
}

/// The bridges among a namespace's links.
fn bridges(links: &[Link]) -> impl Iterator<Item = Bridge<'_>> {
    links.iter().filter(|link| link.is("bridge")).map(|link| Bridge::of(link, links))
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

    /// The bridge itself, and the host's links into its VLANs.
    fn own(&self) -> impl Iterator<Item = &'l Link> {
        std::iter::once(self.link).chain(self.vlans.iter().map(|(_, way_in, _)| *way_in))
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
