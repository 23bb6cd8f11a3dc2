//! `sbr`

mod chain_check;
pub(crate) mod two_routers;

use serde_json::{Value, json};

use crate::sbr::two_routers::{answers, attach, behind, c1, host, ipam, network, rules, silent, table};

fn sbr(prev: &Value, keys: Value) -> Value {
    behind("sbr", 2, &keys, prev)
}

/// What came in by one interface is answered by it, whatever the default route says.
#[test]
fn an_answer_leaves_by_the_interface_that_the_question_came_by() {
    let host = host();
    let before = host.traces();
    let (eth0, net1) = (c1(&host, "eth0"), c1(&host, "net1"));
    let (first, second) = attach(&eth0, &net1);
    let ours = ["10.1.0.7", "fd00:1::7"];
    let theirs = ["10.2.0.7", "fd00:2::7"];
    assert!(ours.iter().all(|a| answers(&host, a)));
    assert!(theirs.iter().all(|a| silent(&host, a)), "without sbr the answer takes the default route, and r1 drops it");
    let config = sbr(&second, json!({}));
    let result = net1.add(&config);
    assert_eq!(result, second, "it hands on what it was given");
    assert!(ours.iter().chain(&theirs).all(|a| answers(&host, a)));
    // What the container begins itself from that address goes there as well.
    assert!(host.run_ok("c1", &["ping", "-c1", "-w60", "-I", "10.2.0.7", "192.0.2.9"]));
    assert!(host.run_ok("c1", &["ping", "-c1", "-w60", "-I", "fd00:2::7", "2001:db8::9"]));
    assert!(host.run_ok("c1", &["ping", "-c1", "-w60", "192.0.2.9"]), "what has no address yet takes the main table");
    assert_eq!(rules(&host, "c1"), ["10.2.0.7 100", "fd00:2::7 101"]);
    assert_eq!(table(&host, "c1", 4, "100"), ["10.2.0.0/24 dev net1 src 10.2.0.7", "default via 10.2.0.1 dev net1"]);
    assert_eq!(table(&host, "c1", 6, "101"), ["default via fd00:2::1 dev net1", "fd00:2::/64 dev net1", "fe80::/64 dev net1"]);
    assert_eq!(table(&host, "c1", 4, "main"), ["10.1.0.0/24 dev eth0 src 10.1.0.7", "default via 10.1.0.1 dev eth0"]);
    // A neighbour's link-local address needs no rule.
    assert!(table(&host, "c1", 6, "main").contains(&"fe80::/64 dev net1".to_owned()));
    assert_eq!((net1.check(&config, &result).code, net1.check(&network(2, &ipam(2)), &result).code), (0, 0));
    net1.del(&config, &result);
    assert_eq!((rules(&host, "c1"), table(&host, "c1", 4, "100")), (vec![], vec![]));
    net1.del(&config, &result);
    net1.del(&network(2, &ipam(2)), &result);
    assert!(ours.iter().all(|a| answers(&host, a)));
    eth0.del(&network(1, &ipam(1)), &first);
    host.expect_traces(&before, "sbr");
}

/// A default route whose gateway only the route names, while another network has the main table's default route.
#[test]
fn a_default_route_that_main_has_no_place_for() {
    let host = host();
    let before = host.traces();
    let (eth0, net1) = (c1(&host, "eth0"), c1(&host, "net1"));
    let addresses = json!({"type": "static", "addresses": [{"address": "10.2.0.7/24"}, {"address": "fd00:2::7/64"}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.2.0.1"}, {"dst": "::/0", "gw": "fd00:2::1"}]});
    let first = eth0.add(&network(1, &ipam(1)));
    let second = net1.add(&network(2, &addresses));
    let config = sbr(&second, json!({}));
    let result = net1.add(&config);
    assert!(["10.1.0.7", "fd00:1::7", "10.2.0.7", "fd00:2::7"].iter().all(|a| answers(&host, a)));
    assert_eq!(table(&host, "c1", 4, "main"), ["10.1.0.0/24 dev eth0 src 10.1.0.7", "default via 10.1.0.1 dev eth0"]);
    net1.del(&config, &result);
    net1.del(&network(2, &addresses), &result);
    eth0.del(&network(1, &ipam(1)), &first);
    host.expect_traces(&before, "a default route without a place");
}

/// The main table keeps the way to the network, with the source: who is bound to no address reaches it, and has that address then.
#[test]
fn with_source_hints_the_network_stays_within_reach() {
    let host = host();
    let before = host.traces();
    let (eth0, net1) = (c1(&host, "eth0"), c1(&host, "net1"));
    let (first, second) = attach(&eth0, &net1);
    let config = sbr(&second, json!({"addSourceHints": true}));
    let result = net1.add(&config);
    let own = ["10.2.0.0/24 dev net1 src 10.2.0.7", "default via 10.2.0.1 dev net1 src 10.2.0.7"];
    assert_eq!(table(&host, "c1", 4, "100"), own);
    let main = ["10.1.0.0/24 dev eth0 src 10.1.0.7", "10.2.0.0/24 dev net1 src 10.2.0.7", "default via 10.1.0.1 dev eth0"];
    assert_eq!(table(&host, "c1", 4, "main"), main);
    assert!(table(&host, "c1", 6, "main").contains(&"fd00:2::/64 dev net1 src fd00:2::7".to_owned()));
    for neighbour in ["10.2.0.1", "fd00:2::1"] {
        assert!(host.run_ok("c1", &["ping", "-c1", "-w60", "-n", neighbour]), "{neighbour}");
    }
    for address in ["10.1.0.7", "fd00:1::7", "10.2.0.7", "fd00:2::7"] {
        assert!(answers(&host, address), "{address}");
    }
    net1.check(&config, &result).silent();
    net1.check(&network(2, &ipam(2)), &result).silent();
    for (family, network) in [("-4", "10.2.0.0/24"), ("-6", "fd00:2::/64")] {
        let route = host.sh("c1", &format!("ip {family} route show {network}")).trim().to_owned();
        host.sh("c1", &format!("ip {family} route del {network}"));
        let said = net1.check(&config, &result).message();
        assert!(said.contains(&format!("the main table has lost its route to {network}")), "{said}");
        host.sh("c1", &format!("ip {family} route add {route}"));
    }
    net1.check(&config, &result).silent();
    net1.del(&config, &result);
    assert_eq!((rules(&host, "c1"), table(&host, "c1", 4, "100")), (vec![], vec![]));
    net1.del(&network(2, &ipam(2)), &result);
    eth0.del(&network(1, &ipam(1)), &first);
    host.expect_traces(&before, "source hints");
}

#[test]
fn every_key() {
    let host = host();
    let before = host.traces();
    let (eth0, net1) = (c1(&host, "eth0"), c1(&host, "net1"));
    let (first, second) = attach(&eth0, &net1);
    for (keys, expected) in [
        (json!({"gateways": ["10.2.0.1"]}), "default via 10.2.0.1 dev net1"),
        (
            json!({"gateways": ["10.2.0.1", "fd00:2::1"], "table": 5001, "addSourceHints": true}),
            "default via 10.2.0.1 dev net1 src 10.2.0.7",
        ),
    ] {
        let config = sbr(&second, keys.clone());
        let main = table(&host, "c1", 4, "main");
        let result = net1.add(&config);
        let number = keys["table"].as_u64().unwrap_or(100).to_string();
        assert!(table(&host, "c1", 4, &number).contains(&expected.to_owned()), "{keys}: {:?}", table(&host, "c1", 4, &number));
        assert_eq!(net1.check(&config, &result).code, 0, "{keys}: {:?}", net1.check(&config, &result));
        net1.del(&config, &result);
        assert_eq!(rules(&host, "c1"), Vec::<String>::new(), "{keys}");
        // The interface stays here, as no chain leaves it: its routes are put back by hand.
        if keys["table"].is_null() {
            host.sh("c1", "ip route add 10.2.0.0/24 dev net1 proto kernel scope link src 10.2.0.7");
            host.sh("c1", "ip route add fd00:2::/64 dev net1 proto kernel");
        }
        assert_eq!(table(&host, "c1", 4, "main"), main, "{keys}");
    }
    // Rules alone: what is in the table is the IPAM plugin's business.
    let config = sbr(&second, json!({"table": 77}));
    net1.add(&config);
    assert_eq!((rules(&host, "c1"), table(&host, "c1", 4, "77")), (vec!["10.2.0.7 77".to_owned(), "fd00:2::7 77".to_owned()], vec![]));
    net1.del(&config, &Value::Null);
    assert_eq!(rules(&host, "c1"), Vec::<String>::new());
    for (keys, says) in [
        (json!({"table": 0}), "table: 0 is not between 1 and"),
        (json!({"table": -5}), "table: -5"),
        (json!({"table": "x"}), "table"),
        (json!({"gateways": ["10.2.0.0/24"]}), "gateways[0]: \"10.2.0.0/24\" is not an IP address"),
        (json!({"gateways": ["10.2.0.1", "10.2.0.2"]}), "gateways[1]: a second one of this family"),
    ] {
        let config = sbr(&second, keys);
        let outcome = net1.call("ADD", "sbr", config.to_string());
        assert!(outcome.message().contains(says) && outcome.error()["code"] == 7, "{outcome:?}");
        net1.del(&config, &second);
    }
    let alone = net1.call("ADD", "sbr", json!({"cniVersion": "1.1.0", "name": "x", "type": "sbr"}).to_string());
    assert!(alone.message().contains("must be called as chained plugin"), "{alone:?}");
    let nothing = net1.call("ADD", "sbr", sbr(&json!({"cniVersion": "1.1.0"}), json!({})).to_string());
    assert!(nothing.message().contains("No IP addresses supplied on interface: net1"), "{nothing:?}");
    net1.del(&network(2, &ipam(2)), &second);
    eth0.del(&network(1, &ipam(1)), &first);
    host.expect_traces(&before, "every key");
}

/// Two addresses of one network, and a second network with source routing: each address has a table.
#[test]
fn several_addresses_and_several_interfaces() {
    let host = host();
    let before = host.traces();
    let (eth0, net1) = (c1(&host, "eth0"), c1(&host, "net1"));
    let two = json!({"type": "static", "addresses": [{"address": "10.2.0.7/24", "gateway": "10.2.0.1"},
        {"address": "10.2.0.8/24", "gateway": "10.2.0.1"}]});
    let (first, second) = (eth0.add(&network(1, &ipam(1))), net1.add(&network(2, &two)));
    let (of_first, of_second) = (behind("sbr", 1, &json!({}), &first), sbr(&second, json!({})));
    net1.add(&of_second);
    eth0.add(&of_first);
    assert_eq!(rules(&host, "c1"), ["10.1.0.7 102", "10.2.0.7 100", "10.2.0.8 101", "fd00:1::7 103"]);
    assert!(["10.2.0.7", "10.2.0.8", "10.1.0.7", "fd00:1::7"].iter().all(|a| answers(&host, a)));
    assert!(host.run_ok("c1", &["ping", "-c1", "-w60", "-I", "10.2.0.8", "192.0.2.9"]));
    eth0.del(&of_first, &first);
    assert_eq!(rules(&host, "c1"), ["10.2.0.7 100", "10.2.0.8 101"]);
    net1.del(&of_second, &second);
    net1.del(&network(2, &two), &second);
    eth0.del(&network(1, &ipam(1)), &first);
    host.expect_traces(&before, "several addresses");
}

/// Attachments of one container at the same moment never choose one table.
#[test]
fn at_the_same_moment() {
    let host = host();
    let before = host.traces();
    let (eth0, net1) = (c1(&host, "eth0"), c1(&host, "net1"));
    for _ in 0..20 {
        let (first, second) = attach(&eth0, &net1);
        let (of_first, of_second) = (behind("sbr", 1, &json!({}), &first), sbr(&second, json!({})));
        std::thread::scope(|scope| {
            scope.spawn(|| eth0.add(&of_first));
            scope.spawn(|| net1.add(&of_second));
        });
        let mut tables: Vec<String> = rules(&host, "c1").iter().map(|r| r.split_once(' ').unwrap().1.to_owned()).collect();
        tables.sort();
        assert_eq!(tables, ["100", "101", "102", "103"]);
        std::thread::scope(|scope| {
            scope.spawn(|| eth0.del(&of_first, &first));
            scope.spawn(|| net1.del(&of_second, &second));
        });
        net1.del(&network(2, &ipam(2)), &second);
        eth0.del(&network(1, &ipam(1)), &first);
    }
    host.expect_traces(&before, "twenty times at once");
}

/// DEL is told less and less, and makes no file where the namespace was.
#[test]
fn del_with_little() {
    let host = host();
    let before = host.traces();
    let net1 = c1(&host, "net1");
    let interface = network(2, &ipam(2));
    for (netns, told, link) in [
        ("/run/netns/c1", true, true),
        ("/run/netns/c1", false, true),
        ("/run/netns/c1", true, false),
        ("", true, true),
        ("/run/netns/no", false, true),
    ] {
        let second = net1.add(&interface);
        let config = sbr(&second, json!({}));
        net1.add(&config);
        if !link {
            host.sh("c1", "ip link del net1");
        }
        let mut bare = config.clone();
        bare.as_object_mut().unwrap().remove("prevResult");
        net1.clone().set("CNI_NETNS", netns).del(&bare, if told { &second } else { &Value::Null });
        assert!(!host.path("/run/netns/no").exists());
        let reached = netns == "/run/netns/c1";
        assert_eq!(rules(&host, "c1").is_empty(), reached, "{netns:?}, told: {told}, link: {link}");
        net1.del(&bare, &second);
        net1.del(&interface, &second);
        host.expect_traces(&before, &format!("{netns:?}, told: {told}, link: {link}"));
    }
}

#[test]
fn check_finds_what_changed() {
    let host = host();
    let before = host.traces();
    let net1 = c1(&host, "net1");
    let interface = network(2, &ipam(2));
    for (change, says) in [
        ("ip rule del from 10.2.0.7", "the rule \"from 10.2.0.7\" is gone"),
        ("ip -6 rule del from fd00:2::7", "the rule \"from fd00:2::7\" is gone"),
        ("ip route del default table 100", "table 100 has lost its default route via 10.2.0.1"),
        ("ip -6 route flush table 101", "table 101 has lost its default route via fd00:2::1"),
        ("ip route replace default dev net1 via 10.2.0.9 table 100", "table 100 has lost its default route via 10.2.0.1"),
        ("ip route del 10.2.0.0/24 dev net1 table 100", "table 100 has lost its route to 10.2.0.0/24"),
        ("ip -6 route del fd00:2::/64 dev net1 table 101", "table 101 has lost its route to fd00:2::/64"),
        ("ip rule add from 10.2.0.7 lookup 55 pref 100", "a rule of priority 100 routes traffic of 10.2.0.7 elsewhere"),
        ("ip -6 rule add from fd00:2::/64 blackhole pref 100", "a rule of priority 100 routes traffic of fd00:2::7 elsewhere"),
        ("ip route add default dev net1", "its route to 0.0.0.0/0 is in the main table again"),
        ("ip link del net1", "no interface net1"),
    ] {
        let second = net1.add(&interface);
        let config = sbr(&second, json!({}));
        let result = net1.add(&config);
        assert_eq!(net1.check(&config, &result).code, 0);
        host.sh("c1", change);
        let outcome = net1.check(&config, &result);
        assert!(outcome.message().contains(says), "{change}: {outcome:?}");
        if change.contains(" rule add ") {
            host.sh("c1", &change.replace(" add ", " del "));
        }
        net1.del(&config, &result);
        net1.del(&interface, &result);
    }
    host.expect_traces(&before, "changes");
}

/// A later plugin of the chain fails: what was in the main table is there again.
#[test]
fn a_failed_add_restores_the_main_table() {
    let host = host();
    let net1 = c1(&host, "net1");
    let second = net1.add(&network(2, &ipam(2)));
    host.sh("c1", "ip route add 10.99.0.0/16 via 10.2.0.9 metric 7");
    let before = host.traces();
    // Nothing answers for such a gateway: the last of the routes is refused.
    let config = sbr(&second, json!({"gateways": ["198.51.100.1"]}));
    let outcome = net1.call("ADD", "sbr", config.to_string());
    assert!(outcome.message().contains("check that the gateway is in the network of an address"), "{outcome:?}");
    host.expect_traces(&before, "a gateway that cannot be");
    host.write("/run/bin/broken", "#!/bin/sh\ncat >/dev/null\n[ $CNI_COMMAND != ADD ]\n");
    host.sh("", "chmod 755 /run/bin/broken");
    // Hands on the result that stands in its configuration, which comes first there.
    host.write("/run/bin/given", "#!/bin/sh\nsed -n 's/.*\"result\"://; s/,\"type\".*//; p' | { [ $CNI_COMMAND != ADD ] || cat; }\n");
    host.sh("", "chmod 755 /run/bin/given");
    let given = json!({"result": second, "type": "given"});
    let list = json!({"cniVersion": "1.1.0", "name": "list", "plugins": [given, {"type": "sbr"}, {"type": "broken"}]});
    host.write("/etc/cni/net.d/1.conflist", &list.to_string());
    host.run("", &["mkdir", "-p", "/var/lib/cni/results"]);
    let before = host.traces();
    let tool = netloom_tests::netloom().to_str().unwrap();
    // Of these three only sbr is built in.
    let argv = ["env", "CNI_PATH=/run/bin", "CNI_IFNAME=net1", tool, "cni", "add", "list", "/run/netns/c1"];
    let output = host.try_run("", &argv);
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success() && said.contains("broken"), "{said}");
    host.expect_traces(&before, "a chain that failed behind sbr");
}

/// Nothing of it is on the host: GC has nothing to do, and succeeds; so does STATUS.
#[test]
fn gc_and_status() {
    let host = host();
    let net1 = c1(&host, "net1");
    let mut config = json!({"cniVersion": "1.1.0", "name": "net2", "type": "sbr"});
    assert_eq!(net1.call("STATUS", "sbr", config.to_string()).code, 0);
    config["cni.dev/valid-attachments"] = json!([]);
    assert_eq!(net1.call("GC", "sbr", config.to_string()).code, 0);
    config["table"] = json!("x");
    assert_eq!(net1.call("STATUS", "sbr", config.to_string()).error()["code"], 7);
}
