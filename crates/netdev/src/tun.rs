//! Tap interfaces by `/dev/net/tun` (Documentation/networking/tuntap.rst): what the host's stack
//! sends through the interface we read, what we write the host's stack receives.
//!
//! Each frame is one read or write with a `struct virtio_net_hdr` before it, so that the host's
//! segmentation packets and unfinished checksums stay whole in both directions.
//!
//! An *internal* port is a tap that we create; it is not persistent and vanishes with its
//! descriptor, also after `kill -9`. A *tap* port is the same, or attaches to a persistent tap
//! that somebody created before.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use packet::Packet;

use crate::afpacket::{FIRST_PART, REST_PART, complete};
use crate::device::{Opened, Queue, SendReport, Sender};
use crate::kernel::KernelDevice;
use crate::link::{By, LinkClient};
use crate::open::{OpenError, OpenSpec};
use crate::pool::PacketPool;
use crate::sys::{self, IfRequest};
use crate::vnet::{self, VNET_HEADER};
use crate::{finish, headers};

// include/uapi/linux/if_tun.h
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
const TUNGETIFF: libc::c_ulong = 0x8004_54d2;
const TUNSETVNETHDRSZ: libc::c_ulong = 0x4004_54d8;
pub(crate) const TUNGETDEVNETNS: libc::c_ulong = 0x54e3;

const TUN_F_CSUM: libc::c_ulong = 0x01;
const TUN_F_TSO4: libc::c_ulong = 0x02;
const TUN_F_TSO6: libc::c_ulong = 0x04;
const TUN_F_TSO_ECN: libc::c_ulong = 0x08;
const TUN_F_USO4: libc::c_ulong = 0x20;
const TUN_F_USO6: libc::c_ulong = 0x40;

/// Opens an internal or tap port.
pub(crate) fn open(spec: &OpenSpec) -> Result<Opened, OpenError> {
    let err = |step| OpenError::system(&spec.name, step);
    let fd = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")
        .map_err(|source| OpenError::System {
            name: spec.name.clone(),
            step: "opening /dev/net/tun",
            source,
        })?;
    let fd = OwnedFd::from(fd);
    let mut request = IfRequest::new(&spec.name).map_err(err("naming it"))?;
    request.set_flags((libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as u16);
    // SAFETY: `request` has the layout and size of struct ifreq.
    sys::check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETIFF as _, &raw mut request) })
        .map_err(err("creating the tap interface"))?;
    let size = VNET_HEADER as libc::c_int;
    // SAFETY: the kernel reads one int.
    sys::check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETVNETHDRSZ as _, &raw const size) })
        .map_err(err("setting the header size"))?;
    let basic = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
    // UDP segmentation needs Linux 6.2.
    offload(&fd, basic | TUN_F_USO4 | TUN_F_USO6)
        .or_else(|_| offload(&fd, basic))
        .map_err(err("switching offloads on"))?;
    let client = LinkClient::new().map_err(err("opening a netlink socket"))?;
    let index = client.link(By::Name(&spec.name)).map_err(err("looking it up"))?.index;
    let fd = Arc::new(fd);
    let device =
        Arc::new(KernelDevice::new(&spec.name, spec.kind, client, index).with_tun(fd.clone()));
    Ok(Opened {
        queues: vec![Box::new(TunQueue {
            fd: fd.clone(),
            device: device.clone(),
            slot: None,
            rest: Vec::new(),
        })],
        sender: Arc::new(TunSender { fd }),
        device,
    })
}

fn offload(fd: &OwnedFd, features: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the argument is a number, no memory is passed.
    sys::check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETOFFLOAD as _, features) })?;
    Ok(())
}

/// Present name of the interface behind a tun descriptor.
pub(crate) fn current_name(fd: &OwnedFd) -> io::Result<String> {
    let mut request = IfRequest::new("")?;
    // SAFETY: `request` has the layout and size of struct ifreq.
    sys::check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNGETIFF as _, &raw mut request) })?;
    Ok(request.name())
}

struct TunQueue {
    fd: Arc<OwnedFd>,
    device: Arc<KernelDevice>,
    /// The packet that the next frame goes into, FIRST_PART long.
    slot: Option<Packet>,
    /// Room for the rest of a large packet.
    rest: Vec<u8>,
}

impl TunQueue {
    /// Reads one frame; `Ok(None)`: one was there and was dropped.
    fn read(&mut self, pool: &mut PacketPool) -> io::Result<Option<Packet>> {
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
        // SAFETY: the iovecs name three distinct live buffers of the stated lengths, touched by
        // nobody else until the call returns.
        let got = sys::check_len(unsafe {
            libc::readv(self.fd.as_raw_fd(), parts.as_ptr(), parts.len() as i32)
        });
        match got {
            Err(e) => {
                self.slot = Some(p);
                Err(e)
            }
            Ok(n) => {
                let good = n
                    .checked_sub(VNET_HEADER)
                    .is_some_and(|length| complete(&mut p, length, &self.rest, &header, pool));
                if good {
                    return Ok(Some(p));
                }
                self.device.count_malformed();
                pool.give(p);
                Ok(None)
            }
        }
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
                Err(e) => match e.raw_os_error() {
                    Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM) => break,
                    // Down or on its way to another namespace, which ends by itself, or gone.
                    Some(libc::EBADFD | libc::EFAULT | libc::EIO | libc::ENETDOWN)
                        if self.device.is_present() =>
                    {
                        break;
                    }
                    Some(libc::EBADFD | libc::EFAULT | libc::EIO | libc::ENETDOWN) => {
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

impl Sender for TunSender {
    fn send(&self, packets: &[Packet]) -> SendReport {
        let mut report = SendReport::default();
        for p in packets {
            if p.len() < headers::ETH_HEADER {
                report.dropped_malformed += 1;
                continue;
            }
            let mut result = self.write(p.data(), vnet::encode(&p.offload));
            let refused = matches!(
                &result,
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EMSGSIZE))
            );
            if refused && !finish::is_finished(p) {
                result = self.send_finished(p);
            }
            match result {
                Ok(()) => report.sent += 1,
                Err(e) => report.count_error(&e),
            }
        }
        report
    }
}
