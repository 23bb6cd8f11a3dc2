//! A machine with a bridge, and namespaces that listen and ask.
//!
//! ```text
//!   outside 192.0.2.2 --wire-- 192.0.2.1 the machine 10.88.0.1 --cni0-- c1, c2: `bridge`, then `portmap`
//!   2001:db8::2                2001:db8::1            fd88::1  --far--- elsewhere 198.51.100.2, 2001:db8:1::2
//! ```

use std::time::Duration;

use netloom_tests::{Cni, Host, Outcome, Traces, plugin_dir};
use serde_json::{Value, json};

/// The machine's addresses on the wire to `outside`.
pub(crate) const HOST4: &str = "192.0.2.1";
pub(crate) const HOST6: &str = "2001:db8::1";
/// Those of `outside`.
pub(crate) const OUTSIDE4: &str = "192.0.2.2";
pub(crate) const OUTSIDE6: &str = "2001:db8::2";
/// The machine's on the bridge.
pub(crate) const GATEWAY4: &str = "10.88.0.1";
pub(crate) const GATEWAY6: &str = "fd88::1";

/// How long one is waited for that shall not come: one that comes later is missed, and nothing else.
const IMPATIENCE: Duration = Duration::from_millis(700);

pub(crate) struct Scene {
    pub(crate) host: Host,
    /// What was there when a container had come and gone once.
    pub(crate) before: Traces,
    /// `PATH` of the plugins' calls, where it is not the test's own.
    pub(crate) path: Option<String>,
}

/// An attachment that a test made.
pub(crate) struct Attached {
    pub(crate) container: String,
    /// The result of the whole chain.
    pub(crate) result: Value,
    /// What `portmap` was called with.
    pub(crate) config: Value,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let host = Host::new();
        host.wire("outside", "wire", [HOST4, HOST6], [OUTSIDE4, OUTSIDE6]);
        host.wire("elsewhere", "far", ["198.51.100.1", "2001:db8:1::1"], ["198.51.100.2", "2001:db8:1::2"]);
        host.sh("", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        ["c1", "c2"].iter().for_each(|c| host.container(c));
        let mut scene = Scene { host, before: Traces::new(), path: None };
        for container in ["c1", "c2"] {
            let both = json!([tcp(1, 1), {"hostPort": 1, "containerPort": 1, "protocol": "udp", "hostIP": HOST4}]);
            scene.del(&scene.add(container, &both));
        }
        scene.before = scene.host.traces();
        scene
    }

    /// Attaches a container with these `portMappings`.
    pub(crate) fn add(&self, container: &str, mappings: &Value) -> Attached {
        self.add_with(container, mappings, &json!({}))
    }

    /// As [`Scene::add`], with more keys for `portmap`.
    pub(crate) fn add_with(&self, container: &str, mappings: &Value, keys: &Value) -> Attached {
        let (outcome, attached) = self.try_add(container, mappings, keys);
        assert_eq!(outcome.result(), attached.result, "the result is passed on");
        attached
    }

    /// What `portmap` says when it is called behind a `bridge` that has succeeded.
    pub(crate) fn try_add(&self, container: &str, mappings: &Value, keys: &Value) -> (Outcome, Attached) {
        let result = self.cni(container).add(&bridge());
        let config = portmap(mappings, keys);
        let mut given = config.clone();
        given["prevResult"] = result.clone();
        let outcome = self.cni(container).call("ADD", "portmap", given.to_string());
        (outcome, Attached { container: container.to_owned(), result, config })
    }

    /// Detaches it, in the order of a runtime.
    pub(crate) fn del(&self, attached: &Attached) {
        self.cni(&attached.container).del(&attached.config, &attached.result);
        self.cni(&attached.container).del(&bridge(), &attached.result);
    }

    /// A call of a plugin for a container's `eth0`.
    pub(crate) fn cni(&self, container: &str) -> Cni<'_> {
        let cni = self.host.cni(plugin_dir()).at(container, "eth0");
        match &self.path {
            Some(path) => cni.set("PATH", path),
            None => cni,
        }
    }

    pub(crate) fn check(&self, attached: &Attached) -> Outcome {
        self.cni(&attached.container).check(&attached.config, &attached.result)
    }

    /// All that CHECK, DEL and packets need is gone, and nothing else.
    pub(crate) fn expect_nothing(&self) {
        self.host.expect_traces(&self.before, "the last DEL");
    }

    /// Lets a namespace answer TCP and UDP at a port, at all its addresses, with its name and the address that it sees. Until
    /// the test ends.
    pub(crate) fn answer(&self, place: &str, port: u16) {
        self.answer_at(place, "::", port);
    }

    /// As [`Scene::answer`], at one address; `::` is all of both families.
    pub(crate) fn answer_at(&self, place: &str, address: &str, port: u16) {
        let name = if place.is_empty() { "host" } else { place };
        self.host.answer_at(place, name, address, port);
    }

    /// Who answers a namespace (`""`: the machine) that connects to this address, and as whom it is seen.
    pub(crate) fn tcp(&self, from: &str, address: &str, port: u16) -> String {
        self.host.told_over_tcp(from, address, port)
    }

    /// Whether somebody answers soon.
    pub(crate) fn reaches(&self, from: &str, address: &str, port: u16) -> bool {
        self.host.ask_tcp(from, address, port, IMPATIENCE).is_ok()
    }

    /// As [`Scene::tcp`], over UDP: what is lost is sent again.
    pub(crate) fn udp(&self, from: &str, address: &str, port: u16) -> String {
        self.host.told_over_udp(from, address, port)
    }
}

pub(crate) fn tcp(host: u16, container: u16) -> Value {
    json!({"hostPort": host, "containerPort": container, "protocol": "tcp"})
}

pub(crate) fn udp(host: u16, container: u16) -> Value {
    json!({"hostPort": host, "containerPort": container, "protocol": "udp"})
}

/// The network that the containers are in. With `br_netfilter` what a container sends to itself is bridged, out of the port that it
/// came in by.
pub(crate) fn bridge() -> Value {
    let range = |subnet: &str| json!([{"subnet": subnet}]);
    json!({
        "cniVersion": "1.1.0", "name": "published", "type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "hairpinMode": true,
        "ipam": {"type": "host-local", "ranges": [range("10.88.0.0/24"), range("fd88::/64")]}
    })
}

pub(crate) fn portmap(mappings: &Value, keys: &Value) -> Value {
    let mut config = json!({
        "cniVersion": "1.1.0", "name": "published", "type": "portmap", "capabilities": {"portMappings": true},
        "runtimeConfig": {"portMappings": mappings}
    });
    for (key, value) in keys.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}
