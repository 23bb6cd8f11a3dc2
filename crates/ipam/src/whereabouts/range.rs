//! One range: which addresses it has, of which pool they are, and how a cluster shares them out.

use std::net::IpAddr;

use api::{Entry, IpPoolFamily, Reuse, ReuseOrder, Scaling};
use pool::{Family, Run, Spec};

use super::{RangeKeys, WhereaboutsError, WhereaboutsKeys, no_address, sloppy_address, sloppy_network, wrong};
use crate::shown;

/// As whereabouts has it: the lowest address that is free, at once.
pub(super) const REUSE: Reuse = Reuse { cooldown_seconds: 0, order: ReuseOrder::Lowest };
/// How its pools' names begin.
const NAMED: &str = "whereabouts-";
/// And where their addresses are unique.
const NETWORK: &str = "whereabouts";
/// In a range of no more addresses a node keeps none that it does not use: others may be waiting for them.
const SMALL: u128 = 1024;
/// A node keeps no more of them for itself, whatever `node_slice_size` says: each is a line of its object.
const MOST_KEPT: u64 = 64;

/// A range, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhereaboutsRange {
    /// The pool's name.
    pub pool: String,
    /// Where its addresses are unique.
    pub network: String,
    /// From the first to the last address.
    pub run: Run,
    /// What of them is not handed out.
    pub exclude: Vec<Run>,
    /// The prefix length that an interface gets.
    pub prefix: u8,
    /// The gateway that comes with an address; it is not handed out.
    pub gateway: Option<IpAddr>,
    /// `node_slice_size`
    pub slice: Option<u8>,
    /// `network_name`
    pub network_name: String,
    /// Not `enable_overlapping_ranges`: its addresses are unique in ranges of the same network only.
    pub apart: bool,
}

/// What all ranges of a configuration have in common.
#[derive(Debug)]
pub(super) struct Common {
    network_name: String,
    /// Whether each range is a network of its own.
    apart: bool,
    gateway: Option<IpAddr>,
    slice: Option<u8>,
}

// === impl Common ===

impl Common {
    pub(super) fn check(keys: &WhereaboutsKeys) -> Result<Self, WhereaboutsError> {
        let gateway = match keys.gateway.as_str() {
            "" => None,
            text => Some(sloppy_address(text).ok_or_else(|| no_address("ipam.", "gateway", text))?),
        };
        let slice = match keys.node_slice_size.trim_start_matches('/') {
            "" => None,
            digits => {
                let slice = digits.parse().ok().filter(|slice| *slice <= 128);
                let none = || wrong("ipam.", "node_slice_size", format!("{:?} is not a prefix length", shown(&keys.node_slice_size)));
                Some(slice.ok_or_else(none)?)
            }
        };
        let apart = keys.enable_overlapping_ranges == Some(false);
        Ok(Common { network_name: keys.network_name.clone(), apart, gateway, slice })
    }

    /// Where addresses of this range are unique.
    fn network(&self, range: &str) -> String {
        let mut network = NETWORK.to_owned();
        for part in [self.network_name.as_str(), if self.apart { range } else { "" }].into_iter().filter(|part| !part.is_empty()) {
            network.push('.');
            network.push_str(&label(part));
        }
        network
    }
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

// === impl WhereaboutsRange ===

impl WhereaboutsRange {
    pub(super) fn check(place: &str, raw: &RangeKeys, common: &Common) -> Result<Self, WhereaboutsError> {
        let (net, prefix, first, last) = ends(place, raw)?;
        let family = net.family();
        let run = usable(place, &net, prefix, first, last)?;
        let mut exclude = Vec::new();
        for (i, text) in raw.exclude.iter().enumerate() {
            let excluded = sloppy_network(text).map(|(address, prefix)| Run::network(address, prefix));
            let excluded = excluded.or_else(|| sloppy_address(text).map(Run::single));
            let no_network = || wrong(place, &format!("exclude[{i}]"), format!("{:?} is neither a network nor an IP address", shown(text)));
            exclude.extend(excluded.ok_or_else(no_network)?.common(&run));
        }
        exclude.sort();
        exclude.dedup();
        // Such an address is one of IPv4 wherever it is written: nobody could say where the range ends.
        if [run].iter().chain(&exclude).any(|run| is_mapped(run.first()) || is_mapped(run.last())) {
            return Err(wrong(
                place,
                "range",
                format!("{:?} begins or ends among IPv4-mapped addresses (::ffff:0:0/96)", shown(&raw.range)),
            ));
        }
        let gateway = common.gateway.filter(|gateway| Family::of(*gateway) == family);
        let slice = common.slice.filter(|slice| prefix <= *slice && *slice <= family.bits());
        let network_name = common.network_name.clone();
        let network = common.network(&format!("{}/{prefix}", net.first()));
        let mut range =
            WhereaboutsRange { pool: String::new(), network, run, exclude, prefix, gateway, slice, network_name, apart: common.apart };
        range.pool = range.name(&net, common);
        Ok(range)
    }

    /// Its family.
    #[must_use]
    pub fn family(&self) -> Family {
        self.run.family()
    }

    /// Says the range, and the network where it has a name. What else makes it another pool is a number behind that.
    fn name(&self, net: &Run, common: &Common) -> String {
        let mut name = NAMED.to_owned();
        if !common.network_name.is_empty() {
            name.push_str(&label(&common.network_name));
            name.push('-');
        }
        name.push_str(&format!("{}-{}", spelt(net.first()), self.prefix));
        let plain = usable("", net, self.prefix, None, None).is_ok_and(|all| all == self.run);
        if plain && self.exclude.is_empty() && self.gateway.is_none() && self.slice.is_none() && self.network == NETWORK {
            return name;
        }
        let exclude: Vec<String> = self.exclude.iter().map(ToString::to_string).collect();
        let rest = format!("{} {} {exclude:?} {:?} {:?}", self.network, self.run, self.gateway, self.slice);
        format!("{name}-{}", digest(&rest))
    }

    pub(super) fn to_family(&self) -> IpPoolFamily {
        let range = Entry { range: Some(format!("{}-{}", self.run.first(), self.run.last())), ..Entry::default() };
        IpPoolFamily {
            entries: vec![range],
            // Single addresses: any node may have any address, as with whereabouts, and all ranges of a network are cut in the
            // same places, however they overlap.
            block_prefix: Some(self.family().bits()),
            prefix_length: Some(self.prefix),
            gateway: self.gateway.map(|gateway| gateway.to_string()),
        }
    }

    /// A node gets nothing before a pod asks, as ranges that overlap have the same addresses; then as many as pods come.
    pub(super) fn scaling(&self) -> Scaling {
        let on_demand = Scaling { pre_allocate: 0, max_stock: MOST_KEPT, ..Scaling::default() };
        if let Some(slice) = self.slice {
            let kept = 1_u64.checked_shl((self.family().bits() - slice).into()).unwrap_or(MOST_KEPT).min(MOST_KEPT);
            return Scaling { max_above_watermark: kept, ..on_demand };
        }
        if self.run.count() <= SMALL {
            return Scaling { release_delay_seconds: 5, ..on_demand };
        }
        on_demand
    }
}

/// Whether a pool is a range of a configuration, for which there is no file.
#[must_use]
pub fn is_whereabouts_pool(spec: &Spec) -> bool {
    spec.name.starts_with(NAMED) && spec.network.split('.').next() == Some(NETWORK)
}

/// The network of a range, and its ends where they are given.
fn ends(place: &str, raw: &RangeKeys) -> Result<(Run, u8, Option<IpAddr>, Option<IpAddr>), WhereaboutsError> {
    let (start, network) = match raw.range.split_once('-') {
        Some((start, network)) => (Some(start), network),
        None => (None, raw.range.as_str()),
    };
    let no_network =
        || wrong(place, "range", format!("{:?} is not a network: expected 10.0.0.0/24 or 10.0.0.5-10.0.0.9/24", shown(&raw.range)));
    let (address, prefix) = sloppy_network(network).ok_or_else(no_network)?;
    let net = Run::network(address, prefix);
    let end = |key: &str, text: &str| match text {
        "" => Ok(None),
        text => sloppy_address(text).map(Some).ok_or_else(|| no_address(place, key, text)),
    };
    let Some(start) = start else {
        return Ok((net, prefix, end("range_start", &raw.range_start)?, end("range_end", &raw.range_end)?));
    };
    let first = sloppy_address(start).filter(|first| net.contains(*first));
    let first = first.ok_or_else(|| wrong(place, "range", format!("{:?} is not an address of {network}", shown(start))))?;
    Ok((net, prefix, Some(first), Some(address)))
}

/// All addresses of a network but its first and its last one, from an address to another. An end that is none of them is as if
/// it were not given.
fn usable(place: &str, net: &Run, prefix: u8, first: Option<IpAddr>, last: Option<IpAddr>) -> Result<Run, WhereaboutsError> {
    let too_small = || wrong(place, "range", format!("{}/{prefix} has no usable addresses: it is too small", net.first()));
    let between = |first: u128, last: u128| Run::of_numbers(net.family(), first, last);
    let (lowest, highest) = net.numbers();
    let wide = net.family().bits() - prefix > 1;
    let mut run = between(lowest.saturating_add(1), highest.saturating_sub(1)).filter(|_| wide).ok_or_else(too_small)?;
    if let Some(first) = first.filter(|first| run.contains(*first)) {
        run = between(pool::number(first), run.numbers().1).unwrap_or(run);
    }
    if let Some(last) = last.filter(|last| run.contains(*last)) {
        run = between(run.numbers().0, pool::number(last)).unwrap_or(run);
    }
    Ok(run)
}

/// An address in a name.
fn spelt(address: IpAddr) -> String {
    let text = address.to_string();
    // As whereabouts has it: a name does not end with a dash.
    let text = if text.ends_with(':') { format!("{text}0") } else { text };
    text.replace(':', "-")
}

/// Any text as a part of a name; two texts are two parts.
fn label(text: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let kept: String = text.chars().take(40).map(|c| if plain(c) { c } else { '-' }).collect();
    let kept = kept.trim_matches('-');
    if kept == text { text.to_owned() } else { format!("{kept}-{}", digest(text)).trim_start_matches('-').to_owned() }
}

/// FNV-1a: the same on every machine and in every release.
fn digest(text: &str) -> String {
    let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{:08x}", sum >> 32 ^ sum & 0xffff_ffff)
}
