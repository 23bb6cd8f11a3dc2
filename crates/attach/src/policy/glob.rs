//! A pattern of a rule.

use std::fmt;

/// A pattern in which `*` stands for any characters, also for none, and everything else for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(String);

// === impl Glob ===

impl Glob {
    /// A pattern; any text is one.
    pub fn new(text: impl Into<String>) -> Self {
        Glob(text.into())
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it matches all of `text`. The time is at most the product of both lengths.
    pub fn matches(&self, text: &str) -> bool {
        let Some((start, rest)) = self.0.split_once('*') else { return self.0 == text };
        let Some(mut text) = text.strip_prefix(start) else { return false };
        let (between, end) = rest.rsplit_once('*').unwrap_or(("", rest));
        // Each part at its first place leaves the most for those after it.
        for part in between.split('*') {
            match text.find(part).and_then(|at| text.get(at + part.len()..)) {
                Some(after) => text = after,
                None => return false,
            }
        }
        text.ends_with(end)
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_asterisk_is_anything_and_the_rest_is_itself() {
        for (glob, text) in [
            ("*", ""),
            ("*", "x"),
            ("eth*", "eth"),
            ("eth*", "eth12"),
            ("*.forwarding", "net.ipv4.conf.all.forwarding"),
            ("net.*.conf.*.forwarding", "net.ipv4.conf.eth0.100.forwarding"),
            ("a*b*b", "abbb"),
            ("**a", "a"),
            ("", ""),
        ] {
            assert!(Glob::new(glob).matches(text), "{glob} {text}");
        }
        for (glob, text) in [("eth*", "xeth0"), ("*b", "ba"), ("a*a", "a"), ("a*b*b", "ab"), ("eth?", "eth0"), ("", "x"), ("Eth0", "eth0")]
        {
            assert!(!Glob::new(glob).matches(text), "{glob} {text}");
        }
    }
}
