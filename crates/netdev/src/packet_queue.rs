// SPDX-License-Identifier: Apache-2.0
//! The receiving side of a packet socket.
//!
//! Frames arrive in a ring (`packet_ring`) or, at a socket without one, in batches by `recvmmsg`.
//! `recvmmsg` also reads those that are longer than a frame of the ring. The kernel removes VLAN tags
//! before it delivers and reports them in the ring or by `PACKET_AUXDATA`; the receiver puts them
//! back.

use crate::afpacket::BATCH;
use crate::device::Queue;
use crate::kernel::KernelDevice;
use crate::packet_ring::{Frame, Front, vlan_tag};
use crate::packet_socket::ReceiveSocket;
use crate::pool::PacketPool;
use crate::receive::{FIRST_PART, REST_PART, ReceiveError, attach_offload, gone, join};
use crate::vnet::VNET_HEADER;
use crate::{headers, sys};
use packet::Packet;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;

/// Receives the frames of an interface.
pub(crate) struct PacketQueue {
    socket: Arc<ReceiveSocket>,
    messages: Messages,
    device: Arc<KernelDevice>,
    is_gone: bool,
}

impl PacketQueue {
    pub(crate) fn new(socket: Arc<ReceiveSocket>, device: Arc<KernelDevice>) -> PacketQueue {
        PacketQueue { socket, messages: Messages::default(), device, is_gone: false }
    }

    /// Receives at most `max` frames, in one batch from the socket's queue. Returns the number of
    /// frames that were there; fewer than [`BATCH`] and `max` means that no more is. Frames that
    /// were appended before an error are valid.
    fn receive(
        &mut self,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
        max: usize,
    ) -> io::Result<usize> {
        let socket = &*self.socket;
        let Some(mut ring) = socket.ring() else {
            return self.messages.receive(socket.fd(), out, pool, max, &self.device);
        };
        let mut taken = 0;
        while taken < max {
            let count = match ring.front() {
                None => break,
                Some(Front::Whole(frame)) => {
                    match packet_of(&frame, pool) {
                        Ok(p) => out.push(p),
                        Err(p) => {
                            self.device.count_malformed();
                            pool.give(p);
                        }
                    }
                    1
                }
                Some(Front::Queued) => {
                    let count = ring.queued((max - taken).min(BATCH));
                    match self.messages.receive(socket.fd(), out, pool, count, &self.device) {
                        Ok(count) => count,
                        // The queue had each of these packets before its frame was marked.
                        Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {
                            socket.count_lost();
                            1
                        }
                        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                            self.device.count_malformed();
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
                    self.device.count_malformed();
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
}

/// Returns the packet of a frame of a ring, or the unused buffer when it is not an Ethernet frame or
/// contradicts its header.
fn packet_of(frame: &Frame<'_>, pool: &mut PacketPool) -> Result<Packet, Packet> {
    let mut p = pool.take();
    if frame.data.len() < headers::ETH_HEADER {
        return Err(p);
    }
    p.extend(frame.data);
    let is_good =
        attach_offload(&mut p, frame.header) && frame.tag.is_none_or(|tag| insert_tag(&mut p, tag));
    if is_good { Ok(p) } else { Err(p) }
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
    /// Appends those that are good.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: no frame is there. For others, see [`ReceiveError`].
    fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
        max: usize,
        device: &KernelDevice,
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
            let good = length.filter(|_| !cut).is_some_and(|length| {
                let used = message.msg_hdr.msg_controllen;
                complete(&mut p, length, rest, header, pool) && restore_tag(&mut p, control, used)
            });
            if good {
                out.push(p);
            } else {
                device.count_malformed();
                pool.give(p);
            }
        }
        Ok(got)
    }
}

/// Joins `p`, a buffer of FIRST_PART bytes, and `rest` to a whole frame of `length` bytes with its
/// offload metadata. Returns false when it is not an Ethernet frame or contradicts its header.
fn complete(
    p: &mut Packet,
    length: usize,
    rest: &[u8],
    header: &[u8; VNET_HEADER],
    pool: &mut PacketPool,
) -> bool {
    join(p, length, rest, pool) && attach_offload(p, header)
}

/// Puts back the VLAN tag that `struct tpacket_auxdata` in the `used` bytes of `control` reports.
fn restore_tag(p: &mut Packet, control: &Control, used: usize) -> bool {
    // cmsghdr: length(8) level(4) type(4); then status(4) len(4) snaplen(4) mac(2) net(2)
    // vlan_tci(2) vlan_tpid(2). Only one kind of message is enabled.
    if used < 16 + 20 {
        return true;
    }
    let [_, kind, status, _, vlan, _] = control.map(u64::to_ne_bytes);
    let [level0, level1, level2, level3, ..] = kind;
    if i32::from_ne_bytes([level0, level1, level2, level3]) != libc::SOL_PACKET {
        return true;
    }
    let [s0, s1, s2, s3, ..] = status;
    let status = u32::from_ne_bytes([s0, s1, s2, s3]);
    let [tci0, tci1, tpid0, tpid1, ..] = vlan;
    let (tci, tpid) = (u16::from_ne_bytes([tci0, tci1]), u16::from_ne_bytes([tpid0, tpid1]));
    vlan_tag(status, tci, tpid).is_none_or(|tag| insert_tag(p, tag))
}

/// Inserts a VLAN tag after the addresses.
fn insert_tag(p: &mut Packet, tag: [u8; headers::VLAN_TAG]) -> bool {
    p.insert_at(12, headers::VLAN_TAG);
    headers::put(p.data_mut(), 12, &tag).is_some()
}

impl Queue for PacketQueue {
    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd())
    }

    fn recv(
        &mut self,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
        max: usize,
    ) -> io::Result<usize> {
        if self.is_gone {
            return Err(gone());
        }
        let before = out.len();
        let mut left = max;
        while left > 0 {
            match self.receive(out, pool, left) {
                Ok(n) => {
                    left -= n;
                    if n < BATCH {
                        break;
                    }
                }
                Err(e) => {
                    match ReceiveError::new(e, &[libc::ENETDOWN], || self.device.is_present()) {
                        ReceiveError::NoFrame => break,
                        ReceiveError::BadFrame => {
                            self.device.count_malformed();
                            left -= 1;
                        }
                        ReceiveError::Gone => {
                            self.is_gone = true;
                            return Err(gone());
                        }
                        ReceiveError::Other(e) => return Err(e),
                    }
                }
            }
        }
        self.device.policer.apply(out, before, pool);
        Ok(out.len() - before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_delivery_is_a_frame_or_refused(
            length in 0..70_000usize,
            header: [u8; VNET_HEADER],
            control: Control,
            used in 0..100usize,
        ) {
            let mut p = Packet::with_capacity(FIRST_PART);
            p.resize(FIRST_PART);
            if complete(&mut p, length, &[1; REST_PART], &header, &mut PacketPool::default())
                && restore_tag(&mut p, &control, used)
            {
                prop_assert!(p.len() == length || p.len() == length + 4);
            }
        }
    }
}
