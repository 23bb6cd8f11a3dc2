//! What a pod asks of a network, as the network's plugins would take it.

use json::{Object, Value};

use crate::between::{Network, Pod};
use crate::finding::Finding;
use crate::network::{Surroundings, entries, once, refusals};

/// Where plugins find what a pod asks for.
const REQUESTS: [&str; 2] = ["runtimeConfig.", "args.cni."];

/// The interfaces that each pod has: that of its default network, and the loopback one.
const TAKEN: [&str; 2] = ["eth0", "lo"];

/// What of a pod's selections their networks refuse; what is wrong with a network by itself is not told again.
pub(crate) fn refused(pod: &Pod<'_>, networks: &[Network<'_>], around: &Surroundings<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, selection) in pod.selections.iter().enumerate() {
        if let Some(name) = selection.interface.as_ref().filter(|name| TAKEN.contains(&name.as_str())) {
            let message = format!("{name} is taken by another interface of the pod");
            found.push(Finding::error(format!("[{at}].interface"), message).help("choose another name"));
        }
        let Some(network) = networks.iter().find(|network| *network.reference == selection.definition) else { continue };
        let lacking = selection.verify(network.list).err().unwrap_or_default();
        found.extend(lacking.into_iter().map(|lacking| Finding::error(format!("[{at}].{}", lacking.key), lacking.to_string())));
        let runtime = selection.runtime_config();
        if runtime.is_empty() && selection.args(None).is_none() {
            continue;
        }
        let mut asked = network.list.clone();
        asked.set_in_plugins("args", |own| selection.args(own.and_then(Value::as_object)).map(Value::Object));
        let before = entries(network.list, true, around.builtins);
        for (entry, before) in entries(&asked, true, around.builtins).iter().zip(&before) {
            let known = refusals(network.list, before, &Object::new(), around.links);
            let new = refusals(&asked, entry, &runtime, around.links).into_iter().filter(|finding| !known.contains(finding));
            found.extend(new.map(|finding| Finding { path: format!("[{at}]{}", key(&finding.path, &entry.prefix)), ..finding }));
        }
    }
    once(found)
}

/// The selection's key behind a plugin's; empty if there is none.
fn key(path: &str, prefix: &str) -> String {
    let path = path.strip_prefix(prefix).unwrap_or(path).trim_start_matches('.');
    REQUESTS.iter().find_map(|place| path.strip_prefix(place)).map(|key| format!(".{key}")).unwrap_or_default()
}
