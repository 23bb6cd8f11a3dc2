//! `netloom cni`, and the same under the name `cnitool`, against the reference tool.

use std::process::Output;

use netloom_tests::{Host, netloom, peers_dir, plugin_dir};
use serde_json::Value;

const MYNET: &str = r#"{
    "cniVersion": "0.2.0",
    "name": "mynet",
    "type": "bridge",
    "bridge": "cni0",
    "isGateway": true,
    "ipMasq": true,
    "ipam": {
        "type": "host-local",
        "subnet": "10.22.0.0/16",
        "routes": [
            { "dst": "0.0.0.0/0" }
        ]
    }
}
"#;

const LOOPBACK: &str = r#"{
    "cniVersion": "0.2.0",
    "type": "loopback"
}
"#;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A machine with the walk-through's two files and its namespace.
fn machine() -> Host {
    let host = Host::new();
    host.write("/etc/cni/net.d/10-mynet.conf", MYNET);
    host.write("/etc/cni/net.d/99-loopback.conf", LOOPBACK);
    host.container("testing");
    host
}

fn run(host: &Host, program: &str, args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = host.command("", program);
    command.args(args).env_remove("CNI_PATH").envs(env.iter().copied());
    command.output().unwrap()
}

fn ok(host: &Host, program: &str, args: &[&str], env: &[(&str, &str)]) -> String {
    let out = run(host, program, args, env);
    assert!(out.status.success(), "{args:?}: {}\n{}{}", out.status, text(&out.stdout), text(&out.stderr));
    text(&out.stdout)
}

#[test]
fn the_walk_through_runs_verbatim() {
    let host = machine();
    host.run("", &["ln", "-s", netloom().to_str().unwrap(), "/run/cnitool"]);
    let plugins = plugin_dir().to_str().unwrap();
    let env = [("CNI_PATH", plugins)];
    let netns = "/var/run/netns/testing";
    let result: Value = serde_json::from_str(&ok(&host, "/run/cnitool", &["add", "mynet", netns], &env)).unwrap();
    assert_eq!(result["ip4"]["ip"], "10.22.0.2/16");
    assert_eq!(result["cniVersion"], "0.2.0");
    assert!(host.run("", &["ip", "-n", "testing", "addr"]).contains("10.22.0.2/16"));
    assert!(host.pings("testing", "10.22.0.1"));
    ok(&host, "/run/cnitool", &["del", "mynet", netns], &env);
    assert!(host.link("testing", "eth0").is_none());
}

#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn what_one_tool_adds_the_other_deletes() {
    let host = machine();
    // Each bridge plugin knows only its own rules for masquerading.
    host.write("/etc/cni/net.d/10-mynet.conf", &MYNET.replace("\"ipMasq\": true", "\"ipMasq\": false"));
    let theirs = peers_dir().join("cnitool").display().to_string();
    let ours = netloom().display().to_string();
    let (peers, plugins) = (peers_dir().to_str().unwrap(), plugin_dir().to_str().unwrap());
    let netns = "/run/netns/testing";
    // Cached results, container IDs and host-local's files are the same on both sides.
    for (adder, add_with, deleter, delete_with) in
        [(&theirs, peers, &ours, plugins), (&ours, plugins, &theirs, peers), (&ours, peers, &theirs, plugins)]
    {
        let verb = |program: &str, verb: &str, path: &str| {
            let cni = program.ends_with("netloom");
            let args: Vec<&str> = if cni { vec!["cni", verb, "mynet", netns] } else { vec![verb, "mynet", netns] };
            ok(&host, program, &args, &[("CNI_PATH", path), ("NETCONFPATH", "/etc/cni/net.d")])
        };
        verb(adder, "add", add_with);
        assert_eq!(host.list("/var/lib/cni/results").len(), 1);
        assert!(host.link("testing", "eth0").is_some());
        verb(deleter, "del", delete_with);
        assert!(host.link("testing", "eth0").is_none());
        assert_eq!(host.list("/var/lib/cni/results"), Vec::<String>::new());
        let leases = host.list("/var/lib/cni/networks/mynet");
        assert!(!leases.iter().any(|f| f.starts_with("10.")), "{leases:?}");
    }
}

#[test]
fn the_verbs_without_an_attachment() {
    let host = machine();
    let config = MYNET.replace("0.2.0", "1.1.0").replace("mynet", "new");
    host.write("/etc/cni/net.d/20-new.conf", &config);
    let ours = netloom().to_str().unwrap();
    let netns = "/run/netns/testing";
    assert!(ok(&host, ours, &["cni", "version", "new"], &[]).contains("bridge  0.1.0, 0.2.0"));
    ok(&host, ours, &["cni", "status", "new"], &[]);
    let cap_args = r#"{"ips":["10.22.0.9"],"mac":"02:00:00:00:00:09"}"#;
    host.write(
        "/etc/cni/net.d/20-new.conf",
        &config.replace("\"type\": \"bridge\"", r#""type": "bridge", "capabilities": {"ips": true, "mac": true}"#),
    );
    let result: Value =
        serde_json::from_str(&ok(&host, ours, &["cni", "-i", "net7", "add", "new", netns], &[("CAP_ARGS", cap_args)])).unwrap();
    assert_eq!(result["ips"][0]["address"], "10.22.0.9/16");
    assert_eq!(host.link("testing", "net7").unwrap().mac(), "02:00:00:00:00:09");
    ok(&host, ours, &["cni", "check", "new", netns, "-i", "net7"], &[]);
    host.run("testing", &["ip", "link", "set", "net7", "down"]);
    let out = run(&host, ours, &["cni", "check", "new", netns, "-i", "net7"], &[]);
    assert!(!out.status.success() && text(&out.stderr).contains("interface net7 was changed: it is down"), "{}", text(&out.stderr));
    ok(&host, ours, &["cni", "gc", "new", "--all"], &[]);
    assert!(host.link("testing", "net7").is_none());
    assert_eq!(host.list("/var/lib/cni/results"), Vec::<String>::new());
}

#[test]
fn errors_say_what_is_there() {
    let host = machine();
    let ours = netloom().to_str().unwrap();
    for (args, env, parts) in [
        (
            &["add", "mynt", "/run/netns/testing"][..],
            &[][..],
            &["no network configuration named \"mynt\" in /etc/cni/net.d: it has mynet"][..],
        ),
        (&["add", "mynet", "/run/netns/nowhere"][..], &[][..], &["/run/netns/nowhere", "\"code\": 8"][..]),
        (&["add", "mynet", "/run/netns/testing"][..], &[("NETCONFPATH", "/nowhere")][..], &["no network configuration in /nowhere"][..]),
        (&["add", "mynet", "/run/netns/testing"][..], &[("CAP_ARGS", "[]")][..], &["CAP_ARGS: expected a JSON object"][..]),
        (&["add", "mynet", "/run/netns/testing"][..], &[("CNI_ARGS", "x")][..], &["CNI_ARGS", "KEY=VALUE"][..]),
        (&["add", "mynet", "/run/netns/testing"][..], &[("CNI_IFNAME", "a/b")][..], &["CNI_IFNAME", "a/b"][..]),
        (
            &["check", "mynet", "/run/netns/testing"][..],
            &[][..],
            &["configuration version \"0.2.0\" does not support the CHECK command"][..],
        ),
    ] {
        let out = run(&host, ours, &[&["cni"], args].concat(), env);
        let said = text(&out.stdout) + &text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{args:?}: {said}");
        parts.iter().for_each(|part| assert!(said.contains(part), "{args:?}: {part:?} is not in\n{said}"));
    }
    assert_eq!(host.list("/var/lib/cni/networks/mynet"), Vec::<String>::new());
}
