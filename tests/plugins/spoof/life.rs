//! From ADD to the last DEL: who finds the elements, and who leaves them.

use netloom_tests::{Host, Outcome, netloom, peers_dir};
use serde_json::{Value, json};

use crate::spoof::{Scene, bridge};

#[test]
fn an_element_a_port_and_an_element_a_hardware_address() {
    let scene = Scene::new();
    let one = scene.attach("c1", json!({"mac": "0a:00:00:00:00:07", "ipMasq": true}));
    assert_eq!(scene.set("macs"), [json!({"elem": {"val": {"concat": [one.port(), "0a:00:00:00:00:07"]}, "comment": "net/c1/eth0"}})]);
    let counter = json!({"packets": 0, "bytes": 0});
    assert_eq!(scene.set("guarded"), [json!({"elem": {"val": one.port(), "comment": "net/c1/eth0", "counter": counter}})]);
    assert_eq!(scene.set("ordinary"), [json!({"elem": {"val": {"concat": [one.port(), "0a:00:00:00:00:07"]}, "comment": "net/c1/eth0"}})]);
    let second = scene.cni("c1").call("ADD", "bridge", one.config.to_string());
    assert!(second.code != 0, "{second:?}");
    assert_eq!((scene.set("macs").len(), scene.set("guarded").len()), (1, 1), "an ADD that is refused takes no other one's guard");
    assert_eq!(scene.cni("c1").check(&one.config, &one.result).code, 0);
    scene.detach(&one);
    // Hardware addresses by chance: of one interface, and none twice.
    let (one, two) = (scene.attach("c1", json!({})), scene.attach("c2", json!({})));
    for attached in [&one, &two] {
        let first = u8::from_str_radix(&attached.mac()[..2], 16).unwrap();
        assert_eq!(first & 3, 2, "{}", attached.mac());
    }
    assert_ne!(one.mac(), two.mac());
    [&one, &two].iter().for_each(|a| scene.detach(a));
    assert_eq!((scene.set("macs"), scene.set("guarded")), (vec![], vec![]));
}

/// However little DEL is told, and twice.
#[test]
fn every_del_finds_them() {
    let scene = Scene::new();
    let forms: [&dyn Fn(&crate::spoof::Attached); 5] = [
        &|a| scene.detach(a),
        &|a| scene.cni("c1").del(&a.config, &Value::Null),
        &|a| scene.cni("c1").unset("CNI_NETNS").del(&a.config, &Value::Null),
        // The key was taken out of the configuration since.
        &|a| scene.cni("c1").del(&bridge(json!({"macspoofchk": false})), &a.result),
        // The result tells a hardware address that the guard does not know.
        &|a| {
            let mut result = a.result.clone();
            result["interfaces"][2]["mac"] = json!("02:00:00:00:00:99");
            scene.cni("c1").del(&a.config, &result);
        },
    ];
    for (i, del) in forms.iter().enumerate() {
        let (one, other) = (scene.attach("c1", json!({})), scene.attach("c2", json!({})));
        del(&one);
        del(&one);
        let left = scene.host.sh("", "nft list table bridge netloom");
        assert!(!left.contains("net/c1/") && left.contains("net/c2/"), "form {i}: {left}");
        assert_eq!(scene.cni("c2").check(&other.config, &other.result).code, 0, "form {i}");
        scene.detach(&other);
        scene.expect_nothing();
    }
}

#[test]
fn del_after_the_namespace_and_gc() {
    let scene = Scene::new();
    let one = scene.attach("c1", json!({}));
    scene.host.sh("", "ip netns delete c1");
    scene.detach(&one);
    assert_eq!((scene.set("macs"), scene.set("guarded"), scene.set("ordinary")), (vec![], vec![], vec![]));
    scene.host.container("c1");
    let (gone, kept) = (scene.attach("c1", json!({})), scene.attach("c2", json!({})));
    let gc = |network: &str, valid: Value| {
        let config = bridge(json!({"name": network, "cni.dev/valid-attachments": valid}));
        scene.cni("c1").call("GC", "bridge", config.to_string()).silent();
    };
    gc("other", json!([]));
    assert_eq!(scene.set("macs").len(), 2, "another network's");
    gc("net", json!([{"containerID": "c2", "ifname": "eth0"}]));
    let left = scene.host.sh("", "nft list table bridge netloom");
    assert!(!left.contains("net/c1/") && left.contains("net/c2/"), "{left}");
    assert_eq!(scene.cni("c2").check(&kept.config, &kept.result).code, 0);
    [&gone, &kept].iter().for_each(|a| scene.detach(a));
    scene.expect_nothing();
}

#[test]
fn check_finds_what_others_have_changed() {
    let scene = Scene::new();
    let mut one = scene.attach("c1", json!({}));
    let (port, mac) = (one.port().to_owned(), one.mac().to_owned());
    for (change, found) in [
        (
            format!("delete element bridge netloom macs {{ {port} . {mac} }}"),
            format!("the firewall entry for the spoof guard of {port} . {mac} is missing"),
        ),
        (
            format!("delete element bridge netloom guarded {{ {port} }}"),
            format!("the firewall entry for the spoof guard of {port} is missing"),
        ),
        ("flush chain bridge netloom prerouting".to_owned(), "chain bridge netloom prerouting has 0 rules".to_owned()),
        ("flush ruleset".to_owned(), "the firewall entry for the spoof guard of".to_owned()),
    ] {
        assert_eq!(scene.cni("c1").check(&one.config, &one.result).code, 0, "before {change}");
        scene.host.run("", &["nft", &change]);
        let said = scene.cni("c1").check(&one.config, &one.result).message();
        assert!(said.contains(&found), "{change}: {said}");
        scene.detach(&one);
        one = scene.attach("c1", json!({"mac": mac}));
        assert_eq!((one.port(), one.mac()), (port.as_str(), mac.as_str()));
    }
    let last = scene.attach("c2", json!({}));
    assert_eq!(scene.cni("c1").check(&one.config, &one.result).code, 0);
    [&one, &last].iter().for_each(|a| scene.detach(a));
    scene.expect_nothing();
}

#[test]
fn status_asks_the_kernel_and_leaves_nothing() {
    let host = Host::new();
    host.container("c1");
    let before = host.traces();
    netloom_tests::at(&host, "c1").call("STATUS", "bridge", bridge(json!({})).to_string()).silent();
    host.expect_traces(&before, "STATUS");
}

/// Who deletes what the reference plugin made leaves its own chains to it.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn attachments_of_the_reference_plugin() {
    let scene = Scene::new();
    let config = bridge(json!({}));
    let theirs = scene.host.cni(peers_dir()).at("c1", "eth0").add(&config);
    let chains = || scene.host.sh("", "nft list ruleset").matches("chain cni-br-iface-").count();
    assert_eq!((chains(), scene.set("macs")), (2, vec![]));
    scene.cni("c1").del(&config, &theirs);
    assert_eq!((chains(), scene.host.link("", theirs["interfaces"][1]["name"].as_str().unwrap())), (2, None));
}

/// `netloom cni VERB`
fn cni(host: &Host, verb: &str) -> Outcome {
    host.try_run("", &["env", "CNI_PATH=/run/bin", netloom().to_str().unwrap(), "cni", verb, "net", "/run/netns/c1"]).into()
}

/// The chain gives the container another hardware address than `bridge` did: it is the one that it may send with.
#[test]
fn tuning_changes_the_hardware_address_and_the_guard_knows() {
    let scene = Scene::new();
    let mut first = bridge(json!({}));
    first.as_object_mut().unwrap().retain(|key, _| !["cniVersion", "name"].contains(&key.as_str()));
    let list = |tuning: Value| json!({"cniVersion": "1.1.0", "name": "net", "plugins": [first, tuning]}).to_string();
    scene.host.write("/etc/cni/net.d/1.conflist", &list(json!({"type": "tuning", "mac": "02:00:00:00:00:77"})));
    for verb in ["add", "check", "del", "add"] {
        let outcome = cni(&scene.host, verb);
        assert_eq!(outcome.code, 0, "{verb}: {outcome:?}");
    }
    let [only] = &scene.set("macs")[..] else { panic!("{:?}", scene.set("macs")) };
    assert_eq!(only["elem"]["val"]["concat"][1], "02:00:00:00:00:77");
    let [only] = &scene.set("ordinary")[..] else { panic!("{:?}", scene.set("ordinary")) };
    assert_eq!(only["elem"]["val"]["concat"][1], "02:00:00:00:00:77");
    assert!(scene.host.pings("c1", "10.1.0.1") && scene.host.pings("c1", "fd00:1::1"));
    scene.host.sh("c1", "ip link set eth0 address 02:00:00:00:00:78");
    assert!(scene.host.silent("c1", "10.1.0.1"));
    assert_eq!(cni(&scene.host, "del").code, 0);
    assert_eq!((scene.set("macs"), scene.set("guarded")), (vec![], vec![]));

    // A plugin behind it fails: all is undone.
    scene.host.write("/run/bin/broken", "#!/bin/sh\ncat >/dev/null\n[ $CNI_COMMAND != ADD ]\n");
    scene.host.sh("", "chmod 755 /run/bin/broken");
    let failing = json!({"cniVersion": "1.1.0", "name": "net",
        "plugins": [first, {"type": "tuning", "mac": "02:00:00:00:00:77"}, {"type": "broken"}]});
    scene.host.write("/etc/cni/net.d/1.conflist", &failing.to_string());
    assert_ne!(cni(&scene.host, "add").code, 0);
    assert_eq!((scene.set("macs"), scene.set("guarded")), (vec![], vec![]));
    assert!(scene.host.link("c1", "eth0").is_none());
}
