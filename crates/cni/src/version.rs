//! The versions of the specification.

use std::fmt;
use std::str::FromStr;

/// A version of the specification, ordered by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 0.1.0; also what a configuration without `cniVersion` is.
    V0_1_0,
    /// 0.2.0: VERSION
    V0_2_0,
    /// 0.3.0: lists, `interfaces` and `ips`
    V0_3_0,
    /// 0.3.1
    V0_3_1,
    /// 0.4.0: CHECK
    V0_4_0,
    /// 1.0.0: no `version` in `ips`
    V1_0_0,
    /// 1.1.0: GC and STATUS
    V1_1_0,
}

/// How a version writes results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// 0.1.0 and 0.2.0: `ip4` and `ip6`
    V0_2,
    /// 0.3.0 to 0.4.0: `ips` with a `version`
    V0_4,
    /// 1.0.0 and 1.1.0
    V1,
}

/// A version that this library does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VersionError {
    /// Not of the form `1.2.3`.
    #[error("{0:?} is not a version: expected MAJOR.MINOR.PATCH, such as 1.1.0")]
    Malformed(String),
    /// A version of the right form that is not supported.
    #[error("version {0:?} is not supported; known are {list}", list = Version::list())]
    Unknown(String),
}

// === impl Version ===

impl Version {
    /// All versions, oldest first.
    pub const ALL: &'static [Version] =
        &[Version::V0_1_0, Version::V0_2_0, Version::V0_3_0, Version::V0_3_1, Version::V0_4_0, Version::V1_0_0, Version::V1_1_0];

    /// The newest version.
    pub const LATEST: Version = Version::V1_1_0;

    /// As it is written in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Version::V0_1_0 => "0.1.0",
            Version::V0_2_0 => "0.2.0",
            Version::V0_3_0 => "0.3.0",
            Version::V0_3_1 => "0.3.1",
            Version::V0_4_0 => "0.4.0",
            Version::V1_0_0 => "1.0.0",
            Version::V1_1_0 => "1.1.0",
        }
    }

    /// How it writes results.
    pub fn family(self) -> Family {
        match self {
            Version::V0_1_0 | Version::V0_2_0 => Family::V0_2,
            Version::V0_3_0 | Version::V0_3_1 | Version::V0_4_0 => Family::V0_4,
            Version::V1_0_0 | Version::V1_1_0 => Family::V1,
        }
    }

    /// Whether CHECK exists (0.4.0 and later).
    pub fn has_check(self) -> bool {
        self >= Version::V0_4_0
    }

    /// Whether GC and STATUS exist (1.1.0 and later).
    pub fn has_gc_and_status(self) -> bool {
        self >= Version::V1_1_0
    }

    fn list() -> String {
        Version::ALL.iter().map(|v| v.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Whether `s` has the form of a version at all: one that is newer than this library is skipped in `cniVersions`,
    /// nonsense is an error.
    pub(crate) fn numbers(s: &str) -> Option<[u32; 3]> {
        let mut parts = s.split('.');
        let numbers = [parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?];
        parts.next().is_none().then_some(numbers)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Version {
    type Err = VersionError;

    /// The empty string is 0.1.0, as the specification says of a missing `cniVersion`.
    fn from_str(s: &str) -> Result<Self, VersionError> {
        if s.is_empty() {
            return Ok(Version::V0_1_0);
        }
        if let Some(v) = Version::ALL.iter().find(|v| v.as_str() == s) {
            return Ok(*v);
        }
        let shown: String = s.chars().take(40).collect();
        match Version::numbers(s) {
            Some(_) => Err(VersionError::Unknown(shown)),
            None => Err(VersionError::Malformed(shown)),
        }
    }
}
