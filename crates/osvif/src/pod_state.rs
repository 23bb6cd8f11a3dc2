//! The VIFs of a pod as an annotation of it has them, in the three forms that Kuryr has used.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::object::{Opened, put};
use crate::problem::shortened;
use crate::{PodVif, Problem, Reason, Rest, Vif, fields, python};

/// The annotation with a pod's VIFs: Kuryr of the releases Rocky to Ussuri wrote a [`PodState`] there, an older one a VIF.
pub const VIF_ANNOTATION: &str = "openstack.org/kuryr-vif";

/// The pod's interface that its first VIF becomes, whatever the runtime calls it.
pub const DEFAULT_INTERFACE: &str = "eth0";

const POD_STATE: &str = "PodState";
const VERSION: &str = "1.0";

/// All VIFs of a pod (Kuryr's `PodState` 1.0).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodState {
    /// That of [`DEFAULT_INTERFACE`]. Kuryr always has it; none where the pod's default network is not Neutron's.
    pub default_vif: Option<Vif>,
    /// The others, by the names of their interfaces.
    pub additional_vifs: BTreeMap<String, Vif>,
    /// What else it has.
    pub rest: Rest,
}

// === impl PodState ===

impl PodState {
    /// Reads an annotation: a PodState, an object of VIFs by interface, or one VIF.
    ///
    /// # Errors
    /// [`Problem`]: what is wrong, and where.
    pub fn parse(annotation: &str) -> Result<Self, Problem> {
        let value: Value = serde_json::from_str(annotation).map_err(|e| Problem::of(Reason::Json(shortened(&e.to_string()))))?;
        let name = value.get("versioned_object.name").and_then(Value::as_str);
        match name {
            Some(POD_STATE) => PodState::read(value),
            Some(_) => {
                Vif::read(value).map(|vif| PodState { default_vif: Some(vif), additional_vifs: BTreeMap::new(), rest: Rest::default() })
            }
            None => PodState::from_interfaces(value),
        }
    }

    /// The same VIFs as a [`KuryrPort`](crate::KuryrPort) has them.
    #[must_use]
    pub fn of_vifs(vifs: &BTreeMap<String, PodVif>) -> Self {
        let (default, additional): (Vec<_>, Vec<_>) = vifs.iter().partition(|(_, vif)| vif.default);
        let additional_vifs = additional.into_iter().map(|(interface, vif)| (interface.clone(), Vif::clone(&vif.vif))).collect();
        PodState { default_vif: default.first().map(|(_, vif)| Vif::clone(&vif.vif)), additional_vifs, rest: Rest::default() }
    }

    /// The VIFs as a [`KuryrPort`](crate::KuryrPort) has them.
    #[must_use]
    pub fn into_vifs(self) -> BTreeMap<String, PodVif> {
        let one = |default| move |vif| PodVif { default, vif: Box::new(vif), rest: Map::new() };
        let additional = self.additional_vifs.into_iter().map(|(interface, vif)| (interface, one(false)(vif)));
        additional.chain(self.default_vif.map(|vif| (DEFAULT_INTERFACE.to_owned(), one(true)(vif)))).collect()
    }

    /// The annotation, as Kuryr writes it: always a PodState.
    #[must_use]
    pub fn annotation(self) -> String {
        let PodState { default_vif, additional_vifs, rest } = self;
        let additional: Map<String, Value> = additional_vifs.into_iter().map(|(name, vif)| (name, vif.write())).collect();
        python::dumps(&rest.close(POD_STATE, VERSION, |data| {
            put(data, "default_vif", default_vif.map(Vif::write));
            put(data, "additional_vifs", Some(additional));
        }))
    }

    fn read(value: Value) -> Result<Self, Problem> {
        let mut opened = Opened::of(value)?;
        let default_vif = opened.fields.optional("default_vif", Vif::read)?;
        let additional_vifs = opened.fields.optional("additional_vifs", by_interface)?.unwrap_or_default();
        Ok(PodState { default_vif, additional_vifs, rest: opened.rest(VERSION) })
    }

    /// `{"eth0": VIF, "eth1": VIF}`, written for a few weeks between two releases.
    fn from_interfaces(value: Value) -> Result<Self, Problem> {
        let mut vifs = by_interface(value)?;
        let default_vif = vifs.remove(DEFAULT_INTERFACE).ok_or_else(|| Problem::of(Reason::Missing).within(DEFAULT_INTERFACE))?;
        Ok(PodState { default_vif: Some(default_vif), additional_vifs: vifs, rest: Rest::default() })
    }
}

fn by_interface(value: Value) -> Result<BTreeMap<String, Vif>, Problem> {
    Ok(fields::Fields::of(value)?.each(Vif::read)?.collect())
}
