//! Two hundred attachments that come and go in parallel, of every plugin that makes an interface here and of those that follow one.
//!
//! ```text
//!   a caller for each container, over and over for a time
//!     ADD of each of its networks, CHECK, DEL in reverse                 no error, no address twice
//!   in the end the machine is as it was after the first life of one      no element in a table, no ifb
//! ```
//!
//! Fifteen seconds; two minutes in a soak (`NETLOOM_SOAK`), with two hundred containers of all their networks.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use netloom_tests::{Host, Outcome, plugin_dir};
use serde_json::{Value, json};

/// Attachments that are on their way at once.
const ATTACHMENTS: usize = 200;

/// The same in a soak, where it is containers that are counted.
const CONTAINERS: usize = 200;

/// How often each comes and goes where it is no soak.
const LIVES: usize = 3;

/// One network: its chain, and the name of its interface.
struct Network {
    ifname: &'static str,
    chain: Vec<Value>,
}

/// The networks of a container, of which each hands out addresses of its own: those whose plugins are built in.
fn networks(container: usize) -> Vec<Network> {
    let ipam = |n: u8| {
        let gateway = format!("10.{n}.0.1");
        json!({"type": "host-local", "ranges": [[{"subnet": format!("10.{n}.0.0/16"), "gateway": gateway}], [{"subnet": format!("fd00:{n}::/64")}]]})
    };
    let net = |ifname, name: &str, plugins: &[Value]| {
        let complete = |plugin: &Value| {
            let mut config = plugin.clone();
            config["cniVersion"] = json!("1.1.0");
            config["name"] = json!(name);
            config
        };
        Network { ifname, chain: plugins.iter().map(complete).collect() }
    };
    let mut cluster = vec![json!({
        "type": "bridge", "bridge": "br0", "isDefaultGateway": true, "ipMasq": true, "macspoofchk": true, "strictSource": true, "ipam": ipam(1)
    })];
    cluster.extend(chained(container));
    let macvlan = json!({"type": "macvlan", "master": "wire0", "ipam": ipam(2)});
    let device = json!({"type": "host-device", "device": format!("dev{container}"), "ipam": ipam(5)});
    let all = vec![
        net("lo", "lo", &[json!({"type": "loopback"})]),
        net("eth0", "cluster", &cluster),
        net("net1", "wire", &[macvlan, json!({"type": "sbr"})]),
        net("net2", "routed", &[json!({"type": "ptp", "ipMasq": true, "ipam": ipam(3)})]),
        net("net3", "taps", &[json!({"type": "tap", "ipam": ipam(4)})]),
        net("net4", "devices", &[device]),
    ];
    all.into_iter().filter(|network| network.chain.iter().all(is_built_in)).collect()
}

/// What follows the bridge: every plugin of the kind, with ports of the host that no other container has.
fn chained(container: usize) -> Vec<Value> {
    let port = |protocol: &str| json!({"hostPort": 20_000 + container, "containerPort": 80, "protocol": protocol});
    let rate = 100_000_000;
    let all = [
        json!({"type": "tuning", "mtu": 1400, "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}}),
        json!({"type": "portmap", "runtimeConfig": {"portMappings": [port("tcp"), port("udp")]}}),
        json!({"type": "bandwidth", "ingressRate": rate, "ingressBurst": rate, "egressRate": rate, "egressBurst": rate}),
        json!({"type": "firewall", "ingressPolicy": "same-bridge"}),
    ];
    all.into_iter().filter(is_built_in).collect()
}

fn is_built_in(plugin: &Value) -> bool {
    plugin_dir().join(plugin["type"].as_str().unwrap()).exists()
}

/// Calls each plugin of a chain with a verb, and the result of ADD where there is one.
fn call(host: &Host, container: &str, network: &Network, verb: &str, result: &mut Value) {
    let cni = host.cni(plugin_dir()).at(container, network.ifname);
    let mut plugins: Vec<&Value> = network.chain.iter().collect();
    if verb == "DEL" {
        plugins.reverse();
    }
    for plugin in plugins {
        let mut config = plugin.clone();
        if !result.is_null() {
            config["prevResult"] = result.clone();
        }
        let outcome: Outcome = cni.call(verb, plugin["type"].as_str().unwrap(), config.to_string());
        assert_eq!(outcome.code, 0, "{verb} of {} in {container}: {outcome:?}", plugin["type"]);
        if verb == "ADD" {
            *result = outcome.result();
        }
    }
}

/// The addresses that are held now, and by whom.
#[derive(Default)]
struct Held(Mutex<BTreeMap<String, String>>);

impl Held {
    fn take(&self, result: &Value, owner: &str) {
        for ip in result["ips"].as_array().into_iter().flatten() {
            let address = ip["address"].as_str().unwrap().to_owned();
            if address.starts_with("127.") || address.starts_with("::1/") {
                continue;
            }
            let before = self.0.lock().unwrap().insert(address.clone(), owner.to_owned());
            assert_eq!(before, None, "{owner} was given {address}, which is held");
        }
    }

    fn give_back(&self, owner: &str) {
        self.0.lock().unwrap().retain(|_, holder| holder != owner);
    }
}

/// One container comes with all its networks, is looked at, and goes.
fn life(host: &Host, container: &str, networks: &[Network], held: &Held) {
    let mut results = vec![Value::Null; networks.len()];
    for (network, result) in networks.iter().zip(&mut results) {
        call(host, container, network, "ADD", result);
        held.take(result, &format!("{container}/{}", network.ifname));
    }
    for (network, result) in networks.iter().zip(&mut results) {
        call(host, container, network, "CHECK", result);
    }
    for (network, result) in networks.iter().zip(&mut results).rev() {
        // From here on another one may have the address.
        held.give_back(&format!("{container}/{}", network.ifname));
        call(host, container, network, "DEL", result);
    }
}

/// The elements of every set and map, by name: `nft` lists all with what is in them.
fn elements(host: &Host) -> Vec<String> {
    let ruleset = host.json("", "nft -j list ruleset");
    let sets = ruleset["nftables"].as_array().unwrap().iter().filter_map(|item| item.get("map").or_else(|| item.get("set")));
    sets.filter(|set| set.get("elem").is_some()).map(|set| set["name"].as_str().unwrap().to_owned()).collect()
}

/// What is looked for in the end is there in between.
fn seen_while_there(host: &Host, container: &str, network: &Network) {
    let mut result = Value::Null;
    call(host, container, network, "ADD", &mut result);
    let elements = elements(host);
    for map in ["masquerade4", "masquerade6", "hostports4", "hostports6", "snat4", "snat6", "macs", "guarded", "forwarded4", "forwarded6"] {
        assert!(elements.contains(&map.to_owned()), "no element in {map}: {elements:?}");
    }
    assert_ne!(host.json("", "ip -j link show type ifb"), json!([]), "no ifb");
    call(host, container, network, "DEL", &mut result);
}

#[test]
fn two_hundred_attachments_come_and_go_in_parallel_and_leave_nothing() {
    let host = Host::new();
    host.sh("", "ip link add wire0 type veth peer name wire1");
    host.sh("", "ip link set wire0 up");
    host.sh("", "ip link set wire1 up");
    let soak = std::env::var_os("NETLOOM_SOAK").is_some();
    let count = if soak { CONTAINERS } else { ATTACHMENTS.div_ceil(networks(0).len()) };
    let containers: Vec<(String, Vec<Network>)> = (0..count).map(|n| (format!("pod{n}"), networks(n))).collect();
    for (n, (container, _)) in containers.iter().enumerate() {
        host.container(container);
        // DEL leaves it up.
        host.sh(container, "ip link set lo up");
        host.sh("", &format!("ip link add dev{n} type veth peer name far{n}"));
    }
    let held = Held::default();
    // What stays with the first one: the bridge, the rules without elements, the directories.
    let (container, networks) = &containers[0];
    life(&host, container, networks, &held);
    let before = host.traces();
    seen_while_there(&host, container, &networks[1]);

    let end = Instant::now() + Duration::from_secs(120);
    let goes_on = |lived: usize| if soak { Instant::now() < end } else { lived < LIVES };
    let lives = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (container, networks) in &containers {
            let (host, held, lives, goes_on) = (&host, &held, &lives, &goes_on);
            scope.spawn(move || {
                for _ in (0..).take_while(|lived| goes_on(*lived)) {
                    life(host, container, networks, held);
                    lives.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let lives = lives.into_inner();
    assert!(lives >= count, "only {lives} containers came and went");
    // A short cut to the addresses, which stays once many were held: it may be removed at any time.
    host.run("", &["sh", "-c", "rm -f /var/lib/cni/networks/.*.index"]);
    host.expect_traces(&before, &format!("{lives} containers"));
    assert_eq!(elements(&host), Vec::<String>::new(), "elements stayed");
    assert_eq!(host.json("", "ip -j link show type ifb"), json!([]), "ifbs stayed");
    println!("{lives} containers with {} attachments each", networks.len());
}
