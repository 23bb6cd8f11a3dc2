//! `isolated` on the bridge itself: what one port sends to another does not pass the host's IP filters unless `br_netfilter` is
//! there, so the ports are kept apart by the bridge. The flag goes with the port.

use cni::{AddResult, AttachmentId, CniError, IfName};
use linux::Link;
use linux::link::{PortFlags, set_port};
use plugin::{Cx, Host, Stage};
use rules::{INGRESS, Policy};

use super::conf::{Ingress, at_no_bridge};
use crate::{internal, verify};

/// Kinds of links that are bridges.
const BRIDGES: [&str; 2] = ["bridge", "openvswitch"];

/// Refuses a policy for a container at no bridge: with rules for the host's way to the outside, say, all containers with a policy
/// would be cut off from there.
pub(super) fn is_at_bridge(ingress: Option<&Ingress>, cx: &mut Cx<'_>) -> Result<(), CniError> {
    let Some(Ingress { policy, bridge, .. }) = ingress else { return Ok(()) };
    let is = match cx.host.netlink()?.link(bridge.as_str()).map_err(internal)? {
        Some(link) if BRIDGES.iter().any(|kind| link.is(kind)) => return Ok(()),
        Some(link) => format!("is a {} on the host", link.kind.as_deref().unwrap_or("device without a kind")),
        None => "is not on the host".to_owned(),
    };
    Err(at_no_bridge(policy.name(), bridge.as_str(), &is))
}

/// What is there of bridges goes with the last container that has a policy.
pub(super) fn forget_idle_bridges(cx: &mut Cx<'_>) {
    let forget = |host: &mut Host| rules::forget_idle_bridges(host.nft()?).map_err(internal);
    cx.teardown.at(Stage::Devices, "remove rules of bridges without an ingress policy", forget);
}

/// Keeps the container's port apart from all others that are kept apart.
pub(super) fn isolate(ingress: Option<&Ingress>, prev: &AddResult, cx: &mut Cx<'_>) -> Result<(), CniError> {
    let Some(Ingress { policy: Policy::Isolated, bridge, .. }) = ingress else { return Ok(()) };
    let flags = PortFlags { isolated: Some(true), ..PortFlags::default() };
    let ports = ports(bridge, prev, cx.host)?;
    cx.host.netlink()?.send(ports.iter().map(|port| set_port(port.index, &flags)).collect()).map_err(internal)?;
    linux::crash_point!("firewall-isolated");
    Ok(())
}

/// CHECK: the flag is there.
pub(super) fn is_isolated(ingress: Option<&Ingress>, prev: &AddResult, cx: &mut Cx<'_>) -> Result<(), CniError> {
    let Some(Ingress { policy: Policy::Isolated, bridge, .. }) = ingress else { return Ok(()) };
    let ports = ports(bridge, prev, cx.host)?;
    match ports.iter().find(|port| port.port.unwrap_or_default().isolated != Some(true)) {
        Some(port) => Err(verify::changed(&port.name, "its port of the bridge is not isolated any more, as ingressPolicy asks for")),
        None => Ok(()),
    }
}

/// Whether an attachment's policy isolates its port, which the plugin that has made the port does not know.
pub(crate) fn isolates(id: &AttachmentId, host: &mut Host) -> bool {
    let owned = host.nft().map_err(|_| ()).and_then(|nft| rules::owned_by(nft, &INGRESS, id).map_err(|_| ()));
    owned.is_ok_and(|elements| elements.iter().any(|e| rules::policy_of(e) == Some(Policy::Isolated)))
}

/// The host's ends of the result that are ports of the bridge.
fn ports(bridge: &IfName, prev: &AddResult, host: &mut Host) -> Result<Vec<Link>, CniError> {
    let netlink = host.netlink()?;
    let by_name = |netlink: &mut linux::Netlink, name: &str| netlink.link(name).map_err(internal);
    let Some(master) = by_name(netlink, bridge.as_str())? else {
        return Err(internal(format!("bridge {bridge}, the first interface of the previous result, does not exist")));
    };
    let mut ports = Vec::new();
    for told in prev.interfaces.iter().skip(1).filter(|i| i.sandbox.is_empty()) {
        ports.extend(by_name(netlink, &told.name)?.filter(|link| link.master == Some(master.index)));
    }
    if ports.is_empty() {
        let why =
            format!("no interface of the previous result is a port of {bridge}: ingressPolicy \"isolated\" is for containers at a bridge");
        return Err(internal(why));
    }
    Ok(ports)
}
