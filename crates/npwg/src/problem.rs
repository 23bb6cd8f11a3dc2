//! What is wrong with an annotation, and where.

use std::fmt;

use crate::NameProblem;

/// Everything that is wrong with one annotation; never empty.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectionErrors {
    /// The annotation's key.
    pub annotation: &'static str,
    /// The violations in the order of the annotation, the first [`SelectionErrors::MAX`] of them.
    pub errors: Vec<SelectionError>,
    /// How many more there are.
    pub more: usize,
}

/// One violation.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectionError {
    /// Where it is.
    pub place: AnnotationPlace,
    /// What it is.
    pub problem: Problem,
}

/// A place in an annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnnotationPlace {
    /// The annotation as a whole.
    Whole,
    /// One element, or one of its keys.
    Element {
        /// The first element is 1.
        number: usize,
        /// What the element selects, as far as it can be told: `storage`, `infra/backup`; else empty.
        name: String,
        /// The key with what is under it, as `portMappings[0].hostPort`; indices in it begin at 0, as in any JSON
        /// path. Empty for the element itself.
        key: String,
    },
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// More than is accepted.
    #[error("{count} {what} are too many: at most {max} are accepted")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many were given.
        count: usize,
        /// How many are accepted.
        max: usize,
    },
    /// The JSON form was meant, and it is broken.
    #[error("{0}; it is read as JSON because it contains one of [ {{ \"; the other form is a list like net1,namespace/net2@eth7")]
    NotJson(json::ParseError),
    /// One object without a list around it (S16).
    #[error("expected a list of objects, found a single object: put it into brackets, such as [{{\"name\": \"net1\"}}]")]
    NotInAList,
    /// A value of the wrong type or out of its range.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// What belongs there.
        expected: &'static str,
        /// What stands there, shortened.
        found: String,
    },
    /// An element of the comma form with nothing in it (S15).
    #[error("there is nothing between two commas: remove one")]
    Blank,
    /// An element of the comma form that cannot be taken apart (S15).
    #[error("{0:?} is not of the form [NAMESPACE/]NAME[@INTERFACE]")]
    Syntax(String),
    /// A key that must be there is not.
    #[error("missing: {0}")]
    Missing(&'static str),
    /// A list or object that must not be empty (S20, S24, S25).
    #[error("empty: set {0}, or remove the key")]
    Empty(&'static str),
    /// A namespace, definition or claim that cannot exist (S9).
    #[error("{0}{hint}", hint = name_hint(.0))]
    Name(NameProblem),
    /// No interface name (S22).
    #[error("{0}")]
    Interface(cni::NameError),
    /// Two spellings of one key with different values.
    #[error("differs from \"interface\", its newer spelling: keep only \"interface\"")]
    TwoInterfaces,
    /// An interface that an earlier element already has (S22).
    #[error("interface {name:?} is already requested by element {other}: give each attachment its own name")]
    DuplicateInterface {
        /// The interface.
        name: String,
        /// The earlier element; the first is 1.
        other: usize,
    },
    /// A key that nobody would read (S17).
    #[error("unknown key{}; keys of implementations need a period, such as example.org/key", meant.map_or(String::new(), |m| format!(": \
        did you mean {m:?}?")))]
    UnknownKey {
        /// The key that is near.
        meant: Option<&'static str>,
    },
    /// A key under `portMappings` or `bandwidth` that nobody would read.
    #[error("unknown key: {known} are allowed")]
    UnknownUnder {
        /// The keys that are known there.
        known: &'static str,
    },
    /// No IP address (S20).
    #[error("{0:?} is not an IP address: expected one like 10.1.1.5, 10.1.1.5/24 or 2001:db8::5/64")]
    Address(String),
    /// No gateway or host address.
    #[error("{0:?} is not an IP address: expected one like 10.1.1.5 or 2001:db8::5, without a prefix length")]
    BareAddress(String),
    /// An address that no interface can have.
    #[error("{text:?} is {what}, which no interface can have")]
    Unusable {
        /// The address.
        text: String,
        /// What kind of address it is.
        what: &'static str,
    },
    /// The same thing twice in one element.
    #[error("{0} is given twice: remove one")]
    Twice(String),
    /// No hardware address of the right length (S21, S27).
    #[error("{text:?} is not a valid {expected}")]
    Hardware {
        /// What was given.
        text: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// A burst without its rate (S25).
    #[error("a burst needs a rate: set {0:?} as well")]
    BurstWithoutRate(&'static str),
    /// A second element wants the default route of a family (S26).
    #[error(
        "element {0} has the default route already: only one element may have the default route of a family, and an empty list \
        stands for both"
    )]
    SecondDefaultRoute(usize),
    /// Fixed addresses and a claim at once (S28).
    #[error("cannot be combined with \"ips\", because the claim has the addresses; remove one of the two")]
    ClaimAndIps,
    /// The annotation for the default network selects none or several.
    #[error("expected exactly one network, found {0}; without the annotation the cluster's default network is used")]
    NotOne(usize),
}

/// What belongs under a key of its own and was written into the name.
fn name_hint(problem: &NameProblem) -> &'static str {
    match problem {
        NameProblem::Characters { text, .. } if text.contains('/') => "; a namespace has its own key, \"namespace\"",
        NameProblem::Characters { text, .. } if text.contains('@') => "; an interface has its own key, \"interface\"",
        _ => "",
    }
}

/// At most 80 characters of what was given, for a message.
pub(crate) fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}

// === impl SelectionErrors ===

impl SelectionErrors {
    /// How many violations are told at the most.
    pub const MAX: usize = 100;

    pub(crate) fn none(annotation: &'static str) -> Self {
        SelectionErrors { annotation, errors: Vec::new(), more: 0 }
    }

    pub(crate) fn push(&mut self, place: AnnotationPlace, problem: Problem) {
        match self.is_full() {
            false => self.errors.push(SelectionError { place, problem }),
            true => self.more += 1,
        }
    }

    /// Whether another violation would only be counted.
    pub(crate) fn is_full(&self) -> bool {
        self.errors.len() >= Self::MAX
    }

    /// `good` if nothing was found.
    pub(crate) fn or<T>(self, good: T) -> Result<T, Self> {
        if self.errors.is_empty() { Ok(good) } else { Err(self) }
    }
}

impl std::error::Error for SelectionErrors {}

impl fmt::Display for SelectionErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "annotation {}: ", self.annotation)?;
        for (i, error) in self.errors.iter().enumerate() {
            let between = if i == 0 { "" } else { "; " };
            write!(f, "{between}{error}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl std::error::Error for SelectionError {}

impl fmt::Display for SelectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            AnnotationPlace::Whole => self.problem.fmt(f),
            AnnotationPlace::Element { .. } => write!(f, "{}: {}", self.place, self.problem),
        }
    }
}

impl fmt::Display for AnnotationPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AnnotationPlace::Element { number, name, key } = self else { return f.write_str("the annotation") };
        write!(f, "element {number}")?;
        if !name.is_empty() {
            write!(f, " ({name})")?;
        }
        match key.is_empty() {
            true => Ok(()),
            false => write!(f, ", {key}"),
        }
    }
}
