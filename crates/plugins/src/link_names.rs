//! Names of links that programs of a node make for themselves. What somebody else makes or renames so first would be taken for theirs, or
//! keep them from making it.

/// Names with who makes them, as their documents have them. For an asterisk anything may follow; for a `%` the eleven characters that Neutron
/// takes of a UUID, and Netloom of a number, and for an `@` the twelve digits of a number to the base of 16 that Docker takes.
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
    ("vethwe-*", "Weave Net"),
    ("vx-submariner", "Submariner"),
    ("netloom*", "Netloom"),
    ("nl4-*", "Netloom"),
    ("nl6-*", "Netloom"),
    ("nlw-*", "Netloom"),
    ("docker0", "Docker"),
    ("docker_gwbridge", "Docker"),
    ("br-@", "Docker"),
    ("podman*", "podman"),
    ("cni-podman*", "podman"),
    ("nerdctl*", "nerdctl"),
    ("virbr*", "libvirt"),
    ("lxdbr*", "LXD"),
    ("lxcbr*", "LXC"),
    ("incusbr*", "Incus"),
    ("azure0", "Azure's CNI"),
    ("kubespan", "Talos"),
    ("siderolink", "Talos"),
    ("kilo0", "Kilo"),
    ("wt0", "NetBird"),
];

/// Names that nobody's bridge is to have, as a link of that name comes later, with who makes it: of hardware that udev or the kernel names, and of
/// programs that choose a number. Links that have such a name are an administrator's to give away: they are no part of [`NAMES`]. For an asterisk
/// anything may follow, for a `#` a digit and anything.
const LATER: &[(&str, &str)] = &[
    ("eth#", HARDWARE),
    ("eno#", HARDWARE),
    ("enp#", HARDWARE),
    ("enP#", HARDWARE),
    ("ens#", HARDWARE),
    ("enx*", HARDWARE),
    ("enX#", HARDWARE),
    ("enb#", HARDWARE),
    ("enc#", HARDWARE),
    ("end#", HARDWARE),
    ("enu#", HARDWARE),
    ("env#", HARDWARE),
    ("em#", HARDWARE),
    ("hsn#", HARDWARE),
    ("ib#", HARDWARE),
    ("ibp#", HARDWARE),
    ("ibs#", HARDWARE),
    ("ibx*", HARDWARE),
    ("usb#", HARDWARE),
    ("wwan#", HARDWARE),
    ("wwp#", HARDWARE),
    ("wwx*", HARDWARE),
    ("wlan#", HARDWARE),
    ("wlo#", HARDWARE),
    ("wlp#", HARDWARE),
    ("wlP#", HARDWARE),
    ("wls#", HARDWARE),
    ("wlx*", HARDWARE),
    ("bond#", "the kernel, for bonds"),
    ("team#", "the kernel, for teams"),
    ("ppp#", "the kernel, for PPP"),
    ("tun#", "the kernel, for tunnels of programs"),
    ("tap#", "the kernel, for tunnels of programs"),
    ("wg#", "WireGuard"),
    ("wg-*", "WireGuard"),
    ("tailscale#", "Tailscale"),
    ("nebula#", "Nebula"),
    ("venet#", "OpenVZ"),
    ("vmbr#", "Proxmox"),
    ("eni*", "Amazon's VPC CNI"),
    ("azv*", "Azure's CNI"),
    ("gke*", "Google's Kubernetes Engine"),
    ("zt*", "ZeroTier"),
    ("swp#", HARDWARE),
    ("p1p#", HARDWARE),
    ("p2p#", HARDWARE),
    ("p3p#", HARDWARE),
    ("p4p#", HARDWARE),
    ("dummy#", "the kernel, for dummies"),
    ("ifb#", "the kernel, for shaping"),
];

const HARDWARE: &str = "the kernel, for a network card";

/// Bridges of Open vSwitch that Neutron and OVN make on each node.
const SWITCHES: &[&str] = &["br-int", "br-ex", "br-tun"];

const NEUTRON: &str = "OpenStack's Neutron";

/// The program whose name for a link this is.
pub fn program_of_link(name: &str) -> Option<&'static str> {
    let is_of_id = |rest: &str| rest.len() == 11 && rest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f' | b'-'));
    let is_number = |rest: &str| rest.len() == 12 && rest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let is_meant = |own: &str| match own.split_at_checked(own.len().saturating_sub(1)) {
        Some((begin, "*")) => name.starts_with(begin),
        Some((begin, "%")) => name.strip_prefix(begin).is_some_and(is_of_id),
        Some((begin, "@")) => name.strip_prefix(begin).is_some_and(is_number),
        _ => own == name,
    };
    NAMES.iter().find(|(own, _)| is_meant(own)).map(|(_, program)| *program)
}

/// Who makes links of this name, be it one that is somebody's already or one that comes later: for what is made now.
pub fn maker_of_link(name: &str) -> Option<&'static str> {
    let begins_with_digit = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    let is_meant = |own: &str| match own.split_at_checked(own.len().saturating_sub(1)) {
        Some((begin, "#")) => name.strip_prefix(begin).is_some_and(begins_with_digit),
        Some((begin, _)) => name.starts_with(begin),
        None => false,
    };
    program_of_link(name).or_else(|| LATER.iter().find(|(own, _)| is_meant(own)).map(|(_, maker)| *maker))
}

/// Whether it is a name for a bridge of Open vSwitch that Neutron or OVN makes.
pub fn is_switch_name(name: &str) -> bool {
    SWITCHES.contains(&name)
}
