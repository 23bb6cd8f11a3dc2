//! What can keep the kernel from being what is wanted.

use std::fmt;

use between::{Change, Device, Entry};
use ipnet::IpNet;
use linux::{Errno, ReadError};
use thiserror::Error;

/// Why a plan was not carried out to its end.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The kernel's tables cannot be read.
    #[error("cannot read the kernel's links and routes: {0}; this is retried")]
    Read(ReadError),
}

/// One entry that is not as it is wanted. All others are.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EntryError {
    /// Another program's link has the name of a device of ours.
    #[error("cannot make the device {name}: another link of type {kind} has that name; rename it, or delete it with `ip link del {name}`")]
    NameTaken {
        /// The name.
        name: String,
        /// The link's type.
        kind: String,
    },
    /// Another program's vxlan has the VNI and the port of a device of ours.
    #[error(
        "cannot make the device {name}: the vxlan device {other} has the same VNI and UDP port; delete it, or choose another VNI or port"
    )]
    NetworkTaken {
        /// The device of ours.
        name: String,
        /// The other one.
        other: String,
    },
    /// Another program's route leads to a range.
    #[error(
        "cannot add the route to {range}: there is another one, {other}; if it is not needed, delete it with `ip route del {range} proto {proto}`"
    )]
    RouteTaken {
        /// The range.
        range: IpNet,
        /// The other route.
        other: String,
        /// Who made it (`RTPROT_*`).
        proto: u8,
    },
    /// The kernel refuses a change.
    #[error("{}", refused(.change, .on, .failure))]
    Refused {
        /// What was to be changed.
        change: Change,
        /// The device, or the link that it is on.
        on: String,
        /// The request, and what the kernel says.
        failure: linux::Failure,
    },
    /// Something on a device of ours, or a route of ours, that is in no plan cannot be removed.
    #[error("cannot remove what another program has added: {failure}; this is retried")]
    Stray {
        /// The request, and what the kernel says.
        failure: linux::Failure,
    },
}

/// `cannot add the route to 10.1.2.0/24 via 192.0.2.2 on eth0: ENETUNREACH: ...`
fn refused(change: &Change, on: &str, failure: &linux::Failure) -> String {
    let (verb, entry) = match change {
        Change::Add(entry @ Entry::Device(..)) | Change::Replace(entry @ Entry::Device(..)) => ("make", entry),
        Change::Add(entry) => ("add", entry),
        Change::Replace(entry) => ("replace", entry),
        Change::Remove(entry) => ("remove", entry),
    };
    let explanation = failure.text.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
    format!("cannot {verb} {}: {}{explanation}; {}", Described(entry, on), failure.errno, advice(entry, on, failure.errno))
}

/// An entry in words, with the name of its device.
struct Described<'a>(&'a Entry, &'a str);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Described(entry, on) = self;
        match entry {
            Entry::Device(Device::Vxlan { over, vni, port }, _) => {
                write!(f, "the device {on} (vxlan over {over}, VNI {vni}, UDP port {port})")
            }
            Entry::Device(Device::WireGuard { port }, _) => write!(f, "the device {on} (WireGuard, UDP port {port})"),
            Entry::Device(..) => write!(f, "the device {on}"),
            Entry::Peer(_, _, peer) => write!(f, "the peer {} on {on}", peer.endpoint),
            Entry::Forwarding(_, mac, endpoint) => write!(f, "the forwarding entry for {mac} to {endpoint} on {on}"),
            Entry::Neighbour(_, address, mac) => write!(f, "the neighbour {address} at {mac} on {on}"),
            Entry::Route(range, route) => match route.via {
                Some(via) => write!(f, "the route to {range} via {via} on {on}"),
                None => write!(f, "the route to {range} on {on}"),
            },
            Entry::Closed(range) => write!(f, "the unreachable route to {range}, which keeps packets from leaving unencrypted"),
        }
    }
}

/// What a person can do about it.
fn advice(entry: &Entry, on: &str, errno: Errno) -> String {
    match (entry, errno) {
        (Entry::Route(_, route), Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::EINVAL) => match route.via {
            Some(via) => format!("check that {on} is up and that {via} is in one of its subnets"),
            None => format!("check the addresses of {on}"),
        },
        (Entry::Route(..), Errno::EEXIST) => "another program has just added one; this is retried".to_owned(),
        (_, Errno::ENETDOWN) => format!("set the link up: ip link set {on} up"),
        (_, Errno::ENODEV) => format!("the link {on} is gone"),
        (Entry::Device(Device::WireGuard { .. }, _), Errno::EOPNOTSUPP) => "load the kernel module wireguard".to_owned(),
        (Entry::Device(..), Errno::EOPNOTSUPP) => "load the kernel module vxlan".to_owned(),
        (Entry::Device(..), Errno::EADDRINUSE) => "another program uses the UDP port: stop it, or choose another port".to_owned(),
        (_, Errno::EACCES) => format!("IPv6 is disabled: see the sysctl net.ipv6.conf.{on}.disable_ipv6"),
        (_, Errno::EAFNOSUPPORT) => "the kernel has no IPv6, or the endpoint is of another family than the device".to_owned(),
        (_, Errno::EPERM) => "the process needs CAP_NET_ADMIN".to_owned(),
        _ => "this is retried".to_owned(),
    }
}
