// SPDX-License-Identifier: Apache-2.0
//! Messages, as one datagram holds several of them.

use crate::attribute::{find, put};
use std::io;

/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;

/// Each request has this flag; [`Request::new`] adds it.
const NLM_F_REQUEST: u16 = 1;
/// The kernel acknowledges the request.
pub const NLM_F_ACK: u16 = 4;
/// The kernel sends the sender the event that the request causes.
pub const NLM_F_ECHO: u16 = 8;
/// The state changed while a dump was read, which may therefore lack entries.
const NLM_F_DUMP_INTR: u16 = 0x10;
/// The kernel sends all objects of a kind.
pub const NLM_F_DUMP: u16 = 0x300;
/// For new objects: one that exists is replaced.
pub const NLM_F_REPLACE: u16 = 0x100;
/// For new objects: one that exists is an error.
pub const NLM_F_EXCL: u16 = 0x200;
/// For new objects: one that does not exist is created.
pub const NLM_F_CREATE: u16 = 0x400;
/// An acknowledgement holds only the header of the request.
const NLM_F_CAPPED: u16 = 0x100;
/// An acknowledgement ends with attributes.
const NLM_F_ACK_TLVS: u16 = 0x200;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `NLMSGERR_ATTR_MSG`
const ATTR_MSG: u16 = 1;

/// A request under construction.
#[derive(Clone, Debug)]
pub struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// Returns a request of `kind` (such as `RTM_NEWTFILTER`) whose fixed part is `fixed`.
    pub fn new(kind: u16, flags: u16, fixed: &[u8]) -> Request {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        bytes.extend_from_slice(fixed);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        Request { bytes }
    }

    /// Adds flags.
    #[must_use]
    pub fn with_flags(mut self, flags: u16) -> Request {
        let [low, high] = flags.to_ne_bytes();
        self.bytes[6] |= low;
        self.bytes[7] |= high;
        self
    }

    /// Adds an attribute. Values above 65,531 bytes are cut.
    #[must_use]
    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Request {
        put(&mut self.bytes, kind, value);
        self
    }

    /// Returns the message with its length and this sequence number.
    pub fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// One received message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Its kind, as of a request.
    pub kind: u16,
    /// Flags `NLM_F_*`.
    pub flags: u16,
    /// The sequence number of the request that the message answers.
    pub sequence: u32,
    /// The bytes after the header.
    pub payload: &'a [u8],
}

/// Iterates over the messages of one datagram.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let header = bytes.first_chunk::<HEADER>()?;
        let [l0, l1, l2, l3, k0, k1, f0, f1, s0, s1, s2, s3, ..] = *header;
        let length = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        let payload = bytes.get(HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message {
            kind: u16::from_ne_bytes([k0, k1]),
            flags: u16::from_ne_bytes([f0, f1]),
            sequence: u32::from_ne_bytes([s0, s1, s2, s3]),
            payload,
        })
    })
}

/// The end of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The kernel's error number, positive; zero is success.
    pub errno: i32,
    /// The kernel's or a driver's explanation: of the error, or a warning after success.
    pub words: Option<String>,
}

impl Outcome {
    /// Returns the error number as a result.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn result(&self) -> io::Result<()> {
        match self.errno {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// A message as a part of an answer.
#[derive(Clone, Debug)]
pub enum Answer<'a> {
    /// One object.
    Item {
        /// Its kind.
        kind: u16,
        /// The bytes after the header.
        payload: &'a [u8],
        /// The kernel's state changed since the dump began.
        is_torn: bool,
    },
    /// The answer is complete.
    End(Outcome),
}

/// Iterates over the messages of a datagram that answer the request with this sequence number.
pub fn answers(datagram: &[u8], sequence: u32) -> impl Iterator<Item = Answer<'_>> {
    messages(datagram).filter(move |m| m.sequence == sequence).map(|m| match m.kind {
        // Also at the end of a dump there is an error number, or zero.
        NLMSG_ERROR | NLMSG_DONE => Answer::End(outcome(&m)),
        kind => {
            let is_torn = m.flags & NLM_F_DUMP_INTR != 0;
            Answer::Item { kind, payload: m.payload, is_torn }
        }
    })
}

/// Reads an acknowledgement or the end of a dump. One that is cut short is `EPROTO`.
fn outcome(message: &Message<'_>) -> Outcome {
    const EPROTO: i32 = 71;
    let code = message.payload.first_chunk().map_or(-EPROTO, |b| i32::from_ne_bytes(*b));
    let words = attributes_of(message).and_then(|bytes| find(bytes, ATTR_MSG)).map(text);
    Outcome { errno: code.saturating_neg(), words }
}

/// Returns the attributes after the error number, and for an acknowledgement after the request.
fn attributes_of<'a>(message: &Message<'a>) -> Option<&'a [u8]> {
    if message.flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let rest = message.payload.get(4..)?;
    if message.kind == NLMSG_DONE {
        return Some(rest);
    }
    let request = match message.flags & NLM_F_CAPPED {
        0 => u32::from_ne_bytes(*rest.first_chunk()?) as usize,
        _ => HEADER,
    };
    rest.get(request.checked_next_multiple_of(4)?..)
}

/// Reads a text up to its NUL.
pub fn text(value: &[u8]) -> String {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(value.get(..end).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::read;
    use proptest::prelude::*;

    #[test]
    fn a_built_request_reads_back() {
        let bytes = Request::new(16, NLM_F_ACK, &[7; 16])
            .attribute(3, b"abc\0")
            .attribute(4, &5u32.to_ne_bytes())
            .finish(9);
        let all: Vec<Message<'_>> = messages(&bytes).collect();
        let [m] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((m.kind, m.sequence), (16, 9));
        let found: Vec<_> = read(&m.payload[16..]).collect();
        assert_eq!(found[0], (3, b"abc\0".as_slice()));
        assert_eq!(text(found[0].1), "abc");
        assert_eq!(found[1].1, 5u32.to_ne_bytes());
    }

    /// An acknowledgement of `kind` with this error and these bytes of the request.
    fn end(kind: u16, flags: u16, code: i32, request: &[u8], words: &str) -> Vec<u8> {
        let mut fixed = code.to_ne_bytes().to_vec();
        fixed.extend_from_slice(request);
        let words = [words.as_bytes(), b"\0"].concat();
        Request::new(kind, flags | NLM_F_ACK_TLVS, &fixed).attribute(ATTR_MSG, &words).finish(4)
    }

    #[test]
    fn explanations_are_found_in_each_form_of_acknowledgement() {
        let request = Request::new(44, 0, &[1; 20]).finish(4);
        let forms = [
            end(NLMSG_ERROR, 0, -95, &request, "the card is full"),
            end(NLMSG_ERROR, NLM_F_CAPPED, -95, &request[..HEADER], "the card is full"),
            end(NLMSG_DONE, 0, -95, &[], "the card is full"),
        ];
        for bytes in forms {
            let all: Vec<Answer<'_>> = answers(&bytes, 4).collect();
            let [Answer::End(outcome)] = all.as_slice() else { panic!("{all:?}") };
            assert_eq!((outcome.errno, outcome.words.as_deref()), (95, Some("the card is full")));
            assert_eq!(answers(&bytes, 5).count(), 0);
        }
        let bytes = end(NLMSG_ERROR, NLM_F_CAPPED, 0, &request[..HEADER], "in software only");
        let Some(Answer::End(outcome)) = answers(&bytes, 4).next() else { panic!() };
        assert!(outcome.result().is_ok());
        assert_eq!(outcome.words.as_deref(), Some("in software only"));
        let plain = Request::new(NLMSG_ERROR, 0, &[]).finish(4);
        let Some(Answer::End(outcome)) = answers(&plain, 4).next() else { panic!() };
        assert_eq!(outcome, Outcome { errno: 71, words: None });
    }

    proptest! {
        #[test]
        fn any_bytes_end_the_walk(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for m in messages(&bytes) {
                prop_assert!(read(m.payload).count() <= bytes.len());
                outcome(&m);
            }
            for kind in [NLMSG_ERROR, NLMSG_DONE] {
                for flags in [0, NLM_F_ACK_TLVS, NLM_F_ACK_TLVS | NLM_F_CAPPED] {
                    outcome(&Message { kind, flags, sequence: 0, payload: &bytes });
                }
            }
        }
    }
}
