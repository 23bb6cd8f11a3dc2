//! Links of one end, which live in the container alone: what is the same for each kind.
//!
//! ```text
//!   IPAM -> the plugin makes its link -> an IPAM that needs the link -> settings, addresses, up, routes -> the result
//! ```

use cni::{AddResult, CniError, Dns, IfName};
use linux::link::Ipv6Conf;
use linux::{Inside, Link, Netlink};
use plugin::{Call, Cx, LinkIdentity, LinkToDelete};

use crate::address::{self, Addresses, Dad};
use crate::conflict::Wire;
use crate::{identity, internal, open, verify};

/// ADD from where the link is there: it is noted for the teardown, gets its addresses and comes up. `index`: its own, where that is known.
pub(crate) fn configure(
    kind: &'static str,
    dns: Dns,
    addresses: Addresses,
    wire: &Wire<'_>,
    index: Option<u32>,
    call: &Call<'_>,
    cx: &mut Cx<'_>,
) -> Result<AddResult, CniError> {
    linux::crash_point!("single-made");
    cx.teardown.link(link_to_delete(kind, call, LinkIdentity::Group(identity::group(call.id))));
    let mut result = addresses.with_link(call, cx, wire)?;
    let netns = call.netns()?;
    let link = netns.enter_with(|inside, netlink| bring_up(inside, netlink, index, call, &mut result)).map_err(internal)??;
    cx.host.made_link(netns.id(), link.index);
    linux::crash_point!("single-configured");
    result.interfaces = vec![address::interface(&link, netns)];
    result.ips.iter_mut().for_each(|ip| ip.interface = Some(0));
    address::name_resolution(call.config, dns, &mut result);
    Ok(result)
}

fn bring_up(inside: &Inside, netlink: &mut Netlink, index: Option<u32>, call: &Call<'_>, result: &mut AddResult) -> Result<Link, CniError> {
    let name = call.id.ifname.as_str();
    if let Some(index) = index.filter(|_| address::is_ipv4_alone(inside, call, result)) {
        return address::configure_new(netlink, index, name, result);
    }
    let link = netlink.link(name).map_err(internal)?.ok_or_else(|| internal(format!("{name} disappeared while it was configured")))?;
    address::ipv6(inside, &link, call, result, &[(Ipv6Conf::NdiscNotify, 1)])?;
    address::configure(netlink, &link, result, Dad::Off)?;
    Ok(link)
}

/// CHECK of what all kinds have in common; returns the link.
pub(crate) fn check(kind: &str, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<Link, CniError> {
    verify::ipam(call, cx)?;
    let (prev, name) = (verify::told(call, cx)?, call.id.ifname.as_str());
    call.netns()?.enter(|inside| verify::inside(&mut open(inside)?, &prev, name, kind, true)).map_err(internal)?
}

/// DEL: the link, and what the IPAM plugin has to free.
pub(crate) fn del(kind: &'static str, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
    if call.netns.is_some() {
        cx.teardown.link(link_to_delete(kind, call, LinkIdentity::Group(identity::group(call.id))));
        // Another implementation made it, if that is what the result of its ADD says.
        if call.prev.is_some_and(|prev| verify::interface(prev, call.id.ifname.as_str()).is_ok()) {
            let name: IfName = call.id.ifname.clone();
            cx.teardown.link(link_to_delete(kind, call, LinkIdentity::Foreign(name)));
        }
    }
    address::release(call, cx)
}

/// The link of this attachment, known by the group that it was born with: name and hardware address are the
/// container's to change.
fn link_to_delete(kind: &'static str, call: &Call<'_>, mark: LinkIdentity) -> LinkToDelete {
    LinkToDelete { netns: call.netns.cloned(), kind, mark, lasting: true }
}
