//! A router with a filter, a bridge or two, and a neighbour.
//!
//! ```text
//!   outside 192.0.2.2 --wire-- 192.0.2.1 the machine 10.88.0.1 --br0-- c1, c2
//!   2001:db8::2                2001:db8::1  FORWARD drops 10.89.0.1 --br1-- c3
//! ```

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use netloom_tests::{Cni, Host, Outcome, Traces, plugin_dir};
use serde_json::{Value, json};

/// The neighbour's addresses.
pub(crate) const OUTSIDE: [&str; 2] = ["192.0.2.2", "2001:db8::2"];

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one is waited for that shall not come: one that comes later is missed, and nothing else.
const IMPATIENCE: Duration = Duration::from_millis(700);

pub(crate) struct Scene {
    pub(crate) host: Host,
    /// What was there before the first attachment; see [`Scene::settle`].
    pub(crate) before: Traces,
}

/// An attachment that a test made.
pub(crate) struct Attached {
    pub(crate) container: String,
    /// Its addresses, IPv4 first.
    pub(crate) addresses: [String; 2],
    /// The result of the whole chain.
    pub(crate) result: Value,
    /// What `bridge` and `firewall` were called with.
    pub(crate) bridge: Value,
    pub(crate) config: Value,
}

impl Scene {
    /// A router that forwards.
    pub(crate) fn open() -> Self {
        let host = Host::new();
        host.container("outside");
        host.sh("", "ip link add wire type veth peer name eth0 netns outside");
        for (place, dev, v4, v6) in [("", "wire", "192.0.2.1", "2001:db8::1"), ("outside", "eth0", OUTSIDE[0], OUTSIDE[1])] {
            host.sh(place, &format!("ip addr add {v4}/24 dev {dev}"));
            host.sh(place, &format!("ip -6 addr add {v6}/64 dev {dev} nodad"));
            host.sh(place, &format!("ip link set {dev} up"));
        }
        host.sh("outside", "ip route add default via 192.0.2.1");
        host.sh("outside", "ip -6 route add default via 2001:db8::1");
        host.sh("", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        ["c1", "c2", "c3"].iter().for_each(|c| host.container(c));
        let before = host.traces();
        Scene { host, before }
    }

    /// As [`Scene::open`], where iptables drops what no rule accepts.
    pub(crate) fn closed() -> Self {
        let mut scene = Self::open();
        scene.policy("DROP");
        scene.before = scene.host.traces();
        scene
    }

    pub(crate) fn policy(&self, policy: &str) {
        self.host.sh("", &format!("iptables -P FORWARD {policy}"));
        self.host.sh("", &format!("ip6tables -P FORWARD {policy}"));
    }

    /// Attaches and detaches a container: what is installed once is there then, and what is there is no trace.
    pub(crate) fn settle(&mut self, keys: &Value) {
        self.del(&self.add("c1", keys));
        self.before = self.host.traces();
    }

    /// Attaches a container to `br0`, with these keys for `firewall`.
    pub(crate) fn add(&self, container: &str, keys: &Value) -> Attached {
        self.add_at("br0", container, keys)
    }

    /// As [`Scene::add`], at one of the bridges.
    pub(crate) fn add_at(&self, bridge: &str, container: &str, keys: &Value) -> Attached {
        let (outcome, attached) = self.try_add(bridge, container, keys);
        assert_eq!(outcome.result(), attached.result, "the result is passed on");
        attached
    }

    /// What `firewall` says when it is called behind a `bridge` that has succeeded.
    pub(crate) fn try_add(&self, bridge: &str, container: &str, keys: &Value) -> (Outcome, Attached) {
        let made_by = network(bridge);
        let result = self.cni(container).add(&made_by);
        let config = firewall(bridge, keys);
        let outcome = self.call(container, "ADD", &config, &result);
        let address = |i: usize| result["ips"][i]["address"].as_str().unwrap().split('/').next().unwrap().to_owned();
        let addresses = [address(0), address(1)];
        (outcome, Attached { container: container.to_owned(), addresses, result, bridge: made_by, config })
    }

    /// Calls a plugin with a previous result.
    pub(crate) fn call(&self, container: &str, verb: &str, config: &Value, prev: &Value) -> Outcome {
        let mut given = config.clone();
        given["prevResult"] = prev.clone();
        self.cni(container).call(verb, "firewall", given.to_string())
    }

    /// Detaches it, in the order of a runtime.
    pub(crate) fn del(&self, attached: &Attached) {
        self.cni(&attached.container).del(&attached.config, &attached.result);
        self.cni(&attached.container).del(&attached.bridge, &attached.result);
    }

    /// A call of a plugin for a container's `eth0`.
    pub(crate) fn cni(&self, container: &str) -> Cni<'_> {
        self.host.cni(plugin_dir()).at(container, "eth0")
    }

    pub(crate) fn check(&self, attached: &Attached) -> Outcome {
        self.cni(&attached.container).check(&attached.config, &attached.result)
    }

    pub(crate) fn expect_nothing(&self) {
        self.host.expect_traces(&self.before, "the last DEL");
    }

    /// Whether somebody connects over TCP to an address of somebody else within a minute.
    pub(crate) fn connects(&self, from: &str, to: &str, address: &str) -> bool {
        self.host.tcp(from, to, address)
    }

    /// Whether nobody answers there soon.
    pub(crate) fn is_kept_from(&self, from: &str, to: &str, address: &str) -> bool {
        let ip: IpAddr = address.parse().unwrap();
        let server = self.host.within(to, || TcpListener::bind(SocketAddr::new(ip, 0)).unwrap());
        let port = server.local_addr().unwrap();
        self.host.within(from, || TcpStream::connect_timeout(&port, IMPATIENCE)).is_err()
    }

    /// Whether a datagram that nobody asked for arrives soon. What is sent is sent from `source`, if told.
    pub(crate) fn arrives(&self, from: &str, source: &str, to: &str, address: &str, wanted: bool) -> bool {
        let ip: IpAddr = address.parse().unwrap();
        let server = self.host.within(to, || UdpSocket::bind((ip, 0)).unwrap());
        let client = self.host.within(from, || UdpSocket::bind((source.parse::<IpAddr>().unwrap(), 0)).unwrap());
        server.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let end = std::time::Instant::now() + if wanted { PATIENCE } else { IMPATIENCE };
        while std::time::Instant::now() < end {
            let _ = client.send_to(b"hello", server.local_addr().unwrap());
            if server.recv_from(&mut [0; 8]).is_ok() {
                return true;
            }
        }
        false
    }
}

/// The network of a bridge.
pub(crate) fn network(bridge: &str) -> Value {
    let number = bridge.trim_start_matches("br");
    let ranges = json!([[{"subnet": format!("10.88.{number}.0/24")}], [{"subnet": format!("fd88:{number}::/64")}]]);
    json!({
        "cniVersion": "1.0.0", "name": format!("net-{bridge}"), "type": "bridge", "bridge": bridge, "isDefaultGateway": true,
        "ipam": {"type": "host-local", "ranges": ranges}
    })
}

pub(crate) fn firewall(bridge: &str, keys: &Value) -> Value {
    let mut config = json!({"cniVersion": "1.0.0", "name": format!("net-{bridge}"), "type": "firewall"});
    for (key, value) in keys.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}
