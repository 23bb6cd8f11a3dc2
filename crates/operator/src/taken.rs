//! An object as it is taken in. Of what anybody may make many and large, what is needed of them is found at once,
//! and the rest is let go: a list of them holds no whole object.

use kube::core::{DynamicObject, ObjectMeta};
use ledger::PodSeen;

use crate::claims;
use crate::configs::Definition;
use crate::store::Kind;

pub(crate) enum StoredObject {
    Whole(Box<DynamicObject>),
    Definition(String, Definition),
    Pod(String, PodSeen),
}

/// Its name, with its namespace in front where it is in one.
pub(crate) fn named(meta: &ObjectMeta) -> Option<String> {
    let name = meta.name.as_deref()?;
    Some(meta.namespace.as_deref().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}")))
}

// === impl StoredObject ===

impl StoredObject {
    /// `None`: it is a pod that has nothing to do with claims, as most have not, or it has no name.
    pub(crate) fn of(kind: Kind, mut object: DynamicObject) -> Option<Self> {
        let name = named(&object.metadata)?;
        object.metadata.managed_fields = None;
        match kind {
            Kind::Definition => Some(StoredObject::Definition(name, Definition::of(&object))),
            Kind::Pod => claims::concerns(&object).then(|| StoredObject::Pod(name, claims::pod(&object))),
            Kind::StatefulSet => {
                claims::trim_set(&mut object);
                Some(StoredObject::Whole(Box::new(object)))
            }
            _ => Some(StoredObject::Whole(Box::new(object))),
        }
    }

    pub(crate) fn name(&self) -> Option<String> {
        match self {
            StoredObject::Whole(object) => named(&object.metadata),
            StoredObject::Definition(name, _) | StoredObject::Pod(name, _) => Some(name.clone()),
        }
    }
}
