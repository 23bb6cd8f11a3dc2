//! A machine with a wire to `outside`, and networks that need the firewall.

use std::process::Output;

use netloom_tests::{Host, netloom, plugin_dir};
use serde_json::{Value, json};

/// The machine's address on the wire.
pub(crate) const HOST: &str = "192.0.2.1";
/// That of `outside`, which knows no way to a pod.
pub(crate) const OUTSIDE: &str = "192.0.2.2";

/// A machine whose containers reach `outside` only with the machine's address.
pub(crate) fn machine(containers: &[&str]) -> Host {
    let host = Host::new();
    host.container("outside");
    host.sh("", "ip link add wire type veth peer name eth0 netns outside");
    for (place, dev, v4, v6) in [("", "wire", HOST, "2001:db8::1"), ("outside", "eth0", OUTSIDE, "2001:db8::2")] {
        host.sh(place, &format!("ip addr add {v4}/24 dev {dev}"));
        host.sh(place, &format!("ip -6 addr add {v6}/64 dev {dev} nodad"));
        host.sh(place, &format!("ip link set {dev} up"));
    }
    host.sh("", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    containers.iter().for_each(|c| host.container(c));
    host
}

/// A list: a bridge that masquerades, with a subnet of its own, and host ports.
pub(crate) fn list(name: &str, net: u8) -> Value {
    json!({"cniVersion": "1.0.0", "name": name, "plugins": [
        {"type": "bridge", "bridge": format!("br{net}"), "isDefaultGateway": true, "ipMasq": true, "hairpinMode": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": format!("10.{net}.0.0/16")}], [{"subnet": format!("fd00:{net}::/64")}]]}},
        {"type": "portmap", "capabilities": {"portMappings": true}},
    ]})
}

/// `netloom repair` with these words behind it.
pub(crate) fn repair(host: &Host, words: &[&str]) -> Output {
    host.command("", netloom()).args(["repair", "--socket", "/nowhere"]).args(words).env("CNI_PATH", plugin_dir()).output().unwrap()
}

/// As [`repair`], which ends with this code: what it printed.
pub(crate) fn repaired(host: &Host, words: &[&str], code: i32) -> String {
    let output = repair(host, words);
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    said
}

/// As [`repaired`], for programs.
pub(crate) fn told(host: &Host, words: &[&str], code: i32) -> Value {
    let said = repaired(host, &[words, &["-o", "json"]].concat(), code);
    serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"))
}

/// The table of ours, without what a listing counts anew each time.
pub(crate) fn table(host: &Host) -> Vec<String> {
    // Elements have no order.
    let text = host.sh("", "nft list ruleset");
    let lines = text.split(['\n', ',']).map(|line| line.trim().trim_start_matches("elements = {").trim_end_matches('}').trim());
    let mut lines: Vec<String> = lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
    lines.sort();
    lines
}
