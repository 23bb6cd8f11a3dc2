//! Before an address is set: does another machine on the wire have it?
//!
//! ```text
//!   IPAM gives addresses, and wants them asked for -> the interface is there, without any -> who has them? -> nobody: they are set
//!                 ^                                                                            | somebody
//!                 +------- conflict: nobody gets that one for a while, the attachment another -+
//! ```
//!
//! RFC 5227 asks three times within two seconds, and waits two more. No pod starts that slowly: here all of it has the time [`PAUSE`],
//! three times. A machine that sleeps, or a network that takes longer to forward on a new port, is not heard.

use std::time::{Duration, Instant};

use cni::{AddResult, CniError, Code, Mac, PluginType};
use linux::link::{self, Change, OperState};
use linux::packet::EtherAddr;
use linux::{Inside, Link, Netlink};
use plugin::{Call, Conflict, Cx};

use crate::parent::Parent;
use crate::{address, internal, mac, open};

/// Where those can be asked who may have an interface's addresses.
pub(crate) enum Wire<'p> {
    /// On the interface itself.
    Own,
    /// On the interface itself, through its other end, the host's link with this index, which is the port of a bridge.
    Port(u32),
    /// On what it stands on: answers to one without an address go there.
    Parent(&'p Parent),
    /// Nowhere: nobody is there but the host.
    None,
}

/// So many questions for each address.
const QUESTIONS: u32 = 3;
/// Behind each of them: a neighbour answers in less than a millisecond.
const PAUSE: Duration = Duration::from_millis(100);
/// So many times an attachment gets another address.
const TRIES: usize = 4;
/// How long a device may take until it has a carrier. Without one, nobody hears. A pair has it as soon as the kernel gets to it, which a busy
/// machine does after seconds; a cable's two ends agree on their speed in up to four.
const CARRIER: Duration = Duration::from_secs(10);
/// Between two looks at it.
const LOOK: Duration = Duration::from_millis(5);

/// What an IPAM plugin has given, or gives instead, once nobody on the wire has it.
pub(crate) fn unowned(
    mut result: AddResult,
    kind: &PluginType,
    call: &Call<'_>,
    cx: &mut Cx<'_>,
    wire: &Wire<'_>,
) -> Result<AddResult, CniError> {
    let delegate = cx.delegate;
    let mut met: Vec<String> = Vec::new();
    while met.len() < TRIES {
        let Some(conflict) = ask(&result, call, cx, wire)? else { return Ok(result) };
        met.push(format!("{} ({})", conflict.address, conflict.mac));
        result = delegate.conflict(kind, call, &conflict, cx)?;
        if mac::from_ip(call.config)? {
            let msg = format!(
                "{} is used by another machine, {}, and the hardware address is derived from it: retry the ADD",
                conflict.address, conflict.mac
            );
            return Err(CniError::new(Code::TRY_AGAIN_LATER, msg));
        }
    }
    let next = "exclude them in the IPPool";
    Err(CniError::new(Code::TRY_AGAIN_LATER, format!("other machines use addresses of the pool: {}; {next}", met.join(", "))))
}

fn ask(result: &AddResult, call: &Call<'_>, cx: &mut Cx<'_>, wire: &Wire<'_>) -> Result<Option<Conflict>, CniError> {
    linux::crash_point!("pool-unasked");
    match wire {
        Wire::None => Ok(None),
        Wire::Own => call.netns()?.enter(|inside| on_interface(inside, call, result, None)).map_err(internal)?,
        Wire::Port(port) => {
            let port = Some((cx.host.netlink()?, *port));
            call.netns()?.enter(|inside| on_interface(inside, call, result, port)).map_err(internal)?
        }
        Wire::Parent(parent) if parent.is_in_container() => {
            call.netns()?.enter(|inside| on(inside, &parent.find(&mut open(inside)?)?, result)).map_err(internal)?
        }
        Wire::Parent(parent) => {
            let link = parent.find(cx.host.netlink()?)?;
            // Nobody hears it.
            if !link.flags.lower_up() {
                return Ok(None);
            }
            on(cx.host.inside(), &link, result)
        }
    }
}

/// The interface comes up for the question, and goes down again: that it comes up with its addresses is what its neighbours are told.
///
/// A bridge forwards nothing for a port until the kernel has noticed that port's carrier, which takes it up to a second where other links
/// change as well: longer than all questions take.
fn on_interface(
    inside: &Inside,
    call: &Call<'_>,
    result: &AddResult,
    port: Option<(&mut Netlink, u32)>,
) -> Result<Option<Conflict>, CniError> {
    let (mut netlink, name) = (open(inside)?, call.id.ifname.as_str());
    let link = netlink.link(name).map_err(internal)?.ok_or_else(|| internal(format!("{name} disappeared while it was configured")))?;
    if link.flags.noarp() {
        return Ok(None);
    }
    // Nobody gives it an address meanwhile.
    address::ipv6(inside, &link, call, result, &[])?;
    set(&mut netlink, &link, true)?;
    let mut heard = carrier(&mut netlink, link.index)?;
    if let Some((host, port)) = port.filter(|_| heard) {
        heard = carrier(host, port)?;
    }
    let found = if heard { on(inside, &link, result)? } else { None };
    set(&mut netlink, &link, false)?;
    Ok(found)
}

fn set(netlink: &mut Netlink, link: &Link, up: bool) -> Result<(), CniError> {
    let change = link::set(link.index, &Change { up: Some(up), ..Change::default() });
    let done = if up { "up" } else { "down" };
    netlink.send_one(change.called(format!("set {} {done} in the container to probe its addresses", link.name))).map(drop).map_err(internal)
}

/// Waits until the kernel has noticed the link's carrier; it looks at once when it is asked for the link (Linux 6.8).
fn carrier(netlink: &mut Netlink, index: u32) -> Result<bool, CniError> {
    let until = Instant::now() + CARRIER;
    let noticed = |link: &Link| link.flags.lower_up() && matches!(link.operstate, OperState::Up | OperState::Unknown);
    loop {
        let now = netlink.link_by_index(index).map_err(internal)?;
        if now.as_ref().is_some_and(noticed) {
            return Ok(true);
        }
        if Instant::now() >= until {
            return Ok(false);
        }
        std::thread::sleep(LOOK);
    }
}

fn on(inside: &Inside, link: &Link, result: &AddResult) -> Result<Option<Conflict>, CniError> {
    let own: Option<EtherAddr> = link.mac.as_ref().and_then(|mac| mac.as_bytes().try_into().ok());
    // Not Ethernet: there is nobody of whom it could be asked so.
    let Some(own) = own.filter(|_| !link.flags.noarp()) else { return Ok(None) };
    let addresses: Vec<_> = result.ips.iter().map(|ip| ip.address.addr()).collect();
    let found = dhcp::who_has(inside, link.index, own, &addresses, QUESTIONS, PAUSE);
    let found = found.map_err(|e| internal(format!("probe for other users of its addresses on {}: {e}", link.name)))?;
    Ok(found.and_then(|(address, station)| Some(Conflict { address, mac: Mac::from_bytes(&station)? })))
}
