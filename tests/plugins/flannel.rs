//! `flannel`, over `bridge`.

use netloom_tests::{Host, at, peers_dir, plugin_dir};
use serde_json::{Value, json};

const ENV: &str = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_IPV6_NETWORK=fd00:244::/48\n\
    FLANNEL_IPV6_SUBNET=fd00:244:0:3::1/64\nFLANNEL_MTU=1400\nFLANNEL_IPMASQ=true\n";

fn config(keys: Value) -> Value {
    let mut config = json!({"cniVersion": "1.1.0", "name": "cbr0", "type": "flannel", "delegate": {"isDefaultGateway": true}});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

/// A node with flanneld, on which one container has come and gone.
fn node() -> Host {
    let host = Host::new();
    host.container("c1");
    host.container("c2");
    host.write("/run/flannel/subnet.env", ENV);
    let result = at(&host, "c1").add(&config(json!({})));
    at(&host, "c1").del(&config(json!({})), &result);
    host
}

fn kept(host: &Host) -> Vec<String> {
    host.list("/var/lib/cni/flannel")
}

#[test]
fn containers_of_a_flannel_network_reach_each_other() {
    let host = node();
    let before = host.traces();
    let results = ["c1", "c2"].map(|c| at(&host, c).add(&config(json!({}))));
    let ips: Vec<Vec<String>> = ["c1", "c2"].iter().map(|c| host.addresses(c, "eth0")).collect();
    assert!(ips[0][0].starts_with("10.244.3.") && ips[0][1].starts_with("fd00:244:0:3::"), "{ips:?}");
    for peer in &ips[1] {
        assert!(host.pings("c1", peer.split('/').next().unwrap()), "{peer}");
    }
    assert_eq!(host.link("c1", "eth0").unwrap().mtu(), 1400);
    let flannel = host.json("c1", "ip -j route show 10.244.0.0/16");
    assert_eq!((&flannel[0]["gateway"], &flannel[0]["dev"]), (&json!("10.244.3.1"), &json!("eth0")));
    let flannel = host.json("c1", "ip -j -6 route show fd00:244::/48");
    assert_eq!(flannel[0]["gateway"], "fd00:244:0:3::1");
    assert!(!host.sh("", "nft list ruleset").contains("10.244.3"), "flanneld masquerades, the bridge does not");
    assert_eq!(kept(&host), ["c1", "c2"]);
    for (c, result) in ["c1", "c2"].iter().zip(&results) {
        let checked = at(&host, c).check(&config(json!({})), result);
        assert_eq!(checked.code, 0, "{checked:?}");
        at(&host, c).del(&config(json!({})), result);
        at(&host, c).del(&config(json!({})), result);
    }
    host.expect_traces(&before, "flannel");
}

/// DEL goes by what was kept: neither flanneld nor the configuration need say the same, or anything.
#[test]
fn del_without_flanneld() {
    let host = node();
    let before = host.traces();
    for (netns, told, lost) in
        [("/run/netns/c1", true, false), ("", false, false), ("/run/netns/no", false, false), ("/run/netns/c1", false, true)]
    {
        let result = at(&host, "c1").add(&config(json!({})));
        match lost {
            // What was kept is lost, as by a power cut: flanneld says the same again.
            true => host.write("/var/lib/cni/flannel/c1", ""),
            false => drop(std::fs::remove_file(host.path("/run/flannel/subnet.env"))),
        }
        let cni = at(&host, "c1").set("CNI_NETNS", netns);
        let other = if lost { config(json!({})) } else { config(json!({"delegate": {"type": "macvlan"}})) };
        cni.del(&other, if told { &result } else { &Value::Null });
        cni.del(&other, &Value::Null);
        host.write("/run/flannel/subnet.env", ENV);
        if lost {
            host.run("", &["rm", "/var/lib/cni/flannel/c1"]);
        }
        host.expect_traces(&before, &format!("DEL in {netns:?}, told: {told}, lost: {lost}"));
    }
}

/// Two networks of one container, and the file that the plugin in Go would look for.
#[test]
fn two_networks_of_a_container() {
    let host = node();
    let second = config(json!({"name": "other", "delegate": {"bridge": "br1"}, "ipam": {"dataDir": "/run/leases"}}));
    let net1 = host.cni(plugin_dir()).at("c1", "net1");
    let result = net1.add(&second);
    net1.del(&second, &result);
    let before = host.traces();
    let first = at(&host, "c1").add(&config(json!({})));
    let result = net1.add(&second);
    assert_eq!((kept(&host), host.list("/run/leases")), (vec!["c1".to_owned(), "c1@net1".to_owned()], vec!["other".to_owned()]));
    at(&host, "c1").del(&config(json!({})), &first);
    assert_eq!(kept(&host), ["c1@net1"]);
    net1.del(&second, &result);
    host.expect_traces(&before, "two networks");
}

#[test]
fn what_is_refused_leaves_nothing() {
    let host = node();
    let before = host.traces();
    for (keys, code, says) in [
        (
            json!({"subnetFile": "/run/flannel/none.env"}),
            11,
            "loadFlannelSubnetEnv failed: open /run/flannel/none.env: no such file or directory: check that flanneld runs",
        ),
        (json!({"delegate": {"name": "x"}}), 7, "'delegate' dictionary must not have 'name' field, it'll be set by flannel"),
        (json!({"delegate": {"type": "flannel"}}), 7, "flannel cannot delegate to itself"),
        (json!({"delegate": {"type": "nothing"}}), 7, "failed to delegate add"),
        (json!({"delegate": {"bridge": "lo"}}), 999, "failed to delegate add"),
    ] {
        let outcome = at(&host, "c1").call("ADD", "flannel", config(keys.clone()).to_string());
        assert!(outcome.message().contains(says), "{keys}: {outcome:?}");
        let told = outcome.error()["code"].as_u64().unwrap();
        assert!(told == code || (code == 999 && told == 7), "{keys}: {outcome:?}");
        at(&host, "c1").del(&config(keys), &Value::Null);
        host.expect_traces(&before, says);
    }
}

#[test]
fn check_status_and_gc() {
    let host = node();
    let before = host.traces();
    let valid = |containers: &[&str]| {
        let list: Vec<Value> = containers.iter().map(|c| json!({"containerID": c, "ifname": "eth0"})).collect();
        config(json!({"cni.dev/valid-attachments": list}))
    };
    let status = || at(&host, "c1").call("STATUS", "flannel", config(json!({})).to_string());
    assert_eq!(status().code, 0, "{:?}", status());
    let first = at(&host, "c1").add(&config(json!({})));
    let during = host.traces();
    at(&host, "c2").add(&config(json!({})));
    let outcome = at(&host, "c1").call("GC", "flannel", valid(&["c1"]).to_string());
    assert_eq!(outcome.code, 0, "{outcome:?}");
    host.expect_traces(&during, "GC of c2");
    let check = || at(&host, "c1").check(&config(json!({})), &first);
    assert_eq!(check().code, 0, "{:?}", check());
    host.write("/run/flannel/subnet.env", &ENV.replace("10.244.3.1", "10.244.9.1"));
    assert!(check().message().contains("flanneld has moved this node to 10.244.9.0/24"), "{:?}", check());
    std::fs::remove_file(host.path("/run/flannel/subnet.env")).unwrap();
    assert_eq!(check().code, 0, "what is kept suffices");
    let outcome = status();
    assert!(outcome.message().contains("check that flanneld runs") && outcome.error()["code"] == 50, "{outcome:?}");
    host.sh("c1", "ip link set eth0 down");
    assert!(check().message().contains("is down"), "{:?}", check());
    std::fs::remove_file(host.path("/var/lib/cni/flannel/c1")).unwrap();
    assert!(check().message().contains("any more"), "{:?}", check());
    host.write("/run/flannel/subnet.env", ENV);
    let outcome = at(&host, "c1").call("GC", "flannel", valid(&[]).to_string());
    assert_eq!(outcome.code, 0, "{outcome:?}");
    host.expect_traces(&before, "GC of all");
}

/// The delegates may be executables of somebody else.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn over_the_reference_bridge() {
    let host = node();
    host.run("", &["mkdir", "/run/plugins"]);
    for (name, dir) in [("flannel", plugin_dir()), ("bridge", peers_dir()), ("host-local", peers_dir())] {
        host.run("", &["ln", "-s", dir.join(name).to_str().unwrap(), &format!("/run/plugins/{name}")]);
    }
    let mut config = config(json!({}));
    config["cniVersion"] = json!("1.0.0");
    let cni = host.cni("/run/plugins".as_ref()).at("c1", "eth0");
    let before = host.traces();
    let result = cni.add(&config);
    assert!(host.pings("c1", "10.244.3.1") && host.pings("c1", "fd00:244:0:3::1"));
    assert_eq!(cni.check(&config, &result).code, 0);
    std::fs::remove_file(host.path("/run/flannel/subnet.env")).unwrap();
    cni.del(&config, &result);
    host.write("/run/flannel/subnet.env", ENV);
    host.expect_traces(&before, "over the reference bridge");
}

/// A second ADD of an attachment is refused, and the first one keeps what its DEL needs.
#[test]
fn a_refused_second_add_takes_nothing_from_the_first() {
    let host = node();
    let before = host.traces();
    let result = at(&host, "c1").add(&config(json!({})));
    let text = std::fs::read(host.path("/var/lib/cni/flannel/c1")).unwrap();
    let outcome = at(&host, "c1").call("ADD", "flannel", config(json!({"delegate": {"mtu": 1300}})).to_string());
    assert!(outcome.message().contains("eth0"), "{outcome:?}");
    assert_eq!(std::fs::read(host.path("/var/lib/cni/flannel/c1")).unwrap(), text);
    std::fs::remove_file(host.path("/run/flannel/subnet.env")).unwrap();
    at(&host, "c1").del(&config(json!({})), &result);
    host.write("/run/flannel/subnet.env", ENV);
    host.expect_traces(&before, "DEL after a second ADD");
}

/// What was delegated is kept no more, and flanneld is silent: bridge and host-local need no address for DEL.
#[test]
fn del_with_nothing_to_go_by() {
    let host = node();
    let before = host.traces();
    for netns in ["/run/netns/c1", ""] {
        at(&host, "c1").add(&config(json!({})));
        for file in ["/var/lib/cni/flannel/c1", "/run/flannel/subnet.env"] {
            std::fs::remove_file(host.path(file)).unwrap();
        }
        at(&host, "c1").set("CNI_NETNS", netns).del(&config(json!({})), &Value::Null);
        host.write("/run/flannel/subnet.env", ENV);
        host.expect_traces(&before, "DEL with nothing");
    }
}

/// A kept file whose plugin is not there holds up no other one, and stays.
#[test]
fn gc_goes_on_behind_a_delegate_that_is_gone() {
    let host = node();
    let before = host.traces();
    at(&host, "c2").add(&config(json!({})));
    // Found first or last, as the directory has them.
    let odd = ["a", "z"].map(|c| format!("/var/lib/cni/flannel/{c}"));
    for file in &odd {
        host.write(file, r#"{"cniVersion":"1.1.0","name":"cbr0","type":"nothing","netloom.interface":"eth0"}"#);
    }
    let valid = config(json!({"cni.dev/valid-attachments": []})).to_string();
    let outcome = at(&host, "c1").call("GC", "flannel", valid);
    assert!(outcome.code != 0 && outcome.message().contains("nothing"), "{outcome:?}");
    assert_eq!(kept(&host), ["a", "z"]);
    odd.iter().for_each(|file| std::fs::remove_file(host.path(file)).unwrap());
    host.expect_traces(&before, "GC behind a delegate that is gone");
}
