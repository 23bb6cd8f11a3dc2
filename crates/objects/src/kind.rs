//! The resources that are served, and what the API server does differently for each: one table, to which custom resources are added.

use std::borrow::Cow;

use serde_json::{Value, json};

/// Text of the table, or of a definition.
pub(crate) type Text = Cow<'static, str>;

/// One served resource in one version.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Kind {
    /// The API group, empty for the core one.
    pub(crate) group: Text,
    /// The version.
    pub(crate) version: Text,
    /// The plural name, which is in paths.
    pub(crate) plural: Text,
    /// The kind.
    pub(crate) kind: Text,
    /// The kind of a list.
    pub(crate) list_kind: Text,
    /// Whether its objects belong to namespaces.
    pub(crate) namespaced: bool,
    /// Whether `status` is written under a path of its own.
    pub(crate) status: Status,
    /// Whether `metadata.generation` counts.
    pub(crate) generation: bool,
    /// Whether an update may come without a resource version.
    pub(crate) unconditional: bool,
    /// Whether an update of what is not there creates it.
    pub(crate) create_on_update: bool,
    /// Whether a definition made it: no strategic merge patch, and objects carry their kind.
    pub(crate) custom: bool,
    /// Field selectors besides `metadata.name` and `metadata.namespace`.
    pub(crate) fields: &'static [&'static str],
    /// The field by which watchers are sorted, so that a write looks only at those that may care.
    pub(crate) indexed: &'static str,
    /// The table that holds the objects. Events have one for both of their groups.
    pub(crate) table: Text,
}

/// Who writes `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// No subresource: `status` is a field as any other.
    Field,
    /// A subresource that writes status and metadata.
    WithMetadata,
    /// A subresource that writes status alone.
    Alone,
}

impl Kind {
    fn core(plural: &'static str, kind: &'static str, list_kind: &'static str) -> Self {
        Self {
            group: Cow::Borrowed(""),
            version: Cow::Borrowed("v1"),
            plural: Cow::Borrowed(plural),
            kind: Cow::Borrowed(kind),
            list_kind: Cow::Borrowed(list_kind),
            namespaced: true,
            status: Status::Field,
            generation: false,
            unconditional: true,
            create_on_update: false,
            custom: false,
            fields: &[],
            indexed: "metadata.name",
            table: Cow::Borrowed(plural),
        }
    }

    fn of_group(group: &'static str, plural: &'static str, kind: &'static str, list_kind: &'static str) -> Self {
        Self { group: Cow::Borrowed(group), ..Self::core(plural, kind, list_kind) }
    }

    /// `apiVersion` of its objects.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The resource with its group, as messages name it.
    pub(crate) fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.to_string() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The kind with its group, as messages about validity name it.
    pub(crate) fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.to_string() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// Details of a `Status` about an object, by resource.
    pub(crate) fn details(&self, name: &str) -> Value {
        self.details_of(name, &self.plural)
    }

    /// Details of a `Status` about an object, by kind.
    pub(crate) fn kind_details(&self, name: &str) -> Value {
        self.details_of(name, &self.kind)
    }

    fn details_of(&self, name: &str, kind: &str) -> Value {
        let mut details = json!({"kind": kind});
        if let Some(details) = details.as_object_mut() {
            if !name.is_empty() {
                details.insert("name".into(), Value::from(name));
            }
            if !self.group.is_empty() {
                details.insert("group".into(), Value::from(self.group.as_ref()));
            }
        }
        details
    }

    /// Whether these are pods: deleted in two steps, born pending.
    pub(crate) fn is_pod(&self) -> bool {
        self.group.is_empty() && self.plural == "pods"
    }

    /// Whether these are namespaces.
    pub(crate) fn is_namespace(&self) -> bool {
        self.group.is_empty() && self.plural == "namespaces"
    }

    /// Whether these are definitions of custom resources.
    pub(crate) fn is_definition(&self) -> bool {
        self.group == "apiextensions.k8s.io"
    }

    /// Whether the answer to a deletion is the object, and not a `Status`.
    pub(crate) fn shows_what_it_deleted(&self) -> bool {
        self.is_pod() || self.is_definition() || self.group == "resource.k8s.io"
    }

    /// Whether these are events in their newer form, which is renamed on its way in and out.
    pub(crate) fn is_newer_event(&self) -> bool {
        self.group == "events.k8s.io"
    }
}

const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
];

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "type",
];

/// What is served from the start.
pub(crate) fn built_in() -> Vec<Kind> {
    let event = |kind: Kind| Kind { create_on_update: true, fields: EVENT_FIELDS, ..kind };
    vec![
        Kind {
            namespaced: false,
            status: Status::WithMetadata,
            fields: &["status.phase"],
            ..Kind::core("namespaces", "Namespace", "NamespaceList")
        },
        Kind {
            status: Status::WithMetadata,
            generation: true,
            fields: POD_FIELDS,
            indexed: "spec.nodeName",
            ..Kind::core("pods", "Pod", "PodList")
        },
        Kind {
            namespaced: false,
            status: Status::WithMetadata,
            fields: &["spec.unschedulable"],
            ..Kind::core("nodes", "Node", "NodeList")
        },
        Kind::core("configmaps", "ConfigMap", "ConfigMapList"),
        Kind { fields: &["type"], ..Kind::core("secrets", "Secret", "SecretList") },
        Kind::core("serviceaccounts", "ServiceAccount", "ServiceAccountList"),
        Kind { status: Status::WithMetadata, ..Kind::core("services", "Service", "ServiceList") },
        Kind::of_group("discovery.k8s.io", "endpointslices", "EndpointSlice", "EndpointSliceList"),
        event(Kind::core("events", "Event", "EventList")),
        event(Kind::of_group("events.k8s.io", "events", "Event", "EventList")),
        Kind { unconditional: false, create_on_update: true, ..Kind::of_group("coordination.k8s.io", "leases", "Lease", "LeaseList") },
        Kind {
            namespaced: false,
            status: Status::Alone,
            generation: true,
            unconditional: false,
            ..Kind::of_group(
                "apiextensions.k8s.io",
                "customresourcedefinitions",
                "CustomResourceDefinition",
                "CustomResourceDefinitionList",
            )
        },
        Kind { status: Status::Alone, ..Kind::of_group("resource.k8s.io", "resourceclaims", "ResourceClaim", "ResourceClaimList") },
        Kind {
            namespaced: false,
            generation: true,
            fields: &["spec.nodeName", "spec.driver"],
            indexed: "spec.nodeName",
            ..Kind::of_group("resource.k8s.io", "resourceslices", "ResourceSlice", "ResourceSliceList")
        },
        Kind {
            namespaced: false,
            generation: true,
            ..Kind::of_group("resource.k8s.io", "deviceclasses", "DeviceClass", "DeviceClassList")
        },
    ]
}
