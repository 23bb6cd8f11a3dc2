//! The agent and the operator within the memory that their manifests give them, against the largest and the most that others may make.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use netloom_tests::{Api, MemoryLimit, Node, SOCKET, netloom};
use serde_json::{Value, json};

use crate::questions::Dir;

/// How many definitions can be used, of 120 KiB each: three times what an agent keeps of all.
const USABLE: usize = 200;
const DEFINITIONS: &str = "/apis/k8s.cni.cncf.io/v1/namespaces/memory/network-attachment-definitions";

const AGENT: &str = include_str!("../../../deploy/agent.yaml");
const OPERATOR: &str = include_str!("../../../deploy/operator.yaml");

/// As the manifest has it.
fn shipped(manifest: &str) -> u64 {
    let (_, limits) = manifest.split_once("limits:\n").unwrap();
    let mib = limits.trim_start().strip_prefix("memory: ").unwrap().split_once("Mi").unwrap().0;
    mib.parse::<u64>().unwrap() << 20
}

fn large(n: usize, bytes: usize) -> Value {
    let config = json!({"cniVersion": "1.0.0", "name": format!("large-{n}"), "type": "macvlan", "master": "up0",
        "ipam": {"type": "host-local", "subnet": "10.77.0.0/16"}, "comment": "x".repeat(bytes)});
    json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": format!("large-{n}"), "namespace": "memory"}, "spec": {"config": config.to_string()}})
}

/// Many requests, each with much, four at a time.
fn every(api: &Api, count: usize, request: impl Fn(usize) -> (&'static str, String, Value) + Sync) {
    std::thread::scope(|scope| {
        for part in 0..4 {
            let request = &request;
            scope.spawn(move || {
                for n in (part..count).step_by(4) {
                    let (method, path, body) = request(n);
                    api.must(method, &path, &body);
                }
            });
        }
    });
}

/// Starts an agent under a limit, and waits until it is ready.
fn start(node: &Node, limit: &MemoryLimit) {
    node.launch();
    limit.holds_for(node.pid());
    node.until("the agent is ready", || node.status()["ready"] == json!(true));
}

/// The agent lives; what it has taken so far is printed.
fn lives_within(node: &Node, limit: &MemoryLimit, when: &str) {
    let peak = limit.peak().map_or_else(|| "not counted".to_owned(), |peak| format!("{} KiB", peak >> 10));
    assert!(node.lives(), "{when}: the kernel has ended the agent; its log ends:\n{}", node.tail());
    println!("{when}: VmHWM {} KiB, group {peak}", node.peak());
}

#[test]
#[ignore = "computes for a minute: cargo xtask test limits"]
fn the_shipped_limit_is_enough_whatever_others_make() {
    let limit = MemoryLimit::new("agent", shipped(AGENT));
    let api = Api::own();
    let node = Node::new(&api, "memory", "healthAddress: 127.0.0.1:9180\nreconcileEvery: 5s");
    // Those of a namespace whose author means it badly: 24 MB that can be used, and 60 MB that cannot.
    every(&api, USABLE, |n| ("POST", DEFINITIONS.to_owned(), large(n, 120 << 10)));
    every(&api, 60, |n| ("POST", DEFINITIONS.to_owned(), large(1000 + n, 1000 << 10)));
    let within = |when: &str| lives_within(&node, &limit, when);
    start(&node, &limit);
    within("definitions that were there");
    // What is used is attached, be it one of those that are too many to be kept, or not.
    for (name, networks) in [("usual", "mac1,mac2"), ("large", "large-199,large-3"), ("usual-again", "mac3")] {
        let pod = node.pod(name, networks);
        pod.must("ADD");
        pod.must("CHECK");
        pod.must("DEL");
    }
    let refused = node.pod("too-large", "large-1000").add();
    assert!(refused.message().contains("memory/large-1000"), "{refused:?}");
    within("pods that select them");
    // Each is changed, twice.
    for round in 0..2 {
        let change = json!({"metadata": {"labels": {"round": round.to_string()}}});
        every(&api, USABLE, |n| ("PATCH", format!("{DEFINITIONS}/large-{n}"), change.clone()));
    }
    within("definitions that are changed");
    // As many pods as a node has, with all that annotations may have: 256 KiB.
    let pod = |n: usize| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("crowd{n}"), "namespace": "memory",
                "annotations": {"k8s.v1.cni.cncf.io/networks": format!("mac1,{}", "x".repeat(200 << 10)), "other": "y".repeat(40 << 10)}},
            "spec": {"nodeName": "memory", "containers": [{"name": "c", "image": "i"}]}})
    };
    every(&api, 110, |n| ("POST", "/api/v1/namespaces/memory/pods".to_owned(), pod(n)));
    node.kill9();
    start(&node, &limit);
    within("pods with all that annotations may have");
    // Who may connect: to the probes' address anybody on the node.
    let probed = node.host.within("", || {
        let mut half = VecDeque::new();
        for _ in 0..4600 {
            let mut stream = TcpStream::connect("127.0.0.1:9180").unwrap();
            // Those that were closed for later ones.
            let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Half: ");
            half.push_back(stream);
            if half.len() > 400 {
                drop(half.pop_front());
            }
        }
        let mut probe = TcpStream::connect("127.0.0.1:9180").unwrap();
        probe.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        probe.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut said = String::new();
        probe.read_to_string(&mut said).unwrap();
        said
    });
    assert!(probed.starts_with("HTTP/1.1 200"), "{probed}");
    within("half-sent requests");
    // To the socket of calls root alone: what is announced and not sent, and what is sent and not ended.
    let mut callers = Vec::new();
    for n in 0..80 {
        let mut stream = UnixStream::connect(node.host.path(SOCKET)).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
        let length: u32 = if n % 2 == 0 { 8 << 20 } else { 1 << 20 };
        let _ = stream.write_all(&length.to_be_bytes()).and_then(|()| stream.write_all(&vec![b'['; 1 << 20]));
        callers.push(stream);
    }
    within("callers that say much");
    let pod = node.pod("after", "mac1");
    pod.must("ADD");
    pod.must("DEL");
    within("after all of it");
    drop(callers);
    node.kill9();
}

/// What definitions become once they are read: thirty times as large. What is refused leaves nothing; of what is accepted, pods have the
/// most that they may, one after the other and all at once.
#[test]
#[ignore = "computes for a minute: cargo xtask test limits"]
fn definitions_that_grow_when_they_are_read_do_not_fill_the_agent() {
    const PODS: usize = 40;
    let limit = MemoryLimit::new("grown", shipped(AGENT));
    let api = Api::own();
    let node = &Node::new(&api, "grown", "reconcileEvery: 5s");
    let config = |keys: &str| format!(r#"{{"cniVersion":"1.0.0","name":"x","type":"bridge","bridge":"evil9"{keys}}}"#);
    let zeros = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
    let nested = |keys: &str| (0..115).fold(zeros(60_000), |inner, _| format!(r#"{{{keys}"ipam":{inner}}}"#));
    let types = r#""type":"a","Type":"b","tYpe":"c","tyPe":"d","typE":"e","TYpe":"f","TYPE":"g","#;
    node.define("nested", &config(&format!(r#","ipam":{}"#, nested(""))));
    node.define("spelled", &config(&format!(r#","ipam":{}"#, nested(types))));
    node.define("flat", &config(&format!(r#","x":{}"#, zeros(62_000))));
    let keyed = format!(r#","ipam":{{"type":"theirs"}},"{}":[{}"/x"]"#, "k".repeat(110 << 10), r#""/x","#.repeat(1900));
    node.define("keyed", &config(&keyed));
    node.define("most", &config(&format!(r#","x":{},"y":"{}""#, zeros(1950), "y".repeat(56 << 10))));
    for n in 0..PODS {
        node.define(&format!("long-{n}"), &config(&format!(r#","x":"{}""#, "x".repeat(120 << 10))));
    }
    let within = |when: &str| lives_within(node, &limit, when);
    start(node, &limit);
    let every_long: Vec<String> = (0..PODS).map(|n| format!("long-{n}")).collect();
    let zeros_for_plugins = format!(r#"[{{"name":"most","cni-args":{{"x":{}}}}}]"#, zeros(100_000));
    let sixteen = |name: &str| [name; 16].join(",");
    let definitions = ["nested", "spelled", "flat", "keyed", "most"].map(sixteen);
    let selections: Vec<String> = definitions.into_iter().chain([every_long.join(","), zeros_for_plugins]).collect();
    let refused: Vec<_> = (0..14).map(|n| node.pod(&format!("refused{n}"), &selections[n % selections.len()])).collect();
    std::thread::scope(|scope| {
        for pod in &refused {
            scope.spawn(move || {
                let outcome = pod.add();
                assert_eq!(outcome.error()["code"], json!(7), "{outcome:?}");
                pod.must("DEL");
            });
        }
    });
    drop(refused);
    within("definitions that are refused");
    let pods: Vec<_> = (0..PODS).map(|n| node.pod(&format!("most{n}"), "most,most,most,most")).collect();
    let (first, others) = pods.split_at(12);
    first.iter().for_each(|pod| drop(pod.must("ADD")));
    within("pods with the largest networks, one after the other");
    std::thread::scope(|scope| {
        for pod in others {
            // As a kubelet does, which tries again.
            scope.spawn(move || {
                node.until("a large pod is attached", || {
                    let outcome = pod.add();
                    assert!(outcome.code == 0 || outcome.error()["code"] == json!(11), "{outcome:?}");
                    outcome.code == 0
                });
            });
        }
    });
    within("pods with the largest networks, all at once");
    let small = node.pod("small", "mac1,mac2,mac3");
    small.must("ADD");
    small.must("DEL");
    let compared = || node.log().matches(" reconcile ").count();
    node.kill9();
    let before = compared();
    start(node, &limit);
    node.until("all are compared, twice", || compared() >= before + 2);
    within("records of pods with the largest networks");
    std::thread::scope(|scope| pods.iter().for_each(|pod| drop(scope.spawn(move || pod.must("DEL")))));
    node.until("all are finished", || node.status()["sandboxes"] == json!(0));
    within("DELs of pods with the largest networks");
    drop((pods, small));
    node.kill9();
}

/// Records that are larger than what is accepted now: each is read, and none is kept. Together they once ended every agent that started.
#[test]
#[ignore = "computes for a minute: cargo xtask test limits"]
fn an_agent_starts_with_records_that_are_too_large_together() {
    let limit = MemoryLimit::new("records", shipped(AGENT));
    let api = Api::own();
    let node = Node::new(&api, "records", "reconcileEvery: 2s");
    node.define("flat", r#"{"cniVersion":"1.0.0","name":"x","type":"bridge","bridge":"evil9","x":[1234567]}"#);
    node.restart();
    let pods: Vec<_> = (0..12).map(|n| node.pod(&format!("large{n}"), &["flat"; 16].join(","))).collect();
    pods.iter().for_each(|pod| drop(pod.must("ADD")));
    node.kill9();
    for pod in &pods {
        let path = node.host.path(format!("/var/lib/netloom/sandboxes/{}.json", pod.sandbox()));
        let record = std::fs::read_to_string(&path).unwrap();
        let large = record.replace("1234567", &(String::from("0,").repeat(19_999) + "0"));
        assert!(large.len() > 16 * 39_000, "{} bytes", large.len());
        std::fs::write(&path, large).unwrap();
    }
    let compared = || node.log().matches(" reconcile ").count();
    let before = compared();
    node.launch();
    limit.holds_for(node.pid());
    node.until("all are compared, three times", || !node.lives() || compared() >= before + 3);
    lives_within(&node, &limit, "records that are too large together");
    assert_eq!(node.status()["sandboxes"], json!(pods.len()));
    pods.iter().for_each(|pod| drop(pod.must("DEL")));
    drop(pods);
    node.kill9();
}

/// Pods that somebody binds to the node himself: most are over, and the annotations of each are as long as they may be.
#[test]
#[ignore = "computes for a minute: cargo xtask test limits"]
fn pods_that_name_the_node_do_not_fill_the_agent() {
    const PODS: usize = 600;
    let limit = MemoryLimit::new("pods", shipped(AGENT));
    let api = Api::own();
    let node = Node::new(&api, "crowded", "reconcileEvery: 5s");
    let path = "/api/v1/namespaces/crowded/pods";
    let pod = |n: usize, networks: &str| {
        let labels = json!({format!("label-{n}"): "x".repeat(60)});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod{n}"), "namespace": "crowded", "labels": labels,
                "annotations": {"k8s.v1.cni.cncf.io/networks": format!("{networks}{}", " ".repeat(250 << 10))}},
            "spec": {"nodeName": "crowded", "hostNetwork": n.is_multiple_of(7), "containers": [{"name": "c", "image": "i"}]}})
    };
    every(&api, PODS, |n| ("POST", path.to_owned(), pod(n, "mac1")));
    let over = json!({"status": {"phase": "Failed"}});
    every(&api, PODS - 100, |n| ("PATCH", format!("{path}/pod{n}/status"), over.clone()));
    let within = |when: &str| lives_within(&node, &limit, when);
    start(&node, &limit);
    within("pods that were there");
    every(&api, PODS, |n| ("PATCH", format!("{path}/pod{n}"), json!({"metadata": {"labels": {"round": "1"}}})));
    within("pods that are changed");
    // One whose annotation is too long to be kept is asked for when it is attached, and has what it asks for.
    let large = node.pod_of(pod(PODS + 1, "mac1,mac2"));
    large.must("ADD");
    assert_eq!(large.status().as_array().map(Vec::len), Some(3), "the default network, mac1 and mac2");
    large.must("DEL");
    within("a pod of theirs");
    drop(large);
    node.kill9();
}

/// What an attachment takes is given back with it: of 5,000 that come and go, 16 at a time, the agent keeps nothing.
#[test]
#[ignore = "computes for minutes: cargo xtask test limits"]
fn five_thousand_pods_that_came_and_went_leave_no_memory() {
    const CALLERS: usize = 16;
    let node = Node::start("churned", "");
    let pods: Vec<_> = (0..CALLERS).map(|n| node.pod(&format!("pod{n}"), "")).collect();
    let come_and_go = |count: usize| {
        std::thread::scope(|scope| {
            for pod in &pods {
                scope.spawn(move || {
                    for _ in 0..count / CALLERS {
                        pod.must("ADD");
                        pod.must("DEL");
                    }
                });
            }
        });
        node.settled();
        anonymous(node.pid())
    };
    let before = come_and_go(500);
    let after = come_and_go(5_000);
    println!("anonymous memory: {before} KiB after 500, {after} KiB after 5,500, at most {} KiB with the executable", node.peak());
    assert!(after <= 16 << 10 && after <= before + (2 << 10), "{before} KiB, then {after} KiB");
}

/// The memory of a process that is no file's, in KiB (`RssAnon`).
fn anonymous(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// What the operator reads: definitions of which most mean no pool, pods that name claims, and pools.
#[test]
#[ignore = "computes for a minute: cargo xtask test limits"]
fn the_operator_lives_with_its_shipped_limit() {
    let limit = MemoryLimit::new("operator", shipped(OPERATOR));
    let api = Api::own();
    for file in ["ippools.yaml", "definition.yaml", "ipamclaims.yaml"] {
        api.define(file);
    }
    api.namespace("memory");
    let range = |n: usize, bytes: usize| {
        let ipam = json!({"type": "whereabouts", "range": format!("10.{}.{}.0/24", n / 256, n % 256)});
        let config = json!({"cniVersion": "1.0.0", "name": format!("large-{n}"), "type": "macvlan", "master": "up0", "ipam": ipam,
            "comment": "x".repeat(bytes)});
        json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": format!("large-{n}"), "namespace": "memory"}, "spec": {"config": config.to_string()}})
    };
    // 1.4 MB is what etcd takes.
    every(&api, 400, |n| ("POST", DEFINITIONS.to_owned(), range(n, 1_400_000)));
    every(&api, 200, |n| ("POST", DEFINITIONS.to_owned(), range(1000 + n, 100 << 10)));
    let claims = |n: usize| {
        let named = json!([{"name": "large-1000", "ipam-claim-reference": format!("claim-{n}")}]);
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod{n}"), "namespace": "memory",
                "annotations": {"k8s.v1.cni.cncf.io/networks": format!("{named}{}", " ".repeat(200 << 10))}},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i", "args": ["x".repeat(1 << 20)]}]}})
    };
    every(&api, 300, |n| ("POST", "/api/v1/namespaces/memory/pods".to_owned(), claims(n)));
    let pool = |n: usize| {
        let exclude: Vec<String> = (0..1024).map(|m| format!("172.{}.{}.{}/32", 16 + n % 16, m / 250, m % 250)).collect();
        json!({"apiVersion": "netloom.io/v1alpha1", "kind": "IPPool", "metadata": {"name": format!("pool{n}")},
            "spec": {"ipv4": {"entries": [{"cidr": format!("172.{}.0.0/16", 16 + n % 16)}]}, "exclude": exclude}})
    };
    every(&api, 100, |n| ("POST", "/apis/netloom.io/v1alpha1/ippools".to_owned(), pool(n)));
    let scratch = Dir::new("operator-memory");
    let dir = &scratch.0;
    std::fs::write(dir.join("kubeconfig"), api.kubeconfig("admin")).unwrap();
    let log = std::fs::File::create(dir.join("log")).unwrap();
    // It ends with the test, also where that fails.
    let mut command = std::process::Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(netloom());
    command.args(["operator", "--identity", "memory", "--kubeconfig"]).arg(dir.join("kubeconfig"));
    let mut operator = command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(log).spawn().unwrap();
    limit.holds_for(operator.id());
    let peak = || limit.peak().map(|peak| peak >> 10);
    let mut lives = |when: &str| {
        let ended = operator.try_wait().unwrap();
        let log = || std::fs::read_to_string(dir.join("log")).unwrap_or_default();
        assert!(ended.is_none(), "{when}: {ended:?}, group {:?}\n{}", peak(), log());
    };
    let pools = |lives: &mut dyn FnMut(&str), count: usize| {
        let begun = std::time::Instant::now();
        loop {
            lives("pools of definitions");
            let list = api.must("GET", "/apis/netloom.io/v1alpha1/ippools", &Value::Null);
            let names =
                list["items"].as_array().unwrap().iter().filter(|pool| pool["metadata"]["labels"]["netloom.io/definitions"].is_string());
            if names.count() == count {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(240), "not in time: {count} pools");
            // Sleeps: between two looks.
            std::thread::sleep(Duration::from_secs(1));
        }
    };
    // Those that can be used have one each.
    pools(&mut lives, 200);
    for round in 0..2 {
        let change = json!({"metadata": {"labels": {"round": round.to_string()}}});
        every(&api, 400, |n| ("PATCH", format!("{DEFINITIONS}/large-{n}"), change.clone()));
        lives("definitions that are changed");
    }
    api.must("POST", DEFINITIONS, &range(2000, 10));
    pools(&mut lives, 201);
    println!("the operator: group {:?} KiB", peak());
    let _ = operator.kill();
    let _ = operator.wait();
}
