//! `passthru`: does nothing, and gives the plugins after it an empty result to change: Multus puts it before the chain of
//! `auxiliaryCNIChainName`, whose plugins may all be such as only change what is there.

use cni::{AddResult, CniError, Version};
use plugin::{About, Call, Cx, Draft, Plugin};

/// The plugin `passthru`.
pub(crate) struct Passthru;

static ABOUT: About = About {
    name: "passthru",
    summary: "does nothing: the first plugin of a chain whose other plugins only change existing interfaces",
    versions: &[Version::V0_3_0, Version::V0_3_1, Version::V0_4_0, Version::V1_0_0, Version::V1_1_0],
    capabilities: &[],
    keys: &[],
    needs_link: false,
};

impl Plugin for Passthru {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, _: &Draft<'_>) -> Result<(), CniError> {
        Ok(())
    }

    /// An empty result, whatever came before it.
    fn add(&self, _: &Call<'_>, _: &mut Cx<'_>) -> Result<AddResult, CniError> {
        Ok(AddResult::default())
    }

    fn check(&self, _: &Call<'_>, _: &mut Cx<'_>) -> Result<(), CniError> {
        Ok(())
    }

    fn del(&self, _: &Call<'_>, _: &mut Cx<'_>) -> Result<(), CniError> {
        Ok(())
    }
}
