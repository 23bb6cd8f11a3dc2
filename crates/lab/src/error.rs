//! Why a lab cannot be found, kept or begun.

use std::path::PathBuf;

/// A lab that cannot be found or kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// A name that breaks the rules.
    #[error("lab name {0:?}: 1 to 32 lower-case letters, digits and '-' are allowed, the first a letter or digit")]
    BadName(String),
    /// There is no such lab.
    #[error("there is no lab {name:?}{}", labs(there))]
    NoLab {
        /// The name.
        name: String,
        /// The labs that there are.
        there: Vec<String>,
    },
    /// There is one already.
    #[error("lab \"{0}\" is up already: see it with `netloom lab status --name {0}`, end it with `netloom lab down --name {0}`")]
    Exists(String),
    /// Its description cannot be read, though there is one.
    #[error("lab \"{name}\" is damaged: {}: {reason}; remove the rest of it with `netloom lab down --force --name {name}`", path.display())]
    Broken {
        /// The lab.
        name: String,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Something is where the lab's namespaces would be, and this lab did not make it.
    #[error("{}", taken(there))]
    Taken {
        /// The names of the namespaces, as `ip netns` has them.
        there: Vec<String>,
    },
    /// There is no such pod.
    #[error("lab \"{lab}\" has no pod {pod}; {there}")]
    NoPod {
        /// The lab.
        lab: String,
        /// The pod.
        pod: String,
        /// The pods that there are.
        there: String,
    },
    /// Two namespaces have a pod of that name.
    #[error("lab \"{lab}\" has pod {pod} in several namespaces: name one of {there}")]
    Ambiguous {
        /// The lab.
        lab: String,
        /// The pod.
        pod: String,
        /// The full names.
        there: String,
    },
    /// A name would not fit into a file name.
    #[error("pod {0}: its name and the lab's are together too long for the namespace's file name (255 bytes)")]
    TooLong(String),
    /// A file cannot be read or written.
    #[error("{step} {}: {reason}", path.display())]
    Io {
        /// What failed.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

fn labs(there: &[String]) -> String {
    match there {
        [] => ": none is up; start one with `netloom lab up FILES`".to_owned(),
        _ => format!(": name one with --name ({})", cni::near_names("", there.iter().map(String::as_str))),
    }
}

fn taken(there: &[String]) -> String {
    let what = match there {
        [one] => format!("a network namespace {one} is"),
        [first, more @ ..] => format!("network namespaces ({first} and {} more) are", more.len()),
        [] => "network namespaces are".to_owned(),
    };
    let first = there.first().map(String::as_str).unwrap_or("NAME");
    let next = format!("delete it with `ip netns delete {first}` if it is not needed, or choose another lab name with --name");
    format!("{what} there already and do not belong to the lab; {next}")
}
