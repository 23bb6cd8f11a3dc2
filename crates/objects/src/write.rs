//! Create and update: what the API server checks of an object, and which fields of it are its own.
//!
//! ```text
//!   create  body -> kind, namespace, name -> own metadata -> prepare_create -> put
//!   update  body or patched object -> name, uid, resource version -> prepare_update -> same as before? -> put or, deleted at last, remove
//! ```

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    call::Call,
    definition, event,
    kind::{Kind, Status},
    object::{Key, Object, at, finalizers, is_subdomain, is_terminating, map_mut, meta, name_ending, new_uid, now, set_meta, text},
    refusal::Refusal,
    state::State,
};

/// An answer: the code, and the object.
pub(crate) type Written = (http::StatusCode, Arc<Object>);

/// Reads an object that was sent, in the form that is kept.
pub(crate) fn read_body(kind: &Kind, body: &[u8]) -> Result<Object, Refusal> {
    let read = |why: String| Refusal::bad_request(format!("the object provided is unrecognized (must be of type {}): {why}", kind.kind));
    let value: Value =
        serde_json::from_slice(body).map_err(|error| read(format!("couldn't get version/kind; json parse error: {error}")))?;
    let Value::Object(object) = value else { return Err(read("couldn't get version/kind; json parse error: no object".into())) };
    kept_form(kind, object)
}

/// Checks `kind` and `apiVersion`, and brings an object into the form that is kept.
pub(crate) fn kept_form(kind: &Kind, mut object: Object) -> Result<Object, Refusal> {
    let (given_kind, given_version) = (text(&object, &["kind"]).to_owned(), text(&object, &["apiVersion"]).to_owned());
    if kind.custom && given_kind.is_empty() {
        let why = format!("the object provided is unrecognized (must be of type {}): Object 'Kind' is missing", kind.kind);
        return Err(Refusal::bad_request(why));
    }
    let other = (!given_kind.is_empty() && given_kind != kind.kind) || (!given_version.is_empty() && given_version != kind.api_version());
    if other {
        let version = if given_version.is_empty() { kind.api_version() } else { given_version };
        return Err(Refusal::bad_request(format!("{given_kind} in version {version:?} cannot be handled as a {}", kind.kind)));
    }
    if kind.custom {
        object.insert("apiVersion".into(), Value::String(kind.api_version()));
    } else {
        object.remove("apiVersion");
        object.remove("kind");
    }
    if kind.is_newer_event() {
        event::to_older(&mut object);
    }
    map_mut(&mut object, "metadata");
    set_meta(&mut object, "managedFields", None);
    set_meta(&mut object, "selfLink", None);
    Ok(object)
}

/// Creates what was sent.
pub(crate) fn create(state: &mut State, kind: &Kind, call: &Call, mut object: Object) -> Result<Written, Refusal> {
    let namespace = &call.place.namespace;
    if kind.namespaced && namespace.is_empty() {
        return Err(Refusal::method_not_allowed());
    }
    check_place(kind, call, &mut object)?;
    if kind.namespaced {
        let Some(holder) = state.namespace(namespace) else { return Err(no_namespace(namespace)) };
        if is_terminating(holder) {
            return Err(Refusal::namespace_terminating(kind, meta(&object, "name"), namespace));
        }
    }
    if !meta(&object, "resourceVersion").is_empty() {
        return Err(Refusal::unexpected("resourceVersion should not be set on objects to be created"));
    }
    let name = take_name(kind, &mut object)?;
    let key: Key = (namespace.clone(), name);
    if let Some(there) = state.table(kind)?.objects.get(&key) {
        return Err(Refusal::already_exists(kind, &key.1, is_terminating(there)));
    }
    for own in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        set_meta(&mut object, own, None);
    }
    set_meta(&mut object, "uid", Some(Value::String(new_uid())));
    set_meta(&mut object, "creationTimestamp", Some(now()));
    if kind.generation {
        set_meta(&mut object, "generation", Some(Value::from(1)));
    }
    prepare_create(kind, &mut object)?;
    drop_empty_metadata(&mut object);
    let created = if is_dry(call) { Arc::new(object) } else { state.put(kind, &key, object)? };
    Ok((http::StatusCode::CREATED, created))
}

/// Replaces an object, or a part of it, by what was sent or patched. `patched`: a UID that differs is a change, not a precondition.
pub(crate) fn update(state: &mut State, kind: &Kind, call: &Call, mut new: Object, patched: bool) -> Result<Written, Refusal> {
    let key: Key = (call.place.namespace.clone(), call.place.name.clone());
    let sent_name = meta(&new, "name").to_owned();
    if sent_name != key.1 {
        let why = format!("the name of the object ({sent_name}) does not match the name on the URL ({})", key.1);
        return Err(Refusal::bad_request(why));
    }
    check_place(kind, call, &mut new)?;
    let Some(old) = state.table(kind)?.objects.get(&key).cloned() else {
        return match kind.create_on_update && call.place.subresource.is_empty() {
            true => create(state, kind, call, new).map(|(code, object)| (if patched { http::StatusCode::OK } else { code }, object)),
            false => Err(Refusal::not_found(kind, &key.1)),
        };
    };
    check_versions(kind, &key.1, &old, &new, patched)?;
    prepare_update(kind, &call.place.subresource, &old, &mut new)?;
    if new == *old {
        return Ok((http::StatusCode::OK, old));
    }
    if is_dry(call) {
        return Ok((http::StatusCode::OK, Arc::new(new)));
    }
    let done = is_terminating(&new) && finalizers(&new).is_empty() && (!kind.is_namespace() || spec_finalizers(&new) == 0);
    if done {
        state.remove(kind, &key);
        return Ok((http::StatusCode::OK, Arc::new(new)));
    }
    Ok((http::StatusCode::OK, state.put(kind, &key, new)?))
}

/// Gives a pod its node, as a scheduler does.
pub(crate) fn bind(state: &mut State, kind: &Kind, call: &Call, body: &[u8]) -> Result<(), Refusal> {
    let key: Key = (call.place.namespace.clone(), call.place.name.clone());
    let binding: Value = serde_json::from_slice(body).map_err(|error| Refusal::bad_request(error.to_string()))?;
    let node = binding.get("target").and_then(|target| target.get("name")).cloned().unwrap_or_default();
    let mut pod = (*state.object(kind, &key)?).clone();
    if !text(&pod, &["spec", "nodeName"]).is_empty() {
        let why = format!("pod {} is already assigned to node {:?}", key.1, text(&pod, &["spec", "nodeName"]));
        return Err(Refusal::conflict(&Kind { plural: "pods/binding".into(), ..kind.clone() }, &key.1, &why));
    }
    if let Some(spec) = map_mut(&mut pod, "spec") {
        spec.insert("nodeName".into(), node);
    }
    if let Some(status) = map_mut(&mut pod, "status") {
        let scheduled = json!([{"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now()}]);
        status.insert("conditions".into(), scheduled);
    }
    state.put(kind, &key, pod).map(|_| ())
}

/// Whether nothing is to be written.
pub(crate) fn is_dry(call: &Call) -> bool {
    call.parameter("dryRun") == "All"
}

fn no_namespace(name: &str) -> Refusal {
    let kind = crate::kind::built_in().into_iter().find(Kind::is_namespace);
    kind.map_or_else(Refusal::no_such_resource, |kind| Refusal::not_found(&kind, name))
}

fn check_place(kind: &Kind, call: &Call, object: &mut Object) -> Result<(), Refusal> {
    let given = meta(object, "namespace");
    if kind.namespaced && !given.is_empty() && given != call.place.namespace {
        return Err(Refusal::bad_request("the namespace of the provided object does not match the namespace sent on the request"));
    }
    let namespace = kind.namespaced.then(|| Value::String(call.place.namespace.clone()));
    set_meta(object, "namespace", namespace);
    Ok(())
}

fn take_name(kind: &Kind, object: &mut Object) -> Result<String, Refusal> {
    let given = meta(object, "name").to_owned();
    let name = match (given.is_empty(), meta(object, "generateName")) {
        (false, _) => given,
        (true, "") => {
            let why = "Required value: name or generateName is required";
            return Err(Refusal::invalid(kind, "", "metadata.name", "FieldValueRequired", why));
        }
        (true, start) => format!("{start}{}", name_ending()),
    };
    if !is_subdomain(&name) {
        let why = format!(
            "Invalid value: {name:?}: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
             must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        );
        return Err(Refusal::invalid(kind, &name, "metadata.name", "FieldValueInvalid", &why));
    }
    set_meta(object, "name", Some(Value::String(name.clone())));
    Ok(name)
}

fn prepare_create(kind: &Kind, object: &mut Object) -> Result<(), Refusal> {
    // Nodes are the one kind whose status may come with them.
    if kind.status != Status::Field && kind.plural != "nodes" {
        object.remove("status");
    }
    if kind.is_pod() {
        let name = meta(object, "name").to_owned();
        if at(object, &["spec", "containers"]).and_then(Value::as_array).is_none_or(Vec::is_empty) {
            return Err(Refusal::invalid(kind, &name, "spec.containers", "FieldValueRequired", "Required value"));
        }
        object.insert("status".into(), json!({"phase": "Pending", "qosClass": "BestEffort"}));
    }
    if kind.is_namespace() {
        let name = meta(object, "name").to_owned();
        if let Some(labels) = map_mut(object, "metadata").and_then(|metadata| map_mut(metadata, "labels")) {
            labels.insert("kubernetes.io/metadata.name".into(), Value::String(name));
        }
        object.insert("spec".into(), json!({"finalizers": ["kubernetes"]}));
        object.insert("status".into(), json!({"phase": "Active"}));
    }
    if kind.plural == "events" {
        event::fill_in(object);
    }
    if kind.is_definition() {
        definition::establish(object);
    }
    Ok(())
}

fn check_versions(kind: &Kind, name: &str, old: &Object, new: &Object, patched: bool) -> Result<(), Refusal> {
    let (uid, version) = (meta(new, "uid"), meta(new, "resourceVersion"));
    let other_uid = !uid.is_empty() && uid != meta(old, "uid");
    if other_uid && !patched {
        let path = if meta(old, "namespace").is_empty() { String::new() } else { format!("{}/", meta(old, "namespace")) };
        let group = if kind.custom { format!("{}/", kind.group) } else { String::new() };
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{group}{}/{path}{name}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            kind.plural,
            meta(old, "uid")
        );
        return Err(Refusal::conflict(kind, name, &why));
    }
    if version.is_empty() && !kind.unconditional && !patched {
        return Err(Refusal::unconditional(kind, name));
    }
    if !version.is_empty() && version != meta(old, "resourceVersion") {
        return Err(Refusal::stale(kind, name));
    }
    if other_uid {
        let why = format!("Invalid value: {uid:?}: field is immutable");
        return Err(Refusal::invalid(kind, name, "metadata.uid", "FieldValueInvalid", &why));
    }
    Ok(())
}

fn prepare_update(kind: &Kind, subresource: &str, old: &Object, new: &mut Object) -> Result<(), Refusal> {
    match (subresource, kind.status) {
        ("status", status) => {
            let sent = std::mem::replace(new, old.clone());
            replace(new, "status", sent.get("status"));
            if status == Status::WithMetadata {
                replace(new, "metadata", sent.get("metadata"));
            }
        }
        ("finalize", _) => {
            let sent = std::mem::replace(new, old.clone());
            let kept = sent.get("spec").filter(|spec| spec.get("finalizers") != Some(&json!([])));
            replace(new, "spec", Some(kept.unwrap_or(&json!({}))));
        }
        (_, Status::Field) => {}
        (_, Status::WithMetadata | Status::Alone) => replace(new, "status", old.get("status")),
    }
    if kind.is_namespace() && subresource.is_empty() {
        replace(new, "spec", old.get("spec"));
    }
    for own in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"] {
        set_meta(new, own, at(old, &["metadata", own]).cloned());
    }
    drop_empty_metadata(new);
    if is_terminating(old) {
        let before = finalizers(old);
        let added: Vec<String> = finalizers(new).iter().filter(|name| !before.contains(name)).map(|name| format!("{name:?}")).collect();
        if !added.is_empty() {
            let why = format!(
                "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            return Err(Refusal::invalid(kind, meta(old, "name"), "metadata.finalizers", "FieldValueForbidden", &why));
        }
    }
    if kind.generation {
        let generation = at(old, &["metadata", "generation"]).and_then(Value::as_i64).unwrap_or_default();
        let next = if is_meant_otherwise(kind, old, new) { generation + 1 } else { generation };
        set_meta(new, "generation", Some(Value::from(next)));
    }
    Ok(())
}

// What counts for the generation: the specification; of a custom resource everything but metadata and a status of its own.
fn is_meant_otherwise(kind: &Kind, old: &Object, new: &Object) -> bool {
    if !kind.custom {
        return old.get("spec") != new.get("spec");
    }
    let counts = |key: &str| key != "metadata" && (key != "status" || kind.status == Status::Field);
    old.iter().any(|(key, value)| counts(key) && new.get(key) != Some(value)) || new.keys().any(|key| counts(key) && !old.contains_key(key))
}

fn replace(object: &mut Object, key: &str, value: Option<&Value>) {
    match value {
        Some(value) => object.insert(key.to_owned(), value.clone()),
        None => object.remove(key),
    };
}

// The API server drops what is empty or null, so that such a write changes nothing.
fn drop_empty_metadata(object: &mut Object) {
    if let Some(metadata) = map_mut(object, "metadata") {
        metadata.retain(|_, value| match value {
            Value::Null => false,
            Value::Array(list) => !list.is_empty(),
            Value::Object(map) => !map.is_empty(),
            _ => true,
        });
    }
}

fn spec_finalizers(namespace: &Object) -> usize {
    at(namespace, &["spec", "finalizers"]).and_then(Value::as_array).map_or(0, Vec::len)
}
