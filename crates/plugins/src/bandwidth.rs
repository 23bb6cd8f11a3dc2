//! `bandwidth`: how fast a container's interface may send and receive.
//!
//! ```text
//!   to the container:     host's end of its veth pair --tbf--> eth0
//!   from the container:   eth0 --> host's end --redirect--> ifb --tbf--> back to where it was
//! ```
//!
//! All of it is on the host, where the container cannot change it. What is on the host's end goes with the pair; the ifb is
//! this plugin's own.

mod conf;
mod ifb;
mod shape;
mod told;

use cni::{AddResult, AttachmentId, CniError, Code, Config, Interface, Version};
use linux::tc::{self, Target};
use linux::{Batch, BatchError, Errno, Link, Netlink};
use plugin::{About, Call, Cx, Draft, Host, Key, Plugin, PluginMessage, Stage};

use crate::{internal, open, verify};
use conf::Conf;
pub use told::{Limits, Rate, limits};

/// The plugin `bandwidth`.
pub(crate) struct Bandwidth;

/// What the reference plugin says where no plugin stands before it.
const ALONE: &str = "must be called as chained plugin";

static ABOUT: About = About {
    name: "bandwidth",
    summary: "limits the rates of an interface that another plugin created",
    versions: Version::ALL,
    capabilities: &["bandwidth"],
    keys: &[
        Key::new("ingressRate", "bit/s", "no limit", "rate that the container may receive"),
        Key::new("ingressBurst", "bits", "none", "burst that it may receive; required with ingressRate"),
        Key::new("egressRate", "bit/s", "no limit", "rate that the container may send"),
        Key::new("egressBurst", "bits", "none", "burst that it may send; required with egressRate"),
        Key::new("unshapedSubnets", "list", "none", "networks without a limit"),
        Key::new("shapedSubnets", "list", "all", "the only networks with a limit"),
        Key::new("runtimeConfig.bandwidth", "object", "none", "the same keys; the configuration takes precedence"),
    ],
    needs_link: false,
};

impl Plugin for Bandwidth {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        Conf::read(draft.config)?;
        draft.chained(ABOUT.name, ALONE)
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let conf = Conf::read(call.config)?;
        let mut result = call.chained(ABOUT.name, ALONE)?.clone();
        if conf.is_empty() {
            return Ok(result);
        }
        let outer = outer(call, cx)?;
        conf.too_small(&outer.name, outer.mtu).for_each(|warning| cx.delegate.tell(PluginMessage::Warning(&warning)));
        shape::is_free(cx.host.netlink()?, &outer, &conf)?;
        let (index, root, filters) = (outer.index, conf.ingress.is_some(), conf.egress.is_some());
        cx.teardown.at(Stage::Devices, format!("remove the rate limits of {}", outer.name), move |host| {
            shape::undo(host.netlink()?, index, root, filters)
        });
        linux::crash_point!("bandwidth-planned");
        let mut batch: Batch<'_> = shape::ingress(&outer, &conf).into_iter().collect();
        if conf.egress.is_some() {
            cx.teardown.link(ifb::link_to_delete(call.id));
            let ifb = ifb::make(cx.host.netlink()?, call.id, outer.mtu)?;
            linux::crash_point!("bandwidth-ifb-there");
            batch.extend(shape::egress(&outer, &ifb, &conf));
            let mac = ifb.mac.map(|mac| mac.to_string()).unwrap_or_default();
            result.interfaces.push(Interface { name: ifb.name, mac, ..Interface::default() });
        }
        cx.host.netlink()?.send(batch).map_err(refused)?;
        linux::crash_point!("bandwidth-limited");
        Ok(result)
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(call.config)?;
        call.chained(ABOUT.name, ALONE)?;
        if conf.is_empty() {
            return Ok(());
        }
        let outer = outer(call, cx)?;
        let netlink = cx.host.netlink()?;
        shape::ingress_unchanged(netlink, &outer, &conf)?;
        if conf.egress.is_none() {
            return Ok(());
        }
        match ifb::find(netlink, call)? {
            Some(ifb) => shape::egress_unchanged(netlink, &outer, &ifb, &conf),
            None => Err(verify::changed(&outer.name, "the ifb that its packets are redirected to is gone")),
        }
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        if let Some(ifb) = ifb::find(cx.host.netlink()?, call)? {
            cx.teardown.link(ifb::link_to_delete_by_name(&ifb)?);
        }
        let told = call.prev.into_iter().flat_map(|prev| &prev.interfaces).filter(|i| i.sandbox.is_empty());
        let (told, conf): (Vec<String>, _) = (told.map(|i| i.name.clone()).collect(), Conf::read(call.config).ok());
        if !told.is_empty() {
            // After the links: as a rule the pair has gone, and all that was on it.
            cx.teardown.at(Stage::Leases, "remove the rate limits of the host's end", move |host| release(host, &told, conf.as_ref()));
        }
        Ok(())
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        Conf::read(config)?;
        let netlink = cx.host.netlink()?;
        verify::kernel_makes(netlink, "ifb")?;
        if !tc::has_kind(netlink, "tbf").map_err(internal)? {
            return Err(verify::without("has no queueing discipline tbf", "sch_tbf"));
        }
        if !tc::has_action(netlink, "mirred").map_err(internal)? {
            return Err(verify::without("has no action mirred", "act_mirred"));
        }
        Ok(())
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        for ifb in ifb::stale(cx.host.netlink()?, &config.network, valid)? {
            cx.teardown.link(ifb::link_to_delete_by_name(&ifb)?);
        }
        Ok(())
    }
}

/// The host's end of the container's pair. The kernel says which it is: each end names the other.
fn outer(call: &Call<'_>, cx: &mut Cx<'_>) -> Result<Link, CniError> {
    let name = call.id.ifname.as_str();
    let inner = call.netns()?.enter(|inside| open(inside)?.link(name).map_err(internal)).map_err(internal)??;
    let none = |why: String| Err(CniError::worded(format_args!("container interface {name} has no veth peer"), why));
    let Some(inner) = inner else { return none("the container has no such interface: check whether it was renamed or deleted".to_owned()) };
    if !inner.is("veth") {
        let kind = inner.kind.as_deref().unwrap_or("device without a kind");
        return none(format!("it is a {kind}, whose traffic cannot be limited on the host; chain bandwidth behind bridge or ptp"));
    }
    let (index, netlink) = (inner.other_end(), cx.host.netlink()?);
    let outer = netlink.link_by_index(index).map_err(internal)?;
    // An index is unique in its own namespace only: the one that is found says where its other end is.
    let container = netlink.number_of(call.netns()?).map_err(internal)?;
    let is_end = |l: &Link| l.is("veth") && l.other_end() == inner.index && l.link_netnsid.is_some() && l.link_netnsid == container;
    match outer.filter(is_end) {
        Some(outer) => Ok(outer),
        None => none(format!("veth peer with index {index} is not in host ns")),
    }
}

/// What ADD was told by the kernel, in words that say what to do.
fn refused(e: BatchError) -> CniError {
    match e.errno() {
        Errno::ENOENT | Errno::EOPNOTSUPP => {
            let msg = format!("{e}; load the modules that bandwidth needs: modprobe -a sch_tbf sch_htb sch_ingress cls_u32 act_mirred");
            CniError::new(Code::NOT_AVAILABLE, msg)
        }
        _ => internal(e),
    }
}

/// The host's end of a pair that stays: what leads to an ifb that has gone would drop every packet, and a limit is for the
/// attachment that has ended.
fn release(host: &mut Host, told: &[String], conf: Option<&Conf>) -> Result<(), CniError> {
    let netlink: &mut Netlink = host.netlink()?;
    for name in told {
        let Some(outer) = netlink.link(name).map_err(internal)?.filter(|l| l.is("veth")) else { continue };
        let filters = netlink.filters(outer.index, tc::INGRESS).map_err(internal)?;
        let leads_nowhere = filters.iter().any(|filter| filter.target == Target::Redirect(0));
        let limited =
            conf.filter(|conf| conf.ingress.is_some()).is_some_and(|conf| shape::ingress_unchanged(netlink, &outer, conf).is_ok());
        shape::undo(netlink, outer.index, limited, leads_nowhere)?;
    }
    Ok(())
}
