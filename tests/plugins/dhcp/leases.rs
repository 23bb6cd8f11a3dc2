//! Leases come, and go.

use netloom_tests::ips;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::dhcp::server::{World, bridge};

#[test]
fn a_lease_comes_and_goes() {
    let world = World::new();
    let before = world.used();
    let result = world.attach("c1");
    let address = &ips(&result)[0];
    assert!(address.starts_with("10.9.0."), "{result}");
    assert_eq!(world.host.addresses("c1", "eth0"), [format!("{address}/24")]);
    assert_eq!(result["ips"][0]["gateway"], "10.9.0.1");
    assert_eq!(world.host.json("c1", "ip -j route show default")[0]["gateway"], "10.9.0.1");
    assert!(world.host.pings("c1", "10.9.0.1"));
    let checked = world.cni("c1").check(&bridge(json!({})), &result);
    assert_eq!(checked.code, 0, "{checked:?}");
    world.cni("c1").del(&bridge(json!({})), &result);
    // It is the leased address that releases: the server drops what comes from another one.
    world.until_told("server", &format!("DHCPRELEASE(eth0) {address}"), 1);
    world.host.until("it is the server's again", || !world.host.run("", &["cat", "/run/server.leases"]).contains(address));
    world.cni("c1").del(&bridge(json!({})), &result);
    world.host.run("", &["ip", "netns", "del", "c1"]);
    world.expect(&before, "a lease");
}

/// The wire is the parent's: the server is another station on it.
#[test]
fn macvlan_of_both_families() {
    let mut world = World::empty();
    let v6 = ["--dhcp-range=fd00:9::10,fd00:9::200,64,1h", "--enable-ra", "--dhcp-option=option6:dns-server,[fd00:9::53]"];
    let v4 = ["--dhcp-range=10.9.0.10,10.9.0.200,255.255.255.0,1h", "--dhcp-option=option:dns-server,10.9.0.53"];
    world.serve("server", &[&v6[..], &v4[..]].concat());
    world.start();
    for line in ["ip link add up0 type veth peer name up1", "ip link set up1 master br0 up", "ip link set up0 up"] {
        world.host.sh("", line);
    }
    let config = json!({"cniVersion": "1.1.0", "name": "net", "type": "macvlan", "master": "up0", "ipam": {"type": "dhcp", "ipv6": true}});
    world.host.container("c1");
    let before = world.host.traces();
    let result = world.cni("c1").add(&config);
    let [four, six] = ips(&result).try_into().unwrap();
    assert!(four.starts_with("10.9.0.") && six.starts_with("fd00:9::"), "{result}");
    assert_eq!(result["dns"]["nameservers"], json!(["10.9.0.53", "fd00:9::53"]), "{result}");
    assert_eq!(world.host.addresses("c1", "eth0"), [format!("{four}/24"), format!("{six}/128")]);
    assert!(world.host.pings("c1", "10.9.0.1"));
    // The way there is told by a router advertisement.
    let default = || !world.host.json("c1", "ip -j -6 route show default").as_array().unwrap().is_empty();
    world.host.until("the router has advertised itself", default);
    assert!(world.host.pings("c1", "fd00:9::1"));
    assert_eq!(world.cni("c1").check(&config, &result).code, 0);
    world.cni("c1").del(&config, &result);
    world.until_told("server", &format!("DHCPRELEASE(eth0) {four}"), 1);
    world.until_told("server", "DHCPRELEASE(eth0) 00:04:", 1);
    world.host.until("the lease is the server's again", || !world.host.run("", &["cat", "/run/server.leases"]).contains(&six));
    world.host.until("nothing is left", || world.host.list("/run/cni/dhcp.leases") == [".lock"]);
    world.host.expect_traces(&before, "leases of both families");
}

#[test]
fn ipv6_only() {
    let mut world = World::empty();
    world.serve("server", &["--dhcp-range=fd00:9::10,fd00:9::200,64,1h", "--enable-ra"]);
    world.start();
    world.host.container("c1");
    // Duplicate address detection would take longer than an ADD may: it is not waited for.
    world.host.sh("c1", "sysctl -qw net.ipv6.conf.default.dad_transmits=1000");
    let config = bridge(json!({"ipv6": "only"}));
    let result = world.cni("c1").add(&config);
    let addresses = ips(&result);
    assert!(addresses.len() == 1 && addresses[0].starts_with("fd00:9::"), "{result}");
    // The same client gets the same address.
    world.cni("c1").del(&config, &result);
    for _ in 0..3 {
        let again = world.cni("c1").add(&config);
        assert_eq!(ips(&again), addresses);
        world.cni("c1").del(&config, &again);
    }
}

#[test]
fn options_both_ways() {
    let mut world = World::empty();
    let args = [
        "--dhcp-range=10.9.0.10,10.9.0.200,255.255.255.0,1h",
        "--dhcp-option=121,172.20.0.0/16,10.9.0.7,0.0.0.0/0,10.9.0.1",
        "--dhcp-option=option:domain-name,example.org",
        "--dhcp-option=option:domain-search,a.example.org,b.example.org",
    ];
    world.serve("server", &args);
    world.start();
    world.host.container("c1");
    let config = bridge(json!({
        "priority": 77,
        "provide": [{"option": "host-name", "fromArg": "K8S_POD_NAME"}, {"option": "60", "value": "loom"}],
        "request": [{"option": "42"}],
    }));
    let cni = world.cni("c1").set("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=web");
    let result = cni.add(&config);
    let wanted =
        json!([{"dst": "172.20.0.0/16", "gw": "10.9.0.7", "priority": 77}, {"dst": "0.0.0.0/0", "gw": "10.9.0.1", "priority": 77}]);
    assert_eq!(result["routes"], wanted, "{result}");
    assert_eq!(result["dns"], json!({"domain": "example.org", "search": ["a.example.org", "b.example.org"]}), "{result}");
    assert_eq!(world.host.json("c1", "ip -j route show default")[0]["metric"], 77);
    for told in ["vendor class: loom", "client provides name: web"] {
        assert!(world.told("server", told) > 0, "{told}:\n{}", world.log("server"));
    }
    assert!(world.log("server").lines().any(|line| line.contains("requested options") && line.contains("42:ntp-server")));
    cni.del(&config, &result);
    let skipped = bridge(json!({"request": [{"skipDefault": true}, {"option": "subnet-mask"}]}));
    let result = cni.add(&skipped);
    assert_eq!(result.get("routes"), None, "{result}");
}

#[test]
fn nobody_answers() {
    let mut world = World::empty();
    world.flags(&["-resendtimeout", "8s", "--timeout=1s"]);
    world.start();
    world.host.container("c1");
    let begun = Instant::now();
    let failed = world.cni("c1").call("ADD", "bridge", bridge(json!({})).to_string());
    assert_eq!(failed.error()["code"], 11, "{failed:?}");
    assert!(failed.message().contains("no more tries: no DHCP server answered"), "{failed:?}");
    assert!(begun.elapsed() < Duration::from_secs(300), "{:?}", begun.elapsed());
    assert!(world.host.link("c1", "eth0").is_none(), "a failed ADD leaves nothing");
    assert_eq!(world.host.list("/run/cni/dhcp.leases"), [".lock"]);
    // A caller that is killed is not waited for.
    let mut child = world.cni("c1").start("ADD", "bridge", bridge(json!({})).to_string());
    world.until_told("dhcp", "acquiring lease", 2);
    child.kill().unwrap();
    child.wait().unwrap();
    world.until_told("dhcp", "the caller is gone", 1);
}

#[test]
fn the_pool_is_empty() {
    let mut world = World::empty();
    world.flags(&["-resendtimeout", "8s"]);
    world.serve("server", &["--dhcp-range=10.9.0.10,10.9.0.10,255.255.255.0,1h"]);
    world.start();
    let first = world.attach("c1");
    assert_eq!(ips(&first), ["10.9.0.10"]);
    world.host.container("c2");
    let failed = world.cni("c2").call("ADD", "bridge", bridge(json!({})).to_string());
    assert!(failed.message().contains("has free addresses"), "{failed:?}");
    world.cni("c1").del(&bridge(json!({})), &first);
    assert_eq!(ips(&world.cni("c2").add(&bridge(json!({})))), ["10.9.0.10"]);
}

/// A station that the server knows nothing of has the address.
#[test]
fn a_conflict_is_declined() {
    let world = World::new();
    // What dnsmasq offers follows from the hardware address.
    let config = |ipam: Value| {
        let mut config = bridge(ipam);
        config["mac"] = json!("02:00:00:00:00:99");
        config
    };
    world.host.container("c1");
    let first = world.cni("c1").add(&config(json!({})));
    let address = ips(&first)[0].clone();
    world.cni("c1").del(&config(json!({})), &first);
    world.station("squatter");
    world.host.sh("squatter", &format!("ip addr add {address}/24 dev eth0"));
    // Who does not want to wait for an answer does not ask.
    let blind = world.cni("c1").add(&config(json!({"probe": 0})));
    assert_eq!((&ips(&blind)[0], world.told("server", "DHCPDECLINE")), (&address, 0));
    world.cni("c1").del(&config(json!({})), &blind);
    // However slow the squatter's kernel is.
    let second = world.cni("c1").add(&config(json!({"probe": 5000})));
    assert_ne!(ips(&second)[0], address, "{second}");
    world.until_told("server", &format!("DHCPDECLINE(eth0) {address}"), 1);
    assert_eq!(world.told("server", &format!("DHCPDECLINE(eth0) {address}")), 1, "{}", world.log("server"));
    assert!(world.host.pings("c1", "10.9.0.1"));
}

#[test]
fn answers_to_all() {
    let mut world = World::empty();
    world.flags(&["-broadcast"]);
    world.serve("server", &["--dhcp-range=10.9.0.10,10.9.0.200,255.255.255.0,1h"]);
    world.start();
    let before = world.used();
    let all = world.told("server", "broadcast response");
    let answers = world.told("server", "DHCPOFFER") + world.told("server", "DHCPACK");
    assert!(all >= 2 && all == answers, "each OFFER and each ACK: {}", world.log("server"));
    world.terminate();
    world.flags(&[]);
    world.start();
    world.used();
    assert_eq!(world.told("server", "broadcast response"), all, "{}", world.log("server"));
    world.expect(&before, "answers to all");
}

/// Whether a server gave an address away again because the second copy of a request came after its release: a machine that is busy
/// delivers what one processor has sent before what another one has. The copy has the number of the first; a renewal has its own.
fn overtaken(log: &str, address: &str) -> bool {
    let acks = log.lines().filter(|line| line.contains(&format!("DHCPACK(eth0) {address} ")));
    let numbers: Vec<u32> = acks.filter_map(|line| line.split_whitespace().nth(1)?.parse().ok()).collect();
    numbers.last().is_some_and(|last| numbers.iter().filter(|number| *number == last).count() > 1)
}

#[test]
fn a_hundred_at_once() {
    let mut world = World::new();
    let before = world.used();
    let names: Vec<String> = (0..100).map(|n| format!("c{n}")).collect();
    names.iter().for_each(|name| world.host.container(name));
    let all = |work: &(dyn Fn(&str) -> Value + Sync)| {
        std::thread::scope(|scope| {
            let threads: Vec<_> = names.iter().map(|name| scope.spawn(move || work(name))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect::<Vec<Value>>()
        })
    };
    let results = all(&|name| world.cni(name).add(&bridge(json!({}))));
    let mut addresses: Vec<String> = results.iter().map(|result| ips(result)[0].clone()).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 100, "nobody has another one's address");
    // Nothing of a container is open, and there is no thread for each.
    let id = world.daemon_id();
    let proc = |what: &str| std::fs::read_dir(format!("/proc/{id}/{what}")).unwrap().count();
    world.host.until("the callers' threads have ended", || proc("task") <= 12);
    assert!(proc("fd") < 12, "{}", proc("fd"));
    all(&|name| {
        world.cni(name).del(&bridge(json!({})), &Value::Null);
        Value::Null
    });
    for address in &addresses {
        let (released, first) = (format!("DHCPRELEASE(eth0) {address} "), format!("first/net/eth0: released: {address},"));
        let times = 1 + usize::from(world.log("dhcp").contains(&first));
        world.until_told("server", &released, times);
        assert_eq!(world.told("server", &released), times, "{address}");
    }
    names.iter().for_each(|name| drop(world.host.run("", &["ip", "netns", "del", name])));
    let left = |world: &World| -> Vec<String> {
        let (leases, log) = (world.host.run("", &["cat", "/run/server.leases"]), world.log("server"));
        let is_left = |address: &&String| leases.contains(&format!(" {address} ")) && !overtaken(&log, address);
        addresses.iter().filter(is_left).cloned().collect()
    };
    world.host.until("what is left was asked for once more", || left(&world).is_empty());
    // The second copy of a request may come at any time: from here on nobody answers it.
    world.stop("server");
    assert!(left(&world).is_empty(), "{:?}\n{}\n{}", left(&world), world.log("server"), world.log("dhcp"));
    world.host.sh("", "truncate --size 0 /run/server.leases");
    world.expect(&before, "a hundred leases");
}
