//! Custom resources: a CustomResourceDefinition that is written makes its resource served, and takes it away when it goes.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    kind::{Kind, Status, Text},
    object::{Object, at, map_mut, text},
    state::State,
};

/// Serves every version that a definition names.
pub(crate) fn serve(state: &mut State, definition: &Object) {
    let versions = at(definition, &["spec", "versions"]).and_then(Value::as_array).cloned().unwrap_or_default();
    for version in versions.iter().filter(|version| version.get("served").and_then(Value::as_bool).unwrap_or_default()) {
        let own = |path: &[&str]| Text::Owned(text(definition, path).to_owned());
        let (group, plural, kind) = (own(&["spec", "group"]), own(&["spec", "names", "plural"]), own(&["spec", "names", "kind"]));
        let list_kind = match text(definition, &["spec", "names", "listKind"]) {
            "" => Text::Owned(format!("{kind}List")),
            given => Text::Owned(given.to_owned()),
        };
        let status = version.get("subresources").and_then(|all| all.get("status")).is_some();
        state.serve(Arc::new(Kind {
            table: Text::Owned(format!("{plural}.{group}")),
            version: Text::Owned(version.get("name").and_then(Value::as_str).unwrap_or_default().to_owned()),
            namespaced: text(definition, &["spec", "scope"]) != "Cluster",
            status: if status { Status::Alone } else { Status::Field },
            group,
            plural,
            kind,
            list_kind,
            generation: true,
            unconditional: false,
            create_on_update: false,
            custom: true,
            fields: &[],
            indexed: "metadata.name",
        }));
    }
}

/// Takes away what a definition served, objects and all.
pub(crate) fn unserve(state: &mut State, definition: &Object) {
    state.unserve(text(definition, &["spec", "group"]), text(definition, &["spec", "names", "plural"]));
}

/// Fills in what the API server's controllers would: names and the conditions of a definition that is served.
pub(crate) fn establish(definition: &mut Object) {
    let now = crate::object::now();
    if let Some(names) = map_mut(definition, "spec").and_then(|spec| map_mut(spec, "names")) {
        let kind = text(names, &["kind"]).to_owned();
        names.entry("singular").or_insert_with(|| Value::String(kind.to_lowercase()));
        names.entry("listKind").or_insert_with(|| Value::String(format!("{kind}List")));
    }
    let names = at(definition, &["spec", "names"]).cloned().unwrap_or_default();
    let stored = at(definition, &["spec", "versions"])
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|version| version.get("storage").and_then(Value::as_bool).unwrap_or_default())
        .filter_map(|version| version.get("name").cloned())
        .collect::<Vec<_>>();
    let status = json!({
        "acceptedNames": names,
        "storedVersions": stored,
        "conditions": [
            {"type": "NamesAccepted", "status": "True", "lastTransitionTime": now, "reason": "NoConflicts", "message": "no conflicts found"},
            {"type": "Established", "status": "True", "lastTransitionTime": now, "reason": "InitialNamesAccepted",
             "message": "the initial names have been accepted"},
        ],
    });
    definition.insert("status".into(), status);
}

/// The definition of NetworkAttachmentDefinition, as the multi-network standard publishes it.
pub(crate) fn network_attachment_definitions() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "network-attachment-definitions.k8s.cni.cncf.io"},
        "spec": {
            "group": "k8s.cni.cncf.io",
            "scope": "Namespaced",
            "names": {
                "plural": "network-attachment-definitions", "singular": "network-attachment-definition",
                "kind": "NetworkAttachmentDefinition", "shortNames": ["net-attach-def"],
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {"type": "object", "properties": {"config": {"type": "string"}}}},
                }},
            }],
        },
    })
}
