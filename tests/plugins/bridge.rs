//! What the plugins do to a kernel, as `ip`, `bridge`, `nft` and packets see it.

use netloom_tests::{Host, at, ips, plugin_dir, used};
use serde_json::{Value, json};

fn bridge(keys: Value) -> Value {
    let mut config = json!({
        "cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]},
    });
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

#[test]
fn containers_reach_each_other_and_the_gateway() {
    let config = bridge(json!({"isDefaultGateway": true, "mtu": 1400}));
    let (host, before) = used(&config);
    let results = ["c1", "c2"].map(|c| at(&host, c).add(&config));
    let peer = ips(&results[1]);
    for address in [&peer[0], &peer[1], "10.1.0.1", "fd00:1::1"] {
        assert!(host.pings("c1", address), "{address}");
    }
    for address in &peer {
        assert!(host.tcp("c1", "c2", address), "{address}");
    }
    for family in ["-4", "-6"] {
        let default = host.json("c1", &format!("ip -j {family} route show default"));
        // The kernel gives an IPv6 route without a metric 1024, and shows no metric of 0.
        let metric = if family == "-4" { json!(null) } else { json!(1024) };
        assert!(default.as_array().unwrap().len() == 1 && default[0]["metric"] == metric, "{default}");
    }
    let outer = results[0]["interfaces"][1]["name"].as_str().unwrap();
    for (container, link) in [("c1", "eth0"), ("", outer), ("", "br0")] {
        assert_eq!(host.link(container, link).unwrap().mtu(), 1400, "{link}");
    }
    assert_eq!(host.link("c1", "eth0").unwrap().mac(), results[0]["interfaces"][2]["mac"]);
    for (c, result) in ["c1", "c2"].iter().zip(&results) {
        at(&host, c).del(&config, result);
    }
    host.expect_traces(&before, "two containers");
}

/// A bridge has one subnet of IPv4, and any number of gateways that have none: those of two pools, whose pods have prefixes of 32.
#[test]
fn gateways_that_are_alone_in_their_network_stand_beside_each_other() {
    let config = |net: &str, prefix: u8| {
        let addresses = json!([{"address": format!("{net}.5/{prefix}"), "gateway": format!("{net}.1")}]);
        bridge(json!({"isDefaultGateway": true, "ipam": {"type": "static", "addresses": addresses}}))
    };
    let (host, _) = used(&config("10.1.0", 32));
    let first = at(&host, "c1").add(&config("10.1.0", 32));
    let second = at(&host, "c2").add(&config("10.2.0", 32));
    assert_eq!(host.addresses("", "br0"), ["10.1.0.1/32", "10.2.0.1/32"]);
    let refused = host.cni(plugin_dir()).at("c2", "eth1").call("ADD", "bridge", config("10.3.0", 24).to_string());
    assert!(refused.code != 0 && format!("{refused:?}").contains("already has an IP address different from 10.3.0.1/24"), "{refused:?}");
    at(&host, "c1").del(&config("10.1.0", 32), &first);
    at(&host, "c2").del(&config("10.2.0", 32), &second);
}

/// The kernel gives a bridge the smallest MTU of its ports: a port with its usual 1500 lowered that of every other one.
#[test]
fn a_port_without_an_mtu_has_the_bridges() {
    let config = bridge(json!({}));
    let (host, before) = used(&config);
    for mtu in [8951, 1400] {
        for line in ["ip link add jumbo type veth peer name jumbo1", "ip link set jumbo master br0"] {
            host.sh("", line);
        }
        host.sh("", &format!("ip link set jumbo mtu {mtu}"));
        let result = at(&host, "c1").add(&config);
        let outer = result["interfaces"][1]["name"].as_str().unwrap();
        for (container, link) in [("c1", "eth0"), ("", outer), ("", "br0")] {
            assert_eq!(host.link(container, link).unwrap().mtu(), mtu, "{link}");
        }
        at(&host, "c1").del(&config, &result);
        host.sh("", "ip link del jumbo");
    }
    host.expect_traces(&before, "a bridge with another MTU");
}

/// One queue unless more are asked for, at both ends: the kernel would make one for each processor.
#[test]
fn queues_of_a_pair() {
    for kind in ["bridge", "ptp"] {
        for (asked, made) in [(None, 1), (Some(0), 1), (Some(16), 16)] {
            let mut config = bridge(json!({"type": kind}));
            if let Some(asked) = asked {
                config["queues"] = asked.into();
            }
            let (host, before) = used(&config);
            let result = at(&host, "c1").add(&config);
            let outer = result["interfaces"].as_array().unwrap().iter().find(|i| i["name"].as_str().unwrap().starts_with("veth")).unwrap();
            for (container, link) in [("c1", "eth0"), ("", outer["name"].as_str().unwrap())] {
                let link = &host.json(container, &format!("ip -d -j link show {link}"))[0];
                assert_eq!((link["num_tx_queues"].as_u64(), link["num_rx_queues"].as_u64()), (Some(made), Some(made)), "{kind} {link}");
            }
            at(&host, "c1").del(&config, &result);
            host.expect_traces(&before, kind);
        }
    }
}

/// Where both ends of a pair have the same index the kernel takes up to a second to notice the carrier, unless it is asked. It joins
/// the address's multicast group in its own time, so that on a busy machine one packet may be too early.
#[test]
fn the_first_packet_of_ipv6_does_not_wait() {
    let config = bridge(json!({"isGateway": true}));
    let (host, before) = used(&config);
    // The next index of the container is the host's.
    host.sh("c1", "ip link add name t0 type bridge");
    host.sh("c1", "ip link del t0");
    let answered = |_: &i32| {
        let result = at(&host, "c1").add(&config);
        assert_eq!(
            host.link("c1", "eth0").unwrap().index(),
            host.link("", result["interfaces"][1]["name"].as_str().unwrap()).unwrap().index()
        );
        let one = host.try_run("", &["ping", "-c1", "-W1", "-n", &ips(&result)[1]]);
        at(&host, "c1").del(&config, &result);
        one.status.success()
    };
    let answers = (0..18).filter(answered).take(3).count();
    assert_eq!(answers, 3, "of 18 packets that were sent at once so many were answered");
    host.expect_traces(&before, "IPv6");
}

/// The network that came first keeps its default route, and no second next hop is added to it.
#[test]
fn a_second_default_route_is_skipped() {
    let first = bridge(json!({"isDefaultGateway": true}));
    let (host, before) = used(&first);
    let second =
        bridge(json!({"name": "second", "bridge": "br1", "isDefaultGateway": true, "ipam": {"type": "host-local", "subnet": "10.2.0.0/24",
        "routes": [{"dst": "10.99.0.0/16"}]}}));
    let one = at(&host, "c1").add(&first);
    let net1 = host.cni(plugin_dir()).at("c1", "net1");
    let two = net1.add(&second);
    let routes = host.json("c1", "ip -j -4 route");
    let shown: Vec<String> = routes.as_array().unwrap().iter().map(|r| format!("{} {} {}", r["dst"], r["gateway"], r["dev"])).collect();
    assert_eq!(shown.iter().filter(|r| r.starts_with("\"default\"")).collect::<Vec<_>>(), [r#""default" "10.1.0.1" "eth0""#]);
    assert!(shown.contains(&r#""10.99.0.0/16" "10.2.0.1" "net1""#.to_owned()), "{shown:?}");
    assert_eq!(two["routes"], json!([{"dst": "10.99.0.0/16"}]), "the result says what was done");
    let checked = net1.check(&second, &two);
    assert_eq!(checked.code, 0, "{checked:?}");
    net1.del(&second, &two);
    at(&host, "c1").del(&first, &one);
    host.run("", &["ip", "link", "del", "br1"]);
    host.run("", &["rm", "-r", "/var/lib/cni/networks/second"]);
    host.expect_traces(&before, "a second network");
}

#[test]
fn flags_of_bridge_and_port() {
    for (keys, hairpin, isolated, promisc) in [
        (json!({}), false, false, false),
        (json!({"hairpinMode": true}), true, false, false),
        (json!({"portIsolation": true, "promiscMode": true}), false, true, true),
    ] {
        let config = bridge(keys.clone());
        let (host, before) = used(&config);
        let result = at(&host, "c1").add(&config);
        let port = host.json("", "bridge -j -d link")[0].clone();
        assert_eq!((&port["hairpin"], &port["isolated"]), (&json!(hairpin), &json!(isolated)), "{keys}");
        assert_eq!(host.link("", "br0").unwrap().has("PROMISC"), promisc, "{keys}");
        let other = at(&host, "c2").add(&config);
        let address = &ips(&other)[0];
        assert!(if isolated { host.silent("c1", address) } else { host.pings("c1", address) }, "{keys}");
        assert_eq!(at(&host, "c1").check(&config, &result).code, 0, "{keys}");
        if promisc {
            host.sh("", "ip link set br0 promisc off");
            assert!(at(&host, "c1").check(&config, &result).message().contains("it is not promiscuous any more"));
            host.sh("", "ip link set br0 promisc on");
        }
        at(&host, "c1").del(&config, &result);
        at(&host, "c2").del(&config, &other);
        host.expect_traces(&before, "ports with flags");
    }
}

/// As kubenet made it: whoever knew the gateway, or a container's address, before the bridge was made anew still reaches it.
#[test]
fn hardware_addresses_from_addresses() {
    for (keys, of_bridge) in
        [(json!({"macFromIP": true, "isGateway": true}), true), (json!({"macFromIP": true}), false), (json!({"isGateway": true}), false)]
    {
        let host = Host::new();
        host.container("c1");
        let config = bridge(keys.clone());
        let result = at(&host, "c1").add(&config);
        assert_eq!(host.link("", "br0").unwrap().mac() == "0a:58:0a:01:00:01", of_bridge, "{keys}");
        assert_eq!(result["interfaces"][0]["mac"], host.link("", "br0").unwrap().mac());
        let own = ips(&result)[0].split('.').map(|n| format!(":{:02x}", n.parse::<u8>().unwrap())).collect::<String>();
        assert_eq!(host.link("c1", "eth0").unwrap().mac() == format!("0a:58{own}"), keys["macFromIP"] == true, "{keys}");
        at(&host, "c1").del(&config, &result);
    }
}

/// A bridge whose address nobody has set takes the lowest one of its ports: neighbours of the host's uplink lost it with each container.
#[test]
fn anothers_bridge_keeps_its_hardware_address() {
    let host = Host::new();
    host.container("c1");
    for words in ["add upbr type bridge", "add up0 address fe:00:00:00:00:01 type veth peer name up1", "set up0 master upbr"] {
        host.sh("", &format!("ip link {words}"));
    }
    ["up0", "up1", "upbr"].iter().for_each(|link| drop(host.sh("", &format!("ip link set {link} up"))));
    let config = bridge(json!({"bridge": "upbr"}));
    let mac = || host.link("", "upbr").unwrap().mac().to_owned();
    assert_eq!(mac(), "fe:00:00:00:00:01");
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..8 {
        let result = at(&host, "c1").add(&config);
        assert_eq!((mac(), &result["interfaces"][0]["mac"]), ("fe:00:00:00:00:01".to_owned(), &json!(mac())));
        let outer = host.link("", result["interfaces"][1]["name"].as_str().unwrap()).unwrap().mac().to_owned();
        assert!(outer.starts_with("fe:") && result["interfaces"][1]["mac"] == json!(outer), "{result}");
        seen.insert(outer);
        at(&host, "c1").del(&config, &result);
        assert_eq!(mac(), "fe:00:00:00:00:01");
    }
    assert_eq!(seen.len(), 8, "{seen:?}");
}

/// From outside, a packet is the host's; within the network, it is the container's own.
#[test]
fn masquerade_as_seen_from_outside() {
    let config = bridge(json!({"isDefaultGateway": true, "ipMasq": true}));
    let (host, _) = used(&config);
    host.container("world");
    for line in [
        "ip link add up0 type veth peer name up1 netns world",
        "ip addr add 192.0.2.1/24 dev up0",
        "ip addr add 2001:db8::1/64 dev up0 nodad",
        "ip link set up0 up",
    ] {
        host.sh("", line);
    }
    for line in ["ip addr add 192.0.2.9/24 dev up1", "ip addr add 2001:db8::9/64 dev up1 nodad", "ip link set up1 up"] {
        host.sh("world", line);
    }
    // The world has no route back to the containers: an answer shows that it saw the host.
    let before = host.traces();
    let result = at(&host, "c1").add(&config);
    assert!(host.pings("c1", "192.0.2.9") && host.pings("c1", "2001:db8::9"));
    let plain = bridge(json!({"isDefaultGateway": true}));
    let unmasked = at(&host, "c2").add(&plain);
    assert!(host.silent("c2", "192.0.2.9"), "c2 asked for no masquerade");
    assert!(host.pings("c1", &ips(&unmasked)[0]));
    at(&host, "c2").del(&plain, &unmasked);
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "masquerade");
}

/// DEL is told less and less: nothing of it stays all the same.
#[test]
fn del_with_little_and_del_again() {
    let config = bridge(json!({"isDefaultGateway": true, "ipMasq": true}));
    let (host, before) = used(&config);
    for netns in ["", "/run/netns/gone", "/run/netns/c1"] {
        let del = |prev: &Value| at(&host, "c1").set("CNI_NETNS", netns).del(&config, prev);
        for told in [true, false] {
            let result = at(&host, "c1").add(&config);
            let prev = if told { result } else { Value::Null };
            del(&prev);
            host.expect_traces(&before, &format!("DEL with namespace {netns:?}, result told: {told}"));
            del(&prev);
            host.expect_traces(&before, &format!("a second DEL with namespace {netns:?}, result told: {told}"));
        }
    }
    let result = at(&host, "c2").add(&config);
    host.sh("", "ip netns del c2");
    at(&host, "c2").del(&config, &result);
    host.container("c2");
    host.expect_traces(&before, "DEL after the namespace went");
}

/// One change to what ADD made, and what CHECK says of it.
#[test]
fn check_finds_what_changed() {
    let config = bridge(json!({"isDefaultGateway": true, "ipMasq": true, "hairpinMode": true}));
    let changes = [
        ("c1", "ip link set eth0 address 02:00:00:00:00:01", "hardware address"),
        ("c1", "ip addr del 10.1.0.ADDR/24 dev eth0", "lost address"),
        ("c1", "ip -6 addr flush dev eth0 scope global", "lost address fd00:1::"),
        ("c1", "ip -4 route del default", "route to 0.0.0.0/0 is gone"),
        ("c1", "ip link set eth0 down", "is down"),
        ("c1", "ip link del eth0", "gone from the container"),
        ("", "ip link set VETH nomaster", "is not a port of br0"),
        ("", "bridge link set dev VETH hairpin off", "hairpin mode is off"),
        ("", "bridge link set dev VETH isolated on", "port isolation is on"),
        ("", "ip link set VETH down", "it is down"),
        ("", "ip addr del 10.1.0.1/24 dev br0", "br0 was changed: it has lost the gateway's address 10.1.0.1/24"),
        ("", "ip addr del fd00:1::1/64 dev br0", "it has lost the gateway's address fd00:1::1/64"),
        ("", "sysctl -qw net.ipv4.ip_forward=0", "/proc/sys/net/ipv4/ip_forward is 0"),
        ("", "sysctl -qw net.ipv6.conf.all.forwarding=0", "/proc/sys/net/ipv6/conf/all/forwarding is 0"),
        ("", "ip link set br0 down", "br0 was changed: it is down"),
        ("", "nft delete table inet netloom", "the firewall entry for masquerading of"),
        ("", "rm /var/lib/cni/networks/net/10.1.0.ADDR", "10.1.0."),
    ];
    let (host, before) = used(&config);
    for (container, change, says) in changes {
        let result = at(&host, "c1").add(&config);
        let clean = at(&host, "c1").check(&config, &result);
        assert_eq!((clean.code, clean.stdout.as_str()), (0, ""), "{clean:?}");
        let last = ips(&result)[0].rsplit('.').next().unwrap().to_owned();
        let line = change.replace("ADDR", &last).replace("VETH", result["interfaces"][1]["name"].as_str().unwrap());
        host.sh(container, &line);
        let message = at(&host, "c1").check(&config, &result).message();
        assert!(message.contains(says), "{line}: {message}");
        at(&host, "c1").del(&config, &result);
        // What is the network's own is put back by the next ADD.
        if !["nft", "br0", "sysctl"].iter().any(|word| change.contains(word)) {
            host.expect_traces(&before, &format!("DEL after {line}"));
        } else {
            let result = at(&host, "c1").add(&config);
            at(&host, "c1").del(&config, &result);
            host.expect_traces(&before, &format!("an ADD after {line}"));
        }
    }
}

/// GC frees what belongs to no valid attachment, and nothing else.
#[test]
fn gc_frees_only_what_no_valid_attachment_has() {
    let config = bridge(json!({"isDefaultGateway": true, "ipMasq": true}));
    let (host, before) = used(&config);
    let kept = at(&host, "c1").add(&config);
    let during = host.traces();
    let lost = at(&host, "c2").add(&config);
    let outer = lost["interfaces"][1]["name"].as_str().unwrap();
    host.run("", &["ip", "link", "del", outer]);
    let mut gc = config.clone();
    gc["cni.dev/valid-attachments"] = json!([{"containerID": "c1", "ifname": "eth0"}]);
    let outcome = host.cni(plugin_dir()).call("GC", "bridge", gc.to_string());
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, ""), "{outcome:?}");
    host.expect_traces(&during, "GC");
    assert_eq!(at(&host, "c1").check(&config, &kept).code, 0);
    at(&host, "c1").del(&config, &kept);
    host.expect_traces(&before, "all of it");
}
