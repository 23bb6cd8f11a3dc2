//! What `bandwidth` is told: bits as people count them, checked, and in the kernel's bytes.

use cni::{CniError, Config};
use ipnet::IpNet;
use linux::tc::{Bucket, Tbf};
use serde::Deserialize;

/// How long a packet waits at most, in milliseconds, once the burst is used up: as in the reference plugin, without a key.
const LATENCY: u64 = 25;

/// Bytes that may wait, whatever the burst is, unless the rate needs more for its latency: packets take the host's memory, and the kubelet
/// asks for a burst of 2^31 - 1 bits where a pod has a rate alone.
const QUEUE: u64 = 16 << 20;

/// The most that may wait at any rate.
const MOST_QUEUED: u64 = 64 << 20;

/// Bytes of an Ethernet header, which the kernel counts.
pub(super) const ETHERNET: u32 = 14;

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    runtime_config: Runtime,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Runtime {
    bandwidth: Entry,
}

/// The same keys in the configuration and in the capability.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Entry {
    ingress_rate: Option<u64>,
    ingress_burst: Option<u64>,
    egress_rate: Option<u64>,
    egress_burst: Option<u64>,
    unshaped_subnets: Option<Vec<String>>,
    shaped_subnets: Option<Vec<String>>,
}

/// The checked configuration. Directions are the container's: ingress is what it receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conf {
    pub(super) ingress: Option<Limit>,
    pub(super) egress: Option<Limit>,
    pub(super) shaped: Shaped,
}

/// How fast one direction may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    key: &'static str,
    pub(super) bucket: Bucket,
}

/// Which packets are held back: by where they come from (ingress) or go (egress).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shaped {
    All,
    Except(Vec<IpNet>),
    Only(Vec<IpNet>),
}

// === impl Conf ===

impl Conf {
    pub(super) fn read(config: &Config) -> Result<Self, CniError> {
        let (own, Keys { runtime_config }): (Entry, Keys) = (config.read()?, config.read()?);
        let (at, runtime) = ("runtimeConfig.bandwidth.", runtime_config.bandwidth);
        // One limit in the configuration, be it 0, and what the runtime asks for does not count.
        let (place, limits) = if own.limits() { ("", &own) } else { (at, &runtime) };
        let (from, networks) = if own.networks() { ("", &own) } else { (at, &runtime) };
        Ok(Conf {
            ingress: Limit::read(place, ["ingressRate", "ingressBurst"], limits.ingress_rate, limits.ingress_burst)?,
            egress: Limit::read(place, ["egressRate", "egressBurst"], limits.egress_rate, limits.egress_burst)?,
            shaped: Shaped::read(from, networks)?,
        })
    }

    /// Whether nothing is held back.
    pub(super) fn is_empty(&self) -> bool {
        self.ingress.is_none() && self.egress.is_none()
    }

    /// What is to be said of bursts that are smaller than a link's packets: those never leave.
    pub(super) fn too_small(&self, link: &str, mtu: u32) -> impl Iterator<Item = String> {
        let frame = mtu.saturating_add(ETHERNET);
        let small = [self.ingress, self.egress].into_iter().flatten().filter(move |limit| limit.bucket.burst < frame);
        small.map(move |Limit { key, bucket }| {
            let (burst, least) = (bucket.burst, u64::from(frame) * 8);
            format!(
                "{key}: {burst} bytes are less than one packet of {link} ({frame} bytes), so nothing would pass: set at least {least} bits"
            )
        })
    }
}

// === impl Entry ===

impl Entry {
    fn limits(&self) -> bool {
        [self.ingress_rate, self.ingress_burst, self.egress_rate, self.egress_burst].iter().any(Option::is_some)
    }

    fn networks(&self) -> bool {
        self.unshaped_subnets.is_some() || self.shaped_subnets.is_some()
    }
}

// === impl Limit ===

impl Limit {
    fn read(
        place: &str,
        [rate_key, burst_key]: [&'static str; 2],
        rate: Option<u64>,
        burst: Option<u64>,
    ) -> Result<Option<Self>, CniError> {
        let refuse = |key: &str, msg: String| Err(CniError::invalid(&format!("{place}{key}"), msg));
        // The reference's words come first: scripts look for them.
        let refuse_as = |words: &str, key: &str, more: String| {
            Err(CniError::worded(words, format_args!("{place}{key}{more}")).at(format!("{place}{key}")))
        };
        let (rate, burst) = (rate.unwrap_or(0), burst.unwrap_or(0));
        match (rate, burst) {
            (0, 0) => return Ok(None),
            (_, 0) => return refuse_as("if rate is set, burst must also be set", burst_key, " is missing".to_owned()),
            (0, _) => return refuse_as("if burst is set, rate must also be set", rate_key, " is missing".to_owned()),
            (_, 1..8) => return refuse(burst_key, format!("{burst} bits are less than a byte: nothing would pass")),
            (1..8, _) => {
                return refuse(rate_key, format!("{rate} bit/s is less than a byte per second: set at least 8, or 0 for no limit"));
            }
            _ => {}
        }
        match u32::try_from(burst / 8) {
            Ok(bytes) if bytes != u32::MAX => Ok(Some(Limit { key: burst_key, bucket: Bucket { rate: rate / 8, burst: bytes } })),
            _ => refuse_as("burst cannot be more than 4GB", burst_key, format!(": {burst} bits are {} bytes", burst / 8)),
        }
    }

    /// What may wait: what comes at this rate in the time that a packet may wait, and a burst, up to a bound.
    pub(super) fn queue(self) -> u32 {
        let most = self.in_time().clamp(QUEUE.into(), MOST_QUEUED.into());
        u32::try_from(self.unbounded_queue().min(most)).unwrap_or(u32::MAX)
    }

    /// Whether a queue of this many bytes is this limit's, also as the reference plugin makes it, without a bound.
    pub(super) fn is_queue(self, found: u32) -> bool {
        found == self.queue() || u128::from(found) == self.unbounded_queue().min(u32::MAX.into())
    }

    /// What comes at this rate in the time that a packet may wait.
    fn in_time(self) -> u128 {
        u128::from(self.bucket.rate) * u128::from(LATENCY) / 1000
    }

    fn unbounded_queue(self) -> u128 {
        self.in_time() + u128::from(self.bucket.burst)
    }

    pub(super) fn tbf(self) -> Tbf {
        Tbf { bucket: self.bucket, limit: self.queue() }
    }
}

// === impl Shaped ===

impl Shaped {
    fn read(place: &str, entry: &Entry) -> Result<Self, CniError> {
        let read = |key: &str, nets: &Option<Vec<String>>| {
            let at = |(i, text): (usize, &String)| {
                let msg = || format!("{text:?} is not a network: expected an address and a prefix length, such as 10.1.0.0/16");
                text.parse().map(|net: IpNet| net.trunc()).map_err(|_| CniError::invalid(&format!("{place}{key}[{i}]"), msg()))
            };
            nets.iter().flatten().enumerate().map(at).collect::<Result<Vec<IpNet>, CniError>>()
        };
        let (except, only) = (read("unshapedSubnets", &entry.unshaped_subnets)?, read("shapedSubnets", &entry.shaped_subnets)?);
        match (except.is_empty(), only.is_empty()) {
            (true, true) => Ok(Shaped::All),
            (false, true) => Ok(Shaped::Except(except)),
            (true, false) => Ok(Shaped::Only(only)),
            (false, false) => {
                let msg = "unshapedSubnets and shapedSubnets cannot be both specified, one of them should be discarded";
                Err(CniError::invalid(&format!("{place}shapedSubnets"), msg))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A burst counted in full: 2^31 - 1 bits, which the kubelet asks for, let 268 MB wait on each side, and the largest one 4 GiB.
    #[test]
    fn a_queue_is_bounded_whatever_the_burst_is() {
        let queue = |rate: u64, burst: u32| Limit { key: "ingressBurst", bucket: Bucket { rate, burst } }.queue();
        assert_eq!(queue(1_000_000, 100_000), 125_000, "as the reference plugin");
        assert_eq!(queue(125_000, i32::MAX as u32 / 8), 16 << 20);
        assert_eq!(queue(125_000, u32::MAX - 1), 16 << 20);
        // 10 Gbit/s in 25 ms.
        assert_eq!(queue(1_250_000_000, u32::MAX - 1), 31_250_000);
        assert_eq!(queue(u64::MAX, u32::MAX - 1), 64 << 20);
        let kubelets = Limit { key: "ingressBurst", bucket: Bucket { rate: 125_000, burst: 268_435_455 } };
        assert!(kubelets.is_queue(16 << 20) && kubelets.is_queue(268_438_580) && !kubelets.is_queue(268_435_455));
    }
}
