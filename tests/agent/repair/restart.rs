//! The agent ends, dies, begins and is replaced: a packet notices nothing (CVE-2023-27595 was a firewall without rules meanwhile).

use crate::repair::agent::{node, published};
use crate::repair::streams::{Echo, Packets};

/// How many packets and bytes pass before the next thing happens.
const SOME: u64 = 200;

#[test]
fn no_packet_is_lost_and_none_passes_that_must_not() {
    let node = node("restarts", "reconcileEvery: 1h\nbinDir: /run/bin\ncniConfigDir: /run/net.d");
    node.restart();
    let (web, forger) = (published(&node, "web", 8080), published(&node, "forger", 9090));
    let (pod, bad) = (web.sandbox(), forger.sandbox());
    let host = &node.host;

    let inward = Packets::start(host, "through a host port", "outside", "192.0.2.1:8080", (&pod, "0.0.0.0:80"));
    let outward = Packets::start(host, "masqueraded", &pod, "192.0.2.2:5000", ("outside", "0.0.0.0:5000"));
    let echo = Echo::start(host, "outside", "192.0.2.1:8080", (&pod, "0.0.0.0:80"));
    // It knows the way, and sends from an address that is not its own.
    let gateway = host.json("", "ip -j link show br0")[0]["address"].as_str().unwrap().to_owned();
    let own = host.link(&bad, "eth0").unwrap().mac().to_owned();
    host.sh(&bad, "ip link set eth0 address 02:00:00:00:be:ef");
    host.sh(&bad, &format!("ip neigh replace 10.244.0.1 lladdr {gateway} dev eth0 nud permanent"));
    let forged = Packets::start(host, "forged", &bad, "192.0.2.2:6000", ("outside", "0.0.0.0:6000"));
    // A port that nobody has published.
    let closed = Packets::start(host, "to a port that is not published", "outside", "192.0.2.1:8081", (&bad, "0.0.0.0:81"));

    let some = || {
        let seen = echo.seen();
        node.until("traffic goes on", || echo.seen() > seen + SOME);
    };
    some();
    node.terminate();
    node.ended();
    some();
    node.restart();
    some();
    node.kill9();
    some();
    node.restart();
    some();
    let mut install = host.command("", netloom_tests::netloom());
    let config = netloom_tests::SETTINGS;
    install.args(["agent", "install", "--config", config, "--force", "--early", "--from"]).arg(node.bin.join("netloom-cni"));
    let installed = install.output().unwrap();
    assert!(installed.status.success(), "{installed:?}");
    node.restart();
    some();

    echo.expect_alive();
    inward.expect_all("192.0.2.2");
    outward.expect_all("192.0.2.1");
    forged.expect_none();
    closed.expect_none();
    host.sh(&bad, &format!("ip link set eth0 address {own}"));
    assert!(host.pings(&bad, "192.0.2.2"), "with its own address it gets there");
    [&web, &forger].iter().for_each(|pod| drop(pod.must("DEL")));
}
