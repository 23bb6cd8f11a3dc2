//! Names of links that programs of a node make for themselves. A bridge of such a name that a definition made first would be taken for theirs,
//! or keep them from making it; and an interface on a link of theirs would send and receive past what they let through.

use linux::link::Link;

use super::{ThisNode, links};

/// Names with who makes them, as their documents have them. For an asterisk anything may follow; for a `%` the eleven characters that Neutron
/// takes of a UUID, and Netloom of a number.
const NAMES: &[(&str, &str)] = &[
    ("kube-ipvs0", "kube-proxy"),
    ("kube-dummy-if", "kube-router"),
    ("kube-bridge", "kube-router"),
    ("nodelocaldns", "the node's DNS cache"),
    ("flannel.*", "flannel"),
    ("flannel-*", "flannel"),
    ("cali*", "Calico"),
    ("vxlan.calico", "Calico"),
    ("vxlan-v6.calico", "Calico"),
    ("wireguard.cali", "Calico"),
    ("wg-v6.cali", "Calico"),
    ("bpfin.cali", "Calico"),
    ("bpfout.cali", "Calico"),
    ("egress.calico", "Calico"),
    // A name that is taken keeps the module from being loaded (`ip_tunnel_init_net` and its like in net/ipv4 and net/ipv6).
    ("tunl0", "the kernel, for IPIP tunnels"),
    ("sit0", "the kernel, for tunnels of IPv6 over IPv4"),
    ("gre0", "the kernel, for GRE tunnels"),
    ("gretap0", "the kernel, for GRE tunnels"),
    ("erspan0", "the kernel, for ERSPAN"),
    ("ip_vti0", "the kernel, for IPsec"),
    ("ip6_vti0", "the kernel, for IPsec"),
    ("ip6tnl0", "the kernel, for tunnels over IPv6"),
    ("ip6gre0", "the kernel, for GRE tunnels over IPv6"),
    ("cilium_*", "Cilium"),
    ("lxc*", "Cilium or LXC"),
    ("antrea-*", "Antrea"),
    ("ovn0", "Kube-OVN"),
    ("ovn-k8s-*", "OVN-Kubernetes"),
    ("ovs-system", "Open vSwitch"),
    ("ovs-netdev", "Open vSwitch"),
    ("genev_sys_*", "Open vSwitch"),
    ("vxlan_sys_*", "Open vSwitch"),
    ("gre_sys", "Open vSwitch"),
    ("ip6gre_sys", "Open vSwitch"),
    ("erspan_sys", "Open vSwitch"),
    ("ip6erspan_sys", "Open vSwitch"),
    ("qbr*", NEUTRON),
    ("qvb*", NEUTRON),
    ("qvo*", NEUTRON),
    ("brq%", NEUTRON),
    ("tap%", NEUTRON),
    ("qr-%", NEUTRON),
    ("qg-%", NEUTRON),
    ("sg-%", NEUTRON),
    ("fg-%", NEUTRON),
    ("ha-%", NEUTRON),
    ("gw%", "Netloom"),
    ("weave", "Weave Net"),
    ("netloom*", "Netloom"),
    ("nl4-*", "Netloom"),
    ("nl6-*", "Netloom"),
    ("nlw-*", "Netloom"),
    ("docker0", "Docker"),
    ("docker_gwbridge", "Docker"),
    ("podman*", "podman"),
    ("cni-podman*", "podman"),
    ("nerdctl*", "nerdctl"),
    ("virbr*", "libvirt"),
    ("lxdbr*", "LXD"),
    ("incusbr*", "Incus"),
];

/// Bridges of Open vSwitch that Neutron and OVN make on each node, beside those of the setting `openstackBridges`. Pods' interfaces may stand on
/// their own interfaces, one of which is the uplink of many nodes.
const SWITCHES: &[&str] = &["br-int", "br-ex", "br-tun"];

const NEUTRON: &str = "OpenStack's Neutron";

/// The program whose name for a link this is.
fn program_of(name: &str) -> Option<&'static str> {
    let is_of_id = |rest: &str| rest.len() == 11 && rest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f' | b'-'));
    let is_meant = |own: &str| match (own.strip_suffix('*'), own.strip_suffix('%')) {
        (Some(begin), _) => name.starts_with(begin),
        (_, Some(begin)) => name.strip_prefix(begin).is_some_and(is_of_id),
        _ => own == name,
    };
    NAMES.iter().find(|(own, _)| is_meant(own)).map(|(_, program)| *program)
}

/// Whether it is the bridge between a port of Neutron and the virtual machine or pod that has it: who else is on it, is that one.
fn is_of_one_port(link: &Link) -> bool {
    link.name.starts_with("qbr")
}

/// Whose a link is that a program of the node has made for itself, in words: the port of its switch, say, to which pods' packets go. Pods may
/// stand on a bridge, whose packets are those of its own ports, unless it has one port only.
pub(super) fn is_of_program(link: &Link) -> Option<String> {
    let program = program_of(&link.name).filter(|_| !link.is("bridge") || is_of_one_port(link))?;
    Some(format!("which is a link of {program}"))
}

impl ThisNode<'_> {
    /// Who makes a link of this name, in words, if there is none yet. One that is there is not made again: an administrator may want pods
    /// on it, unless it is a single port's.
    pub(super) fn whose_name(&self, name: &str) -> Result<Option<String>, &str> {
        let is_switch = SWITCHES.contains(&name) || self.openstack_bridges.iter().any(|bridge| bridge.as_str() == name);
        let whose = match program_of(name) {
            Some(program) => Some(format!("which is a name for a link of {program}")),
            None if is_switch => Some("which is a name for a bridge of Open vSwitch".to_owned()),
            None => {
                let given = self.given.iter().find(|given| given.way_in.as_deref() == Some(name));
                given.map(|given| format!("which is a name for the gateway's link of {}", given.what))
            }
        };
        match self.links()?.iter().find(|link| links::has_name(link, name)) {
            Some(there) if is_of_one_port(there) => Ok(is_of_program(there)),
            Some(_) => Ok(None),
            None => Ok(whose),
        }
    }
}
