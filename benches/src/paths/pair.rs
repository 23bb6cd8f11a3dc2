//! Two nodes on one link, a pod on each, and who makes the way between the pods.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow, ensure};
use objects::Store;
use serde_json::{Value, json};

use super::flow::{self, Flow};
use crate::cluster::agent::Agent;
use crate::cluster::caller::Caller;
use crate::cluster::{install, plane};
use crate::namespace::Namespace;
use crate::network::Verb;
use crate::options::Options;

/// The bytes that vxlan takes of a packet over IPv4.
const HEADER: u32 = 50;
const MTU: u32 = 1500;
/// All pods' addresses: what goes elsewhere is masqueraded, on each side by one rule.
const CLUSTER: &str = "10.1.0.0/16";

/// How packets get to the other node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Direct,
    Vxlan,
}

/// Who makes the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    Hand,
    /// The same once more: what differs between the two is the machine's.
    HandAgain,
    Netloom,
    /// Netloom with `strictSource: false`: what the guard of pods' sources costs is the difference.
    Unguarded,
    Flannel,
}

/// A thread in a node's namespace that has started what keeps the node's part: a process that ends with its thread.
struct Keeper {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// flannel's packages as a process.
struct Flannel(Child);

/// The two nodes. What keeps them ends before their namespaces go.
pub(super) struct Pair {
    keepers: Vec<Keeper>,
    stores: Vec<tokio::runtime::Runtime>,
    /// By node: its pod's namespace, and the pod's address.
    pods: Vec<(Namespace, IpAddr)>,
    nodes: Vec<Arc<Namespace>>,
}

/// What every node of a pair is made from.
struct Plan<'a> {
    options: &'a Options,
    dir: PathBuf,
    mode: Mode,
    maker: Maker,
    store: Store,
}

// === impl Mode ===

impl Mode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Mode::Direct => "direct",
            Mode::Vxlan => "vxlan",
        }
    }

    fn mtu(self) -> u32 {
        if self == Mode::Vxlan { MTU - HEADER } else { MTU }
    }
}

// === impl Maker ===

impl Maker {
    /// Those that can be had here: flannel needs Go to be built.
    pub(super) fn all(options: &Options) -> Vec<Self> {
        let mut all = vec![Maker::Hand, Maker::HandAgain, Maker::Netloom, Maker::Unguarded];
        if flannel(options).is_file() {
            all.push(Maker::Flannel);
        } else {
            eprintln!("bench: {} is missing, so nothing is compared with flannel: `make peers` builds it", flannel(options).display());
        }
        all
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Maker::Hand => "by hand",
            Maker::HandAgain => "by hand again",
            Maker::Netloom => "netloom",
            Maker::Unguarded => "not strict",
            Maker::Flannel => "flannel",
        }
    }
}

fn flannel(options: &Options) -> PathBuf {
    options.peers.join("flannel")
}

// === impl Keeper ===

impl Keeper {
    /// Starts something in a node's namespace, and keeps it until this is dropped.
    fn start<T>(node: &Arc<Namespace>, start: impl FnOnce() -> Result<T> + Send + 'static) -> Result<Self> {
        let ((end, ended), (tell, told)) = (channel::<()>(), channel());
        let node = Arc::clone(node);
        let thread = thread::spawn(move || {
            let started = node.join().and_then(|()| start());
            let is_told = tell.send(started.as_ref().map(|_| ()).map_err(|e| format!("{e:#}"))).is_ok();
            if is_told && started.is_ok() {
                // Until the other side is gone: nobody sends anything.
                let _ = ended.recv();
            }
        });
        let keeper = Keeper { end: Some(end), thread: Some(thread) };
        told.recv().context("a thread has ended")?.map_err(|e| anyhow!(e))?;
        Ok(keeper)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.end.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            eprintln!("bench: a thread that keeps a node has panicked");
        }
    }
}

// === impl Flannel ===

impl Flannel {
    /// Starts it, and waits until the node's own part is there.
    fn start(program: &Path, [kubeconfig, config]: [&Path; 2], node: &str, mtu: u32) -> Result<Self> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args([kubeconfig, config]).arg("eth0").env("NODE_NAME", node);
        let log = kubeconfig.with_extension("log");
        let stderr = File::create(&log).context("flannel's log")?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut flannel = Flannel(command.spawn().context("start flannel")?);
        let mut said = String::new();
        BufReader::new(flannel.0.stdout.take().context("flannel's output")?).read_line(&mut said).context("flannel's output")?;
        let is_whole = said.trim() == mtu.to_string();
        ensure!(is_whole, "flannel's MTU is to be {mtu}, and it says {said:?}: {}", std::fs::read_to_string(&log).unwrap_or_default());
        Ok(flannel)
    }
}

impl Drop for Flannel {
    fn drop(&mut self) {
        if let Err(e) = self.0.kill().and_then(|()| self.0.wait()) {
            eprintln!("bench: end flannel: {e}");
        }
    }
}

// === impl Pair ===

impl Pair {
    /// Makes both nodes and their pods.
    pub(super) fn make(options: &Options, scratch: &Path, mode: Mode, maker: Maker) -> Result<Self> {
        let dir = scratch.join(format!("{}-{}", mode.name(), maker.name().replace(' ', "-")));
        std::fs::create_dir_all(&dir).context("a directory")?;
        let plan = Plan { options, dir, mode, maker, store: Store::new() };
        let label = format!("{}{}", mode.name(), maker as u8);
        let names = [format!("{label}-a"), format!("{label}-b")];
        let nodes = names.iter().map(|name| Ok(Arc::new(Namespace::make(name)?))).collect::<Result<Vec<_>>>()?;
        let mut pair = Pair { keepers: Vec::new(), stores: Vec::new(), pods: Vec::new(), nodes };
        pair.wire()?;
        plan.register()?;
        for at in 0..2 {
            let pod = Namespace::make(&format!("{label}-pod{at}"))?;
            pair.pods.push((pod, pod_address(at)));
        }
        for at in 0..2 {
            plan.keep(&mut pair, at)?;
        }
        for at in 0..2 {
            plan.attach(&pair, at).with_context(|| format!("a pod of {}", maker.name()))?;
        }
        Ok(pair)
    }

    /// A round from the first pod to the second one.
    pub(super) fn flow(&self) -> Result<Flow> {
        let [(from, _), (to, address)] = self.pods.as_slice() else { anyhow::bail!("a pair has two pods") };
        flow::measure(from, to, *address)
    }

    /// `eth0` of each is an end of one veth.
    fn wire(&self) -> Result<()> {
        let [a, b] = self.nodes.as_slice() else { anyhow::bail!("a pair has two nodes") };
        a.ip(&["link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b.name()])?;
        for (at, node) in self.nodes.iter().enumerate() {
            node.ip(&["link", "set", "lo", "up"])?;
            node.ip(&["addr", "add", &format!("{}/24", node_address(at)), "dev", "eth0"])?;
            node.ip(&["link", "set", "eth0", "up"])?;
            node.enter(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("let the node forward"))?;
        }
        Ok(())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.keepers.clear();
        self.stores.drain(..).for_each(tokio::runtime::Runtime::shutdown_background);
    }
}

fn node_address(at: usize) -> String {
    format!("192.0.2.{}", 11 + at)
}

fn range(at: usize) -> String {
    format!("10.1.{}.0/24", 1 + at)
}

/// The first address that any of them gives a pod.
fn pod_address(at: usize) -> IpAddr {
    Ipv4Addr::new(10, 1, u8::try_from(1 + at).unwrap_or_default(), 2).into()
}

fn vtep(at: usize) -> String {
    format!("02:00:00:00:00:{:02x}", 11 + at)
}

// === impl Plan ===

impl Plan<'_> {
    /// The Nodes and their pods, for whoever reads them.
    fn register(&self) -> Result<()> {
        self.store.install_network_attachment_definitions();
        // Every real Node has an annotation, and flannel needs one.
        let annotations = json!({"node.alpha.kubernetes.io/ttl": "0"});
        for at in 0..2 {
            let addresses = json!([{"type": "InternalIP", "address": node_address(at)}]);
            self.store
                .put(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{at}"), "annotations": annotations},
                    "spec": {"podCIDR": range(at), "podCIDRs": [range(at)]}, "status": {"addresses": addresses}}))
                .context("a Node")?;
            self.store
                .put(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{at}"), "namespace": "default", "uid": format!("p{at}")},
                    "spec": {"nodeName": format!("n{at}"), "containers": [{"name": "c", "image": "none"}]}}))
                .context("a pod")?;
        }
        Ok(())
    }

    /// Starts what keeps a node's part, or makes it.
    fn keep(&self, pair: &mut Pair, at: usize) -> Result<()> {
        let node = &Arc::clone(pair.nodes.get(at).context("a node")?);
        match self.maker {
            Maker::Hand | Maker::HandAgain => self.route(node, at),
            Maker::Netloom | Maker::Unguarded => {
                let kubeconfig = self.serve(node, at, &mut pair.stores)?;
                let settings = json!({"provide": "netloom", "between": self.mode.name(), "strictSource": self.maker == Maker::Netloom});
                let (program, dir) = (self.options.netloom.clone(), self.agent_dir(at));
                let start = move || Agent::start(&program, &dir, &kubeconfig, &settings, &format!("n{at}"));
                pair.keepers.push(Keeper::start(node, start)?);
                Ok(())
            }
            Maker::Flannel => {
                let kubeconfig = self.serve(node, at, &mut pair.stores)?;
                let backend = if self.mode == Mode::Direct { json!({"Type": "host-gw"}) } else { json!({"Type": "vxlan"}) };
                let config = self.dir.join("net-conf.json");
                std::fs::write(&config, json!({"Network": CLUSTER, "Backend": backend}).to_string()).context("flannel's configuration")?;
                let (program, mtu) = (flannel(self.options), self.mode.mtu());
                let start = move || Flannel::start(&program, [&kubeconfig, &config], &format!("n{at}"), mtu);
                pair.keepers.push(Keeper::start(node, start)?);
                Ok(())
            }
        }
    }

    fn agent_dir(&self, at: usize) -> PathBuf {
        self.dir.join(format!("agent-{at}"))
    }

    /// Serves the API on a node's loopback: the kubeconfig.
    fn serve(&self, node: &Namespace, at: usize, stores: &mut Vec<tokio::runtime::Runtime>) -> Result<PathBuf> {
        let listener = node.enter(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen"))?;
        let address = listener.local_addr().context("listen")?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().context("a runtime")?;
        drop(runtime.spawn(self.store.clone().serve(listener)));
        stores.push(runtime);
        let kubeconfig = self.dir.join(format!("kubeconfig-{at}"));
        std::fs::write(&kubeconfig, crate::nodes::kubeconfig_of(&format!("http://{address}"))).context("the kubeconfig")?;
        Ok(kubeconfig)
    }

    /// By hand: the route to the other node's pods, and what a tunnel needs.
    fn route(&self, node: &Namespace, at: usize) -> Result<()> {
        let (peer, other) = (node_address(1 - at), range(1 - at));
        if self.mode == Mode::Direct {
            node.ip(&["route", "add", &other, "via", &peer, "dev", "eth0"])?;
            return Ok(());
        }
        let (mtu, via) = (self.mode.mtu().to_string(), other.replace(".0/24", ".0"));
        let local = node_address(at);
        node.ip(&[
            &["link", "add", "vx0", "address", &vtep(at), "mtu", &mtu, "type", "vxlan"][..],
            &["id", "1", "dstport", "4789", "local", &local, "nolearning"],
        ]
        .concat())?;
        node.ip(&["link", "set", "vx0", "up"])?;
        node.enter(|| run("bridge", &["fdb", "add", &vtep(1 - at), "dev", "vx0", "dst", &peer, "self", "permanent"]))?;
        node.ip(&["neigh", "add", &via, "lladdr", &vtep(1 - at), "dev", "vx0", "nud", "permanent"])?;
        node.ip(&["route", "add", &other, "via", &via, "dev", "vx0", "onlink"])?;
        Ok(())
    }

    /// The pod gets its link and its address: by the agent, or as the plugin `bridge` would do it.
    fn attach(&self, pair: &Pair, at: usize) -> Result<()> {
        let (node, (pod, address)) = pair.nodes.get(at).zip(pair.pods.get(at)).context("a pod of each node")?;
        pod.ip(&["link", "set", "lo", "up"])?;
        if matches!(self.maker, Maker::Netloom | Maker::Unguarded) {
            let plugins = self.agent_dir(at).join("bin");
            install(&self.options.netloom_cni, &plugins)?;
            let config =
                json!({"cniVersion": "1.1.0", "name": "netloom", "type": "netloom", "agent": self.agent_dir(at).join("run/agent.sock")});
            let pods = [plane::Pod { namespace: "default".to_owned(), name: format!("p{at}"), uid: format!("p{at}") }];
            let caller = Caller { host: node, plugins: &plugins, plugin: "netloom", config, pods: &pods };
            caller.call(Verb::Add, pod, 0)?;
            let shown: Value = serde_json::from_str(&pod.ip(&["-j", "-4", "addr", "show", "eth0"])?).context("ip -j addr")?;
            let given = shown.pointer("/0/addr_info/0/local");
            ensure!(given == Some(&json!(address.to_string())), "the pod has another address: {shown}");
            return Ok(());
        }
        let (mtu, gateway) = (self.mode.mtu().to_string(), range(at).replace(".0/24", ".1"));
        node.ip(&["link", "add", "br0", "type", "bridge"])?;
        node.ip(&["addr", "add", &format!("{gateway}/24"), "dev", "br0"])?;
        node.ip(&["link", "set", "br0", "up"])?;
        node.ip(&["link", "add", "pod0", "mtu", &mtu, "type", "veth", "peer", "name", "eth0", "mtu", &mtu, "netns", pod.name()])?;
        node.ip(&["link", "set", "pod0", "up", "master", "br0"])?;
        pod.ip(&["addr", "add", &format!("{address}/24"), "dev", "eth0"])?;
        pod.ip(&["link", "set", "eth0", "up"])?;
        pod.ip(&["route", "add", "default", "via", &gateway])?;
        // A pod network has to masquerade what leaves the cluster: with that rule, every connection is tracked.
        let rule = format!("ip saddr {} ip daddr != {CLUSTER} masquerade", range(at));
        let chain = "add chain ip edge post { type nat hook postrouting priority 100; }";
        node.enter(|| run("nft", &[&format!("add table ip edge; {chain}; add rule ip edge post {rule}")]))
    }
}

fn run(program: &str, args: &[&str]) -> Result<()> {
    let output = Command::new(program).args(args).output().with_context(|| format!("run {program}"))?;
    ensure!(output.status.success(), "{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
