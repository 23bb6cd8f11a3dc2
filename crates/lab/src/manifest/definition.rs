//! NetworkAttachmentDefinitions: the networks that pods can select.

use npwg::{Definition, DefinitionError};

use super::DefinitionManifest;
use super::error::{FindingKind, ManifestProblem};
use super::fields::{Field, Object};
use super::object::{Kind, metadata};
use super::relations::Reading;
use super::text::Text;

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
        is_neutron: metadata.annotations.contains_key(npwg::KURYR_CONFIG),
    };
    reading.configs.push(config.as_ref().map(Text::of));
    let network = match (definition.network(), config) {
        (Ok(network), _) => network,
        (Err(DefinitionError::NoPlugin(_)), Some(field)) => {
            reading.found(field.origin(), &field.path, FindingKind::SelectionsWillFail(ManifestProblem::NoPlugin));
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
    let origin = match &mut problem {
        cni::ConfigError::Json(e) => json_place(field, e),
        // In the text of a single plugin there is no list.
        problem => key_place(field, &problem.key()).or_else(|| key_place(field, problem.key().trim_start_matches("plugins[0]."))),
    };
    reading.found(origin.unwrap_or_else(|| field.origin()), &field.path, FindingKind::SelectionsWillFail(ManifestProblem::Config(problem)));
}

/// The place of a key in the text of a field, if it has it.
fn key_place(field: &Field<'_>, key: &str) -> Option<super::Origin> {
    let found = json::locate(field.as_str()?, key).filter(|found| found.is_whole)?;
    Text::of(field).place(found.value.line, found.value.column)
}

/// Makes a JSON error's place in the text of a field one in the file; `None` if there is no such place.
pub(crate) fn json_place(field: &Field<'_>, e: &mut json::ParseError) -> Option<super::Origin> {
    let json::ParseError::Syntax { line, column, .. } = e else { return None };
    let origin = Text::of(field).place(*line, *column)?;
    (*line, *column) = (origin.line, origin.column);
    Some(origin)
}
