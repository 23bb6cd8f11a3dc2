//! `netloom ipam trace --cluster ADDRESS`: which node of the cluster may hand it out, and to whom.

use std::net::IpAddr;
use std::process::ExitCode;

use anstyle::Style;
use anyhow::Context;
use api::{NodeIpPoolSpec, Owner};
use cluster::Own;
use pool::Run;
use serde::Serialize;
use serde_json::Value;

use super::nodes::name;
use super::trace::{self, IN, KEYS};
use crate::cli::IpamTraceArgs;
use crate::output::ODD;

/// That a node was granted it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Granted {
    node: String,
    pool: String,
    network: String,
    /// The block that it lies in; itself where it was granted alone.
    block: String,
    epoch: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<Owner>,
    /// Another node that has it as well, while the claim's pod migrates.
    #[serde(skip_serializing_if = "String::is_empty")]
    also: String,
    /// The operator wants it back.
    ending: bool,
}

pub(super) fn run(args: &IpamTraceArgs) -> anyhow::Result<ExitCode> {
    let address = args.address.to_canonical();
    let [objects] = cluster::read_all(args.of.file()?.as_deref(), [Own::NodeIpPool])?;
    let mut found = Vec::new();
    for object in &objects {
        found.extend(granted(object, address)?);
    }
    trace::tell(args, &found, render)
}

fn granted(object: &Value, address: IpAddr) -> anyhow::Result<Vec<Granted>> {
    let node = name(object);
    let spec = object.get("spec").cloned().unwrap_or_default();
    let spec: NodeIpPoolSpec =
        serde_json::from_value(spec).with_context(|| format!("NodeIPPool {node} has another version's format: update netloom"))?;
    let has = |text: &str| text.parse::<Run>().is_ok_and(|run| run.contains(address));
    let blocks = spec.blocks.into_iter().filter(|block| has(&block.cidr)).map(|block| Granted {
        node: node.to_owned(),
        pool: block.pool,
        network: block.network,
        block: block.cidr,
        epoch: block.epoch,
        owner: None,
        also: String::new(),
        ending: false,
    });
    let ips = spec.ips.into_iter().filter(|ip| has(&ip.ip)).map(|ip| Granted {
        node: node.to_owned(),
        pool: ip.pool,
        network: ip.network,
        block: ip.ip,
        epoch: ip.epoch,
        owner: Some(ip.owner),
        also: ip.also,
        ending: ip.ending,
    });
    Ok(blocks.chain(ips).collect())
}

// === impl Granted ===

impl Granted {
    /// `node-a, alone, for claim db/vip, in life 4`
    fn told(&self) -> String {
        let whole = if self.owner.is_some() { "alone".to_owned() } else { format!("in block {}", self.block) };
        let owner = self.owner.as_ref().map_or_else(String::new, |owner| match owner.claim.as_str() {
            "" => format!(", for pod {}", owner.pod),
            claim => format!(", for claim {claim}"),
        });
        let mut text = format!("{}, {whole}{owner}, in life {}", self.node, self.epoch);
        if !self.also.is_empty() {
            text += &format!("; node {} has it as well, because the claim's pod is migrating", self.also);
        }
        if self.ending {
            text += "; the node is to return it when its container is gone";
        }
        text
    }
}

fn render(address: IpAddr, found: &[Granted]) -> String {
    let mut page = trace::page(address, found, "no node of the cluster may assign it");
    for one in found {
        page.pair(IN, "pool", KEYS, Style::new(), &trace::of_network(&one.pool, &one.network));
        page.pair(IN, "node", KEYS, if one.also.is_empty() { Style::new() } else { ODD }, &one.told());
    }
    page.into_text()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_node_and_for_whom() {
        let ip = json!({"ip": "10.0.0.9", "network": "n", "pool": "p", "epoch": 4, "owner": {"claim": "db/vip"}, "also": "b"});
        let block = json!({"cidr": "10.0.0.0/29", "network": "p", "pool": "p", "epoch": 2});
        let object = json!({"metadata": {"name": "a"}, "spec": {"nodeUID": "u", "ips": [ip], "blocks": [block]}});
        let told = |address: &str| granted(&object, address.parse().unwrap()).unwrap().iter().map(Granted::told).collect::<Vec<_>>();
        assert_eq!(
            told("10.0.0.9"),
            ["a, alone, for claim db/vip, in life 4; node b has it as well, because the claim's pod is \
            migrating"]
        );
        assert_eq!(told("10.0.0.3"), ["a, in block 10.0.0.0/29, in life 2"]);
        assert_eq!(told("10.0.1.3"), Vec::<String>::new());
    }
}
