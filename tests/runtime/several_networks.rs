//! `netloom`: several networks of a container in one call of one process.

use netloom_tests::{Host, Traces, at, attached_once, plugin_dir};
use serde_json::{Value, json};

fn ipam(net: u8) -> Value {
    json!({"type": "host-local", "ranges": [[{"subnet": format!("10.{net}.0.0/24")}]]})
}

/// A bridge as the default network, and two macvlans.
fn config() -> Value {
    let macvlan =
        |net: u8| json!({"cniVersion": "1.1.0", "name": format!("wire{net}"), "type": "macvlan", "master": "up0", "ipam": ipam(net)});
    let bridge = json!({
        "cniVersion": "1.1.0", "name": "default", "type": "bridge", "bridge": "br0", "isDefaultGateway": true, "ipMasq": true, "ipam": ipam(1),
    });
    json!({"cniVersion": "1.0.0", "name": "pods", "type": "netloom", "delegates": [bridge, macvlan(2), macvlan(3)]})
}

/// A machine with a wire and containers `c1` and `c2`, on which one pod has come and gone.
fn used() -> (Host, Traces) {
    let host = Host::new();
    host.sh("", "ip link add up0 up type veth peer name up1");
    host.sh("", "ip link set up1 up");
    host.container("c1");
    host.container("c2");
    let before = attached_once(&host, &config());
    (host, before)
}

#[test]
fn a_pod_is_attached_checked_and_detached_as_one() {
    let (host, before) = used();
    let result = at(&host, "c1").add(&config());
    // The runtime hears of its own network, in its own version.
    assert_eq!((result["cniVersion"].as_str(), &result["interfaces"][2]["name"]), (Some("1.0.0"), &json!("eth0")));
    for (name, net) in [("eth0", 1), ("net1", 2), ("net2", 3)] {
        let addresses = host.addresses("c1", name);
        assert!(addresses.iter().any(|a| a.starts_with(&format!("10.{net}.0."))), "{name}: {addresses:?}");
    }
    assert_eq!(at(&host, "c1").check(&config(), &result).code, 0);
    let again = at(&host, "c1").call("ADD", "netloom", config().to_string());
    assert!(again.message().contains("attached already"), "{again:?}");

    host.run("c1", &["ip", "address", "flush", "dev", "net2"]);
    let changed = at(&host, "c1").check(&config(), &result);
    assert!(changed.message().contains("wire3"), "{changed:?}");
    at(&host, "c1").del(&config(), &result);
    at(&host, "c1").del(&config(), &result);
    host.expect_traces(&before, "DEL");
}

/// The macvlans are made with the index behind that of the link before, which somebody else's link may have.
#[test]
fn an_index_that_is_taken_is_not_insisted_on() {
    let (host, before) = used();
    let index = |name: &str| host.link("c1", name).unwrap().0["ifindex"].as_u64().unwrap();
    let result = at(&host, "c1").add(&config());
    let free = ["eth0", "net1", "net2"].map(index);
    assert_eq!(free, [free[0], free[0] + 1, free[0] + 2]);
    at(&host, "c1").del(&config(), &result);

    // The kernel goes on counting where it has chosen an index itself.
    let next = free[0] + 1;
    host.sh("c1", &format!("ip link add other index {} type bridge", next + 1));
    let result = at(&host, "c1").add(&config());
    assert_eq!(["eth0", "other", "net1", "net2"].map(index), [next, next + 1, next + 2, next + 3]);
    for name in ["net1", "net2"] {
        assert_eq!(host.addresses("c1", name).iter().filter(|a| a.starts_with("10.")).count(), 1, "{name}");
        assert_eq!(host.sh("c1", &format!("sysctl -n net.ipv6.conf.{name}.accept_ra")).trim(), "0", "{name}");
    }
    assert_eq!(at(&host, "c1").check(&config(), &result).code, 0);
    at(&host, "c1").del(&config(), &result);
    host.sh("c1", "ip link del other");
    host.expect_traces(&before, "DEL");
}

/// The record alone counts: the delegates may be gone from the configuration.
#[test]
fn del_needs_neither_delegates_nor_namespace() {
    let (host, before) = used();
    at(&host, "c1").add(&config());
    at(&host, "c2").add(&config());
    let bare = json!({"cniVersion": "1.0.0", "name": "pods", "type": "netloom"});
    at(&host, "c1").del(&bare, &Value::Null);
    at(&host, "c2").unset("CNI_NETNS").del(&bare, &Value::Null);
    host.expect_traces(&before, "DEL of both");
}

#[test]
fn a_network_that_fails_takes_the_others_along() {
    let (host, before) = used();
    let mut bad = config();
    bad["delegates"][2]["master"] = json!("nowhere");
    let failed = at(&host, "c1").call("ADD", "netloom", bad.to_string());
    assert!(failed.message().contains("wire3") && failed.message().contains("nowhere"), "{failed:?}");
    assert_eq!(failed.error()["code"], 7);
    host.expect_traces(&before, "an ADD whose last network fails");
    for (change, word) in [
        (json!({"delegates": []}), "delegates"),
        (json!({"delegates": [{"name": "x"}]}), "delegates[0]"),
        (json!({"delegates": [bad["delegates"][0], bad["delegates"][0]]}), "delegates[1].name"),
        (json!({"delegates": [bad["delegates"][0]], "clusterNetwork": "x"}), "clusterNetwork"),
        (json!({"delegates": [bad["delegates"][0]], "cniDir": 7}), "cniDir"),
        (json!({"delegates": [bad["delegates"][0]], "runtimeConfig": 7}), "runtimeConfig"),
        (json!({"delegates": [{"name": "pods", "type": "netloom", "delegates": []}]}), "\"netloom\" cannot be"),
    ] {
        let mut config = json!({"cniVersion": "1.0.0", "name": "pods", "type": "netloom"});
        config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let refused = at(&host, "c1").call("ADD", "netloom", config.to_string());
        assert!(refused.message().contains(word), "{refused:?}");
    }
    host.expect_traces(&before, "bad configurations");
}

/// GC detaches every pod that is not valid any more, wholly, and lets each network free what else is nobody's.
#[test]
fn gc_keeps_what_is_valid() {
    let (host, before) = used();
    let mut config = config();
    config["cniVersion"] = json!("1.1.0");
    let kept = at(&host, "c1").add(&config);
    // The address of an attachment whose record is lost, and of nobody: both are freed.
    at(&host, "c2").add(&config);
    host.run("", &["rm", "/var/lib/cni/netloom/pods/c2.json"]);
    host.run("c2", &["ip", "link", "del", "eth0"]);
    host.run("c2", &["ip", "link", "del", "net1"]);
    host.run("c2", &["ip", "link", "del", "net2"]);
    let gc = |valid: Value| {
        let mut gc = config.clone();
        gc["cni.dev/valid-attachments"] = valid;
        let outcome = host.cni(plugin_dir()).call("GC", "netloom", gc.to_string());
        assert_eq!((outcome.code, outcome.stdout.as_str()), (0, ""), "{outcome:?}");
    };
    gc(json!([{"containerID": "c1", "ifname": "eth0"}]));
    assert_eq!(at(&host, "c1").check(&config, &kept).code, 0);
    for network in ["default", "wire2", "wire3"] {
        let held: Vec<String> =
            host.list(&format!("/var/lib/cni/networks/{network}")).into_iter().filter(|n| n.starts_with("10.")).collect();
        assert_eq!(held.len(), 1, "{network}: {held:?}");
    }
    gc(json!([]));
    host.expect_traces(&before, "GC of everything");
}

#[test]
fn status_names_the_network_that_is_not_ready() {
    let (host, _) = used();
    let mut config = config();
    config["cniVersion"] = json!("1.1.0");
    assert_eq!(host.cni(plugin_dir()).call("STATUS", "netloom", config.to_string()).code, 0);
    host.run("", &["ip", "link", "del", "up0"]);
    let status = host.cni(plugin_dir()).call("STATUS", "netloom", config.to_string());
    assert!(status.error()["code"] == 50 && status.message().contains("wire2"), "{status:?}");
}

/// A container has one attachment of a network: calls for another interface are about nothing, and above all the DEL that
/// follows a refused ADD.
#[test]
fn another_interface_is_not_this_one() {
    let (host, before) = used();
    let result = at(&host, "c1").add(&config());
    let during = host.traces();
    let other = host.cni(plugin_dir()).at("c1", "eth1");
    assert!(other.call("ADD", "netloom", config().to_string()).message().contains("attached already"));
    other.del(&config(), &Value::Null);
    assert_eq!(other.check(&config(), &result).error()["code"], 3);
    let elsewhere = at(&host, "c1").set("CNI_NETNS", "/run/netns/c2");
    assert_eq!(elsewhere.check(&config(), &result).error()["code"], 3);
    host.expect_traces(&during, "calls for eth1");
    let mut gc = config();
    gc["cniVersion"] = json!("1.1.0");
    gc["cni.dev/valid-attachments"] = json!([{"containerID": "c1", "ifname": "eth1"}]);
    let outcome = host.cni(plugin_dir()).call("GC", "netloom", gc.to_string());
    assert_eq!(outcome.code, 0, "{outcome:?}");
    host.expect_traces(&before, "GC: eth0 is not valid");
}

/// Two configurations may have a network in common: what one frees is not the other's.
#[test]
fn configurations_share_a_network() {
    let (host, before) = used();
    let mut second = config();
    second["name"] = json!("more");
    second["cniVersion"] = json!("1.1.0");
    second["delegates"][0]["name"] = json!("second");
    second["delegates"][0]["bridge"] = json!("br1");
    second["delegates"][0]["ipam"] = ipam(9);
    let first = at(&host, "c1").add(&config());
    // The same container has both, and the networks in common twice.
    let same = host.cni(plugin_dir()).at("c1", "eth1");
    same.add(&second);
    assert!(host.link("c1", "net3").is_some() && host.link("c1", "net4").is_some());
    same.del(&second, &Value::Null);
    let apart = at(&host, "c2").add(&second);
    let mut gc = second.clone();
    gc["cni.dev/valid-attachments"] = json!([{"containerID": "c2", "ifname": "eth0"}]);
    let outcome = host.cni(plugin_dir()).call("GC", "netloom", gc.to_string());
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, ""), "{outcome:?}");
    assert_eq!(at(&host, "c1").check(&config(), &first).code, 0);
    assert_eq!(at(&host, "c2").check(&second, &apart).code, 0);
    at(&host, "c1").del(&config(), &first);
    at(&host, "c2").del(&second, &apart);
    host.sh("", "ip link del br1");
    host.sh("", "rm -r /var/lib/cni/netloom/more /var/lib/cni/networks/second");
    let left = netloom_tests::differences(&before, &host.traces());
    // What the second bridge's rules are stays, as those of the first.
    assert!(left.iter().all(|l| l.contains(" nft ")), "{left:?}");
}

/// An address that the runtime asks for by `CNI_ARGS` is meant for its own network, and so is a hardware address.
#[test]
fn what_the_runtime_asks_for_is_for_the_first_network() {
    let (host, before) = used();
    let asked = at(&host, "c1").set("CNI_ARGS", "IgnoreUnknown=1;IP=10.1.0.77;MAC=02:00:00:00:00:77");
    let result = asked.add(&config());
    assert!(host.addresses("c1", "eth0").iter().any(|a| a.starts_with("10.1.0.77")));
    assert_eq!(host.link("c1", "eth0").unwrap().mac(), "02:00:00:00:00:77");
    assert_ne!(host.link("c1", "net1").unwrap().mac(), "02:00:00:00:00:77");
    asked.del(&config(), &result);
    let mut capable = config();
    capable["runtimeConfig"] = json!({"mac": "02:00:00:00:00:55"});
    let refused = at(&host, "c1").call("ADD", "netloom", capable.to_string());
    assert!(refused.message().contains("runtimeConfig.mac"), "{refused:?}");
    capable["delegates"][0]["capabilities"] = json!({"mac": true});
    let result = at(&host, "c1").add(&capable);
    assert_eq!(host.link("c1", "eth0").unwrap().mac(), "02:00:00:00:00:55");
    at(&host, "c1").del(&capable, &result);
    host.expect_traces(&before, "what was asked for");
}

/// A record that a power cut has taken: the configuration says what may be left, and other networks keep what they have.
#[test]
fn a_lost_record_frees_what_the_configuration_names() {
    let (host, _) = used();
    let plain = json!({"cniVersion": "1.1.0", "name": "plain", "type": "bridge", "bridge": "br0", "ipam": ipam(5)});
    at(&host, "c1").add(&plain);
    let mut own = config();
    for at in 0..3 {
        own["delegates"][at]["ipam"]["dataDir"] = json!("/run/addresses");
    }
    host.cni(plugin_dir()).at("c1", "eth7").add(&own);
    for cut in ["", "{\"schema\":1,\"sandb"] {
        host.write("/var/lib/cni/netloom/pods/c1.json", cut);
        host.run("", &["touch", "-d", "2020-01-01", "/var/lib/cni/netloom/pods/c1.json"]);
        host.cni(plugin_dir()).at("c1", "eth7").unset("CNI_NETNS").del(&own, &Value::Null);
    }
    assert!(host.list("/var/lib/cni/netloom/pods").is_empty());
    let held = |dir: &str| host.list(dir).into_iter().filter(|n| n.starts_with("10.")).count();
    assert_eq!(["default", "wire2", "wire3"].map(|n| held(&format!("/run/addresses/{n}"))), [0; 3]);
    assert_eq!(held("/var/lib/cni/networks/plain"), 1);
}

/// A record that cannot be read holds up what it may speak of, and nothing else.
#[test]
fn gc_goes_on_beside_a_record_that_cannot_be_read() {
    let (host, _) = used();
    let mut config = config();
    config["cniVersion"] = json!("1.1.0");
    at(&host, "c1").add(&config);
    at(&host, "c2").add(&config);
    host.write("/var/lib/cni/netloom/pods/c1.json", "x");
    config["cni.dev/valid-attachments"] = json!([{"containerID": "c1", "ifname": "eth0"}]);
    let outcome = host.cni(plugin_dir()).call("GC", "netloom", config.to_string());
    assert!(outcome.message().contains("c1.json"), "{outcome:?}");
    assert!(host.link("c2", "eth0").is_none() && host.link("c1", "eth0").is_some());
    let held = host.list("/var/lib/cni/networks/default").into_iter().filter(|n| n.starts_with("10.")).count();
    assert_eq!(held, 1);
}

/// Killed while an executable works for it, the ADD leaves its lock to that: DEL comes after it, and finds what it made.
#[test]
fn del_waits_for_an_executable_that_outlives_its_add() {
    let (host, _) = used();
    host.write(
        "/run/bin/slow",
        // Sleeps: a plugin that waits to be told.
        "#!/bin/sh\ncat >/dev/null\n[ $CNI_COMMAND = ADD ] || { echo $CNI_COMMAND >>/run/log; exit 0; }\n\
         echo begun >>/run/log\nfor i in $(seq 12000); do [ -e /run/go ] && break; sleep 0.05; done\necho ended >>/run/log\n\
         echo '{\"cniVersion\":\"1.0.0\",\"ips\":[]}'\n",
    );
    host.run("", &["chmod", "+x", "/run/bin/slow"]);
    let config = json!({"cniVersion": "1.0.0", "name": "pods", "type": "netloom", "delegates": [{"cniVersion": "1.0.0", "name": "s", "type": "slow"}]});
    let path = format!("{}:/run/bin", plugin_dir().display());
    let cni = at(&host, "c1").set("CNI_PATH", &path);
    let mut add = cni.start("ADD", "netloom", config.to_string());
    let log = || std::fs::read_to_string(host.path("/run/log")).unwrap_or_default();
    host.until("the executable works", || log().contains("begun"));
    add.kill().unwrap();
    add.wait().unwrap();
    let del = std::thread::scope(|scope| {
        let del = scope.spawn(|| cni.call("DEL", "netloom", config.to_string()));
        host.until("DEL has come", || host.list("/var/lib/cni/netloom/pods").iter().any(|n| n == "c1.del"));
        host.write("/run/go", "");
        del.join().unwrap()
    });
    assert_eq!((del.code, log().as_str()), (0, "begun\nended\nDEL\n"), "{del:?}");
    assert!(host.list("/var/lib/cni/netloom/pods").is_empty());
}

/// Who is not told that it succeeded will not delete it either.
#[test]
fn a_result_that_cannot_be_printed_is_undone() {
    let (host, before) = used();
    host.write("/run/config", &config().to_string());
    let dir = plugin_dir().display();
    let line = format!(
        "CNI_COMMAND=ADD CNI_CONTAINERID=c1 CNI_NETNS=/run/netns/c1 CNI_IFNAME=eth0 CNI_PATH={dir} {dir}/netloom </run/config >/dev/full"
    );
    assert!(!host.try_run("", &["sh", "-c", &line]).status.success());
    host.run("", &["rm", "/run/config"]);
    host.expect_traces(&before, "a result that nobody got");
}
