//! Networks in the order of their addresses: a pod may name thousands of addresses, and a node have thousands of routes. A network is either
//! within another one or apart from it, so only those within no other are kept, and one step of a bisection finds the one that overlaps.

use attach::AddressRun;
use ipnet::IpNet;

/// Networks, each with what is known of it, none within another.
#[derive(Debug)]
pub(crate) struct NetworkTable<T> {
    sorted: Vec<(IpNet, T)>,
}

// === impl NetworkTable ===

impl<T> FromIterator<(IpNet, T)> for NetworkTable<T> {
    /// Of two equal networks the first one counts.
    fn from_iter<I: IntoIterator<Item = (IpNet, T)>>(networks: I) -> Self {
        let mut sorted: Vec<(IpNet, T)> = networks.into_iter().map(|(network, of)| (network.trunc(), of)).collect();
        // Stable: a wider one comes before those within it.
        sorted.sort_by_key(|(network, _)| (network.network(), network.prefix_len()));
        let mut widest: Option<IpNet> = None;
        sorted.retain(|(network, _)| {
            let is_apart = widest.is_none_or(|widest| !widest.contains(network));
            if is_apart {
                widest = Some(*network);
            }
            is_apart
        });
        NetworkTable { sorted }
    }
}

impl<T> NetworkTable<T> {
    /// A network that has one of these addresses, and what is known of it.
    pub(crate) fn overlapping(&self, run: AddressRun) -> Option<&(IpNet, T)> {
        let after = self.sorted.partition_point(|(network, _)| network.network() <= run.last);
        // The last one that begins before the end ends last as well.
        self.sorted.get(after.checked_sub(1)?).filter(|(network, _)| run.overlaps(AddressRun::of(*network)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::*;

    /// Against looking through all of them: runs of every length at every place of a small space, IPv4 and IPv6.
    #[test]
    fn it_finds_what_a_walk_finds() {
        let v4 = |n: u32| IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n));
        let v6 = |n: u32| IpAddr::V6(Ipv6Addr::from((0xfd00_u128 << 112) + u128::from(n)));
        for seed in 0_u32..60 {
            // Any numbers will do, the same ones each time.
            let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
            let mut next = |below: u32| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) % below
            };
            let mut networks = Vec::new();
            for _ in 0..next(9) {
                let (at, wide) = (next(64), u8::try_from(next(6)).unwrap());
                let (address, most) = if next(2) == 0 { (v4(at), 32) } else { (v6(at), 128) };
                networks.push(IpNet::new(address, most - wide).unwrap());
            }
            let table: NetworkTable<usize> = networks.iter().copied().enumerate().map(|(n, network)| (network, n)).collect();
            for family in [v4, v6] {
                for first in 0..64 {
                    for last in first..64 {
                        let run = AddressRun { first: family(first), last: family(last) };
                        let walked = networks.iter().any(|network| run.overlaps(AddressRun::of(*network)));
                        let found = table.overlapping(run);
                        assert_eq!(found.is_some(), walked, "{run} in {networks:?}");
                        if let Some((network, n)) = found {
                            assert!(run.overlaps(AddressRun::of(*network)) && network.trunc() == networks[*n].trunc());
                        }
                    }
                }
            }
        }
    }
}
