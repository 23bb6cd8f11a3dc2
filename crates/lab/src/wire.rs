//! The lab's wires: what is a physical network outside is a bridge in a namespace here.
//!
//! ```text
//!   plans --names--> the parents' names         namespace of the wires           namespace of node 2
//!     `--refuse--> fewer plans                    bridge w1 - port w1-2  <-veth->  eth0
//! ```
//!
//! Only the node's end has the parent's name, which a definition chose; the wires' own links are numbered.

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use attach::{Plan, Refusal};
use cni::{CniError, Code, IfName, NetworkList, PluginEntry};
use linux::link::{self, Change, Kind, Peer};
use linux::{Batch, LinkSpec, Netlink, Netns};

use crate::node::{self, Failure};

/// The parent that every node has, and on which the nodes reach each other.
pub(crate) const FIRST_PARENT: &str = "eth0";

/// What the plugin makes where its network names no bridge.
const UNNAMED_BRIDGE: &str = "cni0";

/// Every parent that a planned network names becomes a wire, so that a network card of the real nodes exists here too,
/// unless another network makes it as its bridge.
pub(crate) fn names(plans: &[Result<Plan, Vec<Refusal>>]) -> Vec<String> {
    let (mut wires, mut made) = (BTreeSet::from([FIRST_PARENT.to_owned()]), BTreeSet::from(["lo".to_owned()]));
    for planned in plans.iter().flatten().flat_map(|plan| &plan.attachments) {
        wires.extend(parents(&planned.list).into_iter().filter(|p| IfName::parse(p).is_ok()));
        made.extend(bridges(&planned.list).into_iter().map(|(name, _)| name));
    }
    // Whoever makes a bridge of its name is refused; the nodes need it.
    made.remove(FIRST_PARENT);
    wires.difference(&made).cloned().collect()
}

/// The names of the parents that a network's plugins want on a node.
pub(crate) fn parents(list: &NetworkList) -> Vec<String> {
    let inside = |raw: &json::Object| raw.get("linkInContainer").and_then(json::Value::as_bool) == Some(true);
    let raw = list.plugins.iter().map(|plugin| plugin.raw());
    raw.filter(|raw| !inside(raw)).filter_map(|raw| raw.str("master")).map(str::to_owned).collect()
}

/// The bridges that a network's plugins make on a node: their names, and their MTUs in bytes where they are given.
pub(crate) fn bridges(list: &NetworkList) -> Vec<(String, Option<u32>)> {
    let unnamed = |kind: &str| (kind == "bridge").then_some(UNNAMED_BRIDGE);
    let name = |p: &PluginEntry| p.raw().str("bridge").filter(|b| !b.is_empty()).or_else(|| unnamed(p.kind.as_str())).map(str::to_owned);
    let mtu = |p: &PluginEntry| match p.raw().get("mtu") {
        Some(json::Value::Number(mtu)) => mtu.as_u64().and_then(|mtu| u32::try_from(mtu).ok()).filter(|mtu| *mtu != 0),
        _ => None,
    };
    list.plugins.iter().filter_map(|p| Some((name(p)?, mtu(p)))).collect()
}

/// A bridge cannot have the name of the interface by which its node reaches the others.
pub(crate) fn clash(list: &NetworkList) -> Option<CniError> {
    let why = "it is the node's own interface, which connects the lab's nodes; choose another bridge name";
    bridges(list).iter().any(|(name, _)| name == FIRST_PARENT).then(|| CniError::invalid("bridge", format!("{FIRST_PARENT:?}: {why}")))
}

/// Refuses the plans with a network that cannot be: one is no reason to build nothing.
pub(crate) fn refuse(plans: &mut [Result<Plan, Vec<Refusal>>], why: impl Fn(&NetworkList) -> Option<CniError>) {
    for plan in plans {
        let Ok(Plan { attachments, .. }) = plan else { continue };
        let refusal = |p: &attach::Planned| why(&p.list).map(|error| Refusal { what: format!("network {}", p.name()), error });
        let refusals: Vec<Refusal> = attachments.iter().filter_map(refusal).collect();
        if !refusals.is_empty() {
            *plan = Err(refusals);
        }
    }
}

/// What a wire is called in its namespace, by its place among those of parents, from 0.
pub(crate) fn bridge(place: usize) -> String {
    format!("w{}", place + 1)
}

/// Lets the namespace of the wires use addresses at once, and forward between zones.
pub(crate) fn prepare(wires: &Netns) -> Result<(), CniError> {
    let failed = |e: &dyn std::fmt::Display| CniError::new(Code::INTERNAL, format!("prepare the namespace of the wires: {e}"));
    wires.enter(node::settings).map_err(|e| failed(&e))?.map_err(|e| failed(&e))
}

/// Makes wires of these names in their namespace.
pub(crate) fn make(wires: &Netns, names: &[String]) -> Result<(), CniError> {
    inside(wires, "build the lab's wires", |netlink| {
        for name in names {
            let spec = LinkSpec::new(IfName::parse(name)?, Kind::Bridge(link::Bridge::default()));
            netlink.send_one(link::create(&LinkSpec { up: true, ..spec }))?;
        }
        Ok(())
    })
}

/// Removes wires by their names, and the interfaces of nodes that are plugged into them.
pub(crate) fn remove(wires: &Netns, names: &[String]) -> Result<(), CniError> {
    inside(wires, "remove wires", |netlink| {
        let is_of = |link: &str| {
            names.iter().any(|name| link.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')))
        };
        for link in netlink.links()?.into_iter().filter(|link| is_of(&link.name)) {
            netlink.send_one(link::delete(link.index))?;
        }
        Ok(())
    })
}

/// Joins a node, numbered from 1, to a wire: its end of the pair has the parent's name, the wire's end is a port.
pub(crate) fn join(wires: &Netns, wire: &str, node: &Netns, number: usize, parent: &IfName) -> Result<(), CniError> {
    inside(wires, &format!("create an interface {parent} on node {number}"), |netlink| {
        let bridge = netlink.link(wire)?.ok_or("its wire is gone")?;
        let index = netlink.links()?.iter().map(|l| l.index).max().unwrap_or(0) + 1;
        let port = IfName::parse(&format!("{wire}-{number}"))?;
        let peer = Peer { netns: Some(node.as_fd()), ..Peer::new(parent.clone()) };
        let spec = LinkSpec { master: Some(bridge.index), index: Some(index), ..LinkSpec::new(port, Kind::Veth(peer)) };
        let mut batch = Batch::new();
        batch.push(link::create(&spec));
        batch.push(link::set(index, &Change { up: Some(true), alias: Some(format!("node {number}, {parent}")), ..Change::default() }));
        netlink.send(batch)?;
        Ok(())
    })
}

fn inside(netns: &Netns, what: &str, work: impl FnOnce(&mut Netlink) -> Result<(), Failure> + Send) -> Result<(), CniError> {
    let failed = |e: &dyn std::fmt::Display| CniError::new(Code::INTERNAL, format!("{what}: {e}"));
    netns.enter(|inside| work(&mut Netlink::open(inside)?)).map_err(|e| failed(&e))?.map_err(|e| failed(&e))
}
