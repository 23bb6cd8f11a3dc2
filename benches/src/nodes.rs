//! A node's agent that provides the cluster's network, among 100 and among 5,000 Nodes.
//!
//! ```text
//!   Nodes of 10 KB, 17 heartbeats a second --> objects::Store over HTTP --> netloom agent run --> routes, vxlan entries
//!                  this process, in the cluster's namespace                 a process of its own      |
//!                                     the time until the kernel reports what a change leads to <------'
//!   the same routes by `ip -batch`, in another namespace: what the kernel and one process cost
//! ```

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use linux::{Inside, Monitor, Netlink, Notice, Object, RouteFilter};
use nix::sys::resource::{UsageWho, getrusage};
use objects::Store;
use serde_json::{Map, Value, json};

use crate::cluster::agent::Agent;
use crate::figures::Spread;
use crate::goals::Goal;
use crate::machine::Machine;
use crate::namespace::{self, Namespace};
use crate::options::{Options, Scratch};

/// The sizes of clusters: a change is to be applied as soon in the largest as in the smallest.
const SIZES: [u32; 2] = [100, 5000];
/// The protocol number of the agent's routes.
const PROTOCOL: &str = "110";
/// A kubelet tells every five minutes that it lives, each of 5,000 at another time.
const BEATS: u32 = 17;
/// How long requests are counted while nothing happens but heartbeats.
const QUIET: Duration = Duration::from_secs(20);
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What an agent did in one cluster.
struct Figures {
    size: u32,
    mode: &'static str,
    /// From the start of the process until the last entry is in the kernel.
    start: Duration,
    /// Its processor time until then.
    computed: Duration,
    /// In MiB, then and at most.
    resident: f64,
    peak: f64,
    /// From a change of a Node until the kernel has the route.
    change: Spread,
    /// Of a minute in which nothing happens but heartbeats.
    requests: f64,
    kib: f64,
    /// Its processor time in such a minute.
    idle: Duration,
}

/// `netloom-benches nodes`
pub(crate) fn run(options: &Options) -> Result<()> {
    namespace::sweep()?;
    println!("{}", Machine::look(&options.data_dir)?);
    let scratch = Scratch::make(&options.data_dir, "nodes")?;
    let mut all = Vec::new();
    for mode in ["direct", "vxlan"] {
        for size in SIZES {
            eprintln!("{size} Nodes, {mode}");
            let dir = scratch.path().join(format!("{mode}-{size}"));
            all.push(measure(options, &dir, mode, size)?);
        }
    }
    let (batch, batch_computed) = by_batch(scratch.path())?;
    println!("\na node's agent and its Nodes of 10 KB, {BEATS} heartbeats a second, {} changes of a Node\n", options.rounds);
    println!("  Nodes  mode      start s    CPU s  MiB  at most   change p50  p99 ms   a minute: requests     KiB  CPU ms");
    for one in &all {
        println!(
            "{:>7}  {:<8} {:>8.2} {:>8.2} {:>4.0} {:>8.0} {:>12.1} {:>7.1} {:>20.1} {:>7.0} {:>7.0}",
            one.size,
            one.mode,
            one.start.as_secs_f64(),
            one.computed.as_secs_f64(),
            one.resident,
            one.peak,
            one.change.p50.as_secs_f64() * 1e3,
            one.change.p99.as_secs_f64() * 1e3,
            one.requests,
            one.kib,
            one.idle.as_secs_f64() * 1e3
        );
    }
    println!("the routes alone, by ip -batch: {:.2} s, {:.2} s CPU", batch.as_secs_f64(), batch_computed.as_secs_f64());
    println!("\ngoals, by the medians of this run");
    goals(&all).iter().for_each(|goal| print!("{}", goal.line()));
    if let Some(file) = &options.json {
        let mut report = Map::new();
        report.insert("nodes".to_owned(), all.iter().map(Figures::json).collect());
        report.insert("ip_batch_s".to_owned(), json!(batch.as_secs_f64()));
        super::write(file, &Value::Object(report))?;
    }
    Ok(())
}

fn goals(all: &[Figures]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for one in all.iter().filter(|one| Some(&one.size) == SIZES.last()) {
        let what = |what: &str| format!("{} Nodes, {}: {what}", one.size, one.mode);
        goals.push(Goal::at_most(&what("start in s"), 5.0, one.start.as_secs_f64()));
        goals.push(Goal::at_most(&what("processor time of it in s"), 2.0, one.computed.as_secs_f64()));
        goals.push(Goal::at_most(&what("memory at most in MiB"), 64.0, one.peak));
        goals.push(Goal::at_most(&what("a change in ms"), 50.0, one.change.p50.as_secs_f64() * 1e3));
    }
    goals
}

/// One cluster, from the agent's start to its end.
fn measure(options: &Options, dir: &Path, mode: &'static str, size: u32) -> Result<Figures> {
    let host = Namespace::make(&format!("{mode}-{size}"))?;
    prepare(&host)?;
    std::fs::create_dir_all(dir).context("the agent's directory")?;
    let store = Store::new();
    store.install_network_attachment_definitions();
    for n in 0..size {
        store.put(&node(n, pods_of(n), 0)).context("a Node")?;
    }
    let (listener, address) = host.enter(|| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen")?;
        let address = listener.local_addr().context("listen")?;
        Ok((listener, address))
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("a runtime")?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served = store.clone();
    let serving = std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                served = served.serve(listener) => served.context("serve the API"),
                _ = stopped => Ok(()),
            }
        })
    });
    let kubeconfig = dir.join("kubeconfig");
    std::fs::write(&kubeconfig, kubeconfig_of(&format!("http://{address}"))).context("the kubeconfig")?;
    let ends = Arc::new(AtomicBool::new(false));
    let beating = std::thread::spawn({
        let (store, ends) = (store.clone(), Arc::clone(&ends));
        move || beat(&store, size, &ends)
    });
    let figures = host.enter(|| {
        let begun = Instant::now();
        let mut agent = Agent::start(&options.netloom, dir, &kubeconfig, &json!({"provide": "netloom", "between": mode}), "n0")?;
        let complete = usize::try_from(size).unwrap_or(usize::MAX) - 1;
        // A dump of thousands of routes costs some milliseconds itself.
        agent.until(|_| routes().is_ok_and(|routes| routes == complete))?;
        let start = begun.elapsed();
        let (computed, memory) = (agent.computed()?, agent.memory()?);
        let change = changes(&store, size, options.rounds)?;
        let (requests, bytes, before) = (requests(&store), received()?, agent.computed()?);
        std::thread::sleep(QUIET);
        let per_minute = 60.0 / QUIET.as_secs_f64();
        Ok(Figures {
            size,
            mode,
            start,
            computed,
            resident: memory.resident as f64 / 1024.0,
            peak: agent.memory()?.peak as f64 / 1024.0,
            change,
            requests: (self::requests(&store) - requests) as f64 * per_minute,
            kib: (received()? - bytes) as f64 / 1024.0 * per_minute,
            idle: (agent.computed()? - before).mul_f64(per_minute),
        })
    });
    ends.store(true, Ordering::Relaxed);
    drop((stop, beating.join()));
    serving.join().map_err(|_| anyhow!("the API panicked"))??;
    figures
}

/// The node's only link has the addresses of all nodes in its subnet.
fn prepare(host: &Namespace) -> Result<()> {
    host.ip(&["link", "set", "lo", "up"])?;
    host.ip(&["link", "add", "eth0", "type", "veth", "peer", "name", "wire"])?;
    host.ip(&["addr", "add", &format!("{}/16", address_of(0)), "dev", "eth0"])?;
    host.ip(&["link", "set", "eth0", "up"])?;
    host.ip(&["link", "set", "wire", "up"])?;
    Ok(())
}

fn address_of(n: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(172, 16, 0, 1)) + n)
}

fn pods_of(n: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 128, 0, 0)) + (n << 8))
}

/// A Node of the size of real ones, most of which is what images it has.
fn node(n: u32, pods: Ipv4Addr, beat: u32) -> Value {
    let image = |m: u32| {
        let name = format!("registry.example/team-{m}/service-{m}@sha256:{:064x}", u64::from(n) * 1000 + u64::from(m));
        json!({"names": [name, format!("registry.example/team-{m}/service-{m}:v1.{m}.0")], "sizeBytes": 100_000_000 + m})
    };
    let time = format!("2026-01-01T{:02}:{:02}:{:02}Z", beat / 3600 % 24, beat / 60 % 60, beat % 60);
    let condition = |kind: &str| json!({"type": kind, "status": "False", "reason": "Fine", "message": "fine", "lastHeartbeatTime": time});
    let conditions = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(condition);
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("n{n}"), "uid": format!("uid-{n}"), "labels": {"kubernetes.io/hostname": format!("n{n}")}},
        "spec": {"podCIDR": format!("{pods}/24"), "podCIDRs": [format!("{pods}/24")]},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address_of(n).to_string()}, {"type": "Hostname", "address": format!("n{n}")}],
            "conditions": conditions,
            "images": (0..42).map(image).collect::<Vec<_>>(),
        },
    })
}

/// A kubeconfig for an API server that asks nobody who he is.
pub(crate) fn kubeconfig_of(server: &str) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": {}}],
    });
    config.to_string()
}

/// What kubelets write all the time. The own Node and the one that changes have written theirs.
fn beat(store: &Store, size: u32, ends: &AtomicBool) {
    let mut next = Instant::now();
    for beat in 1.. {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        let n = 2 + beat % (size - 2);
        // Where it is refused nothing is measured of it.
        drop(store.merge(&node(n, pods_of(n), beat)));
        next += Duration::from_secs(1) / BEATS;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// How many routes of the agent the kernel has.
fn routes() -> Result<usize> {
    let mut netlink = Netlink::open(&Inside::here())?;
    let protocol: u8 = PROTOCOL.parse().unwrap_or_default();
    Ok(netlink.routes(RouteFilter::default())?.iter().filter(|route| route.proto == protocol).count())
}

/// A Node gets another range, again and again: the time until the kernel has the route to it.
fn changes(store: &Store, size: u32, rounds: usize) -> Result<Spread> {
    let mut monitor = Monitor::open(&Inside::here())?;
    let mut taken = Vec::with_capacity(rounds);
    for round in 0..u32::try_from(rounds).unwrap_or(u32::MAX) {
        let pods = pods_of(size + 1 + round);
        let object = node(1, pods, round);
        let begun = Instant::now();
        store.merge(&object).context("a Node")?;
        loop {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            ensure!(!left.is_zero(), "no route to {pods}/24 comes within {PATIENCE:?}");
            match monitor.next(Some(left))? {
                Some(Notice::Present(Object::Route(route))) if route.dst.addr() == pods => break,
                _ => {}
            }
        }
        taken.push(begun.elapsed());
        // One after the other, as nodes change.
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(Spread::of(taken))
}

fn requests(store: &Store) -> u64 {
    store.requests().values().sum()
}

/// Bytes that have passed the loopback, both ways: it is the API server's and the agent's alone.
fn received() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").context("/proc/thread-self/net/dev")?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("lo:")).context("no lo")?;
    line.split_whitespace().next().and_then(|bytes| bytes.parse().ok()).context("no bytes of lo")
}

/// The largest cluster's routes by `ip -batch`: its time, and its processor time.
fn by_batch(dir: &Path) -> Result<(Duration, Duration)> {
    let size = SIZES.into_iter().max().unwrap_or_default();
    let host = Namespace::make("batch")?;
    prepare(&host)?;
    let lines: String = (1..size).map(|n| format!("route add {}/24 via {} proto {PROTOCOL}\n", pods_of(n), address_of(n))).collect();
    let file = dir.join("batch");
    std::fs::write(&file, lines).context("the batch")?;
    host.enter(|| {
        let children = || -> Result<Duration> {
            let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage")?;
            let time = |time: nix::sys::time::TimeVal| Duration::from_micros((time.tv_sec() * 1_000_000 + time.tv_usec()).unsigned_abs());
            Ok(time(usage.user_time()) + time(usage.system_time()))
        };
        let (begun, before) = (Instant::now(), children()?);
        let status = Command::new("ip").arg("-batch").arg(&file).stdin(Stdio::null()).status().context("ip -batch")?;
        ensure!(status.success(), "ip -batch: {status}");
        Ok((begun.elapsed(), children()? - before))
    })
}

// === impl Figures ===

impl Figures {
    fn json(&self) -> Value {
        json!({
            "nodes": self.size, "mode": self.mode, "start_s": self.start.as_secs_f64(), "start_cpu_s": self.computed.as_secs_f64(),
            "resident_mib": self.resident, "peak_mib": self.peak, "change": self.change.json(),
            "requests_a_minute": self.requests, "kib_a_minute": self.kib, "idle_cpu_ms_a_minute": self.idle.as_secs_f64() * 1e3,
        })
    }
}
