//! The objects of one resource, what happened to them lately, and who watches.
//!
//! ```text
//!   write -> Table::put / Table::remove -> Change -> window (bounded; what falls out makes older watches 410)
//!                                                 -> watchers, sorted by one field, each with a queue of its own
//! ```

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use tokio::sync::mpsc::{Sender, error::TrySendError};

use crate::{
    object::{Key, Object, at_revision},
    selector::{Selector, field},
};

/// What happened to one object.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// The resource version of the write.
    pub(crate) revision: u64,
    /// Whose it was.
    pub(crate) key: Key,
    /// What was there before.
    pub(crate) before: Option<Arc<Object>>,
    /// What is there now.
    pub(crate) after: Option<Arc<Object>>,
}

/// An event as one watcher sees a change.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub(crate) what: &'static str,
    /// The object.
    pub(crate) object: Arc<Object>,
}

/// Who is told of changes.
#[derive(Debug)]
pub(crate) struct Watcher {
    /// The only namespace, empty for all.
    pub(crate) namespace: String,
    /// What is selected.
    pub(crate) selector: Selector,
    /// Where events go.
    pub(crate) queue: Sender<Event>,
}

impl Watcher {
    /// The change as this watcher sees it: what begins or ceases to be selected is added or deleted.
    pub(crate) fn sees(&self, change: &Change) -> Option<Event> {
        if !self.namespace.is_empty() && self.namespace != change.key.0 {
            return None;
        }
        let selected = |object: &&Arc<Object>| self.selector.is_empty() || self.selector.holds(object);
        match (change.before.as_ref().filter(selected), change.after.as_ref().filter(selected)) {
            (None, None) => None,
            (None, Some(after)) => Some(Event { what: "ADDED", object: Arc::clone(after) }),
            (Some(_), Some(after)) => Some(Event { what: "MODIFIED", object: Arc::clone(after) }),
            (Some(before), None) => Some(Event { what: "DELETED", object: Arc::new(at_revision(before, change.revision)) }),
        }
    }
}

/// One resource's objects.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The objects as they are.
    pub(crate) objects: BTreeMap<Key, Arc<Object>>,
    window: VecDeque<Arc<Change>>,
    // A watch from here on misses nothing.
    oldest: u64,
    indexed: &'static str,
    // By the value that the indexed field must have; `None`: any.
    watchers: HashMap<Option<String>, Vec<Watcher>>,
}

impl Table {
    /// An empty table that knows everything from a revision on.
    pub(crate) fn new(indexed: &'static str, oldest: u64) -> Self {
        Self { indexed, oldest, ..Self::default() }
    }

    /// Keeps a change, applies it and tells those who watch. `keep` is the length of the window.
    pub(crate) fn apply(&mut self, change: Change, keep: usize) {
        match &change.after {
            Some(after) => self.objects.insert(change.key.clone(), Arc::clone(after)),
            None => self.objects.remove(&change.key),
        };
        self.tell(&change);
        self.window.push_back(Arc::new(change));
        while self.window.len() > keep {
            if let Some(gone) = self.window.pop_front() {
                self.oldest = gone.revision;
            }
        }
    }

    fn tell(&mut self, change: &Change) {
        let value = |object: &Option<Arc<Object>>| object.as_ref().map(|object| field(object, self.indexed).to_owned());
        let (before, after) = (value(&change.before), value(&change.after));
        let mut places = vec![None];
        if before != after && before.is_some() {
            places.push(before);
        }
        if after.is_some() {
            places.push(after);
        }
        for place in places {
            let Some(watchers) = self.watchers.get_mut(&place) else { continue };
            watchers.retain(|watcher| match watcher.sees(change) {
                Some(event) => match watcher.queue.try_send(event) {
                    Ok(()) => true,
                    // Who does not keep up loses the watch, as with the API server, and begins again.
                    Err(TrySendError::Full(_) | TrySendError::Closed(_)) => false,
                },
                None => !watcher.queue.is_closed(),
            });
            if watchers.is_empty() {
                self.watchers.remove(&place);
            }
        }
    }

    /// The changes after a revision; the oldest revision that is known, if that is too old.
    pub(crate) fn since(&self, revision: u64) -> Result<impl Iterator<Item = &Arc<Change>>, u64> {
        if revision < self.oldest {
            return Err(self.oldest);
        }
        Ok(self.window.iter().filter(move |change| change.revision > revision))
    }

    /// The objects as they were at a revision; the oldest revision that is known, if that is too old.
    pub(crate) fn at(&self, revision: u64) -> Result<BTreeMap<Key, Arc<Object>>, u64> {
        let later: Vec<_> = self.since(revision)?.collect();
        let mut objects = self.objects.clone();
        for change in later.into_iter().rev() {
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), Arc::clone(before)),
                None => objects.remove(&change.key),
            };
        }
        Ok(objects)
    }

    /// Adds who watches.
    pub(crate) fn watch(&mut self, watcher: Watcher) {
        let place = watcher.selector.exactly(self.indexed).map(str::to_owned);
        let watchers = self.watchers.entry(place).or_default();
        watchers.retain(|watcher| !watcher.queue.is_closed());
        watchers.push(watcher);
    }

    /// Ends all watches.
    pub(crate) fn end_watches(&mut self) {
        self.watchers.clear();
    }

    /// Forgets what happened up to a revision.
    pub(crate) fn forget(&mut self, revision: u64) {
        self.window.clear();
        self.oldest = revision;
    }

    /// How many watch, for tests of the store itself.
    pub(crate) fn watches(&self) -> usize {
        self.watchers.values().flatten().filter(|watcher| !watcher.queue.is_closed()).count()
    }
}
