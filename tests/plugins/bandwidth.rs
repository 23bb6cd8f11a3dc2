//! `bandwidth`: what `tc` says is there, what passes in a second, and what is left.

mod life;
mod rates;
mod refusals;
mod subnets;

use netloom_tests::{Cni, Host, Traces, peers_dir, plugin_dir};
use serde_json::{Value, json};

/// A machine with containers, each attached by `bridge` before; the host is 10.1.0.1 and fd00:1::1 to them.
struct Scene {
    host: Host,
    bridge: Value,
    /// What `bridge` answered for `c1`.
    result: Value,
    /// What was there then.
    before: Traces,
}

// === impl Scene ===

impl Scene {
    fn new() -> Self {
        let bridge = json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "isDefaultGateway": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]}});
        let host = Host::new();
        host.container("c1");
        let result = host.cni(plugin_dir()).at("c1", "eth0").add(&bridge);
        let before = host.traces();
        Scene { host, bridge, result, before }
    }

    fn cni(&self) -> Cni<'_> {
        self.host.cni(plugin_dir()).at("c1", "eth0")
    }

    /// The reference plugins.
    fn peer(&self) -> Cni<'_> {
        self.host.cni(peers_dir()).at("c1", "eth0")
    }

    /// The configuration of a call of `bandwidth`, with the result of `bridge`.
    fn config(&self, keys: Value) -> Value {
        bandwidth(keys, &self.result)
    }

    /// ADD, which is to succeed: its configuration and its answer.
    fn limited(&self, keys: Value) -> (Value, Value) {
        let config = self.config(keys);
        let result = self.cni().add(&config);
        (config, result)
    }

    /// DEL, after which all is as before the limits.
    fn ends(&self, config: &Value, result: &Value) {
        self.cni().del(config, result);
        assert_eq!((self.qdiscs(&self.outer()), self.ifbs()), (vec![], vec![]));
        self.host.expect_traces(&self.before, &format!("{config}"));
    }

    /// The host's end of the container's pair.
    fn outer(&self) -> String {
        self.result["interfaces"][1]["name"].as_str().unwrap().to_owned()
    }

    /// What `tc` tells of a link's own qdiscs: kind and options.
    fn qdiscs(&self, link: &str) -> Vec<Value> {
        let all = self.host.json("", &format!("tc -j qdisc show dev {link}"));
        all.as_array().unwrap().iter().filter(|q| q["handle"] != "0:").cloned().collect()
    }

    /// The names of the ifbs that there are.
    fn ifbs(&self) -> Vec<String> {
        let all = self.host.json("", "ip -j link show type ifb");
        all.as_array().unwrap().iter().filter_map(|l| l["ifname"].as_str().map(str::to_owned)).collect()
    }
}

fn bandwidth(keys: Value, prev: &Value) -> Value {
    let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": "bandwidth", "prevResult": prev});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

/// The same rate and burst in both directions.
fn both(rate: u64, burst: u64) -> Value {
    json!({"ingressRate": rate, "ingressBurst": burst, "egressRate": rate, "egressBurst": burst})
}
