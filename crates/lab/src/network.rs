//! Where a lab's pods find their networks.

use std::collections::BTreeMap;
use std::path::PathBuf;

use attach::{Given, Networks};
use cni::{CniError, NetworkList};
use json::Object;
use npwg::{Definition, DefinitionRef};

use crate::manifest::SYSTEM_NAMESPACE;
use crate::state::Node;

/// The bridge of the lab's own default network.
pub(crate) const BRIDGE: &str = "lab0";

/// The networks of one node of a lab.
pub(crate) struct LabNetworks<'a> {
    pub(crate) default: Option<Given>,
    pub(crate) definitions: &'a BTreeMap<String, Definition>,
    pub(crate) conf_dirs: &'a [PathBuf],
}

impl Networks for LabNetworks<'_> {
    fn default_network(&self) -> Option<&Given> {
        self.default.as_ref()
    }

    fn definition(&self, reference: &DefinitionRef) -> Option<&Definition> {
        self.definitions.get(&reference.to_string())
    }

    fn system_namespace(&self) -> &str {
        SYSTEM_NAMESPACE
    }

    /// The first directory that has it; the error is that of the last one searched.
    fn on_disk(&self, name: &str) -> Result<NetworkList, CniError> {
        let mut last = None;
        for dir in self.conf_dirs {
            match chain::load(dir, name) {
                Ok(list) => return Ok(list),
                Err(e) => last = Some(e),
            }
        }
        match last {
            Some(e) => Err(e.into()),
            None => Err(CniError::invalid("conf-dir", format!("no directory is configured to look for network {name:?} in"))),
        }
    }
}

/// The lab's own default network on a node: a bridge with addresses of both families, and the pods' default routes.
pub(crate) fn own_default(node: &Node) -> Result<NetworkList, CniError> {
    let range = |net: &ipnet::IpNet| {
        let mut o = Object::new();
        o.set("subnet", net.to_string());
        vec![o]
    };
    let mut ipam = Object::new();
    ipam.set("type", "host-local");
    ipam.set("ranges", node.pod_cidrs.iter().map(range).collect::<Vec<_>>());
    let mut capabilities = Object::new();
    capabilities.set("ips", true);
    capabilities.set("mac", true);
    let mut plugin = Object::new();
    plugin.set("type", "bridge");
    plugin.set("bridge", BRIDGE);
    plugin.set("isDefaultGateway", true);
    plugin.set("hairpinMode", true);
    plugin.set("ipam", ipam);
    plugin.set("capabilities", capabilities);
    let mut list = Object::new();
    list.set("cniVersion", cni::Version::LATEST.as_str());
    list.set("name", "lab");
    list.set("plugins", vec![plugin]);
    Ok(NetworkList::parse(json::compact(&list).as_bytes(), None)?)
}
