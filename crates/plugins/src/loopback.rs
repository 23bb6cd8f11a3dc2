//! `loopback`: brings `lo` up.

use std::net::IpAddr;

use cni::{AddResult, CniError, Code, Interface, IpConfig, Version};
use linux::Netlink;
use linux::link::{self, Change};
use plugin::{About, Call, Cx, Draft, Plugin};

use crate::{internal, open};

/// The plugin `loopback`.
pub(crate) struct Loopback;

static ABOUT: About = About {
    name: "loopback",
    summary: "brings the loopback interface up",
    versions: Version::ALL,
    capabilities: &[],
    keys: &[],
    needs_link: false,
};

impl Plugin for Loopback {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, _: &Draft<'_>) -> Result<(), CniError> {
        Ok(())
    }

    fn add(&self, call: &Call<'_>, _: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let netns = call.netns()?;
        let found = netns.enter(|inside| bring_up(&mut open(inside)?)).map_err(internal)??;
        if let Some(prev) = call.prev {
            return Ok(prev.clone());
        }
        let sandbox = netns.path().display().to_string();
        let lo = Interface { name: "lo".into(), mac: "00:00:00:00:00:00".into(), sandbox, ..Interface::default() };
        let ips = found.into_iter().map(|address| IpConfig { interface: Some(0), address, gateway: None }).collect();
        Ok(AddResult { interfaces: vec![lo], ips, ..AddResult::default() })
    }

    fn check(&self, call: &Call<'_>, _: &mut Cx<'_>) -> Result<(), CniError> {
        let lo = call.netns()?.enter(|inside| open(inside)?.link("lo").map_err(internal)).map_err(internal)??;
        match lo.is_some_and(|lo| lo.flags.up()) {
            true => Ok(()),
            false => Err(CniError::new(Code::INTERNAL, "loopback interface is down: another program set it down; restart the pod")),
        }
    }

    /// `lo` belongs to the namespace and goes with it.
    fn del(&self, _: &Call<'_>, _: &mut Cx<'_>) -> Result<(), CniError> {
        Ok(())
    }
}

/// Up, and its first IPv4 and first IPv6 address. An address that is not a loopback one is somebody's mistake: `lo` stays down.
fn bring_up(netlink: &mut Netlink) -> Result<Vec<ipnet::IpNet>, CniError> {
    addresses(netlink)?;
    netlink.send_one(link::set(link::LOOPBACK, &Change { up: Some(true), ..Change::default() })).map_err(internal)?;
    linux::crash_point!("loopback-up");
    // The kernel gives it its own when it comes up.
    let addresses = addresses(netlink)?;
    let first = |v4: bool| addresses.iter().find(|a| matches!(a.addr(), IpAddr::V4(_)) == v4).copied();
    Ok([first(true), first(false)].into_iter().flatten().collect())
}

/// All of them, unless one is no loopback address.
fn addresses(netlink: &mut Netlink) -> Result<Vec<ipnet::IpNet>, CniError> {
    let addresses: Vec<ipnet::IpNet> = netlink.addresses(Some(link::LOOPBACK)).map_err(internal)?.into_iter().map(|a| a.net).collect();
    match addresses.iter().find(|a| !a.addr().is_loopback()) {
        Some(odd) => Err(internal(format!("loopback interface is configured with non-loopback address {odd}"))),
        None => Ok(addresses),
    }
}
