// SPDX-License-Identifier: Apache-2.0
//! The parts of a TCP segment that the state machine reads.

use packet::{FromBytes, TcpHeader, tcp_flags};

/// The largest shift of the window (RFC 7323, 2.3).
pub const MAX_WINDOW_SHIFT: u8 = 14;

/// A TCP segment without its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSegment {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number; has a meaning only with the ACK flag.
    pub ack: u32,
    /// Flags (`packet::tcp_flags`).
    pub flags: u16,
    /// Window, unscaled.
    pub window: u16,
    /// Bytes of data. A segment that is still to be cut counts whole.
    pub data_len: u32,
    /// The window scale option, at most [`MAX_WINDOW_SHIFT`].
    pub window_shift: Option<u8>,
}

impl TcpSegment {
    /// Decodes the segment `bytes`, from the TCP header to the end of the IP packet (RFC 9293,
    /// 3.1).
    /// `None`: the header is cut off, or its length is impossible.
    pub fn decode(bytes: &[u8]) -> Option<TcpSegment> {
        let (header, _) = TcpHeader::ref_from_prefix(bytes).ok()?;
        let len = header.header_len();
        let options = bytes.get(size_of::<TcpHeader>()..len)?;
        Some(TcpSegment {
            seq: header.seq.get(),
            ack: header.ack.get(),
            flags: header.flags(),
            window: header.window.get(),
            data_len: u32::try_from(bytes.len() - len).ok()?,
            window_shift: window_shift(options),
        })
    }

    /// Returns true when all of `flags` are set.
    pub fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }

    /// Returns true for a SYN without ACK.
    pub fn is_bare_syn(&self) -> bool {
        self.flags & (tcp_flags::SYN | tcp_flags::ACK) == tcp_flags::SYN
    }
}

/// Returns the last window scale option of `options` (RFC 7323, 2.2).
fn window_shift(mut options: &[u8]) -> Option<u8> {
    const END: u8 = 0;
    const NOP: u8 = 1;
    const WINDOW: u8 = 3;
    let mut shift = None;
    loop {
        match *options {
            [NOP, ref rest @ ..] => options = rest,
            [WINDOW, _, value, ..] => {
                shift = Some(value.min(MAX_WINDOW_SHIFT));
                options = options.get(usize::from(options[1]).max(2)..).unwrap_or_default();
            }
            [] | [_] | [END, ..] => return shift,
            [_, len, ..] => options = options.get(usize::from(len).max(2)..).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_scale_is_found_and_bounded() {
        assert_eq!(window_shift(&[2, 4, 5, 180, 1, 3, 3, 7]), Some(7));
        assert_eq!(window_shift(&[3, 3, 99]), Some(14));
        assert_eq!(window_shift(&[0, 3, 3, 7]), None);
        assert_eq!(window_shift(&[3, 3]), None);
        assert_eq!(window_shift(&[8, 0, 3, 3, 7]), Some(7)); // a length below 2 counts as 2
        assert_eq!(window_shift(&[8, 200, 3, 3, 7]), None);
    }

    #[test]
    fn impossible_lengths_are_refused() {
        let mut bytes = [0u8; 24];
        bytes[12] = 0x60;
        assert_eq!(TcpSegment::decode(&bytes).unwrap().data_len, 0);
        bytes[12] = 0x40;
        assert_eq!(TcpSegment::decode(&bytes), None);
        bytes[12] = 0x70;
        assert_eq!(TcpSegment::decode(&bytes), None);
        assert_eq!(TcpSegment::decode(&bytes[..19]), None);
    }
}
