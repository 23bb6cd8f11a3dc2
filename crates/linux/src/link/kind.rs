//! What sets one kind of link apart from another, as written at its creation and read back.

use std::fmt;
use std::str::FromStr;

use crate::uapi::link::*;
use crate::wire::{Attributes, Message, u16_at, u32_at};

/// A macvlan's properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Macvlan {
    /// How macvlans of one parent see each other.
    pub mode: MacvlanMode,
    /// Length of the queue for broadcast and multicast in packets (`bcqueuelen`); the kernel uses 1000 when it is `None`.
    pub bc_queue_len: Option<u32>,
}

/// How the macvlans of one parent see each other (linux/if_link.h, `MACVLAN_MODE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MacvlanMode {
    /// Not at all.
    Private,
    /// Through a switch outside that sends back (802.1Qbg).
    Vepa,
    /// Directly.
    Bridge,
    /// There is one only, and it takes the parent over.
    Passthru,
    /// Each receives from a list of sources, so without one from nowhere. No network asks for it.
    Source,
    /// A value that this program does not know.
    Other(u32),
}

/// A word that is no macvlan mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown macvlan mode {0:?} (expected bridge, private, vepa or passthru)")]
pub struct MacvlanModeError(String);

/// A bridge's properties. `None`: the kernel's default when written; not supported by the kernel when read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bridge {
    /// Ports belong to VLANs (`vlan_filtering`).
    pub vlan_filtering: Option<bool>,
    /// VLAN of untagged packets of a new port (`vlan_default_pvid`); 0: none.
    pub vlan_default_pvid: Option<u16>,
    /// Spanning tree protocol (`stp_state`).
    pub stp: Option<bool>,
}

// === impl Macvlan ===

impl Macvlan {
    /// `None` without a mode.
    pub(super) fn parse(data: &[u8]) -> Option<Self> {
        let (mut mode, mut asked, mut used) = (None, None, None);
        for (kind, value) in Attributes(data) {
            match kind {
                IFLA_MACVLAN_MODE => mode = u32_at(value).map(MacvlanMode::from),
                IFLA_MACVLAN_BC_QUEUE_LEN => asked = u32_at(value),
                IFLA_MACVLAN_BC_QUEUE_LEN_USED => used = u32_at(value),
                _ => {}
            }
        }
        Some(Macvlan { mode: mode?, bc_queue_len: asked.or(used) })
    }

    pub(super) fn write(&self, data: &mut Message) {
        if let Some(length) = self.bc_queue_len {
            data.put_u32(IFLA_MACVLAN_BC_QUEUE_LEN, length);
        }
        data.put_u32(IFLA_MACVLAN_MODE, self.mode.into());
    }
}

// === impl MacvlanMode ===

impl From<u32> for MacvlanMode {
    fn from(value: u32) -> Self {
        match value {
            1 => MacvlanMode::Private,
            2 => MacvlanMode::Vepa,
            4 => MacvlanMode::Bridge,
            8 => MacvlanMode::Passthru,
            16 => MacvlanMode::Source,
            other => MacvlanMode::Other(other),
        }
    }
}

impl From<MacvlanMode> for u32 {
    fn from(mode: MacvlanMode) -> Self {
        match mode {
            MacvlanMode::Private => 1,
            MacvlanMode::Vepa => 2,
            MacvlanMode::Bridge => 4,
            MacvlanMode::Passthru => 8,
            MacvlanMode::Source => 16,
            MacvlanMode::Other(other) => other,
        }
    }
}

impl fmt::Display for MacvlanMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MacvlanMode::Private => "private",
            MacvlanMode::Vepa => "vepa",
            MacvlanMode::Bridge => "bridge",
            MacvlanMode::Passthru => "passthru",
            MacvlanMode::Source => "source",
            MacvlanMode::Other(other) => return write!(f, "{other:#x}"),
        })
    }
}

impl FromStr for MacvlanMode {
    type Err = MacvlanModeError;

    fn from_str(s: &str) -> Result<Self, MacvlanModeError> {
        match s {
            "private" => Ok(MacvlanMode::Private),
            "vepa" => Ok(MacvlanMode::Vepa),
            "bridge" => Ok(MacvlanMode::Bridge),
            "passthru" => Ok(MacvlanMode::Passthru),
            _ => Err(MacvlanModeError(s.chars().take(80).collect())),
        }
    }
}

// === impl Bridge ===

impl Bridge {
    pub(super) fn parse(data: &[u8]) -> Self {
        let mut bridge = Bridge::default();
        for (kind, value) in Attributes(data) {
            match kind {
                IFLA_BR_VLAN_FILTERING => bridge.vlan_filtering = value.first().map(|b| *b != 0),
                IFLA_BR_VLAN_DEFAULT_PVID => bridge.vlan_default_pvid = u16_at(value),
                IFLA_BR_STP_STATE => bridge.stp = u32_at(value).map(|n| n != 0),
                _ => {}
            }
        }
        bridge
    }

    pub(super) fn write(&self, data: &mut Message) {
        if let Some(on) = self.vlan_filtering {
            data.put_u8(IFLA_BR_VLAN_FILTERING, on.into());
        }
        if let Some(pvid) = self.vlan_default_pvid {
            data.put_u16(IFLA_BR_VLAN_DEFAULT_PVID, pvid);
        }
        if let Some(on) = self.stp {
            data.put_u32(IFLA_BR_STP_STATE, on.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_names() {
        for mode in [MacvlanMode::Private, MacvlanMode::Vepa, MacvlanMode::Bridge, MacvlanMode::Passthru] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            assert_eq!(MacvlanMode::from(u32::from(mode)), mode);
        }
        assert_eq!(MacvlanMode::from(32).to_string(), "0x20");
        let error = "Bridge".parse::<MacvlanMode>().unwrap_err();
        assert_eq!(error.to_string(), "unknown macvlan mode \"Bridge\" (expected bridge, private, vepa or passthru)");
    }
}
