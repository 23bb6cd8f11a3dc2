//! What a ruleset is made of: tables, sets, chains and rules, as they are written to the
//! kernel. Attributes stand in the order of `nft`, so that both can be compared.

use super::element::write_comment;
use super::wire::Writer;
use super::{Expr, Family};

/// A table: `table inet NAME { comment "..." }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Which packets its chains see.
    pub family: Family,
    /// Its name.
    pub name: String,
    /// At most 127 bytes; kept from the moment of creation, never changed later.
    pub comment: Option<String>,
}

/// A field of a set's key, by the name and number that `nft` has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// `ipv4_addr`, four bytes.
    Ipv4Addr,
    /// `ipv6_addr`, 16 bytes.
    Ipv6Addr,
    /// `inet_proto`, one byte: an IP protocol number.
    InetProto,
    /// `inet_service`, two bytes: a port.
    InetService,
    /// `ether_addr`, six bytes.
    EtherAddr,
    /// `iface_index`, four bytes in the machine's order: an interface's number, which `nft` shows as its name.
    IfIndex,
    /// `ifname`, 16 bytes: an interface's name, filled up with zeros.
    IfName,
}

/// What the elements of a map lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapTo {
    /// `verdict`: [`Data::Jump`](super::Data::Jump).
    Verdict,
    /// `FIELD . FIELD`: [`Data::Value`](super::Data::Value).
    Fields(Vec<Field>),
}

/// A set: `set NAME { type FIELD . FIELD; flags interval }`; or a map: `map NAME { type FIELD : verdict; }`, or to fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// The family of its table.
    pub family: Family,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// Its key: one field, or several of a concatenation (up to 64 bytes in all).
    pub key: Vec<Field>,
    /// `flags interval`: elements are ranges in every field. In a concatenation each is an
    /// [`Element`](super::Element); a range of a single field is a pair of elements, a
    /// [`SetRange`](super::SetRange).
    pub interval: bool,
    /// `None` for a set.
    pub maps_to: Option<MapTo>,
    /// `counter`: each element has a [`Count`](super::Count) of the packets that a look-up found it for (Linux 5.7).
    pub counted: bool,
    /// `size`: how many elements it has at most; the kernel refuses more (`ENFILE`). One that has no ranges is then a table of fixed size, which is looked up
    /// faster than one that grows (net/netfilter/nft_set_hash.c). `None`: any number.
    pub size: Option<u32>,
}

/// Where the kernel calls a base chain (`NF_INET_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hook {
    /// Every packet that came in, before routing.
    Prerouting,
    /// A packet for this host.
    Input,
    /// A packet passing through.
    Forward,
    /// A packet made here.
    Output,
    /// Every packet about to leave.
    Postrouting,
}

/// What a base chain may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChainType {
    /// `filter`: sees every packet.
    Filter,
    /// `nat`: sees the first packet of each connection.
    Nat,
}

/// What makes a chain a base chain; its policy is `accept`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Base {
    /// What it may do.
    pub kind: ChainType,
    /// Where it is called.
    pub hook: Hook,
    /// Its turn at the hook, lower first; see [`Base::SRCNAT`].
    pub priority: i32,
}

/// A chain: `chain NAME { type nat hook postrouting priority srcnat; policy accept; }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The family of its table.
    pub family: Family,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// `None` for a regular chain, which runs only where a rule jumps to it.
    pub base: Option<Base>,
}

/// A rule, added behind the others of its chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The family of its table.
    pub family: Family,
    /// Its table.
    pub table: String,
    /// Its chain.
    pub chain: String,
    /// What it does, in order.
    pub exprs: Vec<Expr>,
}

// === impl Base ===

impl Base {
    /// `priority srcnat`: where source addresses are rewritten (`NF_IP_PRI_NAT_SRC`).
    pub const SRCNAT: i32 = 100;
    /// `priority dstnat`: where destination addresses are rewritten (`NF_IP_PRI_NAT_DST`).
    pub const DSTNAT: i32 = -100;
    /// `priority filter` (`NF_IP_PRI_FILTER`).
    pub const FILTER: i32 = 0;
}

// === impl Field ===

impl Field {
    /// Bytes in a key of several fields: each is padded to four.
    #[must_use]
    pub const fn size(self) -> u32 {
        match self {
            Self::Ipv4Addr | Self::InetProto | Self::InetService | Self::IfIndex => 4,
            Self::EtherAddr => 8,
            Self::Ipv6Addr | Self::IfName => 16,
        }
    }

    /// Bytes of a key with these fields. One that stands alone is not padded.
    fn length(fields: &[Self]) -> u32 {
        match fields {
            [Self::InetService] => 2,
            fields => fields.iter().map(|field| field.size()).sum(),
        }
    }

    /// The number in `nft`'s table of data types; the kernel only keeps it.
    fn number(self) -> u32 {
        match self {
            Self::Ipv4Addr => 7,
            Self::Ipv6Addr => 8,
            Self::InetProto => 12,
            Self::InetService => 13,
            Self::EtherAddr => 9,
            Self::IfIndex => 20,
            Self::IfName => 41,
        }
    }

    /// As `nft` packs a concatenation: six bits a field, the first uppermost.
    fn numbers(fields: &[Self]) -> u32 {
        fields.iter().fold(0, |all, f| all << 6 | f.number())
    }
}

// === impl Table ===

impl Table {
    pub(super) fn write(&self, w: &mut Writer) {
        const UDATA_TABLE_COMMENT: u8 = 0;
        w.name(1, &self.name);
        w.number(2, 0);
        if let Some(comment) = &self.comment {
            write_comment(w, 6, UDATA_TABLE_COMMENT, comment);
        }
    }
}

// === impl Chain ===

impl Chain {
    pub(super) fn write(&self, w: &mut Writer) {
        const NF_ACCEPT: u32 = 1;
        w.name(1, &self.table);
        w.name(3, &self.name);
        let Some(base) = &self.base else { return };
        w.name(
            7,
            match base.kind {
                ChainType::Filter => "filter",
                ChainType::Nat => "nat",
            },
        );
        w.number(5, NF_ACCEPT);
        w.nested(4, |w| {
            w.number(
                1,
                match base.hook {
                    Hook::Prerouting => 0,
                    Hook::Input => 1,
                    Hook::Forward => 2,
                    Hook::Output => 3,
                    Hook::Postrouting => 4,
                },
            );
            w.bytes(2, &base.priority.to_be_bytes());
        });
    }
}

// === impl Set ===

impl Set {
    const INTERVAL: u32 = 0x4;
    const MAP: u32 = 0x8;
    const CONCAT: u32 = 0x80;
    /// `NFT_DATA_VERDICT`
    const VERDICT: u32 = 0xffff_ff00;

    pub(super) fn write(&self, w: &mut Writer, id: u32) {
        let concat = self.key.len() > 1;
        let flag = |flag, holds| if holds { flag } else { 0 };
        let flags =
            flag(Self::INTERVAL, self.interval) | flag(Self::MAP, self.maps_to.is_some()) | flag(Self::CONCAT, concat && self.interval);
        w.name(1, &self.table);
        w.name(2, &self.name);
        w.number(3, flags);
        w.number(4, Field::numbers(&self.key));
        w.number(5, Field::length(&self.key));
        match &self.maps_to {
            None => {}
            Some(MapTo::Verdict) => {
                w.number(6, Self::VERDICT);
                w.number(7, 0);
            }
            Some(MapTo::Fields(fields)) => {
                w.number(6, Field::numbers(fields));
                w.number(7, fields.iter().map(|f| f.size()).sum());
            }
        }
        w.number(10, id);
        let has_fields = concat && self.interval;
        if has_fields || self.size.is_some() {
            self.write_description(w, has_fields);
        }
        if !concat {
            // Tells `nft list` the byte order: KEYBYTEORDER, 4 bytes, BYTEORDER_HOST_ENDIAN (as it has it for names) or
            // _BIG_ENDIAN in the machine's own order.
            let order: u32 = if matches!(self.key[..], [Field::IfName | Field::IfIndex]) { 1 } else { 2 };
            let [a, b, c, d] = order.to_ne_bytes();
            w.bytes(13, &[0, 4, a, b, c, d]);
        }
        if self.counted {
            w.nested(17, |w| Expr::Counter.write_bare(w));
        }
    }

    /// `NFTA_SET_DESC_SIZE`, and `NFTA_SET_DESC_CONCAT`: the length of each field, without which the kernel would
    /// take the key for one long number.
    fn write_description(&self, w: &mut Writer, has_fields: bool) {
        w.nested(9, |w| {
            if let Some(size) = self.size {
                w.number(1, size);
            }
            if has_fields {
                w.nested(2, |w| {
                    for field in &self.key {
                        w.nested(1, |w| w.number(1, field.size()));
                    }
                });
            }
        });
    }
}

// === impl Rule ===

impl Rule {
    pub(super) fn write(&self, w: &mut Writer) {
        w.name(1, &self.table);
        w.name(2, &self.chain);
        w.nested(4, |w| self.exprs.iter().for_each(|e| e.write(w)));
    }
}
