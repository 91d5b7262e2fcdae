// SPDX-License-Identifier: Apache-2.0
//! Any Linux interface, by `AF_PACKET` raw sockets (packet(7)).
//!
//! # Overview
//!
//! One socket receives (`packet_queue`), bound to all protocols of the interface, with
//! `PACKET_VNET_HDR`: a segmentation packet of up to 64 KiB arrives whole, and an unfinished checksum
//! is marked. A second socket, bound to no protocol so that nothing is queued on it, sends batches by
//! `sendmmsg`. A third one, made for the first such packet, sends packets whose priority is not 0.
//!
//! # Invariants
//!
//! * Frames that the host or the switch sends through the interface are not received
//!   (`PACKET_IGNORE_OUTGOING`).
//! * A device is one interface, not an index. If the interface was deleted or moved to another
//!   network namespace the device is gone, even if an interface with the same index appears.
//!
//! The interface is in promiscuous mode while the device is open, unless the host's stack shares it;
//! this ends with the socket.

use crate::device::{Opened, SendReport, Sender};
use crate::kernel::KernelDevice;
use crate::link::{ARPHRD_ETHER, ARPHRD_LOOPBACK, By, LinkClient};
use crate::open_error::OpenError;
use crate::packet_queue::PacketQueue;
use crate::packet_socket::{ReceiveSocket, send_socket};
use crate::socket_close::PacketSocket;
use crate::spec::OpenSpec;
use crate::vnet::{self, VNET_HEADER};
use crate::{finish, headers, sys};
use packet::Packet;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of frames in one system call.
pub(crate) const BATCH: usize = 32;

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
    let receive = ReceiveSocket::open(&found, spec);
    let receive = Arc::new(receive.map_err(err("opening a receive socket"))?);
    let counted = receive.clone();
    let overrun = Box::new(move || counted.lost());
    let device = Arc::new(
        KernelDevice::new(&spec.name, spec.kind, client, found.index)
            .with_overrun(overrun)
            .with_presence(Some(send.clone()))
            .with_receive(receive.clone()),
    );
    Ok(Opened {
        queues: vec![Box::new(PacketQueue::new(receive, device.clone()))],
        sender: device.egress.clone().limit(Arc::new(PacketSender::new(send, found.index))),
        device,
    })
}

struct PacketSender {
    /// Sends packets of priority 0.
    socket: Arc<PacketSocket>,
    index: u32,
    /// Idle sockets for packets of other priorities. There are as many as threads have sent at once.
    others: Mutex<Vec<PrioritySocket>>,
}

/// A socket for packets of other priorities. The kernel gives its packets the priority of the socket.
#[derive(Default)]
struct PrioritySocket {
    /// `None` before the first packet.
    socket: Option<PacketSocket>,
    priority: u32,
}

impl PrioritySocket {
    /// Returns the socket with this priority (`SO_PRIORITY`, socket(7)).
    fn with(&mut self, priority: u32, index: u32) -> io::Result<&PacketSocket> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => {
                self.priority = 0;
                send_socket(index)?
            }
        };
        let socket = self.socket.insert(socket);
        if self.priority != priority {
            // The kernel takes the bits as they are.
            let value = priority.cast_signed();
            sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_PRIORITY, &value)?;
            self.priority = priority;
        }
        Ok(socket)
    }
}

impl PacketSender {
    fn new(socket: Arc<PacketSocket>, index: u32) -> PacketSender {
        PacketSender { socket, index, others: Mutex::default() }
    }

    /// Sends packets of one priority that have an Ethernet header.
    fn send_run(&self, packets: &[Packet], priority: u32, report: &mut SendReport) {
        if priority == 0 {
            packets.chunks(BATCH).for_each(|batch| self.send_batch(&self.socket, batch, report));
            return;
        }
        let mut other = self.take_idle(priority);
        match other.with(priority, self.index) {
            Ok(socket) => {
                packets.chunks(BATCH).for_each(|batch| self.send_batch(socket, batch, report));
                self.idle().push(other);
            }
            Err(error) => packets.iter().for_each(|_| report.count_error(&error)),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<PrioritySocket>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner) // whole after each operation
    }

    /// Takes an idle socket, if possible one that has the priority.
    fn take_idle(&self, priority: u32) -> PrioritySocket {
        let mut idle = self.idle();
        match idle.iter().position(|one| one.priority == priority) {
            Some(at) => idle.swap_remove(at),
            None => idle.pop().unwrap_or_default(),
        }
    }

    /// Sends at most BATCH packets that have an Ethernet header.
    fn send_batch(&self, socket: &PacketSocket, packets: &[Packet], report: &mut SendReport) {
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
                    socket.as_raw_fd(),
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
                        self.send_refused(socket, p, &e, report);
                    }
                    done += 1;
                }
            }
        }
    }

    /// Handles a packet that the kernel refused. If its offload metadata may be the reason,
    /// finishes the offload work in software and sends the frames without metadata.
    fn send_refused(
        &self,
        socket: &PacketSocket,
        p: &Packet,
        error: &io::Error,
        report: &mut SendReport,
    ) {
        let offload_refused = matches!(
            error.raw_os_error(),
            Some(libc::EINVAL | libc::EMSGSIZE | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT)
        );
        if finish::is_finished(p) || !offload_refused {
            report.count_error(error);
        } else {
            let send = |frames: &[Packet], one: &mut SendReport| {
                frames.chunks(BATCH).for_each(|batch| self.send_batch(socket, batch, one));
            };
            Self::send_finished(p, report, send);
        }
    }

    /// Finishes the offload work of a packet, and sends its frames.
    fn send_finished(
        p: &Packet,
        report: &mut SendReport,
        send: impl FnOnce(&[Packet], &mut SendReport),
    ) {
        match finish::finish(p) {
            Err(_) => report.dropped_malformed += 1,
            Ok(frames) => {
                let mut one = SendReport::default();
                send(&frames, &mut one);
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
            let is_like =
                |a: &Packet, b: &Packet| beyond(a) == beyond(b) && a.priority == b.priority;
            for part in run.chunk_by(is_like) {
                let Some(first) = part.first() else { continue };
                let send = |packets: &[Packet], report: &mut SendReport| {
                    self.send_run(packets, first.priority, report);
                };
                if beyond(first) {
                    part.iter().for_each(|p| Self::send_finished(p, &mut report, send));
                } else {
                    send(part, &mut report);
                }
            }
        }
        let all = packets.len() as u64;
        report.dropped_malformed += all - report.sent - report.dropped();
        report
    }
}
