//! Doors for the fuzz targets, which exist only where `cfg(fuzzing)` is set: an object is read as the caches read it.

use crate::definition::{MAX_CONFIG, SeenDefinition};
use crate::pod::{Pod, SeenPod};

/// A pod.
pub fn pod(bytes: &[u8]) {
    let Ok(seen) = serde_json::from_slice::<SeenPod>(bytes) else { return };
    let pod = Pod::from(seen);
    assert!(pod.requested.iter().all(|resource| resource.contains('/')), "{pod:?}");
}

/// A definition.
pub fn definition(bytes: &[u8]) {
    let Ok(seen) = serde_json::from_slice::<SeenDefinition>(bytes) else { return };
    match seen.checked() {
        Ok(definition) => assert!(definition.config.is_none_or(|config| config.len() <= MAX_CONFIG)),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}
