//! Manifests of Multus's users, and what Multus makes of them: `manifests.yaml`, written down before they were run here. Every
//! difference stands there with its reason, and in `docs/operate/from-multus.md`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use testbed::{BUSYBOX, DefaultNetwork};

use super::scene::{Pod, Scene, definition, until};

/// What Multus makes of a pod, and what Netloom does otherwise.
struct Case {
    name: String,
    value: Value,
}

/// Those that hold for every pod.
struct Everywhere(Vec<String>);

fn cases() -> (Everywhere, Vec<Case>) {
    let all: Value = serde_saphyr::from_str(include_str!("manifests.yaml")).unwrap();
    let cases = all["cases"].as_array().unwrap().iter();
    let cases = cases.map(|value| Case { name: value["case"].as_str().unwrap().to_owned(), value: value.clone() }).collect();
    (Everywhere(whats(&all["everywhere"])), cases)
}

fn whats(differences: &Value) -> Vec<String> {
    texts(differences.as_array().into_iter().flatten().map(|one| &one["what"]))
}

fn texts<'a>(values: impl Iterator<Item = &'a Value>) -> Vec<String> {
    values.map(|value| value.as_str().unwrap().to_owned()).collect()
}

// === impl Case ===

impl Case {
    fn of_multus(&self, key: &str) -> &Value {
        &self.value["multus"][key]
    }

    fn fails(&self) -> Option<&str> {
        self.of_multus("fails").as_str()
    }

    fn apply(&self, scene: &Scene) {
        for (name, config) in self.value["networks"].as_object().into_iter().flatten() {
            let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
            let mut object = definition(name, &json!({}), Some(config).filter(|config| config.is_object()));
            object["metadata"]["namespace"] = json!(namespace);
            scene.apply(&object);
        }
        let mut spec = json!({"automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0, "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sleep", "1000000"]}]});
        spec.as_object_mut().unwrap().extend(self.value["spec"].as_object().cloned().unwrap_or_default());
        let meta = json!({"name": self.name, "labels": {"app": self.name}, "annotations": self.value["annotations"]});
        scene.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}));
    }

    /// What is otherwise than with Multus.
    fn differences(&self, scene: &Scene) -> BTreeSet<String> {
        let mut found = self.of_events(scene);
        let pod = scene.pods(&self.name).remove(0);
        if self.fails().is_some() || self.value["spec"]["hostNetwork"] == true {
            found.extend(pod.status().iter().map(|entry| format!("status: {entry}")));
            return found;
        }
        let expected = self.of_multus("interfaces").as_object().unwrap();
        let expected = expected.iter().map(|(name, addresses)| (name.clone(), texts(addresses.as_array().unwrap().iter())));
        let expected: BTreeMap<_, _> =
            expected.map(|(name, list)| (name, list.iter().map(|a| a.replace("$eth0", &pod.ip)).collect())).collect();
        let shown = addresses(scene, &pod);
        if shown != expected {
            found.insert(format!("interfaces: {shown:?} instead of {expected:?}"));
        }
        let (routes, expected) = (routes(scene, &pod), texts(self.of_multus("routes").as_array().unwrap().iter()));
        if routes != expected {
            found.insert(format!("routes: {} instead of {}", routes.join(", "), expected.join(", ")));
        }
        found.extend(self.of_status(scene, &pod));
        found
    }

    fn of_status(&self, scene: &Scene, pod: &Pod) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let (ours, theirs) = (pod.status(), self.of_multus("status").as_array().unwrap());
        if ours.len() != theirs.len() {
            found.insert(format!("status: {} entries instead of {}", ours.len(), theirs.len()));
        }
        let interfaces = scene.interfaces(pod);
        for (ours, theirs) in ours.iter().zip(theirs) {
            let interface = ours["interface"].as_str().unwrap();
            let place = format!("status of {interface}");
            let meant = theirs.to_string().replace("$eth0", &pod.ip).replace("$mac", &interfaces[interface].0);
            let theirs: Value = serde_json::from_str(&meant).unwrap();
            let (ours, theirs) = (ours.as_object().unwrap(), theirs.as_object().unwrap());
            let other = ours.iter().filter(|(key, value)| theirs.get(*key) != Some(value));
            found.extend(other.map(|(key, value)| {
                let value = value.to_string().replace(',', ", ");
                match (key.as_str(), value.as_str()) {
                    ("mtu", "1500") => "status of an interface: \"mtu\": 1500".to_owned(),
                    ("default", "false") => "status of a secondary interface: \"default\": false".to_owned(),
                    ("gateway", "[\"10.244.1.1\"]") => "status of the default network: \"gateway\": [\"10.244.1.1\"]".to_owned(),
                    _ => format!("{place}: \"{key}\": {value}"),
                }
            }));
            found.extend(theirs.keys().filter(|key| !ours.contains_key(*key)).map(|key| format!("{place}: no \"{key}\"")));
        }
        found
    }

    fn of_events(&self, scene: &Scene) -> BTreeSet<String> {
        let events: Value = serde_json::from_str(&scene.kubectl(&["get", "events.events.k8s.io", "-o", "json"])).unwrap();
        let own = |event: &&Value| event["regarding"]["name"] == self.name.as_str() && event["reportingController"] == "netloom.io/agent";
        let own: Vec<&Value> = events["items"].as_array().unwrap().iter().filter(own).collect();
        let mut added = texts(own.iter().filter(|event| event["reason"] == "AddedInterface").map(|event| &event["note"]));
        added.sort();
        let ip = scene.pods(&self.name).remove(0).ip;
        let expected = texts(self.of_multus("events").as_array().unwrap().iter());
        let expected: Vec<String> = expected.iter().map(|note| note.replace("$eth0", &ip)).collect();
        let mut found: BTreeSet<String> = own
            .iter()
            .filter(|event| event["reason"] != "AddedInterface")
            .map(|event| format!("Event {}", event["reason"].as_str().unwrap()))
            .collect();
        if added != expected {
            found.insert(format!("Events: {added:?} instead of {expected:?}"));
        }
        found
    }
}

/// The addresses of each interface, with their prefix lengths.
fn addresses(scene: &Scene, pod: &Pod) -> BTreeMap<String, Vec<String>> {
    let shown: Value = serde_json::from_slice(&scene.within(pod, &["ip", "-j", "address"]).stdout).unwrap();
    let links = shown.as_array().unwrap().iter().filter(|link| link["ifname"] != "lo");
    let of = |link: &Value| {
        let global = link["addr_info"].as_array().unwrap().iter().filter(|address| address["scope"] == "global");
        global.map(|address| format!("{}/{}", address["local"].as_str().unwrap(), address["prefixlen"])).collect()
    };
    links.map(|link| (link["ifname"].as_str().unwrap().to_owned(), of(link))).collect()
}

/// The routes of the main tables that are not the kernel's own, in order.
fn routes(scene: &Scene, pod: &Pod) -> Vec<String> {
    let mut found = Vec::new();
    for family in ["-4", "-6"] {
        let shown: Value = serde_json::from_slice(&scene.within(pod, &["ip", family, "-j", "route"]).stdout).unwrap();
        let set =
            shown.as_array().unwrap().iter().filter(|route| !["kernel", "ra"].contains(&route["protocol"].as_str().unwrap_or_default()));
        found.extend(set.map(|route| {
            let via = route["gateway"].as_str().map(|gateway| format!(" via {gateway}")).unwrap_or_default();
            format!("{}{via} dev {}", route["dst"].as_str().unwrap(), route["dev"].as_str().unwrap())
        }));
    }
    found.sort();
    found
}

#[test]
fn pods_get_what_multus_gives_them() {
    let mut scene = Scene::new("manifests", 1, DefaultNetwork::Agent);
    scene.kubectl(&["create", "namespace", "infra"]);
    let node = &scene.cluster.nodes()[0];
    node.run(&["ip", "link", "add", "hd0", "type", "veth", "peer", "name", "hd1"]).unwrap();
    let (Everywhere(everywhere), cases) = cases();
    cases.iter().for_each(|case| case.apply(&scene));
    for case in &cases {
        match case.fails() {
            Some(words) => until(
                &format!("{} fails with {words}", case.name),
                || scene.kubectl(&["get", "events", "--field-selector", &format!("involvedObject.name={}", case.name)]),
                |events| events.contains(words),
            ),
            None => {
                let said = || match scene.state(&case.name) {
                    state if state == "ready" => state,
                    state => state + &scene.kubectl(&["get", "events", "--field-selector", &format!("involvedObject.name={}", case.name)]),
                };
                until(&format!("{} is ready", case.name), said, |state| state == "ready");
            }
        }
    }
    scene.said("pods");
    let expected: BTreeMap<&str, BTreeSet<String>> =
        cases.iter().map(|case| (case.name.as_str(), whats(&case.value["differs"]).into_iter().collect())).collect();
    let mut seen = BTreeSet::new();
    let found = || {
        let of = |case: &Case| {
            let (common, own): (Vec<_>, Vec<_>) = case.differences(&scene).into_iter().partition(|what| everywhere.contains(what));
            (common, own.into_iter().collect::<BTreeSet<_>>())
        };
        let all = cases.iter().map(|case| (case, of(case)));
        let other = all.filter_map(|(case, (common, own))| {
            seen.extend(common);
            let name = case.name.as_str();
            (own != expected[name]).then(|| format!("{name}: {own:#?} instead of {:#?}", expected[name]))
        });
        other.collect::<Vec<_>>()
    };
    // Events and statuses follow in their own time.
    until("what differs is what is written", found, Vec::is_empty);
    assert_eq!(seen, everywhere.into_iter().collect(), "what is said of all of them");
    scene.said("compared");
    scene.kubectl(&["delete", "pods", "--all", "--wait", "--timeout=180s"]);
    // The kubelet detaches a pod in its own time.
    until(
        "the device is back",
        || scene.cluster.nodes()[0].try_run(&["ip", "link", "delete", "hd0"]).unwrap().status.success(),
        |gone| *gone,
    );
}

/// Who changes over reads there what will be otherwise.
#[test]
fn every_difference_to_multus_is_in_the_manual() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operate/from-multus.md")).unwrap();
    let all: Value = serde_saphyr::from_str(include_str!("manifests.yaml")).unwrap();
    let of_cases = all["cases"].as_array().unwrap().iter().flat_map(|case| case["differs"].as_array().into_iter().flatten());
    for why in all["everywhere"].as_array().unwrap().iter().chain(of_cases).map(|one| one["why"].as_str().unwrap()) {
        assert!(page.contains(why), "docs/operate/from-multus.md does not say: {why}");
    }
}
