//! The annotation by which a node's agent announces how it reaches other nodes: [`BETWEEN`], JSON.
//!
//! ```text
//!   {"mode": "vxlan"}      {"mode": "auto", "tunnel": "vxlan"}
//!   {"mode": "wireguard", "keys": [{"key": "BASE64 OF 32 BYTES", "port": 51820, "rotation": 2}], "rotation": 2, "moved": 2}
//! ```
//!
//! Whoever may change Nodes may write anything there. What cannot be read is kept as an error of that one Node. Keys that this release does
//! not know are ignored: a later release may write them.

use std::num::NonZeroU16;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use between::{Mode, PublicKey, Tunnel};
use serde::{Deserialize, Serialize};

/// The annotation's key.
pub const BETWEEN: &str = "netloom.io/between";

/// The longest announcement that is read, in bytes. One with two keys has 200.
pub const MAX_ANNOUNCED: usize = 1024;

/// What a node's agent announces to the other nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announced {
    /// How its packets get to other nodes.
    pub mode: Mode,
    /// Its WireGuard keys, the newest last.
    pub keys: Vec<PublicKey>,
    /// Which rotation of keys it follows, from 0: nodes that see a higher one begin theirs.
    pub rotation: u64,
    /// To every node that has a key of this rotation, it sends by its own key of that.
    pub moved: u64,
}

/// An announcement that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnnouncedError {
    /// It is longer than [`MAX_ANNOUNCED`].
    #[error(
        "the annotation {BETWEEN} has {length} bytes, which is more than {MAX_ANNOUNCED}: delete it, and the node's agent writes it again"
    )]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// It is not JSON, or lacks something.
    #[error("the annotation {BETWEEN} is unreadable: {cause}: delete it, and the node's agent writes it again")]
    Unreadable {
        /// What was found.
        cause: String,
    },
    /// This release does not know the mode.
    #[error("the annotation {BETWEEN} has the unknown mode {mode:?}: check that all nodes run the same release")]
    UnknownMode {
        /// The mode, with its tunnel where it has one.
        mode: String,
    },
    /// A WireGuard key that is none.
    #[error("the annotation {BETWEEN} has an invalid key ({place}): a key is the base64 of 32 bytes, with a port of 1 to 65535 or none")]
    InvalidKey {
        /// Which one: `keys[0]`.
        place: String,
    },
}

/// The annotation's value.
#[derive(Serialize, Deserialize)]
struct Written {
    mode: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tunnel: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<Vec<WrittenKey>>,
    #[serde(default, skip_serializing_if = "is_zero")]
    rotation: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    moved: u64,
}

/// One of its keys.
#[derive(Serialize, Deserialize)]
struct WrittenKey {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u32>,
    #[serde(default, skip_serializing_if = "is_zero")]
    rotation: u64,
}

// === impl Announced ===

impl Announced {
    /// Reads the annotation's value.
    ///
    /// # Errors
    /// [`AnnouncedError`]
    pub fn read(text: &str) -> Result<Self, AnnouncedError> {
        if text.len() > MAX_ANNOUNCED {
            return Err(AnnouncedError::TooLong { length: text.len() });
        }
        let Written { mode, tunnel, keys, rotation, moved } =
            serde_json::from_str(text).map_err(|e| AnnouncedError::Unreadable { cause: e.to_string() })?;
        let mode = mode_of(&mode, tunnel.as_deref()).ok_or_else(|| {
            let tunnel = tunnel.map(|tunnel| format!(" over {tunnel}")).unwrap_or_default();
            AnnouncedError::UnknownMode { mode: mode + &tunnel }
        })?;
        let invalid = |n| AnnouncedError::InvalidKey { place: format!("keys[{n}]") };
        let keys = keys.iter().flatten().enumerate().map(|(n, key)| key.read().ok_or_else(|| invalid(n)));
        Ok(Announced { mode, keys: keys.collect::<Result<_, _>>()?, rotation, moved })
    }

    /// The annotation's value.
    #[must_use]
    pub fn text(&self) -> String {
        let (mode, tunnel) = words_of(self.mode);
        let key = |key: &PublicKey| WrittenKey { key: STANDARD.encode(key.key), port: key.port.map(u32::from), rotation: key.rotation };
        let keys: Vec<WrittenKey> = self.keys.iter().map(key).collect();
        let keys = (!keys.is_empty()).then_some(keys);
        // Texts and numbers only: that cannot fail.
        let (rotation, moved) = (self.rotation, self.moved);
        serde_json::to_string(&Written { mode: mode.to_owned(), tunnel: tunnel.map(str::to_owned), keys, rotation, moved })
            .unwrap_or_default()
    }
}

// === impl WrittenKey ===

impl WrittenKey {
    /// The key; `None` if it is none.
    fn read(&self) -> Option<PublicKey> {
        let key = STANDARD.decode(&self.key).ok()?.try_into().ok()?;
        let port = |port| u16::try_from(port).ok().and_then(NonZeroU16::new).map(NonZeroU16::get);
        let port = match self.port {
            Some(given) => Some(port(given)?),
            None => None,
        };
        Some(PublicKey { key, port, rotation: self.rotation })
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The words of a mode, and of the tunnel that it uses for some peers.
fn words_of(mode: Mode) -> (&'static str, Option<&'static str>) {
    match mode {
        Mode::Direct => ("direct", None),
        Mode::Vxlan => ("vxlan", None),
        Mode::WireGuard => ("wireguard", None),
        Mode::Auto(Tunnel::Vxlan) => ("auto", Some("vxlan")),
        Mode::Auto(Tunnel::WireGuard) => ("auto", Some("wireguard")),
    }
}

/// The mode that has these words.
fn mode_of(mode: &str, tunnel: Option<&str>) -> Option<Mode> {
    let all = [Mode::Direct, Mode::Vxlan, Mode::WireGuard, Mode::Auto(Tunnel::Vxlan), Mode::Auto(Tunnel::WireGuard)];
    all.into_iter().find(|known| words_of(*known) == (mode, tunnel))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    fn refused(text: &str) -> String {
        Announced::read(text).unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let key = |port, rotation| PublicKey { key: [1; 32], port, rotation };
        let plain = |mode| Announced { mode, keys: Vec::new(), rotation: 0, moved: 0 };
        let rotation = Announced { mode: Mode::WireGuard, keys: vec![key(Some(51820), 2), key(None, 3)], rotation: 3, moved: 2 };
        for (announced, text) in [
            (plain(Mode::Direct), r#"{"mode":"direct"}"#.to_owned()),
            (plain(Mode::Vxlan), r#"{"mode":"vxlan"}"#.to_owned()),
            (plain(Mode::Auto(Tunnel::Vxlan)), r#"{"mode":"auto","tunnel":"vxlan"}"#.to_owned()),
            (plain(Mode::Auto(Tunnel::WireGuard)), r#"{"mode":"auto","tunnel":"wireguard"}"#.to_owned()),
            (
                rotation,
                format!(
                    r#"{{"mode":"wireguard","keys":[{{"key":"{KEY}","port":51820,"rotation":2}},{{"key":"{KEY}","rotation":3}}],"rotation":3,"moved":2}}"#
                ),
            ),
        ] {
            assert_eq!(announced.text(), text);
            assert_eq!(Announced::read(&text), Ok(announced));
        }
    }

    #[test]
    fn what_a_later_release_may_add_is_ignored() {
        let read = Announced::read(r#"{"version": [2], "mode": "vxlan", "keys": null, "tunnel": null}"#);
        assert_eq!(read, Ok(Announced { mode: Mode::Vxlan, keys: Vec::new(), rotation: 0, moved: 0 }));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let long = format!(r#"{{"mode":"vxlan","x":"{}"}}"#, "x".repeat(MAX_ANNOUNCED));
        assert_eq!(Announced::read(&long), Err(AnnouncedError::TooLong { length: long.len() }));
        let key = |key: &str, port: &str| format!(r#"{{"mode":"wireguard","keys":[{{"key":"{KEY}"}},{{"key":"{key}"{port}}}]}}"#);
        for (text, why) in [
            (String::new(), "unreadable"),
            ("vxlan".to_owned(), "unreadable"),
            ("{}".to_owned(), "missing field `mode`"),
            (r#"{"mode":"vxlan""#.to_owned(), "unreadable"),
            (r#"{"mode":"vxlan","mode":"direct"}"#.to_owned(), "duplicate field"),
            (r#"{"mode":"ipip"}"#.to_owned(), r#"unknown mode "ipip""#),
            (r#"{"mode":"auto"}"#.to_owned(), r#"unknown mode "auto""#),
            (r#"{"mode":"vxlan","tunnel":"vxlan"}"#.to_owned(), r#"unknown mode "vxlan over vxlan""#),
            (key("AQEB", ""), "keys[1]"),
            (key("?", ""), "keys[1]"),
            (key(KEY, r#","port":0"#), "keys[1]"),
            (key(KEY, r#","port":65536"#), "keys[1]"),
            (key(KEY, r#","port":-1"#), "unreadable"),
            (r#"{"mode":"wireguard","rotation":-1}"#.to_owned(), "unreadable"),
        ] {
            let said = refused(&text);
            assert!(said.contains(why) && said.contains(BETWEEN), "{text}: {said}");
        }
        assert!(Announced::read(&key(KEY, r#","port":65535"#)).is_ok());
    }
}
