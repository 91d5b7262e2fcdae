// SPDX-License-Identifier: Apache-2.0
//! Reads the frames of a receive socket.
//!
//! Frames arrive in a ring (`packet_ring`) or, at a socket without one, in batches by `recvmmsg`.
//! `recvmmsg` also reads those that are longer than a frame of the ring. The kernel removes VLAN
//! tags before it delivers and reports them in the ring or by `PACKET_AUXDATA`.

use crate::afpacket::BATCH;
use crate::headers::{self, VLAN_TAG};
use crate::packet_ring::{Front, PacketRing, vlan_tag};
use crate::packet_socket::ReceiveSocket;
use crate::pool::PacketPool;
use crate::receive::{FIRST_PART, REST_PART, ReceiveError, gone, join};
use crate::sys;
use crate::vnet::VNET_HEADER;
use packet::Packet;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;

/// The object that gets the frames which a [`PacketReader`] reads.
pub(crate) trait FrameSink {
    /// Takes a frame: its bytes, at least an Ethernet header, without offload metadata; `struct
    /// virtio_net_hdr`; and the outermost VLAN tag, TPID and TCI, if the kernel keeps it outside of
    /// the bytes. The offsets of the header do not include that tag. A useless packet goes to
    /// `pool`.
    fn take(
        &mut self,
        packet: Packet,
        header: &[u8; VNET_HEADER],
        tag: Option<[u8; VLAN_TAG]>,
        pool: &mut PacketPool,
    );

    /// Counts data that is not a frame.
    fn count_malformed(&mut self);

    /// Returns true when the interface may deliver again although it is down now. False: it is
    /// gone.
    fn is_present(&self) -> bool;
}

/// The reading end of a socket. One thread at a time uses it.
pub(crate) struct PacketReader {
    socket: Arc<ReceiveSocket>,
    messages: Messages,
    is_gone: bool,
}

impl PacketReader {
    pub(crate) fn new(socket: Arc<ReceiveSocket>) -> PacketReader {
        PacketReader { socket, messages: Messages::default(), is_gone: false }
    }

    pub(crate) fn socket(&self) -> &ReceiveSocket {
        &self.socket
    }

    /// Reads at most `max` frames in buffers from `pool`, and gives the whole ones to `sink`. Returns
    /// the number of frames that were there, also of cut and malformed ones. Fewer than `max` means
    /// that no more is there. Never blocks.
    ///
    /// # Errors
    ///
    /// The interface is gone, or the socket is broken.
    pub(crate) fn read(
        &mut self,
        sink: &mut impl FrameSink,
        pool: &mut PacketPool,
        max: usize,
    ) -> io::Result<usize> {
        if self.is_gone {
            return Err(gone());
        }
        let mut left = max;
        while left > 0 {
            match self.receive(sink, pool, left) {
                Ok(n) => {
                    left -= n;
                    if n < BATCH {
                        break;
                    }
                }
                Err(e) => match ReceiveError::new(e, &[libc::ENETDOWN], || sink.is_present()) {
                    ReceiveError::NoFrame => break,
                    ReceiveError::BadFrame => {
                        sink.count_malformed();
                        left -= 1;
                    }
                    ReceiveError::Gone => {
                        self.is_gone = true;
                        return Err(gone());
                    }
                    ReceiveError::Other(e) => return Err(e),
                },
            }
        }
        Ok(max - left)
    }

    /// Receives at most `max` frames, in one batch from the socket's queue. Returns the number of
    /// frames that were there; fewer than [`BATCH`] and `max` means that no more is. Frames that
    /// were given to `sink` before an error are valid.
    fn receive(
        &mut self,
        sink: &mut impl FrameSink,
        pool: &mut PacketPool,
        max: usize,
    ) -> io::Result<usize> {
        match self.socket.ring() {
            Some(mut ring) => {
                receive_by_ring(&mut ring, &self.socket, &mut self.messages, sink, pool, max)
            }
            None => self.messages.receive(self.socket.fd(), sink, pool, max),
        }
    }
}

/// Receives at most `max` frames of a ring, and those of the queue of its socket that have a place
/// in the ring.
fn receive_by_ring(
    ring: &mut PacketRing,
    socket: &ReceiveSocket,
    messages: &mut Messages,
    sink: &mut impl FrameSink,
    pool: &mut PacketPool,
    max: usize,
) -> io::Result<usize> {
    let mut taken = 0;
    while taken < max {
        let count = match ring.front() {
            None => break,
            Some(Front::Whole(frame)) => {
                if frame.data.len() < headers::ETH_HEADER {
                    sink.count_malformed();
                } else {
                    let mut p = pool.take();
                    p.extend(frame.data);
                    sink.take(p, frame.header, frame.tag, pool);
                }
                1
            }
            Some(Front::Queued) => {
                let count = ring.queued((max - taken).min(BATCH));
                match messages.receive(socket.fd(), sink, pool, count) {
                    Ok(count) => count,
                    // The queue had each of these packets before its frame was marked.
                    Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {
                        socket.count_lost();
                        1
                    }
                    Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                        sink.count_malformed();
                        1
                    }
                    // The packets are still there.
                    Err(e) => return Err(e),
                }
            }
            Some(Front::Cut) => {
                socket.count_lost();
                1
            }
            Some(Front::Malformed) => {
                sink.count_malformed();
                1
            }
        };
        ring.release(count);
        taken += count;
    }
    if taken == 0 {
        // An interface that goes down or is deleted leaves an error at the socket.
        let error = sys::option(socket.fd(), libc::SOL_SOCKET, libc::SO_ERROR)?;
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
    }
    Ok(taken)
}

/// Aligned buffer for one `struct tpacket_auxdata` control message (40 bytes).
type Control = [u64; 6];

/// Reads frames from the socket's queue.
///
/// A receive buffer has three parts: header, the packet's own buffer, and room for the rest of a
/// large packet. Only the bytes of a large packet beyond the second part are copied.
///
/// The pages of `rest` take memory only after a large packet used them.
#[derive(Default)]
struct Messages {
    /// Buffers of the next frames, each FIRST_PART bytes long.
    slots: Vec<Packet>,
    /// REST_PART bytes for each slot.
    rest: Vec<u8>,
}

impl Messages {
    /// Receives one batch of at most `max` frames and returns the number of those that were there.
    /// Gives the whole ones to `sink`.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: no frame is there. For others, see [`ReceiveError`].
    fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        sink: &mut impl FrameSink,
        pool: &mut PacketPool,
        max: usize,
    ) -> io::Result<usize> {
        let n = max.min(BATCH);
        while self.slots.len() < n {
            let mut p = pool.take();
            p.resize(FIRST_PART);
            self.slots.push(p);
        }
        if self.rest.is_empty() {
            self.rest = vec![0; BATCH * REST_PART];
        }
        let mut vnet = [[0u8; VNET_HEADER]; BATCH];
        let mut control: [Control; BATCH] = [[0; 6]; BATCH];
        let empty = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        let mut parts = [[empty; 3]; BATCH];
        // SAFETY: integers and null pointers; zero is valid.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        let buffers = vnet
            .iter_mut()
            .zip(self.slots.iter_mut().take(n))
            .zip(self.rest.chunks_exact_mut(REST_PART))
            .zip(&mut control)
            .zip(&mut parts)
            .zip(&mut messages);
        for (((((header, first), rest), control), parts), message) in buffers {
            let first = first.data_mut();
            *parts = [
                libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: VNET_HEADER },
                libc::iovec { iov_base: first.as_mut_ptr().cast(), iov_len: first.len() },
                libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() },
            ];
            message.msg_hdr.msg_iov = parts.as_mut_ptr();
            message.msg_hdr.msg_iovlen = parts.len() as _;
            message.msg_hdr.msg_control = control.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = size_of::<Control>() as _;
        }
        // SAFETY: the first n messages point to iovecs and control buffers on this stack frame,
        // and these to buffers of the stated lengths in `vnet`, `self.slots` and `self.rest`,
        // all distinct and none touched until the call returns.
        let got = sys::check(unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                n as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        })?;
        let got = usize::try_from(got).unwrap_or(0).min(n);
        let frames = self
            .slots
            .drain(..got)
            .zip(&vnet)
            .zip(self.rest.chunks_exact(REST_PART))
            .zip(&control)
            .zip(&messages);
        for ((((mut p, header), rest), control), message) in frames {
            let length = (message.msg_len as usize).checked_sub(VNET_HEADER);
            let cut = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            let whole = length.filter(|_| !cut);
            if whole.is_some_and(|length| join(&mut p, length, rest, pool)) {
                let tag = control_tag(control, message.msg_hdr.msg_controllen);
                sink.take(p, header, tag, pool);
            } else {
                sink.count_malformed();
                pool.give(p);
            }
        }
        Ok(got)
    }
}

/// Returns the VLAN tag that `struct tpacket_auxdata` in the `used` bytes of `control` reports.
fn control_tag(control: &Control, used: usize) -> Option<[u8; VLAN_TAG]> {
    // cmsghdr: length(8) level(4) type(4); then status(4) len(4) snaplen(4) mac(2) net(2)
    // vlan_tci(2) vlan_tpid(2). Only one kind of message is enabled.
    if used < 16 + 20 {
        return None;
    }
    let [_, kind, status, _, vlan, _] = control.map(u64::to_ne_bytes);
    let [level0, level1, level2, level3, ..] = kind;
    if i32::from_ne_bytes([level0, level1, level2, level3]) != libc::SOL_PACKET {
        return None;
    }
    let [s0, s1, s2, s3, ..] = status;
    let status = u32::from_ne_bytes([s0, s1, s2, s3]);
    let [tci0, tci1, tpid0, tpid1, ..] = vlan;
    let (tci, tpid) = (u16::from_ne_bytes([tci0, tci1]), u16::from_ne_bytes([tpid0, tpid1]));
    vlan_tag(status, tci, tpid)
}

/// Inserts a VLAN tag after the addresses.
pub(crate) fn insert_tag(p: &mut Packet, tag: [u8; VLAN_TAG]) -> bool {
    p.insert_at(12, VLAN_TAG);
    headers::put(p.data_mut(), 12, &tag).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_message_is_a_frame_or_refused(
            length in 0..70_000usize,
            control: Control,
            used in 0..100usize,
        ) {
            let mut p = Packet::with_capacity(FIRST_PART);
            p.resize(FIRST_PART);
            if join(&mut p, length, &[1; REST_PART], &mut PacketPool::default()) {
                let tag = control_tag(&control, used);
                prop_assert!(tag.is_none_or(|tag| insert_tag(&mut p, tag)));
                prop_assert_eq!(p.len(), length + tag.map_or(0, |tag| tag.len()));
            }
        }
    }
}
