// SPDX-License-Identifier: Apache-2.0
//! The clsact qdisc, which carries the filters where the kernel has no tcx links (before Linux
//! 6.6).
//!
//! A qdisc does not record its creator, and the daemon that created it may have ended since. A
//! qdisc without filters has no effect, so the daemon removes it together with the last filter when
//! that filter is the daemon's own.

use std::io;
use std::os::fd::BorrowedFd;

use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcHook};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// include/uapi/linux/pkt_sched.h: TC_H_CLSACT with TC_H_MIN_INGRESS and TC_H_MIN_EGRESS.
const PARENTS: [u32; 2] = [0xffff_fff2, 0xffff_fff3];

// include/uapi/linux/rtnetlink.h and netlink.h.
const RTM_NEWTFILTER: u16 = 44;
const RTM_GETTFILTER: u16 = 46;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Bytes of `struct nlmsghdr`, and of it with `struct tcmsg`.
const HEADER: usize = 16;
const REQUEST: usize = 36;

/// Removes the qdisc of an interface on which no filter is left. Another program that adds a
/// filter at this very moment loses it: the kernel has no call that does both. `program` is any
/// descriptor, as in `attach::remove_filter`.
///
/// # Errors
///
/// Fails when the filters cannot be listed, or the qdisc cannot be removed.
pub(crate) fn remove_unused(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
    for parent in PARENTS {
        if has_filters(ifindex, parent)? {
            return Ok(());
        }
    }
    let mut hook = TcHook::new(program);
    hook.ifindex(ifindex as i32).attach_point(TC_INGRESS | TC_EGRESS);
    hook.destroy().map_err(|e| io::Error::other(e.to_string()))
}

fn has_filters(ifindex: u32, parent: u32) -> io::Result<bool> {
    // No protocol: NETLINK_ROUTE is 0.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, &request(ifindex, parent), SendFlags::empty())?;
    let mut buffer = vec![0; 1 << 15]; // the kernel puts no more into one datagram
    loop {
        let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        match judge(buffer.get(..length).unwrap_or_default()) {
            Answer::Filter => return Ok(true),
            Answer::End => return Ok(false),
            Answer::Error(error) => return Err(error),
            Answer::More => {}
        }
    }
}

/// Returns the request for a dump of the filters at `parent`, in host byte order.
fn request(ifindex: u32, parent: u32) -> [u8; REQUEST] {
    let mut bytes = [0; REQUEST];
    bytes[..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&RTM_GETTFILTER.to_ne_bytes());
    bytes[6..8].copy_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    // struct tcmsg: family and padding, interface, handle, parent, info.
    bytes[20..24].copy_from_slice(&ifindex.to_ne_bytes());
    bytes[28..32].copy_from_slice(&parent.to_ne_bytes());
    bytes
}

/// The meaning of one datagram of the dump.
enum Answer {
    Filter,
    End,
    Error(io::Error),
    More,
}

fn judge(mut datagram: &[u8]) -> Answer {
    while let Some([l0, l1, l2, l3, k0, k1, ..]) = datagram.first_chunk::<HEADER>() {
        let length = u32::from_ne_bytes([*l0, *l1, *l2, *l3]) as usize;
        let Some(payload) = datagram.get(HEADER..length) else { break };
        match u16::from_ne_bytes([*k0, *k1]) {
            RTM_NEWTFILTER => return Answer::Filter,
            NLMSG_DONE => return Answer::End,
            NLMSG_ERROR => return Answer::Error(error_of(payload)),
            _ => datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default(),
        }
    }
    if datagram.is_empty() {
        Answer::More
    } else {
        Answer::Error(io::ErrorKind::InvalidData.into())
    }
}

/// Returns the error in a `struct nlmsgerr`, which begins with a negative error number.
fn error_of(payload: &[u8]) -> io::Error {
    match payload.first_chunk() {
        Some(code) => io::Error::from_raw_os_error(i32::from_ne_bytes(*code).saturating_neg()),
        None => io::ErrorKind::InvalidData.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[..4].copy_from_slice(&((HEADER + payload.len()) as u32).to_ne_bytes());
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn answers_are_distinguished() {
        assert!(matches!(judge(&message(RTM_NEWTFILTER, &[0; 20])), Answer::Filter));
        let both = [message(9, &[0; 4]), message(NLMSG_DONE, &[0; 4])].concat();
        assert!(matches!(judge(&both), Answer::End));
        assert!(matches!(judge(&message(9, &[])), Answer::More));
        let refused = message(NLMSG_ERROR, &(-libc::ENODEV).to_ne_bytes());
        let Answer::Error(error) = judge(&refused) else { panic!("an error was expected") };
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            judge(&bytes);
        }
    }
}
