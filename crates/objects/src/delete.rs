//! Deletion: preconditions, finalizers, and what each kind of object leaves for a while.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    call::Call,
    kind::Kind,
    object::{Key, Object, at, finalizers, is_terminating, map_mut, meta, now, set_meta},
    read::typed,
    refusal::Refusal,
    state::State,
    write::is_dry,
};

/// Deletes one object. The answer is the object where it stays or is a pod, and a `Status` elsewhere.
pub(crate) fn delete(state: &mut State, kind: &Kind, call: &Call, body: &[u8]) -> Result<Value, Refusal> {
    let key: Key = (call.place.namespace.clone(), call.place.name.clone());
    let object = state.object(kind, &key)?;
    let options: Value = if body.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(body).map_err(|error| Refusal::bad_request(error.to_string()))?
    };
    check_preconditions(kind, &key.1, &object, &options)?;
    // Options come in the body or, where there is none, as parameters; never both.
    let dry = match body.is_empty() {
        true => is_dry(call),
        false => options.get("dryRun").and_then(Value::as_array).is_some_and(|list| !list.is_empty()),
    };
    let gone = if dry { Gone::Entirely((*object).clone()) } else { end(state, kind, &key, &object)? };
    Ok(match gone {
        Gone::Later(object) => typed(kind, &object, call.partial),
        Gone::Entirely(object) if kind.shows_what_it_deleted() => typed(kind, &object, call.partial),
        Gone::Entirely(object) => {
            let mut details = kind.details(&key.1);
            if let Some(details) = details.as_object_mut() {
                details.insert("uid".into(), Value::from(meta(&object, "uid")));
            }
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
        }
    })
}

enum Gone {
    Later(Arc<Object>),
    Entirely(Object),
}

/// Begins the end of an object, and completes it where nothing holds it.
pub(crate) fn end_of(state: &mut State, kind: &Kind, key: &Key, object: &Arc<Object>) -> Result<(), Refusal> {
    end(state, kind, key, object).map(|_| ())
}

fn end(state: &mut State, kind: &Kind, key: &Key, object: &Arc<Object>) -> Result<Gone, Refusal> {
    let held = kind.is_namespace() || !finalizers(object).is_empty();
    if held && is_terminating(object) {
        return Ok(Gone::Later(Arc::clone(object)));
    }
    // A pod is marked before it goes, also where nothing holds it: its watchers see both.
    if held || kind.is_pod() {
        let mut marked = (**object).clone();
        set_meta(&mut marked, "deletionTimestamp", Some(now()));
        if kind.is_namespace() {
            if let Some(status) = map_mut(&mut marked, "status") {
                status.insert("phase".into(), Value::from("Terminating"));
            }
        } else {
            set_meta(&mut marked, "deletionGracePeriodSeconds", Some(Value::from(0)));
        }
        if let Some(generation) = at(object, &["metadata", "generation"]).and_then(Value::as_i64).filter(|number| *number > 0) {
            set_meta(&mut marked, "generation", Some(Value::from(generation + 1)));
        }
        let marked = state.put(kind, key, marked)?;
        if held {
            return Ok(Gone::Later(marked));
        }
    }
    state.remove(kind, key).map(Gone::Entirely).ok_or_else(|| Refusal::not_found(kind, &key.1))
}

fn check_preconditions(kind: &Kind, name: &str, object: &Object, options: &Value) -> Result<(), Refusal> {
    let wanted = |key: &str| options.get("preconditions").and_then(|all| all.get(key)).and_then(Value::as_str).unwrap_or_default();
    let (uid, version) = (wanted("uid"), wanted("resourceVersion"));
    if !uid.is_empty() && uid != meta(object, "uid") {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            meta(object, "uid")
        );
        return Err(Refusal::precondition(kind, name, &why));
    }
    if !version.is_empty() && version != meta(object, "resourceVersion") {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have \
             been modified",
            meta(object, "resourceVersion")
        );
        return Err(Refusal::precondition(kind, name, &why));
    }
    Ok(())
}
