// SPDX-License-Identifier: Apache-2.0
//! Connections of the kernel's tracker (include/uapi/linux/netfilter/nfnetlink_conntrack.h).

use conntrack::{
    Detail, Entry, Flush, Helper, Icmp, IcmpClass, Peer, Ports, TcpConn, TcpState, Tuple,
};
use netdev::NetlinkProtocol;
use netlink::attribute::{array, find};
use netlink::{Error, Request, Socket};
use packet::ip_proto;
use std::net::IpAddr;
use std::time::Duration;

/// Kinds of messages: the subsystem, and the command of it (`IPCTNL_MSG_CT_*`).
const NEW: u16 = 0x100;
const GET: u16 = 0x101;
const DELETE: u16 = 0x102;
/// Bytes of `struct nfgenmsg`: family, version, and two of the subsystem.
const HEADER: usize = 4;

/// `CTA_*`
mod attr {
    pub const ORIGINAL: u16 = 1;
    pub const REPLY: u16 = 2;
    pub const PROTOINFO: u16 = 4;
    pub const HELP: u16 = 5;
    pub const TIMEOUT: u16 = 7;
    pub const MARK: u16 = 8;
    pub const ID: u16 = 12;
    pub const PARENT: u16 = 14;
    pub const ZONE: u16 = 18;
    pub const LABELS: u16 = 22;
}

/// `CTA_TUPLE_*`, and the parts of both.
mod tuple {
    pub const IP: u16 = 1;
    pub const PROTO: u16 = 2;
    pub const V4: [u16; 2] = [1, 2];
    pub const V6: [u16; 2] = [3, 4];
    pub const NUMBER: u16 = 1;
    pub const PORTS: [u16; 2] = [2, 3];
    /// Identifier, type and code.
    pub const ICMP: [u16; 3] = [4, 5, 6];
    pub const ICMPV6: [u16; 3] = [7, 8, 9];
}

/// A connection of the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelConnection {
    /// Its parts that a dump shows.
    pub entry: Entry,
    /// The attributes that name it in a request, after the header of the request.
    name: Vec<u8>,
}

/// Decodes a message about a connection; `None` when it lacks a part, or has a protocol of ICMP's
/// that the switch does not track. Total.
pub fn decode(payload: &[u8]) -> Option<KernelConnection> {
    let (header, attributes) = payload.split_at_checked(HEADER)?;
    let family = *header.first()?;
    let zone = find(attributes, attr::ZONE).and_then(array).map_or(0, u16::from_be_bytes);
    let of = |kind| tuple_of(find(attributes, kind)?, zone);
    let original = of(attr::ORIGINAL)?;
    let word = |kind| find(attributes, kind).and_then(array).map_or(0, u32::from_be_bytes);
    let label = find(attributes, attr::LABELS).and_then(array).map_or(0, u128::from_le_bytes);
    let helper = find(attributes, attr::HELP).and_then(|help| find(help, 1));
    let helper = helper.map(netlink::message::text);
    let entry = Entry {
        original,
        reply: of(attr::REPLY)?,
        mark: word(attr::MARK),
        label,
        timeout: Duration::from_secs(word(attr::TIMEOUT).into()),
        tcp: (original.proto == ip_proto::TCP).then(|| tcp_of(attributes)),
        helper: helper.and_then(|name| Helper::from_name(&name)),
        parent: of(attr::PARENT),
    };
    let mut name = vec![family, 0, 0, 0];
    for kind in [attr::ORIGINAL, attr::ZONE, attr::ID] {
        if let Some(value) = find(attributes, kind) {
            let nested = if kind == attr::ORIGINAL { 0x8000 } else { 0 }; // NLA_F_NESTED
            netlink::attribute::put(&mut name, kind | nested, value);
        }
    }
    Some(KernelConnection { entry, name })
}

fn tuple_of(bytes: &[u8], zone: u16) -> Option<Tuple> {
    let (ip, transport) = (find(bytes, tuple::IP)?, find(bytes, tuple::PROTO)?);
    let address = |at: usize| {
        let v4 = find(ip, *tuple::V4.get(at)?).and_then(array::<4>).map(IpAddr::from);
        v4.or_else(|| find(ip, *tuple::V6.get(at)?).and_then(array::<16>).map(IpAddr::from))
    };
    let octet = |kind| find(transport, kind)?.first().copied();
    let word = |kind| find(transport, kind).and_then(array).map(u16::from_be_bytes);
    let proto = octet(tuple::NUMBER)?;
    let ports = match proto {
        ip_proto::ICMP | ip_proto::ICMPV6 => {
            let is_v4 = proto == ip_proto::ICMP;
            let [id, kind, code] = if is_v4 { tuple::ICMP } else { tuple::ICMPV6 };
            let kind = octet(kind)?;
            let (class, request) =
                if is_v4 { IcmpClass::of_icmp(kind) } else { IcmpClass::of_icmpv6(kind) }?;
            Ports::Icmp(Icmp { class, request, code: octet(code)?, id: word(id)? })
        }
        _ => {
            let [src, dst] = tuple::PORTS.map(|kind| word(kind).unwrap_or(0));
            Ports::Pair { src, dst }
        }
    };
    Some(Tuple { src: address(0)?, dst: address(1)?, ports, proto, zone })
}

/// The state of a connection (`enum tcp_conntrack`), which the kernel has once for both peers.
fn tcp_of(attributes: &[u8]) -> TcpConn {
    let state = find(attributes, attr::PROTOINFO).and_then(|info| find(find(info, 1)?, 1));
    let state = match state.and_then(|value| value.first().copied()) {
        Some(1 | 9) => TcpState::SynSent,
        Some(2) => TcpState::SynRecv,
        Some(3) => TcpState::Established,
        Some(4) => TcpState::FinWait1,
        Some(5) => TcpState::CloseWait,
        Some(6) => TcpState::LastAck,
        Some(7) => TcpState::TimeWait,
        Some(_) | None => TcpState::Closed,
    };
    TcpConn { peers: [Peer { state, ..Peer::default() }; 2] }
}

fn open() -> Result<Socket, Error> {
    Ok(Socket::new(netdev::open_netlink(NetlinkProtocol::Netfilter)?))
}

fn all(socket: &mut Socket) -> Result<Vec<KernelConnection>, Error> {
    let mut all = Vec::new();
    socket.dump(Request::new(GET, 0, &[0; HEADER]), |kind, payload| {
        all.extend((kind == NEW).then(|| decode(payload)).flatten());
    })?;
    Ok(all)
}

/// Returns the lines of `dpctl/dump-conntrack` about the connections in the calling thread's network
/// namespace, of one zone or all.
///
/// # Errors
///
/// The kernel's error.
pub fn lines(zone: Option<u16>, detail: Detail) -> Result<String, Error> {
    let all = all(&mut open()?)?;
    let wanted = all.iter().filter(|c| zone.is_none_or(|zone| c.entry.original.zone == zone));
    Ok(wanted.map(|connection| connection.entry.line(detail) + "\n").collect())
}

/// Ends the connections in the calling thread's network namespace that match. Returns their number.
///
/// # Errors
///
/// The kernel's error.
pub fn flush(wanted: &Flush) -> Result<usize, Error> {
    let mut socket = open()?;
    let all = all(&mut socket)?;
    let mut ended = 0;
    for connection in all.iter().filter(|connection| wanted.matches_entry(&connection.entry)) {
        match socket.transact(Request::new(DELETE, 0, &connection.name), |_, _| {}) {
            Ok(_) => ended += 1,
            // It has ended by itself.
            Err(error) if error.errno() == Some(rustix::io::Errno::NOENT.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink::attribute::{nest, put};

    fn message() -> Vec<u8> {
        let tuple = |to: &mut Vec<u8>, src: [u8; 4], dst: [u8; 4], ports: [u16; 2]| {
            nest(to, tuple::IP, |to| {
                put(to, tuple::V4[0], &src);
                put(to, tuple::V4[1], &dst);
            });
            nest(to, tuple::PROTO, |to| {
                put(to, tuple::NUMBER, &[ip_proto::TCP]);
                put(to, tuple::PORTS[0], &ports[0].to_be_bytes());
                put(to, tuple::PORTS[1], &ports[1].to_be_bytes());
            });
        };
        let mut bytes = vec![2, 0, 0, 0];
        nest(&mut bytes, attr::ORIGINAL, |to| tuple(to, [10, 0, 0, 1], [10, 0, 0, 2], [1000, 80]));
        nest(&mut bytes, attr::REPLY, |to| tuple(to, [10, 0, 0, 2], [10, 0, 0, 1], [80, 1000]));
        nest(&mut bytes, attr::PROTOINFO, |to| nest(to, 1, |to| put(to, 1, &[3])));
        put(&mut bytes, attr::TIMEOUT, &77u32.to_be_bytes());
        put(&mut bytes, attr::MARK, &5u32.to_be_bytes());
        put(&mut bytes, attr::ZONE, &9u16.to_be_bytes());
        put(&mut bytes, attr::ID, &[1, 2, 3, 4]);
        let mut labels = [0; 16];
        labels[0] = 0x12;
        put(&mut bytes, attr::LABELS, &labels);
        bytes
    }

    #[test]
    fn a_connection_is_shown_and_matched() {
        let connection = decode(&message()).expect("it has all parts");
        assert_eq!(
            connection.entry.line(Detail::default()),
            "tcp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1000,dport=80),\
             reply=(src=10.0.0.2,dst=10.0.0.1,sport=80,dport=1000),zone=9,mark=5,labels=0x12,\
             protoinfo=(state=ESTABLISHED)"
        );
        let matches = |words: &[&str]| {
            Flush::parse(words).expect("the words are right").matches_entry(&connection.entry)
        };
        assert!(matches(&[]) && matches(&["zone=9"]) && matches(&["zone=9", "mark=1/1"]));
        assert!(!matches(&["zone=8"]) && !matches(&["mark=2/2"]) && !matches(&["labels=0x1/0x1"]));
        assert!(matches(&["ct_nw_dst=10.0.0.2"]) && !matches(&["ct_nw_dst=10.0.0.3"]));
    }

    #[test]
    fn messages_of_any_bytes_are_read_without_a_panic() {
        let whole = message();
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..5_000 {
            let mut bytes = whole.clone();
            bytes.truncate(rng.usize(..=bytes.len()));
            for _ in 0..rng.usize(..4) {
                if let Some(byte) = rng.choice(bytes.iter_mut()) {
                    *byte = rng.u8(..);
                }
            }
            decode(&bytes);
        }
    }
}
