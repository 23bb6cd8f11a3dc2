//! What the credentials may do in Neutron: its policy says so of nobody, so a port is made with one thing more each time, and deleted.

use std::sync::Arc;
use std::time::Duration;

use binding::DEVICE_OWNER;
use neutron::{Neutron, PortFilter, Refusal};
use openstack::Settings;
use openstack::resource::{NewPort, Port, WantedIp};
use tokio::time::sleep;

use super::look::{LookError, runtime};
use super::options::OpenStack;
use super::work::EXTENSION;
use crate::lease::Leadership;
use crate::log::Line;

/// A right of Neutron's policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    /// Its name there, as `create_port:binding:host_id`.
    pub name: &'static str,
    /// What needs it.
    pub used_for: &'static str,
    /// Why it is missing; none where it is there.
    pub missing: Option<String>,
}

/// A host that no agent serves: the port is not bound.
const HOST: &str = "netloom-rights";
/// The port says what it is, for the case that it is left behind.
const DESCRIPTION: &str = "Netloom has made this port to see whether it may, and deletes it when it looks the next time";
/// Of a private range: no vendor's.
const MAC: &str = "02:00:6e:65:74:6c";
/// After a failure that is of no right, they are tried again after this time.
const AGAIN: Duration = Duration::from_secs(60);
/// How often it is asked whether this operator works.
const LOOK: Duration = Duration::from_secs(2);

/// Tries them in the subnet of the settings. Nothing is left.
///
/// # Errors
/// [`LookError`]: the settings name no subnet, or Neutron fails at something else than a right.
pub fn rights(openstack: &OpenStack) -> Result<Vec<Right>, LookError> {
    runtime()?.block_on(look(&openstack.neutron, &openstack.settings))
}

/// Names each right that is missing in the log, once, when this operator is the one that works.
pub(super) async fn tell(neutron: Neutron, settings: Settings, lead: Arc<Leadership>) {
    while !lead.leads() {
        sleep(LOOK).await;
    }
    let all = loop {
        match look(&neutron, &settings).await {
            Ok(all) => break all,
            // Nothing to try it in: ports are made in the subnets of definitions, or of namespaces, alone.
            Err(LookError::NoSubnet) => {
                let now = "set pod_subnet to have them tried";
                Line::info("openstack").with("rights", "not tried: the settings name no subnet").with("now", now).end();
                break Vec::new();
            }
            Err(e) => {
                let now = format!("trying again in {} s", AGAIN.as_secs());
                Line::warn("openstack").with("what", "try the credentials' rights").with("error", e).with("now", now).end();
            }
        }
        sleep(AGAIN).await;
    };
    for (right, why) in all.iter().filter_map(|right| Some((right, right.missing.as_ref()?))) {
        let now = "let Neutron's policy give it to the credentials' role, or use others";
        let line = Line::warn("openstack").with("missing", right.name).with("needed_for", right.used_for);
        line.with("error", why).with("now", now).end();
    }
    // A part of the operator that ends is one that has failed.
    std::future::pending().await
}

async fn look(neutron: &Neutron, settings: &Settings) -> Result<Vec<Right>, LookError> {
    let subnet = settings.subnet.iter().chain(settings.subnet_of_driver.values()).next().ok_or(LookError::NoSubnet)?;
    // Of one that was killed.
    let left =
        PortFilter { device_owner: Some(DEVICE_OWNER.to_owned()), description: Some(DESCRIPTION.to_owned()), ..PortFilter::default() };
    for port in neutron.ports(&left).await? {
        neutron.delete_port(&port.id).await?;
    }
    let network_id = neutron.subnet(subnet).await?.network_id;
    let port = NewPort {
        network_id,
        project_id: settings.project.clone(),
        admin_state_up: true,
        device_owner: DEVICE_OWNER.to_owned(),
        fixed_ips: vec![WantedIp { subnet_id: Some(subnet.clone()), ip_address: None }],
        security_groups: Some(settings.security_groups.clone()).filter(|groups| !groups.is_empty()),
        description: DESCRIPTION.to_owned(),
        ..NewPort::default()
    };
    let mut all = vec![tried(neutron, "create_port", "every port", &port).await?.0];
    let on_host = NewPort { host: HOST.to_owned(), ..port.clone() };
    let (right, made) = tried(neutron, "create_port:binding:host_id", "every port but nested ones", &on_host).await?;
    all.push(right);
    // Who may not see it gets a port without it.
    let hidden = made.filter(|port| port.vif_type.is_empty()).map(|_| "Neutron does not show it".to_owned());
    all.push(Right { name: "get_port:binding:vif_type", used_for: "every port but nested ones", missing: hidden });
    let with_mac = NewPort { mac_address: Some(MAC.to_owned()), ..port.clone() };
    all.push(tried(neutron, "create_port:mac_address", "selections with mac", &with_mac).await?.0);
    if neutron.extensions().await?.contains(EXTENSION) {
        let with_tags = NewPort { tags: vec![HOST.to_owned()], ..port };
        all.push(tried(neutron, "create_port:tags", "every port", &with_tags).await?.0);
    }
    Ok(all)
}

/// Whether a port can be made so, and the port, which is gone by then.
async fn tried(neutron: &Neutron, name: &'static str, used_for: &'static str, port: &NewPort) -> Result<(Right, Option<Port>), LookError> {
    let missing = |missing| Right { name, used_for, missing };
    match neutron.create_ports(std::slice::from_ref(port)).await {
        Ok(made) => {
            for port in &made.value {
                neutron.delete_port(&port.id).await?;
            }
            Ok((missing(None), made.value.into_iter().next()))
        }
        Err(e) if e.refusal() == Some(Refusal::Forbidden) => Ok((missing(Some(e.to_string())), None)),
        Err(e) => Err(e.into()),
    }
}
