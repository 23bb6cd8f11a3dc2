//! What iptables writes into nftables through modules of its own (`xt_*`), as the steps that nftables itself would have.
//!
//! ```text
//!   match: name, revision, info    -> load, mask, compare, ...      the info is a structure of include/uapi/linux/netfilter/xt_*.h
//!   target: name, revision, info   -> load, load, dnat, ...
//! ```
//!
//! The modules use no registers. These steps use those from byte 32 on, which iptables leaves alone.

use super::listing::{ListedHeader, Op};

/// Where an address or a number is loaded.
const AT: u8 = 32;
/// Where a port is loaded beside it.
const BESIDE: u8 = 48;
/// `NFT_META_MARK`
const MARK: u32 = 3;
/// `NFT_CT_STATE`, `NFT_CT_STATUS`
const STATE: u32 = 0;
const STATUS: u32 = 2;
/// `NFT_CMP_EQ`, `NFT_CMP_NEQ`
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;

/// The steps of a match; `None`: it is not understood.
pub(super) fn matched(name: &str, revision: u32, info: &[u8]) -> Option<Vec<Op>> {
    match (name, revision) {
        // Says something, counts.
        ("comment" | "nfacct", _) => Some(vec![Op::Nothing]),
        ("tcp", 0) => tcp(info),
        ("udp", 0) => ports(info, *info.get(8)?),
        ("mark", 1) => {
            let (mark, mask, is_inverted) = (word(info, 0)?, word(info, 4)?, *info.get(8)? != 0);
            Some(vec![Op::Meta { key: MARK, into: AT }, masked(mask, 0), compared(mark, is_inverted)])
        }
        ("addrtype", 1) => address_types(info),
        ("conntrack", 2 | 3) => conntrack(info),
        // By chance, or each so many packets: which packet it is cannot be seen before.
        ("statistic", 0) => Some(vec![Op::Choice { into: AT, modulus: 2, offset: 0 }, compared(0, false)]),
        // What notes the packet's address always holds; whether it was noted before is not known.
        ("recent", _) if *info.get(8)? & 0xf == 2 && *info.get(9)? == 0 => Some(vec![Op::Nothing]),
        _ => None,
    }
}

/// The steps of a target; `None`: it is not understood, and may decide anything.
pub(super) fn target(name: &str, revision: u32, info: &[u8]) -> Option<Vec<Op>> {
    match (name, revision) {
        ("MASQUERADE", _) => Some(vec![Op::Masquerade]),
        ("REJECT", _) => Some(vec![Op::Reject]),
        ("NOTRACK", _) => Some(vec![Op::Untracked]),
        // XT_CT_NOTRACK
        ("CT", _) if u16::from_ne_bytes(*info.first_chunk()?) & 1 != 0 => Some(vec![Op::Untracked]),
        ("LOG" | "NFLOG" | "TRACE" | "CT" | "TCPMSS" | "CHECKSUM" | "DSCP" | "TOS" | "CLASSIFY", _) => Some(vec![Op::Nothing]),
        ("MARK", 2) => {
            let (mark, mask) = (word(info, 0)?, word(info, 4)?);
            Some(vec![Op::Meta { key: MARK, into: AT }, masked(!mask, mark), Op::SetMark { from: AT }])
        }
        ("DNAT", _) => {
            let (mut steps, address, port) = translation(revision, info)?;
            steps.push(Op::Dnat { address, port });
            Some(steps)
        }
        ("SNAT", _) => {
            let (mut steps, address, _) = translation(revision, info)?;
            steps.push(Op::Snat { address });
            Some(steps)
        }
        _ => None,
    }
}

/// What `-m comment` says: a text that ends with a zero.
pub(super) fn comment(info: &[u8]) -> Option<String> {
    let text = info.split(|byte| *byte == 0).next().filter(|text| !text.is_empty())?;
    Some(String::from_utf8_lossy(text).into_owned())
}

/// A number in the machine's order.
fn word(info: &[u8], at: usize) -> Option<u32> {
    info.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

fn half(info: &[u8], at: usize) -> Option<u16> {
    info.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

fn masked(mask: u32, xor: u32) -> Op {
    Op::Mask { from: AT, into: AT, mask: mask.to_ne_bytes().to_vec(), xor: xor.to_ne_bytes().to_vec() }
}

fn compared(with: u32, is_inverted: bool) -> Op {
    Op::Compare { at: AT, how: if is_inverted { NOT_EQUAL } else { EQUAL }, value: with.to_ne_bytes().to_vec() }
}

/// `struct xt_tcp`: source ports, destination ports, option, mask and value of the flags, what is inverted.
fn tcp(info: &[u8]) -> Option<Vec<Op>> {
    let (option, mask, flags, inverted) = (*info.get(8)?, *info.get(9)?, *info.get(10)?, *info.get(11)?);
    let mut steps = ports(info, inverted)?;
    if option != 0 {
        return None;
    }
    if mask != 0 {
        let how = if inverted & 4 != 0 { NOT_EQUAL } else { EQUAL };
        steps.push(Op::Payload { header: ListedHeader::Transport, offset: 13, len: 1, into: AT });
        steps.push(Op::Mask { from: AT, into: AT, mask: vec![mask], xor: vec![0] });
        steps.push(Op::Compare { at: AT, how, value: vec![flags] });
    }
    Some(steps)
}

/// The first and the last port of source and destination, in the machine's order.
fn ports(info: &[u8], inverted: u8) -> Option<Vec<Op>> {
    let mut steps = Vec::new();
    for (offset, at, bit) in [(0, 0, 1), (2, 4, 2)] {
        let (first, last) = (half(info, at)?, half(info, at + 2)?);
        let negated = inverted & bit != 0;
        if (first, last) != (0, u16::MAX) || negated {
            steps.push(Op::Payload { header: ListedHeader::Transport, offset, len: 2, into: AT });
            steps.push(Op::Range { at: AT, negated, from: first.to_be_bytes().to_vec(), to: last.to_be_bytes().to_vec() });
        }
    }
    Some(steps)
}

/// `struct xt_addrtype_info_v1`: bits of `RTN_*` for source and destination; flags.
fn address_types(info: &[u8]) -> Option<Vec<Op>> {
    let (source, destination, flags) = (half(info, 0)?, half(info, 2)?, word(info, 4)?);
    // Only of the link that it comes or goes by.
    if flags & !3 != 0 {
        return None;
    }
    let mut steps = Vec::new();
    for (types, of_destination, inverted) in [(source, false, flags & 1), (destination, true, flags & 2)] {
        match types.count_ones() {
            0 => {}
            1 => {
                steps.push(Op::AddressType { of_destination, into: AT });
                steps.push(compared(types.trailing_zeros(), inverted != 0));
            }
            _ => return None,
        }
    }
    Some(steps)
}

/// `struct xt_conntrack_mtinfo2` and `3`: what is looked at, what is inverted, states. Other conditions are not understood.
fn conntrack(info: &[u8]) -> Option<Vec<Op>> {
    const OF_STATE: u16 = 1;
    // As bits of `ct state`, but for those of translation.
    const STATES: u16 = 0xf;
    const DNAT: u16 = 1 << 7;
    const DNAT_STATUS: u32 = 0x20;
    let (looks_at, inverted, states) = (half(info, 146)?, half(info, 148)?, half(info, 150)?);
    if looks_at != OF_STATE || states & !(STATES | DNAT) != 0 {
        return None;
    }
    let is_inverted = inverted & OF_STATE != 0;
    let of = |key, mask| [Op::Ct { key, into: AT }, masked(mask, 0), compared(0, !is_inverted)];
    let by_state = || of(STATE, u32::from(states & STATES));
    match (states & STATES != 0, states & DNAT != 0) {
        (true, false) => Some(by_state().to_vec()),
        (false, true) => Some(of(STATUS, DNAT_STATUS).to_vec()),
        // None of them: neither this nor that.
        (true, true) if is_inverted => Some(by_state().into_iter().chain(of(STATUS, DNAT_STATUS)).collect()),
        _ => None,
    }
}

/// `struct nf_nat_range2` and its forerunners: loads address and port. Of several addresses or ports, which one is not known.
fn translation(revision: u32, info: &[u8]) -> Option<(Vec<Op>, Option<u8>, Option<u8>)> {
    const HAS_ADDRESS: u32 = 1;
    const HAS_PORT: u32 = 2;
    let (flags, addresses, length, ports) = match revision {
        // nf_nat_ipv4_multi_range_compat: how many ranges, then one
        0 => (word(info, 4)?, 8, 4, 16),
        1 | 2 => (word(info, 0)?, 4, 16, 36),
        _ => return None,
    };
    let field = |at: usize, len: usize| info.get(at..at + len).map(<[u8]>::to_vec);
    let mut steps = Vec::new();
    let mut load = |into: u8, first: Vec<u8>, last: Vec<u8>| {
        let is_one = first == last;
        steps.push(Op::Load { into, value: first });
        is_one.then_some(into)
    };
    let address = match flags & HAS_ADDRESS {
        0 => None,
        _ => Some(load(AT, field(addresses, length)?, field(addresses + length, length)?)?),
    };
    let port = match flags & HAS_PORT {
        0 => None,
        _ => Some(load(BESIDE, field(ports, 2)?, field(ports + 2, 2)?)?),
    };
    Some((steps, address, port))
}
