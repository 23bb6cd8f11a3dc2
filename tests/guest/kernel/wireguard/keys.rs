//! Keys that cannot be read, and peers that are elsewhere.

use super::rotation::Asking;
use super::*;

/// The agent comes back, and its key file does not.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn an_unreadable_key_file_takes_no_tunnel_away() {
    let scene = Scene::start("between: wireguard\nreconcileEvery: 1s", &[A, B]);
    let [a, b] = [&scene.nodes[0], &scene.nodes[1]];
    let pods: Vec<_> = scene.nodes.iter().map(|node| (node, pod(node, &format!("pod-{}", node.name)))).collect();
    all_meet(&pods);
    let (before, said) = (shown(a, DEVICES[0]), announced(&scene, &A));
    let questions = Asking::start(a, &pods[0].1.0, &pods[1].1.1[0]);
    a.kill9();
    let kept = std::fs::read(a.host.path(KEYS)).unwrap();
    std::fs::write(a.host.path(KEYS), "{").unwrap();
    a.launch();
    let told = || a.status()["network"]["problems"].to_string();
    a.until("it is told", || told().contains("cannot read the node's WireGuard keys") && told().contains("wireguard-keys.json"));
    assert_eq!((shown(a, DEVICES[0]), announced(&scene, &A)), (before.clone(), said));
    assert_eq!(scene.condition(&A).map(|(status, _)| status).as_deref(), Some("False"), "pods of the node have the network");
    // What comes meanwhile is carried out.
    let other = announced(&scene, &B)["keys"][0]["key"].as_str().unwrap().to_owned();
    a.host.sh("", &format!("wg set nlw-ca6c peer {other} persistent-keepalive 7"));
    a.until("it is put back", || shown(a, DEVICES[0]) == before);
    std::fs::write(a.host.path(KEYS), kept).unwrap();
    a.until("it is readable again", || !told().contains("cannot read the node's WireGuard keys"));
    assert_eq!(questions.stop(), 0, "{}\n{}", a.tail(), b.tail());
    all_meet(&pods);
}

/// A peer's packets come from another port by now, as behind a NAT: that is where it is answered, look after look.
#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_peer_that_roams_is_not_set_back() {
    let scene = Scene::start("between: wireguard\nreconcileEvery: 1s", &[A, B]);
    let [a, b] = [&scene.nodes[0], &scene.nodes[1]];
    let pods: Vec<_> = scene.nodes.iter().map(|node| (node, pod(node, &format!("pod-{}", node.name)))).collect();
    all_meet(&pods);
    b.kill9();
    b.host.sh("", "wg set nlw-ca6c listen-port 51999");
    let endpoint = || wg(a, "show nlw-ca6c endpoints").split_whitespace().last().unwrap().to_owned();
    // It speaks first.
    let to = &pods[0].1.1[0];
    b.until("the peer is answered", || b.host.try_run(&pods[1].1.0.sandbox(), &["ping", "-c1", "-w2", "-n", to]).status.success());
    assert_eq!(endpoint(), "192.0.2.12:51999");
    // Each look at the peers would set it back.
    for keepalive in [7, 8, 9] {
        a.host.sh(
            "",
            &format!("wg set nlw-ca6c peer {} persistent-keepalive {keepalive}", announced(&scene, &B)["keys"][0]["key"].as_str().unwrap()),
        );
        a.until("the agent has looked", || wg(a, "show nlw-ca6c persistent-keepalive").ends_with("off"));
        assert_eq!(endpoint(), "192.0.2.12:51999");
    }
    all_meet(&pods);
}
