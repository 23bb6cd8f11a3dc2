//! What is wrong with a call is told by the right code and a message that helps, and leaves no trace.
//!
//! One table: each row is a call that must fail on the same small world, after which the oracle must find the world as
//! it was. Where a row may name a bridge, it names one that does not exist: a refused call does not make it.

use netloom_tests::{Host, plugin_dir};
use serde_json::{Value, json};

/// A call that must fail.
struct Case {
    name: &'static str,
    verb: &'static str,
    plugin: &'static str,
    input: Vec<u8>,
    /// Variables that differ from those of a good call; an empty value removes one.
    vars: Vec<(&'static str, &'static str)>,
    code: u64,
    /// What message and details must contain: the thing, the place, the next step.
    says: &'static [&'static str],
}

impl Case {
    fn set(mut self, name: &'static str, value: &'static str) -> Self {
        self.vars.push((name, value));
        self
    }
}

fn raw(
    name: &'static str,
    verb: &'static str,
    plugin: &'static str,
    input: impl Into<Vec<u8>>,
    code: u64,
    says: &'static [&'static str],
) -> Case {
    Case { name, verb, plugin, input: input.into(), vars: Vec::new(), code, says }
}

/// ADD of `bridge` with some keys changed.
fn bridge(name: &'static str, keys: Value, code: u64, says: &'static [&'static str]) -> Case {
    raw(name, "ADD", "bridge", config("bridge", keys).to_string(), code, says)
}

/// ADD of `bridge` on the bridge that is there, for what can fail only after the pair was made.
fn late(name: &'static str, mut keys: Value, code: u64, says: &'static [&'static str]) -> Case {
    keys["bridge"] = json!("br0");
    bridge(name, keys, code, says)
}

fn plugin(name: &'static str, plugin: &'static str, keys: Value, code: u64, says: &'static [&'static str]) -> Case {
    raw(name, "ADD", plugin, config(plugin, keys).to_string(), code, says)
}

/// A good call with variables changed.
fn env(name: &'static str, verb: &'static str, vars: &[(&'static str, &'static str)], code: u64, says: &'static [&'static str]) -> Case {
    let vars = vars.to_vec();
    Case { vars, ..raw(name, verb, "bridge", config("bridge", json!({})).to_string(), code, says) }
}

/// A good configuration of a plugin with keys replaced; `null` removes one.
fn config(plugin: &str, keys: Value) -> Value {
    let mut config = match plugin {
        "macvlan" => json!({"master": "wire0"}),
        "tuning" => json!({"prevResult": prev()}),
        _ => json!({"bridge": "fresh0", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}),
    };
    config["cniVersion"] = json!("1.1.0");
    config["name"] = json!("net");
    config["type"] = json!(plugin);
    for (key, value) in keys.as_object().unwrap() {
        config[key] = value.clone();
    }
    config.as_object_mut().unwrap().retain(|_, v| !v.is_null());
    config
}

fn host_local(keys: Value) -> Value {
    let mut ipam = json!({"type": "host-local"});
    ipam.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    json!({"ipam": ipam})
}

fn static_addresses(keys: Value) -> Value {
    let mut keys = host_local(keys);
    keys["ipam"]["type"] = json!("static");
    keys
}

/// Addresses of the pool `lab`.
fn pool(keys: Value) -> Value {
    let mut keys = host_local(keys);
    let ipam = &mut keys["ipam"];
    ipam["type"] = json!("pool");
    ipam["pools"] = json!("/run/pools");
    if ipam.get("pool").is_none() {
        ipam["pool"] = json!("lab");
    }
    keys
}

/// A result that names what is not there.
fn prev() -> Value {
    json!({"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/c1"}], "ips": []})
}

fn input() -> Vec<Case> {
    let nested = |n: usize| format!("{{\"name\":\"net\",\"cniVersion\":\"1.0.0\",\"x\":{}{}}}", "[".repeat(n), "]".repeat(n));
    let huge = format!("{{\"name\":\"net\",\"cniVersion\":\"1.0.0\",\"x\":\"{}\"}}", "x".repeat(20 << 20));
    vec![
        raw("empty input", "ADD", "bridge", "", 6, &["network configuration", "empty", "expected a JSON object"]),
        raw("broken JSON", "ADD", "bridge", "{\"name\":\n  oops}", 6, &["not valid JSON", "line 2, column 3"]),
        raw("JSON cut short", "DEL", "bridge", "{\"name\":\"net\"", 6, &["not valid JSON", "line 1"]),
        raw("text after the object", "ADD", "bridge", "{} {}", 6, &["not valid JSON", "line 1, column 4"]),
        raw("no UTF-8", "ADD", "bridge", b"{\"name\":\"\xff\"}".to_vec(), 6, &["not valid JSON", "line 1"]),
        raw("a list", "ADD", "bridge", "[]", 6, &["expected a JSON object", "found"]),
        raw("null", "CHECK", "bridge", "null", 7, &["missing network name", "\"name\""]),
        raw("20 MiB", "ADD", "bridge", huge, 6, &["16777217 bytes", "maximum of 16777216"]),
        raw("nested 100,000 deep", "ADD", "bridge", nested(100_000), 6, &["not valid JSON", "recursion limit"]),
        raw("nested 100,000 deep, GC", "GC", "host-local", nested(100_000), 6, &["not valid JSON"]),
        raw("no name", "ADD", "bridge", "{}", 7, &["missing network name", "\"name\""]),
        bridge("name: empty", json!({"name": ""}), 7, &["missing network name", "\"name\""]),
        bridge("name: a number", json!({"name": 7}), 6, &["name: expected a string", "number"]),
        bridge("name: a way out", json!({"name": "../../etc"}), 7, &["network name \"../../etc\"", "are allowed"]),
        bridge("name: hidden", json!({"name": ".net"}), 7, &["network name \".net\"", "the first a letter or digit"]),
        bridge("name: an umlaut", json!({"name": "nötz"}), 7, &["network name", "are allowed"]),
        bridge("type: a way out", json!({"type": "../bridge"}), 7, &["invalid plugin type \"../bridge\"", "without '/'"]),
        bridge("type: a list", json!({"type": ["bridge"]}), 7, &["type: expected a string"]),
        raw("under no plugin's name", "ADD", "netloom-cni", "{}", 4, &["\"netloom-cni\" is not a plugin", "link it", "host-local"]),
    ]
}

fn versions() -> Vec<Case> {
    let at = |version: &str| config("bridge", json!({"cniVersion": version})).to_string();
    vec![
        bridge("cniVersion: a number", json!({"cniVersion": 1}), 6, &["cniVersion: expected a string"]),
        bridge("cniVersion: of the future", json!({"cniVersion": "7.0.0"}), 1, &["cniVersion", "7.0.0", "1.1.0"]),
        bridge("cniVersion: none", json!({"cniVersion": "newest"}), 1, &["cniVersion", "newest"]),
        raw("CHECK before 0.4.0", "CHECK", "bridge", at("0.3.1"), 1, &["config version does not allow CHECK", "0.3.1"]),
        raw("GC before 1.1.0", "GC", "bridge", at("1.0.0"), 1, &["config version does not allow GC", "1.0.0"]),
        raw("STATUS before 1.1.0", "STATUS", "bridge", at("0.4.0"), 1, &["config version does not allow STATUS", "0.4.0"]),
        late(
            "two IPv4 addresses before 0.3.0",
            json!({"cniVersion": "0.2.0", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "10.2.0.0/24"}]]}}),
            7,
            &["0.2.0", "does not support more than 1 address per family", "several of IPv4", "use 0.3.0 or later"],
        ),
    ]
}

fn environment() -> Vec<Case> {
    const LONG: &str = concat!(
        "c1234567890123456789012345678901234567890123456789012345678",
        "901234567890123456789012345678901234567890123456789012345678"
    );
    let nothing = [("CNI_CONTAINERID", ""), ("CNI_NETNS", ""), ("CNI_IFNAME", ""), ("CNI_PATH", "")];
    vec![
        env("unknown verb", "FOO", &[], 4, &["unknown CNI_COMMAND: FOO"]),
        env("verb in small letters", "add", &[], 4, &["unknown CNI_COMMAND: add"]),
        env(
            "ADD without variables",
            "ADD",
            &nothing,
            4,
            &["required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH] missing"],
        ),
        env("ADD without namespace", "ADD", &[("CNI_NETNS", "")], 4, &["required env variables [CNI_NETNS] missing"]),
        env("DEL without variables", "DEL", &nothing, 4, &["required env variables [CNI_CONTAINERID,CNI_IFNAME,CNI_PATH] missing"]),
        env("GC without path", "GC", &nothing, 4, &["required env variables [CNI_PATH] missing"]),
        env("STATUS without path", "STATUS", &nothing, 4, &["required env variables [CNI_PATH] missing"]),
        env("container ID: a way out", "ADD", &[("CNI_CONTAINERID", "../c1")], 4, &["containerID \"../c1\"", "are allowed"]),
        env("container ID: a way out on DEL", "DEL", &[("CNI_CONTAINERID", "a/../../c1")], 4, &["containerID", "are allowed"]),
        env("container ID: no file name", "ADD", &[("CNI_CONTAINERID", LONG)], 4, &["container ID", "119 bytes", "only 118"]),
        env("interface: too long", "ADD", &[("CNI_IFNAME", "abcdefghijklmnop")], 4, &["\"abcdefghijklmnop\"", "16 bytes", "15"]),
        env("interface: a slash", "ADD", &[("CNI_IFNAME", "a/b")], 4, &["interface name \"a/b\"", "/ or : or whitespace"]),
        env("interface: a colon", "CHECK", &[("CNI_IFNAME", "a:b")], 4, &["interface name \"a:b\""]),
        env("interface: a space", "DEL", &[("CNI_IFNAME", "a b")], 4, &["interface name \"a b\""]),
        env("interface: the folder above", "ADD", &[("CNI_IFNAME", "..")], 4, &["interface name is . or .."]),
        env("CNI_ARGS: no pair", "ADD", &[("CNI_ARGS", "IP=10.1.0.9;oops")], 4, &["CNI_ARGS", "\"oops\"", "KEY=VALUE"]),
        env("CNI_ARGS: unknown", "ADD", &[("CNI_ARGS", "FOO=1")], 4, &["FOO=1", "IgnoreUnknown=1"]),
        env("CNI_ARGS: bad MAC", "ADD", &[("CNI_ARGS", "MAC=zz")], 4, &["CNI_ARGS MAC", "\"zz\"", "02:00:00:12:34:56"]),
        late("CNI_ARGS: bad IP", json!({}), 4, &["CNI_ARGS IP", "\"10.1.0\"", "10.1.0.7"]).set("CNI_ARGS", "IP=10.1.0"),
        env("namespace: gone", "ADD", &[("CNI_NETNS", "/run/netns/gone")], 8, &["/run/netns/gone", "check that the container is running"]),
        env("namespace: gone on CHECK", "CHECK", &[("CNI_NETNS", "/run/netns/gone")], 8, &["/run/netns/gone"]),
        env("namespace: a file", "ADD", &[("CNI_NETNS", "/run/file")], 8, &["/run/file", "namespace"]),
        env("namespace: a folder", "ADD", &[("CNI_NETNS", "/run")], 8, &["/run", "namespace"]),
        env("namespace: another kind", "ADD", &[("CNI_NETNS", "/proc/self/ns/uts")], 8, &["/proc/self/ns/uts", "namespace"]),
        env("namespace: the host's own", "ADD", &[("CNI_NETNS", "/proc/self/ns/net")], 8, &["/proc/self/ns/net", "should not be the same"]),
        env("namespace: the host's own on DEL", "DEL", &[("CNI_NETNS", "/proc/self/ns/net")], 8, &["should not be the same"]),
    ]
}

fn bridges() -> Vec<Case> {
    vec![
        bridge("vlan: too large", json!({"vlan": 4095}), 7, &["invalid VLAN ID 4095", "4094"]),
        bridge("vlan: negative", json!({"vlan": -1}), 7, &["invalid VLAN ID -1"]),
        bridge(
            "vlan: no room for the gateway's name",
            json!({"vlan": 4094, "bridge": "cluster1234", "isGateway": true}),
            7,
            &["\"cluster1234.4094\"", "15 bytes", "shorter"],
        ),
        bridge("vlanTrunk: id", json!({"vlanTrunk": [{"id": 7}, {"id": 4095}]}), 7, &["vlanTrunk[1]: incorrect trunk id parameter"]),
        bridge("vlanTrunk: minID", json!({"vlanTrunk": [{"minID": 0, "maxID": 9}]}), 7, &["incorrect trunk minID parameter"]),
        bridge("vlanTrunk: no maxID", json!({"vlanTrunk": [{"minID": 3}]}), 7, &["maxID is missing"]),
        bridge("vlanTrunk: no minID", json!({"vlanTrunk": [{"maxID": 3, "id": 1}]}), 7, &["minID is missing"]),
        bridge("vlanTrunk: upside down", json!({"vlanTrunk": [{"minID": 9, "maxID": 3}]}), 7, &["minID is greater than maxID", "9 and 3"]),
        bridge("vlanTrunk: nothing", json!({"vlanTrunk": [{}]}), 7, &["vlanTrunk[0]: no VLAN is given"]),
        bridge("mtu: negative", json!({"mtu": -1}), 7, &["mtu: -1", "68", "65535"]),
        bridge("mtu: too large", json!({"mtu": 100_000}), 7, &["mtu: 100000", "65535"]),
        bridge("mtu: a string", json!({"mtu": "1500"}), 7, &["mtu:", "string"]),
        bridge("isGateway: a string", json!({"isGateway": "yes"}), 7, &["isGateway:", "string", "boolean"]),
        bridge("bridge: a number", json!({"bridge": 0}), 7, &["bridge:", "a string"]),
        bridge("bridge: too long", json!({"bridge": "bridge-of-mostar"}), 7, &["bridge:", "\"bridge-of-mostar\"", "15"]),
        bridge("bridge: a way out", json!({"bridge": "../br0"}), 7, &["bridge:", "\"../br0\""]),
        bridge("bridge: another device", json!({"bridge": "wire0"}), 7, &["\"wire0\"", "is not a bridge", "veth", "choose another name"]),
        bridge("bridge: the loopback", json!({"bridge": "lo"}), 7, &["\"lo\"", "is not a bridge"]),
        bridge("hairpin and promiscuous", json!({"hairpinMode": true, "promiscMode": true}), 7, &["hairpin", "promisc", "set either"]),
        bridge("ipMasqBackend", json!({"ipMasqBackend": "ipfw"}), 7, &["ipMasqBackend", "\"ipfw\"", "nftables"]),
        bridge("down, with addresses", json!({"disableContainerInterface": true}), 7, &["DisableContainerInterface", "remove \"ipam\""]),
        bridge("mac", json!({"mac": "02:00"}), 7, &["mac: ", "\"02:00\"", "02:00:00:12:34:56"]),
        bridge("mac: a number", json!({"mac": 2}), 7, &["mac: expected a string"]),
        bridge("mac: a group's", json!({"mac": "01:00:5e:00:00:01"}), 7, &["mac: 01:00:5e:00:00:01", "even"]),
        bridge("runtimeConfig.mac", json!({"runtimeConfig": {"mac": "x"}}), 7, &["runtimeConfig.mac: ", "\"x\""]),
        bridge("args.cni.mac", json!({"args": {"cni": {"mac": "00:00:00:00:00:00"}}}), 7, &["args.cni.mac: ", "not all zero"]),
        bridge("dns: a list", json!({"dns": ["10.0.0.1"]}), 7, &["dns:"]),
        bridge("ipam: a string", json!({"ipam": "host-local"}), 7, &["ipam: expected an object, found a string"]),
        bridge("ipam.type: a number", json!({"ipam": {"type": 7}}), 7, &["ipam: type: expected a string, found a number"]),
        // A stack overflow once: the plugin asked itself for addresses.
        bridge(
            "ipam: the plugin itself",
            json!({"ipam": {"type": "bridge"}}),
            7,
            &["ipam.type: \"bridge\" is not an IPAM plugin", "host-local"],
        ),
        bridge("ipam: flannel", json!({"ipam": {"type": "flannel"}, "dataDir": "/run/x"}), 7, &["\"flannel\" is not an IPAM plugin"]),
        plugin("ipam: macvlan", "macvlan", json!({"ipam": {"type": "macvlan"}}), 7, &["\"macvlan\" is not an IPAM plugin"]),
        bridge("ipam without a type", json!({"ipam": {"subnet": "10.1.0.0/24"}}), 7, &["ipam.type: missing"]),
        bridge("runtimeConfig: a string", json!({"runtimeConfig": "x"}), 7, &["runtimeConfig: expected an object, found a string"]),
        bridge("args.cni: a number", json!({"args": {"cni": 7}}), 7, &["args.cni: expected an object, found a number"]),
        bridge(
            "no bridge for bad addresses",
            json!({"bridge": "fresh0", "ipam": {"type": "host-local", "subnet": "x"}}),
            7,
            &["ipam.subnet"],
        ),
        bridge(
            "pool: not found",
            pool(json!({"pool": "none"})),
            5,
            &["cannot read pool \"none\"", "none.json", "expected an IPPool as JSON in"],
        ),
        bridge("pool: a way out", pool(json!({"pool": "../lab"})), 5, &["cannot read pool \"../lab\"", "may contain only letters"]),
        bridge("pool: a number", pool(json!({"pool": 7})), 7, &["ipam.pool"]),
        bridge("pool: families", pool(json!({"families": ["ipv5"]})), 7, &["ipam.families[0]", "\"ipv5\" is unknown"]),
        bridge("pool: hostPrefix", pool(json!({"hostPrefix": "yes"})), 7, &["ipam.hostPrefix"]),
        bridge("pool: addWait", pool(json!({"addWait": "soon"})), 7, &["ipam.addWait"]),
        bridge("pool: routes", pool(json!({"routes": [{"dst": "x"}]})), 7, &["ipam.routes[0]"]),
        bridge(
            "pool: a family that it has not",
            {
                let mut keys = pool(json!({"families": ["ipv4"]}));
                keys["runtimeConfig"] = json!({"ips": ["fd00::1"]});
                keys
            },
            7,
            &["fd00::1 is requested, but no IPv6 address is assigned here"],
        ),
        bridge(
            "no bridge for a missing plugin",
            json!({"bridge": "fresh0", "ipam": {"type": "x"}}),
            7,
            &["ipam.type: failed to find plugin \"x\""],
        ),
        late(
            "interface taken by another network",
            json!({"name": "other", "ipam": {"type": "static", "addresses": [{"address": "10.7.0.2/24"}]}}),
            999,
            &["eth0", "already exists", "choose another CNI_IFNAME"],
        )
        .set("CNI_CONTAINERID", "attached")
        .set("CNI_NETNS", "/run/netns/attached"),
        late("attached already", json!({}), 4, &["eth0 already holds 10.1.0.2 on network net", "needs a DEL first"])
            .set("CNI_CONTAINERID", "attached")
            .set("CNI_NETNS", "/run/netns/attached"),
        late("the loopback's name", json!({}), 999, &["lo", "already exists"]).set("CNI_IFNAME", "lo"),
        late(
            "gateway of another network",
            json!({"isGateway": true, "ipam": {"type": "static", "addresses": [{"address": "10.9.0.2/24"}]}}),
            7,
            &["\"br0\"", "already has an IP address different from 10.9.0.1/24: it has 10.1.0.1/24", "forceAddress"],
        ),
        late(
            "no room for a gateway",
            {
                let mut keys = static_addresses(json!({"addresses": [{"address": "10.9.0.2/32"}]}));
                keys["isGateway"] = json!(true);
                keys
            },
            7,
            &["isGateway", "10.9.0.2/32", "no room"],
        ),
    ]
}

fn addresses() -> Vec<Case> {
    let asks = |ip: &str| json!({"runtimeConfig": {"ips": [ip]}});
    let ranges = |ranges: Value| host_local(json!({"ranges": ranges}));
    vec![
        bridge("ipam.type: a way out", json!({"ipam": {"type": "../host-local"}}), 7, &["ipam.type", "\"../host-local\"", "without '/'"]),
        late(
            "ipam.type: unknown",
            json!({"ipam": {"type": "nosuch"}}),
            7,
            &["failed to find plugin \"nosuch\" in path", "CNI_PATH", "`netloom plugins` lists"],
        ),
        late("no ranges", host_local(json!({})), 7, &["no IP ranges specified", "ipam.ranges", "10.1.0.0/16"]),
        late("ranges: not sets", ranges(json!([{"subnet": "10.1.0.0/24"}])), 7, &["ipam.ranges[0]"]),
        late("ranges: an empty set", ranges(json!([[]])), 7, &["ipam.ranges[0]", "at least one range"]),
        late("subnet: a number", host_local(json!({"subnet": 10})), 7, &["ipam.subnet", "string"]),
        late("subnet: no prefix length", host_local(json!({"subnet": "10.1.0.0"})), 7, &["ipam.subnet", "\"10.1.0.0\"", "10.1.0.0/16"]),
        late("subnet: host bits", host_local(json!({"subnet": "10.1.0.7/24"})), 7, &["10.1.0.7/24", "10.1.0.0/24"]),
        late("subnet: too small", host_local(json!({"subnet": "10.1.0.0/31"})), 7, &["10.1.0.0/31", "too small", "/30"]),
        late(
            "rangeStart: outside",
            host_local(json!({"subnet": "10.1.0.0/24", "rangeStart": "10.2.0.1"})),
            7,
            &["rangeStart", "10.2.0.1", "10.1.0.0/24"],
        ),
        late("rangeStart: IPv6", host_local(json!({"subnet": "10.1.0.0/24", "rangeStart": "fd00::1"})), 7, &["rangeStart", "family"]),
        late(
            "range: backwards",
            host_local(json!({"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.9", "rangeEnd": "10.1.0.5"})),
            7,
            &["10.1.0.5", "10.1.0.9", "swap"],
        ),
        late("gateway: no address", host_local(json!({"subnet": "10.1.0.0/24", "gateway": "router"})), 7, &["gateway", "\"router\""]),
        late(
            "ranges: two families in a set",
            ranges(json!([[{"subnet": "10.1.0.0/24"}, {"subnet": "fd00::/64"}]])),
            7,
            &["ipam.ranges[0][1]", "a set of its own"],
        ),
        late(
            "ranges: overlapping",
            ranges(json!([[{"subnet": "10.1.0.0/16"}], [{"subnet": "10.1.7.0/24"}]])),
            7,
            &["ipam.ranges[1]", "overlaps", "one range only"],
        ),
        late(
            "range: exhausted",
            json!({"name": "full", "ipam": {"type": "host-local", "subnet": "10.3.0.0/30"}}),
            11,
            &["network full", "no IP addresses available", "10.3.0.", "GC", "enlarge the range"],
        ),
        late("address: outside", asks("10.9.0.9"), 7, &["10.9.0.9", "outside of the ranges", "10.1.0."]),
        late("address: taken", asks("10.1.0.2"), 11, &["10.1.0.2 is taken", "attached", "choose another"]),
        late("address: the gateway's", asks("10.1.0.1"), 7, &["requested ip 10.1.0.1 is subnet's gateway", "10.1.0.0/24"]),
        late("address: none", asks("ten"), 7, &["runtimeConfig.ips", "\"ten\""]),
        late("address: a number", json!({"runtimeConfig": {"ips": [10]}}), 7, &["runtimeConfig.ips[0]"]),
        late("args.cni.ips", json!({"args": {"cni": {"ips": ["10.1.0.300"]}}}), 7, &["args.cni.ips", "\"10.1.0.300\""]),
        late(
            "route: no destination",
            host_local(json!({"subnet": "10.1.0.0/24", "routes": [{"gw": "10.1.0.1"}]})),
            7,
            &["ipam.routes[0].dst"],
        ),
        late(
            "route: two families",
            host_local(json!({"subnet": "10.1.0.0/24", "routes": [{"dst": "0.0.0.0/0", "gw": "fd00::1"}]})),
            7,
            &["ipam.routes[0].gw", "fd00::1", "family"],
        ),
        late(
            "route: a gateway out of reach",
            host_local(json!({"subnet": "10.1.0.0/24", "routes": [{"dst": "0.0.0.0/0", "gw": "192.0.2.1"}]})),
            999,
            &["unreachable", "check that the gateway is in the network of an address"],
        ),
        late("dataDir: a file", host_local(json!({"subnet": "10.1.0.0/24", "dataDir": "/run/file"})), 5, &["/run/file"]),
        late(
            "dataDir: read-only",
            host_local(json!({"subnet": "10.1.0.0/24", "dataDir": "/run/readonly"})),
            5,
            &["/run/readonly", "ead-only"],
        ),
        late(
            "resolvConf: missing",
            host_local(json!({"subnet": "10.1.0.0/24", "resolvConf": "/run/none"})),
            5,
            &["resolvConf", "/run/none", "correct the path"],
        ),
        late("static: no address", static_addresses(json!({})), 999, &["missing IP config", "static", "ipam.addresses"]),
        late(
            "static: no prefix length",
            static_addresses(json!({"addresses": [{"address": "10.1.0.9"}]})),
            7,
            &["ipam.addresses[0]", "'10.1.0.9'", "10.1.0.7/16"],
        ),
        late(
            "static: gateway of another family",
            static_addresses(json!({"addresses": [{"address": "10.1.0.9/24", "gateway": "fd00::1"}]})),
            7,
            &["ipam.addresses[0]", "fd00::1", "family"],
        ),
    ]
}

fn others() -> Vec<Case> {
    vec![
        plugin(
            "macvlan: no such parent",
            "macvlan",
            json!({"master": "eth9"}),
            7,
            &["master", "there is no interface \"eth9\" here; there are"],
        ),
        plugin("macvlan: a parent's name", "macvlan", json!({"master": "a/b"}), 7, &["master", "\"a/b\""]),
        plugin("macvlan: no parent", "macvlan", json!({"master": null}), 7, &["master", "no default route", "set \"master\""]),
        plugin("bridge: queues", "bridge", json!({"queues": 17}), 7, &["queues", "17", "16"]),
        plugin("bridge: queues negative", "bridge", json!({"queues": -1}), 7, &["queues", "-1", "16"]),
        plugin("ptp: queues", "ptp", json!({"queues": 4096}), 7, &["queues", "4096", "16"]),
        plugin("macvlan: mtu of the parent", "macvlan", json!({"mtu": 1501}), 7, &["mtu", "1501", "1500", "wire0"]),
        plugin("macvlan: mtu negative", "macvlan", json!({"mtu": -5}), 7, &["mtu", "-5"]),
        plugin("macvlan: mode", "macvlan", json!({"mode": "brigde"}), 7, &["mode", "brigde", "bridge"]),
        plugin("macvlan: the parent's queue", "macvlan", json!({"bcqueuelen": 100_001}), 7, &["bcqueuelen", "100001", "100000"]),
        plugin("macvlan: no queue at all", "macvlan", json!({"bcqueuelen": -1}), 7, &["bcqueuelen", "-1", "100000"]),
        plugin(
            "macvlan: a queue without end",
            "macvlan",
            json!({"bcqueuelen": 4_294_967_296_u64}),
            7,
            &["bcqueuelen", "4294967296", "100000"],
        ),
        plugin("macvlan: mac", "macvlan", json!({"mac": "ff:ff:ff:ff:ff:ff"}), 7, &["mac", "ff:ff:ff:ff:ff:ff"]),
        plugin("macvlan: a port of a bridge", "macvlan", json!({"master": "port0", "mode": "passthru"}), 999, &["port0", "bridge port"]),
        plugin("macvlan: interface taken", "macvlan", json!({}), 999, &["eth0", "already exists"])
            .set("CNI_CONTAINERID", "attached")
            .set("CNI_NETNS", "/run/netns/attached"),
        plugin(
            "bandwidth: a rate alone",
            "bandwidth",
            json!({"ingressRate": 9}),
            7,
            &["ingressBurst", "if rate is set, burst must also be set"],
        ),
        plugin(
            "bandwidth: a burst alone",
            "bandwidth",
            json!({"egressBurst": 9}),
            7,
            &["egressRate", "if burst is set, rate must also be set"],
        ),
        plugin("bandwidth: below zero", "bandwidth", json!({"egressRate": -9}), 7, &["egressRate", "-9"]),
        plugin(
            "bandwidth: a network",
            "bandwidth",
            json!({"shapedSubnets": ["10.1/16"]}),
            7,
            &["shapedSubnets[0]", "10.1/16", "10.1.0.0/16"],
        ),
        plugin(
            "bandwidth: the runtime's",
            "bandwidth",
            json!({"runtimeConfig": {"bandwidth": {"ingressRate": 9}}}),
            7,
            &["runtimeConfig.bandwidth.ingressBurst"],
        ),
        plugin("firewall: a backend", "firewall", json!({"backend": "pf"}), 7, &["backend", "pf", "nftables"]),
        plugin(
            "firewall: a policy",
            "firewall",
            json!({"ingressPolicy": "closed"}),
            7,
            &["unknown ingress policy", "closed", "same-bridge"],
        ),
        plugin("firewall: a chain of iptables' own", "firewall", json!({"iptablesAdminChainName": "ACCEPT"}), 7, &["ACCEPT"]),
        plugin("firewall: a chain", "firewall", json!({"iptablesAdminChainName": "a b"}), 7, &["iptablesAdminChainName", "a b"]),
        plugin("firewall: a zone", "firewall", json!({"firewalldZone": "a b"}), 7, &["firewalldZone", "a b"]),
        plugin("firewall: first in its chain", "firewall", json!({}), 7, &["prevResult", "missing prevResult from earlier plugin"]),
        plugin("bandwidth: first in its chain", "bandwidth", json!({}), 7, &["prevResult", "must be called as chained plugin"]),
        plugin("tuning: first in its chain", "tuning", json!({"prevResult": null, "mtu": 1400}), 7, &["prevResult", "missing"]),
        plugin("tuning: a kernel's sysctl", "tuning", json!({"sysctl": {"kernel.pid_max": "1"}}), 7, &["kernel.pid_max", "below net"]),
        plugin("tuning: a way out", "tuning", json!({"sysctl": {"net/../kernel/pid_max": "1"}}), 7, &["net/../kernel/pid_max"]),
        plugin("tuning: a list", "tuning", json!({"sysctl": {"net.core.somaxconn": [1]}}), 7, &["net.core.somaxconn", "expected a string"]),
        plugin("tuning: a number, not an object", "tuning", json!({"sysctl": 7}), 7, &["sysctl"]),
        plugin("tuning: given twice", "tuning", json!({"sysctl": {"net.a.b": "1", "net/a/b": "2"}}), 7, &["duplicated"]),
        plugin("tuning: mtu", "tuning", json!({"mtu": -1}), 7, &["mtu", "-1"]),
        plugin("tuning: promisc", "tuning", json!({"promisc": "on"}), 7, &["promisc"]),
        plugin("tuning: no interface", "tuning", json!({"mtu": 1400}), 999, &["no interface eth0 in the container"]),
        plugin("tuning: data in a file", "tuning", json!({"promisc": true, "dataDir": "/run/file/x"}), 5, &["/run/file/x"])
            .set("CNI_CONTAINERID", "attached")
            .set("CNI_NETNS", "/run/netns/attached"),
        plugin("tuning: no such sysctl", "tuning", json!({"mtu": 1400, "sysctl": {"net.ipv4.nosuch": "1"}}), 999, &["nosuch"])
            .set("CNI_CONTAINERID", "attached")
            .set("CNI_NETNS", "/run/netns/attached"),
        plugin(
            "tuning: mtu that the link cannot have",
            "tuning",
            json!({"mtu": 70_000, "promisc": true}),
            7,
            &["mtu: eth0", "68 to 65535"],
        )
        .set("CNI_CONTAINERID", "attached")
        .set("CNI_NETNS", "/run/netns/attached"),
    ]
}

fn switches() -> Vec<Case> {
    let ovs = |name, keys, code, says| plugin(name, "ovs", keys, code, says);
    let vhost = |name, keys: Value, says| {
        let mut whole = json!({"bridge": "br0", "socketDir": "/run/vhost", "ipam": null});
        whole.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        plugin(name, "ovs-vhost-user", whole, 7, says)
    };
    vec![
        ovs("ovs: no bridge", json!({"bridge": null}), 7, &["bridge", "missing", "ovs-vsctl list-br"]),
        ovs("ovs: a bridge's name", json!({"bridge": "a/b"}), 7, &["bridge", "a/b"]),
        ovs("ovs: vlan", json!({"vlan": 4095}), 7, &["vlan", "4095", "4094"]),
        ovs("ovs: vlan negative", json!({"vlan": -1}), 7, &["vlan", "-1"]),
        ovs("ovs: vlan and trunk", json!({"vlan": 1, "trunk": [{"id": 2}]}), 7, &["vlan", "trunk", "either"]),
        ovs("ovs: trunk", json!({"trunk": [{"id": 2}, {"id": 4095}]}), 7, &["trunk[1]", "incorrect trunk id parameter", "4094"]),
        ovs("ovs: half a trunk", json!({"trunk": [{"minID": 2}]}), 7, &["trunk[0]", "maxID is missing"]),
        ovs("ovs: mtu", json!({"mtu": 67}), 7, &["mtu", "67", "68"]),
        ovs("ovs: an OpenFlow port", json!({"ofport_request": 65280}), 7, &["ofport_request", "65280", "65279"]),
        ovs("ovs: another host's database", json!({"socket_file": "tcp:192.0.2.1:6640"}), 7, &["socket_file", "tcp:192.0.2.1:6640"]),
        ovs("ovs: another file", json!({"configuration_path": "/etc/ovs.conf"}), 7, &["configuration_path", "socket_file"]),
        ovs("ovs: a function", json!({"deviceID": "0000:00:03.0"}), 7, &["deviceID", "veth pair"]),
        ovs("ovs: a port's ID", json!({"iface_id": "a b"}), 7, &["iface_id", "\"a b\"", "is not a port's ID"]),
        ovs("ovs: a port of Neutron in a VLAN", json!({"iface_id": "x", "vlan": 7}), 7, &["iface_id", "remove vlan and trunk"]),
        plugin("sriov-vf: no device", "sriov-vf", json!({}), 7, &["pciBusID", "no virtual function is named", "deviceID"]),
        plugin("sriov-vf: a path", "sriov-vf", json!({"pciBusID": "../0000:00:01.0"}), 7, &["pciBusID", "there is no PCI device"]),
        plugin("sriov-vf: vlan", "sriov-vf", json!({"pciBusID": "x", "vlan": 4095}), 7, &["vlan", "4095", "4094"]),
        plugin(
            "sriov-vf: priority",
            "sriov-vf",
            json!({"pciBusID": "x", "vlan": 1, "vlanQoS": 8}),
            7,
            &["vlanQoS", "8 is not between 0 and 7"],
        ),
        plugin("sriov-vf: priority alone", "sriov-vf", json!({"pciBusID": "x", "vlanQoS": 1}), 7, &["vlanQoS", "set vlan"]),
        plugin("sriov-vf: mtu", "sriov-vf", json!({"pciBusID": "x", "mtu": 67}), 7, &["mtu", "67", "68"]),
        plugin(
            "sriov-vf: a driver",
            "sriov-vf",
            json!({"pciBusID": "x", "driver": "igbvf"}),
            7,
            &["driver", "igbvf", "vfio-pci, uio_pci_generic, igb_uio"],
        ),
        plugin("dpdk-device: no device", "dpdk-device", json!({}), 7, &["pciBusID", "no device is named", "hwaddr"]),
        plugin(
            "dpdk-device: no such address",
            "dpdk-device",
            json!({"hwaddr": "02:00:00:00:00:99"}),
            7,
            &["hwaddr", "no interface of this host"],
        ),
        plugin("dpdk-device: no address", "dpdk-device", json!({"hwaddr": "02:00"}), 7, &["hwaddr", "02:00"]),
        plugin(
            "dpdk-device: a directory",
            "dpdk-device",
            json!({"pciBusID": "x", "pciDir": "/run/../etc"}),
            7,
            &["pciDir", "/run/../etc", "no .."],
        ),
        plugin("dpdk-device: a driver", "dpdk-device", json!({"pciBusID": "x", "driver": "e1000"}), 7, &["driver", "e1000", "vfio-pci"]),
        plugin("ovs-hybrid: no port", "ovs-hybrid", json!({"bridge": "br-int"}), 7, &["iface_id", "missing", "Neutron port"]),
        plugin("ovs-hybrid: a name for links", "ovs-hybrid", json!({"bridge": "br-int", "iface_id": "a:b"}), 7, &["iface_id", "qbra:b"]),
        plugin(
            "ovs-hybrid: an OpenFlow port",
            "ovs-hybrid",
            json!({"bridge": "br-int", "iface_id": "x", "ofport_request": 7}),
            7,
            &["ofport_request", "ovs-hybrid"],
        ),
        vhost("ovs-vhost-user: no directory", json!({"socketDir": null}), &["socketDir", "is not a directory for a socket"]),
        vhost("ovs-vhost-user: steps", json!({"socketDir": "/run/../etc"}), &["socketDir", "/run/../etc"]),
        vhost("ovs-vhost-user: a long path", json!({"socketDir": format!("/{}", "x".repeat(93))}), &["socketDir", "up to 92 characters"]),
        vhost("ovs-vhost-user: a mode", json!({"mode": "both"}), &["mode", "\"both\" is neither client nor server"]),
        vhost("ovs-vhost-user: a name", json!({"iface_id": "a:b"}), &["iface_id", "vhua:b"]),
        ovs("ovs: no switch", json!({}), 11, &["ovsdb-server at /var/run/openvswitch/db.sock", "check that ovsdb-server runs"]),
    ]
}

fn other_verbs() -> Vec<Case> {
    let call = |name, verb, plugin: &'static str, keys, code, says| raw(name, verb, plugin, config(plugin, keys).to_string(), code, says);
    let on_br0 = |keys: Value| {
        let mut keys = keys;
        keys["bridge"] = json!("br0");
        keys
    };
    vec![
        call("CHECK without a result", "CHECK", "macvlan", json!({}), 7, &["Required prevResult missing"]),
        call("CHECK with text for a result", "CHECK", "bridge", json!({"prevResult": "yes"}), 6, &["prevResult"]),
        call(
            "CHECK with a broken result",
            "CHECK",
            "bridge",
            json!({"prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "ten"}]}}),
            6,
            &["prevResult", "ten"],
        ),
        call(
            "CHECK of another's result",
            "CHECK",
            "bridge",
            json!({"prevResult": {"cniVersion": "1.1.0"}, "ipam": null}),
            7,
            &["prevResult", "no interface eth0"],
        ),
        call("CHECK of what is gone", "CHECK", "macvlan", json!({"prevResult": prev()}), 999, &["eth0", "gone from the container"]),
        call("CHECK of a lease that is gone", "CHECK", "bridge", json!({"prevResult": prev()}), 999, &["host-local", "c1", "net"]),
        call("CHECK of a loopback that is down", "CHECK", "loopback", json!({}), 999, &["loopback", "down", "restart the pod"]),
        call("GC without a list", "GC", "bridge", json!({}), 7, &["cni.dev/valid-attachments", "that are to be kept"]),
        call("GC with no list", "GC", "host-local", json!({"cni.dev/valid-attachments": {}}), 7, &["cni.dev/valid-attachments"]),
        call(
            "GC with a bad element",
            "GC",
            "host-local",
            json!({"cni.dev/valid-attachments": [{"containerID": "ok", "ifname": "eth0"}, {"containerID": "../x", "ifname": "eth0"}]}),
            7,
            &["cni.dev/valid-attachments[1]", "\"../x\""],
        ),
        call("STATUS: another device", "STATUS", "bridge", json!({"bridge": "wire0"}), 50, &["wire0", "is not a bridge"]),
        call("STATUS: IPAM unknown", "STATUS", "bridge", on_br0(json!({"ipam": {"type": "nosuch"}})), 50, &["\"nosuch\"", "CNI_PATH"]),
        call("STATUS: bad ranges", "STATUS", "bridge", on_br0(host_local(json!({"subnet": "10.1.0.7/24"}))), 50, &["10.1.0.7/24"]),
        call(
            "STATUS: data in a file",
            "STATUS",
            "host-local",
            host_local(json!({"subnet": "10.1.0.0/24", "dataDir": "/run/file"})),
            50,
            &["/run/file"],
        ),
        call("STATUS: no parent", "STATUS", "macvlan", json!({"master": "eth9"}), 50, &["no interface \"eth9\"", "br0"]),
        call("STATUS: vlan", "STATUS", "bridge", json!({"vlan": 5000}), 7, &["invalid VLAN ID 5000"]),
        call("DEL: IPAM unknown", "DEL", "bridge", on_br0(json!({"ipam": {"type": "nosuch"}})), 7, &["\"nosuch\"", "CNI_PATH"]),
    ]
}

/// A machine with a bridge and one attachment to it, a full network, a wire, and a few traps.
fn world() -> Host {
    let host = Host::new();
    for container in ["c1", "attached", "only"] {
        host.container(container);
    }
    for line in [
        "ip link add wire0 type veth peer name wire1",
        "ip link add br1 type bridge",
        "ip link add port0 type veth peer name port1",
        "ip link set port0 master br1",
        "mkdir /run/readonly",
        "mount -t tmpfs -o ro none /run/readonly",
    ] {
        host.sh("", line);
    }
    host.write("/run/file", "no namespace\n");
    let cni = host.cni(plugin_dir());
    cni.clone().at("attached", "eth0").add(&config("bridge", json!({"bridge": "br0", "isGateway": true})));
    host.write("/run/pools/lab.json", r#"{"spec": {"ipv4": {"entries": [{"cidr": "10.8.0.0/24"}]}}}"#);
    let full = json!({"bridge": "br0", "name": "full", "ipam": {"type": "host-local", "subnet": "10.3.0.0/30"}});
    cni.clone().at("only", "eth0").add(&config("bridge", full));
    let tuned = config("tuning", json!({"promisc": true}));
    cni.clone().at("attached", "eth0").add(&tuned);
    cni.at("attached", "eth0").del(&tuned, &Value::Null);
    host
}

fn call(host: &Host, case: &Case) -> Result<(), String> {
    let cni = host.cni(plugin_dir()).at("c1", "eth0");
    let cni = case.vars.iter().fold(cni, |cni, (name, value)| if value.is_empty() { cni.unset(name) } else { cni.set(name, value) });
    let outcome = cni.call(case.verb, case.plugin, &case.input);
    if std::env::var_os("NETLOOM_TESTS_SHOW").is_some() {
        println!("{:34} {:6} {}", case.name, case.verb, outcome.stdout.replace("\n   ", ""));
    }
    let said = std::panic::catch_unwind(|| (outcome.error()["code"].as_u64().unwrap(), outcome.message()));
    let (code, message) = said.map_err(|_| format!("no error object: {outcome:?}"))?;
    let missing: Vec<&&str> = case.says.iter().filter(|s| !message.contains(**s)).collect();
    if code != case.code || !missing.is_empty() {
        return Err(format!("code {code} (expected {}), without {missing:?}: {message}", case.code));
    }
    Ok(())
}

/// A runtime deletes what it could not add: what a plugin cannot make sense of does not keep a container from going.
#[test]
fn what_add_refused_can_be_deleted() {
    let host = world();
    let before = host.traces();
    let cni = host.cni(plugin_dir()).at("c1", "eth0");
    for keys in [
        json!({"vlan": 5000}),
        json!({"mtu": "1500"}),
        json!({"mac": 7, "dns": []}),
        json!({"runtimeConfig": {"ips": [7]}}),
        host_local(json!({"subnet": 10})),
        host_local(json!({"ranges": [{"subnet": "10.1.0.0/24"}]})),
        static_addresses(json!({"addresses": [{"address": "ten"}]})),
    ] {
        cni.del(&config("bridge", keys), &Value::Null);
    }
    cni.del(&config("macvlan", json!({"master": "eth9", "mode": 7})), &Value::Null);
    for ipam in [json!({"type": "../x"}), json!({"subnet": "10.1.0.0/24"}), json!("host-local")] {
        cni.del(&config("macvlan", json!({"ipam": ipam})), &Value::Null);
    }
    for keys in [json!({"mtu": -1}), json!({"sysctl": 7}), json!({"sysctl": {"kernel.pid_max": "1"}})] {
        cni.del(&config("tuning", keys), &Value::Null);
    }
    cni.set("CNI_ARGS", "FOO=1").del(&config("tuning", json!({})), &Value::Null);
    host.expect_traces(&before, "a series of DEL");
}

#[test]
fn what_is_wrong_is_told_and_leaves_no_trace() {
    let cases: Vec<Case> =
        [input(), versions(), environment(), bridges(), addresses(), others(), switches(), other_verbs()].into_iter().flatten().collect();
    let host = world();
    let before = host.traces();
    let mut wrong = Vec::new();
    for case in &cases {
        let told = call(&host, case);
        wrong.extend(told.err().map(|e| format!("{}: {e}", case.name)));
        let left = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| host.expect_traces(&before, case.name)));
        // What was left stays, and would be told again after every other row.
        assert!(left.is_ok(), "{}\n{} left traces: see above", wrong.join("\n"), case.name);
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// VERSION reads no configuration and needs no variable.
#[test]
fn version_answers_whatever_it_is_given() {
    let host = Host::new();
    for input in ["", "{", "{\"cniVersion\":\"9.9.9\"}"] {
        let answer = host.cni(plugin_dir()).unset("CNI_PATH").call("VERSION", "bridge", input).result();
        assert_eq!(answer["cniVersion"], "1.1.0");
        assert_eq!(answer["supportedVersions"], json!(["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]));
    }
}
