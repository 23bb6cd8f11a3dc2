//! A machine with a bridge, and namespaces that listen and ask.
//!
//! ```text
//!   outside 192.0.2.2 --wire-- 192.0.2.1 the machine 10.88.0.1 --cni0-- c1, c2: `bridge`, then `portmap`
//!   2001:db8::2                2001:db8::1            fd88::1  --far--- elsewhere 198.51.100.2, 2001:db8:1::2
//! ```

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
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

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
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
        wire(&host, "outside", "wire", [HOST4, HOST6], [OUTSIDE4, OUTSIDE6]);
        wire(&host, "elsewhere", "far", ["198.51.100.1", "2001:db8:1::1"], ["198.51.100.2", "2001:db8:1::2"]);
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
        let at = SocketAddr::new(address.parse().unwrap(), port);
        let (tcp, udp) = self.host.within(place, || (TcpListener::bind(at).unwrap(), UdpSocket::bind(at).unwrap()));
        let name = if place.is_empty() { "host" } else { place };
        let line = |name: &str, from: SocketAddr| format!("{name} {}\n", from.ip().to_canonical());
        let names = [name.to_owned(), name.to_owned()];
        let [of_tcp, of_udp] = names;
        std::thread::spawn(move || {
            while let Ok((mut connection, from)) = tcp.accept() {
                let _ = connection.write_all(line(&of_tcp, from).as_bytes());
            }
        });
        std::thread::spawn(move || {
            let mut asked = [0; 16];
            while let Ok((length, from)) = udp.recv_from(&mut asked) {
                let question = String::from_utf8_lossy(&asked[..length]).into_owned();
                let _ = udp.send_to((question + " " + &line(&of_udp, from)).as_bytes(), from);
            }
        });
    }

    /// Who answers a namespace (`""`: the machine) that connects to this address, and as whom it is seen.
    pub(crate) fn tcp(&self, from: &str, address: &str, port: u16) -> String {
        self.ask_tcp(from, address, port, PATIENCE).unwrap_or_else(|e| format!("{e}"))
    }

    /// Whether somebody answers soon.
    pub(crate) fn reaches(&self, from: &str, address: &str, port: u16) -> bool {
        self.ask_tcp(from, address, port, IMPATIENCE).is_ok()
    }

    fn ask_tcp(&self, from: &str, address: &str, port: u16, patience: Duration) -> std::io::Result<String> {
        let to = SocketAddr::new(address.parse().unwrap(), port);
        let mut stream = self.host.within(from, || TcpStream::connect_timeout(&to, patience))?;
        stream.set_read_timeout(Some(patience))?;
        let mut said = String::new();
        stream.read_to_string(&mut said).map(|_| said.trim().to_owned())
    }

    /// As [`Scene::tcp`], over UDP: what is lost is sent again.
    pub(crate) fn udp(&self, from: &str, address: &str, port: u16) -> String {
        let to = SocketAddr::new(address.parse().unwrap(), port);
        let any: IpAddr = if to.is_ipv4() { "0.0.0.0".parse().unwrap() } else { "::".parse().unwrap() };
        let socket = self.host.within(from, || UdpSocket::bind((any, 0)).unwrap());
        answer_to(&socket, to, 60).unwrap_or_else(|| "nobody answers".to_owned())
    }
}

/// What comes back over a socket, where so many seconds are long enough. A question has its number in it: an answer to an older
/// one may be on its way.
pub(crate) fn answer_to(socket: &UdpSocket, to: SocketAddr, seconds: u32) -> Option<String> {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let ask = || {
        let question = format!("{} ", ASKED.fetch_add(1, Ordering::Relaxed));
        let mut said = [0; 100];
        socket.send_to(question.trim().as_bytes(), to).ok()?;
        loop {
            let (length, _) = socket.recv_from(&mut said).ok()?;
            let said = String::from_utf8_lossy(&said[..length]).into_owned();
            if let Some(said) = said.strip_prefix(&question) {
                return Some(said.trim().to_owned());
            }
        }
    };
    (0..seconds).find_map(|_| ask())
}

/// A veth pair to a namespace that routes everything over the machine.
fn wire(host: &Host, name: &str, link: &str, near: [&str; 2], far: [&str; 2]) {
    host.container(name);
    host.sh("", &format!("ip link add {link} type veth peer name eth0 netns {name}"));
    for (place, dev, [v4, v6]) in [("", link, near), (name, "eth0", far)] {
        host.sh(place, &format!("ip addr add {v4}/24 dev {dev}"));
        host.sh(place, &format!("ip -6 addr add {v6}/64 dev {dev} nodad"));
        host.sh(place, &format!("ip link set {dev} up"));
    }
    host.sh(name, &format!("ip route add default via {}", near[0]));
    host.sh(name, &format!("ip -6 route add default via {}", near[1]));
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
