// SPDX-License-Identifier: Apache-2.0
//! Cutting a byte stream into JSON texts.
//!
//! OVSDB's JSON-RPC has no length prefix and no separator: one object follows the other (RFC 7047
//! section 4). The framer walks each byte once, tracks only nesting and strings, and hands out a
//! slice as soon as the outermost brace closes; whether the slice is JSON is the parser's to say.
//! It errs on the side of refusing: a first byte that cannot start an object, nesting deeper than
//! the parser would take, or a message beyond the limit end the stream, as there is no way to
//! find the next message after garbage.

use std::fmt;

/// Nesting beyond this is refused; the JSON parser's own limit is the same.
const MAX_DEPTH: u32 = 127;

/// Why a stream of bytes cannot be a stream of JSON objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FramingError {
    /// A byte between messages that is neither white space nor `{`.
    NotAnObject(u8),
    /// Objects and arrays nested too deep.
    TooDeep,
    /// A message longer than this limit in bytes.
    TooLong(usize),
}

impl fmt::Display for FramingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FramingError::NotAnObject(byte) => {
                write!(f, "a JSON object must start with '{{', not byte 0x{byte:02x}")
            }
            FramingError::TooDeep => write!(f, "JSON nested more than {MAX_DEPTH} levels deep"),
            FramingError::TooLong(limit) => {
                write!(f, "a message of more than {limit} bytes, the configured limit")
            }
        }
    }
}

impl std::error::Error for FramingError {}

/// Collects bytes and hands out complete messages.
#[derive(Clone, Debug)]
pub(crate) struct Framer {
    buffer: Vec<u8>,
    /// Bytes of the buffer that were handed out already.
    start: usize,
    /// Bytes of the buffer that were walked; at least `start`.
    walked: usize,
    depth: u32,
    in_string: bool,
    escaped: bool,
    limit: usize,
}

impl Framer {
    /// A framer that refuses messages of more than `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Framer {
            buffer: Vec::new(),
            start: 0,
            walked: 0,
            depth: 0,
            in_string: false,
            escaped: false,
            limit,
        }
    }

    /// Adds bytes as they came from the peer, however cut.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.walked -= self.start;
            self.start = 0;
        }
        // After a huge message, do not keep its room for good.
        if self.buffer.is_empty() && self.buffer.capacity() > 1 << 20 {
            self.buffer = Vec::new();
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete message; `None` until more bytes come. After an error the stream is of
    /// no more use.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, FramingError> {
        while let Some(&byte) = self.buffer.get(self.walked) {
            self.walked += 1;
            if self.depth == 0 {
                match byte {
                    b' ' | b'\t' | b'\r' | b'\n' => {
                        self.start = self.walked;
                        continue;
                    }
                    b'{' => {
                        self.start = self.walked - 1;
                        self.depth = 1;
                        continue;
                    }
                    other => return Err(FramingError::NotAnObject(other)),
                }
            }
            if self.walked - self.start > self.limit {
                return Err(FramingError::TooLong(self.limit));
            }
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => {
                    self.depth += 1;
                    if self.depth > MAX_DEPTH {
                        return Err(FramingError::TooDeep);
                    }
                }
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        let message = self.start..self.walked;
                        self.start = self.walked;
                        return Ok(self.buffer.get(message));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames(chunks: &[&[u8]]) -> Result<Vec<String>, FramingError> {
        let mut framer = Framer::new(1000);
        let mut out = Vec::new();
        for chunk in chunks {
            framer.push(chunk);
            while let Some(message) = framer.next()? {
                out.push(String::from_utf8_lossy(message).into_owned());
            }
        }
        Ok(out)
    }

    #[test]
    fn messages_need_no_separator() {
        let got = frames(&[br#" {"a":"}\"{"}{"b":[{}]}"#, b"\n{}"]).unwrap();
        assert_eq!(got, [r#"{"a":"}\"{"}"#, r#"{"b":[{}]}"#, "{}"]);
    }

    #[test]
    fn junk_depth_and_length_are_refused() {
        assert_eq!(frames(&[b"HTTP/1.1"]), Err(FramingError::NotAnObject(b'H')));
        assert_eq!(frames(&[b"[]"]), Err(FramingError::NotAnObject(b'[')));
        assert_eq!(frames(&["{".repeat(200).as_bytes()]), Err(FramingError::TooDeep));
        assert_eq!(frames(&[b"{", &[b' '; 2000]]), Err(FramingError::TooLong(1000)));
        assert!(frames(&[&[b' '; 5000], b"{}"]).is_ok(), "white space is no message");
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_messages(cuts in proptest::collection::vec(0usize..60, 0..10)) {
            let stream = br#"{"id":1,"x":"\\\"{["} {"y":[[1],{"z":"]"}]}   {"last":null}"#;
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|w| &stream[w[0]..w[1]]).collect();
            prop_assert_eq!(frames(&chunks).unwrap(), frames(&[stream]).unwrap());
        }
    }
}
