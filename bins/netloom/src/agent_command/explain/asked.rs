//! What the pod's annotations ask for, each selection with its number.

use anstyle::Style;
use json::{Object, Value};
use npwg::Selection;

use super::super::answer::{clean, line};
use super::{BELOW, KEYS};
use crate::output::{BAD, FAINT};
use crate::page::Page;

/// Selections that are shown; a pod may ask for a thousand.
const SHOWN: usize = 40;

/// The annotations of a pod.
pub(super) struct Selections {
    /// Each element of `k8s.v1.cni.cncf.io/networks` as it was written, on a line.
    written: Vec<String>,
    /// The same, understood; or why not.
    read: Result<Vec<Selection>, String>,
    /// `v1.multus-cni.io/default-network`
    default: Option<String>,
}

/// Why a pod has an attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// It is the default network; `asked`: by the pod's own annotation.
    Default { asked: bool },
    /// The selection with this number, from 1.
    Selection(usize),
    /// The agent gives it to every pod.
    EveryPod,
    /// Selections and attachments do not fit each other: the annotation was changed since, perhaps.
    Unknown,
}

// === impl Selections ===

impl Selections {
    pub(super) fn of(o: &Object) -> Self {
        let networks = o.str("networks").unwrap_or_default();
        let read = npwg::parse(networks, o.str("namespace").unwrap_or_default()).map_err(|e| clean(&e.to_string()));
        let default = o.str("defaultNetwork").filter(|text| !text.trim().is_empty()).map(line);
        Selections { written: written(networks), read, default }
    }

    /// Why each of a sandbox's attachments is there: the default network, then those of every pod, then the selections in
    /// their order. `names` has each one's definition, and whether it is the default network.
    pub(super) fn sources(&self, names: &[(&str, bool)]) -> Vec<Source> {
        let others: Vec<&str> = names.iter().filter(|(_, default)| !default).map(|(name, _)| *name).collect();
        let selected = self.read.as_deref().unwrap_or_default();
        // How many come before the first selection; none fits where the annotation is not the one of that time.
        let before = others.len().checked_sub(selected.len()).filter(|before| {
            let theirs = others.iter().skip(*before);
            self.read.is_ok() && theirs.zip(selected).all(|(name, selection)| *name == selection.definition.to_string())
        });
        let mut place = 0;
        let source = |(_, default): &(&str, bool)| {
            if *default {
                return Source::Default { asked: self.default.is_some() };
            }
            place += 1;
            match before {
                None => Source::Unknown,
                Some(before) if place <= before => Source::EveryPod,
                Some(before) => Source::Selection(place - before),
            }
        };
        names.iter().map(source).collect()
    }

    /// The annotations, as far as there are any; without them a pod on its node's network asks for nothing.
    pub(super) fn draw(&self, page: &mut Page, host_network: bool) {
        if let Some(default) = &self.default {
            page.pair(BELOW, "default network", KEYS, Style::new(), &format!("{default} (v1.multus-cni.io/default-network)"));
        }
        if self.written.is_empty() {
            if host_network && self.default.is_none() {
                return;
            }
            let what = if self.default.is_some() { "nothing else" } else { "the default network alone" };
            return page.pair(BELOW, "asked for", KEYS, Style::new(), what);
        }
        let digits = self.written.len().to_string().len();
        for (i, selection) in self.written.iter().take(SHOWN).enumerate() {
            let key = if i == 0 { "asked for" } else { "" };
            let key = format!("{key:<width$}{:>digits$}", i + 1, width = KEYS + 2);
            page.pair(BELOW, &key, KEYS + 2 + digits, Style::new(), selection);
        }
        if let Some(more) = self.written.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            page.pair(BELOW, "", KEYS, FAINT, &format!("... and {more} more: see them with -o json"));
        }
        if let Err(why) = &self.read {
            page.pair(BELOW, "", KEYS, BAD, &format!("invalid: {why}"));
        }
    }
}

/// An annotation's elements, each on a line: the JSON form's or the comma form's; what is neither is one.
fn written(annotation: &str) -> Vec<String> {
    let text = annotation.trim();
    if text.is_empty() {
        return Vec::new();
    }
    if !text.contains(['[', '{', '"']) {
        return text.split(',').map(|element| line(element.trim())).collect();
    }
    match json::parse(text.as_bytes()) {
        Ok(Value::Array(list)) => list.iter().map(|element| line(&spaced(element))).collect(),
        _ => vec![line(text)],
    }
}

/// JSON on one line, with room between its keys: a terminal breaks it there.
fn spaced(value: &Value) -> String {
    match value {
        Value::Object(o) => {
            let pairs: Vec<String> = o.iter().map(|(key, value)| format!("{}: {}", json::compact(&key), spaced(value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(spaced).collect::<Vec<_>>().join(", ")),
        other => json::compact(other),
    }
}
