use super::*;
use cni::NetworkName;
use std::collections::BTreeMap;

struct Fixture {
    default: Option<Given>,
    every_pod: Vec<Given>,
    definitions: BTreeMap<String, Definition>,
}

impl Networks for Fixture {
    fn default_network(&self) -> Option<&Given> {
        self.default.as_ref()
    }

    fn every_pod(&self) -> &[Given] {
        &self.every_pod
    }

    fn definition(&self, reference: &DefinitionRef) -> Option<&Definition> {
        self.definitions.get(&reference.to_string())
    }

    fn on_disk(&self, name: &str) -> Result<NetworkList, CniError> {
        match name {
            "on-disk" => Ok(list(r#"{"cniVersion":"1.0.0","name":"on-disk","plugins":[{"type":"macvlan"}]}"#)),
            _ => Err(CniError::new(Code::INVALID_CONFIG, format!("no {name} here"))),
        }
    }
}

fn list(text: &str) -> NetworkList {
    NetworkList::parse(text.as_bytes(), Some(&NetworkName::parse("named").unwrap())).unwrap()
}

fn given(text: &str) -> Given {
    Given { list: list(text), definition: None }
}

fn eth0() -> IfName {
    "eth0".parse().unwrap()
}

fn fixture() -> Fixture {
    let capable = r#"{"cniVersion":"1.0.0","type":"macvlan","capabilities":{"ips":true,"mac":true}}"#;
    let plain = r#"{"cniVersion":"1.0.0","type":"macvlan"}"#;
    let all = [("a/capable", Some(capable)), ("a/plain", Some(plain)), ("b/plain", Some(plain)), ("a/on-disk", None), ("a/nowhere", None)];
    let one = |(reference, config): &(&str, Option<&str>)| {
        let (namespace, name) = reference.split_once('/').unwrap();
        let definition =
            Definition { namespace: namespace.into(), name: name.into(), config: config.map(str::to_owned), resource_name: None };
        ((*reference).to_owned(), definition)
    };
    Fixture {
        default: Some(given(r#"{"cniVersion":"1.0.0","name":"lab","plugins":[{"type":"bridge"}]}"#)),
        every_pod: Vec::new(),
        definitions: all.iter().map(one).collect(),
    }
}

fn planned(networks: &str) -> Result<Vec<(String, String)>, Vec<String>> {
    let pod = PodView { namespace: "a".into(), name: "p".into(), networks: Some(networks.into()), ..PodView::default() };
    match plan(&Asked::new(&pod, &eth0()), &fixture()) {
        Ok(plan) => Ok(plan.attachments.iter().map(|p| (p.name(), p.ifname.to_string())).collect()),
        Err(refusals) => Err(refusals.iter().map(ToString::to_string).collect()),
    }
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn s46_the_default_network_is_first_and_names_follow_positions() {
    assert_eq!(planned("").unwrap(), pairs(&[("lab", "eth0")]));
    let got = planned("plain, b/plain, plain@x0, on-disk").unwrap();
    assert_eq!(got, pairs(&[("lab", "eth0"), ("a/plain", "net1"), ("b/plain", "net2"), ("a/plain", "x0"), ("a/on-disk", "net4")]));
}

#[test]
fn s31_a_generated_name_passes_over_a_requested_one() {
    let got = planned("plain@net2, plain, plain").unwrap();
    assert_eq!(got, pairs(&[("lab", "eth0"), ("a/plain", "net2"), ("a/plain", "net3"), ("a/plain", "net4")]));
}

#[test]
fn s22_names_that_are_taken_are_refused() {
    for taken in ["eth0", "lo"] {
        let refused = planned(&format!("plain@{taken}")).unwrap_err();
        assert!(refused[0].contains(&format!("interface: {taken} is taken")), "{refused:?}");
    }
}

#[test]
fn s10_what_cannot_be_resolved_fails_and_every_reason_is_told() {
    let refused = planned("missing, nowhere, plain").unwrap_err();
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(refused[0].contains("cannot find a network-attachment-definition (missing) in namespace (a)"));
    assert!(refused[1].contains("a definition without a config means a network of this node: no nowhere here"));
}

#[test]
fn s20_capabilities_are_verified_and_sent() {
    let refused = planned(r#"[{"name":"plain","ips":["10.0.0.9"],"mac":"02:00:00:00:00:09"}]"#).unwrap_err();
    assert_eq!(refused.len(), 2, "{refused:?}");
    let pod = PodView {
        namespace: "a".into(),
        name: "p".into(),
        networks: Some(r#"[{"name":"capable","ips":["10.0.0.9/24"],"mac":"02:00:00:00:00:09"}]"#.into()),
        ..PodView::default()
    };
    let plan = plan(&Asked::new(&pod, &eth0()), &fixture()).unwrap();
    let sent = &plan.attachments[1];
    assert_eq!(json::compact(&sent.capability_args), r#"{"ips":["10.0.0.9/24"],"mac":"02:00:00:00:00:09"}"#);
    // S29: plugins of the v1.0 age get them as args.
    let args = sent.list.plugins[0].raw().object("args").and_then(|a| a.object("cni")).unwrap();
    assert_eq!(args.str("mac"), Some("02:00:00:00:00:09"));
}

#[test]
fn s68_what_the_pod_does_not_hold_is_refused_with_the_network() {
    let mut networks = fixture();
    networks.definitions.get_mut("a/plain").unwrap().resource_name = Some("example.com/nic".into());
    let planned = |selections: &str| {
        let pod = PodView { namespace: "a".into(), name: "p".into(), networks: Some(selections.into()), ..PodView::default() };
        let devices = Devices::new([("example.com/nic", "d1")]);
        plan(&Asked { devices: Some(&devices), ..Asked::new(&pod, &eth0()) }, &networks)
    };
    let one = planned("plain,b/plain").unwrap();
    let ids: Vec<Option<&str>> = one.attachments.iter().map(|p| p.device.as_ref().map(|d| d.id.as_str())).collect();
    assert_eq!(ids, [None, Some("d1"), None]);
    let refused: Vec<String> = planned("plain,plain").unwrap_err().iter().map(ToString::to_string).collect();
    assert!(refused.len() == 1 && refused[0].starts_with("network a/plain: resource example.com/nic: the pod holds 1"), "{refused:?}");
    let refused = planned(r#"[{"name":"plain","deviceID":"d2"}]"#).unwrap_err();
    assert!(refused[0].to_string().starts_with("network a/plain: "), "{refused:?}");
}

#[test]
fn s13_the_pods_annotation_adds_to_the_default_network_and_may_select_it_again() {
    let mut networks = fixture();
    let again = Definition {
        namespace: "a".into(),
        name: "again".into(),
        config: Some(r#"{"cniVersion":"1.0.0","name":"lab","type":"bridge"}"#.into()),
        resource_name: None,
    };
    networks.definitions.insert("a/again".into(), again);
    let pod = PodView { namespace: "a".into(), name: "p".into(), networks: Some("plain,again".into()), ..PodView::default() };
    let plan = plan(&Asked::new(&pod, &eth0()), &networks).unwrap();
    let made: Vec<(&str, &str)> = plan.attachments.iter().map(|p| (p.list.name.as_str(), p.ifname.as_str())).collect();
    assert_eq!(made, [("lab", "eth0"), ("plain", "net1"), ("lab", "net2")]);
    assert_eq!(plan.attachments.iter().filter(|p| p.source.is_default()).count(), 1);
}

#[test]
fn a_pod_may_choose_its_default_network() {
    let pod = PodView { namespace: "a".into(), name: "p".into(), default_network: Some("b/plain".into()), ..PodView::default() };
    let plan = plan(&Asked::new(&pod, &eth0()), &fixture()).unwrap();
    assert_eq!(plan.attachments.len(), 1);
    assert_eq!((plan.attachments[0].name().as_str(), plan.attachments[0].source.is_default()), ("b/plain", true));
}

#[test]
fn s26_the_default_network_and_another_one_cannot_both_have_the_default_route() {
    let planned = |own: &str, other: &str| {
        let pod = PodView {
            namespace: "a".into(),
            name: "p".into(),
            networks: Some(format!(r#"[{{"name":"plain"{other}}}]"#)),
            default_network: Some(format!(r#"[{{"name":"plain","namespace":"b"{own}}}]"#)),
            ..PodView::default()
        };
        plan(&Asked::new(&pod, &eth0()), &fixture()).map_err(|refusals| refusals.iter().map(ToString::to_string).collect())
    };
    let key = r#","default-route":[]"#;
    let refused: Vec<String> = planned(key, key).unwrap_err();
    assert_eq!(refused.len(), 1, "{refused:?}");
    let both = "network a/plain: default-route: the default network b/plain (annotation v1.multus-cni.io/default-network) has it already";
    assert!(refused[0].starts_with(both), "{refused:?}");
    assert!(planned(key, "").is_ok() && planned("", key).is_ok());
}

#[test]
fn s55_the_runtimes_configuration_is_for_the_first_network_alone() {
    let networks = ["one", "two", "three"].map(|name| list(&format!(r#"{{"cniVersion":"1.0.0","name":"{name}","type":"bridge"}}"#)));
    let sent = json::parse(br#"{"mac":"02:00:00:00:00:09"}"#).unwrap().as_object().unwrap().clone();
    let plan = Plan::of_every_pod(networks.into(), &"eth0".parse().unwrap(), &[], sent.clone()).unwrap();
    let got: Vec<&Object> = plan.attachments.iter().map(|p| &p.capability_args).collect();
    assert_eq!(got, [&sent, &Object::new(), &Object::new()]);
}

#[test]
fn without_a_default_network_numbers_start_at_one() {
    let networks = Fixture { default: None, ..fixture() };
    let pod = PodView { namespace: "a".into(), name: "p".into(), networks: Some("plain,plain".into()), ..PodView::default() };
    let plan = plan(&Asked::new(&pod, &eth0()), &networks).unwrap();
    let names: Vec<&str> = plan.attachments.iter().map(|p| p.ifname.as_str()).collect();
    assert_eq!(names, ["net1", "net2"]);
}
