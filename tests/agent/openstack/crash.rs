//! The agent killed while it plugs ports and waits for them: at each point that an ADD comes by, and at the DEL's.

use std::collections::BTreeSet;

use netloom_tests::{Node, Pod, Switch};

use super::scene::{self, Port};
use crate::process::points::{life, traced_life};

const PORTS: [(&str, Port); 2] = [("eth1", Port('a', 61)), ("eth2", Port('b', 61))];

/// The points of a pod's life whose names begin so. A new agent compares what it finds while the pod comes and goes, and takes a DEL that is at work
/// for one to be finished: so `finish-` is for pods that are retired each time.
fn points(node: &Node, pod: &Pod<'_>, of: &[&str]) -> BTreeSet<String> {
    traced_life(node, pod, life).into_keys().filter(|name| of.iter().any(|own| name.starts_with(own))).collect()
}

fn made(node: &Node, switch: &Switch, pod: &Pod<'_>, ports: &[(&str, Port)], when: &str) {
    let add = pod.add();
    assert_eq!(add.code, 0, "{when}: {add:?}");
    assert_eq!(scene::plugged(switch).len(), ports.len(), "{when}: each port once");
    assert_eq!(pod.check().code, 0, "{when}");
    pod.must("DEL");
    node.until("the ports are gone", || scene::plugged(switch).is_empty());
    // Nothing of this pod is left for the next agent: what that comes by is of its own pods.
    node.settled();
}

#[test]
fn killed_at_every_point() {
    killed("plug-crash", &PORTS, &["ovs-", "hybrid-", "add-", "attachment-", "retire-"]);
}

/// The links of a port on a bridge of Linux go with the DEL; those of a port of Open vSwitch alone are retired, and finished later.
#[test]
fn killed_while_it_finishes() {
    killed("plug-finish", &PORTS[..1], &["finish-"]);
}

fn killed(name: &str, ports: &[(&str, Port)], of: &[&str]) {
    let (node, switch) = scene::node(name, "");
    let networks = ["net-a", "net-b"][..ports.len()].join(",");
    let pod = node.pod("web", &networks);
    scene::bind(&node, &pod, ports);
    scene::say(&node, &pod, ports, true);
    made(&node, &switch, &pod, ports, "at first");
    let points = points(&node, &pod, of);
    assert!(points.iter().any(|point| point == "ovs-port-added" || point == "finish-collected"), "{points:?}");
    node.restart();
    pod.remove_namespace();
    let before = node.before();
    for (point, time) in points.iter().flat_map(|point| [(point, 1), (point, 2)]) {
        let when = format!("an agent that died at {point}:{time}");
        let died = life(&node, &pod, "NETLOOM_CRASH_AT", &format!("{point}:{time}"));
        assert!(died || time == 2, "{when}: it did not");
        node.restart();
        node.until("the ports are gone", || scene::plugged(&switch).is_empty());
        made(&node, &switch, &pod, ports, &when);
        // The next namespace has another name.
        pod.remove_namespace();
        node.expect(&before, &when);
    }
}

/// The agent dies while an ADD waits for its ports to be ACTIVE: the runtime's DEL unplugs them.
#[test]
fn killed_while_it_waits() {
    let (node, switch) = scene::node("plug-wait", "");
    let before = node.before();
    let pod = node.pod("web", "net-a,net-b");
    scene::bind(&node, &pod, &PORTS);
    let adding = pod.begin("ADD");
    node.until("the ports are plugged", || scene::plugged(&switch).len() == 2);
    node.kill9();
    let added = scene::ended(adding);
    assert_eq!(added.code, 1, "{added:?}");
    node.serve();
    pod.must("DEL");
    node.until("the ports are gone", || scene::plugged(&switch).is_empty());
    drop(pod);
    node.expect(&before, "an agent that died while it waited");
}
