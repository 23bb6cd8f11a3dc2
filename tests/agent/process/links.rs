//! Definitions that make links of the host, by an attacker: names of others, names of devices that are away, bridges kept by a text, and
//! collections of a network that look like another's. Each was possible once.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use netloom_tests::{Node, Pod, SETTINGS};
use serde_json::{Value, json};

use crate::process::own_traffic::network;

fn fixed(address: &str) -> Value {
    json!({"type": "static", "addresses": [{"address": address}]})
}

/// An ADD that fails with code 7, and this in its message; the DEL leaves nothing.
fn refused(pod: &Pod<'_>, says: &str) {
    let outcome = pod.add();
    assert_eq!(outcome.error()["code"], json!(7), "{}: {outcome:?}", pod.name);
    assert!(outcome.message().contains(says), "{}: {}", pod.name, outcome.message());
    pod.must("DEL");
}

#[test]
fn names_of_others_links() {
    let node = Node::start("link-names", "");
    for words in
        ["link add qbr1a2b3c4d-5e up type bridge", "link property add dev qbr1a2b3c4d-5e altname hybrid", "link add br-ex up type bridge"]
    {
        node.host.sh("", &format!("ip {words}"));
    }
    node.host.sh("", "sysctl -qw net.ipv6.conf.br-ex.accept_ra=0");
    let on = |bridge: &str| json!({"type": "bridge", "bridge": bridge, "ipam": fixed("10.71.0.2/24")});
    // What is there already, and another case, are no names of theirs. A bridge that was made goes again.
    node.define("free", &network(&[on("BR-INT")]));
    node.define("there", &network(&[on("br-ex")]));
    let free = node.pod("free", "free,there");
    free.must("ADD");
    assert!(node.host.link("", "BR-INT").is_some());
    free.must("DEL");
    node.until("the bridge is gone", || node.host.link("", "BR-INT").is_none());
    drop(free);
    let before = node.before();
    let with = |keys: Value| {
        let mut plugin = on("x1");
        plugin.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        plugin
    };
    for (name, plugin, says) in [
        ("integration", on("br-int"), "makes the link \"br-int\""),
        ("tunnels", on("br-tun"), "makes the link \"br-tun\""),
        // Of several spellings the last one is taken.
        ("spelling", with(json!({"BRIDGE": "x1", "bridge": "br-tun"})), "makes the link \"br-tun\""),
        ("gre", on("gre0"), "which is a name for a link of the kernel"),
        ("sit", on("sit0"), "which is a name for a link of the kernel"),
        ("erspan", on("erspan0"), "which is a name for a link of the kernel"),
        ("of-a-port", on("qvo1a2b3c4d-5e"), "which is a name for a link of OpenStack's Neutron"),
        ("of-a-machine", on("tap1a2b3c4d-5e"), "which is a name for a link of OpenStack's Neutron"),
        ("hardware", on("eth1"), "which is a name for a link of the kernel, for a network card"),
        ("vpn", on("wg0"), "which is a name for a link of WireGuard"),
        ("of-xen", on("enX0"), "which is a name for a link of the kernel, for a network card"),
        ("infiniband", on("ibp1s0"), "which is a name for a link of the kernel, for a network card"),
        ("of-docker", on("br-0123456789ab"), "which is a name for a link of Docker"),
        ("unseen", on("\u{202e}x7"), "which has characters that nobody sees"),
        ("gateway", on("gw0123456789a"), "which is a name for a link of Netloom"),
        ("anothers-port", on("qbr1a2b3c4d-5e"), "which is a link of OpenStack's Neutron"),
        ("by-altname", on("hybrid"), "which is a link of OpenStack's Neutron"),
        ("stands", json!({"type": "macvlan", "master": "hybrid", "ipam": fixed("10.71.0.2/24")}), "puts its pods' interfaces on"),
        ("delegated", json!({"type": "flannel", "delegate": {"bridge": "br-int"}}), "makes the link \"br-int\""),
        ("vlan", with(json!({"bridge": "flannel", "vlan": 1, "isGateway": true})), "makes the link \"flannel.1\""),
        // The kernel would choose a number.
        ("numbered", on("gre%d"), "gre%d"),
        ("space", on("br-int "), "br-int"),
        ("line", on("br-int\n"), "br-int"),
        ("zero", on("br-int\0"), "br-int"),
        ("long", on("br-int0123456789"), "br-int0123456789"),
    ] {
        node.define(name, &network(&[plugin]));
        refused(&node.pod(name, name), says);
    }
    node.expect(&before, "names of others' links");
}

/// A device comes back under its name, if nobody has that.
#[test]
fn the_name_of_a_device_that_is_away() {
    let node = Node::start("lent", "");
    for words in [
        "link add below1 type veth peer name below2",
        "link add spare0 link below1 type macvlan",
        "link property add dev spare0 altname spare-slot",
    ] {
        node.host.sh("", &format!("ip {words}"));
    }
    node.define("device", &network(&[json!({"type": "host-device", "device": "spare0"})]));
    let on = |bridge: &str| network(&[json!({"type": "bridge", "bridge": bridge, "ipam": fixed("10.71.0.2/24")})]);
    node.define("taker", &on("spare0"));
    node.define("by-altname", &on("spare-slot"));
    let owner = node.pod("owner", "device");
    owner.must("ADD");
    owner.must("DEL");
    let before = node.before();
    owner.must("ADD");
    assert!(node.host.link("", "spare0").is_none());
    refused(&node.pod("taker", "taker"), "spare0 is the name of a device that a container has borrowed");
    refused(&node.pod("by-altname", "by-altname"), "spare-slot is the name of a device");
    owner.must("DEL");
    assert!(node.host.link("", "spare0").is_some());
    node.expect(&before, "a device that was away");
}

/// A pod kept any bridge of the node by writing its name into its own network.
#[test]
fn a_text_keeps_no_bridge() {
    let node = Node::start("text", "");
    node.define("made", &network(&[json!({"type": "bridge", "bridge": "made1", "isGateway": true, "ipam": fixed("10.72.0.2/24")})]));
    let squat = json!({"type": "bridge", "bridge": "squat1", "note": "made1", "master": "made1",
        "delegate": {"type": "bridge", "bridge": "made1"}, "plugins": [{"type": "bridge", "bridge": "made1"}], "ipam": fixed("10.73.0.2/24")});
    node.define("squat", &network(&[squat]));
    // Of several keys that name a device one is used.
    node.host.sh("", "ip link add spare0 type veth peer name spare1");
    node.define("device", &network(&[json!({"type": "host-device", "device": "spare0", "hwaddr": "made1", "kernelpath": "made1"})]));
    let (squatter, pod) = (node.pod("squatter", "squat,device"), node.pod("pod", "made"));
    squatter.must("ADD");
    pod.must("ADD");
    assert!(node.host.link("", "made1").is_some());
    pod.must("DEL");
    node.until("the bridge is gone", || node.host.link("", "made1").is_none());
    assert!(node.host.link("", "squat1").is_some());
    squatter.must("DEL");
    node.until("the other is gone", || node.host.link("", "squat1").is_none());
}

/// Two of many pods whose bridge comes and goes: who is attached, stays so.
#[test]
fn pods_on_a_bridge_that_others_leave() {
    const ROUNDS: usize = 15;
    /// How often the bridge has to be there for the one that makes none.
    const FOUND: usize = 3;
    let node = Node::start("leave", "");
    node.define(
        "made",
        &network(&[json!({"type": "bridge", "bridge": "made2", "ipam": {"type": "host-local", "subnet": "10.74.0.0/24"}})]),
    );
    node.define("stands", &network(&[json!({"type": "macvlan", "master": "made2", "ipam": fixed("10.74.1.2/24")})]));
    let first = node.pod("first", "made");
    first.must("ADD");
    first.must("DEL");
    drop(first);
    let before = node.before();
    let (one, other, stands) = (node.pod("one", "made"), node.pod("other", "made"), node.pod("stands", "stands"));
    let found = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let found = &found;
        let come_and_go = |pod: &Pod<'_>| {
            let goes_on = |round: &usize| *round < ROUNDS || *round < 100 * ROUNDS && found.load(Ordering::Relaxed) < FOUND;
            for _ in (0..).take_while(goes_on) {
                pod.must("ADD");
                pod.must("CHECK");
                pod.must("DEL");
            }
        };
        let others = [scope.spawn(move || come_and_go(&one)), scope.spawn(move || come_and_go(&other))];
        let mut rounds = 0;
        while rounds < 2 * ROUNDS || others.iter().any(|other| !other.is_finished()) {
            rounds += 1;
            if stands.add().code == 0 {
                stands.must("CHECK");
                found.fetch_add(1, Ordering::Relaxed);
            }
            stands.must("DEL");
        }
    });
    let found = found.into_inner();
    assert!(found >= FOUND, "the bridge was there {found} times");
    drop(stands);
    node.settled();
    node.until("the bridge is gone", || node.host.link("", "made2").is_none());
    node.expect(&before, "a bridge that came and went");
}

/// A network's collection finds links by a number of the network's name, and a name of the same number is soon found.
#[test]
fn a_collection_takes_no_links_of_another_network() {
    const LIKE_PODS: &str = "alike-bkdvr45";
    let node = Node::start("collected", "");
    let config = json!({"cniVersion": "1.1.0", "name": LIKE_PODS, "plugins": [
        {"type": "bridge", "bridge": "alike1", "ipam": {"type": "host-local", "subnet": "10.75.0.0/24"}}]});
    node.define("alike", &config.to_string());
    let (pod, attacker) = (node.pod("pod", ""), node.pod("attacker", "alike"));
    pod.must("ADD");
    attacker.must("ADD");
    let ports = || node.host.json("", "bridge -j link").as_array().unwrap().len();
    let there = ports();
    let valid: Vec<Value> = [&pod, &attacker].iter().map(|pod| json!({"containerID": pod.sandbox(), "ifname": "eth0"})).collect();
    let gc = json!({"cniVersion": "1.1.0", "name": "netloom", "type": "netloom", "cni.dev/valid-attachments": valid});
    let collect = || node.host.cni(Path::new(&node.bin)).call("GC", "netloom", gc.to_string());
    let done = collect();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(ports(), there, "a pod of another network lost its pair");
    // Nor while nobody knows what networks the other pod is on.
    let record = node.host.path(format!("/var/lib/netloom/sandboxes/{}.json", pod.sandbox()));
    let whole = std::fs::read(&record).unwrap();
    std::fs::write(&record, "{").unwrap();
    let done = collect();
    assert!(done.message().contains("cannot parse the record"), "{done:?}");
    assert_eq!(ports(), there, "a pod with a torn record lost its pair");
    std::fs::write(&record, whole).unwrap();
    pod.must("CHECK");
    attacker.must("CHECK");
    pod.must("DEL");
    attacker.must("DEL");
}

/// A runtime of the node that calls plugins by itself, as podman does, had a network with the name of the default network, and `netloom` without
/// an agent one whose links look like its: the agent's collection took their containers for gone, and theirs the agent's pods.
#[test]
fn nobodys_collection_takes_what_others_have_attached() {
    let node = Node::new(&netloom_tests::Api::shared(), "collectors", "");
    let settings = std::fs::read_to_string(node.host.path(SETTINGS)).unwrap();
    let newer = settings.replace(r#""cniVersion":"1.0.0","name":"pods""#, r#""cniVersion":"1.1.0","name":"pods""#);
    assert_ne!(newer, settings, "a network of version 1.0.0 is not collected");
    node.host.write(SETTINGS, &newer);
    node.restart();
    let pod = node.pod("pod", "");
    pod.must("ADD");
    let named = |name: &str, bridge: &str, subnet: &str| {
        json!({"cniVersion": "1.1.0", "name": name, "type": "bridge", "bridge": bridge, "ipMasq": true,
            "ipam": {"type": "host-local", "subnet": subnet}})
    };
    let alone = |delegate: Value| json!({"cniVersion": "1.1.0", "name": "solo", "type": "netloom", "delegates": [delegate]});
    ["podman", "alone"].iter().for_each(|container| node.host.container(container));
    node.host.write("/etc/cni/net.d/50-podman.conf", &named("pods", "podman1", "10.244.0.0/24").to_string());
    let added = node.host.command("", netloom_tests::netloom()).args(["cni", "add", "pods", "/run/netns/podman"]).output().unwrap();
    assert!(added.status.success(), "{added:?}");
    let of_plugins = |container: &str| node.host.cni(netloom_tests::plugin_dir()).at(container, "eth0");
    of_plugins("alone").add(&alone(named("alike-bkdvr45", "solo1", "10.76.0.0/24")));
    let collect = |program: &str, mut config: Value, valid: &[&str]| {
        let valid: Vec<Value> = valid.iter().map(|id| json!({"containerID": id, "ifname": "eth0"})).collect();
        config["cni.dev/valid-attachments"] = json!(valid);
        let done = node.host.cni(Path::new(&node.bin)).call("GC", program, config.to_string());
        assert_eq!(done.code, 0, "{done:?}");
    };
    let agents = json!({"cniVersion": "1.1.0", "name": "netloom", "type": "netloom"});
    let during = node.host.traces();
    // What nobody has goes.
    node.host.write("/var/lib/cni/networks/pods/10.244.0.99", "ghost\r\neth0");
    collect("netloom", agents.clone(), &[&pod.sandbox()]);
    node.host.expect_traces(&during, "the agent's GC");
    // `netloom` without an agent, of networks that are called so; plugins that a runtime calls by itself.
    for delegate in [named("pods", "solo1", "10.76.0.0/24"), named("alike-bkdvr45", "solo1", "10.76.0.0/24")] {
        collect("netloom", alone(delegate), &["alone"]);
        node.host.expect_traces(&during, "the GC of netloom without an agent");
    }
    let results = node.host.list("/var/lib/cni/results");
    let [result] = results.as_slice() else { panic!("{results:?}") };
    let podmans = result.strip_prefix("pods-").and_then(|rest| rest.strip_suffix("-eth0")).unwrap();
    collect("bridge", named("pods", "podman1", "10.244.0.0/24"), &[podmans]);
    collect("bridge", named("alike-bkdvr45", "other1", "10.77.0.0/24"), &[]);
    node.host.expect_traces(&during, "the GC of a plugin");
    pod.must("CHECK");
    // A result that a runtime has of a container without a namespace keeps nothing.
    let leases = || node.host.list("/var/lib/cni/networks/pods").into_iter().filter(|name| name.starts_with("10.")).count();
    assert_eq!(leases(), 2);
    node.host.sh("", "ip netns del podman");
    node.until("its pair is gone", || !node.host.sh("", "bridge link").contains("podman1"));
    collect("netloom", agents, &[&pod.sandbox()]);
    assert_eq!(leases(), 1);
    pod.must("DEL");
}
