//! Domain names that a server says, for a file of a resolver's configuration.

use dhcproto::Name;

/// No list is longer.
const MOST: usize = 64;
/// What one name may have (RFC 1035 3.1).
const LONGEST: usize = 255;

/// The names of a search list, in order, as far as they may stand in such a file.
pub(crate) fn list(names: &[Name]) -> Vec<String> {
    names.iter().filter_map(|name| text(&name.to_ascii())).take(MOST).collect()
}

/// A name that stands as text (option 15); `None` if it is none, or would mean something else where it is written.
pub(crate) fn text(name: &str) -> Option<String> {
    let text = name.trim_end_matches('\0').trim_end_matches('.');
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (!text.is_empty() && text.len() <= LONGEST && text.chars().all(is_name)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhcproto::Decodable;
    use dhcproto::v4::DhcpOption;

    fn read(bytes: &[u8]) -> Vec<String> {
        let framed = [&[119, u8::try_from(bytes.len()).unwrap()], bytes].concat();
        match DhcpOption::from_bytes(&framed).unwrap() {
            DhcpOption::DomainSearch(names) => list(&names),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn search_lists() {
        // RFC 3397 section 2.
        let names = b"\x03eng\x05apple\x03com\0\x09marketing\xc0\x04";
        assert_eq!(read(names), ["eng.apple.com", "marketing.apple.com"]);
        assert_eq!(read(b"\xc0\0"), Vec::<String>::new(), "a pointer at itself");
        assert_eq!(read(b"\x01a\xc0\0"), Vec::<String>::new(), "a loop");
        assert_eq!(read(b"\x03a\nb\0\x01c\0"), ["c"], "what is no name is left out");
        assert_eq!(text("example.org\0").as_deref(), Some("example.org"));
        assert_eq!(text("x\nnameserver 1.2.3.4"), None);
    }
}
