//! `ipam: crd` where the API server is away when the agent starts: what the node has itself is by its journal.

use std::path::PathBuf;
use std::process::Command;

use cluster::Connection;
use objects::Store;
use serde_json::{Value, json};

use crate::api::{Api, connect_by};
use crate::cilium::{Operator, pool, world};
use crate::world::{World, until};

/// Nobody answers there.
struct Away(PathBuf);

impl Api for Away {
    fn put(&self, _: &Value) {
        unreachable!()
    }

    fn pod(&self, _: &str) -> Option<Value> {
        unreachable!()
    }

    fn remove_pod(&self, _: &str) {
        unreachable!()
    }

    fn events(&self, _: &str) -> Vec<(String, String, String)> {
        unreachable!()
    }

    fn connect(&self) -> Box<dyn FnOnce() -> Connection + Send> {
        connect_by(self.0.clone())
    }
}

fn ip(world: &World, args: &str) -> Vec<u8> {
    let netns = world.netns("node").file_name().unwrap().to_string_lossy().into_owned();
    let out = Command::new("ip").args(["-n", &netns]).args(args.split(' ')).output().unwrap();
    assert!(out.status.success(), "{args}: {out:?}");
    out.stdout
}

/// The IPv4 addresses of the node, as `ip` has them.
fn addresses(world: &World) -> Vec<String> {
    let links: Value = serde_json::from_slice(&ip(world, "-j -4 address")).unwrap();
    let of = |link: &Value| link["addr_info"].as_array().cloned().unwrap_or_default();
    let all = links.as_array().unwrap().iter().flat_map(of).map(|a| a["local"].as_str().unwrap().to_owned());
    all.filter(|address| address.starts_with("192.")).collect()
}

#[test]
fn the_nodes_own_addresses_are_there_without_an_api_server() {
    let store = Store::new();
    store.install_network_attachment_definitions();
    let mut world = world(&store, json!({"ipamBridge": "br-own", "reconcileEvery": "1s"}));
    world.restart_inside(&store);
    let operator = Operator::new(&store);
    operator.create(json!({"ipam": {"pool": pool(&["192.168.1.1", "192.168.1.2", "192.168.1.3"])}}));
    until("they are there", || addresses(&world), |there| *there == ["192.168.1.2", "192.168.1.1"]);
    let nobody = Away(std::env::temp_dir().join(format!("nlalone-{}.kubeconfig", std::process::id())));
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}], "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
    std::fs::write(&nobody.0, kubeconfig.to_string()).unwrap();
    ip(&world, "link del br-own");
    ip(&world, "address del 192.168.1.2/32 dev lo");
    world.restart_inside(&nobody);
    until("they are there again", || addresses(&world), |there| *there == ["192.168.1.2", "192.168.1.1"]);
    // And stay there.
    ip(&world, "link del br-own");
    until("the router's, once more", || addresses(&world), |there| there.len() == 2);
    // With another prefix length, as before the settings were changed.
    let prefixes = || -> Vec<u64> {
        let links: Value = serde_json::from_slice(&ip(&world, "-j -4 address show dev br-own")).unwrap();
        links[0]["addr_info"].as_array().into_iter().flatten().map(|a| a["prefixlen"].as_u64().unwrap()).collect()
    };
    let before = prefixes();
    assert_eq!(before.len(), 1);
    ip(&world, "address flush dev br-own");
    ip(&world, "address add 192.168.1.1/30 dev br-own");
    until("it is changed in place", prefixes, |now| *now == before);
    std::fs::remove_file(&nobody.0).unwrap();
}
