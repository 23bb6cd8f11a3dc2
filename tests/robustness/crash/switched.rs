//! A port of Open vSwitch, which outlives every process, as the database has it.

use netloom_tests::Switch;
use serde_json::json;

use super::network::{Runtime, Scene};
use crate::promises;

/// A bridge of Open vSwitch, and the switch.
pub(crate) fn scene() -> (Scene, Switch) {
    let config = json!({"cniVersion": "1.1.0", "name": "net", "type": "ovs", "bridge": "br0", "vlan": 7, "mtu": 1400,
        "ipam": {"type": "host-local", "subnet": "10.7.0.0/24"}});
    let scene = Scene::cold(Runtime::Itself, &config);
    let switch = Switch::start(&scene.host, &["br0"]);
    // Else it follows those of its ports, whenever the switch comes to it.
    switch.vsctl("set interface br0 mtu_request=1500");
    (scene.warmed(), switch)
}

#[test]
fn a_port_of_open_vswitch() {
    let (scene, switch) = scene();
    for verb in ["ADD", "DEL"] {
        let attached = || {
            if verb == "DEL" {
                scene.must("ADD", "c1")
            }
        };
        attached();
        let points = scene.trace(verb);
        scene.must("DEL", "c1");
        for point in &points {
            let when = format!("{verb} killed at {point}");
            attached();
            scene.dies(verb, point);
            promises::hold(&scene.host, &when);
            scene.must("DEL", "c1");
            assert_eq!(switch.ports("br0"), [""; 0], "{when}");
            scene.must("ADD", "c1");
            scene.must("CHECK", "c1");
            assert_eq!(switch.ports("br0").len(), 1, "{when}");
            scene.must("DEL", "c1");
            assert_eq!(switch.ports("br0"), [""; 0], "{when}");
            scene.host.expect_traces(&scene.before, &when);
        }
    }
}
