//! Bad manifests: each with the one error that it must get.

use std::path::PathBuf;

use super::tests::{Folder, read};
use super::*;

/// A pod with `rest` from line 3 on.
fn pod(rest: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\n{rest}\n")
}

fn node(rest: &str) -> String {
    format!("apiVersion: v1\nkind: Node\n{rest}\n")
}

fn definition(rest: &str) -> String {
    format!("apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n{rest}\n")
}

/// A pod whose annotation `networks` is on line 5.
fn networks(value: &str) -> String {
    pod(&format!("metadata:\n  name: a\n  annotations: {{k8s.v1.cni.cncf.io/networks: {value}}}"))
}

/// Text, document with line and column, field, part of the message.
type Case<'a> = (String, (usize, usize, usize), &'a str, &'a str);

/// Holds each text against the document, line, column and field of its only error, and a part of its message.
fn check(cases: &[Case<'_>]) {
    for (text, place, field, part) in cases {
        // What concerns one pod, or the pods of one definition, is a warning; all else an error.
        let told: Vec<_> = match read(text) {
            Ok(manifests) => manifests.findings.into_iter().map(|w| (w.origin.clone(), w.field.clone(), w.to_string())).collect(),
            Err(e) => e.errors.iter().map(|e| (e.origin.clone(), e.field.clone(), e.to_string())).collect(),
        };
        let [(origin, at, shown)] = told.as_slice() else { panic!("{text}\n{told:?}") };
        assert_eq!((origin.document, origin.line, origin.column), *place, "{text}\n{shown}");
        assert_eq!(at, field, "{text}\n{shown}");
        assert!(shown.starts_with("standard input: ") && shown.contains(part), "{text}\nexpected: {part}\n{shown}");
    }
}

#[test]
fn bad_yaml() {
    check(&[
        ("a: b: c\n".into(), (1, 1, 5), "", "not valid YAML: mapping values are not allowed in this context"),
        ("kind: Pod\nmetadata:\n\tname: a\n".into(), (1, 3, 2), "", "a tab where only spaces may indent"),
        ("kind: Pod\nmetadata:\n  name: a\n name: b\n".into(), (1, 4, 2), "", "did not find expected key"),
        ("kind: 'Pod\n".into(), (1, 1, 7), "", "not valid YAML: unclosed quote"),
        (pod("metadata: {name: a, name: b}"), (1, 3, 21), "", r#"the key "name" is given twice: remove one"#),
        (pod("metadata: {name: *x}"), (1, 3, 18), "", "alias references unknown anchor"),
        (pod("metadata: &m {name: *m}"), (1, 3, 21), "", "an alias stands in the value that it means"),
        (pod("metadata: {[a]: b}"), (1, 3, 12), "", "a key must be a string"),
        (pod("metadata: {name: {{ .Values.name }}}"), (1, 3, 19), "", "render it first, as helm template does"),
        (pod("metadata: {name: \u{1}}"), (1, 3, 18), "", "unexpected character"),
        (format!("{}---\n# c\n---\nkind: [\n", pod("metadata: {name: a}")), (3, 7, 7), "", "not valid YAML: unclosed bracket"),
        (
            pod("metadata: {name: a, x: &x [1]}\nspec:\n").replace("spec:", &format!("spec: {}", "[".repeat(200))),
            (1, 4, 135),
            "",
            "nested deeper than 128 levels",
        ),
    ]);
    let mut bomb = "apiVersion: v1\nkind: Pod\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for i in 1..10 {
        bomb += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(","));
    }
    let e = read(&bomb).unwrap_err().to_string();
    assert!(e.contains("more than 100000 values from aliases in one document") && e.contains("check its aliases (*name)"), "{e}");
}

#[test]
fn bad_objects() {
    check(&[
        ("just text\n".into(), (1, 1, 1), "", r#"expected an object with apiVersion, kind and metadata, found a string ("just text")"#),
        ("- a\n- b\n".into(), (1, 1, 1), "", "expected an object with apiVersion, kind and metadata, found a list"),
        ("apiVersion: v1\n".into(), (1, 1, 1), "kind", "missing: expected Pod, Node, NetworkAttachmentDefinition, IPPool or List"),
        ("apiVersion: v1\nkind: 5\n".into(), (1, 2, 7), "kind", "expected a string, found a number (5): put it into quotes"),
        ("apiVersion: v1\nkind: Pods\n".into(), (1, 2, 7), "kind", r#"unknown kind "Pods": did you mean "Pod"?"#),
        ("kind: NetworkAttachementDefinition\n".into(), (1, 1, 7), "kind", r#"did you mean "NetworkAttachmentDefinition"?"#),
        ("kind: Pod\nmetadata: {name: a}\n".into(), (1, 1, 1), "apiVersion", "missing: expected v1"),
        ("apiVersion: V1\nkind: Pod\n".into(), (1, 1, 13), "apiVersion", r#"Pod of apiVersion "V1": expected "v1""#),
        (definition("").replace("io/v1", "io/v2"), (1, 1, 13), "apiVersion", r#"expected "k8s.cni.cncf.io/v1""#),
        ("apiVersion: v1\nkind: List\nitems: {}\n".into(), (1, 3, 8), "items", "expected a list, found an object"),
        ("kind: List\nitems: [{kind: Pod}]\n".into(), (1, 2, 9), "items[0].apiVersion", "missing"),
        ("kind: List\nitems: [null, 7]\n".into(), (1, 2, 15), "items[1]", "found a number (7)"),
        (pod(""), (1, 1, 1), "metadata", "missing: expected an object with a name"),
        (pod("metadata: a"), (1, 3, 11), "metadata", r#"expected an object, found a string ("a")"#),
        (pod("metadata: {}"), (1, 3, 11), "metadata.name", "missing: every object of a lab needs a name"),
        (pod("metadata: {generateName: web-}"), (1, 3, 26), "metadata.generateName", "which a lab does not have: set metadata.name"),
        (pod("metadata:\n  name: 007"), (1, 4, 9), "metadata.name", "found a number (007): put it into quotes"),
        (pod("metadata: {name: n}"), (1, 3, 18), "metadata.name", "found a boolean (n): put it into quotes"),
        (pod("metadata:\n  name: Web_1"), (1, 4, 9), "metadata.name", r#""Web_1" is not a DNS-1123 subdomain"#),
        (pod("metadata: {name: ''}"), (1, 3, 18), "metadata.name", "the name is empty"),
        (pod("metadata: {name: ../../etc}"), (1, 3, 18), "metadata.name", r#""../../etc" is not a DNS-1123 subdomain"#),
        (pod(&format!("metadata: {{name: {}}}", "a".repeat(254))), (1, 3, 18), "metadata.name", "254 characters long, at most 253"),
        (pod("metadata: {name: a, namespace: a.b}"), (1, 3, 32), "metadata.namespace", r#""a.b" is not a valid namespace name"#),
        (pod("metadata: {name: a, namespace: [b]}"), (1, 3, 32), "metadata.namespace", "expected a string, found a list"),
        (pod("metadata: {name: a, labels: [b]}"), (1, 3, 29), "metadata.labels", "expected an object, found a list"),
        (pod("metadata: {name: a, labels: {b: yes}}"), (1, 3, 33), "metadata.labels.b", "found a boolean (yes): put it into quotes"),
        (pod("metadata: {name: a, annotations: {x.y/z: 1}}"), (1, 3, 42), r#"metadata.annotations["x.y/z"]"#, "put it into quotes"),
        (pod("metadata: {name: a, uid: 'a;b=c'}"), (1, 3, 26), "metadata.uid", "letters, digits and '-'"),
        (format!("kind: Service\n---\n{}", "kind: Deployment\n"), (0, 0, 0), "", "nothing to build"),
    ]);
}

#[test]
fn bad_pods() {
    let ports = |ports: &str| pod(&format!("metadata: {{name: a}}\nspec:\n  containers:\n  - ports:\n    - {ports}"));
    let port = "spec.containers[0].ports[0]";
    check(&[
        (pod("metadata: {name: a}\nspec: []"), (1, 4, 7), "spec", "expected an object, found a list"),
        (pod("metadata: {name: a}\nspec: {hostNetwork: 'no'}"), (1, 4, 21), "spec.hostNetwork", "expected true or false"),
        (pod("metadata: {name: a}\nspec: {nodeName: A}"), (1, 4, 18), "spec.nodeName", r#"did you mean "a"?"#),
        (pod("metadata: {name: a}\nspec: {containers: {}}"), (1, 4, 20), "spec.containers", "expected a list, found an object"),
        (pod("metadata: {name: a}\nspec: {containers: [x]}"), (1, 4, 21), "spec.containers[0]", "expected an object"),
        (ports("{hostPort: 80}"), (1, 7, 7), &format!("{port}.containerPort"), "missing: expected a port"),
        (ports("{containerPort: 0}"), (1, 7, 23), &format!("{port}.containerPort"), "from 1 to 65535, found a number (0)"),
        (ports("{containerPort: 65536}"), (1, 7, 23), &format!("{port}.containerPort"), "found a number (65536)"),
        (ports("{containerPort: '80'}"), (1, 7, 23), &format!("{port}.containerPort"), r#"found a string ("80")"#),
        (ports("{containerPort: 80, hostPort: -1}"), (1, 7, 37), &format!("{port}.hostPort"), "found a number (-1)"),
        (ports("{containerPort: 80, protocol: tcp}"), (1, 7, 37), &format!("{port}.protocol"), "expected TCP, UDP or SCTP"),
        (ports("{containerPort: 80, hostIP: 1.2.3}"), (1, 7, 35), &format!("{port}.hostIP"), r#""1.2.3" is not an IP address"#),
        (
            ports("{containerPort: 1, hostPort: 80}\n    - {containerPort: 2, hostPort: 80}"),
            (1, 8, 7),
            "spec.containers[0].ports[1]",
            "host port 80/tcp is given twice in this pod",
        ),
        (
            format!("{}---\n{}", pod("metadata: {name: a}\nspec: {nodeName: worker-2}"), node("metadata: {name: worker-1}")),
            (1, 4, 18),
            "spec.nodeName",
            r#"there is no Node "worker-2": did you mean "worker-1"?; the manifests have worker-1"#,
        ),
        (
            format!("{}---\n{}", pod("metadata: {name: a}"), pod("metadata: {name: a, namespace: default}")),
            (2, 7, 18),
            "metadata.name",
            "Pod default/a is given twice, first at standard input: document 1, line 3, column 18: rename or remove one",
        ),
    ]);
}

#[test]
fn bad_selections() {
    const FIELD: &str = r#"metadata.annotations["k8s.v1.cni.cncf.io/networks"]"#;
    let block = |json: &str| {
        let lines = json.lines().map(|line| format!("      {line}\n")).collect::<String>();
        pod(&format!("metadata:\n  name: a\n  annotations:\n    k8s.v1.cni.cncf.io/networks: |\n{lines}"))
    };
    check(&[
        (networks("7"), (1, 5, 46), FIELD, "expected a string, found a number (7)"),
        (networks("'a,,b'"), (1, 5, 49), FIELD, "element 2: there is nothing between two commas"),
        (networks("Net_1"), (1, 5, 46), FIELD, r#""net-1" would do"#),
        (networks("'[{]'"), (1, 5, 49), FIELD, "not valid JSON: key must be a string (line 5, column 49)"),
        (networks("\"[{\\\"a\\\"]\""), (1, 5, 54), FIELD, "(line 5, column 54)"),
        (block("[\n  {\"name\": \"x\",}\n]"), (1, 8, 22), FIELD, "not valid JSON: trailing comma (line 8, column 22)"),
        (block("[{\"name\": \"x\", \"ip\": \"1.2.3.4\"}]"), (1, 7, 22), FIELD, r#"element 1 (x), ip: unknown key: did you mean "ips"?"#),
        (
            pod("metadata: {name: a, annotations: {v1.multus-cni.io/default-network: 'x,y'}}"),
            (1, 3, 69),
            r#"metadata.annotations["v1.multus-cni.io/default-network"]"#,
            "expected exactly one network, found 2",
        ),
    ]);
}

/// As in a cluster, the pod fails for itself: the manifests are read, and the mistake is told with its place.
#[test]
fn a_selection_of_nothing_is_a_warning() {
    const FIELD: &str = r#"metadata.annotations["k8s.v1.cni.cncf.io/networks"]"#;
    let with = |defined: &str, value: &str| format!("{}---\n{}", networks(value), definition(&format!("metadata: {{{defined}}}")));
    let cases: &[Case<'_>] = &[
        (
            networks("storage"),
            (1, 5, 46),
            FIELD,
            "no NetworkAttachmentDefinition default/storage; the manifests have no NetworkAttachmentDefinition at all",
        ),
        (with("name: storage", "storages"), (1, 5, 46), FIELD, r#"did you mean "default/storage"?; the manifests have default/storage"#),
        (with("name: storage, namespace: infra", "storage"), (1, 5, 46), FIELD, r#"did you mean "infra/storage"?"#),
        (
            pod("metadata: {name: a, annotations: {v1.multus-cni.io/default-network: x}}"),
            (1, 3, 69),
            r#"metadata.annotations["v1.multus-cni.io/default-network"]"#,
            "there is no NetworkAttachmentDefinition kube-system/x",
        ),
    ];
    for (text, place, field, part) in cases {
        let manifests = read(text).unwrap();
        let [warning] = manifests.findings.as_slice() else { panic!("{text}\n{:?}", manifests.findings) };
        let origin = &warning.origin;
        assert_eq!((origin.document, origin.line, origin.column), *place, "{text}\n{warning}");
        assert_eq!(warning.field, *field, "{text}\n{warning}");
        let shown = warning.to_string();
        assert!(shown.contains(part) && shown.ends_with("the pod cannot be attached"), "{text}\n{warning}");
    }
}

#[test]
fn bad_definitions() {
    let config = |config: &str| definition(&format!("metadata: {{name: n1}}\nspec:\n  config: {config}"));
    check(&[
        (definition("metadata: {name: My.Net}"), (1, 3, 18), "metadata.name", r#""my-net" would do"#),
        (definition("metadata: {name: n1}\nspec: x"), (1, 4, 7), "spec", "expected an object"),
        (
            config("{type: bridge}"),
            (1, 5, 11),
            "spec.config",
            "expected a string with JSON in it: begin it with config: |, found an object",
        ),
        (config("'{}'"), (1, 5, 11), "spec.config", r#"names no plugin: set "type""#),
        (
            config("|\n    {\n      \"type\": \"bridge\"\n      \"x\": 1\n    }"),
            (1, 8, 7),
            "spec.config",
            "expected `,` or `}` (line 8, column 7)",
        ),
        (config("|\n    {\"type\": \"../x\"}"), (1, 6, 14), "spec.config", "../x"),
        (config("'{\"type\": \"x\", \"cniVersion\": \"9.9.9\"}'"), (1, 5, 40), "spec.config", "cniVersion"),
        (config("'[]'"), (1, 5, 12), "spec.config", "expected a JSON object"),
        (
            format!("{}---\n{}", config("'{\"type\": \"x\"}'"), config("'{\"type\": \"y\"}'")),
            (2, 9, 18),
            "metadata.name",
            "NetworkAttachmentDefinition default/n1 is given twice, first at standard input: document 1, line 3, column 18",
        ),
    ]);
}

#[test]
fn bad_nodes() {
    let spec = |spec: &str| node(&format!("metadata: {{name: n1}}\nspec: {{{spec}}}"));
    let address = |value: &str| node(&format!("metadata: {{name: n1}}\nstatus: {{addresses: [{value}]}}"));
    let second = |rest: &str| format!("{}---\n{}", spec("podCIDR: 10.0.0.0/16"), node(&format!("metadata: {{name: m}}\n{rest}")));
    check(&[
        (spec("podCIDR: 10.0.0.0"), (1, 4, 17), "spec.podCIDR", r#""10.0.0.0" is not a CIDR"#),
        (spec("podCIDR: 10.0.0.0/33"), (1, 4, 17), "spec.podCIDR", "is not a CIDR"),
        (spec("podCIDR: 10.0.0.1/24"), (1, 4, 17), "spec.podCIDR", "has host bits set: the network is 10.0.0.0/24"),
        (spec("podCIDRs: 10.0.0.0/24"), (1, 4, 18), "spec.podCIDRs", "expected a list, found a string"),
        (spec("podCIDRs: [10.0.0.0/24, 10.0.1.0/24]"), (1, 4, 32), "spec.podCIDRs[1]", "10.0.1.0/24 is the second range of its family"),
        (spec("podCIDR: 10.0.9.0/24, podCIDRs: [10.0.0.0/24]"), (1, 4, 17), "spec.podCIDR", "is not the first of spec.podCIDRs"),
        (
            second("spec: {podCIDR: 10.0.7.0/24}"),
            (2, 9, 17),
            "spec.podCIDR",
            "10.0.7.0/24 overlaps 10.0.0.0/16 of Node n1 at standard input: document 1, line 4, column 17",
        ),
        (address("{type: InternalIP}"), (1, 4, 22), "status.addresses[0].address", "missing: expected an IP address"),
        (address("{type: InternalIP, address: 10.0.0.1/8}"), (1, 4, 50), "status.addresses[0].address", "without a prefix length"),
        (
            address("{type: InternalIP, address: 10.0.0.1}, {type: InternalIP, address: 10.0.0.1}"),
            (1, 4, 89),
            "status.addresses[1].address",
            "10.0.0.1 is the address of Node n1 at standard input: document 1, line 4, column 50 already",
        ),
        (format!("{0}---\n{0}", node("metadata: {name: n1}")), (2, 7, 18), "metadata.name", "Node n1 is given twice"),
    ]);
}

#[test]
fn bad_files() {
    let folder = Folder::new(&[("empty/readme.md", "x"), ("nested/in/a.yaml", "x"), ("none.yaml", "# nothing\n")]);
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("latin1.yaml"), b"kind: Pod\n# caf\xe9\n").unwrap();
    std::fs::write(path("utf16.yaml"), b"\xff\xfek\0i\0").unwrap();
    std::fs::write(path("large.yaml"), vec![b'#'; MAX_FILE + 1]).unwrap();
    std::fs::write(path("many.yaml"), "--- 1\n".repeat(MAX_DOCUMENTS + 1)).unwrap();
    for (name, expected) in [
        ("missing.yaml", "missing.yaml: cannot be read: No such file or directory (os error 2); expected a file, a folder or -"),
        ("empty", "empty: no *.yaml, *.yml or *.json in this folder"),
        ("nested", "nested: no *.yaml, *.yml or *.json in this folder; subfolders are not read: name each"),
        ("latin1.yaml", "latin1.yaml, line 2, column 1: not UTF-8: expected YAML or JSON as text"),
        ("utf16.yaml", "utf16.yaml, line 1, column 1: not UTF-8 but UTF-16: save it as UTF-8"),
        ("large.yaml", "large.yaml: larger than the maximum of 16777216 bytes"),
        ("many.yaml", "many.yaml: document 10001: more than 10000 documents"),
        ("none.yaml", "nothing to build: no Pod, Node, NetworkAttachmentDefinition or IPPool in the manifests"),
    ] {
        let e = load(&[path(name)], &mut std::io::empty()).unwrap_err().to_string();
        assert!(e.contains(expected), "{name}: expected {expected}\n{}", e.lines().next().unwrap());
    }
    let web = load(&[PathBuf::from("https://example.org/pods.yaml")], &mut std::io::empty()).unwrap_err().to_string();
    assert_eq!(web, "https://example.org/pods.yaml: manifests are read from this machine only: curl -sSL URL | netloom lab up -");
    let pod = pod("metadata: {name: a}");
    let twice = load(&["-".into(), "-".into()], &mut pod.as_bytes()).unwrap_err().to_string();
    assert_eq!(twice, "standard input: standard input can be read only once: remove one \"-\"");
    let same = Folder::new(&[("a.yaml", &pod)]);
    let e = load(&[same.path().join("a.yaml"), same.path().to_owned()], &mut std::io::empty()).unwrap_err();
    assert!(e.to_string().contains("Pod default/a is given twice"), "{e}");
}

#[test]
fn an_endless_input_ends() {
    let e = load(&["-".into()], &mut std::io::repeat(b'a')).unwrap_err();
    assert_eq!(e.errors[0].problem, ManifestProblem::TooLarge { max: MAX_FILE });
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let e = read(&pod(r#"metadata: {name: "\e[2J", labels: {"\e[31m": 5}}"#)).unwrap_err().to_string();
    assert!(e.contains("metadata.labels.\\u{1b}[31m") && !e.contains('\x1b') && e.lines().count() == 2, "{e}");
    let e = read("kind: \"X\\e\"\nmetadata: {name: \"a\\nb\"}\n").unwrap_err();
    assert!(e.findings[0].to_string().contains("ignored: X\\u{1b} a\\nb ("), "{}", e.findings[0]);
}
