//! `netloom ipam nodes`: what each node of a cluster was granted, and what it needs.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::Context;
use api::{GrantedBlock, NodeIpPoolSpec, NodeIpPoolStatus};
use cluster::Own;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
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
    /// When the operator and the agent wrote last, as the API server noted it.
    granted: Option<Timestamp>,
    reported: Option<Timestamp>,
}

/// An agent that runs reports within ten seconds that it has what it was granted.
const SILENT: SignedDuration = SignedDuration::from_secs(60);

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

/// When a part of an object was written last.
fn written(object: &Value, is_part: impl Fn(Option<&str>) -> bool) -> Option<Timestamp> {
    let fields = object.pointer("/metadata/managedFields")?.as_array()?;
    let of_part = fields.iter().filter(|field| is_part(field.get("subresource").and_then(Value::as_str)));
    of_part.filter_map(|field| field.get("time")?.as_str()?.parse().ok()).max()
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
        let mut agent = node.agent();
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
        if let Some(seconds) = node.spec.reclaim_after_seconds {
            let free = format!("what it has is free when its agent has reported nothing for {seconds} s");
            putln!("{BAD}{}: its Node was deleted: {free}{BAD:#}", node.name);
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
            granted: written(object, |subresource| subresource.is_none()),
            reported: written(object, |subresource| subresource == Some("status")),
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

    fn agent(&self) -> String {
        match (self.status.agent.instance.is_empty(), self.is_current(), self.silent_since(Timestamp::now())) {
            (true, ..) => "not seen".to_owned(),
            (_, true, _) => "current".to_owned(),
            (_, _, Some(since)) => format!("not running since {since:.0}"),
            (_, _, None) => "behind".to_owned(),
        }
    }

    /// Since when its agent has said nothing, if it should have said long ago that it has what was granted.
    fn silent_since(&self, now: Timestamp) -> Option<Timestamp> {
        let (granted, reported) = (self.granted?, self.reported?);
        (!self.is_current() && now.duration_since(granted.max(reported)) > SILENT).then_some(reported)
    }

    fn is_well(&self) -> bool {
        let short = self.pools().iter().any(|pool| Family::ALL.into_iter().any(|family| self.lacks(pool, family)));
        let is_there = self.spec.reclaim_after_seconds.is_none() && !self.status.agent.instance.is_empty();
        !short && is_there && self.status.problems.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_agent_that_says_nothing_for_a_minute_does_not_run() {
        let agent = json!({"storeID": "s", "bootID": "b", "instance": "i"});
        let object = json!({
            "metadata": {"name": "n", "generation": 2, "managedFields": [
                {"manager": "operator", "time": "2026-01-01T10:05:00Z"},
                {"manager": "agent", "subresource": "status", "time": "2026-01-01T10:00:00Z"},
            ]},
            "status": {"observedGeneration": 1, "agent": agent},
        });
        let node = Node::of(&object).unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert_eq!(node.silent_since(at("2026-01-01T10:06:00Z")), None, "what was granted a minute ago it may still take in");
        assert_eq!(node.silent_since(at("2026-01-01T10:06:01Z")), Some(at("2026-01-01T10:00:00Z")));
        assert_eq!(node.agent(), "not running since 2026-01-01T10:00:00Z");
        let mut current = object.clone();
        current["status"]["observedGeneration"] = json!(2);
        assert_eq!(Node::of(&current).unwrap().agent(), "current");
    }
}
