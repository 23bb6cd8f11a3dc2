//! Operators, agents and a small API server, driven by a seed: answers are lost, views are old, operators die between any two writes, nodes
//! are deleted and made anew, pools come, change and go. No address is anybody's twice, and the ledger has at least what nodes use.
//!
//! `NETLOOM_SEED=N` runs that one again; `NETLOOM_ROUNDS=N` runs longer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "life/blocks.rs"]
mod blocks;

use std::collections::{BTreeMap, BTreeSet};

use api::{AgentIdentity, CellState, Demand, IpPoolSpec, NodeIpPoolStatus, Returning};
use blocks::{Block, ask_for_claims, held_by, overlap, replace};
use netloom_ledger::{
    ClaimSeen, DefinitionSeen, Gone, NodePoolSeen, NodeSeen, PodSeen, PoolSeen, ShardSeen, Snapshot, Source, Step, Write, audit, step,
};

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).unwrap()
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// A node's machine: what it uses, and what it has promised.
#[derive(Default)]
struct Machine {
    name: String,
    uid: String,
    /// With epoch and pool.
    uses: BTreeMap<Block, (u64, String)>,
    /// On its disk.
    returned: BTreeMap<Block, u64>,
    want: u64,
    /// Claims whose container runs here, that of a pod that migrates or of one that does not, and the addresses that it has.
    containers: BTreeMap<(String, bool), BTreeMap<Block, u64>>,
}

/// The API server: objects with versions that grow.
#[derive(Default)]
struct Server {
    world: Snapshot,
    version: u64,
}

struct Operator {
    view: Snapshot,
    /// Writes that were decided and not sent yet: of a view that may be old by then.
    queue: Vec<Write>,
    /// Until the whole of the server was read.
    fresh: bool,
}

struct Life {
    chance: Chance,
    server: Server,
    operators: Vec<Operator>,
    machines: Vec<Machine>,
    /// UIDs of machines that are switched off.
    off: BTreeSet<String>,
    count: u64,
    /// How often a block came to a machine, and how often to the one that had it before.
    taken: u64,
    again: u64,
    /// Whether pods may say that they migrate, and how often two machines had an address of a claim.
    migrate: bool,
    both: u64,
}

impl Server {
    fn next(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    /// Carries out a write, or refuses it.
    fn write(&mut self, write: &Write) -> bool {
        let version = self.next();
        match write.clone() {
            Write::Shard { name, version: before, spec } => {
                if self.world.shards.get(&name).map(|s| &s.version) != before.as_ref() {
                    return false;
                }
                self.world.shards.insert(name, ShardSeen { version, spec });
            }
            Write::NodePool { name, version: before, spec } => {
                if self.world.node_pools.get(&name).map(|s| &s.version) != before.as_ref() {
                    return false;
                }
                let old = self.world.node_pools.remove(&name);
                let (uid, status) = old.map_or((version.clone(), NodeIpPoolStatus::default()), |old| (old.uid, old.status));
                self.world.node_pools.insert(name, NodePoolSeen { version, uid, spec, status, owned: false });
            }
            Write::NodePoolGone { name, uid, version: before } => {
                if self.world.node_pools.get(&name).is_none_or(|s| s.version != before || s.uid != uid) {
                    return false;
                }
                self.world.node_pools.remove(&name);
            }
            Write::Finalizer { pool, version: before, present } => {
                let Some(seen) = self.world.pools.get_mut(&pool).filter(|s| s.version == before) else { return false };
                (seen.finalizer, seen.version) = (present, version);
                if seen.deleting && !present {
                    self.world.pools.remove(&pool);
                }
            }
            Write::ClaimFinalizer { name, version: before, present } => {
                let Some(seen) = self.world.claims.claims.get_mut(&name).filter(|s| s.version == before) else { return false };
                (seen.finalizer, seen.version) = (present, version);
                if seen.deleting && !present {
                    self.world.claims.claims.remove(&name);
                }
            }
            Write::ClaimStatus { name, version: before, status } => {
                let Some(seen) = self.world.claims.claims.get_mut(&name).filter(|s| s.version == before) else { return false };
                (seen.status, seen.version) = (status, version);
            }
            Write::CiliumNode { .. } | Write::CiliumPool { .. } | Write::CiliumRelease { .. } | Write::CiliumNodeGone { .. } => {
                return false;
            }
            Write::Claim { .. } | Write::ClaimGone { .. } => return false,
            Write::PoolStatus { pool, version: before, status } => {
                let Some(seen) = self.world.pools.get_mut(&pool).filter(|s| s.version == before) else { return false };
                (seen.status, seen.version) = (Some(status), version);
            }
        }
        true
    }
}

fn spec(kind: usize) -> IpPoolSpec {
    // Pools of one network that overlap, one with holes, one that is large.
    let text = [
        r#"{"network": "n", "ipv4": {"entries": [{"cidr": "10.0.0.0/27"}], "blockPrefix": 30}}"#,
        r#"{"network": "n", "ipv4": {"entries": [{"range": "10.0.0.18-10.0.0.77"}], "blockPrefix": 30}, "exclude": ["10.0.0.40/29"]}"#,
        r#"{"network": "n", "ipv4": {"entries": [{"range": "10.0.0.240-10.0.1.255"}], "blockPrefix": 30}, "reserved": ["10.0.0.244"]}"#,
        r#"{"network": "n", "ipv4": {"entries": [{"ip": "10.0.0.3"}, {"ip": "10.0.1.9"}], "blockPrefix": 30}}"#,
    ];
    serde_json::from_str(text[kind]).unwrap()
}

impl Life {
    fn new(seed: u64) -> Life {
        let mut life = Life {
            chance: Chance(seed),
            server: Server::default(),
            operators: Vec::new(),
            machines: Vec::new(),
            off: BTreeSet::new(),
            count: 0,
            taken: 0,
            again: 0,
            // Every other life has none: there no address is anybody's twice at all.
            migrate: seed % 2 == 1,
            both: 0,
        };
        for name in ["a", "b", "c", "d"] {
            life.machine(name);
        }
        for name in ["p", "q"] {
            life.pool(name);
        }
        let claims = &mut life.server.world.claims;
        claims.complete = true;
        for pool in ["p", "q"] {
            let source = Ok(Source { pools: vec![pool.to_owned()], families: Vec::new() });
            claims.definitions.insert(format!("ns/{pool}"), DefinitionSeen { network: pool.to_owned(), source });
        }
        life.operators = (0..2).map(|_| Operator { view: Snapshot::default(), queue: Vec::new(), fresh: false }).collect();
        life
    }

    fn machine(&mut self, name: &str) {
        self.count += 1;
        let uid = format!("{name}-{}", self.count);
        self.server.world.nodes.insert(name.to_owned(), NodeSeen { uid: uid.clone(), labels: BTreeMap::new() });
        self.machines.push(Machine { name: name.to_owned(), uid, ..Machine::default() });
    }

    fn pool(&mut self, name: &str) {
        let (version, spec) = (self.server.next(), spec(self.chance.below(4)));
        let created = format!("{:09}", self.server.version);
        let seen = PoolSeen { version, generation: 1, created, deleting: false, finalizer: false, spec: Ok(spec), status: None };
        self.server.world.pools.insert(name.to_owned(), seen);
    }

    fn turn(&mut self) {
        match self.chance.below(80) {
            40..=42 => self.claims(),
            43..=49 => self.containers(),
            50..=64 => self.operate(),
            65..=79 => self.agent(),
            0..=13 => self.operate(),
            14..=29 => self.agent(),
            30..=33 => self.watch(),
            34 => self.die(),
            35 if self.chance.one_in(2) => self.pools(),
            36 => self.node_anew(),
            37 => self.grace(),
            38 => self.lose_shard(),
            _ => {
                let want = self.chance.next() % 4;
                let at = self.chance.below(self.machines.len().min(4));
                if let Some(machine) = self.machines.iter_mut().rev().nth(at) {
                    machine.want = want;
                }
            }
        }
        self.judge();
    }

    /// One thing that an operator does: decide, or send what it has decided, of which the answer may be lost.
    fn operate(&mut self) {
        let i = self.chance.below(self.operators.len());
        if !self.operators[i].fresh {
            self.read_all(i);
        }
        let operator = &mut self.operators[i];
        if operator.queue.is_empty() {
            let Step { writes, missing, missing_claims, .. } = step(&operator.view);
            ask_for_claims(&self.server.world, &mut operator.view, missing_claims);
            // Asked for at once, and never behind.
            for (_, uid) in missing {
                let gone = !self.server.world.nodes.values().any(|node| node.uid == uid);
                if gone {
                    operator.view.gone.entry(uid).or_insert(Gone::Confirmed);
                }
            }
            // A status is told now and then: it is no use to anybody here.
            let told = self.chance.one_in(8);
            operator.queue = writes.into_iter().filter(|write| told || !matches!(write, Write::PoolStatus { .. })).collect();
            return;
        }
        let at = self.chance.below(operator.queue.len());
        let write = operator.queue.swap_remove(at);
        match self.chance.below(10) {
            0 => {}
            1 => drop(self.server.write(&write)),
            _ => {
                self.server.write(&write);
                self.read_one(i, &write);
            }
        }
    }

    /// What a conflict or an answer tells: the object as it is now.
    fn read_one(&mut self, i: usize, write: &Write) {
        let (view, world) = (&mut self.operators[i].view, &self.server.world);
        let (kind, name) = write.object();
        match kind {
            "IPLedgerShard" => replace(&mut view.shards, &world.shards, name),
            "NodeIPPool" => replace(&mut view.node_pools, &world.node_pools, name),
            "IPAMClaim" => replace(&mut view.claims.claims, &world.claims.claims, name),
            _ => replace(&mut view.pools, &world.pools, name),
        }
    }

    /// A consistent list of everything. What is known of nodes that are gone is not read, and stays.
    fn read_all(&mut self, i: usize) {
        let gone = std::mem::take(&mut self.operators[i].view.gone);
        let gone_claims = std::mem::take(&mut self.operators[i].view.claims.gone);
        self.operators[i].view = Snapshot { gone, grace: Some(900), first_epoch: self.count, ..self.server.world.clone() };
        self.operators[i].view.claims.gone = gone_claims;
        self.operators[i].fresh = true;
    }

    /// A watch brings one kind up to date, and the others not.
    fn watch(&mut self) {
        let i = self.chance.below(self.operators.len());
        let (view, world) = (&mut self.operators[i].view, &self.server.world);
        match self.chance.below(6) {
            4 => view.claims.claims = world.claims.claims.clone(),
            5 => view.claims.pods = world.claims.pods.clone(),
            0 => view.shards = world.shards.clone(),
            1 => view.node_pools = world.node_pools.clone(),
            2 => view.pools = world.pools.clone(),
            _ => view.nodes = world.nodes.clone(),
        }
    }

    /// An operator is killed, and another one starts.
    fn die(&mut self) {
        let i = self.chance.below(self.operators.len());
        self.operators[i] = Operator { view: Snapshot::default(), queue: Vec::new(), fresh: false };
    }

    /// A look of an agent at its object, and a change of its status.
    fn agent(&mut self) {
        let off = &self.off;
        let on: Vec<usize> = (0..self.machines.len()).filter(|i| !off.contains(&self.machines[*i].uid)).collect();
        let i = on[self.chance.below(on.len())];
        let (machine, version) = (&mut self.machines[i], self.server.version + 1);
        let Some(object) = self.server.world.node_pools.get_mut(&machine.name).filter(|o| o.spec.node_uid == machine.uid) else { return };
        let mut granted = BTreeMap::new();
        for block in &object.spec.blocks {
            granted.insert((block.network.clone(), block.cidr.clone()), (block.epoch, block.pool.clone()));
        }
        for (block, (epoch, pool)) in &granted {
            if machine.returned.get(block).is_some_and(|last| last >= epoch) || machine.uses.contains_key(block) {
                continue;
            }
            machine.uses.insert(block.clone(), (*epoch, pool.clone()));
            self.taken += 1;
            self.again += u64::from(machine.returned.contains_key(block));
        }
        let mut single = BTreeMap::new();
        for ip in &object.spec.ips {
            let block = (ip.network.clone(), format!("{}/32", ip.ip));
            let over = machine.returned.get(&block).is_some_and(|last| *last >= ip.epoch);
            let held = machine.containers.values().any(|has| has.contains_key(&block));
            match machine.containers.get_mut(&(ip.owner.claim.clone(), ip.owner.migrates)) {
                // A container has one address.
                Some(has) if !over && !held && has.is_empty() => drop(has.insert(block.clone(), ip.epoch)),
                _ if ip.ending && !held && !over => drop(machine.returned.insert(block.clone(), ip.epoch)),
                _ => {}
            }
            single.insert(block, (ip.epoch, ip.pool.clone()));
        }
        // A block that is not there at the moment stays in use: nobody has said that it was given back.
        let mut demand = Vec::new();
        for pool in ["p", "q"] {
            let ending = object.spec.pools.get(pool).is_none_or(|terms| terms.ending);
            let want = if ending { 0 } else { machine.want };
            let own: Vec<Block> = machine.uses.iter().filter(|(_, (_, p))| p == pool).map(|(b, _)| b.clone()).collect();
            for block in own.iter().skip(usize::try_from(want).unwrap()) {
                let (epoch, _) = machine.uses.remove(block).unwrap();
                machine.returned.insert(block.clone(), epoch);
            }
            demand.push(Demand { pool: pool.to_owned(), v4: want * 4, ..Demand::default() });
        }
        granted.extend(single);
        let returning = granted.iter().filter(|(block, (epoch, _))| machine.returned.get(*block).is_some_and(|last| last >= epoch));
        let returning =
            returning.map(|(block, (epoch, pool))| Returning { cidr: block.1.clone(), pool: pool.clone(), epoch: *epoch }).collect();
        let agent = AgentIdentity { instance: "one".into(), ..AgentIdentity::default() };
        let status = NodeIpPoolStatus { observed_generation: 1, demand, returning, agent, ..NodeIpPoolStatus::default() };
        if object.status != status {
            object.status = status;
            object.version = version.to_string();
            self.server.version = version;
        }
    }

    /// A claim is made, deleted, or deleted by force; a pod of it comes, goes, moves.
    fn claims(&mut self) {
        let (version, name) = (self.server.next(), format!("ns/c{}", self.chance.below(3)));
        let node = ["a", "b", "c", "d"][self.chance.below(4)];
        let (what, other) = (self.chance.below(8), self.chance.below(4));
        self.count += 1;
        let (uid, request) = (format!("claim-{}", self.count), format!("10.0.0.{}", 3 + self.chance.below(24)));
        let forced = self.chance.one_in(8);
        let migrates = !self.chance.one_in(8) && self.migrate;
        let claims = &mut self.server.world.claims;
        match what {
            0..=1 => match claims.claims.get_mut(&name) {
                None => {
                    let mut seen = ClaimSeen { version, uid, created: format!("{:09}", self.count), ..ClaimSeen::default() };
                    seen.spec.network = ["p", "q"][other % 2].to_owned();
                    seen.spec.ip_requests.extend((other == 3).then_some(request));
                    claims.claims.insert(name, seen);
                }
                Some(_) if what == 1 || other > 0 => {}
                Some(seen) if !seen.finalizer => drop(claims.claims.remove(&name)),
                Some(seen) => (seen.deleting, seen.version) = (true, version),
            },
            2 if forced => drop(claims.claims.remove(&name)),
            2 => {}
            3..=5 => {
                let (created, node) = (version.clone(), node.to_owned());
                let pod = PodSeen { created, node, claims: vec![name], migrates, ..PodSeen::default() };
                claims.pods.insert(format!("ns/pod-{other}"), pod);
            }
            _ => drop(claims.pods.remove(&format!("ns/pod-{other}"))),
        }
    }

    /// A container of a claim begins where a pod of it is meant to be, or anywhere one ends: pods that are forced out run on.
    fn containers(&mut self) {
        let i = self.chance.below(self.machines.len());
        let (ends, machine) = (self.chance.one_in(2), &mut self.machines[i]);
        let claim = format!("ns/c{}", self.chance.below(3));
        let here = self.server.world.claims.pods.values().filter(|pod| pod.node == machine.name && pod.claims.contains(&claim));
        let meant: Vec<bool> = here.map(|pod| pod.migrates).collect();
        if ends {
            machine.containers.retain(|(of, _), _| *of != claim);
        } else if !meant.is_empty() {
            machine.containers.entry((claim, meant[self.chance.below(meant.len())])).or_default();
        }
    }

    fn pools(&mut self) {
        let name = ["p", "q"][self.chance.below(2)];
        let (version, kind) = (self.server.next(), self.chance.below(4));
        let deletes = self.chance.one_in(8);
        match self.server.world.pools.get_mut(name) {
            None => self.pool(name),
            Some(seen) if deletes => {
                (seen.deleting, seen.version) = (true, version);
                if !seen.finalizer {
                    self.server.world.pools.remove(name);
                }
            }
            Some(seen) => (seen.spec, seen.version) = (Ok(spec(kind)), version),
        }
    }

    /// A Node is deleted, and sometimes made anew; its machine runs on for a while.
    fn node_anew(&mut self) {
        let names: Vec<String> = self.server.world.nodes.keys().cloned().collect();
        let name = ["a", "b", "c", "d"][self.chance.below(4)];
        if names.iter().any(|n| n == name) {
            if self.chance.one_in(8) {
                self.server.world.nodes.remove(name);
            }
        } else {
            self.machine(name);
        }
    }

    /// The grace of a node is over: its machine was switched off before, which is what the time is for.
    fn grace(&mut self) {
        let i = self.chance.below(self.operators.len());
        let confirmed: Vec<String> = self.operators[i].view.gone.keys().cloned().collect();
        let Some(uid) = confirmed.get(self.chance.below(confirmed.len().max(1))).cloned() else { return };
        self.off.insert(uid.clone());
        self.operators[i].view.gone.insert(uid, Gone::GraceOver);
    }

    /// Somebody deletes a shard that no node of now lacks an object for: what is not in any object cannot be made again.
    fn lose_shard(&mut self) {
        if !self.chance.one_in(10) {
            return;
        }
        let told = self.machines.iter().filter(|m| !self.off.contains(&m.uid)).all(|machine| {
            let object = self.server.world.node_pools.get(&machine.name).filter(|o| o.spec.node_uid == machine.uid);
            let has = |block: &Block| object.is_some_and(|o| o.spec.blocks.iter().any(|b| b.network == block.0 && b.cidr == block.1));
            machine.uses.keys().all(has) && machine.containers.values().all(BTreeMap::is_empty)
        });
        let name = self.server.world.shards.keys().find(|name| name.matches('.').count() > 1).cloned();
        if let Some(name) = name.filter(|_| told) {
            self.server.world.shards.remove(&name);
            // What was decided before, and old views, would grant again what they saw as free: epochs are what tells them apart, and
            // this is what a start of the operators is for.
            for operator in &mut self.operators {
                *operator = Operator { view: Snapshot::default(), queue: Vec::new(), fresh: false };
            }
            self.count += 1_000_000;
        }
    }

    /// Nobody uses what another one uses, but an address of a claim by two pods that say that they migrate: the ledger has it as both
    /// machines'.
    fn judge(&mut self) {
        let live = self.machines.iter().filter(|m| !self.off.contains(&m.uid));
        let mut seen: Vec<(&Block, u64, &str, bool)> = Vec::new();
        let mut both = 0;
        for machine in live {
            let blocks = machine.uses.iter().map(|(block, (epoch, _))| (block, *epoch, false));
            let kinds = machine.containers.iter().flat_map(|((_, migrates), has)| std::iter::repeat(*migrates).zip(has));
            let ips = kinds.map(|(migrates, (block, epoch))| (block, *epoch, migrates));
            for (block, epoch, migrates) in blocks.chain(ips) {
                for (other, life, uid, also) in seen.iter().filter(|(other, ..)| overlap(other, block)) {
                    let two = migrates && *also && *other == block;
                    let known = two && held_by(&self.server.world, block, [(uid, *life), (&machine.uid, epoch)]);
                    assert!(known, "{block:?} is used by {} in life {epoch} and by {uid} in life {life}", machine.uid);
                    both += 1;
                }
                seen.push((block, epoch, &machine.uid, migrates));
            }
        }
        self.both += both;
    }

    /// Everybody gets what they want in the end, if the world stands still.
    fn settle(&mut self) {
        self.operators.truncate(1);
        self.off =
            self.machines.iter().map(|m| m.uid.clone()).filter(|uid| !self.server.world.nodes.values().any(|n| n.uid == *uid)).collect();
        for _ in 0..400 {
            self.operators[0].queue.clear();
            self.read_all(0);
            let decided = step(&self.operators[0].view);
            let agents = self.machines.len();
            ask_for_claims(&self.server.world, &mut self.operators[0].view, decided.missing_claims.clone());
            for (_, uid) in decided.missing {
                if self.off.contains(&uid) {
                    self.operators[0].view.gone.insert(uid, Gone::GraceOver);
                }
            }
            for write in &decided.writes {
                assert!(self.server.write(write), "a fresh write is refused: {write:?}");
            }
            for _ in 0..agents * 3 {
                self.agent();
            }
            self.judge();
        }
        self.read_all(0);
        let last = step(&self.operators[0].view);
        assert_eq!(last.writes, [], "no end");
        assert_eq!(audit(&self.server.world), []);
        self.complete(&last);
    }

    /// The ledger, nodes' objects and machines say the same; who lacks something lacks it because there is no more.
    fn complete(&self, last: &Step) {
        let world = &self.server.world;
        let mut ledger: BTreeSet<(String, String)> = BTreeSet::new();
        for shard in world.shards.values() {
            for cell in shard.spec.cells.values() {
                assert!(cell.state != CellState::Returning, "{cell:?}");
                if cell.state == CellState::Granted {
                    assert!(ledger.insert((cell.node_uid.clone(), format!("{} {}", cell.pool, cell.epoch))) || cell.epoch > 0);
                }
            }
        }
        // What a claim had that somebody has removed by force is free, unless a container has it.
        for ip in world.shards.values().flat_map(|s| s.spec.cells.values()).flat_map(|cell| cell.ips.values()) {
            let there = ip.owner.claim.is_empty() || world.claims.claims.contains_key(&ip.owner.claim);
            assert!(there || ip.is_held(), "{ip:?} is nobody's, and not free");
        }
        let granted: usize = world.shards.values().flat_map(|s| s.spec.cells.values()).filter(|c| c.state == CellState::Granted).count();
        let listed: usize = world.node_pools.values().map(|o| o.spec.blocks.len()).sum();
        let used: usize = self.machines.iter().filter(|m| !self.off.contains(&m.uid)).map(|m| m.uses.len()).sum();
        assert_eq!((granted, listed), (used, used));
        let lacking: u64 = last.tallies.values().map(|t| t.needed - t.served).sum();
        for machine in self.machines.iter().filter(|m| !self.off.contains(&m.uid)) {
            for (pool, seen) in &world.pools {
                let has = machine.uses.values().filter(|(_, p)| p == pool).count() as u64;
                let ready = !seen.deleting && seen.finalizer;
                assert!(has >= machine.want || lacking > 0 || !ready, "{} has {has} of {pool}, and wants {}", machine.uid, machine.want);
            }
        }
    }
}

#[test]
fn no_address_is_anybodys_twice() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let rounds = number("NETLOOM_ROUNDS").unwrap_or(6);
    let seeds: Vec<u64> = number("NETLOOM_SEED").map_or((0..rounds).collect(), |seed| vec![seed]);
    let all = seeds.len() as u64;
    let (mut taken, mut again, mut both) = (0, 0, 0);
    for seed in seeds {
        let run = std::panic::catch_unwind(|| {
            let mut life = Life::new(seed);
            for _ in 0..9000 {
                life.turn();
            }
            life.settle();
            (life.taken, life.again, life.both)
        });
        assert!(run.is_ok(), "NETLOOM_SEED={seed} shows it again");
        let (here, here_again, here_both) = run.unwrap_or_default();
        println!(
            "seed {seed}: {here} blocks came to a machine, {here_again} to one that had given them back; {here_both} times two had one"
        );
        (taken, again, both) = (taken + here, again + here_again, both + here_both);
    }
    // One life may be quiet; all of them are not.
    assert!(taken > 50 * all && again > 4 * all, "too little happens: {taken} {again}");
    assert!(both > 0 || all < 2, "nobody has migrated");
}
