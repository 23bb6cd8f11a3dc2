//! Patches: JSON, merge, strategic merge, and apply.
//!
//! Apply is a merge that creates what is missing: the store keeps no record of who set which field, so it neither finds conflicts between
//! appliers nor removes what one of them no longer names.

use serde_json::{Map, Value};

use crate::{
    call::Call,
    kind::Kind,
    object::{Key, meta, text},
    read::typed,
    refusal::Refusal,
    state::State,
    write::{Written, create, kept_form, update},
};

/// Patches what is there; an apply creates what is not.
pub(crate) fn patch(state: &mut State, kind: &Kind, call: &Call, body: &[u8]) -> Result<Written, Refusal> {
    let key: Key = (call.place.namespace.clone(), call.place.name.clone());
    let form = Form::of(kind, &call.content_type)?;
    let sent: Value = serde_json::from_slice(body).map_err(|error| Refusal::bad_request(format!("error decoding patch: {error}")))?;
    if form == Form::Apply {
        if call.parameter("fieldManager").is_empty() {
            let why = "Required value: is required for apply patch";
            return Err(Refusal::invalid_options("PatchOptions", "fieldManager", "FieldValueRequired", why));
        }
        if let Some(created) = apply_new(state, kind, call, &key, &sent) {
            return created;
        }
    }
    let old = state.object(kind, &key)?;
    let mut object = typed(kind, &old, false);
    match form {
        Form::Json => {
            let steps: json_patch::Patch =
                serde_json::from_value(sent).map_err(|error| Refusal::bad_request(format!("error decoding patch: {error}")))?;
            json_patch::patch(&mut object, &steps).map_err(|_| Refusal::patch_does_not_fit())?;
        }
        Form::Merge => json_patch::merge(&mut object, &sent),
        Form::Strategic => strategic(&mut object, &sent, ""),
        Form::Apply if kind.custom => json_patch::merge(&mut object, &sent),
        Form::Apply => strategic(&mut object, &sent, ""),
    }
    let Value::Object(mut object) = object else { return Err(Refusal::patch_does_not_fit()) };
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.retain(|_, value| !value.is_null());
    }
    let object = kept_form(kind, object)?;
    update(state, kind, call, object, true)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl Form {
    fn of(kind: &Kind, content_type: &str) -> Result<Self, Refusal> {
        match content_type {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            "application/strategic-merge-patch+json" if !kind.custom => Ok(Self::Strategic),
            "application/strategic-merge-patch+json" => {
                let accepted = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
                Err(Refusal::unsupported_patch(Some(accepted)))
            }
            _ => Err(Refusal::unsupported_patch(None)),
        }
    }
}

// `None` where the object is there already.
fn apply_new(state: &mut State, kind: &Kind, call: &Call, key: &Key, sent: &Value) -> Option<Result<Written, Refusal>> {
    let Value::Object(sent) = sent else { return Some(Err(Refusal::bad_request("error decoding patch: no object"))) };
    if text(sent, &["kind"]).is_empty() {
        let why = format!("invalid object type: /{}, Kind={}", text(sent, &["apiVersion"]), text(sent, &["kind"]));
        return Some(Err(Refusal::bad_request(why)));
    }
    if state.table(kind).is_ok_and(|table| table.objects.contains_key(key)) {
        return None;
    }
    if !call.place.subresource.is_empty() {
        return Some(Err(Refusal::not_found(kind, &key.1)));
    }
    let uid = meta(sent, "uid");
    if !uid.is_empty() {
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Some(Err(Refusal::conflict(kind, &key.1, &why)));
    }
    Some(kept_form(kind, sent.clone()).and_then(|object| create(state, kind, call, object)))
}

/// The key by which a list is merged: the API's `patchMergeKey`, for the lists that a networking agent meets.
fn merge_key(list: &str) -> Option<&'static str> {
    Some(match list {
        "conditions" | "addresses" => "type",
        "ownerReferences" => "uid",
        "containers" | "initContainers" | "ephemeralContainers" | "volumes" | "env" | "imagePullSecrets" => "name",
        "volumeMounts" => "mountPath",
        "ports" => "containerPort",
        "podIPs" | "hostIPs" | "hostAliases" => "ip",
        _ => return None,
    })
}

// A strategic merge: as a merge patch, but for lists with a merge key, finalizers and the `$patch` directives.
fn strategic(target: &mut Value, patch: &Value, name: &str) {
    match (patch, &mut *target) {
        (Value::Object(patch), Value::Object(target)) => strategic_map(target, patch),
        (Value::Object(patch), _) => {
            let mut made = Map::new();
            strategic_map(&mut made, patch);
            *target = Value::Object(made);
        }
        (Value::Array(patch), Value::Array(target)) if name == "finalizers" => {
            // As with lists of objects, what is new comes first.
            let mut added: Vec<Value> = patch.iter().filter(|one| !target.contains(one)).cloned().collect();
            added.append(target);
            *target = added;
        }
        (Value::Array(patch), Value::Array(target)) if merge_key(name).is_some() => strategic_list(target, patch, name),
        (patch, target) => *target = patch.clone(),
    }
}

fn strategic_map(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    if patch.get("$patch").and_then(Value::as_str) == Some("replace") {
        target.clear();
    }
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().cloned().unwrap_or_default();
            if let Some(Value::Array(list)) = target.get_mut(list) {
                list.retain(|one| !gone.contains(one));
            }
        } else if key.starts_with('$') {
            // `$setElementOrder` and `$retainKeys`: order and unions are as the patch leaves them.
        } else if value.is_null() {
            target.remove(key);
        } else {
            strategic(target.entry(key.clone()).or_insert(Value::Null), value, key);
        }
    }
}

fn strategic_list(target: &mut Vec<Value>, patch: &[Value], name: &str) {
    let Some(key) = merge_key(name) else { return };
    // What is new comes before what was there, as the API server has it.
    let mut added = Vec::new();
    for one in patch {
        let place = target.iter().position(|other| one.get(key).is_some() && other.get(key) == one.get(key));
        let delete = one.get("$patch").and_then(Value::as_str) == Some("delete");
        match place {
            Some(place) if delete => {
                target.remove(place);
            }
            Some(place) => {
                if let Some(old) = target.get_mut(place) {
                    strategic(old, one, "");
                }
            }
            None if delete => {}
            None => added.push(one.clone()),
        }
    }
    added.append(target);
    *target = added;
}
