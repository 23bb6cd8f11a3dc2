//! IPPools: addresses that the pods of all nodes share.

use serde_json::{Map, Number, Value as Json};
use yaml::Value;

use super::PoolManifest;
use super::error::ManifestProblem;
use super::fields::{Field, Object};
use super::object::{Kind, metadata};
use super::relations::Reading;

pub(crate) fn read(object: &Object<'_>, reading: &mut Reading) {
    let Some(metadata) = metadata(object, Kind::Pool, reading) else { return };
    let Some(spec) = object.required("spec", "expected ipv4 or ipv6, with entries", reading) else { return };
    let whole = serde_json::from_value(json(&spec.node.value));
    let read = match whole {
        // Which key it is stands in the message.
        Err(e) => return spec.report(ManifestProblem::Pool(e.to_string()), reading),
        Ok(spec) => api::IpPool {
            api_version: api::API_VERSION.to_owned(),
            kind: "IPPool".to_owned(),
            metadata: api::Metadata { name: metadata.name.to_owned() },
            spec,
            status: None,
        },
    };
    match ipam::check_pool(metadata.name, &read) {
        Err((place, reason)) => at(object, &place).unwrap_or(spec).report(ManifestProblem::Pool(reason), reading),
        Ok(_) => reading.pools.push(PoolManifest { pool: read, origin: object.origin() }),
    }
}

/// The field at `spec.ipv4.entries[0]`, or the one that it would be in.
fn at<'a>(object: &Object<'a>, place: &str) -> Option<Field<'a>> {
    let mut object = object.clone();
    let mut found = None;
    for part in place.split('.') {
        let (key, index) = part.split_once('[').map_or((part, None), |(key, index)| (key, index.trim_end_matches(']').parse().ok()));
        let Some(mut field) = object.get(key) else { return found };
        if let (Some(index), Value::List(_)) = (index, &field.node.value) {
            // A list: nothing is reported.
            let list = field.list("a list", &mut Reading::default());
            field = list.into_iter().nth(index)?;
        }
        let inner = field.as_object();
        found = Some(field);
        let Some(inner) = inner else { return found };
        object = inner;
    }
    found
}

fn json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(b) => Json::Bool(*b),
        Value::Number(text) => text.parse::<Number>().map_or_else(|_| Json::String(text.clone()), Json::Number),
        Value::String(text) => Json::String(text.clone()),
        Value::List(nodes) => Json::Array(nodes.iter().map(|node| json(&node.value)).collect()),
        Value::Object(entries) => {
            let given = entries.iter().filter(|(_, node)| !matches!(node.value, Value::Null));
            Json::Object(given.map(|(key, node)| (key.text.clone(), json(&node.value))).collect::<Map<_, _>>())
        }
    }
}
