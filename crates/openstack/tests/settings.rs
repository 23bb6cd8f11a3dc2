//! kuryr.conf, our own file and clouds.yaml: what they mean, what is noted, what is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use netloom_openstack::{Auth, Domain, Interface, OPTIONS, PoolDriver, Project, Scope, Settings, User, VifDriver, WrittenOptions, clouds};
use secrecy::ExposeSecret;

/// As an installation of Kuryr has it, comments of the generated sample left out.
const KURYR_CONF: &str = r#"
[DEFAULT]
debug = true
use_stderr = true
[kubernetes]
api_root = https://10.0.0.1:6443
enabled_vif_drivers = npwg_multiple_interfaces
pod_vif_driver = neutron-vif
vif_pool_driver=neutron
port_debug = True
pod_vif_drivr = typo
[neutron]
auth_type = password
auth_url = http://10.0.0.1/identity
username = kuryr
password = pa$$w\$rd#1 # not a comment
user_domain_name = Default
project_name = k8s
project_domain_name = ${user_domain_name}
endpoint_type = internal
region_name = RegionOne
cafile = /etc/ssl/own.pem
[neutron_defaults]
project = 0123456789abcdef0123456789abcdef
pod_subnet = $other.subnet
pod_security_groups = sg-1,
    sg-2
ovs_bridge: br-int
subnet_mapping = nested-vlan:s-1,nested-macvlan:s-2
resource_tags =
service_subnet = s-9
[vif_pool]
ports_pool_min = 3
ports_pool_update_frequency = 20
vif_pool_mapping = nested-vlan:nested,neutron-vif:neutron
[binding]
driver = kuryr.lib.binding.drivers.vlan
"#;

const YAML: &str = "
kubernetes: {multiVifDrivers: [npwg_multiple_interfaces], vifPoolDriver: neutron, portDebug: true}
neutron:
  authType: password
  authUrl: http://10.0.0.1/identity
  username: kuryr
  password: 'pa$w$rd#1 # not a comment'
  userDomainName: Default
  projectName: k8s
  projectDomainName: Default
  endpointType: internal
  regionName: RegionOne
  cafile: /etc/ssl/own.pem
neutronDefaults:
  project: 0123456789abcdef0123456789abcdef
  podSubnet: $other.subnet
  podSecurityGroups: [sg-1, sg-2]
  ovsBridge: br-int
  subnetMapping: {nested-vlan: s-1, nested-macvlan: s-2}
vifPool: {portsPoolMin: 3, vifPoolMapping: {nested-vlan: nested, neutron-vif: neutron}}
";

fn settings(given: &WrittenOptions) -> Settings {
    Settings::check(given).unwrap()
}

fn problems(conf: &str) -> Vec<String> {
    let given = WrittenOptions::kuryr_conf(conf).unwrap();
    Settings::check(&given).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn a_kuryr_conf_means_what_it_says() {
    let settings = settings(&WrittenOptions::kuryr_conf(KURYR_CONF).unwrap());
    assert!(settings.selections && settings.port_names && settings.namespace_subnets.is_none());
    assert_eq!((settings.vif_driver, settings.pool_driver), (VifDriver::NeutronVif, PoolDriver::Neutron));
    assert_eq!(settings.security_groups, ["sg-1", "sg-2"]);
    assert_eq!((settings.ovs_bridge.as_deref(), settings.max_mtu, settings.tags.len()), (Some("br-int"), None, 0));
    assert_eq!(settings.subnet_of_driver[&VifDriver::NestedMacvlan], "s-2");
    let pool = &settings.pool;
    assert_eq!((pool.max, pool.min, pool.batch), (0, 3, 10));
    assert_eq!(pool.of_driver[&VifDriver::NestedVlan], PoolDriver::Nested);
    assert_eq!(settings.interface_prefix, "eth");

    let cloud = &settings.cloud;
    assert_eq!((cloud.auth_url.as_str(), cloud.region.as_deref()), ("http://10.0.0.1/identity", Some("RegionOne")));
    assert_eq!(cloud.interfaces, [Interface::Internal]);
    assert_eq!(cloud.tls.ca.as_deref(), Some("/etc/ssl/own.pem".as_ref()));
    let Auth::Password { user, password, scope } = &cloud.auth else { panic!("{:?}", cloud.auth) };
    assert_eq!(user, &User::Name("kuryr".to_owned(), Domain::Name("Default".to_owned())));
    assert_eq!(password.expose_secret(), "pa$w$rd#1 # not a comment");
    assert_eq!(scope, &Scope::Project(Project::Name("k8s".to_owned(), Domain::Name("Default".to_owned()))));
}

#[test]
fn our_own_file_says_the_same() {
    let (conf, yaml) = (WrittenOptions::kuryr_conf(KURYR_CONF).unwrap(), WrittenOptions::yaml(YAML).unwrap());
    assert_eq!(format!("{:?}", settings(&conf)), format!("{:?}", settings(&yaml)));
    assert!(yaml.notes().is_empty());
}

#[test]
fn what_has_no_effect_is_noted_with_its_line() {
    let notes: Vec<String> = WrittenOptions::kuryr_conf(KURYR_CONF).unwrap().notes().iter().map(ToString::to_string).collect();
    let wanted = [
        "line 3: [DEFAULT] debug has no effect: the operator's own --log-level says what is logged",
        "line 4: [DEFAULT] use_stderr has no effect: the operator's own --log-level says what is logged",
        "line 6: [kubernetes] api_root has no effect: the operator's own --kubeconfig, or its service account, says how the API server is reached",
        "line 7: [kubernetes] enabled_vif_drivers has the name multi_vif_drivers now",
        "line 11: [kubernetes] pod_vif_drivr is not an option of Kuryr: check its name and section",
        "line 25: [neutron_defaults] pod_subnet has a $ with a name behind it that is no option of this file: write $$ for a plain $",
        "line 31: [neutron_defaults] service_subnet is not supported: Services and load balancers are left to kube-proxy and cloud-provider-openstack",
        "line 34: [vif_pool] ports_pool_update_frequency has no effect: a port that a pod leaves is ready at once",
        "line 37: [binding] driver has the name default_driver now",
        "line 37: [binding] driver has no effect: the node's agent has its own settings",
    ];
    assert_eq!(notes, wanted);
}

#[test]
fn nothing_secret_is_shown() {
    let given = WrittenOptions::kuryr_conf(KURYR_CONF).unwrap();
    for shown in [format!("{given:?}"), format!("{:?}", settings(&given))] {
        assert!(!shown.contains("rd#1") && shown.contains("kuryr"), "{shown}");
    }
}

#[test]
fn every_problem_is_told_at_once() {
    let conf = "[kubernetes]\npod_vif_driver = sriov\npod_security_groups_driver = policy\nmulti_vif_drivers = noop,npwg\n\
                [neutron_defaults]\nnetwork_device_mtu = 99999\nsubnet_mapping = macvlan:s\n[vif_pool]\nvif_pool_mapping = nested-vlan:x\n\
                [neutron]\nusername = u\n";
    let drivers = "neutron-vif, nested-vlan, nested-macvlan or nested-dpdk";
    let wanted = [
        "[neutron]: user_domain_name is missing: auth_type password needs it".to_owned(),
        "[neutron_defaults] project is missing: without it no port can be made".to_owned(),
        format!("line 2: [kubernetes] pod_vif_driver = sriov: use {drivers}"),
        "line 3: [kubernetes] pod_security_groups_driver = policy: use default (NetworkPolicies are not enforced by security groups)"
            .to_owned(),
        "line 4: [kubernetes] multi_vif_drivers = npwg: use noop or npwg_multiple_interfaces".to_owned(),
        format!("line 7: [neutron_defaults] subnet_mapping = macvlan: use {drivers}"),
        "line 6: [neutron_defaults] network_device_mtu must be at most 65535".to_owned(),
        "line 9: [vif_pool] vif_pool_mapping = x: use noop, neutron or nested".to_owned(),
    ];
    assert_eq!(problems(conf), wanted);
    let shape = |conf: &str| WrittenOptions::kuryr_conf(conf).unwrap_err().to_string();
    assert_eq!(shape("[kubernetes]\nport_debug = maybe"), "line 2: [kubernetes] port_debug must be true or false");
    assert_eq!(shape("[vif_pool]\nports_pool_min = -1"), "line 2: [vif_pool] ports_pool_min must be a whole number, 0 or more");
    assert_eq!(shape("[vif_pool]\nvif_pool_mapping = a"), "line 2: [vif_pool] vif_pool_mapping must be pairs of a key and a value");
    assert_eq!(shape("a = b"), "line 1: an option must stand in a section: write [DEFAULT] or its section above it");
}

#[test]
fn our_own_file_has_no_key_without_an_effect() {
    let refused = |text: &str| WrittenOptions::yaml(text).unwrap_err().to_string();
    assert_eq!(refused("neutronDefault: {}"), "line 1: neutronDefault is not a setting");
    assert_eq!(refused("neutronDefaults:\n  podSubnets: x"), "line 2: neutronDefaults.podSubnets is not a setting");
    let logs = "line 2: DEFAULT.debug is not a setting; the operator's own --log-level says what is logged";
    assert_eq!(refused("DEFAULT:\n  debug: true"), logs);
    assert_eq!(refused("kubernetes: {portDebug: 'yes'}"), "line 1: [kubernetes] port_debug must be true or false");
    assert_eq!(refused("[1]"), "must be an object of sections");
}

/// Two options of one section and name would hide one another.
#[test]
fn every_option_is_in_the_table_once() {
    for (i, option) in OPTIONS.iter().enumerate() {
        let same = |other: &netloom_openstack::ConfOption| {
            other.section == option.section && (other.name == option.name || other.before == Some(option.name))
        };
        assert!(!OPTIONS[i + 1..].iter().any(same), "{option}");
    }
}

const CLOUDS: &str = "
clouds:
  dev:
    auth: {auth_url: 'https://keystone.example:5000/v3', username: u, user_domain_name: Default, project_id: p-1, password: shown}
    region_name: R1
    interface: internal
    cacert: /ca.pem
    verify: false
  robot:
    auth_type: v3applicationcredential
    auth: {auth_url: 'https://k', application_credential_id: id-1}
  Dev:
    profile: vexxhost
  bare: {auth_type: none, network_endpoint_override: 'http://127.0.0.1:9696'}
";

#[test]
fn a_cloud_is_read_by_its_name_and_its_secrets_beside_it() {
    let cloud = clouds("dev", CLOUDS, Some("clouds: {dev: {auth: {password: hidden}}}")).unwrap();
    let Auth::Password { password, scope, .. } = &cloud.auth else { panic!("{cloud:?}") };
    assert_eq!((password.expose_secret(), scope), ("hidden", &Scope::Project(Project::Id("p-1".to_owned()))));
    assert_eq!((cloud.interfaces.as_slice(), cloud.tls.insecure), (&[Interface::Internal][..], true));
    let robot = clouds("robot", CLOUDS, Some("clouds: {robot: {auth: {application_credential_secret: s}}}")).unwrap();
    assert!(matches!(&robot.auth, Auth::ApplicationCredential { user: None, id, .. } if id == "id-1"));
    let bare = clouds("bare", CLOUDS, None).unwrap();
    assert_eq!((bare.endpoint.as_deref(), bare.auth_url.as_str()), (Some("http://127.0.0.1:9696"), ""));

    let refused = |name: &str| clouds(name, CLOUDS, None).unwrap_err().to_string();
    assert_eq!(refused("x"), "clouds.yaml has no cloud \"x\"; it has dev, robot, Dev, bare");
    assert!(refused("Dev").starts_with("the cloud \"Dev\" has a profile (vexxhost), which is not supported"));
    let secret = "the cloud \"robot\": application_credential_secret is missing: auth_type v3applicationcredential needs it";
    assert_eq!(refused("robot"), secret);
    assert_eq!(clouds("a", "[]", None).unwrap_err().to_string(), "clouds.yaml: must be an object, but is a list");
}
