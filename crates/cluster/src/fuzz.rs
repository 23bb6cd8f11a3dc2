//! Doors for the fuzz targets, which exist only where `cfg(fuzzing)` is set: an object is read as the caches read it.

use kube::core::WatchEvent;
use serde::de::DeserializeSeed;

use crate::cluster::{Definitions, Pods};
use crate::definition::{MAX_CONFIG, SeenDefinition};
use crate::list::Page;
use crate::pod::{Pod, SeenPod};
use crate::watch::Watched;
use crate::{cilium_node, claim, devices, endpoints, kuryr_ports, namespaces, node_blocks, node_pool, nodes, reached, services};

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

/// Pages of lists, read as they come, and a watch's lines.
pub fn framing(bytes: &[u8]) {
    let pods = Page { state: (), take: |(), seen| drop(Pods::keep(seen)) };
    drop(pods.deserialize(&mut serde_json::Deserializer::from_reader(bytes)));
    let definitions = Page { state: (), take: |(), seen| drop(Definitions::keep(seen)) };
    drop(definitions.deserialize(&mut serde_json::Deserializer::from_reader(bytes)));
    for line in bytes.split(|b| *b == b'\n') {
        match serde_json::from_slice::<WatchEvent<SeenDefinition>>(line) {
            Ok(WatchEvent::Added(seen) | WatchEvent::Modified(seen) | WatchEvent::Deleted(seen)) => drop(Definitions::keep(seen)),
            Ok(WatchEvent::Bookmark(_) | WatchEvent::Error(_)) | Err(_) => {}
        }
    }
}

/// What a kubelet says of devices, in its file and on its socket, and what claims and slices say.
pub fn devices(bytes: &[u8]) {
    devices::fuzz(bytes);
}

/// A node's pool, a claim, a range of Services, a Service, the API server's addresses, a pod's Neutron ports, a CiliumNode, a namespace.
pub fn own(bytes: &[u8]) {
    node_blocks::fuzz(bytes);
    node_pool::fuzz(bytes);
    claim::fuzz(bytes);
    services::fuzz(bytes);
    reached::fuzz(bytes);
    endpoints::fuzz(bytes);
    kuryr_ports::fuzz(bytes);
    cilium_node::fuzz(bytes);
    namespaces::fuzz(bytes);
}

/// A Node.
pub fn node(bytes: &[u8]) {
    nodes::fuzz(bytes);
}
