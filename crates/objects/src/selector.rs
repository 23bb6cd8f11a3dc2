//! Label and field selectors: which objects a list or a watch is about.

use crate::{
    kind::Kind,
    object::{Object, at, text},
    refusal::Refusal,
};

/// What a request selects: every part must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Selector {
    labels: Vec<(String, Test)>,
    fields: Vec<(String, Test)>,
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    In(Vec<String>),
    // Also true of what has no such label.
    NotIn(Vec<String>),
    Exists,
    Missing,
    Above(i64),
    Below(i64),
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::In(any) => value.is_some_and(|value| any.iter().any(|one| one == value)),
            Self::NotIn(none) => value.is_none_or(|value| none.iter().all(|one| one != value)),
            Self::Exists => value.is_some(),
            Self::Missing => value.is_none(),
            Self::Above(limit) => number().is_some_and(|number| number > *limit),
            Self::Below(limit) => number().is_some_and(|number| number < *limit),
        }
    }
}

impl Selector {
    /// Reads `labelSelector` and `fieldSelector` of a request.
    pub(crate) fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, Refusal> {
        let labels = split(labels).into_iter().map(parse_label).collect::<Result<_, _>>()?;
        let fields = fields.split(',').filter(|part| !part.is_empty()).map(|part| parse_field(kind, part)).collect::<Result<_, _>>()?;
        Ok(Self { labels, fields })
    }

    /// The same, of the one object of that name; of all where the name is empty.
    pub(crate) fn named(mut self, name: &str) -> Self {
        if !name.is_empty() {
            self.fields.push(("metadata.name".to_owned(), Test::In(vec![name.to_owned()])));
        }
        self
    }

    /// Whether everything is selected.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The one value that a field must have, if it must.
    pub(crate) fn exactly(&self, field: &str) -> Option<&str> {
        self.fields.iter().find_map(|(name, test)| match test {
            Test::In(values) if name == field => values.first().map(String::as_str),
            _ => None,
        })
    }

    /// Whether an object is selected.
    pub(crate) fn holds(&self, object: &Object) -> bool {
        let label = |name: &str| at(object, &["metadata", "labels"]).and_then(|labels| labels.get(name)).and_then(|value| value.as_str());
        self.labels.iter().all(|(name, test)| test.holds(label(name)))
            && self.fields.iter().all(|(name, test)| test.holds(Some(field(object, name))))
    }
}

/// A field of a selector as text: one that is missing is empty.
pub(crate) fn field<'a>(object: &'a Object, name: &str) -> &'a str {
    let path: Vec<&str> = name.split('.').collect();
    match at(object, &path) {
        Some(serde_json::Value::Bool(true)) => "true",
        None if name == "spec.unschedulable" => "false",
        _ => text(object, &path),
    }
}

// Commas inside of brackets separate values, not requirements.
fn split(labels: &str) -> Vec<&str> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (place, letter) in labels.char_indices() {
        match letter {
            '(' => inside = true,
            ')' => inside = false,
            ',' if !inside => {
                parts.push(labels.get(start..place).unwrap_or_default());
                start = place + 1;
            }
            _ => {}
        }
    }
    parts.push(labels.get(start..).unwrap_or_default());
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn parse_label(part: &str) -> Result<(String, Test), Refusal> {
    if let Some(name) = part.strip_prefix('!') {
        return Ok((name.trim().to_owned(), Test::Missing));
    }
    let one = |value: &str| vec![value.trim().to_owned()];
    for (sign, is) in [("!=", false), ("==", true), ("=", true)] {
        if let Some((name, value)) = part.split_once(sign) {
            return Ok((name.trim().to_owned(), if is { Test::In(one(value)) } else { Test::NotIn(one(value)) }));
        }
    }
    for (sign, above) in [('>', true), ('<', false)] {
        if let Some((name, value)) = part.split_once(sign) {
            let limit = value.trim().parse().map_err(|_| Refusal::bad_request(format!("unable to parse requirement: {value:?}")))?;
            return Ok((name.trim().to_owned(), if above { Test::Above(limit) } else { Test::Below(limit) }));
        }
    }
    let Some((name, rest)) = part.split_once(char::is_whitespace) else { return Ok((part.to_owned(), Test::Exists)) };
    let rest = rest.trim();
    let (word, values) = rest.split_once('(').unwrap_or((rest, ""));
    let values = values.trim_end_matches(')').split(',').map(|value| value.trim().to_owned()).collect();
    match word.trim() {
        "in" => Ok((name.to_owned(), Test::In(values))),
        "notin" => Ok((name.to_owned(), Test::NotIn(values))),
        other => Err(Refusal::bad_request(format!("unable to parse requirement: found '{other}', expected: in, notin, =, ==, !=, gt, lt"))),
    }
}

fn parse_field(kind: &Kind, part: &str) -> Result<(String, Test), Refusal> {
    let split = [("!=", false), ("==", true), ("=", true)];
    let found = split.iter().find_map(|(sign, is)| part.split_once(sign).map(|(name, value)| (name, value, *is)));
    let Some((name, value, is)) = found else {
        return Err(Refusal::bad_request(format!("invalid selector: '{part}'; can't understand '{part}'")));
    };
    let known = match name {
        "metadata.name" => Some(name.to_owned()),
        "metadata.namespace" if kind.namespaced => Some(name.to_owned()),
        _ if kind.is_newer_event() => crate::event::older_field(name).filter(|name| kind.fields.contains(&name.as_str())),
        _ => kind.fields.contains(&name).then(|| name.to_owned()),
    };
    let Some(known) = known else {
        let message = if kind.fields.is_empty() && !kind.custom {
            format!("{name:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        } else {
            format!("field label not supported: {name}")
        };
        return Err(Refusal::bad_request(message));
    };
    let values = vec![value.to_owned()];
    Ok((known, if is { Test::In(values) } else { Test::NotIn(values) }))
}
