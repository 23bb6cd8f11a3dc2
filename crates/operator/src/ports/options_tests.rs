//! What a person may write, and what is wrong with it.

use super::*;

const GOOD: &str = "cluster: prod
openstack:
  kubernetes: {multiVifDrivers: [npwg_multiple_interfaces]}
  neutron: {authType: none, endpointOverride: 'http://127.0.0.1:9696'}
  neutronDefaults: {project: p, podSubnet: s-0, podSecurityGroups: [g-0]}
";

fn read(text: &str, cluster: Option<&str>) -> Result<OpenStack, String> {
    let dir = std::env::temp_dir().join(format!("netloom-openstack-{}-{:?}", std::process::id(), std::thread::current().id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("openstack.yaml");
    std::fs::write(&file, text).unwrap();
    let read = OpenStack::read(Some(&file), None, cluster).map_err(|e| e.to_string());
    std::fs::remove_dir_all(&dir).unwrap();
    read
}

#[test]
fn settings_are_read_and_a_flag_names_the_cluster() {
    let read = |cluster| read(GOOD, cluster).unwrap();
    assert_eq!((read(None).cluster.to_string(), read(Some("other")).cluster.to_string()), ("prod".to_owned(), "other".to_owned()));
}

#[test]
fn the_default_network_may_be_a_port_with_or_without_selections() {
    let of = |text: &str| read(text, None).map(|options| (options.default_network, options.settings.selections));
    assert_eq!(of(GOOD), Ok((false, true)));
    assert_eq!(of(&format!("{GOOD}defaultNetwork: port\n")), Ok((true, true)));
    let without = GOOD.replace("  kubernetes: {multiVifDrivers: [npwg_multiple_interfaces]}\n", "");
    assert_eq!(of(&format!("{without}defaultNetwork: port\n")), Ok((true, false)));
}

#[test]
fn a_namespace_has_so_many_ports_where_nothing_else_is_written() {
    let of = |more: &str| read(&format!("{GOOD}{more}"), None).unwrap().ports_per_namespace;
    assert_eq!((of(""), of("portsPerNamespace: 7\n"), of("portsPerNamespace: 0\n")), (Some(1000), Some(7), None));
    assert!(read(&format!("{GOOD}portsPerNamespace: -1\n"), None).is_err());
}

#[test]
fn each_driver_of_pools_has_ports_of_its_own() {
    let of = |kubernetes: &str, pool: &str| {
        let text = GOOD.replacen("[npwg_multiple_interfaces]", &format!("[npwg_multiple_interfaces], {kubernetes}"), 1);
        let options = read(&text.replacen("[g-0]}", &format!("[g-0]}}\n  vifPool: {{portsPoolMin: 2{pool}}}"), 1), None).unwrap();
        (options.pool.map(|size| size.min), options.nested_pool.map(|size| size.min))
    };
    assert_eq!(of("vifPoolDriver: noop", ""), (None, None));
    assert_eq!(of("vifPoolDriver: neutron", ""), (Some(2), None));
    assert_eq!(of("vifPoolDriver: nested", ""), (None, Some(2)));
    assert_eq!(of("vifPoolDriver: noop", ", vifPoolMapping: {neutron-vif: neutron, nested-vlan: nested}"), (Some(2), Some(2)));
    assert_eq!(of("vifPoolDriver: nested", ", vifPoolMapping: {nested-vlan: noop}"), (None, None));
}

#[test]
fn what_is_not_offered_is_refused_by_its_name() {
    for (from, to, words) in [
        ("multiVifDrivers: [npwg_multiple_interfaces]", "multiVifDrivers: [noop]", "multi_vif_drivers must be npwg_multiple_interfaces"),
        ("cluster: prod", "cluster: prod\ndefaultNetwork: bridge", "unknown variant `bridge`, expected `none` or `port`"),
        (
            "cluster: prod\nopenstack:\n  kubernetes: {multiVifDrivers: [npwg_multiple_interfaces]}",
            "cluster: prod\ndefaultNetwork: none\nopenstack:",
            "must be npwg",
        ),
        (
            "podSubnet: s-0, podSecurityGroups: [g-0]}",
            "podSecurityGroups: [g-0]}\ndefaultNetwork: port",
            "set [neutron_defaults] pod_subnet",
        ),
        ("[npwg_multiple_interfaces]", "[npwg_multiple_interfaces], podVifDriver: nested-dpdk", "nested-dpdk is not supported"),
        ("[npwg_multiple_interfaces]", "[npwg_multiple_interfaces], podVifDriver: nested-vlan", "worker_nodes_subnets is missing"),
        ("[g-0]}", "[g-0]}\n  vifPool: {vifPoolMapping: {nested-vlan: neutron}}", "those of driver nested of nested-vlan ports"),
        ("[g-0]}", "[g-0]}\n  vifPool: {vifPoolMapping: {nested-macvlan: nested}}", "use noop for others"),
        (
            "[npwg_multiple_interfaces]}",
            "[npwg_multiple_interfaces], podSubnetsDriver: namespace}\n  namespaceSubnet: {podSubnetPool: pool, podRouter: router}",
            "pod_subnets_driver: namespace is of default networks",
        ),
        ("project: p, ", "", "[neutron_defaults] project is missing"),
        ("cluster: prod", "cluster: 'a b'", "is not a valid cluster name"),
        ("cluster: prod\n", "", "the cluster has no name"),
        ("cluster: prod", "clusterName: prod", "clusterName"),
        ("openstack:", "openstack: {}\npolicy:", "openstack.yaml"),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD);
        let refused = read(&text, None).unwrap_err();
        assert!(refused.contains(words), "{to}: {refused}");
    }
}

#[test]
fn each_rule_that_concerns_a_definition_must_allow_what_it_names() {
    let rules = "policy:
- {name: team, definitionNamespaces: ['team-*'], allow: {neutron: {subnets: [s-1], networks: ['*']}}}
- {name: strict, podNamespaces: [strict], allow: {neutron: {subnets: []}}}
";
    let options = read(&format!("{GOOD}{rules}"), None).unwrap();
    let permits = |pod: &str, of: &str| {
        let all = options.permits(pod, &DefinitionRef { namespace: of.to_owned(), name: "x".to_owned() });
        all.into_iter()
            .map(|permit| format!("{}: {}/{}", permit.rule, permit.subnets.join(","), permit.networks.join(",")))
            .collect::<Vec<_>>()
    };
    assert_eq!(permits("a", "a"), ["default: s-0/"]);
    assert_eq!(permits("team-x", "team-x"), ["team: s-1/*"]);
    assert_eq!(permits("a", "team-x"), ["default: s-0/"], "pods of other namespaces have no part in the team's subnet");
    assert_eq!(permits("team-y", "team-x"), ["default: s-0/"]);
    assert_eq!(permits("strict", "team-x"), ["strict: /"]);
    let rules = rules.replacen("allow", "podNamespaces: ['a', 'strict'], allow", 1);
    let options = read(&format!("{GOOD}{rules}"), None).unwrap();
    let of = |pod: &str| options.permits(pod, &DefinitionRef { namespace: "team-x".to_owned(), name: "x".to_owned() });
    let names = |pod: &str| of(pod).into_iter().map(|permit| permit.rule).collect::<Vec<_>>();
    assert_eq!(
        (names("a"), names("strict"), names("team-x")),
        (vec!["team".to_owned()], vec!["team".to_owned(), "strict".to_owned()], vec!["default".to_owned()])
    );
    let outside = |rules: &str| {
        let options = read(&format!("{GOOD}{rules}"), None).unwrap();
        let permits = options.permits("a", &DefinitionRef { namespace: "a".to_owned(), name: "x".to_owned() });
        permits.iter().map(|permit| permit.outside_allocation_pools).collect::<Vec<_>>()
    };
    let rule = "policy: [{name: first, allow: {neutron: {outsideAllocationPools: true}}}, {name: second, allow: {neutron: {}}}]\n";
    assert_eq!((outside(""), outside(rule)), (vec![false], vec![true, false]));
    let drivers = |text: &str| {
        let permits = read(text, None).unwrap().permits("a", &DefinitionRef { namespace: "a".to_owned(), name: "x".to_owned() });
        permits.into_iter().map(|permit| permit.drivers.join(",")).collect::<Vec<_>>()
    };
    let rule = "policy: [{name: first, allow: {neutron: {drivers: [nested-vlan]}}}, {name: second, allow: {neutron: {}}}]\n";
    assert_eq!(
        (drivers(GOOD), drivers(&format!("{GOOD}{rule}"))),
        (vec!["neutron-vif".to_owned()], vec!["nested-vlan".to_owned(), "neutron-vif".to_owned()])
    );
    let ports = |text: &str| {
        let permits = read(text, None).unwrap().permits("a", &DefinitionRef { namespace: "a".to_owned(), name: "x".to_owned() });
        permits.into_iter().map(|permit| format!("{} {}", permit.ports.join(","), permit.vnic_types.join(","))).collect::<Vec<_>>()
    };
    let rule = "policy: [{name: first, allow: {neutron: {ports: [p], vnicTypes: [direct]}}}, {name: second, allow: {neutron: {}}}]\n";
    assert_eq!(
        (ports(GOOD), ports(&format!("{GOOD}{rule}"))),
        (vec![" normal".to_owned()], vec!["p direct".to_owned(), " normal".to_owned()])
    );
    assert!(read(&format!("{GOOD}policy: [{{name: x, allow: {{neutron: {{routers: [p]}}}}}}]\n"), None).unwrap_err().contains("routers"));
}
