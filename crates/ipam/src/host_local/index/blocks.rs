//! Which addresses are taken, as a tree of bitmaps: the first free address is found in as many steps as an address has
//! bytes, however many are taken.
//!
//! ```text
//! level 0    10.1.2    a bit for each of 10.1.2.0 to 10.1.2.255: taken
//! level 1    10.1      a bit for each of 10.1.0 to 10.1.255: all 256 of it are taken
//! level 2    10        a bit for each of 10.0 to 10.255: all of it is taken
//! ```
//!
//! A block without a bit is not stored, so a /64 costs no more than what is held of it.

use std::net::IpAddr;

use super::table::{Record, Table, mix};
use crate::range::number;

/// 256 addresses, or 256 blocks of the level below.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    v4: bool,
    level: u8,
    prefix: u128,
    bits: [u64; 4],
}

const FULL: [u64; 4] = [u64::MAX; 4];

impl Record for Block {
    const SIZE: usize = 49;

    fn home(&self) -> u64 {
        let tag = u64::from(self.level) << 1 | u64::from(self.v4);
        mix((self.prefix >> 64) as u64 ^ tag.rotate_left(56)) ^ self.prefix as u64
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.push(self.level << 1 | u8::from(self.v4));
        to.extend(self.prefix.to_le_bytes());
        self.bits.iter().for_each(|word| to.extend(word.to_le_bytes()));
    }

    fn decode(from: &[u8]) -> Option<Self> {
        let (tag, rest) = from.split_first()?;
        let (prefix, rest) = rest.split_first_chunk()?;
        let [a, b, c, d] = *rest.as_chunks::<8>().0 else { return None };
        let bits = [a, b, c, d].map(u64::from_le_bytes);
        Some(Block { v4: tag & 1 == 1, level: tag >> 1, prefix: u128::from_le_bytes(*prefix), bits })
    }
}

impl Block {
    fn empty(v4: bool, level: u8, prefix: u128) -> Self {
        Block { v4, level, prefix, bits: [0; 4] }
    }

    fn is(&self, other: &Block) -> bool {
        (self.v4, self.level, self.prefix) == (other.v4, other.level, other.prefix)
    }

    fn set(&mut self, bit: u8, to: bool) {
        if let Some(word) = self.bits.get_mut(usize::from(bit / 64)) {
            let mask = 1 << (bit % 64);
            *word = if to { *word | mask } else { *word & !mask };
        }
    }

    /// The first bit from `from` on that is not set.
    fn first_clear(&self, from: u8) -> Option<u8> {
        self.bits.iter().zip([0_u8, 64, 128, 192]).find_map(|(word, base)| {
            let below = u64::MAX.checked_shl(u32::from(from.saturating_sub(base))).map_or(u64::MAX, |mask| !mask);
            match (word | below).trailing_ones() {
                64 => None,
                bit => Some(base + bit as u8),
            }
        })
    }
}

/// How many levels a family has.
fn levels(v4: bool) -> u8 {
    if v4 { 4 } else { 16 }
}

/// A number without its last bytes; 16 of them are all.
fn without(n: u128, bytes: u8) -> u128 {
    n.checked_shr(u32::from(bytes) * 8).unwrap_or(0)
}

// === impl Table<Block> ===

impl Table<Block> {
    pub(super) fn take(&mut self, ip: IpAddr) {
        let (v4, n) = (ip.is_ipv4(), number(ip));
        for level in 0..levels(v4) {
            let mut block = self.block(v4, level, without(n, level + 1));
            block.set(without(n, level) as u8, true);
            self.put(block);
            if block.bits != FULL {
                return;
            }
        }
    }

    pub(super) fn free(&mut self, ip: IpAddr) {
        let (v4, n) = (ip.is_ipv4(), number(ip));
        for level in 0..levels(v4) {
            let mut block = self.block(v4, level, without(n, level + 1));
            let full = block.bits == FULL;
            block.set(without(n, level) as u8, false);
            self.put(block);
            if !full {
                return;
            }
        }
    }

    /// The first number from `from` to `to` whose address is free.
    pub(super) fn first_free(&mut self, v4: bool, from: u128, to: u128) -> Option<u128> {
        let (mut level, mut at) = (0, from);
        while level < levels(v4) && at <= to {
            let block = self.block(v4, level, without(at, level + 1));
            if let Some(bit) = block.first_clear(without(at, level) as u8) {
                return self.descend(block, bit).filter(|n| *n <= to);
            }
            // On with the next block, which is a bit of the level above.
            level += 1;
            at = without(at, level).checked_add(1)?.checked_mul(1_u128.checked_shl(u32::from(level) * 8)?)?;
        }
        None
    }

    /// The first free address below a bit that is not set.
    fn descend(&mut self, mut block: Block, mut bit: u8) -> Option<u128> {
        loop {
            let n = block.prefix.checked_shl(8).unwrap_or(0) | u128::from(bit);
            let Some(level) = block.level.checked_sub(1) else { return Some(n) };
            block = self.block(block.v4, level, n);
            bit = block.first_clear(0)?;
        }
    }

    fn block(&mut self, v4: bool, level: u8, prefix: u128) -> Block {
        let mut found = Block::empty(v4, level, prefix);
        let wanted = found;
        self.each_at(wanted.home(), |b| {
            if b.is(&wanted) {
                found = *b;
            }
        });
        found
    }

    fn put(&mut self, block: Block) {
        self.remove(block.home(), |b| b.is(&block));
        if block.bits != [0; 4] {
            self.insert(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::range::address;

    /// Windows at the ends of both families and across the borders of blocks, against a set that is walked.
    #[test]
    fn the_first_free_address_is_found() {
        let mut state = 5_u64;
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            u128::from((state >> 33) % bound)
        };
        let windows =
            [(true, 0), (true, 0x0a00_fe00), (true, 0xffff_f800), (false, 0), (false, 0xfd << 120 | 0xff_fe00), (false, u128::MAX - 2047)];
        for (v4, base) in windows {
            let (mut blocks, mut model) = (Table::with_room(0), BTreeSet::new());
            for step in 0..6000 {
                // Long runs, so that whole blocks fill and empty.
                let (start, length, taking) = (random(2048), random(300), random(5) < 3);
                for n in (start..(start + length).min(2048)).map(|n| base + n) {
                    if taking && model.insert(n) {
                        blocks.take(address(v4, n));
                    } else if !taking && model.remove(&n) {
                        blocks.free(address(v4, n));
                    }
                }
                let (from, to) = (base + random(2048), base + random(2048));
                let expected = (from <= to).then(|| (from..=to).find(|n| !model.contains(n))).flatten();
                assert_eq!(blocks.first_free(v4, from, to), expected, "{v4} {base:x} {step}: {from:x} to {to:x}");
                if step % 100 == 0 {
                    model.iter().for_each(|n| blocks.free(address(v4, *n)));
                    assert_eq!(blocks.extent().records, 0);
                    model.clear();
                }
            }
        }
    }
}
