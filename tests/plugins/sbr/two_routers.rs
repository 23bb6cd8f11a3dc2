//! A container with two networks, behind each of which a router leads to the same far machine.
//!
//! ```text
//!   c1  eth0 10.1.0.7 -- wire1 -- r1 --+
//!       net1 10.2.0.7 -- wire2 -- r2 --+-- far 192.0.2.9, 2001:db8::9
//!
//!   r1 lets nothing pass that comes from 10.2.0.0/24, r2 nothing from 10.1.0.0/24
//! ```

use netloom_tests::{Cni, Host, plugin_dir};
use serde_json::{Value, json};

/// Our plugins, called for an interface of `c1`.
pub(crate) fn c1<'h>(host: &'h Host, ifname: &str) -> Cni<'h> {
    host.cni(plugin_dir()).at("c1", ifname)
}

pub(crate) fn host() -> Host {
    let host = Host::new();
    for name in ["c1", "c2", "r1", "r2", "far"] {
        host.container(name);
    }
    host.sh("far", "ip link set lo up");
    host.sh("far", "ip address add 192.0.2.9/32 dev lo");
    host.sh("far", "ip address add 2001:db8::9/128 dev lo nodad");
    for n in [1, 2] {
        let (router, other) = (format!("r{n}"), 3 - n);
        host.sh("", &format!("ip link add wire{n} type veth peer name in netns {router}"));
        host.sh("", &format!("ip link set wire{n} up"));
        host.sh(&router, &format!("ip link add out type veth peer name from{n} netns far"));
        host.sh(&router, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        for line in [
            format!("ip address add 10.{n}.0.1/24 dev in"),
            format!("ip address add fd00:{n}::1/64 dev in nodad"),
            format!("ip address add 10.20{n}.0.1/24 dev out"),
            format!("ip address add fd00:20{n}::1/64 dev out nodad"),
            "ip link set in up".to_owned(),
            "ip link set out up".to_owned(),
            format!("ip route add 192.0.2.9 via 10.20{n}.0.9"),
        ] {
            host.sh(&router, &line);
        }
        for line in [
            format!("ip address add 10.20{n}.0.9/24 dev from{n}"),
            format!("ip address add fd00:20{n}::9/64 dev from{n} nodad"),
            format!("ip link set from{n} up"),
            format!("ip route add 10.{n}.0.0/24 via 10.20{n}.0.1"),
            format!("ip route add fd00:{n}::/64 via fd00:20{n}::1"),
        ] {
            host.sh("far", &line);
        }
        host.sh(&router, &format!("ip route add 2001:db8::9 via fd00:20{n}::9"));
        let strangers = format!(
            "table inet t {{ chain c {{ type filter hook forward priority 0; ip saddr 10.{other}.0.0/24 drop; ip6 saddr fd00:{other}::/64 drop; }}; }}"
        );
        host.run(&router, &["nft", &strangers]);
    }
    host
}

/// The network behind router `n`, with these addresses of the container.
pub(crate) fn network(n: u32, ipam: &Value) -> Value {
    json!({"cniVersion": "1.1.0", "name": format!("net{n}"), "type": "macvlan", "master": format!("wire{n}"), "ipam": ipam})
}

/// Static addresses that end in 7, with gateways and default routes of both families.
pub(crate) fn ipam(n: u32) -> Value {
    json!({"type": "static", "addresses": [{"address": format!("10.{n}.0.7/24"), "gateway": format!("10.{n}.0.1")},
        {"address": format!("fd00:{n}::7/64"), "gateway": format!("fd00:{n}::1")}],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]})
}

/// A plugin's configuration behind a result.
pub(crate) fn behind(kind: &str, n: u32, keys: &Value, prev: &Value) -> Value {
    let mut config = json!({"cniVersion": "1.1.0", "name": format!("net{n}"), "type": kind, "prevResult": prev});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

/// Both networks, `eth0` and `net1`: their results.
pub(crate) fn attach(one: &Cni<'_>, two: &Cni<'_>) -> (Value, Value) {
    (one.add(&network(1, &ipam(1))), two.add(&network(2, &ipam(2))))
}

/// Whether the far machine gets an answer from an address within a minute.
pub(crate) fn answers(host: &Host, address: &str) -> bool {
    asked(host, address, &["-w60"])
}

/// Whether it gets none to three questions.
pub(crate) fn silent(host: &Host, address: &str) -> bool {
    !asked(host, address, &["-i0.2", "-w1"])
}

fn asked(host: &Host, address: &str, how: &[&str]) -> bool {
    let source = if address.contains(':') { "2001:db8::9" } else { "192.0.2.9" };
    host.run_ok("far", &[&["ping", "-c1", "-n", "-I", source], how, &[address]].concat())
}

/// `ip route show table TABLE` of one family, as `DST via GATEWAY dev LINK src ADDRESS`.
pub(crate) fn table(host: &Host, container: &str, family: u32, table: &str) -> Vec<String> {
    let output = host.try_run(container, &["ip", "-j", &format!("-{family}"), "route", "show", "table", table]);
    let routes: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| json!([]));
    let text = |r: &Value, key: &str, word: &str| r[key].as_str().map(|s| format!(" {word} {s}")).unwrap_or_default();
    let one = |r: &Value| {
        format!("{}{}{}{}", r["dst"].as_str().unwrap(), text(r, "gateway", "via"), text(r, "dev", "dev"), text(r, "prefsrc", "src"))
    };
    let mut lines: Vec<String> = routes.as_array().unwrap().iter().map(one).collect();
    lines.sort();
    lines
}

/// The rules of both families that are not the kernel's, as `SOURCE TABLE`.
pub(crate) fn rules(host: &Host, container: &str) -> Vec<String> {
    let of = |family: &str| host.json(container, &format!("ip -j {family} rule")).as_array().unwrap().clone();
    let own = |r: &&Value| !["local", "main", "default", "l3mdev"].iter().any(|t| r["table"] == *t);
    let all: Vec<Value> = [of("-4"), of("-6")].concat();
    let mut lines: Vec<String> =
        all.iter().filter(own).map(|r| format!("{} {}", r["src"].as_str().unwrap(), r["table"].as_str().unwrap())).collect();
    lines.sort();
    lines
}
