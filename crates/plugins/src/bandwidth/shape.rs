//! What holds packets back: as it is made, and as CHECK compares it.
//!
//! ```text
//!   ingress   host's end, root: tbf                      or htb: a class, and what filters lead past it or into it
//!   egress    host's end, ingress: filters --redirect--> ifb, root: tbf
//! ```

use cni::CniError;
use ipnet::IpNet;
use linux::link::{self, Change};
use linux::tc::{self, Filter, Root, SeenRoot, Side, Target};
use linux::{Errno, Link, Netlink, Request};

use super::conf::{Conf, ETHERNET, Limit, Shaped};
use crate::{internal, verify};

/// The class of [`Root::Htb`] that is held back.
pub(super) const CLASS: u32 = 1;

/// What the container receives is what the host's end sends.
pub(super) fn ingress(outer: &Link, conf: &Conf) -> Vec<Request<'static>> {
    let Some(limit) = conf.ingress else { return Vec::new() };
    let mut requests = vec![tc::add_root(outer.index, &root(limit, &conf.shaped))];
    if conf.shaped != Shaped::All {
        requests.push(tc::add_class(outer.index, CLASS, limit.bucket, outer.mtu + ETHERNET));
        requests.push(tc::add_fifo(outer.index, CLASS, limit.queue()));
    }
    requests.extend(around(&conf.shaped).iter().map(|filter| tc::add_filter(outer.index, tc::ROOT, filter)));
    requests
}

/// What the container sends is led to `ifb` where the host's end receives it, and queued there. The queue comes first.
pub(super) fn egress(outer: &Link, ifb: &Link, conf: &Conf) -> Vec<Request<'static>> {
    let Some(limit) = conf.egress else { return Vec::new() };
    let up = Change { up: Some(true), ..Change::default() };
    // A link that is up takes a qdisc only after a grace period of the kernel's.
    let mut requests = vec![tc::add_root(ifb.index, &Root::Tbf(limit.tbf())), link::set(ifb.index, &up), tc::add_ingress(outer.index)];
    requests.extend(aside(&conf.shaped, ifb.index).iter().map(|filter| tc::add_filter(outer.index, tc::INGRESS, filter)));
    requests
}

fn root(limit: Limit, shaped: &Shaped) -> Root {
    match shaped {
        Shaped::All => Root::Tbf(limit.tbf()),
        Shaped::Except(_) => Root::Htb { default: CLASS },
        Shaped::Only(_) => Root::Htb { default: 0 },
    }
}

/// Which packets to the container meet its limit, by where they come from.
fn around(shaped: &Shaped) -> Vec<Filter> {
    match shaped {
        Shaped::All => Vec::new(),
        Shaped::Except(nets) => of_networks(nets, Side::Source, Target::Class(tc::ROOT)),
        Shaped::Only(nets) => of_networks(nets, Side::Source, Target::Class(tc::ROOT | CLASS)),
    }
}

/// Which packets of the container's are led aside, by where they go.
fn aside(shaped: &Shaped, ifb: u32) -> Vec<Filter> {
    let redirect = Target::Redirect(ifb);
    match shaped {
        Shaped::All => vec![Filter::all(1, redirect)],
        Shaped::Except(nets) => {
            let mut filters = of_networks(nets, Side::Destination, Target::Pass);
            filters.push(Filter::all(3, redirect));
            filters
        }
        Shaped::Only(nets) => of_networks(nets, Side::Destination, redirect),
    }
}

/// Filters of one priority have one protocol.
fn of_networks(nets: &[IpNet], side: Side, target: Target) -> Vec<Filter> {
    nets.iter().map(|net| Filter::network(if net.addr().is_ipv4() { 1 } else { 2 }, *net, side, target)).collect()
}

/// Takes away what [`ingress`] (`root`) and [`egress`] (`filters`) have put on the host's end, if it is still there.
pub(super) fn undo(netlink: &mut Netlink, outer: u32, root: bool, filters: bool) -> Result<(), CniError> {
    let gone = |request: Request<'static>| request.tolerate(Errno::ENODEV).tolerate(Errno::ENOENT);
    let requests = [root.then(|| tc::delete_root(outer)), filters.then(|| tc::delete_ingress(outer))];
    match netlink.send(requests.into_iter().flatten().map(gone).collect()) {
        // EINVAL: nothing of the kind is there.
        Err(e) if e.failures().any(|f| f.errno != Errno::EINVAL) => Err(internal(e)),
        _ => Ok(()),
    }
}

/// Refuses a link that somebody else shapes: what is there would be lost, or ours would not hold.
pub(super) fn is_free(netlink: &mut Netlink, outer: &Link, conf: &Conf) -> Result<(), CniError> {
    let name = &outer.name;
    if let Some(root) = conf.ingress.map(|_| netlink.root_qdisc(outer.index)).transpose().map_err(internal)?.flatten() {
        let kind = root.kind;
        return Err(internal(format!(
            "create qdisc: {name} has one already, a {kind}: tc qdisc del dev {name} root, or chain bandwidth once"
        )));
    }
    if conf.egress.map(|_| netlink.ingress_qdisc(outer.index)).transpose().map_err(internal)?.flatten().is_some() {
        return Err(internal(format!(
            "create ingress qdisc: {name} has one already: tc qdisc del dev {name} ingress, or chain bandwidth once"
        )));
    }
    Ok(())
}

/// CHECK: the host's end.
pub(super) fn ingress_unchanged(netlink: &mut Netlink, outer: &Link, conf: &Conf) -> Result<(), CniError> {
    let Some(limit) = conf.ingress else { return Ok(()) };
    root_unchanged(netlink, outer, limit, root(limit, &conf.shaped))?;
    if conf.shaped != Shaped::All {
        let classes = netlink.classes(outer.index).map_err(internal)?;
        match classes.iter().find(|class| class.handle == tc::ROOT | CLASS) {
            None => return Err(verify::changed(&outer.name, "its class 1:1, which limits the rate, is gone")),
            Some(class) => bucket_unchanged(&outer.name, limit, class.bucket)?,
        }
        match netlink.class_qdisc(outer.index, CLASS).map_err(internal)?.and_then(|q| q.root) {
            Some(SeenRoot::Bfifo { limit: queue }) => queue_unchanged(&outer.name, limit, queue)?,
            _ => return Err(verify::changed(&outer.name, "the queue of its class 1:1 is gone, a bfifo")),
        }
    }
    filters_unchanged(netlink, outer, tc::ROOT, &around(&conf.shaped))
}

/// CHECK: the host's end, and the link that its packets are led to.
pub(super) fn egress_unchanged(netlink: &mut Netlink, outer: &Link, ifb: &Link, conf: &Conf) -> Result<(), CniError> {
    let Some(limit) = conf.egress else { return Ok(()) };
    if !ifb.flags.up() {
        return Err(verify::changed(&ifb.name, "it is down"));
    }
    root_unchanged(netlink, ifb, limit, Root::Tbf(limit.tbf()))?;
    filters_unchanged(netlink, outer, tc::INGRESS, &aside(&conf.shaped, ifb.index))
}

fn root_unchanged(netlink: &mut Netlink, link: &Link, limit: Limit, wanted: Root) -> Result<(), CniError> {
    let found = netlink.root_qdisc(link.index).map_err(internal)?;
    match (found.as_ref().and_then(|q| q.root), wanted) {
        (Some(SeenRoot::Tbf { limit: queue, bucket }), Root::Tbf(_)) => {
            bucket_unchanged(&link.name, limit, bucket)?;
            queue_unchanged(&link.name, limit, queue)
        }
        (Some(SeenRoot::Htb { default: found }), Root::Htb { default }) if found == default => Ok(()),
        _ => {
            let there = found.map_or("none".to_owned(), |q| q.kind);
            Err(verify::changed(&link.name, format!("Failed to find qdisc {}: there is {there}", wanted.kind())))
        }
    }
}

fn queue_unchanged(name: &str, limit: Limit, found: u32) -> Result<(), CniError> {
    match limit.is_queue(found) {
        true => Ok(()),
        false => Err(verify::changed(name, format!("Limit doesn't match: {found} bytes may be queued, not {}", limit.queue()))),
    }
}

fn bucket_unchanged(name: &str, limit: Limit, found: tc::SeenBucket) -> Result<(), CniError> {
    let wanted = limit.bucket;
    if found.rate != wanted.rate {
        return Err(verify::changed(name, format!("Rate doesn't match: it is {} bit/s, not {}", found.rate * 8, wanted.rate * 8)));
    }
    match wanted.is(found) {
        true => Ok(()),
        false => Err(verify::changed(
            name,
            format!("Buffer doesn't match: a burst of {} bits, not {}", found.burst() * 8, u64::from(wanted.burst) * 8),
        )),
    }
}

/// What others have added is their affair.
fn filters_unchanged(netlink: &mut Netlink, outer: &Link, parent: u32, wanted: &[Filter]) -> Result<(), CniError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let there = netlink.filters(outer.index, parent).map_err(internal)?;
    match wanted.iter().find(|filter| !there.contains(filter)) {
        Some(gone) => Err(verify::changed(&outer.name, format!("it has lost the filter {gone}"))),
        None => Ok(()),
    }
}
