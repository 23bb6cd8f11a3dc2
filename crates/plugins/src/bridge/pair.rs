//! The veth pair of an attachment, whose outer end is a port of the bridge.

use cni::CniError;
use linux::{Batch, Link, Netlink, PortFlags, link};
use plugin::Call;

use super::conf::Conf;
use crate::internal;
use crate::veth::{self, Pair};

/// Makes the pair and returns its outer end. Without an MTU of its own it has the bridge's: the kernel gives a bridge the smallest one of
/// its ports, so that one port would lower it for all.
pub(super) fn make(netlink: &mut Netlink, conf: &Conf, call: &Call<'_>, bridge: &Link) -> Result<Link, CniError> {
    let mtu = conf.mtu.unwrap_or(bridge.mtu);
    let (mac, master, down) = (conf.mac.clone(), Some(bridge.index), conf.mac_spoof_check);
    let outer = veth::make(netlink, call, &Pair { mtu: Some(mtu), mac, master, down, queues: conf.queues })?;
    let on = |flag: bool| flag.then_some(true);
    let flags = PortFlags { hairpin: on(conf.hairpin), isolated: on(conf.isolated), ..PortFlags::default() };
    let flags = (flags != PortFlags::default()).then(|| link::set_port(outer.index, &flags));
    let batch: Batch<'_> = flags.into_iter().chain(conf.vlans.of_port(outer.index, bridge)).collect();
    if batch.is_empty() {
        return Ok(outer);
    }
    linux::crash_point!("bridge-port-unset");
    match netlink.send(batch) {
        Ok(_) => Ok(outer),
        Err(e) => {
            // The pair is not in the teardown yet: it is, once this function has returned it.
            let _ = netlink.send_one(link::delete(outer.index));
            Err(internal(e))
        }
    }
}

/// The outer end of this attachment's pair. Of one that another implementation made, whose names nobody kept, it is a port
/// of the configured bridge.
pub(super) fn find(netlink: &mut Netlink, call: &Call<'_>) -> Result<Option<Link>, CniError> {
    if let Some(outer) = veth::find(netlink, call)? {
        return Ok(Some(outer));
    }
    let (None, Ok(conf)) = (call.prev, Conf::read(call.config, call.args)) else { return Ok(None) };
    let Some(bridge) = netlink.link(conf.bridge.as_str()).map_err(internal)? else { return Ok(None) };
    veth::made_elsewhere(netlink, call, |l| l.master == Some(bridge.index))
}
