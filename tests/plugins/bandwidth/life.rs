//! From ADD to DEL, as `tc` sees it.

use netloom_tests::plugin_dir;
use serde_json::{Value, json};

use crate::bandwidth::{Scene, bandwidth, both};

/// Rate in bytes, burst in bytes.
fn tbf(scene: &Scene, link: &str) -> (u64, u64) {
    let qdiscs = scene.qdiscs(link);
    let tbf = qdiscs.iter().find(|q| q["kind"] == "tbf").unwrap_or_else(|| panic!("{link}: {qdiscs:?}"));
    (tbf["options"]["rate"].as_u64().unwrap(), tbf["options"]["burst"].as_u64().unwrap())
}

/// `tc` computes a burst from a time, in whole microseconds of the rate.
fn near(found: (u64, u64), rate: u64, burst: u64) -> bool {
    found.0 == rate && found.1.abs_diff(burst) <= 1 + rate / 500_000
}

#[test]
fn each_direction_has_its_own() {
    let scene = Scene::new();
    let (outer, before) = (scene.outer(), scene.host.traces());
    let wanted = json!({"ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 40_000_000_000_u64, "egressBurst": i32::MAX});
    let (config, result) = scene.limited(wanted);
    let [ifb] = &scene.ifbs()[..] else { panic!("{:?}", scene.ifbs()) };
    assert!(near(tbf(&scene, &outer), 1_000_000, 100_000), "{:?}", tbf(&scene, &outer));
    assert!(near(tbf(&scene, ifb), 5_000_000_000, 268_435_455), "{:?}", tbf(&scene, ifb));
    let told = result["interfaces"].as_array().unwrap().last().unwrap();
    let view = scene.host.link("", ifb).unwrap();
    assert_eq!((&told["name"], &told["mac"], told.get("sandbox")), (&json!(ifb), &json!(view.mac()), None));
    assert!(view.has("UP") && view.mtu() == 1500);
    let filters = scene.host.json("", &format!("tc -j filter show dev {outer} parent ffff:"));
    assert!(filters.to_string().contains(&format!("\"to_dev\":\"{ifb}\"")), "{filters}");
    assert!(scene.host.pings("c1", "10.1.0.1") && scene.host.pings("c1", "fd00:1::1"));
    assert_eq!(scene.cni().check(&config, &result).code, 0);
    scene.cni().del(&config, &result);
    scene.cni().del(&config, &result);
    assert_eq!((scene.qdiscs(&outer), scene.ifbs()), (vec![], vec![]));
    assert!(scene.host.pings("c1", "10.1.0.1"), "the pair is there, and nothing leads from it to nowhere");
    scene.host.expect_traces(&before, "both directions");
}

/// The kernel knows the host's end, whether or not anybody has told it.
#[test]
fn a_result_that_does_not_name_the_hosts_end() {
    let scene = Scene::new();
    let mut prev = scene.result.clone();
    prev["interfaces"] = json!([scene.result["interfaces"][2]]);
    prev["ips"].as_array_mut().unwrap().iter_mut().for_each(|ip| ip["interface"] = json!(0));
    let config = bandwidth(both(8_000_000, 800_000), &prev);
    let result = scene.cni().add(&config);
    assert!(near(tbf(&scene, &scene.outer()), 1_000_000, 100_000));
    assert_eq!(scene.cni().check(&config, &result).code, 0);
    // DEL hears of the ifb alone; what is on the pair goes with it.
    scene.cni().del(&config, &result);
    assert_eq!(scene.ifbs(), Vec::<String>::new());
    scene.host.expect_traces(&scene.before, "a short result");
}

/// Without limits a result is handed on as it is; a zero in the configuration takes the runtime's limits away.
#[test]
fn no_limit_is_none() {
    let scene = Scene::new();
    let before = scene.host.traces();
    for keys in
        [json!({}), both(0, 0), json!({"egressRate": 0, "runtimeConfig": {"bandwidth": both(8000, 80_000)}}), json!({"ingressRate": null})]
    {
        let (config, result) = scene.limited(keys);
        assert_eq!(result, scene.result);
        assert_eq!(scene.cni().check(&config, &result).code, 0);
        assert_eq!((scene.qdiscs(&scene.outer()), scene.ifbs()), (vec![], vec![]));
        scene.cni().del(&config, &result);
    }
    let (config, result) = scene.limited(json!({"ingressRate": null, "runtimeConfig": {"bandwidth": both(8_000_000, 80_000)}}));
    assert!(near(tbf(&scene, &scene.outer()), 1_000_000, 10_000));
    scene.cni().del(&config, &result);
    scene.host.expect_traces(&before, "no limits");
}

/// A runtime that is asked for a rate alone sends the largest burst that there is.
#[test]
fn a_large_burst_at_a_low_rate_is_kept() {
    let scene = Scene::new();
    let (config, result) = scene.limited(both(1_000_000, 2_147_483_647));
    assert_eq!(scene.cni().check(&config, &result).code, 0);
    // The bucket holds 268 MB: what is little beside it is not held back.
    let stream = crate::bandwidth::rates::stream(
        &scene.host,
        "10.1.0.1",
        crate::bandwidth::rates::Sender::Container,
        8_000_000,
        std::time::Duration::from_secs(60),
    );
    let (took, came) = *stream.last().unwrap();
    assert!(came >= 8_000_000 && took < 32.0, "{came} bytes took {took:.1} s");
    let mut other = config.clone();
    other["egressBurst"] = json!(1_000_000_000);
    let said = scene.cni().check(&other, &result).message();
    assert!(said.contains("Buffer doesn't match"), "{said}");
    scene.ends(&config, &result);
}

#[test]
fn check_finds_what_was_changed() {
    let scene = Scene::new();
    let (outer, keys) = (scene.outer(), both(8_000_000, 800_000));
    let (config, result) = scene.limited(keys);
    let ifb = scene.ifbs().remove(0);
    for (spoil, found) in [
        (format!("tc qdisc change dev {outer} root handle 1: tbf rate 9mbit burst 100000 limit 125000"), "Rate doesn't match"),
        (format!("tc qdisc change dev {outer} root handle 1: tbf rate 8mbit burst 90000 limit 125000"), "Buffer doesn't match"),
        (format!("tc qdisc change dev {ifb} root handle 1: tbf rate 8mbit burst 100000 limit 125001"), "Limit doesn't match"),
        (format!("tc qdisc del dev {outer} root"), "Failed to find qdisc"),
        (format!("tc qdisc del dev {ifb} root"), "Failed to find qdisc"),
        (format!("tc filter del dev {outer} parent ffff:"), "it has lost the filter"),
        (format!("tc qdisc del dev {outer} ingress"), "it has lost the filter"),
        (format!("ip link set {ifb} down"), "it is down"),
        (format!("ip link del {ifb}"), "is gone"),
    ] {
        assert_eq!(scene.cni().check(&config, &result).code, 0, "before {spoil}");
        scene.host.sh("", &spoil);
        let said = scene.cni().check(&config, &result).message();
        assert!(said.contains(found), "{spoil}: {said}");
        scene.cni().del(&config, &result);
        for place in ["root", "ingress"] {
            scene.host.run_ok("", &["tc", "qdisc", "del", "dev", &outer, place]);
        }
        assert_eq!(scene.cni().add(&config), result, "{spoil}");
    }
    scene.ends(&config, &result);
}

/// A node changes over and back with containers running.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn the_reference_plugin_and_this_one_delete_each_others() {
    let scene = Scene::new();
    let before = scene.host.traces();
    let config = scene.config(both(8_000_000, 800_000));
    let theirs = scene.peer().add(&config);
    assert_eq!(scene.cni().check(&config, &theirs).code, 0);
    let ifb = scene.ifbs();
    scene.cni().del(&config, &theirs);
    assert_eq!(scene.ifbs(), Vec::<String>::new());
    let ours = scene.cni().add(&config);
    assert_eq!(scene.ifbs(), ifb, "they have one name");
    scene.peer().del(&config, &ours);
    assert_eq!(scene.ifbs(), Vec::<String>::new());
    // What they leave on a pair that stays.
    scene.cni().del(&config, &ours);
    scene.host.expect_traces(&before, "two implementations");
    // Theirs, without a word of a result or a namespace.
    scene.peer().add(&config);
    let mut blind = config;
    blind.as_object_mut().unwrap().remove("prevResult");
    let outcome = scene.cni().set("CNI_NETNS", "").call("DEL", "bandwidth", blind.to_string());
    assert_eq!((outcome.code, scene.ifbs()), (0, vec![]), "{outcome:?}");
}

/// A container with two interfaces on one network: each has its limits, and its own end.
#[test]
fn two_attachments_to_one_network() {
    let scene = Scene::new();
    let before = scene.host.traces();
    let second = scene.host.cni(plugin_dir()).at("c1", "net1");
    let other = second.add(&scene.bridge);
    let (config, result) = scene.limited(both(8_000_000, 800_000));
    let config2 = bandwidth(both(16_000_000, 800_000), &other);
    let result2 = second.add(&config2);
    assert_eq!(scene.ifbs().len(), 2);
    assert_eq!((scene.cni().check(&config, &result).code, second.check(&config2, &result2).code), (0, 0));
    let said = scene.cni().call("ADD", "bandwidth", config.to_string()).message();
    assert!(said.contains("one already"), "{said}");
    assert_eq!(scene.ifbs().len(), 2);
    // In each order, told all or nothing, as often as anybody likes.
    let blind = json!({"cniVersion": "1.1.0", "name": "net", "type": "bandwidth"});
    for _ in 0..2 {
        let outcome = second.call("DEL", "bandwidth", blind.to_string());
        assert_eq!(outcome.code, 0, "{outcome:?}");
        assert_eq!(scene.cni().check(&config, &result).code, 0, "the first one's is there");
    }
    second.del(&scene.bridge, &other);
    scene.cni().del(&config, &result);
    scene.host.expect_traces(&before, "two attachments");
}

#[test]
fn gc_takes_what_nobody_names() {
    let scene = Scene::new();
    scene.host.container("c2");
    let c2 = scene.host.cni(plugin_dir()).at("c2", "eth0");
    let before = scene.host.traces();
    let other = c2.add(&scene.bridge);
    c2.add(&bandwidth(both(8_000_000, 800_000), &other));
    let (config, result) = scene.limited(both(8_000_000, 800_000));
    // Somebody else's, and another network's.
    scene.host.sh("", "ip link add bwp000000000000 type ifb");
    scene.host.sh("", "ip link add bwp111111111111 group 77 type ifb");
    let mut foreign = config.clone();
    foreign["name"] = json!("elsewhere");
    let collect = |name: &str, valid: Value| {
        let gc = json!({"cniVersion": "1.1.0", "name": name, "type": "bandwidth", "cni.dev/valid-attachments": valid});
        let outcome = scene.host.cni(plugin_dir()).call("GC", "bandwidth", gc.to_string());
        assert_eq!((outcome.code, outcome.stdout.as_str()), (0, ""), "{outcome:?}");
    };
    collect("elsewhere", json!([]));
    assert_eq!(scene.ifbs().len(), 4);
    collect("net", json!([{"containerID": "c1", "ifname": "eth0"}]));
    assert_eq!(scene.ifbs().len(), 3);
    assert_eq!(scene.cni().check(&config, &result).code, 0);
    collect("net", json!([]));
    assert_eq!(scene.ifbs(), ["bwp000000000000", "bwp111111111111"]);
    scene.host.sh("", "ip link del bwp000000000000");
    scene.host.sh("", "ip link del bwp111111111111");
    c2.del(&scene.bridge, &other);
    scene.cni().del(&config, &result);
    scene.host.expect_traces(&before, "GC");
}

/// The namespace is gone, and nobody knows a result.
#[test]
fn del_without_namespace_and_result() {
    let scene = Scene::new();
    let ifb_is_gone = |how: &str| assert_eq!(scene.ifbs(), Vec::<String>::new(), "{how}");
    let (mut config, _) = scene.limited(both(8_000_000, 800_000));
    scene.host.sh("", "ip netns del c1");
    config.as_object_mut().unwrap().remove("prevResult");
    for netns in ["/run/netns/c1", ""] {
        let outcome = scene.cni().set("CNI_NETNS", netns).call("DEL", "bandwidth", config.to_string());
        assert_eq!(outcome.code, 0, "{outcome:?}");
        ifb_is_gone(netns);
    }
    assert_eq!(scene.cni().call("STATUS", "bandwidth", config.to_string()).code, 0);
}
