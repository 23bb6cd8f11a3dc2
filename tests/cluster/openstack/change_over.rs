//! A node that changes from kuryr-cni to our agent and back while pods run on it: Kuryr's own code plugs, our agent plugs, and Neutron's agent
//! wires the ports of both.

use std::path::Path;

use netloom_tests::Pod;
use serde_json::Value;
use testbed::openstack::Kuryr;

use super::NETWORKS;
use super::addresses;
use super::cloud::{Cloud, Machine};

/// kuryr-cni's daemon on a machine.
fn kuryr(machine: &Machine) -> Kuryr {
    let mut enter = machine.node.host.command("", "setpriv");
    enter.args(["--pdeathsig", "KILL", "--"]);
    let cache = || Path::new(&std::env::var("HOME").unwrap()).join(".cache/netloom-kuryr");
    let libraries = std::env::var_os("NETLOOM_KURYR").map_or_else(cache, Into::into);
    Kuryr::start(enter, &libraries, machine.switch().dir()).unwrap()
}

/// The one VIF of a pod, as our operator has written it for whoever plugs.
fn vif(cloud: &Cloud, pod: &Pod<'_>) -> String {
    let path = format!("/apis/openstack.org/v1/namespaces/{}/kuryrports/{}", pod.namespace, pod.name);
    cloud.api.must("GET", &path, &Value::Null)["status"]["vifs"]["eth1"]["vif"].to_string()
}

/// Whether one pod reaches the other one's address in both families.
fn reaches(machine: &Machine, from: &Pod<'_>, to: &Pod<'_>) -> bool {
    let all = addresses(machine, to, "eth1");
    all.len() == 2 && all.iter().all(|address| machine.node.host.pings(&from.sandbox(), address))
}

/// As `docs/operate/openstack-node.md` has it.
#[test]
fn a_node_changes_over_and_back() {
    let mut cloud = Cloud::new("change", &NETWORKS[..1]);
    cloud.operate();
    [("icmp", "IPv4"), ("ipv6-icmp", "IPv6")].iter().for_each(|(protocol, family)| drop(cloud.allow(protocol, family)));
    let machines = cloud.machines(["change-one", "change-two"]);
    let [machine, _] = &machines;
    let (node, switch) = (&machine.node, machine.switch());
    cloud.agents(2);
    let before = node.before();
    let mut kuryr = kuryr(machine);
    let netns = |pod: &Pod<'_>| Path::new("/run/netns").join(pod.sandbox());
    let new = |name: &str| {
        let pod = node.pod(name, "red");
        cloud.until(&format!("the port of {name} is bound"), || cloud.bound(&pod.namespace, &pod.name) == 1);
        pod
    };
    let owned = || switch.vsctl("--bare --columns=name find port external_ids:owner=netloom").trim().to_owned();

    // kuryr-cni's.
    node.kill9();
    let [first, second] = ["first", "second"].map(new);
    for pod in [&first, &second] {
        kuryr.plug(&netns(pod), "eth1", &vif(&cloud, pod), false).unwrap();
    }
    cloud.until("Neutron's agent has wired kuryr-cni's ports", || cloud.statuses() == ["ACTIVE"; 2]);
    assert!(reaches(machine, &first, &second));

    // Ours.
    node.restart();
    assert!(reaches(machine, &first, &second), "they run on");
    let [ours, left] = ["ours", "left"].map(new);
    [&ours, &left].iter().for_each(|pod| drop(pod.must("ADD")));
    assert!(reaches(machine, &ours, &first) && reaches(machine, &second, &ours));
    for pod in [&first, &second, &ours] {
        assert_eq!(pod.check().code, 0, "{}: {:?}", pod.name, pod.check());
    }
    first.must("DEL");
    drop(first);
    cloud.until("a pod of kuryr-cni's goes with its port", || cloud.statuses() == ["ACTIVE"; 3]);
    assert!(reaches(machine, &ours, &second));

    // kuryr-cni's again: our agent runs on for the pod that it has.
    ours.must("DEL");
    let third = new("third");
    kuryr.plug(&netns(&third), "eth1", &vif(&cloud, &third), false).unwrap();
    cloud.until("Neutron's agent has wired its port", || reaches(machine, &third, &left));
    assert!(reaches(machine, &third, &second) && reaches(machine, &second, &left));
    for pod in [&second, &third, &left] {
        kuryr.unplug(&netns(pod), "eth1", &vif(&cloud, pod)).unwrap();
    }
    assert_eq!(owned().lines().count(), 1, "kuryr-cni does not know the port of our pod: {}", owned());
    // Else it keeps the pods' namespaces.
    drop(kuryr);
    [&second, &third, &left].iter().for_each(|pod| pod.remove_namespace());
    node.until("our agent removes the port of a pod whose namespace is gone", || owned().is_empty());
    drop((second, third, left, ours));
    cloud.until("the ports go with their pods", || cloud.statuses().is_empty());
    assert_eq!(switch.vsctl("--bare --columns=name find interface external_ids:iface-status=active").trim(), "");
    node.expect(&before, "a change over and back");
}
