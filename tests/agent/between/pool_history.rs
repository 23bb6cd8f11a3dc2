//! Any history of a cluster whose nodes have addresses of pools, by chance: pods start and end, so that a real operator grants blocks and takes them
//! back; agents and the operator are killed, machines do not reach the API server, other programs spoil tables. After each step every machine's
//! kernel becomes what the oracle says of the blocks in the API, no two pods have one address, and one of them reaches another one.
//!
//! `NETLOOM_SEED=N` repeats a history, as far as the machine's timing does; `NETLOOM_SOAK=N` makes it N times as long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use netloom_tests::{Pod, Running, seen_within};
use serde_json::{Value, json};

use super::history::{any, spoiling};
use super::oracle;
use super::pools::{operator, start};
use super::scene::{A, B, FAR, Place, Scene};
use crate::process::chance::{Chance, soak};

/// In the ordinary suite.
const STEPS: u64 = 40;
/// As of the other histories.
const PATIENCE: Duration = Duration::from_secs(60);
const GATEWAYS: [&str; 2] = ["10.1.0.1", "fd00:1::1"];
/// So that blocks are left for whoever asks for one.
const MOST_PODS: usize = 24;

struct History<'s> {
    scene: &'s Scene,
    places: &'s [Place],
    mode: &'static str,
    chance: Chance,
    operator: Option<Running>,
    /// By machine, with their addresses.
    pods: Vec<(usize, Pod<'s>, Vec<String>)>,
    done: Vec<String>,
}

/// Blocks of four addresses, of which a node keeps one address ready and gives back at once what it does not need.
fn pool() -> Value {
    json!({"ipv4": {"entries": [{"cidr": "10.1.0.0/24"}], "gateway": GATEWAYS[0], "blockPrefix": 30},
        "ipv6": {"entries": [{"cidr": "fd00:1::/120"}], "gateway": GATEWAYS[1], "blockPrefix": 126},
        "scaling": {"preAllocate": 1, "releaseDelaySeconds": 0}, "reuse": {"cooldownSeconds": 0}})
}

// === impl History ===

impl<'s> History<'s> {
    fn list(&self, path: &str) -> Vec<Value> {
        self.scene.api.must("GET", path, &Value::Null)["items"].as_array().unwrap().clone()
    }

    /// The blocks of every node, as the operator has written them.
    fn blocks(&self) -> BTreeMap<String, Vec<String>> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let of = |object: &Value| {
            let blocks = object["spec"]["blocks"].as_array().into_iter().flatten();
            (text(&object["metadata"]["name"]), blocks.map(|block| text(&block["cidr"])).collect())
        };
        self.list("/apis/netloom.io/v1alpha1/nodeippools").iter().map(of).collect()
    }

    /// Waits until every machine's kernel is what the oracle says, however the blocks change meanwhile.
    fn settle(&mut self) {
        for (at, place) in self.places.iter().enumerate() {
            let look = || {
                let wanted = oracle::wanted_of_pools(self.mode, place, &self.list("/api/v1/nodes"), &self.blocks(), &GATEWAYS);
                let is_compared = |line: &String| !line.starts_with("address nl");
                let [found, wanted] = [oracle::found(&self.scene.nodes[at].host), wanted]
                    .map(|lines| lines.into_iter().filter(is_compared).collect::<BTreeSet<String>>());
                (found, wanted)
            };
            if let Err((found, wanted)) = seen_within(PATIENCE, look, |(found, wanted)| found == wanted) {
                let difference = oracle::difference(&found, &wanted);
                panic!("on {}, not within {PATIENCE:?} after {:#?}:\n{difference}\n{}", place.name, self.done, self.scene.nodes[at].tail());
            }
        }
        let mut taken = BTreeMap::new();
        for (_, pod, address) in self.pods.iter().flat_map(|(at, pod, all)| all.iter().map(move |address| (at, pod, address))) {
            let other = taken.insert(address, &pod.name);
            assert!(
                other.is_none() && !GATEWAYS.contains(&address.as_str()),
                "{address}: {} and {other:?} after {:#?}",
                pod.name,
                self.done
            );
        }
        let indexes: Vec<usize> = (0..self.pods.len()).collect();
        let two = (any(&mut self.chance, &indexes), any(&mut self.chance, &indexes));
        if let (Some(from), Some(to)) = two {
            let ((at, from, _), (_, to, addresses)) = (&self.pods[from], &self.pods[to]);
            for address in addresses {
                let pings = self.scene.nodes[*at].host.pings(&from.sandbox(), address);
                assert!(pings, "{} does not reach {} at {address} after {:#?}", from.name, to.name, self.done);
            }
        }
    }

    fn machine(&mut self) -> usize {
        usize::try_from(self.chance.below(self.places.len() as u64)).unwrap()
    }

    /// Something happens; what, in words.
    fn step(&mut self) {
        let said = match self.chance.below(28) {
            0..=10 if self.pods.len() < MOST_PODS => self.begin_pod(),
            0..=17 => self.end_pod(),
            18..=21 => self.spoil(),
            22..=24 => self.kill(),
            25 => self.replace_operator(),
            _ => self.turn_away(),
        };
        self.done.push(said);
        self.settle();
    }

    fn begin_pod(&mut self) -> String {
        let at = self.machine();
        let pod = self.scene.nodes[at].pod(&format!("pod{}", self.done.len()), "");
        let added = pod.call("ADD");
        assert_eq!(added.code, 0, "on {}, after {:#?}: {added:?}", self.places[at].name, self.done);
        // The runtime's part: a pod reaches itself too.
        self.scene.nodes[at].host.sh(&pod.sandbox(), "ip link set lo up");
        let text = |ip: &Value| ip["address"].as_str().unwrap().split('/').next().unwrap().to_owned();
        let addresses: Vec<String> = added.result()["ips"].as_array().unwrap().iter().map(text).collect();
        let said = format!("{} on {} has {addresses:?}", pod.name, self.places[at].name);
        assert_eq!(addresses.len(), 2, "{said}");
        self.pods.push((at, pod, addresses));
        said
    }

    fn end_pod(&mut self) -> String {
        let indexes: Vec<usize> = (0..self.pods.len()).collect();
        let Some(index) = any(&mut self.chance, &indexes) else { return "no pod ends".to_owned() };
        let (at, pod, _) = self.pods.swap_remove(index);
        pod.must("DEL");
        format!("{} on {} ends", pod.name, self.places[at].name)
    }

    /// Another program changes what is ours.
    fn spoil(&mut self) -> String {
        let at = self.machine();
        let host = &self.scene.nodes[at].host;
        let Some(spoilt) = spoiling(&mut self.chance, &oracle::found(host)) else { return "nothing is there".to_owned() };
        // It may be gone by now, as the device with its last address.
        host.run_ok("", &spoilt.split(' ').collect::<Vec<_>>());
        format!("on {}: {spoilt}", self.places[at].name)
    }

    /// An agent is killed, and another program changes what is ours before the next one is there.
    fn kill(&mut self) -> String {
        let at = self.machine();
        self.scene.nodes[at].kill9();
        let meanwhile = self.spoil();
        self.scene.nodes[at].launch();
        format!("the agent of {} is killed; {meanwhile}", self.places[at].name)
    }

    fn replace_operator(&mut self) -> String {
        drop(self.operator.take());
        let meanwhile = self.end_pod();
        self.operator = Some(operator(self.scene));
        format!("the operator is killed; {meanwhile}")
    }

    /// A machine does not reach the API server for a while, in which a pod ends and something is spoilt.
    fn turn_away(&mut self) -> String {
        let at = self.machine();
        self.scene.nodes[at].api_proxy.shut();
        let meanwhile = format!("{}, {}", self.end_pod(), self.spoil());
        self.scene.nodes[at].api_proxy.open();
        format!("{} does not reach the API server; {meanwhile}", self.places[at].name)
    }
}

fn lives(mode: &'static str, places: &[Place]) {
    let (scene, operator) = start(&format!("between: {mode}\nreconcileEvery: 1s"), &pool(), places);
    let chance = Chance::new(&format!("between::pool_history, {mode}"));
    let mut history = History { scene: &scene, places, mode, chance, operator: Some(operator), pods: Vec::new(), done: Vec::new() };
    history.settle();
    for _ in 0..STEPS * soak().max(1) {
        history.step();
    }
    let pods = std::mem::take(&mut history.pods);
    pods.iter().for_each(|(_, pod, _)| drop(pod.must("DEL")));
    history.done.push("all pods end".to_owned());
    history.settle();
    println!("{mode}: {} steps\n{}", history.done.len(), history.done.join("\n"));
}

#[test]
fn after_any_history_of_pods_the_blocks_are_routed_directly() {
    lives("direct", &[A, B]);
}

#[test]
fn after_any_history_of_pods_the_blocks_are_routed_on_one_link_and_over_vxlan() {
    lives("auto", &[A, B, FAR]);
}
