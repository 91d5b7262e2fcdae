// SPDX-License-Identifier: Apache-2.0
//! Tap interfaces by `/dev/net/tun`: creation, attachment, persistence, and the marks of their
//! owners.

use crate::link::{self, By, Link, LinkClient};
use crate::open_error::{OpenError, check_name};
use crate::sys::{self, IfRequest};
use crate::vnet::VNET_HEADER;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

// include/uapi/linux/if_tun.h
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETPERSIST: libc::c_ulong = 0x4004_54cb;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
const TUNGETIFF: libc::c_ulong = 0x8004_54d2;
const TUNSETVNETHDRSZ: libc::c_ulong = 0x4004_54d8;
const TUNATTACHFILTER: libc::c_ulong = 0x4010_54d5;
pub(crate) const TUNGETDEVNETNS: libc::c_ulong = 0x54e3;

const TUN_F_CSUM: libc::c_ulong = 0x01;
const TUN_F_TSO4: libc::c_ulong = 0x02;
const TUN_F_TSO6: libc::c_ulong = 0x04;
const TUN_F_TSO_ECN: libc::c_ulong = 0x08;
const TUN_F_USO4: libc::c_ulong = 0x20;
const TUN_F_USO6: libc::c_ulong = 0x40;

/// The start of `IFLA_IFALIAS` of persistent interfaces, by which a later run recognises them. The
/// name of the port and the owner follow, each after a space.
const MARK: &str = "slipswitch";
/// Maximum bytes of an owner in the alias: together with the mark they fit into `IFALIASZ`.
const OWNER_BYTES: usize = 200;

/// Returns the end of an owner's name that the alias contains.
fn owner_suffix(owner: &str) -> &str {
    let mut from = owner.len().saturating_sub(OWNER_BYTES);
    while !owner.is_char_boundary(from) {
        from += 1;
    }
    owner.get(from..).unwrap_or_default()
}

/// Returns the alias of a persistent interface of `owner` for `port`.
pub(crate) fn mark(port: &str, owner: &str) -> String {
    format!("{MARK} {port} {}", owner_suffix(owner))
}

/// Returns the port for which `owner` created an interface; `None` when another program created it.
/// The name of the interface may differ from that of the port.
pub(crate) fn port_of<'a>(link: &'a Link, owner: &str) -> Option<&'a str> {
    if link.kind.as_deref() != Some("tun") {
        return None;
    }
    marked_port(link.alias.as_deref()?, owner)
}

/// Returns the port in an alias that `owner` has set; `None` for other aliases.
pub(crate) fn marked_port<'a>(alias: &'a str, owner: &str) -> Option<&'a str> {
    let rest = alias.strip_prefix(MARK)?.strip_prefix(' ')?;
    let (port, by) = rest.split_once(' ')?;
    (by == owner_suffix(owner)).then_some(port)
}

/// Returns true for an alias that a switch set.
pub(crate) fn is_mark(alias: &str) -> bool {
    alias.split(' ').next() == Some(MARK)
}

// include/uapi/linux/if_link.h
const IFLA_TUN_TYPE: u16 = 3;
const IFLA_TUN_MULTI_QUEUE: u16 = 7;

/// The descriptor of a tap interface.
pub(crate) struct Attached {
    pub fd: OwnedFd,
    /// The interface did not exist before.
    pub created: bool,
}

/// Creates the tap interface `name`, or attaches to the persistent one of that name. "%d" in `name`
/// stands for a number that the kernel chooses.
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

/// Returns the reason why the kernel refused to attach to an existing interface. (The frame flags,
/// `IFF_VNET_HDR` and `IFF_NO_PI`, are not a reason: the kernel takes them from the process that
/// attaches to the only queue.)
fn refused(name: &str, source: io::Error) -> OpenError {
    let unsuitable = |reason| OpenError::Unsuitable { name: name.to_owned(), reason };
    match source.raw_os_error() {
        Some(libc::EBUSY) => OpenError::Busy { name: name.to_owned() },
        Some(libc::EINVAL) => match LinkClient::new()
            .and_then(|c| c.read(By::Name(name), None, properties))
        {
            Ok(Properties { kind, .. }) if kind != "tun" => unsuitable(format!(
                "an interface of that name exists and is not a tap interface ({}): \
                 rename or delete it, or use it with type system",
                if kind.is_empty() { "hardware" } else { &kind },
            )),
            Ok(Properties { layer3: true, .. }) => unsuitable(
                "an interface of that name exists and is a tun, not a tap interface: delete it"
                    .to_owned(),
            ),
            Ok(Properties { multi_queue: true, .. }) => unsuitable(
                "the tap interface of that name was created with several queues (multi_queue): \
                 delete it, or create it without"
                    .to_owned(),
            ),
            _ => OpenError::system(name, "attaching to the tap interface")(source),
        },
        _ => OpenError::system(name, "attaching to the tap interface")(source),
    }
}

/// Properties of an interface to which a process cannot attach.
#[derive(Default)]
struct Properties {
    kind: String,
    layer3: bool,
    multi_queue: bool,
}

fn properties(payload: &[u8]) -> Option<Properties> {
    let mut found = Properties {
        kind: link::parse(payload)?.kind.unwrap_or_default(),
        ..Properties::default()
    };
    for (kind, value) in link::details(payload)? {
        let value = value.first().copied().unwrap_or(0);
        match kind {
            IFLA_TUN_TYPE => found.layer3 = libc::c_int::from(value) == libc::IFF_TUN,
            IFLA_TUN_MULTI_QUEUE => found.multi_queue = value != 0,
            _ => {}
        }
    }
    Some(found)
}

/// Sets whether the interface remains when its last descriptor is closed.
pub(crate) fn set_persistent(fd: &OwnedFd, on: bool) -> io::Result<()> {
    // SAFETY: the argument is a number, no memory is passed.
    sys::check(unsafe {
        libc::ioctl(fd.as_raw_fd(), TUNSETPERSIST as _, libc::c_ulong::from(on))
    })?;
    Ok(())
}

/// Returns the names of the persistent interfaces of `owner` in the calling thread's network
/// namespace ([`crate::OpenSpec::persistent`]), open or not.
///
/// # Errors
///
/// The kernel's error.
pub fn persistent_interfaces(owner: &str) -> io::Result<Vec<String>> {
    let all = link::list()?.into_iter();
    Ok(all.filter(|link| port_of(link, owner).is_some()).map(|link| link.name).collect())
}

/// Makes the host keep the interface's neighbour entries while the interface has no carrier, that
/// is, while no process has it open. Without the entries the host would resolve the addresses again
/// and get no reply. The settings exist since Linux 5.16 (Documentation/networking/ip-sysctl.rst).
/// Before, and where `/proc/sys` is read-only, established flows of the host wait until a process
/// opens the interface.
pub(crate) fn keep_neighbours(name: &str) {
    for setting in ["ipv4/conf/{}/arp_evict_nocarrier", "ipv6/conf/{}/ndisc_evict_nocarrier"] {
        let path = format!("/proc/sys/net/{}", setting.replace("{}", name));
        if let Err(e) = std::fs::write(&path, "0") {
            tracing::debug!(target: "netdev_linux", "{path}: {e}");
        }
    }
}

/// Deletes an interface of [`persistent_interfaces`] that no process has open.
///
/// # Errors
///
/// [`OpenError::Busy`] when a process has it open, [`OpenError::Unsuitable`] when `owner` did not
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

/// Makes the descriptor receive no frame. The kernel drops what is sent through the interface,
/// after packet sockets have received it.
pub(crate) fn read_nothing(fd: &OwnedFd) -> io::Result<()> {
    let mut nothing = [sys::ACCEPT_NOTHING];
    let program = libc::sock_fprog { len: 1, filter: nothing.as_mut_ptr() };
    // SAFETY: the kernel reads the structure and the instruction, which live through the call.
    sys::check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNATTACHFILTER as _, &raw const program) })?;
    Ok(())
}

fn offload(fd: &OwnedFd, features: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the argument is a number, no memory is passed.
    sys::check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETOFFLOAD as _, features) })?;
    Ok(())
}

/// Returns the present name of the interface of a tun descriptor.
pub(crate) fn current_name(fd: &OwnedFd) -> io::Result<String> {
    let mut request = IfRequest::new("")?;
    // SAFETY: `request` has the layout and size of struct ifreq.
    sys::check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNGETIFF as _, &raw mut request) })?;
    Ok(request.name())
}
