//! The agent puts back by itself what somebody has taken away.

use std::time::Duration;

use netloom_tests::{Api, Node, Pod, Running, SETTINGS};
use serde_json::{Value, json};

use netloom_tests::wired::table;

/// A node whose default network masquerades, publishes ports and guards against forged addresses; `outside` is on a wire of it.
pub(crate) fn node(name: &str, extra: &str) -> Node {
    node_with(name, extra, &json!({"type": "portmap", "capabilities": {"portMappings": true}}))
}

/// The same with another configuration of the plugin that publishes ports.
fn node_with(name: &str, extra: &str, portmap: &Value) -> Node {
    let node = Node::new(&Api::shared(), name, "");
    let network = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [
        {"type": "bridge", "bridge": "br0", "isDefaultGateway": true, "ipMasq": true, "hairpinMode": true, "macspoofchk": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}], [{"subnet": "fd00:244::/64"}]]}},
        portmap]});
    let bin = node.bin.display().to_string();
    let keys = if extra.contains("binDir") { String::new() } else { format!("binDir: {bin}\ninstall: never\n") };
    let settings = format!("nodeName: {name}\nkubeconfig: /run/kubeconfig\nlogLevel: debug\n{keys}delegates:\n- {network}\n{extra}\n");
    node.host.write(SETTINGS, &settings);
    node.host.container("outside");
    for (place, dev, v4) in [("", "wire", "192.0.2.1"), ("outside", "eth0", "192.0.2.2")] {
        if place.is_empty() {
            node.host.sh("", "ip link add wire type veth peer name eth0 netns outside");
        }
        node.host.sh(place, &format!("ip addr add {v4}/24 dev {dev}"));
        node.host.sh(place, &format!("ip link set {dev} up"));
    }
    node
}

/// A pod whose port 80 is a port of the host, over TCP and UDP.
pub(crate) fn published<'n>(node: &'n Node, name: &str, port: u16) -> Pod<'n> {
    let pod = node.pod(name, "");
    let ports: Vec<Value> = ["tcp", "udp"].map(|protocol| json!({"hostPort": port, "containerPort": 80, "protocol": protocol})).to_vec();
    let added = pod.call_with("ADD", &json!({"capabilities": {"portMappings": true}, "runtimeConfig": {"portMappings": ports}}));
    assert_eq!(added.code, 0, "{added:?}\n{}", node.tail());
    pod
}

/// How often the agent has looked because of somebody.
fn looks(node: &Node) -> usize {
    node.log().lines().filter(|line| line.contains(" firewall ") && line.contains("removed")).count()
}

#[test]
fn a_flush_is_put_back_at_once() {
    let node = node("flushed", "reconcileEvery: 1h");
    node.restart();
    let first = published(&node, "first", 7070);
    first.must("DEL");
    drop(first);
    node.settled();
    let before = node.host.traces();

    let (a, b) = (published(&node, "a", 8080), published(&node, "b", 9090));
    let whole = table(&node.host);
    assert_eq!(looks(&node), 0, "its own DEL and ADDs are its own: {}", node.tail());
    for what in ["flush ruleset", "delete table inet netloom", "delete table bridge netloom", "flush chain inet netloom hostports"] {
        let looked = looks(&node);
        node.host.run("", &["nft", what]);
        node.until(what, || looks(&node) > looked && table(&node.host) == whole);
    }
    // One element: of those that are missing only that is put back.
    let element = whole.iter().find(|line| line.starts_with("10.244.0.") && line.contains("outside-")).unwrap();
    let address = element.split(' ').next().unwrap();
    node.host.run("", &["nft", &format!("delete element inet netloom masquerade4 {{ {address} }}")]);
    node.until("the element is there again", || table(&node.host) == whole);
    let one = |line: &str| line.contains("restored missing entries") && line.contains("elements=1 ");
    node.until("the log says that it was one element", || node.log().lines().any(one));

    // What is taken away while no agent runs is put back by the next one.
    node.kill9();
    node.host.sh("", "nft flush ruleset");
    node.restart();
    node.until("the next agent begins with that", || table(&node.host) == whole);
    [&a, &b].iter().for_each(|pod| drop(pod.must("CHECK")));
    [&a, &b].iter().for_each(|pod| drop(pod.must("DEL")));
    drop((a, b));
    node.settled();
    node.host.expect_traces_within(Duration::from_secs(60), &before, "DEL of both");
}

/// While pods come and go somebody flushes again and again: whoever is there in the end has everything, and whoever is not nothing.
#[test]
fn pods_come_and_go_while_it_is_flushed() {
    const ROUNDS: usize = 8;
    let node = node("flushing", "reconcileEvery: 1h");
    node.restart();
    let ended = std::sync::atomic::AtomicBool::new(false);
    let pods: Vec<Pod<'_>> = (0..4).map(|n| node.pod(&format!("p{n}"), "")).collect();
    std::thread::scope(|scope| {
        let churn: Vec<_> = pods
            .iter()
            .map(|pod| {
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        pod.must("ADD");
                        pod.must("DEL");
                        pod.renew();
                    }
                    pod.must("ADD");
                })
            })
            .collect();
        let disturber = scope.spawn(|| {
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                node.host.sh("", "nft flush ruleset");
                // Sleeps: rules are taken away so often.
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        churn.into_iter().for_each(|thread| thread.join().unwrap());
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        disturber.join().unwrap();
    });
    node.settled();
    let elements = || table(&node.host).into_iter().filter(|line| line.contains("/eth0\"")).collect::<Vec<_>>();
    let of = |pod: &Pod<'_>| elements().iter().filter(|line| line.contains(&format!("/{}/", pod.sandbox()))).count();
    // Two addresses, and the port of the bridge: its name, and its hardware address, by name and by index.
    node.until("each of the last pods has its elements", || pods.iter().all(|pod| of(pod) == 5));
    assert_eq!(elements().len(), 5 * pods.len(), "{:#?}", elements());
    for pod in &pods {
        pod.must("CHECK");
        pod.must("DEL");
    }
    node.settled();
    assert!(elements().is_empty(), "{:#?}", elements());
}

/// Rules that stand in chains of iptables: who flushes those is noticed, too, and what others have there is left as it is.
#[test]
fn rules_of_iptables_are_put_back() {
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}, "backend": "iptables"});
    let node = node_with("iptables", "reconcileEvery: 1h", &portmap);
    node.restart();
    let pod = published(&node, "web", 8080);
    let rules = || {
        let text = node.host.sh("", "iptables -t nat -S");
        text.lines().filter(|line| line.contains("CNI-")).map(str::to_owned).collect::<Vec<_>>()
    };
    let whole = rules();
    assert!(whole.iter().any(|rule| rule.contains("8080")), "{whole:#?}");
    node.host.sh("", "iptables -t nat -F");
    node.host.sh("", "iptables -t nat -A POSTROUTING -d 198.51.100.1 -j ACCEPT");
    let sorted = |mut rules: Vec<String>| {
        rules.sort();
        rules
    };
    node.until("the rules are there again", || sorted(rules()) == sorted(whole.clone()));
    assert!(node.host.sh("", "iptables -t nat -S").contains("-A POSTROUTING -d 198.51.100.1/32 -j ACCEPT"));
    pod.must("CHECK");
    pod.must("DEL");
    node.settled();
    assert!(!rules().iter().any(|rule| rule.contains("8080")), "{:#?}", rules());
}

/// What lets pods through a filter is put back also where a system bus runs, which is asked whether firewalld does.
#[test]
fn ways_through_a_filter_are_put_back_beside_a_bus() {
    let node = node_with("bus", "reconcileEvery: 1h", &json!({"type": "firewall"}));
    let _bus = Running::system_bus(&node.host);
    node.restart();
    let pod = node.pod("web", "");
    pod.must("ADD");
    let whole = table(&node.host);
    assert!(whole.iter().any(|line| line.contains("forwarded")), "{whole:#?}");
    node.host.sh("", "nft flush ruleset");
    node.until("all is there again", || table(&node.host) == whole);
    assert!(!node.log().lines().any(|line| line.contains(" firewall ") && line.contains("ERROR")), "{}", node.tail());
    pod.must("DEL");
    drop(pod);
    node.settled();
}
