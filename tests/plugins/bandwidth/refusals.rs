//! What ADD refuses, before it has made anything.

use netloom_tests::plugin_dir;
use serde_json::{Value, json};

use crate::bandwidth::{Scene, bandwidth, both};

fn refusal(scene: &Scene, config: &Value) -> (u64, String) {
    let outcome = scene.cni().call("ADD", "bandwidth", config.to_string());
    (outcome.error()["code"].as_u64().unwrap(), outcome.message())
}

#[test]
fn limits_that_cannot_be_kept() {
    let scene = Scene::new();
    let before = scene.host.traces();
    for (keys, said) in [
        (json!({"ingressRate": 8000}), "if rate is set, burst must also be set: ingressBurst is missing"),
        (json!({"egressBurst": 8000}), "if burst is set, rate must also be set: egressRate is missing"),
        (
            json!({"runtimeConfig": {"bandwidth": {"egressRate": 9}}}),
            "if rate is set, burst must also be set: runtimeConfig.bandwidth.egressBurst is missing",
        ),
        (json!({"egressRate": 8000, "egressBurst": 34_359_738_360_u64}), "burst cannot be more than 4GB"),
        (json!({"ingressRate": 7, "ingressBurst": 80_000}), "ingressRate: 7 bit/s is less than a byte per second"),
        (json!({"ingressRate": 8000, "ingressBurst": 7}), "ingressBurst: 7 bits are less than a byte: nothing would pass"),
        (json!({"ingressRate": -1}), "ingressRate"),
        (json!({"unshapedSubnets": ["10.1.0.0/33"]}), "unshapedSubnets[0]: \"10.1.0.0/33\" is not a network"),
        (json!({"unshapedSubnets": ["10.1.0.0/16"], "shapedSubnets": ["fd00::/8"]}), "cannot be both specified"),
    ] {
        let (code, message) = refusal(&scene, &scene.config(keys.clone()));
        assert!(code == 7 && message.contains(said), "{keys}: {code} {message}");
    }
    scene.host.expect_traces(&before, "what was refused");
    assert_eq!(scene.qdiscs(&scene.outer()), Vec::<Value>::new());
}

/// Its packets never pass, and who asked for it is told so.
#[test]
fn a_burst_below_a_packet_is_kept_with_a_warning() {
    let scene = Scene::new();
    let config = scene.config(json!({"ingressRate": 80_000, "ingressBurst": 12_111, "egressRate": 8, "egressBurst": 8}));
    let outcome = scene.cni().call("ADD", "bandwidth", config.to_string());
    let result = outcome.result();
    let warnings = [
        "warning: ingressBurst: 1513 bytes are less than one packet of vethd70aef4ffcc (1514 bytes), so nothing would pass: set at \
            least 12112 bits\n",
        "warning: egressBurst: 1 bytes are less than one packet of vethd70aef4ffcc (1514 bytes), so nothing would pass: set at least \
            12112 bits\n",
    ];
    assert_eq!(outcome.stderr, warnings.concat());
    scene.cni().check(&config, &result).silent();
    scene.ends(&config, &result);
    // The least that it says is enough.
    let config = scene.config(json!({"ingressRate": 80_000, "ingressBurst": 12_112}));
    let outcome = scene.cni().call("ADD", "bandwidth", config.to_string());
    assert!(outcome.stderr.is_empty(), "{outcome:?}");
    assert!(scene.host.run_ok("", &["ping", "-c1", "-w9", "-s1472", "-Mdo", "10.1.0.2"]), "a full packet passes");
    scene.ends(&config, &outcome.result());
}

#[test]
fn interfaces_that_cannot_be_limited() {
    let scene = Scene::new();
    scene.host.sh("", "ip link add wire0 type veth peer name wire1");
    scene.host.sh("", "ip link set wire0 up");
    let before = scene.host.traces();
    let macvlan = json!({"cniVersion": "1.1.0", "name": "other", "type": "macvlan", "master": "wire0"});
    let on_wire = scene.host.cni(plugin_dir()).at("c1", "net1");
    let result = on_wire.add(&macvlan);
    let refused = on_wire.call("ADD", "bandwidth", bandwidth(both(8000, 80_000), &result).to_string()).message();
    assert!(refused.contains("container interface net1 has no veth peer: it is a macvlan"), "{refused}");
    on_wire.del(&macvlan, &result);
    let missing = scene.host.cni(plugin_dir()).at("c1", "net7").call("ADD", "bandwidth", scene.config(both(8000, 80_000)).to_string());
    assert!(missing.message().contains("container interface net7 has no veth peer: the container has no such interface"), "{missing:?}");
    let mut alone = scene.config(both(8000, 80_000));
    alone.as_object_mut().unwrap().remove("prevResult");
    for keys in [alone, bandwidth(json!({}), &Value::Null)] {
        let (code, message) = refusal(&scene, &keys);
        assert!(code == 7 && message.contains("must be called as chained plugin"), "{code} {message}");
    }
    // Both ends are the container's own.
    scene.host.sh("c1", "ip link add net2 type veth peer name net3");
    let inner = scene.host.cni(plugin_dir()).at("c1", "net2").call("ADD", "bandwidth", scene.config(both(8000, 80_000)).to_string());
    assert!(inner.message().contains("is not in host ns"), "{inner:?}");
    scene.host.sh("c1", "ip link del net2");
    // Its other end is in one container, and the host's link of that number belongs to another one's.
    for container in ["c2", "c3"] {
        scene.host.container(container);
    }
    scene.host.sh("", "ip -n c1 link add net2 index 500 type veth peer name p2 index 600 netns c2");
    scene.host.sh("", "ip link add h2 index 600 type veth peer name p3 index 500 netns c3");
    let other = scene.host.cni(plugin_dir()).at("c1", "net2").call("ADD", "bandwidth", scene.config(both(8000, 80_000)).to_string());
    assert!(other.message().contains("is not in host ns"), "{other:?}");
    assert_eq!(scene.qdiscs("h2"), Vec::<Value>::new());
    scene.host.sh("", "ip link del h2");
    for container in ["c2", "c3"] {
        scene.host.sh("", &format!("ip netns del {container}"));
    }
    scene.host.expect_traces(&before, "what was refused");
}

/// Somebody else limits it already, with a root qdisc or with filters.
#[test]
fn what_others_have_put_there_stays() {
    let scene = Scene::new();
    let (outer, before) = (scene.outer(), scene.host.traces());
    for (theirs, said) in [
        (format!("tc qdisc add dev {outer} root handle 1: tbf rate 9mbit burst 90000 limit 90000"), "create qdisc"),
        (format!("tc qdisc add dev {outer} ingress"), "create ingress qdisc"),
    ] {
        scene.host.sh("", &theirs);
        let there = scene.qdiscs(&outer);
        let (code, message) = refusal(&scene, &scene.config(both(8_000_000, 800_000)));
        assert!(code == 999 && message.contains(said) && message.contains("tc qdisc del dev"), "{code} {message}");
        assert_eq!(scene.qdiscs(&outer), there, "{theirs}");
        scene.host.sh("", &theirs.split(" handle").next().unwrap().replace(" add ", " del "));
    }
    scene.host.expect_traces(&before, "what was refused");
}
