//! A bridge that a pod's network made stays, and with it what others have there. Its address as a gateway goes with its last pod, where a pod
//! selected the network: who may write definitions would leave the node any addresses for good, and nobody else could have them.
//!
//! ```text
//!   links of the pod are gone --> no pair or tap is a port of the bridge any more --> addresses that the plugin has marked go
//!                                                                                 --> a pod has come meanwhile: they are put back
//! ```
//!
//! An ADD makes its pair before it looks for the addresses: either it finds that one is missing, or its pair is seen here. A bridge of a network
//! that pods have without asking keeps its address, as with the reference plugin; so does one whose address another program gave it, or a
//! kernel before Linux 5.18 that forgets the mark.

use std::collections::BTreeSet;

use cni::{CniError, Code};
use json::{Object, Value};
use linux::{Address, Batch, Errno, Link, Netlink, addr};
use plugin::{Stage, Teardown};

use crate::record::Step;

/// Notes that the addresses are to go of the bridges to which an attachment of the pod's own choice leads, if nobody is left there.
pub(crate) fn collect(step: &Step, teardown: &mut Teardown) {
    // No other network's name has a slash.
    if step.default || !step.name.contains('/') {
        return;
    }
    for bridge in step.list.plugins.iter().filter_map(|plugin| gateway(plugin.kind.as_str(), plugin.raw())).collect::<BTreeSet<_>>() {
        let what = format!("remove the gateway's address of {bridge}, which has no pod any more");
        teardown.at(Stage::Leases, what, move |host| clear(host.netlink()?, &bridge));
    }
}

/// The bridge that gets the gateway's address, as plugins read their configuration.
fn gateway(kind: &str, raw: &Object) -> Option<String> {
    let (raw, of_flannel) = match kind {
        "bridge" => (raw, false),
        "flannel" => (raw.object("delegate")?, true),
        _ => return None,
    };
    let is = |key: &str| raw.get(key).and_then(Value::as_bool);
    let is_gateway = is("isGateway").unwrap_or(of_flannel) || is("isDefaultGateway").unwrap_or(false);
    let name = raw.str("bridge").filter(|name| !name.is_empty()).unwrap_or("cni0");
    is_gateway.then(|| name.to_owned())
}

fn clear(netlink: &mut Netlink, bridge: &str) -> Result<(), CniError> {
    let marked = |netlink: &mut Netlink, on: &[u32]| -> Result<Vec<Address>, CniError> {
        let all = netlink.addresses(None).map_err(internal)?;
        Ok(all.into_iter().filter(|one| one.protocol == addr::TRANSIENT && on.contains(&one.index)).collect())
    };
    let Some(gateways) = of_idle(&netlink.links().map_err(internal)?, bridge) else { return Ok(()) };
    let gone = marked(netlink, &gateways)?;
    if gone.is_empty() {
        return Ok(());
    }
    let taken = gone.iter().map(|one| addr::delete(one.index, one.net).tolerate(Errno::EADDRNOTAVAIL).tolerate(Errno::ENODEV));
    netlink.send(taken.collect::<Batch<'_>>()).map_err(internal)?;
    if of_idle(&netlink.links().map_err(internal)?, bridge).is_none() {
        let put = |one: &Address| {
            let again = addr::add_of(one.protocol, one.index, one.net, one.flags);
            again.tolerate(Errno::EEXIST).tolerate(Errno::ENODEV)
        };
        netlink.send(gone.iter().map(put).collect::<Batch<'_>>()).map_err(internal)?;
    }
    Ok(())
}

/// Where a bridge without pods has addresses as a gateway: on itself, and on its links into VLANs. `None`: it has pods, or is not there.
fn of_idle(links: &[Link], bridge: &str) -> Option<Vec<u32>> {
    let bridge = links.iter().find(|link| link.name == bridge && link.is("bridge"))?;
    let is_port = |link: &Link| link.master == Some(bridge.index);
    let is_way_in = |link: &&Link| {
        let is_named = link.name.strip_prefix(&bridge.name).is_some_and(|rest| rest.starts_with('.'));
        is_named
            && link.is("veth")
            && link.link_netnsid.is_none()
            && links.iter().any(|port| port.index == link.other_end() && is_port(port))
    };
    let ways_in: Vec<&Link> = links.iter().filter(is_way_in).collect();
    let is_pods = |link: &Link| ["veth", "netkit", "tun"].iter().any(|kind| link.is(kind));
    let has_pods = links.iter().any(|link| is_port(link) && is_pods(link) && ways_in.iter().all(|way| way.other_end() != link.index));
    (!has_pods).then(|| ways_in.iter().map(|way| way.index).chain([bridge.index]).collect())
}

fn internal(e: impl std::fmt::Display) -> CniError {
    CniError::new(Code::INTERNAL, e.to_string())
}

#[cfg(test)]
mod tests {
    use linux::{Inside, Netns};

    use super::*;

    fn sh(text: &str) {
        let done = std::process::Command::new("sh").args(["-ec", text]).output().unwrap();
        assert!(done.status.success(), "{text}: {done:?}");
    }

    fn of(plugin: &str) -> Option<String> {
        let value = json::parse(plugin.as_bytes()).unwrap();
        let raw = value.as_object().unwrap();
        gateway(raw.str("type").unwrap(), raw)
    }

    #[test]
    fn bridges_that_get_an_address() {
        assert_eq!(of(r#"{"type":"bridge","bridge":"x","isGateway":true}"#).as_deref(), Some("x"));
        assert_eq!(of(r#"{"type":"bridge","IsDefaultGateway":true}"#).as_deref(), Some("cni0"));
        assert_eq!(of(r#"{"type":"flannel","delegate":{"bridge":"y"}}"#).as_deref(), Some("y"));
        for none in [r#"{"type":"bridge","bridge":"x"}"#, r#"{"type":"flannel","delegate":{"isGateway":false}}"#, r#"{"type":"ptp"}"#] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    /// What an administrator gave the bridge stays, and everything while there is a pod.
    #[test]
    fn the_address_goes_with_the_last_pod() {
        let here = |inside: &Inside| {
            let mut netlink = Netlink::open(inside).unwrap();
            sh("ip link add x type bridge; ip addr add 192.0.2.1/24 dev x; ip link add pod type veth peer name eth0; ip link set pod master x
                ip link add gw type veth peer name x.5; ip link set gw master x; ip tuntap add nic mode tap; ip link add other0 type bridge");
            let index = |netlink: &mut Netlink, name: &str| netlink.link(name).unwrap().unwrap().index;
            for (link, net) in [("x", "10.9.0.1/24"), ("x", "fd00:9::1/64"), ("x.5", "10.9.5.1/24"), ("other0", "10.8.0.1/24")] {
                let index = index(&mut netlink, link);
                netlink.send_one(addr::add_of(addr::TRANSIENT, index, net.parse().unwrap(), linux::AddrFlags::NODAD)).unwrap();
            }
            let left = |netlink: &mut Netlink| -> Vec<String> {
                clear(netlink, "x").unwrap();
                let of_link = |one: &&Address| !one.net.to_string().starts_with("fe80");
                netlink.addresses(None).unwrap().iter().filter(of_link).map(|one| one.net.to_string()).collect()
            };
            assert_eq!(left(&mut netlink), ["192.0.2.1/24", "10.9.0.1/24", "10.9.5.1/24", "10.8.0.1/24", "fd00:9::1/64"], "there is a pod");
            sh("ip link del pod");
            assert_eq!(left(&mut netlink), ["192.0.2.1/24", "10.8.0.1/24"]);
            clear(&mut netlink, "none").unwrap();
        };
        Netns::unnamed().unwrap().enter(here).unwrap();
    }
}
