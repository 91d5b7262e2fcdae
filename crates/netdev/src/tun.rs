// SPDX-License-Identifier: Apache-2.0
//! Tap and internal ports by `/dev/net/tun` (Documentation/networking/tuntap.rst). The switch reads
//! the frames that the host's stack sends through the interface, and the stack receives the frames
//! that the switch writes.
//!
//! Each frame is one read or write with a `struct virtio_net_hdr` before it, so the host's
//! segmentation packets and unfinished checksums stay whole in both directions.
//!
//! An *internal* port is a tap that the switch creates. Unless it is persistent, it vanishes with
//! its descriptor, also after `kill -9`. A *tap* port is the same, or attaches to a persistent tap
//! that another program created.
//!
//! While no process has a persistent tap open, the tap has no carrier. BPF programs on it still
//! run, and packets that they pass to the host's stack through it still arrive.

use crate::device::{Device, Opened, Queue, SendReport, Sender};
use crate::kernel::KernelDevice;
use crate::link::{self, By, LinkClient};
use crate::open_error::OpenError;
use crate::pool::PacketPool;
use crate::receive::{FIRST_PART, REST_PART, ReceiveError, attach_offload, gone, join};
use crate::spec::OpenSpec;
use crate::tap_interface::{attach, is_mark};
use crate::vnet::{self, VNET_HEADER};
use crate::{finish, headers, sys};
use packet::Packet;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Opens an internal or tap port.
pub(crate) fn open(spec: &OpenSpec) -> Result<Opened, OpenError> {
    let err = |step| OpenError::system(&spec.name, step);
    let client = LinkClient::new().map_err(err("opening a netlink socket"))?;
    let orphan = match &spec.persistent {
        Some(owner) if !link::exists(&spec.name) => owner.attach_orphan(&spec.name)?,
        _ => None,
    };
    let (tap, index, ours) = match orphan {
        Some(tap) => (tap, NO_INDEX, true),
        None => {
            let tap = attach(&spec.name)?;
            let link = client.link(By::Name(&spec.name)).map_err(err("looking it up"))?;
            let ours = tap.created || link.alias.as_deref().is_some_and(is_mark);
            (tap, link.index, ours)
        }
    };
    let created = tap.created;
    let fd = Arc::new(tap.fd);
    let device = Arc::new(
        KernelDevice::new(&spec.name, spec.kind, client, index).with_tun(fd.clone(), ours),
    );
    if created
        && spec.mac.is_none()
        && let Some(mac) = spec.first_mac
    {
        device.set_mac(mac).map_err(err("setting the Ethernet address"))?;
    }
    Ok(Opened {
        queues: vec![Box::new(TunQueue {
            fd: fd.clone(),
            device: device.clone(),
            reader: FrameReader::default(),
        })],
        sender: device.egress.clone().limit(Arc::new(TunSender { fd })),
        device,
    })
}

/// An index that no interface has. It stands for an interface in another network namespace.
const NO_INDEX: u32 = i32::MAX as u32;

/// Buffers for reading frames from a tap descriptor.
#[derive(Default)]
struct FrameReader {
    /// The buffer of the next frame, FIRST_PART bytes long.
    slot: Option<Packet>,
    /// Buffer for the rest of a large frame.
    rest: Vec<u8>,
}

impl FrameReader {
    /// Reads one frame and the header before it. `Ok(None)`: the data was not a frame.
    fn read(
        &mut self,
        fd: BorrowedFd<'_>,
        pool: &mut PacketPool,
    ) -> io::Result<Option<(Packet, [u8; VNET_HEADER])>> {
        let mut p = self.slot.take().unwrap_or_else(|| {
            let mut p = pool.take();
            p.resize(FIRST_PART);
            p
        });
        if self.rest.is_empty() {
            self.rest = vec![0; REST_PART];
        }
        let mut header = [0u8; VNET_HEADER];
        let first = p.data_mut();
        let parts = [
            libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: VNET_HEADER },
            libc::iovec { iov_base: first.as_mut_ptr().cast(), iov_len: first.len() },
            libc::iovec { iov_base: self.rest.as_mut_ptr().cast(), iov_len: self.rest.len() },
        ];
        // SAFETY: the iovecs name three distinct live buffers of the stated lengths, which no other
        // code accesses until the call returns.
        let got = sys::check_len(unsafe {
            libc::readv(fd.as_raw_fd(), parts.as_ptr(), parts.len() as i32)
        });
        match got {
            Err(e) => {
                self.slot = Some(p);
                Err(e)
            }
            Ok(n) => {
                let length = n.checked_sub(VNET_HEADER);
                if length.is_some_and(|length| join(&mut p, length, &self.rest, pool)) {
                    return Ok(Some((p, header)));
                }
                pool.give(p);
                Ok(None)
            }
        }
    }
}

/// Errors of a read while the interface is down or moves to another network namespace.
const DOWN: [c_int; 4] = [libc::EBADFD, libc::EFAULT, libc::EIO, libc::ENETDOWN];

struct TunQueue {
    fd: Arc<OwnedFd>,
    device: Arc<KernelDevice>,
    reader: FrameReader,
}

impl TunQueue {
    /// Reads one frame. `Ok(None)`: a frame was there and was dropped.
    fn read(&mut self, pool: &mut PacketPool) -> io::Result<Option<Packet>> {
        if let Some((mut p, header)) = self.reader.read(self.fd.as_fd(), pool)? {
            if attach_offload(&mut p, &header) {
                return Ok(Some(p));
            }
            pool.give(p);
        }
        self.device.count_malformed();
        Ok(None)
    }
}

impl Queue for TunQueue {
    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn recv(
        &mut self,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
        max: usize,
    ) -> io::Result<usize> {
        let before = out.len();
        for _ in 0..max {
            match self.read(pool) {
                Ok(p) => out.extend(p),
                Err(e) => match ReceiveError::new(e, &DOWN, || self.device.is_present()) {
                    ReceiveError::NoFrame => break,
                    ReceiveError::BadFrame => self.device.count_malformed(),
                    ReceiveError::Gone => return Err(gone()),
                    ReceiveError::Other(e) => return Err(e),
                },
            }
        }
        self.device.policer.apply(out, before, pool);
        Ok(out.len() - before)
    }
}

struct TunSender {
    fd: Arc<OwnedFd>,
}

impl TunSender {
    fn write(&self, frame: &[u8], header: [u8; VNET_HEADER]) -> io::Result<()> {
        let parts = [
            libc::iovec { iov_base: header.as_ptr().cast_mut().cast(), iov_len: VNET_HEADER },
            libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() },
        ];
        loop {
            // SAFETY: the iovecs name live buffers, which the kernel only reads.
            let done = sys::check_len(unsafe {
                libc::writev(self.fd.as_raw_fd(), parts.as_ptr(), parts.len() as i32)
            });
            match done {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn send_finished(&self, p: &Packet) -> io::Result<()> {
        let frames = finish::finish(p).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        for f in &frames {
            self.write(f.data(), [0; VNET_HEADER])?;
        }
        Ok(())
    }
}

/// Returns true when the kernel refused the packet, perhaps because of its metadata.
fn is_refused(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EMSGSIZE))
}

impl Sender for TunSender {
    fn send(&self, packets: &[Packet]) -> SendReport {
        let mut report = SendReport::default();
        for p in packets {
            if p.len() < headers::ETH_HEADER {
                report.dropped_malformed += 1;
                continue;
            }
            let sent = if finish::is_beyond_the_kernel(p) {
                self.send_finished(p)
            } else {
                match self.write(p.data(), vnet::encode(&p.offload)) {
                    Err(e) if is_refused(&e) && !finish::is_finished(p) => self.send_finished(p),
                    sent => sent,
                }
            };
            match sent {
                Ok(()) => report.sent += 1,
                Err(e) => report.count_error(&e),
            }
        }
        report
    }
}
