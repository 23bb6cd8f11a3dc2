//! Who holds which address: what stands behind the IPAM plugins `host-local` and `static`. No plugin contract here,
//! and no JSON: a plugin reads its configuration into the `Raw...` types and hands them over.
//!
//! ```text
//! RawRange  --RangeSet::check_all--> [RangeSet] --+
//! CNI_ARGS, args.cni.ips, runtimeConfig.ips       +--> Store::allocate --> [Allocated]   (one for each set)
//!           --requested_addresses--> [IpAddr] ----+        |
//!                                              <dataDir>/<network>/<address>    the reference plugin's format
//!                                              <dataDir>/.<network>.index       ours, so that no call reads them all
//!
//! RawAddress, CNI_ARGS, args.cni.ips, runtimeConfig.ips --static_addresses--> [IpConfig]
//! RawRoute --check_routes--> [Route]          resolv.conf --parse_resolv_conf--> Dns
//! ```
//!
//! ```
//! # use netloom_ipam as ipam;
//! # use ipam::{Owner, RangeSet, RangeSources, RawRange, Store};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = std::env::temp_dir().join(format!("netloom-ipam-doc-{}", std::process::id()));
//! let ranges = vec![vec![RawRange { subnet: "10.1.0.0/24".into(), ..RawRange::default() }]];
//! let sets = RangeSet::check_all(RangeSources { ranges: &ranges, ..RangeSources::default() })?;
//! let owner = Owner { id: "pod-1".parse()?, ifname: "eth0".parse()? };
//!
//! let store = Store::open(&dir, &"mynet".parse()?);
//! let got = store.allocate(&owner, &sets, &[])?;
//! assert_eq!(got[0].address.to_string(), "10.1.0.2/24");
//! assert_eq!(store.release(&owner)?, [got[0].address.addr()]);
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok(()) }
//! ```

use std::net::IpAddr;

use ipnet::IpNet;

pub mod cilium;
mod host_local;
mod pool;
mod range;
mod requested;
mod resolv_conf;
mod routes;
mod source;
mod static_addresses;
mod whereabouts;

pub use self::pool::{
    AGENT, AddressConflict, CLASSES, Clock, Collected, FREED, Figures, Granted, HostPools, Intake, InvalidKey, KeptFor, Meters, NodeGrants,
    ObservedAddress, ObservedClaim, Pool, PoolError, PoolStore, PoolStoreError, RECOVERING, ReserveHint, Stocks, StoreLocation, Surplus,
    Tenure, Times, Was, blocks_in_use, check_pool, has_emptied, lacks, node_demand, node_grants, node_holding, node_in_use, owner_in_words,
    owner_name, pool_names, pool_path, read_pool, recalled, returning, surplus,
};
pub use host_local::{
    AllocateError, Allocated, DEFAULT_DATA_DIR, GcError, Holder, IoFailure, LockError, LockHolder, Owner, Store, StoreError,
    can_be_requested, release_container,
};
pub use range::{Range, RangeError, RangeSet, RangeSources, RawRange};
pub use requested::{FamilyError, HOST_LOCAL_ARGS, RequestedError, RequestedSources, one_per_family, requested_addresses};
pub use resolv_conf::{ResolvConfError, parse_resolv_conf, read_resolv_conf};
pub use routes::{RawRoute, RouteError, check_routes};
pub use source::{family, pool_name, source};
pub use static_addresses::{RawAddress, STATIC_ARGS, StaticError, StaticSources, static_addresses};
pub use whereabouts::{
    Defined, ExportPlan, ImportPlan, Inventory, Left, LivingPod, NotedBy, PodAttachment, RangeKeys, RangePools, Reservation,
    TheirAllocation, TheirPool, TheirReservation, Undefined, WHEREABOUTS_FILES, Whereabouts, WhereaboutsError, WhereaboutsKeys,
    WhereaboutsRange, is_whereabouts_pool, only_ranges, plan_export, plan_import, range_pools, sloppy_address, sloppy_network,
};

/// An address with its prefix length, as Go's `net.ParseCIDR` reads it. `IpNet`'s own reading takes `010.0.0.0/8`, which
/// others read as octal.
fn net(text: &str) -> Option<IpNet> {
    let (address, prefix) = text.split_once('/')?;
    let digits = prefix.bytes().all(|b| b.is_ascii_digit());
    IpNet::new(address.parse::<IpAddr>().ok()?, prefix.parse().ok().filter(|_| digits)?).ok()
}

/// Untrusted text as it is shown in a message: long text would bury it.
fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn networks_are_read_strictly() {
        for good in ["10.0.0.7/24", "0.0.0.0/0", "fd00::1/128", "::/0"] {
            assert_eq!(super::net(good).unwrap().to_string(), good);
        }
        for bad in
            ["", "/", "10.0.0.7", "10.0.0.7/", "10.0.0.7/33", "10.0.0.7/+8", "010.0.0.7/8", "10.0.0.7/255.0.0.0", "fe80::1%eth0/64", "1/8"]
        {
            assert_eq!(super::net(bad), None, "{bad}");
        }
    }
}
