//! `netloom ipam nodes`: what each node of a cluster was granted, and what it needs.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::Context;
use api::{GrantedBlock, NodeIpPoolSpec, NodeIpPoolStatus};
use cluster::Own;
use pool::{Family, Run};
use serde_json::Value;

use super::{NOT_WELL, words};
use crate::cli::IpamNodesArgs;
use crate::output::{BAD, ODD, Rows, TITLE, putln, structured};

/// One object.
struct Node {
    name: String,
    generation: i64,
    spec: NodeIpPoolSpec,
    status: NodeIpPoolStatus,
}

pub(super) fn run(args: &IpamNodesArgs) -> anyhow::Result<ExitCode> {
    let [mut objects] = cluster::read_all(args.cluster.file()?.as_deref(), [Own::NodeIpPool])?;
    if let Some(node) = &args.node {
        objects.retain(|object| name(object) == node);
        anyhow::ensure!(!objects.is_empty(), "the cluster has no NodeIPPool {node:?}: list them with `netloom ipam nodes`");
    }
    let nodes = objects.iter().map(Node::of).collect::<anyhow::Result<Vec<_>>>()?;
    match args.output {
        Some(format) => structured(&objects, format)?,
        None if nodes.is_empty() => putln!("no node has a NodeIPPool: check that the operator runs and that the cluster has an IPPool"),
        None => print(&nodes, args.node.is_some()),
    }
    Ok(if nodes.iter().all(Node::is_well) { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) })
}

pub(super) fn name(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// Prints what nodes have of pools; `all`: also of those of which a node has nothing and needs nothing.
fn print(nodes: &[Node], all: bool) {
    let mut rows = Rows::new(&["NODE", "POOL", "BLOCKS", "IPV4", "IPV6", "RETURNING", "AGENT"]);
    let mut styles = Vec::new();
    for node in nodes {
        let mut name = node.name.clone();
        let mut agent = node.agent().to_owned();
        let mut pools = node.pools();
        pools.retain(|pool| all || node.uses(pool));
        for pool in pools.iter().map(String::as_str).chain(pools.is_empty().then_some("-")) {
            let blocks = node.blocks(pool).count();
            let cells = [node.told(pool, Family::V4), node.told(pool, Family::V6)];
            let returning = node.status.returning.iter().filter(|r| r.pool == pool).count();
            let [v4, v6] = cells;
            let row = [std::mem::take(&mut name), pool.to_owned(), blocks.to_string(), v4, v6, returning.to_string()];
            rows.push(row.into_iter().chain([std::mem::take(&mut agent)]).collect());
            let short = Family::ALL.into_iter().any(|family| node.lacks(pool, family));
            styles.push(if short {
                BAD
            } else if node.is_current() {
                anstyle::Style::new()
            } else {
                ODD
            });
        }
    }
    for (i, line) in rows.lines().enumerate() {
        let style = i.checked_sub(1).map_or(TITLE, |i| styles.get(i).copied().unwrap_or_default());
        putln!("{style}{line}{style:#}");
    }
    for node in nodes {
        for problem in &node.status.problems {
            putln!("{BAD}{}: {} of pool {}: {}{BAD:#}", node.name, problem.ip, problem.pool, problem.reason);
        }
    }
}

// === impl Node ===

impl Node {
    fn of(object: &Value) -> anyhow::Result<Self> {
        let part = |key: &str| object.get(key).cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        let wrong = || format!("NodeIPPool {} has another version's format: update netloom", name(object));
        Ok(Node {
            name: name(object).to_owned(),
            generation: object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default(),
            spec: serde_json::from_value(part("spec")).with_context(wrong)?,
            status: serde_json::from_value(part("status")).with_context(wrong)?,
        })
    }

    /// The pools that it may use, or has something of.
    fn pools(&self) -> BTreeSet<String> {
        let granted = self.spec.blocks.iter().map(|b| &b.pool).chain(self.spec.ips.iter().map(|ip| &ip.pool));
        self.spec.pools.keys().chain(granted).cloned().collect()
    }

    fn blocks(&self, pool: &str) -> impl Iterator<Item = &GrantedBlock> {
        self.spec.blocks.iter().filter(move |block| block.pool == pool)
    }

    fn granted(&self, pool: &str, family: Family) -> u128 {
        let runs = self.blocks(pool).filter_map(|block| block.cidr.parse::<Run>().ok());
        let single = self.spec.ips.iter().filter(|ip| ip.pool == pool).filter_map(|ip| ip.ip.parse::<Run>().ok());
        runs.chain(single).filter(|run| run.family() == family).fold(0, |sum, run| sum.saturating_add(run.count()))
    }

    /// What the agent has said: needed, and in use.
    fn demand(&self, pool: &str, family: Family) -> (u64, u64) {
        let demand = self.status.demand.iter().find(|demand| demand.pool == pool);
        demand.map_or((0, 0), |d| (d.needed(family == Family::V4), d.in_use(family == Family::V4)))
    }

    /// Whether it has something of a pool, or needs or returns something.
    fn uses(&self, pool: &str) -> bool {
        let of_family = |family| self.granted(pool, family) > 0 || self.demand(pool, family) != (0, 0);
        Family::ALL.into_iter().any(of_family) || self.status.returning.iter().any(|returning| returning.pool == pool)
    }

    fn lacks(&self, pool: &str, family: Family) -> bool {
        u128::from(self.demand(pool, family).0) > self.granted(pool, family)
    }

    /// `31 of 64`, and what is needed where that is more.
    fn told(&self, pool: &str, family: Family) -> String {
        let (needed, used) = self.demand(pool, family);
        match self.granted(pool, family) {
            0 if needed == 0 => "-".to_owned(),
            granted if self.lacks(pool, family) => format!("{used} of {}, needs {needed}", words::count(granted)),
            granted => format!("{used} of {}", words::count(granted)),
        }
    }

    /// Whether its agent has on its disk what the spec says.
    fn is_current(&self) -> bool {
        !self.status.agent.instance.is_empty() && self.status.observed_generation >= self.generation
    }

    fn agent(&self) -> &'static str {
        match (self.status.agent.instance.is_empty(), self.is_current()) {
            (true, _) => "not seen",
            (_, true) => "current",
            (_, false) => "behind",
        }
    }

    fn is_well(&self) -> bool {
        let short = self.pools().iter().any(|pool| Family::ALL.into_iter().any(|family| self.lacks(pool, family)));
        !short && self.status.problems.is_empty() && !self.status.agent.instance.is_empty()
    }
}
