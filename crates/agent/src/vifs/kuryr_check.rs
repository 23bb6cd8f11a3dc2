//! CHECK of a pod that kuryr-cni has plugged before us: its interfaces are compared with its KuryrPort, and its ports with Open vSwitch. (The
//! CHECK of kuryr-cni compares nothing.)

use std::collections::BTreeSet;
use std::path::Path;

use chain::Cache;
use cni::{CniError, Code, Mac, NetworkList};
use linux::{Inside, Netlink};
use osvif::{Vif, VifKind};
use ovsdb::Switch;
use plugin::Host;

use super::kuryr_cni::{is_kuryr_list, port_of, taps_into};
use crate::Agent;
use crate::call::{Request, Sandbox};
use crate::foreign_pods::RUNTIMES;
use crate::settings::VifSource;

// === impl Agent ===

impl Agent {
    /// Compares what kuryr-cni has plugged of a sandbox that has no record; whether it has plugged anything. Where the pod's KuryrPort is not
    /// known, only the ports are compared.
    ///
    /// # Errors
    /// The first difference.
    pub(crate) fn check_of_kuryr(&self, request: &Request, sandbox: &Sandbox, host: &mut Host) -> Result<bool, CniError> {
        let taps = match self.settings.vifs.source {
            VifSource::Nowhere => BTreeSet::new(),
            _ => taps_into(&request.netns, host)?,
        };
        if taps.is_empty() && !self.is_kept_of_kuryr(request, sandbox) {
            return Ok(false);
        }
        let netns = chain::open_netns(&request.netns)?;
        let mut ids = taps.clone();
        for (key, pod_vif) in self.vifs_of_kuryr_port(sandbox) {
            let (vif, ifname) = (&pod_vif.vif, if pod_vif.default { sandbox.ifname.as_str() } else { &key });
            if matches!(vif.kind, VifKind::OpenVSwitch { .. } | VifKind::Bridge { .. }) {
                ids.insert(plugins::short_id(&vif.id));
            } else if !matches!(vif.kind, VifKind::VlanNested { .. } | VifKind::MacvlanNested) {
                continue;
            }
            netns.enter(|inside| is_as_bound(inside, ifname, vif)).map_err(internal)??;
        }
        self.are_plugged(request, &ids, &taps)?;
        Ok(true)
    }

    /// Whether the runtime has kept an ADD of kuryr-cni.
    fn is_kept_of_kuryr(&self, request: &Request, sandbox: &Sandbox) -> bool {
        let runtimes = request.settings.plugin_state_dir.as_deref().unwrap_or(Path::new(RUNTIMES));
        let (found, _) = Cache::new(runtimes).of_container(&sandbox.container);
        let lists = found.iter().filter_map(|cached| NetworkList::parse(&cached.config, Some(&cached.id.network)).ok());
        lists.into_iter().any(|list| is_kuryr_list(&list))
    }

    /// Whether each of these ports has its pair, and is a port of Open vSwitch.
    fn are_plugged(&self, request: &Request, ids: &BTreeSet<String>, taps: &BTreeSet<String>) -> Result<(), CniError> {
        if ids.is_empty() {
            return Ok(());
        }
        let failed = |e| CniError::new(Code::TRY_AGAIN_LATER, format!("compare what kuryr-cni has plugged: {e}"));
        let mut switch = Switch::connect(&self.switch_socket(), request.by).map_err(failed)?;
        for id in ids {
            if !taps.contains(id) {
                return Err(changed(format!("Neutron port {id}...: tap{id} of the host does not lead into the container")));
            }
            let found = ["tap", "qvo"].map(|prefix| port_of(&mut switch, &format!("{prefix}{id}"), id));
            let [of_tap, of_qvo] = found;
            if of_tap.map_err(failed)?.or(of_qvo.map_err(failed)?).is_none() {
                return Err(changed(format!("Neutron port {id}...: Open vSwitch has no port tap{id} or qvo{id} with this ID")));
            }
        }
        Ok(())
    }
}

/// Whether an interface of the container is up, and has the addresses of a VIF.
fn is_as_bound(inside: &Inside, ifname: &str, vif: &Vif) -> Result<(), CniError> {
    let differs = |what: String| Err(changed(format!("interface {ifname}, Neutron port {}: {what}", vif.id)));
    let mut netlink = Netlink::open(inside).map_err(internal)?;
    let Some(link) = netlink.link(ifname).map_err(internal)? else { return differs("it is gone from the container".to_owned()) };
    if !link.flags.up() {
        return differs("it is down".to_owned());
    }
    let wanted: Option<Mac> = vif.address.as_deref().and_then(|mac| mac.parse().ok());
    if let (Some(wanted), Some(found)) = (wanted, link.mac)
        && wanted != found
    {
        return differs(format!("its hardware address is {found}, not {wanted}"));
    }
    let there = netlink.addresses(Some(link.index)).map_err(internal)?;
    let subnets = vif.network.iter().filter_map(|network| network.subnets.as_ref()).flat_map(|list| &list.objects);
    for ip in subnets.filter_map(|subnet| subnet.ips.as_ref()?.objects.first()) {
        // Of each subnet kuryr-cni assigns the first address.
        if !there.iter().any(|address| address.net.addr() == ip.address) {
            return differs(format!("it has lost address {}", ip.address));
        }
    }
    Ok(())
}

fn changed(what: String) -> CniError {
    CniError::new(Code::INTERNAL, format!("{what}; kuryr-cni had plugged it: delete the pod, so that it is plugged again"))
}

fn internal(e: impl std::fmt::Display) -> CniError {
    CniError::new(Code::INTERNAL, format!("compare what kuryr-cni has plugged: {e}"))
}
