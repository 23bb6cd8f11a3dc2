//! Every option of kuryr.conf, in one table: its place, its shape, and what it does here.
//!
//! The options are those of Kuryr-Kubernetes 10.0.0, kuryr-lib 3.5.0 and keystoneauth, with the names that they had before.

use std::fmt;

/// An option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfOption {
    /// Its section.
    pub section: &'static str,
    /// Its name.
    pub name: &'static str,
    /// A name that it had before.
    pub before: Option<&'static str>,
    /// What its value is.
    pub shape: Shape,
    /// What it does here.
    pub effect: Effect,
}

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A text.
    Text,
    /// A whole number, 0 or more.
    Number,
    /// `true`, `yes`, `on`, `1`, or their opposites.
    Flag,
    /// `a,b,c`.
    List,
    /// `key:value,key:value`.
    Map,
}

/// What an option does here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The same as in Kuryr.
    Same,
    /// The same as in Kuryr, and must not be shown.
    Secret,
    /// Nothing: something else does it, as the text says.
    None(&'static str),
    /// Nothing: what it asks for is not offered.
    NotOffered(&'static str),
}

use Effect::{None as Nothing, NotOffered, Same, Secret};
use Shape::{Flag, List, Map, Number, Text};

const SERVICES: &str = "Services and load balancers are left to kube-proxy and cloud-provider-openstack";
const KUBERNETES: &str = "the operator's own --kubeconfig, or its service account, says how the API server is reached";
const WATCHES: &str = "watches are kept and repeated by themselves";
const SUBNETS: &str = "subnets are made for namespaces alone, with ranges of [namespace_subnet] pod_subnet_pool, and without DHCP";
const NODE: &str = "the node's agent has its own settings";
const CACHES: &str = "networks and subnets are read once and kept as long as a pod uses them";
const LOGS: &str = "the operator's own --log-level says what is logged";
const HEALTH: &str = "the operator's own --health-address serves probes and metrics";

/// All of them.
pub const OPTIONS: &[ConfOption] = &[
    // What pods get.
    option("kubernetes", "multi_vif_drivers", List, Same).formerly("enabled_vif_drivers"),
    option("kubernetes", "pod_vif_driver", Text, Same),
    option("kubernetes", "vif_pool_driver", Text, Same),
    option("kubernetes", "additional_ifname_prefix", Text, Same),
    option("kubernetes", "port_debug", Flag, Same),
    option("kubernetes", "pod_project_driver", Text, Same),
    option("kubernetes", "pod_subnets_driver", Text, Same),
    option("kubernetes", "pod_security_groups_driver", Text, Same),
    option("kubernetes", "nodes_subnets_driver", Text, Same),
    option("kubernetes", "use_events", Flag, Nothing("Events are always written where a pod does not get its ports")),
    option("neutron_defaults", "project", Text, Same),
    option("neutron_defaults", "pod_subnet", Text, Same),
    option("neutron_defaults", "pod_security_groups", List, Same),
    option("neutron_defaults", "ovs_bridge", Text, Same),
    option("neutron_defaults", "network_device_mtu", Number, Same),
    option("neutron_defaults", "subnet_mapping", Map, Same),
    option("neutron_defaults", "resource_tags", List, Same),
    option("vif_pool", "ports_pool_max", Number, Same),
    option("vif_pool", "ports_pool_min", Number, Same),
    option("vif_pool", "ports_pool_batch", Number, Same),
    option("vif_pool", "ports_pool_update_frequency", Number, Nothing("a port that a pod leaves is ready at once")),
    option("vif_pool", "vif_pool_mapping", Map, Same),
    option("vif_pool", "pools_vif_drivers", Map, Nothing("write it the other way round, as vif_pool_mapping = VIF-DRIVER:POOL-DRIVER")),
    option("pod_vif_nested", "worker_nodes_subnets", List, Same).formerly("worker_nodes_subnet"),
    option("pod_vif_nested", "rev_update_attempts", Number, Nothing("a change of a node's port is tried until it is done")),
    option("vhostuser", "mount_point", Text, Nothing(NODE)),
    option("vhostuser", "ovs_vhu_path", Text, Nothing(NODE)),
    option("namespace_subnet", "pod_router", Text, Same),
    option("namespace_subnet", "pod_subnet_pool", Text, Same),
    // Which OpenStack.
    option("neutron", "auth_type", Text, Same).formerly("auth_plugin"),
    option("neutron", "auth_url", Text, Same),
    option("neutron", "username", Text, Same).formerly("user_name"),
    option("neutron", "user_id", Text, Same),
    option("neutron", "password", Text, Secret),
    option("neutron", "user_domain_id", Text, Same),
    option("neutron", "user_domain_name", Text, Same),
    option("neutron", "project_id", Text, Same).formerly("tenant_id"),
    option("neutron", "project_name", Text, Same).formerly("tenant_name"),
    option("neutron", "project_domain_id", Text, Same),
    option("neutron", "project_domain_name", Text, Same),
    option("neutron", "domain_id", Text, Same),
    option("neutron", "domain_name", Text, Same),
    option("neutron", "default_domain_id", Text, Same),
    option("neutron", "default_domain_name", Text, Same),
    option("neutron", "system_scope", Text, Same),
    option("neutron", "application_credential_id", Text, Same),
    option("neutron", "application_credential_name", Text, Same),
    option("neutron", "application_credential_secret", Text, Secret),
    option("neutron", "token", Text, Secret),
    option("neutron", "region_name", Text, Same),
    option("neutron", "endpoint_type", Text, Same),
    option("neutron", "valid_interfaces", List, Same),
    option("neutron", "endpoint_override", Text, Same),
    option("neutron", "cafile", Text, Same),
    option("neutron", "certfile", Text, Same),
    option("neutron", "keyfile", Text, Same),
    option("neutron", "insecure", Flag, Same),
    option("neutron", "timeout", Number, Same),
    option("neutron", "auth_section", Text, NotOffered("write the options of that section into [neutron]")),
    option("neutron", "trust_id", Text, NotOffered("use an application credential instead of a trust")),
    option("neutron", "enable_dhcp", Text, Nothing(SUBNETS)),
    option("neutron", "default_subnetpool_v4", Text, Nothing(SUBNETS)),
    option("neutron", "default_subnetpool_v6", Text, Nothing(SUBNETS)),
    option("neutron", "vif_plugging_is_fatal", Flag, Nothing("Kuryr-Kubernetes does not read it either")),
    option("neutron", "vif_plugging_timeout", Number, Nothing("Kuryr-Kubernetes does not read it either")),
    option("neutron", "collect_timing", Flag, Nothing("the operator's metrics have the latency of each request")),
    option("neutron", "split_loggers", Flag, Nothing(LOGS)),
    // What something else does.
    option("kubernetes", "api_root", Text, Nothing(KUBERNETES)),
    option("kubernetes", "token_file", Text, Nothing(KUBERNETES)),
    option("kubernetes", "ssl_client_crt_file", Text, Nothing(KUBERNETES)),
    option("kubernetes", "ssl_client_key_file", Text, Nothing(KUBERNETES)),
    option("kubernetes", "ssl_ca_crt_file", Text, Nothing(KUBERNETES)),
    option("kubernetes", "ssl_verify_server_crt", Flag, Nothing(KUBERNETES)),
    option("kubernetes", "watch_retry_timeout", Number, Nothing(WATCHES)),
    option("kubernetes", "watch_connection_timeout", Number, Nothing(WATCHES)),
    option("kubernetes", "watch_read_timeout", Number, Nothing(WATCHES)),
    option("kubernetes", "watch_reconcile_period", Number, Same),
    option("kubernetes", "controller_ha", Flag, Nothing("operators elect a leader by a Lease")),
    option("kubernetes", "controller_ha_elector_port", Number, Nothing("operators elect a leader by a Lease")),
    option("kubernetes", "enable_manager", Flag, Nothing("pools are read from Neutron at each start")),
    option("pool_manager", "sock_file", Text, Nothing("pools are read from Neutron at each start")),
    option("kubernetes", "enabled_handlers", List, Nothing("the operator handles pods, KuryrPorts and KuryrNetworks, and nothing else")),
    option("kubernetes", "namespace_project_driver", Text, Nothing("the project of a namespace is that of its pods")),
    option("binding", "default_driver", Text, Nothing(NODE)).formerly("driver"),
    option("binding", "enabled_drivers", List, Nothing(NODE)),
    option("binding", "link_iface", Text, Nothing(NODE)),
    option("binding", "veth_dst_prefix", Text, Nothing(NODE)),
    option("cni_daemon", "bind_address", Text, Nothing(NODE)),
    option("cni_daemon", "worker_num", Number, Nothing(NODE)),
    option("cni_daemon", "vif_annotation_timeout", Number, Nothing(NODE)),
    option("cni_daemon", "pyroute2_timeout", Number, Nothing(NODE)),
    option("cni_daemon", "docker_mode", Flag, Nothing(NODE)),
    option("cni_daemon", "netns_proc_dir", Text, Nothing(NODE)),
    option("cni_daemon", "cni_failures_count", Number, Nothing(NODE)),
    option("cni_health_server", "port", Number, Nothing(NODE)),
    option("cni_health_server", "max_memory_usage", Text, Nothing(NODE)),
    option("cni_health_server", "cg_path", Text, Nothing(NODE)),
    option("nested_dpdk", "dpdk_driver", Text, Nothing(NODE)),
    option("nested_dpdk", "pci_mount_point", Text, Nothing(NODE)),
    option("health_server", "port", Number, Nothing(HEALTH)),
    option("prometheus_exporter", "controller_exporter_port", Number, Nothing(HEALTH)),
    option("prometheus_exporter", "cni_exporter_port", Number, Nothing(HEALTH)),
    option("cache_defaults", "enabled", Flag, Nothing(CACHES)),
    option("cache_defaults", "backend", Text, Nothing(CACHES)),
    option("subnet_caching", "caching", Flag, Nothing(CACHES)),
    option("subnet_caching", "cache_time", Number, Nothing(CACHES)),
    option("nodes_caching", "caching", Flag, Nothing(CACHES)),
    option("nodes_caching", "cache_time", Number, Nothing(CACHES)),
    option("node_driver_caching", "caching", Flag, Nothing(CACHES)),
    option("node_driver_caching", "cache_time", Number, Nothing(CACHES)),
    option("DEFAULT", "debug", Flag, Nothing(LOGS)),
    option("DEFAULT", "log_file", Text, Nothing(LOGS)),
    option("DEFAULT", "log_dir", Text, Nothing(LOGS)),
    option("DEFAULT", "use_stderr", Flag, Nothing(LOGS)),
    option("DEFAULT", "use_syslog", Flag, Nothing(LOGS)),
    option("DEFAULT", "use_journal", Flag, Nothing(LOGS)),
    option("DEFAULT", "use_json", Flag, Nothing(LOGS)),
    option("DEFAULT", "default_log_levels", List, Nothing(LOGS)),
    option("DEFAULT", "logging_context_format_string", Text, Nothing(LOGS)),
    option("DEFAULT", "logging_default_format_string", Text, Nothing(LOGS)),
    option("DEFAULT", "bindir", Text, Nothing(NODE)),
    option("DEFAULT", "pybasedir", Text, Nothing(NODE)),
    option("DEFAULT", "deployment_type", Text, Nothing("pod_vif_driver says it")),
    option("DEFAULT", "subnetpool_name_prefix", Text, Nothing(SUBNETS)),
    // What is not offered.
    option("kubernetes", "network_policy_driver", Text, NotOffered("NetworkPolicies are not enforced by security groups")),
    option("kubernetes", "network_policy_project_driver", Text, NotOffered("NetworkPolicies are not enforced by security groups")),
    option("kubernetes", "service_project_driver", Text, NotOffered(SERVICES)),
    option("kubernetes", "service_subnets_driver", Text, NotOffered(SERVICES)),
    option("kubernetes", "service_security_groups_driver", Text, NotOffered(SERVICES)),
    option("kubernetes", "service_public_ip_driver", Text, NotOffered(SERVICES)),
    option("kubernetes", "endpoints_lbaas_driver", Text, NotOffered(SERVICES)),
    option("kubernetes", "endpoints_driver_octavia_provider", Text, NotOffered(SERVICES)),
    option("neutron_defaults", "service_subnet", Text, NotOffered(SERVICES)),
    option("neutron_defaults", "external_svc_net", Text, NotOffered(SERVICES)),
    option("neutron_defaults", "external_svc_subnet", Text, NotOffered(SERVICES)),
    option("neutron_defaults", "lbaas_activation_timeout", Number, NotOffered(SERVICES)),
    option("octavia_defaults", "member_mode", Text, NotOffered(SERVICES)),
    option("octavia_defaults", "enforce_sg_rules", Flag, NotOffered(SERVICES)),
    option("octavia_defaults", "lb_algorithm", Text, NotOffered(SERVICES)),
    option("octavia_defaults", "timeout_client_data", Number, NotOffered(SERVICES)),
    option("octavia_defaults", "timeout_member_data", Number, NotOffered(SERVICES)),
];

const fn option(section: &'static str, name: &'static str, shape: Shape, effect: Effect) -> ConfOption {
    ConfOption { section, name, before: None, shape, effect }
}

// === impl ConfOption ===

impl ConfOption {
    /// The option of a section that has, or had, this name.
    #[must_use]
    pub fn find(section: &str, name: &str) -> Option<&'static ConfOption> {
        // oslo.config takes `-` in a name for `_`.
        let name = name.replace('-', "_");
        OPTIONS.iter().find(|option| option.section == section && (option.name == name || option.before == Some(name.as_str())))
    }

    /// Its section and name as our own file has them, as `neutronDefaults` and `podSubnet`.
    #[must_use]
    pub fn keys(&self) -> (String, String) {
        (camel_case(self.section), camel_case(self.name))
    }

    const fn formerly(self, before: &'static str) -> Self {
        ConfOption { before: Some(before), ..self }
    }
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut done, word| {
        let mut letters = word.chars();
        done.extend(letters.next().map(|c| c.to_ascii_uppercase()));
        done.push_str(letters.as_str());
        done
    })
}

impl fmt::Display for ConfOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.section, self.name)
    }
}

// === impl Shape ===

impl Shape {
    /// What a value is, for a message.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Shape::Text => "a text",
            Shape::Number => "a whole number, 0 or more",
            Shape::Flag => "true or false",
            Shape::List => "a list",
            Shape::Map => "pairs of a key and a value",
        }
    }
}
