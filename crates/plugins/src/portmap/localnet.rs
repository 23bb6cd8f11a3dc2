//! Connections from 127.0.0.1 need an interface's leave to cross it.

use cni::{AddResult, CniError};
use linux::Sysctl;
use plugin::{Cx, Host};
use rules::AddError;

use super::addresses;
use crate::internal;

/// Lets connections from 127.0.0.1 cross the interface that leads to the container. Others may need it as well: it stays.
pub(super) fn answer_loopback(prev: &AddResult, name: &str, cx: &mut Cx<'_>) -> Result<(), CniError> {
    match localnet(prev, name, cx.host)? {
        Some((_, setting, value)) if value != "1" => {
            setting.write(cx.host.inside(), "1").map_err(|e| internal(format!("unable to enable route_localnet: {e}")))
        }
        _ => Ok(()),
    }
}

/// Keeps neighbours from 127.0.0.0/8, which that lets them reach, also where the ports are in rules of iptables. A kernel with iptables
/// alone is left as it is. Whether anything was missing.
pub(super) fn guard(host: &mut Host) -> Result<bool, CniError> {
    let Ok(nft) = host.nft() else { return Ok(false) };
    match rules::guard_loopback(nft) {
        Err(e @ AddError::OtherLayout { .. }) => Err(internal(e)),
        guarded => Ok(guarded.unwrap_or(false)),
    }
}

/// The interface that leads to the container's IPv4 address, its `route_localnet`, and the value. `None`: there is no such
/// address, or no way to it.
fn localnet(prev: &AddResult, name: &str, host: &mut Host) -> Result<Option<(String, Sysctl, String)>, CniError> {
    let Some(v4) = addresses(prev, name).into_iter().find(|net| net.addr().is_ipv4()) else { return Ok(None) };
    let netlink = host.netlink()?;
    let route = netlink.route_to(v4.addr()).map_err(internal)?;
    let Some(index) = route.and_then(|route| route.ways().find_map(|(_, oif)| oif)) else { return Ok(None) };
    let Some(link) = netlink.link_by_index(index).map_err(internal)? else { return Ok(None) };
    let setting = Sysctl::new(["net", "ipv4", "conf", &link.name, "route_localnet"]).map_err(internal)?;
    let value = setting.read(host.inside()).map_err(internal)?;
    Ok(Some((link.name, setting, value)))
}

/// Whether it is still so.
pub(super) fn check(prev: &AddResult, name: &str, host: &mut Host) -> Result<(), CniError> {
    match localnet(prev, name, host)? {
        Some((link, _, value)) if value != "1" => {
            Err(internal(format!("route_localnet of {link} is {value}, not 1: connections from 127.0.0.1 to host ports fail")))
        }
        _ => Ok(()),
    }
}
