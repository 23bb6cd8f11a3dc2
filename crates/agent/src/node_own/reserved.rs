//! Names of links that programs of a node make for themselves. A bridge of such a name that a definition made first would be taken for theirs,
//! or keep them from making it; and an interface on a link of theirs would send and receive past what they let through.

use linux::link::Link;
use plugins::{is_switch_name, maker_of_link, program_of_link};

use super::{GivenNetwork, ThisNode};

/// Whether it is the bridge between a port of Neutron and the virtual machine or pod that has it: who else is on it, is that one.
fn is_of_one_port(link: &Link) -> bool {
    link.name.starts_with("qbr")
}

/// Whose a link is that a program of the node has made for itself, in words: the port of its switch, say, to which pods' packets go. Pods may
/// stand on a bridge, whose packets are those of its own ports, unless it has one port only.
pub(super) fn is_of_program(link: &Link) -> Option<String> {
    let program = program_of_link(&link.name).filter(|_| !link.is("bridge") || is_of_one_port(link))?;
    Some(format!("which is a link of {program}"))
}

/// Characters without a width, and those that turn the direction of what follows (Unicode, general category Cf).
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

impl GivenNetwork<'_> {
    /// Whether it is a name for the host's link in a VLAN of its bridge, `cni0.7`.
    fn has_vlan_named(&self, name: &str) -> bool {
        let vlan = self.bridge.as_deref().and_then(|bridge| name.strip_prefix(bridge)?.strip_prefix('.'));
        vlan.is_some_and(|vlan| vlan.parse::<u16>().is_ok())
    }
}

impl ThisNode<'_> {
    /// Who makes a link of this name, in words, if there is none yet. One that is there is not made again: an administrator may want pods
    /// on it, unless it is a single port's.
    pub(super) fn whose_name(&self, name: &str) -> Result<Option<String>, String> {
        // Pods' interfaces may stand on the interface of such a bridge: one of them is the uplink of many nodes.
        let is_switch = is_switch_name(name) || self.openstack_bridges.iter().any(|bridge| bridge.as_str() == name);
        let whose = match maker_of_link(name) {
            Some(program) => Some(format!("which is a name for a link of {program}")),
            None if is_switch => Some("which is a name for a bridge of Open vSwitch".to_owned()),
            None if name.contains(is_unseen) => Some("which has characters that nobody sees".to_owned()),
            None => {
                let given = self.given.iter().find(|given| given.way_in.as_deref() == Some(name) || given.has_vlan_named(name));
                given.map(|given| format!("which is a name for the gateway's link of {}", given.what))
            }
        };
        let there = self.named(name)?;
        match self.links()?.iter().find(|link| Some(link.index) == there) {
            Some(there) if is_of_one_port(there) => Ok(is_of_program(there)),
            Some(_) => Ok(None),
            None => Ok(whose),
        }
    }
}
