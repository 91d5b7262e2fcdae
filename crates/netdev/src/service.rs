// SPDX-License-Identifier: Apache-2.0
//! Services: the packets of tunnels among those that arrive at a device of the host.
//!
//! The host's stack uses the device, too. A packet socket there gets copies, so it has a filter for
//! the packets of tunnels. The stack gets these packets as well, and answers that nobody listens
//! ("port unreachable"), unless a [`ServiceSink`] listens.

use crate::sys;
use packet::ip_proto;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

// include/uapi/linux/bpf_common.h, linux/filter.h
const LD: u16 = 0x00;
const LDX: u16 = 0x01;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;
const HALF: u16 = 0x08;
const BYTE: u16 = 0x10;
const ABSOLUTE: u16 = 0x20;
const INDEXED: u16 = 0x40;
/// Four times the low nibble of a byte: the length of an IPv4 header.
const HEADER_LENGTH: u16 = 0xb0;
const EQUAL: u16 = 0x10;
const ANY_BIT: u16 = 0x40;
/// Offset at which the kernel shows whether a packet has a VLAN tag (`SKF_AD_OFF`,
/// `SKF_AD_VLAN_TAG_PRESENT`).
const HAS_TAG: u32 = (-0x1000i32 + 48) as u32;

/// Offsets in an Ethernet frame.
const ETHERTYPE: u32 = 12;
const IP: u32 = 14;
const IPV4_FRAGMENT: u32 = IP + 6;
const IPV4_PROTOCOL: u32 = IP + 9;
const IPV6_NEXT: u32 = IP + 6;
const IPV6_PAYLOAD: u32 = IP + 40;
/// More fragments, and the offset of a fragment (RFC 791, 3.1).
const FRAGMENT: u32 = 0x3fff;

/// Packets of one kind of tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Service {
    /// IP protocol. That of the packet inside, where the packet has a routing header.
    pub protocol: u8,
    /// UDP (or TCP) destination port; 0 for a protocol without ports.
    pub port: u16,
}

/// The instructions of a filter.
#[derive(Default)]
struct Code(Vec<libc::sock_filter>);

/// Places to which jumps lead before [`Code::finish`] has appended the two ends.
const REJECT: u8 = u8::MAX;
const ACCEPT: u8 = u8::MAX - 1;

impl Code {
    fn load(&mut self, size: u16, mode: u16, at: u32) {
        self.0.push(libc::sock_filter { code: LD | size | mode, jt: 0, jf: 0, k: at });
    }

    fn jump(&mut self, test: u16, value: u32, jt: u8, jf: u8) {
        self.0.push(libc::sock_filter { code: JMP | test, jt, jf, k: value });
    }

    /// Tests the port in the accumulator, and ends in acceptance or rejection.
    fn ports(&mut self, services: &[Service]) {
        let with_ports = |s: &&Service| s.port != 0;
        for service in services.iter().filter(with_ports) {
            self.jump(EQUAL, service.port.into(), ACCEPT, 0);
        }
        self.end(0);
    }

    fn end(&mut self, accepted: u32) {
        self.0.push(libc::sock_filter { code: RET, jt: 0, jf: 0, k: accepted });
    }

    /// Tests the protocol in the accumulator: those without ports are accepted, UDP goes on after
    /// the last test, and others are rejected.
    fn protocols(&mut self, services: &[Service]) {
        for service in services.iter().filter(|s| s.port == 0) {
            self.jump(EQUAL, service.protocol.into(), ACCEPT, 0);
        }
        self.jump(EQUAL, ip_proto::UDP.into(), 0, REJECT);
    }

    /// Appends the two ends, and lets the jumps lead there.
    fn finish(mut self) -> Vec<libc::sock_filter> {
        self.end(0);
        self.end(u32::MAX);
        let (reject, accept) = (self.0.len() - 2, self.0.len() - 1);
        for (at, instruction) in self.0.iter_mut().enumerate() {
            if instruction.code & 0x07 != JMP {
                continue;
            }
            for to in [&mut instruction.jt, &mut instruction.jf] {
                let target = match *to {
                    REJECT => reject,
                    ACCEPT => accept,
                    _ => continue,
                };
                *to = (target - at - 1) as u8; // MOST keeps it below REJECT and ACCEPT
            }
        }
        self.0
    }
}

/// Most services that a filter distinguishes. With more, the filter accepts all UDP packets.
const MOST: usize = 64;

/// Returns a filter that accepts the packets of `services`, which are not VLAN packets and no
/// fragments. It may accept more.
pub(crate) fn filter(services: &[Service]) -> Vec<libc::sock_filter> {
    if services.is_empty() {
        return vec![sys::ACCEPT_NOTHING];
    }
    if services.len() > MOST {
        return vec![libc::sock_filter { code: RET, jt: 0, jf: 0, k: u32::MAX }];
    }
    let mut six = Code::default();
    six.load(BYTE, ABSOLUTE, IPV6_NEXT);
    if services.iter().any(|s| matches!(s.protocol, ip_proto::IPV4 | ip_proto::IPV6)) {
        six.jump(EQUAL, ip_proto::ROUTING.into(), ACCEPT, 0);
    }
    six.protocols(services);
    six.load(HALF, ABSOLUTE, IPV6_PAYLOAD + 2);
    six.ports(services);

    let mut code = Code::default();
    code.load(BYTE, ABSOLUTE, HAS_TAG);
    code.jump(EQUAL, 0, 0, REJECT);
    code.load(HALF, ABSOLUTE, ETHERTYPE);
    code.jump(EQUAL, packet::ethertype::IPV4.into(), six.0.len() as u8 + 1, 0);
    code.jump(EQUAL, packet::ethertype::IPV6.into(), 0, REJECT);
    code.0.append(&mut six.0);
    code.load(HALF, ABSOLUTE, IPV4_FRAGMENT);
    code.jump(ANY_BIT, FRAGMENT, REJECT, 0);
    code.load(BYTE, ABSOLUTE, IPV4_PROTOCOL);
    code.protocols(services);
    code.0.push(libc::sock_filter { code: LDX | HEADER_LENGTH, jt: 0, jf: 0, k: IP });
    code.load(HALF, INDEXED, IP + 2);
    code.ports(services);
    code.finish()
}

/// A socket that makes the host's stack accept the packets of a service, and discards them.
#[derive(Debug)]
pub struct ServiceSink {
    _socket: OwnedFd,
}

impl ServiceSink {
    /// Opens a socket for a service over IPv4 or IPv6, in the network namespace of the thread.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` when another socket listens, which then does the same work; `EAFNOSUPPORT`
    /// without the family; or the lack of a privilege.
    pub fn open(service: Service, is_ipv6: bool) -> io::Result<ServiceSink> {
        let socket: OwnedFd = if service.port != 0 {
            ServiceSink::udp(service.port, is_ipv6)?
        } else {
            let family = if is_ipv6 { libc::AF_INET6 } else { libc::AF_INET };
            sys::socket(family, libc::SOCK_RAW, service.protocol.into())?
        };
        sys::attach_filter(socket.as_fd(), &mut [sys::ACCEPT_NOTHING])?;
        Ok(ServiceSink { _socket: socket })
    }

    fn udp(port: u16, is_ipv6: bool) -> io::Result<OwnedFd> {
        if !is_ipv6 {
            return Ok(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?.into());
        }
        let socket = sys::socket(libc::AF_INET6, libc::SOCK_DGRAM, 0)?;
        sys::set_option(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1)?;
        let any = libc::sockaddr_in6 {
            sin6_family: libc::AF_INET6 as u16,
            sin6_port: port.to_be(),
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
            sin6_scope_id: 0,
        };
        sys::bind(socket.as_fd(), &any)?;
        Ok(socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::build::Frame;
    use std::net::Ipv6Addr;

    const VXLAN: Service = Service { protocol: ip_proto::UDP, port: 4789 };
    const GENEVE: Service = Service { protocol: ip_proto::UDP, port: 6081 };
    const GRE: Service = Service { protocol: ip_proto::GRE, port: 0 };

    /// Runs a filter over a frame, as the kernel does, without a VLAN tag.
    fn accepts(code: &[libc::sock_filter], frame: &[u8]) -> bool {
        let byte = |at: usize| frame.get(at).copied().map(u32::from);
        let half = |at: usize| Some(byte(at)? << 8 | byte(at + 1)?);
        let (mut a, mut x, mut pc) = (0u32, 0u32, 0usize);
        loop {
            let i = code[pc];
            pc += 1;
            let at = i.k as usize;
            let loaded = match i.code {
                RET => return i.k != 0,
                c if c & 0x07 == JMP => {
                    let holds = if c & 0xf0 == EQUAL { a == i.k } else { a & i.k != 0 };
                    pc += usize::from(if holds { i.jt } else { i.jf });
                    continue;
                }
                c if c == LD | BYTE | ABSOLUTE && i.k == HAS_TAG => Some(0),
                c if c == LD | BYTE | ABSOLUTE => byte(at),
                c if c == LD | HALF | ABSOLUTE => half(at),
                c if c == LD | HALF | INDEXED => half(at + x as usize),
                c if c == LDX | HEADER_LENGTH => {
                    let Some(first) = byte(at) else { return false };
                    x = 4 * (first & 0xf);
                    continue;
                }
                c => panic!("{c:#x}"),
            };
            let Some(value) = loaded else { return false };
            a = value;
        }
    }

    fn v4() -> Frame {
        Frame::ethernet([2; 6], [4; 6]).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 64)
    }

    fn v6() -> Frame {
        let address = |n: u16| Ipv6Addr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, n]);
        Frame::ethernet([2; 6], [4; 6]).ipv6(address(1), address(2), 64)
    }

    #[test]
    fn packets_of_services_are_accepted() {
        let code = filter(&[VXLAN, GENEVE, GRE]);
        for frame in [v4().udp(9, 4789), v4().udp(9, 6081), v6().udp(9, 4789), v6().udp(9, 6081)] {
            assert!(accepts(&code, frame.packet().data()));
        }
        let gre = |mut frame: Vec<u8>, at: usize| {
            frame[at] = 47;
            frame
        };
        assert!(accepts(&code, &gre(v4().udp(1, 1).packet().data().to_vec(), 23)));
        assert!(accepts(&code, &gre(v6().udp(1, 1).packet().data().to_vec(), 20)));
    }

    #[test]
    fn others_are_not() {
        let code = filter(&[VXLAN, GRE]);
        for frame in
            [v4().udp(4789, 53), v4().tcp(9, 4789, 2), v6().udp(4789, 53), v6().tcp(9, 4789, 2)]
        {
            assert!(!accepts(&code, frame.packet().data()));
        }
        let mut fragment = v4().udp(9, 4789).packet().data().to_vec();
        fragment[20] |= 0x20; // more fragments
        assert!(!accepts(&code, &fragment));
        let arp = Frame::ethernet([2; 6], [4; 6]).arp(
            packet::ethertype::ARP,
            1,
            ([4; 6], [10, 0, 0, 1].into()),
            ([0; 6], [10, 0, 0, 2].into()),
        );
        assert!(!accepts(&code, arp.packet().data()));
        assert!(!accepts(&filter(&[VXLAN]), v4().udp(9, 6081).packet().data()));
        assert!(!accepts(&filter(&[]), v4().udp(9, 4789).packet().data()));
    }

    #[test]
    fn the_kernel_takes_filters_of_any_length() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        for count in [0, 1, 2, 7, MOST - 1, MOST, MOST + 1] {
            let udp = |n| Service { protocol: ip_proto::UDP, port: 1000 + n as u16 };
            let services: Vec<Service> = (0..count).map(udp).chain([GRE]).collect();
            let mut code = filter(&services);
            sys::attach_filter(socket.as_fd(), &mut code).expect("a valid filter");
            if count == MOST - 1 {
                assert!(accepts(&code, v4().udp(9, 1000).packet().data()));
                assert!(accepts(&code, v6().udp(9, 1000).packet().data()));
            }
        }
    }

    fn a_sink_listens() {
        let ask = || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            socket.connect("127.0.0.1:4789").expect("an address");
            socket.send(b"x").expect("sent");
            socket.send(b"x").map_err(|e| e.raw_os_error())
        };
        let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.expect("ip").success());
        assert_eq!(ask(), Err(Some(libc::ECONNREFUSED)), "nobody listens");
        let sink = ServiceSink::open(VXLAN, false).expect("a socket");
        assert_eq!(ask(), Ok(1));
        let second = ServiceSink::open(VXLAN, false).map(drop).map_err(|e| e.raw_os_error());
        assert_eq!(second, Err(Some(libc::EADDRINUSE)));
        ServiceSink::open(VXLAN, true).map(drop).expect("the other family");
        drop(sink);
        assert_eq!(ask(), Err(Some(libc::ECONNREFUSED)));
        ServiceSink::open(GRE, false).map(drop).expect("a socket");
        ServiceSink::open(GRE, true).map(drop).expect("a socket");
    }

    #[test]
    fn a_sink_keeps_the_stack_quiet() {
        testing::in_namespace_as_root(a_sink_listens);
    }
}
