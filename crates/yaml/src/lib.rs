//! YAML as Kubernetes reads it: manifests, the agent's file, kubeconfigs.
//!
//! There is one way from text to values, so that its parser is in an executable once and not once for each type that is
//! read:
//!
//! ```text
//! text --documents--> Part --parse--> Node: what a document says, each value with its place
//!                                      |  `written: where each line of a string stands, which has JSON in it
//! text ----------------json----------> +--> json::Value --json::read--> any `serde::Deserialize` type
//! ```
//!
//! A manifest is read from its nodes rather than straight into types, so that one wrong field does not hide the next.

mod documents;
mod tree;
mod written;

use std::io;

pub use documents::{DocumentText, documents};
pub use tree::{Key, Node, Value, json, parse, with_room};
pub use written::Written;

/// What is wrong with a document, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}{}", place.map(|(line, column)| format!(" at line {line}, column {column}")).unwrap_or_default())]
pub struct Broken {
    /// Line and column in the document, if known; the first is 1.
    pub place: Option<(usize, usize)>,
    /// What it is.
    pub problem: Problem,
}

/// What is wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The text breaks YAML's grammar.
    #[error("not valid YAML: {reason}{}", if *template { "; it looks like a template: render it first, as helm template does" } else { "" })]
    Syntax {
        /// What the parser expected or met.
        reason: String,
        /// Whether the document contains `{{`.
        template: bool,
    },
    /// The same key twice in one object.
    #[error("the key {0:?} is given twice: remove one")]
    DuplicateKey(String),
    /// A document that would need too much memory, written so or by aliases that multiply.
    #[error("more than {max} {what} in one document: split it, and check its aliases (*name)")]
    TooComplex {
        /// What there is too much of.
        what: &'static str,
        /// How many are accepted.
        max: usize,
    },
    /// Too many levels, which take memory of another kind.
    #[error(
        "lists and objects are nested deeper than {max} levels, which no Kubernetes object needs: check the brackets and the indentation"
    )]
    TooDeep {
        /// How many levels are accepted.
        max: usize,
    },
    /// The machine has no thread for the reader.
    #[error("cannot start a thread to read it: {0}")]
    NoThread(io::ErrorKind),
}

/// At most 80 characters of what was given, for a message.
pub fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
