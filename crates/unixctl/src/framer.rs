// SPDX-License-Identifier: Apache-2.0
//! Cutting a byte stream into JSON objects.
//!
//! The stream has no lengths and no separators: an object ends where its braces balance outside
//! strings. The framer looks at each byte once and does not judge anything else; the JSON parser
//! does that on the whole object.

/// Why a stream cannot be cut further. The connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    /// Something other than an object or white space stands between objects.
    #[error("expected '{{' to start a JSON object, found byte {0:#04x}")]
    NotAnObject(u8),
    /// An object is larger than the limit in bytes.
    #[error("JSON object exceeds {0} bytes")]
    TooLarge(usize),
}

/// JSON's white space (RFC 8259, section 2).
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Collects bytes and gives back whole objects.
#[derive(Debug)]
pub(crate) struct Framer {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that have been looked at.
    scanned: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    limit: usize,
}

impl Framer {
    pub(crate) fn new(limit: usize) -> Framer {
        Framer { buffer: Vec::new(), scanned: 0, depth: 0, in_string: false, escaped: false, limit }
    }

    /// Adds bytes that were read.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole object, or `None` when more bytes are needed.
    pub(crate) fn next_object(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        if self.depth == 0 {
            let blank = self.buffer.iter().take_while(|b| is_blank(**b)).count();
            self.buffer.drain(..blank);
            match self.buffer.first() {
                None => return Ok(None),
                Some(b'{') => {}
                Some(other) => return Err(FrameError::NotAnObject(*other)),
            }
        }
        for (at, byte) in self.buffer.iter().enumerate().skip(self.scanned) {
            if self.escaped {
                self.escaped = false;
            } else if self.in_string {
                match byte {
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => self.in_string = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => {
                        self.depth = self.depth.saturating_sub(1);
                        if self.depth == 0 {
                            if at >= self.limit {
                                return Err(FrameError::TooLarge(self.limit));
                            }
                            let rest = self.buffer.split_off(at + 1);
                            self.scanned = 0;
                            return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
                        }
                    }
                    _ => {}
                }
            }
        }
        self.scanned = self.buffer.len();
        if self.buffer.len() > self.limit {
            return Err(FrameError::TooLarge(self.limit));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(chunks: &[&[u8]]) -> Result<Vec<String>, FrameError> {
        let mut framer = Framer::new(100);
        let mut found = Vec::new();
        for chunk in chunks {
            framer.push(chunk);
            while let Some(object) = framer.next_object()? {
                found.push(String::from_utf8_lossy(&object).into_owned());
            }
        }
        Ok(found)
    }

    #[test]
    fn objects_however_they_arrive() {
        let text = br#" {"a":"}\"{"}  {"b":[{}]}{}"#;
        let want = [r#"{"a":"}\"{"}"#, r#"{"b":[{}]}"#, "{}"];
        assert_eq!(cut(&[text]).unwrap(), want);
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(cut(&bytes).unwrap(), want);
    }

    #[test]
    fn junk_and_endless_input_end() {
        assert_eq!(cut(&[b"x"]), Err(FrameError::NotAnObject(b'x')));
        assert_eq!(cut(&[b"{}\x0c{}"]), Err(FrameError::NotAnObject(0x0c)));
        assert_eq!(cut(&[b"{}]"]), Err(FrameError::NotAnObject(b']')));
        let endless = [b"{\"".as_slice(), &[b'a'; 60], &[b'a'; 60]];
        assert_eq!(cut(&endless), Err(FrameError::TooLarge(100)));
    }

    proptest! {
        #[test]
        fn chunking_does_not_matter(
            text in "[{}\\[\\]\"\\\\a ]{0,60}",
            at in 0usize..60,
        ) {
            let bytes = text.as_bytes();
            let (a, b) = bytes.split_at(at.min(bytes.len()));
            prop_assert_eq!(cut(&[a, b]), cut(&[bytes]));
        }
    }
}
