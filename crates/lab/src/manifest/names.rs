//! Names of Pods and Nodes: DNS-1123 subdomains, as the API server has them.

use yaml::shortened;

use super::error::NameProblem;

/// Bytes of a name at the most.
const MAX: usize = 253;

/// Checks the name of a Pod or Node.
pub(crate) fn check(text: &str) -> Result<(), NameProblem> {
    if text.is_empty() {
        return Err(NameProblem::Empty);
    }
    if text.len() > MAX {
        return Err(NameProblem::TooLong { len: text.len(), max: MAX });
    }
    match text.split('.').all(is_label) {
        true => Ok(()),
        false => Err(NameProblem::Characters { text: shortened(text), near: near(text) }),
    }
}

fn is_label(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(plain) && text.ends_with(plain) && text.chars().all(|c| plain(c) || c == '-')
}

/// The nearest name that would do.
fn near(text: &str) -> Option<String> {
    let near: String = text.to_lowercase().chars().map(|c| if c == '_' || c == ' ' || c == '/' { '-' } else { c }).collect();
    let near = near.trim_matches(['-', '.']);
    (!near.is_empty() && near.split('.').all(is_label)).then(|| near.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_subdomains() {
        for good in ["a", "0", "a-b", "a.b", "web-0.shop", "a--b", &"a".repeat(253)] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a..b", ".a", "a.", "a.-b", "a/b", "ä", "a b", "a\n", "..", &"a".repeat(254)] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_error_says_what_to_write() {
        let e = check("Web_1").unwrap_err().to_string();
        assert!(e.starts_with(r#""Web_1" is not a DNS-1123 subdomain"#) && e.ends_with(r#"; did you mean "web-1"?"#), "{e}");
        assert!(!check("ä").unwrap_err().to_string().contains("did you mean"));
        assert_eq!(shortened(&"ä".repeat(81)), format!("{}...", "ä".repeat(80)));
    }
}
