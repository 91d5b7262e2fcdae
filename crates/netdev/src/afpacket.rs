// SPDX-License-Identifier: Apache-2.0
//! Any Linux interface, by `AF_PACKET` raw sockets (packet(7)).
//!
//! # Overview
//!
//! One socket receives (`packet_queue`), bound to all protocols of the interface, with
//! `PACKET_VNET_HDR`: a segmentation packet of up to 64 KiB arrives whole, and an unfinished checksum
//! is marked. A second socket, bound to no protocol so that nothing is queued on it, sends batches by
//! `sendmmsg`.
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
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::Arc;

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
        sender: Arc::new(PacketSender { socket: send }),
        device,
    })
}

struct PacketSender {
    socket: Arc<PacketSocket>,
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
