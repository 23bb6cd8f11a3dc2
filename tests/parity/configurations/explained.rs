//! Why we differ.

mod interfaces;
mod others;
mod shared;

use crate::configurations::case::{Case, Kernel};
use crate::configurations::difference::Difference;

/// Why some differences are as they are. The first that covers a difference is the one that counts.
pub(crate) struct Explained {
    /// The plugins whose tables have it.
    pub(crate) of: &'static [&'static str],
    /// The configurations, `*` for any text, `|` between several.
    pub(crate) case: &'static str,
    /// [`Difference::at`], with `*` for any text.
    pub(crate) at: &'static str,
    /// What is different, for a reader.
    pub(crate) what: &'static str,
    /// Why.
    pub(crate) why: &'static str,
}

const fn e(of: &'static [&'static str], case: &'static str, at: &'static str, what: &'static str, why: &'static str) -> Explained {
    Explained { of, case, at, what, why }
}

// === impl Explained ===

impl Explained {
    /// Every reason, in the order in which they are told.
    pub(crate) fn all() -> Vec<&'static Explained> {
        [interfaces::EXPLAINED, others::EXPLAINED, shared::EXPLAINED].into_iter().flatten().collect()
    }

    /// Whether a kernel's run has to show it: this one's, if it has a configuration in which it may occur.
    pub(crate) fn is_due(&self, kernel: Kernel, cases: &[Case]) -> bool {
        let mut kernels = cases.iter().filter(|c| self.is_about(c.plugin, c.name)).map(|c| c.kernel).peekable();
        kernels.peek().is_some() && (kernel == Kernel::Guest) == kernels.all(|k| k == Kernel::Guest)
    }

    fn is_about(&self, plugin: &str, case: &str) -> bool {
        self.of.contains(&plugin) && self.case.split('|').any(|c| like(c, case))
    }

    pub(crate) fn covers(&self, difference: &Difference) -> bool {
        self.is_about(difference.plugin, difference.case) && like(self.at, &difference.at())
    }
}

/// Whether a text is as a pattern says, in which `*` stands for any text.
fn like(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(head) else { return false };
    (0..=text.len()).filter(|n| text.is_char_boundary(*n)).any(|n| like(rest, &text[n..]))
}

#[test]
fn patterns() {
    assert!(like("a*c", "abc") && like("*", "") && like("a*b*c", "axxbyyc") && like("abc", "abc"));
    assert!(!like("a*c", "abd") && !like("abc", "abcd") && !like("a*b", "b"));
}
