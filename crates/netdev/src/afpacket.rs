// SPDX-License-Identifier: Apache-2.0
//! Any Linux interface, by `AF_PACKET` raw sockets (packet(7)).
//!
//! # What it is
//!
//! One socket receives, bound to all protocols of the interface, with `PACKET_VNET_HDR`: a
//! segmentation packet of up to 64 KiB arrives whole, and an unfinished checksum is marked. The
//! kernel takes VLAN tags off before it delivers; `PACKET_AUXDATA` tells which, and they are put
//! back. A second socket, bound to no protocol so that nothing is queued on it, sends.
//! Frames travel in batches by `recvmmsg` and `sendmmsg`.
//!
//! # Invariants
//!
//! * A receive buffer has three parts: header, the packet's own buffer, and room for the rest
//!   of a large packet. Only what a large packet really has beyond the second part is copied.
//! * Frames that the host sends through the interface are not received
//!   (`PACKET_IGNORE_OUTGOING`), neither are ours.
//! * A device is one interface, not whichever has its index: once that was deleted or moved to
//!   another namespace the device is gone, also when one with the same index comes (back).
//!
//! The interface is in promiscuous mode while the device is open; this ends with the socket.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packet::Packet;

use crate::device::{Opened, Queue, Reception, SendReport, Sender};
use crate::kernel::KernelDevice;
use crate::link::{self, ARPHRD_ETHER, ARPHRD_LOOPBACK, By, LinkClient};
use crate::open::{OpenError, OpenSpec};
use crate::pool::PacketPool;
use crate::vnet::{self, VNET_HEADER};
use crate::{finish, headers, sys};

/// Frames in one system call.
const BATCH: usize = 32;
/// Bytes of the packet's own buffer that a frame is received into.
pub(crate) const FIRST_PART: usize = 2048;
/// Room for the rest: the largest IP packet with Ethernet header and tags fits.
pub(crate) const REST_PART: usize = 66_560 - FIRST_PART;
/// Asked of the kernel for each socket.
const SOCKET_BUFFER: i32 = 8 << 20;

// include/uapi/linux/if_packet.h
const PACKET_IGNORE_OUTGOING: i32 = 23;

/// A protocol that no frame on an Ethernet device has: below 0x600 the kernel knows two,
/// `ETH_P_802_3` and `ETH_P_802_2` (`eth_type_trans`). A socket that was bound to a protocol
/// keeps it when it is bound to protocol 0, so this stands for "none". Only a list that is looked
/// at when nobody took a frame then has our entry, and no frame runs it.
const NO_FRAME: u16 = 0x05ff;

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
    // First, as it tells whether the interface has been the same one since.
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
            .with_hold(Some(send.clone()))
            .with_receive(receive.clone()),
    );
    Ok(Opened {
        queues: vec![Box::new(PacketQueue::new(receive, device.clone()))],
        sender: Arc::new(PacketSender { socket: send }),
        device,
    })
}

fn address(index: u32, protocol: u16) -> libc::sockaddr_ll {
    // SAFETY: integers only; zero is valid.
    let mut a: libc::sockaddr_ll = unsafe { mem::zeroed() };
    a.sll_family = libc::AF_PACKET as u16;
    a.sll_protocol = protocol.to_be();
    a.sll_ifindex = index as i32; // the kernel's indexes are positive ints
    a
}

fn receive_socket(link: &link::Link, muted: bool) -> io::Result<OwnedFd> {
    // Protocol 0 until everything is set, so that nothing is received before.
    let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)?;
    let fd = socket.as_fd();
    sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
    sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, &1)?;
    sys::set_option(fd, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1)?;
    sys::grow_buffer(fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, SOCKET_BUFFER);
    if muted {
        take_none(fd)?;
    }
    sys::bind(fd, &address(link.index, libc::ETH_P_ALL as u16))?;
    let membership = libc::packet_mreq {
        mr_ifindex: link.index as i32,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)?;
    Ok(socket)
}

/// Begins or ends to receive on a socket of [`open`]: all, or what `filter` lets in. What is queued
/// on it stays.
pub(crate) fn set_receiving(
    socket: &OwnedFd,
    index: u32,
    reception: Reception,
    filter: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let fd = socket.as_fd();
    if reception == Reception::On {
        sys::bind(fd, &address(index, libc::ETH_P_ALL as u16))?;
        return match filter {
            Some(filter) => {
                let program = filter.as_raw_fd();
                sys::set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &program)
            }
            None => take_all(fd),
        };
    }
    take_none(fd)?;
    let protocol = match reception {
        Reception::Off => NO_FRAME,
        Reception::On | Reception::Muted => libc::ETH_P_ALL as u16,
    };
    sys::bind(fd, &address(index, protocol))
}

/// A socket filter that accepts nothing: it runs before a packet is copied.
fn take_none(fd: BorrowedFd<'_>) -> io::Result<()> {
    // BPF_RET | BPF_K with 0 bytes (include/uapi/linux/bpf_common.h).
    sys::attach_filter(fd, &mut [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }])
}

fn take_all(fd: BorrowedFd<'_>) -> io::Result<()> {
    match sys::set_option(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0) {
        // There was none.
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}

fn send_socket(index: u32) -> io::Result<OwnedFd> {
    let socket = bound_socket(index)?;
    let fd = socket.as_fd();
    sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
    sys::grow_buffer(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SOCKET_BUFFER);
    Ok(socket)
}

/// A socket on interface `index`, for [`is_bound`]. Nothing is queued on it.
pub(crate) fn bound_socket(index: u32) -> io::Result<OwnedFd> {
    let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)?;
    sys::bind(socket.as_fd(), &address(index, 0))?;
    Ok(socket)
}

/// Whether a socket of [`bound_socket`] is on its interface still. The kernel takes it off for good
/// when the interface is deleted or moved to another namespace; one that comes later may have the
/// same index.
pub(crate) fn is_bound(socket: &OwnedFd, index: u32) -> bool {
    match sys::bound_to::<libc::sockaddr_ll>(socket.as_fd()) {
        Ok(address) => address.sll_ifindex == index as i32,
        Err(_) => true, // as far as is known
    }
}

/// Room for one `struct tpacket_auxdata` control message (40 bytes), aligned.
type Control = [u64; 6];

struct PacketQueue {
    socket: Arc<OwnedFd>,
    device: Arc<KernelDevice>,
    /// Packets that the next frames go into, each FIRST_PART long.
    slots: Vec<Packet>,
    /// REST_PART bytes for each slot.
    rest: Vec<u8>,
    gone: bool,
}

impl PacketQueue {
    fn new(socket: Arc<OwnedFd>, device: Arc<KernelDevice>) -> PacketQueue {
        // The pages of `rest` cost memory only once a large packet used them.
        PacketQueue { socket, device, slots: Vec::new(), rest: Vec::new(), gone: false }
    }

    /// Receives one batch of at most `max` frames; `Ok(0)`: nothing there.
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

/// Makes `p`, received into a FIRST_PART long packet and `rest`, a whole frame of `length`
/// bytes with its offload metadata. False for a frame that is no Ethernet frame or contradicts
/// its header.
fn complete(
    p: &mut Packet,
    length: usize,
    rest: &[u8],
    header: &[u8; VNET_HEADER],
    pool: &mut PacketPool,
) -> bool {
    join(p, length, rest, pool) && attach_offload(p, header)
}

/// Gives a whole frame the metadata of its header. False when they contradict each other.
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

/// Makes `p`, received into a FIRST_PART long packet and `rest`, a whole frame of `length`
/// bytes. False for what is no Ethernet frame.
pub(crate) fn join(p: &mut Packet, length: usize, rest: &[u8], pool: &mut PacketPool) -> bool {
    if length < headers::ETH_HEADER {
        return false;
    }
    if length <= FIRST_PART {
        p.resize(length);
    } else {
        let Some(more) = rest.get(..length - FIRST_PART) else { return false };
        // The rest is copied in any case: into a buffer that is large enough already.
        let mut large = pool.take_large(FIRST_PART + REST_PART);
        large.extend(p.data());
        large.extend(more);
        std::mem::swap(p, &mut large);
        pool.give(large);
    }
    true
}

/// Puts back the VLAN tag that `struct tpacket_auxdata` in the `used` bytes of `control`
/// tells of.
fn restore_tag(p: &mut Packet, control: &Control, used: usize) -> bool {
    // cmsghdr: length(8) level(4) type(4); then status(4) len(4) snaplen(4) mac(2) net(2)
    // vlan_tci(2) vlan_tpid(2). Only one kind of message is switched on.
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
        if self.gone {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
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
                Err(e) => match e.raw_os_error() {
                    Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM) => break,
                    // It had one that its header cannot describe (SCTP in segments; UDP's before
                    // Linux 6.2), and has thrown it away.
                    Some(libc::EINVAL) => {
                        self.device.count_malformed();
                        left -= 1;
                    }
                    // Down, which ends by itself, or gone.
                    Some(libc::ENETDOWN) if self.device.is_present() => break,
                    Some(libc::ENETDOWN) => {
                        self.gone = true;
                        return Err(io::Error::from_raw_os_error(libc::ENODEV));
                    }
                    _ => return Err(e),
                },
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
            // The kernel only reads through these pointers.
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

    /// Deals with a packet that the kernel refused: where its offload metadata may be the
    /// reason, that work is done here and the frames are sent plain.
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
        // Runs of packets that are frames at all.
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
    use proptest::prelude::*;

    use super::*;

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
