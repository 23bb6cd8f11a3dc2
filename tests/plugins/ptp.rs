//! `ptp`: the container, its host, and the world behind it.

use netloom_tests::{Host, at, attached_once, ips, peers_dir, plugin_dir, used};
use serde_json::{Value, json};

use crate::scene::config;

fn ptp(keys: Value) -> Value {
    let mut config = config("ptp", keys);
    if config.get("ipam").is_none() {
        let routes = json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]);
        config["ipam"] =
            json!({"type": "host-local", "routes": routes, "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]});
    }
    config
}

#[test]
fn packets_go_through_the_host() {
    let config = ptp(json!({"mtu": 1400}));
    let (host, before) = used(&config);
    let results = ["c1", "c2"].map(|c| at(&host, c).add(&config));
    let peer = ips(&results[1]);
    for address in [&peer[0], &peer[1], "10.1.0.1", "fd00:1::1"] {
        assert!(host.pings("c1", address), "{address}");
    }
    assert!(host.pings("", &peer[0]) && host.pings("", &peer[1]), "from the host");
    for address in &peer {
        assert!(host.tcp("c1", "c2", address), "TCP {address}");
        assert!(host.udp("c1", "c2", address), "UDP {address}");
    }
    let outer = results[0]["interfaces"][0]["name"].as_str().unwrap();
    for (container, link) in [("c1", "eth0"), ("", outer)] {
        assert_eq!(host.link(container, link).unwrap().mtu(), 1400, "{link}");
    }
    assert_eq!(host.addresses("", outer), ["10.1.0.1/32", "fd00:1::1/128"]);
    assert_eq!(host.run("", &["cat", &format!("/proc/sys/net/ipv6/conf/{outer}/accept_ra")]).trim(), "0");
    // Even the neighbour in one's own network is behind the host.
    let route = host.json("c1", &format!("ip -j route get {}", peer[0]));
    assert_eq!((&route[0]["gateway"], &route[0]["dev"]), (&json!("10.1.0.1"), &json!("eth0")));
    assert_eq!(results[0]["interfaces"][1]["sandbox"], "/run/netns/c1");
    assert!(results[0]["ips"].as_array().unwrap().iter().all(|ip| ip["interface"] == 1));
    for (c, result) in ["c1", "c2"].iter().zip(&results) {
        at(&host, c).del(&config, result);
    }
    host.expect_traces(&before, "two containers");
}

/// IPv6 works when ADD returns: nobody waits for duplicate address detection.
#[test]
fn the_first_packet_of_ipv6_does_not_wait() {
    let config = ptp(json!({}));
    let (host, before) = used(&config);
    // Both ends have the same index each time, and then the kernel takes its time unless it is asked. It joins the address's
    // multicast group in its own time too, so that on a busy machine one packet may be too early.
    let answered = |_: &i32| {
        let result = at(&host, "c1").add(&config);
        let one = host.try_run("", &["ping", "-c1", "-W1", "-n", &ips(&result)[1]]);
        at(&host, "c1").del(&config, &result);
        one.status.success()
    };
    let answers = (0..18).filter(answered).take(3).count();
    assert_eq!(answers, 3, "of 18 packets that were sent at once so many were answered");
    host.expect_traces(&before, "IPv6");
}

#[test]
fn hardware_addresses_are_as_asked_for() {
    let config = ptp(json!({"mac": "02:00:00:00:00:04", "runtimeConfig": {"mac": "02:00:00:00:00:01"}}));
    let (host, before) = used(&config);
    let result = at(&host, "c1").add(&config);
    assert_eq!(host.link("c1", "eth0").unwrap().mac(), "02:00:00:00:00:01");
    assert_eq!(result["interfaces"][1]["mac"], "02:00:00:00:00:01");
    at(&host, "c1").del(&config, &result);
    let config = ptp(json!({"macFromIP": true}));
    let result = at(&host, "c1").add(&config);
    assert!(result["interfaces"][1]["mac"].as_str().unwrap().starts_with("0a:58:0a:01:00:"), "{result}");
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "a MAC");
}

/// From outside a packet is the host's; the world has no route back to the containers.
#[test]
fn masquerade_as_seen_from_outside() {
    let (masked, plain) = (ptp(json!({"ipMasq": true})), ptp(json!({})));
    let (host, _) = used(&masked);
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
    let before = host.traces();
    let result = at(&host, "c1").add(&masked);
    let other = at(&host, "c2").add(&plain);
    assert!(host.pings("c1", "192.0.2.9") && host.pings("c1", "2001:db8::9"));
    assert!(host.silent("c2", "192.0.2.9"), "c2 asked for no masquerade");
    assert!(host.pings("c1", &ips(&other)[0]));
    let checked = at(&host, "c1").check(&masked, &result);
    assert_eq!(checked.code, 0, "{checked:?}");
    at(&host, "c1").del(&masked, &result);
    at(&host, "c2").del(&plain, &other);
    host.expect_traces(&before, "masquerade");
}

#[test]
fn del_with_little_and_del_again() {
    let config = ptp(json!({"ipMasq": true}));
    let (host, before) = used(&config);
    crate::scene::del_with_little_and_del_again(&host, &before, &config);
    let result = at(&host, "c2").add(&config);
    host.sh("", "ip netns del c2");
    at(&host, "c2").del(&config, &result);
    host.container("c2");
    host.expect_traces(&before, "DEL after the namespace went");
}

/// `ipMasq` was switched off between ADD and DEL.
#[test]
fn del_goes_by_what_add_did() {
    let config = ptp(json!({"ipMasq": true}));
    let (host, before) = used(&config);
    let result = at(&host, "c1").add(&config);
    at(&host, "c1").del(&ptp(json!({})), &result);
    host.expect_traces(&before, "ipMasq switched off");
}

/// The host has IPv6 off for interfaces that are made now; the pair's own is switched on.
#[test]
fn a_host_with_ipv6_off_for_new_interfaces() {
    let config = ptp(json!({}));
    let (host, _) = used(&config);
    host.sh("", "sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
    at(&host, "c1").add(&config);
    assert!(host.pings("c1", "fd00:1::1"));
    let mut bridge = config.clone();
    bridge["type"] = json!("bridge");
    bridge["isGateway"] = json!(true);
    bridge["name"] = json!("other");
    let outcome = host.cni(plugin_dir()).at("c2", "eth0").call("ADD", "bridge", bridge.to_string());
    assert_eq!(outcome.code, 0, "{outcome:?}");
}

/// What the reference plugin has attached is detached here, and the other way round.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn both_implementations_detach_each_others() {
    let config = ptp(json!({}));
    let (host, before) = used(&config);
    let theirs = host.cni(peers_dir()).at("c1", "eth0");
    for told in [true, false] {
        let prev = |result: Value| if told { result } else { Value::Null };
        let result = theirs.add(&config);
        at(&host, "c1").del(&config, &prev(result));
        host.expect_traces(&before, &format!("the reference plugin's ADD, our DEL, result told: {told}"));
        let result = at(&host, "c1").add(&config);
        theirs.del(&config, &prev(result));
        host.expect_traces(&before, &format!("our ADD, the reference plugin's DEL, result told: {told}"));
    }
    let result = theirs.add(&config);
    let checked = at(&host, "c1").check(&config, &result);
    assert_eq!(checked.code, 0, "{checked:?}");
}

/// One change to what ADD made, and what CHECK says of it.
#[test]
fn check_finds_what_changed() {
    let config = ptp(json!({"ipMasq": true, "mtu": 1400}));
    let changes = [
        ("c1", "ip link set eth0 address 02:00:00:00:00:01", "hardware address"),
        ("c1", "ip link set eth0 mtu 1300", "MTU is 1300, not 1400"),
        ("c1", "ip addr del 10.1.0.ADDR/24 dev eth0", "lost address"),
        ("c1", "ip -6 addr flush dev eth0 scope global", "lost address fd00:1::"),
        ("c1", "ip -4 route del default", "route to 0.0.0.0/0 is gone"),
        ("c1", "ip -4 route del 10.1.0.0/24", "route to 10.1.0.0/24 is gone"),
        ("c1", "ip -6 route del fd00:1::1", "route to fd00:1::1/128 is gone"),
        ("c1", "ip link set eth0 down", "is down"),
        ("c1", "ip link del eth0", "gone from the container"),
        ("", "ip link set VETH down", "is down"),
        ("", "ip addr del 10.1.0.1/32 dev VETH", "lost the gateway's address 10.1.0.1"),
        ("", "ip route del 10.1.0.ADDR", "route to 10.1.0."),
        ("", "sysctl -qw net.ipv4.ip_forward=0", "does not forward"),
        ("", "nft flush map inet netloom masquerade4", "the firewall entry for masquerading of 10.1.0."),
        ("", "rm /var/lib/cni/networks/net/10.1.0.ADDR", "10.1.0."),
    ];
    let (host, before) = used(&config);
    for (container, change, says) in changes {
        let result = at(&host, "c1").add(&config);
        let clean = at(&host, "c1").check(&config, &result);
        assert_eq!((clean.code, clean.stdout.as_str()), (0, ""), "{clean:?}");
        let last = ips(&result)[0].rsplit('.').next().unwrap().to_owned();
        let line = change.replace("ADDR", &last).replace("VETH", result["interfaces"][0]["name"].as_str().unwrap());
        host.sh(container, &line);
        let message = at(&host, "c1").check(&config, &result).message();
        assert!(message.contains(says), "{line}: {message}");
        at(&host, "c1").del(&config, &result);
        if change.starts_with("sysctl") {
            host.sh("", "sysctl -qw net.ipv4.ip_forward=1");
        }
        host.expect_traces(&before, &format!("DEL after {line}"));
    }
}

/// GC frees what belongs to no valid attachment, and nothing else.
#[test]
fn gc_frees_what_nobody_has() {
    let config = ptp(json!({"ipMasq": true}));
    let (host, before) = used(&config);
    let kept = at(&host, "c1").add(&config);
    let during = host.traces();
    at(&host, "c2").add(&config);
    let mut gc = config.clone();
    gc["cni.dev/valid-attachments"] = json!([{"containerID": "c1", "ifname": "eth0"}]);
    for _ in 0..2 {
        let done = at(&host, "").call("GC", "ptp", gc.to_string());
        assert_eq!(done.code, 0, "{done:?}");
        host.expect_traces(&during, "GC");
    }
    let checked = at(&host, "c1").check(&config, &kept);
    assert_eq!(checked.code, 0, "{checked:?}");
    at(&host, "c1").del(&config, &kept);
    host.expect_traces(&before, "all");
}

/// What is refused, or fails, leaves nothing, and says what to do.
#[test]
fn refusals_leave_nothing() {
    let (host, before) = used(&ptp(json!({})));
    let lonely = json!({"type": "static", "addresses": [{"address": "10.1.0.7/24"}]});
    let fixed = json!({"type": "static", "addresses": [{"address": "10.1.0.7/24", "gateway": "10.1.0.1"}]});
    for (keys, says) in [
        (json!({"ipam": {}}), "ptp interface requires an IPAM configuration"),
        (json!({"ipam": lonely}), "10.1.0.7/24 has no gateway"),
        (json!({"mtu": 10}), "between 68 and 65535"),
        (json!({"ipMasqBackend": "ipchains"}), "ipchains"),
        (json!({"mac": "01:00:00:00:00:01"}), "mac"),
    ] {
        let refused = at(&host, "c1").call("ADD", "ptp", ptp(keys.clone()).to_string());
        assert!(refused.message().contains(says), "{keys}: {refused:?}");
        host.expect_traces(&before, says);
    }
    // Two containers with one address: the host can route to one of them.
    let config = ptp(json!({"ipam": fixed}));
    let first = at(&host, "c1").add(&config);
    let during = host.traces();
    let second = at(&host, "c2").call("ADD", "ptp", config.to_string());
    assert!(second.message().contains("this host already has a route to that address"), "{second:?}");
    host.expect_traces(&during, "an address that is taken");
    assert!(host.pings("", "10.1.0.7"));
    at(&host, "c1").del(&config, &first);
    host.expect_traces(&before, "all");
}

#[test]
fn status_asks_the_ipam_plugin() {
    let host = Host::new();
    let status = |config: Value| host.cni(plugin_dir()).call("STATUS", "ptp", config.to_string());
    assert_eq!(status(ptp(json!({}))).code, 0);
    host.sh("", "mkdir /run/readonly");
    host.sh("", "mount -t tmpfs -o ro none /run/readonly");
    let ipam = json!({"type": "host-local", "subnet": "10.1.0.0/24", "dataDir": "/run/readonly"});
    assert_eq!(status(ptp(json!({"ipam": ipam}))).error()["code"], 50);
}

/// Whoever asks for it has what the container sends to the host held against the routes there; CHECK sees that somebody has taken that away.
#[test]
fn check_misses_the_check_of_reverse_paths() {
    let host = Host::new();
    host.container("c1");
    let config = json!({"cniVersion": "1.1.0", "name": "net", "type": "ptp", "strictReversePath": true,
        "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}});
    let before = attached_once(&host, &config);
    let result = at(&host, "c1").add(&config);
    assert_eq!(at(&host, "c1").check(&config, &result).code, 0);
    host.run("", &["nft", "flush set inet netloom reverse-links"]);
    let missed = at(&host, "c1").check(&config, &result);
    assert!(missed.code != 0 && missed.stdout.contains("the reverse path check of veth"), "{missed:?}");
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "all have gone");
}
