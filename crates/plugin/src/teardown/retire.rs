//! A teardown in two halves, for a caller that outlives the call.
//!
//! ```text
//!   retire   rule elements -> devices given back -> links carry nothing any more
//!   commit   the same again, which finds it done -> links (all host ends of many pods at once) -> leases -> files
//! ```
//!
//! To delete a veth pair or a macvlan costs the kernel an RCU grace period (10 to 30 ms), and so does setting a macvlan
//! down. The host's end of a pair set down and taken off its bridge takes 0.3 ms, a macvlan in mode `source` without a
//! source 0.03 ms: neither receives anything from then on. Nothing is renamed, so what a link is known by stays true. A kind
//! with no such way goes in the first half.

use std::collections::HashSet;
use std::sync::Arc;

use cni::CniError;
use linux::link::{self, Change, MacvlanMode};
use linux::{Batch, Errno, Netns};

use super::{Failure, Link, LinkIdentity, LinkToDelete, Netlink, Run, Stage, Teardown, delete, internal, netns_id, open};
use crate::Host;

/// How many namespaces are entered at the same time.
const AT_ONCE: usize = 16;

// === impl Teardown ===

impl Teardown {
    /// Whether [`Teardown::retire`] gains something and loses nothing: there are links, each will be found again by what it
    /// is known by, and nobody else has to be asked to delete one.
    pub fn can_retire(&self) -> bool {
        let elsewhere = |l: &LinkToDelete| l.netns.is_none() && !matches!(l.mark, LinkIdentity::Name(_));
        !self.links.is_empty()
            && self.links.iter().all(|(_, l)| l.lasting && !elsewhere(l))
            && !self.steps.iter().any(|s| s.stage == Stage::Links)
    }

    /// The first half: rule elements go, devices are given back, and links carry nothing any more. They are still there, and
    /// so are leases and files: what is to go has to be collected and committed again. Empty afterwards.
    ///
    /// # Errors
    /// Every failure, in the order in which they happened; a commit tries all of it again.
    pub fn retire(&mut self, host: &mut Host) -> Result<(), Vec<CniError>> {
        let Teardown { elements, links, mut steps, .. } = std::mem::take(self);
        let mut run = Run::new(host);
        run.elements(elements);
        linux::crash_point!("retire-elements-gone");
        steps.retain(|s| s.stage == Stage::Devices);
        run.steps(steps);
        linux::crash_point!("retire-devices-back");
        run.quiet(links);
        linux::crash_point!("retire-links-quiet");
        if run.failures.is_empty() { Ok(()) } else { Err(run.failures.into_iter().map(|f| f.error).collect()) }
    }

    /// [`Teardown::commit`] for many pods: the host's ends of their pairs go together, in one grace period for all, and take
    /// the other ends along, also those in namespaces that are being deleted meanwhile. Where a namespace is still there, and
    /// has more than pairs, all that is in it follows at once.
    pub fn commit_many(&mut self, host: &mut Host) -> Vec<Failure> {
        self.commit_with(host, |run, links| run.links_of_many(links))
    }
}

// === impl Run ===

impl Run<'_> {
    /// Links of the host first: a pod is off its bridge before anything of it is looked at.
    fn quiet(&mut self, links: Vec<(usize, LinkToDelete)>) {
        let (outer, mut inner): (Vec<_>, Vec<_>) = links.into_iter().partition(|(_, l)| is_of_the_host(l));
        let scopes: Vec<usize> = outer.iter().map(|(scope, _)| *scope).collect();
        if let Err(e) = self.host.netlink().and_then(|netlink| set_outer_ends_down(netlink, &outer)) {
            self.fail(scopes, e.within("take links of the host down"));
        }
        linux::crash_point!("retire-outer-ends-down");
        while let Some(ns) = inner.first().and_then(|(_, l)| l.netns.clone()) {
            let (here, others): (Vec<_>, Vec<_>) = inner.into_iter().partition(|(_, l)| netns_id(l) == Some(ns.id()));
            inner = others;
            let links: Vec<&LinkToDelete> = here.iter().map(|(_, l)| l).collect();
            let done = ns.enter(|inside| silence(&mut open(inside)?, &links)).map_err(internal).and_then(|r| r);
            if let Err(e) = done {
                let path = ns.path().display().to_string();
                self.fail(here.iter().map(|(scope, _)| *scope), e.within(format!("silence the links in {path}")));
            }
        }
    }

    fn links_of_many(&mut self, links: Vec<(usize, LinkToDelete)>) {
        // A namespace that has to be entered anyway loses its pairs there, in the same grace period.
        let entered: HashSet<_> = links.iter().filter(|(_, l)| !is_of_the_host(l)).map(|(_, l)| netns_id(l)).collect();
        let links = links.into_iter().filter(|(scope, _)| !self.failed.contains(scope));
        let (outer, inner): (Vec<_>, Vec<_>) = links.partition(|(_, l)| is_of_the_host(l) && !entered.contains(&netns_id(l)));
        if self.delete_outer_ends(&outer).is_err() && !outer.is_empty() {
            // One that cannot be deleted must not keep the others' addresses.
            for one in outer.chunk_by(|(a, _), (b, _)| a == b) {
                if let Err(e) = self.delete_outer_ends(one) {
                    let names: Vec<String> = one.iter().map(|(_, l)| l.mark.to_string()).collect();
                    self.fail(one.iter().map(|(scope, _)| *scope), e.within(format!("delete {}", names.join(", "))));
                }
            }
        }
        linux::crash_point!("teardown-outer-ends-gone");
        self.links_inside(inner);
    }

    /// Each namespace on a thread of its own: grace periods in different namespaces overlap (16 pods on a busy machine: 120 to 170 ms instead of 330 on a calm one).
    fn links_inside(&mut self, mut links: Vec<(usize, LinkToDelete)>) {
        let mut namespaces = Vec::new();
        while let Some(ns) = links.first().and_then(|(_, l)| l.netns.clone()) {
            let (here, others): (Vec<_>, Vec<_>) = links.into_iter().partition(|(_, l)| netns_id(l) == Some(ns.id()));
            links = others;
            namespaces.push((ns, here));
        }
        for some in namespaces.chunks(AT_ONCE) {
            std::thread::scope(|scope| {
                let delete = |(ns, here): &(Arc<Netns>, Vec<(usize, LinkToDelete)>)| {
                    let links: Vec<&LinkToDelete> = here.iter().map(|(_, l)| l).collect();
                    // What fails is tried again below, and told there.
                    let _ = ns.enter(|inside| delete(&mut open(inside)?, &links));
                };
                // Where there is no thread to be had, below is early enough.
                some.iter().skip(1).for_each(|one| drop(std::thread::Builder::new().spawn_scoped(scope, move || delete(one))));
                some.iter().take(1).for_each(delete);
            });
        }
        self.links(namespaces.into_iter().flat_map(|(_, here)| here).chain(links).collect());
    }

    fn delete_outer_ends(&mut self, links: &[(usize, LinkToDelete)]) -> Result<(), CniError> {
        if links.is_empty() {
            return Ok(());
        }
        let netlink = self.host.netlink()?;
        let indices: Vec<u32> = outer_ends(netlink, links)?.into_iter().map(|l| l.index).collect();
        netlink.delete_together(&indices).map_err(internal)
    }
}

/// Whether it can be found in the host's namespace, whatever became of the container's.
fn is_of_the_host(l: &LinkToDelete) -> bool {
    match l.mark {
        LinkIdentity::Pair { .. } => true,
        LinkIdentity::Name(_) => l.netns.is_none(),
        LinkIdentity::Group(_) | LinkIdentity::Foreign(_) => false,
    }
}

/// Those that are still there. Asked for one by one: a host has many others.
fn outer_ends(netlink: &mut Netlink, links: &[(usize, LinkToDelete)]) -> Result<Vec<Link>, CniError> {
    let mut found = Vec::with_capacity(links.len());
    for (_, link_to_delete) in links {
        let link = match &link_to_delete.mark {
            LinkIdentity::Pair { outer, .. } => netlink.link_by_index(*outer),
            LinkIdentity::Name(name) => netlink.link(name.as_str()),
            LinkIdentity::Group(_) | LinkIdentity::Foreign(_) => Ok(None),
        };
        found.extend(link.map_err(internal)?.filter(|l| l.is(link_to_delete.kind)));
    }
    Ok(found)
}

/// `ip link set down nomaster`
fn set_outer_ends_down(netlink: &mut Netlink, links: &[(usize, LinkToDelete)]) -> Result<(), CniError> {
    let change = |l: &Link| Change { up: Some(false), master: l.master.map(|_| 0), ..Change::default() };
    let found = outer_ends(netlink, links)?;
    let batch: Batch<'_> = found.iter().map(|l| link::set(l.index, &change(l)).tolerate(Errno::ENODEV)).collect();
    netlink.send(batch).map(drop).map_err(internal)
}

/// What is inside a container's namespace receives nothing any more. To set a link down costs the same grace period as to
/// delete it: so a vlan, an ipvlan or a macvlan in mode passthru, which keeps its mode, goes at once. A dummy has no wire.
fn silence(netlink: &mut Netlink, links: &[&LinkToDelete]) -> Result<(), CniError> {
    let there = netlink.links().map_err(internal)?;
    let ours = there.iter().filter(|l| links.iter().any(|link_to_delete| link_to_delete.is(l)));
    let (mut batch, mut now) = (Batch::new(), Vec::new());
    for l in ours.filter(|l| !l.is("dummy")) {
        match l.macvlan {
            Some(macvlan) if macvlan.mode != MacvlanMode::Passthru => {
                let request = link::set_macvlan_mode(l.index, MacvlanMode::Source);
                batch.push(request.called(format!("silence {}", l.name)).tolerate(Errno::ENODEV));
            }
            _ => now.push(l.index),
        }
    }
    let silent = netlink.send(batch).map(drop).map_err(internal);
    netlink.delete_together(&now).map_err(internal)?;
    silent
}
