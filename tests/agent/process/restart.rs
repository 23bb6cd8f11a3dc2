//! The agent is not there: stopped, replaced, started twice; the node was started anew, or has another name.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use netloom_tests::{Api, Node, Pod, SETTINGS, SOCKET, netloom};
use serde_json::{Value, json};
use wire::{Call, ToAgent, ToShim};

const SPOOL: &str = "/var/lib/netloom/spool";

fn kept(node: &Node) -> usize {
    node.host.list(SPOOL).iter().filter(|name| name.ends_with(".del")).count()
}

/// DEL succeeds and is carried out when the agent is back; ADD waits, and says what to look at.
#[test]
fn a_del_is_kept_and_an_add_waits() {
    let node = Node::start("away", "");
    let before = node.before();
    let (first, second) = (node.pod("first", "mac1"), node.pod("second", "mac2"));
    first.must("ADD");
    node.kill9();
    first.must("DEL");
    assert_eq!(kept(&node), 1);
    let begun = Instant::now();
    let refused = second.call_with("ADD", &json!({"agentWait": "500ms"}));
    assert!((500..120_000).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    assert_eq!(refused.error()["code"], json!(11));
    assert!(refused.message().contains(SOCKET) && refused.message().contains("check that the agent runs"), "{}", refused.message());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| second.add());
        // Sleeps: the call is to wait before the agent is there.
        std::thread::sleep(Duration::from_millis(300));
        node.restart();
        let added = waiting.join().unwrap();
        assert_eq!(added.code, 0, "an ADD waits for the agent: {added:?}");
    });
    node.until("the kept DEL is carried out", || kept(&node) == 0);
    second.must("DEL");
    drop((first, second));
    node.expect(&before, "an agent that was away");
}

/// An ADD of the same container comes after the DEL that is kept for it.
#[test]
fn an_add_comes_after_its_kept_del() {
    let node = Node::start("kept", "");
    let before = node.before();
    let pod = node.pod("web", "mac1");
    pod.must("ADD");
    node.kill9();
    pod.must("DEL");
    node.serve();
    pod.must("ADD");
    pod.must("CHECK");
    pod.must("DEL");
    drop(pod);
    node.expect(&before, "an ADD after a kept DEL");
}

/// Calls in flight end, and those that come meanwhile are served by the next agent.
#[test]
fn an_upgrade_under_calls() {
    let node = Node::start("upgrade", "");
    let before = node.before();
    let pods: Vec<_> = (0..4).map(|n| node.pod(&format!("p{n}"), "mac1,mac2,mac3")).collect();
    std::thread::scope(|scope| {
        let callers: Vec<_> = pods
            .iter()
            .map(|pod| {
                scope.spawn(|| {
                    for round in 0..12 {
                        let added = pod.add();
                        assert_eq!(added.code, 0, "ADD {round} of {}: {added:?}", pod.name);
                        let deleted = pod.del();
                        assert_eq!(deleted.code, 0, "DEL {round} of {}: {deleted:?}", pod.name);
                        pod.renew();
                    }
                })
            })
            .collect();
        for _ in 0..3 {
            // Sleeps: the agent is ended at some moment of many calls.
            std::thread::sleep(Duration::from_millis(400));
            node.terminate();
            node.ended();
            node.serve();
        }
        callers.into_iter().for_each(|caller| caller.join().unwrap());
    });
    drop(pods);
    node.expect(&before, "upgrades");
}

/// Who has connected when the agent is ended, and is slow to say what it wants, is still answered.
#[test]
fn a_slow_caller_is_answered_by_an_agent_that_ends() {
    let node = Node::start("slow", "");
    let socket = node.host.path(SOCKET);
    let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let tasks = format!("/proc/{}/task", node.pid());
    let is_slow = |task: std::io::Result<std::fs::DirEntry>| {
        task.is_ok_and(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == "slow"))
    };
    node.until("a thread listens to it", || std::fs::read_dir(&tasks).unwrap().any(is_slow));
    node.terminate();
    node.until("the agent takes no more calls", || !socket.exists());
    // Sleeps: an agent that waits for nobody has ended by then.
    std::thread::sleep(Duration::from_millis(300));
    let call = Call {
        protocol: wire::PROTOCOL,
        program: "netloom".to_owned(),
        verb: "STATUS".to_owned(),
        config: br#"{"cniVersion":"1.1.0","name":"cluster","type":"netloom"}"#.to_vec(),
        ..Call::default()
    };
    wire::send(&mut stream, &ToAgent::Call(call)).unwrap();
    let answer = wire::receive(&mut stream).unwrap();
    assert!(matches!(&answer, Some(ToShim::Answer(answer)) if answer.exit == 0), "{answer:?}");
    node.ended();
}

/// Two agents would undo each other's work. The second waits for the first, and serves when that has ended.
#[test]
fn two_agents_of_one_node() {
    let node = Node::start("two", "");
    let mut second = node.command().stderr(std::process::Stdio::piped()).spawn().unwrap();
    let pod = node.pod("web", "mac1");
    pod.must("ADD");
    pod.must("DEL");
    assert!(second.try_wait().unwrap().is_none(), "the second one waits");
    // One that waits says for whom, at once, and ends when it is told to.
    let mut third = node.command().stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(third.stderr.take().unwrap()).lines().map_while(Result::ok);
    let waits = lines.find(|line| line.contains("waits=")).unwrap();
    assert!(waits.contains(&node.pid().to_string()), "{waits}");
    let told = Instant::now();
    assert!(std::process::Command::new("kill").arg(third.id().to_string()).status().unwrap().success());
    assert!(third.wait().unwrap().success() && told.elapsed() < Duration::from_secs(120), "after {:?}", told.elapsed());
    // After a minute it gives up.
    let output = second.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("another agent runs on this node"), "{said}");
    assert!(said.contains(&node.pid().to_string()), "it names the other one: {said}");
    pod.renew();
    pod.must("ADD");
    pod.must("DEL");
}

/// Records of another boot, addresses that are still leased, and nothing of it in the kernel.
#[test]
fn a_reboot_frees_everything() {
    let node = Node::start("reboot", "");
    let before = node.before();
    let pods: Vec<_> = (0..3).map(|n| node.pod(&format!("p{n}"), "mac1,mac2")).collect();
    pods.iter().for_each(|pod| drop(pod.must("ADD")));
    node.kill9();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    for pod in &pods {
        let path = format!("/var/lib/netloom/sandboxes/{}.json", pod.sandbox());
        let record = std::fs::read_to_string(node.host.path(&path)).unwrap();
        assert!(record.contains(boot.trim()), "{record}");
        node.host.write(&path, &record.replace(boot.trim(), "11111111-2222-3333-4444-555555555555"));
        pod.remove_namespace();
    }
    // One of them was never written to its end, and was not on the disk when the power was cut.
    let torn = format!("/var/lib/netloom/sandboxes/{}.json", pods[0].sandbox());
    node.host.write(&torn, "");
    node.host.run("", &["touch", "-d", "2001-02-03", &torn]);
    // What the kernel had is gone after a reboot.
    node.host.sh("", "nft flush map inet netloom masquerade4");
    node.restart();
    node.until("every record is gone", || !node.host.list("/var/lib/netloom/sandboxes").iter().any(|name| name.ends_with(".json")));
    drop(pods);
    node.expect(&before, "a reboot");
    let pod = node.pod("after", "mac1,mac2");
    pod.must("ADD");
    pod.must("DEL");
    drop(pod);
    node.expect(&before, "a pod after a reboot");
}

/// A namespace that somebody has deleted, without a DEL.
#[test]
fn a_namespace_that_vanishes_is_freed() {
    let node = Node::start("vanished", "reconcileEvery: 1s");
    let before = node.before();
    let pod = node.pod("web", "mac1,mac2,mac3");
    pod.must("ADD");
    pod.remove_namespace();
    node.until("its record is gone", || node.host.list("/var/lib/netloom/sandboxes").is_empty());
    node.until("the log says so", || node.log().contains("its network namespace is gone, and there was no DEL"));
    pod.must("DEL");
    drop(pod);
    node.expect(&before, "a namespace that vanished");
}

/// The runtime has another configuration by now, and its DEL does not come to us: what leads to the pod goes with its namespace,
/// and not at the next comparison.
#[test]
fn a_namespace_that_goes_is_seen_when_it_goes() {
    let node = Node::start("seen", "reconcileEvery: 1h");
    let before = node.before();
    node.until("the first comparison is over", || node.log().contains(" reconcile "));
    let pod = node.pod("web", "mac1,mac2,mac3");
    pod.must("ADD");
    pod.remove_namespace();
    node.until("its record is gone", || node.host.list("/var/lib/netloom/sandboxes").is_empty());
    drop(pod);
    node.expect(&before, "a namespace that went");
}

/// A process that ends a moment after the path of its namespace went.
#[test]
fn a_namespace_that_is_still_in_use_is_freed_when_its_last_process_ends() {
    let node = Node::start("used", "reconcileEvery: 1h");
    let before = node.before();
    node.until("the first comparison is over", || node.log().contains(" reconcile "));
    let pod = node.pod("web", "mac1,mac2");
    pod.must("ADD");
    let mut last = node.host.command(&pod.sandbox(), "sleep").arg("600").spawn().unwrap();
    let namespace = |path: std::path::PathBuf| std::fs::metadata(path).map(|about| about.ino()).ok();
    let own = namespace(node.host.path("/run/netns").join(pod.sandbox()));
    node.until("a process is in it", || namespace(format!("/proc/{}/ns/net", last.id()).into()) == own);
    pod.remove_namespace();
    // Sleeps: for longer than the agent gives a DEL that is at work.
    std::thread::sleep(Duration::from_secs(2));
    assert!(!node.host.list("/var/lib/netloom/sandboxes").is_empty(), "it is in use");
    last.kill().unwrap();
    last.wait().unwrap();
    node.until("its record is gone", || node.host.list("/var/lib/netloom/sandboxes").is_empty());
    drop(pod);
    node.expect(&before, "a namespace that was in use");
}

/// With the agent the last who would have noticed is gone.
#[test]
fn uninstall_detaches_what_went_without_a_del() {
    let node = Node::start("moved-back", "");
    let before = node.before();
    let pods = ["web", "stored", "lost", "unfinished"].map(|name| node.pod(name, "mac1,mac2,mac3"));
    let [pod, stored, lost, unfinished] = &pods;
    pods.iter().for_each(|pod| drop(pod.must("ADD")));
    node.kill9();
    pod.remove_namespace();
    stored.must("DEL");
    let record = |pod: &Pod| format!("/var/lib/netloom/sandboxes/{}.json", pod.sandbox());
    node.host.write(&record(lost), "");
    node.host.run("", &["touch", "-d", "2001-02-03", &record(lost)]);
    lost.remove_namespace();
    // What the kernel had is gone after a power failure.
    node.host.sh("", "nft flush map inet netloom masquerade4");
    node.host.write(&record(unfinished).replace(".json", ".del"), "");
    // Not from the directory of plugins that all tests share.
    let settings = std::fs::read_to_string(node.host.path(SETTINGS)).unwrap();
    let own: Vec<&str> = settings.lines().map(|line| if line.starts_with("binDir:") { "binDir: /run/own" } else { line }).collect();
    node.host.write("/run/uninstall.yaml", &own.join("\n"));
    let uninstall = || node.host.run("", &[netloom().to_str().unwrap(), "agent", "--config", "/run/uninstall.yaml", "uninstall"]);
    let first = uninstall();
    for why in
        ["deleted without a DEL", "deleted while the agent was down", "lost in a power failure", "deleted, but not all of it was detached"]
    {
        assert!(first.contains(&format!("was {why}: its host ports, rules and addresses are free now")), "{why}: {first}");
    }
    assert_eq!((node.host.list("/var/lib/netloom/sandboxes"), kept(&node)), (Vec::<String>::new(), 0));
    let second = uninstall();
    assert!(second.contains("00-netloom.conflist does not exist") && second.contains("nothing of Netloom is left"), "{second}");
    drop(pods);
    ["/run/netloom/uninstalled", "/run/uninstall.yaml"].iter().for_each(|file| std::fs::remove_file(node.host.path(file)).unwrap());
    node.restart();
    node.expect(&before, "a node that was left");
}

/// The node has another name in the API: what is attached stays so.
#[test]
fn a_renamed_node() {
    let node = Node::start("renamed", "");
    let before = node.before();
    let pod = node.pod("web", "mac1");
    pod.must("ADD");
    node.terminate();
    node.ended();
    node.configure("another-name", "");
    node.restart();
    assert_eq!(node.status()["node"], json!("another-name"));
    node.until("the pod is known", || node.told(&["pods"])[0]["state"] == json!("Attached"));
    pod.must("CHECK");
    pod.must("DEL");
    drop(pod);
    node.configure(&node.name, "");
    node.expect(&before, "a renamed node");
}

/// A status that somebody has overwritten is written again; a link that somebody has deleted is told of.
#[test]
fn what_others_change_is_seen() {
    let node = Node::start("changed", "reconcileEvery: 1s");
    let before = node.before();
    let pod = node.pod("web", "mac1,mac2");
    pod.must("ADD");
    let status = pod.wait_for_status();
    let key = "k8s.v1.cni.cncf.io/network-status";
    for lost in [Value::Null, json!("[]"), json!("no JSON")] {
        node.api.must("PATCH", &pod.path(), &json!({"metadata": {"annotations": {key: lost}}}));
        let annotation = || node.api.must("GET", &pod.path(), &Value::Null)["metadata"]["annotations"][key].clone();
        node.until("the status is written again", || {
            annotation().as_str().and_then(|t| serde_json::from_str(t).ok()) == Some(status.clone())
        });
    }
    node.host.sh(&pod.sandbox(), "ip link delete net1");
    node.until("the agent tells of it", || node.told(&["pods"])[0]["state"] == json!("Changed"));
    let told = node.told(&["pods"]);
    assert!(told[0]["reasons"].to_string().contains("net1"), "{told:#}");
    assert_eq!(node.status()["differing"], json!(1));
    assert_eq!(pod.check().code, 1);
    pod.must("DEL");
    drop(pod);
    node.expect(&before, "a pod that others changed");
}

/// A path that is gone is no namespace that is gone: a process is still in it.
#[test]
fn a_namespace_whose_path_is_gone_keeps_its_addresses() {
    let node = Node::start("hidden", "reconcileEvery: 1s");
    let before = node.before();
    let pod = node.pod("web", "");
    pod.must("ADD");
    let held = pod.addresses();
    let sandbox = pod.sandbox();
    let mut inside = node.host.command(&sandbox, "sleep").arg("300").spawn().unwrap();
    let pid = inside.id();
    let namespace = node.host.sh(&sandbox, "readlink /proc/self/ns/net");
    node.until("it is inside", || node.host.sh("", &format!("readlink /proc/{pid}/ns/net")) == namespace);
    // Who looks at all namespaces has it open for a moment.
    node.host.sh("", &format!("umount --lazy /run/netns/{sandbox}"));
    node.host.sh("", &format!("mv /run/netns/{sandbox} /run/hidden"));
    node.until("the log says that it is not known to be gone", || node.log().contains("may still be in use: nothing is freed"));
    let seen = node.host.sh("", &format!("nsenter --net=/proc/{pid}/ns/net ip -o -4 address show dev eth0"));
    assert!(seen.contains(held[0][1].as_str().unwrap()), "{seen} {held}");
    inside.kill().unwrap();
    inside.wait().unwrap();
    node.until("it is detached when it is gone", || node.log().contains("its network namespace is gone, and there was no DEL"));
    node.host.sh("", "rm -f /run/hidden");
    drop(pod);
    node.settled();
    node.expect(&before, "a namespace without a path");
}

/// An ADD whose caller was killed while it waited, and whose sandbox was deleted since, attaches nothing afterwards.
#[test]
fn an_add_that_nobody_waits_for_is_given_up() {
    let node = Node::new(&Api::shared(), "unheard", "readinessindicatorfile: /run/ready\naddWait: 20s");
    node.host.write("/run/ready", "");
    node.restart();
    let before = node.before();
    node.host.sh("", "rm /run/ready");
    let pod = node.pod("web", "");
    let mut caller = pod.begin("ADD");
    node.until("it waits", || node.status()["calls"].as_u64() == Some(1));
    caller.kill().unwrap();
    caller.wait().unwrap();
    pod.must("DEL");
    node.host.write("/run/ready", "");
    node.until("it is given up", || node.log().contains("the caller closed the connection"));
    node.settled();
    assert!(pod.addresses().as_array().unwrap().is_empty(), "{}", pod.addresses());
    drop(pod);
    node.expect(&before, "an ADD without a caller");
}
