//! The Nodes of the cluster as this node reaches them, for a person.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use between::{Device, Plan, Problem};
use cluster::Node;
use cni::{CniError, Code};
use ipnet::IpNet;
use json::{Object, Value};
use linux::{Answers, Inside, Netlink};

use super::{gateway, texts};
use crate::{Agent, lock};

/// How long a peer may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

impl Agent {
    /// Every Node in the order of their names: how packets get to each of its ranges, and whether they pass. Asks each that is reached for
    /// an echo, at the gateway of its pods.
    pub(crate) fn nodes_value(&self) -> Result<Value, CniError> {
        let Some(provided) = &self.provided else {
            let msg = "this agent does not provide the cluster's network: see the setting \"provide\" in docs/operate/settings.md";
            return Err(CniError::new(Code::INVALID_CONFIG, msg));
        };
        let (plan, failed) = {
            let state = lock(&provided.state);
            (state.plan.clone(), state.failed.clone())
        };
        let mut nodes = provided.nodes.all();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        let mut problems: BTreeMap<&str, Vec<&Problem>> = BTreeMap::new();
        for problem in plan.iter().flat_map(|plan| &plan.problems) {
            problems.entry(problem.node()).or_default().push(problem);
        }
        let gateways: Vec<IpAddr> = nodes.iter().filter(|node| node.name != self.cluster.node()).flat_map(gateways).collect();
        let inside = Inside::here();
        let answers =
            linux::echo(&inside, &gateways, PATIENCE).map_err(|e| CniError::new(Code::INTERNAL, format!("cannot ask for an echo: {e}")))?;
        let names = plan.as_ref().map(|plan| names(&inside, plan)).unwrap_or_default();
        let each = nodes.iter().map(|node| {
            let mut o = Object::new();
            let is_own = node.name == self.cluster.node();
            o.set("name", node.name.as_str());
            o.set("own", is_own);
            o.set("addresses", texts(&node.internal_ips));
            o.set("ranges", texts(&node.pod_cidrs));
            if let Some(plan) = plan.as_ref().filter(|_| !is_own) {
                let is_failed = node.pod_cidrs.iter().any(|range| failed.contains(&range.trunc()));
                o.set("reached", !is_failed && !plan.unreached.contains(&node.name));
                o.set("ways", Value::Array(ways(plan, node, &names, &answers)));
            }
            let of_node = problems.get(node.name.as_str()).into_iter().flatten().map(ToString::to_string);
            o.set("problems", of_node.chain(node.unreadable.iter().cloned()).collect::<Vec<_>>());
            Value::from(o)
        });
        Ok(Value::Array(each.collect()))
    }
}

fn gateways(node: &Arc<Node>) -> Vec<IpAddr> {
    node.pod_cidrs.iter().filter_map(gateway::of).map(|net| net.addr()).collect()
}

/// What the links are called that direct routes of a plan lead over.
fn names(inside: &Inside, plan: &Plan) -> BTreeMap<u32, String> {
    let indexes = plan.routes.values().filter_map(|route| if let Device::Link(index) = route.device { Some(index) } else { None });
    let indexes: BTreeSet<u32> = indexes.collect();
    let Ok(mut netlink) = Netlink::open(inside) else { return BTreeMap::new() };
    indexes.into_iter().filter_map(|index| Some((index, netlink.link_by_index(index).ok()??.name))).collect()
}

/// How packets get to each of a Node's ranges.
fn ways(plan: &Plan, node: &Node, names: &BTreeMap<u32, String>, answers: &Answers) -> Vec<Value> {
    let routes = node.pod_cidrs.iter().filter_map(|range| Some((range.trunc(), *plan.routes.get(&range.trunc())?)));
    let way = |(range, route): (IpNet, between::Route)| {
        let mut o = Object::new();
        o.set("range", range.to_string());
        let (word, link, to) = match route.device {
            Device::Link(index) => ("direct", names.get(&index).cloned().unwrap_or_else(|| format!("if{index}")), route.via),
            device => {
                let mac = route.via.and_then(|via| plan.neighbours.get(&(device, via)));
                let to = mac.and_then(|mac| plan.forwarding.get(&(device, *mac)).copied());
                let word = if matches!(device, Device::Vxlan { .. }) { "vxlan" } else { "wireguard" };
                (word, fabric::device_name(&device).unwrap_or_default(), to)
            }
        };
        o.set("way", word);
        o.set("link", link);
        if let Some(to) = to {
            o.set("to", to.to_string());
        }
        let answer = gateway::of(&range).and_then(|net| answers.get(&net.addr()));
        o.set("answers", answer.is_some());
        if let Some(took) = answer {
            o.set("microseconds", u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        }
        Value::from(o)
    };
    routes.map(way).collect()
}
