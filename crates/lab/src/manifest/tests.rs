//! Whole manifests, from files, folders and standard input.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// A folder that goes when the test ends, also by a panic.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("netloom-manifest-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = Folder(std::env::temp_dir().join(name));
        fs::create_dir(&folder.0).unwrap();
        for (name, text) in files {
            let path = folder.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    fn load(&self, names: &[&str]) -> Result<Manifests, ManifestErrors> {
        let files: Vec<PathBuf> = names.iter().map(|name| self.0.join(name)).collect();
        load(&files, &mut std::io::empty())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Reads manifests from standard input.
pub(super) fn read(text: &str) -> Result<Manifests, ManifestErrors> {
    load(&[PathBuf::from("-")], &mut text.as_bytes())
}

fn good(text: &str) -> Manifests {
    read(text).unwrap_or_else(|e| panic!("{e}"))
}

fn pod(name: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n")
}

fn findings(manifests: &Manifests) -> Vec<String> {
    manifests.findings.iter().map(ToString::to_string).collect()
}

const SHOP: &str = r#"# A licence stands here in real files.
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Node
metadata:
  name: worker-1.example.org
  annotations:
    example.org/rack: "7"
spec:
  podCIDR: 10.244.1.0/24
  podCIDRs: [10.244.1.0/24, "2001:db8:1::/64"]
  providerID: metal://1
status:
  addresses:
  - {type: InternalIP, address: 192.0.2.1}
  - {type: Hostname, address: worker-1}
  - type: InternalIP
    address: 2001:db8::1
  capacity: {cpu: 4, memory: 16Gi}
---
apiVersion: v1
kind: Node
metadata: {name: worker-2}
spec: {podCIDR: 10.244.2.0/24}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  name: storage
  namespace: shop
  annotations:
    k8s.v1.cni.cncf.io/resourceName: intel.com/nic
spec:
  config: |
    {
      "cniVersion": "1.0.0",
      "plugins": [{"type": "bridge", "bridge": "br0"}, {"type": "tuning"}]
    }
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: on-disk, namespace: shop}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: flannel, namespace: kube-system}
spec: {config: '{"cniVersion": "1.0.0", "type": "bridge"}'}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 3}
---
apiVersion: v1
kind: Pod
metadata:
  name: web-0
  namespace: shop
  uid: 0f5a31c2-7d1b-4f43-9c2f-0a7a5b0e9d11
  labels: {app: web}
  annotations:
    k8s.v1.cni.cncf.io/networks: |
      [{"name": "storage", "ips": ["10.1.1.5/24"], "interface": "disk0"},
       {"name": "on-disk"}]
    v1.multus-cni.io/default-network: flannel
    kubernetes.io/ingress-bandwidth: 10M
spec:
  nodeName: worker-1.example.org
  containers:
  - name: web
    image: nginx
    ports:
    - {containerPort: 80, hostPort: 8080, hostIP: 192.0.2.1}
    - {containerPort: 53, hostPort: 53, protocol: UDP, name: dns}
  - name: side
    ports: [{containerPort: 9090, hostPort: 0}]
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, annotations: {k8s.v1.cni.cncf.io/networks: "shop/storage, shop/storage@net7"}}
spec: {hostNetwork: false}
---
apiVersion: v1
kind: Pod
metadata: {name: agent, namespace: shop, annotations: {k8s.v1.cni.cncf.io/networks: nowhere}}
spec: {hostNetwork: true}
"#;

#[test]
fn a_shop_is_read() {
    let shop = good(SHOP);
    let names: Vec<_> = shop.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["worker-1.example.org", "worker-2"]);
    let first = &shop.nodes[0];
    assert_eq!(first.pod_cidrs, ["10.244.1.0/24".parse().unwrap(), "2001:db8:1::/64".parse().unwrap()]);
    assert_eq!(first.addresses, ["192.0.2.1".parse::<IpAddr>().unwrap(), "2001:db8::1".parse().unwrap()]);
    assert_eq!(first.annotations["example.org/rack"], "7");
    assert_eq!(shop.nodes[1].pod_cidrs, ["10.244.2.0/24".parse().unwrap()]);

    let definitions: Vec<_> = shop.definitions.iter().map(|d| d.definition.reference().to_string()).collect();
    assert_eq!(definitions, ["shop/storage", "shop/on-disk", "kube-system/flannel"]);
    let storage = &shop.definitions[0];
    assert_eq!(storage.definition.resource_name.as_deref(), Some("intel.com/nic"));
    assert_eq!(storage.network.as_ref().map(|n| (n.name.as_str(), n.plugins.len())), Some(("storage", 2)));
    assert_eq!((&shop.definitions[1].definition.config, &shop.definitions[1].network), (&None, &None));

    assert_eq!(shop.pods.iter().map(ToString::to_string).collect::<Vec<_>>(), ["shop/web-0", "default/web-1"]);
    assert_eq!(
        findings(&shop),
        [
            "standard input: document 1, line 3, column 1: ignored: Namespace shop (a lab needs none: a namespace exists as soon as an \
                object names it)",
            "standard input: document 7, line 53, column 1: ignored: Deployment shop/web (a lab runs no controllers: write each pod as \
                kind: Pod)",
            "standard input: document 10, line 87, column 1: ignored: Pod shop/agent (hostNetwork: true: it uses its node's network \
             and gets no attachments)",
        ]
    );
}

#[test]
fn a_pod_is_read() {
    let shop = good(SHOP);
    let web = &shop.pods[0];
    assert_eq!(web.uid.as_deref(), Some("0f5a31c2-7d1b-4f43-9c2f-0a7a5b0e9d11"));
    assert_eq!(web.node.as_deref(), Some("worker-1.example.org"));
    assert_eq!(web.labels, BTreeMap::from([("app".to_owned(), "web".to_owned())]));
    assert_eq!(web.annotations["kubernetes.io/ingress-bandwidth"], "10M");
    let networks = web.networks.as_ref().unwrap();
    assert!(networks.text.starts_with("[{\"name\": \"storage\""));
    assert_eq!(web.selections().iter().map(ToString::to_string).collect::<Vec<_>>(), ["shop/storage@disk0", "shop/on-disk"]);
    assert_eq!(networks.origin.to_string(), "standard input: document 8, line 67, column 7");
    assert_eq!(web.default_network.as_ref().unwrap().selected.as_ref().unwrap().to_string(), "kube-system/flannel");
    let port = |container_port, host_port, protocol, host_ip| ContainerPort { container_port, host_port, host_ip, protocol };
    let expected = [
        port(80, Some(8080), npwg::Protocol::Tcp, Some("192.0.2.1".parse().unwrap())),
        port(53, Some(53), npwg::Protocol::Udp, None),
        port(9090, None, npwg::Protocol::Tcp, None),
    ];
    assert_eq!(web.ports, expected);
    assert_eq!(web.origin.to_string(), "standard input: document 8, line 58, column 1");

    let second = &shop.pods[1];
    assert_eq!((second.node.as_deref(), second.ports.len(), second.default_network.is_none()), (None, 0, true));
    assert_eq!(second.selections().iter().map(ToString::to_string).collect::<Vec<_>>(), ["shop/storage", "shop/storage@net7"]);
}

#[test]
fn files_folders_and_standard_input_go_together() {
    let files = [
        ("b.yaml", pod("b")),
        ("a.json", r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}"#.to_owned()),
        ("c.yml", pod("c")),
        ("readme.md", "no: [".to_owned()),
        ("deeper/d.yaml", pod("d")),
        ("other/e.txt", pod("e")),
    ];
    let folder = Folder::new(&files.each_ref().map(|(name, text)| (*name, text.as_str())));
    let manifests = load(&[folder.path().to_owned(), folder.path().join("other/e.txt"), "-".into()], &mut pod("f").as_bytes()).unwrap();
    let names: Vec<_> = manifests.pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "e", "f"]);
    assert_eq!(*manifests.pods[0].origin.file, *folder.path().join("a.json").to_string_lossy());
}

#[test]
fn lists_are_read() {
    let item = |kind: &str, name: &str| format!(r#"{{{kind} "metadata": {{"name": "{name}"}}}}"#);
    let full = r#""apiVersion": "v1", "kind": "Pod","#;
    let of = |kind: &str, items: &[String]| {
        format!(r#"{{"apiVersion": "v1", "kind": "{kind}", "metadata": {{}}, "items": [{}]}}"#, items.join(","))
    };
    let inner = of("List", &[item(full, "c")]);
    let list = good(&of("List", &[item(full, "a"), item(r#""apiVersion": "v1", "kind": "Service","#, "s"), item(full, "b"), inner]));
    assert_eq!(list.pods.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(findings(&list)[0].contains("items[1]: ignored: Service s (a lab consists of"), "{:?}", findings(&list));
    assert_eq!(good(&of("PodList", &[item("", "a"), item(full, "b")])).pods.len(), 2);
    assert_eq!(good(&of("NodeList", &[item("", "n")])).nodes.len(), 1);
    assert!(findings(&good(&(of("ServiceList", &[item("", "s")]) + "\n---\n" + &pod("a"))))[0].contains("ignored: ServiceList ("));
    let e = read(&of("List", &[item(full, "a"), item(full, "B")])).unwrap_err();
    assert_eq!(e.errors[0].field, "items[1].metadata.name");
}

#[test]
fn the_ways_to_write_it() {
    for text in [
        pod("a").replace('\n', "\r\n"),
        format!("\u{feff}{}", pod("a")),
        format!("%YAML 1.2\n---\n{}...\n", pod("a")),
        format!("---\n# nothing\n---\n{}---\n", pod("a")),
        "--- {apiVersion: v1, kind: Pod, metadata: {name: a}}".to_owned(),
        "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"Pod\",\n\t\"metadata\": {\"name\": \"\\u0061\"}\n}".to_owned(),
        "apiVersion: v1\nkind: Pod\nmetadata: &m\n  name: a\nstatus:\n  of: *m\n".to_owned(),
        "x-base: &base {name: a}\napiVersion: v1\nkind: Pod\nmetadata:\n  <<: *base\n".to_owned(),
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  namespace:\n  labels: ~\n  annotations: null\nspec:\n  containers:\n"
            .to_owned(),
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a, managedFields: [{f: {1: .nan}}]}\nspec: {weird: [1, {}]}\n".to_owned(),
    ] {
        let manifests = good(&text);
        assert_eq!((manifests.pods.len(), manifests.pods[0].name.as_str()), (1, "a"), "{text}");
        assert_eq!(findings(&manifests), [""; 0], "{text}");
    }
}

#[test]
fn json_objects_may_follow_each_other() {
    let one = |name: &str| format!("{{\"apiVersion\": \"v1\", \"kind\": \"Pod\",\n  \"metadata\": {{\"name\": \"{name}\"}}}}");
    assert_eq!(good(&format!("{}\n{}{}\n", one("a"), one("b"), one("c"))).pods.len(), 3);
    let e = read(&format!("{}\n{}{}\n", one("a"), one("b"), one("C"))).unwrap_err();
    assert!(e.to_string().starts_with("standard input: document 3, line 5, column 24: metadata.name: \"C\" is no"), "{e}");
}

#[test]
fn every_error_of_every_file_is_told() {
    let bad = "apiVersion: v1\nkind: Pod\nmetadata: {name: X, uid: 5}\nspec: {nodeName: A, hostNetwork: 1, containers: [{ports: 7}]}\n";
    let twice = format!("{}---\n{}", pod("a"), pod("a"));
    let folder = Folder::new(&[("1.yaml", bad), ("2.yaml", "a: [\n---\nkind: [\n---\nkind: 5\n"), ("3.yaml", &twice)]);
    let e = folder.load(&["1.yaml", "2.yaml", "missing.yaml", "3.yaml"]).unwrap_err();
    let file = |e: &ManifestError| e.origin.file.rsplit('/').next().unwrap().to_owned();
    let told: Vec<_> = e.errors.iter().map(|e| (file(e), e.origin.document, e.origin.line, e.field.as_str())).collect();
    let expected = [
        ("missing.yaml", 0, 0, ""),
        ("1.yaml", 1, 3, "metadata.uid"),
        ("1.yaml", 1, 3, "metadata.name"),
        ("1.yaml", 1, 4, "spec.hostNetwork"),
        ("1.yaml", 1, 4, "spec.nodeName"),
        ("1.yaml", 1, 4, "spec.containers[0].ports"),
        ("2.yaml", 1, 1, ""),
        ("2.yaml", 2, 3, ""),
        ("2.yaml", 3, 5, "kind"),
        ("3.yaml", 2, 9, "metadata.name"),
    ]
    .map(|(file, document, line, field)| (file.to_owned(), document, line, field));
    assert_eq!(told, expected, "{e}");
    assert_eq!(e.to_string().lines().count(), expected.len());
    let duplicate = e.errors.last().unwrap().to_string();
    assert!(
        duplicate.contains("3.yaml: document 2, line 9, column 9: metadata.name: Pod default/a is given twice, first at "),
        "{duplicate}"
    );
    assert!(duplicate.ends_with("3.yaml: document 1, line 4, column 9: rename or remove one"), "{duplicate}");
}

#[test]
fn what_may_be_in_an_unreadable_file_is_not_called_missing() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, annotations: {k8s.v1.cni.cncf.io/networks: x}}\n";
    let e = read(&format!("{pod}---\nkind: [\n")).unwrap_err();
    assert_eq!(e.errors.len(), 1, "{e}");
    let e = read(&format!("{pod}---\napiVersion: v1\nkind: Node\nmetadata: {{name: Nn}}\n")).unwrap_err();
    assert_eq!((e.errors.len(), e.findings.len()), (1, 1), "{e}");
}

/// Half of the manifests with JSON in them are written so, and Kubernetes reads them.
#[test]
fn what_ends_a_quoted_text_may_stand_at_the_left() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations:\n    k8s.v1.cni.cncf.io/networks: '[\n            { \"name\": \"x\" },\n\
        {\"name\": \"y\"}\n    ]'\n---\napiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: x}\nspec:\n  config: '{\n\
        \"type\": \"bridge\"\n}'\n";
    let manifests = read(text).unwrap();
    assert_eq!(manifests.pods[0].selections().len(), 2);
    assert_eq!(manifests.definitions[0].network.as_ref().unwrap().plugins[0].kind.as_str(), "bridge");
}

#[test]
fn what_looks_like_a_mistake_is_told() {
    for (text, expected) in [
        (
            "metadata: {name: a, annotation: {x: y}}",
            "line 3, column 21: metadata: unknown key \"annotation\" is ignored: did you mean \"annotations\"?",
        ),
        ("metadata: {name: a}\nSpec: {}", "line 4, column 1: unknown key \"Spec\" is ignored: did you mean \"spec\"?"),
        ("metadata: {name: a}\nspec: {nodename: x}", "spec: unknown key \"nodename\" is ignored: did you mean \"nodeName\"?"),
        (
            "metadata: {name: a, annotations: {k8s.v1.cni.cncf.io/network: x}}",
            "metadata.annotations: unknown key \"k8s.v1.cni.cncf.io/network\" is ignored: did you mean \"k8s.v1.cni.cncf.io/networks\"?",
        ),
        ("metadata: {name: a, annotations: {k8s.cni.cncf.io/networks: x}}", "did you mean \"k8s.v1.cni.cncf.io/networks\"?"),
        ("metadata: {name: a, annotations: {v1.multus-cni.io/default-networks: x}}", "did you mean \"v1.multus-cni.io/default-network\"?"),
        ("metadata: {name: a}\nspec: {containers: [{ports: [{containerPort: 1, hostport: 1}]}]}", "ports[0]: unknown key \"hostport\""),
    ] {
        let manifests = good(&format!("apiVersion: v1\nkind: Pod\n{text}\n"));
        assert!(manifests.findings.len() == 1 && findings(&manifests)[0].contains(expected), "{expected}: {:?}", findings(&manifests));
    }
}

#[test]
fn pods_that_have_ended_and_other_apis_are_left_out() {
    let ended = good(&format!("{}status: {{phase: Succeeded}}\n---\n{}status: {{phase: Running}}\n", pod("a"), pod("b")));
    assert_eq!(ended.pods.len(), 1);
    assert!(findings(&ended)[0].ends_with("ignored: Pod a (its status.phase says that it has finished)"));
    let other = good(&format!("apiVersion: longhorn.io/v1beta2\nkind: Node\nmetadata: {{name: N!}}\n---\n{}", pod("b")));
    assert!(findings(&other)[0].ends_with("ignored: Node.longhorn.io/v1beta2 N! (this kind belongs to another API)"));
    let odd = good(&format!("kind: Service\nmetadata: 5\n---\n{}", pod("b")));
    assert!(findings(&odd)[0].contains("ignored: Service ("));
}

#[test]
fn a_node_name_is_free_without_nodes() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {nodeName: anywhere}\n";
    assert_eq!(good(text).pods[0].node.as_deref(), Some("anywhere"));
}

#[test]
fn thousands_of_pods_are_read() {
    let definition = "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: net}\nspec: {config: '{\"type\": \"bridge\"}'}\n";
    let one = |i: usize| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: pod-{i}\n  labels: {{app: web}}\n  annotations:\n    \
             k8s.v1.cni.cncf.io/networks: net, net\nspec:\n  containers:\n  - name: c\n    ports: [{{containerPort: 80}}]\n"
        )
    };
    let text: String = std::iter::once(definition.to_owned()).chain((0..5000).map(one)).collect();
    let started = std::time::Instant::now();
    assert_eq!(good(&text).pods.len(), 5000);
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}

#[test]
fn what_is_cut_off_or_garbled_gets_an_answer() {
    for cut in (0..SHOP.len()).step_by(37) {
        let told = |e: ManifestErrors| assert!(!e.errors.is_empty() && !e.to_string().is_empty());
        read(&SHOP[..cut]).map_or_else(told, drop);
        read(&SHOP[cut..]).map_or_else(told, drop);
        for with in ["", "\"", "{", "- ", "\t", "&x *x", "\n"] {
            read(&format!("{}{with}{}", &SHOP[..cut], &SHOP[cut + 1..])).map_or_else(told, drop);
        }
    }
}
