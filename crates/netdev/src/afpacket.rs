// SPDX-License-Identifier: Apache-2.0
//! Any Linux interface, by `AF_PACKET` raw sockets (packet(7)).
//!
//! # Overview
//!
//! One socket receives, bound to all protocols of the interface, with `PACKET_VNET_HDR`: a
//! segmentation packet of up to 64 KiB arrives whole, and an unfinished checksum is marked. The
//! kernel removes VLAN tags before it delivers and reports them by `PACKET_AUXDATA`; the receiver
//! puts them back. A second socket, bound to no protocol so that nothing is queued on it, sends.
//! Frames travel in batches by `recvmmsg` and `sendmmsg`.
//!
//! # Invariants
//!
//! * A receive buffer has three parts: header, the packet's own buffer, and room for the rest of a
//!   large packet. Only the bytes of a large packet beyond the second part are copied.
//! * Frames that the host or the switch sends through the interface are not received
//!   (`PACKET_IGNORE_OUTGOING`).
//! * A device is one interface, not an index. If the interface was deleted or moved to another
//!   network namespace the device is gone, even if an interface with the same index appears.
//!
//! The interface is in promiscuous mode while the device is open; this ends with the socket.

use crate::device::{Opened, Queue, SendReport, Sender};
use crate::kernel::KernelDevice;
use crate::link::{ARPHRD_ETHER, ARPHRD_LOOPBACK, By, LinkClient};
use crate::open_error::OpenError;
use crate::packet_socket::{receive_socket, send_socket};
use crate::pool::PacketPool;
use crate::receive::{FIRST_PART, REST_PART, ReceiveError, attach_offload, gone, join};
use crate::spec::OpenSpec;
use crate::vnet::{self, VNET_HEADER};
use crate::{finish, headers, sys};
use packet::Packet;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of frames in one system call.
const BATCH: usize = 32;
// include/uapi/linux/if_packet.h
const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;

/// Opens `spec.name` for packets. The interface need not be up.
pub(crate) fn open(spec: &OpenSpec) -> Result<Opened, OpenError> {
    let err = |step| OpenError::system(&spec.name, step);
    let client = LinkClient::new().map_err(err("opening a netlink socket"))?;
    let found = client.link(By::Name(&spec.name)).map_err(err("looking it up"))?;
    if !matches!(found.hardware, ARPHRD_ETHER | ARPHRD_LOOPBACK) {
        return Err(OpenError::System {
            name: spec.name.clone(),
            step: "using an interface without Ethernet headers",
            source: io::Error::from_raw_os_error(libc::EOPNOTSUPP),
        });
    }
    // First, because it shows later whether the interface is still the same one.
    let send = Arc::new(send_socket(found.index).map_err(err("opening a send socket"))?);
    let receive =
        Arc::new(receive_socket(&found, spec.muted).map_err(err("opening a receive socket"))?);
    let lost = AtomicU64::new(0);
    let counted = receive.clone();
    let overrun = Box::new(move || {
        // Reading the kernel's counter resets it.
        let new = sys::option::<libc::tpacket_stats>(
            counted.as_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
        )
        .map_or(0, |s| u64::from(s.tp_drops));
        lost.fetch_add(new, Ordering::Relaxed) + new
    });
    let device = Arc::new(
        KernelDevice::new(&spec.name, spec.kind, client, found.index)
            .with_overrun(overrun)
            .with_presence(Some(send.clone()))
            .with_receive(receive.clone()),
    );
    Ok(Opened {
        queues: vec![Box::new(PacketQueue::new(receive, device.clone()))],
        sender: Arc::new(PacketSender { socket: send }),
        device,
    })
}

/// Aligned buffer for one `struct tpacket_auxdata` control message (40 bytes).
type Control = [u64; 6];

struct PacketQueue {
    socket: Arc<OwnedFd>,
    device: Arc<KernelDevice>,
    /// Buffers of the next frames, each FIRST_PART bytes long.
    slots: Vec<Packet>,
    /// REST_PART bytes for each slot.
    rest: Vec<u8>,
    is_gone: bool,
}

impl PacketQueue {
    fn new(socket: Arc<OwnedFd>, device: Arc<KernelDevice>) -> PacketQueue {
        // The pages of `rest` take memory only after a large packet used them.
        PacketQueue { socket, device, slots: Vec::new(), rest: Vec::new(), is_gone: false }
    }

    /// Receives one batch of at most `max` frames. `Ok(0)`: no frame is there.
    fn receive_batch(
        &mut self,
        out: &mut Vec<Packet>,
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
                self.socket.as_raw_fd(),
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
                self.device.count_malformed();
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
    if status & TP_STATUS_VLAN_VALID == 0 {
        return true;
    }
    let [tci0, tci1, tpid0, tpid1, ..] = vlan;
    let tci = u16::from_ne_bytes([tci0, tci1]).to_be_bytes();
    let tpid = if status & TP_STATUS_VLAN_TPID_VALID != 0 {
        u16::from_ne_bytes([tpid0, tpid1])
    } else {
        0x8100
    }
    .to_be_bytes();
    p.insert_at(12, headers::VLAN_TAG);
    headers::put(p.data_mut(), 12, &[tpid[0], tpid[1], tci[0], tci[1]]).is_some()
}

impl Queue for PacketQueue {
    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
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
            match self.receive_batch(out, pool, left) {
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

struct PacketSender {
    socket: Arc<OwnedFd>,
}

impl PacketSender {
    /// Sends at most BATCH packets that have an Ethernet header.
    fn send_batch(&self, packets: &[Packet], report: &mut SendReport) {
        let mut vnet = [[0u8; VNET_HEADER]; BATCH];
        let empty = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        let mut parts = [[empty; 2]; BATCH];
        // SAFETY: integers and null pointers; zero is valid.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        let all = packets.iter().zip(&mut vnet).zip(&mut parts).zip(&mut messages);
        for (((p, header), parts), message) in all {
            *header = vnet::encode(&p.offload);
            // The kernel only reads these buffers.
            *parts = [
                libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: VNET_HEADER },
                libc::iovec { iov_base: p.data().as_ptr().cast_mut().cast(), iov_len: p.len() },
            ];
            message.msg_hdr.msg_iov = parts.as_mut_ptr();
            message.msg_hdr.msg_iovlen = parts.len() as _;
        }
        let count = packets.len().min(BATCH);
        let mut done = 0;
        while let Some(rest) = messages.get_mut(done..count).filter(|m| !m.is_empty()) {
            // SAFETY: each message points to iovecs on this stack frame, and these to `vnet`
            // and to the packets' bytes, which live through the call and are only read.
            let sent = sys::check(unsafe {
                libc::sendmmsg(
                    self.socket.as_raw_fd(),
                    rest.as_mut_ptr(),
                    rest.len() as libc::c_uint,
                    libc::MSG_DONTWAIT as _,
                )
            });
            match sent {
                Ok(n) if n > 0 => {
                    let n = usize::try_from(n).unwrap_or(0);
                    report.sent += n as u64;
                    done += n;
                }
                Ok(_) => {
                    report.dropped_error += (count - done) as u64;
                    return;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    if let Some(p) = packets.get(done) {
                        self.send_refused(p, &e, report);
                    }
                    done += 1;
                }
            }
        }
    }

    /// Handles a packet that the kernel refused. If its offload metadata may be the reason,
    /// finishes the offload work in software and sends the frames without metadata.
    fn send_refused(&self, p: &Packet, error: &io::Error, report: &mut SendReport) {
        let offload_refused = matches!(
            error.raw_os_error(),
            Some(libc::EINVAL | libc::EMSGSIZE | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT)
        );
        if finish::is_finished(p) || !offload_refused {
            report.count_error(error);
        } else {
            self.send_finished(p, report);
        }
    }

    fn send_finished(&self, p: &Packet, report: &mut SendReport) {
        match finish::finish(p) {
            Err(_) => report.dropped_malformed += 1,
            Ok(frames) => {
                let mut one = SendReport::default();
                frames.chunks(BATCH).for_each(|batch| self.send_batch(batch, &mut one));
                *report += SendReport::of_one(&one);
            }
        }
    }
}

impl Sender for PacketSender {
    fn send(&self, packets: &[Packet]) -> SendReport {
        let mut report = SendReport::default();
        let beyond = finish::is_beyond_the_kernel;
        // Runs of packets that are at least as long as an Ethernet header.
        for run in packets.split(|p| p.len() < headers::ETH_HEADER) {
            for part in run.chunk_by(|a, b| beyond(a) == beyond(b)) {
                if part.first().is_some_and(beyond) {
                    part.iter().for_each(|p| self.send_finished(p, &mut report));
                } else {
                    part.chunks(BATCH).for_each(|batch| self.send_batch(batch, &mut report));
                }
            }
        }
        let all = packets.len() as u64;
        report.dropped_malformed += all - report.sent - report.dropped();
        report
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
