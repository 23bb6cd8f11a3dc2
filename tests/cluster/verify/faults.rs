//! Faults on a real cluster, one after the other, while its paths are watched: each is named at the node and the device where it is.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use testbed::Families;

use super::{Verified, text};

/// How long a change may take that comes in a second or two.
const PATIENCE: Duration = Duration::from_secs(120);
/// The cases that are watched: pods and nodes across nodes, the host outside, a Service of another node's pod.
const CASES: &str = "^(2|7|8|21)$";

/// One fault on node-1. Commands are the shell's, there.
struct Row {
    what: &'static str,
    modes: &'static [&'static str],
    /// Who would restore it stands still meanwhile: a pattern of its command line, which does not match the shell's that has it.
    halts: Option<&'static str>,
    breaks: &'static str,
    mends: &'static str,
    /// Fault, node, and device if it is one's.
    found: (&'static str, &'static str),
}

const DIRECT: &[&str] = &["direct"];
const VXLAN: &[&str] = &["vxlan"];
const BOTH: &[&str] = &["direct", "vxlan"];
const AGENT: Option<&str> = Some("[a]gent run");

/// Names in braces are the scene's.
const FAULTS: &[Row] = &[
    Row {
        what: "missing route",
        modes: BOTH,
        halts: AGENT,
        breaks: "ip route show {pods-2} > /run/route && ip route del {pods-2}",
        mends: "ip route add $(cat /run/route)",
        found: ("NoRoute", "node-1"),
    },
    Row {
        what: "route that refuses",
        modes: BOTH,
        halts: None,
        breaks: "ip route add blackhole {client-2}/32",
        mends: "ip route del blackhole {client-2}/32",
        found: ("RouteRefuses", "node-1"),
    },
    Row {
        what: "wrong neighbour",
        modes: BOTH,
        halts: None,
        breaks: "ip neigh replace {node-2} lladdr 02:00:00:00:00:99 dev eth0 nud permanent",
        mends: "ip neigh del {node-2} dev eth0",
        found: ("WrongNeighbour", "node-1 eth0"),
    },
    Row {
        what: "wrong neighbour of a pod",
        modes: BOTH,
        halts: AGENT,
        breaks: "ip neigh replace {client-1} lladdr 02:00:00:00:00:99 dev netloom0 nud permanent",
        mends: "ip neigh del {client-1} dev netloom0",
        found: ("WrongNeighbour", "node-1 netloom0"),
    },
    Row {
        what: "stale entry of the bridge",
        modes: BOTH,
        halts: None,
        breaks: "bridge fdb replace {mac} dev {other-port} master static sticky",
        mends: "bridge fdb del {mac} dev {other-port} master",
        found: ("StaleBridgeEntry", "node-1 netloom0"),
    },
    Row {
        what: "stale entry of the tunnel",
        modes: VXLAN,
        halts: AGENT,
        breaks: "bridge fdb replace {tunnel-mac-2} dev {tunnel} dst {nobody} self permanent",
        mends: "bridge fdb replace {tunnel-mac-2} dev {tunnel} dst {node-2} self permanent",
        found: ("TunnelEntryStale", "node-1 {tunnel}"),
    },
    Row {
        what: "missing entry of the tunnel",
        modes: VXLAN,
        halts: AGENT,
        breaks: "bridge fdb del {tunnel-mac-2} dev {tunnel} dst {node-2} self",
        mends: "bridge fdb add {tunnel-mac-2} dev {tunnel} dst {node-2} self permanent",
        found: ("TunnelEntryMissing", "node-1 {tunnel}"),
    },
    Row {
        what: "tunnel's port blocked",
        modes: VXLAN,
        halts: None,
        breaks: "nft 'table inet others { chain guard { type filter hook input priority 0; iifname eth0 udp dport {tunnel-port} counter drop; }; }'",
        mends: "nft delete table inet others",
        found: ("TunnelBlocked", "node-1 eth0"),
    },
    Row {
        what: "foreign table that drops",
        modes: BOTH,
        halts: None,
        breaks: "nft 'table inet others { chain pass { type filter hook forward priority 0; ip daddr { {client-1}, {client-2} } counter drop; }; }'",
        mends: "nft delete table inet others",
        found: ("ForeignRuleDrops", "node-1"),
    },
    Row {
        what: "foreign rule of a link",
        modes: BOTH,
        halts: None,
        breaks: "nft 'table netdev others { chain ingress { type filter hook ingress device {port} priority 0; ip saddr {client-1} drop; }; }'",
        mends: "nft delete table netdev others",
        found: ("ForeignRuleDrops", "node-1 {port}"),
    },
    Row {
        what: "locked port of the bridge",
        modes: BOTH,
        halts: None,
        breaks: "ip link set {port} type bridge_slave locked on; bridge fdb del {mac} dev {port} master || true",
        mends: "ip link set {port} type bridge_slave locked off",
        found: ("BridgePortRestricted", "node-1 {port}"),
    },
    Row {
        what: "blackhole by policy routing",
        modes: BOTH,
        halts: None,
        breaks: "ip rule add to {pods-2} lookup 77 pref 100 && ip route add blackhole default table 77",
        mends: "ip rule del pref 100 && ip route flush table 77",
        found: ("RouteRefuses", "node-1"),
    },
    Row {
        what: "forwarding off",
        modes: BOTH,
        halts: AGENT,
        breaks: "sysctl -qw net.ipv4.conf.netloom0.forwarding=0",
        mends: "sysctl -qw net.ipv4.conf.netloom0.forwarding=1",
        found: ("ForwardingOff", "node-1 netloom0"),
    },
    Row {
        what: "reverse path filter",
        modes: DIRECT,
        halts: AGENT,
        // The way back to the pod is by the bridge, but for what comes by the bridge.
        breaks: "ip route add {pods-2} via {node-2} table 200; ip rule add iif netloom0 table 200 priority 100; \
            ip route add {client-2}/32 dev netloom0; sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1",
        mends: "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0; ip route del {client-2}/32 dev netloom0; \
            ip rule del priority 100; ip route flush table 200",
        found: ("ReversePathFilter", "node-1 eth0"),
    },
    Row {
        what: "masquerade missing",
        modes: BOTH,
        halts: AGENT,
        breaks: "nft list chain inet netloom egress > /run/egress && nft flush chain inet netloom egress",
        mends: "nft -f /run/egress",
        found: ("MasqueradeMissing", "node-1"),
    },
    Row {
        what: "masquerade too wide",
        modes: BOTH,
        halts: None,
        breaks: "nft 'table ip others { chain post { type nat hook postrouting priority 90; ip daddr { {client-2}, {server-2} } masquerade; }; }'",
        mends: "nft delete table ip others",
        found: ("MasqueradeTooWide", "node-1"),
    },
    Row {
        what: "firewall of the node",
        modes: BOTH,
        halts: None,
        breaks: "nft 'table inet others { chain guard { type filter hook input priority 0; tcp dport 26767 counter drop; }; }'",
        mends: "nft delete table inet others",
        found: ("NodeFirewall", "node-1 eth0"),
    },
    Row {
        what: "duplicate address",
        modes: BOTH,
        halts: AGENT,
        breaks: "ip address add {client-1}/32 dev netloom0",
        mends: "ip address del {client-1}/32 dev netloom0",
        found: ("DuplicateAddress", "node-1 netloom0"),
    },
    Row {
        what: "link down",
        modes: BOTH,
        halts: AGENT,
        breaks: "ip link set {port} down",
        mends: "ip link set {port} up",
        found: ("LinkDown", "node-1 {port}"),
    },
    Row {
        what: "kube-proxy gone",
        modes: BOTH,
        halts: Some("[p]roxy --kubeconfig"),
        breaks: "nft list table ip kube-proxy > /run/kube-proxy && nft delete table ip kube-proxy",
        mends: "nft -f /run/kube-proxy",
        found: ("ServiceUnserved", "node-1"),
    },
    Row {
        what: "rules older than the endpoints",
        modes: DIRECT,
        halts: Some("[p]roxy --kubeconfig"),
        breaks: "nft list table ip kube-proxy > /run/kube-proxy && sed 's/dnat to {client-2}:/dnat to {nobody}:/; s/dnat to {server-2}:/dnat to {nobody}:/' \
            /run/kube-proxy > /run/stale && nft delete table ip kube-proxy && nft -f /run/stale",
        mends: "nft delete table ip kube-proxy; nft -f /run/kube-proxy",
        found: ("EndpointStale", "node-1"),
    },
];

/// Paths that are watched, and what is said of them.
pub(super) struct Watch {
    child: Child,
    lines: Receiver<Value>,
    /// How many are broken.
    broken: usize,
}

impl Watch {
    pub(super) fn begin(verified: &Verified, cases: &str, more: &[&str]) -> Self {
        let args = [&["--watch", "--test", cases, "--timeout", "2", "-o", "json"], more].concat();
        let mut child = verified.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (output, said) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (sender, lines) = channel();
        let (ready, begun) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}")));
            }
        });
        std::thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                println!("{line}");
                if line.contains("watching") {
                    let _ = ready.send(());
                }
            }
        });
        begun.recv_timeout(PATIENCE * 3).unwrap_or_else(|_| panic!("it does not watch: {}", verified.scene.why()));
        Watch { child, lines, broken: 0 }
    }

    fn next(&mut self, end: Instant) -> Option<Value> {
        let change = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())).ok()?;
        if change["state"] == "broken" {
            self.broken += 1
        } else {
            self.broken -= 1
        }
        Some(change)
    }

    /// What is said first of a path that breaks from then on, as fault and place with device, and its evidence. Of a fault before, a probe may
    /// still be waited for that was lost: its path is reported later, and is whole by then.
    pub(super) fn breaks(&mut self, since: &str) -> (String, String, Value) {
        let end = Instant::now() + PATIENCE;
        loop {
            let Some(change) = self.next(end) else { return ("nothing".to_owned(), String::new(), Value::Null) };
            if change["state"] == "broken" && change["time"].as_str().is_some_and(|time| time >= since) {
                let text = |key: &str| change[key].as_str().unwrap_or_default().to_owned();
                let at = format!("{} {}", text("place").trim_start_matches("node/"), text("device"));
                return (text("fault"), at.trim().to_owned(), change);
            }
        }
    }

    /// Until every path is whole.
    pub(super) fn heals(&mut self) -> bool {
        let end = Instant::now() + PATIENCE;
        while self.broken > 0 {
            if self.next(end).is_none() {
                return false;
            }
        }
        true
    }

    /// Ends as with Ctrl-C.
    pub(super) fn end(mut self) {
        let id = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

/// The time as a watch writes it: to a tenth of a second, and not rounded up.
pub(super) fn now() -> String {
    let output = std::process::Command::new("date").args(["-u", "+%FT%T.%1NZ"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// What the braces of commands stand for.
fn names(verified: &Verified) -> Vec<(String, String)> {
    let cluster = &verified.scene.cluster;
    let mut names = Vec::new();
    for number in [1, 2] {
        let node = cluster.node(&format!("node-{number}")).unwrap();
        names.push((format!("{{node-{number}}}"), node.address().to_owned()));
        names.push((format!("{{pods-{number}}}"), node.pods()[0].clone()));
        for role in ["client", "server"] {
            let name = format!("{role}-{number}");
            let address = verified.scene.kubectl(&["get", "pod", "-n", super::NAMESPACE, &name, "-o", "jsonpath={.status.podIP}"]);
            names.push((format!("{{{name}}}"), address));
        }
        let tunnels: Value = serde_json::from_str(&node.run(&["ip", "-j", "-d", "link", "show", "type", "vxlan"]).unwrap()).unwrap();
        for tunnel in tunnels.as_array().into_iter().flatten().filter(|link| link["ifname"].is_string()) {
            names.push((format!("{{tunnel-mac-{number}}}"), tunnel["address"].as_str().unwrap().to_owned()));
            names.push(("{tunnel}".to_owned(), tunnel["ifname"].as_str().unwrap().to_owned()));
            names.push(("{tunnel-port}".to_owned(), tunnel["linkinfo"]["info_data"]["port"].to_string()));
        }
    }
    let (net, _) = cluster.node("node-2").unwrap().address().rsplit_once('.').unwrap();
    names.push(("{nobody}".to_owned(), format!("{net}.77")));
    // The bridge's port to a pod, and that of another one.
    let node = cluster.node("node-1").unwrap();
    let of = |name: &str| names.iter().find(|(known, _)| known == name).unwrap().1.clone();
    let port = |address: &str| {
        let ask = format!("ip -j neigh show {address} dev netloom0 | sed 's/.*\"lladdr\":\"\\([^\"]*\\).*/\\1/'");
        let mac = node.run(&["sh", "-c", &ask]).unwrap().trim().to_owned();
        let entries: Value = serde_json::from_str(&node.run(&["bridge", "-j", "fdb", "show", "br", "netloom0"]).unwrap()).unwrap();
        let entry =
            entries.as_array().unwrap().iter().find(|entry| entry["mac"] == mac.as_str()).unwrap_or_else(|| panic!("{mac}: {entries}"));
        (mac, entry["ifname"].as_str().unwrap().to_owned())
    };
    let ((mac, own), (_, other)) = (port(&of("{client-1}")), port(&of("{server-1}")));
    names.extend([("{mac}".to_owned(), mac), ("{port}".to_owned(), own), ("{other-port}".to_owned(), other)]);
    names
}

fn named(text: &str, names: &[(String, String)]) -> String {
    names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// Breaks the cluster and mends it, for each fault; tells all that were not named as they should.
fn each_is_named(mode: &'static str, settings: &'static str) {
    let mut verified = Verified::new(&format!("verify-faults-{mode}"), Families::V4, settings);
    verified.scene.start_proxies("nftables");
    let mut watch = Watch::begin(&verified, CASES, &[]);
    let names = names(&verified);
    let mut wrong = Vec::new();
    let shell = |verified: &Verified, line: &str| {
        let output = verified.scene.cluster.node("node-1").unwrap().try_run(&["sh", "-ec", &named(line, &names)]).unwrap();
        assert!(output.status.success(), "{line}: {}", text(&output));
    };
    let mut judged = |watch: &mut Watch, since: &str, (what, expected): (&str, (&str, &str))| {
        let (fault, at, change) = watch.breaks(since);
        let (wanted, place) = (expected.0, named(expected.1, &names));
        println!("{mode}: {what} -> {fault} at {at}: {}", change["evidence"]);
        if fault != wanted || (at != place && !at.starts_with(&format!("{place} "))) {
            wrong.push(format!("{what}: {wanted} at {place} was expected, {fault} at {at} was found: {change}"));
        }
    };
    for row in FAULTS.iter().filter(|row| row.modes.contains(&mode)) {
        let halt = |signal: &str| row.halts.map(|program| format!("kill -{signal} $(pgrep -f '{program}')"));
        halt("STOP").iter().for_each(|line| shell(&verified, line));
        let since = now();
        shell(&verified, row.breaks);
        judged(&mut watch, &since, (row.what, row.found));
        shell(&verified, row.mends);
        halt("CONT").iter().for_each(|line| shell(&verified, line));
        assert!(watch.heals(), "{}: not mended", row.what);
        verified.scene.said(row.what);
    }
    // The agent is gone, and what it would have restored is as well.
    verified.scene.cluster.nodes_mut()[0].stop_agent().unwrap();
    let since = now();
    shell(&verified, "ip route del {pods-2}");
    judged(&mut watch, &since, ("agent gone", ("AgentGone", "node-1")));
    verified.scene.cluster.nodes_mut()[0].start_agent().unwrap();
    assert!(watch.heals(), "agent gone: not mended");
    watch.end();
    verified.nothing_is_left();
    // The node's own link is too small, and its tunnel with it: pods remember what routers say of that, so it is the last one.
    let mut watch = Watch::begin(&verified, "^network-3$", &[]);
    let since = now();
    shell(&verified, "ip link set eth0 mtu 1400");
    judged(&mut watch, &since, ("MTU", ("MtuExceeded", "node-1")));
    watch.end();
    verified.nothing_is_left();
    assert!(wrong.is_empty(), "{mode}: {} faults were not named rightly:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn each_is_named_with_routes() {
    each_is_named("direct", "between: direct");
}

#[test]
fn each_is_named_with_tunnels() {
    each_is_named("vxlan", "between: vxlan");
}
