//! Pods with ports of OpenStack's Neutron: the agent, the real Open vSwitch, and a controller that is the test.

mod crash;
mod kills;
mod kuryr_cni;
mod scene;

use netloom_tests::{Node, Pod, netloom};
use serde_json::{Value, json};

use scene::{Port, attach, bind, ended, node, plugged, refuse, say};

fn nobody() -> [String; 0] {
    []
}

fn links(node: &Node, pod: &Pod<'_>) -> Vec<String> {
    let listed = node.host.json(&pod.sandbox(), "ip -j link");
    let mut names: Vec<String> = listed.as_array().unwrap().iter().map(|link| link["ifname"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// Two networks of Neutron, one of them by an interface of the pod's choice, beside one that is not Neutron's: in the order of the
/// selections. The ADD ends when the ports are ACTIVE. The DEL needs no API server.
#[test]
fn pods_of_neutron_networks() {
    let (node, switch) = node("neutron", "openstackMTU: 1400");
    let before = node.before();
    let selected = json!([{"name": "net-a"}, {"name": "mac1"}, {"name": "net-b", "interface": "data0", "mac": Port('b', 11).mac(), "ips": [Port('b', 11).v4()]}]);
    let one = node.pod("one", &selected.to_string());
    let two = node.pod("two", "net-a");
    let of_one = [("eth1", Port('a', 11)), ("data0", Port('b', 11))];
    let of_two = [("eth1", Port('a', 12))];
    bind(&node, &one, &of_one);
    let mut adding = one.begin("ADD");
    node.until("both ports are plugged", || plugged(&switch).len() == 2);
    say(&node, &one, &of_one[..1], true);
    assert!(adding.try_wait().unwrap().is_none(), "one of two ports is ACTIVE");
    say(&node, &one, &of_one, true);
    let added = ended(adding);
    assert_eq!(added.code, 0, "{added:?}");
    bind(&node, &two, &of_two);
    assert_eq!(attach(&node, &switch, &two, &of_two).code, 0);
    assert_eq!(links(&node, &one), ["data0", "eth0", "eth1", "lo", "net2"]);
    let id = |port: Port, key: &str| {
        let name = switch.vsctl(&format!("--bare --columns=name find interface external_ids:iface-id={}", port.id()));
        switch.vsctl(&format!("get interface {} external_ids:{key}", name.trim())).trim().trim_matches('"').to_owned()
    };
    assert_eq!(
        ["attached-mac", "iface-status", "vm-uuid"].map(|key| id(Port('a', 11), key)),
        [Port('a', 11).mac(), "active".to_owned(), one.sandbox()]
    );
    for (network, address) in [("v4", Port('a', 12).v4()), ("v6", Port('a', 12).v6())] {
        assert!(node.host.pings(&one.sandbox(), &address), "{network}");
        assert!(node.host.tcp(&one.sandbox(), &two.sandbox(), &address), "{network}");
    }
    assert_eq!(node.host.link(&one.sandbox(), "eth1").unwrap().mtu(), 1400);
    let routes = node.host.json(&one.sandbox(), "ip -j route");
    let route = |dst: &str| routes.as_array().unwrap().iter().find(|route| route["dst"] == dst).cloned().unwrap_or_default();
    assert_eq!((&route("198.51.1.0/24")["gateway"], &route("default")["dev"]), (&json!("192.0.1.254"), &json!("eth0")));
    node.until("the status has all of them", || one.status().as_array().is_some_and(|all| all.len() == 4));
    let status = one.status();
    let shown: Vec<(&Value, &Value)> = status.as_array().unwrap().iter().map(|network| (&network["interface"], &network["ips"])).collect();
    assert_eq!(shown[1], (&json!("eth1"), &json!([Port('a', 11).v4(), Port('a', 11).v6()])));
    assert_eq!((shown[2].0, shown[3]), (&json!("net2"), (&json!("data0"), &json!([Port('b', 11).v4(), Port('b', 11).v6()]))));
    assert_eq!(status[1]["dns"]["nameservers"], json!(["192.0.2.53"]));
    assert_eq!(one.check().code, 0, "{:?}", one.check());
    let explained = node.host.command("", netloom()).args(["explain", "neutron/one", "--color", "never"]).output().unwrap();
    let explained = String::from_utf8_lossy(&explained.stdout);
    assert!(explained.contains("ovs (built in)") && explained.contains("transmit checksums off"), "{explained}");
    node.api_proxy.shut();
    [&one, &two].iter().for_each(|pod| drop(pod.must("DEL")));
    node.api_proxy.open();
    assert_eq!(plugged(&switch), nobody());
    drop((one, two));
    node.expect(&before, "pods of Neutron's networks");
}

/// A port that nobody reports as ACTIVE fails the pod in time, with its name, and leaves nothing; so does one that nobody binds.
#[test]
fn a_port_that_does_not_come() {
    let (node, switch) = node("down", "openstackWait: 3s");
    let before = node.before();
    let pod = node.pod("web", "mac1,net-a,net-b");
    let unbound = pod.add();
    assert_eq!(unbound.error()["code"], json!(11), "{unbound:?}");
    for says in ["no Neutron port for pod down/web after 3 s", "it has no KuryrPort for this node"] {
        assert!(unbound.message().contains(says), "{unbound:?}");
    }
    // The failed ADD and `netloom explain` show the controller's reason.
    refuse(&node, &pod, "Quota exceeded for resources: ['port']");
    let refused = pod.add();
    assert!(
        refused.message().contains("no Neutron port for pod down/web after 3 s: Quota exceeded for resources: ['port']"),
        "{refused:?}"
    );
    let explained = node.host.command("", netloom()).args(["explain", "down/web", "--color", "never"]).output().unwrap();
    let explained = String::from_utf8_lossy(&explained.stdout);
    assert!(explained.contains("Quota exceeded"), "{explained}");
    let ports = [("eth1", Port('a', 21)), ("eth2", Port('b', 21))];
    say(&node, &pod, &ports[..1], false);
    let half = pod.add();
    assert!(half.message().contains("element 3 of its networks, down/net-b, has no VIF yet"), "{half:?}");
    say(&node, &pod, &ports, false);
    say(&node, &pod, &ports[..1], true);
    say(&node, &pod, &ports, false);
    let down = pod.add();
    assert_eq!(down.error()["code"], json!(11), "{down:?}");
    let of_port = |key: &str, port: Port| format!("interface {key}, Neutron port {} (network net-{}, bridge ", port.id(), port.0);
    for says in
        ["not ACTIVE 3 s after it was plugged", &of_port("eth1", ports[0].1), &of_port("eth2", ports[1].1), "neutron-openvswitch-agent"]
    {
        assert!(down.message().contains(says), "{says}: {down:?}");
    }
    assert_eq!((plugged(&switch), links(&node, &pod)), (nobody().to_vec(), vec!["lo".to_owned()]));
    node.until("the pod's owner can read why", || pod.events().iter().any(|event| event.starts_with("NeutronPortNotReady: not ACTIVE")));
    pod.must("DEL");
    drop(pod);
    node.expect(&before, "ports that did not come");
}

/// A controller that still says ACTIVE of the sandbox before lets no pod run: nothing passes its ports before the node's agent of Neutron has
/// wired them, and the ADD waits for that.
#[test]
fn what_is_active_and_not_wired() {
    let (node, mut switch) = node("stale", "openstackWait: 3s");
    switch.stop_agent();
    let before = node.before();
    let pod = node.pod("web", "net-a,net-b");
    let ports = [("eth1", Port('a', 71)), ("eth2", Port('b', 71))];
    bind(&node, &pod, &ports);
    say(&node, &pod, &ports, true);
    let unwired = pod.add();
    assert_eq!(unwired.error()["code"], json!(11), "{unwired:?}");
    for says in ["no VLAN 3 s after it was plugged: interface eth1, Neutron port ", "interface eth2", "set openstackVLAN: none"] {
        assert!(unwired.message().contains(says), "{says}: {unwired:?}");
    }
    assert_eq!((plugged(&switch), links(&node, &pod)), (nobody().to_vec(), vec!["lo".to_owned()]));
    node.configure(&node.name, "openstackVIFs: kuryrports\nopenstackWait: 300s");
    node.restart();
    let mut adding = pod.begin("ADD");
    node.until("both ports are plugged", || plugged(&switch).len() == 2);
    let dead = || {
        switch
            .vsctl("--bare --columns=name find port tag=4095 vlan_mode=trunk trunks=4095")
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let names = dead();
    assert_eq!(names.len(), 2, "nothing passes them");
    switch.vsctl(&format!("set port {0} tag=5 -- clear port {0} vlan_mode -- clear port {0} trunks", names[0]));
    assert!(adding.try_wait().unwrap().is_none(), "one of two is wired");
    switch.vsctl(&format!("set port {0} tag=6 -- clear port {0} vlan_mode -- clear port {0} trunks", names[1]));
    let added = ended(adding);
    assert_eq!(added.code, 0, "{added:?}");
    assert_eq!(pod.check().code, 0, "{:?}", pod.check());
    pod.must("DEL");
    drop(pod);
    node.configure(&node.name, "openstackVIFs: kuryrports\nopenstackWait: 3s");
    node.expect(&before, "ports that were not wired");
}

/// What whoever may change a pod could write is not read; nor is what belongs to another pod or node, or names what the node does not offer.
#[test]
fn what_is_forged_is_not_plugged() {
    let (node, switch) = node("forged", "openstackWait: 2s");
    switch.vsctl("add-br br-ex -- set bridge br-ex datapath_type=netdev");
    let before = node.before();
    let state = json!({"eth0": Port('a', 31).vif(true), "eth1": Port('b', 31).vif(true)});
    let annotations = json!({"k8s.v1.cni.cncf.io/networks": "net-b", "openstack.org/kuryr-vif": state.to_string()});
    let pod = node.pod_of(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": node.namespace, "annotations": annotations}}));
    let refused = |says: &str| {
        // The agent follows KuryrPorts: it may not have seen the last change yet.
        node.until(says, || {
            let add = pod.add();
            assert_ne!(add.code, 0, "{says}: {add:?}");
            add.message().contains(says)
        });
        assert_eq!(plugged(&switch), nobody(), "{says}");
    };
    refused("it has no KuryrPort for this node");
    let path = format!("/apis/openstack.org/v1/namespaces/{}/kuryrports/web", node.namespace);
    let patch = |patch: Value| drop(node.api.must("PATCH", &path, &patch));
    bind(&node, &pod, &[("eth1", Port('a', 32))]);
    let uid = pod.uid.clone();
    for (spec, says) in [
        (json!({"podUid": "6f0c6f0c-0000-4000-8000-000000000000"}), "its KuryrPort is of an earlier pod"),
        (json!({"podUid": uid, "podNodeName": "elsewhere"}), "its KuryrPort is of another node"),
    ] {
        patch(json!({"spec": spec}));
        refused(says);
    }
    patch(json!({"spec": {"podNodeName": node.name}}));
    let with = |key: &str, value: Value| {
        let mut vif = Port('a', 32).vif(true);
        vif["versioned_object.data"][key] = value;
        patch(json!({"status": {"vifs": {"eth1": {"default": false, "vif": vif}}}}));
    };
    with("bridge_name", json!("br-ex"));
    refused(r#"its VIF names the bridge "br-ex", and the agent's openstackBridges are br-int"#);
    with("bridge_name", json!("br-int"));
    with("id", json!("../../etc"));
    refused(r#"KuryrPort of pod forged/web: status.vifs.eth1.vif.id: "../../etc" is not a UUID"#);
    pod.must("DEL");
    drop(pod);
    node.expect(&before, "what is forged");
}

/// Where the settings say so: the annotation in its three forms. The default network is then the first VIF.
#[test]
fn vifs_in_the_annotation() {
    let (node, switch) = node("annotated", "openstackWait: 20s");
    node.configure("annotated", "openstackVIFs: annotation\nopenstackDefault: port\nopenstackActive: later");
    node.restart();
    let (first, second) = (Port('a', 41).vif(false), Port('b', 41).vif(false));
    let object = |name: &str, data: Value| {
        json!({"versioned_object.name": name, "versioned_object.namespace": "os_vif", "versioned_object.version": "1.0",
            "versioned_object.data": data})
    };
    let state = object("PodState", json!({"default_vif": first, "additional_vifs": {"eth1": second}}));
    let forms = [(first.clone(), ""), (json!({"eth0": first, "eth1": second}), "net-b"), (state, "net-b")];
    for (at, (value, networks)) in forms.into_iter().enumerate() {
        let annotations = json!({"k8s.v1.cni.cncf.io/networks": networks, "openstack.org/kuryr-vif": value.to_string()});
        let pod = node.pod_of(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("form{at}"), "namespace": node.namespace, "annotations": annotations}}));
        let result = pod.must("ADD").result();
        assert_eq!(result["ips"][0]["address"], json!(format!("{}/24", Port('a', 41).v4())), "{at}");
        let routes = node.host.json(&pod.sandbox(), "ip -j route");
        assert!(routes.as_array().unwrap().iter().any(|route| route["dst"] == "default" && route["gateway"] == "192.0.1.1"), "{routes}");
        let expected = if networks.is_empty() { vec!["eth0", "lo"] } else { vec!["eth0", "eth1", "lo"] };
        assert_eq!(links(&node, &pod), expected, "{at}");
        pod.must("DEL");
        node.until("its ports are gone", || plugged(&switch).is_empty());
    }
}

/// A restart of the database while an ADD waits, and one while a pod runs, lose nothing.
#[test]
fn the_database_restarts() {
    let (node, mut switch) = node("database", "");
    let before = node.before();
    let (one, two) = (node.pod("one", "net-a"), node.pod("two", "net-a"));
    let (of_one, of_two) = ([("eth1", Port('a', 51))], [("eth1", Port('a', 52))]);
    bind(&node, &two, &of_two);
    assert_eq!(attach(&node, &switch, &two, &of_two).code, 0);
    bind(&node, &one, &of_one);
    let adding = one.begin("ADD");
    let record = node.host.path(format!("/var/lib/netloom/sandboxes/{}.json", one.sandbox()));
    node.until("the port is plugged", || std::fs::read_to_string(&record).is_ok_and(|text| text.contains("\"result\"")));
    switch.stop_database();
    switch.start_database();
    say(&node, &one, &of_one, true);
    let added = ended(adding);
    assert_eq!(added.code, 0, "{added:?}");
    node.until("the ports forward", || node.host.pings(&one.sandbox(), &Port('a', 52).v4()));
    [&one, &two].iter().for_each(|pod| assert_eq!(pod.check().code, 0, "{:?}", pod.check()));
    [&one, &two].iter().for_each(|pod| drop(pod.must("DEL")));
    node.until("the ports are gone", || plugged(&switch).is_empty());
    drop((one, two));
    node.expect(&before, "a restart of the database");
}

/// A DEL that came while the agent was away is carried out before the next sandbox of its pod asks for the same ports.
#[test]
fn the_next_sandbox_comes_after_the_stored_del_of_the_former() {
    let (node, switch) = node("stored", "");
    let before = node.before();
    let (pod, ports) = (node.pod("one", "net-b"), [("eth1", Port('b', 56))]);
    bind(&node, &pod, &ports);
    assert_eq!(attach(&node, &switch, &pod, &ports).code, 0);
    node.kill9();
    pod.must("DEL");
    let path = node.host.path(format!("/var/lib/netloom/spool/{}@eth0.del", pod.sandbox()));
    let stored = std::fs::read(&path).unwrap();
    // As if the agent had not come to it yet.
    std::fs::remove_file(&path).unwrap();
    node.serve();
    std::fs::write(&path, stored).unwrap();
    pod.renew();
    pod.must("ADD");
    assert_eq!(plugged(&switch), [ports[0].1.id()]);
    pod.must("DEL");
    node.until("the ports are gone", || plugged(&switch).is_empty());
    drop(pod);
    node.expect(&before, "a DEL that was stored");
}

/// Pods whose ports do not come wait beside the workers: more of them than there are workers, all of one namespace, keep nobody else from its
/// own. What they have begun is undone when their time is over.
#[test]
fn pods_that_wait_for_ports_hold_up_nobody() {
    const WAIT: usize = 12;
    let (node, switch) = node("waiting", "workers: 4\nopenstackWait: 100s");
    let before = node.before();
    let pods: Vec<Pod<'_>> = (0..WAIT).map(|n| node.pod(&format!("waits-{n}"), "net-a")).collect();
    // Half of them wait for a port to be bound, the others until theirs is ACTIVE.
    let port = |n: usize| [("eth1", Port('a', 80 + u8::try_from(n).unwrap()))];
    pods.iter().enumerate().skip(WAIT / 2).for_each(|(n, pod)| bind(&node, pod, &port(n)));
    let mut adding: Vec<_> = pods.iter().map(|pod| pod.begin("ADD")).collect();
    node.until("each has its call served, and half of the ports are plugged", || {
        let status = node.status();
        status["calls"] == json!(WAIT) && status["callsWaiting"] == json!(0) && plugged(&switch).len() == WAIT / 2
    });
    // A pod of the same namespace, and one of another.
    let same = node.pod("plain", "mac1");
    let other = node.pod_of(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other-than-waiting", "namespace": "default"}}));
    for pod in [&same, &other] {
        pod.must("ADD");
        pod.must("DEL");
    }
    assert!(adding.iter_mut().all(|call| call.try_wait().unwrap().is_none()), "all of them still wait");
    // Those that are deleted go at once, and those whose ports come are attached.
    for (n, pod) in pods.iter().enumerate().skip(WAIT / 2) {
        say(&node, pod, &port(n), true);
    }
    for call in adding.split_off(WAIT / 2) {
        let added = ended(call);
        assert_eq!(added.code, 0, "{added:?}");
    }
    for mut call in adding {
        call.kill().unwrap();
        call.wait().unwrap();
    }
    pods.iter().for_each(|pod| drop(pod.must("DEL")));
    drop((pods, same, other));
    node.settled();
    node.expect(&before, "pods that waited");
}
