//! What is known of a kind of object: the newest state of each, whether it can be trusted, and who wants to hear of
//! changes. Nothing is dropped because the server is silent.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use tokio::sync::broadcast;

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

/// Objects by `namespace/name`.
pub(crate) struct Cache<T> {
    items: RwLock<HashMap<Box<str>, T>>,
    listed: Mutex<Listed>,
    changes: broadcast::Sender<Change<T>>,
}

// === impl Cache ===

impl<T: Clone + PartialEq> Cache<T> {
    pub(crate) fn new() -> Self {
        Cache { items: RwLock::default(), listed: Mutex::default(), changes: broadcast::Sender::new(CHANGES) }
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<T> {
        let key = format!("{namespace}/{name}");
        self.items.read().unwrap_or_else(PoisonError::into_inner).get(key.as_str()).cloned()
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.items.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Change<T>> {
        self.changes.subscribe()
    }

    pub(crate) fn listed(&self) -> Listed {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The whole list came: what is not in it is gone.
    pub(crate) fn replace(&self, mut all: HashMap<Box<str>, T>) {
        let mut changes = Vec::new();
        {
            let mut items = self.items.write().unwrap_or_else(PoisonError::into_inner);
            for (key, old) in items.iter() {
                match all.get_mut(key) {
                    // The old one stays: what others hold and what is held here is one and the same.
                    Some(new) if new == old => new.clone_from(old),
                    Some(new) => changes.push(Change::Is(new.clone())),
                    None => changes.push(Change::Gone(old.clone())),
                }
            }
            changes.extend(all.iter().filter(|(key, _)| !items.contains_key(*key)).map(|(_, new)| Change::Is(new.clone())));
            all.shrink_to_fit();
            *items = all;
        }
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).complete = true;
        changes.into_iter().for_each(|change| self.tell(change));
    }

    pub(crate) fn apply(&self, key: Box<str>, new: T) {
        let old = self.items.write().unwrap_or_else(PoisonError::into_inner).insert(key, new.clone());
        if old.as_ref() != Some(&new) {
            self.tell(Change::Is(new));
        }
    }

    pub(crate) fn remove(&self, key: &str) {
        if let Some(old) = self.items.write().unwrap_or_else(PoisonError::into_inner).remove(key) {
            self.tell(Change::Gone(old));
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
