//! Sixty and more wrong manifests: each mistake is found before anything is built, once, at its place. And manifests that are right, in
//! the ways that people write them: nothing is found.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use lab::manifest::{Examined, Purpose, examine};
use netloom_lab as lab;

/// Where the mistake is, in a text of this file.
const HERE: char = '«';

fn read(text: &str, purpose: Purpose) -> Examined {
    examine(&[PathBuf::from("-")], &mut text.as_bytes(), purpose)
}

/// Severity, line, column and text of everything that is found.
fn found(text: &str, purpose: Purpose) -> Vec<(&'static str, usize, usize, String)> {
    match read(text, purpose).manifests {
        Ok(manifests) => {
            let findings = manifests.findings.iter();
            findings.map(|f| (f.severity().as_str(), f.origin.line, f.origin.column, f.to_string())).collect()
        }
        Err(e) => e.errors.iter().map(|e| ("error", e.origin.line, e.origin.column, e.to_string())).collect(),
    }
}

/// A definition whose configuration is a block.
fn network(config: &str) -> String {
    named("net", config)
}

fn named(name: &str, config: &str) -> String {
    let lines: String = config.lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {{name: {name}}}\nspec:\n  config: |\n{lines}---\n"
    )
}

/// A plugin with keys, in a network of version 1.0.0.
fn plugin(kind: &str, keys: &str) -> String {
    network(&format!("{{\"cniVersion\": \"1.0.0\", \"type\": \"{kind}\",\n {keys}}}"))
}

/// A bridge with `ipam`.
fn with_ipam(ipam: &str) -> String {
    plugin("bridge", &format!("\"bridge\": \"br1\", \"ipam\": {{{ipam}}}"))
}

/// A plugin behind a bridge.
fn behind(keys: &str) -> String {
    network(&format!("{{\"cniVersion\": \"1.0.0\", \"plugins\": [\n {{\"type\": \"bridge\", \"bridge\": \"br1\"}},\n {{{keys}}}]}}"))
}

fn pod(name: &str, networks: &str) -> String {
    on(name, "", networks)
}

fn on(name: &str, node: &str, networks: &str) -> String {
    let spec = if node.is_empty() { String::new() } else { format!("spec: {{nodeName: {node}}}\n") };
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  annotations:\n    k8s.v1.cni.cncf.io/networks: '{networks}'\n{spec}---\n"
    )
}

fn nodes() -> String {
    ["n1", "n2"].map(|name| format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n---\n")).concat()
}

const HOST_LOCAL: &str = r#""ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}"#;

/// A bridge whose pods may ask for addresses, hardware addresses and ports.
fn open_bridge() -> String {
    network(&format!(
        r#"{{"cniVersion": "1.0.0", "plugins": [
 {{"type": "bridge", "bridge": "br1", "capabilities": {{"mac": true, "ips": true}}, {HOST_LOCAL}}},
 {{"type": "portmap", "capabilities": {{"portMappings": true}}}}]}}"#
    ))
}

fn macvlan(ipam: &str) -> String {
    plugin("macvlan", &format!("\"master\": \"eth0\", \"ipam\": {ipam}"))
}

fn published(name: &str, port: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  nodeName: n1\n  containers:\n  - ports:\n    - {{containerPort: 80, hostPort: {port}}}\n---\n"
    )
}

/// Manifests with one mistake in each, marked, and words of the message.
fn mistakes() -> Vec<(String, &'static str)> {
    let mut all = keys_and_types();
    all.extend(values());
    all.extend(addresses());
    all.extend(between_objects());
    all
}

fn keys_and_types() -> Vec<(String, &'static str)> {
    vec![
        (plugin("bridge", r#"«"brigde": "br1""#), "unknown key \"brigde\": bridge does not read it; did you mean \"bridge\"?"),
        (plugin("bridge", r#""bridge": "br1", «"isGatway": true"#), "did you mean \"isGateway\"?"),
        (plugin("macvlan", r#""master": "eth0", «"mod": "bridge""#), "did you mean \"mode\"?"),
        (plugin("bridge", r#""bridge": "br1", «"subnet": "10.0.0.0/24""#), "unknown key \"subnet\""),
        (plugin("bridge", &format!(r#"{HOST_LOCAL}, «"rangeStart": "10.1.0.9""#)), "put \"rangeStart\" below \"ipam\""),
        (with_ipam(r#""type": "host-local", "subnet": "10.0.0.0/24", «"rangestar": "10.0.0.9""#), "did you mean \"rangeStart\"?"),
        (
            with_ipam("\"type\": \"host-local\",\n \"ranges\": [[{\"subnet\": \"10.0.0.0/24\", «\"gatway\": \"10.0.0.1\"}]]"),
            "did you mean \"gateway\"?",
        ),
        (
            with_ipam(
                r#""type": "host-local", "subnet": "10.0.0.0/24", "routes": [{«"dest": "0.0.0.0/0", "dst": "1.0.0.0/8", "gw": "10.0.0.9"}]"#,
            ),
            "did you mean \"dst\"?",
        ),
        (with_ipam(r#""type": "static", "addresses": [{"address": "10.0.0.2/24", «"gw": "10.0.0.1"}]"#), "unknown key \"gw\""),
        (plugin("bridge", r#""bridge": "br1", "dns": {«"nameserver": ["10.0.0.1"]}"#), "did you mean \"nameservers\"?"),
        (network("{\"cniVersion\": \"1.0.0\", «\"plugin\": [],\n \"plugins\": [{\"type\": \"bridge\"}]}"), "did you mean \"plugins\"?"),
        (behind(r#""type": "tuning", «"sysctls": {"net.core.somaxconn": "1"}"#), "did you mean \"sysctl\"?"),
        (
            behind(r#""type": "portmap", "capabilities": {«"portMapping": true}"#),
            "portmap has no capability \"portMapping\"; did you mean \"portMappings\"?",
        ),
        (
            network("{\"cniVersion\": \"1.0.0\", \"type\": «\"brigde\", \"mac\": \"02:00:00:00:00:01\"}"),
            "no plugin \"brigde\" is built in; did you mean \"bridge\"?",
        ),
        (with_ipam(r#""type": «"host-locl", "subnet": "10.0.0.0/24""#), "did you mean \"host-local\"?"),
        (with_ipam(r#""type": «"bridge""#), "bridge assigns no addresses"),
        (
            network("{\"cniVersion\": \"1.0.0\", \"type\": «\"host-local\", \"ipam\": {\"subnet\": \"10.0.0.0/24\"}}"),
            "host-local only assigns addresses",
        ),
        (network("{\"cniVersion\": «\"1.7.0\", \"type\": \"bridge\"}"), "1.7.0"),
        (
            network("{\"cniVersion\": \"1.0.0\", \"plugins\": [\n {\"type\": \"bridge\"},\n {\"type\": «\"../tuning\"}]}"),
            "invalid plugin type",
        ),
        (network("{\"cniVersion\": \"1.0.0\", \"type\": \"bridge\",\n «}"), "not valid JSON"),
        (network("{\"type\": «\"sriov\", \"name\": \"x\"}"), "nothing gives pods a device for sriov"),
    ]
}

fn values() -> Vec<(String, &'static str)> {
    vec![
        (
            plugin("bridge", r#""bridge": «"a-name-too-long-x""#),
            "interface name \"a-name-too-long-x\" is too long: 17 bytes, the kernel allows 15",
        ),
        (plugin("bridge", r#""bridge": «"br/1""#), "contains / or :"),
        (plugin("bridge", r#""bridge": "br1", "isGateway": «"true""#), "isGateway: expected a boolean, found a string"),
        (plugin("bridge", r#""bridge": "br1", "mtu": «65536"#), "mtu: 65536 is not between 68 and 65535"),
        (plugin("bridge", r#""bridge": "br1", "mtu": «"1500""#), "mtu: expected a whole number"),
        (plugin("bridge", r#""bridge": "br1", "vlan": «4095"#), "invalid VLAN ID 4095"),
        (plugin("bridge", r#""bridge": "br1", "vlanTrunk": [«{"minID": 9, "maxID": 3}]"#), "minID is greater than maxID"),
        (plugin("bridge", r#""bridge": "br1", "vlanTrunk": [{"id": 5}, «{"minID": 7}]"#), "maxID is missing"),
        (plugin("bridge", r#""hairpinMode": true, "promiscMode": «true"#), "cannot set hairpin mode and promiscuous mode"),
        (plugin("bridge", &format!(r#""disableContainerInterface": true, {}"#, HOST_LOCAL.replace('{', "«{"))), "cannot use IPAM"),
        (plugin("bridge", r#""bridge": «"bridge-of-rack7", "vlan": 100, "isGateway": true"#), "is longer than 15 bytes"),
        (plugin("bridge", r#""ipMasq": true, "ipMasqBackend": «"ipfw""#), "unknown ipmasq backend \"ipfw\""),
        (plugin("bridge", r#""mac": «"02:00:00:00:00""#), "mac: "),
        (plugin("bridge", r#""mac": «"03:00:00:00:00:01""#), "is not a valid hardware address"),
        (plugin("bridge", r#""bridge": "br1", "ipam": «"host-local""#), "ipam: expected an object"),
        (plugin("macvlan", r#""master": "eth0", "mode": «"bridged""#), "bridged"),
        (plugin("macvlan", r#""master": "eth0", "mtu": «9000"#), "invalid MTU 9000, must be [0, master MTU(1500)]"),
        (plugin("macvlan", r#""master": «"eth0 ", "mode": "bridge""#), "master: "),
        (plugin("macvlan", r#""master": "eth0", "bcqueuelen": «200000"#), "bcqueuelen: 200000 is not between 0 and 100000"),
        (plugin("ipvlan", &format!(r#""master": "eth0", "mode": «"l4", {HOST_LOCAL}"#)), "l4"),
        (
            network("«{\"cniVersion\": \"1.0.0\", \"type\": \"ipvlan\", \"master\": \"eth0\"}"),
            "ipvlan interface requires an IPAM configuration",
        ),
        (
            network(&format!("«{{\"cniVersion\": \"1.0.0\", \"type\": \"vlan\", \"vlanId\": 5, {HOST_LOCAL}}}")),
            "\"master\" field is required",
        ),
        (plugin("vlan", &format!(r#""master": "eth0", "vlanId": «5000, {HOST_LOCAL}"#)), "invalid VLAN ID 5000"),
        (network("{\"cniVersion\": \"1.0.0\", \"type\": «\"tuning\", \"mtu\": 1400}"), "Required prevResult missing"),
        (behind(r#""type": "tuning", "mtu": «-1"#), "mtu: -1 is not a positive number"),
        (behind("\"type\": \"tuning\", \"sysctl\": {\n  \"kernel.shmmax\": «\"1\"}"), "invalid net sysctl key"),
        (network("{\"cniVersion\": \"1.0.0\", \"type\": «\"portmap\"}"), "must be called as chained plugin"),
        (behind(r#""type": "portmap", "backend": «"ebpf""#), "unrecognized backend \"ebpf\""),
        (behind(r#""type": "portmap", "markMasqBit": «40"#), "MasqMarkBit must be between 0 and 31"),
        (behind(r#""type": "firewall", "ingressPolicy": «"closed""#), "unknown ingress policy: \"closed\""),
        (behind(r#""type": "firewall", "backend": «"pf""#), "unrecognized firewall backend \"pf\""),
        (
            network(r#"{"plugins": [{"type": "bridge"}, «{"type": "bandwidth", "ingressRate": 8000}]}"#),
            "if rate is set, burst must also be set",
        ),
        (behind(r#""type": "bandwidth", "ingressRate": 8000, "ingressBurst": «4"#), "4 bits are less than a byte"),
        (behind(r#""type": "sbr", "gateways": ["10.0.0.1", «"10.0.0.2"]"#), "a second one of this family"),
        (
            network(r#"{"cniVersion": "1.0.0", "plugins": [{"type": "bridge"}, «{"type": "vrf", "table": 5}]}"#),
            "expected to have a valid vrf name",
        ),
        (network(r#"{"cniVersion": "1.0.0", "type": «"host-device", "device": "ens5"}"#), "the nodes of a lab have no device to lend"),
    ]
}

fn addresses() -> Vec<(String, &'static str)> {
    vec![
        (with_ipam(r#""type": "host-local", "subnet": «"10.0.0.0/33""#), "ipam.subnet: \"10.0.0.0/33\" is not a network"),
        (
            with_ipam("\"type\": \"host-local\", \"ranges\": [\n [{\"subnet\": «\"10.0.0.5/24\"}]]"),
            "has host bits set: the network is 10.0.0.0/24",
        ),
        (with_ipam(r#""type": "host-local", "subnet": «"10.0.0.0/31""#), "too small to allocate from"),
        (with_ipam(r#""type": "host-local", "subnet": "10.0.0.0/24", "rangeStart": «"10.0.1.9""#), "10.0.1.9 is not in the subnet"),
        (
            with_ipam(
                r#""type": "host-local", "ranges": [[«{"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.3"}]]"#,
            ),
            "before it starts",
        ),
        (
            with_ipam(r#""type": "host-local", "ranges": [[{"subnet": "10.0.0.0/24"}, {"subnet": «"fd00::/64"}]]"#),
            "not of the same address family",
        ),
        (with_ipam(r#""type": "host-local", "ranges": [[{"subnet": "10.0.0.0/24"}], [«{"subnet": "10.0.0.0/25"}]]"#), "overlaps"),
        (plugin("bridge", "\"bridge\": \"br1\", \"ipam\": «{\"type\": \"host-local\"}"), "no IP ranges specified"),
        (
            with_ipam(r#""type": "host-local", "subnet": "10.0.0.0/24", "routes": [{"dst": «"default"}]"#),
            "ipam.routes[0].dst: \"default\" is not a network",
        ),
        (
            with_ipam(r#""type": "host-local", "subnet": "10.0.0.0/24", "routes": [{"dst": "0.0.0.0/0", "gw": «"fd00::1"}]"#),
            "not of the same address family",
        ),
        (
            with_ipam(r#""type": "host-local", "subnet": "10.0.0.0/24", "gateway": «"10.9.0.1", "routes": [{"dst": "0.0.0.0/0"}]"#),
            "gateway 10.9.0.1 is outside of its network 10.0.0.0/24",
        ),
        (with_ipam(r#""type": "static", "addresses": [{"address": «"10.0.0.2"}]"#), "expected to be in CIDR notation"),
        (plugin("bridge", "\"bridge\": \"br1\", \"ipam\": «{\"type\": \"static\"}"), "static returned no address"),
        (
            with_ipam(
                r#""type": "static", "addresses": [{"address": "10.0.0.2/24", "gateway": «"10.0.1.1"}], "routes": [{"dst": "0.0.0.0/0"}]"#,
            ),
            "outside of its network",
        ),
        (with_ipam(r#""type": "whereabouts", "range": «"10.0.0.0/40""#), "ipam.range"),
        (with_ipam(r#""type": "pool", "families": ["ipv4", «"ipv5"]"#), "\"ipv5\" is unknown"),
        (plugin("bridge", r#""bridge": "br1", "ipam": «{"subnet": "10.0.0.0/24"}"#), "ipam.type: missing"),
        (with_ipam(r#""type": "dhcp", "ipv6": «"yes""#), "ipam.ipv6: expected true, false or \"only\""),
    ]
}

fn between_objects() -> Vec<(String, &'static str)> {
    let two = |networks: &str| format!("{}{}", pod("a", &networks.replace(HERE, "")), pod("b", networks));
    let on_two = |networks: &str| format!("{}{}{}", nodes(), on("a", "n1", &networks.replace(HERE, "")), on("b", "n2", networks));
    vec![
        (open_bridge() + &two(r#"[{"name": "net", "ips": [«"10.1.0.7"]}]"#), "10.1.0.7 is requested by pod default/a as well"),
        (open_bridge() + &two(r#"[{"name": "net", "mac": «"02:00:00:00:00:07"}]"#), "02:00:00:00:00:07 is requested by pod default/a"),
        (
            open_bridge() + &two(r#"[{"name": "net", "portMappings": [{"hostPort": «8080, "containerPort": 80}]}]"#),
            "host port 8080/tcp of node node-1 is published by pod default/a",
        ),
        (published("a", "443") + &published("b", "«443"), "host port 443/tcp of node n1 is published by pod default/a as well"),
        (open_bridge() + &pod("a", r#"[{"name": "net", "ips": «["10.2.0.7"]}]"#), "10.2.0.7 is outside of the ranges"),
        (open_bridge() + &pod("a", r#"[{"name": "net", "ips": «["10.1.0.1"]}]"#), "it is the gateway of 10.1.0.0/24"),
        (
            macvlan(r#"{"type": «"host-local", "subnet": "10.1.0.0/24"}"#) + &on_two("net"),
            "host-local assigns addresses on each node by itself: pods on n1 and n2 get the same ones",
        ),
        (
            macvlan(r#"{"type": "static", "addresses": [{"address": "10.1.0.5/24"}]}"#) + &two("«net"),
            "gives 10.1.0.5/24 to every pod that selects it",
        ),
        (open_bridge() + &pod("a", "«nett"), "there is no NetworkAttachmentDefinition default/nett: did you mean \"default/net\"?"),
        (open_bridge() + &pod("a", r#"[{"name": "net", "bandwidth": «{"ingressRate": 8000}}]"#), "has the capability \"bandwidth\""),
        (open_bridge() + &pod("a", r#"[{"name": "net", «"ip": "10.1.0.9"}]"#), "unknown key: did you mean \"ips\"?"),
        (open_bridge() + &pod("a", r#"[{"name": "net", "interface": «"eth0"}]"#), "eth0 is taken by another interface of the pod"),
        (open_bridge() + &pod("a", "«net@lo"), "lo is taken by another interface of the pod"),
        (
            open_bridge()
                + &named(
                    "other",
                    r#"{"cniVersion": "1.0.0", "type": "bridge", "bridge": "br1", "ipam": {"type": "host-local", "subnet": «"10.1.0.0/25"}}"#,
                ),
            "overlaps the range of default/net on the same wire (bridge br1)",
        ),
        (
            plugin("macvlan", &format!(r#""master": "br9", "mtu": «9000, {HOST_LOCAL}"#))
                + &named("wide", r#"{"cniVersion": "1.0.0", "type": "bridge", "bridge": "br9", "mtu": 4000}"#),
            "master MTU(4000)",
        ),
    ]
}

/// The text without the mark, and the line and column that it marks.
fn unmarked(text: &str) -> (String, usize, usize) {
    let at = text.find(HERE).unwrap_or_else(|| panic!("no mark in\n{text}"));
    let before = &text[..at];
    let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
    (text.replace(HERE, ""), before.matches('\n').count() + 1, column)
}

#[test]
fn every_mistake_is_found_once_at_its_place() {
    let all = mistakes();
    assert!(all.len() >= 60, "{}", all.len());
    let mut wrong = Vec::new();
    for (marked, words) in all {
        let (text, line, column) = unmarked(&marked);
        let found = found(&text, Purpose::Lab);
        let is_right = matches!(found.as_slice(), [(severity, l, c, message)]
            if (*l, *c) == (line, column) && message.contains(words) && (*severity == "error" || words.starts_with("unknown key \"")));
        if !is_right {
            wrong.push(format!("{text}\nexpected {line}:{column} {words}\nfound {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{} are not found as they should be:\n{}", wrong.len(), wrong.join("\n=====\n"));
}

/// The same in the ways of writing that a file may have: on one line in quotes, and as `kubectl get -o json` prints it.
#[test]
fn a_place_is_found_however_the_network_is_written() {
    let config = r#"{"cniVersion": "1.0.0", "type": "bridge", "bridge": "a-name-too-long-x"}"#;
    let head = "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: a}\nspec:\n  config: ";
    let at = config.find("\"a-name").unwrap();
    let escaped = config.replace('"', "\\\"");
    let escaped_at = escaped.find("\\\"a-name").unwrap();
    for (text, line, column) in [
        (format!("{head}'{config}'\n"), 5, 11 + 1 + at),
        (format!("{head}\"{escaped}\"\n"), 5, 11 + 1 + escaped_at),
        (format!("{head}|-\n\n      {config}\n"), 7, 7 + at),
        (format!("# first\n---\n{head}|\n      {{\n        \"type\": \"bridge\", \"bridge\": \"a-name-too-long-x\" }}\n"), 9, 37),
    ] {
        let found = found(&text, Purpose::Cluster);
        assert_eq!(found.iter().map(|f| (f.1, f.2)).collect::<Vec<_>>(), [(line, column)], "{text}\n{found:#?}");
    }
}

#[test]
fn several_mistakes_of_one_network_are_all_found() {
    let text = plugin("bridge", r#""bridge": "a-name-too-long-x", "mtu": 99999, "vlan": 5000, "isGatway": true"#);
    let messages: Vec<String> = found(&text, Purpose::Cluster).into_iter().map(|(.., message)| message).collect();
    for part in ["isGatway", "a-name-too-long-x", "99999", "5000"] {
        assert_eq!(messages.iter().filter(|message| message.contains(part)).count(), 1, "{part}: {messages:#?}");
    }
    assert_eq!(messages.len(), 4, "{messages:#?}");
}

/// The bridge has its gateway's address with `isGateway` alone: without it, a route may lead nowhere.
#[test]
fn a_route_over_a_gateway_that_the_bridge_does_not_have_is_found() {
    let routed = |more: &str, gateway: &str| {
        plugin(
            "bridge",
            &format!(
                r#""bridge": "br1"{more}, "ipam": {{"type": "host-local", "subnet": "10.0.0.0/24"{gateway}, "routes": [{{"dst": "0.0.0.0/0"}}]}}"#
            ),
        )
    };
    let said = |text: &str| found(text, Purpose::Cluster).into_iter().map(|found| (found.0.to_owned(), found.3)).collect::<Vec<_>>();
    for (text, severity, words) in [
        (routed("", ""), "warning", "which nobody has without \"isGateway\""),
        (routed("", r#", "gateway": "10.0.0.9""#), "note", "10.0.0.9, which the bridge does not have without \"isGateway\""),
    ] {
        let found = said(&text);
        assert!(matches!(found.as_slice(), [(own, message)] if own == severity && message.contains(words)), "{text}\n{found:#?}");
    }
    for right in [r#", "isGateway": true"#, r#", "isDefaultGateway": true"#] {
        assert_eq!(said(&routed(right, "")), [], "{right}");
    }
}

/// What is no mistake, in the ways in which the documents of Multus, whereabouts and the reference plugins show it.
fn right() -> Vec<String> {
    let single = |config: &str| network(config);
    vec![
        single(
            r#"{"cniVersion": "0.3.0", "type": "macvlan", "master": "eth0", "mode": "bridge", "ipam": {"type": "host-local", "subnet": "192.168.1.0/24",
    "rangeStart": "192.168.1.200", "rangeEnd": "192.168.1.216", "routes": [{"dst": "0.0.0.0/0"}], "gateway": "192.168.1.1"}}"#,
        ) + &pod("a", "net")
            + &pod("b", "net"),
        single(
            r#"{"cniVersion": "0.3.1", "plugins": [{"type": "macvlan", "capabilities": {"ips": true}, "master": "eth0", "mode": "bridge",
    "ipam": {"type": "static", "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.1.1"}]}}, {"capabilities": {"mac": true}, "type": "tuning"}]}"#,
        ) + &pod("a", r#"[{"name": "net", "ips": ["10.1.1.101/24"], "mac": "c2:b0:57:49:47:f1"}]"#),
        single(
            r#"{"cniVersion": "0.3.1", "type": "macvlan", "master": "eth1", "ipam": {"type": "whereabouts", "range": "192.168.2.225/28",
    "exclude": ["192.168.2.229/30", "192.168.2.236/32"], "log_file": "/tmp/whereabouts.log", "log_level": "debug"}}"#,
        ),
        single(
            r#"{"cniVersion": "0.3.0", "type": "macvlan", "master": "eth0", "ipam": {"type": "whereabouts", "ipRanges": [{"range": "192.168.10.0/24"}, {"range": "abcd::/64"}]}}"#,
        ),
        single(
            r#"{"cniVersion": "1.0.0", "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true, "ipam": {"type": "host-local",
 "ranges": [[{"subnet": "10.22.0.0/16"}], [{"subnet": "3ffe:ffff:0:1ff::/64", "rangeStart": "3ffe:ffff:0:1ff::10"}]],
 "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}], "dataDir": "/run/my-orchestrator/container-ipam-state"}}"#,
        ),
        single(
            r#"{"cniVersion": "0.4.0", "name": "dbnet", "plugins": [{"type": "bridge", "bridge": "cni0",
 "ipam": {"type": "host-local", "subnet": "10.1.0.0/16", "gateway": "10.1.0.1"}, "dns": {"nameservers": ["10.1.0.1"]}},
 {"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}, "capabilities": {"mac": true}}]}"#,
        ),
        single(
            r#"{"cniVersion": "1.0.0", "plugins": [{"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "subnet": "172.16.30.0/24",
    "routes": [{"dst": "0.0.0.0/0"}]}}, {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true, "conditionsV4": ["!", "-d", "192.0.2.0/24"]}]}"#,
        ),
        single(
            r#"{"cniVersion": "0.3.1", "plugins": [{"type": "ptp", "ipam": {"type": "host-local", "subnet": "203.0.113.0/24"}}, {"type": "bandwidth",
    "ingressRate": 123, "ingressBurst": 456, "egressRate": 123, "egressBurst": 456}]}"#,
        ),
        single(
            r#"{"cniVersion": "0.3.1", "plugins": [{"type": "ptp", "ipam": {"type": "host-local", "subnet": "203.0.113.0/24"}}, {"type": "bandwidth", "capabilities": {"bandwidth": true}}]}"#,
        ) + &pod(
            "a",
            r#"[{"name": "net", "bandwidth": {"ingressRate": 2048, "ingressBurst": 1600, "egressRate": 4096, "egressBurst": 1600}}]"#,
        ),
        single(r#"{"cniVersion": "1.0.0", "type": "host-device", "device": "enp0s1"}"#),
        single(r#"{"cniVersion": "1.0.0", "type": "host-device", "capabilities": {"deviceID": true}}"#),
        single(r#"{"cniVersion": "1.0.0", "type": "ipvlan", "master": "eth0", "mode": "l3", "ipam": {"type": "dhcp"}}"#),
        single(
            r#"{"cniVersion": "1.0.0", "type": "macvlan", "ipam": {"type": "dhcp", "daemonSocketPath": "/run/cni/dhcp.sock",
    "request": [{"skipDefault": false}, {"option": "121"}], "provide": [{"option": "host-name", "fromArg": "K8S_POD_NAME"}]}}"#,
        ),
        single(
            r#"{"cniVersion": "1.0.0", "type": "vlan", "master": "eth0", "mtu": 1500, "vlanId": 5, "linkInContainer": false, "ipam": {"type": "host-local", "subnet": "10.1.1.0/24"}}"#,
        ),
        single(
            r#"{"cniVersion": "0.4.0", "plugins": [{"type": "bridge", "bridge": "b", "ipam": {"type": "host-local", "subnet": "10.88.0.0/16"}},
    {"type": "firewall", "backend": "iptables", "ingressPolicy": "same-bridge"}, {"type": "sbr"}, {"type": "vrf", "vrfname": "blue"}]}"#,
        ),
        single(r#"{"type": "flannel", "cniVersion": "1.0.0", "delegate": {"hairpinMode": true, "isDefaultGateway": true}}"#),
        single(
            r#"{"cniVersion": "1.0.0", "type": "calico", "log_level": "info", "ipam": {"type": "calico-ipam"}, "policy": {"type": "k8s"}}"#,
        ),
        // Each key that the reference plugins' pages name, in the forms in which they show it.
        single(
            r#"{"cniVersion": "0.3.1", "type": "bridge", "bridge": "own0", "isDefaultGateway": true, "forceAddress": false, "ipMasq": true, "hairpinMode": true,
    "promiscMode": false, "enabledad": true, "mtu": 1400, "macspoofchk": true, "ipam": {"type": "host-local", "subnet": "10.20.0.0/16"}}"#,
        ),
        single(r#"{"cniVersion": "0.3.1", "type": "bridge", "bridge": "own0", "vlan": 7, "ipam": {}}"#),
        single(
            r#"{"cniVersion": "1.0.0", "type": "bridge", "bridge": "own0", "vlanTrunk": [{"id": 42}, {"minID": 100, "maxID": 200}], "preserveDefaultVlan": false, "ipam": {}}"#,
        ),
        single(
            r#"{"cniVersion": "0.3.1", "type": "macvlan", "master": "eth3", "mode": "bridge", "ipam": {"type": "host-local", "ranges": [[
    {"subnet": "10.30.0.0/16", "rangeStart": "10.30.1.20", "rangeEnd": "10.30.3.50", "gateway": "10.30.0.254"}, {"subnet": "172.20.5.0/24"}],
    [{"subnet": "fd00:30:0:01ff::/64", "rangeStart": "fd00:30:0:01ff::0010", "rangeEnd": "fd00:30:0:01ff::0020"}]],
    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "192.168.0.0/16", "gw": "10.30.5.1"}, {"dst": "fd00:30:0:01ff::1/64"}],
    "resolvConf": "/etc/resolv.conf", "dataDir": "/run/own/state"}}"#,
        ),
        behind(r#""type": "tuning", "sysctl": {"net.core.somaxconn": "300", "net.ipv4.conf.IFNAME.arp_filter": "1"}"#),
        behind(r#""type": "tuning", "mac": "c2:b0:57:49:47:f2", "mtu": 1404, "promisc": true, "allmulti": true"#),
        behind(r#""type": "firewall", "backend": "firewalld", "firewalldZone": "trusted""#),
        behind(r#""type": "firewall", "backend": "iptables", "iptablesAdminChainName": "OWN-RULES""#),
        behind(
            r#""type": "portmap", "capabilities": {"portMappings": true}, "snat": true, "masqAll": false, "markMasqBit": 13, "conditionsV6": ["!", "-d", "fc00::/7"]"#,
        ),
        behind(r#""type": "sbr", "table": 1000"#),
        behind(r#""type": "vrf", "vrfname": "red", "table": 10"#),
        single(
            r#"{"cniVersion": "0.3.1", "type": "tap", "mac": "02:11:22:33:44:55", "mtu": 1400, "selinuxContext": "system_u:system_r:container_t:s0",
    "multiQueue": true, "owner": 0, "group": 0}"#,
        ),
        single(r#"{"cniVersion": "0.3.0", "plugins": [{"type": "flannel"}, {"type": "sbr"}]}"#),
        single(
            r#"{"cniVersion": "1.0.0", "type": "dummy", "ipam": {"type": "static", "addresses": [{"address": "10.31.0.2/24", "gateway": "10.31.0.1"},
    {"address": "fd00:31::2/64"}], "routes": [{"dst": "10.32.0.0/16", "gw": "10.31.0.254"}], "dns": {"nameservers": ["10.31.0.53"], "domain": "own", "search": ["own"], "options": ["ndots:2"]}}}"#,
        ),
        single(
            r#"{"cniVersion": "1.0.0", "type": "vlan", "master": "eth3", "vlanId": 9, "ipam": {"type": "host-local", "subnet": "10.33.0.0/24"}, "dns": {"nameservers": ["10.33.0.53", "8.8.8.8"]}}"#,
        ),
        single(r#"{"cniVersion": "0.3.1", "type": "host-device", "hwaddr": "02:11:22:33:44:55"}"#),
        single(r#"{"cniVersion": "0.3.1", "type": "host-device", "pciBusID": "0000:3d:00.1"}"#),
        // Pods as Multus's pages select networks: of another namespace, with an interface's name, twice, as JSON over several lines.
        named(
            "first",
            r#"{"cniVersion": "0.3.0", "type": "macvlan", "master": "eth3", "mode": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.34.0.0/16"}]]}}"#,
        ) + &named(
            "second",
            r#"{"cniVersion": "0.3.0", "type": "macvlan", "master": "eth3", "mode": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.35.0.0/16"}]]}}"#,
        ) + &named(
                "third",
                r#"{"cniVersion": "0.3.0", "type": "macvlan", "master": "eth3", "mode": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.36.0.0/16"}]]}}"#,
            )
            .replace("{name: third}", "{name: third, namespace: elsewhere}")
            + &pod("a", "first, second")
            + &pod("b", "first@own1")
            + &pod("c", "first,first")
            + &pod("d", "[\n      { \"name\" : \"first\",\n        \"interface\": \"own1\" },\n      { \"name\" : \"second\" }\n    ]")
            + &pod("e", r#"[{"name": "first", "default-route": ["10.34.0.1"]}]"#)
            + &pod("f", r#"[{"name": "third", "namespace": "elsewhere"}]"#),
        // Another plugin's name, near to one of ours.
        single(r#"{"cniVersion": "1.0.0", "type": "macvtap", "master": "eth0"}"#),
        // Two halves of a network on one bridge, and one network by two names.
        open_bridge().replace(HOST_LOCAL, r#""ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeEnd": "10.1.0.127"}"#)
            + &named(
                "other",
                r#"{"cniVersion": "1.0.0", "type": "bridge", "bridge": "br1", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.128"}}"#,
            ),
        named(
            "one",
            r#"{"cniVersion": "1.0.0", "name": "same", "type": "bridge", "bridge": "br1", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}"#,
        ) + &named(
            "two",
            r#"{"cniVersion": "1.0.0", "name": "same", "type": "bridge", "bridge": "br1", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}"#,
        ),
        // A definition without a configuration: the node's own network of that name.
        "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: on-disk}\n".to_owned(),
        pod("alone", "somewhere/else, more@net7"),
        open_bridge()
            + &nodes()
            + &on("a", "n1", r#"[{"name": "net", "ips": ["10.1.0.7"]}]"#)
            + &on("b", "n2", r#"[{"name": "net", "ips": ["10.1.0.7"]}]"#),
        published("a", "443") + &published("b", "443").replace("n1", "n2"),
        "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: s}\n".to_owned(),
    ]
}

#[test]
fn what_is_right_is_left_alone() {
    for text in right() {
        let found = found(&text, Purpose::Cluster);
        assert!(found.is_empty(), "{text}\n{found:#?}");
    }
}

/// The YAML and JSON of the documents, each block by itself.
#[test]
fn no_example_of_the_documents_has_a_mistake() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut seen = 0;
    for folder in ["docs", "docs/use", "docs/use/plugins", "docs/operate", "docs/internals"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path()) {
            let Some("md") = entry.extension().and_then(|e| e.to_str()) else { continue };
            let page = std::fs::read_to_string(&entry).unwrap();
            for (language, block) in blocks(&page) {
                let Some(text) = manifests(language, block) else { continue };
                let found = found(&text, Purpose::Cluster);
                assert!(found.is_empty(), "{}:\n{text}\n{found:#?}", entry.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 30, "{seen}");
}

/// The fenced blocks of a page, and their languages.
fn blocks(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'))
}

/// A block that is a manifest, or a network as one; other blocks are nothing of the kind.
fn manifests(language: &str, block: &str) -> Option<String> {
    match language {
        "yaml" if block.contains("apiVersion:") && !block.contains("...") => Some(block.to_owned()),
        "json" if block.contains("\"type\"") && !block.contains("...") && block.trim_start().starts_with('{') => {
            let is_network = block.contains("\"cniVersion\"");
            is_network.then(|| network(block))
        }
        _ => None,
    }
}

#[test]
fn the_examples_have_no_mistake() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("examples");
    for folder in ["", "two-nodes", "zones", "cluster"] {
        for purpose in [Purpose::Cluster, Purpose::Lab] {
            let read = examine(&[root.join(folder)], &mut std::io::empty(), purpose).manifests;
            let found = read.map(|manifests| manifests.findings).unwrap_or_else(|e| panic!("{folder}: {e}"));
            let wrong: Vec<String> = found.iter().map(ToString::to_string).filter(|f| !f.contains("ignored: ")).collect();
            assert!(wrong.is_empty(), "{folder}: {wrong:#?}");
        }
    }
}

#[test]
fn a_workloads_template_is_looked_at() {
    let template = |kind: &str, open: &str| {
        format!(
            "{}apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: web}}\nspec:\n  {open}template:\n    metadata:\n      annotations: {{k8s.v1.cni.cncf.io/networks: 'nett'}}\n",
            open_bridge()
        )
    };
    for text in [
        template("Deployment", ""),
        template("StatefulSet", ""),
        template("CronJob", "jobTemplate: {spec: {template: {metadata: {annotations: {k8s.v1.cni.cncf.io/networks: nett}}}}}\n  "),
    ] {
        let found = found(&text, Purpose::Cluster);
        assert!(
            matches!(found.as_slice(), [("warning", .., message)] if message.contains("did you mean \"default/net\"")),
            "{text}\n{found:#?}"
        );
        let in_a_lab = read(&text, Purpose::Lab).manifests.unwrap();
        assert!(in_a_lab.pods.is_empty(), "a lab makes none of these pods");
    }
}

/// A template and the pods that are made from it are one; a template of several pods is several.
#[test]
fn a_template_and_its_pods() {
    let template = |kind: &str, name: &str, more: &str| {
        let annotation = r#"k8s.v1.cni.cncf.io/networks: '[{"name": "net", "ips": ["10.1.0.7"]}]'"#;
        format!(
            "apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  {more}\n  template:\n    metadata:\n      annotations:\n        {annotation}\n---\n"
        )
    };
    let live = |name: &str, owner: &str| {
        let (kind, of) = owner.split_once('/').unwrap();
        pod(name, r#"[{"name": "net", "ips": ["10.1.0.7"]}]"#).replacen(
            &format!("name: {name}"),
            &format!("name: {name}\n  ownerReferences: [{{kind: {kind}, name: {of}, controller: true}}]"),
            1,
        )
    };
    let messages =
        |text: &str| found(&(open_bridge() + text), Purpose::Cluster).into_iter().map(|(.., message)| message).collect::<Vec<_>>();
    let one = template("Deployment", "web", "replicas: 1");
    assert_eq!(messages(&(one.clone() + &live("web-7d9f-x2", "ReplicaSet/web-7d9f"))), Vec::<String>::new());
    assert_eq!(messages(&(template("StatefulSet", "db", "serviceName: db") + &live("db-0", "StatefulSet/db"))), Vec::<String>::new());
    let other = messages(&(one.clone() + &live("api-7d9f-x2", "ReplicaSet/api-7d9f")));
    assert!(other.len() == 1 && other[0].contains("10.1.0.7 is requested by pod"), "{other:#?}");
    let two = messages(&(live("web-1", "ReplicaSet/web-7d9f") + &live("web-2", "ReplicaSet/web-7d9f")));
    assert!(two.len() == 1 && two[0].contains("10.1.0.7 is requested by pod"), "{two:#?}");
    let many = messages(&template("Deployment", "web", "replicas: 3"));
    assert!(many.len() == 1 && many[0].contains("10.1.0.7 is requested by each of the 3 pods of"), "{many:#?}");
}

/// Its author may mean no good: what is said has an end, and so has the time that it takes.
#[test]
fn a_million_mistakes_are_no_way_to_keep_us_busy() {
    let keys: String = (0..100_000).map(|n| format!("\"brigde{n}\": 1,\n")).collect();
    let text = plugin("bridge", &format!("{keys}\"bridge\": \"br1\""));
    let started = std::time::Instant::now();
    let found = found(&text, Purpose::Cluster);
    assert!((1..=100).contains(&found.len()), "{}", found.len());
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}
