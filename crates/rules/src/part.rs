//! What is installed once, subject by subject: maps and sets for the elements, the chains that the kernel calls, and the chains
//! that elements lead to. `install.rs` and `look.rs` work from these descriptions and know of no subject.

use std::collections::BTreeSet;

use linux::nft::{Base, Chain, ChainType, Data, Element, Expr, Family, Field, Hook, MapTo, Mode, Rule, Set, SetElement, Step};

use crate::{CONDITIONS, DELEGATED, EGRESS, FORWARDED, GUARDS, HOST_PORTS, INGRESS, MASQUERADE, REVERSE_PATHS, TABLE, TUNNELLED, VXLAN};

/// One subject of our table of a family. Each is installed when its first element comes: who publishes no port pays for none.
#[derive(Debug)]
pub struct Subject {
    /// Whose table it is in. No two subjects have a map of one name.
    pub(crate) family: Family,
    pub(crate) maps: &'static [Map],
    /// Those that others jump to come first.
    pub(crate) chains: &'static [Fixed],
    /// Chains of a release of before, whose rules are in others now. They go when those are written.
    pub(crate) former: &'static [&'static str],
    /// The rules of a chain that elements lead to, by the chain's name; `None`: it is none of this subject's.
    pub(crate) target: fn(&str) -> Option<Rules>,
    /// What comes with a chain that elements lead to; several may bring the same.
    pub(crate) companion: fn(&str) -> Option<CompanionChain>,
}

/// The rules of one chain.
pub(crate) type Rules = Vec<Vec<Expr>>;

/// A map, or a set, with attachments' elements; or a set of ranges, which belong to no attachment.
#[derive(Debug)]
pub(crate) struct Map {
    pub(crate) name: &'static str,
    pub(crate) key: &'static [Field],
    pub(crate) to: To,
    /// Whether an element stays its owner's when another asks for it.
    pub(crate) held: bool,
}

/// What the elements of a map lead to.
#[derive(Debug)]
pub(crate) enum To {
    /// To a chain.
    Chain,
    /// To these fields.
    Fields(&'static [Field]),
    /// To nothing: it is a set.
    Nothing,
    /// To nothing, and each counts the packets that it was looked up for.
    Count,
    /// To nothing, and they are ranges of addresses: no elements of attachments, and not read where those are.
    Ranges,
    /// To nothing. They belong to the node, and not to attachments. The number is the maximum, if there is one.
    OfNode(Option<u32>),
    /// To nothing, and they come with chains ([`Subject::companion`]): no elements of attachments either.
    Companion,
}

/// A chain that is there whatever elements there are.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub(crate) name: &'static str,
    pub(crate) base: Option<Base>,
    pub(crate) rules: fn() -> Rules,
}

/// What comes with a chain: another chain, and an element.
#[derive(Debug)]
pub(crate) struct CompanionChain {
    pub(crate) name: String,
    pub(crate) rules: Rules,
    pub(crate) element: SetElement,
}

/// Every subject.
pub(crate) const PARTS: [&Subject; 11] =
    [&MASQUERADE, &HOST_PORTS, &CONDITIONS, &FORWARDED, &INGRESS, &DELEGATED, &EGRESS, &TUNNELLED, &VXLAN, &REVERSE_PATHS, &GUARDS];

/// A chain that sees every packet that passes through.
pub(crate) const fn filter(priority: i32) -> Base {
    Base { kind: ChainType::Filter, hook: Hook::Forward, priority }
}

/// The subjects of these elements.
pub(crate) fn parts(elements: &[SetElement]) -> Vec<&'static Subject> {
    let has = |part: &&Subject| elements.iter().any(|e| part.map(&e.set).is_some());
    PARTS.into_iter().filter(has).collect()
}

/// The chain that an element leads to.
pub(crate) fn target(element: &Element) -> Option<&str> {
    match element.data.as_ref()? {
        Data::Jump(chain) => Some(chain),
        _ => None,
    }
}

/// The chains that these elements lead to.
pub(crate) fn targets<'a>(elements: impl IntoIterator<Item = &'a SetElement>) -> BTreeSet<&'a str> {
    elements.into_iter().filter_map(|e| target(&e.element)).collect()
}

// === impl Subject ===

impl Subject {
    /// The map of that name.
    pub(crate) fn map(&self, name: &str) -> Option<&'static Map> {
        self.maps.iter().find(|map| map.name == name)
    }

    /// All that is there whatever elements there are. With [`Mode::Add`] over what is there; in the end each chain has its
    /// rules once.
    pub(crate) fn fixed(&self, mode: Mode) -> Vec<Step> {
        let mut steps: Vec<Step> = self.chains.iter().flat_map(|c| self.chain(mode, c.name, c.base)).collect();
        steps.extend(self.maps.iter().map(|map| Step::Set(mode, map.set(self.family))));
        steps.extend(self.chains.iter().flat_map(|c| self.rules(c.name, (c.rules)())));
        steps
    }

    /// A chain that elements lead to, with its rules; nothing for one that is none of this subject's.
    pub(crate) fn target(&self, mode: Mode, name: &str) -> Vec<Step> {
        let Some(made) = (self.target)(name) else { return Vec::new() };
        // One that comes with another may have been brought by that one, in this very transaction.
        let mode = if (self.companion)(name).is_some() { Mode::Add } else { mode };
        let mut steps = self.chain(mode, name, None);
        steps.extend(self.rules(name, made));
        if let Some(companion) = (self.companion)(name) {
            // Another may have brought it, and each brings the same.
            steps.extend(self.chain(Mode::Add, &companion.name, None));
            steps.extend(self.rules(&companion.name, companion.rules));
            steps.push(Step::Element(Mode::Add, companion.element));
        }
        steps
    }

    /// The chains that come with one that elements lead to, itself among them: each one's name, and how many rules it has.
    pub(crate) fn lengths(&self, name: &str) -> Vec<(String, usize)> {
        let target = (self.target)(name).map(|rules| (name.to_owned(), rules.len()));
        let companion = (self.companion)(name).map(|companion| (companion.name, companion.rules.len()));
        target.into_iter().chain(companion).collect()
    }

    fn chain(&self, mode: Mode, name: &str, base: Option<Base>) -> Vec<Step> {
        let (family, table, name) = (self.family, TABLE.to_owned(), name.to_owned());
        let made = Chain { family, table: table.clone(), name: name.clone(), base };
        let mut steps = vec![Step::Chain(mode, made)];
        if mode == Mode::Add {
            steps.push(Step::FlushChain { family, table, name });
        }
        steps
    }

    fn rules(&self, chain: &str, rules: Rules) -> impl Iterator<Item = Step> {
        let (family, table, chain) = (self.family, TABLE.to_owned(), chain.to_owned());
        rules.into_iter().map(move |exprs| Step::Rule(Rule { family, table: table.clone(), chain: chain.clone(), exprs }))
    }
}

// === impl Map ===

impl Map {
    fn set(&self, family: Family) -> Set {
        let maps_to = match self.to {
            To::Chain => Some(MapTo::Verdict),
            To::Fields(fields) => Some(MapTo::Fields(fields.to_vec())),
            To::Nothing | To::Count | To::Ranges | To::OfNode(_) | To::Companion => None,
        };
        let size = if let To::OfNode(most) = self.to { most } else { None };
        let (interval, counted) = (matches!(self.to, To::Ranges), matches!(self.to, To::Count));
        let (table, name, key) = (TABLE.to_owned(), self.name.to_owned(), self.key.to_vec());
        Set { family, table, name, key, interval, maps_to, counted, size }
    }

    /// Whether it has elements of attachments.
    pub(crate) fn is_of_attachments(&self) -> bool {
        !matches!(self.to, To::Ranges | To::OfNode(_) | To::Companion)
    }

    /// The fields that its elements lead to.
    pub(crate) fn fields(&self) -> &'static [Field] {
        if let To::Fields(fields) = self.to { fields } else { &[] }
    }
}
