//! A cluster: a control plane, nodes, and what joins them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::control::SERVICES;
use crate::den::printed;
use crate::node::Wanted;
use crate::sweep::{Claim, link_index};
use crate::{ControlPlane, Den, Node, images, peer};

/// How long nodes may take until they are ready.
const READY: Duration = Duration::from_secs(300);

/// What a cluster is made of.
///
/// ```no_run
/// let cluster = netloom_testbed::Options::new("try", "target/debug/netloom-cni").nodes(3).up()?;
/// print!("{}", cluster.control().kubectl(&["get", "nodes"], "")?);
/// # anyhow::Ok(())
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    name: String,
    nodes: u8,
    netloom_cni: PathBuf,
    netloom: Option<PathBuf>,
    network: DefaultNetwork,
    families: Families,
    late: bool,
    say: fn(&str),
}

/// The families of addresses that nodes, pods and Services have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    /// IPv4 alone.
    V4,
    /// Both, IPv4 first.
    Dual,
    /// IPv6 alone, the API server too.
    V6,
}

/// What a node's pods get from the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultNetwork {
    /// A bridge on each node, with addresses from `host-local`: `/etc/cni/net.d/10-pods.conflist`.
    Bridge,
    /// The same bridge as the default network of the agent, which is installed as the manual says, with the manifests of
    /// `deploy/`: [`Node::install_agent`].
    Agent,
    /// The network that the agents provide, with these lines of settings besides. Nothing leads from node to node but what they make.
    Provided(&'static str),
    /// No configuration: nodes are not ready until somebody writes one. `up` does not wait for them.
    None,
}

/// A real Kubernetes. It goes when it is dropped, and when the process that made it ends.
///
/// ```text
///   the machine   the control plane's namespaces                node-1                       node-2
///   nltbN ------- host | br0 198.18.N.1: API server | node-1 --- eth0 198.18.N.11 ... node-2 --- eth0 198.18.N.12
///   198.18.N.254       | br1                       | uplink-1 - eth1             ... uplink-2 - eth1
///                                                               cni0 10.244.1.0/24           cni0 10.244.2.0/24
/// ```
#[derive(Debug)]
pub struct Cluster {
    // Dropped in this order: the files go last.
    nodes: Vec<Node>,
    control: ControlPlane,
    claim: Claim,
}

// === impl Options ===

impl Options {
    /// Two nodes, whose default network is a bridge of `netloom_cni`, the executable.
    pub fn new(name: impl Into<String>, netloom_cni: impl Into<PathBuf>) -> Self {
        Options {
            name: name.into(),
            nodes: 2,
            netloom_cni: netloom_cni.into(),
            netloom: None,
            network: DefaultNetwork::Bridge,
            families: Families::V4,
            late: false,
            say: |_| {},
        }
    }

    /// How many nodes, 100 at most: `node-1`, `node-2`, ... With none there are no controllers either: it is a control plane
    /// that namespaces which are joined to its bridge `br0` can reach.
    #[must_use]
    pub fn nodes(mut self, nodes: u8) -> Self {
        self.nodes = nodes;
        self
    }

    /// What its pods get.
    #[must_use]
    pub fn network(mut self, network: DefaultNetwork) -> Self {
        self.network = network;
        self
    }

    /// Which families it has. Only [`DefaultNetwork::Provided`] gives pods others than IPv4.
    #[must_use]
    pub fn families(mut self, families: Families) -> Self {
        self.families = families;
        self
    }

    /// Nodes have no ranges for pods until [`Cluster::give_ranges`]; `up` does not wait until they are ready.
    #[must_use]
    pub fn late_ranges(mut self) -> Self {
        self.late = true;
        self
    }

    /// The executable `netloom`; the one beside `netloom_cni` without it. Nodes with an agent run it.
    #[must_use]
    pub fn netloom(mut self, netloom: impl Into<PathBuf>) -> Self {
        self.netloom = Some(netloom.into());
        self
    }

    /// What is told what is being done, a line at a time.
    #[must_use]
    pub fn say(mut self, say: fn(&str)) -> Self {
        self.say = say;
        self
    }

    /// Brings it up: definitions can be made, and nodes are ready.
    ///
    /// # Errors
    /// If this is not root's process, a cluster of this name is up, a program is missing (`make peers`, `make setup`) or
    /// does not start: with the end of its log. What was made is gone then.
    pub fn up(self) -> Result<Cluster> {
        let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.nodes > 100 || self.name.is_empty() || self.name.len() > 40 || !self.name.chars().all(good) {
            bail!("{:?} with {} nodes: a name has 1 to 40 of a-z, 0-9 and -, and a cluster at most 100 nodes", self.name, self.nodes);
        }
        let program = peer()?;
        let claim = Claim::new(&self.name)?;
        let names: Vec<String> = (1..=self.nodes).map(|n| format!("node-{n}")).collect();
        (self.say)(if self.nodes > 0 { "control plane: etcd, API server, controller manager, scheduler" } else { "etcd, API server" });
        let den = Den::new(Some("control"), "")?;
        let net = fabric(&den)?;
        let number = link_index(&link(net)).context("the link to the cluster is gone")?;
        std::fs::write(claim.dir().join("link"), format!("{} {number}", link(net))).context("the file `link`")?;
        let control = ControlPlane::inside(den, self.families.control(net), claim.dir().join("control"), &names)?;
        control.define_networks()?;
        if self.nodes == 0 {
            return Ok(Cluster { nodes: Vec::new(), control, claim });
        }
        let control = control.with_controllers()?;
        if self.network.has_agent() {
            control.allow_agents()?;
        }
        (self.say)("images: busybox, pause");
        images::write_archive(claim.dir())?;
        let netloom = self.netloom.clone().unwrap_or_else(|| self.netloom_cni.with_file_name("netloom"));
        let wanted = |(name, n): (&String, u8)| Wanted {
            name: name.clone(),
            number: n,
            addresses: self.families.of(format!("198.18.{net}.{}", 10 + n), format!("fd00:198:18:{net:x}::{:x}", 0x10 + n)),
            pods: self.families.of(format!("10.244.{n}.0/24"), format!("fd00:10:244:{n:x}::/64")),
            cgroup: format!("{}/{name}", claim.cgroup()),
            program: program.clone(),
            netloom: netloom.clone(),
            logs: claim.dir().to_owned(),
        };
        let every: Vec<Wanted> = names.iter().zip(1..).map(wanted).collect();
        let mut cluster = Cluster { nodes: Vec::new(), control, claim };
        cluster.nodes = self.start_nodes(&cluster, &every)?;
        if self.network != DefaultNetwork::None && !self.late {
            (self.say)("waiting until the nodes are ready");
            cluster.until_ready()?;
        }
        Ok(cluster)
    }

    /// All at once: most of the time a program waits for another one.
    fn start_nodes(&self, cluster: &Cluster, every: &[Wanted]) -> Result<Vec<Node>> {
        std::thread::scope(|scope| {
            let starting: Vec<_> = every.iter().map(|wanted| scope.spawn(|| self.start_node(cluster, every, wanted.clone()))).collect();
            let joined = starting.into_iter().map(|node| node.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?);
            joined.collect()
        })
    }

    fn start_node(&self, cluster: &Cluster, every: &[Wanted], wanted: Wanted) -> Result<Node> {
        let name = wanted.name.clone();
        (self.say)(&format!("{name}: containerd, kubelet"));
        self.try_start_node(cluster, every, wanted).with_context(|| format!("{name} does not start"))
    }

    fn try_start_node(&self, cluster: &Cluster, every: &[Wanted], wanted: Wanted) -> Result<Node> {
        let control = &cluster.control;
        let (name, pods) = (&wanted.name, if self.late { &[][..] } else { &wanted.pods });
        control.apply(&object_of(name, pods).to_string())?;
        let mut node = Node::new(wanted)?;
        std::fs::write(cluster.dir().join(format!("{}.pid", node.name())), node.den().pid().to_string())
            .context("the node's process ID")?;
        connect(control, &node, every, !matches!(self.network, DefaultNetwork::Provided(_)))?;
        if matches!(self.network, DefaultNetwork::Bridge | DefaultNetwork::Agent) {
            node.write(
                "/etc/cni/net.d/10-pods.conflist",
                bridge(node.pods().first().map_or("", String::as_str), self.network == DefaultNetwork::Agent),
            )?;
        }
        let ca = std::fs::read(control.ca()).context("the API server's certificate")?;
        node.write("/etc/kubernetes/ca.crt", ca)?;
        let config = std::fs::read_to_string(control.kubeconfig_of(node.name())).context("the kubelet's kubeconfig")?;
        node.write("/etc/kubernetes/kubelet.kubeconfig", config.replace(&control.ca().display().to_string(), "/etc/kubernetes/ca.crt"))?;
        let program = self.netloom_cni.canonicalize().with_context(|| format!("{} is missing", self.netloom_cni.display()))?;
        if self.network.has_agent() {
            // What a node's packages bring: containerd itself runs it for every pod.
            std::os::unix::fs::symlink(&program, node.path("/opt/cni/bin/loopback")).context("the plugin loopback")?;
            // What the agent finds out by itself, it finds out while a test waits for it.
            let network = match self.network {
                DefaultNetwork::Provided(settings) => format!("provide: netloom\n{settings}\n"),
                _ => "clusterNetwork: /etc/cni/net.d/10-pods.conflist\n".to_owned(),
            };
            node.install_agent(control, &program, &format!("{network}reconcileEvery: 5s\n"))?;
        } else {
            node.run(&[&program.display().to_string(), "install", "/opt/cni/bin"])?;
        }
        node.start_containerd()?;
        node.import(&cluster.claim.dir().join("images.tar"))?;
        node.start_kubelet()?;
        if self.network.has_agent() {
            node.start_agent()?;
        }
        Ok(node)
    }
}

/// A Node with these ranges for its pods.
fn object_of(name: &str, pods: &[String]) -> Value {
    let spec = pods.first().map_or(json!({}), |first| json!({"podCIDR": first, "podCIDRs": pods}));
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec})
}

// === impl Families ===

impl Families {
    /// What there is of each family, in order.
    fn of(self, v4: String, v6: String) -> Vec<String> {
        match self {
            Families::V4 => vec![v4],
            Families::Dual => vec![v4, v6],
            Families::V6 => vec![v6],
        }
    }

    /// The address of the API server in a network, and the ranges of Services.
    fn control(self, net: u8) -> (IpAddr, &'static str) {
        let v4 = Ipv4Addr::new(198, 18, net, 1).into();
        match self {
            Families::V4 => (v4, SERVICES),
            Families::Dual => (v4, "10.96.0.0/16,fd00:10:96::/112"),
            Families::V6 => (Ipv6Addr::new(0xfd00, 0x198, 0x18, net.into(), 0, 0, 0, 1).into(), "fd00:10:96::/112"),
        }
    }
}

// === impl DefaultNetwork ===

impl DefaultNetwork {
    fn has_agent(self) -> bool {
        matches!(self, DefaultNetwork::Agent | DefaultNetwork::Provided(_))
    }
}

// === impl Cluster ===

impl Cluster {
    /// A cluster with so many nodes, as [`Options`] has them.
    ///
    /// # Errors
    /// As [`Options::up`].
    pub fn up(name: &str, nodes: u8, netloom_cni: &Path) -> Result<Self> {
        Options::new(name, netloom_cni).nodes(nodes).up()
    }

    /// Its control plane.
    pub fn control(&self) -> &ControlPlane {
        &self.control
    }

    /// Its control plane, to stop and start the API server.
    pub fn control_mut(&mut self) -> &mut ControlPlane {
        &mut self.control
    }

    /// Its nodes, in the order of their names.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Its nodes, to stop and start what runs on them.
    pub fn nodes_mut(&mut self) -> &mut [Node] {
        &mut self.nodes
    }

    /// Gives the Nodes their ranges for pods, as a controller does that allocates them.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub fn give_ranges(&self) -> Result<()> {
        self.nodes.iter().try_for_each(|node| self.control.apply(&object_of(node.name(), node.pods()).to_string()).map(drop))
    }

    /// Starts kube-proxy on every node, in the mode `nftables` or `iptables`; those that run are replaced.
    ///
    /// # Errors
    /// As [`Node::start_proxy`].
    pub fn start_proxies(&mut self, mode: &str) -> Result<()> {
        self.nodes.iter_mut().try_for_each(|node| node.start_proxy(&self.control, mode))
    }

    /// Gives every node the image [`crate::NETLOOM`], with the executable `netloom` that agents run.
    ///
    /// # Errors
    /// If it cannot be made, or containerd does not take it.
    pub fn import_netloom(&self) -> Result<()> {
        let Some(first) = self.nodes.first() else { return Ok(()) };
        images::write_netloom(self.dir(), first.netloom_program())?;
        self.nodes.iter().try_for_each(|node| node.import(&self.dir().join("netloom.tar")))
    }

    /// A node by its name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name() == name)
    }

    /// Its directory, with every program's log.
    pub fn dir(&self) -> &Path {
        self.claim.dir()
    }

    /// The folder of its pods' control groups in every hierarchy of `/sys/fs/cgroup`.
    pub fn cgroup(&self) -> String {
        self.claim.cgroup()
    }

    /// Waits until every node is ready.
    ///
    /// # Errors
    /// If one is not within five minutes, or its containerd or kubelet has ended: with the end of the log.
    pub fn until_ready(&mut self) -> Result<()> {
        if self.nodes.is_empty() {
            return Ok(());
        }
        let end = Instant::now() + READY;
        let mut waited = Ok(String::new());
        while Instant::now() < end {
            waited = self.control.kubectl(&["wait", "--for=condition=Ready", "node", "--all", "--timeout=5s"], "");
            if waited.is_ok() {
                return Ok(());
            }
            self.alive()?;
            // Sleeps: between two looks.
            std::thread::sleep(Duration::from_millis(200));
        }
        let why = self.control.kubectl(&["describe", "nodes"], "").unwrap_or_default();
        waited.map(drop).with_context(|| format!("the nodes are not ready; logs are in {}\n{why}", self.dir().display()))
    }

    /// The names of the pods that a node's kubelet knows, `NAMESPACE/NAME`, in order. After a restart it takes a moment until
    /// it knows those that run, and it refuses exec before; its node object says all the time that it is ready.
    ///
    /// # Errors
    /// If the kubelet does not answer.
    pub fn known_pods(&self, node: &str) -> Result<Vec<String>> {
        // The API server may ask over a connection to the kubelet that was there before.
        let list = self.control.kubectl(&["get", "--request-timeout=5s", "--raw", &format!("/api/v1/nodes/{node}/proxy/pods")], "")?;
        let list: Value = serde_json::from_str(&list).context("the kubelet's list of pods")?;
        let text = |pod: &Value, key: &str| pod.pointer(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let pods = list.get("items").and_then(Value::as_array).into_iter().flatten();
        let mut names: Vec<String> = pods.map(|pod| [text(pod, "/metadata/namespace"), text(pod, "/metadata/name")].join("/")).collect();
        names.sort();
        Ok(names)
    }

    /// That every program of it still runs, but for those that were stopped.
    ///
    /// # Errors
    /// Which one has ended, how, and the end of its log.
    pub fn alive(&mut self) -> Result<()> {
        self.control.alive()?;
        self.nodes.iter_mut().try_for_each(Node::alive)
    }
}

/// The bridge that joins everybody, and the one that joins the nodes' second links, in the control plane's namespaces, and a link from here. Returns N of 198.18.N.0/24:
/// a network for measurements between machines (RFC 2544), which nobody routes. A link's name claims it.
fn fabric(den: &Den) -> Result<u8> {
    // With addresses of their own: they would take the lowest ones of their ports, and whoever knows them by another one hears
    // nothing for up to a minute whenever a port comes or goes.
    den.ip("link add br0 address 02:00:00:00:00:01 type bridge")?;
    den.ip("link add br1 address 02:00:00:00:00:02 type bridge")?;
    let start = std::process::id().to_le_bytes()[0];
    let claimed = (0..=u8::MAX).map(|step| start.wrapping_add(step)).find(|n| {
        let line = format!("link add {} type veth peer name host netns {}", link(*n), den.pid());
        ip(&line).is_ok()
    });
    let net = claimed.context("no link to a cluster can be made: `ip link` shows up to 256 named nltb")?;
    for line in ["link set host master br0 up", "link set br0 up", "link set br1 up", &format!("address add 198.18.{net}.1/24 dev br0")] {
        den.ip(line)?;
    }
    den.ip(&format!("address add fd00:198:18:{net:x}::1/64 dev br0 nodad"))?;
    ip(&format!("address add 198.18.{net}.254/24 dev {}", link(net)))?;
    ip(&format!("address add fd00:198:18:{net:x}::fe/64 dev {} nodad", link(net)))?;
    ip(&format!("link set {} up", link(net)))?;
    Ok(net)
}

/// The name of the machine's own link to a cluster.
fn link(net: u8) -> String {
    format!("nltb{net}")
}

/// Gives a node its links to the bridges; and, if it is to have them from here, routes to the other nodes' pods and to its own.
fn connect(control: &ControlPlane, node: &Node, every: &[Wanted], routes: bool) -> Result<()> {
    let (fabric, name) = (control.den(), node.name());
    node.den().ip(&format!("link add eth0 type veth peer name {name} netns {}", fabric.pid()))?;
    fabric.ip(&format!("link set {name} master br0 up"))?;
    for address in node.addresses() {
        let rest = if address.contains(':') { "/64 dev eth0 nodad" } else { "/24 dev eth0" };
        node.den().ip(&format!("address add {address}{rest}"))?;
    }
    node.den().ip("link set eth0 up")?;
    // What macvlans stand on: nobody has an address there but they.
    let uplink = name.replace("node", "uplink");
    node.den().ip(&format!("link add eth1 type veth peer name {uplink} netns {}", fabric.pid()))?;
    fabric.ip(&format!("link set {uplink} master br1 up"))?;
    node.den().ip("link set eth1 up")?;
    for address in node.addresses() {
        // The first address of the network is the control plane's.
        let gateway =
            address.rsplit_once(['.', ':']).map(|(net, _)| if net.contains(':') { format!("{net}:1") } else { format!("{net}.1") });
        node.den().ip(&format!("route add default via {}", gateway.context("a node's address")?))?;
    }
    if !routes {
        return Ok(());
    }
    for other in every.iter().filter(|other| other.name != name) {
        for (pods, address) in other.pods.iter().zip(&other.addresses) {
            node.den().ip(&format!("route add {pods} via {address}"))?;
        }
    }
    for (pods, address) in node.pods().iter().zip(node.addresses()) {
        fabric.ip(&format!("route add {pods} via {address}"))?;
    }
    node.run(&["sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"]).map(drop)
}

/// A line of `ip` on this machine.
fn ip(line: &str) -> Result<String> {
    let output = Command::new("ip").args(line.split_whitespace()).output().context("ip (iproute2) cannot be started")?;
    printed(&format!("ip {line}"), output)
}

/// With masquerading, a pod leaves something among the rules, too.
fn bridge(pods: &str, masquerade: bool) -> String {
    let list = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [{
        "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipMasq": masquerade,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": pods}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }]});
    format!("{list:#}\n")
}
