//! What a rule is made of: expressions that load a register, compare it, and act.
//! Each variant is one `nft_expr_ops` of the kernel; a new one is a variant and its arm
//! in [`Expr::write`].

use super::element::{DATA_VERDICT, VERDICT_CODE, write_jump};
use super::wire::Writer;

pub(super) const EXPR_NAME: u16 = 1;
pub(super) const EXPR_DATA: u16 = 2;
/// What a set has that counts, and a rule.
pub(super) const COUNTER: &str = "counter";
const DATA_VALUE: u16 = 1;
const NFT_REG_VERDICT: u32 = 0;
/// `NFT_META_MARK`
const MARK: u32 = 3;

/// A place in the kernel's 64-byte register file, counted in four-byte words from 0.
///
/// Fields that are looked up together lie side by side: after an IPv4 address at word 0
/// comes word 1, after an IPv6 address word 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reg(u8);

/// A packet header that a payload is counted from (`NFT_PAYLOAD_*_HEADER`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Header {
    /// The Ethernet header.
    Link,
    /// The IPv4 or IPv6 header.
    Network,
    /// The TCP, UDP, SCTP or ICMP header.
    Transport,
}

/// What is known of a packet besides its bytes (`NFT_META_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Meta {
    /// `meta protocol`: two bytes in network order, an Ethernet type. A VLAN tag that the kernel has taken off is not it.
    Protocol,
    /// `meta nfproto`: one byte, 2 for IPv4 and 10 for IPv6.
    Nfproto,
    /// `meta l4proto`: one byte, an IP protocol number.
    L4proto,
    /// `meta iif`: four bytes in the machine's order, the index of the interface that it came by.
    Iif,
    /// `meta iifname`: 16 bytes, its name, filled up with zeros.
    IifName,
    /// `meta oifname`: the same of the interface that it leaves by; all zeros where it leaves by none.
    OifName,
    /// `meta iifkind`: 16 bytes, the kind that it was made with, as `veth` or `wireguard`, filled up with zeros. It has none, and the rule ends,
    /// where it was not made by a user (Linux 5.1).
    IifKind,
    /// `meta mark`: four bytes in the machine's order.
    Mark,
}

/// What is known of the connection that a packet is of (`NFT_CT_*`): four bytes in the machine's order, a bit a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ct {
    /// `ct state`: [`Ct::ESTABLISHED`], [`Ct::RELATED`].
    State,
    /// `ct status`: [`Ct::SNAT`] or [`Ct::DNAT`].
    Status,
}

/// A part of where the first packet of a connection was sent, before anything rewrote it (`NFT_CT_*` with `IP_CT_DIR_ORIGINAL`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Original {
    /// `ct original ip daddr`: four bytes. The rule ends for a connection of IPv6.
    Ipv4Daddr,
    /// `ct original ip6 daddr`: 16 bytes. The rule ends for a connection of IPv4.
    Ipv6Daddr,
    /// `ct original proto-dst`: two bytes in network order.
    Port,
}

/// How a register is compared with a value (`NFT_CMP_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cmp {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
}

/// What becomes of a packet (`NFT_RETURN` and the `NF_*` verdicts).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// `accept`
    Accept,
    /// `drop`
    Drop,
    /// `return`: on with the calling chain; in a base chain, its policy.
    Return,
}

/// One step of a rule. A comparison or a lookup that does not hold ends the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expr {
    /// Loads what is known of the packet: `meta load KEY => reg`.
    Meta {
        /// What to load.
        key: Meta,
        /// Where to.
        into: Reg,
    },
    /// Loads bytes of the packet: `payload load LENb @ HEADER + OFFSET => reg`.
    Payload {
        /// What the offset counts from.
        header: Header,
        /// First byte.
        offset: u32,
        /// How many bytes.
        len: u32,
        /// Where to.
        into: Reg,
    },
    /// Keeps only the bits of the mask: `bitwise reg = (reg & MASK) ^ 0`.
    Mask {
        /// Read and written.
        reg: Reg,
        /// As long as what was loaded.
        mask: Vec<u8>,
    },
    /// Sets and clears bits of four bytes in the machine's order: `bitwise reg = (reg & KEEP) ^ SET`.
    Bits {
        /// Read and written.
        reg: Reg,
        /// Those that stay as they are.
        keep: u32,
        /// Those that are set; none of them is kept.
        set: u32,
    },
    /// Marks the packet with a register: `meta mark set reg`.
    SetMark(Reg),
    /// Goes on if the register compares so: `cmp eq reg VALUE`.
    Cmp {
        /// What is compared.
        reg: Reg,
        /// How.
        how: Cmp,
        /// With what.
        value: Vec<u8>,
    },
    /// Goes on if the set has the registers as an element: `lookup reg set NAME`.
    Lookup {
        /// The first register of the key.
        reg: Reg,
        /// A set of the rule's own table.
        set: String,
        /// Goes on if the set has it *not*: `!= @NAME`.
        negate: bool,
    },
    /// Does what the map says, if it has the registers as a key: `vmap @NAME`.
    VerdictMap {
        /// The first register of the key.
        reg: Reg,
        /// A map of the rule's own table, to verdicts.
        map: String,
    },
    /// Loads what the map has for the registers, and goes on if it has something: `map @NAME`.
    Map {
        /// The first register of the key.
        reg: Reg,
        /// A map of the rule's own table, to fields.
        map: String,
        /// The first register of what it leads to.
        into: Reg,
    },
    /// Loads what is known of the connection: `ct load KEY => reg`.
    Ct {
        /// What to load.
        key: Ct,
        /// Where to.
        into: Reg,
    },
    /// Loads where the connection's first packet was sent: `ct load KEY => reg, dir original`. The rule ends for a packet that is not tracked.
    Original {
        /// What to load.
        key: Original,
        /// Where to.
        into: Reg,
    },
    /// Loads what kind of address the destination is (`RTN_*`, four bytes in the machine's order): `fib daddr type => reg`.
    DestinationType {
        /// Where to.
        into: Reg,
    },
    /// The same by the addresses of the interface that the packet came by alone: `fib daddr . iif type => reg`.
    DestinationTypeOnLink {
        /// Where to.
        into: Reg,
    },
    /// Loads whether the host's way back to the packet's source leads out of the interface that it came by, four bytes, as strict reverse-path
    /// filtering asks: `fib saddr . iif oif present => reg`. In chains at prerouting, input and forward, and those that they jump to.
    ReversePath {
        /// Where to.
        into: Reg,
    },
    /// Rewrites the destination: `dnat ip to ADDRESS . PORT`. Only in a `nat` chain at prerouting or output.
    Dnat {
        /// The addresses' family: NFPROTO_IPV4 and _IPV6 are AF_INET and AF_INET6.
        ip: crate::Family,
        /// Where the new address is.
        address: Reg,
        /// Where the new port is.
        port: Reg,
    },
    /// Runs another chain of the table, and goes on behind this rule: `jump CHAIN`.
    Jump(String),
    /// Counts packets and bytes: `counter`.
    Counter,
    /// Rewrites the source to the address of the interface that the packet leaves by:
    /// `masquerade`. Only in a `nat` chain at postrouting.
    Masquerade,
    /// Decides at once: `accept`, `drop`, `return`.
    Verdict(Verdict),
}

// === impl Reg ===

impl Reg {
    /// Word 0, where nearly every rule begins.
    pub const FIRST: Self = Self(0);

    /// The register at a word, 0 to 15; a later one wraps, as there is none.
    #[must_use]
    pub const fn word(word: u8) -> Self {
        Self(word % 16)
    }

    /// `NFT_REG_1..4` where a 16-byte register begins, `NFT_REG32_00..15` elsewhere: the
    /// same bytes have two names, and this is the choice of `nft`.
    fn number(self) -> u32 {
        if self.0.is_multiple_of(4) { u32::from(self.0 / 4) + 1 } else { u32::from(self.0) + 8 }
    }
}

// === impl Ct ===

impl Ct {
    /// In `ct state`: packets went both ways.
    pub const ESTABLISHED: u32 = 2;
    /// In `ct state`: another connection has announced it.
    pub const RELATED: u32 = 4;
    /// In `ct state`: nobody tracks it (`NF_CT_STATE_UNTRACKED_BIT`).
    pub const UNTRACKED: u32 = 0x40;
    /// In `ct status`: its source was rewritten (`IPS_SRC_NAT`).
    pub const SNAT: u32 = 0x10;
    /// In `ct status`: its destination was rewritten (`IPS_DST_NAT`).
    pub const DNAT: u32 = 0x20;
}

// === impl Verdict ===

impl Verdict {
    fn code(self) -> i32 {
        match self {
            Self::Drop => 0,
            Self::Accept => 1,
            Self::Return => -5,
        }
    }
}

// === impl Expr ===

impl Expr {
    /// `ip saddr` into a register.
    #[must_use]
    pub const fn ip_saddr(into: Reg) -> Self {
        Self::network(12, 4, into)
    }

    /// `ip daddr` into a register.
    #[must_use]
    pub const fn ip_daddr(into: Reg) -> Self {
        Self::network(16, 4, into)
    }

    /// `ip6 saddr` into a register.
    #[must_use]
    pub const fn ip6_saddr(into: Reg) -> Self {
        Self::network(8, 16, into)
    }

    /// `ip6 daddr` into a register.
    #[must_use]
    pub const fn ip6_daddr(into: Reg) -> Self {
        Self::network(24, 16, into)
    }

    /// `ether saddr` into a register; it takes two words.
    #[must_use]
    pub const fn ether_saddr(into: Reg) -> Self {
        Self::Payload { header: Header::Link, offset: 6, len: 6, into }
    }

    /// `ether daddr` into a register; it takes two words.
    #[must_use]
    pub const fn ether_daddr(into: Reg) -> Self {
        Self::Payload { header: Header::Link, offset: 0, len: 6, into }
    }

    /// Bytes of the IP header into a register.
    #[must_use]
    pub const fn network(offset: u32, len: u32, into: Reg) -> Self {
        Self::Payload { header: Header::Network, offset, len, into }
    }

    /// The name that the kernel finds the expression's code by.
    fn name(&self) -> &'static str {
        match self {
            Self::Meta { .. } | Self::SetMark(_) => "meta",
            Self::Payload { .. } => "payload",
            Self::Mask { .. } | Self::Bits { .. } => "bitwise",
            Self::Cmp { .. } => "cmp",
            Self::Lookup { .. } | Self::VerdictMap { .. } | Self::Map { .. } => "lookup",
            Self::Ct { .. } | Self::Original { .. } => "ct",
            Self::DestinationType { .. } | Self::DestinationTypeOnLink { .. } | Self::ReversePath { .. } => "fib",
            Self::Dnat { .. } => "nat",
            Self::Counter => COUNTER,
            Self::Masquerade => "masq",
            Self::Verdict(_) | Self::Jump(_) => "immediate",
        }
    }

    /// Writes the expression as an `NFTA_LIST_ELEM`; attributes in the order of `nft`.
    pub(super) fn write(&self, w: &mut Writer) {
        const LIST_ELEM: u16 = 1;
        w.nested(LIST_ELEM, |w| self.write_bare(w));
    }

    /// Writes the expression's name and what is special to it.
    pub(super) fn write_bare(&self, w: &mut Writer) {
        w.name(EXPR_NAME, self.name());
        w.nested(EXPR_DATA, |w| self.write_data(w));
    }

    fn write_data(&self, w: &mut Writer) {
        let value = |w: &mut Writer, kind, bytes: &[u8]| {
            w.nested(kind, |w| w.bytes(DATA_VALUE, bytes));
        };
        match self {
            Self::Meta { key, into } => {
                w.number(
                    2,
                    match key {
                        Meta::Protocol => 1,
                        Meta::Nfproto => 15,
                        Meta::L4proto => 16,
                        Meta::Iif => 4,
                        Meta::IifName => 6,
                        Meta::OifName => 7,
                        Meta::IifKind => 26,
                        Meta::Mark => MARK,
                    },
                );
                w.number(1, into.number());
            }
            Self::Payload { header, offset, len, into } => {
                w.number(1, into.number());
                w.number(
                    2,
                    match header {
                        Header::Link => 0,
                        Header::Network => 1,
                        Header::Transport => 2,
                    },
                );
                w.number(3, *offset);
                w.number(4, *len);
            }
            Self::Mask { reg, mask } => {
                w.number(1, reg.number());
                w.number(2, reg.number());
                w.number(3, u32::try_from(mask.len()).unwrap_or(u32::MAX));
                value(w, 4, mask);
                value(w, 5, &vec![0; mask.len()]);
            }
            Self::Bits { reg, keep, set } => {
                w.number(1, reg.number());
                w.number(2, reg.number());
                w.number(3, 4);
                value(w, 4, &keep.to_ne_bytes());
                value(w, 5, &set.to_ne_bytes());
            }
            Self::SetMark(reg) => {
                w.number(2, MARK);
                w.number(3, reg.number());
            }
            Self::Cmp { reg, how, value: bytes } => {
                w.number(1, reg.number());
                w.number(
                    2,
                    match how {
                        Cmp::Equal => 0,
                        Cmp::NotEqual => 1,
                    },
                );
                value(w, 3, bytes);
            }
            Self::Lookup { reg, set, negate } => {
                w.number(2, reg.number());
                w.name(1, set);
                if *negate {
                    // NFT_LOOKUP_F_INV
                    w.number(5, 1);
                }
            }
            Self::VerdictMap { reg, map } => {
                w.number(2, reg.number());
                w.number(3, NFT_REG_VERDICT);
                w.name(1, map);
            }
            Self::Map { reg, map, into } => {
                w.number(2, reg.number());
                w.number(3, into.number());
                w.name(1, map);
            }
            Self::Ct { key, into } => {
                w.number(
                    2,
                    match key {
                        Ct::State => 0,
                        Ct::Status => 2,
                    },
                );
                w.number(1, into.number());
            }
            Self::Original { key, into } => {
                w.number(
                    2,
                    match key {
                        Original::Port => 12,
                        Original::Ipv4Daddr => 20,
                        Original::Ipv6Daddr => 22,
                    },
                );
                w.number(1, into.number());
                // NFTA_CT_DIRECTION
                w.bytes(3, &[0]);
            }
            Self::DestinationType { into } => {
                // NFTA_FIB_F_DADDR, NFT_FIB_RESULT_ADDRTYPE
                w.number(3, 2);
                w.number(2, 3);
                w.number(1, into.number());
            }
            Self::DestinationTypeOnLink { into } => {
                // NFTA_FIB_F_DADDR and _IIF, NFT_FIB_RESULT_ADDRTYPE
                w.number(3, 2 | 8);
                w.number(2, 3);
                w.number(1, into.number());
            }
            Self::ReversePath { into } => {
                // NFTA_FIB_F_SADDR, _IIF and _PRESENT, NFT_FIB_RESULT_OIF
                w.number(3, 1 | 8 | 32);
                w.number(2, 1);
                w.number(1, into.number());
            }
            Self::Dnat { ip, address, port } => {
                // NFT_NAT_DNAT
                w.number(1, 1);
                w.number(2, ip.number().into());
                w.number(3, address.number());
                w.number(5, port.number());
            }
            Self::Jump(chain) => {
                w.number(1, NFT_REG_VERDICT);
                w.nested(2, |w| write_jump(w, chain));
            }
            // Both begin at their defaults: nothing counted, any address and port.
            Self::Counter | Self::Masquerade => {}
            Self::Verdict(verdict) => {
                w.number(1, NFT_REG_VERDICT);
                w.nested(2, |w| {
                    w.nested(DATA_VERDICT, |w| w.bytes(VERDICT_CODE, &verdict.code().to_be_bytes()));
                });
            }
        }
    }
}
