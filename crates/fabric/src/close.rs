//! Ranges that are closed before there is a plan.

use ipnet::IpNet;
use linux::{BatchError, Errno, Netlink};

use crate::entry;

/// Adds a route without a way to each of these ranges, as [`between::Plan::closed`] has it, where there is none yet; nothing else changes.
/// The first [`Fabric::apply`](crate::Fabric::apply) afterwards takes away those that its plan has not.
/// `ip route add unreachable RANGE metric METRIC proto 110`
///
/// # Errors
/// The kernel refuses a route; the other ones are there.
pub fn close(netlink: &mut Netlink, ranges: &[IpNet]) -> Result<(), BatchError> {
    let routes = ranges.iter().map(|range| linux::route::add(&entry::closed_route(*range)).tolerate(Errno::EEXIST));
    netlink.send(routes.collect()).map(drop)
}
