//! `dhcp`: addresses from a DHCP server. The plugin asks the daemon (crate `dhcp`), which keeps the lease.

use std::path::Path;

use ::dhcp::{Daemon, Wanted};
use cni::{AddResult, AttachmentId, CniError, Config, Version};
use plugin::{About, Call, Cx, Draft, Key, LongWait, Plugin, Stage};

use crate::internal;

/// The plugin `dhcp`.
pub(crate) struct Dhcp;

static ABOUT: About = About {
    name: "dhcp",
    summary: "assigns addresses that a DHCP server grants and a daemon renews",
    versions: Version::ALL,
    capabilities: &[],
    keys: &[
        Key::path("ipam.daemonSocketPath", "/run/cni/dhcp.sock", &[], "the daemon's socket"),
        Key::new("ipam.ipv6", "bool or only", "false", "true: an IPv6 address as well, by DHCPv6; \"only\": no IPv4 address"),
        Key::new("ipam.request", "list", "121, 3, 1, ...", "{option, skipDefault}: options requested from the server")
            .of(&["option", "skipDefault"]),
        Key::options("ipam.provide", "{option, value or fromArg}: options sent to the server; fromArg is a key of CNI_ARGS")
            .of(&["option", "value", "fromArg"]),
        Key::new("ipam.priority", "metric", "none", "metric of the routes"),
        Key::new("ipam.probe", "ms", "2 to 20", "how long an ADD probes the offered address for another user; 0: no probe"),
    ],
    needs_link: true,
};

/// What goes to the daemon; it finds the namespace by its path.
fn message(call: &Call<'_>) -> Result<wire::Call, CniError> {
    // It runs in another directory.
    let netns = call.netns.map(|netns| std::path::absolute(netns.path())).transpose().map_err(internal)?;
    Ok(wire::Call {
        container_id: call.id.container.to_string(),
        ifname: call.id.ifname.to_string(),
        netns: netns.as_deref().unwrap_or(Path::new("")).to_string_lossy().into_owned(),
        args: call.args.to_string(),
        config: call.config.print(call.prev)?.into_bytes(),
        ..wire::Call::default()
    })
}

/// The daemon of a configuration. One that keeps its files elsewhere, as a lab does, has no business with this machine's daemon.
fn daemon(config: &Config, cx: &Cx<'_>) -> Result<Daemon, CniError> {
    let path = ::dhcp::socket(config)?;
    Ok(Daemon::at(&cx.host.dirs.configured(&path.to_string_lossy(), &path)))
}

/// Notes that the lease is to be released: while the link that it came over is still there.
fn release(call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
    let (daemon, id, message) = (daemon(call.config, cx)?, call.id.clone(), message(call)?);
    cx.teardown.at(Stage::Devices, format!("release the DHCP lease of {id}"), move |_| daemon.del(&id, message));
    Ok(())
}

impl Plugin for Dhcp {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        ::dhcp::socket(draft.config)?;
        Wanted::read(draft.config, &cni::CniArgs::default()).map(drop)
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        Wanted::read(call.config, call.args)?;
        call.netns()?;
        let daemon = daemon(call.config, cx)?;
        let message = message(&Call { prev: None, ..*call })?;
        // Only a daemon that was reached can have a lease.
        daemon.status().map_err(|e| CniError { code: cni::Code::TRY_AGAIN_LATER, ..e })?;
        release(call, cx)?;
        let wait = LongWait::new(cx.delegate);
        let result = daemon.add(message, cx.deadline, &|| wait.goes_on())?;
        linux::crash_point!("dhcp-added");
        Ok(result)
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        daemon(call.config, cx)?.check(message(call)?)
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        // An ADD with such a configuration was refused, and has left nothing.
        let _ = release(call, cx);
        Ok(())
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        Wanted::read(config, &cni::CniArgs::default())?;
        daemon(config, cx)?.status()
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        let (daemon, network, valid) = (daemon(config, cx)?, config.network.clone(), valid.to_vec());
        let text = config.with_valid(&valid).print(None)?;
        let message = wire::Call { config: text.into_bytes(), ..wire::Call::default() };
        cx.teardown
            .at(Stage::Devices, format!("release the unused DHCP leases of {network}"), move |_| daemon.gc(&network, &valid, message));
        Ok(())
    }
}
