//! A trunk carries ports, each with a VLAN ID of its own.

use netloom_neutron::Refusal;
use openstack::resource::{NewPort, NewTrunk, PortUpdate, SubPort};

use crate::scene::Scene;

#[tokio::test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
async fn ports_are_put_on_a_trunk_and_taken_off() {
    let scene = Scene::new();
    let neutron = scene.client();
    let made = neutron.create_ports(&[scene.port(), scene.port(), scene.port()]).await.unwrap().value;
    let [parent, first, second] = [&made[0].id, &made[1].id, &made[2].id];
    let wanted = NewTrunk { port_id: parent.clone(), project_id: scene.project.clone(), ..NewTrunk::default() };
    let trunk = neutron.create_trunk(&wanted).await.unwrap();
    assert_eq!(neutron.port(parent).await.unwrap().trunk.as_deref(), Some(trunk.id.as_str()));
    neutron.update_port(parent, &PortUpdate { host: Some("node-1".to_owned()), ..PortUpdate::default() }, None).await.unwrap();

    neutron.add_sub_ports(&trunk.id, &[SubPort::vlan(first, 101)]).await.unwrap();
    let taken = neutron.add_sub_ports(&trunk.id, &[SubPort::vlan(second, 101)]).await.unwrap_err();
    assert_eq!(taken.refusal(), Some(Refusal::InUse), "{taken}");
    neutron.add_sub_ports(&trunk.id, &[SubPort::vlan(second, 102)]).await.unwrap();
    let mut on = neutron.trunk(&trunk.id).await.unwrap().sub_ports;
    on.sort_by_key(|port| port.segmentation_id);
    assert_eq!(on, [SubPort::vlan(first, 101), SubPort::vlan(second, 102)]);

    let attached = neutron.delete_port(first).await.unwrap_err();
    assert_eq!(attached.refusal(), Some(Refusal::InUse), "{attached}");
    neutron.remove_sub_ports(&trunk.id, &[first, second]).await.unwrap();
    let gone = neutron.remove_sub_ports(&trunk.id, &[first]).await.unwrap_err();
    assert_eq!(gone.refusal(), Some(Refusal::NotFound), "{gone}");
    assert!(neutron.delete_port(first).await.unwrap().value);

    // A port that is bound cannot become a parent.
    let bound = neutron.create_ports(&[NewPort { host: "node-1".to_owned(), ..scene.port() }]).await.unwrap().value;
    let refused = neutron.create_trunk(&NewTrunk { port_id: bound[0].id.clone(), ..wanted }).await.unwrap_err();
    assert_eq!(refused.refusal(), Some(Refusal::InUse), "{refused}");
    let in_use = neutron.delete_trunk(&trunk.id).await.unwrap_err();
    assert_eq!(in_use.refusal(), Some(Refusal::InUse), "its parent is bound: {in_use}");
    neutron.update_port(parent, &PortUpdate { host: Some(String::new()), ..PortUpdate::default() }, None).await.unwrap();
    assert!(neutron.delete_trunk(&trunk.id).await.unwrap() && !neutron.delete_trunk(&trunk.id).await.unwrap());
}
