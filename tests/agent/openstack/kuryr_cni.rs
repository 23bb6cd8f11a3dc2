//! Pods that kuryr-cni has plugged, taken down by us: what it does in the kernel and in Open vSwitch is done here by hand, with `ip` and
//! `ovs-vsctl`, as its binding drivers do.

use netloom_tests::{Node, Outcome, Pod, Switch};
use serde_json::{Value, json};

use super::scene::{self, Port};

/// The runtime's configuration where Kuryr is.
const CONFLIST: &str =
    r#"{"name":"kuryr","cniVersion":"0.3.1","plugins":[{"type":"kuryr-cni","kuryr_conf":"/etc/kuryr/kuryr.conf","debug":true}]}"#;

/// The names of a port's links.
fn named(prefix: &str, port: Port) -> String {
    format!("{prefix}{}", &port.id()[..11])
}

/// A port of Open vSwitch, as `add_port` of kuryr-cni makes it, and os_vif for a hybrid plug.
fn add_port(switch: &Switch, name: &str, port: Port, vm_uuid: &str) {
    let ids =
        [("iface-id", port.id()), ("iface-status", "active".to_owned()), ("attached-mac", port.mac()), ("vm-uuid", vm_uuid.to_owned())];
    // A value in quotes: it has colons.
    let ids: Vec<String> = ids.iter().map(|(key, value)| format!("external-ids:{key}=\"{value}\"")).collect();
    let words = format!("--if-exists del-port {name} -- add-port br-int {name} -- set Interface {name} {}", ids.join(" "));
    switch.vsctl(&words);
}

/// Plugs a port into a pod: one of network `a` by itself, one of `b` by way of a Linux bridge.
fn plug(node: &Node, switch: &Switch, pod: &Pod<'_>, ifname: &str, port: Port) {
    let (host, sandbox, tap) = (&node.host, pod.sandbox(), named("tap", port));
    let line = |words: String| drop(host.sh("", &format!("ip link {words}")));
    if port.0 == 'b' {
        let [qbr, qvb, qvo] = ["qbr", "qvb", "qvo"].map(|prefix| named(prefix, port));
        line(format!("add {qbr} up type bridge"));
        line(format!("add {qvb} up promisc on type veth peer name {qvo}"));
        line(format!("set {qvo} up promisc on"));
        line(format!("set {qvb} master {qbr}"));
        add_port(switch, &qvo, port, &pod.uid);
    }
    line(format!("add {tap} type veth peer name {ifname} netns {sandbox}"));
    host.sh(&sandbox, &format!("ip link set {ifname} address {} mtu 1400 up", port.mac()));
    for address in [format!("{}/24", port.v4()), format!("{}/64", port.v6())] {
        host.sh(&sandbox, &format!("ip addr add {address} dev {ifname}"));
    }
    line(format!("set {tap} mtu 1400 up"));
    match port.0 {
        'b' => line(format!("set {tap} master {}", named("qbr", port))),
        _ => add_port(switch, &tap, port, "kuryr"),
    }
}

/// What containerd keeps of the ADD.
fn cache(node: &Node, pod: &Pod<'_>) {
    let sandbox = pod.sandbox();
    let args = json!([["K8S_POD_NAMESPACE", pod.namespace], ["K8S_POD_NAME", pod.name], ["K8S_POD_UID", pod.uid]]);
    let config = node.host.command("", "sh").args(["-c", &format!("printf %s '{CONFLIST}' | base64 -w0")]).output().unwrap();
    let cached = json!({"kind": "cniCacheV1", "containerId": sandbox, "config": String::from_utf8(config.stdout).unwrap(), "ifName": "eth0",
        "networkName": "kuryr", "netns": format!("/run/netns/{sandbox}"), "cniArgs": args, "capabilityArgs": {},
        "result": {"cniVersion": "0.3.1", "interfaces": [], "ips": [], "dns": {}}});
    node.host.write(&format!("/var/lib/cni/results/kuryr-{sandbox}-eth0"), &cached.to_string());
}

/// The links of these ports that the host has.
fn links(node: &Node, ports: &[Port]) -> Vec<String> {
    let names = ports.iter().flat_map(|port| ["tap", "qbr", "qvb", "qvo"].map(|prefix| named(prefix, *port)));
    names.filter(|name| node.host.link("", name).is_some()).collect()
}

fn nothing() -> [String; 0] {
    []
}

const PORTS: [(&str, Port); 2] = [("eth0", Port('a', 91)), ("eth1", Port('b', 91))];

fn kuryr_pod<'n>(node: &'n Node, switch: &Switch, name: &str, ports: &[(&str, Port)]) -> Pod<'n> {
    let pod = node.pod(name, "net-b");
    scene::bind(node, &pod, ports);
    scene::say(node, &pod, ports, true);
    ports.iter().for_each(|(ifname, port)| plug(node, switch, &pod, ifname, *port));
    pod
}

/// The agent has seen all KuryrPorts that were written before: it plugs a pod whose KuryrPort comes after them, and takes it down again.
fn seen(node: &Node, switch: &Switch, port: Port) {
    let (pod, ports) = (node.pod("later", "net-a"), [("eth1", port)]);
    scene::bind(node, &pod, &ports);
    let added = scene::attach(node, switch, &pod, &ports);
    assert_eq!(added.code, 0, "{added:?}");
    pod.must("DEL");
}

/// By what the runtime has kept, without Kuryr's daemon and without the API server; a pod of ours beside it, with a port of the same networks,
/// keeps what it has.
#[test]
fn a_pod_of_kuryr_is_taken_down() {
    let (node, switch) = scene::node("kuryr-down", "openstackDefault: none");
    node.host.sh("", "mkdir -p /var/lib/cni/results");
    let before = node.before();
    let own = [("eth1", Port('a', 92)), ("eth2", Port('b', 92))];
    let ours = node.pod("ours", "net-a,net-b");
    scene::bind(&node, &ours, &own);
    let added = scene::attach(&node, &switch, &ours, &own);
    assert_eq!(added.code, 0, "{added:?}");
    let pod = kuryr_pod(&node, &switch, "kuryrs", &PORTS);
    cache(&node, &pod);
    let all = PORTS.map(|(_, port)| port);
    assert_eq!((links(&node, &all).len(), scene::plugged(&switch).len()), (5, 4));
    node.api_proxy.shut();
    pod.must("DEL");
    assert_eq!((links(&node, &all), scene::plugged(&switch).len()), (nothing().to_vec(), 2));
    assert_eq!(node.host.list("/var/lib/cni/results").iter().filter(|name| name.starts_with("kuryr-")).count(), 0);
    assert_eq!(ours.check().code, 0, "{:?}", ours.check());
    pod.must("DEL");
    ours.must("DEL");
    node.api_proxy.open();
    drop((pod, ours));
    node.expect(&before, "a pod of kuryr-cni");
}

/// Where the runtime has kept nothing: by the pod's KuryrPort, by the pairs that lead into its namespace, and by either alone. A second sandbox of
/// the pod, which has the same ports, keeps them.
#[test]
fn by_the_kuryrport_or_the_namespace() {
    let (node, switch) = scene::node("kuryr-known", "");
    let before = node.before();
    let all = PORTS.map(|(_, port)| port);
    let left = || (links(&node, &all), scene::plugged(&switch));
    let none = (Vec::new(), Vec::new());
    let pod = kuryr_pod(&node, &switch, "web", &PORTS);
    let kuryr_port = format!("/apis/openstack.org/v1/namespaces/{}/kuryrports/web", node.namespace);
    seen(&node, &switch, Port('a', 94));
    let del_of = |sandbox: &str| {
        let args = format!("K8S_POD_NAMESPACE={};K8S_POD_NAME=web;K8S_POD_UID={}", pod.namespace, pod.uid);
        let config = r#"{"cniVersion":"1.0.0","name":"cluster","type":"netloom","agentWait":"60s"}"#;
        let done: Outcome = node.host.cni(&node.bin).at(sandbox, "eth0").set("CNI_ARGS", &args).call("DEL", "netloom", config);
        assert_eq!(done.code, 0, "{done:?}");
    };
    // The sandbox before has no namespace any more; the one that runs has the pairs.
    let there = left();
    del_of("an-earlier-sandbox");
    assert_eq!(left(), there, "they are another sandbox's");
    // By both.
    pod.must("DEL");
    assert_eq!(left(), none);
    // By the KuryrPort alone: the namespace went first, and took the pairs with it.
    pod.renew();
    PORTS.iter().for_each(|(ifname, port)| plug(&node, &switch, &pod, ifname, *port));
    pod.remove_namespace();
    node.until("the pairs are gone", || node.host.link("", &named("tap", PORTS[0].1)).is_none());
    assert_eq!(left().1.len(), 2);
    pod.must("DEL");
    assert_eq!(left(), none);
    // By the namespace alone: the KuryrPort went first.
    pod.renew();
    PORTS.iter().for_each(|(ifname, port)| plug(&node, &switch, &pod, ifname, *port));
    node.api.must("DELETE", &kuryr_port, &Value::Null);
    node.restart();
    pod.must("DEL");
    assert_eq!(left(), none);
    // By nothing: GC finds that the link of the port is gone.
    pod.renew();
    plug(&node, &switch, &pod, "eth0", PORTS[0].1);
    let gc = || {
        let config = json!({"cniVersion": "1.1.0", "name": "cluster", "type": "netloom", "agentWait": "60s",
            "cni.dev/valid-attachments": [{"containerID": pod.sandbox(), "ifname": "eth0"}]});
        let done = node.host.cni(&node.bin).call("GC", "netloom", config.to_string());
        assert_eq!(done.code, 0, "{done:?}");
    };
    gc();
    assert_eq!(left().1.len(), 1, "its link is there");
    pod.remove_namespace();
    node.until("the pair is gone", || node.host.link("", &named("tap", PORTS[0].1)).is_none());
    gc();
    assert_eq!(left(), none);
    drop(pod);
    node.expect(&before, "pods of kuryr-cni");
}

/// CHECK compares the pod with its KuryrPort, and with Open vSwitch. Of a pod that has ports and was plugged by nobody it knows nothing.
#[test]
fn check_of_a_pod_of_kuryr() {
    let (node, switch) = scene::node("kuryr-check", "");
    let unplugged = node.pod("unplugged", "net-a");
    scene::bind(&node, &unplugged, &[("eth1", Port('a', 95))]);
    let pod = kuryr_pod(&node, &switch, "web", &PORTS);
    seen(&node, &switch, Port('a', 94));
    assert_eq!(unplugged.check().error()["code"], json!(3), "{:?}", unplugged.check());
    let (host, sandbox) = (&node.host, pod.sandbox());
    let [(_, a), (_, b)] = PORTS;
    let again = |ifname: &str, port: Port| plug(&node, &switch, &pod, ifname, port);
    let inside = |line: &str| drop(host.sh(&sandbox, line));
    let differs = |says: &str| {
        let check = pod.check();
        assert!(check.code == 1 && check.message().contains(says), "{says}: {check:?}");
    };
    assert_eq!(pod.check().code, 0, "{:?}", pod.check());
    inside("ip link set eth1 address 02:00:00:00:00:77");
    differs(&format!("interface eth1, Neutron port {}: its hardware address is 02:00:00:00:00:77, not {}", b.id(), b.mac()));
    inside(&format!("ip link set eth1 address {}", b.mac()));
    inside(&format!("ip addr del {}/64 dev eth0", a.v6()));
    differs(&format!("interface eth0, Neutron port {}: it has lost address {}", a.id(), a.v6()));
    inside("ip link set eth0 down");
    differs(": it is down");
    inside("ip link set eth0 up");
    inside(&format!("ip addr add {}/64 dev eth0 nodad", a.v6()));
    for (port, name) in [(a, named("tap", a)), (b, named("qvo", b))] {
        switch.vsctl(&format!("del-port {name}"));
        differs(&format!("Neutron port {}...: Open vSwitch has no port", &port.id()[..11]));
        add_port(&switch, &name, port, "kuryr");
    }
    assert_eq!(pod.check().code, 0, "{:?}", pod.check());
    host.sh("", &format!("ip link del {}", named("tap", a)));
    differs(&format!("interface eth0, Neutron port {}: it is gone from the container", a.id()));
    // Where the KuryrPort is gone as well, what leads into the container is compared all the same.
    again("eth0", a);
    node.api.must("DELETE", &format!("/apis/openstack.org/v1/namespaces/{}/kuryrports/web", node.namespace), &Value::Null);
    node.restart();
    assert_eq!(pod.check().code, 0, "{:?}", pod.check());
    switch.vsctl(&format!("del-port {}", named("tap", a)));
    differs("Open vSwitch has no port");
    pod.must("DEL");
}

/// The agent dies between the port and the links: the next DEL does the rest. One that cannot reach the database changes nothing.
#[test]
fn a_take_down_that_is_cut_short() {
    let (node, mut switch) = scene::node("kuryr-cut", "");
    let before = node.before();
    let all = PORTS.map(|(_, port)| port);
    let pod = kuryr_pod(&node, &switch, "web", &PORTS);
    switch.stop_database();
    let refused = pod.del();
    assert!(refused.message().contains("unplug what kuryr-cni has plugged: cannot connect to ovsdb-server"), "{refused:?}");
    assert_eq!(links(&node, &all).len(), 5);
    switch.start_database();
    // Where no link is left, it is not left to GC either, which would not find the port of the hybrid plug.
    let gone = node.pod("gone", "net-b");
    let of_gone = [("eth0", Port('b', 93))];
    scene::bind(&node, &gone, &of_gone);
    add_port(&switch, &named("qvo", of_gone[0].1), of_gone[0].1, &gone.uid);
    seen(&node, &switch, Port('a', 94));
    gone.remove_namespace();
    switch.stop_database();
    let refused = gone.del();
    assert!(refused.message().contains("cannot connect to ovsdb-server"), "{refused:?}");
    switch.start_database();
    gone.must("DEL");
    assert_eq!(scene::plugged(&switch).len(), 2);
    drop(gone);
    node.set("NETLOOM_CRASH_AT", "kuryr-unplugged:1");
    node.restart();
    // It is kept for the next agent.
    pod.must("DEL");
    node.until("the agent dies there", || !node.lives());
    assert_eq!((links(&node, &all).len(), scene::plugged(&switch).len()), (5, 0));
    node.set("NETLOOM_CRASH_AT", "");
    node.restart();
    node.until("the next agent does the rest", || links(&node, &all).is_empty());
    pod.must("DEL");
    drop(pod);
    node.expect(&before, "a take-down that was cut short");
}
