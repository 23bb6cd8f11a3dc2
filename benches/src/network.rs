//! What is attached: the two networks of a measurement, and what a host needs for them.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use crate::namespace::Namespace;

/// What a container gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Network {
    /// One `bridge` with an address of `host-local`, and the default route.
    Bridge,
    /// That as the default network, and three `macvlan` networks.
    Pod,
}

/// What a runtime asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    Version,
    Add,
    Del,
}

/// The macvlan networks of a pod.
pub(crate) const MACVLANS: [u8; 3] = [1, 2, 3];

/// The bridge and the macvlans' parent in a host.
pub(crate) const BRIDGE: &str = "bench0";
pub(crate) const PARENT: &str = "wire0";

// === impl Verb ===

impl Verb {
    /// The value of `CNI_COMMAND`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Verb::Version => "VERSION",
            Verb::Add => "ADD",
            Verb::Del => "DEL",
        }
    }
}

// === impl Network ===

impl Network {
    pub(crate) const ALL: [Network; 2] = [Network::Bridge, Network::Pod];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Network::Bridge => "bridge + host-local",
            Network::Pod => "a pod: bridge and 3 macvlans, host-local",
        }
    }

    /// In the order of a container's life.
    pub(crate) fn verbs(self) -> &'static [Verb] {
        match self {
            Network::Bridge => &[Verb::Version, Verb::Add, Verb::Del],
            Network::Pod => &[Verb::Add, Verb::Del],
        }
    }

    /// The interfaces of a container and the configuration of each, with address files below `data`.
    pub(crate) fn attachments(self, data: &Path) -> Vec<(String, Value)> {
        let ipam = |net: u8| json!({"type": "host-local", "dataDir": data, "ranges": [[{"subnet": format!("10.{}.0.0/16", 77 + net)}]]});
        let bridge = json!({
            "cniVersion": "1.0.0", "name": "bench", "type": "bridge", "bridge": BRIDGE, "isDefaultGateway": true, "ipam": ipam(0),
        });
        let macvlan = |net: u8| {
            let config = json!({
                "cniVersion": "1.0.0", "name": format!("bench{net}"), "type": "macvlan", "master": PARENT, "mode": "bridge",
                "ipam": ipam(net),
            });
            (format!("net{net}"), config)
        };
        let mut attachments = vec![("eth0".to_owned(), bridge)];
        if self == Network::Pod {
            attachments.extend(MACVLANS.map(macvlan));
        }
        attachments
    }
}

/// Makes the macvlans' parent, one end of a pair whose other end is up too.
pub(crate) fn prepare(host: &Namespace) -> Result<()> {
    host.ip(&["link", "set", "lo", "up"])?;
    host.ip(&["link", "add", PARENT, "up", "type", "veth", "peer", "name", "wire1"])?;
    host.ip(&["link", "set", "wire1", "up"])?;
    Ok(())
}
