//! Pods that keep their addresses without naming a claim: each of their attachments has one, whose name follows from the pod's.

use crate::Selection;

/// The annotation of a StatefulSet's pods that makes them keep their addresses: `"true"`. The project's own.
pub const STICKY: &str = "netloom.io/sticky";

/// The name of the IPAMClaim of a pod's attachment: `<pod>-<definition>-<interface>` (S58). `position` counts from 1; an attachment
/// that names no interface has it in its place, as `net1`.
#[must_use]
pub fn claim_name(pod: &str, selection: &Selection, position: usize) -> String {
    let own = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let interface = selection.interface.as_ref().map(|name| name.as_str().chars().map(own).collect::<String>());
    let interface = interface.map(|name| name.trim_matches('-').to_owned()).filter(|name| !name.is_empty());
    let interface = interface.unwrap_or_else(|| format!("net{position}"));
    format!("{pod}-{}-{interface}", selection.definition.name)
}

/// Gives each attachment of such a pod its claim, if it names none and asks for no addresses.
pub fn stick(pod: &str, selections: &mut [Selection]) {
    for (i, selection) in selections.iter_mut().enumerate() {
        if selection.ipam_claim.is_none() && selection.ips.is_empty() {
            selection.ipam_claim = Some(claim_name(pod, selection, i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s58_a_sticky_pods_claims_are_named_after_pod_definition_and_interface() {
        let text = r#"[{"name":"a"},{"name":"b","namespace":"other","interface":"Data_1"},{"name":"c","ips":["10.0.0.1"]},
            {"name":"d","ipam-claim-reference":"own"}]"#;
        let mut selections = crate::parse(text, "ns").unwrap();
        stick("web-0", &mut selections);
        let claims: Vec<_> = selections.iter().map(|s| s.ipam_claim.as_deref()).collect();
        assert_eq!(claims, [Some("web-0-a-net1"), Some("web-0-b-data-1"), None, Some("own")]);
        assert!(claims.iter().flatten().all(|name| crate::NameRule::Claim.check(name).is_ok()));
    }
}
