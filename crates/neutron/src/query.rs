//! The query of a request.

use std::fmt::Write;

/// Pairs behind a `?`, each encoded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(String);

// === impl Query ===

impl Query {
    /// Adds a pair.
    pub(crate) fn add(&mut self, key: &str, value: &str) -> &mut Self {
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        encode(key, &mut self.0);
        self.0.push('=');
        encode(value, &mut self.0);
        self
    }

    /// With the `?`; empty where there is no pair.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// What RFC 3986, 2.3 does not reserve stays; every other byte is `%` and two digits.
pub(crate) fn encode(text: &str, to: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => to.push(char::from(byte)),
            // A String takes all that is written.
            _ => drop(write!(to, "%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_value_is_part_of_the_query() {
        let mut query = Query::default();
        query.add("binding:host_id", "a&b=c d/é?").add("tags", "x,y");
        assert_eq!(query.as_str(), "?binding%3Ahost_id=a%26b%3Dc%20d%2F%C3%A9%3F&tags=x%2Cy");
    }
}
