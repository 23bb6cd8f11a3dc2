//! `vrf`: two networks with the same addresses, kept apart in one container.
//!
//! ```text
//!   c1  net1 10.5.0.7 in red  -- wire1 -- world1 10.5.0.1, 192.0.2.1, 2001:db8::1
//!       net2 10.5.0.7 in blue -- wire2 -- world2 10.5.0.1, 192.0.2.2, 2001:db8::2
//! ```

use netloom_tests::{Cni, Host, peers_dir, plugin_dir};
use serde_json::{Value, json};

fn host() -> Host {
    let host = Host::new();
    host.container("c1");
    for n in [1, 2] {
        let world = format!("world{n}");
        host.container(&world);
        host.sh("", &format!("ip link add wire{n} type veth peer name in netns {world}"));
        host.sh("", &format!("ip link set wire{n} up"));
        for line in [
            "ip link set lo up".to_owned(),
            "ip link set in up".to_owned(),
            "ip address add 10.5.0.1/24 dev in".to_owned(),
            "ip address add fd00:5::1/64 dev in nodad".to_owned(),
            format!("ip address add 192.0.2.{n}/32 dev lo"),
            format!("ip address add 2001:db8::{n}/128 dev lo nodad"),
        ] {
            host.sh(&world, &line);
        }
    }
    host
}

fn network(n: u32) -> Value {
    json!({"cniVersion": "1.1.0", "name": format!("n{n}"), "type": "macvlan", "master": format!("wire{n}"), "ipam": {"type": "static",
        "addresses": [{"address": "10.5.0.7/24", "gateway": "10.5.0.1"}, {"address": "fd00:5::7/64", "gateway": "fd00:5::1"}],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}, {"dst": "203.0.113.0/24", "gw": "10.5.0.99"}]}})
}

fn vrf(n: u32, name: &str, table: u32, prev: &Value) -> Value {
    json!({"cniVersion": "1.1.0", "name": format!("n{n}"), "type": "vrf", "vrfname": name, "table": table, "prevResult": prev})
}

fn at<'h>(host: &'h Host, n: u32) -> Cni<'h> {
    host.cni(plugin_dir()).at("c1", &format!("net{n}"))
}

/// The interface, in its VRF: the result.
fn attach(host: &Host, n: u32, name: &str, table: u32) -> Value {
    let made = at(host, n).add(&network(n));
    at(host, n).add(&vrf(n, name, table, &made))
}

fn detach(host: &Host, n: u32, name: &str, result: &Value) {
    at(host, n).del(&vrf(n, name, 0, &Value::Null), result);
    at(host, n).del(&network(n), result);
}

/// A container that has had a VRF: the kernel keeps its rule for the first one (`l3mdev`).
fn used() -> Host {
    let host = host();
    let result = attach(&host, 1, "red", 0);
    detach(&host, 1, "red", &result);
    host
}

fn pings(host: &Host, vrf: &str, address: &str) -> bool {
    host.run_ok("c1", &["ping", "-c1", "-w60", "-n", "-I", vrf, address])
}

fn table_of(host: &Host, vrf: &str) -> u64 {
    host.link("c1", vrf).unwrap().0["linkinfo"]["info_data"]["table"].as_u64().unwrap()
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn vrf_keeps_equal_networks_apart() {
    let host = used();
    let before = host.traces();
    let (first, second) = (attach(&host, 1, "red", 0), attach(&host, 2, "blue", 0));
    assert_eq!(first["ips"], second["ips"]);
    assert_eq!((table_of(&host, "red"), table_of(&host, "blue")), (1, 2));
    for (vrf, own, other) in [("red", "1", "2"), ("blue", "2", "1")] {
        for far in ["192.0.2.", "2001:db8::"] {
            assert!(pings(&host, vrf, &format!("{far}{own}")), "{vrf} {far}");
            assert!(!host.run_ok("c1", &["ping", "-c2", "-i0.2", "-w1", "-I", vrf, &format!("{far}{other}")]), "{vrf} {far}");
        }
        let via = host.json("c1", &format!("ip -j route show vrf {vrf} 203.0.113.0/24"));
        assert_eq!(via[0]["gateway"], "10.5.0.99", "{vrf}");
    }
    for n in [1, 2] {
        assert_eq!(host.addresses("c1", &format!("net{n}")), ["10.5.0.7/24", "fd00:5::7/64"]);
        let (name, result) = if n == 1 { ("red", &first) } else { ("blue", &second) };
        let checked = at(&host, n).check(&vrf(n, name, 0, &Value::Null), result);
        assert_eq!(checked.code, 0, "{checked:?}");
        let checked = at(&host, n).check(&network(n), result);
        assert_eq!(checked.code, 0, "{checked:?}");
    }
    detach(&host, 1, "red", &first);
    assert!(host.link("c1", "red").is_none() && pings(&host, "blue", "192.0.2.2"));
    detach(&host, 2, "blue", &second);
    detach(&host, 2, "blue", &second);
    host.expect_traces(&before, "two VRFs");
}

/// CHECK of ptp looked for its routes in the main table, out of which the VRF takes them.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn vrf_behind_ptp() {
    let host = used();
    // As ptp leaves it.
    host.sh("", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    let before = host.traces();
    let config = json!({"cniVersion": "1.1.0", "name": "n1", "type": "ptp", "ipam": {"type": "static",
        "addresses": [{"address": "10.7.0.7/24", "gateway": "10.7.0.1"}, {"address": "fd00:7::7/64", "gateway": "fd00:7::1"}]}});
    let made = at(&host, 1).add(&config);
    let result = at(&host, 1).add(&vrf(1, "red", 1001, &made));
    let check = || at(&host, 1).check(&config, &result);
    assert_eq!(check().code, 0, "{:?}", check());
    assert!(pings(&host, "red", "10.7.0.1") && pings(&host, "red", "fd00:7::1"));
    // Where another table has them nobody finds them.
    host.sh("c1", "ip route del 10.7.0.0/24 table 1001");
    host.sh("c1", "ip route add 10.7.0.0/24 via 10.7.0.1 dev net1 table 77 onlink");
    assert!(check().message().contains("route to 10.7.0.0/24 is gone"), "{:?}", check());
    at(&host, 1).del(&vrf(1, "red", 1001, &Value::Null), &result);
    at(&host, 1).del(&config, &result);
    host.expect_traces(&before, "a VRF behind ptp");
}

/// Addresses that the kernel forgets, as it does without `keep_addr_on_down`, and a network's route that was removed.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn vrf_puts_back_what_the_kernel_forgets() {
    let host = used();
    let before = host.traces();
    let made = at(&host, 1).add(&network(1));
    for line in [
        "sysctl -qw net.ipv6.conf.net1.keep_addr_on_down=0",
        "ip address add fd00:6::7/64 dev net1 nodad noprefixroute",
        "ip route add 198.51.100.0/24 dev net1",
        "ip route add 198.51.100.0/24 dev net1 table 77",
        "ip route add 10.5.0.1 dev net1",
        "ip route del 10.5.0.0/24 dev net1",
    ] {
        host.sh("c1", line);
    }
    let config = vrf(1, "red", 1001, &made);
    let result = at(&host, 1).add(&config);
    assert_eq!(host.addresses("c1", "net1"), ["10.5.0.7/24", "fd00:5::7/64", "fd00:6::7/64"]);
    assert!(pings(&host, "red", "192.0.2.1") && pings(&host, "red", "2001:db8::1"));
    let shown = |line: &str| -> Vec<String> {
        let routes = host.json("c1", line).as_array().unwrap().iter().map(|r| r["dst"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
        routes.into_iter().filter(|dst| !dst.contains("255") && !dst.starts_with("fe80") && !dst.starts_with("ff00")).collect()
    };
    assert_eq!(shown("ip -j -4 route show table 1001 type unicast"), ["default", "10.5.0.1", "198.51.100.0/24", "203.0.113.0/24"]);
    assert_eq!(shown("ip -j -6 route show table 1001 type unicast"), ["fd00:5::/64", "default"]);
    assert_eq!(shown("ip -j -4 route show table 77"), ["198.51.100.0/24"]);
    at(&host, 1).del(&config, &result);
    at(&host, 1).del(&network(1), &result);
    host.expect_traces(&before, "what the kernel forgets");
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn vrf_goes_with_its_last_member_and_not_before() {
    let host = used();
    let before = host.traces();
    for order in [[1, 2], [2, 1]] {
        let results = [attach(&host, 1, "red", 7), attach(&host, 2, "red", 0)];
        assert_eq!(table_of(&host, "red"), 7);
        let [a, b] = order;
        detach(&host, a, "red", &results[a as usize - 1]);
        assert!(host.link("c1", "red").is_some(), "net{b} is still in it");
        detach(&host, b, "red", &results[b as usize - 1]);
        host.expect_traces(&before, "the last member");
    }
    // The interface is gone; nobody tells a result; nobody tells the namespace.
    let result = attach(&host, 1, "red", 0);
    host.sh("c1", "ip link del net1");
    at(&host, 1).del(&vrf(1, "red", 0, &Value::Null), &Value::Null);
    assert!(host.link("c1", "red").is_none());
    at(&host, 1).set("CNI_NETNS", "").del(&vrf(1, "red", 0, &Value::Null), &Value::Null);
    at(&host, 1).set("CNI_NETNS", "/run/netns/no").del(&vrf(1, "red", 0, &Value::Null), &result);
    at(&host, 1).del(&network(1), &result);
    host.expect_traces(&before, "DEL with little");
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn vrf_with_two_members_at_the_same_moment() {
    let host = used();
    let before = host.traces();
    for _ in 0..5 {
        let made = [1, 2].map(|n| at(&host, n).add(&network(n)));
        std::thread::scope(|scope| {
            for n in [1, 2] {
                let (host, made) = (&host, &made[n as usize - 1]);
                scope.spawn(move || at(host, n).add(&vrf(n, "red", 0, made)));
            }
        });
        for n in ["net1", "net2"] {
            assert_eq!(host.link("c1", n).unwrap().0["master"], "red");
        }
        std::thread::scope(|scope| {
            for n in [1, 2] {
                let (host, made) = (&host, &made[n as usize - 1]);
                scope.spawn(move || detach(host, n, "red", made));
            }
        });
        host.expect_traces(&before, "both at once");
    }
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn vrf_refuses_and_undoes() {
    let host = used();
    let made = at(&host, 1).add(&network(1));
    host.sh("c1", "ip link add other type dummy");
    host.sh("c1", "ip link add green type vrf table 55");
    let before = host.traces();
    let refused = |config: Value, says: &str| {
        let outcome = at(&host, 1).call("ADD", "vrf", config.to_string());
        assert!(outcome.message().contains(says), "{config}: {outcome:?}");
        host.expect_traces(&before, says);
    };
    refused(vrf(1, "", 0, &made), "configuration is expected to have a valid vrf name");
    refused(vrf(1, "a/b", 0, &made), "vrfname");
    refused(vrf(1, "green", 56, &made), "VRF green already exist with different routing table 55");
    refused(vrf(1, "other", 0, &made), "other is not a VRF: the container has a dummy of that name");
    refused(json!({"cniVersion": "1.1.0", "name": "n1", "type": "vrf", "vrfname": "red"}), "missing prevResult from earlier plugin");
    // A gateway's network is not there: what is put back last is refused, and all of it undone.
    host.sh("c1", "ip link set net1 master green");
    let outcome = at(&host, 1).call("ADD", "vrf", vrf(1, "red", 0, &made).to_string());
    assert!(outcome.message().contains("interface net1 has already a master set: green"), "{outcome:?}");
    let gone = host.cni(plugin_dir()).at("c1", "net9").call("ADD", "vrf", vrf(1, "red", 0, &made).to_string());
    assert!(gone.message().contains("could not get link by name net9"), "{gone:?}");
}

/// A VRF that was there before, and what somebody else put into it, stay.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn vrf_deletes_only_what_it_made() {
    let host = used();
    let made = at(&host, 1).add(&network(1));
    host.sh("c1", "ip link add red up type vrf table 77");
    let before = host.traces();
    let refused = |table: u32| {
        let config = vrf(1, "red", table, &made);
        let outcome = at(&host, 1).call("ADD", "vrf", config.to_string());
        assert!(outcome.code != 0, "{outcome:?}");
        at(&host, 1).del(&vrf(1, "red", table, &Value::Null), &Value::Null);
    };
    refused(5);
    host.expect_traces(&before, "another table");
    // Joined and left.
    let result = at(&host, 1).add(&vrf(1, "red", 0, &made));
    assert_eq!(host.link("c1", "net1").unwrap().0["master"], "red");
    at(&host, 1).del(&vrf(1, "red", 0, &Value::Null), &result);
    assert!(host.link("c1", "net1").unwrap().0.get("master").is_none() && host.link("c1", "red").is_some());
    host.sh("c1", "ip link set net1 master red");
    refused(0);
    assert_eq!(host.link("c1", "net1").unwrap().0["master"], "red");
}

/// A later plugin fails: the interface is out of the VRF again, with its addresses and routes.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn vrf_is_undone_where_a_later_plugin_fails() {
    let host = used();
    let made = at(&host, 1).add(&network(1));
    host.write("/run/bin/broken", "#!/bin/sh\ncat >/dev/null\n[ $CNI_COMMAND != ADD ]\n");
    // Hands on the result that stands in its configuration, which comes first there.
    host.write("/run/bin/given", "#!/bin/sh\nsed -n 's/.*\"result\"://; s/,\"type\".*//; p' | { [ $CNI_COMMAND != ADD ] || cat; }\n");
    host.sh("", "chmod 755 /run/bin/given /run/bin/broken");
    let list = json!({"cniVersion": "1.1.0", "name": "list", "plugins": [{"result": made, "type": "given"}, {"type": "vrf", "vrfname": "red"},
        {"type": "broken"}]});
    host.write("/etc/cni/net.d/1.conflist", &list.to_string());
    host.run("", &["mkdir", "-p", "/var/lib/cni/results"]);
    let before = host.traces();
    let tool = netloom_tests::netloom().to_str().unwrap();
    let argv = ["env", "CNI_PATH=/run/bin", "CNI_IFNAME=net1", tool, "cni", "add", "list", "/run/netns/c1"];
    let output = host.try_run("", &argv);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success() && said.contains("broken"), "{said}");
    host.expect_traces(&before, "a chain that failed behind vrf");
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn vrf_check_and_status() {
    let host = used();
    let before = host.traces();
    for (change, says) in [
        ("ip link set net1 nomaster", "failed to find net1 associated to vrf red"),
        ("ip link set red down", "VRF red is down"),
        ("ip link del red", "VRF red is gone"),
        ("ip link del net1", "it is gone from the container"),
    ] {
        let result = attach(&host, 1, "red", 0);
        let check = |table| at(&host, 1).check(&vrf(1, "red", table, &Value::Null), &result);
        assert_eq!(check(1).code, 0, "{:?}", check(1));
        assert!(check(2).message().contains("the table of VRF red is 1, not 2"));
        host.sh("c1", change);
        assert!(check(0).message().contains(says), "{change}: {:?}", check(0));
        detach(&host, 1, "red", &result);
        host.expect_traces(&before, change);
    }
    let config = json!({"cniVersion": "1.1.0", "name": "n1", "type": "vrf", "vrfname": "red", "cni.dev/valid-attachments": []});
    for verb in ["STATUS", "GC"] {
        let outcome = at(&host, 1).call(verb, "vrf", config.to_string());
        assert_eq!(outcome.code, 0, "{outcome:?}");
    }
}

/// Killed between any two steps: DEL finds what there is.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn vrf_killed_at_every_point() {
    let host = used();
    let before = host.traces();
    let cni = host.cni(netloom_tests::plugin_dir()).at("c1", "net1");
    for (verb, points) in
        [("ADD", &["vrf-planned", "vrf-there", "vrf-joined", "vrf-addresses-back", "vrf-carried"][..]), ("DEL", &["vrf-left"][..])]
    {
        for point in points {
            let made = at(&host, 1).add(&network(1));
            let config = vrf(1, "red", 0, &made);
            if verb == "DEL" {
                at(&host, 1).add(&config);
            }
            let outcome = cni.clone().set("NETLOOM_CRASH_AT", point).call(verb, "vrf", config.to_string());
            assert_eq!(outcome.code, -1, "{verb} was to be killed at {point}: {outcome:?}");
            detach(&host, 1, "red", &made);
            host.expect_traces(&before, point);
        }
    }
}

/// Attached by one implementation, deleted by the other.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn vrf_of_the_reference_plugin() {
    let host = used();
    let before = host.traces();
    for (from, to) in [(peers_dir(), plugin_dir()), (plugin_dir(), peers_dir())] {
        let (old, new) = (host.cni(from).at("c1", "net1"), host.cni(to).at("c1", "net1"));
        let mut interface = network(1);
        interface["cniVersion"] = json!("1.0.0");
        let made = old.add(&interface);
        let mut config = vrf(1, "red", 0, &made);
        config["cniVersion"] = json!("1.0.0");
        let result = old.add(&config);
        // The reference plugin's addresses of IPv6 wait for duplicate address detection.
        host.until("the world answers", || pings(&host, "red", "192.0.2.1") && pings(&host, "red", "2001:db8::1"));
        let checked = new.check(&config, &result);
        assert_eq!(checked.code, 0, "{from:?} to {to:?}: {checked:?}");
        new.del(&config, &result);
        new.del(&interface, &result);
        if from == peers_dir() {
            // It cannot be told from one of the container's own, which is nobody's to delete.
            host.sh("c1", "ip link del red");
        }
        host.expect_traces(&before, &format!("{from:?} to {to:?}"));
    }
}
