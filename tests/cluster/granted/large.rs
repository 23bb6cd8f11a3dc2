//! Very many nodes before a real API server. Their agents are the test, which writes what agents write: what is needed, and what is
//! given back. What the operator asks for is in the API server's own audit log.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use netloom_tests::addresses::{blocks_out, wrong_blocks};
use serde_json::{Value, json};

use crate::granted::{Cluster, KINDS};

/// In a cluster of so many nodes, for 10,000, an operator starts.
const NODES: usize = 1000;

/// So many nodes, for 10,000, change what they need at once. Most of what is asked for is refused, so it takes longer.
const STORM: usize = 200;

/// Blocks with their lives.
type Blocks = BTreeSet<(String, u64)>;

/// A cluster whose API server writes down what the operator asks for; the operator has its own token, as it is deployed.
struct Crowd {
    cluster: Cluster,
    audit: PathBuf,
}

fn name(number: usize) -> String {
    format!("node-{number:04}")
}

fn text<'a>(of: &'a Value, pointer: &str) -> &'a str {
    of.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The IPv4 blocks of a node's object, the lowest first, and those of IPv6.
fn blocks(object: &Value) -> (Vec<&Value>, Vec<&Value>) {
    let all = object["spec"]["blocks"].as_array().into_iter().flatten();
    let (six, mut four): (Vec<&Value>, Vec<&Value>) = all.partition(|block| text(block, "/cidr").contains(':'));
    four.sort_by_key(|block| text(block, "/cidr").split('/').next().unwrap().parse::<std::net::Ipv4Addr>().unwrap());
    (four, six)
}

// === impl Crowd ===

impl Crowd {
    fn new(name: &str, flags: &[&str]) -> Crowd {
        let cluster = Cluster::without_operator(name, &["--writes-per-second", "1000"]);
        let audit = cluster.dir.join("audit.log");
        let policy = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
            {"level": "Metadata", "users": ["system:serviceaccount:kube-system:netloom-operator"]}, {"level": "None"}]});
        std::fs::write(cluster.dir.join("policy.json"), policy.to_string()).unwrap();
        cluster.deploy_operator();
        {
            let mut plane = cluster.api.plane();
            plane.kill_api().unwrap();
            let files =
                [format!("--audit-policy-file={}/policy.json", cluster.dir.display()), format!("--audit-log-path={}", audit.display())];
            plane.configure_api(&files.each_ref().map(String::as_str));
            plane.configure_api(flags);
            plane.start_api().unwrap();
        }
        let families = json!({"ipv4": {"entries": [{"cidr": "10.0.0.0/10"}]}, "ipv6": {"entries": [{"cidr": "fd00::/64"}]}});
        cluster.pool("p", &families);
        Crowd { cluster, audit }
    }

    /// Each of these is asked for until it is done.
    fn all(&self, what: &str, mut requests: Vec<(&'static str, String, Value)>) {
        let end = Instant::now() + Duration::from_secs(600);
        while !requests.is_empty() {
            assert!(Instant::now() < end, "{what}: {} are not done", requests.len());
            let codes = self.cluster.api.every(&requests);
            // What was made by a request whose answer was lost is there.
            let mut done = codes.iter().map(|code| (200..300).contains(code) || *code == 409);
            requests.retain(|_| !done.next().unwrap());
        }
    }

    fn join(&self, numbers: std::ops::Range<usize>) {
        let node = |n| ("POST", "/api/v1/nodes".to_owned(), json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name(n)}}));
        self.all("Nodes", numbers.map(node).collect());
    }

    /// The objects by name.
    fn objects(&self) -> BTreeMap<String, Value> {
        self.cluster.list("nodeippools").into_iter().map(|object| (text(&object, "/metadata/name").to_owned(), object)).collect()
    }

    /// These nodes need so many IPv4 blocks each, and one of IPv6; what they have besides they give back, the highest first.
    fn need(&self, numbers: impl Iterator<Item = usize>, objects: &BTreeMap<String, Value>, wanted: impl Fn(usize) -> usize) {
        let status = |n: usize| {
            let object = objects.get(&name(n)).unwrap_or(&Value::Null);
            let (four, six) = blocks(object);
            let (six, wanted) = (six.into_iter().filter(|_| wanted(n) == 0), wanted(n));
            let back = four.into_iter().skip(wanted).chain(six);
            let returning: Vec<Value> = back.map(|b| json!({"cidr": b["cidr"], "pool": "p", "epoch": b["epoch"]})).collect();
            let demand = json!([{"pool": "p", "v4": wanted * 64, "v6": if wanted == 0 { 0 } else { 256 }}]);
            let path = format!("{KINDS}/nodeippools/{}/status", name(n));
            ("PATCH", path, json!({"status": {"demand": demand, "returning": returning}}))
        };
        self.all("what nodes need", numbers.map(status).collect());
    }

    /// Waits until each of these nodes has what it needs; nothing is two nodes' meanwhile.
    fn served(&self, numbers: std::ops::Range<usize>, wanted: impl Fn(usize) -> usize) -> BTreeMap<String, Value> {
        let mut last = BTreeMap::new();
        self.cluster.until("everybody has what it needs", || {
            last = self.objects();
            let mut seen = BTreeSet::new();
            for block in last.values().flat_map(|object| object["spec"]["blocks"].as_array().into_iter().flatten()) {
                assert!(seen.insert(text(block, "/cidr")), "two nodes have {block}");
            }
            numbers.clone().all(|n| {
                let (four, six) = blocks(last.get(&name(n)).unwrap_or(&Value::Null));
                four.len() == wanted(n) && six.len() == usize::from(wanted(n) > 0)
            })
        });
        last
    }

    /// O2: what is granted is in the ledger, and nothing else is.
    fn sound(&self) {
        let out = |nodes: &[Value]| nodes.iter().map(|object| object["spec"]["blocks"].as_array().map_or(0, Vec::len)).sum::<usize>();
        let (mut nodes, mut shards) = (Vec::new(), Vec::new());
        self.cluster.until("the ledger has as many blocks as nodes have", || {
            (nodes, shards) = (self.cluster.list("nodeippools"), self.cluster.list("ipledgershards"));
            out(&nodes) == blocks_out(&shards)
        });
        let wrong = wrong_blocks(&nodes, &shards);
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// What the operator has asked for, in the order in which it was answered.
    fn asked(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(&self.audit).unwrap_or_default();
        // The last line of a server that was killed may be torn.
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The most memory that the operator had, in MiB.
    fn memory(&self) -> u64 {
        let pid = self.cluster.operator.as_ref().unwrap().id();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    }
}

fn lives(objects: &BTreeMap<String, Value>) -> BTreeMap<String, Blocks> {
    let of = |object: &Value| -> Blocks {
        let all = object["spec"]["blocks"].as_array().into_iter().flatten();
        all.map(|block| (text(block, "/cidr").to_owned(), block["epoch"].as_u64().unwrap())).collect()
    };
    objects.iter().map(|(name, object)| (name.clone(), of(object))).collect()
}

/// Whether something was to be changed; the operator also asks what would be kept of a write that is none.
fn is_write(asked: &Value) -> bool {
    ["create", "update", "patch", "delete"].contains(&text(asked, "/verb")) && !text(asked, "/requestURI").contains("dryRun")
}

/// How often each kind of thing was written, with success and without.
fn counted<'a>(asked: impl Iterator<Item = &'a Value>) -> BTreeMap<(String, u64), usize> {
    let mut all = BTreeMap::new();
    for one in asked.filter(|one| is_write(one)) {
        let what = format!("{} {} {}", text(one, "/verb"), text(one, "/objectRef/resource"), text(one, "/objectRef/subresource"));
        let code = one.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default();
        *all.entry((what.trim_end().to_owned(), code)).or_default() += 1;
    }
    all
}

/// Of the nodes one in twenty has no object yet: the operator reads all before it writes, leaves those alone that have what they need, and
/// gives the others what is nobody's.
#[test]
fn an_operator_starts_in_a_large_cluster() {
    const LATE: usize = NODES / 20;
    let mut crowd = Crowd::new("start", &[]);
    crowd.join(0..NODES - LATE);
    crowd.cluster.operate();
    crowd.cluster.until("an object for each", || crowd.objects().len() == NODES - LATE);
    crowd.need(0..NODES - LATE, &BTreeMap::new(), |_| 2);
    let before = lives(&crowd.served(0..NODES - LATE, |_| 2));
    crowd.cluster.stop_operator();
    crowd.join(NODES - LATE..NODES);
    let already = crowd.asked().len();
    // The list of nodes' objects comes late: at first it is refused.
    let own = json!({"apiGroups": ["netloom.io"], "resources": ["nodeippools"], "verbs": ["get", "watch", "create", "patch"]});
    let refused = json!([{"op": "replace", "path": "/rules/4/resources", "value": ["ipledgershards"]}, {"op": "add", "path": "/rules/-", "value": own}]);
    let role = ["patch", "clusterrole", "netloom-operator", "--type=json", "-p", &refused.to_string()];
    crowd.cluster.api.plane().kubectl(&role, "").unwrap();
    crowd.cluster.operate();
    let answered = |resource: &str, code: u64| {
        let is = |one: &Value| {
            text(one, "/verb") == "list" && text(one, "/objectRef/resource") == resource && one["responseStatus"]["code"] == code
        };
        crowd.asked().split_off(already).iter().any(is)
    };
    let rest = ["nodes", "ippools", "ipledgershards"];
    crowd.cluster.until("it has read the rest", || answered("nodeippools", 403) && rest.iter().all(|resource| answered(resource, 200)));
    // Sleeps: more than a pause between two attempts.
    std::thread::sleep(Duration::from_secs(3));
    let begun = Instant::now();
    crowd.cluster.deploy_operator();
    crowd.cluster.until("an object for the others", || crowd.objects().len() == NODES);
    println!("O4: the first object after {:?}", begun.elapsed());
    crowd.need(NODES - LATE..NODES, &BTreeMap::new(), |_| 2);
    let mut after = lives(&crowd.served(0..NODES, |_| 2));
    println!("O4: everybody has what it needs after {:?}; {} MiB", begun.elapsed(), crowd.memory());
    crowd.sound();
    after.retain(|node, _| before.contains_key(node));
    assert!(after == before, "somebody's blocks are others than they were");

    let asked = crowd.asked().split_off(already);
    let ours = |one: &Value, resource: &str| text(one, "/objectRef/resource") == resource;
    let first = asked.iter().filter(|one| is_write(one) && text(one, "/objectRef/apiGroup") == "netloom.io");
    let first = first.map(|one| text(one, "/requestReceivedTimestamp")).min().unwrap();
    for resource in ["nodes", "ippools", "nodeippools", "ipledgershards"] {
        let read = |one: &&Value| text(one, "/verb") == "list" && ours(one, resource) && one["responseStatus"]["code"] == 200;
        let mut lists = asked.iter().filter(read);
        // The last page: the list is complete.
        let read = lists.rfind(|one| text(one, "/stageTimestamp") < first);
        let more =
            |one: &Value| !text(one, "/requestURI").contains("continue=") && NODES > 500 && ["nodes", "nodeippools"].contains(&resource);
        assert!(read.is_some_and(|one| !more(one)), "{resource} was not read to its end before the first write: {read:?}");
    }
    let written = counted(asked.iter());
    println!("O5: {written:?}");
    let others = asked.iter().filter(|one| is_write(one) && ours(one, "nodeippools") && before.contains_key(text(one, "/objectRef/name")));
    assert_eq!(others.map(|one| text(one, "/objectRef/name")).collect::<Vec<_>>(), Vec::<&str>::new(), "they have what they need");
    let of = |what: &str| written.iter().filter(|((w, _), _)| w.ends_with(what)).map(|(_, count)| count).sum::<usize>();
    // An object for each, what each is granted, in as many steps as there are blocks at most; what is granted together is entered together.
    assert!(of("nodeippools") <= 4 * LATE, "{written:?}");
    assert!(of("ipledgershards") <= 3 * LATE, "{written:?}");
}

/// Everybody needs more, then something else, again and again, while the API server takes four writes at a time and refuses the others
/// with 429, and is killed and started again.
#[test]
fn all_nodes_at_once_while_the_server_refuses_and_dies() {
    // With priorities requests would wait in the server's queues instead.
    let flags = ["--enable-priority-and-fairness=false", "--max-mutating-requests-inflight=4", "--max-requests-inflight=8"];
    let mut crowd = Crowd::new("churn", &flags);
    crowd.cluster.operate();
    let begun = Instant::now();
    crowd.join(0..STORM);
    crowd.cluster.until("an object for each", || crowd.objects().len() == STORM);
    println!("O4: {STORM} nodes have objects after {:?}", begun.elapsed());
    let mut objects = BTreeMap::new();
    for round in 0..3 {
        let begun = Instant::now();
        let wanted = |n: usize| (n + round) % 3 + 1;
        if round == 1 {
            // Half of them have told when it dies.
            crowd.need(0..STORM / 2, &objects, wanted);
            crowd.cluster.api.plane().kill_api().unwrap();
            crowd.cluster.api.plane().start_api().unwrap();
            crowd.need(STORM / 2..STORM, &objects, wanted);
        } else {
            crowd.need(0..STORM, &objects, wanted);
        }
        let told = begun.elapsed();
        objects = crowd.served(0..STORM, wanted);
        crowd.sound();
        println!("O4: round {round}: everybody has told after {told:?}, and has what it needs after {:?}", begun.elapsed());
    }
    crowd.need(0..STORM, &objects, |_| 0);
    crowd.served(0..STORM, |_| 0);
    // O3: it is nobody's.
    crowd.sound();
    let written = counted(crowd.asked().iter());
    println!("O5: {written:?}; {} MiB", crowd.memory());
    let of = |what: &str, is: &dyn Fn(u64) -> bool| -> usize {
        written.iter().filter(|((w, code), _)| w.ends_with(what) && is(*code)).map(|(_, count)| count).sum()
    };
    assert!(of("", &|code| code == 429) > 0, "nothing was refused: {written:?}");
    let done = |what: &str| of(what, &|code| (200..300).contains(&code));
    // An object for each; a change of each node in each of five rounds, in as many steps as there are blocks at most.
    assert!(done("nodeippools") <= STORM * (1 + 4 * 3), "{written:?}");
    // Each change of a block is one of its cell: granted, on its way back, free.
    assert!(done("ipledgershards") <= STORM * 4, "{written:?}");
}
