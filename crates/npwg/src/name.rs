//! Names of Kubernetes objects: what may stand in a reference (S9).

use crate::problem::shortened;

/// Which rule a name follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameRule {
    /// A namespace: a DNS-1123 label of at most 63 characters.
    Namespace,
    /// A NetworkAttachmentDefinition: a DNS-1123 label (S9). 63 characters are recommended, and the 253 that the
    /// API server takes for an object's name are accepted.
    Definition,
    /// An IPAMClaim: labels joined by periods (S58), at most 253 characters.
    Claim,
}

/// A name that breaks its rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameProblem {
    /// Nothing was given.
    #[error("the {} name is empty", .0.what())]
    Empty(NameRule),
    /// Too many characters.
    #[error("the {} name is {len} characters long, at most {max} are allowed", rule.what(), max = rule.max())]
    TooLong {
        /// The rule.
        rule: NameRule,
        /// Bytes received.
        len: usize,
    },
    /// A character that does not belong there.
    #[error("{text:?} is not a valid {} name: {} are allowed, first and last a letter or digit{}", rule.what(), rule.allowed(), hint(text, *rule))]
    Characters {
        /// The rule.
        rule: NameRule,
        /// What was given.
        text: String,
    },
}

// === impl NameRule ===

impl NameRule {
    fn what(self) -> &'static str {
        match self {
            NameRule::Namespace => "namespace",
            NameRule::Definition => "NetworkAttachmentDefinition",
            NameRule::Claim => "IPAMClaim",
        }
    }

    fn max(self) -> usize {
        match self {
            NameRule::Namespace => 63,
            NameRule::Definition | NameRule::Claim => 253,
        }
    }

    fn allowed(self) -> &'static str {
        match self {
            NameRule::Claim => "lower-case letters, digits, '-' and '.'",
            _ => "lower-case letters, digits and '-'",
        }
    }

    /// Checks a name.
    ///
    /// # Errors
    /// [`NameProblem`] that says what to write instead.
    pub fn check(self, text: &str) -> Result<(), NameProblem> {
        if text.is_empty() {
            return Err(NameProblem::Empty(self));
        }
        if text.len() > self.max() {
            return Err(NameProblem::TooLong { rule: self, len: text.len() });
        }
        let good = match self {
            NameRule::Claim => text.split('.').all(is_label),
            _ => is_label(text),
        };
        good.then_some(()).ok_or_else(|| NameProblem::Characters { rule: self, text: shortened(text) })
    }
}

/// `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
fn is_label(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(plain) && text.ends_with(plain) && text.chars().all(|c| plain(c) || c == '-')
}

/// The nearest name that would do, as the end of a message.
fn hint(text: &str, rule: NameRule) -> String {
    let near: String = text.to_lowercase().chars().map(|c| if c == '_' || c == '.' || c == ' ' { '-' } else { c }).collect();
    let near = near.trim_matches('-');
    match rule.check(near) {
        Ok(()) => format!("; {near:?} would do"),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s9_names_are_labels() {
        for good in ["a", "0", "a-b", "0a", "a--b", &"a".repeat(253)] {
            assert_eq!(NameRule::Definition.check(good), Ok(()), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", "a/b", "ä", "a b", "a\n", "..", &"a".repeat(254)] {
            assert!(NameRule::Definition.check(bad).is_err(), "{bad}");
        }
        assert!(NameRule::Namespace.check(&"a".repeat(64)).is_err());
        assert_eq!(NameRule::Claim.check("vm-a.tenant.net1"), Ok(()));
        assert!(NameRule::Claim.check("vm..net1").is_err());
    }

    #[test]
    fn s9_the_error_says_what_to_write() {
        let e = NameRule::Definition.check("My_Net.1").unwrap_err().to_string();
        assert!(e.ends_with(r#"first and last a letter or digit; "my-net-1" would do"#), "{e}");
        let e = NameRule::Namespace.check("ä/b").unwrap_err().to_string();
        assert!(e.ends_with("first and last a letter or digit"), "{e}");
    }
}
