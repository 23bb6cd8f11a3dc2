//! The conventions beside the specification: capabilities, `args` and `CNI_ARGS`.

use netloom_tests::{Host, netloom, peers_dir, plugin_dir};
use serde_json::{Value, json};

/// Every capability that has a name of its own, with a value of its shape.
fn capabilities() -> Value {
    json!({
        "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}],
        "ipRanges": [[{"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.3"}]],
        "bandwidth": {"ingressRate": 2048, "ingressBurst": 1600, "egressRate": 4096, "egressBurst": 1600},
        "dns": {"searches": ["internal.example.org"], "servers": ["8.8.8.8"]},
        "ips": ["10.10.0.1/24", "3ffe:ffff:0:01ff::1/64"],
        "mac": "c2:11:22:33:44:55",
        "infinibandGUID": "c2:11:22:33:44:55:66:77",
        "deviceID": "0000:04:00.5",
        "aliases": ["my-container", "primary-db"],
        "cgroupPath": "/kubelet.slice/pod.slice"
    })
}

const RECORDER: &str = "#!/bin/sh\ncat >/run/$(basename $0).$CNI_COMMAND\necho \"$CNI_ARGS\" >/run/$(basename $0).args\n\
    [ $CNI_COMMAND != ADD ] || echo '{\"cniVersion\":\"1.1.0\"}'\n";

/// A plugin gets what it declares and the runtime gives, and nothing else; the declaration itself is the runtime's.
#[test]
fn a_capability_reaches_who_declares_it() {
    let host = Host::new();
    host.container("c1");
    let all = capabilities();
    let names: Vec<&String> = all.as_object().unwrap().keys().collect();
    let mut plugins = Vec::new();
    for name in &names {
        let kind = format!("wants-{name}");
        host.write(&format!("/run/bin/{kind}"), RECORDER);
        let mut declared = json!({"notGiven": true});
        names.iter().for_each(|other| declared[other] = json!(other == name));
        plugins.push(json!({"type": kind, "capabilities": declared, "runtimeConfig": {"forged": 1}}));
    }
    host.write("/run/bin/wants-none", RECORDER);
    host.run("", &["sh", "-c", "chmod +x /run/bin/*"]);
    plugins.push(json!({"type": "wants-none"}));
    let list = json!({"cniVersion": "1.1.0", "name": "net", "plugins": plugins});
    host.write("/etc/cni/net.d/net.conflist", &list.to_string());
    for verb in ["add", "check", "del", "status", "gc"] {
        let mut command = host.command("", netloom());
        command.args(["cni", verb, "net"]).env("CNI_PATH", "/run/bin").env("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=web");
        command.args(if verb == "gc" { ["--keep", "nobody/eth0"].as_slice() } else { &["/run/netns/c1"] });
        let out = command.env("CAP_ARGS", all.to_string()).output().unwrap();
        assert!(out.status.success(), "{verb}: {}", String::from_utf8_lossy(&out.stdout));
        let of_pod = ["add", "check", "del"].contains(&verb);
        for kind in names.iter().map(|name| format!("wants-{name}")).chain(["wants-none".to_owned()]) {
            let read = |suffix: &str| std::fs::read_to_string(host.path(format!("/run/{kind}.{suffix}"))).unwrap();
            let given: Value = serde_json::from_str(&read(&verb.to_uppercase())).unwrap();
            let name = kind.strip_prefix("wants-").unwrap();
            // What the list itself has stays where the runtime gives nothing.
            let expected = match name {
                "none" => Value::Null,
                name if of_pod => json!({ name: all[name] }),
                _ => json!({"forged": 1}),
            };
            assert_eq!((&given["runtimeConfig"], &given["capabilities"]), (&expected, &Value::Null), "{verb} {kind}");
            assert_eq!(read("args"), if of_pod { "IgnoreUnknown=1;K8S_POD_NAME=web\n" } else { "\n" }, "{verb} {kind}");
        }
    }
}

/// `CNI_ARGS` that a plugin does not know are an error, unless the caller says otherwise, as in the reference plugins.
#[test]
fn arguments_that_nobody_knows() {
    let host = Host::new();
    host.container("c1");
    let config = |kind: &str| {
        json!({"cniVersion": "1.0.0", "name": "net", "type": kind, "ipam": {
        "type": kind, "subnet": "10.1.0.0/24", "addresses": [{"address": "10.1.0.7/24"}]}})
    };
    for kind in ["host-local", "static"] {
        for (args, accepted) in [
            ("", true),
            ("FOO=1", false),
            ("IgnoreUnknown=1;FOO=1", true),
            ("FOO=1;IgnoreUnknown=true", true),
            ("IgnoreUnknown=TRUE;FOO=1", true),
            ("IgnoreUnknown=0;FOO=1", false),
            ("IgnoreUnknown=False", true),
            ("IgnoreUnknown=t;FOO=1", false),
            ("IgnoreUnknown=yes", false),
            ("IgnoreUnknown=", false),
            ("ignoreunknown=1;FOO=1", false),
            ("IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;K8S_POD_INFRA_CONTAINER_ID=c", true),
            ("FOO", false),
        ] {
            for dir in [plugin_dir(), peers_dir()] {
                let cni = host.cni(dir).at("c1", "eth0");
                let outcome = cni.clone().set("CNI_ARGS", args).call("ADD", kind, config(kind).to_string());
                assert_eq!(outcome.code == 0, accepted, "{kind} {args:?} {}: {outcome:?}", dir.display());
                assert_eq!(cni.call("DEL", kind, config(kind).to_string()).code, 0);
            }
        }
    }
}
