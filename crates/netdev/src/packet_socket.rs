// SPDX-License-Identifier: Apache-2.0
//! `AF_PACKET` sockets (packet(7)): creation, binding, and filters.

use crate::device::Reception;
use crate::{link, sys};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Requested buffer size of each socket, in bytes: 8 MiB.
const SOCKET_BUFFER: i32 = 8 << 20;

// include/uapi/linux/if_packet.h
const PACKET_IGNORE_OUTGOING: i32 = 23;

/// A protocol that no frame on an Ethernet device has: below 0x600 the kernel assigns only
/// `ETH_P_802_3` and `ETH_P_802_2` (`eth_type_trans`). It stands for "none", because a socket that
/// is bound to protocol 0 keeps the protocol that it had. The socket's handler is then only in a
/// list by protocol, which the kernel searches for frames that no earlier handler consumed, and no
/// frame runs it.
pub(crate) const NO_FRAME: u16 = 0x05ff;

fn address(index: u32, protocol: u16) -> libc::sockaddr_ll {
    // SAFETY: integers only; zero is valid.
    let mut a: libc::sockaddr_ll = unsafe { mem::zeroed() };
    a.sll_family = libc::AF_PACKET as u16;
    a.sll_protocol = protocol.to_be();
    a.sll_ifindex = index as i32; // the kernel's indices are positive ints
    a
}

pub(crate) fn receive_socket(link: &link::Link, muted: bool) -> io::Result<OwnedFd> {
    // Protocol 0 until all options are set, so that no frame is received before.
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

/// Starts or stops the reception of a socket of [`receive_socket`]: every frame, or those that
/// `filter` accepts. Frames in its queue stay.
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

/// Attaches a filter that accepts no packet. It runs before a packet is copied.
fn take_none(fd: BorrowedFd<'_>) -> io::Result<()> {
    // BPF_RET | BPF_K with 0 bytes (include/uapi/linux/bpf_common.h).
    sys::attach_filter(fd, &mut [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }])
}

fn take_all(fd: BorrowedFd<'_>) -> io::Result<()> {
    match sys::set_option(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0) {
        // No filter was attached.
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}

pub(crate) fn send_socket(index: u32) -> io::Result<OwnedFd> {
    let socket = bound_socket(index)?;
    let fd = socket.as_fd();
    sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
    sys::grow_buffer(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SOCKET_BUFFER);
    Ok(socket)
}

/// Creates a socket on interface `index`, for [`is_bound`]. No packet is queued on it.
pub(crate) fn bound_socket(index: u32) -> io::Result<OwnedFd> {
    let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)?;
    sys::bind(socket.as_fd(), &address(index, 0))?;
    Ok(socket)
}

/// Returns true when a socket of [`bound_socket`] is still bound to its interface. The kernel
/// unbinds it permanently when the interface is deleted or moved to another network namespace. A
/// later interface may have the same index.
pub(crate) fn is_bound(socket: &OwnedFd, index: u32) -> bool {
    match sys::bound_to::<libc::sockaddr_ll>(socket.as_fd()) {
        Ok(address) => address.sll_ifindex == index as i32,
        Err(_) => true, // nothing shows that it is gone
    }
}
