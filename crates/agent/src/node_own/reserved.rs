//! Names of links that programs of a node make for themselves. A bridge of such a name that a definition made first would be taken for theirs,
//! or keep them from making it; and an interface on a link of theirs would send and receive past what they let through.

use linux::link::Link;

use super::{ThisNode, links};

/// Names with who makes them, as their documents have them; behind an asterisk anything may follow.
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
    ("tunl0", "the kernel, for IPIP tunnels"),
    ("cilium_*", "Cilium"),
    ("lxc*", "Cilium or LXC"),
    ("antrea-*", "Antrea"),
    ("ovn0", "Kube-OVN"),
    ("ovn-k8s-*", "OVN-Kubernetes"),
    ("ovs-system", "Open vSwitch"),
    ("genev_sys_*", "Open vSwitch"),
    ("vxlan_sys_*", "Open vSwitch"),
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

/// The program whose name for a link this is.
fn program_of(name: &str) -> Option<&'static str> {
    let is_meant = |own: &str| own.strip_suffix('*').map_or(own == name, |begin| name.starts_with(begin));
    NAMES.iter().find(|(own, _)| is_meant(own)).map(|(_, program)| *program)
}

/// Whose a link is that a program of the node has made for itself, in words: the port of its switch, say, to which pods' packets go. Pods may
/// stand on a bridge, whose packets are those of its own ports.
pub(super) fn is_of_program(link: &Link) -> Option<String> {
    let program = program_of(&link.name).filter(|_| !link.is("bridge"))?;
    Some(format!("which is a link of {program}"))
}

impl ThisNode<'_> {
    /// Who makes a link of this name, in words, if there is none yet. One that is there is not made again: an administrator may want pods
    /// on it.
    pub(super) fn whose_name(&self, name: &str) -> Result<Option<String>, &str> {
        let Some(program) = program_of(name) else { return Ok(None) };
        let is_there = self.links()?.iter().any(|link| links::has_name(link, name));
        Ok((!is_there).then(|| format!("which is a name for a link of {program}")))
    }
}
