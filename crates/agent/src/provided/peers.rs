//! The Nodes of the cluster as this node reaches them, for a person.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use between::rotation::SESSION;
use between::{Device, Peer, Plan, Problem};
use cni::{CniError, Code};
use ipnet::IpNet;
use json::{Object, Value};
use linux::wireguard::Key;
use linux::{Answers, Inside, Netlink};

use super::keys::age_of;
use super::{Provided, Source, gateway, texts};
use crate::{Agent, lock};

/// How long a peer may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

impl Agent {
    /// Every Node in the order of their names: how packets get to each of its ranges, and whether they pass. Asks each that is reached for
    /// an echo, at the gateway of its pods.
    pub(crate) fn nodes_value(&self) -> Result<Value, CniError> {
        let provided = self.provided_network()?;
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
        let ranges = &provided.ranges;
        // A pool's gateway is every node's own: nobody answers there for another one.
        let asks = provided.settings.source == Source::PodCidrs;
        let others = nodes.iter().filter(|node| asks && node.name != self.cluster.node());
        let gateways: Vec<IpAddr> = others.flat_map(|node| ranges.of(node)).filter_map(|range| Some(gateway::of(&range)?.addr())).collect();
        let inside = Inside::here();
        let answers =
            linux::echo(&inside, &gateways, PATIENCE).map_err(|e| CniError::new(Code::INTERNAL, format!("cannot ask for an echo: {e}")))?;
        let names = plan.as_ref().map(|plan| names(&inside, plan)).unwrap_or_default();
        let has_tunnels = plan.as_ref().is_some_and(|plan| !plan.peers.is_empty());
        let tunnels =
            Netlink::open(&inside).ok().filter(|_| has_tunnels).and_then(|mut netlink| fabric::tunnels(&inside, &mut netlink).ok());
        let kernel = Kernel { names, answers: asks.then_some(answers), tunnels: tunnels.unwrap_or_default() };
        let allowed = plan.as_ref().map(|plan| allowed(plan)).unwrap_or_default();
        let each = nodes.iter().map(|node| {
            let mut o = Object::new();
            let is_own = node.name == self.cluster.node();
            o.set("name", node.name.as_str());
            o.set("own", is_own);
            o.set("addresses", texts(&node.internal_ips));
            let ranges = ranges.of(node);
            o.set("ranges", texts(&ranges));
            if let Some(plan) = plan.as_ref().filter(|_| !is_own) {
                let is_failed = ranges.iter().any(|range| failed.contains(&range.trunc()));
                o.set("reached", !is_failed && !plan.unreached.contains(&node.name));
                o.set("ways", Value::Array(ways(plan, &allowed, &ranges, &kernel)));
            }
            let of_node = problems.get(node.name.as_str()).into_iter().flatten().map(ToString::to_string);
            o.set("problems", of_node.chain(provided.ranges.unreadable(node)).collect::<Vec<_>>());
            Value::from(o)
        });
        Ok(Value::Array(each.collect()))
    }

    /// For a monitoring system: name, meaning, value of all WireGuard tunnels together. Of each alone there would be as many values in a
    /// cluster as the square of its nodes; `netloom nodes` shows them.
    pub(crate) fn tunnel_figures(&self) -> Vec<(&'static str, &'static str, &'static str, u64)> {
        let has_keys = self.provided.as_ref().is_some_and(|provided| lock(&provided.state).keys.is_some());
        let inside = Inside::here();
        let netlink = Netlink::open(&inside).ok().filter(|_| has_keys);
        let Some(tunnels) = netlink.and_then(|mut netlink| fabric::tunnels(&inside, &mut netlink).ok()) else { return Vec::new() };
        let is_up = |tunnel: &&linux::wireguard::Peer| tunnel.handshake.is_some_and(|at| age_of(at) < SESSION);
        let sum = |of: fn(&linux::wireguard::Peer) -> u64| tunnels.values().map(of).fold(0_u64, u64::saturating_add);
        vec![
            ("netloom_network_wireguard_tunnels", "gauge", "WireGuard tunnels to other nodes.", tunnels.len() as u64),
            (
                "netloom_network_wireguard_tunnels_up",
                "gauge",
                "Those of them with a handshake in the last three minutes. A tunnel that nobody uses has none.",
                tunnels.values().filter(is_up).count() as u64,
            ),
            (
                "netloom_network_wireguard_received_bytes",
                "gauge",
                "Bytes that the present tunnels have received.",
                sum(|tunnel| tunnel.received),
            ),
            ("netloom_network_wireguard_sent_bytes", "gauge", "Bytes that the present tunnels have sent.", sum(|tunnel| tunnel.sent)),
        ]
    }

    /// Begins a rotation of WireGuard's keys.
    pub(crate) fn rotate_keys(&self) -> Result<Value, CniError> {
        self.provided_network()?.rotate_keys()
    }

    fn provided_network(&self) -> Result<&Provided, CniError> {
        self.provided.as_ref().ok_or_else(|| {
            let msg = "this agent does not provide the cluster's network: see the setting \"provide\" in docs/operate/settings.md";
            CniError::new(Code::INVALID_CONFIG, msg)
        })
    }
}

/// What the kernel says of ways.
struct Kernel {
    /// What links are called.
    names: BTreeMap<u32, String>,
    /// Who has answered; `None` where nobody can be asked.
    answers: Option<Answers>,
    tunnels: BTreeMap<(u16, Key), linux::wireguard::Peer>,
}

/// What the links are called that direct routes of a plan lead over.
fn names(inside: &Inside, plan: &Plan) -> BTreeMap<u32, String> {
    let indexes = plan.routes.values().filter_map(|route| if let Device::Link(index) = route.device { Some(index) } else { None });
    let indexes: BTreeSet<u32> = indexes.collect();
    let Ok(mut netlink) = Netlink::open(inside) else { return BTreeMap::new() };
    indexes.into_iter().filter_map(|index| Some((index, netlink.link_by_index(index).ok()??.name))).collect()
}

/// Who takes packets to a range on a WireGuard device: its public key, and the peer.
type Allowed<'a> = BTreeMap<(Device, IpNet), (&'a Key, &'a Peer)>;

fn allowed(plan: &Plan) -> Allowed<'_> {
    let mut all = Allowed::new();
    for ((device, key), peer) in &plan.peers {
        all.extend(peer.allowed.iter().map(|range| ((*device, *range), (key, peer))));
    }
    all
}

/// How packets get to each of these ranges.
fn ways(plan: &Plan, allowed: &Allowed<'_>, ranges: &[IpNet], kernel: &Kernel) -> Vec<Value> {
    let routes = ranges.iter().filter_map(|range| Some((range.trunc(), *plan.routes.get(&range.trunc())?)));
    let way = |(range, route): (IpNet, between::Route)| {
        let mut o = Object::new();
        o.set("range", range.to_string());
        let link = || fabric::device_name(&route.device).unwrap_or_default();
        let (word, link, to) = match route.device {
            Device::Link(index) => {
                let name = kernel.names.get(&index).cloned().unwrap_or_else(|| format!("if{index}"));
                ("direct", name, route.via.map(|via| via.to_string()))
            }
            device @ Device::Vxlan { .. } => {
                let mac = route.via.and_then(|via| plan.neighbours.get(&(device, via)));
                let to = mac.and_then(|mac| plan.forwarding.get(&(device, *mac)));
                ("vxlan", link(), to.map(ToString::to_string))
            }
            device @ Device::WireGuard { port } => {
                let found = allowed.get(&(device, range));
                if let Some((key, _)) = found {
                    o.set("publicKey", STANDARD.encode(key));
                    set_traffic(&mut o, kernel.tunnels.get(&(port, **key)));
                }
                ("wireguard", link(), found.map(|(_, peer)| peer.endpoint.to_string()))
            }
        };
        o.set("way", word);
        o.set("link", link);
        if let Some(to) = to {
            o.set("to", to);
        }
        if let Some(answers) = &kernel.answers {
            let answer = gateway::of(&range).and_then(|net| answers.get(&net.addr()));
            o.set("answers", answer.is_some());
            if let Some(took) = answer {
                o.set("microseconds", u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
            }
        }
        Value::from(o)
    };
    routes.map(way).collect()
}

/// What has passed through a tunnel; its last handshake is missing where there was none.
fn set_traffic(o: &mut Object, tunnel: Option<&linux::wireguard::Peer>) {
    let Some(tunnel) = tunnel else { return };
    o.set("received", tunnel.received);
    o.set("sent", tunnel.sent);
    if let Some(handshake) = tunnel.handshake {
        o.set("handshakeSeconds", age_of(handshake).as_secs());
    }
}
