//! Settings that cannot be used.

use std::path::PathBuf;

use attach::PolicyError;
use cni::{CniError, Code};

/// Settings that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The agent's own file.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file is neither JSON nor YAML, or no object.
    #[error("neither JSON nor YAML with keys at its outermost level: {0}")]
    Syntax(String),
    /// A key that nobody would read.
    #[error("unknown key {key:?}{}; docs/operate/settings.md lists all keys", meant.map_or_else(String::new, |m| format!(": did you mean {m:?}?")))]
    UnknownKey {
        /// The key.
        key: String,
        /// The key that is near.
        meant: Option<&'static str>,
    },
    /// A value that is not of the key's kind.
    #[error("{key}: expected {expected}, found {found}")]
    Value {
        /// The key.
        key: String,
        /// What belongs there.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// Two keys that exclude each other.
    #[error("{first} and {second} contradict each other: remove one")]
    Both {
        /// A key.
        first: &'static str,
        /// The other one.
        second: &'static str,
    },
    /// A key that does nothing without another one.
    #[error("{key} has no effect without {needed}: add that, or remove {key}")]
    Without {
        /// The key.
        key: &'static str,
        /// The other one, with its value.
        needed: &'static str,
    },
    /// A network that stands in the settings is none.
    #[error("{key}: {problem}")]
    Network {
        /// Where.
        key: String,
        /// Why.
        problem: String,
    },
    /// An auxiliary chain without a directory that it could be in; the words are Multus's.
    #[error(
        "auxiliary chain used but ClusterNetwork must be a path: the directory {name:?} of auxiliaryCNIChainName is looked for \
         beside that file"
    )]
    AuxiliaryChain {
        /// The chain.
        name: String,
    },
    /// A bad policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

impl From<SettingsError> for CniError {
    /// Code 7.
    fn from(e: SettingsError) -> Self {
        CniError::new(Code::INVALID_CONFIG, e.to_string())
    }
}
