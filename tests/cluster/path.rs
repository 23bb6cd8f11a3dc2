//! The whole path on a real Kubernetes: kubelet, containerd, `netloom-cni`, agent; and back.
//!
//! Pods have three networks, on two nodes that are restarted, killed and rebooted under them; or an agent comes to a node
//! that has pods already, and goes again. What a pod has is asked of `ip` and `ping` in its namespace, what is left of it of
//! `ip`, `nft` and the directories on the node.

mod drop_in;
mod manifests;
mod provided;
pub(crate) mod scene;
mod storms;

use scene::{Scene, workload};
use testbed::DefaultNetwork;

#[test]
fn pods_on_three_networks_come_scale_roll_and_go() {
    let mut scene = Scene::new("pods", 2, DefaultNetwork::Agent);
    scene.define();
    scene.apply(&workload("web", 6, "storage, backup", "1"));
    scene.rolled("web");
    scene.said("six pods");
    scene.networks_hold("web", 6);
    scene.said("statuses and pings");

    for (replicas, what) in [(10, "scaled up"), (3, "scaled down")] {
        scene.scale("web", replicas);
        scene.rolled("web");
        scene.networks_hold("web", replicas);
        scene.said(what);
    }
    scene.apply(&workload("web", 6, "storage@store, backup", "2"));
    scene.rolled("web");
    scene.networks_hold("web", 6);
    scene.said("rolled");
    for pod in scene.pods("web") {
        let names: Vec<String> = scene.interfaces(&pod).keys().cloned().collect();
        assert_eq!(names, ["eth0", "net2", "store"], "the new annotation holds for every pod");
    }
    scene.asks_the_kubelet_for_devices();
    scene.said("device");
    scene.no_failure_of_ours();

    scene.delete("web");
    scene.nothing_is_left();
    scene.said("deleted");
    scene.no_failure_of_ours();
}
