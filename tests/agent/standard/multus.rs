//! Multus's own configuration and annotations, as they stand on nodes today.

use netloom_tests::{netloom, plugin_dir};
use serde_json::{Value, json};

use crate::standard::scene::{DEFAULT_NETWORK, NETWORKS, Node, ask, bridge, definition, ensure_namespace, macvlan, until};

/// What is in `00-multus.conf`, with these keys.
fn multus(keys: Value) -> Value {
    let mut config = json!({"cniVersion": "0.3.1", "name": "multus-cni-network", "type": "multus", "logLevel": "verbose",
        "kubeconfig": "/etc/cni/net.d/multus.d/multus.kubeconfig", "binDir": "/run/bin"});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

/// Keeps its standard input as `/run/given/INTERFACE.VERB`, and makes nothing.
const CARRIER: &str = r#"mkdir -p /run/given
cat >/run/given/$CNI_IFNAME.$CNI_COMMAND
[ $CNI_COMMAND != ADD ] || echo '{"cniVersion":"0.3.1","interfaces":[{"name":"'$CNI_IFNAME'","sandbox":"'$CNI_NETNS'"}]}'
"#;

fn given(node: &Node, file: &str) -> Value {
    let path = node.host.path("/run/given").join(file);
    serde_json::from_str(&std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{file}: {e}"))).unwrap()
}

/// The value is a file, a directory, a definition of `multusNamespace`, or a network of `confDir`. The shim has both names.
#[test]
fn s46_the_default_network_is_a_file_a_directory_or_a_name() {
    let node = Node::with("clusternetwork", json!({"multusNamespace": "clusternetwork"}));
    node.host.write("/etc/cni/net.d/10-file.conf", &bridge("of-file", 10).to_string());
    node.host.write("/etc/cni/dir/00-multus.conf", &multus(json!({"clusterNetwork": "x"})).to_string());
    node.host.write("/etc/cni/dir/20-second.conf", &bridge("second", 12).to_string());
    node.host.write(
        "/etc/cni/dir/10-first.conflist",
        &json!({"cniVersion": "1.0.0", "name": "of-directory", "plugins": [bridge("x", 11)]}).to_string(),
    );
    node.host.write("/etc/cni/multus/net.d/a.conf", &bridge("of-disk", 13).to_string());
    node.definition("of-definition", &bridge("any", 14));
    for (at, (named, name, address)) in [
        ("/etc/cni/net.d/10-file.conf", "of-file", "10.10."),
        ("/etc/cni/dir", "of-directory", "10.11."),
        ("of-disk", "of-disk", "10.13."),
        ("of-definition", "any", "10.14."),
    ]
    .into_iter()
    .enumerate()
    {
        let program = if at % 2 == 0 { "multus" } else { "multus-shim" };
        let pod = node.pod_with(&format!("p{at}"), &json!({})).by(program, multus(json!({"clusterNetwork": named})));
        let result = pod.add();
        assert_eq!(result["cniVersion"], "0.3.1");
        assert!(pod.addresses("eth0")[0].starts_with(address), "{named}: {:?}", pod.addresses("eth0"));
        let status = pod.status();
        assert_eq!((status.as_array().unwrap().len(), &status[0]["name"], &status[0]["default"]), (1, &json!(name), &json!(true)));
        pod.del();
        assert_eq!((pod.links(), node.records().len()), (vec!["lo".to_owned()], 0), "{named}");
    }
    // A key that does nothing here is told what does it instead: once, though it comes with every call.
    for key in ["kubeconfig", "logLevel"] {
        let told = node.log().matches(&format!("{key} of the runtime's configuration has no effect")).count();
        assert_eq!(told, 1, "{key}: {}", node.log());
    }
    let lost = node.pod_with("lost", &json!({})).by("multus", multus(json!({"clusterNetwork": "nowhere", "addWait": 1})));
    let lost = Node::with("clusternetwork-lost", json!({"addWait": "300ms", "multusNamespace": "x"}))
        .pod_with("lost", &json!({}))
        .by("multus", lost.config)
        .refused();
    assert!(lost["code"] == 11 && lost["msg"].as_str().unwrap().contains("cannot find network"), "{lost}");
}

/// `delegates`: the first is the default network; every pod gets the others, too. As with Multus, they count for names.
#[test]
fn s46_of_delegates_the_first_is_the_default_network() {
    let node = Node::with("delegates", json!({}));
    node.definition("own", &macvlan("own", 23));
    let config = multus(
        json!({"delegates": [bridge("first", 20), macvlan("second", 21), {"cniVersion": "1.0.0", "name": "third", "plugins": [macvlan("x", 22)]}]}),
    );
    let pod = node.pod("web", "own").by("multus-shim", config);
    assert!(pod.add()["ips"][0]["address"].as_str().unwrap().starts_with("10.20."));
    assert_eq!(pod.links(), ["eth0", "lo", "net1", "net2", "net3"]);
    let status = pod.status();
    let seen: Vec<(&str, &str, bool)> = status
        .as_array()
        .unwrap()
        .iter()
        .map(|e| (e["name"].as_str().unwrap(), e["interface"].as_str().unwrap(), e["default"].as_bool().unwrap()))
        .collect();
    assert_eq!(seen, [("first", "eth0", true), ("second", "net1", false), ("third", "net2", false), ("delegates/own", "net3", false)]);
    pod.del();
    assert_eq!(pod.links(), ["lo"]);
}

/// `defaultNetworks` are every pod's, but for those of `systemNamespaces`.
#[test]
fn s46_default_networks_are_for_every_pod_but_those_of_system_namespaces() {
    let node =
        Node::with("defaultnetworks", json!({"clusterNetwork": "/etc/cni/net.d/10-main.conf", "multusNamespace": "defaultnetworks"}));
    node.host.write("/etc/cni/net.d/10-main.conf", &bridge("main", 30).to_string());
    node.host.write("/etc/cni/multus/net.d/disk.conf", &macvlan("of-disk", 32).to_string());
    node.definition("extra", &macvlan("extra", 31));
    ensure_namespace("defaultnetworks-system");
    let config = multus(json!({"defaultNetworks": ["extra", "of-disk"], "systemNamespaces": ["defaultnetworks-system"]}));
    let pod = node.pod_with("web", &json!({})).by("multus", config.clone());
    pod.add();
    assert_eq!(pod.links(), ["eth0", "lo", "net1", "net2"]);
    let system = node.pod_in("defaultnetworks-system", "dns", &json!({}), &json!({})).by("multus", config);
    system.add();
    assert_eq!(system.links(), ["eth0", "lo"]);
    pod.del();
    system.del();
    assert_eq!((node.leases("main"), node.leases("extra"), node.leases("of-disk")), (vec![], vec![], vec![]));
}

/// The runtime has one answer in its own version, whatever those of the networks are.
#[test]
fn s2_every_version_of_cni_gets_its_own_result() {
    let node = Node::new("versions");
    node.definition("old", &json!({"cniVersion": "0.3.1", "type": "macvlan", "master": "up0", "ipam": crate::standard::scene::range(41)}));
    for (at, version) in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"].into_iter().enumerate() {
        let config = json!({"cniVersion": version, "name": "netloom", "type": "netloom"});
        let mut pod = node.pod(&format!("p{at}"), "old").by("netloom", config);
        let result = pod.add();
        assert_eq!(result["cniVersion"], version);
        assert_eq!(result["interfaces"].as_array().unwrap().iter().filter(|i| i["sandbox"].is_string()).count(), 1, "{result}");
        // Of what the versions have in different forms.
        assert_eq!(result["ips"][0]["version"], if at < 2 { json!("4") } else { Value::Null }, "{result}");
        pod.config["prevResult"] = result;
        if at > 0 {
            assert_eq!(pod.call("CHECK").code, 0, "{version}");
        } else {
            assert_eq!(pod.call("CHECK").error()["code"], 1);
        }
        pod.del();
    }
}

/// `auxiliaryCNIChainName`: what lies in the directory beside the default network's file is the last network of every pod.
#[test]
fn s50_the_auxiliary_chain_is_the_last_network() {
    let node = Node::with("auxiliary", json!({}));
    node.plugin("carrier", CARRIER);
    node.host.write("/etc/cni/net.d/10-main.conf", &bridge("main", 50).to_string());
    node.host.write("/etc/cni/net.d/chained/10-a.conf", r#"{"type":"carrier","mine":1}"#);
    let config = multus(json!({"clusterNetwork": "/etc/cni/net.d/10-main.conf", "auxiliaryCNIChainName": "chained"}));
    let pod = node.pod_with("web", &json!({})).by("multus-shim", config);
    pod.add();
    // Name and version are put in, as CNI's lists have it.
    let added = given(&node, "net1.ADD");
    assert_eq!((&added["name"], &added["mine"]), (&json!("chained"), &json!(1)), "{added}");
    assert!(added["cniVersion"].is_string());
    pod.del();
    assert_eq!(given(&node, "net1.DEL")["name"], "chained");
}

/// Multus's own daemon has the chain without `clusterNetwork`. Its first plugin is `passthru`, so that a plugin is enough that only
/// changes what is there; what the directory holds is read again for each pod.
#[test]
fn s50_the_auxiliary_chain_of_a_default_network_that_is_found() {
    let node = Node::with("auxiliary-found", json!({"auxiliaryCNIChainName": "chained"}));
    node.plugin("carrier", CARRIER);
    let main = json!({"cniVersion": "1.0.0", "name": "main", "plugins": [bridge("main", 51)]});
    node.host.write("/etc/cni/net.d/10-main.conflist", &main.to_string());
    let entries = |name: &str| {
        let pod = node.pod_with(name, &json!({}));
        pod.add();
        pod.status().as_array().unwrap().len()
    };
    assert_eq!(entries("first"), 1);
    node.host.write("/etc/cni/net.d/chained/10-carrier.conf", r#"{"type":"carrier"}"#);
    assert_eq!(entries("second"), 2);
    let previous = given(&node, "net1.ADD")["prevResult"].clone();
    assert_eq!(previous.get("interfaces").or(previous.get("ips")), None, "an empty result, but one: {previous}");
    assert!(previous.is_object());
    std::fs::remove_file(node.host.path("/etc/cni/net.d/chained/10-carrier.conf")).unwrap();
    assert_eq!(entries("third"), 1);
}

/// `<directory>/<name of the list>/*.conf` are plugins of the list, as with the reference library: read again when they change.
#[test]
fn s50_plugins_beside_the_default_network_come_and_go_without_a_restart() {
    let node = Node::with("beside", json!({}));
    node.plugin("carrier", CARRIER);
    node.host.write(
        "/etc/cni/net.d/10-main.conflist",
        &json!({"cniVersion": "1.0.0", "name": "main", "plugins": [bridge("main", 52)]}).to_string(),
    );
    node.pod_with("first", &json!({})).add();
    assert!(!node.host.path("/run/given/eth0.ADD").exists());
    node.host.write("/etc/cni/net.d/main/20-carrier.conf", r#"{"type":"carrier","mine":2}"#);
    node.pod_with("second", &json!({})).add();
    assert_eq!(given(&node, "eth0.ADD")["mine"], 2);
    std::fs::remove_file(node.host.path("/etc/cni/net.d/main/20-carrier.conf")).unwrap();
    std::fs::remove_file(node.host.path("/run/given/eth0.ADD")).unwrap();
    node.pod_with("third", &json!({})).add();
    assert!(!node.host.path("/run/given/eth0.ADD").exists());
}

/// A pod that Multus has attached: what it has kept is told, and that it would be attached is not.
#[test]
fn explain_tells_of_a_pod_that_another_program_has_attached() {
    let node = Node::new("told");
    node.definition("one", &macvlan("one", 1));
    let pod = node.pod("old", "one");
    let conf = json!({"cniVersion": "1.0.0", "name": "one", "plugins": [macvlan("one", 1)]});
    node.host.write("/run/conf/one.conflist", &conf.to_string());
    let netns = format!("/run/netns/{}", pod.sandbox);
    let mut add = node.host.command("", netloom());
    add.args(["cni", "add", "one", &netns]).env("CNI_PATH", plugin_dir()).env("NETCONFPATH", "/run/conf").env("CNI_IFNAME", "net1");
    add.env("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=told;K8S_POD_NAME=old");
    assert!(add.status().unwrap().success());
    node.host.sh("", "mkdir -p /var/lib/cni/multus");
    node.host.sh("", "mv /var/lib/cni/results /var/lib/cni/multus/results");
    let said = || {
        let output = node.host.command("", netloom()).args(["explain", "told/old", "--color", "never"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let text = until("the agent knows the pod", || Some(said()).filter(|text| text.contains("told/old: ")));
    let kept = format!("net1: network one, {}, recorded by Multus", pod.addresses("net1")[0]);
    assert!(text.contains("Attached by another program") && text.contains(&kept) && !text.contains("would"), "{text}");
}

/// `runtimeConfig` of the kubelet reaches the default network alone, and there only what is declared.
#[test]
fn s55_the_runtimes_ports_reach_the_default_network_alone() {
    let node = Node::with("runtimeconfig", json!({}));
    node.plugin("carrier", CARRIER);
    let carrier = |name: &str| json!({"cniVersion": "0.3.1", "name": name, "type": "carrier", "capabilities": {"portMappings": true}});
    node.definition("second", &carrier("second"));
    let ports = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let config = multus(json!({"delegates": [carrier("first")], "capabilities": {"portMappings": true, "bandwidth": true},
        "runtimeConfig": {"portMappings": ports, "bandwidth": {"ingressRate": 1}}}));
    node.pod("web", "second").by("multus", config).add();
    assert_eq!(given(&node, "eth0.ADD")["runtimeConfig"], json!({"portMappings": ports}));
    assert_eq!(given(&node, "net1.ADD").get("runtimeConfig"), None);
}

/// `readinessindicatorfile`: calls wait for it, and fail with the words that runbooks search for.
#[test]
fn s49_the_readiness_indicator_file_is_waited_for() {
    let node = Node::with("readiness", json!({"addWait": "400ms"}));
    let keys = json!({"delegates": [bridge("main", 60)], "readinessindicatorfile": "/run/ready"});
    let pod = node.pod_with("web", &json!({})).by("multus", multus(keys.clone()));
    let error = pod.refused();
    let text = error["msg"].as_str().unwrap();
    assert!(error["code"] == 11 && text.contains("have you checked that your default network is ready?"), "{error}");
    assert!(text.contains("still waiting for readinessindicatorfile @ /run/ready"), "{error}");
    let mut status = multus(keys);
    status["cniVersion"] = json!("1.1.0");
    let cni = node.host.cni(std::path::Path::new("/run/bin"));
    assert_eq!(cni.call("STATUS", "multus", status.to_string()).error()["code"], 50);
    node.host.write("/run/ready", "");
    pod.add();
    // The agent may not have been told of all definitions yet.
    node.host.until("STATUS is good", || cni.call("STATUS", "multus", status.to_string()).code == 0);
    // A pod goes whether or not it is there.
    std::fs::remove_file(node.host.path("/run/ready")).unwrap();
    pod.del();
    assert_eq!(pod.links(), ["lo"]);
}

/// The pod's own choice replaces the default network; it is a definition of `multusNamespace` unless it says otherwise.
#[test]
fn s5_s13_the_default_network_is_the_pods_choice() {
    let node = Node::new("choice");
    definition("kube-system", "choice-special", &bridge("special", 71), &json!({}));
    node.definition("own", &bridge("own", 72));
    for (name, text, expected, address) in [
        ("plain", "choice-special", "kube-system/choice-special", "10.71."),
        ("own", "choice/own", "choice/own", "10.72."),
        ("json", r#"[{"name": "own", "namespace": "choice"}]"#, "choice/own", "10.72."),
    ] {
        let pod = node.pod_with(name, &json!({DEFAULT_NETWORK: text}));
        let result = pod.add();
        assert!(result["ips"][0]["address"].as_str().unwrap().starts_with(address), "{text}: {result}");
        let status = pod.status();
        assert_eq!((status.as_array().unwrap().len(), &status[0]["name"], &status[0]["default"]), (1, &json!(expected), &json!(true)));
        pod.del();
    }
    // Who chooses nothing has the cluster's.
    let plain = node.pod_with("other", &json!({}));
    plain.add();
    assert_eq!(plain.entry("eth0")["name"], "cluster");
    let two = node.pod_with("two", &json!({DEFAULT_NETWORK: "choice/own,choice-special"})).refused();
    assert!(two["msg"].as_str().unwrap().contains("expected exactly one network, found 2"), "{two}");
}

/// A definition without a configuration is a network of the node's disk: a list goes before a single one, whatever the
/// files are called; what is nowhere fails.
#[test]
fn s7_s10_a_definition_may_be_on_the_nodes_disk() {
    let node = Node::new("ondisk");
    node.host.write("/etc/cni/multus/net.d/00-single.conf", &macvlan("both", 81).to_string());
    node.host.write(
        "/etc/cni/multus/net.d/99-list.conflist",
        &json!({"cniVersion": "1.0.0", "name": "both", "plugins": [macvlan("x", 82)]}).to_string(),
    );
    node.host.write("/etc/cni/multus/net.d/50-single.conf", &macvlan("single", 83).to_string());
    for name in ["both", "single", "nowhere"] {
        node.definition(name, &Value::Null);
    }
    let pod = node.pod("web", "both,single");
    pod.add();
    assert!(pod.addresses("net1")[0].starts_with("10.82.") && pod.addresses("net2")[0].starts_with("10.83."));
    let lost = node.pod("lost", "single,nowhere").refused();
    assert!(lost["msg"].as_str().unwrap().contains("nowhere"), "{lost}");
}

/// Both forms of the annotation, with Multus's `@interface`.
#[test]
fn s14_s15_s16_both_forms_of_the_annotation() {
    let node = Node::new("forms");
    ensure_namespace("forms-shared");
    node.definition("one", &macvlan("one", 91));
    definition("forms-shared", "two", &macvlan("two", 92), &json!({}));
    for (name, text) in [
        ("comma", "one, forms-shared/two@storage,one"),
        ("json", r#"[{"name": "one"}, {"name": "two", "namespace": "forms-shared", "interface": "storage"}, {"name": "one"}]"#),
    ] {
        let pod = node.pod(name, text);
        pod.add();
        let status = pod.status();
        let seen: Vec<(&str, &str)> =
            status.as_array().unwrap().iter().map(|e| (e["name"].as_str().unwrap(), e["interface"].as_str().unwrap())).collect();
        assert_eq!(seen, [("cluster", "eth0"), ("forms/one", "net1"), ("forms-shared/two", "storage"), ("forms/one", "net3")]);
        assert_eq!(pod.links(), ["eth0", "lo", "net1", "net3", "storage"]);
        pod.del();
        assert_eq!(pod.links(), ["lo"]);
    }
}

/// A change of the annotation while the pod runs changes nothing of it, and its DEL undoes what was made.
#[test]
fn s52_a_pod_is_detached_from_what_it_was_attached_to() {
    let node = Node::new("detached");
    node.definition("one", &macvlan("one", 101));
    let pod = node.pod("web", "one");
    pod.add();
    ask("PATCH", "/api/v1/namespaces/detached/pods/web", &json!({"metadata": {"annotations": {NETWORKS: "two,three"}}}));
    ask("DELETE", "/apis/k8s.cni.cncf.io/v1/namespaces/detached/network-attachment-definitions/one", &Value::Null);
    pod.delete();
    pod.del();
    assert_eq!((pod.links(), node.leases("one"), node.records()), (vec!["lo".to_owned()], vec![], vec![]));
}
