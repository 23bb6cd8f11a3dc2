//! The agent killed while it plugs ports and waits for them: at each point that an ADD comes by, and at the DEL's.

use std::collections::BTreeSet;

use netloom_tests::{Node, Pod, SOCKET, Switch};
use serde_json::json;

use super::scene::{self, Port};
use crate::process::points::revive;

const TRACE: &str = "/run/trace";
const PORTS: [(&str, Port); 2] = [("eth1", Port('a', 61)), ("eth2", Port('b', 61))];

/// ADD and DEL of a pod whose ports are ACTIVE as soon as they are plugged, with an agent of this environment; whether it died.
fn life(node: &Node, pod: &Pod<'_>, variable: &str, value: &str) -> bool {
    node.kill9();
    pod.renew();
    node.set(variable, value);
    node.launch();
    node.until("it serves, or is dead", || node.host.path(SOCKET).exists() || !node.lives());
    let mut died = revive(node);
    let outcome = pod.call_with("ADD", &json!({"agentWait": "20s"}));
    if outcome.code != 0 {
        assert_eq!(outcome.error()["code"], json!(11), "{variable}={value}: {outcome:?}");
        died |= revive(node);
    }
    node.until("DEL succeeds", || {
        died |= revive(node);
        pod.del().code == 0
    });
    node.until("what is left is done, or the agent is dead", || !node.lives() || node.host.list("/var/lib/netloom/sandboxes").is_empty());
    died |= revive(node);
    node.set(variable, "");
    pod.renew();
    died
}

/// The points of a life: those of the switch and of the ADD's end each time, of the others the first.
fn points(node: &Node, pod: &Pod<'_>) -> BTreeSet<String> {
    life(node, pod, "NETLOOM_CRASH_TRACE", TRACE);
    node.settled();
    node.kill9();
    let path = node.host.path(TRACE);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    let names = text.lines().filter_map(|line| line.split(' ').next());
    names
        .filter(|name| ["ovs-", "hybrid-", "add-", "attachment-", "retire-"].iter().any(|own| name.starts_with(own)))
        .map(str::to_owned)
        .collect()
}

fn made(node: &Node, switch: &Switch, pod: &Pod<'_>, when: &str) {
    let add = pod.add();
    assert_eq!(add.code, 0, "{when}: {add:?}");
    assert_eq!(scene::plugged(switch).len(), 2, "{when}: each port once");
    assert_eq!(pod.check().code, 0, "{when}");
    pod.must("DEL");
    node.until("the ports are gone", || scene::plugged(switch).is_empty());
}

#[test]
fn killed_at_every_point() {
    let (node, switch) = scene::node("plug-crash", "");
    let pod = node.pod("web", "net-a,net-b");
    scene::bind(&node, &pod, &PORTS);
    scene::say(&node, &pod, &PORTS, true);
    made(&node, &switch, &pod, "at first");
    let points = points(&node, &pod);
    assert!(points.iter().any(|point| point == "ovs-port-added") && points.len() > 5, "{points:?}");
    node.restart();
    pod.remove_namespace();
    let before = node.before();
    for (point, time) in points.iter().flat_map(|point| [(point, 1), (point, 2)]) {
        let when = format!("an agent that died at {point}:{time}");
        let died = life(&node, &pod, "NETLOOM_CRASH_AT", &format!("{point}:{time}"));
        assert!(died || time == 2, "{when}: it did not");
        node.restart();
        node.until("the ports are gone", || scene::plugged(&switch).is_empty());
        made(&node, &switch, &pod, &when);
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
