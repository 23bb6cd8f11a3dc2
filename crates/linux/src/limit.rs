//! How much of what the kernel lists is kept: for who has little memory, and does not know how much there is.

/// Bytes of messages that are kept yet, and those that were not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    left: usize,
    left_out: usize,
}

// === impl Limit ===

impl Limit {
    /// Everything is kept.
    pub(crate) const NONE: Limit = Limit::of(usize::MAX);

    /// So many bytes are kept.
    pub(crate) const fn of(bytes: usize) -> Self {
        Limit { left: bytes, left_out: 0 }
    }

    /// Whether a message of this length is kept. After the first that is not, none is: what is kept is the beginning.
    pub(crate) fn keeps(&mut self, length: usize) -> bool {
        match self.left.checked_sub(length) {
            Some(left) if self.left_out == 0 => self.left = left,
            _ => self.left_out = self.left_out.saturating_add(length),
        }
        self.left_out == 0
    }

    /// Bytes that were not kept since this was last asked.
    pub(crate) fn left_out(&mut self) -> usize {
        std::mem::take(&mut self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_is_kept() {
        let mut limit = Limit::of(10);
        assert_eq!([4, 6, 1, 0].map(|length| limit.keeps(length)), [true, true, false, false]);
        assert_eq!((limit.left_out(), limit.left_out()), (1, 0));
        let mut limit = Limit::of(10);
        assert_eq!([4, 7, 2].map(|length| limit.keeps(length)), [true, false, false]);
        assert_eq!(limit.left_out(), 9);
        // Of the next list, what has room yet.
        assert!(limit.keeps(6) && !limit.keeps(1));
    }
}
