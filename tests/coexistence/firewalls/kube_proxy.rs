//! kube-proxy, the real one, in both of its modes.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use netloom_tests::wired::{answer, attach, expect_others, list, others, repaired, table, who, wire};
use netloom_tests::{Api, Node, Running, peers_dir};
use serde_json::{Value, json};

/// A node with a Service of kube-proxy's, and two containers of ours: `c1` is what the Service leads to.
struct Scene {
    node: Node,
    /// Where the Service is.
    cluster: String,
    node_port: u16,
    proxy: Option<Running>,
    mode: &'static str,
}

impl Scene {
    fn new(mode: &'static str) -> Self {
        let name = format!("proxy-{mode}");
        let node = Node::new(&Api::shared(), &name, "");
        wire(&node.host);
        // Where a Service is, nobody is: the way there is asked for before its rules are.
        node.host.sh("", "ip route add default via 192.0.2.2");
        ["c1", "c2"].iter().for_each(|c| node.host.container(c));
        node.host.write("/run/nets/1.conflist", &list("first", 1).to_string());
        // Another bridge: on the same one `c1` would answer past the host, which alone can translate back.
        node.host.write("/run/nets/2.conflist", &list("second", 2).to_string());
        // A first one, so that what stays is there.
        for (network, container) in [("first", "c1"), ("second", "c2")] {
            attach(&node.host, "add", network, container, &[1]);
            attach(&node.host, "del", network, container, &[1]);
        }
        attach(&node.host, "add", "first", "c1", &[]);
        answer(&node.host, "c1", 80);
        answer(&node.host, "c2", 80);
        let address = node.host.addresses("c1", "eth0").into_iter().find(|a| a.contains('.')).unwrap();
        let (cluster, node_port) = service(&node, address.split('/').next().unwrap());
        let mut scene = Scene { node, cluster, node_port, proxy: None, mode };
        scene.start();
        scene
    }

    fn start(&mut self) {
        drop(self.proxy.take());
        let config = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": self.mode,
            "clientConnection": {"kubeconfig": "/run/kubeconfig"}, "hostnameOverride": self.node.name, "clusterCIDR": "10.1.0.0/16",
            "conntrack": {"maxPerCore": 0, "min": 0}, "healthzBindAddress": "127.0.0.1:10256", "metricsBindAddress": "127.0.0.1:10249",
        });
        // One that begins with a brace is taken for JSON of another kind.
        let yaml: String = config.as_object().unwrap().iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
        self.node.host.write("/run/proxy.yaml", &yaml);
        let mut command = self.node.host.command("", "setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(peers_dir().join("kubernetes"));
        self.proxy = Some(Running::start(command.args(["proxy", "--config", "/run/proxy.yaml"])));
        self.until("the Service is served", "", &self.cluster.clone(), "c1");
        self.until("the node port is served", "outside", &self.at(self.node_port), "c1");
    }

    fn at(&self, port: u16) -> String {
        format!("192.0.2.1:{port}")
    }

    fn until(&self, what: &str, from: &str, address: &str, name: &str) {
        self.node.until(what, || who(&self.node.host, from, address, 2) == name);
    }

    /// The rules that are not ours, when kube-proxy has written all of its own: those of IPv6 come behind those of IPv4, by which
    /// a Service answers already.
    fn settled(&self) -> Vec<String> {
        let (mut before, mut same) = (Vec::new(), 0);
        self.node.until("rules of kube-proxy for both families, all of them", || {
            // Sleeps: rules that come no more show in time alone.
            std::thread::sleep(Duration::from_secs(1));
            let now = others(&self.node.host);
            let own = |line: &&String| (line.contains("proxy") || line.contains("KUBE-")) && line.contains("\"rule\"");
            let all = ["\"ip\"", "\"ip6\""].iter().all(|family| now.iter().filter(own).any(|line| line.contains(family)));
            same = if all && now == before { same + 1 } else { 0 };
            before = now;
            same >= 3
        });
        before
    }

    /// What the Service and the node port answer, from everywhere.
    fn expect_services(&self) {
        self.until("the Service", "", &self.cluster, "c1");
        self.until("the node port", "outside", &self.at(self.node_port), "c1");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let path = format!("/api/v1/nodes/{}", self.node.name);
        self.node.api.ask("DELETE", &path, &Value::Null);
    }
}

/// A Service that leads to one address, as a controller would make it: its own address, and its node port.
fn service(node: &Node, address: &str) -> (String, u16) {
    let name = &node.name;
    node.api.must("POST", "/api/v1/nodes", &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}});
    node.api.must("PATCH", &format!("/api/v1/nodes/{name}/status"), &status);
    let made = node.api.must(
        "POST",
        &format!("/api/v1/namespaces/{name}/services"),
        &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"type": "NodePort", "ports": [{"name": "http", "port": 80, "targetPort": 80, "protocol": "TCP"}]}}),
    );
    node.api.must(
        "POST",
        &format!("/apis/discovery.k8s.io/v1/namespaces/{name}/endpointslices"),
        &json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
            "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}),
    );
    let port = made["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    (format!("{}:80", made["spec"]["clusterIP"].as_str().unwrap()), u16::try_from(port).unwrap())
}

fn is_element(line: &str) -> bool {
    line.contains("/eth0\"")
}

fn beside(mode: &'static str) {
    // One at a time: a kube-proxy has rules for every Service of the API server, the other one's too.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut scene = Scene::new(mode);
    let port = scene.node_port;
    let theirs = scene.settled();

    // Its node port is a host port of ours, too.
    attach(&scene.node.host, "add", "second", "c2", &[8080, port]);
    expect_others(&scene.node.host, &theirs, "ADD");
    scene.expect_services();
    scene.until("the Service from a container", "c2", &scene.cluster, "c1");
    scene.until("a host port beside it", "outside", &scene.at(8080), "c2");
    scene.until("a host port beside it, from the host", "", &scene.at(8080), "c2");

    // Ours are taken away, and put back.
    let whole = table(&scene.node.host).into_iter().filter(|line| is_element(line)).collect::<Vec<_>>();
    scene.node.host.sh("", "nft delete table inet netloom");
    scene.expect_services();
    repaired(&scene.node.host, &[], 0);
    expect_others(&scene.node.host, &theirs, "repair");
    scene.until("the host port is back", "outside", &scene.at(8080), "c2");
    assert_eq!(table(&scene.node.host).into_iter().filter(|line| is_element(line)).collect::<Vec<_>>(), whole);

    // Theirs are written anew; ours stay.
    scene.start();
    assert_eq!(table(&scene.node.host).into_iter().filter(|line| is_element(line)).collect::<Vec<_>>(), whole);
    scene.expect_services();
    scene.until("the host port stays", "outside", &scene.at(8080), "c2");

    let theirs = scene.settled();
    attach(&scene.node.host, "del", "second", "c2", &[8080, port]);
    expect_others(&scene.node.host, &theirs, "DEL");
    scene.expect_services();
    attach(&scene.node.host, "del", "first", "c1", &[]);
    expect_others(&scene.node.host, &theirs, "DEL of what a Service leads to");
}

#[test]
fn kube_proxy_with_nftables() {
    beside("nftables");
}

#[test]
fn kube_proxy_with_iptables() {
    beside("iptables");
}
