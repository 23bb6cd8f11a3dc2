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
fn what_is_not_offered_is_refused_by_its_name() {
    for (from, to, words) in [
        ("multiVifDrivers: [npwg_multiple_interfaces]", "multiVifDrivers: [noop]", "multi_vif_drivers must be npwg_multiple_interfaces"),
        ("[npwg_multiple_interfaces]", "[npwg_multiple_interfaces], podVifDriver: nested-vlan", "pod_vif_driver: only neutron-vif"),
        ("[npwg_multiple_interfaces]", "[npwg_multiple_interfaces], vifPoolDriver: neutron", "pools of ready ports are not supported"),
        ("[npwg_multiple_interfaces]", "[npwg_multiple_interfaces], podSubnetsDriver: namespace", "pod_subnets_driver: only default"),
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
    assert_eq!(permits("a", "team-x"), ["team: s-1/*"]);
    assert_eq!(permits("strict", "team-x"), ["team: s-1/*", "strict: /"]);
    assert!(read(&format!("{GOOD}policy: [{{name: x, allow: {{neutron: {{ports: [p]}}}}}}]\n"), None).unwrap_err().contains("ports"));
}
