use super::*;
use crate::{Isolation, Policy};
use cni::NetworkName;
use std::collections::BTreeMap;

struct Fixture {
    default: Option<ImplicitNetwork>,
    every_pod: Vec<ImplicitNetwork>,
    definitions: BTreeMap<String, Definition>,
}

impl Networks for Fixture {
    fn default_network(&self) -> Option<&ImplicitNetwork> {
        self.default.as_ref()
    }

    fn every_pod(&self) -> &[ImplicitNetwork] {
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

fn given(text: &str) -> ImplicitNetwork {
    ImplicitNetwork { list: list(text), definition: None }
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
        let definition = Definition {
            namespace: namespace.into(),
            name: name.into(),
            config: config.map(str::to_owned),
            resource_name: None,
            is_neutron: false,
        };
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
    match plan(&PlanRequest::new(&pod, &eth0(), plugins::BUILTINS), &fixture()) {
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
    let refused = planned(r#"[{"name":"plain","portMappings":[{"hostPort":1,"containerPort":1}],"bandwidth":{"ingressRate":1}}]"#);
    assert_eq!(refused.unwrap_err().len(), 2);
    // Whether these were served, the result will say.
    planned(r#"[{"name":"plain","ips":["10.0.0.9"],"mac":"02:00:00:00:00:09"}]"#).unwrap();
    let pod = PodView {
        namespace: "a".into(),
        name: "p".into(),
        networks: Some(r#"[{"name":"capable","ips":["10.0.0.9/24"],"mac":"02:00:00:00:00:09"}]"#.into()),
        ..PodView::default()
    };
    let plan = plan(&PlanRequest::new(&pod, &eth0(), plugins::BUILTINS), &fixture()).unwrap();
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
        plan(&PlanRequest { devices: Some(&devices), ..PlanRequest::new(&pod, &eth0(), plugins::BUILTINS) }, &networks)
    };
    let one = planned("plain,b/plain").unwrap();
    let ids: Vec<Option<&str>> = one.attachments.iter().map(|p| p.device.as_ref().map(|d| d.id.as_str())).collect();
    assert_eq!(ids, [None, Some("d1"), None]);
    let refused: Vec<String> = planned("plain,plain").unwrap_err().iter().map(ToString::to_string).collect();
    assert!(refused.len() == 1 && refused[0].starts_with("network a/plain: resource example.com/nic: the pod has 1"), "{refused:?}");
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
        is_neutron: false,
    };
    networks.definitions.insert("a/again".into(), again);
    let pod = PodView { namespace: "a".into(), name: "p".into(), networks: Some("plain,again".into()), ..PodView::default() };
    let plan = plan(&PlanRequest::new(&pod, &eth0(), plugins::BUILTINS), &networks).unwrap();
    let made: Vec<(&str, &str)> = plan.attachments.iter().map(|p| (p.list.name.as_str(), p.ifname.as_str())).collect();
    assert_eq!(made, [("lab", "eth0"), ("plain", "net1"), ("lab", "net2")]);
    assert_eq!(plan.attachments.iter().filter(|p| p.source.is_default()).count(), 1);
}

#[test]
fn a_pod_may_choose_its_default_network() {
    let pod = PodView { namespace: "a".into(), name: "p".into(), default_network: Some("b/plain".into()), ..PodView::default() };
    let plan = plan(&PlanRequest::new(&pod, &eth0(), plugins::BUILTINS), &fixture()).unwrap();
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
        plan(&PlanRequest::new(&pod, &eth0(), plugins::BUILTINS), &fixture())
            .map_err(|refusals| refusals.iter().map(ToString::to_string).collect())
    };
    let key = r#","default-route":[]"#;
    let refused: Vec<String> = planned(key, key).unwrap_err();
    assert_eq!(refused.len(), 1, "{refused:?}");
    let both = "network a/plain: default-route: the default network b/plain (annotation v1.multus-cni.io/default-network) has it already";
    assert!(refused[0].starts_with(both), "{refused:?}");
    assert!(planned(key, "").is_ok() && planned("", key).is_ok());
    let [v4, v6] = [r#","default-route":["10.0.0.1"]"#, r#","default-route":["fe80::1"]"#];
    assert!(planned(v4, v6).is_ok() && planned(v6, v4).is_ok());
    assert!(planned(v4, v4).is_err() && planned(v6, key).is_err());
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
    let plan = plan(&PlanRequest::new(&pod, &eth0(), plugins::BUILTINS), &networks).unwrap();
    let names: Vec<&str> = plan.attachments.iter().map(|p| p.ifname.as_str()).collect();
    assert_eq!(names, ["net1", "net2"]);
}

/// A pod of namespace `a` with these selections.
fn pod(networks: &str) -> PodView {
    PodView { namespace: "a".into(), name: "p".into(), networks: Some(networks.into()), ..PodView::default() }
}

fn made(plan: &Plan) -> Vec<(&str, &str)> {
    plan.attachments.iter().map(|p| (p.list.name.as_str(), p.ifname.as_str())).collect()
}

fn shown(refusals: &[Refusal]) -> Vec<String> {
    refusals.iter().map(ToString::to_string).collect()
}

#[test]
fn every_pods_networks_come_after_the_default_one_and_use_up_numbers() {
    let extra = ["one", "two"].map(|name| given(&format!(r#"{{"cniVersion":"1.0.0","name":"{name}","type":"bridge"}}"#)));
    let networks = Fixture { every_pod: extra.into(), ..fixture() };
    let admission = Admission { system_namespaces: vec!["kube-system".into()], ..Admission::default() };
    let (eth0, mut pod) = (eth0(), pod("b/plain, b/plain@net1"));
    let asked = PlanRequest { admission: &admission, ..PlanRequest::new(&pod, &eth0, plugins::BUILTINS) };
    let got = plan(&asked, &networks).unwrap();
    assert_eq!(made(&got), [("lab", "eth0"), ("one", "net2"), ("two", "net3"), ("plain", "net4"), ("plain", "net1")]);
    assert_eq!(got.attachments[1].source, Source::EveryPod);
    pod.namespace = "kube-system".into();
    let asked = PlanRequest { admission: &admission, ..PlanRequest::new(&pod, &eth0, plugins::BUILTINS) };
    assert_eq!(made(&plan(&asked, &networks).unwrap()), [("lab", "eth0"), ("plain", "net2"), ("plain", "net1")]);
    // Where pods have no default network, numbers start at one as well.
    let networks = Fixture { default: None, ..networks };
    assert_eq!(made(&plan(&PlanRequest::new(&pod, &eth0, plugins::BUILTINS), &networks).unwrap())[0], ("one", "net2"));
}

#[test]
fn s55_the_runtimes_configuration_goes_to_the_default_network_where_it_is_declared() {
    let sent = json::parse(br#"{"mac":"02:00:00:00:00:01","portMappings":[{"hostPort":1}],"bandwidth":{"ingressRate":1}}"#).unwrap();
    let runtime_config = sent.as_object();
    let able = r#"{"cniVersion":"1.0.0","name":"n","type":"bridge","capabilities":{"mac":true,"portMappings":true}}"#;
    let mut networks = fixture();
    networks.default = Some(given(able));
    networks.definitions.get_mut("b/plain").unwrap().config = Some(able.into());
    let args = |pod: &PodView| -> Vec<String> {
        let plan = plan(&PlanRequest { runtime_config, ..PlanRequest::new(pod, &eth0(), plugins::BUILTINS) }, &networks).unwrap();
        plan.attachments.iter().map(|p| json::compact(&p.capability_args)).collect()
    };
    let filtered = r#"{"mac":"02:00:00:00:00:01","portMappings":[{"hostPort":1}]}"#;
    assert_eq!(args(&pod("b/plain")), [filtered, "{}"]);
    // The pod's own default network gets it too, and what the pod says itself goes over it; ports add up.
    let default_network = |keys: &str| Some(format!(r#"[{{"name":"plain","namespace":"b"{keys}}}]"#));
    assert_eq!(args(&PodView { default_network: default_network(""), ..pod("") }), [filtered]);
    let own = r#","mac":"02:00:00:00:00:02","portMappings":[{"hostPort":2,"containerPort":3}]"#;
    let both = args(&PodView { default_network: default_network(own), ..pod("") });
    assert!(both[0].contains(r#""mac":"02:00:00:00:00:02""#) && both[0].contains(r#"[{"hostPort":1},{"hostPort":2"#), "{both:?}");
}

/// Of the default network no rule says who may publish what, and each pod of another node would send to this one's as it likes.
#[test]
fn no_pods_spec_publishes_the_port_of_the_nodes_tunnel() {
    let able = r#"{"cniVersion":"1.0.0","name":"n","type":"bridge","capabilities":{"portMappings":true}}"#;
    let planned = |default: &str, mapping: &str| {
        let sent = json::parse(format!(r#"{{"portMappings":[{{"hostPort":80,"protocol":"tcp"}},{mapping}]}}"#).as_bytes()).unwrap();
        let mut networks = fixture();
        networks.default = Some(given(default));
        networks.definitions.get_mut("b/plain").unwrap().config = Some(able.into());
        let selected = PodView { default_network: Some(r#"[{"name":"plain","namespace":"b"}]"#.into()), ..pod("") };
        let ifname = eth0();
        let told = |pod: &PodView| {
            let asked = PlanRequest {
                runtime_config: sent.as_object(),
                own: Some(&crate::policy::tests::Node),
                ..PlanRequest::new(pod, &ifname, plugins::BUILTINS)
            };
            plan(&asked, &networks).err().map(|refusals| refusals[0].to_string())
        };
        [told(&pod("")), told(&selected)]
    };
    let [of_node, of_pod] = planned(able, r#"{"hostPort":4789,"protocol":"udp"}"#);
    for told in [of_node, of_pod] {
        assert!(told.as_ref().is_some_and(|told| told.contains("the pod has the hostPort 4789/udp, the port of a tunnel")), "{told:?}");
    }
    assert!(planned(able, r#"{"hostPort":4789,"protocol":"UDP"}"#).iter().all(Option::is_some));
    for free in [r#"{"hostPort":4789,"protocol":"tcp"}"#, r#"{"hostPort":4790,"protocol":"udp"}"#] {
        assert_eq!(planned(able, free), [None, None], "{free}");
    }
    let [of_node, of_pod] = planned(&able.replace("true", "false"), r#"{"hostPort":4789,"protocol":"udp"}"#);
    assert!(of_node.is_none() && of_pod.is_some(), "nothing publishes it");
}

/// Each host port is looked for among all that the node has.
#[test]
fn a_pod_publishes_so_many_host_ports() {
    let mut networks = fixture();
    let able = r#"{"cniVersion":"1.0.0","type":"bridge","capabilities":{"portMappings":true}}"#;
    networks.definitions.get_mut("a/plain").unwrap().config = Some(able.into());
    let planned = |first: u32, second: u32| {
        let ports = |from: u32, count: u32| {
            let ports = (from..from + count).map(|port| format!(r#"{{"hostPort":{port},"containerPort":80}}"#)).collect::<Vec<_>>();
            format!(r#"{{"name":"plain","portMappings":[{}]}}"#, ports.join(","))
        };
        let pod = pod(&format!("[{},{}]", ports(1000, first), ports(5000, second)));
        plan(&PlanRequest::new(&pod, &eth0(), plugins::BUILTINS), &networks).map_err(|refusals| shown(&refusals))
    };
    planned(200, 56).unwrap();
    let refused = planned(200, 57).unwrap_err();
    assert!(refused[0].contains("the pod publishes 257 host ports: at most 256 are accepted"), "{refused:?}");
    planned(257, 1).unwrap_err();
    // Each plugin that gets them publishes all.
    let portmap = r#"{"type":"portmap","capabilities":{"portMappings":true}}"#;
    let chained =
        |count: usize| Some(format!(r#"{{"cniVersion":"1.0.0","plugins":[{{"type":"bridge"}},{}]}}"#, vec![portmap; count].join(",")));
    networks.definitions.get_mut("a/plain").unwrap().config = chained(4);
    let planned = |count: u32| {
        let ports = (1000..1000 + count).map(|port| format!(r#"{{"hostPort":{port},"containerPort":80}}"#)).collect::<Vec<_>>();
        let pod = pod(&format!(r#"[{{"name":"plain","portMappings":[{}]}}]"#, ports.join(",")));
        plan(&PlanRequest::new(&pod, &eth0(), plugins::BUILTINS), &networks).map_err(|refusals| shown(&refusals))
    };
    planned(64).unwrap();
    assert!(planned(65).unwrap_err()[0].contains("the pod publishes 260 host ports: at most 256 are accepted"));
    // Also those of the pod's spec, if the pod names its default network.
    let ports: Vec<String> = (1000..1257).map(|port| format!(r#"{{"hostPort":{port},"containerPort":80}}"#)).collect();
    let sent = json::parse(format!(r#"{{"portMappings":[{}]}}"#, ports.join(",")).as_bytes()).unwrap();
    let (eth0, view) = (eth0(), PodView { default_network: Some("a/plain".into()), ..pod("") });
    let mut with = |count: usize| {
        networks.definitions.get_mut("a/plain").unwrap().config = chained(count);
        let asked = PlanRequest { runtime_config: sent.as_object(), ..PlanRequest::new(&view, &eth0, plugins::BUILTINS) };
        plan(&asked, &networks).map(drop).map_err(|refusals| shown(&refusals))
    };
    with(1).unwrap();
    assert!(with(2).unwrap_err()[0].contains("the pod publishes 257 host ports"));
}

/// Each address is held against what the node has, and each route is a change of the pod's namespace.
#[test]
fn a_network_has_so_many_addresses_and_routes() {
    let planned = |addresses: usize, routes: usize, asked: usize| {
        let mut networks = fixture();
        let own: Vec<String> = (0..addresses).map(|n| format!(r#"{{"address":"10.1.{}.{}/16"}}"#, n / 250, n % 250 + 1)).collect();
        let routes: Vec<String> = (0..routes).map(|n| format!(r#"{{"dst":"10.2.{n}.0/24"}}"#)).collect();
        let config = format!(
            r#"{{"cniVersion":"1.0.0","type":"dummy","capabilities":{{"ips":true}},"ipam":{{"type":"static","addresses":[{}],"routes":[{}]}}}}"#,
            own.join(","),
            routes.join(",")
        );
        networks.definitions.get_mut("a/plain").unwrap().config = Some(config);
        let ips: Vec<String> = (0..asked).map(|n| format!(r#""10.3.0.{n}/16""#)).collect();
        let ips = if asked == 0 { String::new() } else { format!(r#","ips":[{}]"#, ips.join(",")) };
        let pod = pod(&format!(r#"[{{"name":"plain"{ips}}}]"#));
        plan(&PlanRequest::new(&pod, &eth0(), plugins::BUILTINS), &networks).map_err(|refusals| shown(&refusals))
    };
    planned(300, 200, 0).unwrap();
    // An address that is asked for stands in the arguments of a plugin and in those that it hands on.
    planned(300, 0, 60).unwrap();
    for (addresses, routes, asked) in [(513, 0, 0), (300, 213, 0)] {
        let refused = planned(addresses, routes, asked).unwrap_err();
        let says =
            "513 addresses, ranges, gateways and routes, counted in each plugin that has them, are too many: at most 512 are accepted";
        assert!(refused[0].contains(says), "{refused:?}");
    }
    // What the node's own network has is the owner's choice, and what the pod adds to it is not.
    let on_disk = |count: usize| {
        let ips = vec![r#""10.3.0.1/16""#; count].join(",");
        let pod = pod(&format!(r#"[{{"name":"on-disk","cni-args":{{"ips":[{ips}]}}}}]"#));
        plan(&PlanRequest::new(&pod, &eth0(), plugins::BUILTINS), &fixture()).map_err(|refusals| shown(&refusals))
    };
    on_disk(512).unwrap();
    let refused = on_disk(513).unwrap_err();
    assert!(refused[0].contains("513 addresses, ranges, gateways and routes"), "{refused:?}");
}

#[test]
fn an_invalid_annotation_is_ignored_with_a_warning_only_where_that_is_wanted() {
    let ignore = Admission { invalid_annotation: InvalidAnnotation::Ignore, ..Admission::default() };
    let (eth0, bad) = (eth0(), PodView { default_network: Some("a,b".into()), ..pod(r#"[{"name":"plain","mac":"x"}]"#) });
    let got = plan(&PlanRequest { admission: &ignore, ..PlanRequest::new(&bad, &eth0, plugins::BUILTINS) }, &fixture()).unwrap();
    assert_eq!(made(&got), [("lab", "eth0")]);
    let warnings = shown(&got.warnings);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].starts_with("ignored: annotation v1.multus-cni.io/default-network: "), "{warnings:?}");
    assert!(warnings[1].starts_with("ignored: annotation k8s.v1.cni.cncf.io/networks: element 1 (plain), mac: "), "{warnings:?}");
    assert_eq!(plan(&PlanRequest::new(&bad, &eth0, plugins::BUILTINS), &fixture()).unwrap_err().len(), 2);
    // What an annotation asks for properly and cannot have is no matter of its form.
    let lacking = pod(r#"[{"name":"plain","infiniband-guid":"c2:11:22:33:44:55:66:77"}]"#);
    assert!(plan(&PlanRequest { admission: &ignore, ..PlanRequest::new(&lacking, &eth0, plugins::BUILTINS) }, &fixture()).is_err());
}

#[test]
fn s54_isolation_concerns_selections_and_not_the_default_network() {
    let admission = Admission { isolation: Some(Isolation { global_namespaces: vec!["c".into()] }), ..Admission::default() };
    let (eth0, other) = (eth0(), PodView { default_network: Some("b/plain".into()), ..pod("plain, b/plain, c/missing, b/missing") });
    let refused =
        shown(&plan(&PlanRequest { admission: &admission, ..PlanRequest::new(&other, &eth0, plugins::BUILTINS) }, &fixture()).unwrap_err());
    let isolated = "namespace isolation enabled, annotation violates permission, pod is in namespace a but refers to target namespace b";
    assert_eq!(refused.len(), 3, "{refused:?}");
    assert_eq!(refused[0], format!("network b/plain: {isolated}"));
    assert!(refused[1].contains("cannot find a network-attachment-definition (missing) in namespace (c)"), "{refused:?}");
    // Whether it is there, is not told.
    assert_eq!(refused[2], format!("network b/missing: {isolated}"));
}

#[test]
fn s54_a_policy_holds_for_definitions_and_not_for_the_nodes_own_networks() {
    let rule = r#"[{"name":"r","allow":{"plugins":["macvlan"],"devices":["eth1"],"sysctls":[]}}]"#;
    let policy = Policy::parse(&json::parse(rule.as_bytes()).unwrap(), "policy").unwrap();
    let admission = Admission { policy, ..Admission::default() };
    let mut networks = fixture();
    let config = |config: &str| Some(format!(r#"{{"cniVersion":"1.0.0","plugins":[{config}]}}"#));
    networks.definitions.get_mut("a/plain").unwrap().config = config(r#"{"type":"macvlan","master":"eth1"}"#);
    networks.definitions.get_mut("b/plain").unwrap().config = config(r#"{"type":"macvlan","master":"eth0"},{"type":"tuning"}"#);
    let eth0 = eth0();
    let refused = |pod: &PodView, networks: &Fixture| -> Vec<String> {
        plan(&PlanRequest { admission: &admission, ..PlanRequest::new(pod, &eth0, plugins::BUILTINS) }, networks)
            .err()
            .map(|r| shown(&r))
            .unwrap_or_default()
    };
    assert_eq!(refused(&pod("plain"), &networks), [""; 0]);
    let by_default = PodView { default_network: Some("b/plain".into()), ..pod("") };
    for pod in [pod("b/plain"), by_default] {
        let got = refused(&pod, &networks);
        assert_eq!(got.len(), 2, "{got:?}");
        assert!(got[0].starts_with("network b/plain: policy rule \"r\": definition b/plain uses the plugin \"tuning\""), "{got:?}");
        assert!(got[1].contains("uses the host device \"eth0\" (plugins[0].master); allowed: eth1"), "{got:?}");
    }
    // A network of the node, reached by a definition, is used by that definition.
    assert!(refused(&pod("on-disk"), &networks)[0].contains("<interface of the default route>"));
    // A device that a pod names, and that nobody can tell it holds.
    let named = refused(&pod(r#"[{"name":"plain","deviceID":"0000:01:00.0"}]"#), &networks);
    assert!(named.len() == 1 && named[0].contains(r#"the host device "0000:01:00.0" (deviceID)"#), "{named:?}");
    let held = Devices::new([("example.com/nic", "0000:01:00.0")]);
    let holder = pod(r#"[{"name":"plain","deviceID":"0000:01:00.0"}]"#);
    assert!(
        plan(
            &PlanRequest { admission: &admission, devices: Some(&held), ..PlanRequest::new(&holder, &eth0, plugins::BUILTINS) },
            &networks
        )
        .is_ok()
    );
    // What a pod adds by its cni-args counts, and so does a default network that is a definition.
    networks.definitions.get_mut("a/plain").unwrap().config = config(r#"{"type":"tuning"}"#);
    let args = refused(&pod(r#"[{"name":"plain","cni-args":{"sysctl":{"net.core.somaxconn":"1"}}}]"#), &networks);
    assert!(args.iter().any(|r| r.contains("the sysctl \"net.core.somaxconn\" (plugins[0].args.cni.sysctl)")), "{args:?}");
    networks.default.as_mut().unwrap().definition = Some(DefinitionRef::new("kube-system", "lab").unwrap());
    assert!(
        refused(&pod(""), &networks)[0]
            .starts_with("network lab: policy rule \"r\": definition kube-system/lab uses the plugin \"bridge\"")
    );
}

#[test]
fn what_is_far_too_much_is_refused_in_few_words() {
    let planned = |networks: &Fixture, selections: &str| {
        shown(&plan(&PlanRequest::new(&pod(selections), &eth0(), plugins::BUILTINS), networks).unwrap_err())
    };
    for thousand in ["plain,".repeat(999) + "plain", format!("[{}null]", r#"{"name":"plain"},"#.repeat(999))] {
        let refused = planned(&fixture(), &thousand);
        assert_eq!(refused.len(), 1);
        let says = "annotation k8s.v1.cni.cncf.io/networks: 1000 elements are too many: at most 64 are accepted";
        assert!(refused[0].contains("1000 elements are too many: at most 64") && refused[0].len() < 2 * says.len(), "{refused:?}");
    }
    let config = |keys: &str| Some(format!(r#"{{"cniVersion":"1.0.0","type":"macvlan"{keys}}}"#));
    let with = |config: Option<String>| {
        let mut networks = fixture();
        networks.definitions.get_mut("a/plain").unwrap().config = config;
        networks
    };
    let refused = planned(&with(config(&format!(r#","x":"{}""#, "x".repeat(1 << 20)))), "plain");
    assert_eq!(refused, [format!("network a/plain: spec.config: {} bytes are too large: at most 131072 are accepted", (1 << 20) + 46)]);
    let plugins = r#"{"type":"macvlan"},"#.repeat(MAX_PLUGINS);
    let refused = planned(&with(Some(format!(r#"{{"cniVersion":"1.0.0","plugins":[{plugins}{{"type":"macvlan"}}]}}"#))), "plain");
    assert_eq!(refused, ["network a/plain: spec.config.plugins: 65 plugins are too many: at most 64 are accepted"]);
    let large = with(config(&format!(r#","x":"{}""#, "x".repeat(100 << 10))));
    let refused = planned(&large, &("plain,".repeat(60) + "plain"));
    let says = "values together: at most 262144 bytes and 8192 values are accepted; select fewer networks, or make";
    let begins = "network a/plain: with this network, the configurations of the pod's networks have 30";
    assert!(refused.len() == 1 && refused[0].starts_with(begins) && refused[0].contains(says), "{refused:?}");
}

/// Of 121 kB the agent took 240 MB and a second: it is refused before it is read.
#[test]
fn what_is_far_too_much_once_it_is_read_is_refused_by_its_text() {
    let plain = |config: String, selections: &str| {
        let mut networks = fixture();
        networks.definitions.get_mut("a/plain").unwrap().config = Some(config);
        plan(&PlanRequest::new(&pod(selections), &eth0(), plugins::BUILTINS), &networks).map_err(|refusals| shown(&refusals))
    };
    let with = |keys: &str| format!(r#"{{"cniVersion":"1.0.0","name":"x","type":"bridge","bridge":"evil9"{keys}}}"#);
    let zeros = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
    let nested = |levels: usize, within: &str| (0..levels).fold(within.to_owned(), |inner, _| format!(r#"{{"ipam":{inner}}}"#));
    for (config, says) in [
        (with(&format!(r#","ipam":{}"#, nested(115, &zeros(60_000)))), "60121 values are too many: at most 2048 are accepted; split it"),
        (with(&format!(r#","x":{}"#, zeros(62_000))), "values are too many"),
        (with(&format!(r#","ipam":{}"#, nested(115, "0"))), "116 levels of lists and objects are too deep: at most 16 are accepted"),
        // What is named so often is held against the node's own in every combination: three thousand times three thousand.
        (
            with(r#","ipam":{"subnet":"10.1.0.0/24","Gateway":"10.1.0.1","gateway":"10.1.0.2","GATEWAY":"10.1.0.3"}"#),
            r#"the key "gateway" more"#,
        ),
        (with(r#","x":[{"ma\u017fter":1,"master":2,"Master":3}]"#), r#"the key "master" more than 2 times: keep the last one"#),
        (with(&format!(r#","x":[{{"{}":[1,2]}}]"#, "k".repeat(257))), r#"kkkk" is too long: at most 256 bytes are accepted; shorten it"#),
    ] {
        let refused = plain(config, "plain").unwrap_err();
        assert!(refused.len() == 1 && refused[0].starts_with("network a/plain: spec.config: ") && refused[0].contains(says), "{refused:?}");
    }
    // At its limits one is accepted, and a pod may have four of them.
    let most = with(&format!(r#","type":"bridge","ipam":{},"{}":{}"#, nested(14, "0"), "k".repeat(256), zeros(2000)));
    assert_eq!(plain(most.clone(), "plain,plain,plain,plain").unwrap().attachments.len(), 5);
    let refused = plain(most, &["plain"; 16].join(",")).unwrap_err();
    assert!(refused.len() == 1 && refused[0].contains("values together: at most 262144 bytes and 8192 values"), "{refused:?}");
    // What a pod says to a network is given to each of its plugins.
    let plugins = format!(r#"{{"cniVersion":"1.0.0","plugins":[{}{{"type":"tuning"}}]}}"#, r#"{"type":"tuning"},"#.repeat(63));
    let said = format!(r#"[{{"name":"plain","cni-args":{{"x":{}}}}}]"#, zeros(1000));
    let refused = plain(plugins, &said).unwrap_err();
    assert!(refused.len() == 1 && refused[0].starts_with("network a/plain: with this network"), "{refused:?}");
}
