//! What is wrong with a manifest, what only looks wrong, and where.

use std::fmt;
use std::io;

use validate::Severity;

use super::Origin;

/// Everything that is wrong with the manifests; `errors` is never empty. Shown as one line for each error.
#[derive(Debug, Clone, PartialEq)]
pub struct ManifestErrors {
    /// The errors, in the order of the files; those between objects come last.
    pub errors: Vec<ManifestError>,
    /// The findings, some of which may explain an error.
    pub findings: Vec<Finding>,
}

/// One error.
#[derive(Debug, Clone, PartialEq)]
pub struct ManifestError {
    /// Where it is.
    pub origin: Origin,
    /// The field, as `spec.containers[0].ports[1].hostPort`; empty for an object or a file as a whole.
    pub field: String,
    /// What it is.
    pub problem: ManifestProblem,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestProblem {
    /// The file or folder cannot be read.
    #[error("cannot be read: {}; expected a file, a folder or - for standard input", io_text(*kind, *errno))]
    Unreadable {
        /// The kind of error.
        kind: io::ErrorKind,
        /// Its number, if it came from the kernel.
        errno: Option<i32>,
    },
    /// An address in the web instead of a file.
    #[error("manifests are read from this machine only: curl -sSL URL | netloom lab up -")]
    Remote,
    /// A folder without manifests.
    #[error("no *.yaml, *.yml or *.json in this folder{}", if *folders { "; subfolders are not read: name each" } else { "" })]
    EmptyFolder {
        /// Whether it has folders in it.
        folders: bool,
    },
    /// `-` twice.
    #[error("standard input can be read only once: remove one \"-\"")]
    StdinTwice,
    /// A file of too many bytes.
    #[error("larger than the maximum of {max} bytes per file: split it")]
    TooLarge {
        /// The bytes of a file at the most.
        max: usize,
    },
    /// Too many documents.
    #[error("more than {max} documents: split them into several labs")]
    TooManyDocuments {
        /// The documents at the most.
        max: usize,
    },
    /// Bytes that are no text.
    #[error("not UTF-8{}", if *utf16 { " but UTF-16: save it as UTF-8" } else { ": expected YAML or JSON as text" })]
    NotText {
        /// Whether it begins as UTF-16 does.
        utf16: bool,
    },
    /// The text is not a document.
    #[error(transparent)]
    Document(#[from] yaml::Problem),
    /// A value of the wrong type or out of its range.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// What belongs there.
        expected: &'static str,
        /// What stands there, shortened.
        found: String,
    },
    /// A number or a boolean where a string belongs, which YAML makes of it without quotes.
    #[error("expected a string, found {found}: put it into quotes")]
    Unquoted {
        /// What stands there.
        found: String,
    },
    /// A key that must be there is not.
    #[error("missing: {0}")]
    Missing(&'static str),
    /// A pod whose name a server would have to make.
    #[error("no name: generateName needs an API server, which a lab does not have: set metadata.name")]
    GenerateName,
    /// A name of a Pod or Node that cannot exist.
    #[error("{0}")]
    Name(NameProblem),
    /// A namespace, or the name of a definition, that cannot exist.
    #[error("{0}")]
    Reference(npwg::NameProblem),
    /// A kind that is nearly one that a lab reads.
    #[error("unknown kind {found:?}: did you mean {meant:?}?")]
    Kind {
        /// What was given.
        found: String,
        /// The kind that is near.
        meant: &'static str,
    },
    /// A kind that a lab reads, of another API.
    #[error("{kind} of apiVersion {found:?}: expected {expected:?}")]
    ApiVersion {
        /// The kind.
        kind: &'static str,
        /// What was given.
        found: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// An object that was given before.
    #[error("{object} is given twice, first at {first}: rename or remove one")]
    Duplicate {
        /// Kind, namespace and name.
        object: String,
        /// Where it was given before.
        first: Origin,
    },
    /// A pod on a node that does not exist.
    #[error("there is no Node {name:?}{}; {known}", did_you_mean(meant.as_deref()))]
    NoSuchNode {
        /// What was given.
        name: String,
        /// The node that is near.
        meant: Option<String>,
        /// The nodes that there are, as the end of the message.
        known: String,
    },
    /// A selection of a definition that does not exist.
    #[error("there is no NetworkAttachmentDefinition {name}{}; {known}", did_you_mean(meant.as_deref()))]
    NoSuchDefinition {
        /// What is selected.
        name: npwg::DefinitionRef,
        /// The definition that is near.
        meant: Option<String>,
        /// The definitions that there are, as the end of the message.
        known: String,
    },
    /// An annotation that breaks the multi-network standard.
    #[error("{0}")]
    Selection(npwg::SelectionError),
    /// More violations in the same annotation.
    #[error("and {0} more violations")]
    MoreSelections(usize),
    /// A CNI configuration that is none.
    #[error("{0}")]
    Config(cni::ConfigError),
    /// A CNI configuration that names no plugin.
    #[error(
        "names no plugin: set \"type\", or \"plugins\" with at least one element; remove spec.config to use the node's network of that name"
    )]
    NoPlugin,
    /// An IPPool that cannot be one, and why.
    #[error("{0}")]
    Pool(String),
    /// No range of addresses.
    #[error("{0:?} is not a CIDR: expected one like 10.244.1.0/24 or 2001:db8:1::/64")]
    Cidr(String),
    /// A range with an address in it instead of its first.
    #[error("{text:?} has host bits set: the network is {network}")]
    HostBits {
        /// What was given.
        text: String,
        /// The range that it is in.
        network: ipnet::IpNet,
    },
    /// Two ranges of one family.
    #[error("{0} is the second range of its family: at most one IPv4 and one IPv6 range are allowed")]
    SecondOfFamily(ipnet::IpNet),
    /// `podCIDR` and `podCIDRs` say different things.
    #[error("{0} is not the first of spec.podCIDRs: remove spec.podCIDR")]
    NotFirst(ipnet::IpNet),
    /// Ranges that share addresses.
    #[error("{cidr} overlaps {other} of Node {node} at {origin}: give each node a range of its own")]
    Overlap {
        /// The range.
        cidr: ipnet::IpNet,
        /// The other node's range.
        other: ipnet::IpNet,
        /// The other node.
        node: String,
        /// Where the other node is.
        origin: Origin,
    },
    /// No IP address.
    #[error("{0:?} is not an IP address: expected one like 192.0.2.5 or 2001:db8::5, without a prefix length")]
    Address(String),
    /// An address that another node has.
    #[error("{address} is the address of Node {node} at {origin} already")]
    AddressTaken {
        /// The address.
        address: std::net::IpAddr,
        /// The other node.
        node: String,
        /// Where the other node is.
        origin: Origin,
    },
    /// A host port that the same pod uses before.
    #[error("host port {0}/{1} is given twice in this pod")]
    HostPortTwice(u16, npwg::Protocol),
    /// The manifests have nothing in them that a lab is made of.
    #[error("nothing to build: no Pod, Node, NetworkAttachmentDefinition or IPPool in the manifests{}", ignored(*.0))]
    Nothing(
        /// How many objects were left out.
        usize,
    ),
}

/// A name of a Pod or Node that is no DNS-1123 subdomain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameProblem {
    /// Nothing was given.
    #[error("the name is empty")]
    Empty,
    /// Too many characters.
    #[error("the name is {len} characters long, at most {max} are allowed")]
    TooLong {
        /// Bytes received.
        len: usize,
        /// Bytes accepted.
        max: usize,
    },
    /// A character that does not belong there.
    #[error(
        "{text:?} is not a DNS-1123 subdomain: lower-case letters, digits, '-' and '.' are allowed, first and last of each part a \
         letter or digit{}",
        near.as_ref().map_or(String::new(), |near| format!("; did you mean {near:?}?"))
    )]
    Characters {
        /// What was given, shortened.
        text: String,
        /// The nearest name that would do.
        near: Option<String>,
    },
}

/// What is wrong with manifests that can be read, what may be, and what was left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Where it is.
    pub origin: Origin,
    /// The field; empty for an object as a whole.
    pub field: String,
    /// How many characters it has in its line.
    pub width: usize,
    /// What it is.
    pub kind: FindingKind,
}

/// The kinds of findings.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FindingKind {
    /// An object was left out.
    #[error("ignored: {object} ({reason})")]
    Ignored {
        /// Kind, namespace and name.
        object: String,
        /// Why.
        reason: &'static str,
    },
    /// A pod that cannot be attached, for a reason that concerns no other pod.
    #[error("{0}; the pod cannot be attached")]
    PodWillFail(ManifestProblem),
    /// A definition that cannot be attached to.
    #[error("{0}; pods that select it cannot be attached")]
    SelectionsWillFail(ManifestProblem),
    /// A key that nobody reads, and that is nearly one that a lab reads.
    #[error("unknown key {key:?} is ignored: did you mean {meant:?}?")]
    NearMiss {
        /// What was given.
        key: String,
        /// The key that is near.
        meant: &'static str,
    },
    /// A selection of a definition that is not in the files, which the cluster may have.
    #[error("{0}; the cluster must have it")]
    NotHere(ManifestProblem),
    /// What a plugin would refuse, or what two pods would have at the same time.
    #[error("{message}", message = .0.message)]
    Checked(validate::Finding),
}

fn io_text(kind: io::ErrorKind, errno: Option<i32>) -> String {
    match errno {
        Some(errno) => io::Error::from_raw_os_error(errno).to_string(),
        None => kind.to_string(),
    }
}

fn did_you_mean(near: Option<&str>) -> String {
    near.map_or(String::new(), |near| format!(": did you mean {near:?}?"))
}

fn ignored(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => "; an object of another kind was ignored".to_owned(),
        count => format!("; {count} objects of other kinds were ignored"),
    }
}

// === impl ManifestErrors ===

impl std::error::Error for ManifestErrors {}

impl fmt::Display for ManifestErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.errors.iter().enumerate() {
            let between = if i == 0 { "" } else { "\n" };
            write!(f, "{between}{error}")?;
        }
        Ok(())
    }
}

// === impl ManifestError ===

impl std::error::Error for ManifestError {}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        placed(f, &self.origin, &self.field, &self.problem)
    }
}

// === impl Finding ===

impl Finding {
    /// How bad it is.
    pub fn severity(&self) -> Severity {
        match &self.kind {
            FindingKind::Ignored { .. } | FindingKind::NearMiss { .. } | FindingKind::NotHere(_) => Severity::Warning,
            FindingKind::PodWillFail(_) | FindingKind::SelectionsWillFail(_) => Severity::Error,
            FindingKind::Checked(finding) => finding.severity,
        }
    }

    /// Whether a pod cannot be attached, or does not get what is written.
    pub fn is_error(&self) -> bool {
        self.severity() == Severity::Error
    }

    /// The next step, where the text does not say it.
    pub fn help(&self) -> &str {
        if let FindingKind::Checked(finding) = &self.kind { &finding.help } else { "" }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.help() {
            "" => placed(f, &self.origin, &self.field, &self.kind),
            help => placed(f, &self.origin, &self.field, &format_args!("{}; {help}", self.kind)),
        }
    }
}

/// One line. What came out of a file is told, but does not reach the terminal's control sequences.
fn placed(f: &mut fmt::Formatter<'_>, origin: &Origin, field: &str, what: &dyn fmt::Display) -> fmt::Result {
    let line = match field.is_empty() {
        true => format!("{origin}: {what}"),
        false => format!("{origin}: {field}: {what}"),
    };
    line.chars().try_for_each(|c| match c.is_control() {
        true => write!(f, "{}", c.escape_default()),
        false => write!(f, "{c}"),
    })
}
