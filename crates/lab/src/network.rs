//! Where a lab's pods find their networks.

use std::collections::BTreeMap;
use std::path::PathBuf;

use attach::{ImplicitNetwork, Networks};
use cni::{CniError, NetworkList};
use npwg::{Definition, DefinitionRef};

use crate::manifest::SYSTEM_NAMESPACE;

/// The networks of one node of a lab.
pub(crate) struct LabNetworks<'a> {
    pub(crate) default: Option<ImplicitNetwork>,
    pub(crate) definitions: &'a BTreeMap<String, Definition>,
    pub(crate) conf_dirs: &'a [PathBuf],
}

impl Networks for LabNetworks<'_> {
    fn default_network(&self) -> Option<&ImplicitNetwork> {
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
