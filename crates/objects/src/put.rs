//! Objects put into the store and read from it by who owns it, without a request: what a file of manifests holds.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::{
    Store,
    call::{Call, ResourcePath},
    kind::Kind,
    object::{Key, Object, meta, set_meta, text},
    refusal::Refusal,
    state::State,
    write,
};

/// An object that cannot be put into the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// It is no JSON object.
    #[error("an object with apiVersion, kind and metadata is needed, not a {found}")]
    NoObject {
        /// What it is.
        found: &'static str,
    },
    /// No such kind is served.
    #[error("{kind:?} of {api_version:?} is not served: create its CustomResourceDefinition first, or correct apiVersion and kind")]
    UnknownKind {
        /// `kind`
        kind: String,
        /// `apiVersion`
        api_version: String,
    },
    /// The API server would not create it either.
    #[error("{kind} {name}: {why}")]
    Refused {
        /// `kind`
        kind: String,
        /// Namespace, where it has one, and name.
        name: String,
        /// What the API server would say.
        why: String,
    },
}

// === impl Store ===

impl Store {
    /// Creates an object, and the namespace that it is in where that is missing. A UID that it has it keeps, as one restored from a
    /// backup does not: whoever refers to a manifest's object knows it by that.
    ///
    /// # Errors
    /// [`PutError`] if it could not be created, for one because it is there.
    pub fn put(&self, object: &Value) -> Result<(), PutError> {
        let Value::Object(object) = object else { return Err(PutError::NoObject { found: name_of(object) }) };
        let (api_version, name) = (text(object, &["apiVersion"]), text(object, &["kind"]));
        let mut state = self.shared.state();
        let kind = state.kind_of(api_version, name).ok_or_else(|| unknown(api_version, name))?;
        let namespace = namespace_of(&kind, object);
        if kind.namespaced {
            let place = format!("/api/v1/namespaces/{namespace}");
            state.add(&place, &serde_json::json!({"metadata": {"name": namespace}}));
        }
        create(&mut state, &kind, namespace, object.clone()).map_err(|refusal| {
            let place = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
            PutError::Refused { kind: name.to_owned(), name: format!("{place}{}", meta(object, "name")), why: refusal.message() }
        })
    }

    /// Gives an object that is there what this one says (RFC 7386): what others have written besides stays. Whether it is there.
    ///
    /// # Errors
    /// [`PutError`] if the object is of no known kind, or has no such form.
    pub fn merge(&self, object: &Value) -> Result<bool, PutError> {
        let Value::Object(sent) = object else { return Err(PutError::NoObject { found: name_of(object) }) };
        let (api_version, name) = (text(sent, &["apiVersion"]), text(sent, &["kind"]));
        let mut state = self.shared.state();
        let kind = state.kind_of(api_version, name).ok_or_else(|| unknown(api_version, name))?;
        let key: Key = (namespace_of(&kind, sent).to_owned(), meta(sent, "name").to_owned());
        let Ok(there) = state.object(&kind, &key) else { return Ok(false) };
        let refused = |refusal: Refusal| PutError::Refused { kind: name.to_owned(), name: key.1.clone(), why: refusal.message() };
        let mut merged = Value::Object(Object::clone(&there));
        json_patch::merge(&mut merged, object);
        let Value::Object(merged) = merged else { return Ok(false) };
        let merged = write::kept_form(&kind, merged).map_err(refused)?;
        if merged != *there {
            state.put(&kind, &key, merged).map_err(refused)?;
        }
        Ok(true)
    }

    /// Removes an object at once, whatever its finalizers. Whether it was there.
    ///
    /// # Errors
    /// [`PutError::UnknownKind`]
    pub fn remove(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Result<bool, PutError> {
        let mut state = self.shared.state();
        let found = state.kind_of(api_version, kind).ok_or_else(|| unknown(api_version, kind))?;
        Ok(state.remove(&found, &(namespace.to_owned(), name.to_owned())).is_some())
    }

    /// Every object of a kind, by namespace and name.
    ///
    /// # Errors
    /// [`PutError::UnknownKind`]
    pub fn objects(&self, api_version: &str, kind: &str) -> Result<Vec<Value>, PutError> {
        let state = self.shared.state();
        let missing = || unknown(api_version, kind);
        let found = state.kind_of(api_version, kind).ok_or_else(missing)?;
        let table = state.table(&found).map_err(|_| missing())?;
        Ok(table.objects.values().map(|object| Value::Object(Map::clone(object))).collect())
    }
}

fn create(state: &mut State, kind: &Kind, namespace: &str, object: Object) -> Result<(), Refusal> {
    let uid = meta(&object, "uid").to_owned();
    let mut object = write::kept_form(kind, object)?;
    // What is written out of a cluster has them.
    for own in ["resourceVersion", "generation", "creationTimestamp"] {
        set_meta(&mut object, own, None);
    }
    let place = ResourcePath {
        group: kind.group.to_string(),
        version: kind.version.to_string(),
        plural: kind.plural.to_string(),
        namespace: namespace.to_owned(),
        ..ResourcePath::default()
    };
    let call = Call { place, parameters: Default::default(), content_type: String::new(), partial: false, method: http::Method::POST };
    let (_, created) = write::create(state, kind, &call, object)?;
    if !uid.is_empty() {
        let key: Key = (namespace.to_owned(), meta(&created, "name").to_owned());
        let mut known = Object::clone(&created);
        set_meta(&mut known, "uid", Some(Value::String(uid)));
        state.put(kind, &key, known)?;
    }
    Ok(())
}

/// Where an object is; `""` if its kind has no namespaces.
fn namespace_of<'o>(kind: &Kind, object: &'o Object) -> &'o str {
    match (kind.namespaced, meta(object, "namespace")) {
        (false, _) => "",
        (true, "") => "default",
        (true, given) => given,
    }
}

fn unknown(api_version: &str, kind: &str) -> PutError {
    PutError::UnknownKind { kind: kind.to_owned(), api_version: api_version.to_owned() }
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "truth value",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

// === impl State ===

impl State {
    /// The kind of an object's `apiVersion` and `kind`.
    fn kind_of(&self, api_version: &str, name: &str) -> Option<Arc<Kind>> {
        self.kinds().find(|kind| kind.kind == name && kind.api_version() == api_version).cloned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_merged_keeps_what_others_wrote() {
        let store = Store::new();
        let node = |range: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"podCIDRs": [range]}});
        assert_eq!(store.merge(&node("10.1.0.0/24")), Ok(false));
        store.put(&node("10.1.0.0/24")).unwrap();
        let written = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "annotations": {"a": "b"}}});
        assert_eq!(store.merge(&written), Ok(true));
        assert_eq!(store.merge(&node("10.2.0.0/24")), Ok(true));
        let revision = store.revision();
        let there = store.objects("v1", "Node").unwrap().pop().unwrap();
        assert_eq!((&there["spec"]["podCIDRs"], &there["metadata"]["annotations"]["a"]), (&json!(["10.2.0.0/24"]), &json!("b")));
        assert_eq!(store.merge(&node("10.2.0.0/24")), Ok(true));
        assert_eq!(store.revision(), revision, "nobody is told of what is the same");
    }
}
