//! A configuration before anybody is attached by it.

use std::collections::BTreeMap;

use cni::{CniError, Config, IfName};

use crate::call::{alone, without_prev};

/// A plugin's configuration, and what is known of the place where it will be used: what [`crate::Plugin::validate`] looks at.
#[derive(Debug, Clone, Copy)]
pub struct Draft<'a> {
    /// What the plugin will be given, less what a runtime adds for a container.
    pub config: &'a Config,
    /// The interface that a container would get.
    pub ifname: &'a IfName,
    /// Whether it is the first plugin of its network: it gets no previous result.
    pub is_first: bool,
    /// The capabilities that the network declares for it: such keys of `runtimeConfig` may come with a container.
    pub capabilities: &'a [&'a str],
    /// The node's interfaces.
    pub links: &'a KnownLinks,
}

/// What is known of a node's interfaces, by their names: nothing of a cluster's, all of a lab's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownLinks {
    mtus: BTreeMap<String, u32>,
}

// === impl Draft ===

impl Draft<'_> {
    /// Whether a runtime may send a key of `runtimeConfig`.
    pub fn may_get(&self, capability: &str) -> bool {
        self.capabilities.contains(&capability)
    }

    /// That there is a plugin before it; see [`crate::Call::prev`].
    ///
    /// # Errors
    /// As there.
    pub fn prev(&self) -> Result<(), CniError> {
        if self.is_first { Err(without_prev()) } else { Ok(()) }
    }

    /// The same in the words of [`crate::Call::chained`].
    ///
    /// # Errors
    /// As there.
    pub fn chained(&self, name: &str, text: &str) -> Result<(), CniError> {
        if self.is_first { Err(alone(name, text)) } else { Ok(()) }
    }
}

// === impl KnownLinks ===

impl KnownLinks {
    /// The MTU of an interface in bytes, if it is known.
    pub fn mtu(&self, name: &str) -> Option<u32> {
        self.mtus.get(name).copied()
    }
}

/// Names with their MTUs.
impl FromIterator<(String, u32)> for KnownLinks {
    fn from_iter<I: IntoIterator<Item = (String, u32)>>(links: I) -> Self {
        KnownLinks { mtus: links.into_iter().collect() }
    }
}
