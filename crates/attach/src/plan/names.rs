//! Which interface each attachment is.

use cni::{CniError, Code, IfName};

use super::{Refusal, Source};

/// Requested names first, then `net1`, `net2`, ... by position, as every consumer expects; a number that somebody asked
/// for is passed over (S22, S31).
pub(super) fn interface_names<'a>(
    wanted: impl Iterator<Item = &'a Source> + Clone,
    first: &IfName,
    others: &[IfName],
    refusals: &mut Vec<Refusal>,
) -> Vec<IfName> {
    let mut taken: Vec<String> = others.iter().map(ToString::to_string).chain(["lo".to_owned()]).collect();
    let mut names: Vec<Option<IfName>> = Vec::new();
    for source in wanted.clone() {
        let (requested, shown) = match source {
            Source::Default => (Some(first.clone()), String::new()),
            Source::DefaultOf(s) => (Some(s.interface.clone().unwrap_or_else(|| first.clone())), s.to_string()),
            Source::Selection(s) => (s.interface.clone(), s.to_string()),
            Source::EveryPod => (None, String::new()),
        };
        if let Some(name) = &requested {
            if taken.iter().any(|t| t == name.as_str()) {
                let msg = format!("interface: {name} is taken by another interface of the pod; choose another name");
                refusals.push(Refusal { what: format!("network {shown}"), error: CniError::new(Code::INVALID_CONFIG, msg) });
            }
            taken.push(name.to_string());
        }
        names.push(requested);
    }
    // The default network, where there is one, is number 0.
    let offset = usize::from(!wanted.clone().next().is_some_and(Source::is_default));
    let mut named = Vec::with_capacity(names.len());
    for (position, name) in names.into_iter().enumerate() {
        let mut number = position + offset;
        let name = name.or_else(|| {
            loop {
                let candidate = format!("net{number}");
                if !taken.contains(&candidate) {
                    taken.push(candidate.clone());
                    break IfName::parse(&candidate).ok();
                }
                number += 1;
            }
        });
        named.extend(name);
    }
    named
}
