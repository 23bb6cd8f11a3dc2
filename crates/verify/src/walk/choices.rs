//! What a ruleset or a host that is not observed leaves to chance: every way is followed, one after the other.

/// Which way is taken at each place on a packet's way where there are several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Choices {
    /// What is taken, of how many.
    taken: Vec<(u32, u32)>,
    /// How many places were met.
    met: usize,
}

// === impl Choices ===

impl Choices {
    /// The choice at the next place: a number below `among`. The first one, where nothing was chosen before.
    pub(crate) fn take(&mut self, among: u32) -> u32 {
        let at = self.met;
        self.met += 1;
        match self.taken.get(at) {
            Some((taken, _)) => *taken,
            None => {
                self.taken.push((0, among.max(1)));
                0
            }
        }
    }

    /// The next way of those that were met; `None`: all have been followed.
    pub(crate) fn next(mut self) -> Option<Choices> {
        self.taken.truncate(self.met);
        while let Some((taken, among)) = self.taken.pop() {
            if taken + 1 < among {
                self.taken.push((taken + 1, among));
                self.met = 0;
                return Some(self);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ways, and where the second one is taken three more.
    #[test]
    fn every_way_is_taken_once() {
        let mut ways = Vec::new();
        let mut next = Some(Choices::default());
        while let Some(mut choices) = next {
            let first = choices.take(2);
            ways.push((first, if first == 1 { choices.take(3) } else { 9 }));
            next = choices.next();
        }
        assert_eq!(ways, [(0, 9), (1, 0), (1, 1), (1, 2)]);
    }
}
