//! Events have two forms in one table: the core one, which is kept, and that of `events.k8s.io`, which is renamed from it and to it.

use serde_json::Value;

use crate::object::Object;

// Newer name, older name.
const NAMES: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// What an event always has, if only as `null`.
pub(crate) fn fill_in(event: &mut Object) {
    event.entry("source").or_insert_with(|| Value::Object(Object::new()));
    for time in ["firstTimestamp", "lastTimestamp", "eventTime"] {
        event.entry(time).or_insert(Value::Null);
    }
}

/// The form of `events.k8s.io` made the one that is kept.
pub(crate) fn to_older(event: &mut Object) {
    rename(event, |(newer, older)| (newer, older));
}

/// The kept form made that of `events.k8s.io`.
pub(crate) fn to_newer(event: &mut Object) {
    rename(event, |(newer, older)| (older, newer));
}

/// A field selector's name in the kept form.
pub(crate) fn older_field(name: &str) -> Option<String> {
    let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
    let first = NAMES.iter().find(|(newer, _)| *newer == first).map_or(first, |(_, older)| older);
    Some(rest.map_or_else(|| first.to_owned(), |rest| format!("{first}.{rest}")))
}

fn rename(event: &mut Object, from_to: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str)) {
    for (from, to) in NAMES.iter().copied().map(from_to) {
        if let Some(value) = event.remove(from) {
            event.insert(to.to_owned(), value);
        }
    }
}
