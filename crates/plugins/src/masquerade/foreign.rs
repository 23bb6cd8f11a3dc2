//! What the reference plugins have made for `ipMasq`: by iptables, their default, a chain for each container of a network; by
//! nftables rules whose comments begin with hashes of the network and of the attachment.

use cni::{AttachmentId, CniError};
use linux::Family;
use linux::nft;
use plugin::{Cx, Stage};

use crate::foreign::{self, Chain};
use crate::internal;

const CHAINS: [Chain; 1] = [(nft::Family::Inet, "cni_plugins_masquerade", "masq_checks")];
/// How many digits of each hash a comment has, and the name of a chain.
const IN_COMMENT: usize = 16;
const IN_NAME: usize = 24;

/// Notes that it is to go, where there is some. No program is run to find that out, unless `thoroughly` and the older kind of
/// iptables is in use.
pub(super) fn remove(id: &AttachmentId, thoroughly: bool, cx: &mut Cx<'_>) -> Result<(), CniError> {
    let whose = comment(id);
    let is = move |comment: &str| comment.starts_with(&whose);
    if !foreign::rules(cx.host.nft()?, &CHAINS, &is)?.is_empty() {
        cx.teardown.at(Stage::Devices, "remove the masquerading of another implementation", move |host| {
            foreign::remove_rules(host.nft()?, &CHAINS, &is)
        });
    }
    for family in [Family::V4, Family::V6] {
        let chain = chain(id);
        if foreign::has_chain(family, &chain, cx.host).map_err(internal)? || thoroughly && foreign::is_legacy(family, cx.host)? {
            cx.teardown.at(Stage::Devices, "remove the masquerading chain of another implementation", move |host| {
                foreign::remove_chains(family, &[chain], |_, _| {}, host).map(drop)
            });
        }
    }
    Ok(())
}

/// What its comments begin with.
fn comment(id: &AttachmentId) -> String {
    let instance = foreign::hash(&format!("{}:{}", id.ifname, id.container), IN_COMMENT);
    format!("{}-{instance}, ", foreign::hash(id.network.as_str(), IN_COMMENT))
}

/// Of network and container alone.
fn chain(id: &AttachmentId) -> String {
    format!("CNI-{}", foreign::hash(&format!("{}{}", id.network, id.container), IN_NAME))
}

#[cfg(test)]
mod tests {
    use cni::{ContainerId, IfName, NetworkName};

    use super::*;

    /// As the reference plugin (1.9.1) made them.
    #[test]
    fn names_are_those_of_the_reference_plugin() {
        let id = AttachmentId {
            network: NetworkName::parse("net").unwrap(),
            container: ContainerId::parse("r1").unwrap(),
            ifname: IfName::parse("eth0").unwrap(),
        };
        assert_eq!(comment(&id), "a4861f4ae9f7d238-29fd48652a7538d7, ");
        assert_eq!(chain(&id), "CNI-317ac0ebc79777ad35f0d323");
    }
}
