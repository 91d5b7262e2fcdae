// SPDX-License-Identifier: Apache-2.0
//! What one must know of an interface before XDP programs are put on it, or frames are
//! redirected to it. Facts only; what follows from them is for others to decide.
//!
//! # Why these facts
//!
//! * `XDP_REDIRECT` to a veth whose *peer* does not run NAPI is dropped without a trace
//!   (`veth_xdp_xmit`, drivers/net/veth.c): [`Interface::runs_napi`] of the peer.
//! * What a veth's peer sends arrives as the sending stack left it. When checksums, tags or
//!   segmentation are left to the interface there, XDP sees packets with unfinished checksums,
//!   without their tags, or larger than a page: [`Interface::offloads`] of the peer.
//! * A card that takes tags off hides them from XDP: [`Offloads::takes_tags_off`] of the
//!   interface itself.
//! * Somebody's program may be there already: [`Interface::xdp`].
//!
//! Whether a driver can run XDP programs itself only an attempt tells.

use crate::ethtool::Ethtool;
use crate::link::{self, By, LinkClient};
use crate::namespace;
use crate::netlink::{attributes, u32_of};
use crate::offloads::Offloads;
use crate::status::DriverInfo;
use std::io;
use std::sync::{Mutex, PoisonError};

// include/uapi/linux/if_link.h
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
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

/// Numbers of the XDP programs on an interface, by where they run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpPrograms {
    /// In the driver.
    pub driver: Option<u32>,
    /// In the stack ("generic").
    pub generic: Option<u32>,
    /// In the card.
    pub hardware: Option<u32>,
}

impl XdpPrograms {
    /// None at all.
    pub fn is_empty(&self) -> bool {
        *self == XdpPrograms::default()
    }
}

/// One interface, or one end of a pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's index, in the interface's own network namespace.
    pub index: u32,
    /// Its name there.
    pub name: String,
    /// "veth", "tun", ...; `None` for hardware.
    pub kind: Option<String>,
    /// Index of the bridge or bond that it belongs to.
    pub master: Option<u32>,
    /// Administratively up.
    pub admin_up: bool,
    /// Bytes of a frame without its Ethernet header.
    pub mtu: u32,
    /// Receive queues that the driver allocated.
    pub rx_queues: u32,
    /// Transmit queues that the driver allocated.
    pub tx_queues: u32,
    /// XDP programs attached.
    pub xdp: XdpPrograms,
    /// What the driver says about itself; `None`: it could not be asked.
    pub driver: Option<DriverInfo>,
    /// Offloads that are on; `None`: could not be read.
    pub offloads: Option<Offloads>,
}

impl Interface {
    /// For an end of a veth pair: whether it takes frames that XDP redirects to the other end,
    /// which it does while it is up and runs an XDP program in its driver or GRO. `None` when
    /// that is not known.
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

/// The other end of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The interface is no end of a pair (veth, netkit).
    None,
    /// It is known.
    Known {
        /// Number that our network namespace gives to the peer's; `None`: the same namespace.
        namespace: Option<i32>,
        /// The peer itself. Its driver and offloads are known when a process or a name leads to
        /// its namespace.
        interface: Box<Interface>,
    },
    /// There is one, but it cannot be read.
    Hidden {
        /// What was tried and what the kernel said; for people.
        reason: String,
    },
}

/// What [`XdpProber::probe`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpProbe {
    /// The interface that was asked for.
    pub interface: Interface,
    /// Its other end.
    pub peer: Peer,
}

/// An interface of one `RTM_NEWLINK` message, and where its other end is.
#[derive(Debug, Default)]
struct ParsedLink {
    interface: Interface,
    peer: Option<u32>,
    peer_namespace: Option<i32>,
}

/// Looks at interfaces, and remembers how it came to the namespaces of their other ends. For one
/// network namespace: that of the threads that use it.
#[derive(Debug, Default)]
pub struct XdpProber {
    paths: Mutex<namespace::NamespacePaths>,
}

impl XdpProber {
    /// Surveys interface `name` of the calling thread's network namespace. Takes a few system
    /// calls; the first time that a peer is in another namespace some more for each process there
    /// is.
    ///
    /// # Errors
    ///
    /// `ENODEV` when there is none, or what the kernel said.
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
                // What is remembered is only tried: a panicked holder does no harm.
                let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
                probe_peer(&client, index, read.peer_namespace, &mut paths)
            }
        };
        Ok(XdpProbe { interface: read.interface, peer })
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
                // Without an answer, driver and offloads stay unknown.
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

/// Asks for interface `name` of the calling thread's network namespace.
fn ask(name: &str) -> (Option<DriverInfo>, Option<Offloads>) {
    match Ethtool::new() {
        Ok(ethtool) => (ethtool.driver(name).ok(), ethtool.offloads(name).ok()),
        Err(_) => (None, None),
    }
}

/// Reads the payload of one `RTM_NEWLINK` message; `None` when it is cut short.
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
            admin_up: link.admin_up,
            mtu: link.mtu,
            rx_queues: link.rx_queues,
            ..Interface::default()
        },
        ..ParsedLink::default()
    };
    for (kind, value) in attributes(payload.get(16..)?) {
        match kind {
            IFLA_LINK => read.peer = u32_of(value).filter(|index| *index != 0),
            IFLA_LINK_NETNSID => read.peer_namespace = u32_of(value).map(u32::cast_signed),
            IFLA_MASTER => read.interface.master = u32_of(value),
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
    // Where there is one program the kernel may name it only here.
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
