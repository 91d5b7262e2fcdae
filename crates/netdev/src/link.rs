// SPDX-License-Identifier: Apache-2.0
//! Linux interfaces by rtnetlink: list, find, read, change.
//!
//! The functions work in the network namespace of the calling thread, a [`LinkClient`] in that of
//! the thread that created it.

use crate::netlink::{
    self, NLM_F_ACK, NLM_F_DUMP, Request, Socket, attribute, attributes, text_of, u32_of,
};
use crate::status::DeviceStats;
use ::netlink::message::{NLM_F_CREATE, NLM_F_EXCL};
use std::io;
use std::sync::{Mutex, PoisonError};

pub(crate) const RTM_NEWLINK: u16 = 16;
pub(crate) const RTM_DELLINK: u16 = 17;
pub(crate) const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;

// include/uapi/linux/if_link.h
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_STATS64: u16 = 23;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_PROMISCUITY: u16 = 30;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_CARRIER_CHANGES: u16 = 35;
const IFLA_MIN_MTU: u16 = 50;
const IFLA_MAX_MTU: u16 = 51;
const IFLA_TARGET_NETNSID: u16 = 46;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;

// include/uapi/linux/if.h
const IFF_UP: u32 = 1;
const IFF_NOARP: u32 = 1 << 7;
const IFF_MULTICAST: u32 = 1 << 12;
const IFF_LOWER_UP: u32 = 1 << 16;

/// `ARPHRD_ETHER` (include/uapi/linux/if_arp.h).
pub const ARPHRD_ETHER: u16 = 1;
/// `ARPHRD_LOOPBACK`; such an interface has Ethernet headers too.
pub const ARPHRD_LOOPBACK: u16 = 772;

/// One interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The kernel's index.
    pub index: u32,
    /// The present name.
    pub name: String,
    /// Hardware type (`ARPHRD_...`).
    pub hardware: u16,
    /// Ethernet address; zero for interfaces without one.
    pub mac: [u8; 6],
    /// MTU: bytes of a frame without its Ethernet header.
    pub mtu: u32,
    /// Smallest and largest MTU that the driver accepts.
    pub mtu_range: Option<(u32, u32)>,
    /// True when it is administratively up.
    pub admin_up: bool,
    /// True when it has carrier.
    pub link_up: bool,
    /// True in promiscuous mode, for any reason.
    pub promiscuous: bool,
    /// Number of carrier changes.
    pub carrier_changes: u64,
    /// Number of receive queues that the driver allocated.
    pub rx_queues: u32,
    /// The kind of virtual interface ("veth", "tun", ...); `None` for hardware.
    pub kind: Option<String>,
    /// `IFLA_LINK`: index of the interface that this one is tied to, such as the other end of a
    /// veth pair, in the network namespace of that interface; `None` for none.
    pub linked: Option<u32>,
    /// `IFLA_IFALIAS`: a free text of the administrator or a program.
    pub alias: Option<String>,
    /// The kernel's counters.
    pub stats: DeviceStats,
}

/// Parses the interfaces of one rtnetlink datagram, including those that are gone. Total: messages
/// of other kinds and truncated ones are skipped.
pub fn decode(datagram: &[u8]) -> Vec<Link> {
    let of_links = |m: &netlink::Message<'_>| matches!(m.kind, RTM_NEWLINK | RTM_DELLINK);
    netlink::messages(datagram).filter(of_links).filter_map(|m| parse(m.payload)).collect()
}

/// Parses an `RTM_NEWLINK` or `RTM_DELLINK` payload. Returns `None` when it is truncated.
pub(crate) fn parse(payload: &[u8]) -> Option<Link> {
    // struct ifinfomsg: family, pad, type(2), index(4), flags(4), change(4)
    let [_, _, t0, t1, i0, i1, i2, i3, f0, f1, f2, f3, ..] = *payload.first_chunk::<16>()?;
    let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
    let mut link = Link {
        index: u32::from_ne_bytes([i0, i1, i2, i3]),
        hardware: u16::from_ne_bytes([t0, t1]),
        admin_up: flags & IFF_UP != 0,
        link_up: flags & IFF_LOWER_UP != 0,
        ..Link::default()
    };
    let (mut least, mut most) = (None, None);
    for (kind, value) in attributes(payload.get(16..)?) {
        match kind {
            IFLA_ADDRESS => {
                if let Ok(mac) = <[u8; 6]>::try_from(value) {
                    link.mac = mac;
                }
            }
            IFLA_IFNAME => link.name = text_of(value),
            IFLA_MTU => link.mtu = u32_of(value)?,
            IFLA_LINK => link.linked = u32_of(value).filter(|index| *index != 0),
            IFLA_MIN_MTU => least = u32_of(value),
            IFLA_MAX_MTU => most = u32_of(value),
            IFLA_PROMISCUITY => link.promiscuous = u32_of(value)? != 0,
            IFLA_NUM_RX_QUEUES => link.rx_queues = u32_of(value)?,
            IFLA_CARRIER_CHANGES => link.carrier_changes = u64::from(u32_of(value)?),
            IFLA_LINKINFO => {
                for (kind, value) in attributes(value) {
                    if kind == IFLA_INFO_KIND {
                        link.kind = Some(text_of(value));
                    }
                }
            }
            IFLA_IFALIAS => link.alias = Some(text_of(value)),
            IFLA_STATS64 => link.stats = stats64(value),
            _ => {}
        }
    }
    link.mtu_range = least.zip(most);
    Some(link)
}

/// Parses `struct rtnl_link_stats64`. Counters that an older kernel lacks are `None`.
fn stats64(value: &[u8]) -> DeviceStats {
    let (words, _) = value.as_chunks::<8>();
    let at = |i: usize| words.get(i).map(|b| u64::from_ne_bytes(*b));
    DeviceStats {
        rx_packets: at(0),
        tx_packets: at(1),
        rx_bytes: at(2),
        tx_bytes: at(3),
        rx_errors: at(4),
        tx_errors: at(5),
        rx_dropped: at(6),
        tx_dropped: at(7),
        multicast: at(8),
        collisions: at(9),
        rx_length_errors: at(10),
        rx_over_errors: at(11),
        rx_crc_errors: at(12),
        rx_frame_errors: at(13),
        rx_fifo_errors: at(14),
        rx_missed_errors: at(15),
        tx_aborted_errors: at(16),
        tx_carrier_errors: at(17),
        tx_fifo_errors: at(18),
        tx_heartbeat_errors: at(19),
        tx_window_errors: at(20),
        ..DeviceStats::default()
    }
}

/// The identification of an interface in a request.
#[derive(Clone, Copy, Debug)]
pub enum By<'a> {
    /// By the kernel's index.
    Index(u32),
    /// By name.
    Name(&'a str),
}

/// A change of an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'a> {
    Mtu(u32),
    Mac([u8; 6]),
    AdminUp(bool),
    Alias(&'a str),
    /// No IPv6 address is assigned when it comes up.
    NoIpv6Address,
    /// Up, without ARP and multicast, so the host sends nothing there by itself.
    UpSilent,
}

/// Reads and changes interfaces of one network namespace. Any thread may use it; calls take turns.
#[derive(Debug)]
pub struct LinkClient {
    socket: Mutex<Socket>,
}

/// Returns the attributes of an `RTM_NEWLINK` payload that are for the interface's kind. Total.
pub(crate) fn details(payload: &[u8]) -> Option<impl Iterator<Item = (u16, &[u8])>> {
    let of = |wanted| move |(kind, value)| (kind == wanted).then(|| attributes(value));
    let info = attributes(payload.get(16..)?).filter_map(of(IFLA_LINKINFO)).flatten();
    Some(info.filter_map(of(IFLA_INFO_DATA)).flatten())
}

impl LinkClient {
    /// Creates a client in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// No netlink socket can be created.
    pub fn new() -> io::Result<LinkClient> {
        Ok(LinkClient::from_socket(Socket::new(0)?))
    }

    pub(crate) fn from_socket(socket: Socket) -> LinkClient {
        LinkClient { socket: Mutex::new(socket) }
    }

    pub(crate) fn request(&self, request: Request, each: impl FnMut(u16, &[u8])) -> io::Result<()> {
        // A panic inside leaves at worst an unread answer, which its sequence number identifies.
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        socket.request(request, each)
    }

    /// Reads one interface.
    ///
    /// # Errors
    ///
    /// `ENODEV` when there is no such interface.
    pub fn link(&self, by: By<'_>) -> io::Result<Link> {
        self.read(by, None, parse)
    }

    /// Reads one interface with the caller's parser, in the network namespace with the number
    /// `namespace`; `None`: the own one.
    pub(crate) fn read<T>(
        &self,
        by: By<'_>,
        namespace: Option<i32>,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<T> {
        let mut request = targeted(RTM_GETLINK, by, 0, 0);
        if let Some(number) = namespace {
            request = request.attribute(IFLA_TARGET_NETNSID, &number.to_ne_bytes());
        }
        let mut found = None;
        self.request(request, |kind, payload| {
            if kind == RTM_NEWLINK {
                found = parse(payload);
            }
        })?;
        found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }

    /// Reads all interfaces.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn list(&self) -> io::Result<Vec<Link>> {
        self.list_by(parse)
    }

    /// The same by another parser of the payload of `RTM_NEWLINK`.
    pub(crate) fn list_by<T>(&self, parse: impl Fn(&[u8]) -> Option<T>) -> io::Result<Vec<T>> {
        let mut all = Vec::new();
        let request = Request::new(RTM_GETLINK, NLM_F_DUMP, &[0; 16]);
        self.request(request, |kind, payload| {
            if kind == RTM_NEWLINK {
                all.extend(parse(payload));
            }
        })?;
        Ok(all)
    }

    /// Has the kernel assign no IPv6 address. One without IPv6 assigns none.
    pub(crate) fn assign_no_ipv6(&self, by: By<'_>) -> io::Result<()> {
        match self.change(by, Change::NoIpv6Address) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) => {
                Ok(())
            }
            other => other,
        }
    }

    pub(crate) fn change(&self, by: By<'_>, change: Change<'_>) -> io::Result<()> {
        let request = match change {
            Change::Mtu(mtu) => {
                targeted(RTM_SETLINK, by, 0, 0).attribute(IFLA_MTU, &mtu.to_ne_bytes())
            }
            Change::Mac(mac) => targeted(RTM_SETLINK, by, 0, 0).attribute(IFLA_ADDRESS, &mac),
            Change::AdminUp(up) => targeted(RTM_SETLINK, by, u32::from(up) * IFF_UP, IFF_UP),
            Change::Alias(text) => {
                targeted(RTM_SETLINK, by, 0, 0).attribute(IFLA_IFALIAS, text.as_bytes())
            }
            Change::NoIpv6Address => {
                let mode = netlink::attribute(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
                let inet6 = netlink::attribute(libc::AF_INET6 as u16, &mode);
                targeted(RTM_SETLINK, by, 0, 0).attribute(IFLA_AF_SPEC, &inet6)
            }
            Change::UpSilent => {
                let (flags, mask) = (IFF_UP | IFF_NOARP, IFF_UP | IFF_NOARP | IFF_MULTICAST);
                targeted(RTM_SETLINK, by, flags, mask)
            }
        };
        self.request(request, |_, _| {})
    }

    /// Deletes an interface.
    ///
    /// # Errors
    ///
    /// `ENODEV`, `EPERM`, or `EOPNOTSUPP` for hardware.
    pub fn delete(&self, by: By<'_>) -> io::Result<()> {
        self.request(targeted(RTM_DELLINK, by, 0, 0), |_, _| {})
    }
}

fn targeted(kind: u16, by: By<'_>, flags: u32, mask: u32) -> Request {
    let mut fixed = [0; 16];
    if let By::Index(index) = by {
        fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    }
    fixed[8..12].copy_from_slice(&flags.to_ne_bytes());
    fixed[12..16].copy_from_slice(&mask.to_ne_bytes());
    let request = Request::new(kind, NLM_F_ACK, &fixed);
    match by {
        By::Index(_) => request,
        By::Name(name) => request.attribute(IFLA_IFNAME, &text(name)),
    }
}

/// Returns all interfaces of the calling thread's network namespace.
///
/// # Errors
///
/// The kernel's error.
pub fn list() -> io::Result<Vec<Link>> {
    LinkClient::new()?.list()
}

/// Returns true when the error means that there is no such interface in the network namespace.
pub(crate) fn is_not_there(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENODEV)
}

/// Returns true when an error of an interface's [`crate::Device`] means that the interface is gone.
/// Other errors may be temporary: too many open files, too little memory.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO | libc::EBADFD))
}

/// Returns the interface with this name in the calling thread's network namespace.
///
/// # Errors
///
/// `ENODEV` when there is no such interface.
pub fn find(name: &str) -> io::Result<Link> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    LinkClient::new()?.link(By::Name(name))
}

/// Returns true when an interface with this name is in the calling thread's network namespace.
pub fn exists(name: &str) -> bool {
    find(name).is_ok()
}

/// Returns the attribute with the name of an interface.
pub(crate) fn named(name: &str) -> Vec<u8> {
    attribute(IFLA_IFNAME, &text(name))
}

/// Returns a request that creates an interface of a kind, with the attributes of that kind in `data`. It is an
/// error when the interface exists.
pub(crate) fn creation(name: &str, kind: &str, data: &[u8]) -> Request {
    let info = [attribute(IFLA_INFO_KIND, &text(kind)), attribute(IFLA_INFO_DATA, data)].concat();
    Request::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, &[0; 16])
        .attribute(IFLA_IFNAME, &text(name))
        .attribute(IFLA_LINKINFO, &info)
}

fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn loopback_is_listed_and_found() {
        let all = list().expect("a link dump needs no privilege");
        let lo = all.iter().find(|l| l.name == "lo").expect("every namespace has lo");
        assert_eq!(lo.hardware, ARPHRD_LOOPBACK);
        assert!(lo.stats.rx_packets.is_some());
        assert_eq!(find("lo").expect("listed above").index, lo.index);
        assert!(!exists("no-such-dev"));
        assert!(!exists("a-name-longer-than-any"));
        assert!(!exists(""));
    }

    #[test]
    fn a_passing_error_does_not_say_that_an_interface_is_gone() {
        let is_gone = |number| is_gone(&io::Error::from_raw_os_error(number));
        assert!([libc::ENODEV, libc::ENXIO, libc::EBADFD].into_iter().all(is_gone));
        assert!(![libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN].into_iter().any(is_gone));
        let e = find("no-such-dev").expect_err("there is none");
        assert!(super::is_gone(&e), "{e}");
    }

    proptest! {
        #[test]
        fn any_payload_is_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let _ = parse(&bytes);
        }
    }
}
