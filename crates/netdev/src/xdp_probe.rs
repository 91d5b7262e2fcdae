// SPDX-License-Identifier: Apache-2.0
//! The properties of an interface that matter before XDP programs are attached to it or frames are
//! redirected to it. The caller decides what follows from them.
//!
//! # Why these properties
//!
//! * `XDP_REDIRECT` to a veth whose *peer* does not run NAPI is dropped without a trace
//!   (`veth_xdp_xmit`, drivers/net/veth.c): [`Interface::runs_napi`] of the peer.
//! * A packet arrives from a veth's peer in the form in which the sending stack left it. If
//!   checksums, tags or segmentation are offloaded there, XDP sees packets with unfinished
//!   checksums, without their tags, or larger than a page: [`Interface::offloads`] of the peer.
//! * A network card that removes tags hides them from XDP: [`Offloads::takes_tags_off`] of the
//!   interface itself.
//! * Another program may be attached already: [`Interface::xdp`].
//!
//! Only an attempt shows whether a driver can run XDP programs.

use crate::ethtool::Ethtool;
use crate::filter::{ClsactHook, has_filter};
use crate::link::{self, By, LinkClient};
use crate::namespace;
use crate::netlink::{attributes, text_of, u32_of};
use crate::netns_monitor::Endpoint;
use crate::offloads::Offloads;
use crate::status::DriverInfo;
use std::io;
use std::sync::{Mutex, PoisonError};

// include/uapi/linux/if_link.h
const IFLA_QDISC: u16 = 6;
const IFLA_MASTER: u16 = 10;
const IFLA_PROMISCUITY: u16 = 30;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_HW_PROG_ID: u16 = 7;
const XDP_ATTACHED_DRV: u8 = 1;
const XDP_ATTACHED_SKB: u8 = 2;
const XDP_ATTACHED_HW: u8 = 3;

/// Ids of the XDP programs on an interface, by hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpPrograms {
    /// The program in the driver.
    pub driver: Option<u32>,
    /// The program in the stack ("generic").
    pub generic: Option<u32>,
    /// The program in the network card.
    pub hardware: Option<u32>,
}

impl XdpPrograms {
    /// Returns true when there is no program.
    pub fn is_empty(&self) -> bool {
        *self == XdpPrograms::default()
    }
}

/// An interface, or one endpoint of a pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's index, in the interface's own network namespace.
    pub index: u32,
    /// Its name in that namespace.
    pub name: String,
    /// The kind of virtual interface ("veth", "tun", ...); `None` for hardware.
    pub kind: Option<String>,
    /// Index of the bridge or bond that it belongs to.
    pub master: Option<u32>,
    /// Ethernet address; zero for interfaces without one.
    pub mac: [u8; 6],
    /// Administratively up.
    pub admin_up: bool,
    /// The kind of the root queueing discipline ("noqueue", "tbf", ...).
    pub qdisc: Option<String>,
    /// Bytes of a frame without its Ethernet header.
    pub mtu: u32,
    /// The number of its users that ask for promiscuous mode, such as captures.
    pub promiscuity: u32,
    /// Receive queues that the driver allocated.
    pub rx_queues: u32,
    /// Transmit queues that the driver allocated.
    pub tx_queues: u32,
    /// XDP programs attached.
    pub xdp: XdpPrograms,
    /// The driver's data about itself; `None`: could not be read.
    pub driver: Option<DriverInfo>,
    /// Offloads that are enabled; `None`: could not be read.
    pub offloads: Option<Offloads>,
}

impl Interface {
    /// For an endpoint of a veth pair: returns whether it receives frames that XDP redirects to the
    /// other endpoint. It does so while it is up and runs GRO or an XDP program in its driver.
    /// `None`: unknown.
    pub fn runs_napi(&self) -> Option<bool> {
        if !self.admin_up {
            return Some(false);
        }
        if self.xdp.driver.is_some() {
            return Some(true);
        }
        self.offloads.as_ref().map(Offloads::gro)
    }
}

/// The other endpoint of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The interface is not an endpoint of a pair (veth, netkit).
    None,
    /// The peer's properties are known.
    Known {
        /// The number of the peer's network namespace in the own one; `None`: the own one.
        namespace: Option<i32>,
        /// The peer. Its driver and offloads are known if its namespace is reachable through a
        /// process or a name.
        interface: Box<Interface>,
    },
    /// The peer exists and cannot be read.
    Hidden {
        /// The operation that failed and the kernel's error, for the user.
        reason: String,
    },
}

/// The result of [`XdpProber::probe`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpProbe {
    /// The probed interface.
    pub interface: Interface,
    /// Its peer.
    pub peer: Peer,
    /// A tc filter is at its egress; `None`: it could not be read.
    pub has_egress_filter: Option<bool>,
}

/// An interface of one `RTM_NEWLINK` message, and the location of its peer.
#[derive(Debug, Default)]
struct ParsedLink {
    interface: Interface,
    peer: Option<u32>,
    peer_namespace: Option<i32>,
}

/// Probes interfaces and remembers the paths of their peers' network namespaces. All threads that
/// use it must be in the same network namespace.
#[derive(Debug, Default)]
pub struct XdpProber {
    paths: Mutex<namespace::NamespacePaths>,
}

impl XdpProber {
    /// Probes interface `name` of the calling thread's network namespace. Takes a few system calls;
    /// the first time that a peer is in another namespace, some more for each process of the
    /// machine.
    ///
    /// # Errors
    ///
    /// `ENODEV` when there is no such interface, or the kernel's error.
    pub fn probe(&self, name: &str) -> io::Result<XdpProbe> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        let client = LinkClient::new()?;
        let mut read = client.read(By::Name(name), None, parse)?;
        ask_driver(&mut read.interface);
        let is_pair = matches!(read.interface.kind.as_deref(), Some("veth" | "netkit"));
        let peer = match read.peer.filter(|_| is_pair) {
            None => Peer::None,
            Some(index) => {
                // Remembered paths are only hints, so a panicked holder does no harm.
                let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
                probe_peer(&client, index, read.peer_namespace, &mut paths)
            }
        };
        let has_egress_filter = has_filter(&client, read.interface.index, ClsactHook::Egress).ok();
        Ok(XdpProbe { interface: read.interface, peer, has_egress_filter })
    }
}

/// Reads interfaces of any network namespace, without their drivers and offloads.
#[derive(Debug)]
pub struct EndReader {
    client: LinkClient,
}

impl EndReader {
    /// Opens a reader for ends as the calling thread's network namespace numbers them.
    ///
    /// # Errors
    ///
    /// No netlink socket can be created.
    pub fn open() -> io::Result<EndReader> {
        Ok(EndReader { client: LinkClient::new()? })
    }

    /// Reads an interface. One request, which needs `CAP_NET_ADMIN` over the namespace.
    ///
    /// # Errors
    ///
    /// `ENODEV` when there is no such interface, or the kernel's error.
    pub fn read(&self, end: Endpoint) -> io::Result<Interface> {
        let read = self.client.read(By::Index(end.index), end.namespace, parse)?;
        Ok(read.interface)
    }
}

fn probe_peer(
    client: &LinkClient,
    index: u32,
    namespace: Option<i32>,
    paths: &mut namespace::NamespacePaths,
) -> Peer {
    let mut interface = match client.read(By::Index(index), namespace, parse) {
        Ok(read) => read.interface,
        Err(e) => {
            let place = match namespace {
                None => String::new(),
                Some(number) => format!(" of the network namespace with number {number}"),
            };
            return Peer::Hidden { reason: format!("reading interface {index}{place}: {e}") };
        }
    };
    match namespace {
        None => ask_driver(&mut interface),
        Some(number) => {
            if let Some(there) = namespace::numbered(client, number, paths) {
                let name = interface.name.clone();
                // On an error, driver and offloads stay unknown.
                if let Ok((driver, offloads)) = namespace::within(there, move || Ok(ask(&name))) {
                    interface.driver = driver;
                    interface.offloads = offloads;
                }
            }
        }
    }
    Peer::Known { namespace, interface: Box::new(interface) }
}

fn ask_driver(interface: &mut Interface) {
    (interface.driver, interface.offloads) = ask(&interface.name);
}

/// Reads driver and offloads of interface `name` of the calling thread's network namespace.
fn ask(name: &str) -> (Option<DriverInfo>, Option<Offloads>) {
    match Ethtool::new() {
        Ok(ethtool) => (ethtool.driver(name).ok(), ethtool.offloads(name).ok()),
        Err(_) => (None, None),
    }
}

/// Parses the payload of one `RTM_NEWLINK` message. Returns `None` when it is cut short.
pub fn decode(payload: &[u8]) -> Option<Interface> {
    parse(payload).map(|read| read.interface)
}

fn parse(payload: &[u8]) -> Option<ParsedLink> {
    let link = link::parse(payload)?;
    let mut read = ParsedLink {
        interface: Interface {
            index: link.index,
            name: link.name,
            kind: link.kind,
            mac: link.mac,
            admin_up: link.admin_up,
            mtu: link.mtu,
            rx_queues: link.rx_queues,
            ..Interface::default()
        },
        peer: link.linked,
        ..ParsedLink::default()
    };
    for (kind, value) in attributes(payload.get(16..)?) {
        match kind {
            IFLA_LINK_NETNSID => read.peer_namespace = u32_of(value).map(u32::cast_signed),
            IFLA_QDISC => read.interface.qdisc = Some(text_of(value)),
            IFLA_MASTER => read.interface.master = u32_of(value),
            IFLA_PROMISCUITY => read.interface.promiscuity = u32_of(value)?,
            IFLA_NUM_TX_QUEUES => read.interface.tx_queues = u32_of(value)?,
            IFLA_XDP => read.interface.xdp = programs(value),
            _ => {}
        }
    }
    Some(read)
}

fn programs(value: &[u8]) -> XdpPrograms {
    let mut programs = XdpPrograms::default();
    let (mut only, mut mode) = (None, 0);
    for (kind, value) in attributes(value) {
        match kind {
            IFLA_XDP_ATTACHED => mode = value.first().copied().unwrap_or(0),
            IFLA_XDP_PROG_ID => only = u32_of(value),
            IFLA_XDP_DRV_PROG_ID => programs.driver = u32_of(value),
            IFLA_XDP_SKB_PROG_ID => programs.generic = u32_of(value),
            IFLA_XDP_HW_PROG_ID => programs.hardware = u32_of(value),
            _ => {}
        }
    }
    // If there is one program the kernel may report it only here.
    match mode {
        XDP_ATTACHED_DRV => programs.driver = programs.driver.or(only),
        XDP_ATTACHED_SKB => programs.generic = programs.generic.or(only),
        XDP_ATTACHED_HW => programs.hardware = programs.hardware.or(only),
        _ => {}
    }
    programs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attribute;
    use proptest::prelude::*;

    #[test]
    fn programs_are_read_by_place() {
        let both = [
            attribute(IFLA_XDP_ATTACHED, &[4]),
            attribute(IFLA_XDP_DRV_PROG_ID, &7u32.to_ne_bytes()),
            attribute(IFLA_XDP_SKB_PROG_ID, &8u32.to_ne_bytes()),
        ];
        let found = programs(&both.concat());
        assert_eq!(found, XdpPrograms { driver: Some(7), generic: Some(8), hardware: None });
        let one = [attribute(IFLA_XDP_ATTACHED, &[3]), attribute(IFLA_XDP_PROG_ID, &[9, 0, 0, 0])];
        assert_eq!(programs(&one.concat()).hardware, u32_of(&[9, 0, 0, 0]));
        assert!(programs(&attribute(IFLA_XDP_ATTACHED, &[0])).is_empty());
    }

    #[test]
    fn loopback_has_no_peer() {
        let prober = XdpProber::default();
        let lo = prober.probe("lo").expect("every namespace has lo");
        assert_eq!((lo.interface.name.as_str(), &lo.peer), ("lo", &Peer::None));
        assert!(lo.interface.offloads.is_some() && lo.interface.xdp.is_empty());
        for name in ["no-such-dev", "", "a-name-longer-than-any"] {
            let e = prober.probe(name).err().and_then(|e| e.raw_os_error());
            assert_eq!(e, Some(libc::ENODEV), "{name}");
        }
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
