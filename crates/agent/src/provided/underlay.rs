//! The links by which this node reaches others.

use std::collections::BTreeSet;
use std::net::IpAddr;

use between::Underlay;
use ipnet::IpNet;
use linux::{Family, Netlink, Notice, Object, ReadError, route};

/// The links that have the node's own InternalIPs. Before the kubelet has told those, or where no link has one, as behind a NAT: the
/// links of the default routes.
pub(crate) fn links(netlink: &mut Netlink, own: &[IpAddr]) -> Result<Vec<Underlay>, ReadError> {
    let all = netlink.addresses(None)?;
    let mut indexes: BTreeSet<u32> = all.iter().filter(|address| own.contains(&address.net.addr())).map(|address| address.index).collect();
    if indexes.is_empty() {
        for family in [Family::V4, Family::V6] {
            indexes.extend(netlink.default_route_link(family)?);
        }
    }
    let mut links = Vec::with_capacity(indexes.len());
    for index in indexes {
        let Some(link) = netlink.link_by_index(index)? else { continue };
        let addresses: Vec<IpNet> = all.iter().filter(|address| address.index == index).map(|address| address.net).collect();
        links.push(Underlay { index, name: link.name, mtu: link.mtu, addresses });
    }
    Ok(links)
}

/// Whether what the kernel reports may have changed what [`links`] says, where it said `before`. Pods' links come and go all the time.
pub(crate) fn may_differ(notice: &Notice, before: &[Underlay], own: &[IpAddr]) -> bool {
    let known = |index: u32| before.iter().any(|link| link.index == index);
    let object = match notice {
        Notice::Lost => return true,
        Notice::Present(object) | Notice::Gone(object) => object,
    };
    match object {
        Object::Link(link) => before.iter().any(|known| known.index == link.index && (known.mtu != link.mtu || known.name != link.name)),
        Object::Address(address) => known(address.index) || own.contains(&address.net.addr()),
        Object::Route(route) => route.is_default() && route.table == route::MAIN,
        _ => false,
    }
}
