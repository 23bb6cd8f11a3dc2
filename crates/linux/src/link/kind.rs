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
#[error("unknown macvlan mode: {0:?}: expected bridge, private, vepa or passthru")]
pub struct MacvlanModeError(String);

/// How an ipvlan and its parent share their work (linux/if_link.h, `IPVLAN_MODE_*`). It is the parent's: an ipvlan made with
/// another mode changes that of all others on the same parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IpvlanMode {
    /// Each has neighbours of its own, below the parent's hardware address.
    L2,
    /// The parent's namespace routes between them; no broadcast, no multicast.
    L3,
    /// As `L3`, and packets pass the parent's netfilter.
    L3s,
    /// A value that this program does not know.
    Other(u16),
}

/// A word that is no ipvlan mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown ipvlan mode: {0:?}: expected l2, l3 or l3s")]
pub struct IpvlanModeError(String);

/// Who may use a tap, and how (`IFLA_TUN_*`, linux/if_link.h). `None`: anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tun {
    /// The user who alone may open it without `CAP_NET_ADMIN`.
    pub owner: Option<u32>,
    /// The group whose members alone may.
    pub group: Option<u32>,
    /// Several descriptors may share it, a queue each.
    pub multi_queue: bool,
}

/// A bridge's properties. `None`: the kernel's default when written; not supported by the kernel when read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bridge {
    /// Ports belong to VLANs (`vlan_filtering`).
    pub vlan_filtering: Option<bool>,
    /// VLAN of untagged packets of a new port (`vlan_default_pvid`); 0: none.
    pub vlan_default_pvid: Option<u16>,
    /// Spanning tree protocol (`stp_state`).
    pub stp: Option<bool>,
    /// Frames to 01:80:c2:00:00:0X, which are for the bridge itself and pass no firewall, do not tell it where their senders
    /// are (`no_linklocal_learn`, Linux 5.0; ignored by an older one).
    pub no_linklocal_learn: Option<bool>,
    /// What the bridge passes on from port to port is seen by the IPv4 and IPv6 rules of the host (`nf_call_iptables` and
    /// `nf_call_ip6tables`), also where `net.bridge.bridge-nf-call-iptables` says that it is not. Has an effect while the module
    /// `br_netfilter` is loaded. Read: both are so.
    pub netfilter: Option<bool>,
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

// === impl IpvlanMode ===

impl IpvlanMode {
    /// `None` without a mode.
    pub(super) fn parse(data: &[u8]) -> Option<Self> {
        Attributes(data).find(|(kind, _)| *kind == IFLA_IPVLAN_MODE).and_then(|(_, value)| u16_at(value)).map(IpvlanMode::from)
    }
}

impl From<u16> for IpvlanMode {
    fn from(value: u16) -> Self {
        match value {
            0 => IpvlanMode::L2,
            1 => IpvlanMode::L3,
            2 => IpvlanMode::L3s,
            other => IpvlanMode::Other(other),
        }
    }
}

impl From<IpvlanMode> for u16 {
    fn from(mode: IpvlanMode) -> Self {
        match mode {
            IpvlanMode::L2 => 0,
            IpvlanMode::L3 => 1,
            IpvlanMode::L3s => 2,
            IpvlanMode::Other(other) => other,
        }
    }
}

impl fmt::Display for IpvlanMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IpvlanMode::L2 => "l2",
            IpvlanMode::L3 => "l3",
            IpvlanMode::L3s => "l3s",
            IpvlanMode::Other(other) => return write!(f, "{other:#x}"),
        })
    }
}

impl FromStr for IpvlanMode {
    type Err = IpvlanModeError;

    fn from_str(s: &str) -> Result<Self, IpvlanModeError> {
        match s {
            "l2" => Ok(IpvlanMode::L2),
            "l3" => Ok(IpvlanMode::L3),
            "l3s" => Ok(IpvlanMode::L3s),
            _ => Err(IpvlanModeError(s.chars().take(80).collect())),
        }
    }
}

/// The number of a VLAN (`IFLA_VLAN_ID`), from a vlan's properties.
pub(super) fn vlan_id(data: &[u8]) -> Option<u16> {
    Attributes(data).find(|(kind, _)| *kind == IFLA_VLAN_ID).and_then(|(_, value)| u16_at(value))
}

/// The routing table of a VRF (`IFLA_VRF_TABLE`), from its properties.
pub(super) fn vrf_table(data: &[u8]) -> Option<u32> {
    Attributes(data).find(|(kind, _)| *kind == IFLA_VRF_TABLE).and_then(|(_, value)| u32_at(value))
}

// === impl Tun ===

impl Tun {
    pub(super) fn parse(data: &[u8]) -> Self {
        let mut tun = Tun::default();
        for (kind, value) in Attributes(data) {
            match kind {
                IFLA_TUN_OWNER => tun.owner = u32_at(value),
                IFLA_TUN_GROUP => tun.group = u32_at(value),
                IFLA_TUN_MULTI_QUEUE => tun.multi_queue = value.first().is_some_and(|b| *b != 0),
                _ => {}
            }
        }
        tun
    }
}

/// `1 << BR_BOOLOPT_NO_LL_LEARN` (linux/if_bridge.h)
const NO_LINKLOCAL_LEARN: u32 = 1;

// === impl Bridge ===

impl Bridge {
    pub(super) fn parse(data: &[u8]) -> Self {
        let mut bridge = Bridge::default();
        for (kind, value) in Attributes(data) {
            match kind {
                IFLA_BR_VLAN_FILTERING => bridge.vlan_filtering = value.first().map(|b| *b != 0),
                IFLA_BR_VLAN_DEFAULT_PVID => bridge.vlan_default_pvid = u16_at(value),
                IFLA_BR_STP_STATE => bridge.stp = u32_at(value).map(|n| n != 0),
                IFLA_BR_MULTI_BOOLOPT => bridge.no_linklocal_learn = u32_at(value).map(|bits| bits & NO_LINKLOCAL_LEARN != 0),
                IFLA_BR_NF_CALL_IPTABLES | IFLA_BR_NF_CALL_IP6TABLES => {
                    let is_on = value.first().is_some_and(|b| *b != 0);
                    bridge.netfilter = Some(is_on && bridge.netfilter != Some(false));
                }
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
        if let Some(on) = self.netfilter {
            data.put_u8(IFLA_BR_NF_CALL_IPTABLES, on.into());
            data.put_u8(IFLA_BR_NF_CALL_IP6TABLES, on.into());
        }
        if let Some(on) = self.no_linklocal_learn {
            // Which are on, and which are meant.
            let value = if on { NO_LINKLOCAL_LEARN } else { 0 };
            let both = [value.to_ne_bytes(), NO_LINKLOCAL_LEARN.to_ne_bytes()];
            data.put(IFLA_BR_MULTI_BOOLOPT, both.as_flattened());
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
        assert_eq!(error.to_string(), "unknown macvlan mode: \"Bridge\": expected bridge, private, vepa or passthru");
    }
    #[test]
    fn ipvlan_modes_have_names() {
        for mode in [IpvlanMode::L2, IpvlanMode::L3, IpvlanMode::L3s] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            assert_eq!(IpvlanMode::from(u16::from(mode)), mode);
        }
        assert_eq!(IpvlanMode::from(9).to_string(), "0x9");
        assert_eq!("L2".parse::<IpvlanMode>().unwrap_err().to_string(), "unknown ipvlan mode: \"L2\": expected l2, l3 or l3s");
    }

    /// As the kernel tells them, among attributes that we do not read; cut short, they are not there.
    #[test]
    fn what_is_read_of_vlan_ipvlan_and_vrf() {
        let vlan =
            [&[6, 0, 5, 0, 0x81, 0, 0, 0][..], &[6, 0, 1, 0, 0xfe, 0x0f, 0, 0], &[12, 0, 2, 0, 1, 0, 0, 0, 255, 255, 255, 255]].concat();
        assert_eq!(vlan_id(&vlan), Some(4094));
        let ipvlan = [6, 0, 2, 0, 1, 0, 0, 0, 6, 0, 1, 0, 2, 0, 0, 0];
        assert_eq!(IpvlanMode::parse(&ipvlan), Some(IpvlanMode::L3s));
        let vrf = [8, 0, 1, 0, 0xe9, 3, 0, 0];
        assert_eq!(vrf_table(&vrf), Some(1001));
        for cut in 0..8 {
            assert_eq!((vlan_id(&vlan[8..8 + cut.min(5)]), vrf_table(&vrf[..cut])), (None, None), "{cut}");
            assert_eq!(IpvlanMode::parse(&ipvlan[..8 + cut.min(5)]), None, "{cut}");
        }
    }
}
