//! Keeps the runtime's configuration: it is there from the moment at which the default network is ready, and what happens
//! to the default network later does not take it away.
//!
//! ```text
//!                 default network readable, its readiness file there
//!   (waits) ---------------------------------------------------------> stands: written anew if it would read otherwise
//!      ^                                                                  |
//!      '------------------------- `uninstall` ----------------------------'   nothing else leads back
//! ```

use std::path::PathBuf;

use cni::{CniError, NetworkList};

use super::{InstallError, Places, entry};
use crate::default_network::is_on_host;

/// Knows whether the runtime's configuration is to be there.
#[derive(Debug)]
pub(crate) struct Keeper {
    places: Places,
    early: bool,
    /// What the configuration was last made for.
    last: Option<NetworkList>,
}

/// What a look has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Looked {
    /// The configuration is not to be there yet. Why.
    Waits(String),
    /// The configuration is there.
    Stands {
        /// It was written just now.
        changed: bool,
        /// Why it is not made for the default network as it is now, if it is not.
        but: Option<String>,
    },
}

// === impl Keeper ===

impl Keeper {
    /// Nothing was looked at.
    pub(crate) fn new(places: Places, early: bool) -> Self {
        Keeper { places, early, last: None }
    }

    /// Where something changes that matters here, besides the default network's own place.
    pub(crate) fn watched(&self) -> Vec<PathBuf> {
        let places = &self.places;
        [places.entry(), places.marker()].into_iter().chain(places.ready_file.clone()).collect()
    }

    /// Looks at the default network, and writes the configuration if it is to be there and is not.
    pub(crate) fn look(&mut self, default: impl FnOnce() -> Result<NetworkList, CniError>) -> Result<Looked, InstallError> {
        if self.places.marker().symlink_metadata().is_ok() {
            return Ok(Looked::Waits("it was uninstalled; reinstall it with `netloom agent install`".to_owned()));
        }
        let but = match self.ready().and_then(|()| default().map_err(|e| e.to_string())) {
            Ok(list) => {
                self.last = Some(list);
                None
            }
            Err(reason) => Some(reason),
        };
        if let (Some(reason), None) = (&but, &self.last) {
            if self.places.entry().symlink_metadata().is_ok() {
                // Of an agent before this one: it knew what it was made for.
                return Ok(Looked::Stands { changed: false, but });
            }
            if !self.early {
                return Ok(Looked::Waits(reason.clone()));
            }
        }
        if !self.places.dedicated && !self.places.config_dir.is_dir() {
            return Ok(Looked::Waits(format!("{} does not exist yet", self.places.config_dir.display())));
        }
        let changed = entry::write(&self.places, self.last.as_ref())?;
        Ok(Looked::Stands { changed, but })
    }

    fn ready(&self) -> Result<(), String> {
        match &self.places.ready_file {
            Some(file) if !is_on_host(file) => Err(format!("still waiting for readinessindicatorfile @ {}", file.display())),
            _ => Ok(()),
        }
    }
}
