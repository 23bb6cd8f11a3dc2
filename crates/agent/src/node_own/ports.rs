//! Ports of a guarded bridge that no guard knows. Of an external plugin nobody knows which bridge its keys mean: the pod's interfaces tell,
//! once it has run.
//!
//! ```text
//!   pod: net1 --its other end--> host: veth7 --port of--> cni0, the default network's bridge: is there a guard for veth7?
//!   pod: net1 --stands on------> host: cni0, or a VLAN of it: sends with any address
//! ```

use std::collections::BTreeSet;
use std::path::Path;

use linux::link::Link;
use linux::{Netlink, Netns};

use super::ThisNode;

impl ThisNode<'_> {
    /// The interface of the pod with this namespace by which it may send with any address on a bridge whose ports are guarded, in words; not
    /// one of `others`, which are other attachments'.
    pub(crate) fn past_guards(&self, netns: &Path, others: &BTreeSet<&str>) -> Option<String> {
        if self.given.iter().all(|given| given.guards.is_empty()) {
            return None;
        }
        let unknown = |e: String| Some(format!("an interface that may be a port of a guarded bridge ({e})"));
        self.look_past_guards(netns, others).unwrap_or_else(unknown)
    }

    fn look_past_guards(&self, netns: &Path, others: &BTreeSet<&str>) -> Result<Option<String>, String> {
        let Some(netns) = Netns::open(netns).map_err(|e| e.to_string())? else { return Ok(None) };
        let inside = netns.enter(|inside| Netlink::open(inside).map_err(|e| e.to_string())?.links().map_err(|e| e.to_string()));
        let inside = inside.map_err(|e| e.to_string())??;
        let mut guarded = None;
        for link in inside.iter().filter(|link| link.link_netnsid.is_some() && !others.contains(link.name.as_str())) {
            let outside = self.links()?.iter().find(|outside| Some(outside.index) == link.parent);
            let Some(outside) = outside.filter(|outside| !link.is("veth") || is_other_end(link, outside)) else { continue };
            let Some(why) = self.is_of_guarded(outside) else { continue };
            if link.is("veth") {
                // The kernel is asked only where there is such a port.
                let guarded: &BTreeSet<String> = match &guarded {
                    Some(guarded) => guarded,
                    None => guarded.insert(self.guarded_ports()?),
                };
                if guarded.contains(&outside.name) {
                    continue;
                }
            }
            return Ok(Some(format!("{}, by {} of the node: {why}", link.name, outside.name)));
        }
        Ok(None)
    }

    /// Of what bridge a link is a port, or on what bridge it stands, whose ports are guarded, in words.
    fn is_of_guarded(&self, link: &Link) -> Option<String> {
        let master = link.master.and_then(|master| self.links().ok()?.iter().find(|link| link.index == master));
        master.into_iter().chain([link]).find_map(|link| self.is_guarded(link))
    }

    /// The ports for which there is a guard, by name.
    fn guarded_ports(&self) -> Result<BTreeSet<String>, String> {
        let mut host = self.host.borrow_mut();
        if !host.has_nft().map_err(|e| e.to_string())? {
            return Ok(BTreeSet::new());
        }
        let elements = rules::all(host.nft().map_err(|e| e.to_string())?, &rules::GUARDS).map_err(|e| e.to_string())?;
        let port = |element: &linux::nft::SetElement| rules::guarded_port(element).or_else(|| rules::strict_port(element));
        Ok(elements.iter().filter_map(|(_, element)| port(element)).collect())
    }
}

/// Whether two are the ends of one pair: each has the other's index.
fn is_other_end(inside: &Link, outside: &Link) -> bool {
    outside.is("veth") && inside.parent == Some(outside.index) && outside.parent == Some(inside.index) && outside.link_netnsid.is_some()
}
