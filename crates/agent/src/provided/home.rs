//! The ranges that routes of this node lead to its pods in, for who has just got an address of one.

use std::net::IpAddr;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ipnet::IpNet;

use crate::lock;

/// A block and its route are told to one agent at the same time: they are a few milliseconds apart.
const PATIENCE: Duration = Duration::from_secs(1);

/// Those ranges.
#[derive(Debug, Default)]
pub(super) struct Home {
    ranges: Mutex<Vec<IpNet>>,
    changed: Condvar,
}

// === impl Home ===

impl Home {
    /// Routes lead to these now, and to no others.
    pub(super) fn set(&self, ranges: &[IpNet]) {
        let mut all = lock(&self.ranges);
        if *all != ranges {
            *all = ranges.to_vec();
            self.changed.notify_all();
        }
    }

    /// Waits until each address is in one of them, for at most a second. Whether it is so.
    pub(super) fn wait(&self, addresses: impl Iterator<Item = IpAddr> + Clone, until: Instant) -> bool {
        let lacks = |ranges: &mut Vec<IpNet>| !addresses.clone().all(|address| ranges.iter().any(|range| range.contains(&address)));
        let left = until.saturating_duration_since(Instant::now()).min(PATIENCE);
        let (mut ranges, _) = self.changed.wait_timeout_while(lock(&self.ranges), left, lacks).unwrap_or_else(PoisonError::into_inner);
        !lacks(&mut ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_waited_for_until_its_range_is_led_to() {
        let (home, range) = (Home::default(), "10.20.0.64/26".parse().unwrap());
        let address = || std::iter::once("10.20.0.70".parse().unwrap());
        assert!(!home.wait(address(), Instant::now()), "nothing leads there yet");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| home.wait(address(), Instant::now() + Duration::from_secs(60)));
            home.set(&[range]);
            assert!(waits.join().unwrap());
        });
        home.set(&[]);
        assert!(!home.wait(address(), Instant::now()), "it was given back");
    }

    /// A round may take longer than anybody waits: what it has not looked at yet may be another network's.
    #[test]
    fn an_address_that_nobody_has_looked_at_is_refused() {
        let [looked_at, taken] = ["10.20.0.64/26", "10.20.0.128/26"].map(|range| range.parse().unwrap());
        let occupied = vec![(taken, "bridge br9 has addresses of 10.20.0.128/26".to_owned())];
        let state = crate::provided::State { occupied, looked_at: vec![looked_at, taken], ..Default::default() };
        let is_free = |address: &str| state.is_free(address.parse().unwrap()).map_err(|e| (e.code, e.msg));
        assert_eq!(is_free("10.20.0.70"), Ok(()));
        for (address, why) in [("10.20.0.130", "br9"), ("10.20.1.1", "has not prepared the range of 10.20.1.1 yet")] {
            let (code, msg) = is_free(address).unwrap_err();
            assert!(code == cni::Code::TRY_AGAIN_LATER && msg.contains(why), "{msg}");
        }
    }
}
