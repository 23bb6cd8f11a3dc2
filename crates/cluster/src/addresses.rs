//! Addresses of all objects of a kind, in order: a pod may name thousands, and a cluster have thousands of Nodes and Services. The table
//! is made when it is asked for, once for each change of the objects.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cache::Cache;

/// Addresses in order, each with what has it.
pub(crate) struct Addresses<X> {
    made: Mutex<Option<Made<X>>>,
}

/// The addresses as they were with a state of the objects.
struct Made<X> {
    generation: u64,
    sorted: Arc<[(IpAddr, X)]>,
    #[cfg(test)]
    times: usize,
}

// === impl Addresses ===

impl<X> Default for Addresses<X> {
    fn default() -> Self {
        Addresses { made: Mutex::default() }
    }
}

impl<X: Clone> Addresses<X> {
    /// The first address from `first` to `last`, both of one family, with what has it. `of` gives those of an object.
    pub(crate) fn first_in<T, I>(&self, cache: &Cache<T>, of: impl Fn(&T) -> I, first: IpAddr, last: IpAddr) -> Option<(IpAddr, X)>
    where
        T: Clone + PartialEq,
        I: IntoIterator<Item = (IpAddr, X)>,
    {
        let sorted = self.of(cache, of);
        let at = sorted.partition_point(|(address, _)| *address < first);
        sorted.get(at).filter(|(address, _)| *address <= last).cloned()
    }

    fn of<T, I>(&self, cache: &Cache<T>, of: impl Fn(&T) -> I) -> Arc<[(IpAddr, X)]>
    where
        T: Clone + PartialEq,
        I: IntoIterator<Item = (IpAddr, X)>,
    {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the objects are read: a change in between has the table made again.
        let generation = cache.generation();
        if let Some(made) = made.as_ref().filter(|made| made.generation == generation) {
            return Arc::clone(&made.sorted);
        }
        let mut all = Vec::new();
        cache.each(|object| all.extend(of(object)));
        all.sort_by_key(|(address, _)| *address);
        let sorted: Arc<[(IpAddr, X)]> = all.into();
        #[cfg(test)]
        let times = made.as_ref().map_or(0, |made| made.times) + 1;
        *made = Some(Made {
            generation,
            sorted: Arc::clone(&sorted),
            #[cfg(test)]
            times,
        });
        sorted
    }

    /// How often it was made.
    #[cfg(test)]
    pub(crate) fn times(&self) -> usize {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, |made| made.times)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// A pod that names 4,000 addresses has 5,000 Nodes looked at once.
    #[test]
    fn many_questions_have_one_table_and_a_change_another() {
        let cache = Cache::new();
        let address = |n: u32| IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + 2 * n));
        let all = (0..5000).map(|n| (format!("/{n}").into(), n)).collect();
        cache.replace(all);
        let looked = std::cell::Cell::new(0);
        let of = |n: &u32| {
            looked.set(looked.get() + 1);
            [(address(*n), *n)]
        };
        let addresses = Addresses::default();
        for n in 0..4000 {
            let own = address(n);
            assert_eq!(addresses.first_in(&cache, of, own, own), Some((own, n)));
            let IpAddr::V4(v4) = own else { unreachable!() };
            let free = IpAddr::V4(Ipv4Addr::from(u32::from(v4) + 1));
            assert_eq!(addresses.first_in(&cache, of, free, free), None);
        }
        assert_eq!((addresses.times(), looked.get()), (1, 5000));
        cache.apply("/7".into(), 7);
        assert_eq!(addresses.first_in(&cache, of, address(7), address(7)), Some((address(7), 7)));
        assert_eq!(addresses.times(), 1, "nothing has changed");
        cache.apply("/7".into(), 6000);
        assert_eq!(addresses.first_in(&cache, of, address(7), address(7)), None);
        assert_eq!(addresses.first_in(&cache, of, address(5500), address(7000)), Some((address(6000), 6000)));
        cache.remove("/8");
        assert_eq!(addresses.first_in(&cache, of, address(8), address(8)), None);
        assert_eq!(addresses.times(), 3);
        assert_eq!(addresses.first_in(&cache, of, "::".parse().unwrap(), "ffff::".parse().unwrap()), None);
    }
}
