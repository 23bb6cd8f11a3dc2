//! What a pod asks of an attachment reaches the plugins, the kernel and the status.

use serde_json::{Value, json};

use crate::standard::scene::{DEFAULT_NETWORK, Node, bridge, macvlan};

/// Keeps its standard input as `/run/given/INTERFACE.VERB`, and tells of an interface with the hardware address that is in
/// `/run/mac`.
const CARRIER: &str = r#"mkdir -p /run/given
cat >/run/given/$CNI_IFNAME.$CNI_COMMAND
[ $CNI_COMMAND != ADD ] || echo '{"cniVersion":"1.0.0","interfaces":[{"name":"'$CNI_IFNAME'","sandbox":"'$CNI_NETNS'","mac":"'$(cat /run/mac 2>/dev/null)'"}]}'
"#;

fn given(node: &Node, file: &str) -> Value {
    let path = node.host.path("/run/given").join(file);
    serde_json::from_str(&std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{file}: {e}"))).unwrap()
}

#[test]
fn s18_s19_s20_s21_s22_s30_addresses_and_names_are_as_asked_for() {
    let node = Node::new("asked");
    let mut fixed = json!({"cniVersion": "1.0.0", "plugins": [macvlan("x", 1), {"type": "tuning", "capabilities": {"mac": true}}]});
    fixed["plugins"][0]["ipam"] = json!({"type": "static"});
    fixed["plugins"][0]["capabilities"] = json!({"ips": true});
    node.definition("fixed", &fixed);
    let pod = node.pod(
        "web",
        json!([
            {"name": "fixed", "ips": ["10.1.0.77/16"], "mac": "02:00:00:00:00:77", "interface": "storage"},
            {"name": "fixed", "namespace": "asked", "ips": ["10.1.0.78/16", "2001:db8::78/64"]},
        ]),
    );
    pod.add();
    assert_eq!(pod.links(), ["eth0", "lo", "net2", "storage"]);
    assert_eq!(pod.addresses("storage"), ["10.1.0.77/16"]);
    assert_eq!(node.host.link(&pod.sandbox, "storage").unwrap().mac(), "02:00:00:00:00:77");
    assert_eq!(pod.addresses("net2"), ["10.1.0.78/16", "2001:db8::78/64"]);
    assert_eq!(
        (&pod.entry("storage")["mac"], &pod.entry("net2")["ips"]),
        (&json!("02:00:00:00:00:77"), &json!(["10.1.0.78", "2001:db8::78"]))
    );
    assert_eq!(pod.call("CHECK").code, 0);
    pod.del();
    assert_eq!(pod.links(), ["lo"]);
}

/// The default route goes where the pod wants it, family by family, and the status says both: the standard's key and Multus's.
#[test]
fn s26_s43_the_default_route_is_moved() {
    let node = Node::new("route");
    node.definition("out", &bridge("out", 1));
    let pod = node.pod("web", json!([{"name": "out", "default-route": ["10.1.0.1"]}]));
    pod.add();
    assert_eq!(pod.default_routes("-4"), ["10.1.0.1 net1"]);
    let (eth0, net1) = (pod.entry("eth0"), pod.entry("net1"));
    assert_eq!((&net1["default-route"], &net1["gateway"]), (&json!(["10.1.0.1"]), &json!(["10.1.0.1"])));
    assert_eq!((eth0.get("default-route"), eth0.get("gateway"), &eth0["default"]), (None, None, &json!(true)), "{eth0}");
    assert_eq!(pod.call("CHECK").code, 0);
    pod.del();
    // Without the key the default network's stays.
    let plain = node.pod("plain", "out");
    plain.add();
    assert_eq!((plain.default_routes("-4"), &plain.entry("eth0")["gateway"]), (vec!["10.0.0.1 eth0".to_owned()], &json!(["10.0.0.1"])));
}

/// An 8-byte GUID reaches the plugin. The status has no key of its own for it: the standard only shows one in examples; what
/// the plugin tells, an address of 20 bytes, stands under `mac`.
#[test]
fn s27_s45_an_infiniband_guid_reaches_the_plugin() {
    let node = Node::new("infiniband");
    node.plugin("carrier", CARRIER);
    let address = "00:00:10:49:fe:80:00:00:00:00:00:00:c2:11:22:33:44:55:66:77";
    node.host.write("/run/mac", address);
    node.definition("ib", &json!({"cniVersion": "1.0.0", "type": "carrier", "capabilities": {"infinibandGUID": true}}));
    let pod = node.pod("web", json!([{"name": "ib", "infiniband-guid": "c2:11:22:33:44:55:66:77"}]));
    pod.add();
    assert_eq!(given(&node, "net1.ADD")["runtimeConfig"], json!({"infinibandGUID": "c2:11:22:33:44:55:66:77"}));
    let entry = pod.entry("net1");
    assert_eq!((&entry["mac"], entry.get("infiniband-guid")), (&json!(address), None), "{entry}");
}

#[test]
fn s23_s24_s25_arguments_ports_and_bandwidth_reach_the_plugin() {
    let node = Node::new("carried");
    node.plugin("carrier", CARRIER);
    let capabilities = json!({"portMappings": true, "bandwidth": true});
    node.definition(
        "net",
        &json!({"cniVersion": "1.0.0", "type": "carrier", "capabilities": capabilities, "args": {"cni": {"a": 1, "b": 1}}}),
    );
    let pod = node.pod(
        "web",
        json!([{"name": "net", "cni-args": {"b": 2}, "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "Udp"}],
        "bandwidth": {"ingressRate": 1000, "ingressBurst": 8000}}]),
    );
    pod.add();
    let added = given(&node, "net1.ADD");
    assert_eq!((&added["args"]["cni"]["a"], &added["args"]["cni"]["b"]), (&json!(1), &json!(2)), "{added}");
    let config = &added["runtimeConfig"];
    assert_eq!(
        (&config["portMappings"][0]["hostPort"], &config["portMappings"][0]["containerPort"]),
        (&json!(8080), &json!(80)),
        "{added}"
    );
    assert!(config["portMappings"][0]["protocol"].as_str().unwrap().eq_ignore_ascii_case("udp"), "{added}");
    assert_eq!((&config["bandwidth"]["ingressRate"], &config["bandwidth"]["ingressBurst"]), (&json!(1000), &json!(8000)), "{added}");
    pod.del();
    assert_eq!(given(&node, "net1.DEL")["runtimeConfig"], *config);
}

/// As with Multus: IPv4 over one attachment, IPv6 over another.
#[test]
fn s26_s43_each_family_has_its_default_route_over_another_attachment() {
    let node = Node::new("each-family");
    let mut dual = macvlan("six", 2);
    dual["ipam"] = json!({"type": "host-local", "ranges": [[{"subnet": "10.2.0.0/16"}], [{"subnet": "2001:db8:2::/64"}]]});
    node.definition("four", &macvlan("four", 1));
    node.definition("six", &dual);
    let pod =
        node.pod("web", json!([{"name": "four", "default-route": ["10.1.0.1"]}, {"name": "six", "default-route": ["2001:db8:2::1"]}]));
    pod.add();
    assert_eq!(
        (pod.default_routes("-4"), pod.default_routes("-6")),
        (vec!["10.1.0.1 net1".to_owned()], vec!["2001:db8:2::1 net2".to_owned()])
    );
    let (eth0, net1, net2) = (pod.entry("eth0"), pod.entry("net1"), pod.entry("net2"));
    assert_eq!((eth0.get("gateway"), &net1["gateway"], &net2["gateway"]), (None, &json!(["10.1.0.1"]), &json!(["2001:db8:2::1"])));
}

/// Each family by itself: a pod that moves its IPv6 route keeps its IPv4 one.
#[test]
fn s26_s43_the_default_route_of_one_family_is_moved() {
    let node = Node::new("route6");
    let mut both = bridge("both", 1);
    both["ipam"] = json!({"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/16"}], [{"subnet": "2001:db8:1::/64"}]]});
    node.definition("both", &both);
    let pod = node.pod("web", json!([{"name": "both", "default-route": ["2001:db8:1::1"]}]));
    pod.add();
    assert_eq!(
        (pod.default_routes("-4"), pod.default_routes("-6")),
        (vec!["10.0.0.1 eth0".to_owned()], vec!["2001:db8:1::1 net1".to_owned()])
    );
    let (eth0, net1) = (pod.entry("eth0"), pod.entry("net1"));
    assert_eq!(
        (&eth0["gateway"], &net1["gateway"], &net1["default-route"]),
        (&json!(["10.0.0.1"]), &json!(["2001:db8:1::1"]), &json!(["2001:db8:1::1"]))
    );
    pod.del();
}

/// As with Multus: plugins that declare no capability find the request in `CNI_ARGS`.
#[test]
fn s20_s21_s29_a_network_without_capabilities_gives_what_was_asked_for() {
    let node = Node::new("undeclared");
    let mut fixed = macvlan("fixed", 1);
    fixed["ipam"] = json!({"type": "static"});
    node.definition("fixed", &fixed);
    node.definition("ranged", &macvlan("ranged", 2));
    let asked = json!([
        {"name": "fixed", "ips": ["10.1.1.21/24", "2001:db8::21/64"], "mac": "02:00:00:00:00:21"},
        {"name": "ranged", "ips": ["10.2.0.99"]},
    ]);
    let pod = node.pod("web", &asked);
    pod.add();
    assert_eq!(pod.addresses("net1"), ["10.1.1.21/24", "2001:db8::21/64"]);
    assert_eq!(node.host.link(&pod.sandbox, "net1").unwrap().mac(), "02:00:00:00:00:21");
    assert_eq!((pod.addresses("net2"), &pod.entry("net2")["ips"]), (vec!["10.2.0.99/16".to_owned()], &json!(["10.2.0.99"])));
    assert_eq!(pod.call("CHECK").code, 0);
    pod.del();
    assert_eq!(node.leases("ranged"), Vec::<String>::new());
}

/// A result of 0.2.0 tells of no interfaces: what the kernel has counts.
#[test]
fn s21_s29_a_plugin_that_reports_no_interface_is_judged_by_what_it_made() {
    let node = Node::new("unreported");
    node.plugin(
        "old",
        r#"mac=$(echo "$CNI_ARGS" | tr ';' '\n' | sed -n 's/^MAC=//p')
case $CNI_COMMAND in
ADD)
    [ "$(cat /run/deaf 2>/dev/null)" ] && mac=02:00:00:00:00:08
    nsenter --net=$CNI_NETNS ip link add $CNI_IFNAME address $mac type veth peer name peer0 >&2
    echo '{"cniVersion": "0.2.0", "ip4": {"ip": "10.9.0.1/24"}}';;
DEL) nsenter --net=$CNI_NETNS ip link delete $CNI_IFNAME >&2;;
esac
"#,
    );
    node.definition("old", &json!({"cniVersion": "0.2.0", "type": "old"}));
    let asked = json!([{"name": "old", "mac": "02:00:00:00:00:07"}]);
    let pod = node.pod("heard", &asked);
    pod.add();
    assert_eq!(node.host.link(&pod.sandbox, "net1").unwrap().mac(), "02:00:00:00:00:07");
    pod.del();
    node.host.write("/run/deaf", "yes");
    let error = node.pod("ignored", &asked).refused();
    let words = "mac: 02:00:00:00:00:07 was requested";
    assert!(error["msg"].as_str().unwrap().contains(words) && error.to_string().contains("02:00:00:00:00:08"), "{error}");
}

/// Multus starts the pod without a word.
#[test]
fn s20_s21_s29_what_the_plugins_ignore_fails_and_is_undone() {
    let node = Node::new("ignoring");
    node.plugin("deaf", "[ $CNI_COMMAND != ADD ] || echo '{\"cniVersion\": \"1.0.0\", \"ips\": [{\"address\": \"10.9.0.1/24\"}]}'\n");
    node.definition("addresses", &json!({"cniVersion": "1.0.0", "type": "bridge", "bridge": "br9", "ipam": {"type": "deaf"}}));
    node.definition("links", &json!({"cniVersion": "1.0.0", "type": "deaf"}));
    for (name, selection, words) in [
        (
            "ips",
            json!([{"name": "addresses", "ips": ["10.9.0.7/24"]}]),
            ["ips: 10.9.0.7/24 was requested", "report 10.9.0.1: they ignored"],
        ),
        (
            "mac",
            json!([{"name": "links", "mac": "02:00:00:00:00:07"}]),
            ["mac: 02:00:00:00:00:07 was requested", "they ignored the request"],
        ),
    ] {
        let pod = node.pod(name, &selection);
        let (error, event) = (pod.refused(), pod.event("InvalidNetworks"));
        for words in words.iter().copied().chain([&*format!("declares \"capabilities\": {{\"{name}\": true}}")]) {
            assert!(error["msg"].as_str().unwrap().contains(words) && event.contains(words), "{words}: {error} {event}");
        }
        assert_eq!((node.leases("cluster"), node.records()), (vec![], vec![]));
    }
}

/// What a pod asks of the default network that it chooses holds, too: with Multus it does not.
#[test]
fn s20_s21_the_chosen_default_network_has_the_address_that_was_asked_for() {
    let node = Node::new("fixed");
    let mut fixed = bridge("fixed", 5);
    fixed["ipam"] = json!({"type": "static"});
    fixed["capabilities"] = json!({"ips": true, "mac": true});
    node.definition("fixed", &fixed);
    let choice = json!([{"name": "fixed", "namespace": "fixed", "ips": ["10.5.0.7/16"], "mac": "02:00:00:00:00:05"}]);
    let pod = node.pod_with("web", &json!({DEFAULT_NETWORK: choice.to_string()}));
    let result = pod.add();
    assert_eq!((&result["ips"][0]["address"], pod.addresses("eth0")), (&json!("10.5.0.7/16"), vec!["10.5.0.7/16".to_owned()]));
    assert_eq!(node.host.link(&pod.sandbox, "eth0").unwrap().mac(), "02:00:00:00:00:05");
    pod.del();
}
