//! From an IPAM plugin's result to a configured interface.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use cni::{AddResult, AttachmentId, CniError, Code, Config, Dns, Interface, PluginType, Route};
use ipnet::IpNet;
use json::Value;
use linux::link::{self, Change, Ipv4Conf, Ipv6Conf};
use linux::{AddrFlags, Batch, Errno, Inside, Link, Netlink, Netns, Reply, Sysctl, addr, route};
use plugin::{Call, Cx};

use crate::conflict::{self, Wire};
use crate::internal;

/// Whether addresses wait for duplicate address detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dad {
    /// Addresses are usable at once: they come from an allocator that gives none twice.
    Off,
    /// The kernel asks the network first, and ADD waits for the answer.
    On,
}

/// Addresses, asked for before or after the interface is made, as the IPAM plugin needs it.
pub(crate) enum Addresses {
    /// The interface has none.
    None,
    /// They are known.
    Known(AddResult),
    /// The same; this plugin has given them, and wants them asked for on the wire first.
    Unasked(AddResult, PluginType),
    /// They are asked for when the interface is there.
    Later(PluginType),
}

impl Addresses {
    /// Asks an IPAM plugin that needs no interface; makes sure that the other kind is there.
    pub(crate) fn before_link(ipam: Option<PluginType>, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<Self, CniError> {
        Ok(match ipam {
            None => Addresses::None,
            Some(kind) if cx.delegate.needs_link(&kind)? => Addresses::Later(kind),
            Some(kind) => {
                cx.probe = false;
                let result = allocate(&kind, call, cx)?;
                if std::mem::take(&mut cx.probe) { Addresses::Unasked(result, kind) } else { Addresses::Known(result) }
            }
        })
    }

    /// What is known of them before the interface is there. What is to be asked for may become another one yet.
    pub(crate) fn known(&self) -> Option<&AddResult> {
        match self {
            Addresses::Known(result) | Addresses::Unasked(result, _) => Some(result),
            Addresses::None | Addresses::Later(_) => None,
        }
    }

    /// The interface is there, and this is its wire.
    pub(crate) fn with_link(self, call: &Call<'_>, cx: &mut Cx<'_>, wire: &Wire<'_>) -> Result<AddResult, CniError> {
        match self {
            Addresses::None => Ok(AddResult::default()),
            Addresses::Known(result) => Ok(result),
            Addresses::Unasked(result, kind) => conflict::unowned(result, &kind, call, cx, wire),
            Addresses::Later(kind) => allocate(&kind, call, cx),
        }
    }
}

fn allocate(kind: &PluginType, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
    let delegate = cx.delegate;
    let result = delegate.add(kind, call, cx)?;
    match result.ips.is_empty() {
        true => Err(none_of(kind.as_str())),
        false => Ok(result),
    }
}

/// Why an interface does not come up whose IPAM plugin gives it no address.
pub(crate) fn none_of(kind: &str) -> CniError {
    let next = if kind == "static" { r#"; set "ipam.addresses""# } else { "" };
    CniError::new(Code::INTERNAL, format!("IPAM plugin returned missing IP config: {kind} returned no address{next}")).at("ipam.addresses")
}

/// Notes what the IPAM plugin of this attachment has to free.
pub(crate) fn release(call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
    match call.config.ipam() {
        Ok(Some(kind)) => cx.delegate.del(&kind, call, cx),
        // An ADD that such a configuration was refused for has left nothing.
        Ok(None) | Err(_) => Ok(()),
    }
}

/// The IPAM plugin, where there is no interface without addresses.
pub(crate) fn required(config: &Config, plugin: &str) -> Result<PluginType, CniError> {
    let missing =
        || CniError::new(Code::INVALID_CONFIG, format!("{plugin} interface requires an IPAM configuration: set \"ipam\"")).at("ipam");
    config.ipam()?.ok_or_else(missing)
}

/// That a configuration tells an IPAM plugin anything: without its key it was made for another plugin.
pub(crate) fn told(config: &Config) -> Result<(), CniError> {
    match config.raw().object("ipam") {
        Some(_) => Ok(()),
        None => {
            Err(CniError::new(Code::INVALID_CONFIG, "IPAM config missing 'ipam' key: the address configuration belongs there").at("ipam"))
        }
    }
}

/// The configuration's DNS goes into the result where it has any, be it empty lists; else that of the IPAM plugin stays.
pub(crate) fn name_resolution(config: &Config, own: Dns, result: &mut AddResult) {
    let last = |key: &str| config.raw().objects("dns").rev().find_map(|dns| dns.get(key));
    let lists = ["nameservers", "search", "options"];
    if !own.domain.is_empty() || lists.iter().any(|key| matches!(last(key), Some(Value::Array(_)))) {
        result.dns = own;
    }
}

/// The IPAM plugin's part of STATUS.
pub(crate) fn status(config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
    config.ipam()?.map_or(Ok(()), |kind| cx.delegate.status(&kind, config, cx))
}

/// The IPAM plugin's part of GC.
pub(crate) fn gc(config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
    config.ipam()?.map_or(Ok(()), |kind| cx.delegate.gc(&kind, config, valid, cx))
}

/// The container's interface as a result tells it. It has its MTU also where none was configured: CHECK compares it.
pub(crate) fn interface(link: &Link, netns: &Netns) -> Interface {
    Interface { mtu: link.mtu, sandbox: netns.path().display().to_string(), ..of_host(link) }
}

/// A link of the host as a result tells it.
pub(crate) fn of_host(link: &Link) -> Interface {
    let mac = link.mac.as_ref().map(ToString::to_string).unwrap_or_default();
    Interface { name: link.name.clone(), mac, ..Interface::default() }
}

/// The IPv6 settings of an interface that was made in the container, before it is up: `settings` if it gets an IPv6 address,
/// and `accept_ra` 0 if an IPAM plugin says what its addresses are, also those of IPv4 alone. Nobody on its network may
/// give it more of them, or a default route (CVE-2020-10749). Without an IPAM plugin it may be meant to get them in just this
/// way, and DHCPv6 gives no routes: then it keeps what the kernel has. `tuning` comes later, and wins.
pub(crate) fn ipv6(
    inside: &Inside,
    link: &Link,
    call: &Call<'_>,
    result: &AddResult,
    settings: &[(Ipv6Conf, i32)],
) -> Result<(), CniError> {
    let gets_ipv6 = has_ipv6(result);
    if !gets_ipv6 && link.ipv6(Ipv6Conf::DisableIpv6) != Some(0) {
        return Ok(());
    }
    if !result.ips.is_empty() && call.config.ipam()?.is_none_or(|kind| kind.as_str() != "dhcp") {
        set_ipv6(inside, link, Ipv6Conf::AcceptRa, 0)?;
    }
    if !gets_ipv6 {
        return Ok(());
    }
    // A runtime may have made the namespace with IPv6 off; an address that was given must work.
    if link.ipv6(Ipv6Conf::DisableIpv6) != Some(0) {
        write(inside, "lo", Ipv6Conf::DisableIpv6, 0)?;
    }
    for (setting, value) in [(Ipv6Conf::DisableIpv6, 0), (Ipv6Conf::KeepAddrOnDown, 1)].iter().chain(settings) {
        set_ipv6(inside, link, *setting, *value)?;
    }
    Ok(())
}

/// [`ipv6`] for an interface that nobody has looked at yet: whether all was done that has to be, because it gets addresses of IPv4 alone, of
/// which an IPAM plugin says what they are. If not, [`ipv6`] does it, or says why it cannot.
pub(crate) fn is_ipv4_alone(inside: &Inside, call: &Call<'_>, result: &AddResult) -> bool {
    let is_told = !result.ips.is_empty() && call.config.ipam().is_ok_and(|ipam| ipam.is_none_or(|kind| kind.as_str() != "dhcp"));
    is_told && !has_ipv6(result) && write(inside, call.id.ifname.as_str(), Ipv6Conf::AcceptRa, 0).is_ok()
}

/// Whether a result has an IPv6 address.
pub(crate) fn has_ipv6(result: &AddResult) -> bool {
    result.ips.iter().any(|ip| ip.address.addr().is_ipv6())
}

/// One setting below `net.ipv6.conf.LINK`, if the link was read with another value.
pub(crate) fn set_ipv6(inside: &Inside, link: &Link, setting: Ipv6Conf, value: i32) -> Result<(), CniError> {
    match link.ipv6(setting) {
        Some(found) if found == value => Ok(()),
        _ => write(inside, &link.name, setting, value),
    }
}

/// Writes a sysctl where the kernel has it: without IPv6 there is nothing to set.
fn write(inside: &Inside, link: &str, setting: Ipv6Conf, value: i32) -> Result<(), CniError> {
    let sysctl = Sysctl::new(["net", "ipv6", "conf", link, setting.name()]).map_err(internal)?;
    sysctl.write_if_there(inside, &value.to_string()).map_err(internal)
}

/// Puts the addresses and routes of `result` on an interface and brings it up, which its neighbours are told.
///
/// The kernel takes its time to notice a carrier, up to a second where a veth's ends have the same index, and IPv6 hears no
/// neighbour before that: who asks for the link makes it look.
///
/// A route whose destination, table and metric are taken already is skipped and dropped from `result`: the interface
/// that came first keeps it, and no second next hop is appended.
pub(crate) fn configure(netlink: &mut Netlink, link: &Link, result: &mut AddResult, dad: Dad) -> Result<(), CniError> {
    // The carrier: see above.
    bring_up(netlink, (link.index, &link.name), result, dad, has_ipv6(result)).map(drop)
}

/// The same for a link of which no more is known yet than its index and its name. Returns what it is, which is asked for by the same message.
pub(crate) fn configure_new(netlink: &mut Netlink, index: u32, name: &str, result: &mut AddResult) -> Result<Link, CniError> {
    let link = bring_up(netlink, (index, name), result, Dad::Off, true)?;
    link.ok_or_else(|| internal(format!("{name} disappeared while it was configured")))
}

/// Of configure and configure_new: `look`, whether the link is asked for at the end.
fn bring_up(
    netlink: &mut Netlink,
    (index, name): (u32, &str),
    result: &mut AddResult,
    dad: Dad,
    look: bool,
) -> Result<Option<Link>, CniError> {
    linux::crash_point!("address-unset");
    let mut batch = Batch::new();
    // Not in one message with the next: there it would be set only after the link is up.
    let notify = link::set(index, &Change { ipv4_conf: vec![(Ipv4Conf::ArpNotify, 1)], ..Change::default() });
    let up = link::set(index, &Change { up: Some(true), ..Change::default() });
    for ip in &result.ips {
        let flags = if dad == Dad::Off && ip.address.addr().is_ipv6() { AddrFlags::NODAD } else { AddrFlags::NONE };
        let add = addr::add(index, ip.address, flags);
        batch.push(add.called(format!("add address {} to {name} in the container", ip.address)));
    }
    batch.push(notify.called(format!("have {name} tell its neighbours (arp_notify)")));
    batch.push(up.called(format!("bring {name} up in the container")));
    if look {
        batch.push(link::get_by_index(index));
    }
    let link = match netlink.send(batch).map_err(internal)?.pop() {
        Some(Reply::Link(link)) => Some(*link),
        _ => None,
    };
    linux::crash_point!("address-set");
    if dad == Dad::On {
        settle(netlink, index)?;
    }
    routes(netlink, index, name, result)?;
    Ok(link)
}

/// Adds the routes of `result`, and drops from it those that are taken already.
pub(crate) fn routes(netlink: &mut Netlink, index: u32, name: &str, result: &mut AddResult) -> Result<(), CniError> {
    let ips = result.ips.clone();
    let mut kept = Vec::with_capacity(result.routes.len());
    for wanted in std::mem::take(&mut result.routes) {
        let gateway = gateway_of(&wanted, &ips);
        let via = gateway.map(|g| format!(" via {g}")).unwrap_or_default();
        let add = route::add(&kernel_route(&wanted, gateway, index));
        match netlink.send_one(add.called(format!("add route {}{via} dev {name} in the container", wanted.dst))) {
            Ok(_) => {
                linux::crash_point!("address-routed");
                kept.push(wanted);
            }
            Err(e) if e.errno() == Errno::EEXIST => keep_gateway(&wanted, &mut result.ips),
            Err(e) if e.errno() == Errno::ENETUNREACH => {
                let hint = "check that the gateway is in the network of an address";
                return Err(internal(format!("{e}; {hint}")));
            }
            Err(e) => return Err(internal(e)),
        }
    }
    result.routes = kept;
    Ok(())
}

/// A default route that has no place is dropped from the result; its next hop is not, if it is one: source routing behind this
/// plugin has a table of its own for it.
fn keep_gateway(skipped: &Route, ips: &mut [cni::IpConfig]) {
    let Some(gateway) = skipped.gw.filter(|_| skipped.is_default()) else { return };
    for ip in ips.iter_mut().filter(|ip| ip.gateway.is_none() && ip.address.contains(&gateway)) {
        ip.gateway = Some(gateway);
    }
}

/// The next hop of a route: if it names none, the first gateway of its family. A route to a gateway itself has none: it is on the link.
pub(crate) fn gateway_of(route: &Route, ips: &[cni::IpConfig]) -> Option<IpAddr> {
    let v4 = route.dst.addr().is_ipv4();
    let gateways = || ips.iter().filter(|ip| ip.address.addr().is_ipv4() == v4).filter_map(|ip| ip.gateway);
    let is_gateway = |host: &IpNet| gateways().any(|gateway| *host == IpNet::from(gateway));
    if route.gw.is_none() && is_gateway(&route.network()) {
        return None;
    }
    route.gw.or_else(|| gateways().next())
}

/// Adds a route to each gateway that is in no address's subnet, before all routes that lead there: with `ip route add GATEWAY dev LINK scope
/// link` the kernel takes it as a next hop.
pub(crate) fn put_gateways_on_link(result: &mut AddResult) {
    let is_far = |gateway: &IpAddr| !result.ips.iter().any(|ip| ip.address.contains(gateway));
    let mut far: Vec<IpNet> = result.ips.iter().filter_map(|ip| ip.gateway).filter(is_far).map(IpNet::from).collect();
    far.dedup();
    far.retain(|gateway| !result.routes.iter().any(|route| route.network() == *gateway));
    let on_link = far.into_iter().map(|gateway| Route { scope: Some(linux::Scope::Link.into()), ..Route::new(gateway, None) });
    result.routes.splice(..0, on_link);
}

fn kernel_route(wanted: &Route, gateway: Option<IpAddr>, index: u32) -> linux::Route {
    linux::Route {
        gateway,
        oif: Some(index),
        priority: wanted.priority.unwrap_or(0),
        table: wanted.table.unwrap_or(route::MAIN),
        scope: wanted.scope.map(linux::Scope::from),
        mtu: wanted.mtu,
        advmss: wanted.advmss,
        ..linux::Route::to(wanted.network())
    }
}

/// Waits until duplicate address detection has finished, for at most five seconds.
fn settle(netlink: &mut Netlink, index: u32) -> Result<(), CniError> {
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let addresses = netlink.addresses(Some(index)).map_err(internal)?;
        if let Some(twice) = addresses.iter().find(|a| a.flags.contains(AddrFlags::DADFAILED)) {
            return Err(internal(format!("address {} is used by another host on this network (duplicate address detection)", twice.net)));
        }
        if !addresses.iter().any(|a| a.flags.contains(AddrFlags::TENTATIVE)) {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(internal("addresses are still tentative after 5 s: check that the other end of the link is up"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
