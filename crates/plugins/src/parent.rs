//! The interface that macvlan, vlan and ipvlan stand on: named or the default route's, of the host or of the container.

use std::os::fd::AsFd;

use cni::{CniError, Code, Config, IfName, Mac, NameError};
use linux::link::{self, Kind, MacvlanMode};
use linux::{BatchError, Errno, Family, Inside, Link, LinkSpec, Netlink, Netns};
use plugin::{Call, Cx, KnownLinks, PlannedChange};
use serde::Deserialize;

use crate::open;
use crate::{identity, internal, verify};

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    master: String,
    mtu: i64,
    link_in_container: bool,
}

/// Which interface it is, and what is taken over from it.
pub(crate) struct Parent {
    /// `master`: its name; empty: the interface of the default route.
    pub(crate) master: String,
    in_container: bool,
    mtu: i64,
}

// === impl Parent ===

impl Parent {
    pub(crate) fn read(config: &Config) -> Result<Self, CniError> {
        let Keys { master, mtu, link_in_container: in_container } = config.read()?;
        if !master.is_empty() {
            any_name("master", &master)?;
        }
        Ok(Parent { master, in_container, mtu })
    }

    /// Makes a link of `kind` upon it: born in the container's namespace with its final name, and this attachment's group. Returns its index,
    /// where that was chosen.
    pub(crate) fn carry(
        &self,
        call: &Call<'_>,
        cx: &mut Cx<'_>,
        mac: Option<Mac>,
        kind: impl FnOnce(&Link) -> Result<Kind<'static>, CniError> + Send,
    ) -> Result<Option<u32>, CniError> {
        let netns = call.netns()?;
        let index = cx.host.next_index(netns.id());
        let make = |netlink: &mut Netlink, parent: Link, kind: Kind<'static>, into: Option<&Netns>| {
            let name = kind.name();
            let mut spec = LinkSpec {
                index: index.filter(|_| into.is_some()),
                mac,
                mtu: self.mtu(&parent.name, parent.mtu)?,
                group: Some(identity::group(call.id)),
                netns: into.map(|ns| ns.as_fd()),
                ..LinkSpec::new(call.id.ifname.clone(), kind)
            };
            let made = match netlink.send_one(link::create(&spec)) {
                // The index is taken; before Linux 6.14 also one that the host has.
                Err(e) if spec.index.is_some() && matches!(e.errno(), Errno::EEXIST | Errno::EBUSY) => {
                    spec.index = None;
                    netlink.send_one(link::create(&spec))
                }
                made => made,
            };
            Ok::<_, CniError>(made.map(|_| spec.index).map_err(|e| Refused { kind: name, parent: parent.name, e }))
        };
        let made = if self.in_container {
            let make_inside = |inside: &Inside| {
                let mut netlink = open(inside)?;
                let parent = self.find(&mut netlink)?;
                let kind = kind(&parent)?;
                make(&mut netlink, parent, kind, None)
            };
            netns.enter(make_inside).map_err(internal)??
        } else {
            // Until its link stands there, the parent may be taken for a link that nobody uses.
            let stays = cx.host.keep_idle_links();
            let parent = self.find(cx.host.netlink()?)?;
            linux::crash_point!("parent-found");
            let kind = kind(&parent)?;
            self.review(&parent, &kind, cx)?;
            let made = make(cx.host.netlink()?, parent, kind, Some(netns))?;
            cx.host.let_idle_links_go(stays);
            made
        };
        made.map_err(|refused| refused.told(call))
    }

    /// A name may have come to another link since it was looked at: this link is the one that is used, by its index. On that of the default
    /// route everybody's interfaces may stand.
    fn review(&self, parent: &Link, kind: &Kind<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        match kind {
            Kind::Macvlan { macvlan, .. } if macvlan.mode == MacvlanMode::Passthru => cx.review(PlannedChange::Moved(parent)),
            _ if self.master.is_empty() => Ok(()),
            _ => cx.review(PlannedChange::Parent(parent)),
        }
    }

    /// Whether it is the container's, and not the host's.
    pub(crate) fn is_in_container(&self) -> bool {
        self.in_container
    }

    /// By name, or the interface of the default route, where `netlink` is.
    pub(crate) fn find(&self, netlink: &mut Netlink) -> Result<Link, CniError> {
        if self.master.is_empty() {
            let index = default_route_link(netlink)?;
            let link = index.map(|i| netlink.link_by_index(i)).transpose().map_err(internal)?.flatten();
            return link.ok_or_else(|| CniError::worded("no default route interface found", "set \"master\""));
        }
        if let Some(link) = netlink.link(&self.master).map_err(internal)? {
            return Ok(link);
        }
        let uplink = default_route_link(netlink)?;
        let links = netlink.links().map_err(internal)?.into_iter();
        let mut there: Vec<String> = links.filter(|link| self.may_be_meant(link, uplink)).map(|link| link.name).collect();
        there.sort();
        let there = match cni::near_names(&self.master, there.iter().map(String::as_str)) {
            there if there.is_empty() => "the only interfaces are those of veth pairs".to_owned(),
            there => format!("there are {there}"),
        };
        let place = if self.in_container { "in the container" } else { "here" };
        Err(CniError::worded("Link not found", format_args!("master: there is no interface {:?} {place}; {there}", self.master)))
    }

    /// Whether a message should offer it. Other pods' links come and go: a message that listed them would be another one at
    /// each retry, and another Event.
    fn may_be_meant(&self, link: &Link, uplink: Option<u32>) -> bool {
        // A node that is a container itself has such an uplink.
        let is_pods = matches!(link.kind.as_deref(), Some("veth" | "netkit" | "ifb")) && uplink != Some(link.index);
        !link.flags.loopback() && (self.in_container || !is_pods)
    }

    /// What is wrong with it, as far as the node's interfaces are known.
    pub(crate) fn validate(&self, links: &KnownLinks) -> Result<(), CniError> {
        let known = if self.in_container { None } else { links.mtu(&self.master) };
        // No parent has a larger one.
        self.mtu(&self.master, known.unwrap_or(u32::MAX)).map(drop)
    }

    fn mtu(&self, parent: &str, most: u32) -> Result<Option<u32>, CniError> {
        match self.mtu {
            0 => Ok(None),
            mtu if mtu < 0 || mtu > i64::from(most) => Err(CniError::new(
                Code::INVALID_CONFIG,
                format!("invalid MTU {mtu}, must be [0, master MTU({most})]: mtu, whose master is {parent}"),
            )
            .at("mtu")),
            mtu => Ok(u32::try_from(mtu).ok()),
        }
    }

    /// CHECK: the link stands on it, and has the MTU that is configured, if the result does not say which.
    pub(crate) fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>, link: &Link) -> Result<(), CniError> {
        let name = call.id.ifname.as_str();
        let told = verify::interface(call.prev()?, name)?.1.mtu;
        if told == 0 && self.mtu != 0 && self.mtu != i64::from(link.mtu) {
            return Err(verify::changed(name, format!("its MTU is {}, not {}", link.mtu, self.mtu)));
        }
        let in_place = link.link_netnsid.is_none() == self.in_container;
        if self.master.is_empty() {
            // Where the default route led at ADD nobody knows any more; it may lead elsewhere now.
            return match link.parent.is_some() && in_place {
                true => Ok(()),
                false => Err(verify::changed(name, "it has lost its parent")),
            };
        }
        let master = match self.in_container {
            true => call.netns()?.enter(|inside| self.find(&mut open(inside)?)).map_err(internal)??,
            false => self.find(cx.host.netlink()?)?,
        };
        match link.parent == Some(master.index) && in_place {
            true => Ok(()),
            false => Err(verify::changed(name, format!("its parent is not {}", master.name))),
        }
    }

    /// STATUS: the kernel has such links, and the parent is there and up.
    pub(crate) fn status(&self, kind: &str, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let netlink = cx.host.netlink()?;
        verify::kernel_makes(netlink, kind)?;
        if self.in_container {
            return Ok(());
        }
        let parent = self.find(netlink).map_err(|e| CniError { code: Code::NOT_AVAILABLE, ..e })?;
        self.mtu(&parent.name, parent.mtu).map_err(|e| CniError { code: Code::NOT_AVAILABLE, ..e })?;
        // What ADD makes now has no carrier, as what is there has none any more.
        match parent.flags.up() {
            true => Ok(()),
            false => Err(down(&parent, kind)),
        }
    }
}

/// The interface of the default route, by its index: IPv4's before IPv6's.
fn default_route_link(netlink: &mut Netlink) -> Result<Option<u32>, CniError> {
    match netlink.default_route_link(Family::V4).map_err(internal)? {
        Some(index) => Ok(Some(index)),
        None => netlink.default_route_link(Family::V6).map_err(internal),
    }
}

/// Checks what is to name an interface that is there: as a name, or as an altname, which may have 127 bytes.
pub(crate) fn any_name(key: &str, name: &str) -> Result<(), CniError> {
    match IfName::parse(name) {
        Err(NameError::IfNameTooLong(_)) if name.len() < 128 && !name.contains(|c: char| c.is_whitespace() || c.is_control()) => Ok(()),
        other => other.map(drop).map_err(|e| CniError::invalid(key, e)),
    }
}

/// A parent that is down will not do: code 51.
pub(crate) fn down(parent: &Link, kind: &str) -> CniError {
    let msg = format!("master: {0} is down, and so are the {kind}s on it; bring it up: ip link set {0} up", parent.name);
    CniError::new(Code::LIMITED_CONNECTIVITY, msg)
}

/// What the kernel did not make.
struct Refused {
    kind: &'static str,
    parent: String,
    e: BatchError,
}

// === impl Refused ===

impl Refused {
    /// With what to look at next.
    fn told(self, call: &Call<'_>) -> CniError {
        let Refused { kind, parent, e } = self;
        let ifname = &call.id.ifname;
        match e.errno() {
            Errno::EEXIST if kind != "vlan" || is_taken(call) => {
                internal(format!("interface name {ifname} already exists in the container: choose another CNI_IFNAME"))
            }
            Errno::EEXIST => internal(format!(
                "{e}: {parent} has a link for this VLAN already, here or in a container, and can have only one: DEL the other attachment, or share it: use macvlan or ipvlan with a VLAN interface of the host as master"
            )),
            // EINVAL: a macvlan in mode passthru is the only one of its parent.
            Errno::EBUSY | Errno::EINVAL => internal(format!(
                "{e}: {parent} may be a bridge port, used by a macvlan in passthru mode, or have both macvlans and ipvlans"
            )),
            Errno::EOPNOTSUPP => verify::lacks(kind),
            _ => internal(e),
        }
    }
}

/// Whether the container has an interface of that name already.
fn is_taken(call: &Call<'_>) -> bool {
    let name = call.id.ifname.as_str();
    let there = call.netns.map(|netns| netns.enter(|inside| open(inside)?.link(name).map_err(internal)));
    matches!(there, Some(Ok(Ok(Some(_)))))
}
