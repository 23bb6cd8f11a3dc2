//! `static`: addresses that the configuration or the caller names.

use cni::{AddResult, CniArgs, CniError, Code, Config, Dns, Version};
use ipam::{RawAddress, RawRoute, StaticSources};
use plugin::{About, Call, Cx, DNS, Draft, Key, Plugin, ROUTE};
use serde::Deserialize;

use crate::address;

/// The plugin `static`.
pub(crate) struct Static;

static ABOUT: About = About {
    name: "static",
    summary: "assigns the addresses that the configuration or the caller names",
    versions: Version::ALL,
    capabilities: &["ips"],
    keys: &[
        Key::new("ipam.addresses", "list", "none", "{address, gateway} of the container").of(&["address", "gateway"]),
        Key::new("ipam.routes", "list", "none", "routes {dst, gw, mtu, advmss, priority, table, scope} for the container").of(ROUTE),
        Key::new("ipam.dns", "object", "none", "{nameservers, domain, search, options}").of(DNS),
    ],
    needs_link: false,
};

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    ipam: IpamKeys,
    runtime_config: Ips,
    args: ArgsKeys,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct IpamKeys {
    addresses: Vec<RawAddress>,
    routes: Vec<RawRoute>,
    dns: Dns,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ArgsKeys {
    cni: Ips,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Ips {
    ips: Vec<String>,
}

impl Static {
    fn result(config: &Config, args: &CniArgs) -> Result<AddResult, CniError> {
        let keys: Keys = config.read()?;
        address::told(config)?;
        args.only(&["IP", "GATEWAY", "MAC"])?;
        let sources =
            StaticSources { addresses: &keys.ipam.addresses, args, args_ips: &keys.args.cni.ips, runtime_ips: &keys.runtime_config.ips };
        let ips = ipam::static_addresses(sources)?;
        ipam::one_per_family(config.version, ips.iter().map(|ip| ip.address.addr().is_ipv4()))?;
        let routes = ipam::check_routes("ipam.routes", &keys.ipam.routes)?;
        Ok(AddResult { ips, routes, dns: keys.ipam.dns, ..AddResult::default() })
    }
}

impl Plugin for Static {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        let result = Static::result(draft.config, &CniArgs::default())?;
        match result.ips.is_empty() && !draft.may_get("ips") {
            true => Err(address::none_of("static")),
            false => Ok(()),
        }
    }

    fn add(&self, call: &Call<'_>, _: &mut Cx<'_>) -> Result<AddResult, CniError> {
        Static::result(call.config, call.args)
    }

    fn check(&self, call: &Call<'_>, _: &mut Cx<'_>) -> Result<(), CniError> {
        let prev = call.prev()?;
        for wanted in Static::result(call.config, call.args)?.ips {
            let same = |ip: &&cni::IpConfig| ip.address == wanted.address;
            let Some(found) = prev.ips.iter().find(same) else {
                return Err(CniError::new(Code::INTERNAL, format!("static: address {} is not in the result of the ADD", wanted.address)));
            };
            if wanted.gateway.is_some() && found.gateway != wanted.gateway {
                let gateway = found.gateway.map(|g| g.to_string()).unwrap_or_default();
                return Err(CniError::new(
                    Code::INTERNAL,
                    format!("static: the gateway of {} is {gateway:?} in the result of the ADD", wanted.address),
                ));
            }
        }
        Ok(())
    }

    /// Nothing is kept.
    fn del(&self, _: &Call<'_>, _: &mut Cx<'_>) -> Result<(), CniError> {
        Ok(())
    }

    fn status(&self, config: &Config, _: &mut Cx<'_>) -> Result<(), CniError> {
        let keys: Keys = config.read()?;
        address::told(config)?;
        ipam::check_routes("ipam.routes", &keys.ipam.routes)?;
        Ok(())
    }
}
