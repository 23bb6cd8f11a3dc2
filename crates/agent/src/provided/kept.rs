//! What an agent knew last of its node's part of the network: a node that starts while its API server is away has it at once.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cni::{CniError, NetworkList};
use ipnet::IpNet;
use linux::file::{self, Durability, Links, ReadError};
use serde::{Deserialize, Serialize};

use super::gateway::Occupant;
use super::{Addresses, PodPorts, Source, gateway, list};
use crate::log::Line;

/// More than the largest clusters need: the ranges of 5,000 nodes with ten blocks each of each family, none of which join, twice. Of more, the
/// ranges of other nodes are left out.
const MAX_FILE: usize = 16 << 20;
/// The name of the file in `stateDir`.
const FILE: &str = "cluster-network.json";

/// The file's content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SavedNetwork {
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
    /// Where vxlan packets came from ([`between::Plan::endpoints`]), none if no tunnel was used; `None`: no plan with vxlan has said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) endpoints: Option<Vec<IpAddr>>,
}

// === impl SavedNetwork ===

impl SavedNetwork {
    /// What is there; nothing, with the reason, if it cannot be read. Where it is of another source, its ranges are former ones.
    pub(crate) fn read(state_dir: &Path, source: Source) -> (Self, Option<String>) {
        let path = path(state_dir);
        let read = match file::read(&path, MAX_FILE, Links::Refused) {
            Ok(bytes) => SavedNetwork::parse(&bytes).map_err(|e| format!("{}: {e}", path.display())),
            Err(ReadError::NotFound { .. }) => Ok(SavedNetwork::default()),
            Err(e) => Err(e.to_string()),
        };
        let (kept, why) = read.map_or_else(|why| (SavedNetwork::default(), Some(why)), |kept| (kept, None));
        let gateways = (source == Source::Pools).then(Vec::new);
        let is_same = kept.gateways.is_some() == gateways.is_some();
        (if is_same { kept } else { kept.with(Vec::new(), kept.mtu, gateways, |_| true) }, why)
    }

    /// A file's content. Before agents wrote `formerGateways`, each range was a Node's own: the bridge has the first address of the former ones.
    fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        let content: serde_json::Value = serde_json::from_slice(bytes)?;
        let lacks_gateways = content.get("formerGateways").is_none();
        let mut kept: SavedNetwork = serde_json::from_value(content)?;
        if lacks_gateways && kept.gateways.is_none() {
            kept.former_gateways = kept.former.iter().filter_map(gateway::of).collect();
        }
        Ok(kept)
    }

    /// Writes it, on the disk when this returns.
    pub(crate) fn write(&self, state_dir: &Path) -> Result<(), String> {
        let path = path(state_dir);
        let (bytes, cut) = self.encoded(MAX_FILE).map_err(|e| format!("{}: {e}", path.display()))?;
        if let Some(cut) = cut {
            Line::warn("cluster network").with("file", path.display()).with("left_out", cut).end();
        }
        file::write_atomic(&path, &bytes, 0o600, Durability::Durable).map_err(|e| e.to_string())
    }

    /// The file's content, with no more bytes than are read again; and what is left out for that. The own node's ranges never are.
    fn encoded(&self, most: usize) -> Result<(Vec<u8>, Option<String>), String> {
        let bytes = serde_json::to_vec(self).map_err(|e| e.to_string())?;
        if bytes.len() <= most {
            return Ok((bytes, None));
        }
        let cut = SavedNetwork { inside: None, closed: None, endpoints: None, ..self.clone() };
        let less = serde_json::to_vec(&cut).map_err(|e| e.to_string())?;
        if less.len() > most {
            return Err(format!("the ranges and gateways of this node alone would be {} bytes, and {most} are the most", less.len()));
        }
        let [inside, closed] = [&self.inside, &self.closed].map(|ranges| ranges.as_ref().map_or(0, Vec::len));
        let endpoints = self.endpoints.as_ref().map_or(0, Vec::len);
        Ok((
            less,
            Some(format!(
                "the {inside} ranges that are not masqueraded and the {closed} that are encrypted or closed, and the {endpoints} addresses that \
                 vxlan packets come from, because the file would be {} bytes, and {most} are the most: an agent that starts while the API server is away \
                 waits for it before pods get the network, or before it masquerades; use larger blocks (blockPrefix), so that there are fewer",
                bytes.len()
            )),
        ))
    }

    /// The default network of pods; `None` without a gateway, or where they have addresses of ranges and there is none. A node gets blocks of
    /// pools when a pod needs one.
    pub(crate) fn list(&self, ports: PodPorts) -> Result<Option<Arc<NetworkList>>, CniError> {
        let addresses = match &self.gateways {
            None if self.ranges.is_empty() => return Ok(None),
            None => Addresses::Ranges(&self.ranges),
            Some(gateways) if gateways.is_empty() => return Ok(None),
            Some(_) => Addresses::Pools,
        };
        list(addresses, self.mtu, ports).map(|list| Some(Arc::new(list)))
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
        let mut now = SavedNetwork { ranges, former: former.into_iter().collect(), mtu, gateways, ..self.clone() };
        let current = now.current_gateways();
        let before: BTreeSet<IpNet> = self.current_gateways().into_iter().chain(self.former_gateways.iter().copied()).collect();
        now.former_gateways = before.into_iter().filter(|gateway| !current.contains(gateway)).collect();
        now
    }

    /// The gateways of pods that are made from now on, as the bridge has them. A pool's has no subnet: its ranges are routed ([`SavedNetwork::routed`]).
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

    /// The address by which the bridge shows that pods of its own use a range, or a gateway; `None` of what is new, whatever the bridge has.
    pub(crate) fn proof_of(&self, range: &IpNet) -> Option<IpNet> {
        match &self.gateways {
            Some(gateways) if !self.ranges.contains(range) && !self.former.contains(range) => {
                gateways.iter().copied().map(IpNet::from).find(|gateway| gateway == range)
            }
            _ => self.gateway_of(range),
        }
    }

    /// What keeps a range, or a pool's gateway, that is new from being given to pods: pods may have addresses of it from another source, of which this one knows
    /// nothing. `there`: the addresses of the bridge.
    pub(crate) fn in_the_way(&self, range: &IpNet, there: &[IpNet]) -> Option<Occupant> {
        let overlaps = |other: &IpNet| other.contains(range) || range.contains(other);
        let mut subnets = self.former_gateways.iter().chain(there).filter(|net| gateway::is_subnet(net));
        let is_gateway = self.gateways.iter().flatten().any(|gateway| IpNet::from(*gateway) == *range);
        if is_gateway || self.ranges.contains(range) {
            return None;
        }
        if self.gateways.is_some() {
            return subnets.find(|net| overlaps(&net.trunc())).copied().map(Occupant::Subnet);
        }
        let of_node = |former: &IpNet| self.former_gateways.iter().any(|gateway| gateway.trunc().contains(former));
        self.former.iter().find(|former| overlaps(former) && !of_node(former)).copied().map(Occupant::Block)
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
        let first = SavedNetwork::default().with(vec![net("10.1.1.0/24")], Some(1500), None, |_| true);
        assert_eq!(first.former, []);
        let second = first.with(vec![net("10.1.2.0/24")], Some(1450), None, |_| true);
        assert_eq!(second.former, [net("10.1.1.0/24")]);
        let third = second.with(vec![net("10.1.1.0/24")], Some(1450), None, |_| true);
        assert_eq!((third.ranges, third.former), (vec![net("10.1.1.0/24")], vec![net("10.1.2.0/24")]));
    }

    #[test]
    fn a_block_that_no_pod_has_an_address_of_is_given_back_at_once() {
        let used = net("10.20.0.0/26");
        let first = SavedNetwork::default().with(vec![used, net("10.20.0.64/26")], None, Some(vec![]), |_| true);
        let second = first.with(vec![net("10.20.0.128/26")], None, Some(vec![]), |range| *range == used);
        assert_eq!(second.former, [used]);
    }

    #[test]
    fn pools_have_their_gateways_alone_and_need_one() {
        let ranges = [net("10.20.0.64/26"), net("fd00:20::100/120")];
        let mut kept = SavedNetwork { ranges: ranges.to_vec(), gateways: Some(vec![]), ..SavedNetwork::default() };
        assert!(kept.list(PodPorts::default()).unwrap().is_none() && kept.on_bridge(&[]).is_empty());
        kept.gateways = Some(["10.20.0.1", "fd00:20::1"].map(|text| text.parse().unwrap()).to_vec());
        assert!(kept.list(PodPorts::default()).unwrap().is_some());
        assert_eq!(kept.on_bridge(&[]), [net("10.20.0.1/32"), net("fd00:20::1/128")]);
        assert_eq!(kept.on_bridge(&ranges[..1]), [], "another network has a block");
        assert_eq!((kept.gateway_of(&ranges[1]), kept.routed(&[])), (Some(net("fd00:20::1/128")), ranges.to_vec()));
        let of_nodes = SavedNetwork { gateways: None, ..kept.clone() };
        assert_eq!((of_nodes.gateway_of(&ranges[0]), of_nodes.routed(&[])), (Some(net("10.20.0.65/26")), vec![]));
        kept.ranges.clear();
        assert!(kept.list(PodPorts::default()).unwrap().is_some(), "the first pod brings the first block");
    }

    /// Its pods have it as their gateway.
    #[test]
    fn a_pools_former_gateway_stays_on_the_bridge() {
        let gateways = |text: &str| Some(vec![text.parse().unwrap()]);
        let first = SavedNetwork::default().with(vec![net("10.20.0.0/26")], None, gateways("10.20.0.1"), |_| true);
        let second = first.with(vec![net("10.20.0.0/26")], None, gateways("10.20.0.2"), |_| true);
        assert_eq!(second.on_bridge(&[]), [net("10.20.0.2/32"), net("10.20.0.1/32")]);
        let third = second.with(vec![net("10.20.0.0/26")], None, gateways("10.20.0.1"), |_| true);
        assert_eq!((third.on_bridge(&[]).len(), third.former_gateways), (2, vec![net("10.20.0.2/32")]));
    }

    /// The first address of a block may be a pod's, and the subnet of a Node's range still leads to its pods.
    #[test]
    fn each_former_range_keeps_the_gateway_that_it_had() {
        let gateway: IpAddr = "10.20.0.1".parse().unwrap();
        let of_pools = SavedNetwork::default().with(vec![net("10.20.0.64/26")], None, Some(vec![gateway]), |_| true);
        let of_nodes = of_pools.with(vec![net("10.1.1.0/24")], None, None, |_| true);
        assert_eq!(of_nodes.on_bridge(&[]), [net("10.1.1.1/24"), net("10.20.0.1/32")]);
        assert_eq!(of_nodes.routed(&[]), [net("10.20.0.64/26")]);
        let back = of_nodes.with(vec![net("10.20.0.128/26")], None, Some(vec![gateway]), |_| true);
        assert_eq!(back.on_bridge(&[]), [net("10.20.0.1/32"), net("10.1.1.1/24")]);
        assert_eq!(back.routed(&[]), [net("10.20.0.128/26"), net("10.20.0.64/26")]);
        assert_eq!(back.gateway_of(&net("10.1.1.0/24")), Some(net("10.1.1.1/24")));
    }

    /// Each source of addresses has a memory of its own.
    #[test]
    fn no_pod_gets_an_address_that_one_may_have_from_another_source() {
        let gateway: IpAddr = "10.1.0.1".parse().unwrap();
        let range = net("10.1.1.0/24");
        let of_node = SavedNetwork::default().with(vec![range], None, None, |_| true);
        let of_pools = of_node.with(vec![], None, Some(vec![gateway]), |_| true);
        let subnet = Some(Occupant::Subnet(net("10.1.1.1/24")));
        for block in ["10.1.1.64/26", "10.1.1.0/24", "10.1.0.0/22"].map(net) {
            assert_eq!(of_pools.in_the_way(&block, &[]), subnet, "{block}");
        }
        let elsewhere = net("10.1.7.0/26");
        assert_eq!(of_pools.in_the_way(&elsewhere, &[net("10.1.0.1/32"), net("fe80::1/64")]), None);
        let foreign = net("10.1.7.1/24");
        assert_eq!(of_pools.in_the_way(&elsewhere, &[foreign]), Some(Occupant::Subnet(foreign)), "the file of an earlier agent is lost");
        let in_use = of_pools.with(vec![elsewhere], None, Some(vec![gateway]), |_| true);
        assert_eq!(in_use.in_the_way(&elsewhere, &[foreign]), None, "it has come later");
        let [other, own] = ["10.1.1.9/32", "10.1.0.1/32"].map(net);
        assert_eq!(of_pools.in_the_way(&other, &[]), subnet, "a gateway among them, before there is a block");
        assert_eq!(of_pools.in_the_way(&own, &[net("10.1.0.9/24")]), None, "the gateway that pods have");
        // And back, to a range around the block.
        let back = in_use.with(vec![], None, None, |_| true);
        assert_eq!(back.in_the_way(&net("10.1.0.0/16"), &[]), Some(Occupant::Block(elsewhere)));
        assert_eq!((back.in_the_way(&range, &[]), back.in_the_way(&net("10.1.1.0/25"), &[])), (None, None), "host-local has its leases");
    }

    #[test]
    fn a_new_block_is_looked_at_although_the_bridge_has_its_gateway() {
        let gateway: IpAddr = "10.1.0.1".parse().unwrap();
        let (had, former, new) = (net("10.1.1.0/26"), net("10.1.1.64/26"), net("10.1.1.128/26"));
        let kept = SavedNetwork { ranges: vec![had], former: vec![former], gateways: Some(vec![gateway]), ..SavedNetwork::default() };
        let of_gateway = Some(net("10.1.0.1/32"));
        assert_eq!([had, former, new].map(|range| kept.proof_of(&range)), [of_gateway, of_gateway, None]);
        assert_eq!((kept.proof_of(&net("10.1.0.1/32")), kept.proof_of(&net("10.1.0.2/32"))), (of_gateway, None));
        let of_nodes = SavedNetwork::default();
        assert_eq!(of_nodes.proof_of(&had), Some(net("10.1.1.1/26")));
    }

    /// Its running pods have them.
    #[test]
    fn a_file_without_former_gateways_has_those_of_its_former_ranges() {
        let older = br#"{"ranges":["10.1.2.0/24"],"former":["10.1.1.0/24","fd00:1::/64","10.9.9.9/32"],"mtu":1500}"#;
        let kept = SavedNetwork::parse(older).unwrap();
        assert_eq!(kept.former_gateways, [net("10.1.1.1/24"), net("fd00:1::1/64")]);
        assert_eq!(kept.on_bridge(&[]), [net("10.1.2.1/24"), net("10.1.1.1/24"), net("fd00:1::1/64")]);
        assert!(!kept.is_block(&net("10.1.1.0/24")));
        let newer = br#"{"former":["10.1.1.0/24"],"formerGateways":[],"ranges":[]}"#;
        assert_eq!(SavedNetwork::parse(newer).unwrap().former_gateways, [], "a block of a pool");
        let of_pools = br#"{"former":["10.1.1.0/24"],"gateways":["10.1.0.1"],"ranges":[]}"#;
        assert_eq!(SavedNetwork::parse(of_pools).unwrap().former_gateways, [], "as well");
    }

    /// A file that is too large to be read again would cost the node its own ranges as well.
    #[test]
    fn what_would_be_too_much_is_left_out_and_told() {
        let kept = SavedNetwork {
            ranges: vec![net("10.1.1.0/24")],
            inside: Some(vec![net("10.0.0.0/8"); 100]),
            closed: Some(vec![]),
            endpoints: Some(vec!["192.0.2.1".parse().unwrap()]),
            ..SavedNetwork::default()
        };
        let (whole, cut) = kept.encoded(MAX_FILE).unwrap();
        assert!(cut.is_none() && serde_json::from_slice::<SavedNetwork>(&whole).unwrap() == kept);
        let (less, cut) = kept.encoded(whole.len() - 1).unwrap();
        assert_eq!(
            serde_json::from_slice::<SavedNetwork>(&less).unwrap(),
            SavedNetwork { inside: None, closed: None, endpoints: None, ..kept.clone() }
        );
        assert!(cut.as_ref().is_some_and(|cut| cut.starts_with("the 100 ranges that are not masqueraded and the 0")), "{cut:?}");
        let told = kept.encoded(20).unwrap_err();
        assert!(told.starts_with("the ranges and gateways of this node alone would be"), "{told}");
    }

    #[test]
    fn what_was_written_is_read_and_what_is_no_file_of_ours_is_told() {
        let dir = std::env::temp_dir().join(format!("netloom-provided-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let read = || SavedNetwork::read(&dir, Source::PodCidrs);
        assert_eq!(read(), (SavedNetwork::default(), None));
        let ranges = vec![net("10.1.1.0/24"), net("fd00:1::/64")];
        let kept = SavedNetwork {
            ranges: ranges.clone(),
            former: vec![net("10.9.0.0/16")],
            mtu: Some(1450),
            inside: Some(vec![net("10.0.0.0/8")]),
            closed: Some(vec![]),
            ..SavedNetwork::default()
        };
        kept.write(&dir).unwrap();
        assert_eq!(read(), (kept, None));
        let (of_pools, _) = SavedNetwork::read(&dir, Source::Pools);
        assert_eq!(
            (of_pools.ranges, of_pools.former.len(), of_pools.gateways),
            (vec![], 3, Some(vec![])),
            "no pod gets an address of them"
        );
        std::fs::write(dir.join(FILE), "{").unwrap();
        let (nothing, why) = read();
        assert!(nothing == SavedNetwork::default() && why.as_ref().is_some_and(|why| why.contains(FILE)), "{why:?}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
