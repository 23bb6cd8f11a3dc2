//! Ports are made, found, changed and deleted; each refusal has its reason and Neutron's own words.

use netloom_neutron::{Error, PortFilter, Refusal};
use openstack::resource::{AddressPair, NewPort, Port, PortUpdate, WantedIp};
use serde_json::json;

use crate::scene::Scene;

fn tagged(tag: &str) -> PortFilter {
    PortFilter { tags: vec![tag.to_owned()], ..PortFilter::default() }
}

fn ids(ports: &[Port]) -> Vec<String> {
    let mut ids: Vec<String> = ports.iter().map(|port| port.id.clone()).collect();
    ids.sort();
    ids
}

/// Neutron answers with five ports at once: twelve are three pages.
#[tokio::test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
async fn ports_are_made_together_and_found_by_their_tags() {
    let scene = Scene::new();
    let neutron = scene.client();
    assert!(neutron.extensions().await.unwrap().contains("tag-ports-during-bulk-creation"));
    let wanted: Vec<NewPort> = (0..12)
        .map(|n| NewPort { device_id: format!("pod-{n}"), tags: vec![scene.project.clone(), format!("n={n}, ä&%")], ..scene.port() })
        .map(|port| NewPort { tags: port.tags.into_iter().map(|tag| tag.replace(", ", " ")).collect(), ..port })
        .collect();
    let made = neutron.create_ports(&wanted).await.unwrap().value;
    assert_eq!(made.len(), 12);
    assert!(made.iter().all(|port| port.tags.contains(&scene.project) && port.fixed_ips[0].subnet_id == scene.subnet));
    let in_database: Vec<String> = scene.ports_in_database().into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids(&made), in_database);

    assert_eq!(ids(&neutron.ports(&tagged(&scene.project)).await.unwrap()), in_database);
    let both = PortFilter { tags: vec![scene.project.clone(), "n=7 ä&%".to_owned()], ..PortFilter::default() };
    let one = neutron.ports(&both).await.unwrap();
    assert_eq!((one.len(), one[0].device_id.as_str()), (1, "pod-7"));
    let by_ids = PortFilter { ids: in_database[..7].to_vec(), ..PortFilter::default() };
    assert_eq!(ids(&neutron.ports(&by_ids).await.unwrap()), in_database[..7]);
    let by_device = PortFilter { device_id: Some("pod-3".to_owned()), network_id: Some(scene.network.clone()), ..PortFilter::default() };
    assert_eq!(neutron.ports(&by_device).await.unwrap().len(), 1);
    let address = one[0].fixed_ips[0].ip_address.clone();
    let by_address = PortFilter { address: Some(address), network_id: Some(scene.network.clone()), ..PortFilter::default() };
    assert_eq!(ids(&neutron.ports(&by_address).await.unwrap()), ids(&one));

    for id in &in_database {
        assert!(neutron.delete_port(id).await.unwrap().value);
    }
    assert!(!neutron.delete_port(&in_database[0]).await.unwrap().value, "what is gone is no error");
    assert_eq!(scene.ports_in_database(), []);
    assert_eq!(neutron.ports(&tagged(&scene.project)).await.unwrap(), []);
}

#[tokio::test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
async fn a_port_is_bound_as_its_host_can_and_a_change_needs_the_revision_that_was_read() {
    let scene = Scene::new();
    let neutron = scene.client();
    let hosts = ["node-1", "node-1.ovs-down", "node-1.hybrid", "node-1.fail"];
    let wanted: Vec<NewPort> = hosts.iter().map(|host| NewPort { host: (*host).to_owned(), ..scene.port() }).collect();
    let made = neutron.create_ports(&wanted).await.unwrap().value;
    let of = |host: &str| made.iter().find(|port| port.host == host).unwrap().clone();
    let active = of("node-1");
    assert_eq!((active.vif_type.as_str(), active.vif_details.bridge_name.as_deref()), ("ovs", Some("br-int")));
    assert!(active.is_active() && active.vif_details.port_filter && !active.vif_details.ovs_hybrid_plug);
    assert!(!of("node-1.ovs-down").is_active() && of("node-1.hybrid").vif_details.ovs_hybrid_plug);
    assert!(of("node-1.fail").is_unbindable() && !active.is_unbindable());

    // An agent has seen it.
    let down = of("node-1.ovs-down").id;
    scene.server.sql(&format!("UPDATE ports SET status = 'ACTIVE' WHERE id = '{down}'")).unwrap();
    assert!(neutron.port(&down).await.unwrap().is_active());

    // Its binding was a change, too, and came after the answer was made.
    let active = neutron.port(&active.id).await.unwrap();
    let pair = AddressPair { ip_address: "10.77.0.99".to_owned(), mac_address: None };
    let update = PortUpdate { name: Some("a/b".to_owned()), allowed_address_pairs: Some(vec![pair]), ..PortUpdate::default() };
    let changed = neutron.update_port(&active.id, &update, Some(active.revision_number)).await.unwrap();
    assert_eq!((changed.name.as_str(), changed.allowed_address_pairs[0].ip_address.as_str()), ("a/b", "10.77.0.99"));
    assert!(changed.revision_number > active.revision_number);
    let again = PortUpdate { name: Some("c".to_owned()), ..PortUpdate::default() };
    let stale = neutron.update_port(&active.id, &again, Some(active.revision_number)).await.unwrap_err();
    assert_eq!((stale.refusal(), stale.is_uncertain()), (Some(Refusal::Changed), false), "{stale}");
    neutron.set_port_tags(&active.id, &["x".to_owned(), "y".to_owned()]).await.unwrap();
    assert_eq!(neutron.port(&active.id).await.unwrap().tags, ["x", "y"]);

    let network = neutron.network(&scene.network).await.unwrap();
    assert_eq!((network.name.as_str(), network.subnets.as_slice()), ("net-a", &[scene.subnet.clone()][..]));
    assert!(network.mtu.is_some_and(|mtu| mtu > 1000) && network.provider_type.as_deref() == Some("vxlan"));
    let subnet = neutron.subnet(&scene.subnet).await.unwrap();
    assert_eq!((subnet.gateway_ip.as_deref(), subnet.dns_nameservers[0].as_str()), (Some("10.77.0.1"), "10.77.0.53"));
    assert_eq!(subnet.host_routes[0].nexthop, "10.77.0.2");
    assert_eq!(neutron.subnets_of(&scene.network).await.unwrap(), [subnet]);
}

#[tokio::test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
async fn each_refusal_has_its_reason_and_neutrons_words() {
    // Five addresses beside the gateway's.
    let scene = Scene::with_subnet("10.77.0.0/29");
    let neutron = scene.client();
    let made = neutron.create_ports(&[scene.port(), scene.port()]).await.unwrap().value;
    let taken = made[0].fixed_ips[0].ip_address.clone();
    let at = |address: &str| WantedIp { subnet_id: Some(scene.subnet.clone()), ip_address: Some(address.to_owned()) };
    let with = |address: &str| NewPort { fixed_ips: vec![at(address)], ..scene.port() };
    let nowhere = "00000000-0000-4000-8000-000000000000";
    let rows: [(Vec<NewPort>, Refusal, &str); 6] = [
        (vec![with(&taken)], Refusal::AddressTaken, "already allocated"),
        (vec![with("10.99.0.1")], Refusal::Invalid, "not a valid IP"),
        (vec![NewPort { network_id: nowhere.to_owned(), fixed_ips: Vec::new(), ..scene.port() }], Refusal::NotFound, nowhere),
        (vec![NewPort { security_groups: Some(vec![nowhere.to_owned()]), ..scene.port() }], Refusal::NotFound, nowhere),
        (vec![NewPort { project_id: String::new(), ..scene.port() }], Refusal::Invalid, "tenant_id"),
        (vec![scene.port(), scene.port(), scene.port(), scene.port()], Refusal::NoAddressLeft, "No more IP addresses available"),
    ];
    for (wanted, reason, words) in rows {
        let e = neutron.create_ports(&wanted).await.unwrap_err();
        assert_eq!((e.refusal(), e.is_uncertain()), (Some(reason), false), "{e}");
        assert!(e.to_string().starts_with("POST ports: ") && e.to_string().contains(words), "{e}");
        assert!(matches!(&e, Error::Refused { request_id: Some(id), .. } if id.starts_with("req-")), "{e:?}");
        assert_eq!(scene.ports_in_database().len(), 2, "all or none: {e}");
    }
    scene.server.ask("PUT", &format!("quotas/{}", scene.project), &json!({"quota": {"port": 2}})).unwrap();
    let e = neutron.create_ports(&[scene.port()]).await.unwrap_err();
    assert_eq!(e.refusal(), Some(Refusal::OverQuota), "{e}");
    let e = neutron.port("a/../b").await.unwrap_err();
    assert_eq!(e.refusal(), Some(Refusal::NotFound), "{e}");
}
