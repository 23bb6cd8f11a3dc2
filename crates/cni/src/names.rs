//! Names that come from outside and end up in paths, in the kernel or in other programs: checked once, here.

use std::fmt;
use std::str::FromStr;

use crate::{CniError, Code};

/// A name that breaks its rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// No container ID (SPEC 4, code 3 as the reference runtime library returns it).
    #[error("missing containerID")]
    NoContainerId,
    /// A container ID with characters outside `[a-zA-Z0-9_.-]`, or a first character that is no letter or digit.
    #[error("invalid characters in containerID {0:?}: letters, digits, '_', '.' and '-' are allowed, the first a letter or digit")]
    ContainerId(String),
    /// No network name.
    #[error("missing network name: the configuration needs a \"name\"")]
    NoNetworkName,
    /// A network name with other characters than a container ID's.
    #[error("invalid characters found in network name {0:?}: letters, digits, '_', '.' and '-' are allowed, the first a letter or digit")]
    NetworkName(String),
    /// No interface name.
    #[error("interface name is empty")]
    NoIfName,
    /// More than 15 bytes (`IFNAMSIZ` less the final NUL).
    #[error("interface name {0:?} is too long: {len} bytes, the kernel allows 15", len = .0.len())]
    IfNameTooLong(String),
    /// `.` or `..`.
    #[error("interface name is . or ..")]
    IfNameDots,
    /// `/`, `:` or white space, which the kernel refuses (`dev_valid_name`), a control character, or `%`, which it
    /// takes for a pattern to fill in (`dev_alloc_name`).
    #[error("interface name {0:?} contains / or : or whitespace characters, or % or control characters")]
    IfNameCharacters(String),
    /// No plugin type.
    #[error("missing plugin type: the configuration needs a \"type\"")]
    NoPluginType,
    /// A plugin type that would be a path.
    #[error("invalid plugin type {0:?}: expected the name of an executable, without '/' and not '.' or '..'")]
    PluginType(String),
    /// A name longer than a file name can be.
    #[error("the {what} is {len} bytes long, but a file name has room for only {max}")]
    TooLong {
        /// Which name.
        what: &'static str,
        /// Bytes received.
        len: usize,
        /// Bytes accepted.
        max: usize,
    },
}

impl From<NameError> for CniError {
    fn from(e: NameError) -> Self {
        let code = match e {
            NameError::NoContainerId => Code::UNKNOWN_CONTAINER,
            NameError::NoNetworkName | NameError::NetworkName(_) | NameError::NoPluginType | NameError::PluginType(_) => {
                Code::INVALID_CONFIG
            }
            _ => Code::INVALID_ENVIRONMENT,
        };
        CniError::new(code, e.to_string())
    }
}

// === impl NameError ===

impl NameError {
    /// The key of a configuration that has such a name; empty for names that come from elsewhere.
    pub(crate) fn key(&self) -> &'static str {
        match self {
            NameError::NoNetworkName | NameError::NetworkName(_) | NameError::TooLong { what: "network name", .. } => "name",
            NameError::NoPluginType | NameError::PluginType(_) | NameError::TooLong { what: "plugin type", .. } => "type",
            _ => "",
        }
    }
}

/// File names of the result cache hold a network's name, a container ID and an interface name: together below the
/// 255 bytes of a file name.
const MAX_PART: usize = 118;

macro_rules! name {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(String);

        impl $type {
            /// The name itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = NameError;
            fn from_str(s: &str) -> Result<Self, NameError> {
                $type::parse(s)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let s = String::deserialize(d)?;
                $type::parse(&s).map_err(serde::de::Error::custom)
            }
        }
    };
}

name! {
    /// A container ID: `^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$` (SPEC 1.0.0, section 2).
    ContainerId
}

name! {
    /// A network's name; the same characters as a container ID (SPEC 1.0.0, section 1).
    NetworkName
}

name! {
    /// A Linux interface name: 1 to 15 bytes, not `.` or `..`, no `/`, `:`, `%` or white space (kernel: `dev_valid_name`).
    IfName
}

name! {
    /// The name of a plugin's executable; never a path.
    PluginType
}

// === impl ContainerId ===

impl ContainerId {
    /// Checks a container ID.
    pub fn parse(s: &str) -> Result<Self, NameError> {
        match s {
            "" => Err(NameError::NoContainerId),
            _ if !is_plain(s) => Err(NameError::ContainerId(s.to_owned())),
            _ if s.len() > MAX_PART => Err(NameError::TooLong { what: "container ID", len: s.len(), max: MAX_PART }),
            _ => Ok(ContainerId(s.to_owned())),
        }
    }
}

// === impl NetworkName ===

impl NetworkName {
    /// Checks a network's name.
    pub fn parse(s: &str) -> Result<Self, NameError> {
        match s {
            "" => Err(NameError::NoNetworkName),
            _ if !is_plain(s) => Err(NameError::NetworkName(s.to_owned())),
            _ if s.len() > MAX_PART => Err(NameError::TooLong { what: "network name", len: s.len(), max: MAX_PART }),
            _ => Ok(NetworkName(s.to_owned())),
        }
    }
}

// === impl IfName ===

impl IfName {
    /// Checks an interface name.
    pub fn parse(s: &str) -> Result<Self, NameError> {
        match s {
            "" => Err(NameError::NoIfName),
            "." | ".." => Err(NameError::IfNameDots),
            _ if s.len() > 15 => Err(NameError::IfNameTooLong(s.to_owned())),
            _ if s.chars().any(|c| "/:%".contains(c) || c.is_whitespace() || c.is_control()) => {
                Err(NameError::IfNameCharacters(s.to_owned()))
            }
            _ => Ok(IfName(s.to_owned())),
        }
    }
}

// === impl PluginType ===

impl PluginType {
    /// Checks a plugin's type.
    pub fn parse(s: &str) -> Result<Self, NameError> {
        match s {
            "" => Err(NameError::NoPluginType),
            "." | ".." => Err(NameError::PluginType(s.to_owned())),
            _ if s.contains(['/', '\\', '\0']) => Err(NameError::PluginType(s.to_owned())),
            _ if s.len() > 255 => Err(NameError::TooLong { what: "plugin type", len: s.len(), max: 255 }),
            _ => Ok(PluginType(s.to_owned())),
        }
    }
}

fn is_plain(s: &str) -> bool {
    s.starts_with(|c: char| c.is_ascii_alphanumeric()) && s.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

/// A hardware address: 6 bytes (Ethernet), 8 (EUI-64, InfiniBand GUID) or 20 (IP over InfiniBand).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(Vec<u8>);

/// A hardware address that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid hardware address {0:?}: expected 6, 8 or 20 bytes in hexadecimal, such as 02:00:00:12:34:56")]
pub struct MacError(String);

// === impl Mac ===

impl Mac {
    /// From raw bytes; `None` unless there are 6, 8 or 20.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        matches!(bytes.len(), 6 | 8 | 20).then(|| Mac(bytes.to_vec()))
    }

    /// The bytes, in the order in which they are written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether an interface may own it: not multicast and not all zeros.
    pub fn is_unicast(&self) -> bool {
        self.0.first().is_some_and(|b| b & 1 == 0) && self.0.iter().any(|b| *b != 0)
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let colon = if i == 0 { "" } else { ":" };
            write!(f, "{colon}{byte:02x}")?;
        }
        Ok(())
    }
}

impl FromStr for Mac {
    type Err = MacError;

    /// The three forms that Go's `net.ParseMAC` reads: `02:00:..`, `02-00-..` and `0200.5e10.0000`.
    fn from_str(s: &str) -> Result<Self, MacError> {
        let bad = || MacError(s.chars().take(80).collect());
        let separator = s.chars().find(|c| ":-.".contains(*c)).ok_or_else(bad)?;
        let digits = if separator == '.' { 4 } else { 2 };
        let mut bytes = Vec::with_capacity(20);
        for group in s.split(separator) {
            if group.len() != digits || !group.bytes().all(|b| b.is_ascii_hexdigit()) || bytes.len() >= 20 {
                return Err(bad());
            }
            let value = u16::from_str_radix(group, 16).map_err(|_| bad())?;
            match digits {
                4 => bytes.extend(value.to_be_bytes()),
                _ => bytes.extend(value.to_be_bytes().get(1)),
            }
        }
        Mac::from_bytes(&bytes).ok_or_else(bad)
    }
}

impl serde::Serialize for Mac {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Mac {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "0", "A.b_c-d", &"x".repeat(118)] {
            assert!(ContainerId::parse(good).is_ok(), "{good}");
            assert!(NetworkName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "../x", "a/b", "-a", "a b", "ä", "a\n", &"x".repeat(119)] {
            assert!(ContainerId::parse(bad).is_err(), "{bad}");
            assert!(NetworkName::parse(bad).is_err(), "{bad}");
        }
        for good in ["eth0", "a.b", "-", "exactly15bytes_", "ü"] {
            assert!(IfName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a:b", "a b", "net%d", "a\u{2003}b", "sixteen_bytes_xx", "a\0"] {
            assert!(IfName::parse(bad).is_err(), "{bad}");
        }
        for bad in ["", ".", "..", "a/b", "/bin/sh", "..\\x", "a\0"] {
            assert!(PluginType::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn codes_follow_the_reference_library() {
        assert_eq!(CniError::from(ContainerId::parse("").unwrap_err()).code, Code::UNKNOWN_CONTAINER);
        assert_eq!(CniError::from(ContainerId::parse("a/b").unwrap_err()).code, Code::INVALID_ENVIRONMENT);
        assert_eq!(CniError::from(NetworkName::parse("").unwrap_err()).code, Code::INVALID_CONFIG);
        assert_eq!(CniError::from(IfName::parse("").unwrap_err()).code, Code::INVALID_ENVIRONMENT);
    }

    #[test]
    fn hardware_addresses() {
        for (text, shown) in [
            ("02:00:00:12:34:56", "02:00:00:12:34:56"),
            ("02-00-00-AB-34-56", "02:00:00:ab:34:56"),
            ("0200.5e10.0001", "02:00:5e:10:00:01"),
            ("02:00:5e:10:00:00:00:01", "02:00:5e:10:00:00:00:01"),
        ] {
            assert_eq!(text.parse::<Mac>().unwrap().to_string(), shown);
        }
        for bad in
            ["", "02", "02:00:00:12:34", "02:00:00:12:34:5g", "2:0:0:1:3:5", "02:00-00:12:34:56", "+2:00:00:12:34:56", &"02:".repeat(4000)]
        {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
        assert!(!"01:00:00:00:00:00".parse::<Mac>().unwrap().is_unicast());
    }
}
