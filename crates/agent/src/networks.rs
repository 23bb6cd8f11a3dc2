//! What a pod can be attached to, gathered for one plan: definitions from the cache or the API, networks from the node's
//! disk, the default network.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use attach::{ImplicitNetwork, MAX_NETWORKS, Networks, PodView, Protection};
use cni::{CniError, Code, NetworkList};
use npwg::{Definition, DefinitionRef};

use crate::settings::NetworkSource;
use crate::{Agent, Settings};

/// Everything that one pod's plan may look at.
pub(crate) struct PlanSources {
    pub(crate) default: Option<ImplicitNetwork>,
    every_pod: Vec<ImplicitNetwork>,
    definitions: BTreeMap<DefinitionRef, Arc<Definition>>,
    conf_dirs: Vec<PathBuf>,
    system_namespace: String,
}

impl Networks for PlanSources {
    fn default_network(&self) -> Option<&ImplicitNetwork> {
        self.default.as_ref()
    }

    fn every_pod(&self) -> &[ImplicitNetwork] {
        &self.every_pod
    }

    fn system_namespace(&self) -> &str {
        &self.system_namespace
    }

    fn definition(&self, reference: &DefinitionRef) -> Option<&Definition> {
        self.definitions.get(reference).map(AsRef::as_ref)
    }

    fn on_disk(&self, name: &str) -> Result<NetworkList, CniError> {
        // The first directory that has it; the error is that of the last one.
        let mut last = CniError::new(Code::INVALID_CONFIG, format!("no directory is configured to look for network {name:?} in"));
        for dir in &self.conf_dirs {
            match chain::load(dir, name) {
                Ok(list) => return Ok(list),
                Err(e) => last = e.into(),
            }
        }
        Err(last)
    }
}

// === impl PlanSources ===

impl PlanSources {
    /// The networks that pods get without asking for them, the default network first.
    pub(crate) fn given(&self) -> impl Iterator<Item = &ImplicitNetwork> {
        self.default.iter().chain(&self.every_pod)
    }

    /// How many bytes the configurations of the definitions have.
    pub(crate) fn texts(&self) -> usize {
        self.definitions.values().filter_map(|definition| definition.config.as_ref()).map(String::len).sum()
    }

    /// Whether an attachment of the pod may need a device, so that the kubelet must be asked.
    pub(crate) fn need_devices(&self) -> bool {
        self.definitions.values().any(|d| d.resource_name.as_deref().is_some_and(|r| !r.is_empty()))
    }
}

impl Agent {
    /// Looks up whatever the pod's annotations and the settings name. What is not there, the plan says.
    pub(crate) fn known(&self, settings: &Settings, pod: &PodView, by: Instant) -> Result<PlanSources, CniError> {
        let mut known = PlanSources {
            default: None,
            every_pod: Vec::new(),
            definitions: BTreeMap::new(),
            conf_dirs: settings.more_conf_dirs.iter().chain([&settings.conf_dir]).cloned().collect(),
            system_namespace: settings.multus_namespace.clone(),
        };
        let mut bytes = 0;
        for reference in referred(settings, pod) {
            if let Some(definition) = self.definition(&reference, by)? {
                bytes += definition.config.as_ref().map_or(0, String::len);
                if bytes > MAX_NETWORKS {
                    let why = "select fewer networks, or make their definitions smaller";
                    let msg = format!(
                        "network {reference}: with it, the definitions that the pod selects have {bytes} bytes: at most {MAX_NETWORKS} are \
                         accepted; {why}"
                    );
                    return Err(CniError::new(Code::INVALID_CONFIG, msg));
                }
                known.definitions.insert(reference, definition);
            }
        }
        if settings.default_network != NetworkSource::Nowhere {
            let mut given = self.default_network(settings, by)?;
            let is_exempt = || settings.admission.policy.protection_of_pods(&pod.namespace) == Protection::Off;
            if let Some(provided) = self.provided.as_ref().filter(|_| settings.default_network == NetworkSource::Provided && is_exempt()) {
                given.list = provided.lenient_list()?;
            }
            known.default = Some(given);
        }
        if !settings.admission.system_namespaces.contains(&pod.namespace) {
            for source in &settings.every_pod {
                let given = self.network(settings, source, by).map_err(|e| e.within("defaultNetworks"))?;
                if let Some(reference) = &given.definition
                    && let Some(definition) = self.definition(reference, by)?
                {
                    known.definitions.insert(reference.clone(), definition);
                }
                known.every_pod.push(given);
            }
        }
        known.every_pod.extend(auxiliary(settings)?);
        Ok(known)
    }

    /// The cluster-wide default network. Where it is not there yet, its provider may still be starting: the call waits.
    pub(crate) fn default_network(&self, settings: &Settings, by: Instant) -> Result<ImplicitNetwork, CniError> {
        self.default.when_ready(by.min(Instant::now() + settings.add_wait), (self.settings.workers / 2).max(1), || {
            self.default_network_now(settings, by)
        })
    }

    /// The same without waiting.
    pub(crate) fn default_network_now(&self, settings: &Settings, by: Instant) -> Result<ImplicitNetwork, CniError> {
        match &settings.readiness_file {
            Some(file) if !crate::default_network::is_on_host(file) => {
                let msg = format!("still waiting for readinessindicatorfile @ {}", file.display());
                Err(CniError::new(Code::TRY_AGAIN_LATER, msg))
            }
            _ => self.network(settings, &settings.default_network, by),
        }
    }

    /// One network that the settings name.
    pub(crate) fn network(&self, settings: &Settings, source: &NetworkSource, by: Instant) -> Result<ImplicitNetwork, CniError> {
        let of_node = |list| ImplicitNetwork { list, definition: None };
        match source {
            NetworkSource::Nowhere => Err(CniError::new(Code::INVALID_CONFIG, "there is no default network")),
            NetworkSource::Provided => match &self.provided {
                Some(provided) => provided.list().map(of_node),
                None => Err(CniError::new(Code::INVALID_CONFIG, "this agent provides no network")),
            },
            NetworkSource::Inline(list) => Ok(of_node(list.as_ref().clone())),
            NetworkSource::File(path) => self.default.file(path).map(of_node),
            NetworkSource::Directory { path, file } => self.default.first_of(path, file.as_deref()).map(of_node),
            NetworkSource::Named(name) => self.named(settings, name, by),
        }
    }

    /// By name: the definition in Multus's namespace, else the network of that name on the node's disk.
    fn named(&self, settings: &Settings, name: &str, by: Instant) -> Result<ImplicitNetwork, CniError> {
        let reference = DefinitionRef::parse(name, &settings.multus_namespace)
            .map_err(|e| CniError::new(Code::INVALID_CONFIG, format!("network {name:?}: {e}")))?;
        let on_disk = || chain::load(&settings.conf_dir, name).map_err(CniError::from);
        match self.definition(&reference, by) {
            Ok(Some(definition)) => {
                let list = match definition.network().map_err(CniError::from)? {
                    Some(list) => list,
                    None => on_disk()?,
                };
                Ok(ImplicitNetwork { list, definition: Some(reference) })
            }
            Ok(None) => on_disk().map(|list| ImplicitNetwork { list, definition: None }).map_err(|e| {
                let msg = format!("cannot find network {name:?}: there is no network-attachment-definition {reference}, and {}", e.msg);
                CniError::new(Code::TRY_AGAIN_LATER, msg)
            }),
            // The node's own disk can be right when the API cannot be asked.
            Err(e) => on_disk().map(|list| ImplicitNetwork { list, definition: None }).map_err(|_| e),
        }
    }
}

/// The network whose plugins are the files of a directory beside the default network's file, if there are any.
pub(crate) fn auxiliary(settings: &Settings) -> Result<Option<ImplicitNetwork>, CniError> {
    let Some(name) = &settings.auxiliary_chain else { return Ok(None) };
    let beside = match &settings.default_network {
        NetworkSource::File(path) => path.parent(),
        NetworkSource::Directory { path, .. } => Some(path.as_path()),
        NetworkSource::Nowhere | NetworkSource::Provided | NetworkSource::Inline(_) | NetworkSource::Named(_) => None,
    };
    let Some(dir) = beside.filter(|dir| dir.join(name).is_dir()) else { return Ok(None) };
    let place = |e: CniError| e.within("auxiliaryCNIChainName");
    let list = chain::from_directory(dir, name, settings.cni_version).map_err(|e| place(e.into()))?;
    Ok(list.map(|list| ImplicitNetwork { list, definition: None }))
}

/// Whether a pod's annotations may select a network. What cannot be read selects none: the plan says so at once.
pub(crate) fn selects(settings: &Settings, pod: &PodView) -> bool {
    !referred(settings, pod).is_empty()
}

/// The definitions that a pod's annotations name. What is wrong with them the plan tells.
fn referred(settings: &Settings, pod: &PodView) -> Vec<DefinitionRef> {
    let mut named = Vec::new();
    if let Some(text) = pod.default_network.as_deref().filter(|text| !text.trim().is_empty()) {
        named.extend(npwg::default_network(text, &settings.multus_namespace).ok().map(|s| s.definition));
    }
    let selections = pod.networks.as_deref().and_then(|text| npwg::parse(text, &pod.namespace).ok());
    named.extend(selections.into_iter().flatten().map(|s| s.definition));
    named.sort();
    named.dedup();
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It waited for the lists of addresses, and was refused without them.
    #[test]
    fn a_pod_with_an_empty_annotation_selects_nothing() {
        let settings = Settings::parse(b"{}").unwrap();
        let pod = |networks: Option<&str>, default_network: Option<&str>| PodView {
            namespace: "a".into(),
            networks: networks.map(str::to_owned),
            default_network: default_network.map(str::to_owned),
            ..PodView::default()
        };
        for (networks, default) in [(None, None), (Some(""), Some("")), (Some(" "), Some(" ")), (Some("[]"), None), (Some(" [ ] "), None)] {
            assert!(!selects(&settings, &pod(networks, default)), "{networks:?} {default:?}");
        }
        for (networks, default) in [(Some("x"), None), (Some(r#"[{"name":"x"}]"#), Some("")), (None, Some("x")), (Some("[]"), Some("x"))] {
            assert!(selects(&settings, &pod(networks, default)), "{networks:?} {default:?}");
        }
    }
}
