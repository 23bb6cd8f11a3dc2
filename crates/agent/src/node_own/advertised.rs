//! Where the host takes what routers advertise. A pod with raw packets advertises as well: on a bridge it would give the host a default route and
//! an address. Bridges that Netloom makes take nothing, those of others take it unless somebody has switched it off.

use linux::link::{Ipv6Conf, Link, TRANSIENT};
use linux::{Errno, Inside, Sysctl, SysctlError};

use super::{ThisNode, links};

impl ThisNode<'_> {
    /// The link on which the host accepts the router advertisements of a bridge's ports, in words: the bridge, or a VLAN on it. A bridge that is
    /// not there yet has none.
    pub(super) fn takes_advertisements(&self, bridge: &str) -> Result<Option<String>, String> {
        let all = self.links()?;
        let bridge = self.named(bridge)?;
        let Some(bridge) = all.iter().find(|link| link.is("bridge") && Some(link.index) == bridge) else { return Ok(None) };
        let on_it =
            |link: &&Link| link.index == bridge.index || link.is("vlan") && links::parent_of(link, all).is_some_and(|on| on == bridge);
        // Another ADD is at it: it comes up when it takes nothing.
        let is_being_made = |link: &&Link| link.group == TRANSIENT && !link.flags.up();
        let host = self.host.borrow_mut();
        for link in all.iter().filter(on_it).filter(|link| !is_being_made(link)) {
            if accepts(host.inside(), &link.name).map_err(|e| e.to_string())? {
                // A dot in a link's name is a slash in a sysctl's.
                let in_sysctl = link.name.replace('.', "/");
                return Ok(Some(format!(
                    "{}, where the host accepts router advertisements: set net.ipv6.conf.{in_sysctl}.accept_ra to 0 on the node",
                    link.name
                )));
            }
        }
        Ok(None)
    }
}

/// Whether the kernel accepts them on a link (`ipv6_accept_ra` in include/net/ipv6.h).
fn accepts(inside: &Inside, link: &str) -> Result<bool, SysctlError> {
    let read = |setting: &str| match Sysctl::new(["net", "ipv6", "conf", link, setting])?.read(inside) {
        // There is no IPv6, or the link has just gone.
        Err(e) if e.errno() == Errno::ENOENT => Ok(None),
        value => value.map(Some),
    };
    let is = |value: Option<String>, expected: &str| value.as_deref() == Some(expected);
    let accepted = match read(Ipv6Conf::AcceptRa.name())?.as_deref() {
        None | Some("0") => false,
        Some("2") => true,
        Some(_) => is(read("forwarding")?, "0"),
    };
    Ok(accepted && is(read(Ipv6Conf::DisableIpv6.name())?, "0"))
}
