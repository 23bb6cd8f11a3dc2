//! What is wrong is told once, and so is its end.

use std::collections::BTreeSet;

use crate::log::Line;

/// What was told and holds.
#[derive(Debug, Default)]
pub(crate) struct Told {
    holds: BTreeSet<String>,
}

// === impl Told ===

impl Told {
    /// Takes what is wrong now; logs what is new, and what is over. What is new.
    pub(crate) fn take(&mut self, now: BTreeSet<String>) -> Vec<String> {
        for what in self.holds.difference(&now) {
            Line::info("cluster network").with("solved", what).end();
        }
        let new: Vec<String> = now.difference(&self.holds).cloned().collect();
        for what in &new {
            Line::warn("cluster network").with("what", what).end();
        }
        self.holds = now;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_is_told_once() {
        let mut told = Told::default();
        let all = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(told.take(all(&["a", "b"])), ["a", "b"]);
        assert_eq!(told.take(all(&["b", "c"])), ["c"]);
        assert_eq!(told.take(all(&["b", "c"])), [""; 0]);
        assert_eq!(told.take(all(&["a"])), ["a"], "again, after it was solved");
    }
}
