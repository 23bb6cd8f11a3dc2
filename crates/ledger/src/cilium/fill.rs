//! How many addresses a node should have.

use pool::Scaling;

/// Addresses that nobody uses, where the object says nothing of it.
const PRE_ALLOCATE: u64 = 8;

/// What a node has too few or too many of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    /// It gets so many more.
    More(u64),
    /// So many may be taken back, once it was so for long.
    Excess(u64),
    /// It has what it needs.
    Enough,
}

/// What a node with so many addresses, of which so many are used, lacks or has too many of.
pub(super) fn fill(wants: &Scaling, available: u64, used: u64) -> Fill {
    let pre = if wants.pre_allocate == 0 { PRE_ALLOCATE } else { wants.pre_allocate };
    let most = if wants.max_allocate == 0 { u64::MAX } else { wants.max_allocate };
    let least = used.saturating_add(pre).max(wants.min_allocate).min(most);
    // More than it may have is too many, whatever it keeps in reserve: but never what is in use.
    let keep = least.saturating_add(wants.max_above_watermark).min(most).max(used);
    if available < least {
        Fill::More(least - available)
    } else if available > keep {
        Fill::Excess(available - keep)
    } else {
        Fill::Enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermarks() {
        let spec = |min, pre, max, above| Scaling { min_allocate: min, pre_allocate: pre, max_allocate: max, max_above_watermark: above };
        for ((min, pre, max, above), (available, used), expected) in [
            ((0, 0, 0, 0), (0, 0), Fill::More(8)),
            ((0, 0, 0, 0), (8, 0), Fill::Enough),
            ((0, 0, 0, 0), (8, 1), Fill::More(1)),
            ((0, 0, 0, 0), (12, 1), Fill::Excess(3)),
            ((0, 2, 0, 3), (5, 0), Fill::Enough),
            ((0, 2, 0, 3), (6, 0), Fill::Excess(1)),
            ((10, 2, 0, 0), (0, 0), Fill::More(10)),
            ((10, 2, 0, 0), (10, 8), Fill::Enough),
            ((10, 2, 0, 0), (10, 9), Fill::More(1)),
            ((10, 2, 0, 0), (12, 0), Fill::Excess(2)),
            ((0, 8, 10, 0), (5, 5), Fill::More(5)),
            ((0, 8, 10, 4), (10, 10), Fill::Enough),
            ((0, 8, 10, 4), (12, 4), Fill::Excess(2)),
            ((0, 8, 10, 4), (12, 12), Fill::Enough),
            ((0, 8, 10, 4), (12, 11), Fill::Excess(1)),
        ] {
            assert_eq!(fill(&spec(min, pre, max, above), available, used), expected, "{min} {pre} {max} {above}, {available} {used}");
        }
    }

    #[test]
    fn what_is_given_is_never_taken_back_at_once() {
        for seed in 0..10_000_u64 {
            let n = |shift: u32, below: u64| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) % below;
            let spec = Scaling { min_allocate: n(0, 20), pre_allocate: n(8, 12), max_allocate: n(16, 40), max_above_watermark: n(24, 6) };
            let (available, used) = (n(32, 60), n(40, 60));
            match fill(&spec, available, used) {
                Fill::More(more) => assert!(more > 0 && fill(&spec, available + more, used) == Fill::Enough),
                Fill::Excess(less) => assert!(less > 0 && available - less >= used && fill(&spec, available - less, used) == Fill::Enough),
                Fill::Enough => {}
            }
        }
    }
}
