//! Everything that the store holds: kinds, tables, one revision for all of them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use serde_json::Value;

use crate::{
    call::ResourcePath,
    definition,
    kind::{Kind, built_in},
    object::{Key, Object, set_meta},
    refusal::Refusal,
    table::{Change, Table},
};

/// The state behind the store's lock.
#[derive(Debug)]
pub(crate) struct State {
    /// The resource version of the last write.
    pub(crate) revision: u64,
    /// How many changes of a resource are kept for watches.
    pub(crate) keep: usize,
    /// How often a watch that asked for them gets a bookmark.
    pub(crate) bookmarks: Duration,
    /// Whether requests are answered.
    pub(crate) reachable: bool,
    /// How long each request waits.
    pub(crate) delay: Duration,
    kinds: Vec<Arc<Kind>>,
    tables: HashMap<String, Table>,
}

impl State {
    /// The namespaces that every cluster has, and nothing else.
    pub(crate) fn new() -> Self {
        let kinds: Vec<Arc<Kind>> = built_in().into_iter().map(Arc::new).collect();
        let mut state = Self {
            revision: 0,
            keep: 1000,
            bookmarks: Duration::from_secs(60),
            reachable: true,
            delay: Duration::ZERO,
            kinds: Vec::new(),
            tables: HashMap::new(),
        };
        for kind in kinds {
            state.serve(kind);
        }
        state
    }

    /// Begins to serve a resource, or serves it otherwise than before.
    pub(crate) fn serve(&mut self, kind: Arc<Kind>) {
        let revision = self.revision;
        self.tables.entry(kind.table.to_string()).or_insert_with(|| Table::new(kind.indexed, revision));
        self.kinds.retain(|other| (&other.group, &other.version, &other.plural) != (&kind.group, &kind.version, &kind.plural));
        self.kinds.push(kind);
    }

    /// Serves a resource no longer, in any version. Its objects go, its watches end.
    pub(crate) fn unserve(&mut self, group: &str, plural: &str) {
        let gone: Vec<Arc<Kind>> = self.kinds.iter().filter(|kind| kind.group == group && kind.plural == plural).cloned().collect();
        for kind in gone {
            let keys: Vec<Key> = self.table(&kind).map(|table| table.objects.keys().cloned().collect()).unwrap_or_default();
            for key in keys {
                self.remove(&kind, &key);
            }
            self.tables.remove(kind.table.as_ref());
            self.kinds.retain(|other| !Arc::ptr_eq(other, &kind));
        }
    }

    /// The kind that a path names.
    pub(crate) fn kind(&self, place: &ResourcePath) -> Result<Arc<Kind>, Refusal> {
        let in_version = |kind: &&Arc<Kind>| kind.group == place.group && kind.version == place.version;
        match self.kinds.iter().filter(in_version).find(|kind| kind.plural == place.plural) {
            Some(kind) => Ok(Arc::clone(kind)),
            None if self.kinds.iter().any(|kind| in_version(&kind)) => Err(Refusal::no_such_resource()),
            None => Err(Refusal::NoSuchPage),
        }
    }

    /// The kinds that are served.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.iter()
    }

    /// The table of a kind.
    pub(crate) fn table(&self, kind: &Kind) -> Result<&Table, Refusal> {
        self.tables.get(kind.table.as_ref()).ok_or_else(Refusal::no_such_resource)
    }

    /// The table of a kind, to be changed.
    pub(crate) fn table_mut(&mut self, kind: &Kind) -> Result<&mut Table, Refusal> {
        self.tables.get_mut(kind.table.as_ref()).ok_or_else(Refusal::no_such_resource)
    }

    /// All tables, to be changed.
    pub(crate) fn tables_mut(&mut self) -> impl Iterator<Item = &mut Table> {
        self.tables.values_mut()
    }

    /// The object at a key.
    pub(crate) fn object(&self, kind: &Kind, key: &Key) -> Result<Arc<Object>, Refusal> {
        self.table(kind)?.objects.get(key).cloned().ok_or_else(|| Refusal::not_found(kind, &key.1))
    }

    /// A namespace.
    pub(crate) fn namespace(&self, name: &str) -> Option<&Arc<Object>> {
        self.tables.get("namespaces")?.objects.get(&(String::new(), name.to_owned()))
    }

    /// Writes an object: the next revision, an event for whoever watches.
    pub(crate) fn put(&mut self, kind: &Kind, key: &Key, mut object: Object) -> Result<Arc<Object>, Refusal> {
        self.revision += 1;
        let (revision, keep) = (self.revision, self.keep);
        set_meta(&mut object, "resourceVersion", Some(Value::String(revision.to_string())));
        let object = Arc::new(object);
        let table = self.table_mut(kind)?;
        let before = table.objects.get(key).cloned();
        table.apply(Change { revision, key: key.clone(), before, after: Some(Arc::clone(&object)) }, keep);
        if kind.is_definition() {
            definition::serve(self, &object);
        }
        Ok(object)
    }

    /// Removes an object and returns what it was, with the resource version of its end.
    pub(crate) fn remove(&mut self, kind: &Kind, key: &Key) -> Option<Object> {
        let before = self.table(kind).ok()?.objects.get(key).cloned()?;
        if kind.is_definition() {
            definition::unserve(self, &before);
        }
        self.revision += 1;
        let (revision, keep) = (self.revision, self.keep);
        let last = crate::object::at_revision(&before, revision);
        self.table_mut(kind).ok()?.apply(Change { revision, key: key.clone(), before: Some(before), after: None }, keep);
        Some(last)
    }

    /// Creates an object of the store's own at a path; one that is there stays.
    pub(crate) fn add(&mut self, path: &str, object: &Value) {
        let Ok((mut head, ())) = http::Request::post(path).body(()).map(http::Request::into_parts) else { return };
        head.headers.clear();
        let Some(mut call) = crate::call::Call::parse(&head) else { return };
        call.place.name.clear();
        let (Ok(kind), Value::Object(object)) = (self.kind(&call.place), object.clone()) else { return };
        if let Ok(object) = crate::write::kept_form(&kind, object) {
            // What it is refused for is that it is there.
            crate::write::create(self, &kind, &call, object).ok();
        }
    }
}
