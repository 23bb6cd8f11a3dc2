//! What was probably meant.

use yaml::shortened;

/// How many names a wrong one is held against.
const MAX_KNOWN: usize = 1000;

/// The one of `known` that is at most two changes away: letters added, dropped or replaced, the case aside. A short word
/// has to be nearer: two changes make any other word of it. Of a great many only the first are held against it.
pub(crate) fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = wrong.to_ascii_lowercase();
    let most = |name: &str| 2.min(name.len() / 3);
    let close = known.into_iter().take(MAX_KNOWN).filter(|name| name.len().abs_diff(wrong.len()) <= 2);
    close.map(|name| (distance(&lower, &name.to_ascii_lowercase()), name)).filter(|(d, name)| *d <= most(name)).min().map(|(_, name)| name)
}

/// What there is, as the end of a message: `the manifests have a, b and 7 more`.
pub(crate) fn there_are<T: AsRef<str>>(what: &str, known: impl IntoIterator<Item = T>) -> String {
    let mut known = known.into_iter();
    let shown: Vec<String> = known.by_ref().take(8).map(|name| shortened(name.as_ref())).collect();
    match (shown.join(", "), known.count()) {
        (shown, _) if shown.is_empty() => format!("the manifests have no {what} at all"),
        (shown, 0) => format!("the manifests have {shown}"),
        (shown, more) => format!("the manifests have {shown} and {more} more"),
    }
}

/// Levenshtein's distance in characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let (mut diagonal, mut left) = (i, i + 1);
        let mut next = vec![left];
        for (cb, up) in b.iter().zip(row.iter().skip(1)) {
            left = (diagonal + usize::from(ca != *cb)).min(left + 1).min(up + 1);
            diagonal = *up;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misses() {
        let known = ["annotations", "nodeName", "name", "Pod"];
        for (wrong, right) in [("annotation", "annotations"), ("nodename", "nodeName"), ("names", "name"), ("Pods", "Pod"), ("pod", "Pod")]
        {
            assert_eq!(nearest(wrong, known), Some(right), "{wrong}");
        }
        for far in ["", "x", "Job", "generation", "finalizers", &"name".repeat(100)] {
            assert_eq!(nearest(far, known), None, "{far}");
        }
    }

    #[test]
    fn distances() {
        for (a, b, d) in [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("äb", "ab", 1)] {
            assert_eq!(distance(a, b), d, "{a} {b}");
        }
    }

    #[test]
    fn lists_end() {
        assert_eq!(there_are::<&str>("Node", []), "the manifests have no Node at all");
        assert_eq!(there_are("Node", ["a", "b"]), "the manifests have a, b");
        assert!(there_are("Node", ["a"; 20]).ends_with("a, a and 12 more"));
    }
}
