// SPDX-License-Identifier: Apache-2.0
//! Common parts of receive queues: buffers, offload metadata, and errors.

use crate::pool::PacketPool;
use crate::vnet::{self, VNET_HEADER};
use crate::{finish, headers};
use packet::Packet;
use std::ffi::c_int;
use std::io;

/// Bytes of a packet's own buffer, into which a frame is received.
pub(crate) const FIRST_PART: usize = 2048;
/// Bytes of the buffer for the rest of a large frame: the largest IP packet with Ethernet header
/// and tags fits.
pub(crate) const REST_PART: usize = 66_560 - FIRST_PART;

/// The meaning of the kernel's error for a receiver.
pub(crate) enum ReceiveError {
    /// No frame is there now. The interface may be down or moving, which is temporary.
    NoFrame,
    /// The kernel dropped one frame that its frame header cannot describe: SCTP in segments, or UDP
    /// in segments before Linux 6.2.
    BadFrame,
    /// The interface is gone; the receiver returns [`gone`].
    Gone,
    /// The descriptor is broken.
    Other(io::Error),
}

impl ReceiveError {
    /// Classifies `error`. The errors in `down` mean that the interface is down if `is_present`
    /// returns true, else that it is gone.
    pub(crate) fn new(
        error: io::Error,
        down: &[c_int],
        is_present: impl FnOnce() -> bool,
    ) -> ReceiveError {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM) => {
                ReceiveError::NoFrame
            }
            Some(libc::EINVAL) => ReceiveError::BadFrame,
            Some(number) if down.contains(&number) => {
                if is_present() {
                    ReceiveError::NoFrame
                } else {
                    ReceiveError::Gone
                }
            }
            _ => ReceiveError::Other(error),
        }
    }
}

/// Returns the error of a receiver whose interface is gone.
pub(crate) fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::ENODEV)
}

/// Sets the offload metadata of a whole frame from its header. Returns false when they contradict
/// each other.
pub(crate) fn attach_offload(p: &mut Packet, header: &[u8; VNET_HEADER]) -> bool {
    match vnet::decode(header, p.data()) {
        Some(offload) => {
            p.offload = offload;
            finish::finish_crc(p);
            true
        }
        None => false,
    }
}

/// Joins `p`, a buffer of FIRST_PART bytes, and `rest` to a whole frame of `length` bytes. Returns
/// false when it is not an Ethernet frame.
pub(crate) fn join(p: &mut Packet, length: usize, rest: &[u8], pool: &mut PacketPool) -> bool {
    if length < headers::ETH_HEADER {
        return false;
    }
    if length <= FIRST_PART {
        p.resize(length);
    } else {
        let Some(more) = rest.get(..length - FIRST_PART) else { return false };
        // The rest is copied in any case, so it is copied into a buffer that is large enough.
        let mut large = pool.take_large(FIRST_PART + REST_PART);
        large.extend(p.data());
        large.extend(more);
        std::mem::swap(p, &mut large);
        pool.give(large);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_down_is_not_an_error_and_one_that_is_gone_is() {
        let of = |number, is_present| {
            let error = io::Error::from_raw_os_error(number);
            ReceiveError::new(error, &[libc::ENETDOWN], || is_present)
        };
        for is_present in [false, true] {
            assert!(matches!(of(libc::EAGAIN, is_present), ReceiveError::NoFrame));
            assert!(matches!(of(libc::EINVAL, is_present), ReceiveError::BadFrame));
            assert!(matches!(of(libc::EBADF, is_present), ReceiveError::Other(_)));
        }
        assert!(matches!(of(libc::ENETDOWN, true), ReceiveError::NoFrame));
        assert!(matches!(of(libc::ENETDOWN, false), ReceiveError::Gone));
    }
}
