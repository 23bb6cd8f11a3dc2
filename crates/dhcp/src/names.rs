//! Domain names as both protocols carry them (RFC 1035 4.1.4, RFC 3397, RFC 3646).

/// A list of names is read to this length at the most: a hostile one may point at itself.
const MOST: usize = 64;
/// What one name may have (RFC 1035 3.1).
const LONGEST: usize = 255;

/// The names of a search list, in order, as far as they are well formed. A name may end in a pointer back to an earlier one.
pub(crate) fn read(bytes: &[u8]) -> Vec<String> {
    let (mut names, mut at) = (Vec::new(), 0);
    while at < bytes.len() && names.len() < MOST {
        let Some((name, next)) = one(bytes, at) else { break };
        if !name.is_empty() {
            names.push(name);
        }
        at = next;
    }
    names
}

/// The name at a place, and where the next one begins.
fn one(bytes: &[u8], start: usize) -> Option<(String, usize)> {
    let (mut name, mut at, mut next) = (String::new(), start, None);
    loop {
        match usize::from(*bytes.get(at)?) {
            0 => return Some((name, next.unwrap_or(at + 1))),
            // Backwards only, so it ends.
            length if length & 0xc0 == 0xc0 => {
                let to = (length & 0x3f) << 8 | usize::from(*bytes.get(at + 1)?);
                if to >= at {
                    return None;
                }
                next.get_or_insert(at + 2);
                at = to;
            }
            length => {
                let label = bytes.get(at + 1..at + 1 + length)?;
                // What would mean something else in a file of a resolver's configuration is no name.
                if length > 63 || !label.iter().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(b)) {
                    return None;
                }
                if !name.is_empty() {
                    name.push('.');
                }
                name.extend(label.iter().map(|b| char::from(*b)));
                if name.len() > LONGEST {
                    return None;
                }
                at += 1 + length;
            }
        }
    }
}

/// A name that stands as text (option 15); `None` if it is none.
pub(crate) fn text(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?.trim_end_matches('\0').trim_end_matches('.');
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (!text.is_empty() && text.len() <= LONGEST && text.chars().all(is_name)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_lists() {
        // RFC 3397 section 2.
        let list = b"\x03eng\x05apple\x03com\0\x09marketing\xc0\x04";
        assert_eq!(read(list), ["eng.apple.com", "marketing.apple.com"]);
        assert_eq!(read(b"\xc0\0"), Vec::<String>::new(), "a pointer at itself");
        assert_eq!(read(b"\x01a\xc0\0"), Vec::<String>::new(), "a loop");
        assert_eq!(read(b"\x03a\nb\0"), Vec::<String>::new());
        assert_eq!(text(b"example.org\0").as_deref(), Some("example.org"));
        assert_eq!(text(b"x\nnameserver 1.2.3.4"), None);
    }
}
