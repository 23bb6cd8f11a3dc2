//! A real Neutron with its message bus, our operator, and machines on which our agent and Neutron's work on one Open vSwitch.
//!
//! ```text
//!   the test's network    API server   operator   neutron-server   RabbitMQ
//!   machine one                                                                   machine two
//!     netloom agent           --- ApiProxy --- API server, RabbitMQ --- ApiProxy ---
//!     neutron-openvswitch-agent
//!     br-int, br-tun, br-ex -- wire0 ----------------- one pair ------------------ wire0 -- br-ex, ...
//! ```
//!
//! `br-ex` is the physical network of networks of type `vlan`, and has the address at which tunnels of type `vxlan` end.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use netloom_tests::{Api, ApiProxy, Node, Running, Switch, netloom, seen_within};
use serde_json::{Value, json};
use testbed::openstack::{Neutron, PHYSICAL, SwitchAgent};

/// A port takes Neutron a second on a busy machine, and its agent two.
const PATIENCE: Duration = Duration::from_secs(300);

/// Neutron and the operator.
pub(crate) struct OpenStack {
    // Dropped in this order.
    operator: Option<Running>,
    pub(crate) neutron: Neutron,
    /// The subnets of each network, IPv4 and IPv6.
    pub(crate) subnets: BTreeMap<&'static str, [String; 2]>,
    /// The security group of all ports.
    pub(crate) group: String,
    dir: PathBuf,
}

/// The same with an API server of its own.
pub(crate) struct Cloud {
    openstack: OpenStack,
    pub(crate) api: Arc<Api>,
}

/// A machine with both agents.
pub(crate) struct Machine {
    // Dropped in this order.
    wiring: Wiring,
    pub(crate) node: Node,
}

/// Open vSwitch and Neutron's agent on a machine.
pub(crate) struct Wiring {
    // Dropped in this order.
    agent: Running,
    _bus: ApiProxy,
    pub(crate) switch: Switch,
}

/// A machine without them: a process in its namespaces, its name and address in front of the others, where its files are from here, and what a
/// program is put behind to run there.
pub(crate) struct Place<'a> {
    pub(crate) pid: u32,
    pub(crate) name: &'a str,
    pub(crate) address: &'a str,
    pub(crate) path: &'a dyn Fn(&str) -> PathBuf,
    pub(crate) enter: Command,
}

const PROJECT: &str = "tests";

// === impl OpenStack ===

impl OpenStack {
    /// With networks of these names, types and numbers: number 31 has 10.31.0.0/24 and fd00:31::/64. Ports take what comes over TCP.
    pub(crate) fn new(name: &str, networks: &[(&'static str, &str, u8)]) -> Self {
        let name = format!("test-{}-{name}", std::process::id());
        let neutron = Neutron::with_agents(&name).unwrap();
        let id = |kind: &str, mut keys: Value| {
            keys["project_id"] = json!(PROJECT);
            let answer = neutron.ask("POST", &format!("{kind}s").replace('_', "-"), &json!({kind: keys})).unwrap();
            answer[kind]["id"].as_str().unwrap().to_owned()
        };
        let mut subnets = BTreeMap::new();
        for &(name, kind, n) in networks {
            let mut keys = json!({"name": name, "provider:network_type": kind});
            if kind == "vlan" {
                keys["provider:physical_network"] = json!(PHYSICAL);
            }
            let network = id("network", keys);
            let subnet =
                |version: u8, cidr: String| json!({"network_id": network, "ip_version": version, "cidr": cidr, "enable_dhcp": false});
            let of_both = [subnet(4, format!("10.{n}.0.0/24")), subnet(6, format!("fd00:{n}::/64"))];
            subnets.insert(name, of_both.map(|keys| id("subnet", keys)));
        }
        let group = id("security_group", json!({"name": "pods"}));
        let dir = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&dir).unwrap();
        let openstack = OpenStack { operator: None, subnets, group, dir, neutron };
        for (protocol, family) in [("tcp", "IPv4"), ("tcp", "IPv6")] {
            openstack.allow(protocol, family);
        }
        openstack
    }

    /// Lets what comes with this protocol pass to all ports; the ID of the rule.
    pub(crate) fn allow(&self, protocol: &str, family: &str) -> String {
        let rule = json!({"security_group_rule": {"security_group_id": self.group, "direction": "ingress", "ethertype": family,
            "protocol": protocol, "project_id": PROJECT}});
        let made = self.neutron.ask("POST", "security-group-rules", &rule).unwrap();
        made["security_group_rule"]["id"].as_str().unwrap().to_owned()
    }

    /// Takes a rule away.
    pub(crate) fn forbid(&self, rule: &str) {
        self.neutron.ask("DELETE", &format!("security-group-rules/{rule}"), &Value::Null).unwrap();
    }

    /// Starts the operator before the API server of this kubeconfig.
    pub(crate) fn operate_with(&mut self, access: &str) {
        let subnets: Vec<&String> = self.subnets.values().flatten().collect();
        let settings = json!({
            "cluster": "tests",
            "openstack": {
                "kubernetes": {"multiVifDrivers": ["npwg_multiple_interfaces"]},
                "neutron": {"authType": "none", "endpointOverride": self.neutron.url()},
                "neutronDefaults": {"project": PROJECT, "podSubnet": subnets[0], "podSecurityGroups": [self.group]},
            },
            "policy": [{"name": "tests", "allow": {"neutron": {"subnets": subnets}}}],
        });
        let [file, kubeconfig] = ["openstack.yaml", "kubeconfig"].map(|name| self.dir.join(name));
        std::fs::write(&file, settings.to_string()).unwrap();
        std::fs::write(&kubeconfig, access).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(netloom()).args(["operator", "--no-lease", "--identity", "one"]);
        command.arg("--kubeconfig").arg(kubeconfig).arg("--openstack").arg(file).stdin(Stdio::null());
        let log = File::options().create(true).append(true).open(self.dir.join("operator.log")).unwrap();
        self.operator = Some(Running::with_log(&mut command, log));
    }

    /// Starts Open vSwitch and Neutron's agent on two machines, and joins them by a wire.
    pub(crate) fn wire(&self, [one, two]: [Place<'_>; 2]) -> [Wiring; 2] {
        let [first, second] = [one.pid, two.pid].map(|pid| pid.to_string());
        let words = ["link", "add", "wire0", "netns", &first, "type", "veth", "peer", "name", "wire0", "netns", &second];
        assert!(Command::new("ip").args(words).status().unwrap().success(), "{words:?}");
        [one, two].map(|place| self.equip(place))
    }

    fn equip(&self, place: Place<'_>) -> Wiring {
        let switch = Switch::on(place.pid, place.path, &["br-int", "br-ex"]);
        switch.vsctl("set interface br-int mtu_request=1500");
        let ip = |words: &str| {
            let status = Command::new("nsenter").args(["-t", &place.pid.to_string(), "--net", "ip"]).args(words.split(' ')).status();
            assert!(status.unwrap().success(), "ip {words}");
        };
        ip("link set wire0 up");
        switch.vsctl("add-port br-ex wire0");
        ip(&format!("addr add {}/24 dev br-ex", place.address));
        ip("link set br-ex up");
        let bus = self.neutron.bus().unwrap();
        let proxy = ApiProxy::new(PathBuf::from(format!("/proc/{}/ns/net", place.pid)), &bus);
        let agent = SwitchAgent {
            host: place.name,
            bus: &bus,
            database: &switch.socket(),
            sockets: switch.dir(),
            tunnel_address: place.address,
            physical_bridge: "br-ex",
            dir: self.dir.join(place.name),
        };
        let mut enter = place.enter;
        // So that none is left of a test that was killed.
        enter.args(["--pdeathsig", "KILL", "--"]).env("TZ", "UTC");
        let agent = Running::start(&mut agent.command(enter).unwrap());
        Wiring { agent, _bus: proxy, switch }
    }

    /// Waits until something holds.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, holds: impl FnMut() -> bool) {
        let end_of = |file: &str| {
            let text = std::fs::read_to_string(self.dir.join(file)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            format!("the end of {file}:\n{}\n", lines[lines.len().saturating_sub(20)..].join("\n"))
        };
        let seen = seen_within(PATIENCE, holds, |holds| *holds);
        assert!(seen.is_ok(), "not within {PATIENCE:?}: {what}\n{}{}", end_of("operator.log"), self.neutron.end_of_log());
    }

    /// Waits until Neutron counts this many agents as alive.
    pub(crate) fn agents(&self, count: usize) {
        self.until("Neutron's agents are alive", || {
            let agents = self.neutron.ask("GET", "agents", &Value::Null).unwrap();
            agents["agents"].as_array().unwrap().iter().filter(|agent| agent["alive"] == true).count() == count
        });
    }

    /// The statuses of all ports, as Neutron's database has them.
    pub(crate) fn statuses(&self) -> Vec<String> {
        let rows = self.neutron.sql(&format!("SELECT status FROM ports WHERE project_id = '{PROJECT}'")).unwrap();
        rows.into_iter().flatten().collect()
    }

    /// The definitions of all networks: name and configuration of each.
    pub(crate) fn definitions(&self) -> Vec<(&'static str, String)> {
        self.subnets.iter().map(|(name, subnets)| (*name, json!({"subnetIds": subnets}).to_string())).collect()
    }

    /// A file of this test: `NODE/agent.log` is the log of a node's Neutron agent.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

// === impl Cloud ===

impl Cloud {
    /// With networks as [`OpenStack::new`] has them.
    pub(crate) fn new(name: &str, networks: &[(&'static str, &str, u8)]) -> Self {
        let cloud = Cloud { openstack: OpenStack::new(name, networks), api: Api::own() };
        ["ippools.yaml", "openstack/kuryrports.yaml"].iter().for_each(|file| cloud.api.define(file));
        cloud
    }

    /// Starts the operator.
    pub(crate) fn operate(&mut self) {
        let access = self.api.kubeconfig("admin");
        self.openstack.operate_with(&access);
    }

    /// Two machines with our agent.
    pub(crate) fn machines(&self, names: [&str; 2]) -> [Machine; 2] {
        self.machines_that_wait(names, "240s")
    }

    /// The same on which an ADD waits so long for its ports.
    pub(crate) fn machines_that_wait(&self, names: [&str; 2], wait: &str) -> [Machine; 2] {
        let settings = format!("openstackVIFs: kuryrports\nopenstackWait: {wait}");
        let nodes = names.map(|name| Node::new(&self.api, name, &settings));
        for node in &nodes {
            for (name, config) in self.definitions() {
                let path = format!("/apis/k8s.cni.cncf.io/v1/namespaces/{}/network-attachment-definitions", node.namespace);
                let metadata = json!({"name": name, "namespace": node.namespace, "annotations": {"openstack.org/kuryr-config": config}});
                let object = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": metadata});
                self.api.must("POST", &path, &object);
            }
        }
        let paths = [&nodes[0], &nodes[1]].map(|node| move |inside: &str| node.host.path(inside));
        let place = |node: &'_ Node| (node.host.pid(), node.host.command("", "setpriv"));
        let [(one, enter_one), (two, enter_two)] = [place(&nodes[0]), place(&nodes[1])];
        let [first, second] = self.wire([
            Place { pid: one, name: names[0], address: "198.18.0.1", path: &paths[0], enter: enter_one },
            Place { pid: two, name: names[1], address: "198.18.0.2", path: &paths[1], enter: enter_two },
        ]);
        let [one, two] = nodes;
        [(one, first), (two, second)].map(|(node, wiring)| {
            node.restart();
            Machine { wiring, node }
        })
    }

    /// How many VIFs the operator has bound for a pod.
    pub(crate) fn bound(&self, namespace: &str, pod: &str) -> usize {
        self.ports_of(namespace, pod).len()
    }

    /// The IDs of the ports that the operator has bound for a pod, in the order of their interfaces' names.
    pub(crate) fn ports_of(&self, namespace: &str, pod: &str) -> Vec<String> {
        let path = format!("/apis/openstack.org/v1/namespaces/{namespace}/kuryrports/{pod}");
        let (_, object) = self.api.ask("GET", &path, &Value::Null);
        let vifs = object["status"]["vifs"].as_object().cloned().unwrap_or_default();
        vifs.values().map(|vif| vif["vif"]["versioned_object.data"]["id"].as_str().unwrap().to_owned()).collect()
    }
}

impl Deref for Cloud {
    type Target = OpenStack;

    fn deref(&self) -> &OpenStack {
        &self.openstack
    }
}

impl Machine {
    /// Its Open vSwitch.
    pub(crate) fn switch(&self) -> &Switch {
        &self.wiring.switch
    }

    /// Neutron's agent dies.
    pub(crate) fn kill_agent(&self) {
        let status = Command::new("kill").args(["-KILL", &self.wiring.agent.id().to_string()]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for OpenStack {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the logs are in {}", self.dir.display());
            return;
        }
        drop(std::fs::remove_dir_all(&self.dir));
    }
}
