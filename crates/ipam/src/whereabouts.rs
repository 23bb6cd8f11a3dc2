//! A configuration for `whereabouts`, checked: the pools that it means, and the addresses that it names.
//!
//! ```text
//!   ipam: {type: whereabouts, ...} + flat file --keys--> WhereaboutsKeys --check--> Whereabouts
//!                                                                                   | one WhereaboutsRange for each range
//!                        a host of its own: the pool itself  <----- Pool -----------+
//!                        a cluster: what the operator makes  <----- IpPoolSpec -----+
//! ```
//!
//! A range is a pool of the same terms. Two configurations that mean the same range on the same terms mean the same pool; ranges
//! that differ are pools of one network, where an address is unique, unless `enable_overlapping_ranges` is `false`.

use std::net::IpAddr;

use api::{IpPool, IpPoolSpec};
use cni::{CniError, Code, Dns};
use json::Object;
use pool::Family;
use serde::Deserialize;

use crate::{Pool, RawAddress, RawRoute, shown};

mod definitions;
mod export;
mod extras;
mod flat;
mod import;
mod range;
mod text;

pub use definitions::{Defined, RangePools, Undefined, only_ranges, range_pools};
pub use export::{ExportPlan, plan_export};
pub use import::{
    ImportPlan, Inventory, Left, LivingPod, NotedBy, PodAttachment, Reservation, TheirAllocation, TheirPool, TheirReservation, plan_import,
};
pub use range::{WhereaboutsRange, is_whereabouts_pool};
pub use text::{sloppy_address, sloppy_network};

/// Where whereabouts looks for what a configuration does not say, in this order; `configuration_path` comes before them.
pub const WHEREABOUTS_FILES: &[&str] =
    &["/etc/kubernetes/cni/net.d/whereabouts.d/whereabouts.conf", "/etc/cni/net.d/whereabouts.d/whereabouts.conf"];

/// The key `ipam` as received. What means nothing here is not read: leases, logs, the datastore.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct WhereaboutsKeys {
    /// The first range, together with the three keys behind it.
    pub range: String,
    /// Its first address.
    pub range_start: String,
    /// Its last address.
    pub range_end: String,
    /// What of it is not handed out.
    pub exclude: Vec<String>,
    /// More ranges, each of which gives one address.
    #[serde(rename = "ipRanges")]
    pub ip_ranges: Vec<RangeKeys>,
    /// The gateway of all ranges of its family.
    pub gateway: String,
    /// Where addresses are unique; empty: the network without a name.
    pub network_name: String,
    /// Whether an address is unique in all ranges of a network, and not in each one alone; missing: it is.
    pub enable_overlapping_ranges: Option<bool>,
    /// How much of a range a node keeps for itself, as `/28` or `28`.
    pub node_slice_size: String,
    /// Addresses that every attachment has besides.
    pub addresses: Vec<RawAddress>,
    /// Routes of the result.
    pub routes: Vec<RawRoute>,
    /// DNS of the result.
    pub dns: Dns,
    /// A file with what is not said here.
    pub configuration_path: String,
    /// For how many seconds an ADD waits for addresses; not a key of whereabouts.
    #[serde(rename = "addWait")]
    pub add_wait: Option<u32>,
}

/// An element of `ipRanges` as received.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RangeKeys {
    /// `10.0.0.0/24` or `10.0.0.10-10.0.0.20/24`.
    pub range: String,
    /// Its first address.
    pub range_start: String,
    /// Its last address.
    pub range_end: String,
    /// What of it is not handed out.
    pub exclude: Vec<String>,
}

/// A configuration that means something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whereabouts {
    /// Its ranges in order, each of which gives one address.
    pub ranges: Vec<WhereaboutsRange>,
}

/// What of a plugin's configuration says which ranges it means.
#[derive(Deserialize, Default)]
#[serde(default)]
struct PluginKeys {
    ipam: WhereaboutsKeys,
}

/// A configuration that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct WhereaboutsError {
    /// The key.
    pub place: String,
    /// What is wrong with it.
    pub reason: String,
}

impl From<WhereaboutsError> for CniError {
    fn from(e: WhereaboutsError) -> Self {
        CniError::new(Code::INVALID_CONFIG, e.to_string()).at(e.place)
    }
}

// === impl WhereaboutsKeys ===

impl WhereaboutsKeys {
    /// What this does not say, as a flat file says it. `true` and `false` count as said.
    #[must_use]
    pub fn or(mut self, file: WhereaboutsKeys) -> Self {
        fn fill<T: Default + PartialEq>(mine: &mut T, other: T) {
            if *mine == T::default() {
                *mine = other;
            }
        }
        fill(&mut self.range, file.range);
        fill(&mut self.range_start, file.range_start);
        fill(&mut self.range_end, file.range_end);
        fill(&mut self.exclude, file.exclude);
        fill(&mut self.ip_ranges, file.ip_ranges);
        fill(&mut self.gateway, file.gateway);
        fill(&mut self.network_name, file.network_name);
        fill(&mut self.enable_overlapping_ranges, file.enable_overlapping_ranges);
        fill(&mut self.node_slice_size, file.node_slice_size);
        fill(&mut self.addresses, file.addresses);
        fill(&mut self.routes, file.routes);
        fill(&mut self.dns, file.dns);
        fill(&mut self.add_wait, file.add_wait);
        self
    }

    /// All ranges in order: that of `range` first.
    fn all_ranges(&self) -> Vec<(String, RangeKeys)> {
        let own = (!self.range.is_empty()).then(|| {
            let (range_start, range_end) = (self.range_start.clone(), self.range_end.clone());
            ("ipam.".to_owned(), RangeKeys { range: self.range.clone(), range_start, range_end, exclude: self.exclude.clone() })
        });
        let others = self.ip_ranges.iter().enumerate().map(|(i, range)| (format!("ipam.ipRanges[{i}]."), range.clone()));
        own.into_iter().chain(others).collect()
    }
}

// === impl Whereabouts ===

impl Whereabouts {
    /// What the configuration of a plugin whose addresses are of whereabouts means, with what this host's flat file adds.
    ///
    /// # Errors
    /// [`WhereaboutsError`] naming the first key or file that is wrong.
    pub fn of_plugin(plugin: &Object) -> Result<Self, WhereaboutsError> {
        let keys: PluginKeys = json::read_object(plugin).map_err(|e| wrong("", e.path(), "has a wrong type"))?;
        let keys = keys.ipam.with_flat_file()?;
        let meant = Whereabouts::check(&keys)?;
        // The file said so.
        if meant.ranges.is_empty() && keys.addresses.is_empty() { Err(wrong("ipam.", "range", "missing")) } else { Ok(meant) }
    }

    /// Which of the addresses that an attachment got is of which range: the first ones, in the ranges' order; others are configured.
    /// `None`: they are of other ranges.
    #[must_use]
    pub fn explain(&self, told: &[IpAddr]) -> Option<Vec<(&WhereaboutsRange, IpAddr)>> {
        let of_ranges = self.ranges.iter().enumerate();
        of_ranges.map(|(at, range)| told.get(at).filter(|address| range.run.contains(**address)).map(|address| (range, *address))).collect()
    }

    /// What a configuration means.
    ///
    /// # Errors
    /// [`WhereaboutsError`] naming the first key that is wrong.
    pub fn check(keys: &WhereaboutsKeys) -> Result<Self, WhereaboutsError> {
        let terms = range::Common::check(keys)?;
        let ranges = keys.all_ranges();
        let ranges = ranges.iter().map(|(place, raw)| WhereaboutsRange::check(place, raw, &terms));
        Ok(Whereabouts { ranges: ranges.collect::<Result<_, _>>()? })
    }
}

// === impl WhereaboutsRange ===

impl WhereaboutsRange {
    /// The pool of a host that has the range for itself.
    ///
    /// # Errors
    /// [`WhereaboutsError`]: none that a checked range has.
    pub fn to_pool(&self) -> Result<Pool, WhereaboutsError> {
        let object = IpPool { spec: self.to_spec(), ..IpPool::default() };
        crate::check_pool(&self.pool, &object).map_err(|(place, reason)| WhereaboutsError { place, reason })
    }

    /// The pool of a cluster.
    #[must_use]
    pub fn to_spec(&self) -> IpPoolSpec {
        let family = Some(self.to_family());
        let (ipv4, ipv6) = if self.family() == Family::V4 { (family, None) } else { (None, family) };
        let exclude = self.exclude.iter().map(ToString::to_string).collect();
        let (network, scaling, reuse) = (self.network.clone(), self.scaling(), range::REUSE);
        IpPoolSpec { network, ipv4, ipv6, exclude, scaling, reuse, ..IpPoolSpec::default() }
    }
}

fn wrong(place: &str, key: &str, reason: impl std::fmt::Display) -> WhereaboutsError {
    WhereaboutsError { place: format!("{place}{key}"), reason: reason.to_string() }
}

fn no_address(place: &str, key: &str, text: &str) -> WhereaboutsError {
    wrong(place, key, format!("{:?} is not an IP address", shown(text)))
}

#[cfg(test)]
mod tests;
