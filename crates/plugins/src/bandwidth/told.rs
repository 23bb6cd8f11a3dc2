//! Limits as they are now on the links of a host, for whoever shows what is installed.

use std::collections::HashMap;

use linux::tc::{self, SeenBucket, SeenRoot, Target};
use linux::{Netlink, ReadError};

use super::shape::CLASS;

/// How fast one direction may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    /// Bits in a second.
    pub bits: u64,
    /// Bits that may pass at once.
    pub burst: u64,
    /// Whether there are networks to or from which it does not hold.
    pub partly: bool,
}

/// What the container behind one link of the host may do. Directions are the container's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Limits {
    /// The host's end of its pair.
    pub link: String,
    /// What it receives.
    pub ingress: Option<Rate>,
    /// What it sends.
    pub egress: Option<Rate>,
}

/// The limits of every container of this namespace, whichever implementation of `bandwidth` made them
/// (`tc qdisc show`, `tc class show`, `tc filter show`), by the links' names.
///
/// # Errors
/// [`ReadError`]
pub fn limits(netlink: &mut Netlink) -> Result<Vec<Limits>, ReadError> {
    let links = netlink.links()?;
    let mut waits = HashMap::new();
    for ifb in links.iter().filter(|l| l.is("ifb")) {
        waits.extend(root(netlink, ifb.index)?.map(|rate| (ifb.index, rate)));
    }
    let mut all = Vec::new();
    for link in links.iter().filter(|l| l.is("veth")) {
        let ingress = root(netlink, link.index)?;
        let filters = if waits.is_empty() { Vec::new() } else { netlink.filters(link.index, tc::INGRESS)? };
        let led = filters.iter().find_map(|f| if let Target::Redirect(ifb) = f.target { waits.get(&ifb) } else { None });
        let partly = filters.iter().any(|f| !f.keys.is_empty());
        let egress = led.map(|rate| Rate { partly, ..*rate });
        if ingress.is_some() || egress.is_some() {
            all.push(Limits { link: link.name.clone(), ingress, egress });
        }
    }
    all.sort();
    Ok(all)
}

/// What leaves by a link.
fn root(netlink: &mut Netlink, index: u32) -> Result<Option<Rate>, ReadError> {
    let rate = |bucket: SeenBucket, partly| Rate { bits: bucket.rate * 8, burst: bucket.burst() * 8, partly };
    match netlink.root_qdisc(index)?.and_then(|q| q.root) {
        Some(SeenRoot::Tbf { bucket, .. }) => Ok(Some(rate(bucket, false))),
        Some(SeenRoot::Htb { .. }) => {
            let classes = netlink.classes(index)?;
            let class = classes.iter().find(|class| class.handle == tc::ROOT | CLASS);
            Ok(class.map(|class| rate(class.bucket, true)))
        }
        _ => Ok(None),
    }
}
