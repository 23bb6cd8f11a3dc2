//! How large a text is once it is read: a value takes thirty times its text.

/// What a text of JSON would be as a [`Value`](crate::Value).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// How many values there are, lists and objects included; an empty one of these counts twice.
    pub values: usize,
    /// How many levels of lists and objects; see [`Value::depth`](crate::Value::depth).
    pub depth: usize,
}

// === impl Size ===

impl Size {
    /// Counts without reading, so that what is too much takes no memory. Of a text that is no JSON it says nothing of use.
    pub fn of(text: &[u8]) -> Self {
        let (mut size, mut depth) = (Size { values: 1, depth: 0 }, 0usize);
        let (mut in_string, mut is_escaped) = (false, false);
        for byte in text {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if in_string => is_escaped = true,
                b'"' => in_string = !in_string,
                _ if in_string => {}
                b',' => size.values += 1,
                b'[' | b'{' => {
                    size.values += 1;
                    depth += 1;
                    size.depth = size.depth.max(depth);
                }
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_that_of_what_is_read() {
        for (text, values, depth) in
            [("1", 1, 0), (r#""a,[{\",\\""#, 1, 0), ("[1,[2],3]", 5, 2), (r#"{"a":{"b":[1,"]"]},"c":2}"#, 6, 3), ("[{},[]]", 5, 2)]
        {
            assert_eq!(Size::of(text.as_bytes()), Size { values, depth }, "{text}");
            assert_eq!(crate::parse(text.as_bytes()).unwrap().depth(), depth, "{text}");
        }
        assert_eq!(Size::of(b"]]\"[").depth, 0);
    }
}
