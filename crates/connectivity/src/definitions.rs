//! What the networks of the probes' pods promise: their definitions are read, with the rights of who verifies.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use json::Object;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use npwg::{Definition, DefinitionRef};
use verify::{Limits, Reach, promise};

use crate::site::statuses;
use crate::stage::Stage;

/// What a network promises.
pub(crate) struct Promise {
    pub(crate) reach: Reach,
    /// What its configuration says; `None`: nothing.
    pub(crate) mtu: Option<u32>,
    pub(crate) limits: Limits,
}

/// By network, `NAMESPACE/NAME` as pods' annotations have it.
pub(crate) type Promises = BTreeMap<String, Promise>;

/// What the networks promise that pods are attached to besides the default one. What cannot be read is reported, and promises nothing.
pub(crate) async fn of(stage: &Stage<'_>, pods: &BTreeMap<String, Pod>) -> Promises {
    let others = pods.values().flat_map(statuses).filter(|status| !status.default);
    let names: BTreeSet<String> = others.map(|status| status.name).collect();
    let read = names.into_iter().map(|name| async move {
        let promise = one(stage, &name).await;
        let promise = promise.map_err(|why| (stage.say)(&format!("of network {name} nothing is expected: {why}"))).ok()?;
        Some((name, promise))
    });
    join_all(read).await.into_iter().flatten().collect()
}

async fn one(stage: &Stage<'_>, name: &str) -> Result<Promise, String> {
    let DefinitionRef { namespace, name } = DefinitionRef::parse(name, &stage.options.namespace).map_err(|e| e.to_string())?;
    let resource = ApiResource {
        group: "k8s.cni.cncf.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "k8s.cni.cncf.io/v1".to_owned(),
        kind: "NetworkAttachmentDefinition".to_owned(),
        plural: "network-attachment-definitions".to_owned(),
    };
    let definitions: Api<DynamicObject> = Api::namespaced_with(stage.client.clone(), &namespace, &resource);
    let object = definitions.get(&name).await.map_err(|e| format!("get its NetworkAttachmentDefinition: {e}"))?;
    let config = object.data.pointer("/spec/config").and_then(serde_json::Value::as_str).map(str::to_owned);
    let definition = Definition { namespace, name, config, resource_name: None, is_neutron: false };
    let list = definition.network().map_err(|e| e.to_string())?;
    let list = list.ok_or("its NetworkAttachmentDefinition has no spec.config: the nodes' disks have it")?;
    // Nothing more is requested for probes than the network itself.
    let limits = promise::limits(&list, &Object::new());
    Ok(Promise { reach: promise::reach(&list, false), mtu: promise::mtu(&list), limits })
}
