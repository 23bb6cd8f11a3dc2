//! What the reference plugin has made by nftables: rules in tables `cni_hostport`, with the container's ID as their comment and
//! nothing else, as its own DEL knows them.

use cni::{AttachmentId, CniError};
use linux::nft::{Family, Socket, Step};
use plugin::{Cx, Stage};

use crate::internal;

const TABLE: &str = "cni_hostport";
/// The chains with containers' rules.
const CHAINS: [&str; 3] = ["hostports", "hostip_hostports", "masquerading"];
/// How often to look again, where another program has deleted one of them meanwhile.
const ROUNDS: u32 = 10;

/// Notes that they are to go, where there are some.
pub(super) fn remove(id: &AttachmentId, x: &mut Cx<'_>) -> Result<(), CniError> {
    let container = id.container.to_string();
    if !rules(x.host.nft()?, &container)?.is_empty() {
        x.teardown
            .at(Stage::Devices, "remove the rules of another implementation's host ports", move |host| remove_now(host.nft()?, &container));
    }
    Ok(())
}

fn remove_now(nft: &mut Socket, container: &str) -> Result<(), CniError> {
    for round in 0.. {
        let gone = rules(nft, container)?;
        match nft.commit(&gone.into_iter().collect()) {
            Err(e) if e.is_missing() && round < ROUNDS => {}
            done => return done.map_err(internal),
        }
    }
    Ok(())
}

fn rules(nft: &mut Socket, container: &str) -> Result<Vec<Step>, CniError> {
    let mut found = Vec::new();
    for family in [Family::Ip, Family::Ip6] {
        for chain in CHAINS {
            let rules = nft.commented_rules(family, TABLE, chain).map_err(internal)?;
            let (table, chain) = (TABLE.to_owned(), chain.to_owned());
            let gone = |handle| Step::DeleteRule { family, table: table.clone(), chain: chain.clone(), handle };
            found.extend(rules.into_iter().filter(|rule| rule.comment == container).map(|rule| gone(rule.handle)));
        }
    }
    Ok(found)
}
