//! A machine with a wire to `outside`, and networks that need the firewall.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};

use crate::{Host, netloom, plugin_dir};

/// The machine's address on the wire.
pub const HOST: &str = "192.0.2.1";
/// That of `outside`, which knows no way to a pod.
pub const OUTSIDE: &str = "192.0.2.2";

/// A machine whose containers reach `outside` only with the machine's address.
pub fn machine(containers: &[&str]) -> Host {
    let host = Host::new();
    wire(&host);
    containers.iter().for_each(|c| host.container(c));
    host
}

/// The wire of a machine to `outside`.
pub fn wire(host: &Host) {
    host.container("outside");
    host.sh("", "ip link add wire type veth peer name eth0 netns outside");
    for (place, dev, v4, v6) in [("", "wire", HOST, "2001:db8::1"), ("outside", "eth0", OUTSIDE, "2001:db8::2")] {
        host.sh(place, &format!("ip addr add {v4}/24 dev {dev}"));
        host.sh(place, &format!("ip -6 addr add {v6}/64 dev {dev} nodad"));
        host.sh(place, &format!("ip link set {dev} up"));
    }
    host.sh("", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
}

/// A list: a bridge that masquerades, with a subnet of its own, and host ports.
pub fn list(name: &str, net: u8) -> Value {
    json!({"cniVersion": "1.0.0", "name": name, "plugins": [
        {"type": "bridge", "bridge": format!("br{net}"), "isDefaultGateway": true, "ipMasq": true, "hairpinMode": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": format!("10.{net}.0.0/16")}], [{"subnet": format!("fd00:{net}::/64")}]]}},
        {"type": "portmap", "capabilities": {"portMappings": true}},
    ]})
}

/// `netloom repair` with these words behind it.
pub fn repair(host: &Host, words: &[&str]) -> Output {
    host.command("", netloom()).args(["repair", "--socket", "/nowhere"]).args(words).env("CNI_PATH", plugin_dir()).output().unwrap()
}

/// As [`repair`], which ends with this code: what it printed.
pub fn repaired(host: &Host, words: &[&str], code: i32) -> String {
    let output = repair(host, words);
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    said
}

/// As [`repaired`], for programs.
pub fn told(host: &Host, words: &[&str], code: i32) -> Value {
    let said = repaired(host, &[words, &["-o", "json"]].concat(), code);
    serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"))
}

/// The table of ours, without what a listing counts anew each time.
pub fn table(host: &Host) -> Vec<String> {
    // Elements have no order.
    let text = host.sh("", "nft list ruleset");
    let lines = text.split(['\n', ',']).map(|line| line.trim().trim_start_matches("elements = {").trim_end_matches('}').trim());
    let uncounted = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let before = std::iter::once("").chain(words.iter().copied());
        let kept = words.iter().zip(before).filter(|(_, before)| !["packets", "bytes"].contains(before));
        kept.map(|(word, _)| *word).collect::<Vec<_>>().join(" ")
    };
    let mut lines: Vec<String> = lines.filter(|line| !line.is_empty()).map(uncounted).collect();
    lines.sort();
    lines
}

/// Lets whoever connects to a port of a container (`""`: the machine) read its name, until the test ends.
///
/// # Panics
/// If somebody listens there already.
pub fn answer(host: &Host, place: &str, port: u16) {
    let server = host.within(place, || TcpListener::bind(("::", port)).unwrap());
    let name = place.to_owned();
    std::thread::spawn(move || {
        while let Ok((mut connection, _)) = server.accept() {
            let _ = connection.write_all(name.as_bytes());
        }
    });
}

/// Who answers at an address within some seconds; `""` where nobody does.
pub fn who(host: &Host, from: &str, address: &str, seconds: u64) -> String {
    let to: SocketAddr = address.parse().unwrap();
    let patience = Duration::from_secs(seconds);
    let Ok(mut stream) = host.within(from, || TcpStream::connect_timeout(&to, patience)) else { return String::new() };
    let mut said = String::new();
    stream.set_read_timeout(Some(patience)).unwrap();
    stream.read_to_string(&mut said).map_or_else(|_| String::new(), |_| said)
}

/// Every rule of others, in order, without what counts or numbers them: what of a table that is not ours may not change. The lines
/// of iptables by which containers pass a filter that drops are ours, too.
pub fn others(host: &Host) -> Vec<String> {
    let listing = host.json("", "nft -j list ruleset");
    let mut lines = Vec::new();
    for item in listing["nftables"].as_array().into_iter().flatten() {
        let text = item.to_string();
        let ours = item.as_object().unwrap().values().any(|v| v["table"] == "netloom" || v["name"] == "netloom");
        if !ours && !text.contains("NETLOOM-") && !text.contains("metainfo") {
            let mut item = item.clone();
            strip(&mut item);
            lines.push(item.to_string());
        }
    }
    lines
}

/// Nothing of others has gone, or has another place, and there is no rule besides. An empty chain that iptables itself would make is
/// none.
///
/// # Panics
/// If that is not so: with what differs.
pub fn expect_others(host: &Host, before: &[String], after_what: &str) {
    let now = others(host);
    let new: Vec<&String> = now.iter().filter(|line| !before.contains(line) && line.starts_with("{\"rule\"")).collect();
    let mut rest = now.iter();
    let gone = before.iter().find(|line| !rest.any(|there| there == *line));
    assert!(new.is_empty() && gone.is_none(), "{after_what} has changed what is not ours: gone or moved {gone:#?}, new {new:#?}");
}

/// Takes away what a listing tells anew each time.
fn strip(value: &mut Value) {
    match value {
        Value::Object(object) => {
            for key in ["handle", "packets", "bytes", "expires", "used"] {
                object.remove(key);
            }
            object.values_mut().for_each(strip);
        }
        Value::Array(list) => list.iter_mut().for_each(strip),
        _ => {}
    }
}

/// As the reference library's tool, with ours under its name: a verb for a container, with these host ports to its port 80.
///
/// # Panics
/// If it fails.
pub fn attach(host: &Host, verb: &str, network: &str, container: &str, ports: &[u16]) {
    let ports: Vec<Value> = ports.iter().map(|port| json!({"hostPort": port, "containerPort": 80, "protocol": "tcp"})).collect();
    let mut command = host.command("", netloom());
    command.args(["cni", verb, network, &format!("/run/netns/{container}")]);
    command.env("NETCONFPATH", "/run/nets").env("CNI_PATH", plugin_dir()).env("CAP_ARGS", json!({"portMappings": ports}).to_string());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{verb} {container}: {}", String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
}
