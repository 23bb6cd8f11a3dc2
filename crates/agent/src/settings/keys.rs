//! The keys of the settings, in one table, from which documentation and help are made.

use json::{Object, Value};

use super::SettingsError;

/// Who knows a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Multus, with the same meaning; it may stand in the runtime's configuration too, call by call.
    Call,
    /// Multus, with the same meaning; it holds from the agent's start to its end.
    Multus,
    /// Only this agent; it holds from the agent's start to its end.
    Own,
}

/// One key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Who knows it.
    pub origin: Origin,
    /// What holds without it.
    pub default: &'static str,
    /// What it means, in one line.
    pub about: &'static str,
}

/// Every key that is read.
pub const KEYS: &[Key] = &[
    key(
        "clusterNetwork",
        Origin::Call,
        "the first file of cniConfigDir",
        "the default network: a file, a directory, or a name: of a definition in multusNamespace, else of a network in confDir; or the network itself",
    ),
    key("defaultNetwork", Origin::Own, "", "another name of clusterNetwork"),
    key(
        "provide",
        Origin::Own,
        "nothing",
        "netloom: the agent provides the default network itself, instead of clusterNetwork: docs/operate/cluster-network.md",
    ),
    key(
        "between",
        Origin::Own,
        "auto",
        "with provide, how packets get to other nodes. auto: direct where both nodes are in one subnet, else vxlan; direct; vxlan; wireguard: encrypted; auto-wireguard: as auto, with wireguard in the place of vxlan. The same on all nodes",
    ),
    key("vxlanVNI", Origin::Own, "4096", "with provide, the number of the vxlan network. The same on all nodes"),
    key("vxlanPort", Origin::Own, "4789", "with provide, the UDP port of vxlan. The same on all nodes"),
    key("wireguardPort", Origin::Own, "51820", "with provide, the first of the two UDP ports of WireGuard. The same on all nodes"),
    key(
        "wireguardOverlap",
        Origin::Own,
        "10m",
        "with provide, how long a rotation of WireGuard keys lasts at least, and how long after one no other node's is followed",
    ),
    key(
        "clusterCIDRs",
        Origin::Own,
        "any",
        "with provide, list of ranges that all nodes' pod ranges are in: a Node's range elsewhere is not believed. The same on all nodes",
    ),
    key(
        "nonMasqueradeCIDRs",
        Origin::Own,
        "pods of all Nodes, and Nodes that are reached directly",
        "with provide, list of ranges that see a pod's own address; all others see the node's",
    ),
    key(
        "strictSource",
        Origin::Own,
        "true",
        "with provide, packets that leave a pod with another address than its own are dropped; a policy rule with protect: off for its namespace exempts a pod",
    ),
    key(
        "hairpinMode",
        Origin::Own,
        "hairpin-veth",
        "with provide, whether a pod reaches itself through a Service. hairpin-veth: it does; none: it does not",
    ),
    key(
        "defaultNetworks",
        Origin::Call,
        "none",
        "list of additional networks of every pod, each written as clusterNetwork; not for pods of systemNamespaces",
    ),
    key("delegates", Origin::Call, "none", "list of network configurations, the default network first; ignored if clusterNetwork is set"),
    key(
        "multusAutoconfigDir",
        Origin::Multus,
        "cniConfigDir",
        "without clusterNetwork: the directory whose first file is the default network",
    ),
    key("multusMasterCNI", Origin::Multus, "the first one", "without clusterNetwork: the file of that directory"),
    key(
        "auxiliaryCNIChainName",
        Origin::Call,
        "none",
        "directory beside the default network's file: its plugins, after passthru, are the last network of every pod",
    ),
    key(
        "confDir",
        Origin::Call,
        "/etc/cni/multus/net.d",
        "directory of networks without a definition, and of definitions without a configuration",
    ),
    key("binDir", Origin::Call, "/opt/cni/bin", "executable plugins, before the runtime's directories"),
    key("readinessindicatorfile", Origin::Call, "none", "a file without which the default network is not ready"),
    key("namespaceIsolation", Origin::Call, "false", "pods select definitions of their own namespace and of globalNamespaces only"),
    key(
        "globalNamespaces",
        Origin::Call,
        "default",
        "namespaces whose definitions all may select, separated by commas or a list; replaces the default",
    ),
    key("systemNamespaces", Origin::Call, "kube-system", "list of namespaces whose pods get no defaultNetworks"),
    key(
        "multusNamespace",
        Origin::Call,
        "kube-system",
        "namespace of definitions that are named without one, here and as a pod's default network",
    ),
    key(
        "policy",
        Origin::Own,
        "everything but paths of the host, and what is the node's own",
        "list of rules on what definitions may use: docs/operate/policy.md",
    ),
    key(
        "serviceCIDRs",
        Origin::Own,
        "the cluster's ServiceCIDR objects",
        "list of additional Service ranges: no pod gets an address of them from a definition",
    ),
    key(
        "invalidAnnotation",
        Origin::Own,
        "fail",
        "fail: the pod fails with the reason; ignore: as the standard says, the annotation is ignored, with a warning Event",
    ),
    key(
        "statusIPs",
        Origin::Own,
        "bare",
        "bare: addresses in network-status as all consumers expect them; cidr: with prefix length, as in the standard",
    ),
    key(
        "events",
        Origin::Own,
        "all",
        "all: pods get an Event AddedInterface for each attachment, as with Multus, and warnings; warnings: only those",
    ),
    key(
        "statusWait",
        Origin::Own,
        "2s",
        "how long an ADD waits for network-status to be written; after that it is written in the background",
    ),
    key("addWait", Origin::Own, "30s", "how long an ADD waits for the default network; `ipam.addWait` of a network is another key"),
    key(
        "agentWait",
        Origin::Own,
        "30s",
        "how long the runtime's calls wait for the agent to start; written into the runtime's configuration",
    ),
    key(
        "ipam",
        Origin::Own,
        "pool",
        "the source of this node's addresses. pool: files, and the cluster's operator; crd: the node's CiliumNode \
            (docs/operate/cilium-crd.md). With provide: podCIDR (the default), the Node's ranges; pool, blocks of the cluster's pools",
    ),
    key("ciliumNodeUpdateRate", Origin::Own, "15s", "with ipam: crd, the minimum time between two writes of the CiliumNode's status"),
    key("ipamPrefixIPv4", Origin::Own, "32", "with ipam: crd, the prefix length that an interface gets with an IPv4 address"),
    key("ipamPrefixIPv6", Origin::Own, "128", "with ipam: crd, the same for IPv6"),
    key("ipamBridge", Origin::Own, "netloom0", "with ipam: crd, the bridge that has the router's address, made if it is missing; or none"),
    key("ipamHealth", Origin::Own, "enabled", "with ipam: crd, enabled: one more address, which answers probes of other nodes; disabled"),
    key(
        "openstackVIFs",
        Origin::Own,
        "none",
        "kuryrports: pods get the ports of OpenStack's Neutron that a controller has written into KuryrPorts; annotation: into the pods' annotation openstack.org/kuryr-vif, which whoever may change a pod can forge; none",
    ),
    key("openstackDefault", Origin::Own, "none", "port: the default network of every pod is a Neutron port, too; none"),
    key("openstackWait", Origin::Own, "60s", "how long an ADD waits for a pod's Neutron ports, and again until they are ACTIVE"),
    key("openstackActive", Origin::Own, "wait", "wait: an ADD ends when the pod's Neutron ports are ACTIVE; later: when they are plugged"),
    key("openstackBridges", Origin::Own, "[br-int]", "bridges of Open vSwitch that Neutron ports may be plugged into"),
    key("openstackLink", Origin::Own, "interface of the default route", "what nested Neutron ports (VLAN, macvlan) stand on"),
    key("openstackMTU", Origin::Own, "the network's", "the largest MTU that the interface of a Neutron port gets, in bytes"),
    key("openstackSocket", Origin::Own, "/var/run/openvswitch/db.sock", "the socket of ovsdb-server for Neutron ports"),
    key("openstackVhostDir", Origin::Own, "none", "the directory in which sockets of vhost-user ports may be; without it none is plugged"),
    key(
        "openstackVLAN",
        Origin::Own,
        "agent",
        "agent: nothing passes a Neutron port until Neutron's agent of the node has given it a VLAN, for which an ADD waits as well; none: for OVN, which gives none",
    ),
    key(
        "openstackResources",
        Origin::Own,
        "none",
        "physical networks of Neutron, each with the resource of a device plugin whose devices are virtual functions on it, as physnet1: intel.com/nic; a definition's annotation k8s.v1.cni.cncf.io/resourceName wins",
    ),
    key(
        "openstackDrivers",
        Origin::Own,
        "none",
        "such resources, each with the driver (vfio-pci, uio_pci_generic, igb_uio) to which a pod's virtual function is bound for a program in the pod",
    ),
    key(
        "openstackDPDKDriver",
        Origin::Own,
        "uio_pci_generic",
        "the driver to which the device of a nested DPDK port is bound: vfio-pci, uio_pci_generic or igb_uio; one of them that it has stays",
    ),
    key(
        "openstackPCIDir",
        Origin::Own,
        "none",
        "the directory of files CONTAINER-INTERFACE with the PCI addresses of nested DPDK ports, for programs in pods",
    ),
    key(
        "teardown",
        Origin::Own,
        "deferred",
        "deferred: DEL returns once the links are detached, and they are deleted afterwards; wait: DEL returns once they are deleted",
    ),
    key("prefer", Origin::Own, "builtin", "builtin or path: which plugin runs if it is both built in and in binDir"),
    key("reconcileEvery", Origin::Own, "3m", "how often records, links and the API are compared"),
    key(
        "workers",
        Origin::Own,
        "16",
        "number of threads that serve calls, of about 100 KiB each; calls that had to wait for something go on in other threads",
    ),
    key(
        "install",
        Origin::Own,
        "ready",
        "ready: the runtime's configuration is written once the default network is ready; early: at once, and calls wait; never",
    ),
    key("cniConfigDir", Origin::Multus, "/etc/cni/net.d", "where the runtime's configuration is written"),
    key("cniVersion", Origin::Multus, "1.0.0", "version of the runtime's configuration"),
    key("kubeconfig", Origin::Multus, "the pod's service account", "how the API server is reached"),
    key("nodeName", Origin::Own, "the command line's", "the node's name in the API server"),
    key("healthAddress", Origin::Own, "none", "address and port of /healthz, /readyz and /metrics, as 127.0.0.1:9180"),
    key("logLevel", Origin::Multus, "info", "error, warn, info or debug; verbose and panic as with Multus mean info and error"),
    key("logFormat", Origin::Own, "text", "text or json"),
    key("socketDir", Origin::Multus, "/run/netloom", "directory of the agent's sockets"),
    key("daemonSocketDir", Origin::Multus, "socketDir", "another name of socketDir"),
    key("stateDir", Origin::Own, "/var/lib/netloom", "records of sandboxes, and calls that came while the agent was down"),
    key("pluginStateDir", Origin::Own, "the directories that all CNI programs share", "plugins' state is below this directory: for tests"),
];

const fn key(name: &'static str, origin: Origin, default: &'static str, about: &'static str) -> Key {
    Key { name, origin, default, about }
}

/// Multus's keys that do nothing here, and what does it instead.
pub const REPLACED: &[(&str, &str)] = &[
    ("perNodeCertificate", "the agent uses its service account's token, as it is renewed; an admission policy keeps it to its node"),
    ("chrootDir", "external plugins are executed by the waiting netloom-cni, which sees the host's files"),
    ("connectionLimit", "\"workers\" is how many calls are worked on at a time; others are queued"),
    ("metricsPort", "\"healthAddress\" serves /healthz, /readyz and /metrics"),
    ("enablePprof", "a line of the log says for each call where its time went"),
    ("forceCNIVersion", "files of other networks are never rewritten"),
    ("overrideNetworkName", "the runtime's configuration keeps its name; the default network has its own"),
    ("retryDeleteOnError", "a DEL that fails always keeps its record, and may be repeated"),
    ("allowTryDeleteOnErr", "a DEL that fails always keeps its record, and may be repeated"),
    ("cniDir", "\"stateDir\" is where records are"),
    ("logFile", "lines go to standard error, which the container's runtime or systemd stores"),
    ("logToStderr", "lines go to standard error always"),
    ("logOptions", "lines go to standard error; the container's runtime or systemd rotates them"),
    ("multusConfigFile", "\"install\" says when the runtime's configuration is written; it is made from the default network"),
    ("cniConf", "nothing replaces it: the runtime's configuration is written into `cniConfigDir`"),
    ("capabilities", "those of the default network's plugins are declared to the runtime"),
];

/// Keys of the standard that every configuration of a runtime may have, and those that `netloom-cni` reads.
const STANDARD: &[&str] = &[
    "cniVersion",
    "cniVersions",
    "name",
    "type",
    "args",
    "dns",
    "ipam",
    "ipMasq",
    "capabilities",
    "runtimeConfig",
    "prevResult",
    "plugins",
    "disableCheck",
    "disableGC",
    "loadOnlyInlinedPlugins",
    "agent",
    "agentWait",
    "spool",
    "socketDir",
    "daemonSocketDir",
];

/// Keys of which one decides for all: who has one in the agent's file does not want another one of the runtime. A directory
/// in which to look is less than what the runtime names.
const DEFAULT_NETWORK: &[&str] = &["provide", "clusterNetwork", "defaultNetwork", "delegates"];

/// Checks the names of the agent's own keys.
pub(super) fn strict(own: &Object, warnings: &mut Vec<String>) -> Result<(), SettingsError> {
    for (name, _) in own.iter() {
        if find(name).is_some() {
            continue;
        }
        match replaced(name) {
            Some(instead) => warnings.push(format!("{name} has no effect: {instead}")),
            // A configuration for Multus's daemon may be one for a plugin as well.
            None if same(name, "name") || same(name, "type") => {}
            None => {
                let meant = npwg::nearest(name, KEYS.iter().map(|key| key.name));
                return Err(SettingsError::UnknownKey { key: name.to_owned(), meant });
            }
        }
    }
    Ok(())
}

/// The keys of a call that are to be read.
pub(super) fn of_call(call: &Object, own: &Object, warnings: &mut Vec<String>) -> Object {
    let decided = DEFAULT_NETWORK.iter().any(|key| own.get(key).is_some());
    let mut read: Vec<(String, Value)> = Vec::new();
    for (name, value) in call.iter() {
        let among = |keys: &[&str]| keys.iter().any(|key| same(key, name));
        match find(name).map(|key| key.origin) {
            _ if among(STANDARD) || name.contains(['.', '/']) => {}
            Some(Origin::Call) if own.get(name).is_some() || (decided && among(DEFAULT_NETWORK)) => {}
            Some(Origin::Call) => read.push((name.to_owned(), value.clone())),
            Some(Origin::Multus | Origin::Own) => {
                warnings.push(format!("{name} of the runtime's configuration has no effect: set it in the agent's configuration"));
            }
            None => match replaced(name) {
                Some(instead) => warnings.push(format!("{name} of the runtime's configuration has no effect: {instead}")),
                None => warnings.push(format!("{name} of the runtime's configuration is unknown and has no effect")),
            },
        }
    }
    read.into_iter().collect()
}

/// The table of keys for the manual.
pub fn table() -> String {
    let mut text = String::from("| key | default | what |\n|---|---|---|\n");
    for Key { name, origin, default, about } in KEYS {
        let star = if *origin == Origin::Call { " *" } else { "" };
        text.push_str(&format!("| `{name}`{star} | {default} | {about} |\n"));
    }
    text.push_str("\n| key of Multus without effect here | what applies instead |\n|---|---|\n");
    for (name, instead) in REPLACED {
        text.push_str(&format!("| `{name}` | {instead} |\n"));
    }
    text
}

fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| same(key.name, name))
}

fn replaced(name: &str) -> Option<&'static str> {
    REPLACED.iter().find(|(key, _)| same(key, name)).map(|(_, instead)| *instead)
}

/// As Go compares keys.
fn same(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b)
}
