//! What a pod asks for and Netloom only carries, as an external plugin sees it: `netloom lab` from the manifests to the
//! plugin's standard input, and back into the status.

use netloom_tests::{Host, netloom};
use serde_json::{Value, json};

/// Keeps what it is given as `/run/given/INTERFACE.VERB`. On ADD it tells of its device, if it may.
const CARRIER: &str = r#"#!/bin/sh
mkdir -p /run/given
as=/run/given/$CNI_IFNAME.$CNI_COMMAND
cat >$as
echo $CNI_CONTAINERID >$as.id
file=$(sed -n 's/.*"CNIDeviceInfoFile":"\([^"]*\)".*/\1/p' $as)
[ ! -f "$file" ] || touch $as.found
[ $CNI_COMMAND = ADD ] || exit $(cat /run/stuck 2>/dev/null || echo 0)
[ -z "$file" ] || echo '{"type":"memif","version":"1.1.0","memif":{"role":"slave","path":"/run/m.sock","mode":"punt"}}' >"$file"
echo '{"cniVersion":"1.0.0","interfaces":[{"name":"'$CNI_IFNAME'","sandbox":"'$CNI_NETNS'"}]}'
"#;

/// Two plugins, of which the second knows what a pod can ask for.
const NETWORK: &str = r#"{"cniVersion":"1.0.0","name":"carried","plugins":[
    {"type":"first","args":{"cni":{"mine":1,"both":1},"else":true},"runtimeConfig":{"mac":"the definition's own"}},
    {"type":"carrier","capabilities":{"portMappings":true,"bandwidth":true,"ipam-claim-reference":true,"CNIDeviceInfoFile":true,"deviceID":true},
     "runtimeConfig":{"portMappings":"the definition's own"}}]}"#;

/// Where the node's attachments have their files.
const DEVICES: &str = "/run/netloom/lab/lab/nodes/node-1/devices/cni";

/// A lab with one pod, default network aside only on `carried`, with these keys in its selection.
struct Lab {
    host: Host,
}

impl Lab {
    fn up(selections: &Value) -> Self {
        let host = Host::new();
        host.write("/run/bin/first", &CARRIER.replace("/run/given/", "/run/given/first-").replace("CNIDeviceInfoFile", "none"));
        host.write("/run/bin/carrier", CARRIER);
        host.sh("", "chmod 755 /run/bin/first /run/bin/carrier");
        let manifests = format!(
            "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {{name: carried}}\nspec:\n  config: |\n    {}\n---\n\
            apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations:\n    k8s.v1.cni.cncf.io/networks: '{selections}'\n",
            NETWORK.replace('\n', "\n    ")
        );
        host.write("/run/all.yaml", &manifests);
        let lab = Lab { host };
        let out = lab.run(&["up", "--cni-path", "/run/bin", "/run/all.yaml"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        lab
    }

    fn run(&self, args: &[&str]) -> std::process::Output {
        self.host.command("", netloom()).arg("lab").args(args).env_remove("CNI_PATH").output().unwrap()
    }

    fn given(&self, name: &str) -> Value {
        let text = std::fs::read_to_string(self.host.path("/run/given").join(name)).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn status(&self) -> Value {
        serde_json::from_slice(&self.run(&["status", "a", "-o", "json"]).stdout).unwrap()
    }

    fn device_files(&self) -> Vec<String> {
        self.host.list(DEVICES)
    }
}

#[test]
fn s23_s24_s25_s28_what_is_asked_for_arrives() {
    let lab = Lab::up(&json!([{
        "name": "carried",
        "cni-args": {"both": 2, "pods": {"A": [null]}},
        "portMappings": [{"hostPort": 8080, "containerPort": 80}, {"hostPort": 53, "containerPort": 53, "protocol": "Udp"}],
        "bandwidth": {"ingressRate": 1000, "ingressBurst": 8000, "egressRate": 2000},
        "ipam-claim-reference": "vm-a.tenant.eth1",
    }]));
    let args = json!({"cni": {"mine": 1, "both": 2, "pods": {"A": [null]}, "ipam-claim-reference": "vm-a.tenant.eth1"}, "else": true});
    let config = json!({
        "portMappings": [
            {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
            {"hostPort": 53, "containerPort": 53, "protocol": "udp"},
        ],
        "bandwidth": {"ingressRate": 1000, "ingressBurst": 8000, "egressRate": 2000, "egressBurst": 2_147_483_647},
        "ipam-claim-reference": "vm-a.tenant.eth1",
        "CNIDeviceInfoFile": format!("{DEVICES}/{}", lab.device_files()[0]),
    });
    assert!(lab.run(&["down"]).status.success());
    // What DEL is told is what ADD was told.
    for verb in ["ADD", "DEL"] {
        let (first, second) = (lab.given(&format!("first-net1.{verb}")), lab.given(&format!("net1.{verb}")));
        assert_eq!((&first["args"], first.get("runtimeConfig")), (&args, None), "{verb}: no capability, nothing sent");
        assert_eq!(second["args"]["cni"], json!({"both": 2, "pods": {"A": [null]}, "ipam-claim-reference": "vm-a.tenant.eth1"}));
        assert_eq!(second["runtimeConfig"], config, "{verb}: in place of the definition's own");
    }
}

#[test]
fn s31_every_operation_of_an_attachment_has_the_same_tuple() {
    let lab = Lab::up(&json!([{"name": "carried"}, {"name": "carried", "interface": "x0"}]));
    // Its status is asked with CHECK.
    lab.status();
    assert!(lab.run(&["down"]).status.success());
    let id = |name: &str| std::fs::read_to_string(lab.host.path("/run/given").join(name)).unwrap();
    for ifname in ["net1", "x0"] {
        let tuples = ["ADD", "CHECK", "DEL"].map(|verb| {
            let name = format!("{ifname}.{verb}");
            (id(&format!("{name}.id")), lab.given(&name)["name"].clone())
        });
        assert_eq!(tuples[0].1, "carried");
        assert!(tuples.iter().all(|tuple| *tuple == tuples[0]), "{tuples:?}");
    }
    assert_eq!(id("net1.ADD.id"), id("x0.ADD.id"));
}

#[test]
fn s55_a_selection_gets_nothing_that_it_did_not_ask_for() {
    let lab = Lab::up(&json!([{"name": "carried", "portMappings": [{"hostPort": 1, "containerPort": 2}]}, {"name": "carried"}]));
    assert!(lab.given("net1.ADD")["runtimeConfig"].get("portMappings").is_some());
    let second = lab.given("net2.ADD");
    assert_eq!(second["runtimeConfig"].as_object().unwrap().keys().collect::<Vec<_>>(), ["CNIDeviceInfoFile"]);
    assert_eq!(second.get("args"), None);
    assert!(lab.run(&["down"]).status.success());
}

#[test]
fn s44_s68_a_plugin_tells_of_its_device_until_del() {
    let lab = Lab::up(&json!([{"name": "carried"}, {"name": "carried", "deviceID": "0000:18:02.5"}]));
    let status = lab.status();
    let info = json!({"type": "memif", "version": "1.1.0", "memif": {"role": "slave", "path": "/run/m.sock", "mode": "punt"}});
    assert_eq!((status[0].get("device-info"), &status[1]["device-info"]), (None, &info));
    assert_eq!(lab.given("net2.ADD")["pciBusID"], "0000:18:02.5");
    assert_eq!(lab.given("net2.ADD")["runtimeConfig"]["deviceID"], "0000:18:02.5");
    assert_eq!(lab.given("net1.ADD").get("deviceID"), None);
    let files = lab.device_files();
    assert!(files.len() == 2 && files[0].ends_with("@net1-device.json") && files[1].ends_with("@net2-device.json"), "{files:?}");
    let shown = String::from_utf8(lab.run(&["status", "a"]).stdout).unwrap();
    assert!(shown.contains("  device    memif\n"), "{shown}");
    // While an attachment cannot be undone, it keeps its file.
    lab.host.write("/run/stuck", "1");
    assert!(!lab.run(&["down"]).status.success());
    assert_eq!(lab.device_files(), files);
    std::fs::remove_file(lab.host.path("/run/stuck")).unwrap();
    std::fs::remove_file(lab.host.path("/run/given/net1.DEL.found")).unwrap();
    assert!(lab.run(&["down"]).status.success());
    assert!(lab.host.list("/run/given").contains(&"net1.DEL.found".to_owned()), "the plugin's DEL still finds it");
    assert!(lab.host.list("/run/netloom/lab").iter().all(|name| name.ends_with(".lock")));
}
