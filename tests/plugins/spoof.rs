//! `macspoofchk` of `bridge`: what passes, what is dropped and counted, and what is left. Judged by frames and by `nft`.

mod frames;
mod life;
mod rules_command;

use netloom_tests::{Cni, Host, Traces, at, attached_once};
use serde_json::{Value, json};

/// A machine on which a guarded attachment has come and gone.
struct Scene {
    host: Host,
    before: Traces,
}

/// An attachment, and the configuration of its plugin.
struct Attached {
    container: &'static str,
    config: Value,
    result: Value,
}

// === impl Scene ===

impl Scene {
    fn new() -> Self {
        let host = Host::new();
        ["c1", "c2"].iter().for_each(|c| host.container(c));
        let before = attached_once(&host, &bridge(json!({})));
        Scene { host, before }
    }

    fn cni(&self, container: &str) -> Cni<'_> {
        at(&self.host, container)
    }

    /// A container that is attached with more keys; the host is 10.1.0.1 and fd00:1::1 to it.
    fn attach(&self, container: &'static str, keys: Value) -> Attached {
        let config = bridge(keys);
        let result = self.cni(container).add(&config);
        Attached { container, config, result }
    }

    fn detach(&self, attached: &Attached) {
        self.cni(attached.container).del(&attached.config, &attached.result);
    }

    /// What `nft` lists of a set.
    fn set(&self, name: &str) -> Vec<Value> {
        let listed = self.host.json("", &format!("nft -j list set bridge netloom {name}"));
        let set = listed["nftables"].as_array().unwrap().iter().find_map(|o| o.get("set")).unwrap();
        set["elem"].as_array().cloned().unwrap_or_default()
    }

    /// How many frames of an attachment were dropped, by `nft`.
    fn dropped(&self, attached: &Attached) -> u64 {
        let owner = format!("net/{}/eth0", attached.container);
        let guarded = self.set("guarded");
        let own = guarded.iter().find(|e| e["elem"]["comment"] == owner.as_str()).unwrap_or_else(|| panic!("{owner}: {guarded:?}"));
        own["elem"]["counter"]["packets"].as_u64().unwrap()
    }

    fn expect_nothing(&self) {
        assert_eq!((self.set("macs"), self.set("guarded"), self.set("ordinary")), (vec![], vec![], vec![]));
        self.host.expect_traces(&self.before, "all have gone");
    }
}

// === impl Attached ===

impl Attached {
    fn interface(&self, n: usize, key: &str) -> &str {
        self.result["interfaces"][n][key].as_str().unwrap()
    }

    /// The host's end of its pair.
    fn port(&self) -> &str {
        self.interface(1, "name")
    }

    /// The container's hardware address.
    fn mac(&self) -> &str {
        self.interface(2, "mac")
    }

    /// The container's address, of IPv4 or of IPv6.
    fn address(&self, v4: bool) -> String {
        netloom_tests::ips(&self.result).into_iter().find(|ip| ip.contains('.') == v4).unwrap()
    }
}

fn bridge(keys: Value) -> Value {
    let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "isDefaultGateway": true,
        "macspoofchk": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]}});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}
