//! Values of which each is kept once: states are compared and kept by the hundred thousand.

use std::any::{Any, TypeId};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{LazyLock, Mutex};

/// A value; equal ones are one.
pub(crate) struct Known<T: 'static>(&'static T);

static ALL: LazyLock<Mutex<HashMap<TypeId, Box<dyn Any + Send>>>> = LazyLock::new(Mutex::default);

impl<T: Eq + Hash + Send + Sync> Known<T> {
    pub(crate) fn new(value: T) -> Self {
        let mut all = ALL.lock().unwrap();
        let of_type = all.entry(TypeId::of::<T>()).or_insert_with(|| Box::new(HashSet::<&'static T>::new()));
        let of_type = of_type.downcast_mut::<HashSet<&'static T>>().unwrap();
        if let Some(known) = of_type.get(&value) {
            return Known(known);
        }
        let kept: &'static T = Box::leak(Box::new(value));
        of_type.insert(kept);
        Known(kept)
    }
}

impl<T: Default + Eq + Hash + Send + Sync> Default for Known<T> {
    fn default() -> Self {
        Known::new(T::default())
    }
}

impl<T> Clone for Known<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Known<T> {}

impl<T> PartialEq for Known<T> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl<T> Eq for Known<T> {}

impl<T> Hash for Known<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(self.0, state);
    }
}

impl<T> Deref for Known<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Known<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What follows from a value, and from nothing else: worked out once.
pub(crate) fn once<K: Eq + Hash, V: Clone>(found: &Mutex<HashMap<K, V>>, of: K, work: impl FnOnce(&K) -> V) -> V {
    if let Some(found) = found.lock().unwrap().get(&of) {
        return found.clone();
    }
    let value = work(&of);
    found.lock().unwrap().insert(of, value.clone());
    value
}
