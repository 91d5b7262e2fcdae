// SPDX-License-Identifier: Apache-2.0
//! Reports of routers that a tunnel's packet was too long (RFC 792 with RFC 1191, section 4;
//! RFC 4443, section 3.2).
//!
//! The kernel keeps such a report only for a socket that has sent the packet. The daemon's tunnels
//! have none, so it receives the reports itself. They are no more trustworthy than in the kernel:
//! anybody may send one, and the underlay bounds the harm.

use crate::sys;
use packet::checksum::internet;
use packet::{FromBytes, IcmpHeader, Ipv4Header, Ipv6Header, ip_proto};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

// include/uapi/linux/icmp.h, include/uapi/linux/icmpv6.h
const ICMP_FILTER: libc::c_int = 1;
const ICMPV6_FILTER: libc::c_int = 1;
const SOL_RAW: libc::c_int = 255;
const SOL_ICMPV6: libc::c_int = 58;

/// Messages that one call reads: a fraction of a millisecond of work.
const TURN: usize = 64;
/// Bytes of a message that are read: its headers, and those of the packet that it quotes.
const READ: usize = 256;

/// A router on the path to `remote` passes IP packets of `mtu` bytes at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtu {
    /// Destination of the packet that was too long.
    pub remote: IpAddr,
    /// In bytes. Any value.
    pub mtu: u32,
}

/// Receives the reports for the host's addresses in the network namespace of the thread that created
/// it. One thread at a time uses it.
#[derive(Debug)]
pub struct PathMtuMonitor {
    v4: OwnedFd,
    /// `None` where the kernel has no IPv6.
    v6: Option<OwnedFd>,
}

impl PathMtuMonitor {
    /// Starts to receive.
    ///
    /// # Errors
    ///
    /// No raw socket can be created.
    pub fn new() -> io::Result<PathMtuMonitor> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK;
        let v4 = sys::socket(libc::AF_INET, kind, libc::IPPROTO_ICMP)?;
        // The bits of the types that are left out.
        let others = !(1i32 << IcmpHeader::UNREACHABLE);
        sys::set_option(v4.as_fd(), SOL_RAW, ICMP_FILTER, &others)?;
        let v6 = match sys::socket(libc::AF_INET6, kind, libc::IPPROTO_ICMPV6) {
            Ok(fd) => {
                let mut others = [-1i32; 8];
                if let Some(word) = others.get_mut(usize::from(IcmpHeader::PACKET_TOO_BIG) / 32) {
                    *word &= !(1 << (IcmpHeader::PACKET_TOO_BIG % 32));
                }
                sys::set_option(fd.as_fd(), SOL_ICMPV6, ICMPV6_FILTER, &others)?;
                Some(fd)
            }
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => None,
            Err(error) => return Err(error),
        };
        Ok(PathMtuMonitor { v4, v6 })
    }

    /// Returns the descriptors that are readable when there are reports.
    pub fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.v4.as_fd()).chain(self.v6.as_ref().map(AsFd::as_fd))
    }

    /// Reads reports without waiting.
    ///
    /// # Errors
    ///
    /// A socket has failed.
    pub fn poll(&self) -> io::Result<Reports> {
        let mut reports = Reports { mtus: Vec::new(), has_more: false };
        for (fd, read) in [(Some(&self.v4), v4 as fn(&[u8]) -> _), (self.v6.as_ref(), v6)] {
            let Some(fd) = fd else { continue };
            for number in 0.. {
                let mut buffer = [0; READ];
                match sys::receive(fd.as_fd(), &mut buffer, libc::MSG_DONTWAIT) {
                    Ok(len) => reports.mtus.extend(buffer.get(..len).and_then(read)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
                if number == TURN {
                    reports.has_more = true;
                    break;
                }
            }
        }
        Ok(reports)
    }
}

/// The result of [`PathMtuMonitor::poll`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reports {
    /// In the order of their arrival.
    pub mtus: Vec<PathMtu>,
    /// Further reports may wait.
    pub has_more: bool,
}

/// Returns true for the protocols of outer packets.
fn is_of_tunnel(protocol: u8) -> bool {
    matches!(protocol, ip_proto::UDP | ip_proto::GRE | ip_proto::ROUTING)
}

/// Reads an IPv4 packet with an ICMP message. It may lack bytes at its end.
fn v4(bytes: &[u8]) -> Option<PathMtu> {
    let (ip, _) = Ipv4Header::ref_from_prefix(bytes).ok()?;
    let total = usize::from(ip.total_len.get());
    let message = bytes.get(ip.header_len()..)?;
    // The kernel verifies the checksum after this socket has the message.
    let is_right = bytes.len() < total || internet(bytes.get(ip.header_len()..total)?) == 0;
    let (icmp, quoted) = IcmpHeader::ref_from_prefix(message).ok()?;
    let (inner, _) = Ipv4Header::ref_from_prefix(quoted).ok()?;
    let is_report =
        (icmp.kind, icmp.code) == (IcmpHeader::UNREACHABLE, IcmpHeader::FRAGMENTATION_NEEDED);
    let is_own = is_of_tunnel(inner.proto) && inner.src == ip.dst;
    // Routers older than RFC 1191 report no MTU.
    let mtu = icmp.rest.get() & 0xffff;
    (is_right && is_report && is_own && mtu > 0)
        .then(|| PathMtu { remote: Ipv4Addr::from_bits(inner.dst.get()).into(), mtu })
}

/// Reads an ICMPv6 message, whose checksum the kernel has verified. It may lack bytes at its end.
fn v6(bytes: &[u8]) -> Option<PathMtu> {
    let (icmp, quoted) = IcmpHeader::ref_from_prefix(bytes).ok()?;
    let (inner, _) = Ipv6Header::ref_from_prefix(quoted).ok()?;
    let is_report = icmp.kind == IcmpHeader::PACKET_TOO_BIG && is_of_tunnel(inner.next);
    is_report.then(|| PathMtu { remote: Ipv6Addr::from(inner.dst).into(), mtu: icmp.rest.get() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::build::Frame;

    const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
    const REMOTE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

    fn quoted(protocol: u8) -> Vec<u8> {
        let frame = Frame::ethernet([2; 6], [4; 6]).ipv4(LOCAL, REMOTE, 64).protocol(protocol);
        frame.payload(&[1; 20]).finish()[14..].to_vec()
    }

    fn report(kind: u8, code: u8, rest: u32, quoted: &[u8]) -> Vec<u8> {
        let frame = Frame::ethernet([2; 6], [4; 6]).ipv4(ROUTER, LOCAL, 64);
        frame.icmp(kind, code, rest).payload(quoted).finish()[14..].to_vec()
    }

    #[test]
    fn reports_about_tunnels_are_read() {
        let expected = Some(PathMtu { remote: REMOTE.into(), mtu: 1400 });
        for protocol in [17, 47] {
            assert_eq!(v4(&report(3, 4, 1400, &quoted(protocol))), expected);
        }
        let mut wrong = report(3, 4, 1400, &quoted(17));
        assert_eq!(v4(&wrong[..52]), expected, "the rest was not read");
        *wrong.last_mut().unwrap() ^= 1;
        assert_eq!(v4(&wrong), None, "a wrong checksum");
        let other = Frame::ethernet([2; 6], [4; 6]).ipv4(ROUTER, REMOTE, 64).udp(1, 2).finish();
        for message in [
            report(3, 3, 1400, &quoted(17)),
            report(3, 4, 0, &quoted(17)),
            report(11, 4, 1400, &quoted(17)),
            report(3, 4, 1400, &quoted(6)),
            report(3, 4, 1400, &other[14..]),
            report(3, 4, 1400, &quoted(17)[..19]),
        ] {
            assert_eq!(v4(&message), None);
        }
    }

    #[test]
    fn reports_about_tunnels_over_ipv6_are_read() {
        let (local, remote): (Ipv6Addr, Ipv6Addr) =
            ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let message = |kind, protocol| {
            let quoted = Frame::ethernet([2; 6], [4; 6]).ipv6(local, remote, 9).protocol(protocol);
            let quoted = quoted.payload(&[0; 8]).finish();
            let frame = Frame::ethernet([2; 6], [4; 6]).ipv6(remote, local, 9);
            frame.icmpv6(kind, 0, 1300).payload(&quoted[14..]).finish()[54..].to_vec()
        };
        for (kind, protocol, is_read) in
            [(2, 17, true), (2, 47, true), (2, 43, true), (2, 6, false), (1, 17, false)]
        {
            let read = v6(&message(kind, protocol));
            assert_eq!(read, is_read.then_some(PathMtu { remote: remote.into(), mtu: 1300 }));
        }
    }

    #[test]
    fn sockets_receive_reports_alone() {
        testing::in_namespace(|| {
            let monitor = PathMtuMonitor::new().expect("root may make raw sockets");
            let raw = sys::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP).unwrap();
            let socket = std::net::UdpSocket::from(raw);
            let own = Ipv4Addr::LOCALHOST;
            let quoted =
                Frame::ethernet([2; 6], [4; 6]).ipv4(own, REMOTE, 64).udp(1, 4789).finish();
            for (kind, code) in [(8, 0), (3, 4)] {
                let frame = Frame::ethernet([2; 6], [4; 6]).ipv4(own, own, 64);
                let frame = frame.icmp(kind, code, 1400).payload(&quoted[14..]).finish();
                socket.send_to(&frame[34..], (own, 0)).expect("loopback is up");
            }
            let mut seen = Vec::new();
            assert!(testing::wait_until(std::time::Duration::from_secs(5), || {
                seen.extend(monitor.poll().expect("no error").mtus);
                !seen.is_empty()
            }));
            assert_eq!(seen, [PathMtu { remote: REMOTE.into(), mtu: 1400 }]);
        });
    }
}
