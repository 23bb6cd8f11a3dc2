//! Bridges that filter VLANs: who reaches whom, by packets, and what `bridge vlan` shows.

use netloom_tests::{Api, Host, Node, Pod, at, ips, plugin_dir};
use serde_json::{Value, json};

fn config(keys: Value) -> Value {
    let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]}});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

/// A machine with so many containers: each costs the oracle a second in the guest.
fn machine(containers: usize) -> Host {
    let host = Host::new();
    (1..=containers).for_each(|n| host.container(&format!("c{n}")));
    host
}

/// Of a port: `1-4`, `7 pvid untagged`, as `bridge -j vlan` has it.
fn vlans(host: &Host, port: &str) -> Vec<String> {
    let all = host.json("", "bridge -j vlan show");
    let port = all.as_array().unwrap().iter().find(|p| p["ifname"] == port).unwrap_or_else(|| panic!("{port} is not in {all}")).clone();
    let row = |v: &Value| {
        let end = v["vlanEnd"].as_u64().map(|end| format!("-{end}")).unwrap_or_default();
        let flags =
            v["flags"].as_array().into_iter().flatten().map(|f| format!(" {}", f.as_str().unwrap().to_lowercase())).collect::<String>();
        format!("{}{end}{flags}", v["vlan"])
    };
    port["vlans"].as_array().into_iter().flatten().map(row).collect()
}

/// The name of the host's end.
fn outer(result: &Value) -> &str {
    result["interfaces"][1]["name"].as_str().unwrap()
}

/// Whether it does not answer: a second is enough where a neighbour would.
fn silent(host: &Host, from: &str, address: &str) -> bool {
    !host.try_run(from, &["ping", "-c2", "-i0.3", "-w1", "-n", address]).status.success()
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn containers_of_a_vlan_reach_each_other_and_no_others() {
    let host = machine(4);
    let (seven, eight, none) = (config(json!({"vlan": 7})), config(json!({"vlan": 8})), config(json!({})));
    let first = at(&host, "c1").add(&seven);
    at(&host, "c1").del(&seven, &first);
    let before = host.traces();
    let attached = [("c1", &seven), ("c2", &seven), ("c3", &eight), ("c4", &none)];
    let results: Vec<Value> = attached.iter().map(|(c, config)| at(&host, c).add(config)).collect();
    let shown = host.json("", "ip -j -d link show br0");
    assert_eq!(shown[0]["linkinfo"]["info_data"]["vlan_filtering"], 1, "the bridge was made to filter");
    let rows: Vec<Vec<String>> = results.iter().map(|r| vlans(&host, outer(r))).collect();
    assert_eq!(rows, [["7 pvid egress untagged"], ["7 pvid egress untagged"], ["8 pvid egress untagged"], ["1 pvid egress untagged"]]);
    for address in ips(&results[1]) {
        assert!(host.pings("c1", &address), "{address} in the same VLAN");
    }
    for (other, result) in [("vlan 8", &results[2]), ("the default", &results[3])] {
        for address in ips(result) {
            assert!(silent(&host, "c1", &address), "{other}: {address}");
        }
    }
    for ((container, config), result) in attached.iter().zip(&results) {
        let checked = at(&host, container).check(config, result);
        assert_eq!(checked.code, 0, "{checked:?}");
        at(&host, container).del(config, result);
    }
    host.expect_traces(&before, "four containers");
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_trunk_carries_tagged_frames() {
    let host = machine(2);
    let trunk = config(json!({"vlan": 7, "vlanTrunk": [{"minID": 20, "maxID": 22}, {"id": 30}], "ipam": {}}));
    let member =
        config(json!({"vlan": 21, "ipam": {"type": "static", "addresses": [{"address": "10.21.0.2/24"}, {"address": "fd00:21::2/64"}]}}));
    let first = at(&host, "c1").add(&trunk);
    at(&host, "c1").del(&trunk, &first);
    let before = host.traces();
    let (router, pod) = (at(&host, "c1").add(&trunk), at(&host, "c2").add(&member));
    assert_eq!(vlans(&host, outer(&router)), ["7 pvid egress untagged", "20", "21", "22", "30"]);
    for (id, address) in [(21, "21"), (22, "22")] {
        host.sh("c1", &format!("ip link add eth0.{id} link eth0 up type vlan id {id}"));
        host.sh("c1", &format!("ip addr add 10.{address}.0.1/24 dev eth0.{id}"));
        host.sh("c1", &format!("ip addr add fd00:{address}::1/64 dev eth0.{id} nodad"));
    }
    assert!(host.pings("c1", "10.21.0.2") && host.pings("c1", "fd00:21::2"), "tagged on one side, untagged on the other");
    host.sh("c1", "ip addr add 10.21.0.9/24 dev eth0.22");
    let wrong = host.try_run("c1", &["ping", "-c1", "-w1", "-I", "eth0.22", "10.21.0.2"]);
    assert!(!wrong.status.success(), "another VLAN of the trunk does not lead there");
    assert_eq!(at(&host, "c1").check(&trunk, &router).code, 0);
    at(&host, "c2").del(&member, &pod);
    at(&host, "c1").del(&trunk, &router);
    host.expect_traces(&before, "a trunk");
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn the_default_vlan() {
    let host = machine(1);
    for (keys, rows) in [
        (json!({"vlan": 7, "preserveDefaultVlan": true}), &["1 egress untagged", "7 pvid egress untagged"][..]),
        (json!({"vlanTrunk": [{"id": 9}]}), &["1 pvid egress untagged", "9"]),
        (json!({"vlanTrunk": [{"id": 9}], "preserveDefaultVlan": true}), &["1 pvid egress untagged", "9"]),
        (json!({"vlan": 1}), &["1 pvid egress untagged"]),
        (json!({"vlan": 4094, "vlanTrunk": [{"id": 1}]}), &["1", "4094 pvid egress untagged"]),
        (json!({"vlanTrunk": []}), &["1 pvid egress untagged"]),
    ] {
        let config = config(keys.clone());
        let result = at(&host, "c1").add(&config);
        assert_eq!(vlans(&host, outer(&result)), rows, "{keys}");
        let checked = at(&host, "c1").check(&config, &result);
        assert_eq!(checked.code, 0, "{keys}: {checked:?}");
        at(&host, "c1").del(&config, &result);
    }
    // A bridge of somebody else, with another default.
    host.sh("", "ip link set br0 type bridge vlan_default_pvid 5");
    let config = config(json!({"vlan": 7}));
    let result = at(&host, "c1").add(&config);
    assert_eq!(vlans(&host, outer(&result)), ["7 pvid egress untagged"]);
    at(&host, "c1").del(&config, &result);
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn the_gateway_of_a_vlan() {
    let host = machine(2);
    let config = config(json!({"vlan": 7, "isDefaultGateway": true, "ipMasq": true}));
    let first = at(&host, "c1").add(&config);
    at(&host, "c1").del(&config, &first);
    let before = host.traces();
    let result = at(&host, "c1").add(&config);
    let names: Vec<&Value> = result["interfaces"].as_array().unwrap().iter().map(|i| &i["name"]).collect();
    assert_eq!((names[0], names[2], names[3]), (&json!("br0"), &json!("eth0"), &json!("br0.7")));
    assert_eq!(host.addresses("", "br0.7"), ["10.1.0.1/24", "fd00:1::1/64"]);
    assert_eq!(host.addresses("", "br0"), [""; 0], "the bridge itself has none");
    assert!(host.pings("c1", "10.1.0.1") && host.pings("c1", "fd00:1::1"));
    let link = host.link("", "br0.7").unwrap();
    assert_eq!(result["interfaces"][3]["mac"], link.mac());
    let port = host.json("", "ip -j link show master br0");
    let port = port.as_array().unwrap().iter().map(|l| l["ifname"].as_str().unwrap().to_owned()).find(|n| n != outer(&result)).unwrap();
    assert_eq!(vlans(&host, &port), ["7 pvid egress untagged"]);
    // The world beyond it.
    host.container("world");
    for line in ["ip link add w0 type veth peer name eth0 netns world", "ip addr add 192.0.2.1/24 dev w0", "ip link set w0 up"] {
        host.sh("", line);
    }
    for line in ["ip addr add 192.0.2.2/24 dev eth0", "ip link set eth0 up"] {
        host.sh("world", line);
    }
    assert!(host.pings("c1", "192.0.2.2"), "through the gateway, masqueraded");
    host.sh("", "ip link del w0");
    host.sh("", "ip netns del world");

    let says = |what: &str| {
        let checked = at(&host, "c1").check(&config, &result);
        assert!(checked.message().contains(what), "{what}: {checked:?}");
    };
    assert_eq!(at(&host, "c1").check(&config, &result).code, 0);
    host.sh("", "ip addr del 10.1.0.1/24 dev br0.7");
    says("br0.7 was changed: it has lost the gateway's address 10.1.0.1/24");
    host.sh("", "ip addr add 10.1.0.1/24 dev br0.7");
    host.sh("", &format!("bridge vlan add dev {port} vid 8 pvid untagged"));
    says(&format!("{port} was changed"));
    host.sh("", &format!("bridge vlan del dev {port} vid 8"));
    host.sh("", &format!("bridge vlan add dev {port} vid 7 pvid untagged"));
    host.sh("", "ip link set br0.7 down");
    says("br0.7 was changed: it is down");
    host.sh("", "ip link set br0.7 up");
    // The address went when the link did: an ADD of another container brings it back.
    let second = at(&host, "c2").add(&config);
    assert_eq!(at(&host, "c1").check(&config, &result).code, 0);
    assert!(host.pings("c2", "10.1.0.1") && host.pings("c2", &ips(&result)[0]));
    // DEL twice, of which the second is told of the gateway alone.
    at(&host, "c2").del(&config, &second);
    at(&host, "c1").del(&config, &result);
    at(&host, "c1").unset("CNI_NETNS").del(&config, &result);
    assert!(host.link("", "br0.7").is_some(), "it is the network's, and stays");
    host.expect_traces(&before, "a gateway in a VLAN");
}

/// What one ADD began, the next one finishes.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn the_gateway_of_a_vlan_after_a_crash() {
    let config = config(json!({"vlan": 7, "isGateway": true}));
    for point in ["bridge-vlan-gateway-made", "bridge-vlan-gateway-up"] {
        let host = machine(1);
        let dying = host.cni(plugin_dir()).at("c1", "eth0").set("NETLOOM_CRASH_AT", &format!("{point}:1"));
        let died = dying.call("ADD", "bridge", config.to_string());
        assert_eq!(died.code, -1, "{point}: {died:?}");
        at(&host, "c1").del(&config, &Value::Null);
        let result = at(&host, "c1").add(&config);
        let checked = at(&host, "c1").check(&config, &result);
        assert_eq!(checked.code, 0, "{point}: {checked:?}");
        assert!(host.pings("c1", "10.1.0.1") && host.pings("c1", "fd00:1::1"), "{point}");
        at(&host, "c1").del(&config, &result);
        let ports = host.json("", "ip -j link show master br0");
        assert_eq!(ports.as_array().unwrap().len(), 1, "{point}: {ports}");
    }
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_bridge_that_does_not_filter_is_refused_and_left_alone() {
    let host = machine(1);
    host.sh("", "ip link add br0 type bridge");
    host.sh("", "ip link set br0 up");
    let before = host.traces();
    let config = config(json!({"vlan": 7, "ipam": {}}));
    let refused = at(&host, "c1").call("ADD", "bridge", config.to_string());
    let told = "\"br0\" does not filter VLANs";
    assert!(refused.message().contains(told) && refused.message().contains("ip link set br0 type bridge vlan_filtering 1"), "{refused:?}");
    let status = at(&host, "c1").call("STATUS", "bridge", config.to_string());
    assert!(status.error()["code"] == 50 && status.message().contains(told), "{status:?}");
    host.expect_traces(&before, "an ADD that was refused");
    host.sh("", "ip link set br0 type bridge vlan_filtering 1");
    assert_eq!(at(&host, "c1").call("STATUS", "bridge", config.to_string()).code, 0);
    let result = at(&host, "c1").add(&config);
    host.sh("", "ip link set br0 type bridge vlan_filtering 0");
    let checked = at(&host, "c1").check(&config, &result);
    assert!(checked.message().contains(told), "{checked:?}");
    host.sh("", "ip link set br0 type bridge vlan_filtering 1");
    for (change, undo, says) in [
        ("bridge vlan add dev PORT vid 9", "bridge vlan del dev PORT vid 9", "it now belongs to VLAN 9"),
        ("bridge vlan del dev PORT vid 7", "bridge vlan add dev PORT vid 7 pvid untagged", "does not belong any more to VLAN 7"),
        ("bridge vlan add dev PORT vid 7", "bridge vlan add dev PORT vid 7 pvid untagged", "VLAN 7 pvid untagged"),
    ] {
        host.sh("", &change.replace("PORT", outer(&result)));
        let checked = at(&host, "c1").check(&config, &result);
        assert!(checked.message().contains(says), "{change}: {checked:?}");
        host.sh("", &undo.replace("PORT", outer(&result)));
        assert_eq!(at(&host, "c1").check(&config, &result).code, 0, "{undo}");
    }
    at(&host, "c1").del(&config, &result);
}

/// What comes by the bridge's VLAN comes from an address of that network, whatever the pod says.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_pod_sends_to_the_gateway_of_a_vlan_as_another() {
    let node = Node::new(&Api::shared(), "vlanspoof", "");
    node.restart();
    node.host.sh("", "ip link add x7 type bridge vlan_filtering 1");
    node.host.sh("", "sysctl -qw net.ipv6.conf.x7.accept_ra=0");
    for link in ["all", "default"] {
        node.host.sh("", &format!("sysctl -qw net.ipv4.conf.{link}.rp_filter=0"));
    }
    let vlan =
        json!({"type": "bridge", "bridge": "x7", "vlan": 7, "isGateway": true, "ipam": {"type": "host-local", "subnet": "10.77.0.0/24"}});
    node.define("vlan", &json!({"cniVersion": "1.0.0", "name": "x", "plugins": [vlan]}).to_string());
    let address = |pod: &Pod<'_>, ifname: &str| node.host.addresses(&pod.sandbox(), ifname)[0].split('/').next().unwrap().to_owned();
    let [victim, other] = ["victim", "other"].map(|name| node.pod(name, "[]"));
    for pod in [&victim, &other] {
        pod.must("ADD");
    }
    let (victims, others) = (address(&victim, "eth0"), address(&other, "eth0"));
    let pod = node.pod("attacker", "vlan");
    pod.must("ADD");
    let (sandbox, own) = (pod.sandbox(), address(&pod, "net1"));
    node.host.sh(&sandbox, &format!("ip route replace {victims}/32 via 10.77.0.1 dev net1"));
    node.host.sh(&sandbox, &format!("ip addr add {others}/32 dev lo"));
    let to_victim = |from: &str| node.host.arrives((&sandbox, from), (&victim.sandbox(), &victims));
    assert!(to_victim(&own), "its own address");
    assert!(!to_victim(&others), "another pod's");
    pod.must("CHECK");
    pod.must("DEL");
}
