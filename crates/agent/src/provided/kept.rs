//! What an agent knew last of its node's part of the network: a node that starts while its API server is away has it at once.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cni::{CniError, NetworkList};
use ipnet::IpNet;
use linux::file::{self, Durability, Links, ReadError};
use serde::{Deserialize, Serialize};

use super::{Addresses, Source, gateway, list};

/// More than the file ever has: the ranges of the largest clusters, none of which join.
const MAX_FILE: usize = 4 << 20;
/// The name of the file in `stateDir`.
const FILE: &str = "cluster-network.json";

/// The file's content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Kept {
    /// What pods get addresses of.
    pub(crate) ranges: Vec<IpNet>,
    /// What pods got addresses of before: of each, one may still have an address.
    pub(crate) former: Vec<IpNet>,
    /// What pods' links get.
    pub(crate) mtu: Option<u32>,
    /// The gateways of pools; `None` where each range has one of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gateways: Option<Vec<IpAddr>>,
    /// What else the bridge has as pods' gateways, of former ranges and of pools that had others: a running pod may use each.
    pub(crate) former_gateways: Vec<IpNet>,
    /// Where a pod's own address is seen ([`between::Plan::inside`]), in as few ranges as there can be; `None`: no plan has said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inside: Option<Vec<IpNet>>,
    /// Where packets leave encrypted or not at all ([`between::Plan::closed`]), likewise; `None`: no plan with WireGuard has said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) closed: Option<Vec<IpNet>>,
}

// === impl Kept ===

impl Kept {
    /// What is there; nothing, with the reason, if it cannot be read. Where it is of another source, its ranges are former ones.
    pub(crate) fn read(state_dir: &Path, source: Source) -> (Self, Option<String>) {
        let path = path(state_dir);
        let read = match file::read(&path, MAX_FILE, Links::Refused) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| format!("{}: {e}", path.display())),
            Err(ReadError::NotFound { .. }) => Ok(Kept::default()),
            Err(e) => Err(e.to_string()),
        };
        let (kept, why) = read.map_or_else(|why| (Kept::default(), Some(why)), |kept| (kept, None));
        let gateways = (source == Source::Pools).then(Vec::new);
        let is_same = kept.gateways.is_some() == gateways.is_some();
        (if is_same { kept } else { kept.with(Vec::new(), kept.mtu, gateways, |_| true) }, why)
    }

    /// Writes it, on the disk when this returns.
    pub(crate) fn write(&self, state_dir: &Path) -> Result<(), String> {
        let bytes = serde_json::to_vec(self).map_err(|e| e.to_string())?;
        file::write_atomic(&path(state_dir), &bytes, 0o600, Durability::Durable).map_err(|e| e.to_string())
    }

    /// The default network of pods; `None` without a gateway, or where they have addresses of ranges and there is none. A node gets blocks of
    /// pools when a pod needs one. `strict`: they send with their own addresses only.
    pub(crate) fn list(&self, strict: bool) -> Result<Option<Arc<NetworkList>>, CniError> {
        let addresses = match &self.gateways {
            None if self.ranges.is_empty() => return Ok(None),
            None => Addresses::Ranges(&self.ranges),
            Some(gateways) if gateways.is_empty() => return Ok(None),
            Some(_) => Addresses::Pools,
        };
        list(addresses, self.mtu, strict).map(|list| Some(Arc::new(list)))
    }

    /// What is to be kept when pods get addresses of these ranges from now on. `may_be_used`: whether a pod may have an address of one that
    /// is not among them.
    pub(crate) fn with(
        &self,
        ranges: Vec<IpNet>,
        mtu: Option<u32>,
        gateways: Option<Vec<IpAddr>>,
        may_be_used: impl Fn(&IpNet) -> bool,
    ) -> Self {
        let before = self.ranges.iter().filter(|range| may_be_used(range)).chain(&self.former).copied();
        let former: BTreeSet<IpNet> = before.filter(|range| !ranges.contains(range)).collect();
        let mut now = Kept { ranges, former: former.into_iter().collect(), mtu, gateways, ..self.clone() };
        let current = now.current_gateways();
        let before: BTreeSet<IpNet> = self.current_gateways().into_iter().chain(self.former_gateways.iter().copied()).collect();
        now.former_gateways = before.into_iter().filter(|gateway| !current.contains(gateway)).collect();
        now
    }

    /// The gateways of pods that are made from now on, as the bridge has them. A pool's has no subnet: its ranges are routed ([`Kept::routed`]).
    fn current_gateways(&self) -> Vec<IpNet> {
        match &self.gateways {
            None => self.ranges.iter().filter_map(gateway::of).collect(),
            Some(gateways) => gateways.iter().copied().map(IpNet::from).collect(),
        }
    }

    /// The address by which the pods' bridge is the gateway of a range; `None` if it has none.
    pub(crate) fn gateway_of(&self, range: &IpNet) -> Option<IpNet> {
        let former = self.former_gateways.iter().find(|gateway| gateway.trunc() == *range);
        former.copied().or_else(|| match &self.gateways {
            None => gateway::of(range),
            Some(gateways) => gateways.iter().copied().find(|gateway| gateway.is_ipv4() == range.addr().is_ipv4()).map(IpNet::from),
        })
    }

    /// All addresses that the pods' bridge has, but of ranges that another network has (`occupied`). The gateways of pools are those of all
    /// ranges.
    pub(crate) fn on_bridge(&self, occupied: &[IpNet]) -> Vec<IpNet> {
        let of_pools = self.gateways.is_some();
        let is_free = |gateway: &IpNet| !occupied.contains(&gateway.trunc()) && (!of_pools || occupied.is_empty());
        let former = self.former_gateways.iter().filter(|gateway| !occupied.contains(&gateway.trunc())).copied();
        self.current_gateways().into_iter().filter(is_free).chain(former).collect()
    }

    /// The ranges that no subnet of the bridge leads to, but those that another network has.
    pub(crate) fn routed(&self, occupied: &[IpNet]) -> Vec<IpNet> {
        let of_pools = self.gateways.is_some();
        let ranges = self.ranges.iter().filter(|_| of_pools && occupied.is_empty());
        let all = ranges.chain(self.former.iter().filter(|range| !occupied.contains(range)));
        all.filter(|range| self.is_block(range)).copied().collect()
    }

    /// Whether a range, also a former one, is a block of a pool, which has no subnet on the bridge.
    pub(crate) fn is_block(&self, range: &IpNet) -> bool {
        let mut all = self.current_gateways().into_iter().chain(self.former_gateways.iter().copied());
        !all.any(|gateway| gateway.trunc().contains(range))
    }
}

/// Ranges as few as they can be, which contain the same addresses.
pub(crate) fn joined_up(ranges: &BTreeSet<IpNet>) -> Vec<IpNet> {
    IpNet::aggregate(&ranges.iter().copied().collect())
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn a_range_that_is_given_again_is_former_no_longer() {
        let first = Kept::default().with(vec![net("10.1.1.0/24")], Some(1500), None, |_| true);
        assert_eq!(first.former, []);
        let second = first.with(vec![net("10.1.2.0/24")], Some(1450), None, |_| true);
        assert_eq!(second.former, [net("10.1.1.0/24")]);
        let third = second.with(vec![net("10.1.1.0/24")], Some(1450), None, |_| true);
        assert_eq!((third.ranges, third.former), (vec![net("10.1.1.0/24")], vec![net("10.1.2.0/24")]));
    }

    #[test]
    fn a_block_that_no_pod_has_an_address_of_is_given_back_at_once() {
        let used = net("10.20.0.0/26");
        let first = Kept::default().with(vec![used, net("10.20.0.64/26")], None, Some(vec![]), |_| true);
        let second = first.with(vec![net("10.20.0.128/26")], None, Some(vec![]), |range| *range == used);
        assert_eq!(second.former, [used]);
    }

    #[test]
    fn pools_have_their_gateways_alone_and_need_one() {
        let ranges = [net("10.20.0.64/26"), net("fd00:20::100/120")];
        let mut kept = Kept { ranges: ranges.to_vec(), gateways: Some(vec![]), ..Kept::default() };
        assert!(kept.list(true).unwrap().is_none() && kept.on_bridge(&[]).is_empty());
        kept.gateways = Some(["10.20.0.1", "fd00:20::1"].map(|text| text.parse().unwrap()).to_vec());
        assert!(kept.list(true).unwrap().is_some());
        assert_eq!(kept.on_bridge(&[]), [net("10.20.0.1/32"), net("fd00:20::1/128")]);
        assert_eq!(kept.on_bridge(&ranges[..1]), [], "another network has a block");
        assert_eq!((kept.gateway_of(&ranges[1]), kept.routed(&[])), (Some(net("fd00:20::1/128")), ranges.to_vec()));
        let of_nodes = Kept { gateways: None, ..kept.clone() };
        assert_eq!((of_nodes.gateway_of(&ranges[0]), of_nodes.routed(&[])), (Some(net("10.20.0.65/26")), vec![]));
        kept.ranges.clear();
        assert!(kept.list(true).unwrap().is_some(), "the first pod brings the first block");
    }

    /// Its pods have it as their gateway.
    #[test]
    fn a_pools_former_gateway_stays_on_the_bridge() {
        let gateways = |text: &str| Some(vec![text.parse().unwrap()]);
        let first = Kept::default().with(vec![net("10.20.0.0/26")], None, gateways("10.20.0.1"), |_| true);
        let second = first.with(vec![net("10.20.0.0/26")], None, gateways("10.20.0.2"), |_| true);
        assert_eq!(second.on_bridge(&[]), [net("10.20.0.2/32"), net("10.20.0.1/32")]);
        let third = second.with(vec![net("10.20.0.0/26")], None, gateways("10.20.0.1"), |_| true);
        assert_eq!((third.on_bridge(&[]).len(), third.former_gateways), (2, vec![net("10.20.0.2/32")]));
    }

    /// The first address of a block may be a pod's, and the subnet of a Node's range still leads to its pods.
    #[test]
    fn each_former_range_keeps_the_gateway_that_it_had() {
        let gateway: IpAddr = "10.20.0.1".parse().unwrap();
        let of_pools = Kept::default().with(vec![net("10.20.0.64/26")], None, Some(vec![gateway]), |_| true);
        let of_nodes = of_pools.with(vec![net("10.1.1.0/24")], None, None, |_| true);
        assert_eq!(of_nodes.on_bridge(&[]), [net("10.1.1.1/24"), net("10.20.0.1/32")]);
        assert_eq!(of_nodes.routed(&[]), [net("10.20.0.64/26")]);
        let back = of_nodes.with(vec![net("10.20.0.128/26")], None, Some(vec![gateway]), |_| true);
        assert_eq!(back.on_bridge(&[]), [net("10.20.0.1/32"), net("10.1.1.1/24")]);
        assert_eq!(back.routed(&[]), [net("10.20.0.128/26"), net("10.20.0.64/26")]);
        assert_eq!(back.gateway_of(&net("10.1.1.0/24")), Some(net("10.1.1.1/24")));
    }

    #[test]
    fn what_was_written_is_read_and_what_is_no_file_of_ours_is_told() {
        let dir = std::env::temp_dir().join(format!("netloom-provided-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let read = || Kept::read(&dir, Source::PodCidrs);
        assert_eq!(read(), (Kept::default(), None));
        let ranges = vec![net("10.1.1.0/24"), net("fd00:1::/64")];
        let kept = Kept {
            ranges: ranges.clone(),
            former: vec![net("10.9.0.0/16")],
            mtu: Some(1450),
            inside: Some(vec![net("10.0.0.0/8")]),
            closed: Some(vec![]),
            ..Kept::default()
        };
        kept.write(&dir).unwrap();
        assert_eq!(read(), (kept, None));
        let (of_pools, _) = Kept::read(&dir, Source::Pools);
        assert_eq!(
            (of_pools.ranges, of_pools.former.len(), of_pools.gateways),
            (vec![], 3, Some(vec![])),
            "no pod gets an address of them"
        );
        std::fs::write(dir.join(FILE), "{").unwrap();
        let (nothing, why) = read();
        assert!(nothing == Kept::default() && why.as_ref().is_some_and(|why| why.contains(FILE)), "{why:?}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
