use super::*;
use crate::{StatusError, parse_status};

fn result(text: &str) -> AddResult {
    AddResult::parse(text.as_bytes(), cni::Version::V1_0_0).unwrap().0
}

fn entry(text: &str, default: bool) -> NetworkStatus {
    NetworkStatus::from_result("default/net", &result(text), &IfName::parse("net1").unwrap(), default, StatusIps::Bare)
}

/// What the reference `bridge` returns: two interfaces of the host, one inside.
const BRIDGE: &str = r#"{"cniVersion":"1.1.0",
    "interfaces":[{"name":"br0","mac":"0a:00:00:00:00:01"},{"name":"veth1","mac":"0a:00:00:00:00:02"},
                  {"name":"net1","mac":"0a:00:00:00:00:03","mtu":1450,"sandbox":"/var/run/netns/x"}],
    "ips":[{"interface":2,"address":"10.1.0.5/24","gateway":"10.1.0.1"},{"interface":2,"address":"2001:db8::5/64"}],
    "routes":[{"dst":"0.0.0.0/0"},{"dst":"10.9.0.0/16","gw":"10.1.0.9"},{"dst":"::/0","gw":"fe80::1"}],
    "dns":{"nameservers":["10.1.0.53"],"search":["a.example"]}}"#;

#[test]
fn s32_the_value_is_a_list_of_maps_as_multus_writes_it() {
    assert_eq!(to_json(&[]), "[]");
    let two = [entry("{}", true), entry("{}", false)];
    let one = "{\n    \"name\": \"default/net\",\n    \"default\": true,\n    \"dns\": {}\n}";
    assert_eq!(to_json(&two), format!("[{one},{}]", one.replace("true", "false")));
}

#[test]
fn s33_routes_are_of_use_only_inside_the_pod() {
    let told = to_json(&[entry(BRIDGE, true)]);
    assert!(told.contains("10.1.0.5") && !told.contains("10.9.0.0") && !told.contains("10.1.0.9"), "{told}");
}

#[test]
fn s34_the_first_interface_inside_the_pod() {
    let status = entry(BRIDGE, true);
    assert_eq!(
        to_json(std::slice::from_ref(&status)),
        r#"[{
    "name": "default/net",
    "interface": "net1",
    "ips": [
        "10.1.0.5",
        "2001:db8::5"
    ],
    "mac": "0a:00:00:00:00:03",
    "mtu": 1450,
    "default": true,
    "dns": {
        "nameservers": [
            "10.1.0.53"
        ],
        "search": [
            "a.example"
        ]
    },
    "gateway": [
        "10.1.0.1",
        "fe80::1"
    ]
}]"#
    );
}

#[test]
fn s3_s34_a_result_without_anything_gives_the_minimal_entry() {
    let status = entry("{}", false);
    assert_eq!((status.interface, status.ips, status.mac), (None, vec![], None));
}

#[test]
fn s35_s41_default_is_always_present() {
    for default in [true, false] {
        let text = to_json(&[entry(BRIDGE, default)]);
        assert!(text.contains(&format!("\"default\": {default}")), "{text}");
    }
}

#[test]
fn s36_unknown_keys_survive() {
    let text = r#"[{"name":"a","default":true,"dns":{},"infiniband-guid":"c2:11","example.org/x":{"B":[1,null]}}]"#;
    let entries = parse_status(text).unwrap();
    assert_eq!(json::compact(&entries), text);
}

#[test]
fn s38_old_results_show_the_requested_name() {
    let old = r#"{"cniVersion":"0.2.0","ip4":{"ip":"10.1.0.5/24"},"ip6":{"ip":"2001:db8::5/64"}}"#;
    let status = entry(old, false);
    assert_eq!(status.interface.as_deref(), Some("net1"));
    assert_eq!(status.ips, ["10.1.0.5", "2001:db8::5"]);
}

#[test]
fn s39_addresses_belong_to_the_first_interface_inside() {
    let table = [
        ("of another interface inside", r#"[{"name":"a","sandbox":"x"},{"name":"b","sandbox":"x"}]"#, "1", 0),
        ("of an interface of the host", r#"[{"name":"h"},{"name":"a","sandbox":"x"}]"#, "0", 0),
        ("of the first inside", r#"[{"name":"h"},{"name":"a","sandbox":"x"}]"#, "1", 1),
        ("of nobody, one inside", r#"[{"name":"a","sandbox":"x"}]"#, "null", 1),
        ("of nobody, two inside", r#"[{"name":"a","sandbox":"x"},{"name":"b","sandbox":"x"}]"#, "null", 0),
        ("of nobody, only the host's", r#"[{"name":"h"}]"#, "null", 1),
        ("of the host, only the host's", r#"[{"name":"h"}]"#, "0", 0),
        ("a negative index", "[]", "-1", 1),
        ("an index too high", r#"[{"name":"a","sandbox":"x"}]"#, "9223372036854775807", 0),
    ];
    for (what, interfaces, index, expected) in table {
        let text = format!(r#"{{"cniVersion":"1.0.0","interfaces":{interfaces},"ips":[{{"interface":{index},"address":"10.1.0.5/24"}}]}}"#);
        assert_eq!(entry(&text, false).ips.len(), expected, "{what}");
    }
}

#[test]
fn s39_the_prefix_is_shown_if_wanted() {
    let ifname = IfName::parse("net1").unwrap();
    let status = NetworkStatus::from_result("n", &result(BRIDGE), &ifname, false, StatusIps::Cidr);
    assert_eq!(status.ips, ["10.1.0.5/24", "2001:db8::5/64"]);
}

#[test]
fn s40_no_hardware_address_without_an_interface() {
    let status = NetworkStatus { name: "a".to_owned(), mac: Some("0a:00:00:00:00:01".to_owned()), ..NetworkStatus::default() };
    assert!(!to_json(&[status]).contains("mac"));
}

#[test]
fn s42_dns() {
    let status = entry(r#"{"cniVersion":"1.0.0","dns":{"domain":"example","options":["ndots:2"]}}"#, false);
    assert!(json::compact(&status).contains(r#""dns":{"domain":"example","options":["ndots:2"]}"#));
}

#[test]
fn s43_default_route_and_multuss_gateway() {
    let mut status = entry(BRIDGE, false);
    status.default_route = Some(vec!["10.1.0.1".parse().unwrap()]);
    let text = json::compact(&status);
    assert!(text.ends_with(r#""default-route":["10.1.0.1"],"gateway":["10.1.0.1","fe80::1"]}"#), "{text}");
    assert_eq!(parse_status(&format!("[{text}]")).unwrap(), [status]);
}

#[test]
fn s43_the_gateway_is_that_of_the_default_routes() {
    let without_route =
        r#"{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.5/24","gateway":"10.1.0.1"},{"address":"10.2.0.5/24","gateway":"10.2.0.1"}]}"#;
    assert_eq!(entry(without_route, true).gateway, ["10.1.0.1".parse::<IpAddr>().unwrap()]);
    assert!(entry(without_route, false).gateway.is_empty());
    let of_another_table = r#"{"cniVersion":"1.1.0","routes":[{"dst":"0.0.0.0/0","gw":"10.1.0.1","table":77}]}"#;
    assert!(entry(of_another_table, false).gateway.is_empty(), "most packets never see that route");
    // A route on the link has no next hop at all: nothing is shown, where Multus shows "<nil>".
    assert!(entry(r#"{"cniVersion":"1.0.0","routes":[{"dst":"0.0.0.0/0"}]}"#, true).gateway.is_empty());
}

#[test]
fn s44_device_information_is_read_and_printed_as_it_came() {
    let text = r#"[{"name":"a","default":false,"dns":{},"device-info":{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:18:02.5","x":[null]}}}]"#;
    let entries = parse_status(text).unwrap();
    assert!(matches!(entries[0].device_info.as_ref().and_then(DeviceInfo::device), Some(crate::Device::Pci(_))));
    assert_eq!(json::compact(&entries), text);
    assert!(!json::compact(&entry(BRIDGE, false)).contains("device-info"));
}

#[test]
fn reads_what_multus_writes() {
    let text = r#"[{
    "name": "cbr0",
    "interface": "eth0",
    "ips": ["10.244.1.73"],
    "mac": "76:4b:6a:d4:1c:6e",
    "default": true,
    "dns": {},
    "gateway": ["<nil>", "10.244.1.1"]
},{
    "name": "default/macvlan-conf",
    "interface": "net1",
    "ips": ["192.168.1.205/24"],
    "dns": {}
}]"#;
    let entries = parse_status(text).unwrap();
    assert!(entries[0].default && !entries[1].default);
    assert_eq!(entries[0].gateway, ["10.244.1.1".parse::<IpAddr>().unwrap()]);
    assert_eq!(entries[1].ips, ["192.168.1.205/24"]);
    assert_eq!(parse_status(&to_json(&entries)).unwrap(), entries);
    assert_eq!(parse_status(" "), Ok(vec![]));
}

#[test]
fn a_bad_status_names_the_entry() {
    for (bad, words) in [
        ("{}", "expected a list of objects, found an object"),
        ("[", "not valid JSON"),
        ("[7]", "entry 1: expected an object, found a number"),
        (r#"[{"name":"a"},{"name":"b","ips":"10.0.0.1"}]"#, "entry 2: ips: "),
        (r#"[{"default":true}]"#, r#"entry 1: missing: "name""#),
        (r#"[{"name":"a","gateway":["x"]}]"#, r#"entry 1: gateway: "x" is not an IP address"#),
        (r#"[{"name":"a","device-info":{"version":"1.1.0"}}]"#, "entry 1: device information: type: missing"),
    ] {
        let e = parse_status(bad).unwrap_err().to_string();
        assert!(e.starts_with("annotation k8s.v1.cni.cncf.io/network-status: ") && e.contains(words), "{bad}: {e}");
    }
    assert!(matches!(parse_status(&" ".repeat(MAX_LEN + 1)), Err(StatusError::TooLong(_))));
}

const MAX_LEN: usize = crate::MAX_ANNOTATION;
