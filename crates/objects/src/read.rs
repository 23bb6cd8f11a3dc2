//! Get and list: objects as they are shown, pages of lists, and lists of the past.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value, json};

use crate::{
    call::Call,
    event,
    kind::Kind,
    object::{Key, Object, meta},
    refusal::Refusal,
    selector::Selector,
    state::State,
};

/// An object as it is shown: with its kind; `partial`: its metadata alone.
pub(crate) fn typed(kind: &Kind, object: &Object, partial: bool) -> Value {
    let mut shown = Map::new();
    if partial {
        shown.insert("kind".into(), Value::from("PartialObjectMetadata"));
        shown.insert("apiVersion".into(), Value::from("meta.k8s.io/v1"));
        shown.insert("metadata".into(), object.get("metadata").cloned().unwrap_or_default());
        return Value::Object(shown);
    }
    shown.insert("kind".into(), Value::from(kind.kind.as_ref()));
    shown.insert("apiVersion".into(), Value::from(kind.api_version()));
    shown.extend(object.iter().map(|(key, value)| (key.clone(), value.clone())));
    if kind.is_newer_event() {
        event::to_newer(&mut shown);
    }
    Value::Object(shown)
}

/// What a list holds, before it is written out (which happens outside of the lock).
#[derive(Debug)]
pub(crate) struct Page {
    objects: Vec<Arc<Object>>,
    revision: u64,
    next: Option<String>,
    remaining: Option<usize>,
}

/// The objects that a list asks for.
pub(crate) fn list(state: &State, kind: &Kind, call: &Call) -> Result<Page, Refusal> {
    let selector = Selector::parse(kind, call.parameter("labelSelector"), call.parameter("fieldSelector"))?;
    let limit = match call.parameter("limit") {
        "" => 0,
        limit => limit.parse::<i64>().map_err(|_| Refusal::bad_request(format!("strconv.ParseInt: parsing {limit:?}: invalid syntax")))?,
    };
    let limit = usize::try_from(limit).unwrap_or_default();
    let (revision, after) = match call.parameter("continue") {
        "" => (version(state, call)?, None),
        token => {
            let (revision, after) = read_token(token)?;
            (revision, Some(after))
        }
    };
    let table = state.table(kind)?;
    let past;
    let objects: &BTreeMap<Key, Arc<Object>> = if revision == state.revision {
        &table.objects
    } else {
        past = table.at(revision).map_err(|oldest| too_old(after.is_some(), revision, oldest))?;
        &past
    };
    let namespace = &call.place.namespace;
    let here = |key: &&Key| namespace.is_empty() || key.0 == *namespace;
    let mut rest = objects.iter().filter(|(key, _)| here(key) && after.as_ref().is_none_or(|after| *key > after));
    let selected = rest.by_ref().filter(|(_, object)| selector.holds(object));
    let taken: Vec<(&Key, &Arc<Object>)> = if limit == 0 { selected.collect() } else { selected.take(limit).collect() };
    // As with the API server, a page that is full has a next one as long as anything is left, selected or not.
    let remaining = rest.count();
    let next = if remaining > 0 { taken.last().map(|(key, _)| token(revision, key)) } else { None };
    Ok(Page {
        objects: taken.into_iter().map(|(_, object)| Arc::clone(object)).collect(),
        revision,
        remaining: (next.is_some() && selector.is_empty()).then_some(remaining),
        next,
    })
}

impl Page {
    /// The list as it is sent.
    pub(crate) fn shown(&self, kind: &Kind, partial: bool) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if let Some(metadata) = metadata.as_object_mut() {
            if let Some(next) = &self.next {
                metadata.insert("continue".into(), Value::from(next.as_str()));
            }
            if let Some(remaining) = self.remaining {
                metadata.insert("remainingItemCount".into(), Value::from(remaining));
            }
        }
        let item = |object: &Arc<Object>| match (partial, kind.is_newer_event()) {
            (true, _) => typed(kind, object, true),
            (false, true) => {
                let mut object = (**object).clone();
                event::to_newer(&mut object);
                Value::Object(object)
            }
            (false, false) => Value::Object((**object).clone()),
        };
        let items: Vec<Value> = self.objects.iter().map(item).collect();
        let (list_kind, version) = match partial {
            true => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
            false => (kind.list_kind.to_string(), kind.api_version()),
        };
        json!({"kind": list_kind, "apiVersion": version, "metadata": metadata, "items": items})
    }
}

/// The keys of what a request selects, for deletion.
pub(crate) fn selected(state: &State, kind: &Kind, call: &Call) -> Result<(Page, Vec<Key>), Refusal> {
    let page = list(state, kind, call)?;
    let keys = page.objects.iter().map(|object| (meta(object, "namespace").to_owned(), meta(object, "name").to_owned())).collect();
    Ok((page, keys))
}

// The revision of which a list is asked for. Anything but an exact one is answered with the newest.
fn version(state: &State, call: &Call) -> Result<u64, Refusal> {
    let (asked, matched) = (call.parameter("resourceVersion"), call.parameter("resourceVersionMatch"));
    if asked.is_empty() && !matched.is_empty() {
        let why = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
        return Err(Refusal::invalid_options("ListOptions", "resourceVersionMatch", "FieldValueForbidden", why));
    }
    if asked.is_empty() {
        return Ok(state.revision);
    }
    let number: u64 = asked.parse().map_err(|_| {
        let why = format!("strconv.ParseUint: parsing {asked:?}: invalid syntax");
        Refusal::bad_request(format!("invalid resource version: resourceVersion: Invalid value: {asked:?}: {why}"))
    })?;
    if number > state.revision {
        return Err(Refusal::too_large_version(number, state.revision));
    }
    Ok(if matched == "Exact" { number } else { state.revision })
}

fn too_old(continued: bool, asked: u64, oldest: u64) -> Refusal {
    if !continued {
        return Refusal::expired(format!("too old resource version: {asked} ({oldest})"));
    }
    Refusal::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue \
         parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided \
         token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was \
         returned and now may show up in the list.",
    )
}

// Opaque to who gets it: revision, namespace and name of the last object of the page.
fn token(revision: u64, key: &Key) -> String {
    format!("{revision}:{}:{}", key.0, key.1)
}

fn read_token(token: &str) -> Result<(u64, Key), Refusal> {
    let mut parts = token.splitn(3, ':');
    let read = (parts.next().and_then(|number| number.parse().ok()), parts.next(), parts.next());
    let (Some(revision), Some(namespace), Some(name)) = read else {
        return Err(Refusal::bad_request("invalid continue token: continue key is not valid"));
    };
    Ok((revision, (namespace.to_owned(), name.to_owned())))
}
