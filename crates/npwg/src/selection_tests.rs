use super::*;
use cni::{AddResult, NetworkList, Version};

use crate::{Definition, SELECTION_KEYS};

fn all(annotation: &str) -> Vec<Selection> {
    parse(annotation, "pods").unwrap_or_else(|e| panic!("{annotation}: {e}"))
}

fn one(keys: &str) -> Selection {
    let mut all = all(&format!(r#"[{{"name":"net",{keys}}}]"#));
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn refused(annotation: &str) -> String {
    let errors = parse(annotation, "pods").expect_err(annotation);
    assert!(!errors.errors.is_empty());
    errors.to_string()
}

/// Every element of the table breaks the rule with the words beside it.
fn refuse_all(table: &[(&str, &str)]) {
    for (keys, words) in table {
        let e = refused(&format!(r#"[{{"name":"ok"}},{{"name":"net",{keys}}}]"#));
        let place = "annotation k8s.v1.cni.cncf.io/networks: element 2 (net), ";
        assert!(e.starts_with(place) && e.contains(words), "{keys}\n  got      {e}\n  expected {words}");
    }
}

fn network(capabilities: &str) -> NetworkList {
    let text = format!(r#"{{"cniVersion":"1.0.0","name":"n","plugins":[{{"type":"x","capabilities":{capabilities}}},{{"type":"y"}}]}}"#);
    NetworkList::parse(text.as_bytes(), None).unwrap()
}

fn runtime_config(selection: &Selection) -> String {
    json::compact(&selection.runtime_config())
}

#[test]
fn s14_both_forms_say_the_same() {
    let comma = all("net1, infra/net2@eth7");
    let json = all(r#"[{"name":"net1"},{"name":"net2","namespace":"infra","interface":"eth7"}]"#);
    assert_eq!(comma, json);
    for blank in ["", " \n\t", "[]", " [ ] "] {
        assert_eq!(all(blank), [], "{blank:?}");
    }
}

#[test]
fn s15_comma_form() {
    let shown: Vec<String> = all("a,b/c , d@e0,\n f/g@h0").iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["pods/a", "b/c", "pods/d@e0", "f/g@h0"]);
    for (bad, words) in [
        ("a,", "element 2: there is nothing between two commas"),
        (",", "element 1: there is nothing between two commas"),
        ("a,b/c/d", r#"element 2: "b/c/d" is not of the form [NAMESPACE/]NAME[@INTERFACE]"#),
        ("/a", "is not of the form [NAMESPACE/]NAME"),
        ("a/", "is not of the form [NAMESPACE/]NAME"),
        ("a@", "is not of the form [NAMESPACE/]NAME"),
        ("@eth0", "is not of the form [NAMESPACE/]NAME"),
        ("a@b@c", "is not of the form [NAMESPACE/]NAME"),
        ("../../etc", "is not of the form [NAMESPACE/]NAME"),
        ("a b", r#"element 1 (a b), name: "a b" is not a valid NetworkAttachmentDefinition name"#),
        ("Net_1", r#""net-1" would do"#),
        ("B/a", "element 1 (B/a), namespace: "),
        ("a@sixteen_bytes_xx", "element 1 (a), interface: interface name \"sixteen_bytes_xx\" is too long"),
    ] {
        let e = refused(bad);
        assert!(e.contains(words), "{bad}: {e}");
    }
}

#[test]
fn s16_json_form() {
    for (bad, words) in [
        (r#"{"name":"a"}"#, r#"put it into brackets, such as [{"name": "net1"}]"#),
        (r#""a""#, r#"expected a list of objects, found a string ("a")"#),
        (r#"a, "b""#, "not valid JSON: expected value (line 1, column 1); it is read as JSON because"),
        (r#"["a"]"#, r#"element 1: expected an object like {"name": "net1"}, found a string ("a")"#),
        (r#"[{"name":"a"},null]"#, "element 2: expected an object"),
        (r#"[{"name":"a"}] x"#, "trailing characters"),
        ("[{", "not valid JSON"),
    ] {
        let e = refused(bad);
        assert!(e.contains(words), "{bad}: {e}");
    }
}

#[test]
fn s16_keys_are_read_as_go_reads_them() {
    let selection = all(r#"[{"NAME":"a","name":"net","Namespace":null,"IPS":["10.1.1.5"],"portmappings":null}]"#).remove(0);
    assert_eq!(selection.to_string(), "pods/net");
    assert_eq!(selection.ips.len(), 1);
}

#[test]
fn s17_keys_without_a_period_belong_to_the_standard() {
    refuse_all(&[
        (r#""ip":["10.1.1.5"]"#, r#"ip: unknown key: did you mean "ips"?"#),
        (r#""macAddress":"02:00:00:00:00:01""#, r#"did you mean "mac"?"#),
        (r#""vlan":5"#, "vlan: unknown key; keys of implementations need a period, such as example.org/key"),
    ]);
    let selection = one(r#""example.org/vlan":{"Id":5},"a.b":null"#);
    assert_eq!(json::compact(&selection.extensions), r#"{"example.org/vlan":{"Id":5},"a.b":null}"#);
}

#[test]
fn s17_every_key_of_the_table_is_read() {
    for key in SELECTION_KEYS {
        let e = refused(&format!(r#"[{{"{}":7}}]"#, key.name));
        assert!(e.contains(&format!("element 1, {}: expected ", key.name)), "{}: {e}", key.name);
    }
}

#[test]
fn s18_name_is_required() {
    for (bad, words) in [
        (r#"[{}]"#, "element 1, name: missing: the name of a NetworkAttachmentDefinition"),
        (r#"[{"name":null}]"#, "name: missing"),
        (r#"[{"name":""}]"#, "the NetworkAttachmentDefinition name is empty"),
        (r#"[{"name":7}]"#, "name: expected a string, found a number (7)"),
        (r#"[{"name":"infra/net"}]"#, r#"a namespace has its own key, "namespace""#),
        (r#"[{"name":"net@eth1"}]"#, r#"an interface has its own key, "interface""#),
    ] {
        let e = refused(bad);
        assert!(e.contains(words), "{bad}: {e}");
    }
}

#[test]
fn s19_without_a_namespace_it_is_the_pods() {
    assert_eq!(one(r#""namespace":"""#).definition.namespace, "pods");
    assert_eq!(one(r#""namespace":"infra""#).definition.namespace, "infra");
    let bad = parse(r#"[{"name":"net","namespace":"../x"}]"#, "pods").unwrap_err();
    assert!(bad.to_string().contains("namespace: "), "{bad}");
}

#[test]
fn s20_ips() {
    let selection = one(r#""ips":["10.1.1.5/24","2001:db8::5"]"#);
    assert_eq!(selection.ips[0], RequestedIp { address: "10.1.1.5".parse().unwrap(), prefix: Some(24), text: "10.1.1.5/24".to_owned() });
    assert_eq!(selection.ips[1].prefix, None);
    assert_eq!(runtime_config(&selection), r#"{"ips":["10.1.1.5/24","2001:db8::5"]}"#);
    refuse_all(&[
        (r#""ips":[]"#, "ips: empty: set at least one address"),
        (r#""ips":"10.1.1.5""#, r#"ips: expected a list like ["10.1.1.5/24"], found a string ("10.1.1.5")"#),
        (r#""ips":["10.1.1.5","10.1.1.300"]"#, r#"ips[1]: "10.1.1.300" is not an IP address: expected one like"#),
        (r#""ips":[7]"#, "ips[0]: expected a string, found a number (7)"),
        (r#""ips":["10.1.1.5/33"]"#, "is not an IP address"),
        (r#""ips":["10.1.1.5/"]"#, "is not an IP address"),
        (r#""ips":["10.1.1.5/08"]"#, "is not an IP address"),
        (r#""ips":["10.1.1.5/+8"]"#, "is not an IP address"),
        (r#""ips":["10.1.1.5/24/24"]"#, "is not an IP address"),
        (r#""ips":["010.1.1.5"]"#, "is not an IP address"),
        (r#""ips":[" 10.1.1.5"]"#, "is not an IP address"),
        (r#""ips":["fe80::1%eth0"]"#, "is not an IP address"),
        (r#""ips":["0.0.0.0"]"#, "the unspecified address, which no interface can have"),
        (r#""ips":["224.0.0.1/24"]"#, "a multicast address"),
        (r#""ips":["255.255.255.255"]"#, "the broadcast address"),
        (r#""ips":["::ffff:10.1.1.5"]"#, "an IPv4 address in IPv6 form"),
        (r#""ips":["10.1.1.5","10.1.1.5/24"]"#, "ips[1]: 10.1.1.5 is given twice"),
    ]);
}

#[test]
fn s20_s21_s24_s25_s27_capabilities_are_verified() {
    let selection = one(
        r#""ips":["10.1.1.5"],"mac":"02:00:00:00:00:01","portMappings":[{"hostPort":1,"containerPort":2}],"bandwidth":{"ingressRate":1},
           "infiniband-guid":"c2:11:22:33:44:55:66:77","deviceID":"0000:18:02.5""#,
    );
    let missing = selection.verify(&network(r#"{"ips":true,"mac":false}"#)).unwrap_err();
    let names: Vec<&str> = missing.iter().map(|m| m.capability).collect();
    assert_eq!(names, ["infinibandGUID", "portMappings", "bandwidth"], "addresses are looked for in the result");
    assert_eq!(
        missing[0].to_string(),
        r#"pods/net, infiniband-guid: no plugin of network "n" has the capability "infinibandGUID": add "capabilities": {"infinibandGUID": true} to the one that serves it, or remove the key"#
    );
    let able = r#"{"ips":true,"mac":true,"infinibandGUID":true,"portMappings":true,"bandwidth":true}"#;
    assert_eq!(selection.verify(&network(able)), Ok(()));
    assert_eq!(one(r#""deviceID":"a","interface":"x""#).verify(&network("{}")), Ok(()));
}

#[test]
fn s21_mac() {
    assert_eq!(runtime_config(&one(r#""mac":"02-00-00-AB-34-56""#)), r#"{"mac":"02:00:00:ab:34:56"}"#);
    let infiniband = "80:00:00:4a:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:10:39";
    assert_eq!(one(&format!(r#""mac":"{infiniband}""#)).mac.unwrap().to_string(), infiniband);
    assert_eq!(one(r#""mac":"""#).mac, None);
    refuse_all(&[
        (r#""mac":"02:00:00:00:00""#, r#"mac: "02:00:00:00:00" is not a valid hardware address: expected 6 bytes like 02:00:00:12:34:56"#),
        (r#""mac":"02:00:00:00:00:00:00:01""#, "is not a valid hardware address"),
        (r#""mac":"01:00:5e:00:00:01""#, "a multicast address or all zeros"),
        (r#""mac":"00:00:00:00:00:00""#, "a multicast address or all zeros"),
        (r#""mac":7"#, "mac: expected a string"),
    ]);
}

#[test]
fn s22_interface() {
    assert_eq!(one(r#""interface":"eth7""#).interface.unwrap().as_str(), "eth7");
    assert_eq!(one(r#""interfaceRequest":"eth7""#).interface.unwrap().as_str(), "eth7");
    assert_eq!(one(r#""interfaceRequest":"eth7","interface":"eth7""#).interface.unwrap().as_str(), "eth7");
    refuse_all(&[
        (r#""interface":"a/b""#, r#"interface: interface name "a/b" contains /"#),
        (r#""interface":"sixteen_bytes_xx""#, "is too long: 16 bytes, the kernel allows 15"),
        (r#""interface":"..""#, "interface name is . or .."),
        (r#""interfaceRequest":"a b""#, "interfaceRequest: interface name"),
        (r#""interfaceRequest":"a","interface":"b""#, "interfaceRequest: differs from \"interface\""),
    ]);
    let e = refused(&format!("a@{}", "x".repeat(5000)));
    assert!(e.contains("5000 bytes of an interface's name are too many") && e.len() < 300, "{e}");
}

#[test]
fn s22_an_interface_is_requested_once() {
    let e = refused("a@eth1,b,infra/c@eth1");
    assert!(e.contains(r#"element 3 (infra/c), interface: interface "eth1" is already requested by element 1"#), "{e}");
    // Found even if the first of them is bad for another reason.
    let e = refused(r#"[{"name":"a","interface":"x","ips":[]},{"name":"b","interface":"x"}]"#);
    assert!(e.contains("element 1 (a), ips") && e.contains("already requested by element 1"), "{e}");
}

#[test]
fn s23_cni_args_go_before_the_definitions() {
    let own = json::parse(br#"{"cni":{"a":1,"B":2},"other":{"x":1}}"#).unwrap();
    let own = own.as_object();
    let args = |keys: &str| json::compact(&one(keys).args(own).unwrap());
    assert_eq!(args(r#""cni-args":{"b":3,"c":[null]}"#), r#"{"cni":{"a":1,"b":3,"c":[null]},"other":{"x":1}}"#);
    assert_eq!(args(r#""interface":"x""#), json::compact(own.unwrap()));
    assert_eq!(one(r#""interface":"x""#).args(None), None);
    assert_eq!(json::compact(&one(r#""cni-args":{"b":3}"#).args(None).unwrap()), r#"{"cni":{"b":3}}"#);
    refuse_all(&[(r#""cni-args":[]"#, "cni-args: expected an object, found a list")]);
    // As deep as the annotation allows they made a network that could be recorded, and not be read again.
    let nested = |levels: usize| format!(r#""cni-args":{{"x":{}{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1));
    assert_eq!(one(&nested(64)).cni_args.map(|o| o.depth()), Some(64));
    refuse_all(&[(&nested(65), "cni-args: 65 levels of lists and objects are too many: at most 64 are accepted")]);
}

#[test]
fn s24_port_mappings() {
    let selection = one(
        r#""portMappings":[{"hostPort":8080,"containerPort":80},{"hostPort":8080,"containerPort":80,"protocol":"Udp","hostIP":"10.0.0.1"}]"#,
    );
    assert_eq!(
        runtime_config(&selection),
        r#"{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"},{"hostPort":8080,"containerPort":80,"protocol":"udp","hostIP":"10.0.0.1"}]}"#
    );
    let rest = r#""hostPort":1,"containerPort":2"#;
    let mapping = |keys: &str| format!(r#""portMappings":[{{{keys}}}]"#);
    refuse_all(&[
        (r#""portMappings":[]"#, "portMappings: empty: set at least one mapping"),
        (r#""portMappings":{"hostPort":1}"#, "portMappings: expected a list like"),
        (r#""portMappings":[7]"#, "portMappings[0]: expected an object like"),
        (&mapping(r#""containerPort":2"#), "portMappings[0].hostPort: missing: a port from 1 to 65535"),
        (
            &mapping(r#""hostPort":0,"containerPort":65536"#),
            "portMappings[0].hostPort: expected a port from 1 to 65535, found a number (0)",
        ),
        (&mapping(r#""hostPort":0,"containerPort":65536"#), "portMappings[0].containerPort: expected a port"),
        (&mapping(r#""hostPort":"80","containerPort":2"#), r#"found a string ("80")"#),
        (&mapping(r#""hostPort":80.5,"containerPort":2"#), "found a number (80.5)"),
        (&mapping(&format!(r#"{rest},"protocol":"icmp""#)), r#"portMappings[0].protocol: expected "TCP", "UDP" or "SCTP", found a string"#),
        (&mapping(&format!(r#"{rest},"hostIP":"x""#)), r#"portMappings[0].hostIP: "x" is not an IP address"#),
        (&mapping(&format!(r#"{rest},"port":1"#)), "portMappings[0].port: unknown key: hostPort, containerPort, protocol and hostIP"),
        (&format!(r#""portMappings":[{{{rest}}},{{{rest},"protocol":"TCP"}}]"#), "portMappings[1]: host port 1/tcp is given twice"),
    ]);
}

#[test]
fn s25_bandwidth() {
    let selection = one(r#""bandwidth":{"ingressRate":1000,"ingressBurst":8000,"egressRate":2000}"#);
    assert_eq!(selection.bandwidth.unwrap().egress_burst, None);
    assert_eq!(
        runtime_config(&selection),
        r#"{"bandwidth":{"ingressRate":1000,"ingressBurst":8000,"egressRate":2000,"egressBurst":2147483647}}"#
    );
    refuse_all(&[
        (r#""bandwidth":{}"#, "bandwidth: empty: set at least one rate"),
        (r#""bandwidth":[]"#, "bandwidth: expected an object"),
        (r#""bandwidth":{"ingressRate":0}"#, "bandwidth.ingressRate: expected a whole number of bits, at least 1, found a number (0)"),
        (r#""bandwidth":{"ingressRate":-1}"#, "at least 1"),
        (r#""bandwidth":{"ingressRate":"10M"}"#, r#"found a string ("10M")"#),
        (r#""bandwidth":{"ingressRate":1,"egressBurst":1}"#, r#"bandwidth.egressBurst: a burst needs a rate: set "egressRate" as well"#),
        (r#""bandwidth":{"rate":1}"#, "bandwidth.rate: unknown key: ingressRate, ingressBurst"),
    ]);
}

#[test]
fn s26_one_default_route() {
    assert_eq!(one(r#""default-route":[]"#).default_route, Some(vec![]));
    let gateways = one(r#""default-route":["10.1.1.1","fe80::1"]"#).default_route.unwrap();
    assert_eq!(gateways.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.1.1.1", "fe80::1"]);
    assert_eq!(one(r#""interface":"x""#).default_route, None);
    refuse_all(&[
        (r#""default-route":"10.1.1.1""#, "default-route: expected a list like"),
        (r#""default-route":["10.1.1.1/24"]"#, "without a prefix length"),
        (r#""default-route":["10.1.1.1","10.1.1.1"]"#, "default-route[1]: 10.1.1.1 is given twice"),
        (r#""default-route":["0.0.0.0"]"#, "the unspecified address"),
    ]);
    let e = refused(r#"[{"name":"a","default-route":[]},{"name":"b"},{"name":"c","default-route":["10.1.1.1"]}]"#);
    assert!(e.contains("element 3 (c), default-route: element 1 has the default route already"), "{e}");
    let e = refused(r#"[{"name":"a","default-route":["fe80::1"]},{"name":"b","default-route":["10.1.1.1","fe80::2"]}]"#);
    assert!(e.contains("element 2 (b), default-route: element 1 has the default route already"), "{e}");
    // As with Multus: of each family another one.
    assert_eq!(all(r#"[{"name":"a","default-route":["fe80::1"]},{"name":"b","default-route":["10.1.1.1"]}]"#).len(), 2);
}

#[test]
fn s27_infiniband_guid() {
    let guid = "c2:11:22:33:44:55:66:77";
    assert_eq!(runtime_config(&one(&format!(r#""infiniband-guid":"{guid}""#))), format!(r#"{{"infinibandGUID":"{guid}"}}"#));
    refuse_all(&[
        (r#""infiniband-guid":"02:00:00:00:00:01""#, "is not a valid GUID: expected 8 bytes"),
        (r#""infiniband-guid":"00:00:00:00:00:00:00:00""#, "all zeros"),
    ]);
}

#[test]
fn s28_a_claim_or_addresses() {
    assert_eq!(one(r#""ipam-claim-reference":"vm-a.tenant.net1""#).ipam_claim.as_deref(), Some("vm-a.tenant.net1"));
    refuse_all(&[
        (r#""ipam-claim-reference":"a","ips":["10.1.1.5"]"#, "ipam-claim-reference: cannot be combined with \"ips\""),
        (r#""ipam-claim-reference":"../a""#, "is not a valid IPAMClaim name"),
    ]);
}

#[test]
fn s28_s58_the_claims_name_reaches_the_plugins_and_nobody_must_know_it() {
    let selection = one(r#""ipam-claim-reference":"vm-a.tenant.net1""#);
    assert_eq!(selection.verify(&network("{}")), Ok(()));
    assert_eq!(runtime_config(&selection), r#"{"ipam-claim-reference":"vm-a.tenant.net1"}"#);
    let own = json::parse(br#"{"cni":{"ipam-claim-reference":"the-definitions","x":1}}"#).unwrap();
    assert_eq!(json::compact(&selection.args(own.as_object()).unwrap()), r#"{"cni":{"x":1,"ipam-claim-reference":"vm-a.tenant.net1"}}"#);
    // So does what its pod says of the claim's addresses.
    let migrating = Selection { migrates: true, ..selection.clone() };
    let said = r#"{"cni":{"x":1,"ipam-claim-reference":"vm-a.tenant.net1","netloom.io/migration":true}}"#;
    assert_eq!(json::compact(&migrating.args(own.as_object()).unwrap()), said);
    assert_eq!(Selection { ipam_claim: None, ..migrating }.args(None), None);
}

#[test]
fn s29_plugins_of_the_first_version_find_requests_in_args() {
    let selection = one(r#""ips":["10.1.1.5/24"],"mac":"02:00:00:00:00:01","cni-args":{"MAC":"own"}"#);
    assert_eq!(json::compact(&selection.args(None).unwrap()), r#"{"cni":{"ips":["10.1.1.5/24"],"MAC":"own"}}"#);
}

#[test]
fn s29_what_was_requested_must_be_in_the_result() {
    let selection = one(r#""ips":["10.1.1.5/32","2001:DB8::5"],"mac":"02-00-00-00-00-01""#);
    let result = |mac: &str, v4: &str| {
        let text = format!(
            r#"{{"cniVersion":"1.0.0","interfaces":[{{"name":"net1","mac":"{mac}","sandbox":"/x"}}],
                "ips":[{{"interface":0,"address":"{v4}/24"}},{{"interface":0,"address":"2001:db8::5/64"}}]}}"#
        );
        AddResult::parse(text.as_bytes(), Version::V1_0_0).unwrap().0
    };
    let declared = network(r#"{"ips":true}"#);
    assert_eq!(selection.not_honoured(&declared, &result("02:00:00:00:00:01", "10.1.1.5")), []);
    let other = result("02:00:00:00:00:02", "10.1.1.6");
    let told: Vec<String> = selection.not_honoured(&declared, &other).iter().map(ToString::to_string).collect();
    assert_eq!(
        told[0],
        "pods/net, ips: 10.1.1.5/32 was requested, but the network's plugins report 10.1.1.6, 2001:db8::5: they ignored the request"
    );
    assert!(told[1].contains("mac: 02:00:00:00:00:01 was requested") && told.len() == 2, "{told:?}");
    assert!(told[1].ends_with(r#"they ignored the request; none of them declares "capabilities": {"mac": true}"#), "{told:?}");
    assert_eq!(selection.not_honoured(&declared, &AddResult::default()).len(), 3);
}

#[test]
fn s30_a_definition_may_be_selected_twice() {
    assert_eq!(all("net,net,net@eth9").len(), 3);
}

#[test]
fn multus_device_id_is_offered_not_demanded() {
    let selection = one(r#""deviceID":"0000:18:02.5""#);
    assert!(selection.capabilities().is_empty());
    assert_eq!(runtime_config(&selection), r#"{"deviceID":"0000:18:02.5"}"#);
    refuse_all(&[(r#""deviceID":"a b""#, "deviceID: expected a device's name")]);
}

#[test]
fn multus_default_network_is_exactly_one() {
    assert_eq!(default_network("net@eth0", "kube-system").unwrap().to_string(), "kube-system/net@eth0");
    for (bad, found) in [("", 0), ("[]", 0), ("a,b", 2), ("a,b,c", 3)] {
        let e = default_network(bad, "kube-system").unwrap_err();
        assert_eq!(e.errors[0].problem, Problem::NotOne(found), "{bad}");
        assert!(e.to_string().starts_with("annotation v1.multus-cni.io/default-network: expected exactly one network"), "{e}");
    }
    assert!(default_network("A", "kube-system").unwrap_err().to_string().contains("element 1 (A), name"));
}

#[test]
fn every_violation_is_told() {
    let e = parse(r#"[{"ips":[],"mac":"x","interface":"a b","bandwidth":{"ingressBurst":1}},7,{"name":"A","ip":1}]"#, "pods").unwrap_err();
    let keys: Vec<String> = e.errors.iter().map(|e| e.place.to_string()).collect();
    assert_eq!(
        keys,
        [
            "element 2",
            "element 1, name",
            "element 1, ips",
            "element 1, mac",
            "element 1, interface",
            "element 1, bandwidth.ingressBurst",
            "element 3 (A), ip",
            "element 3 (A), name"
        ]
    );
}

#[test]
fn hostile_sizes_are_refused_quickly() {
    let began = std::time::Instant::now();
    let many = |element: &str, n: usize| format!("[{}]", vec![element; n].join(","));
    assert_eq!(all(&many(r#"{"name":"a"}"#, 64)).len(), 64);
    assert!(refused(&many(r#"{"name":"a"}"#, 65)).contains("65 elements are too many: at most 64"));
    assert!(refused(&",".repeat(1000)).contains("1001 elements are too many"));
    assert!(refused(&"a".repeat(MAX_ANNOTATION + 1)).contains("bytes are too many"));
    assert!(refused(&"[".repeat(MAX_ANNOTATION)).contains("262145 values are too many: at most 4096"));
    assert!(refused(&format!(r#"[{{"name":"a","cni-args":{{"x":[{}0]}}}}]"#, "0,".repeat(4096))).contains("values are too many"));
    assert!(refused(&"[".repeat(4000)).contains("not valid JSON"));
    assert!(refused(&"a".repeat(MAX_ANNOTATION)).len() < 300);
    let keys: Vec<String> = (0..4000).map(|i| format!(r#""k{i}":1"#)).collect();
    let e = parse(&format!("[{{{}}}]", keys.join(",")), "pods").unwrap_err();
    assert_eq!((e.errors.len(), e.more), (crate::SelectionErrors::MAX, 4001 - 100));
    assert!(e.to_string().ends_with("; and 3901 more"));
    let ips = vec![r#""10.0.0.1""#; 65].join(",");
    assert!(refused(&format!(r#"[{{"name":"a","ips":[{ips}]}}]"#)).contains("65 addresses are too many"));
    assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
}

/// Knuth's MMIX generator: the same sequence in every run.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

const VALID: &[&str] = &[
    "net1, infra/net2@eth7,c",
    r#"[{"name":"net1","namespace":"infra","ips":["10.1.1.5/24","2001:db8::5"],"mac":"02:00:00:12:34:56","interface":"eth7"}]"#,
    r#"[{"name":"a","cni-args":{"x":[1,{"y":null}]},"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"UDP","hostIP":"::1"}]},
        {"name":"b","bandwidth":{"ingressRate":1000,"ingressBurst":1},"default-route":["10.1.1.1"],"example.org/k":1}]"#,
    r#"[{"name":"a","infiniband-guid":"c2:11:22:33:44:55:66:77","ipam-claim-reference":"a.b","deviceID":"0000:18:02.5"}]"#,
];

fn mutated(text: &str, random: &mut Lcg) -> String {
    const PIECES: &[&str] =
        &["", "[", "]", "{", "}", "\"", ",", ":", "@", "/", "null", "0", "-1", "1e999", "ä", "\u{0}", "\\u0000", " ", "ips", "."];
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..=random.below(4) {
        let from = random.below(chars.len() + 1);
        let to = (from + random.below(4)).min(chars.len());
        let piece = PIECES[random.below(PIECES.len())].chars();
        chars.splice(from..to, piece);
    }
    chars.into_iter().collect()
}

#[test]
fn no_input_reaches_a_panic_and_what_is_accepted_keeps_the_rules() {
    let mut random = Lcg(7);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..5_000 {
        let text = mutated(VALID[random.below(VALID.len())], &mut random);
        match parse(&text, "pods") {
            Err(e) => {
                refused += 1;
                assert!(!e.errors.is_empty() && !e.to_string().is_empty());
            }
            Ok(selections) => {
                accepted += 1;
                selections.iter().for_each(|s| holds(s, &text));
                let shown: Vec<String> = selections.iter().map(ToString::to_string).collect();
                // An interface name may hold what the comma form cannot carry.
                if shown.iter().any(|s| s.contains(['[', '{', '"', ',']) || s.matches(['@', '/']).count() > 2) {
                    continue;
                }
                let again = all(&shown.join(","));
                assert!(again.iter().zip(&selections).all(|(a, b)| a.definition == b.definition && a.interface == b.interface), "{text}");
            }
        }
        let _ = default_network(&text, "pods");
        let _ = crate::parse_status(&text);
        let config =
            Definition { namespace: "a".to_owned(), name: "b".to_owned(), config: Some(text), resource_name: None, is_neutron: false };
        let _ = config.network();
    }
    assert!(accepted > 200 && refused > 200, "{accepted} {refused}");
}

fn holds(selection: &Selection, text: &str) {
    assert!(DefinitionRef::new(&selection.definition.namespace, &selection.definition.name).is_ok(), "{text}");
    assert!(selection.mac.as_ref().is_none_or(|mac| matches!(mac.as_bytes().len(), 6 | 20)), "{text}");
    assert!(selection.infiniband_guid.as_ref().is_none_or(|guid| guid.as_bytes().len() == 8), "{text}");
    assert!(selection.ipam_claim.is_none() || selection.ips.is_empty(), "{text}");
    assert!(selection.port_mappings.iter().all(|p| p.host_port > 0 && p.container_port > 0), "{text}");
    assert!(selection.extensions.iter().all(|(key, _)| key.contains('.')), "{text}");
    // What is sent to the plugins reads back as what was requested.
    let sent = selection.runtime_config();
    let ips = sent.get("ips").and_then(Value::as_array).unwrap_or_default();
    assert_eq!(ips.len(), selection.ips.len(), "{text}");
    let demanded = sent.iter().filter(|(key, _)| !["deviceID", "ipam-claim-reference"].contains(key)).count();
    assert_eq!(demanded, selection.capabilities().len(), "{text}");
}
