//! Any history of a cluster, by chance: Nodes come, go, change, are replaced and swap their ranges, pods start and end, the mode changes, agents
//! end to provide the network and begin again, are killed at any crash point, the API server is away, other programs spoil tables. After each
//! step every machine's kernel becomes what the oracle says, and running pods reach their gateways.
//!
//! ```text
//!   Nodes a, b, far: machines with agents      Nodes p0..p5: objects alone, near and far      one API server
//!   a step --> every agent settles --> oracle::found == oracle::wanted(the Nodes that its agent can know)
//! ```
//!
//! `NETLOOM_SEED=N` repeats a history, as far as the machine's timing does; `NETLOOM_SOAK=N` makes it N times as long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use netloom_tests::{Node, Pod, SETTINGS, seen_within};
use serde_json::{Value, json};

use super::oracle;
use super::scene::{A, B, FAR, Place, Scene};
use crate::process::chance::{Chance, soak};

/// How long a history goes on in the ordinary suite.
const LENGTH: Duration = Duration::from_secs(18);
/// And how many steps it has at the least, on the slowest machine.
const STEPS: usize = 5;
/// How long a step's consequences may take. What an agent could not do it tries again after five seconds.
const PATIENCE: Duration = Duration::from_secs(60);
const PLACES: [Place; 3] = [A, B, FAR];
const TRACE: &str = "/run/trace";
/// Nodes that are objects alone.
const OBJECTS: u64 = 6;
/// The modes that the oracle knows.
const MODES: [&str; 3] = ["direct", "vxlan", "auto"];

struct History<'s> {
    scene: &'s Scene,
    mode: &'static str,
    chance: Chance,
    /// By machine: the Nodes as its agent has seen them last, while the API server is away for it.
    away: [Option<Vec<Value>>; 3],
    /// By machine: its agent was started meanwhile, so that it knows of no Node and repairs nothing between nodes.
    blind: [bool; 3],
    /// By machine: at which place its ranges are.
    home: [usize; 3],
    /// Which of the two pairs of ranges of that place it has.
    second: [bool; 3],
    /// Whether its Node has its second addresses.
    moved: [bool; 3],
    /// Its running pod, and the ranges that this has addresses of.
    pods: [Option<(Pod<'s>, Vec<String>)>; 3],
    /// The crash points that an agent comes by, and how often.
    points: Vec<(String, u64)>,
    done: Vec<String>,
    deaths: usize,
}

/// Machines whose Nodes are there, and no agent.
fn machines(mode: &str) -> Scene {
    let scene = Scene::new(&format!("between: {mode}\nreconcileEvery: 1s\naddWait: 1s"), &PLACES);
    PLACES.iter().for_each(|place| scene.register(place, json!(place.ranges)));
    for (node, place) in scene.nodes.iter().zip(&PLACES) {
        let [v4, v6] = second(place);
        node.host.sh("", &format!("ip addr add {v4}/24 dev eth0"));
        node.host.sh("", &format!("ip -6 addr add {v6}/64 dev eth0 nodad"));
    }
    scene
}

/// The other addresses of a machine.
fn second(place: &Place) -> [String; 2] {
    let [v4, v6] = place.addresses;
    let (net, host) = v4.rsplit_once('.').unwrap();
    [format!("{net}.1{host}"), format!("{v6}:1")]
}

/// One of them.
pub(super) fn any<T: Clone>(chance: &mut Chance, of: &[T]) -> Option<T> {
    if of.is_empty() { None } else { of.get(usize::try_from(chance.below(of.len() as u64)).unwrap()).cloned() }
}

/// The command by which another program changes something of what is there: each kind of entry as often as each other one, however many there are.
pub(super) fn spoiling(chance: &mut Chance, found: &BTreeSet<String>) -> Option<String> {
    let kind = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let kinds: Vec<String> = found.iter().map(|line| kind(line)).collect::<BTreeSet<_>>().into_iter().collect();
    let chosen = any(chance, &kinds)?;
    let of_kind: Vec<String> = found.iter().filter(|line| kind(line) == chosen).cloned().collect();
    let line = any(chance, &of_kind)?;
    let words: Vec<&str> = line.split(' ').collect();
    let twice = chance.below(2) == 0;
    Some(match words[..] {
        ["route", range, ..] if twice && range.contains(':') => {
            format!("ip route replace {range} via 2001:db8:1::251 dev eth0 proto 110 onlink")
        }
        ["route", range, ..] if twice => format!("ip route replace {range} via 192.0.2.251 dev eth0 proto 110 onlink"),
        ["route", ..] if chance.below(3) == 0 => "ip route flush proto 110".to_owned(),
        ["route", range, ..] => format!("ip route del {range} proto 110"),
        ["forwarding", device, mac, ..] if twice => {
            let dst = if device.starts_with("nl4") { "192.0.2.252" } else { "2001:db8:1::252" };
            format!("bridge fdb replace {mac} dev {device} dst {dst} self permanent")
        }
        ["forwarding", device, mac, ..] => format!("bridge fdb del {mac} dev {device} self"),
        ["neighbour", device, address, ..] if twice => {
            format!("ip neigh replace {address} lladdr 02:00:00:00:00:99 dev {device} nud permanent")
        }
        ["neighbour", device, address, ..] => format!("ip neigh del {address} dev {device}"),
        ["device", device, ..] if twice => format!("ip link del {device}"),
        ["device", device, ..] => format!("ip link set {device} down"),
        ["address", device, address] => format!("ip addr del {address} dev {device}"),
        ["up", bridge] => format!("ip link set {bridge} down"),
        _ if twice => "nft flush ruleset".to_owned(),
        _ => format!("nft flush set inet netloom {}{}", words[0], if words[1].contains(':') { 6 } else { 4 }),
    })
}

// === impl History ===

impl<'s> History<'s> {
    fn begin(scene: &'s Scene, mode: &'static str) -> Self {
        scene.nodes[0].set("NETLOOM_CRASH_TRACE", TRACE);
        scene.nodes.iter().for_each(Node::launch);
        let chance = Chance::new(&format!("between::history, {mode}"));
        let mut history = History {
            scene,
            mode,
            chance,
            away: Default::default(),
            blind: [false; 3],
            home: [0, 1, 2],
            second: [false; 3],
            moved: [false; 3],
            pods: Default::default(),
            points: Vec::new(),
            done: Vec::new(),
            deaths: 0,
        };
        history.settle();
        let a = &history.scene.nodes[0];
        let text = std::fs::read_to_string(a.host.path(TRACE)).unwrap();
        let mut times = BTreeMap::new();
        text.lines().filter_map(|line| line.split(' ').next()).for_each(|name| *times.entry(name.to_owned()).or_default() += 1);
        a.set("NETLOOM_CRASH_TRACE", "");
        history.points = times.into_iter().collect();
        history
    }

    fn nodes(&self) -> Vec<Value> {
        self.scene.api.must("GET", "/api/v1/nodes", &Value::Null)["items"].as_array().unwrap().clone()
    }

    /// Waits until every machine's kernel is what the oracle says.
    fn settle(&self) {
        self.settle_as(&self.nodes());
    }

    fn settle_as(&self, nodes: &[Value]) {
        for (at, place) in PLACES.iter().enumerate() {
            let wanted = oracle::wanted(self.mode, place, self.away[at].as_deref().unwrap_or(nodes), self.held(at));
            let seen = seen_within(PATIENCE, || oracle::found(&self.scene.nodes[at].host), |found| *found == wanted);
            if let Err(found) = seen {
                let difference = oracle::difference(&found, &wanted);
                panic!("on {}, not within {PATIENCE:?} after {:#?}:\n{difference}\n{}", place.name, self.done, self.scene.nodes[at].tail());
            }
            if let Some((pod, ranges)) = &self.pods[at] {
                let gateway = ranges[0].replace(".0/24", ".1");
                let host = &self.scene.nodes[at].host;
                assert!(host.pings(&pod.sandbox(), &gateway), "on {}, after {:#?}: {} to {gateway}", place.name, self.done, pod.name);
            }
        }
    }

    /// The ranges that a machine's running pod has addresses of.
    fn held(&self, at: usize) -> &[String] {
        self.pods[at].as_ref().map_or(&[], |(_, ranges)| ranges)
    }

    /// One of them.
    fn any<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        any(&mut self.chance, of)
    }

    fn machine(&mut self) -> usize {
        usize::try_from(self.chance.below(3)).unwrap()
    }

    /// Something happens; what, in words.
    fn step(&mut self) {
        let said = match self.chance.below(36) {
            0..=6 => self.join(),
            7 | 8 => self.leave(),
            9 => self.readdress(),
            10 | 11 => self.replace(),
            12 => self.families(),
            13..=18 => self.spoil(),
            19 | 20 => self.turn_away(),
            21..=24 => self.kill(),
            25 => self.outage(),
            26..=29 => self.pod(),
            30 | 31 => self.swap(),
            32 | 33 => self.stop_providing(),
            _ => self.change_mode(),
        };
        self.done.push(said);
        self.settle();
    }

    /// A Node that was not there, or another one under the same name.
    fn join(&mut self) -> String {
        let name = format!("p{}", self.chance.below(OBJECTS));
        let (addresses, ranges) = (self.addresses(), self.ranges());
        let said = format!("{name} comes with {addresses:?} and {ranges:?}");
        self.put(&name, &addresses, &ranges);
        said
    }

    /// Addresses that another object may have as well.
    fn addresses(&mut self) -> Vec<String> {
        let (host, families) = (21 + self.chance.below(5), 1 + self.chance.below(3));
        let [v4, v6] = if self.chance.below(3) == 0 { ["198.51.100.", "2001:db8:2::"] } else { ["192.0.2.", "2001:db8:1::"] };
        let all = [format!("{v4}{host}"), format!("{v6}{host}")];
        all.into_iter().enumerate().filter(|(family, _)| families & (1 << family) != 0).map(|(_, address)| address).collect()
    }

    /// Ranges that another object may have as well, in part or as a whole; or none.
    fn ranges(&mut self) -> Vec<String> {
        let (number, families) = (100 + self.chance.below(8), self.chance.below(4));
        let v4 = if self.chance.below(5) == 0 { "10.1.100.0/22".to_owned() } else { format!("10.1.{number}.0/24") };
        let all = [v4, format!("fd00:1:{number}::/64")];
        all.into_iter().enumerate().filter(|(family, _)| families & (1 << family) != 0).map(|(_, range)| range).collect()
    }

    fn put(&self, name: &str, addresses: &[String], ranges: &[String]) {
        let api = &self.scene.api;
        api.ask("DELETE", &format!("/api/v1/nodes/{name}"), &Value::Null);
        let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        if let Some(first) = ranges.first() {
            node["spec"] = json!({"podCIDRs": ranges, "podCIDR": first});
        }
        api.must("POST", "/api/v1/nodes", &node);
        self.address(name, addresses);
    }

    fn address(&self, name: &str, addresses: &[String]) {
        let addresses: Vec<Value> = addresses.iter().map(|address| json!({"type": "InternalIP", "address": address})).collect();
        self.scene.api.must("PATCH", &format!("/api/v1/nodes/{name}/status"), &json!({"status": {"addresses": addresses}}));
    }

    /// The objects without a machine.
    fn objects(&self) -> Vec<String> {
        let names = self.nodes().into_iter().map(|node| node["metadata"]["name"].as_str().unwrap().to_owned());
        names.filter(|name| name.starts_with('p')).collect()
    }

    fn leave(&mut self) -> String {
        let Some(name) = self.any(&self.objects()) else { return "nobody leaves".to_owned() };
        self.scene.api.must("DELETE", &format!("/api/v1/nodes/{name}"), &Value::Null);
        format!("{name} leaves")
    }

    fn readdress(&mut self) -> String {
        let Some(name) = self.any(&self.objects()) else { return "nobody changes its address".to_owned() };
        let addresses = self.addresses();
        self.address(&name, &addresses);
        format!("{name} has {addresses:?}")
    }

    /// A machine's Node is made again: with another UID, and perhaps with other ranges and addresses.
    fn replace(&mut self) -> String {
        let at = self.machine();
        self.second[at] ^= self.chance.below(2) == 0;
        self.moved[at] ^= self.chance.below(2) == 0;
        let (addresses, ranges) = (self.addresses_of(at), self.ranges_of(at));
        self.put(PLACES[at].name, &addresses, &ranges);
        format!("{} is made again with {addresses:?} and {ranges:?}", PLACES[at].name)
    }

    fn addresses_of(&self, at: usize) -> [String; 2] {
        if self.moved[at] { second(&PLACES[at]) } else { PLACES[at].addresses.map(str::to_owned) }
    }

    fn ranges_of(&self, at: usize) -> [String; 2] {
        let other = |range: &str| range.replace("10.1.", "10.1.5").replace("fd00:1:", "fd00:1:5");
        PLACES[self.home[at]].ranges.map(|range| if self.second[at] { other(range) } else { range.to_owned() })
    }

    /// Two machines' Nodes are made again, each with the ranges of the other one. A pod that runs on keeps its address.
    fn swap(&mut self) -> String {
        let one = self.machine();
        let two = (one + 1) % PLACES.len();
        self.home.swap(one, two);
        self.second.swap(one, two);
        for at in [one, two] {
            self.scene.api.must("DELETE", &format!("/api/v1/nodes/{}", PLACES[at].name), &Value::Null);
        }
        [one, two].iter().for_each(|at| self.put(PLACES[*at].name, &self.addresses_of(*at), &self.ranges_of(*at)));
        format!("{} and {} swap their ranges", PLACES[one].name, PLACES[two].name)
    }

    /// A pod starts, or the one that runs ends.
    fn pod(&mut self) -> String {
        let at = self.machine();
        let (node, name) = (&self.scene.nodes[at], PLACES[at].name);
        if let Some((pod, _)) = self.pods[at].take() {
            pod.must("DEL");
            return format!("the pod on {name} ends");
        }
        if self.away[at].is_some() {
            return "no pod starts".to_owned();
        }
        let pod = node.pod(&format!("pod{}", self.done.len()), "");
        let added = pod.must("ADD").result();
        let ranges = self.ranges_of(at).to_vec();
        let address = added["ips"][0]["address"].as_str().unwrap().to_owned();
        assert!(address.starts_with(ranges[0].trim_end_matches("0/24")), "{address} is not of {ranges:?}, after {:#?}", self.done);
        self.pods[at] = Some((pod, ranges));
        format!("a pod on {name} has {address}")
    }

    /// Changes lines of a machine's settings: those that begin with these words become these.
    fn configure(&self, at: usize, lines: &[(&str, String)]) {
        let host = &self.scene.nodes[at].host;
        let text = std::fs::read_to_string(host.path(SETTINGS)).unwrap();
        let of = |line: &str| lines.iter().find(|(word, _)| line.starts_with(word)).map_or(line.to_owned(), |(_, other)| other.clone());
        host.write(SETTINGS, &text.lines().map(of).collect::<Vec<_>>().join("\n"));
    }

    /// An agent is started without the network, and with it again. What it has left keeps working.
    fn stop_providing(&mut self) -> String {
        let at = self.machine();
        if self.away[at].is_some() {
            return "all provide the network".to_owned();
        }
        let (node, mode) = (&self.scene.nodes[at], self.mode);
        let before = oracle::found(&node.host);
        let other = json!({"cniVersion": "1.0.0", "name": "other", "plugins": [{"type": "ptp", "ipam": {"type": "host-local",
            "ranges": [[{"subnet": "172.30.0.0/24"}]]}}]});
        self.configure(at, &[("provide: ", format!("delegates: [{other}]")), ("between: ", String::new())]);
        node.restart();
        let meanwhile = self.join();
        let left = oracle::found(&node.host);
        assert_eq!(left, before, "on {}, after {:#?}:\n{}", PLACES[at].name, self.done, oracle::difference(&left, &before));
        self.configure(at, &[("delegates: ", format!("provide: netloom\nbetween: {mode}"))]);
        node.launch();
        format!("{} provides nothing, then the network again; {meanwhile}", PLACES[at].name)
    }

    /// All agents get another mode, perhaps by way of WireGuard, for which this machine's kernel may have no devices.
    fn change_mode(&mut self) -> String {
        for at in 0..PLACES.len() {
            if self.away[at].take().is_some() {
                self.scene.nodes[at].api_proxy.open();
                self.blind[at] = false;
            }
        }
        let next = self.any(&MODES).expect("there are modes");
        let steps = if self.chance.below(2) == 0 { vec!["wireguard", next] } else { vec![next] };
        for mode in &steps {
            (0..PLACES.len()).for_each(|at| self.configure(at, &[("between: ", format!("between: {mode}"))]));
            self.scene.nodes.iter().for_each(Node::launch);
            // There is always a peer, whose ranges are closed.
            let closed = |node: &Node| node.host.sh("", "ip -6 route show type unreachable proto 110").contains("unreachable");
            if *mode == "wireguard" {
                self.scene.nodes.iter().for_each(|node| node.until("nothing leaves plain", || closed(node)));
            }
        }
        self.mode = next;
        format!("the mode is {}", steps.join(", then "))
    }

    /// A machine's Node has addresses of one family or of both.
    fn families(&mut self) -> String {
        let (at, families) = (self.machine(), 1 + self.chance.below(3));
        let addresses = self.addresses_of(at).into_iter().enumerate().filter(|(family, _)| families & (1 << family) != 0);
        let addresses: Vec<String> = addresses.map(|(_, address)| address).collect();
        self.address(PLACES[at].name, &addresses);
        format!("{} has {addresses:?}", PLACES[at].name)
    }

    /// Another program changes what is ours.
    fn spoil(&mut self) -> String {
        let at = self.machine();
        if self.blind[at] {
            return "nothing is spoilt".to_owned();
        }
        let found = oracle::found(&self.scene.nodes[at].host);
        let Some(spoilt) = spoiling(&mut self.chance, &found) else { return "nothing is there".to_owned() };
        // It may be gone by now, as the device with its last address.
        let argv: Vec<&str> = spoilt.split(' ').collect();
        self.scene.nodes[at].host.run_ok("", &argv);
        format!("on {}: {spoilt}", PLACES[at].name)
    }

    /// A machine does not reach the API server, or does again.
    fn turn_away(&mut self) -> String {
        let at = self.machine();
        if self.away[at].take().is_some() {
            self.scene.nodes[at].api_proxy.open();
            self.blind[at] = false;
            return format!("{} reaches the API server", PLACES[at].name);
        }
        self.away[at] = Some(self.nodes());
        self.scene.nodes[at].api_proxy.shut();
        format!("{} does not reach the API server", PLACES[at].name)
    }

    /// An agent is killed, and so is the next one at a crash point, while Nodes change.
    fn kill(&mut self) -> String {
        let at = self.machine();
        self.scene.nodes[at].kill9();
        let (point, times) = self.any(&self.points.clone()).expect("an agent comes by crash points");
        let point = format!("{point}:{}", 1 + self.chance.below(times));
        let meanwhile = self.join();
        let wanted = oracle::wanted(self.mode, &PLACES[at], &self.away[at].clone().unwrap_or_else(|| self.nodes()), self.held(at));
        let node = &self.scene.nodes[at];
        node.set("NETLOOM_CRASH_AT", &point);
        node.launch();
        // Blind, it is never ready.
        let is_done = || (self.away[at].is_some() || node.status()["ready"] == json!(true)) && oracle::found(&node.host) == wanted;
        node.until("it is dead or done", || !node.lives() || is_done());
        let died = !node.lives();
        node.set("NETLOOM_CRASH_AT", "");
        node.launch();
        self.blind[at] = self.away[at].is_some();
        self.deaths += usize::from(died);
        format!(
            "the agent of {} is killed, the next one {} at {point}; {meanwhile}",
            PLACES[at].name,
            if died { "dies" } else { "is killed, not" }
        )
    }

    /// The API server ends, something is spoilt and repaired, and it comes again.
    fn outage(&mut self) -> String {
        let nodes = self.nodes();
        self.scene.api.stop();
        let said = format!("the API server is away; {}", self.spoil());
        self.settle_as(&nodes);
        self.scene.api.start();
        said
    }
}

fn lives(mode: &'static str) {
    let scene = machines(mode);
    let mut history = History::begin(&scene, mode);
    let (begun, length) = (Instant::now(), LENGTH * u32::try_from(soak().max(1)).unwrap());
    while begun.elapsed() < length || history.done.len() < STEPS {
        history.step();
    }
    // Whatever is still to come of the last step comes before what is seen of this one.
    for at in 0..PLACES.len() {
        if history.away[at].take().is_some() {
            history.scene.nodes[at].api_proxy.open();
        }
    }
    history.put(
        "p-last",
        &["192.0.2.99".to_owned(), "2001:db8:1::99".to_owned()],
        &["10.1.99.0/24".to_owned(), "fd00:1:99::/64".to_owned()],
    );
    history.settle();
    println!("{mode}: {} steps, {} agents died at a crash point\n{}", history.done.len(), history.deaths, history.done.join("\n"));
}

#[test]
fn after_any_history_direct_tables_are_what_the_nodes_say() {
    lives("direct");
}

#[test]
fn after_any_history_tables_over_vxlan_are_what_the_nodes_say() {
    lives("vxlan");
}

#[test]
fn after_any_history_tables_of_auto_are_what_the_nodes_say() {
    lives("auto");
}
