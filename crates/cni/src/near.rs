//! Names that are near a wrong one, for messages.

/// Names that a message lists.
const MOST: usize = 5;

/// The one of `known` that is at most two changes away: letters added, dropped or replaced, the case aside.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // This bounds the work; no key or plugin has half as many letters.
    if wrong.len() > 40 {
        return None;
    }
    let far = |name: &&str| distance(&wrong.to_ascii_lowercase(), &name.to_ascii_lowercase());
    // In a short word two changes make any other word: "x" is no "mac".
    let most = |name: &str| 2.min(name.len() / 3);
    known.into_iter().map(|name| (far(&name), name)).filter(|(d, name)| *d <= most(name)).min().map(|(_, name)| name)
}

/// Levenshtein's distance in characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (cb, up) in b.iter().zip(row.iter().skip(1)) {
            let cell = (diagonal + usize::from(ca != *cb)).min(left + 1).min(up + 1);
            diagonal = *up;
            left = cell;
            next.push(cell);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

/// At most five of the names that there are, the nearest first: `a, b, c, d, e and 7 more`.
pub fn near_names<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let wrong = wrong.to_ascii_lowercase();
    let far = |name: &&str| if wrong.len() > 40 { 0 } else { distance(&wrong, &name.to_ascii_lowercase()) };
    let mut names: Vec<(usize, &str)> = known.into_iter().map(|name| (far(&name), name)).collect();
    names.sort();
    let shown: Vec<&str> = names.iter().take(MOST).map(|(_, name)| *name).collect();
    match names.len().saturating_sub(MOST) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, d) in [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("äb", "ab", 1)] {
            assert_eq!(distance(a, b), d, "{a} {b}");
        }
    }

    #[test]
    fn at_most_five_names_are_listed_and_the_nearest_first() {
        assert_eq!(near_names("web", ["db", "wep", "cache"]), "wep, db, cache");
        assert_eq!(near_names("a", ["f", "e", "d", "c", "b", "aa", "g"]), "aa, b, c, d, e and 2 more");
        assert_eq!(near_names("a", []), "");
    }
}
