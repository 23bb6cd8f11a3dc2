//! Names that somebody else chose: in a definition, in an annotation, in the result of an executable.

use netloom_tests::Host;
use serde_json::{Value, json};

use crate::hostile::{bridge, command, limited_command, outcome, plugin, used};

const NAMES: [&str; 12] = ["", ".", "..", "../br0", "a/b", "a b", "two\nlines", "\u{1b}[2J", "sixteen-and-more", "nul\0", "%s%n%d", "-rf"];

fn manifest(config: &Value, annotation: &str) -> String {
    let definition = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": "net"},
        "spec": {"config": config.to_string()}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "annotations": {"k8s.v1.cni.cncf.io/networks": annotation}}});
    json!({"apiVersion": "v1", "kind": "List", "items": [definition, pod]}).to_string()
}

/// Takes the lab down, if what was refused left one to look at.
fn down(host: &Host) {
    let down = outcome(command(host, &["lab", "down"]));
    assert!(down.code == 0 || down.stderr.contains("no lab"), "{down:?}");
}

fn is_printable(text: &str) -> bool {
    text.chars().all(|c| c == '\n' || !c.is_control())
}

/// A machine for each name, all at once: a lab is mostly waited for.
fn on_many_machines(names: &[&'static str], one: impl Fn(&Host, &'static str) + Sync) {
    let one = &one;
    std::thread::scope(|scope| {
        for name in names {
            scope.spawn(move || {
                let host = Host::new();
                let before = host.traces();
                one(&host, name);
                host.run("", &["rm", "-rf", "/run/x", "/run/bin"]);
                host.expect_traces(&before, &format!("{name:?}"));
            });
        }
    });
}

/// "-rf" is an interface's name like any other.
const BAD: &[&str] = NAMES.split_at(1).1.split_at(NAMES.len() - 2).0;

#[test]
fn a_definitions_names_go_nowhere() {
    on_many_machines(BAD, |host, name| {
        let ipam = json!({"type": "host-local", "subnet": "10.1.0.0/24"});
        for config in [
            bridge(json!({"bridge": name})),
            json!({"cniVersion": "1.0.0", "type": "macvlan", "master": name, "ipam": ipam}),
            json!({"cniVersion": "1.0.0", "type": name}),
            // A network's name may be longer than an interface's.
            json!({"cniVersion": "1.0.0", "name": if name.len() > 15 { ".." } else { name }, "type": "bridge", "ipam": ipam}),
            bridge(json!({"ipam": {"type": name}})),
            json!({"cniVersion": "1.0.0", "plugins": [bridge(json!({})), {"type": "tuning", "sysctl": {format!("net.ipv4.conf.{name}.forwarding"): "1"}}]}),
        ] {
            host.write("/run/x/all.json", &manifest(&config, "net"));
            let up = outcome(command(host, &["lab", "up", "/run/x"]));
            assert!(up.code != 0 && !up.stderr.is_empty(), "{config}: {up:?}");
            assert!(is_printable(&up.stdout) && is_printable(&up.stderr), "{config}: {up:?}");
            down(host);
        }
    });
}

#[test]
fn an_annotations_names_go_nowhere() {
    on_many_machines(BAD, |host, name| {
        for annotation in
            [json!([{"name": "net", "interface": name}]), json!([{"name": name}]), json!([{"name": "net", "namespace": name}])]
        {
            host.write("/run/x/all.json", &manifest(&bridge(json!({})), &annotation.to_string()));
            let up = outcome(command(host, &["lab", "up", "/run/x"]));
            assert!(up.code != 0 && is_printable(&up.stdout) && is_printable(&up.stderr), "{annotation}: {up:?}");
            down(host);
        }
    });
}

/// A plugin that returns a file as its result, whatever is asked.
fn returns(host: &Host, result: &Value) {
    host.write("/run/bin/result", &result.to_string());
    plugin(host, "names", "[ $CNI_COMMAND = ADD ] || exit 0\ncat /run/bin/result");
}

#[test]
fn a_results_names_are_only_shown() {
    on_many_machines(&NAMES, |host, name| {
        let result = json!({"cniVersion": "1.0.0",
            "interfaces": [{"name": name, "mac": name, "sandbox": name}, {"name": name, "sandbox": "/run/netns/nl.lab.pod.default.a"}],
            "ips": [{"address": "10.1.0.9/24", "interface": 1}, {"address": "10.1.0.8/24", "interface": -1}, {"address": "10.1.0.7/24", "interface": 99}],
            "dns": {"nameservers": [name], "domain": name, "search": [name], "options": [name]}});
        returns(host, &result);
        host.write("/run/x/all.json", &manifest(&json!({"cniVersion": "1.0.0", "type": "names"}), "net"));
        let up = outcome(command(host, &["lab", "up", "/run/x"]));
        assert_eq!(up.code, 0, "{name:?}: {up:?}");
        let shown = ["", "json", "yaml"]
            .map(|format| [vec!["lab", "status"], if format.is_empty() { vec![] } else { vec!["-o", format] }].concat());
        let drawn = ["terminal", "svg", "mermaid", "dot", "json"].map(|format| vec!["lab", "graph", "--format", format]);
        for args in shown.iter().chain(&drawn).chain(&[vec!["lab", "list"], vec!["lab", "status", "a", "-o", "json"]]) {
            let done = outcome(command(host, args));
            assert!(done.code >= 0 && is_printable(&done.stdout) && is_printable(&done.stderr), "{name:?} {args:?}: {done:?}");
        }
        down(host);
    });
}

/// As much as a plugin may print: one name of nearly 8 MB, and 100,000 interfaces.
#[test]
fn a_result_of_any_size_is_handed_on_and_kept() {
    let host = used();
    let many: Vec<Value> = (0..100_000).map(|n| json!({"name": format!("eth{n}"), "sandbox": "/run/netns/c1"})).collect();
    let list = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "names"}, {"type": "keeps"}]});
    plugin(&host, "keeps", "cat >/run/got; [ $CNI_COMMAND != ADD ] || cat /run/bin/result");
    host.write("/etc/cni/net.d/1.conflist", &list.to_string());
    for interfaces in [json!([{"name": "x".repeat(8_000_000)}]), json!(many)] {
        returns(&host, &json!({"cniVersion": "1.0.0", "interfaces": interfaces}));
        let before = host.traces();
        for verb in ["add", "del"] {
            let done = outcome(limited_command(&host, 256, &["cni", verb, "net", "/run/netns/c1"]));
            assert_eq!(done.code, 0, "{verb}: {}", &done.stderr[..done.stderr.len().min(500)]);
        }
        assert!(std::fs::metadata(host.path("/run/got")).unwrap().len() > 4_000_000);
        host.run("", &["rm", "/run/got"]);
        host.expect_traces(&before, "a large result");
    }
}
