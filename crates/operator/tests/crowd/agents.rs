//! Thousands of nodes on one thread beside the operator's: the allocator of each in memory, one watch for all of them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::NodeIpPoolStatus;
use cluster::Own;
use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use objects::Store;
use pool::{Family, Key, State};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::at_work::AtWork;
use crate::node::{Held, Node, pod, write};
use crate::world::{NodePool, POOL, node, quiet, store, until, writes};

/// What the machine is given for it, though it does much else.
const PATIENCE: Duration = Duration::from_secs(600);
/// So many addresses a block has.
const BLOCK: usize = 64;
/// Pods of each node, then of every other one, in turn: one, two or three blocks.
const PODS: usize = 110;
const FEW: usize = 20;
const MANY: usize = 180;

/// How far all nodes are.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// Pods that have their addresses.
    addressed: usize,
    /// Nodes that have a block.
    begun: usize,
    /// Blocks that nodes give back, and have in their spec yet.
    returning: usize,
}

/// From no block to 110 pods on each node; then all pods are replaced, twice, by fewer and by more. The operator is in this process, or
/// one of its own: this program.
pub(crate) async fn life(nodes: usize, program: Option<&Path>) {
    // One block in forty more than all nodes need at once: what is granted the second time must have been given back.
    let blocks = nodes * 2 + nodes / 40 + 1;
    let last = IpAddr::from((0x0a00_0000_u32 + u32::try_from(blocks * BLOCK).unwrap() - 1).to_be_bytes());
    let spec = json!({
        "ipv4": {"entries": [{"range": format!("10.0.0.0-{last}")}]}, "ipv6": {"entries": [{"cidr": "fd00::/96"}]},
        "scaling": {"releaseDelaySeconds": 0}, "reuse": {"cooldownSeconds": 0},
    });
    let store = store(nodes, &spec);
    let (pods, wanted) = watch::channel(vec![PODS; nodes]);
    let progress = Arc::new(Mutex::new(Progress::default()));
    let (of_agents, told) = (store.clone(), Arc::clone(&progress));
    let agents = std::thread::spawn(move || crate::run(agents(of_agents, wanted, told)));
    let now = || *progress.lock().unwrap();

    let begun = Instant::now();
    let mut operator = AtWork::start(&store, "crowd", program);
    until("a node has a block", PATIENCE, || now().begun > 0).await;
    let first = begun.elapsed();
    until("every node has a block", PATIENCE, || now().begun == nodes).await;
    let everyone = begun.elapsed();
    until("every pod has its addresses", PATIENCE, || now().addressed == nodes * PODS).await;
    println!("{nodes} nodes, from nothing: first block after {first:.2?}, one for each after {everyone:.2?}");
    report(&store, &format!("all {} pods have their addresses", nodes * PODS), begun.elapsed(), 0);
    quiet(&store).await;
    println!("memory: {}", operator.memory());

    for turn in 0..2 {
        let (before, begun) = (writes(&store), Instant::now());
        let mut counts: Vec<usize> = (0..nodes).map(|number| if number % 2 == turn { FEW } else { MANY }).collect();
        // An odd node out would want more blocks than there are.
        counts[nodes - 1] = FEW;
        let sum: usize = counts.iter().sum();
        pods.send(counts).unwrap();
        until("every new pod has its addresses", PATIENCE, || now().addressed == sum && now().returning == 0).await;
        report(&store, &format!("all pods replaced, {sum} now"), begun.elapsed(), before);
        quiet(&store).await;
        println!("memory: {}", operator.memory());
    }
    assert!(operator.alive() && !agents.is_finished(), "somebody has ended");
    let metrics = operator.metrics();
    let steps = metrics.lines().find(|line| line.starts_with("netloom_operator_steps_total ")).unwrap().to_owned();
    println!("{steps}");
    restart(&store, operator, program).await;
    drop(pods);
    agents.join().unwrap();
}

fn report(store: &Store, what: &str, took: Duration, before: u64) {
    let count = writes(store) - before;
    println!("{what}: {took:.2?}, {count} writes, {:.0} a second", count as f64 / took.as_secs_f64());
}

/// Another operator, which reads everything anew: what it takes, and that it finds nothing to write.
async fn restart(store: &Store, before: AtWork, program: Option<&Path>) {
    drop(before);
    let (written, begun) = (writes(store), Instant::now());
    let operator = AtWork::start(store, "crowd-again", program);
    let stepped = |line: &str| line.strip_prefix("netloom_operator_steps_total ").is_some_and(|n| n != "0");
    until("it has decided", PATIENCE, || operator.metrics().lines().any(stepped)).await;
    println!("another operator has read and decided after {:.2?}, {}", begun.elapsed(), operator.memory());
    quiet(store).await;
    assert_eq!(writes(store), written, "there was nothing to do");
    assert!(operator.metrics().contains("netloom_operator_ipam_violations 0"), "{}", operator.metrics());
}

/// All nodes: what their objects say is taken in, what follows is written.
async fn agents(store: Store, mut wanted: watch::Receiver<Vec<usize>>, progress: Arc<Mutex<Progress>>) {
    let client = store.client();
    let mut counts = wanted.borrow_and_update().clone();
    let mut nodes: Vec<Node> = (0..counts.len()).map(|number| Node::new(number, &Family::ALL)).collect();
    let numbers: BTreeMap<String, usize> = (0..nodes.len()).map(|number| (node(number), number)).collect();
    let (mut held, mut generation) = (Held::new(), 0);
    replace(&mut nodes, &counts, generation, &mut held);
    let mut events = watcher(Own::NodeIpPool.api::<NodePool>(client.clone()), Config::default()).default_backoff().boxed();
    let (done, mut written) = mpsc::unbounded_channel::<usize>();
    let mut writing = JoinSet::new();
    loop {
        let due: Vec<usize> = tokio::select! {
            event = events.next() => match event {
                Some(Ok(Event::Apply(object) | Event::InitApply(object))) => {
                    let number = numbers[object.metadata.name.as_deref().unwrap()];
                    nodes[number].saw(object);
                    vec![number]
                }
                _ => Vec::new(),
            },
            Some(number) = written.recv() => {
                nodes[number].writing = false;
                vec![number]
            }
            changed = wanted.changed() => {
                // Whoever wants something of them is gone.
                let Ok(()) = changed else { return };
                counts.clone_from(&wanted.borrow_and_update());
                generation += 1;
                replace(&mut nodes, &counts, generation, &mut held);
                progress.lock().unwrap().addressed = 0;
                (0..nodes.len()).collect()
            }
        };
        for number in due {
            let Some((version, status)) = look(&mut nodes[number], generation, &mut held, &progress) else { continue };
            nodes[number].writing = true;
            let (client, done) = (client.clone(), done.clone());
            writing.spawn(async move {
                write(&client, number, &version, &status).await;
                let _ = done.send(number);
            });
        }
        while writing.try_join_next().is_some() {}
    }
}

/// All pods go; so many others come to each node.
fn replace(nodes: &mut [Node], counts: &[usize], generation: usize, held: &mut Held) {
    for (number, (node, count)) in nodes.iter_mut().zip(counts).enumerate() {
        let before: Vec<Key> = node.addressed().cloned().collect();
        before.iter().for_each(|pod| node.go(pod, held));
        (0..*count).for_each(|n| node.come(pod(POOL, format!("{number}-{generation}-{n}"))));
    }
}

/// One look at a node; what is to be written, over which version of its object.
fn look(node: &mut Node, generation: usize, held: &mut Held, progress: &Mutex<Progress>) -> Option<(String, NodeIpPoolStatus)> {
    let state = |node: &Node| {
        let returning = node.blocks().filter(|(_, state)| *state == State::Frozen).count();
        (node.addressed().count(), returning)
    };
    let before = state(node);
    let said = node.step(Instant::now(), held)?;
    let after = state(node);
    let mut progress = progress.lock().unwrap();
    progress.addressed = progress.addressed + after.0 - before.0;
    progress.begun += usize::from(after.0 > 0 && before.0 == 0 && generation == 0);
    progress.returning = progress.returning + after.1 - before.1;
    let needs = |status: &NodeIpPoolStatus| -> Vec<(u64, u64)> { status.demand.iter().map(|d| (d.v4, d.v6)).collect() };
    let same = needs(&said.status) == needs(&said.seen) && said.status.returning == said.seen.returning;
    (!same && !node.writing).then_some((said.version, said.status))
}
