// SPDX-License-Identifier: Apache-2.0
//! Tap interfaces by `/dev/net/tun` (Documentation/networking/tuntap.rst): what the host's stack
//! sends through the interface we read, what we write the host's stack receives.
//!
//! Each frame is one read or write with a `struct virtio_net_hdr` before it, so that the host's
//! segmentation packets and unfinished checksums stay whole in both directions.
//!
//! An *internal* port is a tap that we create; unless it shall outlive us it is not persistent
//! and vanishes with its descriptor, also after `kill -9`. A *tap* port is the same, or attaches
//! to a persistent tap that somebody created before.
//!
//! While nobody holds a persistent tap it has no carrier. BPF programs on it still run, and
//! packets that they hand to the host's stack through it still arrive.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use packet::Packet;

use crate::afpacket::{FIRST_PART, REST_PART, attach_offload, join};
use crate::device::{Device, Opened, Queue, SendReport, Sender};
use crate::kernel::KernelDevice;
use crate::link::{self, By, Link, LinkClient};
use crate::netlink::attributes;
use crate::open::{OpenError, OpenSpec, check_name};
use crate::pool::PacketPool;
use crate::sys::{self, IfRequest};
use crate::vnet::{self, VNET_HEADER};
use crate::{finish, headers};

// include/uapi/linux/if_tun.h
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETPERSIST: libc::c_ulong = 0x4004_54cb;
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

/// What `IFLA_IFALIAS` of the interfaces that outlive us begins with, so that a later run knows
/// them. Their port's name and their owner follow, with a space before each.
const MARK: &str = "slipswitch";
/// Bytes of an owner that count: with the mark they fit into `IFALIASZ`.
const OWNER: usize = 200;

/// What counts of an owner's name.
fn end(owner: &str) -> &str {
    let mut from = owner.len().saturating_sub(OWNER);
    while !owner.is_char_boundary(from) {
        from += 1;
    }
    owner.get(from..).unwrap_or_default()
}

/// The alias of an interface that `owner` made to outlive it, for `port`.
pub(crate) fn mark(port: &str, owner: &str) -> String {
    format!("{MARK} {port} {}", end(owner))
}

/// The port that `owner` made an interface for; `None` when somebody else made it. An interface
/// may be called something else than its port.
pub(crate) fn port_of<'a>(link: &'a Link, owner: &str) -> Option<&'a str> {
    if link.kind.as_deref() != Some("tun") {
        return None;
    }
    let rest = link.alias.as_deref()?.strip_prefix(MARK)?.strip_prefix(' ')?;
    let (port, by) = rest.split_once(' ')?;
    (by == end(owner)).then_some(port)
}

/// True for an alias that a switch gave.
fn is_mark(alias: &str) -> bool {
    alias.split(' ').next() == Some(MARK)
}

// include/uapi/linux/if_link.h
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_TUN_TYPE: u16 = 3;
const IFLA_TUN_MULTI_QUEUE: u16 = 7;

/// Opens an internal or tap port.
pub(crate) fn open(spec: &OpenSpec) -> Result<Opened, OpenError> {
    let err = |step| OpenError::system(&spec.name, step);
    let client = LinkClient::new().map_err(err("opening a netlink socket"))?;
    let stray = match &spec.persistent {
        Some(owner) if !link::exists(&spec.name) => owner.attach_stray(&spec.name)?,
        _ => None,
    };
    let (tap, index, ours) = match stray {
        Some(tap) => (tap, NOWHERE, true),
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
        sender: Arc::new(TunSender { fd }),
        device,
    })
}

/// An index that no interface has: the interface is in another namespace.
const NOWHERE: u32 = i32::MAX as u32;

/// A descriptor that stands for a tap interface.
pub(crate) struct Attached {
    pub fd: OwnedFd,
    /// The interface was not there before.
    pub created: bool,
}

/// Creates the tap interface `name`, or attaches to the persistent one of that name. In `name`,
/// "%d" stands for a number that the kernel chooses.
pub(crate) fn attach(name: &str) -> Result<Attached, OpenError> {
    let err = |step| OpenError::system(name, step);
    let fd = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")
        .map_err(|source| OpenError::System {
            name: name.to_owned(),
            step: "opening /dev/net/tun",
            source,
        })?;
    let fd = OwnedFd::from(fd);
    let created = match set_interface(&fd, name, libc::IFF_TUN_EXCL) {
        Ok(()) => true,
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
            set_interface(&fd, name, 0).map_err(|e| refused(name, e))?;
            false
        }
        Err(e) => return Err(err("creating the tap interface")(e)),
    };
    let size = VNET_HEADER as libc::c_int;
    // SAFETY: the kernel reads one int.
    sys::check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETVNETHDRSZ as _, &raw const size) })
        .map_err(err("setting the header size"))?;
    let basic = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
    // UDP segmentation needs Linux 6.2.
    offload(&fd, basic | TUN_F_USO4 | TUN_F_USO6)
        .or_else(|_| offload(&fd, basic))
        .map_err(err("switching offloads on"))?;
    Ok(Attached { fd, created })
}

fn set_interface(fd: &OwnedFd, name: &str, extra: libc::c_int) -> io::Result<()> {
    let mut request = IfRequest::new(name)?;
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | extra;
    request.set_flags(flags as u16);
    // SAFETY: `request` has the layout and size of struct ifreq.
    sys::check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETIFF as _, &raw mut request) })?;
    Ok(())
}

/// Why the kernel would not attach us to an interface that is there. (It takes over the flags
/// for frames, `IFF_VNET_HDR` and `IFF_NO_PI`, from whoever attaches to its only queue.)
fn refused(name: &str, source: io::Error) -> OpenError {
    let unsuitable = |reason| OpenError::Unsuitable { name: name.to_owned(), reason };
    match source.raw_os_error() {
        Some(libc::EBUSY) => OpenError::Busy { name: name.to_owned() },
        Some(libc::EINVAL) => match LinkClient::new()
            .and_then(|c| c.read(By::Name(name), None, what))
        {
            Ok(What { kind, .. }) if kind != "tun" => unsuitable(format!(
                "an interface of that name exists and is no tap interface ({}): \
                 rename or delete it, or use it with type system",
                if kind.is_empty() { "hardware" } else { &kind },
            )),
            Ok(What { layer3: true, .. }) => unsuitable(
                "an interface of that name exists and is a tun, not a tap interface: delete it"
                    .to_owned(),
            ),
            Ok(What { multi_queue: true, .. }) => unsuitable(
                "the tap interface of that name was created with several queues (multi_queue): \
                 delete it, or create it without"
                    .to_owned(),
            ),
            _ => OpenError::system(name, "attaching to the tap interface")(source),
        },
        _ => OpenError::system(name, "attaching to the tap interface")(source),
    }
}

/// What an interface is that cannot be attached to.
#[derive(Default)]
struct What {
    kind: String,
    layer3: bool,
    multi_queue: bool,
}

fn what(payload: &[u8]) -> Option<What> {
    let mut what = What { kind: link::parse(payload)?.kind.unwrap_or_default(), ..What::default() };
    let info = attributes(payload.get(16..)?).filter(|(kind, _)| *kind == IFLA_LINKINFO);
    let data =
        info.flat_map(|(_, info)| attributes(info)).filter(|(kind, _)| *kind == IFLA_INFO_DATA);
    for (kind, value) in data.flat_map(|(_, data)| attributes(data)) {
        let value = value.first().copied().unwrap_or(0);
        match kind {
            IFLA_TUN_TYPE => what.layer3 = libc::c_int::from(value) == libc::IFF_TUN,
            IFLA_TUN_MULTI_QUEUE => what.multi_queue = value != 0,
            _ => {}
        }
    }
    Some(what)
}

/// Whether the interface stays when its last descriptor is closed.
pub(crate) fn set_persistent(fd: &OwnedFd, on: bool) -> io::Result<()> {
    // SAFETY: the argument is a number, no memory is passed.
    sys::check(unsafe {
        libc::ioctl(fd.as_raw_fd(), TUNSETPERSIST as _, libc::c_ulong::from(on))
    })?;
    Ok(())
}

/// Interfaces of the calling thread's network namespace that `owner` created to outlive it
/// ([`OpenSpec::persistent`]), whether or not it holds them now.
///
/// # Errors
///
/// What the kernel said.
pub fn persistent_interfaces(owner: &str) -> io::Result<Vec<String>> {
    let all = link::list()?.into_iter();
    Ok(all.filter(|link| port_of(link, owner).is_some()).map(|link| link.name).collect())
}

/// Has the host keep its neighbours on the interface while it has no carrier, which is while
/// nobody holds it: it would have to ask for their addresses again, and nobody would answer. The
/// settings are there since Linux 5.16 (Documentation/networking/ip-sysctl.rst); before, and
/// where `/proc/sys` cannot be written, established flows of the host wait for the next holder.
pub(crate) fn keep_neighbours(name: &str) {
    for setting in ["ipv4/conf/{}/arp_evict_nocarrier", "ipv6/conf/{}/ndisc_evict_nocarrier"] {
        let path = format!("/proc/sys/net/{}", setting.replace("{}", name));
        if let Err(e) = std::fs::write(&path, "0") {
            tracing::debug!(target: "netdev_linux", "{path}: {e}");
        }
    }
}

/// Deletes an interface of [`persistent_interfaces`] that nobody holds.
///
/// # Errors
///
/// [`OpenError::Busy`] when a process holds it, [`OpenError::Unsuitable`] when `owner` did not
/// create it, [`OpenError::NoDevice`] when it is gone.
pub fn remove_persistent(name: &str, owner: &str) -> Result<(), OpenError> {
    check_name(name)?;
    let err = |step| OpenError::system(name, step);
    let client = LinkClient::new().map_err(err("opening a netlink socket"))?;
    let link = client.link(By::Name(name)).map_err(err("looking it up"))?;
    if port_of(&link, owner).is_none() {
        return Err(OpenError::Unsuitable {
            name: name.to_owned(),
            reason: "it was not created by this switch, and stays".to_owned(),
        });
    }
    let tap = attach(name)?;
    set_persistent(&tap.fd, false).map_err(err("giving up the tap interface"))
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

/// Buffers for reading frames from a tap descriptor.
#[derive(Default)]
pub(crate) struct FrameReader {
    /// The packet that the next frame goes into, FIRST_PART long.
    slot: Option<Packet>,
    /// Room for the rest of a large packet.
    rest: Vec<u8>,
}

impl FrameReader {
    /// Reads one frame and the header before it; `Ok(None)`: what was there is no frame.
    pub(crate) fn read(
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
        // SAFETY: the iovecs name three distinct live buffers of the stated lengths, touched by
        // nobody else until the call returns.
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

struct TunQueue {
    fd: Arc<OwnedFd>,
    device: Arc<KernelDevice>,
    reader: FrameReader,
}

impl TunQueue {
    /// Reads one frame; `Ok(None)`: one was there and was dropped.
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
                Err(e) => match e.raw_os_error() {
                    Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM) => break,
                    // A frame that the kernel cannot describe; it has dropped that one.
                    Some(libc::EINVAL) => self.device.count_malformed(),
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

/// The kernel does not take the packet as it is, perhaps for its metadata.
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
