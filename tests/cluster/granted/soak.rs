//! Ten agents and three operators, for minutes or hours: pods come and go, and one thing after another is taken away and comes back.
//!
//! ```text
//!   pods, a thread for each node   ADD and DEL, at most six pods of eight on a node
//!   disturbances, in turn          agents, operators and the API server end; Nodes go, come again, have another name; the range shrinks
//!   oracle                         reads every pod's namespace with `ip`: what two have is reported within ten seconds
//! ```
//!
//! A duplicate can be reported only where agents, API server and a leading operator can speak to each other: the ten seconds begin when
//! they can again. Where some are made on purpose, pods stay as they are until then. In the end all pods go: no lease, no block, no address in the ledger, no trace on a node.
//!
//! `NETLOOM_MINUTES=30` is how long; each disturbance comes once at least. `NETLOOM_SEED=N` chooses the nodes and pods again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use netloom_tests::addresses::{blocks_out, of_links};
use netloom_tests::{Node, Pod, SETTINGS, Traces, differences, netloom, seen_within};
use serde_json::{Value, json};

use crate::granted::agreement::leased;
use crate::granted::{Cluster, KINDS, configure};

const NODES: usize = 10;
/// The pods of a node, and how many of them are there at most at a time.
const PODS: usize = 8;
const MOST: usize = 6;
/// The grace time of Nodes that are gone.
const GRACE: Duration = Duration::from_secs(5);
/// A duplicate is reported by then.
const REPORTED: Duration = Duration::from_secs(10);
/// What any fact here takes at most.
const PATIENCE: Duration = Duration::from_secs(300);
/// The range: for most pods at most times, so that what one node loses another one gets; and three quarters of it.
const RANGE: &str = "10.20.0.2-10.20.0.49";
const SHRUNK: &str = "10.20.0.2-10.20.0.37";

/// What is done to a node or to all; it is over when this returns.
type Disturbance = (&'static str, fn(&mut Scene<'_>, &Node));

const DISTURBANCES: &[Disturbance] = &[
    ("an agent is killed", |_, node| {
        node.kill9();
        node.restart();
    }),
    ("the leading operator is killed", |scene, _| scene.kill_leader()),
    ("the API server is away", |scene, _| {
        scene.cluster.api.stop();
        pass(GRACE);
        scene.cluster.api.start();
    }),
    ("a Node is deleted and made again", |scene, node| {
        scene.delete(&node.name);
        scene.cluster.join(&node.name);
    }),
    ("a Node is gone for longer than the grace time", |scene, node| {
        scene.delete(&node.name);
        pass(2 * GRACE);
        scene.cluster.join(&node.name);
    }),
    ("a machine is cut off", |_, node| {
        node.api_proxy.shut();
        pass(2 * GRACE);
        node.api_proxy.open();
    }),
    ("a machine is cut off, and its Node gone for longer than the grace time", |scene, node| {
        node.api_proxy.shut();
        scene.delete(&node.name);
        pass(2 * GRACE);
        // Other nodes get its addresses, and nobody can know.
        let _ = seen_within(4 * GRACE, || duplicates(scene.nodes).len(), |count| *count > 0);
        // What two have they have until it must have been reported.
        scene.still.store(true, Ordering::Relaxed);
        scene.cluster.join(&node.name);
        node.api_proxy.open();
    }),
    ("an agent stands still while its Node is made again", |scene, node| {
        signal(node, "-STOP");
        scene.delete(&node.name);
        scene.cluster.join(&node.name);
        pass(2 * GRACE);
        signal(node, "-CONT");
    }),
    ("a node is renamed, and named as before", |scene, node| {
        let other = format!("{}-renamed", node.name);
        scene.rename(node, &node.name, &other);
        pass(2 * GRACE);
        scene.rename(node, &other, &node.name);
    }),
    ("the range shrinks, and grows", |scene, _| {
        scene.resize(SHRUNK);
        pass(2 * GRACE);
        scene.resize(RANGE);
    }),
];

/// An operator among several, and where its metrics are.
struct Operator {
    child: Child,
    health: SocketAddr,
}

/// What disturbances are done with.
struct Scene<'a> {
    cluster: &'a Cluster,
    nodes: &'a [Node],
    operators: Vec<Operator>,
    /// Pods neither come nor go.
    still: &'a AtomicBool,
}

/// Since when everybody can speak to everybody; none while something is taken away.
type Calm = Mutex<Option<Instant>>;

/// An address, and the pods that have it: each its node's number and its namespace.
type Duplicate = (IpAddr, Vec<(usize, String)>);

/// Ends the other threads with this one.
struct Stop<'a>(&'a AtomicBool);

/// What became of ADDs.
#[derive(Debug, Default)]
struct Counts {
    added: AtomicUsize,
    refused: AtomicUsize,
}

#[test]
#[ignore = "minutes: cargo xtask test soak"]
fn no_duplicate_is_unreported_and_nothing_leaks() {
    let minutes: u64 = std::env::var("NETLOOM_MINUTES").map_or(3, |minutes| minutes.parse().expect("NETLOOM_MINUTES is a number"));
    let any = || u64::from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos());
    let mut chance = std::env::var("NETLOOM_SEED").map_or_else(|_| any(), |seed| seed.parse().expect("NETLOOM_SEED is a number")).max(1);
    println!("{minutes} minutes, NETLOOM_SEED={chance}");
    let cluster = Cluster::without_operator("soak", &[]);
    let operators: Vec<Operator> = (0..3).map(|number| operator(&cluster, number)).collect();
    cluster.pool("lab", &pool());
    let nodes: Vec<Node> = (0..NODES).map(|number| node(&cluster, &format!("soak-{number}"))).collect();
    let befores: Vec<Traces> = nodes.iter().map(|node| kept(node.before())).collect();
    let pods: Vec<Vec<Pod<'_>>> = nodes.iter().map(|node| crate::granted::pods(node, "pod", PODS)).collect();

    let (stop, still, calm, counts) = (AtomicBool::new(false), AtomicBool::new(false), Calm::default(), Counts::default());
    let mut scene = Scene { cluster: &cluster, nodes: &nodes, operators, still: &still };
    let healths: Vec<SocketAddr> = scene.operators.iter().map(|operator| operator.health).collect();
    let end = Instant::now() + Duration::from_secs(minutes * 60);
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        for pods in &pods {
            let (chance, stop, still, counts) = (below(&mut chance, u64::MAX) + 1, &stop, &still, &counts);
            scope.spawn(move || come_and_go(pods, chance, (stop, still), counts));
        }
        let oracle = scope.spawn(|| watch(&cluster, &nodes, &healths, &calm, &stop));
        for (turn, (what, disturb)) in DISTURBANCES.iter().cycle().enumerate() {
            if oracle.is_finished() || (turn >= DISTURBANCES.len() && Instant::now() > end) {
                break;
            }
            let node = &nodes[usize::try_from(below(&mut chance, NODES as u64)).unwrap()];
            *calm.lock().unwrap() = None;
            let begun = Instant::now();
            disturb(&mut scene, node);
            scene.until_whole();
            println!("{what} ({}): {:.1?}", node.name, begun.elapsed());
            *calm.lock().unwrap() = Some(Instant::now());
            pass(REPORTED + Duration::from_secs(2));
            still.store(false, Ordering::Relaxed);
        }
    });
    println!("{counts:?}");
    drop(pods);
    for node in &nodes {
        node.settled();
        assert_eq!(leased(node), Vec::new(), "{} has leases of nobody", node.name);
    }
    let is_out = || nodes.iter().any(|node| !cluster.blocks(&node.name).is_empty()) || blocks_out(&cluster.list("ipledgershards")) > 0;
    cluster.until("all addresses are given back", || !is_out());
    cluster.until("the leader finds no violation", || figure(&healths, "netloom_operator_ipam_violations") == Some(0));
    for (node, before) in nodes.iter().zip(&befores) {
        let left = seen_within(PATIENCE, || differences(before, &kept(node.host.traces())), Vec::is_empty);
        left.unwrap_or_else(|left| panic!("traces on {}:\n{}", node.name, left.join("\n")));
    }
}

fn pool() -> Value {
    json!({"ipv4": {"entries": [{"range": RANGE}], "blockPrefix": 32, "prefixLength": 24, "gateway": "10.20.0.1"},
        "scaling": {"preAllocate": 0, "maxStock": 16, "releaseDelaySeconds": 1}, "reuse": {"cooldownSeconds": 0}})
}

/// A node whose agent runs.
fn node(cluster: &Cluster, name: &str) -> Node {
    cluster.join(name);
    let node = Node::new(&cluster.api, name, "");
    configure(&node, "lab", "");
    node.restart();
    node
}

/// Traces without the journal, which is read as a whole instead.
fn kept(mut traces: Traces) -> Traces {
    traces.retain(|line, _| !line.starts_with("disk: /var/lib/netloom/ipam/"));
    traces
}

/// A number below this one (xorshift64).
fn below(chance: &mut u64, limit: u64) -> u64 {
    *chance ^= *chance << 13;
    *chance ^= *chance >> 7;
    *chance ^= *chance << 17;
    *chance % limit
}

fn pass(time: Duration) {
    // Sleeps: the grace time passes, and the time in which a duplicate must be reported.
    std::thread::sleep(time);
}

fn signal(node: &Node, signal: &str) {
    assert!(Command::new("kill").args([signal, &node.pid().to_string()]).status().unwrap().success());
}

/// The pods of a node come and go; in the end all have gone.
fn come_and_go(pods: &[Pod<'_>], mut chance: u64, (stop, still): (&AtomicBool, &AtomicBool), counts: &Counts) {
    let mut there = BTreeSet::new();
    while !stop.load(Ordering::Relaxed) {
        // Sleeps: a pod lives for a while.
        std::thread::sleep(Duration::from_millis(below(&mut chance, 400)));
        if still.load(Ordering::Relaxed) {
            continue;
        }
        let any = usize::try_from(below(&mut chance, PODS as u64)).unwrap();
        if there.remove(&any) {
            end(&pods[any]);
        } else if there.len() < MOST {
            if pods[any].add().code == 0 {
                counts.added.fetch_add(1, Ordering::Relaxed);
                there.insert(any);
            } else {
                counts.refused.fetch_add(1, Ordering::Relaxed);
                end(&pods[any]);
            }
        }
    }
    there.into_iter().for_each(|one| end(&pods[one]));
}

/// A pod's sandbox goes, and the next one is made.
fn end(pod: &Pod<'_>) {
    let last = seen_within(PATIENCE, || pod.del(), |outcome| outcome.code == 0);
    last.unwrap_or_else(|outcome| panic!("DEL of {} of {}: {outcome:?}", pod.name, pod.namespace));
    pod.renew();
}

/// Judges until it is to stop: each duplicate is reported in time.
fn watch(cluster: &Cluster, nodes: &[Node], healths: &[SocketAddr], calm: &Calm, stop: &AtomicBool) {
    // Since when each is there, and whether it was reported.
    let mut known: BTreeMap<Duplicate, (Instant, bool)> = BTreeMap::new();
    let (mut all, mut slowest, mut looks) = (0, Duration::ZERO, 0);
    while !stop.load(Ordering::Relaxed) {
        // Sleeps: between two looks.
        std::thread::sleep(Duration::from_millis(200));
        let found = duplicates(nodes);
        looks += 1;
        known.retain(|duplicate, _| found.contains(duplicate));
        for duplicate in found {
            all += usize::from(!known.contains_key(&duplicate));
            known.entry(duplicate).or_insert((Instant::now(), false));
        }
        // Nothing is taken away while it asks.
        let calm = calm.lock().unwrap();
        let Some(since) = *calm else { continue };
        for (duplicate, (seen, is_reported)) in known.iter_mut().filter(|(_, (_, is_reported))| !is_reported) {
            let waited = since.max(*seen).elapsed();
            *is_reported = reported(cluster, healths, duplicate.0);
            assert!(*is_reported || waited < REPORTED, "not reported after {waited:.1?}: {duplicate:?}");
            if *is_reported {
                slowest = slowest.max(waited);
            }
        }
    }
    println!("{looks} looks at all namespaces: {all} duplicates, each reported after {slowest:.1?} at most");
}

/// Whether the leader counts a violation, and an Event names the address.
fn reported(cluster: &Cluster, healths: &[SocketAddr], ip: IpAddr) -> bool {
    let events = cluster.api.ask("GET", "/apis/events.k8s.io/v1/events", &Value::Null).1;
    let mut told = events["items"].as_array().into_iter().flatten().filter(|event| event["reason"] == "LedgerViolated");
    let is_told = told.any(|event| event["note"].as_str().is_some_and(|note| note.contains(&format!("{ip}/32"))));
    is_told && figure(healths, "netloom_operator_ipam_violations").is_some_and(|count| count > 0)
}

/// The addresses that pods of two namespaces have at one moment.
fn duplicates(nodes: &[Node]) -> BTreeSet<Duplicate> {
    let mut found = sightings(nodes);
    found.retain(|_, pods| pods.len() > 1);
    if found.is_empty() {
        return BTreeSet::new();
    }
    // A namespace has its addresses from ADD to DEL: who has it in both looks has had it between them.
    let again = sightings(nodes);
    let still = |(ip, mut pods): Duplicate| {
        pods.retain(|pod| again.get(&ip).is_some_and(|now| now.contains(pod)));
        (pods.len() > 1).then_some((ip, pods))
    };
    found.into_iter().filter_map(still).collect()
}

/// Who has each address, as `ip` says in every namespace of every node.
fn sightings(nodes: &[Node]) -> BTreeMap<IpAddr, Vec<(usize, String)>> {
    let mut found: BTreeMap<IpAddr, Vec<(usize, String)>> = BTreeMap::new();
    for (number, node) in nodes.iter().enumerate() {
        let line = "for name in $(ls /run/netns); do echo \"@$name\"; ip -n $name -j addr; done 2>/dev/null";
        let output = node.host.try_run("", &["sh", "-c", line]);
        for part in String::from_utf8_lossy(&output.stdout).split('@').filter(|part| !part.is_empty()) {
            let (name, links) = part.split_once('\n').unwrap();
            // A namespace that goes meanwhile has no links.
            let Ok(links) = serde_json::from_str(links) else { continue };
            for (_, address) in of_links(&links) {
                found.entry(address).or_default().push((number, name.to_owned()));
            }
        }
    }
    found
}

/// Starts an operator that shares a Lease with others.
fn operator(cluster: &Cluster, number: usize) -> Operator {
    // A port that is free; nobody else is given it so soon.
    let health = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    Operator { child: launch(cluster, number, health), health }
}

fn launch(cluster: &Cluster, number: usize, health: SocketAddr) -> Child {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(netloom()).args(["operator", "--identity", &format!("operator-{number}")]);
    command.args(["--health-address", &health.to_string(), "--grace", &GRACE.as_secs().to_string(), "--kubeconfig"]);
    let log = File::options().create(true).append(true).open(cluster.dir.join("operator.log")).unwrap();
    command.arg(cluster.dir.join("kubeconfig")).stderr(log).stdout(Stdio::null()).spawn().unwrap()
}

/// What an operator's `/metrics` shows.
fn metrics(health: SocketAddr) -> std::io::Result<String> {
    let (mut stream, mut text) = (TcpStream::connect(health)?, String::new());
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// A number that the leader shows; none where no operator leads.
fn figure(healths: &[SocketAddr], name: &str) -> Option<u64> {
    let mut all = healths.iter().filter_map(|health| metrics(*health).ok());
    let leaders = all.find(|text| text.contains("\nnetloom_operator_leading 1\n"))?;
    leaders.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

// === impl Scene ===

impl Scene<'_> {
    fn delete(&self, node: &str) {
        self.cluster.api.must("DELETE", &format!("/api/v1/nodes/{node}"), &Value::Null);
    }

    /// The leader, if there is one, dies, and begins again.
    fn kill_leader(&mut self) {
        let leads = |operator: &Operator| figure(&[operator.health], "netloom_operator_leading").is_some();
        let Some(number) = self.operators.iter().position(leads) else { return };
        let operator = &mut self.operators[number];
        operator.child.kill().unwrap();
        operator.child.wait().unwrap();
        operator.child = launch(self.cluster, number, operator.health);
    }

    /// The machine joins under another name, and the Node of the one before is deleted.
    fn rename(&self, node: &Node, from: &str, to: &str) {
        node.terminate();
        node.ended();
        self.delete(from);
        self.cluster.join(to);
        let settings = node.host.path(SETTINGS);
        let text = std::fs::read_to_string(&settings).unwrap();
        std::fs::write(&settings, text.replace(&format!("nodeName: {from}\n"), &format!("nodeName: {to}\n"))).unwrap();
        node.restart();
    }

    fn resize(&self, range: &str) {
        let patch = json!({"spec": {"ipv4": {"entries": [{"range": range}]}}});
        self.cluster.api.must("PATCH", &format!("{KINDS}/ippools/lab"), &patch);
    }

    /// Until an operator leads, and each agent has written of its Node's object.
    fn until_whole(&self) {
        let healths: Vec<SocketAddr> = self.operators.iter().map(|operator| operator.health).collect();
        self.cluster.until("an operator leads", || figure(&healths, "netloom_operator_leading").is_some());
        for node in self.nodes {
            let path = format!("/api/v1/nodes/{}", node.name);
            node.until("the agent is ready", || node.status()["ready"] == json!(true));
            node.until("the agent has written of its Node's object", || {
                let (object, (_, now)) = (self.cluster.object(&node.name), self.cluster.api.ask("GET", &path, &Value::Null));
                let uid = &now["metadata"]["uid"];
                let is_read = object["status"]["observedGeneration"] == object["metadata"]["generation"];
                uid.is_string() && object["spec"]["nodeUID"] == *uid && is_read
            });
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
