//! Machines outside that have addresses of a pool: namespaces on the same bridge, or behind the same parent, that nobody has told us of.

use netloom_tests::{Host, at, netloom, plugin_dir};
use serde_json::{Value, json};

use crate::pool::{JOURNAL, POOLS, bridge, call, got, grant, ipam, scene};

const MAC: &str = "02:00:00:00:00:77";
const TRACE: &str = "/run/points";

/// Both families, the lowest first, and the wire is asked.
fn probing() -> Value {
    json!({"ipv4": {"entries": [{"cidr": "10.9.0.0/24"}], "gateway": "10.9.0.1"},
        "ipv6": {"entries": [{"cidr": "fd00:9::/64"}], "gateway": "fd00:9::1"},
        "reuse": {"cooldownSeconds": 0, "order": "lowest"}, "conflictDetection": "probe"})
}

fn off() -> Value {
    let mut spec = probing();
    spec["conflictDetection"] = json!("off");
    spec
}

/// A machine on the bridge `br0` that has these addresses.
fn outside(host: &Host, addresses: &[&str]) {
    host.sh("", "ip link add br0 up type bridge");
    host.container("out");
    host.sh("", &format!("ip link add out0 up master br0 type veth peer name eth0 netns out address {MAC}"));
    has(host, addresses);
}

fn has(host: &Host, addresses: &[&str]) {
    addresses.iter().for_each(|address| drop(host.sh("out", &format!("ip addr add {address} dev eth0 nodad"))));
    host.sh("out", "ip link set eth0 up");
    let link = || host.json("out", "ip -j link show dev eth0")[0]["operstate"].clone();
    host.until("the outside machine's carrier", || link() == "UP");
}

/// What a person is told of an address.
fn told(host: &Host, address: &str) -> Value {
    let mut command = host.command("", netloom());
    let output = command.args(["ipam", "--pools", POOLS, "trace", address, "-o", "json"]).output().unwrap();
    serde_json::from_slice::<Value>(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))[0].clone()
}

#[test]
fn an_address_of_a_machine_outside_is_not_set() {
    let host = scene(&probing());
    let config = bridge();
    host.container("c3");
    outside(&host, &[]);
    let first = at(&host, "c2").add(&config);
    at(&host, "c2").del(&config, &first);
    has(&host, &["10.9.0.2/24", "10.9.0.3/24", "fd00:9::4/64"]);
    let before = host.traces();
    let started = std::time::Instant::now();
    let result = at(&host, "c1").add(&config);
    println!("a conflict of each family and two questions more: {:?}", started.elapsed());
    // 10.9.0.2 and .3 are the first two, fd00:9::4 comes with neither of them: it was in a later lease.
    let ips = host.addresses("c1", "eth0");
    assert_eq!(ips, ["10.9.0.4/24", "fd00:9::2/64"], "{result}");
    for (address, state) in [("10.9.0.2", "quarantined"), ("10.9.0.3", "quarantined"), ("10.9.0.4", "held"), ("fd00:9::2", "held")] {
        assert_eq!(told(&host, address)["state"], state, "{address}");
    }
    assert!(told(&host, "10.9.0.2")["what"].as_str().unwrap().contains(MAC), "{}", told(&host, "10.9.0.2"));
    at(&host, "c1").check(&config, &result).silent();
    // Who has it keeps it, and both reach each other.
    assert!(host.pings("c1", "10.9.0.2") && host.pings("out", "10.9.0.4") && host.pings("c1", "fd00:9::4"));
    assert_eq!(host.json("c1", "ip -j neigh show to 10.9.0.2")[0]["lladdr"], MAC);
    // The next one is not asked for them again, and meets the IPv6 address.
    let second = at(&host, "c2").add(&config);
    assert_eq!(host.addresses("c2", "eth0"), ["10.9.0.5/24", "fd00:9::3/64"], "{second}");
    let third = at(&host, "c3").add(&config);
    assert_eq!(host.addresses("c3", "eth0"), ["10.9.0.6/24", "fd00:9::5/64"], "{third}");
    assert!(told(&host, "fd00:9::4")["what"].as_str().unwrap().contains(MAC));
    for (container, result) in [("c1", &result), ("c2", &second), ("c3", &third)] {
        at(&host, container).del(&config, result);
    }
    host.expect_traces(&before, "three ADDs among addresses of others");
    // Kept over every process: nobody gets them for an hour.
    assert_eq!(got(&call(&host, "ADD", "later", &config)), ["10.9.0.4/24", "fd00:9::2/64"]);
    call(&host, "DEL", "later", &config).silent();
}

/// Where other links change, the kernel notices the carrier of a bridge's new port up to a second late, and the bridge forwards nothing for
/// it before that: the questions were over by then, and the address was set.
#[test]
fn a_port_whose_carrier_is_noticed_late_is_waited_for() {
    let host = scene(&probing());
    outside(&host, &["10.9.0.2/24"]);
    host.sh("", "ip link add busy0 type veth peer name busy1");
    let changes = "while :; do for state in up down; do ip link set busy0 $state; ip link set busy1 $state; done; done";
    let mut busy = host.command("", "sh").args(["-c", changes]).spawn().unwrap();
    let config = bridge();
    for round in 0..8 {
        // Each begins with a pool that has not met that machine yet.
        host.sh("", &format!("rm -rf {JOURNAL}"));
        let result = at(&host, "c1").add(&config);
        assert_eq!(host.addresses("c1", "eth0")[0], "10.9.0.3/24", "round {round}");
        at(&host, "c1").del(&config, &result);
    }
    busy.kill().unwrap();
    busy.wait().unwrap();
}

/// Without the key nobody is asked, and the address is given twice: what the key is for.
#[test]
fn without_the_key_nobody_is_asked() {
    let host = scene(&off());
    outside(&host, &["10.9.0.2/24"]);
    host.sh("out", "nft add table arp t");
    host.sh("out", "nft add chain arp t c { type filter hook input priority 0 ; }");
    host.sh("out", "nft add rule arp t c arp saddr ip 0.0.0.0 counter");
    let probes = || {
        let rules = host.json("out", "nft -j list chain arp t c");
        let all = rules["nftables"].as_array().unwrap().iter().filter_map(|r| r["rule"]["expr"].as_array()).flatten();
        all.filter_map(|expr| expr["counter"]["packets"].as_u64()).sum::<u64>()
    };
    let config = bridge();
    let result = at(&host, "c1").add(&config);
    assert_eq!((host.addresses("c1", "eth0")[0].as_str(), probes()), ("10.9.0.2/24", 0));
    at(&host, "c1").del(&config, &result);
    grant(&host, &probing());
    let result = at(&host, "c1").add(&config);
    assert_eq!(host.addresses("c1", "eth0")[0], "10.9.0.3/24");
    assert!(probes() > 0);
    at(&host, "c1").del(&config, &result);
}

#[test]
fn over_a_parent_of_macvlans() {
    let host = scene(&probing());
    host.container("out");
    host.sh("", &format!("ip link add up0 up type veth peer name eth0 netns out address {MAC}"));
    has(&host, &["10.9.0.2/24"]);
    let config = json!({"cniVersion": "1.0.0", "name": "net", "type": "macvlan", "master": "up0", "ipam": ipam()});
    let before = netloom_tests::attached_once(&host, &config);
    let result = at(&host, "c1").add(&config);
    assert_eq!(host.addresses("c1", "eth0"), ["10.9.0.3/24", "fd00:9::2/64"], "{result}");
    assert!(host.pings("c1", "10.9.0.2"));
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "a macvlan");
}

#[test]
fn one_that_was_asked_for_is_refused_by_the_name_of_who_has_it() {
    let host = scene(&probing());
    outside(&host, &["10.9.0.9/24"]);
    let config = bridge();
    at(&host, "c1").add(&config);
    at(&host, "c1").del(&config, &Value::Null);
    let before = host.traces();
    let failed = at(&host, "c1").set("CNI_ARGS", "IP=10.9.0.9").call("ADD", "bridge", config.to_string());
    assert_eq!(failed.error()["code"], 11, "{failed:?}");
    assert!(failed.message().contains("10.9.0.9") && failed.message().contains(MAC), "{failed:?}");
    host.expect_traces(&before, "an ADD that failed");
    // It is in quarantine now, for longer than anybody waits.
    let mut patient = config.clone();
    patient["ipam"]["addWait"] = json!(120);
    let since = std::time::Instant::now();
    let failed = at(&host, "c1").set("CNI_ARGS", "IP=10.9.0.9").call("ADD", "bridge", patient.to_string());
    assert!(failed.error()["code"] == 11 && failed.message().contains(MAC), "{failed:?}");
    assert!(since.elapsed() < std::time::Duration::from_secs(60), "{:?}", since.elapsed());
    let result = at(&host, "c1").add(&config);
    assert_eq!(host.addresses("c1", "eth0")[0], "10.9.0.2/24");
    at(&host, "c1").del(&config, &result);
}

/// Its hardware address would be another machine's address, too.
#[test]
fn with_the_address_in_the_hardware_address_it_is_added_anew() {
    let host = scene(&probing());
    outside(&host, &["10.9.0.2/24"]);
    let mut config = bridge();
    config["macFromIP"] = json!(true);
    let failed = at(&host, "c1").call("ADD", "bridge", config.to_string());
    assert!(failed.error()["code"] == 11 && failed.message().contains("retry the ADD"), "{failed:?}");
    let result = at(&host, "c1").add(&config);
    assert_eq!(host.link("c1", "eth0").unwrap().mac(), "0a:58:0a:09:00:03");
    at(&host, "c1").del(&config, &result);
}

#[test]
fn many_that_are_taken_end_the_add_and_nothing_is_left() {
    let mut spec = probing();
    spec["ipv6"] = Value::Null;
    let host = scene(&spec);
    let all: Vec<String> = (2..12).map(|n| format!("10.9.0.{n}/24")).collect();
    outside(&host, &all.iter().map(String::as_str).collect::<Vec<_>>());
    let config = bridge();
    let failed = at(&host, "c1").call("ADD", "bridge", config.to_string());
    assert_eq!(failed.error()["code"], 11, "{failed:?}");
    for word in ["10.9.0.2 ", "10.9.0.5 ", MAC, "exclude"] {
        assert!(failed.message().contains(word), "{word}: {failed:?}");
    }
    assert!(host.link("c1", "eth0").is_none(), "the interface went with it");
    let states: Vec<Value> = (2..8).map(|n| told(&host, &format!("10.9.0.{n}"))["state"].clone()).collect();
    assert_eq!(states, ["quarantined", "quarantined", "quarantined", "quarantined", "free", "free"]);
    // What another ADD meets is behind that.
    let failed = at(&host, "c1").call("ADD", "bridge", config.to_string());
    assert!(failed.message().contains("10.9.0.9 "), "{failed:?}");
    let result = at(&host, "c1").add(&config);
    assert_eq!(host.addresses("c1", "eth0"), ["10.9.0.12/24"]);
    at(&host, "c1").del(&config, &result);
}

#[test]
fn what_is_not_there_is_refused_by_name() {
    let mut spec = probing();
    spec["conflictDetection"] = json!("arp");
    let host = scene(&spec);
    let failed = at(&host, "c1").call("ADD", "bridge", bridge().to_string());
    assert!(failed.error()["code"] == 7 && failed.message().contains("unknown variant `arp`"), "{failed:?}");
}

/// Nobody is asked, and without an agent nobody listens: the pool is as one that says nothing.
#[test]
fn without_an_agent_nobody_listens() {
    let mut spec = probing();
    spec["conflictDetection"] = json!("passive");
    let host = scene(&spec);
    outside(&host, &["10.9.0.2/24"]);
    let config = bridge();
    let result = at(&host, "c1").add(&config);
    assert_eq!(host.addresses("c1", "eth0"), ["10.9.0.2/24", "fd00:9::2/64"], "{result}");
    at(&host, "c1").del(&config, &result);
}

/// What an agent has heard of an address that a container has, as it leaves it beside the journal.
#[test]
fn a_person_is_told_what_was_heard() {
    let host = scene(&off());
    let config = bridge();
    let result = at(&host, "c1").add(&config);
    assert_eq!(told(&host, "10.9.0.2")["what"], "held");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().replace('-', "");
    let boot = u128::from_str_radix(&boot, 16).unwrap().to_be_bytes();
    let seconds: f64 = std::fs::read_to_string("/proc/uptime").unwrap().split(' ').next().unwrap().parse().unwrap();
    let heard = |ago: f64| {
        let heard = json!([{"network": "lab", "pool": "lab", "address": "10.9.0.2", "by": MAC, "boot": boot,
            "millis": ((seconds - ago) * 1000.0) as i64}]);
        host.write(&format!("{JOURNAL}/heard"), &heard.to_string());
    };
    heard(0.0);
    let what = told(&host, "10.9.0.2")["what"].as_str().unwrap().to_owned();
    assert!(what.starts_with(&format!("held, but another machine uses it as well, {MAC}, seen ")), "{what}");
    assert_eq!(told(&host, "10.9.0.2")["state"], "held");
    if seconds > 4000.0 {
        heard(3601.0);
        assert_eq!(told(&host, "10.9.0.2")["what"], "held");
    }
    at(&host, "c1").del(&config, &result);
}

/// Whoever dies where: the address of the machine outside is never on an interface, and what was made goes with the DEL.
#[test]
fn killed_at_every_point() {
    let config = bridge();
    let run = |host: &Host, variable: &str, value: &str| {
        let cni = host.cni(plugin_dir()).at("c1", "eth0").set(variable, value);
        cni.call("ADD", "bridge", config.to_string()).code
    };
    let fresh = || {
        let host = scene(&probing());
        outside(&host, &[]);
        let first = at(&host, "c2").add(&config);
        at(&host, "c2").del(&config, &first);
        has(&host, &["10.9.0.2/24"]);
        host
    };
    let host = fresh();
    assert_eq!(run(&host, "NETLOOM_CRASH_TRACE", TRACE), 0);
    let text = std::fs::read_to_string(host.path(TRACE)).unwrap();
    let names: Vec<&str> = text.lines().map(|l| l.split_whitespace().next().unwrap()).collect();
    let from = names.iter().position(|name| *name == "pool-unasked").unwrap();
    let points = names.iter().enumerate().skip(from).map(|(at, name)| {
        let count = names[..=at].iter().filter(|other| *other == name).count();
        format!("{name}:{count}")
    });
    let points: Vec<String> = points.take_while(|point| point != "address-unset:1").collect();
    assert!(["pool-conflict:1", "pool-quarantined:1"].iter().all(|point| points.contains(&(*point).to_owned())), "{points:?}");
    for point in points {
        let host = fresh();
        let before = host.traces();
        assert_eq!(run(&host, "NETLOOM_CRASH_AT", &point), -1, "{point}");
        assert!(!host.sh("c1", "ip -o addr").contains("10.9.0.2/"), "{point}");
        at(&host, "c1").del(&config, &Value::Null);
        host.expect_traces(&before, &point);
        let result = at(&host, "c1").add(&config);
        assert_eq!(host.addresses("c1", "eth0")[0], "10.9.0.3/24", "{point}");
        at(&host, "c1").del(&config, &result);
    }
}
