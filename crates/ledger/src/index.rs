//! What was read, as numbers: networks, their shards and cells, and what nodes' specs mention of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use api::{CELLS, Cell, CellState, Holding, IpLedgerShardSpec, MOST_BLOCKS};
use pool::{Family, Run};

use crate::grid::{CellPosition, root_name};
use crate::rebalance::KeepRequests;
use crate::{NodePoolSeen, Pool, Snapshot, Violation, check};

/// One pass over a [`Snapshot`].
pub(crate) struct Index<'a> {
    pub(crate) world: &'a Snapshot,
    /// The UIDs of the Nodes that are there.
    pub(crate) there: HashSet<&'a str>,
    /// Each pool, checked; or the word and the text of what is wrong.
    pub(crate) pools: BTreeMap<&'a str, Result<Pool, (&'static str, String)>>,
    /// The ledger of each network and family.
    pub(crate) nets: BTreeMap<(String, Family), Net<'a>>,
    /// Which nodes' specs mention a block, by network and addresses.
    pub(crate) mentions: HashMap<(&'a str, Run), Vec<Mention<'a>>>,
    /// Cells that nodes' specs mention, wholly or in part: granted to nobody.
    pub(crate) touched: HashSet<(&'a str, Run)>,
    /// What CiliumNodes mention of the network whose pool fills them: granted neither as a block nor to a claim. Not in `touched`, which keeps
    /// it from the ledger as well.
    in_cilium: InCilium,
    /// Names of shards that are there and cannot be read: whose their cells are nobody knows, so they are granted to nobody.
    barred: HashSet<&'a str>,
    /// What all pools of a network together keep back, by network.
    withheld: HashMap<String, Withheld>,
    /// How many blocks of a pool those may keep who are asked to give some back, by the node's UID.
    pub(crate) asked: KeepRequests<'a>,
    /// What was found that cannot be.
    pub(crate) violations: Vec<Violation>,
}

/// A block or an address in a node's spec.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mention<'a> {
    pub(crate) node: &'a str,
    pub(crate) node_uid: &'a str,
    pub(crate) epoch: u64,
}

/// What CiliumNodes mention.
#[derive(Debug, Default)]
struct InCilium {
    addresses: BTreeSet<IpAddr>,
    /// Networks and ranges.
    wide: Vec<Run>,
}

/// What the pools of a network keep back: one address may lie in several of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Withheld {
    /// The gateways: nobody gets them.
    pub(crate) gateways: Vec<Run>,
    /// What only claims get.
    pub(crate) reserved: Vec<Run>,
}

/// The ledger of one network and family.
pub(crate) struct Net<'a> {
    /// The prefix length of its cells.
    pub(crate) prefix: u8,
    /// The object that says so: its version, and all of it.
    pub(crate) root: Option<(&'a str, &'a IpLedgerShardSpec)>,
    /// Whether CiliumNodes have something of it, and were not read yet.
    pub(crate) waits: bool,
    /// Its shards, by the number of their first address.
    pub(crate) shards: BTreeMap<u128, Draft<'a>>,
}

/// A shard as it was read, and as it is to be.
#[derive(Default)]
pub(crate) struct Draft<'a> {
    pub(crate) name: String,
    pub(crate) version: Option<&'a str>,
    pub(crate) seen: Option<&'a IpLedgerShardSpec>,
    pub(crate) new: Option<IpLedgerShardSpec>,
}

// === impl Draft ===

impl<'a> Draft<'a> {
    /// As it is to be.
    pub(crate) fn spec(&self) -> Option<&IpLedgerShardSpec> {
        self.new.as_ref().or(self.seen)
    }

    pub(crate) fn cell(&self, number: u32) -> Option<&Cell> {
        self.spec()?.cells.get(&number.to_string())
    }

    /// A cell that is going to be changed.
    pub(crate) fn cell_mut(&mut self, number: u32) -> Option<&mut Cell> {
        if self.new.is_none() {
            self.new = self.seen.cloned();
        }
        self.new.as_mut().map(|spec| spec.cells.entry(number.to_string()).or_default())
    }

    /// Whether single addresses of it are kept.
    pub(crate) fn has_shared(&self) -> bool {
        self.spec().is_some_and(|spec| spec.cells.values().any(|cell| cell.state == CellState::Shared))
    }

    /// Whether nothing of it is free.
    pub(crate) fn is_full(&self) -> bool {
        let taken = |spec: &IpLedgerShardSpec| spec.cells.values().filter(|cell| cell.state != CellState::Free).count();
        self.spec().is_some_and(|spec| taken(spec) >= CELLS as usize)
    }
}

/// What a node holds, as far as it is listened to: no more than it could have been granted.
pub(crate) fn held(seen: &NodePoolSeen) -> impl Iterator<Item = &Holding> {
    seen.status.holding.iter().take(usize::try_from(MOST_BLOCKS).unwrap_or(usize::MAX))
}

/// The cells of a shard, with their places.
pub(crate) fn cells(spec: &IpLedgerShardSpec) -> impl Iterator<Item = (CellPosition, &Cell)> {
    let base: Option<Run> = spec.base.parse().ok();
    spec.cells.iter().filter_map(move |(number, cell)| {
        let number: u32 = number.parse().ok().filter(|n| *n < CELLS)?;
        Some((CellPosition::in_shard(base.as_ref()?, number, spec.cell_prefix)?, cell))
    })
}

// === impl Net ===

impl<'a> Net<'a> {
    pub(crate) fn of(prefix: u8) -> Self {
        Net { prefix, root: None, waits: false, shards: BTreeMap::new() }
    }

    /// Whether anything of it is granted: the object that says how large cells are has to be there first, and whoever has something has to
    /// have told.
    pub(crate) fn is_open(&self) -> bool {
        self.root.is_some() && !self.is_gathering() && !self.waits
    }

    /// Whether it was lost, and somebody has not told.
    pub(crate) fn is_gathering(&self) -> bool {
        self.root.is_some_and(|(_, root)| root.gathering)
    }

    pub(crate) fn cell(&self, place: &CellPosition) -> Option<&Cell> {
        self.shards.get(&place.base().numbers().0)?.cell(place.cell())
    }

    /// A cell that is going to be changed, in a shard that is made if there is none.
    pub(crate) fn cell_mut(&mut self, network: &str, place: &CellPosition, first_epoch: u64) -> Option<&mut Cell> {
        let draft = self.shards.entry(place.base().numbers().0).or_insert_with(|| Draft {
            name: place.shard_name(network),
            new: Some(IpLedgerShardSpec {
                network: network.to_owned(),
                base: place.base().to_string(),
                cell_prefix: self.prefix,
                first_epoch,
                ..IpLedgerShardSpec::default()
            }),
            ..Draft::default()
        });
        draft.cell_mut(place.cell())
    }

    /// The lowest epoch that a cell can have now; in a shard that is to be made, one above the first.
    pub(crate) fn next_epoch(&self, place: &CellPosition, first_epoch: u64) -> u64 {
        let draft = self.shards.get(&place.base().numbers().0);
        let first = draft.and_then(Draft::spec).map_or(first_epoch, |spec| spec.first_epoch);
        let last = draft.and_then(|draft| draft.cell(place.cell())).map_or(0, |cell| cell.epoch);
        first.max(last).saturating_add(1)
    }
}

// === impl Index ===

impl<'a> Index<'a> {
    pub(crate) fn of(world: &'a Snapshot) -> Self {
        let (pools, mentions, touched) = (BTreeMap::new(), HashMap::new(), HashSet::new());
        let (in_cilium, barred, withheld, asked) = (InCilium::default(), HashSet::new(), HashMap::new(), HashMap::new());
        let (nets, violations, there) = (BTreeMap::new(), Vec::new(), world.uids());
        let mut index = Index { world, there, pools, nets, mentions, touched, in_cilium, barred, withheld, asked, violations };
        index.read_shards();
        index.read_pools();
        index.read_specs();
        index.read_cilium();
        index
    }

    fn read_shards(&mut self) {
        let based = self.world.shards.iter().map(|(name, shard)| (name, shard, shard.spec.base.parse::<Run>().ok()));
        let (roots, others): (Vec<_>, Vec<_>) = based.partition(|(_, _, base)| base.is_some_and(|b| b.prefix() == Some(0)));
        for (name, shard, base) in roots {
            let Some(base) = base.filter(|b| root_name(&shard.spec.network, b.family()) == *name) else {
                self.bar(name);
                continue;
            };
            let net = Net { root: Some((&shard.version, &shard.spec)), ..Net::of(shard.spec.cell_prefix) };
            self.nets.insert((shard.spec.network.clone(), base.family()), net);
        }
        for (name, shard, base) in others {
            let spec = &shard.spec;
            let Some(base) = base.filter(|b| CellPosition::of(b.first(), spec.cell_prefix).shard_name(&spec.network) == *name) else {
                self.bar(name);
                continue;
            };
            let net = self.nets.entry((spec.network.clone(), base.family())).or_insert_with(|| Net::of(spec.cell_prefix));
            if net.prefix != spec.cell_prefix {
                self.bar(name);
                continue;
            }
            let draft = Draft { name: name.clone(), version: Some(&shard.version), seen: Some(spec), new: None };
            net.shards.insert(base.numbers().0, draft);
        }
    }

    fn bar(&mut self, name: &'a str) {
        self.barred.insert(name);
        self.violations.push(Violation::Unreadable { shard: name.to_owned() });
    }

    /// Whether the shard of a cell is there and cannot be read.
    pub(crate) fn is_barred(&self, network: &str, place: &CellPosition) -> bool {
        !self.barred.is_empty() && self.is_barred_name(&place.shard_name(network))
    }

    /// The same by the shard's name.
    pub(crate) fn is_barred_name(&self, name: &str) -> bool {
        self.barred.contains(name)
    }

    /// What CiliumNodes mention, whoever fills them.
    fn read_cilium(&mut self) {
        let cilium = &self.world.cilium;
        let waits = !cilium.complete && !cilium.unserved;
        let networks: BTreeSet<String> = self.nets.keys().map(|(network, _)| network.clone()).filter(|n| self.is_ciliums(n)).collect();
        for ((network, _), net) in &mut self.nets {
            net.waits = waits && networks.contains(network);
        }
        for seen in cilium.nodes.values() {
            self.in_cilium.addresses.extend(seen.pool.keys().chain(&seen.used).chain(seen.release.keys()));
            self.in_cilium.wide.extend_from_slice(&seen.wide);
        }
    }

    /// Whether CiliumNodes mention any of these addresses of a network.
    pub(crate) fn is_in_cilium(&self, network: &str, run: &Run) -> bool {
        let InCilium { addresses, wide } = &self.in_cilium;
        let by_itself = || addresses.range(run.first()..=run.last()).next().is_some();
        self.is_ciliums(network) && (by_itself() || wide.iter().any(|wide| wide.common(run).is_some()))
    }

    /// Whether CiliumNodes are filled with addresses of a network.
    pub(crate) fn is_ciliums(&self, network: &str) -> bool {
        let pool = self.pools.get(self.world.cilium.pool.as_str());
        pool.is_some_and(|pool| pool.as_ref().is_ok_and(|pool| pool.spec.network == network))
    }

    /// What no node is given of a network.
    pub(crate) fn withheld(&self, network: &str) -> Withheld {
        self.withheld.get(network).cloned().unwrap_or_default()
    }

    /// Whether an address of a cell is reserved by any pool of the network: a node that has the block would keep it from claims.
    pub(crate) fn is_reserved(&self, network: &str, place: &CellPosition) -> bool {
        self.withheld.get(network).is_some_and(|all| all.reserved.iter().any(|run| run.common(&place.run()).is_some()))
    }

    /// Checks the pools, the oldest first: it decides how large a network's cells are if nobody has before.
    fn read_pools(&mut self) {
        let mut order: Vec<_> = self.world.pools.iter().collect();
        order.sort_by_key(|(name, seen)| (&seen.created, *name));
        for (name, seen) in order {
            let checked = match &seen.spec {
                Err(shape) => Err(("Invalid", shape.clone())),
                Ok(spec) => check(name, spec).map_err(|wrong| ("Invalid", wrong.to_string())),
            };
            let checked = checked.and_then(|pool| self.fits(pool, seen.deleting));
            if let Ok(pool) = &checked {
                let withheld = self.withheld.entry(pool.spec.network.clone()).or_default();
                let gateways = Family::ALL.into_iter().filter_map(|family| pool.spec.terms(family).gateway);
                withheld.gateways.extend(gateways.map(Run::single));
                withheld.reserved.extend_from_slice(&pool.spec.reserved);
            }
            self.pools.insert(name, checked);
        }
    }

    fn fits(&mut self, pool: Pool, deleting: bool) -> Result<Pool, (&'static str, String)> {
        let network = &pool.spec.network;
        let families = || Family::ALL.into_iter().filter(|family| pool.has(*family));
        let other = families().find_map(|f| Some((f, self.nets.get(&(network.clone(), f))?.prefix)).filter(|(f, p)| *p != pool.block(*f)));
        if let Some((family, prefix)) = other {
            let wanted = pool.block(family);
            let reason = format!(
                "spec.{}.blockPrefix: {wanted}, but the blocks of network {network:?} are /{prefix}: set that prefix, or another network",
                if family == Family::V4 { "ipv4" } else { "ipv6" }
            );
            return Err(("BlockPrefix", reason));
        }
        for family in families().filter(|_| !deleting) {
            self.nets.entry((network.clone(), family)).or_insert_with(|| Net::of(pool.block(family)));
        }
        Ok(pool)
    }

    fn read_specs(&mut self) {
        for (node, seen) in &self.world.node_pools {
            let blocks = seen.spec.blocks.iter().map(|b| (b.network.as_str(), b.cidr.as_str(), b.epoch));
            let ips = seen.spec.ips.iter().map(|i| (i.network.as_str(), i.ip.as_str(), i.epoch));
            for (network, text, epoch) in blocks.chain(ips) {
                let Ok(run) = text.parse::<Run>() else {
                    self.violations.push(Violation::Unknown { node: node.clone(), network: network.to_owned(), block: text.to_owned() });
                    continue;
                };
                let mention = Mention { node, node_uid: &seen.spec.node_uid, epoch };
                self.mentions.entry((network, run)).or_default().push(mention);
                self.touch(network, run);
            }
            // Whatever becomes of it, nobody else gets it as long as somebody has it.
            for held in held(seen) {
                if let Ok(run) = held.cidr.parse() {
                    self.touch(&held.network, run);
                }
            }
        }
    }

    /// Remembers the cells of a run. One of another size than the cells, which cannot be, would make them many: the first 2^16.
    fn touch(&mut self, network: &'a str, run: Run) {
        let Some(net) = self.nets.get(&(network.to_owned(), run.family())) else { return };
        let cells = std::iter::successors(Some(CellPosition::of(run.first(), net.prefix)), CellPosition::next);
        let cells = cells.take_while(|place| place.run().common(&run).is_some()).take(1 << 16);
        self.touched.extend(cells.map(|place| (network, place.run())));
    }

    /// The ledger as it was read, without what is to be.
    pub(crate) fn seen_cells(&self) -> impl Iterator<Item = (&'a str, CellPosition, &'a Cell)> {
        let shards = self.nets.values().flat_map(|net| net.shards.values()).filter_map(|draft| draft.seen);
        shards.flat_map(|spec| cells(spec).map(|(place, cell)| (spec.network.as_str(), place, cell)))
    }

    /// The nodes that cells name, with their UIDs.
    pub(crate) fn in_cells(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.seen_cells().flat_map(|(_, _, cell)| {
            let holds = cell.ips.values().flat_map(api::SharedIp::holds);
            let ips = holds.map(|hold| (hold.node.as_str(), hold.node_uid.as_str()));
            ips.chain([(cell.node.as_str(), cell.node_uid.as_str())])
        })
    }
}
