//! Keys are rotated under traffic.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use netloom_tests::seen_within;

use super::*;

/// Numbered datagrams to a pod that answers each, until they are stopped.
pub(super) struct Asking {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(u32, usize)>,
}

impl Asking {
    pub(super) fn start(node: &Node, from: &Pod<'_>, to: &str) -> Self {
        let any = if to.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
        let socket = node.host.within(&from.sandbox(), || UdpSocket::bind(any).unwrap());
        socket.connect((to, PORT)).unwrap();
        // Between two questions.
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut asked, mut missing) = (0_u32, BTreeSet::new());
            let mut answer = [0; 64];
            let mut heard = |missing: &mut BTreeSet<u32>| {
                let Ok(length) = socket.recv(&mut answer) else { return false };
                let text = String::from_utf8_lossy(&answer[..length]).into_owned();
                missing.remove(&text.split(' ').next().unwrap().parse().unwrap());
                true
            };
            while !stopped.load(Ordering::Acquire) {
                asked += 1;
                missing.insert(asked);
                socket.send(asked.to_string().as_bytes()).unwrap();
                while heard(&mut missing) {}
            }
            // What is late is not lost.
            let all_heard = || missing.is_empty() || (heard(&mut missing) && missing.is_empty());
            let _ = seen_within(Duration::from_secs(20), all_heard, |all| *all);
            (asked, missing.len())
        });
        Asking { stop, thread }
    }

    /// How many questions had no answer.
    pub(super) fn stop(self) -> usize {
        self.stop.store(true, Ordering::Release);
        let (asked, missing) = self.thread.join().unwrap();
        assert!(asked > 0);
        missing
    }
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn keys_are_rotated_without_loss_and_a_node_may_return_with_another_one() {
    let scene = Scene::start("between: auto-wireguard\nwireguardOverlap: 2s\nreconcileEvery: 2s", &[A, FAR]);
    let [a, far] = [&scene.nodes[0], &scene.nodes[1]];
    let pods: Vec<_> = scene.nodes.iter().map(|node| (node, pod(node, &format!("pod-{}", node.name)))).collect();
    all_meet(&pods);
    let [(_, (first, own)), (_, (second, others))] = &pods[..] else { panic!("two") };
    let asking = || [Asking::start(a, first, &others[0]), Asking::start(far, second, &own[1])];
    let lost = |both: [Asking; 2]| both.map(Asking::stop);
    let public = |node: &Node, device: &str| wg(node, &format!("show {device} public-key"));
    let old = [public(a, DEVICES[0]), public(far, DEVICES[0])];

    // Whichever node begins: there and back again, so that both ports come round.
    for (rotation, starter) in [(1_u64, a), (2, far)] {
        let [now, before] = if rotation % 2 == 1 { [DEVICES[1], DEVICES[0]] } else { [DEVICES[0], DEVICES[1]] };
        let questions = asking();
        let said = starter.host.command("", netloom_tests::netloom()).args(["agent", "rotate-keys"]).output().unwrap();
        assert!(said.status.success(), "{said:?}");
        for node in &scene.nodes {
            node.until("it has the new device alone", || devices(node) == [now]);
            node.until("it says that it is over", || {
                let told = node.status()["network"]["wireguard"].clone();
                told["rotation"] == json!(rotation) && told["rotatingSeconds"].is_null()
            });
            assert!(node.host.link("", before).is_none());
        }
        assert_eq!(lost(questions), [0, 0], "rotation {rotation}\n{}\n{}", a.tail(), far.tail());
    }
    let new = [public(a, DEVICES[0]), public(far, DEVICES[0])];
    assert!(new[0] != old[0] && new[1] != old[1], "both have other keys: {new:?}");
    assert_eq!(
        announced(&scene, &A),
        json!({"mode": "auto", "tunnel": "wireguard", "keys": [{"key": new[0], "port": 51820, "rotation": 2}], "rotation": 2, "moved": 2})
    );

    // A new agent finds everything as it is.
    let questions = asking();
    a.kill9();
    a.restart();
    a.until("all peers are reached", || reached(a) == Some(1));
    assert_eq!((lost(questions), public(a, DEVICES[0])), ([0, 0], new[0].clone()));

    // A machine that was made anew has another key.
    far.kill9();
    far.host.sh("", "ip link del nlw-ca6c");
    std::fs::remove_file(far.host.path(KEYS)).unwrap();
    far.restart();
    a.until("its new key is known", || shown(a, DEVICES[0]).contains(announced(&scene, &FAR)["keys"][0]["key"].as_str().unwrap_or("?")));
    assert!(public(far, DEVICES[0]) != new[1] && !shown(a, DEVICES[0]).contains(&new[1]));
    assert_eq!(announced(&scene, &FAR)["rotation"], json!(2), "it has that of the others");
    all_meet(&pods);
}

/// How often an agent has planned.
fn plans(node: &Node) -> u64 {
    node.status()["network"]["plans"].as_u64().unwrap()
}

/// The other node's agent dies when both have the new key: before, and after, packets have moved to it.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn an_agent_that_dies_in_the_middle_of_a_rotation_costs_no_packet_and_is_waited_for() {
    let scene = Scene::start("between: wireguard\nwireguardOverlap: 2s\nreconcileEvery: 10m", &[A, B]);
    let [a, b] = [&scene.nodes[0], &scene.nodes[1]];
    let pods: Vec<_> = scene.nodes.iter().map(|node| (node, pod(node, &format!("pod-{}", node.name)))).collect();
    all_meet(&pods);
    let [(_, (first, own)), (_, (second, others))] = &pods[..] else { panic!("two") };
    let questions = [Asking::start(a, first, &others[0]), Asking::start(b, second, &own[1])];
    a.host.command("", netloom_tests::netloom()).args(["agent", "rotate-keys"]).output().unwrap();
    b.until("it has the second device", || devices(b).len() == 2);
    b.kill9();
    a.until("the one without an agent is awaited", || a.status()["network"]["wireguard"]["awaits"] == json!(["b"]));
    let before = plans(a);
    // Sleeps: what is to be seen is that nothing happens, in several looks.
    std::thread::sleep(Duration::from_secs(15));
    assert!(plans(a) <= before + 2, "a look is no reason for a plan: {before}, {}", plans(a));
    assert_eq!(devices(a).len(), 2, "the old key is there as long as the other node may send by it");
    b.restart();
    for node in [a, b] {
        node.until("it has the new device alone", || devices(node) == [DEVICES[1]]);
    }
    assert_eq!(questions.map(Asking::stop), [0, 0], "{}\n{}", a.tail(), b.tail());
    all_meet(&pods);
}

/// Another program has the port of the second device: that node waits and says so, and the others have new keys.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_taken_port_keeps_one_node_waiting_and_no_other() {
    let scene = Scene::start("between: wireguard\nwireguardOverlap: 2s\nreconcileEvery: 2s", &[A, B, FAR]);
    let [a, b, far] = [&scene.nodes[0], &scene.nodes[1], &scene.nodes[2]];
    let pods: Vec<_> = scene.nodes.iter().map(|node| (node, pod(node, &format!("pod-{}", node.name)))).collect();
    let socket = a.host.within("", || UdpSocket::bind("0.0.0.0:51821").unwrap());
    b.host.command("", netloom_tests::netloom()).args(["agent", "rotate-keys"]).output().unwrap();
    a.until("it says that it waits", || {
        let told = a.status()["network"]["problems"].to_string();
        told.contains("the rotation of WireGuard keys waits") && told.contains("another program uses the UDP port")
    });
    for node in [b, far] {
        node.until("it has the new device alone", || devices(node) == [DEVICES[1]]);
    }
    assert!(devices(a).contains(&DEVICES[0].to_owned()));
    assert_eq!(scene.condition(&A).map(|(status, _)| status).as_deref(), Some("False"), "the node stays available");
    a.until("all peers are reached", || reached(a) == Some(2));
    all_meet(&pods);
    drop(socket);
    a.until("it has the new device alone", || devices(a) == [DEVICES[1]]);
    all_meet(&pods);
}
