//! An object as it is taken in. Of what anybody may make many and large, what is needed of them is found at once,
//! and the rest is let go: a list of them holds no whole object.

use kube::core::{DynamicObject, ObjectMeta};
use ledger::PodSeen;

use crate::claims;
use crate::configs::Definition;
use crate::seen::Kind;

pub(crate) enum Taken {
    Whole(Box<DynamicObject>),
    Definition(String, Definition),
    Pod(String, PodSeen),
}

/// Its name, with its namespace in front where it is in one.
pub(crate) fn named(meta: &ObjectMeta) -> Option<String> {
    let name = meta.name.as_deref()?;
    Some(meta.namespace.as_deref().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}")))
}

// === impl Taken ===

impl Taken {
    /// `None`: it is a pod that has nothing to do with claims, as most have not, or it has no name.
    pub(crate) fn of(kind: Kind, mut object: DynamicObject) -> Option<Self> {
        let name = named(&object.metadata)?;
        object.metadata.managed_fields = None;
        match kind {
            Kind::Definition => Some(Taken::Definition(name, Definition::of(&object))),
            Kind::Pod => claims::concerns(&object).then(|| Taken::Pod(name, claims::pod(&object))),
            Kind::StatefulSet => {
                claims::trim_set(&mut object);
                Some(Taken::Whole(Box::new(object)))
            }
            _ => Some(Taken::Whole(Box::new(object))),
        }
    }

    pub(crate) fn name(&self) -> Option<String> {
        match self {
            Taken::Whole(object) => named(&object.metadata),
            Taken::Definition(name, _) | Taken::Pod(name, _) => Some(name.clone()),
        }
    }
}
