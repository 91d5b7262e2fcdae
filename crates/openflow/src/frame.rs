// SPDX-License-Identifier: Apache-2.0
//! From a byte stream to messages, and the first exchange on a connection; no I/O.
//!
//! OpenFlow frames itself: the third and fourth byte of each message are its length. A length below
//! 8 is the only mistake that ends the connection ([`FrameError`]): the start of the next message
//! cannot be found, so no error message helps. [`crate::message::Message::decode`] handles all
//! other mistakes.

use crate::message::{Body, ErrorCode, ErrorMessage, Hello, Message, Protocol, Versions};
use crate::{OfError, Version};

/// Bytes of a header.
pub const HEADER_SIZE: usize = 8;

/// The stream cannot be read on; close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "received too-short OpenFlow message: its header says {length} bytes, at least 8 are needed; closing connection"
)]
pub struct FrameError {
    /// The length from the header, in bytes.
    pub length: u16,
}

/// The length of the message at the start of `bytes`: `None` while its header is not there.
///
/// # Errors
/// [`FrameError`] for a length below 8.
pub(crate) fn message_size(bytes: &[u8]) -> Result<Option<usize>, FrameError> {
    let Some([high, low]) = bytes.get(2..4).and_then(|b| <[u8; 2]>::try_from(b).ok()) else {
        return Ok(None);
    };
    let length = u16::from_be_bytes([high, low]);
    if usize::from(length) < HEADER_SIZE {
        return Err(FrameError { length });
    }
    Ok(Some(usize::from(length)))
}

/// Takes bytes as they come and gives whole messages.
///
/// Holds less than one message (65,535 bytes) besides what one [`Frames::push`] brought.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    buffer: Vec<u8>,
    /// Bytes at the start of `buffer` that were given out.
    taken: usize,
}

impl Frames {
    /// An empty stream.
    pub fn new() -> Frames {
        Frames::default()
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message, or `None` until more bytes come.
    ///
    /// # Errors
    /// [`FrameError`], again at each call: the stream is lost.
    pub fn next_message(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let rest = self.buffer.get(self.taken..).unwrap_or_default();
        let Some(size) = message_size(rest)? else {
            return Ok(None);
        };
        if rest.len() < size {
            return Ok(None);
        }
        let start = self.taken;
        self.taken += size;
        Ok(self.buffer.get(start..self.taken))
    }

    /// Bytes that wait for the rest of their message.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.taken
    }
}

/// The transaction id of a message, which begins with a whole header; 0 where it does not.
pub fn xid(message: &[u8]) -> u32 {
    let xid = message.get(4..HEADER_SIZE).and_then(|xid| <[u8; 4]>::try_from(xid).ok());
    xid.map_or(0, u32::from_be_bytes)
}

/// The messages in `bytes`, which are whole ones, as [`Message::encode`] writes them. Ends at
/// the first that is not whole.
pub fn split(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let size = message_size(rest).ok()??;
        let (message, tail) = rest.split_at_checked(size)?;
        rest = tail;
        Some(message)
    })
}

/// Result of the first message from the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Negotiation {
    /// Both speak this version; go on with it.
    Agreed(Version),
    /// No version in common: send `reply`, then close.
    Failed {
        /// The error message, encoded.
        reply: Vec<u8>,
        /// For the log: the versions of each side.
        reason: String,
    },
    /// The first message was no hello (or not a whole one); close.
    NoHello {
        /// For the log.
        reason: String,
    },
}

/// The hello that a side which speaks `versions` sends first.
pub fn hello(versions: Versions, xid: u32) -> Vec<u8> {
    let message = Message { xid, body: Body::Hello(Hello { versions }) };
    // A hello is always encodable: it is written in the newest of its own versions, whatever the
    // protocol.
    message.encode(&Protocol::new(Version::V10)).unwrap_or_default()
}

/// Decides on a version from our versions and the peer's first message, as in OpenFlow 1.3.1
/// section 6.3.1: the newest in common. A peer without a bitmap supports every version up to the
/// one in its header.
pub fn negotiate(ours: Versions, first: &[u8]) -> Negotiation {
    let newest = ours.newest().unwrap_or(Version::V10);
    let decoded = Message::decode(first, &Protocol::new(newest));
    let hello = match decoded {
        Ok(Message { body: Body::Hello(hello), .. }) => hello,
        Ok(Message { body: Body::Error(error), .. }) => {
            let what = match error.error {
                ErrorCode::Known(error) => error.name.to_string(),
                ErrorCode::Unknown { vendor, kind, code } => {
                    format!("error of vendor 0x{vendor:x}, type {kind}, code {code}")
                }
            };
            return Negotiation::NoHello { reason: format!("peer sent {what} instead of a hello") };
        }
        _ => {
            let ty = first.get(1).copied().unwrap_or_default();
            let reason = format!("received message of type {ty} while expecting hello");
            return Negotiation::NoHello { reason };
        }
    };
    if let Some(version) = ours.intersection(hello.versions).newest() {
        return Negotiation::Agreed(version);
    }
    let reason = format!("we support {ours} but peer supports {}", hello.versions);
    let data = format!("We support {ours}, you support {}, no common versions.", hello.versions);
    let error = ErrorMessage {
        error: ErrorCode::Known(OfError::OFPHFC_INCOMPATIBLE),
        data: data.into_bytes(),
    };
    let reply = Message { xid: 0, body: Body::Error(error) };
    // Written in the newest of the peer's versions that this crate supports.
    let version =
        Version::ALL.into_iter().rev().find(|v| hello.versions.contains(*v)).unwrap_or(newest);
    let reply = reply.encode(&Protocol::new(version)).unwrap_or_default(); // a short text fits
    Negotiation::Failed { reply, reason }
}

#[cfg(test)]
mod tests;
