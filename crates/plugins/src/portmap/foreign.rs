//! What the reference plugin has made by nftables: rules in tables `cni_hostport`, with the container's ID as their comment and
//! nothing else, as its own DEL knows them.

use cni::{AttachmentId, CniError};
use linux::nft::Family;
use plugin::{Cx, Stage};

use crate::foreign::{self, Chain};

const TABLE: &str = "cni_hostport";
/// The chains with containers' rules.
const CHAINS: [Chain; 6] = [
    (Family::Ip, TABLE, "hostports"),
    (Family::Ip, TABLE, "hostip_hostports"),
    (Family::Ip, TABLE, "masquerading"),
    (Family::Ip6, TABLE, "hostports"),
    (Family::Ip6, TABLE, "hostip_hostports"),
    (Family::Ip6, TABLE, "masquerading"),
];

/// Notes that they are to go, where there are some.
pub(super) fn remove(id: &AttachmentId, cx: &mut Cx<'_>) -> Result<(), CniError> {
    let container = id.container.to_string();
    let is = move |comment: &str| comment == container;
    if !foreign::rules(cx.host.nft()?, &CHAINS, &is)?.is_empty() {
        cx.teardown.at(Stage::Devices, "remove the rules of another implementation's host ports", move |host| {
            foreign::remove_rules(host.nft()?, &CHAINS, &is)
        });
    }
    Ok(())
}
