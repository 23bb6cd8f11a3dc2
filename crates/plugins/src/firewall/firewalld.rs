//! The backend `firewalld`: a container's addresses become sources of a zone, over D-Bus.
//!
//! firewalld forgets them when it is reloaded or restarted, as it forgets all that is not in its files: CHECK says so.

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use cni::{CniError, Code};
use dbus::{Bus, BusError, Object, Reply, SYSTEM_BUS};
use linux::{Inside, process};

use super::PATIENCE;
use crate::internal;

/// firewalld's name on the bus.
const NAME: &str = "org.fedoraproject.FirewallD1";
const ZONE: Object<'static> =
    Object { service: NAME, path: "/org/fedoraproject/FirewallD1", interface: "org.fedoraproject.FirewallD1.zone" };

/// What the bus says of somebody who is not there.
const ENDED: [&str; 2] = ["org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner"];

/// firewalld, as far as it is there.
pub(super) enum ZoneState {
    /// Over this connection.
    Running(Bus),
    /// It is not, for this reason.
    Absent(String),
}

/// Looks for firewalld. One that runs in another network namespace than ours has nothing to say here.
pub(super) fn find(inside: &Inside, deadline: Instant) -> Result<ZoneState, CniError> {
    let socket = match own_socket().and_then(seen_from_here) {
        Ok(socket) => socket,
        Err(why) => return Ok(ZoneState::Absent(why)),
    };
    let uid = std::fs::metadata("/proc/self").map_or(0, |own| own.uid());
    // A bus that does not answer shall not take all the time that a call has.
    let mut bus = match Bus::connect(&socket, uid, deadline.min(Instant::now() + PATIENCE)) {
        // The bus refuses who is root in a user namespace of his own only; no firewalld is there for him.
        Err(e @ (BusError::Connect { .. } | BusError::Refused { .. })) => return Ok(ZoneState::Absent(e.to_string())),
        connected => connected.map_err(refused)?,
    };
    if !bus.has_owner(NAME).map_err(refused)? {
        return Ok(ZoneState::Absent(format!("no program owns the name {NAME} on the system bus")));
    }
    let process = bus.process_of(NAME).map_err(refused)?;
    let elsewhere = process.and_then(|pid| std::fs::metadata(format!("/proc/{pid}/ns/net")).ok()).is_some_and(|found| {
        let here = inside.id().map(|id| (id.dev, id.ino));
        here.is_ok_and(|here| here != (found.dev(), found.ino()))
    });
    if elsewhere {
        return Ok(ZoneState::Absent("the firewalld of this machine runs in another network namespace".to_owned()));
    }
    bus.answer_by(deadline);
    Ok(ZoneState::Running(bus))
}

/// Where the system bus listens for this process, or why it cannot be asked there.
fn own_socket() -> Result<PathBuf, String> {
    match std::env::var("DBUS_SYSTEM_BUS_ADDRESS") {
        Ok(address) if !address.is_empty() => dbus::socket_of(&address)
            .ok_or_else(|| format!("DBUS_SYSTEM_BUS_ADDRESS is {address:?}, but only addresses with unix:path=SOCKET are supported")),
        _ => Ok(SYSTEM_BUS.into()),
    }
}

/// The bus's socket: ours, or in a container the machine's.
fn seen_from_here(own: PathBuf) -> Result<PathBuf, String> {
    if own.exists() {
        return Ok(own);
    }
    let hosts = Path::new("/proc/1/root").join(own.strip_prefix("/").unwrap_or(&own));
    let found = matches!(process::host_mounts(), Ok(Some(_))).then_some(hosts).filter(|socket| socket.exists());
    found.ok_or_else(|| format!("there is no system bus at {}", own.display()))
}

/// firewalld, or the error that an ADD or a STATUS that needs it gets.
pub(super) fn required(inside: &Inside, deadline: Instant) -> Result<Bus, CniError> {
    match find(inside, deadline)? {
        ZoneState::Running(bus) => Ok(bus),
        ZoneState::Absent(why) => {
            let msg = format!("firewalld is not available: {why}. Start it, or set backend to \"nftables\"");
            Err(CniError::new(Code::NOT_AVAILABLE, msg))
        }
    }
}

/// Makes the addresses sources of the zone. One that is already is none the worse.
pub(super) fn add(bus: &mut Bus, zone: &str, addresses: &[IpAddr]) -> Result<(), CniError> {
    for address in addresses {
        let source = super::host(*address);
        if let Err(e) = bus.call(ZONE, "addSource", &[zone, &source])
            && !says(&e, "ZONE_ALREADY_SET")
        {
            let hint = if says(&e, "ZONE_CONFLICT") { " (see `firewall-cmd --get-active-zones`)" } else { "" };
            return Err(refused(e).within(format!("failed to add the address {source} to {zone} zone{hint}")));
        }
        linux::crash_point!("firewall-source-added");
    }
    Ok(())
}

/// CHECK: they are sources of the zone.
pub(super) fn check(bus: &mut Bus, zone: &str, addresses: &[IpAddr]) -> Result<(), CniError> {
    for address in addresses {
        let source = super::host(*address);
        if bus.call(ZONE, "querySource", &[zone, &source]).map_err(refused)?.first() != Some(&Reply::Boolean(true)) {
            let why = "firewalld may have been reloaded or restarted: attach the container again";
            return Err(internal(format!("failed to find the address {source} in {zone} zone: {why}")));
        }
    }
    Ok(())
}

/// Takes the addresses out of the zone. What is not in it, or in a zone that is gone, is out of it. Any other refusal, as in its
/// panic mode, is an error: a source that stays would open the zone to whoever has the address next.
pub(super) fn remove(bus: &mut Bus, zone: &str, addresses: &[IpAddr]) -> Result<(), CniError> {
    for address in addresses {
        if let Err(e) = bus.call(ZONE, "removeSource", &[zone, &super::host(*address)])
            && !is_out(&e)
        {
            return Err(refused(e));
        }
        linux::crash_point!("firewall-source-removed");
    }
    Ok(())
}

/// Whether an error says that there is nothing to be taken out. What firewalld was told has ended with it.
fn is_out(e: &BusError) -> bool {
    let ended = matches!(e, BusError::Service { name, .. } if ENDED.contains(&name.as_str()));
    ended || ["UNKNOWN_SOURCE", "ZONE_CONFLICT", "INVALID_ZONE"].iter().any(|name| says(e, name))
}

/// firewalld's errors begin with their names.
fn says(e: &BusError, name: &str) -> bool {
    matches!(e, BusError::Service { text, .. } if text.contains(name))
}

fn refused(e: BusError) -> CniError {
    let passing = matches!(&e, BusError::Connection { .. }) || says(&e, "ALREADY_RUNNING");
    CniError::new(if passing { Code::TRY_AGAIN_LATER } else { Code::INTERNAL }, format!("firewalld: {e}"))
}
