//! What is known of a kind of object: the newest state of each, whether it can be trusted, and who wants to hear of
//! changes. Nothing is dropped because the server is silent.
//!
//! Where objects may be many and large, all together have a limit: what was used the longest time ago is kept as a note that it is
//! there, and is asked for again when it is needed.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use tokio::sync::{broadcast, watch};

use crate::ApiError;

/// How many changes a slow listener may be behind before it has to look at everything.
const CHANGES: usize = 256;

/// Whether a list can be trusted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listed {
    /// Whether the whole list came at least once.
    pub complete: bool,
    /// Since when nothing new comes, and why; `None` while changes arrive.
    pub failing: Option<Failing>,
}

/// An outage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// When it began.
    pub since: SystemTime,
    /// The last error.
    pub error: ApiError,
}

/// A change of one object.
#[derive(Debug, Clone)]
pub(crate) enum Change<T> {
    Is(T),
    Gone(T),
}

/// What all objects of a kind may have together.
pub(crate) struct Limit<T> {
    /// Bytes.
    pub(crate) most: usize,
    /// What one has, in bytes.
    pub(crate) weight: fn(&T) -> usize,
    /// What is left of one that is not kept: that it is there.
    pub(crate) light: fn(&T) -> T,
}

/// Objects by `namespace/name`.
pub(crate) struct Cache<T> {
    items: RwLock<HashMap<Box<str>, Item<T>>>,
    limit: Option<Limit<T>>,
    /// Counts uses and changes: a later one has a higher number.
    clock: AtomicU64,
    /// Counts changes of what is kept, for who keeps something that was made of all of it.
    generation: AtomicU64,
    listed: Mutex<Listed>,
    changes: broadcast::Sender<Change<T>>,
    /// That something changed, for who looks at everything then.
    news: watch::Sender<()>,
}

struct Item<T> {
    value: T,
    /// When it was used last; 0: never.
    used: AtomicU64,
    /// When it came.
    came: u64,
}

// === impl Cache ===

impl<T: Clone + PartialEq> Cache<T> {
    pub(crate) fn new() -> Self {
        Self::limited(None)
    }

    /// One whose objects may have so much together.
    pub(crate) fn limited(limit: Option<Limit<T>>) -> Self {
        let changes = broadcast::Sender::new(CHANGES);
        let (clock, generation, news) = (AtomicU64::new(1), AtomicU64::new(0), watch::Sender::new(()));
        Cache { items: RwLock::default(), limit, clock, generation, listed: Mutex::default(), changes, news }
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// Another number after each change of what is kept. To be asked before all of it is looked at.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// To be called while the items are locked.
    fn changed(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<T> {
        self.found(namespace, name).map(|(value, _)| value)
    }

    /// The same, and when it came, for [`Cache::put_back`].
    pub(crate) fn found(&self, namespace: &str, name: &str) -> Option<(T, u64)> {
        let key = format!("{namespace}/{name}");
        let items = self.items.read().unwrap_or_else(PoisonError::into_inner);
        let item = items.get(key.as_str())?;
        item.used.store(self.tick(), Ordering::Relaxed);
        Some((item.value.clone(), item.came))
    }

    /// Keeps again what was only noted, as the server has it, if nothing else has come since.
    pub(crate) fn put_back(&self, namespace: &str, name: &str, came: u64, value: T) {
        let key = format!("{namespace}/{name}");
        let mut items = self.items.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(item) = items.get_mut(key.as_str()).filter(|item| item.came == came) {
            item.value = value;
            self.changed();
        }
        self.lighten(&mut items);
    }

    /// Of a list that comes: what of an object is to be kept, where those before it have so much. What is used goes before what never was.
    pub(crate) fn kept_of(&self, key: &str, value: T, taken: &mut usize) -> T {
        let Some(limit) = &self.limit else { return value };
        let weight = (limit.weight)(&value);
        let is_used = || {
            let items = self.items.read().unwrap_or_else(PoisonError::into_inner);
            items.get(key).is_some_and(|item| item.used.load(Ordering::Relaxed) > 0)
        };
        if *taken + weight > limit.most && !is_used() {
            return (limit.light)(&value);
        }
        *taken += weight;
        value
    }

    /// Down to nine tenths of the limit where it is reached, so that this is not done for each that comes.
    fn lighten(&self, items: &mut HashMap<Box<str>, Item<T>>) {
        let Some(limit) = &self.limit else { return };
        let weight = |item: &Item<T>| (limit.weight)(&item.value);
        let mut all: usize = items.values().map(weight).sum();
        if all <= limit.most {
            return;
        }
        let mut heavy: Vec<&mut Item<T>> = items.values_mut().filter(|item| weight(item) > 0).collect();
        // What never was used goes by its size, so that a few large ones do not send many small ones away.
        heavy.sort_by_key(|item| (item.used.load(Ordering::Relaxed), Reverse(weight(item))));
        for item in heavy {
            if all <= limit.most / 10 * 9 {
                return;
            }
            all -= weight(item);
            item.value = (limit.light)(&item.value);
            self.changed();
        }
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.items.read().unwrap_or_else(PoisonError::into_inner).values().map(|item| item.value.clone()).collect()
    }

    /// What the first object gives that has it, in any order; none is copied.
    pub(crate) fn find<R>(&self, of: impl Fn(&T) -> Option<R>) -> Option<R> {
        self.items.read().unwrap_or_else(PoisonError::into_inner).values().find_map(|item| of(&item.value))
    }

    /// Shows each object; none is copied.
    pub(crate) fn each(&self, mut show: impl FnMut(&T)) {
        self.items.read().unwrap_or_else(PoisonError::into_inner).values().for_each(|item| show(&item.value));
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Change<T>> {
        self.changes.subscribe()
    }

    /// Wakes its holder when an object has changed since it was asked last, or the first list is complete: once for any number of changes.
    pub(crate) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    pub(crate) fn listed(&self) -> Listed {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The whole list came: what is not in it is gone.
    pub(crate) fn replace(&self, mut all: HashMap<Box<str>, T>) {
        let mut changes = Vec::new();
        {
            let mut items = self.items.write().unwrap_or_else(PoisonError::into_inner);
            for (key, Item { value: old, .. }) in items.iter() {
                match all.get_mut(key) {
                    // The old one stays: what others hold and what is held here is one and the same.
                    Some(new) if new == old => new.clone_from(old),
                    Some(new) => changes.push(Change::Is(new.clone())),
                    None => changes.push(Change::Gone(old.clone())),
                }
            }
            changes.extend(all.iter().filter(|(key, _)| !items.contains_key(*key)).map(|(_, new)| Change::Is(new.clone())));
            let came = self.tick();
            let item = |(key, value): (Box<str>, T)| {
                let used = items.get(&key).map_or(0, |old| old.used.load(Ordering::Relaxed));
                (key, Item { value, used: AtomicU64::new(used), came })
            };
            let mut new: HashMap<Box<str>, Item<T>> = all.into_iter().map(item).collect();
            self.lighten(&mut new);
            *items = new;
            self.changed();
        }
        let was_complete = std::mem::replace(&mut self.listed.lock().unwrap_or_else(PoisonError::into_inner).complete, true);
        if !changes.is_empty() || !was_complete {
            self.news.send_replace(());
        }
        changes.into_iter().for_each(|change| self.tell(change));
    }

    pub(crate) fn apply(&self, key: Box<str>, new: T) {
        let old = {
            let mut items = self.items.write().unwrap_or_else(PoisonError::into_inner);
            let used = items.get(&key).map_or(0, |old| old.used.load(Ordering::Relaxed));
            let old = items.insert(key, Item { value: new.clone(), used: AtomicU64::new(used), came: self.tick() });
            if old.as_ref().is_none_or(|old| old.value != new) {
                self.changed();
            }
            self.lighten(&mut items);
            old
        };
        if old.is_none_or(|old| old.value != new) {
            self.news.send_replace(());
            self.tell(Change::Is(new));
        }
    }

    pub(crate) fn remove(&self, key: &str) {
        let old = {
            let mut items = self.items.write().unwrap_or_else(PoisonError::into_inner);
            items.remove(key).inspect(|_| self.changed())
        };
        if let Some(old) = old {
            self.news.send_replace(());
            self.tell(Change::Gone(old.value));
        }
    }

    pub(crate) fn works(&self) {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).failing = None;
    }

    pub(crate) fn fails(&self, error: ApiError) {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let since = listed.failing.as_ref().map_or_else(SystemTime::now, |f| f.since);
        listed.failing = Some(Failing { since, error });
    }

    /// Nobody may be listening: that is no failure.
    fn tell(&self, change: Change<T>) {
        let _ = self.changes.send(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_come_once_for_many_changes_and_never_for_none() {
        let cache = Cache::new();
        let mut news = cache.news();
        let mut is_new = || {
            let is_new = news.has_changed().unwrap();
            news.mark_unchanged();
            is_new
        };
        let list = |names: &[&str]| names.iter().map(|name| ((*name).into(), 7)).collect();
        assert!(!is_new());
        cache.replace(list(&[]));
        assert!(is_new(), "the first list is complete, though it is empty");
        cache.replace(list(&[]));
        assert!(!is_new());
        cache.replace(list(&["/a", "/b"]));
        assert!(is_new() && !is_new());
        cache.replace(list(&["/a", "/b"]));
        cache.apply("/a".into(), 7);
        cache.remove("/c");
        assert!(!is_new(), "nothing is otherwise");
        cache.apply("/a".into(), 8);
        cache.apply("/c".into(), 7);
        assert!(is_new() && !is_new());
        cache.remove("/c");
        assert!(is_new());
        cache.replace(list(&["/b"]));
        assert!(is_new());
    }

    #[test]
    fn what_is_used_stays_and_the_rest_is_noted() {
        let limit = Limit { most: 1000, weight: |text: &String| text.len(), light: |_| String::new() };
        let cache = Cache::limited(Some(limit));
        let text = |n: usize| format!("{n:0>100}");
        for n in 0..5 {
            cache.apply(format!("a/{n}").into(), text(n));
            assert_eq!(cache.get("a", &n.to_string()), Some(text(n)));
        }
        for n in 0..50 {
            cache.apply(format!("b/{n}").into(), text(n));
        }
        let held = |cache: &Cache<String>| cache.all().iter().map(String::len).sum::<usize>();
        assert!(held(&cache) <= 1000, "{}", held(&cache));
        assert!((0..5).all(|n| cache.get("a", &n.to_string()) == Some(text(n))), "they were used");
        // Asked for again, and changed meanwhile or not.
        let noted = (0..50).find(|n| cache.get("b", &n.to_string()) == Some(String::new())).unwrap();
        let (_, came) = cache.found("b", &noted.to_string()).unwrap();
        cache.put_back("b", &noted.to_string(), came, text(noted));
        assert_eq!(cache.get("b", &noted.to_string()), Some(text(noted)));
        cache.apply(format!("b/{noted}").into(), "new".to_owned());
        cache.put_back("b", &noted.to_string(), came, text(noted));
        assert_eq!(cache.get("b", &noted.to_string()), Some("new".to_owned()));
        // A whole list.
        let mut taken = 0;
        let list = (0..200).map(|n| (format!("a/{n}"), text(n)));
        let list = list.map(|(key, text)| (key.clone().into(), cache.kept_of(&key, text, &mut taken))).collect();
        cache.replace(list);
        assert!(held(&cache) <= 1000 && (0..5).all(|n| cache.get("a", &n.to_string()) == Some(text(n))));
        assert_eq!(cache.all().len(), 200);
    }
}
