//! VLANs that a container sends and receives with their tags, as `bridge` and `ovs` are told them.

use std::collections::BTreeSet;

use cni::CniError;
use serde::Deserialize;

/// The last VLAN that there is (IEEE 802.1Q: 4095 is reserved).
pub(crate) const LAST: u16 = 4094;

/// VLANs of a list: a row, a single one, or both.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct Trunk {
    #[serde(rename = "minID")]
    min_id: Option<i64>,
    #[serde(rename = "maxID")]
    max_id: Option<i64>,
    id: Option<i64>,
}

/// All VLANs of a list under `key`, each between `first` and [`LAST`].
pub(crate) fn vlans(key: &str, first: u16, list: &[Trunk]) -> Result<BTreeSet<u16>, CniError> {
    let mut trunk = BTreeSet::new();
    for (i, item) in list.iter().enumerate() {
        let bad = |why: String| CniError::invalid(&format!("{key}[{i}]"), why);
        let id = |name: &str, id: i64| {
            let id = u16::try_from(id).ok().filter(|n| (first..=LAST).contains(n));
            id.ok_or_else(|| bad(format!("incorrect trunk {name} parameter: a VLAN is between {first} and {LAST}")))
        };
        match (item.min_id, item.max_id) {
            (Some(min), Some(max)) => {
                let (min, max) = (id("minID", min)?, id("maxID", max)?);
                if min > max {
                    let more = format_args!("{key}[{i}] has {min} and {max}");
                    return Err(CniError::worded("minID is greater than maxID in trunk parameter", more).at(format!("{key}[{i}]")));
                }
                trunk.extend(min..=max);
            }
            (None, None) if item.id.is_none() => return Err(bad("no VLAN is given: set id, or minID and maxID".into())),
            (None, None) => {}
            (min, _) => {
                let missing = if min.is_none() { "minID" } else { "maxID" };
                return Err(bad(format!("minID and maxID should be configured simultaneously, {missing} is missing")));
            }
        }
        if let Some(single) = item.id {
            trunk.insert(id("id", single)?);
        }
    }
    Ok(trunk)
}
