//! Where one JSON text of a stream ends and the next begins: OVSDB's connections have no other boundary (RFC 7047, 4).

/// A text that is longer than this many bytes is refused: 16 MiB, as everywhere where JSON is read.
const MAX_TEXT: usize = json::MAX_INPUT;

/// What was received and not taken yet.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    /// How many of them were looked at.
    seen: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Where texts begin, nobody knows any more.
    is_lost: bool,
}

/// No text of OVSDB: one that is too long, or begins with something other than an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("bytes that are not a JSON object of at most {MAX_TEXT} bytes")]
pub struct FrameError;

// === impl Frames ===

impl Frames {
    /// Nothing was received.
    pub fn new() -> Self {
        Frames::default()
    }

    /// Takes what was received.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole text; `None` if more has to be received first. Each byte is looked at once.
    ///
    /// # Errors
    /// `FrameError`: the connection is of no more use, and whatever else is received fails as well.
    pub fn next_text(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let text = if self.is_lost { Err(FrameError) } else { self.look() };
        self.is_lost = text.is_err();
        text
    }

    fn look(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        while let Some(byte) = self.bytes.get(self.seen).copied() {
            self.seen += 1;
            if self.is_end(byte)? {
                let rest = self.bytes.split_off(self.seen);
                self.seen = 0;
                return Ok(Some(std::mem::replace(&mut self.bytes, rest)));
            }
            if self.seen > MAX_TEXT {
                return Err(FrameError);
            }
        }
        Ok(None)
    }

    /// Whether this byte closes the object that is being read.
    fn is_end(&mut self, byte: u8) -> Result<bool, FrameError> {
        if self.in_string {
            self.in_string = self.escaped || byte != b'"';
            self.escaped = !self.escaped && byte == b'\\';
            return Ok(false);
        }
        match byte {
            b'{' | b'[' if self.depth > 0 || byte == b'{' => self.depth += 1,
            b'}' | b']' if self.depth > 0 => self.depth -= 1,
            b'"' if self.depth > 0 => self.in_string = true,
            _ if self.depth > 0 || byte.is_ascii_whitespace() => {}
            _ => return Err(FrameError),
        }
        Ok(self.depth == 0 && matches!(byte, b'}' | b']'))
    }
}
