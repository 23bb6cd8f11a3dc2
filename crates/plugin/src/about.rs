//! What a plugin says of itself: VERSION, help and documentation are made from it.

use cni::Version;

/// A plugin's description, one constant per plugin.
#[derive(Debug)]
pub struct About {
    /// The name that a configuration's `type` (or `ipam.type`) gives.
    pub name: &'static str,
    /// One line: what it does.
    pub summary: &'static str,
    /// The versions of the specification that it supports.
    pub versions: &'static [Version],
    /// The `runtimeConfig` that it understands.
    pub capabilities: &'static [&'static str],
    /// The configuration keys that it reads.
    pub keys: &'static [Key],
    /// For an IPAM plugin: whether it can say addresses only when the interface is there, as DHCP can. Others are asked
    /// before anything is made, so that what they refuse leaves no trace.
    pub needs_link: bool,
}

/// One configuration key.
#[derive(Debug)]
pub struct Key {
    /// Its name, with a path where it is nested: `ipam.subnet`.
    pub name: &'static str,
    /// What kind of value: `bool`, `bytes`, `string`, ...
    pub kind: &'static str,
    /// What holds without it.
    pub default: &'static str,
    /// One line: what it does.
    pub summary: &'static str,
}

// === impl Key ===

impl Key {
    /// A key in one line of a table.
    pub const fn new(name: &'static str, kind: &'static str, default: &'static str, summary: &'static str) -> Self {
        Key { name, kind, default, summary }
    }
}
