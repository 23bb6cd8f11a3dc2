//! NetworkAttachmentDefinitions: the networks that pods can select.

use npwg::{Definition, DefinitionError};

use super::DefinitionManifest;
use super::error::{ManifestProblem, WarningKind};
use super::fields::{Field, Object};
use super::object::{Kind, metadata};
use super::relations::Reading;

pub(crate) fn read(object: &Object<'_>, reading: &mut Reading) {
    let Some(metadata) = metadata(object, Kind::Definition, reading) else { return };
    let spec = object.object("spec", reading);
    if let Some(spec) = &spec {
        spec.warn_of_near_misses(&["config"], reading);
    }
    let config = spec.and_then(|spec| spec.get("config"));
    let text = config.as_ref().and_then(|field| text(field, reading));
    let definition = Definition {
        namespace: metadata.namespace.to_owned(),
        name: metadata.name.to_owned(),
        config: text.map(str::to_owned),
        resource_name: metadata.annotations.get(npwg::RESOURCE_NAME).cloned(),
    };
    let network = match (definition.network(), config) {
        (Ok(network), _) => network,
        (Err(DefinitionError::NoPlugin(_)), Some(field)) => {
            reading.warn(field.origin(), &field.path, WarningKind::SelectionsWillFail(ManifestProblem::NoPlugin));
            None
        }
        (Err(DefinitionError::Config { problem, .. }), Some(field)) => {
            config_error(&field, problem, reading);
            None
        }
        // A name that cannot be was reported with the metadata.
        (Err(_), _) => None,
    };
    reading.definitions.push(DefinitionManifest { definition, network, annotations: metadata.annotations, origin: object.origin() });
}

/// The configuration's text. An object there is what many write first.
fn text<'a>(field: &Field<'a>, reading: &mut Reading) -> Option<&'a str> {
    let text = field.as_str();
    if text.is_none() {
        field.unexpected("a string with JSON in it: begin it with config: |", reading);
    }
    text
}

/// Reports a configuration, at the place inside of the text if there is one.
fn config_error(field: &Field<'_>, mut problem: cni::ConfigError, reading: &mut Reading) {
    let mut origin = field.origin();
    if let cni::ConfigError::Json(e) = &mut problem {
        origin = json_place(field, e).unwrap_or(origin);
    }
    reading.warn(origin, &field.path, WarningKind::SelectionsWillFail(ManifestProblem::Config(problem)));
}

/// Makes a JSON error's place in the text of a field one in the file; `None` if there is no such place.
pub(crate) fn json_place(field: &Field<'_>, e: &mut json::ParseError) -> Option<super::Origin> {
    let json::ParseError::Syntax { line, column, .. } = e else { return None };
    let (in_document, column_there) = field.node.inside(&field.document.text, *line, *column)?;
    let origin = field.document.origin(in_document, column_there);
    (*line, *column) = (origin.line, origin.column);
    Some(origin)
}
